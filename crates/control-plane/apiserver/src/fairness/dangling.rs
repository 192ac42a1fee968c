//! The `Dangling` condition of FlowSchemas: whether the priority level that one names exists.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Tasks, clock};
use http::Method;
use serde_json::{Value, json};
use tracing::warn;

use super::{LEVELS, SCHEMAS};
use crate::api::Api;
use crate::schemas::refresh;
use crate::setup::bootstrap::call;
use crate::verbs::object;

const PATH: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
/// How long to wait after a status could not be written.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Keeps the conditions true: now, and whenever a schema or a level changes.
pub(crate) fn start(api: &Api, tasks: &Tasks) {
    let (api, mut stop) = (api.clone(), tasks.stop_signal());
    tasks.spawn("flow schema conditions", async move {
        loop {
            let from = api.store.revision();
            let failed = !reconcile(&api).await;
            let (Ok(mut schemas), Ok(mut levels)) =
                (api.store.watch(SCHEMAS, from), api.store.watch(LEVELS, from))
            else {
                continue;
            };
            let closed = tokio::select! {
                () = stop.requested() => return,
                events = schemas.next(64) => matches!(events, Err(store::WatchError::Closed)),
                events = levels.next(64) => matches!(events, Err(store::WatchError::Closed)),
                () = tokio::time::sleep(RETRY_AFTER), if failed => false,
            };
            if closed {
                return;
            }
        }
    });
}

/// Writes the conditions that are not right; `false` if one could not be written.
async fn reconcile(api: &Api) -> bool {
    let levels: BTreeSet<String> =
        refresh::entries(api, LEVELS).iter().map(|entry| entry.name.to_string()).collect();
    let mut written = true;
    for entry in refresh::entries(api, SCHEMAS) {
        let now = clock::now_rfc3339();
        let Some(updated) = with_condition(&entry.item.to_value(), &levels, &now) else { continue };
        let path = format!("{PATH}/{}/status", object::name(&updated));
        let (code, answer) = call(api, Method::PUT, &path, Some(&updated)).await;
        // A conflict means that the schema changed or is gone, and that an event reports it.
        if !code.is_success() && code.as_u16() != 409 && code.as_u16() != 404 {
            written = false;
            let message = &answer["message"];
            warn!(%code, %message, schema = object::name(&updated), "cannot write the condition of a flow schema");
        }
    }
    written
}

/// The schema with the condition that holds; nothing if it carries that already.
fn with_condition(schema: &Value, levels: &BTreeSet<String>, now: &str) -> Option<Value> {
    let level = schema["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or("");
    let (status, reason, verdict) = if levels.contains(level) {
        ("False", "Found", "and it exists")
    } else {
        ("True", "NotFound", "but there is no such object")
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {verdict}"
    );
    let mut conditions = schema["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut since = now.to_owned();
    if let Some(known) = conditions.iter().find(|condition| condition["type"] == "Dangling") {
        if known["status"] == status && known["reason"] == reason && known["message"] == message {
            return None;
        }
        if known["status"] == status {
            since = known["lastTransitionTime"].as_str().unwrap_or(now).to_owned();
        }
    }
    conditions.retain(|condition| condition["type"] != "Dangling");
    conditions.push(json!({
        "type": "Dangling", "status": status, "lastTransitionTime": since,
        "reason": reason, "message": message,
    }));
    let mut updated = schema.clone();
    updated["status"]["conditions"] = conditions.into();
    Some(updated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_dangles_while_its_level_does_not_exist() {
        let schema = json!({"spec": {"priorityLevelConfiguration": {"name": "a"}}});
        let some: BTreeSet<String> = ["a".to_owned()].into();
        let none = BTreeSet::new();
        let dangling = with_condition(&schema, &none, "t1").unwrap();
        let condition = &dangling["status"]["conditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "NotFound");
        assert_eq!(
            condition["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"a\" but there is no such object"
        );
        assert_eq!(with_condition(&dangling, &none, "t2"), None);
        let found = with_condition(&dangling, &some, "t3").unwrap();
        assert_eq!(
            found["status"]["conditions"],
            json!([{
                "type": "Dangling", "status": "False", "lastTransitionTime": "t3", "reason": "Found",
                "message": "This FlowSchema references the PriorityLevelConfiguration object named \"a\" and it exists",
            }])
        );
        assert_eq!(with_condition(&found, &some, "t4"), None);
    }

    #[test]
    fn other_conditions_stay_and_time_moves_with_the_status_only() {
        let schema = json!({
            "spec": {"priorityLevelConfiguration": {"name": "b"}},
            "status": {"conditions": [
                {"type": "Mine", "status": "True"},
                {"type": "Dangling", "status": "True", "lastTransitionTime": "t0",
                 "reason": "NotFound", "message": "of another level"},
            ]},
        });
        let updated = with_condition(&schema, &BTreeSet::new(), "t1").unwrap();
        let conditions = updated["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions[0]["type"], "Mine");
        assert_eq!(conditions[1]["lastTransitionTime"], "t0");
    }
}
