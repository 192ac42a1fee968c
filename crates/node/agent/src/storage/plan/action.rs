//! One piece of work on the volumes of this node, and what it must not run beside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use block::grant::ReplicaGrant;
use block::ids::{ReplicaId, VolumeId};
use block::storage::{Attachment, NewReplica, ReplicaAt};

use super::JobKey;
use crate::storage::group_snapshot::GroupSnapshot;

/// One piece of work.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::storage) enum StorageAction {
    MakeReplica {
        replica: String,
        new: NewReplica,
    },
    /// Removes its files, if it has any, and lets its object go.
    RemoveReplica {
        replica: String,
        id: ReplicaId,
    },
    /// `first` has everything if the volume is new.
    Attach {
        engine: String,
        attachment: Attachment,
        first: BTreeSet<ReplicaId>,
        is_new: bool,
        /// It was attached, and its engine gave up.
        again: bool,
    },
    /// Claims a volume that was handed to this node without its machine.
    TakeOver {
        engine: String,
        volume: VolumeId,
    },
    /// The record is to say that the volume is attached here, and that no other node may claim it.
    OwnRecord {
        engine: String,
    },
    Detach {
        engine: Option<String>,
        volume: VolumeId,
    },
    Expand {
        engine: String,
        volume: VolumeId,
        size: u64,
    },
    AddMember {
        engine: String,
        volume: VolumeId,
        replica: ReplicaAt,
    },
    DropMember {
        engine: String,
        volume: VolumeId,
        replica: ReplicaId,
    },
    /// Connects to a replica at its present address.
    Reconnect {
        engine: String,
        volume: VolumeId,
        replica: ReplicaId,
    },
    ReleaseEngine {
        engine: String,
    },
    TakeSnapshot {
        snapshot: String,
        volume: VolumeId,
        labels: BTreeMap<String, String>,
    },
    TakeTogether {
        instant: GroupSnapshot,
    },
    DeleteSnapshot {
        snapshot: String,
        volume: VolumeId,
    },
    ReleaseSnapshot {
        snapshot: String,
    },
    /// Addresses at which other nodes reach replicas of this node, besides the first.
    ListenAlso {
        addresses: Vec<SocketAddr>,
    },
    /// Nodes that may open replicas of this node.
    GrantReplicas {
        grants: BTreeMap<ReplicaId, ReplicaGrant>,
    },
}

impl StorageAction {
    pub(in crate::storage) fn key(&self) -> JobKey {
        match self {
            Self::MakeReplica { replica, .. } | Self::RemoveReplica { replica, .. } => {
                JobKey::Replica(replica.clone())
            }
            Self::Detach { engine: None, volume } => JobKey::Stray(*volume),
            Self::Attach { engine, .. }
            | Self::TakeOver { engine, .. }
            | Self::OwnRecord { engine }
            | Self::Detach { engine: Some(engine), .. }
            | Self::Expand { engine, .. }
            | Self::AddMember { engine, .. }
            | Self::DropMember { engine, .. }
            | Self::Reconnect { engine, .. }
            | Self::ReleaseEngine { engine } => JobKey::Engine(engine.clone()),
            Self::TakeSnapshot { snapshot, .. }
            | Self::DeleteSnapshot { snapshot, .. }
            | Self::ReleaseSnapshot { snapshot } => JobKey::Snapshot(snapshot.clone()),
            Self::GrantReplicas { .. } => JobKey::Grants,
            Self::ListenAlso { .. } => JobKey::Addresses,
            Self::TakeTogether { instant } => JobKey::Instant(instant.together.instant.clone()),
        }
    }
}
