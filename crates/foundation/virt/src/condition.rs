//! Conditions of machines and instances: finding them, setting them in place, and copying an
//! instance's to its machine in upstream's order.

use serde_json::{Value, json};

use crate::reason::NotReady;
use crate::state::list;

/// The condition of a type in an object's status.
pub fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == kind)
}

/// Whether a condition is there and `True`.
pub fn is_true(object: &Value, kind: &str) -> bool {
    find(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Whether a condition is there and `False` for this reason.
pub fn is_false_for(object: &Value, kind: &str, reason: &str) -> bool {
    find(object, kind)
        .is_some_and(|condition| condition["status"] == "False" && condition["reason"] == reason)
}

/// Sets a condition in its place, or appends it. The time of transition stays while the
/// status does.
pub fn set(conditions: &mut Vec<Value>, mut new: Value) {
    let known = conditions.iter_mut().find(|condition| condition["type"] == new["type"]);
    let Some(known) = known else { return conditions.push(new) };
    if known["status"] == new["status"] && !known["lastTransitionTime"].is_null() {
        new["lastTransitionTime"] = known["lastTransitionTime"].clone();
    }
    *known = new;
}

pub fn remove(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|condition| condition["type"] != kind);
}

/// Conditions of a machine that are not copies of its instance's.
const OWN: &[&str] = &["Ready", "Failure", "RestartRequired", "ManualRecoveryRequired"];

/// An error of the last attempt to bring a machine where it should be.
#[derive(Clone, Copy, Debug)]
pub struct FailureCondition<'a> {
    pub reason: &'a str,
    pub message: &'a str,
}

/// The conditions of a machine: its own, then its instance's as they are.
pub fn of_machine(
    vm: &Value,
    vmi: Option<&Value>,
    failure: Option<FailureCondition<'_>>,
    now: &str,
) -> Vec<Value> {
    let mut conditions = list(&vm["status"]["conditions"]).to_vec();
    set(&mut conditions, ready(vmi, now));
    match failure {
        Some(FailureCondition { reason, message }) => {
            let condition = json!({
                "type": "Failure",
                "status": "True",
                "reason": reason,
                "message": message,
                "lastProbeTime": null,
                "lastTransitionTime": now,
            });
            set(&mut conditions, condition);
        }
        None => remove(&mut conditions, "Failure"),
    }
    let Some(vmi) = vmi else { return conditions };
    let copied: Vec<&Value> =
        list(&vmi["status"]["conditions"]).iter().filter(|condition| !is_own(condition)).collect();
    for condition in &copied {
        set(&mut conditions, (*condition).clone());
    }
    conditions.retain(|condition| {
        is_own(condition) || copied.iter().any(|copy| copy["type"] == condition["type"])
    });
    conditions
}

fn is_own(condition: &Value) -> bool {
    condition["type"].as_str().is_some_and(|kind| OWN.contains(&kind))
}

fn ready(vmi: Option<&Value>, now: &str) -> Value {
    let missing = |reason: NotReady, message: &str| {
        json!({
            "type": "Ready",
            "status": "False",
            "reason": reason.as_str(),
            "message": message,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        })
    };
    match vmi.map(|vmi| find(vmi, "Ready")) {
        None => missing(NotReady::NoInstance, "VMI does not exist"),
        Some(None) => missing(NotReady::NoCondition, "VMI is missing the Ready condition"),
        Some(Some(condition)) => condition.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";

    fn kinds(conditions: &[Value]) -> Vec<&str> {
        conditions.iter().filter_map(|condition| condition["type"].as_str()).collect()
    }

    #[test]
    fn a_machine_without_an_instance_is_not_ready() {
        let conditions = of_machine(&json!({}), None, None, NOW);
        assert_eq!(kinds(&conditions), ["Ready"]);
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(conditions[0]["reason"], "VMINotExists");
        let conditions = of_machine(&json!({}), Some(&json!({"status": {}})), None, NOW);
        assert_eq!(conditions[0]["reason"], "VMIConditionMissing");
    }

    #[test]
    fn conditions_of_the_instance_are_copied_and_go_with_it() {
        let vm = json!({"status": {"conditions": [
            {"type": "Paused", "status": "True"},
            {"type": "RestartRequired", "status": "True"},
            {"type": "Failure", "status": "True"},
        ]}});
        let vmi = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "t"},
            {"type": "LiveMigratable", "status": "False"},
        ]}});
        let conditions = of_machine(&vm, Some(&vmi), None, NOW);
        assert_eq!(kinds(&conditions), ["RestartRequired", "Ready", "LiveMigratable"]);
        assert_eq!(conditions[1]["status"], "True");
        // Without an instance the copies stay as they were last seen, as upstream leaves them.
        assert_eq!(
            kinds(&of_machine(&vm, None, None, NOW)),
            ["Paused", "RestartRequired", "Ready"]
        );
    }

    #[test]
    fn a_failure_is_reported_and_cleared() {
        let failure = FailureCondition { reason: "FailedCreate", message: "no room" };
        let conditions = of_machine(&json!({}), None, Some(failure), NOW);
        assert_eq!(kinds(&conditions), ["Ready", "Failure"]);
        let vm = json!({"status": {"conditions": conditions}});
        assert_eq!(kinds(&of_machine(&vm, None, None, NOW)), ["Ready"]);
    }

    #[test]
    fn a_transition_time_changes_with_the_status_only() {
        let mut conditions =
            vec![json!({"type": "A", "status": "True", "lastTransitionTime": "1"})];
        set(&mut conditions, json!({"type": "A", "status": "True", "lastTransitionTime": "2"}));
        assert_eq!(conditions[0]["lastTransitionTime"], "1");
        set(&mut conditions, json!({"type": "A", "status": "False", "lastTransitionTime": "3"}));
        assert_eq!(conditions[0]["lastTransitionTime"], "3");
        assert_eq!(conditions.len(), 1);
    }
}
