//! The state of a node, read from its objects, and the patches of its status and taints: pure.
//!
//! A node is alive while its lease is renewed. Without renewals its state is unknown, and its
//! guests may be running, so nothing is started elsewhere before it is declared lost
//! (`lifecycle`), or a person marks it with the taint `node.kubernetes.io/out-of-service`.

use std::collections::BTreeMap;
use std::time::Duration;

use base::clock;
use hci::cluster::CONTROL_PLANE;
use hci::failover::{LOST, REJOINED, SIGHTINGS, SUSPECT, Sighting, Sightings, Suspicion};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use virt::reason::NotReady;

use super::lifecycle::NodeLife;
use crate::condition::{self, Condition};
use crate::object::{self, annotation, name, read};
use crate::record::condition::ConditionFields;
use crate::record::fields;
use crate::record::instance::InstanceFields;
use crate::record::lease as record;
use crate::record::node::TaintFields;

fields! {
    struct TaintedNode {
        spec: TaintedSpec,
    }

    struct TaintedSpec {
        /// Those of others are copied with fields that this version does not know.
        taints: Vec<Value>,
    }
}

/// The duration of a lease without `leaseDurationSeconds`, and of a node without a lease.
const GRACE: Duration = Duration::from_secs(40);
/// The conditions that become `Unknown` when a node does not renew its lease.
const UNKNOWN_CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const NODE_LOST: (&str, &str) = (
    "NodeLost",
    "Neither the lease nor any other node reports this node: it is declared lost, and its machines \
     are started elsewhere where their disks allow it.",
);

/// The field of a condition of a node that [`condition::set`] does not know.
const HEARTBEAT: &str = "lastHeartbeatTime";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// How many nodes observe one that does not renew its lease. In most clusters these are all others,
/// the storage peers of its guests among them.
pub(super) const OBSERVERS: usize = 8;

/// How long the lease of a node is valid.
pub(crate) fn lease_duration(lease: Option<&Value>) -> Duration {
    let seconds = lease.and_then(|lease| record::lease(lease).lease_duration_seconds);
    seconds.map_or(GRACE, Duration::from_secs)
}

pub(crate) fn is_management(node: &Value) -> bool {
    object::labels(node).get(CONTROL_PLANE).is_some()
}

/// The token of the declaration that the node is lost.
pub(crate) fn lost_token(node: &Value) -> Option<&str> {
    annotation(node, LOST)
}

/// Whether a lost node says that it runs no guest of a finished instance.
pub(crate) fn has_rejoined(node: &Value) -> bool {
    lost_token(node).is_some_and(|token| annotation(node, REJOINED) == Some(token))
}

/// The observers of a silent node: the management node first, and others that are ready.
pub(crate) fn observers(nodes: &[&Value], suspect: &str) -> Vec<String> {
    let mut all: Vec<(bool, &str)> = nodes
        .iter()
        .filter(|node| name(node) != suspect && condition::is(node, "Ready", "True"))
        .map(|node| (!is_management(node), name(node)))
        .collect();
    all.sort_unstable();
    all.into_iter().take(OBSERVERS).map(|(_, name)| name.to_owned()).collect()
}

/// The reports of observers about `suspect`.
pub(crate) fn sightings(
    nodes: &BTreeMap<&str, &Value>,
    asked: &Suspicion,
    suspect: &str,
) -> Vec<Option<Sighting>> {
    let of = |observer: &String| {
        let report = annotation(nodes.get(observer.as_str())?, SIGHTINGS)?;
        let mut seen = Sightings::parse(report).0;
        seen.remove(suspect).filter(|seen| seen.token == asked.token)
    };
    asked.observers.iter().map(of).collect()
}

fn is_of_type(condition: &Value, kind: &str) -> bool {
    read::<ConditionFields<'_>>(condition).kind == kind
}

/// The patch that requests reports about a node from its observers.
pub(crate) fn request_observation(asked: &Suspicion) -> Value {
    json!({"metadata": {"annotations": {SUSPECT: asked.encode()}}})
}

/// The patch of the status of a node that does not renew its lease. A node that is alive writes its
/// status itself.
pub(crate) fn status(node: &Value, life: NodeLife, now: Timestamp) -> Option<Value> {
    let (reason, message) = match life {
        NodeLife::Alive | NodeLife::Suspected { .. } => return None,
        NodeLife::Unreachable(why) => (why.reason(), why.message()),
        NodeLife::Lost => NODE_LOST,
    };
    let mut conditions = condition::of(node);
    let before = conditions.clone();
    for kind in UNKNOWN_CONDITIONS {
        let Some(heartbeat) =
            condition::find(&conditions, kind).map(|own| own.get(HEARTBEAT).cloned())
        else {
            continue;
        };
        let unknown = Condition::new(kind, "Unknown").because(reason, message);
        condition::set(&mut conditions, &unknown, now);
        if let Some(heartbeat) = heartbeat
            && let Some(own) = conditions.iter_mut().find(|own| is_of_type(own, kind))
        {
            own[HEARTBEAT] = heartbeat;
        }
    }
    (conditions != before)
        .then(|| json!({"metadata": object::version(node), "status": {"conditions": conditions}}))
}

/// The patch that sets the taints of the state of a node and removes those of other states. A node
/// that is declared lost gets a token, and its return removes the token and all observations.
pub(crate) fn taints(node: &Value, life: NodeLife, now: Timestamp) -> Option<Value> {
    let wanted: &[&str] = match life {
        NodeLife::Lost => &[UNREACHABLE, LOST],
        NodeLife::Unreachable(_) => &[UNREACHABLE],
        NodeLife::Alive if condition::is(node, "Ready", "True") => &[],
        // A node that has not reported a status yet has neither taint.
        NodeLife::Alive if condition::is(node, "Ready", "False") => &[NOT_READY],
        NodeLife::Alive | NodeLife::Suspected { .. } => return None,
    };
    let have = read::<TaintedNode>(node).spec.taints;
    let ours = |taint: &&Value| {
        [UNREACHABLE, NOT_READY, LOST].contains(&read::<TaintFields<'_>>(taint).key)
    };
    let mut taints: Vec<Value> = have.iter().filter(|taint| !ours(taint)).cloned().collect();
    for (key, effect) in
        wanted.iter().flat_map(|key| ["NoSchedule", "NoExecute"].map(|effect| (*key, effect)))
    {
        let wanted = TaintFields { key, effect };
        let known = have.iter().find(|taint| read::<TaintFields<'_>>(taint) == wanted);
        taints.push(known.cloned().unwrap_or_else(
            || json!({"key": key, "effect": effect, "timeAdded": clock::rfc3339(now)}),
        ));
    }
    let marks = marks(node, life, now);
    let same = taints.len() == have.len() && taints.iter().all(|taint| have.contains(taint));
    if same && marks.is_empty() {
        return None;
    }
    let mut metadata = object::version(node);
    if !marks.is_empty() {
        metadata.insert("annotations".into(), Value::Object(marks));
    }
    Some(json!({"metadata": metadata, "spec": {"taints": taints}}))
}

/// Annotations that have to change with the taints.
fn marks(node: &Value, life: NodeLife, now: Timestamp) -> Map<String, Value> {
    let mut marks = Map::new();
    match life {
        NodeLife::Lost if lost_token(node).is_none() => {
            marks.insert(LOST.into(), json!(clock::rfc3339_micro(now)));
        }
        NodeLife::Alive => {
            for key in [LOST, SUSPECT, REJOINED] {
                if annotation(node, key).is_some() {
                    marks.insert(key.into(), Value::Null);
                }
            }
        }
        _ => {}
    }
    marks
}

/// The patch that makes an instance not ready, since the state of its node is unknown.
pub(crate) fn instance(vmi: &Value, node: &str, now: Timestamp) -> Option<Value> {
    if read::<InstanceFields<'_>>(vmi).status.phase != "Running"
        || condition::is(vmi, "Ready", "False")
    {
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
    use crate::node::lifecycle::Unreachable;
    use crate::object::{list, text};

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
    fn a_lease_says_how_long_it_is_valid() {
        let lease = json!({"spec": {"leaseDurationSeconds": 6}});
        assert_eq!(lease_duration(Some(&lease)), Duration::from_secs(6));
        assert_eq!(lease_duration(Some(&json!({}))), GRACE);
        assert_eq!(lease_duration(None), GRACE);
    }

    #[test]
    fn a_silent_node_is_unknown_once() {
        let mut silent = node("True", &[]);
        let life = NodeLife::Unreachable(Unreachable::AgentDown);
        let patch = status(&silent, life, at(100)).unwrap();
        let ready = &patch["status"]["conditions"][0];
        assert_eq!((&ready["status"], &ready["reason"]), (&json!("Unknown"), &json!("AgentDown")));
        assert_eq!(ready["lastHeartbeatTime"], "1970-01-01T00:00:00Z");
        silent["status"] = patch["status"].clone();
        assert_eq!(status(&silent, life, at(200)), None);
        let lost = status(&silent, NodeLife::Lost, at(200)).unwrap();
        assert_eq!(lost["status"]["conditions"][0]["reason"], "NodeLost");
        for quiet in [NodeLife::Alive, NodeLife::Suspected { ask: true }] {
            assert_eq!(status(&silent, quiet, at(200)), None);
        }
    }

    #[test]
    fn taints_follow_the_life_of_a_node() {
        let (alive, lost) = (NodeLife::Alive, NodeLife::Lost);
        let silent = NodeLife::Unreachable(Unreachable::ApiOnly);
        let suspected = NodeLife::Suspected { ask: false };
        let keys = |node: &Value, life| {
            taints(node, life, at(0)).map(|patch| {
                let list = list(&patch, "/spec/taints");
                list.iter().map(|taint| text(taint, "/key").to_owned()).collect::<Vec<_>>()
            })
        };
        for (ready, have, life, want) in [
            ("True", &[][..], alive, None),
            ("True", &[], silent, Some(vec![UNREACHABLE; 2])),
            ("True", &[], suspected, None),
            ("Unknown", &[UNREACHABLE], silent, None),
            ("Unknown", &[UNREACHABLE], suspected, None),
            ("True", &[UNREACHABLE], alive, Some(vec![])),
            ("False", &[UNREACHABLE], alive, Some(vec![NOT_READY; 2])),
            ("Unknown", &[UNREACHABLE], alive, None),
            ("True", &["mine", NOT_READY], alive, Some(vec!["mine"; 2])),
            ("Unknown", &[UNREACHABLE], lost, Some(vec![UNREACHABLE, UNREACHABLE, LOST, LOST])),
            ("True", &[UNREACHABLE, LOST], alive, Some(vec![])),
        ] {
            let want = want.map(|keys| keys.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(keys(&node(ready, have), life), want, "{ready} {have:?} {life:?}");
        }
    }

    #[test]
    fn a_declaration_has_a_token_and_its_end_removes_all_marks() {
        let mut own = node("True", &[]);
        let patch = taints(&own, NodeLife::Lost, at(5)).unwrap();
        own["spec"] = patch["spec"].clone();
        own["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
        let token = lost_token(&own).unwrap().to_owned();
        assert_eq!(taints(&own, NodeLife::Lost, at(9)), None, "declared once");
        assert!(!has_rejoined(&own));
        own["metadata"]["annotations"][REJOINED] = json!(token);
        assert!(has_rejoined(&own));
        let patch = taints(&own, NodeLife::Alive, at(9)).unwrap();
        assert_eq!(patch["metadata"]["annotations"], json!({LOST: null, REJOINED: null}));
        assert_eq!(patch["spec"]["taints"], json!([]));
    }

    #[test]
    fn observers_renew_their_leases_the_management_node_first() {
        let named = |name: &str, ready: &str, labels: Value| {
            let mut own = node(ready, &[]);
            own["metadata"] = json!({"name": name, "labels": labels});
            own
        };
        let all = [
            named("a", "True", json!({})),
            named("b", "Unknown", json!({})),
            named("c", "True", json!({})),
            named("m", "True", json!({CONTROL_PLANE: "true"})),
            named("z", "True", json!({})),
        ];
        let all: Vec<&Value> = all.iter().collect();
        assert_eq!(observers(&all, "c"), ["m", "a", "z"]);
        let asked = Suspicion { token: "t".into(), observers: vec!["m".into(), "a".into()] };
        let seen = |token: &str| {
            let report =
                format!(r#"{{"c":{{"token":"{token}","agent":"open","storage":"silent"}}}}"#);
            json!({"metadata": {"annotations": {SIGHTINGS: report}}})
        };
        let (new, old) = (seen("t"), seen("before"));
        let nodes = BTreeMap::from([("m", &new), ("a", &old)]);
        let found = sightings(&nodes, &asked, "c");
        assert!(found[0].is_some() && found[1].is_none(), "{found:?}");
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
