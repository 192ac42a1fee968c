//! Snapshots of volumes that are served here: taken and deleted. Pure.

use block::storage::VolumeState;

use super::{StorageAction, StorageWorld, served};
use crate::storage::group_snapshot;
use crate::storage::object::{LonghornVolume, Snapshot};

/// The volume that a snapshot is of, if it can be changed here now.
pub(in crate::storage) fn snapshot_place<'a>(
    world: &StorageWorld<'a>,
    snapshot: &Snapshot,
) -> Option<(&'a LonghornVolume, &'a VolumeState)> {
    let volume = world.volumes.get(&snapshot.volume)?;
    let served = served(world.state?, volume.id)?;
    let is_active = served.status.as_ref().is_some_and(|status| status.phase == "active");
    is_active.then_some((volume, served))
}

pub(super) fn snapshot(world: &StorageWorld<'_>, snapshot: &Snapshot) -> Option<StorageAction> {
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
