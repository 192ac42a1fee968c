//! Volumes that begin as the copy of another: pure.
//!
//! ```text
//!  (nothing) ── the snapshot is ready ──► initiated ── all replicas are made ──► completed
//!      └── the source is missing ──► failed ◄───────────────┘
//! ```

use hci::longhorn::{FINALIZER, NAMESPACE, VOLUME_LABEL};
use serde_json::{Value, json};

use super::place::{NodeHealth, ReplicaPlacement, ReplicaPlacements};
use super::replica::ReplicaSet;
use super::state::Instance;
use crate::longhorn::API;
use crate::longhorn::record::{SnapshotFields, VolumeFields};
use crate::object::{is_deleting, name, read};

/// The source of the initial content of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CopySource {
    pub(super) volume: String,
    pub(super) snapshot: String,
    /// The snapshot is made for this copy, and goes with its end.
    pub(super) own: bool,
}

/// The source of a volume; nothing for one that begins empty or that is complete.
pub(super) fn source(volume: &Value) -> Option<CopySource> {
    let VolumeFields { spec, status } = read(volume);
    let data_source = spec.data_source;
    if data_source.is_empty() || matches!(status.clone_status.state, "completed" | "failed") {
        return None;
    }
    if let Some(whole) = data_source.strip_prefix("vol://") {
        let snapshot = format!("clone-{}", name(volume));
        return Some(CopySource { volume: whole.to_owned(), snapshot, own: true });
    }
    let (volume, snapshot) =
        data_source.strip_prefix("snap://").and_then(|own| own.split_once('/'))?;
    Some(CopySource { volume: volume.to_owned(), snapshot: snapshot.to_owned(), own: false })
}

/// Whether the volume holds what it is to begin with.
pub(super) fn is_done(volume: &Value) -> bool {
    let VolumeFields { spec, status } = read(volume);
    spec.data_source.is_empty() || status.clone_status.state == "completed"
}

/// The source as it is found.
#[derive(Debug, Default)]
pub(super) struct ResolvedSource {
    pub(super) volume: Option<Value>,
    pub(super) snapshot: Option<Value>,
    pub(super) replicas: Vec<Value>,
}

/// The next step of a copy.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CopyStep {
    Wait,
    TakeSnapshot(Value),
    /// Replicas beside those of the source: where, and from which.
    Make(Vec<(ReplicaPlacement, String)>),
    Complete,
    Fail(String),
}

pub(super) fn step(
    volume: &Value,
    source: &CopySource,
    original: &ResolvedSource,
    census: &ReplicaSet<'_>,
    places: &ReplicaPlacements,
    wanted: usize,
) -> CopyStep {
    let begun = census.usable().count() > 0;
    if begun {
        let made = |own: Instance| matches!(own, Instance::Stopped | Instance::Running);
        return if census.usable().all(|own| made(own.state)) {
            CopyStep::Complete
        } else {
            CopyStep::Wait
        };
    }
    if census.0.iter().any(|own| own.failed.is_some()) {
        // They are removed after a while, and then made again.
        return CopyStep::Wait;
    }
    let Some(from) = &original.volume else {
        return CopyStep::Fail(format!("source volume {} is not found", source.volume));
    };
    let Some(snapshot) = &original.snapshot else {
        return match source.own {
            true => CopyStep::TakeSnapshot(own_snapshot(volume, source)),
            false => CopyStep::Fail(format!("snapshot {} is not found", source.snapshot)),
        };
    };
    let SnapshotFields { spec, status } = read(snapshot);
    let error = status.error;
    if !error.is_empty() {
        return CopyStep::Fail(format!("snapshot {} failed: {error}", source.snapshot));
    }
    if spec.volume != source.volume {
        return CopyStep::Fail(format!(
            "snapshot {} is not of volume {}",
            source.snapshot,
            name(from)
        ));
    }
    if is_deleting(from) || is_deleting(snapshot) {
        return CopyStep::Fail(format!("source {} is being deleted", source.volume));
    }
    if !status.ready_to_use {
        return CopyStep::Wait;
    }
    let sources = ReplicaSet::new(&original.replicas, None, places);
    let good = sources.usable().filter(|own| own.healthy && own.life == NodeHealth::Alive);
    let made: Vec<_> =
        good.take(wanted).map(|own| (places.at(own.node, own.disk), own.name.to_owned())).collect();
    if made.is_empty() { CopyStep::Wait } else { CopyStep::Make(made) }
}

fn own_snapshot(volume: &Value, source: &CopySource) -> Value {
    json!({
        "apiVersion": API, "kind": "Snapshot",
        "metadata": {
            "name": source.snapshot, "namespace": NAMESPACE, "finalizers": [FINALIZER],
            "labels": {VOLUME_LABEL: source.volume},
        },
        "spec": {
            "volume": source.volume, "createSnapshot": true,
            "labels": {"sheaf.io/clone-of": name(volume)},
        },
    })
}

/// The volume's status of its copy.
pub(super) fn status(source: &CopySource, state: &str) -> Value {
    json!({"sourceVolume": source.volume, "snapshot": source.snapshot, "state": state})
}

#[cfg(test)]
mod tests {
    use super::super::place::tests::storage_node;
    use super::*;

    fn clone_of(source: &str) -> Value {
        json!({"metadata": {"name": "new"}, "spec": {"dataSource": source}})
    }

    #[test]
    fn sources_are_snapshots_or_whole_volumes() {
        let read =
            |text: &str| source(&clone_of(text)).map(|own| (own.volume, own.snapshot, own.own));
        assert_eq!(read("snap://v/s"), Some(("v".into(), "s".into(), false)));
        assert_eq!(read("vol://v"), Some(("v".into(), "clone-new".into(), true)));
        assert_eq!((read(""), read("v"), read("snap://v")), (None, None, None));
        let mut done = clone_of("vol://v");
        done["status"] = json!({"cloneStatus": {"state": "completed"}});
        assert_eq!(source(&done), None);
    }

    #[test]
    fn a_copy_is_made_beside_its_source_once_there_is_a_snapshot() {
        let places = ReplicaPlacements::new(&[storage_node("one")], &[], &[], &json!({}));
        let volume = clone_of("vol://v");
        let from = source(&volume).unwrap();
        let replica = |state: &str| {
            json!({
                "metadata": {"name": "r"}, "status": {"currentState": state},
                "spec": {"nodeID": "one", "diskID": "disk-one", "healthyAt": "x", "failedAt": ""},
            })
        };
        let snapshot = |status: Value| {
            Some(json!({
                "metadata": {"name": "clone-new"}, "spec": {"volume": "v"}, "status": status,
            }))
        };
        let run = |original: ResolvedSource, own: &[Value]| {
            let census = ReplicaSet::new(own, None, &places);
            step(&volume, &from, &original, &census, &places, 3)
        };
        let there = || Some(json!({"metadata": {"name": "v"}}));
        assert_eq!(
            run(ResolvedSource::default(), &[]),
            CopyStep::Fail("source volume v is not found".into())
        );
        let bare = ResolvedSource { volume: there(), ..ResolvedSource::default() };
        assert!(matches!(run(bare, &[]), CopyStep::TakeSnapshot(_)));
        let taken = |status| ResolvedSource {
            volume: there(),
            snapshot: snapshot(status),
            replicas: vec![replica("running")],
        };
        assert_eq!(run(taken(json!({})), &[]), CopyStep::Wait);
        let failed = run(taken(json!({"error": "no room"})), &[]);
        assert_eq!(failed, CopyStep::Fail("snapshot clone-new failed: no room".into()));
        let CopyStep::Make(made) = run(taken(json!({"readyToUse": true})), &[]) else { panic!() };
        assert_eq!((made.len(), made[0].1.as_str(), made[0].0.disk.as_str()), (1, "r", "disk-one"));
        let ready = || taken(json!({"readyToUse": true}));
        assert_eq!(run(ready(), &[replica("")]), CopyStep::Wait);
        assert_eq!(run(ready(), &[replica("stopped")]), CopyStep::Complete);
    }
}
