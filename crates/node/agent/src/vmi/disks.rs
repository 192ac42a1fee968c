//! State of a machine's disks, as its actor knows them. Nothing of it outlives the agent: the next one finds
//! it again from the object, the claims and QEMU.

use std::collections::{BTreeMap, BTreeSet};

use super::awaited::Object;
use super::memory_dump::MemoryDump;
use super::resolve::Resolved;
use super::volume_migration::MovingVolume;

#[derive(Default)]
pub(super) struct DiskState {
    /// Volumes that were found, for the status.
    pub(super) found: BTreeMap<String, Resolved>,
    /// Volumes that are awaited, and why they are not there.
    pub(super) pending: BTreeMap<String, String>,
    /// The object's generation when its volumes were last checked.
    pub(super) checked_generation: i64,
    /// Memory dumps that this process has started, by volume.
    pub(super) dumps: BTreeMap<String, MemoryDump>,
    /// Volumes that move to other claims.
    pub(super) moving: BTreeMap<String, MovingVolume>,
    /// Objects that the moves wait for.
    pub(super) awaited_by_moves: BTreeSet<Object>,
}
