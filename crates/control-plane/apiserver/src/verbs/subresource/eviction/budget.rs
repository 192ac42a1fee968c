//! The disruption budget of a pod that is to be evicted: whether it allows the eviction, and its
//! decrement by compare-and-swap. Rules and texts are those of upstream's eviction.
//!
//! The status is counted by the controller; here it is only believed and decremented.

use base::clock;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Expect, Write, WriteChange};

use super::ATTEMPTS;
use crate::api::{ObjectEntry, write_failure};
use crate::status::{ApiError, ApiResult, StatusSubject};
use crate::verbs::call::Call;
use crate::verbs::selector::LabelSelector;
use crate::verbs::{item, object};

const TABLE: &str = "poddisruptionbudgets";
const CONDITION: &str = "DisruptionAllowed";
/// Evictions that the controller has not confirmed, at most.
const MOST_DISRUPTED: usize = 2000;

/// The state in which a pod may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateGuard {
    AnyState,
    /// Only as it was when it was checked.
    SameRevision,
}

/// How a pod is deleted that is no disruption: one that has ended or is being deleted, or that
/// has not started.
pub(super) fn exemption(pod: &Value) -> Option<StateGuard> {
    if object::is_deleting(pod) {
        return Some(StateGuard::AnyState);
    }
    match pod["status"]["phase"].as_str() {
        Some("Succeeded" | "Failed") => Some(StateGuard::AnyState),
        Some("Pending") => Some(StateGuard::SameRevision),
        _ => None,
    }
}

/// The budget that selects the pod.
pub(super) fn of_pod(call: &Call<'_>, pod: &Value) -> ApiResult<Option<ObjectEntry>> {
    let range = store::Range { prefix: &format!("{}/", call.namespace()), ..Default::default() };
    let Ok(page) = call.api.store.list(TABLE, range) else { return Ok(None) };
    let mut found: Vec<ObjectEntry> = page.entries;
    found.retain(|entry| selects(&entry.item.to_value()["spec"]["selector"], pod));
    if found.len() > 1 {
        return Err(ApiError::unclassified(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    Ok(found.pop())
}

/// An empty selector selects every pod, an absent one none.
fn selects(selector: &Value, pod: &Value) -> bool {
    let labels = &pod["metadata"]["labels"];
    selector.is_object()
        && LabelSelector::of(selector).matches(|key| labels.get(key).and_then(Value::as_str))
}

/// Whether the pod is not ready, so that its eviction takes nothing from the healthy pods.
pub(super) fn allows_unready(budget: &Value, pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_ready = conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    let desired = number(budget, "/status/desiredHealthy");
    let is_healthy = desired > 0 && number(budget, "/status/currentHealthy") >= desired;
    !is_ready && (budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || is_healthy)
}

/// Takes one allowed disruption for the pod, unless it is a dry run.
pub(super) async fn take(
    call: &Call<'_>,
    mut entry: ObjectEntry,
    pod: &str,
    dry_run: bool,
) -> ApiResult<()> {
    let budget = entry.item.to_value();
    let name = object::name(&budget);
    let key = object::key(object::namespace(&budget), name);
    let subject = StatusSubject { group: "policy", resource: TABLE, name };
    for _ in 0..ATTEMPTS {
        let taken = decrement(&entry.item.to_value(), pod, clock::now())?;
        if dry_run {
            return Ok(());
        }
        let write = Write {
            table: TABLE.into(),
            name: key.as_str().into(),
            expect: Expect::At(entry.revision),
            change: WriteChange::Put(Bytes::from(item::encode(&taken))),
        };
        match call.api.store.write(write).await {
            Ok(_) => return Ok(()),
            Err(store::WriteError::Conflict { .. }) => {}
            Err(error) => return Err(write_failure(&error, subject)),
        }
        let Some(newer) = call.api.store.get(TABLE, &key) else {
            return Err(ApiError::not_found(subject));
        };
        entry = newer;
    }
    let message = format!("Timeout: couldn't update PodDisruptionBudget {name:?} due to conflicts");
    Err(ApiError::timeout(message).retry_after(10))
}

/// The budget after one more disruption; or why it allows none.
fn decrement(budget: &Value, pod: &str, now: Timestamp) -> ApiResult<Value> {
    let name = object::name(budget);
    if number(budget, "/status/observedGeneration") < number(budget, "/metadata/generation") {
        return Err(still_processed(name));
    }
    let forbidden = |why: &str| {
        let subject = StatusSubject { group: "policy", resource: "poddisruptionbudget", name };
        Err(ApiError::forbidden_because(subject, why))
    };
    let allowed = number(budget, "/status/disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    if budget["status"]["disruptedPods"].as_object().is_some_and(|all| all.len() > MOST_DISRUPTED) {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        return Err(ApiError::disruption(refusal(budget)));
    }
    let mut taken = budget.clone();
    taken["status"]["disruptionsAllowed"] = (allowed - 1).into();
    taken["status"]["disruptedPods"][pod] = clock::rfc3339(now).into();
    if allowed == 1 {
        set_insufficient(&mut taken, now);
    }
    Ok(taken)
}

/// The answer while the controller has not counted this version of the budget.
pub(super) fn still_processed(name: &str) -> ApiError {
    let why = format!("The disruption budget {name} is still being processed by the server.");
    ApiError::disruption(why).retry_after(10)
}

fn refusal(budget: &Value) -> String {
    let name = object::name(budget);
    let mut conditions = budget["status"]["conditions"].as_array().into_iter().flatten();
    let failed = conditions.find(|own| {
        own["type"] == CONDITION
            && own["status"] == "False"
            && own["message"].as_str().is_some_and(|message| !message.is_empty())
    });
    let text = |own: &Value, field: &str| own[field].as_str().unwrap_or_default().to_owned();
    let (healthy, desired) =
        (number(budget, "/status/currentHealthy"), number(budget, "/status/desiredHealthy"));
    let prefix = format!("The disruption budget {name} does not allow evicting pods currently");
    match failed {
        Some(own) if own["reason"] == "SyncFailed" => {
            format!("{prefix} because it failed sync: {}", text(own, "message"))
        }
        _ if healthy <= desired => format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        ),
        Some(own) => format!("{prefix} ({}): {}", text(own, "reason"), text(own, "message")),
        None => prefix,
    }
}

/// The condition when the last disruption is taken.
fn set_insufficient(budget: &mut Value, now: Timestamp) {
    let observed = budget["status"]["observedGeneration"].clone();
    let new = json!({"type": CONDITION, "status": "False", "reason": "InsufficientPods",
        "message": "", "observedGeneration": observed, "lastTransitionTime": clock::rfc3339(now)});
    let mut conditions = budget["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|own| own["type"] != CONDITION);
    conditions.push(new);
    budget["status"]["conditions"] = conditions.into();
}

fn number(budget: &Value, pointer: &str) -> i64 {
    budget.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(status: &Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 2}, "spec": {}, "status": status})
    }

    fn cause(error: &ApiError) -> String {
        let causes = &error.to_value()["details"]["causes"];
        causes[0]["message"].as_str().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_disruption_is_taken_or_refused_in_upstreams_words() {
        let now = Timestamp::UNIX_EPOCH;
        let condition = |reason: &str, message: &str| json!([{"type": CONDITION, "status": "False", "reason": reason, "message": message}]);
        let still = "The disruption budget b is still being processed by the server.";
        let needs = "The disruption budget b needs 3 healthy pods and has 3 currently";
        let none = "The disruption budget b does not allow evicting pods currently";
        let failed = format!("{none} because it failed sync: why");
        let odd = format!("{none} (Odd): why");
        for (status, expected, retry) in [
            (json!({"observedGeneration": 1, "disruptionsAllowed": 1}), still, Some(10)),
            (json!({}), still, Some(10)),
            (
                json!({"observedGeneration": 2, "currentHealthy": 3, "desiredHealthy": 3}),
                needs,
                None,
            ),
            (
                json!({"observedGeneration": 2, "currentHealthy": 3, "desiredHealthy": 3,
                    "conditions": condition("SyncFailed", "why")}),
                failed.as_str(),
                None,
            ),
            (
                json!({"observedGeneration": 2, "currentHealthy": 4, "desiredHealthy": 3,
                    "conditions": condition("Odd", "why")}),
                odd.as_str(),
                None,
            ),
            (
                json!({"observedGeneration": 2, "currentHealthy": 4, "desiredHealthy": 3,
                    "conditions": condition("InsufficientPods", "")}),
                none,
                None,
            ),
        ] {
            let error = decrement(&budget(&status), "p", now).unwrap_err();
            assert_eq!(error.code(), 429);
            assert_eq!(cause(&error), expected);
            assert_eq!(error.retry_after_seconds(), retry);
        }
        let negative = budget(&json!({"observedGeneration": 2, "disruptionsAllowed": -1}));
        let error = decrement(&negative, "p", now).unwrap_err();
        let text =
            "poddisruptionbudget.policy \"b\" is forbidden: pdb disruptions allowed is negative";
        assert_eq!((error.code().as_u16(), error.message()), (403, text));

        let two = budget(&json!({"observedGeneration": 2, "disruptionsAllowed": 2}));
        let one = decrement(&two, "p", now).unwrap();
        assert_eq!(one["status"]["disruptionsAllowed"], 1);
        assert_eq!(one["status"].get("conditions"), None);
        let zero = decrement(&one, "q", now).unwrap();
        let times = json!({"p": "1970-01-01T00:00:00Z", "q": "1970-01-01T00:00:00Z"});
        assert_eq!(zero["status"]["disruptedPods"], times);
        assert_eq!(zero["status"]["conditions"][0]["reason"], "InsufficientPods");
        assert!(decrement(&zero, "r", now).is_err());
    }

    #[test]
    fn pods_that_serve_no_client_are_evicted_without_a_budget() {
        let phase = |phase: &str| json!({"metadata": {}, "status": {"phase": phase}});
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        for (pod, expected) in [
            (phase("Succeeded"), Some(StateGuard::AnyState)),
            (phase("Failed"), Some(StateGuard::AnyState)),
            (phase("Pending"), Some(StateGuard::SameRevision)),
            (phase("Running"), None),
            (deleting, Some(StateGuard::AnyState)),
        ] {
            assert_eq!(exemption(&pod), expected, "{pod}");
        }
    }

    #[test]
    fn pods_that_are_not_ready_are_evicted_by_the_policy() {
        let pod =
            |ready: &str| json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        for (policy, healthy, desired, ready, expected) in [
            (None, 1, 1, "False", true),
            (None, 0, 1, "False", false),
            (None, 0, 0, "False", false),
            (Some("IfHealthyBudget"), 0, 1, "False", false),
            (Some("AlwaysAllow"), 0, 1, "False", true),
            (Some("AlwaysAllow"), 1, 1, "True", false),
        ] {
            let mut own = budget(&json!({"currentHealthy": healthy, "desiredHealthy": desired}));
            own["spec"]["unhealthyPodEvictionPolicy"] = json!(policy);
            assert_eq!(allows_unready(&own, &pod(ready)), expected, "{own} {ready}");
        }
    }

    #[test]
    fn an_empty_selector_selects_every_pod() {
        let pod = json!({"metadata": {"labels": {"a": "b"}}});
        for (selector, expected) in [
            (Value::Null, false),
            (json!({}), true),
            (json!({"matchLabels": {"a": "b"}}), true),
            (json!({"matchLabels": {"a": "c"}}), false),
        ] {
            assert_eq!(selects(&selector, &pod), expected, "{selector}");
        }
    }
}
