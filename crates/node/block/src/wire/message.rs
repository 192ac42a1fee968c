//! Calls and answers as the engine and the replica handle them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{Crcs, MetadataReport, Op};
use crate::checksum::SumKey;
use crate::ids::{
    BootId, EngineId, Epoch, FlushMarks, Generation, InstanceId, ReplicaId, Seq, SnapshotId,
    VolumeId,
};

/// A request of an engine to a replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Names the call; the answer repeats it. A call that is sent again keeps its name.
    pub id: u64,
    pub generation: Generation,
    /// Orders changes within the generation; zero for calls that change nothing.
    pub seq: Seq,
    pub request: Request,
}

/// The replica's answer to one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub id: u64,
    /// The newest generation that the replica has promised.
    pub generation: Generation,
    pub result: Result<Reply, Refusal>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    Hello(Hello),
    Open(Open),
    Write {
        offset: u64,
        data: Bytes,
        crcs: Crcs,
        fua: bool,
    },
    Read {
        view: Option<SnapshotId>,
        offset: u64,
        length: u32,
    },
    /// Makes durable what was answered before, and then its `number` and that every in-sync
    /// replica has carried out number `complete`. Zero is no number. `settle` lists regions whose
    /// writes are part of `complete`; unless written to since, they leave the dirty-region log.
    Flush {
        settle: Vec<u32>,
        number: u64,
        complete: u64,
    },
    Discard {
        offset: u64,
        length: u32,
    },
    WriteZeroes {
        offset: u64,
        length: u32,
        fua: bool,
    },
    /// A snapshot is going to be taken: work that needs no pause is done now.
    Prepare,
    /// Answered when it is cut; durable after [`Request::Seal`].
    Snapshot(SnapshotInfo),
    /// Snapshots that were taken become durable.
    Seal,
    /// Makes the head what the snapshot is; without one, empty.
    Revert {
        to: Option<SnapshotId>,
    },
    DeleteSnapshot {
        snapshot: SnapshotId,
    },
    Resize {
        size: u64,
    },
    /// The state of each block of a range. `verify` says how much to trust stored checksums.
    ReadMap {
        view: Option<SnapshotId>,
        offset: u64,
        length: u32,
        verify: Verify,
    },
    /// The dirty-region log.
    Dirty,
    /// A write that brings a replica up to what others have: not by a guest.
    Copy {
        offset: u64,
        data: Bytes,
        crcs: Crcs,
        fua: bool,
    },
    Ping,
    Close,
    SetEpoch(Epoch),
    /// Compares the blocks that the layers of snapshots have of a range with their checksums.
    /// Since version 3.
    Scrub {
        offset: u64,
        length: u32,
    },
    /// Rewrites blocks of a snapshot's layer that are damaged. Since version 3.
    Repair {
        snapshot: SnapshotId,
        offset: u64,
        data: Bytes,
        crcs: Crcs,
    },
    /// The regions that were dirty when the session was opened have been compared with the other
    /// replicas.
    Reconciled,
    /// Verifies and repairs metadata on disk: that of a range, and with its beginning that of the
    /// whole replica. A replica that cannot repair it stops, unless it is `alone` in sync. Since
    /// version 4.
    ScrubMetadata {
        offset: u64,
        length: u32,
        alone: bool,
    },
}

/// How a map of blocks is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Blocks in regions that were dirty at an unclean stop are read and summed.
    Suspect,
    /// Every block of the range is read and summed.
    Deep,
    /// As `Suspect`, and what is found in those regions is the truth from now on. A block that
    /// is bad elsewhere was not torn by the stop, and stays bad.
    Adopt,
    /// As `Deep`, and blocks are summed with this key, so that equal sums mean equal blocks.
    Compare(SumKey),
}

impl Verify {
    /// The key that blocks are summed with.
    pub(crate) fn key(self) -> Option<SumKey> {
        match self {
            Self::Compare(key) => Some(key),
            Self::Suspect | Self::Deep | Self::Adopt => None,
        }
    }
}

impl Request {
    pub fn op(&self) -> Op {
        match self {
            Self::Hello(_) => Op::Hello,
            Self::Open(_) => Op::Open,
            Self::Write { .. } => Op::Write,
            Self::Read { .. } => Op::Read,
            Self::Flush { .. } => Op::Flush,
            Self::Discard { .. } => Op::Discard,
            Self::WriteZeroes { .. } => Op::WriteZeroes,
            Self::Prepare => Op::Prepare,
            Self::Snapshot(_) => Op::Snapshot,
            Self::Seal => Op::Seal,
            Self::Revert { .. } => Op::Revert,
            Self::DeleteSnapshot { .. } => Op::DeleteSnapshot,
            Self::Resize { .. } => Op::Resize,
            Self::ReadMap { .. } => Op::ReadMap,
            Self::Dirty => Op::Dirty,
            Self::Copy { .. } => Op::Copy,
            Self::Ping => Op::Ping,
            Self::Close => Op::Close,
            Self::SetEpoch(_) => Op::SetEpoch,
            Self::Reconciled => Op::Reconciled,
            Self::Scrub { .. } => Op::Scrub,
            Self::Repair { .. } => Op::Repair,
            Self::ScrubMetadata { .. } => Op::ScrubMetadata,
        }
    }

    /// The bytes of a volume that the request concerns.
    pub fn range(&self) -> Option<(u64, u64)> {
        match self {
            Self::Write { offset, data, .. }
            | Self::Copy { offset, data, .. }
            | Self::Repair { offset, data, .. } => Some((*offset, data.len() as u64)),
            Self::Read { offset, length, .. }
            | Self::Discard { offset, length }
            | Self::WriteZeroes { offset, length, .. }
            | Self::Scrub { offset, length }
            | Self::ScrubMetadata { offset, length, .. }
            | Self::ReadMap { offset, length, .. } => Some((*offset, u64::from(*length))),
            _ => None,
        }
    }

    /// Whether the call changes what a guest reads from the head, block by block.
    pub fn changes_blocks(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::Copy { .. }
                | Self::Discard { .. }
                | Self::WriteZeroes { .. }
        )
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Hello(HelloReply),
    Opened(Box<Opened>),
    Done,
    Data { data: Bytes, crcs: Crcs },
    Map(Vec<BlockState>),
    Dirty(Vec<u32>),
    Damage(Vec<DamagedBlock>),
    Pong(Pong),
    Metadata(MetadataReport),
}

/// A block of a snapshot's layer that is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DamagedBlock {
    pub snapshot: SnapshotId,
    pub offset: u64,
}

/// Begins a connection: the engine, and the replica it wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub oldest: u16,
    pub newest: u16,
    pub volume: VolumeId,
    pub replica: ReplicaId,
    pub engine: EngineId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelloReply {
    /// The version that both speak.
    pub version: u16,
    pub instance: InstanceId,
    pub boot: BootId,
    pub promised: Generation,
}

/// Asks for a session in the call's generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Open {
    pub engine: EngineId,
    pub mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// The replica promises the generation, lets what is under way end, and then serves this
    /// engine only.
    Write,
    /// The same engine after a broken connection: requests in progress continue, and calls that
    /// are sent again are joined to them.
    Resume,
    /// Reads beside the engine that writes; nothing is promised.
    ReadOnly,
}

/// Result of comparing the replica's directory with its host's witness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Witnessed {
    /// Nothing: its kernel, or the process before it, did not count.
    #[default]
    Unknown,
    /// It holds every change that was answered.
    Intact,
    /// It is older than changes that were answered.
    RolledBack,
}

/// The replica at the time of its promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    pub instance: InstanceId,
    pub boot: BootId,
    pub epoch: Epoch,
    /// The flushes that the replica durably knows of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marks: Option<FlushMarks>,
    #[serde(default)]
    pub witnessed: Witnessed,
    pub size: u64,
    /// Bytes of a region of the dirty-region log.
    pub region: u64,
    /// The replica was not closed cleanly by a kernel that is gone: writes that were answered
    /// but not flushed may be missing, in the dirty regions.
    pub lost_writes: bool,
    pub dirty: Vec<u32>,
    /// Oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    pub head_parent: Option<SnapshotId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SnapshotId>,
    /// When it was taken, as the caller writes time.
    #[serde(default)]
    pub created: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A replica's report in a heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pong {
    pub free_bytes: u64,
    pub used_bytes: u64,
    /// Snapshots that are being merged away.
    pub merging: u32,
    pub dirty_regions: u32,
    /// Background work that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkProgress>,
}

/// How far a replica is with background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkProgress {
    pub kind: Work,
    pub done_regions: u32,
    pub total_regions: u32,
    pub copied_bytes: u64,
    /// It waits, for room or for a disk that works.
    pub stalled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// A removed snapshot goes into its neighbour.
    Merge,
    /// A clone gets its own copy of its base.
    Hydrate,
}

/// One block of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    Zero,
    /// Its checksum, or its sum with the key of the comparison.
    Data(u128),
    /// Its checksum does not fit what is stored.
    Bad,
}

/// Why a replica does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("a newer generation was promised")]
    Fenced,
    #[error("no session is open")]
    NotOpen,
    #[error("the session is read-only")]
    ReadOnly,
    #[error("no common version of the protocol")]
    Version,
    #[error("not this volume or replica")]
    WrongReplica,
    #[error("a block's checksum does not fit its data")]
    BadChecksum,
    #[error("no space is left on the replica's disk")]
    NoSpace,
    #[error("the replica's disk failed")]
    Io,
    #[error("the request is not valid")]
    Invalid,
    #[error("no such snapshot")]
    NoSnapshot,
    #[error("the replica is busy with other work")]
    Busy,
    /// The peer's node has no grant for the replica.
    #[error("the replica is not granted to this node")]
    NotGranted,
}
