//! This node's actions for its replicas, engines and snapshots. Pure.
//!
//! ```text
//!  Replica here          ─► made, served ─► removed when its object goes and no engine uses it
//!  Engine wanted here    ─► record ─► attached ─► members, size ─► detached
//!  Replica of an engine  ─► granted to the engine's node (`grant`)
//!  Address for storage   ─► listened on ─► replicas are reached there
//!  Snapshot of an engine ─► taken, alone or together (`instant`) ─► deleted with its object
//! ```

mod action;
mod engine;
mod replica;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use block::ids::VolumeId;
use block::run::Address;
use block::storage::{RecordPlace, StorageStatus, VolumeState};

pub(super) use self::action::StorageAction;
use self::engine::engine;
pub(super) use self::engine::{is_arriving, is_for};
pub(super) use self::replica::first_members;
use self::replica::replica;
use self::snapshot::snapshot;
pub(super) use self::snapshot::snapshot_place;
use super::object::{Engine, LonghornVolume, Replica, Snapshot};
use super::{grant, group_snapshot};
use crate::backing_image::ImageLocations;

/// Everything that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct StorageWorld<'a> {
    pub(super) node: &'a str,
    pub(super) volumes: &'a BTreeMap<String, LonghornVolume>,
    pub(super) replicas: &'a BTreeMap<String, Replica>,
    pub(super) engines: &'a BTreeMap<String, Engine>,
    pub(super) snapshots: &'a BTreeMap<String, Snapshot>,
    /// For whom each volume is attached.
    pub(super) tickets: &'a BTreeMap<String, BTreeSet<String>>,
    /// Images, and the disks of this node that they may be on.
    pub(super) images: &'a BTreeMap<String, ImageLocations>,
    pub(super) disks: &'a BTreeMap<String, PathBuf>,
    /// Nothing while the storage process does not run.
    pub(super) state: Option<&'a StorageStatus>,
    /// Where the sockets of volumes are.
    pub(super) sockets: &'a Path,
    /// The node's address on the network for storage.
    pub(super) address: Option<IpAddr>,
    /// Objects that a job works on already.
    pub(super) under_way: &'a BTreeSet<JobKey>,
}

/// The subject of a job; only one job at a time may concern it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobKey {
    Replica(String),
    Engine(String),
    Snapshot(String),
    /// Snapshots that are taken together.
    Instant(String),
    /// A volume that no engine here is for.
    Stray(VolumeId),
    /// Which nodes replicas are for.
    Grants,
    /// Where replicas are reached.
    Addresses,
}

/// Whether a storage process is needed here.
pub(super) fn needs_process(world: &StorageWorld<'_>) -> bool {
    let replicas = world.replicas.values().any(|it| it.node == world.node);
    let is_here = |it: &Engine| it.node == world.node && it.is_wanted || is_arriving(world, it);
    replicas || world.engines.values().any(is_here)
}

/// An empty plan means that everything is as it should be, or waits for another component.
pub(super) fn plan(world: &StorageWorld<'_>) -> Vec<StorageAction> {
    let Some(state) = world.state else { return without_process(world) };
    let mut actions: Vec<StorageAction> = Vec::new();
    // First, since engines of other nodes may wait for it.
    let grants = grant::changes(world);
    actions.extend((!grants.is_empty()).then_some(StorageAction::GrantReplicas { grants }));
    actions.extend(addresses(world, state));
    let here = |it: &&Replica| it.node == world.node;
    actions.extend(world.replicas.values().filter(here).filter_map(|it| replica(world, state, it)));
    actions.extend(world.engines.values().filter_map(|it| engine(world, state, it)));
    actions.extend(strays(world, state));
    actions.extend(world.snapshots.values().filter_map(|it| snapshot(world, it)));
    actions.extend(
        group_snapshot::plan(world)
            .into_iter()
            .map(|instant| StorageAction::TakeTogether { instant }),
    );
    actions.retain(|action| !world.under_way.contains(&action.key()));
    actions
}

/// The storage process is to listen on the address for storage, at its own port.
fn addresses(world: &StorageWorld<'_>, state: &StorageStatus) -> Option<StorageAction> {
    let listens = state.listens_also.as_ref()?;
    let Some(Address::Tcp(first)) = &state.listen else { return None };
    let wanted = world.address.filter(|own| *own != first.ip());
    let wanted: Vec<_> = wanted.map(|own| SocketAddr::new(own, first.port())).into_iter().collect();
    (*listens != wanted).then_some(StorageAction::ListenAlso { addresses: wanted })
}

/// Objects that nothing on this node belongs to can go.
fn without_process(world: &StorageWorld<'_>) -> Vec<StorageAction> {
    let snapshots = world.snapshots.values().filter_map(|it| snapshot(world, it));
    snapshots.filter(|action| !world.under_way.contains(&action.key())).collect()
}

/// Volumes that are served here although no engine object says so any more.
fn strays(world: &StorageWorld<'_>, state: &StorageStatus) -> Vec<StorageAction> {
    let known: BTreeSet<VolumeId> = world
        .engines
        .values()
        .filter_map(|engine| world.volumes.get(&engine.volume).map(|it| it.id))
        .collect();
    let asked = state.volumes.iter().filter(|it| it.attachment.record == RecordPlace::Asked);
    let strays = asked.map(|it| it.attachment.volume).filter(|id| !known.contains(id));
    strays.map(|volume| StorageAction::Detach { engine: None, volume }).collect()
}

pub(super) fn served(state: &StorageStatus, volume: VolumeId) -> Option<&VolumeState> {
    state.volumes.iter().find(|it| it.attachment.volume == volume)
}

#[cfg(test)]
mod tests;
