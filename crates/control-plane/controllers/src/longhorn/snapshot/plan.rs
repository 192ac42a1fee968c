//! The next step of a snapshot: pure.

use hci::longhorn::{FINALIZER, VOLUME_LABEL};
use serde_json::{Value, json};

use crate::longhorn::record::{ReplicaFields, SnapshotFields};
use crate::longhorn::volume::ticket;
use crate::object::{self, has_finalizer, is_deleting, read};

pub(super) const KIND: &str = "snapshot-controller";

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SnapshotStep {
    /// A user created it: it lacks what ours have.
    Adopt(Value),
    Fail(String),
    /// Nothing holds it any more.
    Release(Value),
    /// The engine of its volume has to run.
    Attach,
    Done,
}

pub(super) fn step(snapshot: &Value, volume: Option<&Value>) -> SnapshotStep {
    let SnapshotFields { spec, status } = read(snapshot);
    let owner = spec.volume;
    let held = has_finalizer(snapshot, FINALIZER);
    let failed = !status.error.is_empty();
    if is_deleting(snapshot) {
        let never_taken = status.creation_time.is_empty();
        return match volume {
            _ if !held => SnapshotStep::Done,
            None => SnapshotStep::Release(release(snapshot)),
            // With its volume, all snapshots go.
            Some(volume) if is_deleting(volume) => SnapshotStep::Done,
            // There is nothing to remove, and the volume may never run.
            Some(_) if never_taken && failed => SnapshotStep::Release(release(snapshot)),
            Some(_) => SnapshotStep::Attach,
        };
    }
    let Some(volume) = volume.filter(|own| !is_deleting(own)) else {
        return match failed {
            true => SnapshotStep::Done,
            false => SnapshotStep::Fail(format!("volume {owner} is not found")),
        };
    };
    let labelled = object::label(snapshot, VOLUME_LABEL).unwrap_or_default() == owner;
    if !held || !labelled {
        return SnapshotStep::Adopt(adoption(snapshot, volume));
    }
    if spec.create_snapshot && !status.ready_to_use && !failed {
        SnapshotStep::Attach
    } else {
        SnapshotStep::Done
    }
}

fn adoption(snapshot: &Value, volume: &Value) -> Value {
    let mut finalizers = object::finalizers_without(snapshot, &[FINALIZER]);
    finalizers.push(json!(FINALIZER));
    let mut meta = object::version(snapshot);
    meta.insert("finalizers".into(), finalizers.into());
    meta.insert("labels".into(), json!({VOLUME_LABEL: object::name(volume)}));
    json!({"metadata": meta})
}

fn release(snapshot: &Value) -> Value {
    let left = object::finalizers_without(snapshot, &[FINALIZER]);
    json!({"metadata": {"uid": object::uid(snapshot), "finalizers": left}})
}

fn id(snapshot: &str) -> String {
    format!("{KIND}-{snapshot}")
}

/// The snapshot of a ticket of ours.
pub(super) fn snapshot_of(id: &str) -> Option<&str> {
    id.strip_prefix(KIND)?.strip_prefix('-')
}

pub(super) fn has_ticket(attachment: &Value, snapshot: &str) -> bool {
    ticket::has(attachment, &id(snapshot))
}

pub(super) fn put(snapshot: &str, node: &str) -> Value {
    let id = id(snapshot);
    let ticket = ticket::ticket(&id, KIND, node);
    json!({"spec": {"attachmentTickets": {id: ticket}}})
}

pub(super) fn drop(snapshot: &str) -> Value {
    json!({"spec": {"attachmentTickets": {id(snapshot): null}}})
}

/// Where a volume is best attached: where a ticket asks for it, or beside a copy.
pub(super) fn home<'a>(attachment: &'a Value, replicas: &'a [Value]) -> Option<&'a str> {
    let mut nodes = ticket::tickets(attachment).into_values().map(|own| own.node_id);
    let wanted = nodes.find(|node| !node.is_empty());
    let replicas = replicas.iter().map(|own| read::<ReplicaFields<'_>>(own).spec);
    let usable: Vec<_> = replicas.filter(|own| own.failed_at.is_empty()).collect();
    let healthy = usable.iter().find(|own| !own.healthy_at.is_empty());
    let beside = healthy.or_else(|| usable.first()).map(|own| own.node_id);
    wanted.or(beside).filter(|node| !node.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(changes: Value, status: Value) -> Value {
        let mut meta = json!({"name": "s", "uid": "u", "finalizers": [FINALIZER],
            "labels": {VOLUME_LABEL: "v"}});
        for (key, value) in changes.as_object().unwrap() {
            meta[key] = value.clone();
        }
        json!({"metadata": meta, "spec": {"volume": "v", "createSnapshot": true}, "status": status})
    }

    #[test]
    fn a_volume_is_attached_while_a_snapshot_needs_it() {
        let volume = json!({"metadata": {"name": "v"}});
        let going = json!({"metadata": {"name": "v", "deletionTimestamp": "t"}});
        let deleting = || json!({"deletionTimestamp": "t"});
        let taken = json!({"readyToUse": true, "creationTime": "t"});
        for (own, volume, expected) in [
            (snapshot(json!({}), json!({})), Some(&volume), "Attach"),
            (snapshot(json!({}), taken.clone()), Some(&volume), "Done"),
            (snapshot(json!({}), json!({"error": "x"})), Some(&volume), "Done"),
            (snapshot(json!({}), json!({})), None, "Fail"),
            (snapshot(json!({}), json!({})), Some(&going), "Fail"),
            (snapshot(json!({"finalizers": []}), json!({})), Some(&volume), "Adopt"),
            (snapshot(json!({"labels": {}}), json!({})), Some(&volume), "Adopt"),
            (snapshot(deleting(), taken.clone()), Some(&volume), "Attach"),
            (snapshot(deleting(), json!({"error": "x"})), Some(&volume), "Release"),
            (snapshot(deleting(), taken.clone()), Some(&going), "Done"),
            (snapshot(deleting(), taken), None, "Release"),
        ] {
            let found = format!("{:?}", step(&own, volume));
            assert!(found.starts_with(expected), "{found} is not {expected}: {own}");
        }
    }

    #[test]
    fn it_is_attached_where_it_is_wanted_or_beside_a_healthy_copy() {
        let none = json!({"spec": {"attachmentTickets": {}}});
        let wanted = json!({"spec": {"attachmentTickets": {"t": {"nodeID": "two"}}}});
        let replica = |node: &str, healthy: &str, failed: &str| json!({"spec": {"nodeID": node, "healthyAt": healthy, "failedAt": failed}});
        let replicas =
            [replica("one", "", ""), replica("three", "t", "t"), replica("four", "t", "")];
        assert_eq!(home(&none, &replicas), Some("four"));
        assert_eq!(home(&none, &replicas[..2]), Some("one"));
        assert_eq!(home(&wanted, &replicas), Some("two"));
        assert_eq!(home(&none, &[]), None);
    }

    #[test]
    fn tickets_name_their_snapshot() {
        let put = put("s", "one");
        assert!(has_ticket(&put, "s") && !has_ticket(&put, "t"));
        assert_eq!(snapshot_of(&id("a-b")), Some("a-b"));
        assert_eq!(snapshot_of("vmi-1"), None);
    }
}
