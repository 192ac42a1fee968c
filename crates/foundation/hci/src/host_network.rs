//! Changes of the networks of hosts: the annotations that say how they are confirmed, the turn of a
//! node, and what a node reports of a trial. Pure.
//!
//! ```text
//!  VlanConfig, HostNetworkConfig
//!         sheaf.io/network-confirm: auto | manual | never
//!         sheaf.io/network-deadline: seconds until the change is rolled back
//!         sheaf.io/network-attempt: another value tries a change again that was rolled back
//!  Node   sheaf.io/network-trial                   written by its agent while a change is on trial
//!         sheaf.io/network-confirmed: ID           written by a person: this trial is kept
//!  Lease  kube-system/sheaf-host-network           held by the node whose turn it is
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const CONFIRM: &str = "sheaf.io/network-confirm";
pub const DEADLINE: &str = "sheaf.io/network-deadline";
pub const ATTEMPT: &str = "sheaf.io/network-attempt";
pub const TRIAL: &str = "sheaf.io/network-trial";
/// On a VlanStatus: the version of the request that was rolled back there.
pub const ROLLED_BACK: &str = "sheaf.io/network-rolled-back";
pub const CONFIRMED: &str = "sheaf.io/network-confirmed";

pub const LEASE_NAMESPACE: &str = "kube-system";
pub const LEASE_NAME: &str = "sheaf-host-network";
const BEGAN: &str = "sheaf.io/turn-began";
const ENDS: &str = "sheaf.io/turn-ends";

/// The condition of a VlanStatus or HostNetworkConfig that says what became of a change.
pub const APPLIED: &str = "networkApplied";

/// Default of [`DEADLINE`]: a spanning tree needs 30 s, and slow LACP 90 s.
pub const DEFAULT_DEADLINE: i64 = 90;
const DEADLINES: std::ops::RangeInclusive<i64> = 30..=600;
/// A node that dies during its turn keeps others from theirs for this long after the deadline.
const GRACE: i64 = 60;

/// How a change is confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ConfirmMode {
    /// By checks of the node.
    #[default]
    Auto,
    /// By a person.
    Manual,
    /// Changes are not tried at all.
    Never,
}

/// An annotation that says nothing usable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("annotation {CONFIRM} must be auto, manual or never, but is {value:?}")]
    Mode { value: String },
    #[error("annotation {DEADLINE} must be a number of seconds from 30 to 600, but is {value:?}")]
    Deadline { value: String },
}

/// How changes that an object asks for are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePolicy {
    pub mode: ConfirmMode,
    /// Seconds until a change is rolled back.
    pub deadline: i64,
    pub attempt: String,
}

impl Default for ChangePolicy {
    fn default() -> Self {
        Self { mode: ConfirmMode::Auto, deadline: DEFAULT_DEADLINE, attempt: String::new() }
    }
}

impl ChangePolicy {
    /// Reads the annotations of an object.
    pub fn read(annotations: &Value) -> Result<Self, PolicyError> {
        let text = |key: &str| annotations[key].as_str().filter(|value| !value.is_empty());
        let mode = match text(CONFIRM) {
            None | Some("auto") => ConfirmMode::Auto,
            Some("manual") => ConfirmMode::Manual,
            Some("never") => ConfirmMode::Never,
            Some(other) => return Err(PolicyError::Mode { value: other.to_owned() }),
        };
        let deadline = match text(DEADLINE) {
            None => DEFAULT_DEADLINE,
            Some(value) => {
                let seconds = value.parse().ok().filter(|seconds| DEADLINES.contains(seconds));
                seconds.ok_or_else(|| PolicyError::Deadline { value: value.to_owned() })?
            }
        };
        Ok(Self { mode, deadline, attempt: text(ATTEMPT).unwrap_or_default().to_owned() })
    }
}

/// The report of a node about a change on trial, in the annotation [`TRIAL`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrialReport {
    pub id: u64,
    pub cluster_network: String,
    pub state: String,
    pub mode: ConfirmMode,
    /// When it is rolled back, in seconds since 1970.
    pub deadline: i64,
}

/// Whether a node may change its network now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// The lease as it is to be written; it carries the version that was read.
    Take(Value),
    Wait {
        holder: String,
    },
}

fn number(lease: &Value, key: &str) -> i64 {
    let text = lease["metadata"]["annotations"][key].as_str();
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

/// Decides about the turn of a node at `now`, in seconds since 1970.
pub fn turn(lease: Option<&Value>, node: &str, now: i64, deadline: i64) -> Turn {
    if let Some(lease) = lease {
        let other = holder(lease);
        if !other.is_empty() && other != node && now < number(lease, ENDS) {
            return Turn::Wait { holder: other.to_owned() };
        }
    }
    let mut object = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": LEASE_NAME, "namespace": LEASE_NAMESPACE,
            "annotations": {BEGAN: now.to_string(), ENDS: (now + deadline + GRACE).to_string()},
        },
        "spec": {"holderIdentity": node},
    });
    if let Some(version) = lease.and_then(|lease| lease["metadata"]["resourceVersion"].as_str()) {
        object["metadata"]["resourceVersion"] = version.into();
    }
    Turn::Take(object)
}

/// Whether a node may write the lease so: for itself, and from another only when its turn is over.
pub fn may_write(node: &str, object: Option<&Value>, old: Option<&Value>) -> bool {
    let Some(object) = object else { return false };
    if ![node, ""].contains(&holder(object)) {
        return false;
    }
    let Some(old) = old else { return true };
    let is_free = [node, ""].contains(&holder(old));
    is_free || holder(object) == node && number(object, BEGAN) >= number(old, ENDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_or_refused() {
        let read = |mode: &str, deadline: &str| {
            ChangePolicy::read(&json!({CONFIRM: mode, DEADLINE: deadline, ATTEMPT: "2"}))
        };
        assert_eq!(ChangePolicy::read(&Value::Null), Ok(ChangePolicy::default()));
        let policy = read("manual", "30").unwrap();
        assert_eq!((policy.mode, policy.deadline), (ConfirmMode::Manual, 30));
        assert_eq!(policy.attempt, "2");
        for (mode, deadline, field) in [
            ("later", "60", CONFIRM),
            ("auto", "5", DEADLINE),
            ("auto", "601", DEADLINE),
            ("auto", "1m", DEADLINE),
        ] {
            let failure = read(mode, deadline).unwrap_err().to_string();
            assert!(failure.contains(field), "{failure}");
        }
    }

    #[test]
    fn nodes_take_turns() {
        let Turn::Take(first) = turn(None, "a", 1000, 90) else { panic!("no node holds it") };
        assert!(may_write("a", Some(&first), None));
        assert!(!may_write("b", Some(&first), None), "for another node");
        assert_eq!(turn(Some(&first), "b", 1100, 90), Turn::Wait { holder: "a".into() });
        assert!(matches!(turn(Some(&first), "a", 1100, 90), Turn::Take(_)));
        // A node that died keeps its turn until the end.
        let Turn::Take(second) = turn(Some(&first), "b", 1150, 90) else { panic!("it is over") };
        assert!(may_write("b", Some(&second), Some(&first)));
        let Turn::Take(early) = turn(None, "b", 1100, 90) else { panic!("no node holds it") };
        assert!(!may_write("b", Some(&early), Some(&first)), "too early");
        let mut released = first.clone();
        released["spec"]["holderIdentity"] = "".into();
        assert!(may_write("a", Some(&released), Some(&first)));
        assert!(!may_write("b", Some(&released), Some(&first)));
        assert!(may_write("b", Some(&early), Some(&released)));
        assert!(!may_write("a", None, Some(&first)), "nodes delete no leases");
    }
}
