//! `/certificatesigningrequests/N/approval`: conditions Approved and Denied, set by people
//! who may approve, and nothing else.

use serde_json::{Value, json};

use crate::body::{self, Accepts, RequestBody};
use crate::call::Call;
use crate::read;
use crate::respond::Reply;
use crate::served::Endpoint;
use crate::status::ApiResult;
use crate::write::intake;
use crate::write::patch::Patch;
use crate::write::update::{self, Proposal};

pub(super) async fn answer(call: &mut Call<'_>, verb: &str, body: RequestBody) -> ApiResult<Reply> {
    if verb == "get" {
        return Ok(read::get(call).await?.render(call));
    }
    let bytes = body::read(body).await?;
    let options = super::options(call, verb)?;
    let answer = if verb == "update" {
        let parsed = body::parse(call.headers, &bytes, Accepts::All)?;
        let wanted = intake::take(call, parsed, options.field_validation)?;
        let pinned = wanted["metadata"].get("resourceVersion").cloned();
        update::change(call, &options, Endpoint::Approval, |_, live| {
            let mut object = with_conditions(live, &wanted);
            crate::object::set_meta(&mut object, "resourceVersion", pinned.clone());
            Ok(Proposal { object, managers_done: false })
        })
        .await?
    } else {
        let patch = Patch::parse(call, &bytes)?;
        update::change(call, &options, Endpoint::Approval, |call, live| {
            let (patched, _) = patch.apply_to(live, call)?;
            let mut object = with_conditions(live, &patched);
            crate::object::set_meta(&mut object, "resourceVersion", None);
            Ok(Proposal { object, managers_done: false })
        })
        .await?
    };
    Ok(answer.render(call))
}

fn with_conditions(live: &Value, wanted: &Value) -> Value {
    let mut object = live.clone();
    let now = base::clock::now_rfc3339();
    let mut conditions = wanted["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in &mut conditions {
        for field in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[field].as_str().is_none_or(str::is_empty) {
                condition[field] = json!(now);
            }
        }
        if condition["status"].as_str().is_none_or(str::is_empty) {
            condition["status"] = "True".into();
        }
    }
    object["status"]["conditions"] = conditions.into();
    object
}
