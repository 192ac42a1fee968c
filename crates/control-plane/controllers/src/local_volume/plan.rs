//! The next step of a volume of the class `local` whose machine migrates. Pure.
//!
//! ```text
//!              Begin               Commit
//!   Settled ───────────► Moving ───────────► Settled, on the target
//!      ▲                   │
//!      └────── Abort ──────┘
//! ```
//!
//! The node affinity of the PersistentVolume names the only node whose file is the volume. Each
//! step is one write of the object, which is refused if it has changed since it was read, so that
//! of two contrary decisions one is carried out. No guest starts on a volume that is `Moving`, and
//! the guest that migrates goes on at the target only after `Commit`: until then both files have
//! the same data or the one of the source is newer.

use std::collections::BTreeSet;

use hci::local_volume::{
    COPIED_VOLUMES, CopiedVolumes, HOSTNAME, LocalVolumeMove, PREVIOUS_NODES, PROVISIONED_BY,
    PROVISIONER, VOLUME_MOVE, node_of, previous_nodes,
};
use serde_json::{Value, json};

use crate::object::{self, annotation, read};
use crate::record::instance::{InstanceFields, MigrationStateFields};

/// Where a local volume is, by its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VolumePlacement {
    /// The file of this node is the volume.
    Settled { node: String },
    /// So is the one of the source, and the target is getting a copy.
    Moving(LocalVolumeMove),
}

impl VolumePlacement {
    /// Nothing for volumes that are not of the class `local`.
    pub(super) fn of(volume: &Value) -> Option<Self> {
        if annotation(volume, PROVISIONED_BY) != Some(PROVISIONER) {
            return None;
        }
        let node = node_of(volume)?.to_owned();
        Some(match annotation(volume, VOLUME_MOVE) {
            Some(text) => Self::Moving(LocalVolumeMove::parse(text)),
            None => Self::Settled { node },
        })
    }
}

/// An instance, as far as its volumes are concerned.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct InstanceEvidence<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    /// The node that runs it, or is to.
    pub(super) node: &'a str,
    pub(super) migration: MigrationStateFields<'a>,
    /// The volumes that the node copies, or has copied.
    pub(super) copied: CopiedVolumes,
}

impl<'a> InstanceEvidence<'a> {
    pub(super) fn of(instance: &'a Value) -> Self {
        let status = read::<InstanceFields<'_>>(instance).status;
        let copied = annotation(instance, COPIED_VOLUMES).and_then(CopiedVolumes::parse);
        Self {
            namespace: object::namespace(instance),
            name: object::name(instance),
            uid: object::uid(instance),
            node: status.node_name,
            migration: status.migration_state,
            copied: copied.unwrap_or_default(),
        }
    }

    /// Whether this migration goes on, and the guest is at its source.
    fn is_leaving(&self, migration: &str) -> bool {
        let own = &self.migration;
        let is_over = own.completed || own.failed;
        !migration.is_empty()
            && own.migration_uid == migration
            && own.source_node == self.node
            && !own.target_node.is_empty()
            && own.target_node != self.node
            && !is_over
    }

    fn has_copied(&self, migration: &str, volume: &str) -> bool {
        self.copied.migration == migration && self.copied.volumes.iter().any(|own| own == volume)
    }
}

/// The next step of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VolumeMoveStep {
    Wait,
    /// The target may make a copy.
    Begin(LocalVolumeMove),
    /// The copy of the target is the volume.
    Commit(LocalVolumeMove),
    /// The file of the source stays the volume.
    Abort,
}

/// The decision; `instance` is the one that the move names, or one that has the volume.
pub(super) fn next(
    volume: &str,
    placement: &VolumePlacement,
    instance: Option<&InstanceEvidence<'_>>,
) -> VolumeMoveStep {
    match (placement, instance) {
        (VolumePlacement::Settled { node }, Some(own))
            if own.node == node
                && own.is_leaving(&own.copied.migration)
                && own.has_copied(own.migration.migration_uid, volume) =>
        {
            VolumeMoveStep::Begin(LocalVolumeMove {
                migration: own.migration.migration_uid.to_owned(),
                namespace: own.namespace.to_owned(),
                instance: own.name.to_owned(),
                uid: own.uid.to_owned(),
                source: node.clone(),
                target: own.migration.target_node.to_owned(),
            })
        }
        (VolumePlacement::Settled { .. }, _) => VolumeMoveStep::Wait,
        (VolumePlacement::Moving(moves), Some(own)) if own.uid == moves.uid => {
            if own.node == moves.target && own.has_copied(&moves.migration, volume) {
                VolumeMoveStep::Commit(moves.clone())
            } else if own.node == moves.source && own.is_leaving(&moves.migration) {
                VolumeMoveStep::Wait
            } else {
                VolumeMoveStep::Abort
            }
        }
        // Its machine is gone: the guest has not gone on at the target.
        (VolumePlacement::Moving(_), _) => VolumeMoveStep::Abort,
    }
}

/// The write of a step.
pub(super) fn patch(volume: &Value, step: &VolumeMoveStep) -> Option<Value> {
    let mut meta = object::version(volume);
    match step {
        VolumeMoveStep::Wait => None,
        VolumeMoveStep::Begin(moves) => {
            meta.insert("annotations".into(), json!({VOLUME_MOVE: moves.encode()}));
            Some(json!({"metadata": meta}))
        }
        VolumeMoveStep::Commit(moves) => {
            let known = annotation(volume, PREVIOUS_NODES).unwrap_or_default();
            let mut left: BTreeSet<&str> = previous_nodes(known).collect();
            left.insert(&moves.source);
            left.remove(moves.target.as_str());
            let left: Vec<&str> = left.into_iter().collect();
            let notes = json!({VOLUME_MOVE: null, PREVIOUS_NODES: left.join(",")});
            meta.insert("annotations".into(), notes);
            let node = json!({"key": HOSTNAME, "operator": "In", "values": [moves.target]});
            let terms = json!([{"matchExpressions": [node]}]);
            let affinity = json!({"required": {"nodeSelectorTerms": terms}});
            Some(json!({"metadata": meta, "spec": {"nodeAffinity": affinity}}))
        }
        VolumeMoveStep::Abort => {
            meta.insert("annotations".into(), json!({VOLUME_MOVE: null}));
            Some(json!({"metadata": meta}))
        }
    }
}

#[cfg(test)]
mod tests;
