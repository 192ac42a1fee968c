//! What this node has to do about its replicas, engines and snapshots. Pure.
//!
//! ```text
//!  Replica here          ─► made, served ─► removed when its object goes and no engine uses it
//!  Engine wanted here    ─► record ─► attached ─► members, size ─► let go
//!  Replica of an engine  ─► granted to the engine's node (`grant`)
//!  Snapshot of an engine ─► taken, alone or together (`instant`) ─► deleted with its object
//! ```
//!
//! A replica that held data once is never made anew: an empty one would be served as the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use block::grant::ReplicaGrant;
use block::ids::{ReplicaId, VolumeId};
use block::run::Address;
use block::storage::{
    Attachment, BaseOf, NewReplica, RecordPlace, ReplicaAt, StorageStatus, VolumeState,
};

use super::grant;
use super::group_snapshot::{self, GroupSnapshot};
use super::object::{Engine, LonghornVolume, Replica, Snapshot};
use crate::image::ImageLocations;

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
    /// What somebody works on already.
    pub(super) under_way: &'a BTreeSet<JobKey>,
}

/// What only one piece of work at a time may concern.
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
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum StorageAction {
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
    /// Nodes that may open replicas of this node.
    GrantReplicas {
        grants: BTreeMap<ReplicaId, ReplicaGrant>,
    },
}

impl StorageAction {
    pub(super) fn key(&self) -> JobKey {
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
            | Self::ReleaseEngine { engine } => JobKey::Engine(engine.clone()),
            Self::TakeSnapshot { snapshot, .. }
            | Self::DeleteSnapshot { snapshot, .. }
            | Self::ReleaseSnapshot { snapshot } => JobKey::Snapshot(snapshot.clone()),
            Self::GrantReplicas { .. } => JobKey::Grants,
            Self::TakeTogether { instant } => JobKey::Instant(instant.together.instant.clone()),
        }
    }
}

/// Whether a storage process is needed here.
pub(super) fn needs_process(world: &StorageWorld<'_>) -> bool {
    let replicas = world.replicas.values().any(|it| it.node == world.node);
    let is_here = |it: &Engine| it.node == world.node && it.is_wanted || is_arriving(world, it);
    replicas || world.engines.values().any(is_here)
}

/// An empty plan means that everything is as it should be, or waits for somebody else.
pub(super) fn plan(world: &StorageWorld<'_>) -> Vec<StorageAction> {
    let Some(state) = world.state else { return without_process(world) };
    let mut actions: Vec<StorageAction> = Vec::new();
    // First, since engines of other nodes may wait for it.
    let grants = grant::changes(world);
    actions.extend((!grants.is_empty()).then_some(StorageAction::GrantReplicas { grants }));
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

/// Objects that nothing on this node stands behind can go.
fn without_process(world: &StorageWorld<'_>) -> Vec<StorageAction> {
    let snapshots = world.snapshots.values().filter_map(|it| snapshot(world, it));
    snapshots.filter(|action| !world.under_way.contains(&action.key())).collect()
}

fn replica(
    world: &StorageWorld<'_>,
    state: &StorageStatus,
    replica: &Replica,
) -> Option<StorageAction> {
    let name = replica.name.clone();
    let known = state.replicas.iter().find(|it| it.replica == replica.id);
    if replica.is_deleting {
        let uses = |it: &ReplicaAt| it.id == replica.id && it.at.is_none();
        let used = state.volumes.iter().any(|it| it.attachment.replicas.iter().any(uses));
        let free = replica.holds_finalizer && !used;
        return free.then_some(StorageAction::RemoveReplica { replica: name, id: replica.id });
    }
    if known.is_some_and(|known| known.error.is_none()) {
        return None;
    }
    let volume = world.volumes.get(&replica.volume)?;
    let header = if volume.is_encrypted { block::crypt::HEADER } else { 0 };
    let base = if replica.was_made { None } else { base(world, volume, replica)? };
    let new = NewReplica {
        volume: volume.id,
        replica: replica.id,
        size: replica.size + header,
        dir: Some(replica.dir.clone()),
        existing: replica.was_made,
        base,
    };
    Some(StorageAction::MakeReplica { replica: name, new })
}

/// What a new replica lies on: nothing yet if that is not there yet, and for replicas that others
/// fill.
#[expect(clippy::option_option, reason = "not known yet is not the same as none")]
fn base(
    world: &StorageWorld<'_>,
    volume: &LonghornVolume,
    replica: &Replica,
) -> Option<Option<BaseOf>> {
    let Some(source) = &volume.source else { return image(world, volume, replica) };
    let snapshot = source.snapshot.clone()?;
    let of = |it: &&Replica| it.volume == source.volume && !it.is_deleting;
    let mut sources: Vec<&Replica> = world.replicas.values().filter(of).collect();
    let here = |it: &Replica| it.node == world.node;
    sources.sort_by_key(|it| (!here(it), it.name != replica.base, it.disk != replica.disk));
    let nearest = sources.first()?;
    let base = BaseOf::Snapshot { replica: nearest.id, snapshot };
    Some(here(nearest).then_some(base))
}

/// The image that a new replica lies on, of its own disk if that has it.
#[expect(clippy::option_option, reason = "not known yet is not the same as none")]
fn image(
    world: &StorageWorld<'_>,
    volume: &LonghornVolume,
    replica: &Replica,
) -> Option<Option<BaseOf>> {
    let Some(name) = &volume.image else { return Some(None) };
    let image = world.images.get(name).filter(|image| !image.disks.is_empty())?;
    let own = |disk: &&String| world.disks.contains_key(*disk);
    let disk = image.disks.get(&replica.disk).filter(own).or_else(|| image.disks.iter().find(own));
    let path = disk.and_then(|disk| world.disks.get(disk));
    Some(path.map(|disk| BaseOf::Image { path: image.path(disk) }))
}

/// Whether a new replica lies on its volume's image.
fn is_on_image(world: &StorageWorld<'_>, image: &str, replica: &Replica) -> bool {
    let Some(image) = world.images.get(image) else { return false };
    let here = replica.node == world.node;
    image.disks.contains(&replica.disk)
        || here && image.disks.iter().any(|disk| world.disks.contains_key(disk))
}

/// The replicas that have everything when a volume is new: all of them, or those that lie on what
/// it is a clone of.
pub(super) fn first_members(world: &StorageWorld<'_>, engine: &Engine) -> BTreeSet<ReplicaId> {
    let volume = world.volumes.get(&engine.volume);
    let source = volume.and_then(|volume| volume.source.as_ref());
    let image = volume.and_then(|volume| volume.image.as_ref());
    let is_filled = |replica: &Replica| {
        if let (None, Some(image)) = (source, image) {
            return is_on_image(world, image, replica);
        }
        source.is_none_or(|source| {
            let mut all = world.replicas.values();
            all.any(|it| it.volume == source.volume && it.node == replica.node)
        })
    };
    let members = engine.replicas.keys().filter_map(|name| world.replicas.get(name));
    members.filter(|it| is_filled(it)).map(|it| it.id).collect()
}

/// The engines that volumes are to be served by here.
pub(super) fn is_for(world: &StorageWorld<'_>, engine: &Engine) -> bool {
    engine.node == world.node && engine.is_wanted && !engine.is_deleting
}

/// The engines of volumes that a machine brings along which still runs elsewhere.
pub(super) fn is_arriving(world: &StorageWorld<'_>, engine: &Engine) -> bool {
    let volume = world.volumes.get(&engine.volume);
    let target = volume.and_then(|volume| volume.migration_node.as_deref());
    target == Some(world.node)
        && engine.node != world.node
        && engine.is_wanted
        && !engine.is_deleting
}

/// A volume is read beside its engine elsewhere until it is taken over.
fn arriving(
    world: &StorageWorld<'_>,
    state: &StorageStatus,
    engine: &Engine,
) -> Option<StorageAction> {
    let volume = world.volumes.get(&engine.volume)?;
    let wanted = members(world, engine)?;
    let attached = served(state, volume.id);
    // One that was taken over and is lost again is not claimed a second time.
    let is_lost = attached.is_some_and(|it| it.attachment.standby && it.error.is_some());
    if attached.is_some() && !is_lost {
        return None;
    }
    let mut action = attach(world, volume, engine, wanted, is_lost);
    if let StorageAction::Attach { attachment, is_new, .. } = &mut action {
        (attachment.standby, *is_new) = (true, false);
    }
    is_ready(state, &action).then_some(action)
}

fn engine(
    world: &StorageWorld<'_>,
    state: &StorageStatus,
    engine: &Engine,
) -> Option<StorageAction> {
    if is_arriving(world, engine) {
        return arriving(world, state, engine);
    }
    let volume = world.volumes.get(&engine.volume);
    let attached = volume.and_then(|it| served(state, it.id));
    let name = engine.name.clone();
    if !is_for(world, engine) {
        let owner = engine.status["ownerID"].as_str().unwrap_or_default();
        let other =
            world.engines.values().any(|it| it.volume == engine.volume && is_for(world, it));
        if let Some(attached) = attached.filter(|_| !other) {
            let volume = attached.attachment.volume;
            // The record is for the node to write that has the volume now.
            let is_elsewhere = !engine.node.is_empty() && engine.node != world.node;
            let engine = (!is_elsewhere).then_some(name);
            return Some(StorageAction::Detach { engine, volume });
        }
        let ours = engine.node == world.node
            || engine.node.is_empty() && (owner.is_empty() || owner == world.node);
        let goes = engine.is_deleting && engine.holds_finalizer && ours;
        return goes.then_some(StorageAction::ReleaseEngine { engine: name });
    }
    let volume = volume?;
    let wanted = members(world, engine)?;
    let Some(attached) = attached else {
        let action = attach(world, volume, engine, wanted, false);
        return is_ready(state, &action).then_some(action);
    };
    if attached.attachment.standby {
        return Some(StorageAction::TakeOver { engine: name, volume: volume.id });
    }
    if attached.error.is_some() && volume.migration_node.is_some() {
        // The node that the machine moves to has claimed it, and decides by the machine's object.
        return None;
    }
    if attached.status.is_none() || attached.error.is_some() {
        let action = attach(world, volume, engine, wanted, true);
        return (is_ready(state, &action) && attached.error.is_some()).then_some(action);
    }
    change(volume, engine, attached, &wanted)
}

/// What is to change about a volume that is served.
fn change(
    volume: &LonghornVolume,
    engine: &Engine,
    attached: &VolumeState,
    wanted: &[ReplicaAt],
) -> Option<StorageAction> {
    let name = engine.name.clone();
    let status = attached.status.as_ref().filter(|status| status.phase == "active")?;
    let is_other = engine.attached.as_deref().is_some_and(|node| node != attached.attachment.node);
    let is_stale = engine.claimant.is_some() && volume.migration_node.is_none();
    if is_other || is_stale {
        return Some(StorageAction::OwnRecord { engine: name });
    }
    let volume = volume.id;
    let has = &attached.attachment.replicas;
    if let Some(came) = wanted.iter().find(|it| !has.contains(it)) {
        return Some(StorageAction::AddMember { engine: name, volume, replica: came.clone() });
    }
    if let Some(gone) = has.iter().find(|it| wanted.iter().all(|other| other.id != it.id)) {
        return Some(StorageAction::DropMember { engine: name, volume, replica: gone.id });
    }
    let size = engine.size;
    (size > status.size).then_some(StorageAction::Expand { engine: name, volume, size })
}

/// The replicas of an engine; nothing before all of them are known, or if there are none.
fn members(world: &StorageWorld<'_>, engine: &Engine) -> Option<Vec<ReplicaAt>> {
    let mut members = Vec::new();
    for (name, address) in &engine.replicas {
        let replica = world.replicas.get(name)?;
        let at = if replica.node == world.node { None } else { Some(far(address)?) };
        members.push(ReplicaAt { id: replica.id, at });
    }
    (!members.is_empty()).then_some(members)
}

/// `host:port`, with whatever before and after it.
fn far(address: &str) -> Option<Address> {
    let address = address.strip_prefix("tcp://").unwrap_or(address);
    let address = address.split('/').next().unwrap_or_default();
    address.parse().ok().map(Address::Tcp)
}

/// Whether an attachment can be asked for: every member that is here is served. One that cannot be,
/// because its files are missing or damaged, stops a volume only if that has no other member or
/// never had data.
fn is_ready(state: &StorageStatus, action: &StorageAction) -> bool {
    let StorageAction::Attach { attachment, is_new, .. } = action else { return false };
    let known = |member: &ReplicaAt| state.replicas.iter().find(|it| it.replica == member.id);
    let here = attachment.replicas.iter().filter(|it| it.at.is_none());
    let mut usable = attachment.replicas.iter().any(|it| it.at.is_some());
    for member in here {
        match known(member) {
            Some(state) if state.error.is_none() => usable = true,
            Some(_) if !is_new => {}
            Some(_) | None => return false,
        }
    }
    usable
}

fn attach(
    world: &StorageWorld<'_>,
    volume: &LonghornVolume,
    engine: &Engine,
    replicas: Vec<ReplicaAt>,
    again: bool,
) -> StorageAction {
    let attachment = Attachment {
        volume: volume.id,
        node: world.node.to_owned(),
        replicas,
        nbd: Some(socket(world.sockets, volume.id)),
        nbd_tcp: None,
        vhost: None,
        record: RecordPlace::Asked,
        encrypted: volume.is_encrypted,
        standby: false,
    };
    let first = first_members(world, engine);
    let used = world.replicas.values().any(|it| first.contains(&it.id) && it.was_healthy);
    StorageAction::Attach { engine: engine.name.clone(), attachment, first, is_new: !used, again }
}

/// Short, because the kernel takes no long names of sockets.
pub(super) fn socket(dir: &Path, volume: VolumeId) -> PathBuf {
    dir.join(format!("{:016x}.sock", volume.as_u128() >> 64))
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

/// The volume that a snapshot is of, if it can be changed here now.
pub(super) fn snapshot_place<'a>(
    world: &StorageWorld<'a>,
    snapshot: &Snapshot,
) -> Option<(&'a LonghornVolume, &'a VolumeState)> {
    let volume = world.volumes.get(&snapshot.volume)?;
    let served = served(world.state?, volume.id)?;
    let is_active = served.status.as_ref().is_some_and(|status| status.phase == "active");
    is_active.then_some((volume, served))
}

fn snapshot(world: &StorageWorld<'_>, snapshot: &Snapshot) -> Option<StorageAction> {
    let name = snapshot.name.clone();
    if snapshot.is_deleting && !snapshot.holds_finalizer {
        return None;
    }
    let Some((volume, served)) = snapshot_place(world, snapshot) else {
        // Together with its volume it is gone already; and one that never was need not be removed.
        let gone = !world.volumes.contains_key(&snapshot.volume) || !snapshot.was_taken();
        return (snapshot.is_deleting && gone)
            .then_some(StorageAction::ReleaseSnapshot { snapshot: name });
    };
    let status = served.status.as_ref()?;
    let exists = status.snapshots.iter().any(|it| it.name == name);
    let volume = volume.id;
    match (snapshot.is_deleting, exists) {
        (true, true) => Some(StorageAction::DeleteSnapshot { snapshot: name, volume }),
        (true, false) => Some(StorageAction::ReleaseSnapshot { snapshot: name }),
        (false, false) if group_snapshot::is_tied(world, snapshot) => None,
        (false, false) if snapshot.is_to_be_taken && !snapshot.was_taken() => {
            let labels = snapshot.labels.clone();
            Some(StorageAction::TakeSnapshot { snapshot: name, volume, labels })
        }
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests;
