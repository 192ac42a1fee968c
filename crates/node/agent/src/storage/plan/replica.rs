//! Replicas of this node: made on what they begin with, and removed. Pure.
//!
//! A replica that held data once is never made anew: an empty one would be served as the truth.

use std::collections::BTreeSet;

use block::ids::ReplicaId;
use block::storage::{BaseOf, NewReplica, ReplicaAt, StorageStatus};

use super::{StorageAction, StorageWorld};
use crate::storage::object::{Engine, LonghornVolume, Replica};

pub(super) fn replica(
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

/// The base of a new replica: none yet while it does not exist here, and none for replicas that
/// others fill.
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
pub(in crate::storage) fn first_members(
    world: &StorageWorld<'_>,
    engine: &Engine,
) -> BTreeSet<ReplicaId> {
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
