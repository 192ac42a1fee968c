//! State of a replica that is being rebuilt, and the choice of its next step: pure.

use crate::ids::SnapshotId;
use crate::repl::span::Pieces;
use crate::wire::SnapshotInfo;

#[derive(Debug)]
pub(super) struct Learner {
    pub(super) size: u64,
    pub(super) snapshots: Vec<SnapshotInfo>,
    pub(super) head_parent: Option<SnapshotId>,
    pub(super) step: RebuildStep,
    /// Receives every write of the guest.
    pub(super) live: bool,
    /// Chunks that must still be copied for the step.
    pub(super) todo: Pieces,
    pub(super) busy: usize,
    /// The head differs from that of the members only in chunks that are known.
    pub(super) delta: bool,
    /// Its checksums prove nothing: everything is copied.
    pub(super) full: bool,
    pub(super) done_bytes: u64,
    pub(super) total_bytes: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum RebuildStep {
    Deciding,
    Resize(u64),
    Delete(SnapshotId),
    Revert(Option<SnapshotId>),
    Copy(Option<SnapshotId>),
    Snapshot(SnapshotInfo),
}

/// Takes a snapshot out of a list; its children become children of its parent.
pub(super) fn forget(
    snapshots: &mut Vec<SnapshotInfo>,
    head_parent: &mut Option<SnapshotId>,
    id: SnapshotId,
) {
    let parent = snapshots.iter().find(|info| info.id == id).and_then(|info| info.parent);
    snapshots.retain(|info| info.id != id);
    for info in snapshots.iter_mut().filter(|info| info.parent == Some(id)) {
        info.parent = parent;
    }
    if *head_parent == Some(id) {
        *head_parent = parent;
    }
}

impl Learner {
    /// The next step, given the snapshots that the volume should have. `copied` names the snapshot
    /// whose content the head was just given.
    pub(super) fn next(
        &self,
        size: u64,
        snapshots: &[SnapshotInfo],
        head_parent: Option<SnapshotId>,
        copied: Option<SnapshotId>,
    ) -> RebuildStep {
        if self.size != size {
            return RebuildStep::Resize(size);
        }
        let strange = |it: &&SnapshotInfo| !snapshots.iter().any(|known| known.id == it.id);
        if let Some(info) = self.snapshots.iter().find(strange) {
            return RebuildStep::Delete(info.id);
        }
        // Snapshots after a missing one have the wrong parent.
        if let Some(last) = self.snapshots.last()
            && !snapshots.starts_with(&self.snapshots)
        {
            return RebuildStep::Delete(last.id);
        }
        match snapshots.get(self.snapshots.len()) {
            Some(info) if copied == Some(info.id) => RebuildStep::Snapshot(info.clone()),
            Some(info) if self.head_parent != info.parent => RebuildStep::Revert(info.parent),
            Some(info) => RebuildStep::Copy(Some(info.id)),
            None if self.head_parent != head_parent => RebuildStep::Revert(head_parent),
            None => RebuildStep::Copy(None),
        }
    }
}
