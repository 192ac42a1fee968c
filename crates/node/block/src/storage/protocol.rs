//! Requests to a storage process and its answers: one JSON value per line, in both directions, any
//! number of them on a connection, answered in order.
//!
//! ```text
//!  ► {"do":"create","volume":"6f…","size":1073741824}
//!  ◄ {"is":"done"}
//!  ► {"do":"attach","volume":"6f…","node":"n1","replicas":[{"id":"…"}],"nbd":"/run/v.sock","record":"file"}
//!  ◄ {"is":"done"}
//!  ► {"do":"volume","volume":"6f…","request":{"do":"snapshot","name":"a","created":1763200000}}
//!  ◄ {"is":"volume","reply":{"is":"snapshot","id":"…"}}
//!  ► {"do":"detach","volume":"00…"}
//!  ◄ {"is":"error","message":"volume 00… is not attached"}
//! ```
//!
//! All requests are idempotent: a state that is already reached is left unchanged and answered
//! with `done`.
//!
//! A connection that says `{"do":"records","grants":true}` is answered with `done` and asked from then on:
//!
//! ```text
//!  ◄ {"ask":1,"volume":"6f…","question":"read"}
//!  ► {"ask":1,"answer":{"read":{"version":7,"record":{…}}}}
//!  ◄ {"ask":2,"volume":"6f…","question":{"swap":{"expect":7,"record":{…}}}}
//!  ► {"ask":2,"answer":{"swapped":8}}         or {"conflict":{…}}, or "unavailable"
//!  ◄ {"ask":3,"volume":"6f…","question":"passphrase"}
//!  ► {"ask":3,"answer":{"passphrase":"…"}}
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use zeroize::Zeroizing;

use crate::crypt::Passphrase;
use crate::grant::ReplicaGrant;
use crate::ids::{ReplicaId, SnapshotId, VolumeId};
use crate::repl::control::{NodeName, Record, Version, Versioned};
use crate::run::{Address, AdminReply, AdminRequest, VolumeStatus};
use crate::store::ReplicaFault;

/// The longest request that a client needs.
pub(super) const MAX_LINE: u64 = 1 << 20;
/// The longest answer that a client gets.
pub const MAX_ANSWER: u64 = MAX_LINE * 16;

/// Requests to a storage process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Status,
    /// Makes an empty replica, and serves it to engines.
    CreateReplica(NewReplica),
    /// Serves a replica no more and removes its files.
    RemoveReplica {
        replica: ReplicaId,
    },
    /// Makes a volume that only this node knows: one replica, and a record in a file.
    Create {
        volume: VolumeId,
        size: u64,
    },
    /// Removes a volume that only this node knows.
    Delete {
        volume: VolumeId,
    },
    /// Serves a volume to clients, now and after each restart.
    Attach(Attachment),
    /// Releases a volume.
    Detach {
        volume: VolumeId,
    },
    /// The user and group that may connect to the volume's socket besides the process's own user,
    /// now, after each restart and when it is attached again. Without both: none.
    Grant {
        volume: VolumeId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<u32>,
    },
    /// Which nodes may open these replicas, now and after each restart; other replicas keep their
    /// grants. From then on one without a grant is closed to other nodes.
    GrantReplicas {
        grants: BTreeMap<ReplicaId, ReplicaGrant>,
    },
    /// Engines of other nodes reach the replicas at these addresses, too, and at no others. Until
    /// the process ends.
    ListenAlso {
        addresses: Vec<SocketAddr>,
    },
    /// Disconnects NBD clients. Those that connect again, as QEMU does, learn of a new size.
    HangUp {
        volume: VolumeId,
    },
    /// The status now, and again after each change, for as long as the connection lasts.
    Watch,
    /// Something for a volume that is attached.
    Volume {
        volume: VolumeId,
        request: AdminRequest,
    },
    /// The connection answers questions about records from now on.
    Records {
        /// It also says which nodes may open replicas. Without it nodes are not checked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        grants: bool,
    },
    /// Releases all volumes and ends; the next process serves them again.
    Stop,
}

/// A replica to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewReplica {
    pub volume: VolumeId,
    pub replica: ReplicaId,
    /// Bytes; a multiple of 4096.
    pub size: u64,
    /// Its directory, on whichever disk; one in the process's own if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Serves what is there and makes nothing: an empty replica would be one that lost its data.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// The source of reads where the replica was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseOf>,
}

/// The base of a new replica, which is not copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BaseOf {
    /// A snapshot of another replica of this process, by name or by id. It is kept for as long
    /// as the new one needs it.
    Snapshot { replica: ReplicaId, snapshot: String },
    /// A raw image that is never changed.
    Image { path: PathBuf },
}

/// How a volume is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    pub volume: VolumeId,
    /// This node, as the volume's record spells it.
    pub node: NodeName,
    pub replicas: Vec<ReplicaAt>,
    /// The unix socket that NBD clients connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<PathBuf>,
    /// The address that NBD clients connect to; the protocol has neither encryption nor passwords.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd_tcp: Option<SocketAddr>,
    /// The unix socket that QEMU connects to with `vhost-user-blk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost: Option<PathBuf>,
    pub record: RecordPlace,
    /// The replicas hold ciphertext. The client that sent [`Request::Records`] is asked for the
    /// passphrase at each start: it is nowhere on disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// Another node serves the volume: it is read here, and claimed with [`AdminRequest::Switch`]
    /// or by the first write. Cleared by the switch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standby: bool,
}

/// Where a replica is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaAt {
    pub id: ReplicaId,
    /// The storage process that serves it; this one if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Address>,
    /// The node that has it: the certificate at the address must name it. Any node of the cluster
    /// if nothing is said, as by older supervisors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Where the record of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordPlace {
    /// In a file of this process: no other node knows the volume.
    File,
    /// Read from the client that sent [`Request::Records`].
    Asked,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Reply {
    Done,
    Status(StorageStatus),
    Volume { reply: AdminReply },
    Error { message: String },
}

/// Everything that a storage process has.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageStatus {
    pub pid: u32,
    /// Where engines of other nodes reach the replicas here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<Address>,
    pub volumes: Vec<VolumeState>,
    pub replicas: Vec<ReplicaState>,
    /// It knows [`Request::GrantReplicas`]. Older programs do not.
    #[serde(default)]
    pub knows_grants: bool,
    /// It verifies [`ReplicaAt::node`]. Older programs do not, and do not report it back.
    #[serde(default)]
    pub knows_replica_nodes: bool,
    /// Addresses besides `listen`. Older programs do not know [`Request::ListenAlso`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens_also: Option<Vec<SocketAddr>>,
    /// Engines of other nodes that wait for a grant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_engines: Vec<WaitingEngine>,
    /// How often an engine of another node was refused since the start.
    #[serde(default)]
    pub refused_engines: u64,
}

/// An engine of a node that a replica has no grant for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingEngine {
    pub replica: ReplicaId,
    pub node: NodeName,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeState {
    pub attachment: Attachment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<VolumeStatus>,
    /// Why it is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaState {
    pub replica: ReplicaId,
    pub volume: VolumeId,
    pub dir: PathBuf,
    /// Bytes of data in it. Unknown while no engine uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Of these, bytes written since the last snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_bytes: Option<u64>,
    /// Bytes that each snapshot alone holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub snapshot_bytes: BTreeMap<SnapshotId, u64>,
    /// How far a merge or another work of the replica's own is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkProgress>,
    /// Why it is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The fault of its files, if that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<ReplicaFault>,
    /// The nodes that may open it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<ReplicaGrant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkProgress {
    pub done: u32,
    pub total: u32,
}

/// A question to the client that keeps the records.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    pub ask: u64,
    pub volume: VolumeId,
    pub question: RecordQuestion,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordQuestion {
    Read,
    Swap {
        expect: Version,
        record: Box<Record>,
    },
    /// The passphrase of an encrypted volume.
    Passphrase,
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answered {
    pub ask: u64,
    pub answer: RecordAnswer,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordAnswer {
    Read(Versioned),
    Swapped(Version),
    /// Nothing was changed; this is what is there.
    Conflict(Versioned),
    Passphrase(Secret),
    /// A change may or may not have happened.
    Unavailable,
}

/// A text that is not shown and is forgotten when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

impl Secret {
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    pub fn passphrase(&self) -> Passphrase {
        Passphrase::new(self.0.as_bytes())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
