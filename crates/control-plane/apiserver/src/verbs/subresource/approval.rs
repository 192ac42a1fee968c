//! `/certificatesigningrequests/N/approval`: conditions Approved and Denied, set by people
//! who may approve. Metadata may change with them, nothing else.

use serde_json::{Value, json};

use crate::http::body::{self, Accepts, RequestBody};
use crate::http::respond::HttpReply;
use crate::http::verb::Verb;
use crate::schemas::served::Endpoint;
use crate::status::ApiResult;
use crate::verbs::call::Call;
use crate::verbs::object;
use crate::verbs::read;
use crate::verbs::write::intake;
use crate::verbs::write::patch::Patch;
use crate::verbs::write::update::{self, Proposal};

pub(super) async fn answer(
    call: &mut Call<'_>,
    verb: Verb,
    body: RequestBody,
) -> ApiResult<HttpReply> {
    if verb == Verb::Get {
        return Ok(read::get(call).await?.render(call));
    }
    let bytes = body::read(body).await?;
    let options = super::options(call, verb)?;
    let answer = if verb == Verb::Update {
        let parsed = body::parse(call.headers, &bytes, Accepts::All)?;
        let wanted = intake::take(call, parsed, options.field_validation)?;
        let pinned = wanted["metadata"].get("resourceVersion").cloned();
        update::change(call, &options, Endpoint::Approval, |_, live| {
            let mut object = stamped(wanted.clone(), live);
            crate::verbs::object::set_meta(&mut object, "resourceVersion", pinned.clone());
            Ok(Proposal { object, managers_done: false })
        })
        .await?
    } else {
        let patch = Patch::parse(call, &bytes)?;
        update::change(call, &options, Endpoint::Approval, |call, live| {
            let (patched, _) = patch.apply_to(live, call)?;
            let mut object = stamped(patched, live);
            crate::verbs::object::set_meta(&mut object, "resourceVersion", None);
            Ok(Proposal { object, managers_done: false })
        })
        .await?
    };
    Ok(answer.render(call))
}

/// Fills in when each condition was written and when it last became what it is.
fn stamped(mut request: Value, live: &Value) -> Value {
    let now = base::clock::now_rfc3339();
    let known = live["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for condition in object::list_mut(&mut request, "/status/conditions") {
        if condition["status"].as_str().is_none_or(str::is_empty) {
            condition["status"] = "True".into();
        }
        if condition["lastUpdateTime"].as_str().is_none_or(str::is_empty) {
            condition["lastUpdateTime"] = json!(now);
        }
        if condition["lastTransitionTime"].as_str().is_none_or(str::is_empty) {
            let same = known.iter().find(|known| {
                known["type"] == condition["type"] && known["status"] == condition["status"]
            });
            let since = same.and_then(|same| same["lastTransitionTime"].as_str()).unwrap_or(&now);
            condition["lastTransitionTime"] = json!(since);
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_dated_and_metadata_is_kept() {
        let live = json!({"status": {"conditions": [
            {"type": "Approved", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]}});
        let request = json!({
            "metadata": {"annotations": {"by": "me"}},
            "status": {"conditions": [{"type": "Approved"}, {"type": "Other", "status": "False"}]},
        });
        let stamped = stamped(request, &live);
        assert_eq!(stamped["metadata"]["annotations"]["by"], "me");
        let [approved, other] = [0, 1].map(|at| &stamped["status"]["conditions"][at]);
        assert_eq!(approved["status"], "True");
        assert_eq!(approved["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert!(approved["lastUpdateTime"].as_str().unwrap() > "2026-01-01T00:00:00Z");
        assert_eq!(other["lastTransitionTime"], other["lastUpdateTime"]);
    }
}
