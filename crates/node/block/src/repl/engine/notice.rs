//! Notices and status of an engine: events of the engine and its members, and its current state.

use std::time::Duration;

use super::damage::ScrubResult;
use crate::ids::{Epoch, Generation, ReplicaId, SnapshotId};
use crate::repl::control::ByteRange;
pub use crate::repl::evidence::Stale;
use crate::wire::{MetadataDamage, Pong, Refusal, SnapshotInfo};

/// Something that a person or a controller may want to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    Active {
        generation: Generation,
        isr: Vec<ReplicaId>,
        reconcile_regions: u64,
    },
    /// Reads are served beside the engine that has the volume.
    StandingBy,
    /// No in-sync replica can be reached.
    Waiting,
    /// The record is an older copy of itself: a replica belonged to a later in-sync set. Nothing is
    /// served before these replicas have answered too, or one replica was salvaged.
    RecordRestored {
        missing: Vec<ReplicaId>,
    },
    /// Members on other nodes have given no proof for too long that the volume was not taken over,
    /// and the record cannot be changed; or all have given it again.
    Proof {
        is_fresh: bool,
    },
    Fenced {
        by: Generation,
    },
    Faulted {
        why: Fault,
    },
    MemberFailed {
        replica: ReplicaId,
        why: MemberFault,
    },
    IsrChanged {
        epoch: Epoch,
        isr: Vec<ReplicaId>,
    },
    RebuildStarted {
        replica: ReplicaId,
        how: RebuildKind,
    },
    RebuildFailed {
        replica: ReplicaId,
        why: MemberFault,
    },
    RebuildDone {
        replica: ReplicaId,
    },
    Reconciled,
    /// The replica was in sync and is older than what was acknowledged; it is rebuilt.
    StaleReplica {
        replica: ReplicaId,
        why: Stale,
    },
    Slow {
        replica: ReplicaId,
        latency: Duration,
    },
    Repaired {
        replica: ReplicaId,
        offset: u64,
        length: u64,
    },
    /// Blocks whose checksums fit differed between members.
    Diverged {
        replica: ReplicaId,
        offset: u64,
        length: u64,
    },
    /// No member has the block as it was written.
    Unreadable {
        offset: u64,
        length: u64,
    },
    /// Members have different content with good checksums, and nothing shows which is right. Reads
    /// fail until it is written again.
    Ambiguous {
        offset: u64,
        length: u64,
    },
    /// A snapshot is damaged on the replica, and no other replica that could be reached has it whole,
    /// or it could not be written.
    SnapshotDamaged {
        replica: ReplicaId,
        snapshot: SnapshotId,
        offset: u64,
        length: u64,
    },
    /// Metadata of the replica was damaged on disk, or torn by a power cut, and is whole again;
    /// blocks of lost pages are repaired from the others.
    MetadataRepaired {
        replica: ReplicaId,
        repaired: u32,
        lost_pages: u32,
    },
    /// A file of the only replica in sync has damage that is repaired only when another is.
    MetadataDamaged {
        replica: ReplicaId,
        damage: MetadataDamage,
    },
    ScrubDone {
        bad_blocks: u64,
    },
    Closed,
}

/// How a replica is brought up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebuildKind {
    /// Only what changed since it left.
    Delta,
    /// Comparing checksums of everything.
    Compare,
    /// Everything, whatever the checksums say: its content is not what it once was.
    Full,
}

/// Why a replica is not, or no longer, in sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemberFault {
    #[error("it could not be reached in time")]
    Away,
    #[error("it left a call unanswered")]
    TimedOut,
    #[error("its process was restarted")]
    Restarted,
    #[error("it refused a change: {0}")]
    Refused(Refusal),
    #[error("it was much slower than its peers")]
    Slow,
    #[error("it was to be removed")]
    Removed,
    #[error("its snapshots or size differ from the others'")]
    Different,
    #[error("it is older than the other replicas: {0}")]
    Stale(Stale),
}

/// Why the engine cannot serve the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the control plane does not allow this node to take the volume")]
    NotAllowed,
    #[error("every in-sync replica lost writes that the guest believes in")]
    LostWrites,
    #[error("the volume has no in-sync replica")]
    NoReplica,
    #[error(
        "every in-sync replica is older than writes that were acknowledged: {0}; \
         `sheaf volume salvage` shows what would be lost and accepts it"
    )]
    Stale(Stale),
    #[error("the volume cannot be unlocked: {0}")]
    Locked(LockFault),
}

/// Why an encrypted volume stays locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LockFault {
    #[error("the passphrase is wrong")]
    WrongPassphrase,
    #[error("it has no LUKS2 header")]
    NotEncrypted,
    #[error("it holds data that is not encrypted")]
    HoldsData,
    #[error("both copies of its header are damaged")]
    Damaged,
    #[error("its LUKS header uses an unsupported feature")]
    Unsupported,
    #[error("its header cannot be read or written")]
    Unreadable,
}

/// How far a long task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub replica: ReplicaId,
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// The engine as a controller sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    pub phase: &'static str,
    pub generation: Generation,
    pub epoch: Epoch,
    /// The size that the guest sees.
    pub size: u64,
    pub isr: Vec<ReplicaId>,
    pub rebuilds: Vec<Progress>,
    /// Bytes per second that rebuilds may use now.
    pub rebuild_rate: u64,
    /// Replicas that could not be rebuilt the last time, and why.
    pub rebuild_faults: Vec<(ReplicaId, MemberFault)>,
    /// The reason why the engine does not serve yet.
    pub waiting: Option<String>,
    /// Regions that must be compared before they can be read.
    pub unreconciled: u64,
    pub snapshots: Vec<SnapshotInfo>,
    pub latency: Vec<(ReplicaId, Duration)>,
    /// The last report of each replica on its disk and its background work.
    pub stats: Vec<(ReplicaId, Pong)>,
    /// Blocks that are not served: replicas differ without evidence for one of them.
    pub disputed: Vec<ByteRange>,
    /// Blocks that no replica has as they were written.
    pub lost: Vec<ByteRange>,
    /// Whether another engine may have taken the volume, as far as this one knows.
    pub unproven: bool,
    /// Bytes that a scrub has checked, and all that there are.
    pub scrub: Option<(u64, u64)>,
    /// Result of the last complete scrub of this engine.
    pub last_scrub: Option<ScrubResult>,
}
