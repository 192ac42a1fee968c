//! How many instances a replica set has and should have: pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::object::{
    self, controlled_by, entries, int, is_controlled_by, is_deleting, is_true, list, name, text,
};
use crate::selector;

/// How many instances are made or deleted at a time.
const BURST: usize = 50;

/// The changes that bring a replica set to its wanted state.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ReplicaSetPlan {
    pub(crate) create: usize,
    /// Names of instances that are too many, and of those that are over.
    pub(crate) delete: Vec<String>,
    pub(crate) finished: Vec<String>,
}

/// The label selector for the server; expressions that it cannot have are checked afterwards.
pub(crate) fn labels(set: &Value) -> String {
    let pairs = entries(set, "/spec/selector/matchLabels");
    let pairs = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    pairs.collect::<Vec<_>>().join(",")
}

/// Those of `found` that belong to the set.
pub(crate) fn own<'a>(set: &Value, found: &'a [Value]) -> Vec<&'a Value> {
    let selector = &set["spec"]["selector"];
    let belongs = |vmi: &&Value| {
        is_controlled_by(vmi, set) && selector::matches(selector, object::labels(vmi))
    };
    found.iter().filter(belongs).collect()
}

pub(crate) fn plan(set: &Value, own: &[&Value]) -> ReplicaSetPlan {
    if is_deleting(set) || is_true(set, "/spec/paused") {
        return ReplicaSetPlan::default();
    }
    let names = |vmis: &[&Value]| vmis.iter().map(|vmi| name(vmi).to_owned()).collect();
    let finished: Vec<&Value> =
        own.iter().filter(|vmi| is_over(vmi) && !is_deleting(vmi)).copied().collect();
    let mut active = active(own);
    let wanted = replicas(set);
    // Those that are ready go last, and of those the oldest.
    active.sort_by_key(|vmi| {
        (condition::is(vmi, "Ready", "True"), text(vmi, "/status/phase") == "Running")
    });
    let surplus = active.len().saturating_sub(wanted).min(BURST);
    ReplicaSetPlan {
        create: wanted.saturating_sub(active.len()).min(BURST),
        delete: names(&active[..surplus]),
        finished: names(&finished),
    }
}

/// A new instance of the set.
pub(crate) fn instance(set: &Value) -> Value {
    let template = &set["spec"]["template"];
    let mut meta = json!({"generateName": name(set),
        "ownerReferences": [controlled_by(set, "kubevirt.io/v1", "VirtualMachineInstanceReplicaSet")]});
    for field in ["labels", "annotations"] {
        if let Some(value) = template["metadata"].get(field) {
            meta[field] = value.clone();
        }
    }
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": meta,
        "spec": template.get("spec").cloned().unwrap_or_default()})
}

/// The status of the set.
pub(crate) fn status(set: &Value, own: &[&Value], failure: Option<&str>, now: Timestamp) -> Value {
    let active = active(own);
    let ready = active.iter().filter(|vmi| condition::is(vmi, "Ready", "True")).count();
    let mut conditions = condition::of(set);
    for (kind, wanted) in [
        (
            "ReplicaPaused",
            is_true(set, "/spec/paused").then_some(("Paused", "Controller got paused")),
        ),
        ("ReplicaFailure", failure.map(|message| ("FailedCreate", message))),
    ] {
        match wanted {
            Some((reason, message)) => {
                let wanted = Condition::new(kind, "True").because(reason, message);
                condition::set(&mut conditions, &wanted, now);
            }
            None => condition::remove(&mut conditions, kind),
        }
    }
    json!({"status": {"replicas": active.len(), "readyReplicas": ready,
        "labelSelector": selector_text(set), "conditions": conditions}})
}

/// The selector as a scaler passes it to a server.
pub(crate) fn selector_text(set: &Value) -> String {
    let mut parts: Vec<String> =
        labels(set).split(',').filter(|own| !own.is_empty()).map(str::to_owned).collect();
    for own in list(set, "/spec/selector/matchExpressions") {
        let key = text(own, "/key");
        let values: Vec<&str> = list(own, "/values").iter().filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match text(own, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

pub(crate) fn replicas(set: &Value) -> usize {
    usize::try_from(int(set, "/spec/replicas").unwrap_or(1)).unwrap_or_default()
}

fn active<'a>(own: &[&'a Value]) -> Vec<&'a Value> {
    own.iter().filter(|vmi| !is_over(vmi) && !is_deleting(vmi)).copied().collect()
}

fn is_over(vmi: &Value) -> bool {
    matches!(text(vmi, "/status/phase"), "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(replicas: i64) -> Value {
        json!({"metadata": {"name": "s", "uid": "u"}, "spec": {"replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"domain": {}}}}})
    }

    fn vmi(name: &str, phase: &str, owner: &str) -> Value {
        let ready = if phase == "Running" { "True" } else { "False" };
        json!({"metadata": {"name": name, "labels": {"app": "a"},
                "ownerReferences": [{"uid": owner, "controller": true}]},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn made(replicas: i64, phases: &[&str]) -> ReplicaSetPlan {
        let found: Vec<Value> = phases
            .iter()
            .enumerate()
            .map(|(index, phase)| vmi(&format!("v{index}"), phase, "u"))
            .collect();
        let set = set(replicas);
        plan(&set, &own(&set, &found))
    }

    #[test]
    fn missing_instances_are_made_and_surplus_ones_go() {
        assert_eq!(made(2, &[]).create, 2);
        assert_eq!(made(2, &["Running", "Pending"]), ReplicaSetPlan::default());
        assert_eq!(made(1, &["Running", "Pending"]).delete, ["v1"], "it is not ready");
        assert_eq!(made(0, &["Running", "Running"]).delete.len(), 2);
    }

    #[test]
    fn instances_that_are_over_are_replaced() {
        let plan = made(1, &["Failed"]);
        assert_eq!((plan.create, plan.finished), (1, vec!["v0".to_owned()]));
    }

    #[test]
    fn a_paused_set_does_nothing() {
        let mut set = set(3);
        set["spec"]["paused"] = json!(true);
        assert_eq!(plan(&set, &[]), ReplicaSetPlan::default());
        let now = Timestamp::from_second(0).unwrap();
        let status = status(&set, &[], None, now);
        assert_eq!(status["status"]["conditions"][0]["type"], "ReplicaPaused");
    }

    #[test]
    fn instances_of_others_do_not_count() {
        let found = [vmi("a", "Running", "other"), vmi("b", "Running", "u")];
        let set = set(1);
        assert_eq!(own(&set, &found).len(), 1);
        let now = Timestamp::from_second(0).unwrap();
        let status = status(&set, &own(&set, &found), Some("no"), now)["status"].clone();
        assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(1), &json!(1)));
        assert_eq!(status["labelSelector"], "app=a");
        assert_eq!(status["conditions"][0]["type"], "ReplicaFailure");
    }

    #[test]
    fn new_instances_are_named_after_their_set() {
        let vmi = instance(&set(1));
        assert_eq!(vmi["metadata"]["generateName"], "s");
        assert_eq!(vmi["metadata"]["labels"], json!({"app": "a"}));
    }
}
