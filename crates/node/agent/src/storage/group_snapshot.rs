//! Snapshots of several volumes at one instant of the machine that uses them. Pure.
//!
//! Only what a machine writes to can be torn, so volumes that are attached for another reason are
//! taken alone. The others wait until all that belong to the instant are asked for and served
//! here. If only some were taken when we were last killed, those are of another instant: they go,
//! and all are taken anew.

use std::collections::{BTreeMap, BTreeSet};

use block::ids::VolumeId;
use block::storage::StorageStatus;
use hci::together::SnapshotGroup;

use super::object::Snapshot;
use super::plan::{StorageWorld, served, snapshot_place};

/// The ticket of a machine.
const MACHINE: &str = "vmi-";

/// Snapshots to be taken together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GroupSnapshot {
    pub(super) together: SnapshotGroup,
    pub(super) members: Vec<GroupMember>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupMember {
    pub(super) snapshot: String,
    pub(super) volume: VolumeId,
    pub(super) labels: BTreeMap<String, String>,
}

/// Whether a snapshot must not be taken alone.
pub(super) fn is_tied(world: &StorageWorld<'_>, snapshot: &Snapshot) -> bool {
    let none = BTreeSet::new();
    let tickets = world.tickets.get(&snapshot.volume).unwrap_or(&none);
    snapshot.together.is_some()
        && !snapshot.was_taken()
        && tickets.iter().any(|ticket| ticket.starts_with(MACHINE))
}

pub(super) fn plan(world: &StorageWorld<'_>) -> Vec<GroupSnapshot> {
    let mut instants: BTreeMap<&str, Vec<&Snapshot>> = BTreeMap::new();
    let asked = |it: &&Snapshot| it.is_to_be_taken && !it.is_deleting;
    for snapshot in world.snapshots.values().filter(asked) {
        if let Some(together) = &snapshot.together {
            instants.entry(&together.instant).or_default().push(snapshot);
        }
    }
    instants.into_values().filter_map(|members| instant(world, &members)).collect()
}

fn instant(world: &StorageWorld<'_>, asked: &[&Snapshot]) -> Option<GroupSnapshot> {
    let together = asked.first()?.together.clone()?;
    if asked.len() < together.count {
        return None;
    }
    let tied = asked.iter().filter(|it| is_tied(world, it));
    let mut members = Vec::new();
    for snapshot in tied {
        let (volume, _) = snapshot_place(world, snapshot)?;
        let (name, labels) = (snapshot.name.clone(), snapshot.labels.clone());
        members.push(GroupMember { snapshot: name, volume: volume.id, labels });
    }
    let instant = GroupSnapshot { together, members };
    let done = instant.members.is_empty() || instant.left(world.state?).is_empty();
    (!done).then_some(instant)
}

impl GroupSnapshot {
    /// Whether each member exists.
    fn existing(&self, state: &StorageStatus) -> impl Iterator<Item = (&GroupMember, bool)> {
        self.members.iter().map(|member| {
            let status = served(state, member.volume).and_then(|it| it.status.as_ref());
            let mut all = status.into_iter().flat_map(|it| &it.snapshots);
            (member, all.any(|it| it.name == member.snapshot))
        })
    }

    /// Members that are not taken yet.
    fn left(&self, state: &StorageStatus) -> Vec<&GroupMember> {
        self.existing(state).filter(|(_, exists)| !exists).map(|(member, _)| member).collect()
    }

    /// Snapshots that must be deleted first, because they are of another instant; nothing if all
    /// are taken.
    pub(super) fn torn(&self, state: &StorageStatus) -> Option<Vec<&GroupMember>> {
        let torn: Vec<&GroupMember> =
            self.existing(state).filter(|(_, exists)| *exists).map(|(member, _)| member).collect();
        (torn.len() < self.members.len()).then_some(torn)
    }
}

/// The instants whose memory somebody may go back to.
pub(super) fn with_memory(snapshots: &BTreeMap<String, Snapshot>) -> BTreeSet<String> {
    let all = snapshots.values().filter_map(|it| it.together.as_ref());
    all.filter(|together| together.memory).map(|together| together.instant.clone()).collect()
}

/// Whether a snapshot that exists is still without those that it was taken together with.
pub(super) fn is_torn(world: &StorageWorld<'_>, snapshot: &Snapshot) -> bool {
    let Some(together) = snapshot.together.as_ref().filter(|_| is_tied(world, snapshot)) else {
        return false;
    };
    let own = |it: &&Snapshot| {
        it.together.as_ref().is_some_and(|other| other.instant == together.instant)
    };
    let missing = |it: &Snapshot| {
        let place = snapshot_place(world, it).and_then(|(_, served)| served.status.as_ref());
        !place.is_some_and(|status| status.snapshots.iter().any(|known| known.name == it.name))
    };
    world.snapshots.values().filter(own).any(|it| is_tied(world, it) && missing(it))
}
