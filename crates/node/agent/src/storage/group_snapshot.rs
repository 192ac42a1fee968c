//! Snapshots of several volumes at one instant of the machine that uses them. Pure.
//!
//! Only what a machine writes to can be torn, so volumes that are attached for another reason are
//! taken alone. The others wait until all that belong to the instant are asked for and served
//! here, each attached for that machine: no other guest is paused. If only some were taken when
//! the agent was last killed, those are of another instant: they are deleted,
//! and all are taken anew.

use std::collections::{BTreeMap, BTreeSet};

use block::ids::VolumeId;
use block::storage::StorageStatus;
use hci::together::SnapshotGroup;

use super::object::Snapshot;
use super::plan::{StorageWorld, served, snapshot_place};
use crate::machine::MemoryOwner;

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
    /// For whom the volume is attached.
    pub(super) tickets: BTreeSet<String>,
}

/// Whether a snapshot must not be taken alone.
pub(super) fn is_tied(world: &StorageWorld<'_>, snapshot: &Snapshot) -> bool {
    let mut tickets = world.tickets.get(&snapshot.volume).into_iter().flatten();
    snapshot.together.is_some()
        && !snapshot.was_taken()
        && tickets.any(|ticket| ticket.starts_with(MACHINE))
}

pub(super) fn plan(world: &StorageWorld<'_>) -> Vec<GroupSnapshot> {
    let mut instants: BTreeMap<String, Vec<&Snapshot>> = BTreeMap::new();
    let asked = |it: &&Snapshot| it.is_to_be_taken && !it.is_deleting;
    for snapshot in world.snapshots.values().filter(asked) {
        if let Some(together) = &snapshot.together {
            // Only what agrees in everything belongs together.
            instants.entry(together.to_text()).or_default().push(snapshot);
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
        let tickets = world.tickets.get(&snapshot.volume).cloned().unwrap_or_default();
        members.push(GroupMember { snapshot: name, volume: volume.id, labels, tickets });
    }
    let instant = GroupSnapshot { together, members };
    let done = instant.members.is_empty() || instant.left(world.state?).is_empty();
    (!done).then_some(instant)
}

impl GroupSnapshot {
    /// Whether all volumes are attached for this instance of a machine, or for its migration.
    pub(super) fn is_of(&self, uid: &str) -> bool {
        let own = format!("{MACHINE}{uid}");
        let of_migration = format!("{own}-");
        let is_own = |ticket: &String| *ticket == own || ticket.starts_with(&of_migration);
        self.members.iter().all(|member| member.tickets.iter().any(is_own))
    }

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

/// The instants whose memory may be restored, and whose it is if all groups agree.
pub(super) fn with_memory(
    snapshots: &BTreeMap<String, Snapshot>,
) -> BTreeMap<String, Option<MemoryOwner>> {
    let all = snapshots.values().filter_map(|it| it.together.as_ref());
    let mut instants = BTreeMap::new();
    for together in all.filter(|together| together.memory) {
        let owner = Some(MemoryOwner::of_group(together));
        let known = instants.entry(together.instant.clone()).or_insert_with(|| owner.clone());
        if *known != owner {
            *known = None;
        }
    }
    instants
}

/// Whether a snapshot that exists is still without those that it was taken together with.
pub(super) fn is_torn(world: &StorageWorld<'_>, snapshot: &Snapshot) -> bool {
    let Some(together) = snapshot.together.as_ref().filter(|_| is_tied(world, snapshot)) else {
        return false;
    };
    let own = |it: &&Snapshot| it.together.as_ref() == Some(together);
    let missing = |it: &Snapshot| {
        let place = snapshot_place(world, it).and_then(|(_, served)| served.status.as_ref());
        !place.is_some_and(|status| status.snapshots.iter().any(|known| known.name == it.name))
    };
    world.snapshots.values().filter(own).any(|it| is_tied(world, it) && missing(it))
}
