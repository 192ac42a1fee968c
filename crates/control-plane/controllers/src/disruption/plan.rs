//! The status of a PodDisruptionBudget for its pods. Pure; the rules and texts are those of
//! upstream's disruption controller.
//!
//! A percentage and `maxUnavailable` refer to the scale of the pods' controllers. No controller
//! of this cluster's pods has one (a launcher pod is controlled by its instance), so both fail
//! for pods that have a controller, as upstream; whole numbers of `minAvailable` always work.

use std::time::Duration;

use base::clock;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::object::{self, entries, generation, int, list, name, text};
use crate::{condition, selector};

/// The time within which an evicted pod must be marked for deletion.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);
const CONDITION: &str = "DisruptionAllowed";
/// The reason of the event of a budget that selects nothing.
pub(super) const NO_PODS: &str = "NoPods";

/// An event of the budget, or of one of its pods.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BudgetEvent {
    pub(super) pod: Option<String>,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The result of one evaluation.
#[derive(Debug)]
pub(super) struct BudgetPlan {
    /// A merge patch of the status.
    pub(super) status: Value,
    pub(super) events: Vec<BudgetEvent>,
    /// When an entry of `disruptedPods` expires.
    pub(super) recheck: Option<Duration>,
}

pub(super) fn plan(budget: &Value, pods: &[Value], now: Timestamp) -> BudgetPlan {
    let selected = &budget["spec"]["selector"];
    let pods: Vec<&Value> =
        pods.iter().filter(|pod| selector::matches(selected, object::labels(pod))).collect();
    let mut events = Vec::new();
    let mut warn = |reason, message| events.push(BudgetEvent { pod: None, reason, message });
    if pods.is_empty() {
        warn(NO_PODS, "No matching pods found".to_owned());
    }
    let expected = match expected(budget, &pods) {
        Ok(expected) => expected,
        Err(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            warn("CalculateExpectedPodCountFailed", message);
            return BudgetPlan {
                status: failed(budget, &why.to_string(), now),
                events,
                recheck: None,
            };
        }
    };
    if expected.has_unmanaged {
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {selected}) were found to be \
             unmanaged. As a result, the status of the PDB cannot be calculated correctly, which \
             may result in undefined behavior. To account for these pods please set \
             \".spec.minAvailable\" field of the PDB to an integer value."
        );
        warn("UnmanagedPods", message);
    }
    let disrupted = disrupted(budget, &pods, now);
    events.extend(disrupted.overdue.into_iter().map(|pod| BudgetEvent {
        message: format!(
            "Pod was expected by PDB {}/{} to be deleted but it wasn't",
            object::namespace(budget),
            name(budget)
        ),
        pod: Some(pod),
        reason: "NotDeleted",
    }));
    let healthy = pods.iter().filter(|pod| {
        !object::is_deleting(pod)
            && disrupted.entries.get(name(pod)).is_none_or(Value::is_null)
            && condition::is(pod, "Ready", "True")
    });
    let healthy = i64::try_from(healthy.count()).unwrap_or(i64::MAX);
    let allowed = if expected.pods > 0 { (healthy - expected.healthy).max(0) } else { 0 };
    let mut status = json!({
        "observedGeneration": generation(budget), "disruptionsAllowed": allowed,
        "currentHealthy": healthy, "desiredHealthy": expected.healthy,
        "expectedPods": expected.pods,
    });
    let (state, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let observed = generation(budget);
    status["conditions"] = conditions(budget, state, reason, "", observed, now);
    if !disrupted.entries.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted.entries);
    }
    BudgetPlan { status, events, recheck: disrupted.recheck }
}

/// The number of pods that there should be, and that must stay healthy.
#[derive(Debug, PartialEq, Eq)]
struct ExpectedPods {
    pods: i64,
    healthy: i64,
    /// Whether pods without a controller were left out.
    has_unmanaged: bool,
}

fn expected(budget: &Value, pods: &[&Value]) -> Result<ExpectedPods, NoScale> {
    let spec = &budget["spec"];
    let is_scaled = spec.get("maxUnavailable").is_some_and(|value| !value.is_null());
    if let Some(healthy) = spec["minAvailable"].as_i64().filter(|_| !is_scaled) {
        let pods = i64::try_from(pods.len()).unwrap_or(i64::MAX);
        return Ok(ExpectedPods { pods, healthy, has_unmanaged: false });
    }
    if !is_scaled && spec["minAvailable"].is_null() {
        return Ok(ExpectedPods { pods: 0, healthy: 0, has_unmanaged: false });
    }
    if let Some((pod, owner)) = pods.iter().find_map(|pod| Some((pod, object::controller(pod)?))) {
        return Err(NoScale::of(pod, owner));
    }
    // Every part of no pods is none.
    Ok(ExpectedPods { pods: 0, healthy: 0, has_unmanaged: !pods.is_empty() })
}

/// Why the controller of a pod has no scale, in upstream's words.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum NoScale {
    #[error("virtualmachineinstances.kubevirt.io does not implement the scale subresource")]
    Instance,
    #[error("found no controllers for pod {pod:?}")]
    NoController { pod: String },
}

impl NoScale {
    fn of(pod: &Value, owner: &Value) -> Self {
        let is_instance = text(owner, "/kind") == "VirtualMachineInstance"
            && text(owner, "/apiVersion").starts_with("kubevirt.io/");
        match is_instance {
            true => Self::Instance,
            false => Self::NoController { pod: name(pod).to_owned() },
        }
    }
}

/// Pods whose eviction was granted and that are not marked for deletion yet.
#[derive(Debug, Default)]
struct DisruptedPods {
    /// A merge patch: null for entries to remove.
    entries: Map<String, Value>,
    overdue: Vec<String>,
    recheck: Option<Duration>,
}

fn disrupted(budget: &Value, pods: &[&Value], now: Timestamp) -> DisruptedPods {
    let mut result = DisruptedPods::default();
    for (pod, since) in entries(budget, "/status/disruptedPods") {
        let is_present = pods.iter().any(|own| name(own) == pod && !object::is_deleting(own));
        let granted = since.as_str().and_then(|since| since.parse::<Timestamp>().ok());
        let remaining = granted
            .and_then(|granted| granted.checked_add(DELETION_TIMEOUT).ok())
            .and_then(|until| Duration::try_from(until.duration_since(now)).ok());
        let kept = remaining.filter(|_| is_present);
        if is_present && kept.is_none() {
            result.overdue.push(pod.clone());
        }
        if let Some(remaining) = kept {
            result.recheck = Some(result.recheck.map_or(remaining, |least| least.min(remaining)));
        }
        let entry = if kept.is_some() { since.clone() } else { Value::Null };
        result.entries.insert(pod.clone(), entry);
    }
    result
}

/// The status of a budget whose pods cannot be counted: no eviction is allowed.
fn failed(budget: &Value, why: &str, now: Timestamp) -> Value {
    let observed = int(budget, "/status/observedGeneration").unwrap_or_default();
    json!({
        "disruptionsAllowed": 0,
        "conditions": conditions(budget, "False", "SyncFailed", why, observed, now),
    })
}

/// The conditions with this one; its time changes with its status only.
fn conditions(
    budget: &Value,
    status: &str,
    reason: &str,
    message: &str,
    observed: i64,
    now: Timestamp,
) -> Value {
    let mut conditions = list(budget, "/status/conditions").to_vec();
    let old = conditions.iter_mut().find(|own| text(own, "/type") == CONDITION);
    let since = old.as_ref().filter(|old| text(old, "/status") == status);
    let since = since.map(|old| text(old, "/lastTransitionTime")).filter(|time| !time.is_empty());
    let since = since.map_or_else(|| clock::rfc3339(now), str::to_owned);
    let mut new = json!({"type": CONDITION, "status": status, "reason": reason,
        "message": message, "lastTransitionTime": since});
    if observed > 0 {
        new["observedGeneration"] = json!(observed);
    }
    match old {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
    conditions.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"a": "b"}, "ownerReferences": [{
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name,
            "controller": true}]}, "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn budget(spec: &Value, status: &Value) -> Value {
        let mut budget = json!({"metadata": {"name": "pdb", "namespace": "n", "generation": 3},
            "spec": {"selector": {"matchLabels": {"a": "b"}}}, "status": status});
        for (field, value) in spec.as_object().unwrap() {
            budget["spec"][field] = value.clone();
        }
        budget
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn whole_numbers_are_counted() {
        let (ready, unready) = (|| pod("r", "True"), || pod("u", "False"));
        let mut leaving = pod("l", "True");
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let mut other = pod("o", "True");
        other["metadata"]["labels"] = json!({"a": "c"});
        let all = [ready(), ready(), unready(), leaving, other];
        for (spec, pods, expected) in [
            (json!({"minAvailable": 1}), &all[..], [4, 2, 1, 1]),
            (json!({"minAvailable": 2}), &all[..], [4, 2, 2, 0]),
            (json!({"minAvailable": 3}), &all[..], [4, 2, 3, 0]),
            (json!({"minAvailable": 0}), &all[..], [4, 2, 0, 2]),
            (json!({"minAvailable": 1}), &all[..1], [1, 1, 1, 0]),
            (json!({"minAvailable": 0}), &all[..0], [0, 0, 0, 0]),
            (json!({"minAvailable": 1, "selector": {}}), &all[..], [5, 3, 1, 2]),
            (json!({"minAvailable": 0, "selector": null}), &all[..], [0, 0, 0, 0]),
            (json!({"maxUnavailable": 1}), &all[..0], [0, 0, 0, 0]),
            (json!({"minAvailable": "50%"}), &all[..0], [0, 0, 0, 0]),
            (json!({}), &all[..], [0, 2, 0, 0]),
        ] {
            let status = plan(&budget(&spec, &json!({})), pods, at(0)).status;
            let names = ["expectedPods", "currentHealthy", "desiredHealthy", "disruptionsAllowed"];
            let counted = names.map(|name| status[name].as_i64().unwrap());
            assert_eq!(counted, expected, "{spec}");
            assert_eq!(status["observedGeneration"], 3);
            let condition = &status["conditions"][0];
            let sufficient = expected[3] > 0;
            let reason = if sufficient { "SufficientPods" } else { "InsufficientPods" };
            assert_eq!(condition["reason"], reason, "{spec}");
            assert_eq!(condition["status"], if sufficient { "True" } else { "False" });
        }
    }

    #[test]
    fn a_part_of_the_pods_needs_a_controller_with_a_scale() {
        let instance =
            "virtualmachineinstances.kubevirt.io does not implement the scale subresource";
        let mut other = pod("p", "True");
        other["metadata"]["ownerReferences"][0]["kind"] = json!("Job");
        for (pod, expected) in
            [(pod("p", "True"), instance), (other, "found no controllers for pod \"p\"")]
        {
            for spec in [json!({"maxUnavailable": 1}), json!({"minAvailable": "50%"})] {
                let own = json!({"observedGeneration": 2, "disruptionsAllowed": 1});
                let plan = plan(&budget(&spec, &own), std::slice::from_ref(&pod), at(0));
                assert_eq!(plan.status["disruptionsAllowed"], 0);
                assert_eq!(plan.status.get("observedGeneration"), None);
                let condition = &plan.status["conditions"][0];
                assert_eq!(condition["reason"], "SyncFailed");
                assert_eq!(condition["message"], expected);
                assert_eq!(condition["observedGeneration"], 2);
                assert_eq!(plan.events[0].reason, "CalculateExpectedPodCountFailed");
            }
        }
        let mut own = pod("p", "True");
        own["metadata"]["ownerReferences"] = json!([]);
        let plan = plan(&budget(&json!({"maxUnavailable": 1}), &json!({})), &[own], at(0));
        assert_eq!(plan.events[0].reason, "UnmanagedPods");
        assert_eq!(plan.status["expectedPods"], 0);
    }

    #[test]
    fn evicted_pods_do_not_count_until_their_entry_expires() {
        let granted = json!({"a": "1970-01-01T00:01:40Z", "gone": "1970-01-01T00:01:40Z"});
        let own = budget(&json!({"minAvailable": 1}), &json!({"disruptedPods": granted}));
        let pods = [pod("a", "True"), pod("b", "True")];
        let early = plan(&own, &pods, at(130));
        assert_eq!(early.status["currentHealthy"], 1);
        let kept = json!({"a": "1970-01-01T00:01:40Z", "gone": null});
        assert_eq!(early.status["disruptedPods"], kept);
        assert_eq!(early.recheck, Some(Duration::from_secs(90)));
        assert!(early.events.is_empty());
        let late = plan(&own, &pods, at(221));
        assert_eq!(late.status["currentHealthy"], 2);
        assert_eq!(late.status["disruptedPods"], json!({"a": null, "gone": null}));
        assert_eq!((late.recheck, late.events[0].reason), (None, "NotDeleted"));
        assert_eq!(late.events[0].pod.as_deref(), Some("a"));
    }

    #[test]
    fn the_time_of_the_condition_is_that_of_its_last_change() {
        let spec = json!({"minAvailable": 1});
        let first = plan(&budget(&spec, &json!({})), &[pod("a", "True")], at(0)).status;
        let later = plan(&budget(&spec, &first), &[pod("a", "False")], at(9)).status;
        let time = |status: &Value| status["conditions"][0]["lastTransitionTime"].clone();
        assert_eq!((time(&first), time(&later)), (json!("1970-01-01T00:00:00Z"), time(&first)));
        let pods = [pod("a", "True"), pod("b", "True")];
        let changed = plan(&budget(&spec, &later), &pods, at(9)).status;
        assert_eq!(time(&changed), "1970-01-01T00:00:09Z");
        assert_eq!(changed["conditions"].as_array().unwrap().len(), 1);
    }
}
