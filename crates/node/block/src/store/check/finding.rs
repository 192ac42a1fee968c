//! The findings of a check, and their severity.

use std::fmt;

use crate::ids::{ReplicaId, SnapshotId};
use crate::store::files::FileId;
use crate::store::geometry::Region;
use crate::store::layer::{Base, WorkKind};
use crate::store::log::LogError;
use crate::store::recent::stamp::RecentDamage;
use crate::store::super_block::SlotError;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be, and worth knowing.
    Note,
    /// Not as it should be, but nothing is lost.
    Warning,
    /// Something is lost, or cannot be used.
    Error,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub problem: Problem,
}

/// Kind of a finding.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    #[error("super block {slot}: {error}")]
    SuperSlot { slot: u8, error: SlotError, other_is_good: bool },
    #[error("not a replica directory: it has no file \"super\"")]
    NotReplica,
    #[error("{what}")]
    Nonsense { what: String },
    #[error("not stopped cleanly: the log will be replayed when it is opened")]
    Unclean,
    #[error(
        "the log has {pages} pages to replay and {torn} of a batch that was not completed; \
         {regions} regions were being written and will be read again"
    )]
    Replay { pages: u64, torn: u64, regions: u64 },
    #[error("log: {error}")]
    Log { error: LogError },
    #[error("background work is on its way: {}", describe(*kind))]
    Work { kind: WorkKind },
    #[error("snapshot {snapshot} is the base of replica {by} at {path}")]
    Pinned { snapshot: SnapshotId, by: ReplicaId, path: String },
    #[error("needs its base: {}", describe_base(base))]
    Based { base: Base },
    #[error("{file} is an older copy: other files of the replica are newer")]
    Stale { file: FileId },
    #[error("{file} is missing")]
    Missing { file: FileId },
    #[error("recent: {damage}; writes that were not flushed before the kill may be lost")]
    Recent { damage: RecentDamage },
    #[error(
        "answered is missing or damaged: whether the directory is an older copy of itself is shown \
         by its flushes only; the next start counts anew"
    )]
    Answered,
    #[error("{file} is missing, short or damaged; the next open makes it anew")]
    Hint { file: FileId },
    #[error("{file} belongs to no layer; it will be removed when the replica is opened")]
    Orphan { file: FileId },
    #[error("{name:?} is not a file of a replica; it is left alone")]
    Foreign { name: String },
    #[error("cannot read {file}: error {errno}")]
    Unreadable { file: FileId, errno: i32 },
    #[error("{file}: the page of region {} was torn; the log has what is needed", region.0)]
    TornPage { file: FileId, region: Region },
    #[error("{file}: the page of region {} is damaged, so it is not known which blocks it has", region.0)]
    DamagedPage { file: FileId, region: Region },
    #[error("{file}: a copy of the page of region {} is damaged", region.0)]
    DamagedCopy { file: FileId, region: Region, unclean: bool },
    #[error("{file}: a copy of page {page} is damaged")]
    IndexSlot { file: FileId, page: u32, unclean: bool },
    #[error("{file} is damaged; it will be made anew from the map when the replica is opened")]
    IndexRebuilt { file: FileId },
    #[error("{file} and the map that goes with it are not what the log says they are")]
    Index { file: FileId },
    #[error("{file}: {blocks} blocks of region {} are lost, because their map was damaged", region.0)]
    LostBlocks { file: FileId, region: Region, blocks: u32 },
    #[error("{file}: the block at {offset} is not what its checksum says")]
    BadBlock { file: FileId, offset: u64, expected: u32, found: u32 },
    #[error("{file}: {found} blocks were counted, {recorded} are recorded")]
    Count { file: FileId, found: u64, recorded: u64 },
}

impl Finding {
    pub fn severity(&self) -> Severity {
        match &self.problem {
            Problem::Unclean
            | Problem::Replay { .. }
            | Problem::Work { .. }
            | Problem::Pinned { .. }
            | Problem::Based { .. }
            | Problem::Orphan { .. }
            // A crash or a power cut leaves these in any state.
            | Problem::Hint { .. }
            | Problem::Foreign { .. }
            | Problem::TornPage { .. }
            // A power cut tears a copy that was being written.
            | Problem::DamagedCopy { unclean: true, .. }
            | Problem::IndexSlot { unclean: true, .. }
            // A new replica has written one slot only.
            | Problem::SuperSlot { error: SlotError::Empty, other_is_good: true, .. } => {
                Severity::Note
            }
            Problem::SuperSlot { other_is_good: true, .. }
            | Problem::DamagedCopy { unclean: false, .. }
            | Problem::IndexSlot { unclean: false, .. }
            | Problem::Answered
            | Problem::IndexRebuilt { .. } => Severity::Warning,
            // Pages of the map are lost, or they are not those that were counted.
            Problem::Count { .. }
            | Problem::NotReplica
            | Problem::SuperSlot { other_is_good: false, .. }
            | Problem::Nonsense { .. }
            | Problem::Log { .. }
            | Problem::Missing { .. }
            | Problem::Recent { .. }
            | Problem::Stale { .. }
            | Problem::Unreadable { .. }
            | Problem::DamagedPage { .. }
            | Problem::LostBlocks { .. }
            | Problem::Index { .. }
            | Problem::BadBlock { .. } => Severity::Error,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity() {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}", self.problem)
    }
}

fn describe(kind: WorkKind) -> &'static str {
    match kind {
        WorkKind::MergeUp { .. } | WorkKind::MergeDown { .. } => "a deleted snapshot is merged",
        WorkKind::Hydrate { .. } => "the base is copied",
    }
}

fn describe_base(base: &Base) -> String {
    match base {
        Base::Replica { path, snapshot, .. } => format!("snapshot {snapshot} at {path}"),
        Base::Image { path, bytes, .. } => format!("image {path} of {bytes} bytes"),
    }
}
