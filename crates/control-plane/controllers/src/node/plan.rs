//! What follows from a node's lease: pure.
//!
//! A node lives while its lease is renewed. One that does not is unknown, not dead: its guests
//! may run on, so nothing is started elsewhere. That takes a person, or the taint
//! `node.kubernetes.io/out-of-service`.

use std::time::Duration;

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};
use virt::reason::NotReady;

use crate::condition::{self, Condition};
use crate::object::{self, int, list, text};

/// For a lease that does not say how long it is good for, and a node that has none yet.
const GRACE: Duration = Duration::from_secs(40);
/// The conditions that a silent node leaves behind; upstream's message speaks of its agent.
const TOLD: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const SILENT: (&str, &str) = ("NodeStatusUnknown", "Kubelet stopped posting node status.");

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// Alive for at least this long.
    Beats(Duration),
    Silent,
}

/// Whether a node lives whose lease was last seen to change this long ago. The time in the
/// lease is that of another clock, and an old one when all was switched off.
pub(crate) fn pulse(lease: Option<&Value>, unchanged: Duration) -> LeaseState {
    let seconds = lease.and_then(|lease| int(lease, "/spec/leaseDurationSeconds"));
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let grace = seconds.map_or(GRACE, Duration::from_secs);
    match grace.checked_sub(unchanged) {
        Some(left) if !left.is_zero() => LeaseState::Beats(left),
        _ => LeaseState::Silent,
    }
}

/// The patch that makes the status of a silent node say so. A node that is alive speaks for
/// itself.
pub(crate) fn status(node: &Value, now: Timestamp) -> Option<Value> {
    let mut conditions = condition::of(node);
    let before = conditions.clone();
    for kind in TOLD {
        let Some(index) = conditions.iter().position(|own| text(own, "/type") == kind) else {
            continue;
        };
        let heartbeat = conditions[index].get("lastHeartbeatTime").cloned();
        let unknown = Condition::new(kind, "Unknown").because(SILENT.0, SILENT.1);
        condition::set(&mut conditions, &unknown, now);
        if let Some(heartbeat) = heartbeat {
            conditions[index]["lastHeartbeatTime"] = heartbeat;
        }
    }
    (conditions != before)
        .then(|| json!({"metadata": object::version(node), "status": {"conditions": conditions}}))
}

/// The patch that gives a node the taints of its state and takes those of other states away.
pub(crate) fn taints(node: &Value, pulse: LeaseState, now: Timestamp) -> Option<Value> {
    let wanted = match pulse {
        LeaseState::Silent => Some(UNREACHABLE),
        LeaseState::Beats(_) if condition::is(node, "Ready", "True") => None,
        // Before it has told of itself it is neither.
        LeaseState::Beats(_) if condition::is(node, "Ready", "False") => Some(NOT_READY),
        LeaseState::Beats(_) => return None,
    };
    let have = list(node, "/spec/taints");
    let ours = |taint: &&Value| [UNREACHABLE, NOT_READY].contains(&text(taint, "/key"));
    let mut taints: Vec<Value> = have.iter().filter(|taint| !ours(taint)).cloned().collect();
    for effect in ["NoSchedule", "NoExecute"] {
        let Some(key) = wanted else { break };
        let known = have
            .iter()
            .find(|taint| text(taint, "/key") == key && text(taint, "/effect") == effect);
        taints.push(known.cloned().unwrap_or_else(
            || json!({"key": key, "effect": effect, "timeAdded": clock::rfc3339(now)}),
        ));
    }
    let same = taints.len() == have.len() && taints.iter().all(|taint| have.contains(taint));
    (!same).then(|| json!({"metadata": object::version(node), "spec": {"taints": taints}}))
}

/// The patch that makes an instance on a silent node say that nobody knows how it is.
pub(crate) fn instance(vmi: &Value, node: &str, now: Timestamp) -> Option<Value> {
    if text(vmi, "/status/phase") != "Running" || condition::is(vmi, "Ready", "False") {
        return None;
    }
    let mut conditions = condition::of(vmi);
    let message = format!("node {node} does not renew its lease; the guest may still run there");
    let unready = Condition::new("Ready", "False").because(NotReady::NodeSilent.as_str(), message);
    condition::set(&mut conditions, &unready, now);
    Some(json!({"metadata": object::version(vmi), "status": {"conditions": conditions}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(ready: &str, taints: &[&str]) -> Value {
        let taints: Vec<Value> = taints
            .iter()
            .flat_map(|key| {
                ["NoSchedule", "NoExecute"].map(|effect| json!({"key": key, "effect": effect}))
            })
            .collect();
        json!({
            "metadata": {"name": "n"},
            "spec": {"taints": taints},
            "status": {"conditions": [{
                "type": "Ready", "status": ready, "lastHeartbeatTime": "1970-01-01T00:00:00Z",
            }]},
        })
    }

    #[test]
    fn a_node_lives_while_its_lease_is_renewed() {
        let lease = json!({"spec": {"leaseDurationSeconds": 10}});
        let seconds = Duration::from_secs;
        assert_eq!(pulse(Some(&lease), seconds(2)), LeaseState::Beats(seconds(8)));
        assert_eq!(pulse(Some(&lease), seconds(10)), LeaseState::Silent);
        assert_eq!(pulse(None, seconds(39)), LeaseState::Beats(seconds(1)));
        assert_eq!(pulse(None, seconds(41)), LeaseState::Silent);
    }

    #[test]
    fn a_silent_node_is_unknown_once() {
        let mut silent = node("True", &[]);
        let patch = status(&silent, at(100)).unwrap();
        let ready = &patch["status"]["conditions"][0];
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!(SILENT.0)));
        assert_eq!(ready["lastHeartbeatTime"], "1970-01-01T00:00:00Z");
        silent["status"] = patch["status"].clone();
        assert_eq!(status(&silent, at(200)), None);
    }

    #[test]
    fn taints_follow_the_state() {
        let alive = LeaseState::Beats(GRACE);
        let keys = |node: &Value, pulse| {
            taints(node, pulse, at(0)).map(|patch| {
                let list = list(&patch, "/spec/taints");
                list.iter().map(|taint| text(taint, "/key").to_owned()).collect::<Vec<_>>()
            })
        };
        for (ready, have, pulse, want) in [
            ("True", &[][..], alive, None),
            ("True", &[], LeaseState::Silent, Some(vec![UNREACHABLE; 2])),
            ("Unknown", &[UNREACHABLE], LeaseState::Silent, None),
            ("True", &[UNREACHABLE], alive, Some(vec![])),
            ("False", &[UNREACHABLE], alive, Some(vec![NOT_READY; 2])),
            ("Unknown", &[UNREACHABLE], alive, None),
            ("True", &["mine", NOT_READY], alive, Some(vec!["mine"; 2])),
        ] {
            let want = want.map(|keys| keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(keys(&node(ready, have), pulse), want, "{ready} {have:?}");
        }
    }

    #[test]
    fn guests_of_a_silent_node_are_not_ready() {
        let vmi = json!({"status": {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
        }});
        let patch = instance(&vmi, "n", at(0)).unwrap();
        assert_eq!(patch["status"]["conditions"][0]["reason"], "NodeNotReady");
        assert_eq!(instance(&json!({"status": {"phase": "Succeeded"}}), "n", at(0)), None);
    }
}
