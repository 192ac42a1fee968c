//! Events and commands of an engine, and the actions it requests.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::notice::{LockFault, Notice};
use crate::checksum::SumKey;
use crate::crypt::Cipher;
use crate::ids::{EngineId, ReplicaId, SnapshotId, VolumeId};
use crate::repl::control::{NodeName, Record, Version, Versioned};
use crate::wire::{Answer, Call};

/// Time since some moment that the driver chose; it never goes back.
pub type Time = Duration;

/// Identity and timeouts of an engine.
#[derive(Debug, Clone)]
pub struct Config {
    pub volume: VolumeId,
    pub engine: EngineId,
    pub node: NodeName,
    /// The volume begins with a LUKS2 header, and serves nothing before [`Command::Unlock`].
    pub encrypted: bool,
    /// The guest lived on while an earlier engine of it died: acknowledged writes that were not
    /// flushed must still be there.
    pub guest_survived: bool,
    /// How long activation waits for all in-sync replicas before it goes on with some.
    pub open_wait: Duration,
    /// How long a heartbeat allows reads. A new engine waits as long when it could not reach
    /// everybody that an old one may read from.
    pub lease: Duration,
    pub heartbeat: Duration,
    /// How old the newest proof of a member may be, on another node, that no other engine was
    /// promised anything, before the guest must be paused: it may run elsewhere.
    pub proof_limit: Duration,
    /// How long a member may be away, or leave a call unanswered, before it is given up, when
    /// nothing else is known about it.
    pub member_timeout: Duration,
    /// How long a member has to come back whose host closed the connection.
    pub reconnect_timeout: Duration,
    /// How long a member may leave a call unanswered that others have answered. It grows with the
    /// latency of the others.
    pub suspect_after: Duration,
    /// How long to wait between attempts to connect or to reach the control plane.
    pub retry: Duration,
    /// A region is taken out of the dirty-region log when nothing was written to it for so long.
    pub settle_after: Duration,
    /// More dirty regions than this are settled early.
    pub max_dirty: usize,
    /// The unit that a rebuild copies and that changes are remembered in.
    pub chunk: u64,
    /// How many chunks are copied or compared at a time.
    pub copies: usize,
    /// Bytes of guest writes under way at which the engine stops taking more.
    pub window: u64,
    /// Slowest and fastest rebuild, in bytes per second.
    pub rebuild_rate: (u64, u64),
    /// The guest's latency that a rebuild may cause before it slows down.
    pub rebuild_latency: Duration,
    /// A member is slow when its latency is above this and above eight times its peers'.
    pub slow_floor: Duration,
    /// How long a member may be slow before it leaves; none: it stays.
    pub slow_limit: Option<Duration>,
    /// Replicas outside of the in-sync set are rebuilt when they can be reached.
    pub rebuild: bool,
    /// Writers of the volume do not know it: blocks are compared by sums with a key made of it.
    pub sum_secret: SumKey,
}

impl Config {
    pub fn new(volume: VolumeId, engine: EngineId, node: impl Into<NodeName>) -> Self {
        Self {
            volume,
            engine,
            node: node.into(),
            encrypted: false,
            guest_survived: false,
            open_wait: Duration::from_secs(3),
            lease: Duration::from_secs(2),
            heartbeat: Duration::from_millis(500),
            proof_limit: Duration::from_secs(5),
            member_timeout: Duration::from_secs(8),
            reconnect_timeout: Duration::from_millis(250),
            suspect_after: Duration::from_secs(1),
            retry: Duration::from_millis(200),
            settle_after: Duration::from_secs(5),
            max_dirty: 512,
            chunk: 256 << 10,
            copies: 4,
            window: 32 << 20,
            rebuild_rate: (4 << 20, 2 << 30),
            rebuild_latency: Duration::from_millis(10),
            slow_floor: Duration::from_millis(500),
            slow_limit: Some(Duration::from_secs(10)),
            rebuild: true,
            sum_secret: SumKey::random(),
        }
    }
}

/// Names a request of the guest or of a person; chosen by the driver.
pub type GuestId = u64;

/// Names a connection to a replica; chosen by the engine.
pub type Connection = u64;

#[derive(Debug, Clone)]
pub enum Event {
    Command(Command),
    Guest {
        id: GuestId,
        request: GuestRequest,
    },
    Connected {
        replica: ReplicaId,
        connection: Connection,
    },
    Disconnected {
        replica: ReplicaId,
        connection: Connection,
    },
    Answer {
        replica: ReplicaId,
        connection: Connection,
        answer: Answer,
    },
    Control(ControlAnswer),
    /// The time of [`Engine::deadline`](super::Engine::deadline) has come.
    Timer,
}

#[derive(Debug, Clone)]
pub enum Command {
    /// Take the volume. `local` names the replica on this node, if there is one.
    Activate { replicas: Vec<ReplicaId>, local: Option<ReplicaId> },
    /// Be ready to take the volume: serve reads, take it on the first write.
    Standby { replicas: Vec<ReplicaId>, local: Option<ReplicaId> },
    /// A standby engine takes the volume now.
    Switch,
    /// A replica that is to be brought into the in-sync set.
    AddReplica(ReplicaId),
    /// A replica that is to leave for good.
    RemoveReplica(ReplicaId),
    /// Read and compare everything on all members, and repair.
    Scrub,
    /// The volume key of an encrypted volume, or why there is none: then the volume is not served.
    Unlock(Result<Cipher, LockFault>),
    /// Finish what is under way, flush, and release the volume.
    Close,
}

/// Answer of the control plane to [`Action::ReadRecord`] or [`Action::Swap`].
#[derive(Debug, Clone)]
pub enum ControlAnswer {
    Read(Versioned),
    Swapped(Version),
    Conflict(Versioned),
    /// No answer; a swap may or may not have happened.
    Unavailable,
}

#[derive(Debug, Clone, PartialEq)]
pub enum GuestRequest {
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: Bytes,
        fua: bool,
    },
    Flush,
    /// Which parts of a range hold data. The answer may end before the range does.
    Map {
        offset: u64,
        length: u64,
    },
    Discard {
        offset: u64,
        length: u64,
    },
    WriteZeroes {
        offset: u64,
        length: u64,
        fua: bool,
    },
    Snapshot {
        id: SnapshotId,
        name: String,
        created: String,
        labels: BTreeMap<String, String>,
    },
    DeleteSnapshot {
        id: SnapshotId,
    },
    Revert {
        to: SnapshotId,
    },
    Resize {
        size: u64,
    },
    /// The header of an encrypted volume, as it is stored.
    ReadHeader {
        offset: u64,
        length: u32,
    },
    WriteHeader {
        offset: u64,
        data: Bytes,
    },
}

impl GuestRequest {
    /// The range is one that a volume could have, whatever its size.
    pub(super) fn is_sane(&self) -> bool {
        let (offset, length) = match self {
            Self::Read { offset, length } | Self::ReadHeader { offset, length } => {
                (*offset, u64::from(*length))
            }
            Self::Write { offset, data, .. } | Self::WriteHeader { offset, data } => {
                (*offset, data.len() as u64)
            }
            Self::Discard { offset, length } | Self::WriteZeroes { offset, length, .. } => {
                (*offset, *length)
            }
            _ => return true,
        };
        offset.checked_add(length).is_some_and(|end| end <= 1 << 62)
    }
}

pub type GuestResult = Result<GuestReply, GuestError>;

#[derive(Debug, Clone, PartialEq)]
pub enum GuestReply {
    Done,
    Data(Bytes),
    Map(Vec<Extent>),
}

/// A run of bytes that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub length: u64,
    /// Nothing is stored for it, and it reads as zeroes.
    pub hole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GuestError {
    #[error("the range is not within the volume or not of whole sectors")]
    Invalid,
    #[error("no space is left on any replica")]
    NoSpace,
    #[error("no replica could do it")]
    Io,
    #[error("the volume is no longer served here")]
    Shutdown,
    #[error("the snapshot does not exist")]
    NoSnapshot,
    #[error("the volume is encrypted and not unlocked")]
    Locked,
    #[error("a rebuild or another change of the volume is under way")]
    Busy,
}

#[derive(Debug, Clone)]
pub enum Action {
    Connect { replica: ReplicaId, connection: Connection },
    Disconnect { replica: ReplicaId, connection: Connection },
    Send { replica: ReplicaId, connection: Connection, call: Call },
    Reply { id: GuestId, result: GuestResult },
    ReadRecord,
    Swap { expect: Version, record: Record },
    Notice(Notice),
}
