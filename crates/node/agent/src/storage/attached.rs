//! The state of volumes that other parts of this node's agent use. Pure, except for the locks
//! around it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::ids::VolumeId;
use parking_lot::Mutex;

use super::AttachedVolume;
use super::object::Engine;
use super::plan::{StorageWorld, is_arriving, is_for, served};
use super::record::KnownVolume;

/// Volumes by their names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AttachedVolumes {
    pub(super) served: BTreeMap<String, AttachedVolume>,
    /// Tickets for which the volume is here.
    pub(super) satisfied: BTreeMap<String, BTreeSet<String>>,
    /// Those that this node fills.
    pub(super) filled: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct AttachedEntry(pub(super) Arc<Mutex<AttachedVolumes>>);

/// The volumes that the storage process may ask about, by its own ids.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeNumbers(pub(super) Arc<Mutex<BTreeMap<VolumeId, KnownVolume>>>);

pub(super) fn names(world: &StorageWorld<'_>) -> BTreeMap<VolumeId, KnownVolume> {
    let is_here = |it: &&Engine| it.node == world.node || is_arriving(world, it);
    let own = world.engines.values().filter(is_here);
    own.filter_map(|engine| {
        let volume = world.volumes.get(&engine.volume)?;
        let (engine, persistent) = (engine.name.clone(), volume.persistent.clone());
        Some((volume.id, KnownVolume { engine, persistent }))
    })
    .collect()
}

impl AttachedVolumes {
    pub(super) fn of(world: &StorageWorld<'_>) -> Self {
        let mut known = BTreeMap::new();
        for volume in world.volumes.values() {
            let found = world.state.and_then(|state| served(state, volume.id));
            let Some(found) = found.filter(|it| it.error.is_none()) else { continue };
            let (Some(status), Some(socket)) = (&found.status, &found.attachment.nbd) else {
                continue;
            };
            // One that will soon be released must not be used.
            let mut engines = world.engines.values().filter(|it| it.volume == volume.name);
            let is_active = status.phase == "active";
            let is_readable = status.phase == "standby" && status.size > 0;
            let is_usable = engines.any(|it| {
                is_active && is_for(world, it)
                    || (is_active || is_readable) && is_arriving(world, it)
            });
            if is_usable {
                let (id, socket, size) = (volume.id, socket.clone(), status.size);
                let volume = volume.name.clone();
                known.insert(volume, AttachedVolume { id, socket, size, is_active });
            }
        }
        Self { served: known, satisfied: world.tickets.clone(), filled: filled_here(world) }
    }
}

/// Of several nodes with replicas of a volume the first in order fills it.
fn filled_here(world: &StorageWorld<'_>) -> BTreeSet<String> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for replica in world.replicas.values() {
        let known = first.entry(&replica.volume).or_insert(&replica.node);
        *known = (*known).min(&replica.node);
    }
    let own = first.into_iter().filter(|(_, node)| *node == world.node);
    own.map(|(volume, _)| volume.to_owned()).collect()
}
