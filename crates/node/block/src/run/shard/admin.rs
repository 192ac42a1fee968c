//! Requests of administrators and controllers to a shard, from other threads.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Shard;
use super::client::Origin;
use super::engine::{Place, VolumeKey};
use super::member_state::{MemberFacts, MemberState, MemberStatus};
use crate::ids::{Epoch, Generation, ReplicaId, SnapshotId};
use crate::repl::control::ByteRange;
use crate::repl::engine::{
    Command, ControlAnswer, Event, GuestError, GuestReply, GuestRequest, GuestResult, ScrubResult,
};
use crate::run::host::{StoreResult, Wanted};
use crate::run::poll::Waker;
use crate::run::stream::Address;
use crate::wire::SnapshotInfo;

/// Something for a shard to do.
#[derive(Debug)]
pub(super) enum Message {
    Stop,
    Control { volume: VolumeKey, answer: ControlAnswer },
    Admin { volume: VolumeKey, request: AdminRequest, answer: mpsc::Sender<AdminResult> },
    Work(Work),
}

/// Something that is done in the thread of the shard.
pub(super) struct Work(Box<dyn FnOnce(&mut Shard) + Send>);

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Work")
    }
}

type AdminResult = Result<AdminReply, AdminError>;

/// Something asked about a volume, or of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum AdminRequest {
    Status,
    Snapshot {
        name: String,
        /// Seconds since 1970.
        created: u64,
        #[serde(default)]
        labels: BTreeMap<String, String>,
    },
    /// By name or by id.
    DeleteSnapshot {
        name: String,
    },
    Revert {
        name: String,
    },
    Resize {
        size: u64,
    },
    /// Compares everything on all replicas, and repairs.
    Scrub,
    /// An engine on standby takes the volume.
    Switch,
    /// Takes a replica out for good, and another in.
    Replace {
        old: ReplicaId,
        new: ReplicaId,
        at: Option<Address>,
    },
    /// Takes another replica in, which is rebuilt; one that is in already has another place.
    AddReplica {
        replica: ReplicaId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Address>,
        /// The node that has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<String>,
    },
    /// Takes a replica out for good.
    DropReplica {
        replica: ReplicaId,
    },
    /// Connects to a replica again, at its present place. One that is connected there stays so.
    Reconnect {
        replica: ReplicaId,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum AdminReply {
    Done,
    Status(Box<VolumeStatus>),
    Snapshot { id: SnapshotId },
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    #[error("the volume has just stopped being served; try again")]
    Gone,
    #[error("there is no snapshot {name:?}")]
    NoSnapshot { name: String },
    #[error("there is a snapshot {name:?} already")]
    SnapshotExists { name: String },
    #[error("{0}")]
    Refused(GuestError),
}

/// A volume, as people see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    pub phase: String,
    pub generation: Generation,
    pub epoch: Epoch,
    pub size: u64,
    pub replicas: Vec<MemberStatus>,
    /// Regions that must be compared before they can be read.
    pub unreconciled: u64,
    /// Members on other nodes do not answer, and the volume may have been taken over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unproven: bool,
    /// Blocks that are not served: replicas differ without evidence for one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disputed: Vec<ByteRange>,
    /// Blocks that no replica has as they were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<ByteRange>,
    /// Bytes that a scrub has compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrubbed_bytes: Option<u64>,
    /// Result of the last complete scrub since the volume was attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scrub: Option<ScrubResult>,
    /// The reason why a volume is not served yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    pub snapshots: Vec<SnapshotInfo>,
}

/// The sender of a request, and the reply it expects.
#[derive(Debug)]
pub(super) struct Answerer {
    answer: mpsc::Sender<AdminResult>,
    reply: AdminReply,
    size: Option<u64>,
}

/// Speaks to a shard from another thread.
#[derive(Clone, Debug)]
pub struct Handle {
    sender: mpsc::Sender<Message>,
    waker: Waker,
}

impl Handle {
    pub(super) fn new(sender: mpsc::Sender<Message>, waker: Waker) -> Self {
        Self { sender, waker }
    }

    pub(super) fn send(&self, message: Message) {
        // A shard that has ended needs nothing any more.
        let _ = self.sender.send(message);
        self.waker.wake();
    }

    /// Releases everything, cleanly, and ends the shard.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }

    /// Asks, and waits for the answer.
    pub fn ask(&self, volume: VolumeKey, request: AdminRequest) -> Result<AdminReply, AdminError> {
        let (answer, answered) = mpsc::channel();
        self.send(Message::Admin { volume, request, answer });
        answered.recv().unwrap_or(Err(AdminError::Gone))
    }

    /// Does something in the thread of the shard; nothing if that has ended. It must not wait
    /// for anything: no request is served meanwhile.
    pub fn with<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Shard) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, answered) = mpsc::channel();
        let work = move |shard: &mut Shard| drop(answer.send(work(shard)));
        self.send(Message::Work(Work(Box::new(work))));
        answered.recv().ok()
    }

    /// Finishes what is under way, releases a volume, and waits for that.
    pub fn release(&self, volume: VolumeKey) {
        let (left, leaving) = mpsc::channel();
        self.with(move |shard| shard.release(volume, left));
        // Nothing is ever sent: the other end is dropped when the volume has left.
        let _ = leaving.recv();
    }
}

impl Shard {
    pub(super) fn messages(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Stop => {
                    let limit = self.now() + super::ENDING;
                    self.stopping.get_or_insert(limit);
                    (0..self.volumes.len()).for_each(|at| self.close(at));
                }
                Message::Control { volume, answer } => {
                    if let Some(at) = self.place(volume) {
                        self.volumes[at].events.push_back(Event::Control(answer));
                    }
                }
                Message::Admin { volume, request, answer } => self.admin(volume, request, answer),
                Message::Work(Work(work)) => work(self),
            }
        }
    }

    fn admin(
        &mut self,
        volume: VolumeKey,
        request: AdminRequest,
        answer: mpsc::Sender<AdminResult>,
    ) {
        let Some(at) = self.place(volume) else {
            let _ = answer.send(Err(AdminError::Gone));
            return;
        };
        let now = self.now;
        let found = |name: &str| self.snapshot(at, name);
        let result = match request {
            AdminRequest::Status => {
                let _ = answer.send(Ok(AdminReply::Status(Box::new(self.volume_status(at)))));
                return;
            }
            AdminRequest::Snapshot { name, .. } if found(&name).is_ok() => {
                Err(AdminError::SnapshotExists { name })
            }
            AdminRequest::Snapshot { name, created, labels } => {
                let id = SnapshotId::random();
                let created = created.to_string();
                let request = GuestRequest::Snapshot { id, name, created, labels };
                Ok((request, AdminReply::Snapshot { id }))
            }
            AdminRequest::DeleteSnapshot { name } => {
                found(&name).map(|id| (GuestRequest::DeleteSnapshot { id }, AdminReply::Done))
            }
            AdminRequest::Revert { name } => {
                found(&name).map(|to| (GuestRequest::Revert { to }, AdminReply::Done))
            }
            AdminRequest::Resize { size } => Ok((GuestRequest::Resize { size }, AdminReply::Done)),
            AdminRequest::Scrub => return self.command(at, [Command::Scrub], &answer),
            AdminRequest::Switch => return self.command(at, [Command::Switch], &answer),
            AdminRequest::Replace { old, new, at: place } => {
                self.volumes[at].forget_replica(old);
                self.volumes[at].know_replica(new, place.map_or(Place::Here, Place::At), now);
                let commands = [Command::RemoveReplica(old), Command::AddReplica(new)];
                return self.command(at, commands, &answer);
            }
            AdminRequest::AddReplica { replica, at: place, node } => {
                self.volumes[at].know_replica(replica, Place::of(place, node), now);
                return self.command(at, [Command::AddReplica(replica)], &answer);
            }
            AdminRequest::DropReplica { replica } => {
                self.volumes[at].forget_replica(replica);
                return self.command(at, [Command::RemoveReplica(replica)], &answer);
            }
            AdminRequest::Reconnect { replica } => {
                self.reconnect(at, replica);
                return self.command(at, [], &answer);
            }
        };
        let (request, reply) = match result {
            Ok(found) => found,
            Err(error) => {
                let _ = answer.send(Err(error));
                return;
            }
        };
        let size = match request {
            GuestRequest::Resize { size } => Some(size),
            _ => None,
        };
        let origin = Origin::Admin(Answerer { answer, reply, size });
        self.volumes[at].ask(origin, request);
    }

    /// Asks the store of a replica itself. `answer` is dropped if it is not here or cannot be
    /// opened.
    pub(crate) fn ask_replica(
        &mut self,
        replica: ReplicaId,
        request: crate::store::Request,
        answer: mpsc::Sender<StoreResult>,
    ) {
        let Some(host) = self.hosts.get_mut(&replica) else { return };
        let mut wanted = Wanted::default();
        host.ask(request, answer, &mut wanted);
        self.wanted(replica, wanted);
    }

    fn command<const N: usize>(
        &mut self,
        at: usize,
        commands: [Command; N],
        answer: &mpsc::Sender<AdminResult>,
    ) {
        let events = commands.into_iter().map(Event::Command);
        self.volumes[at].events.extend(events);
        let _ = answer.send(Ok(AdminReply::Done));
    }

    pub(super) fn admin_answered(&mut self, at: usize, answerer: Answerer, result: GuestResult) {
        let Answerer { answer, reply, size } = answerer;
        if let (Some(size), Ok(_)) = (size, &result) {
            self.resized(at, size);
        }
        let result: Result<GuestReply, AdminError> = result.map_err(|error| match error {
            GuestError::Shutdown => AdminError::Gone,
            error => AdminError::Refused(error),
        });
        let _ = answer.send(result.map(|_| reply));
    }

    fn snapshot(&self, at: usize, name: &str) -> Result<SnapshotId, AdminError> {
        let snapshots = self.volumes[at].engine.status().snapshots;
        let found = snapshots.iter().find(|it| it.name == name || it.id.to_string() == name);
        found.map(|it| it.id).ok_or_else(|| AdminError::NoSnapshot { name: name.to_owned() })
    }

    fn volume_status(&self, at: usize) -> VolumeStatus {
        let volume = &self.volumes[at];
        let status = volume.engine.status();
        let member = |(id, _): &(ReplicaId, _)| {
            let rebuild = status.rebuilds.iter().find(|it| it.replica == *id);
            let stats = status.stats.iter().find(|(it, _)| it == id).map(|(_, it)| it);
            let latency = status.latency.iter().find(|(it, _)| it == id);
            let fault = status.rebuild_faults.iter().find(|(it, _)| it == id);
            let since = volume.absent_since.get(id).copied().unwrap_or_default();
            let facts = MemberFacts {
                in_sync: status.isr.contains(id),
                is_rebuilt: rebuild.is_some(),
                is_connected: volume.links.contains_key(id),
                has_failed: fault.is_some(),
                absent_for: self.now.saturating_sub(since),
            };
            MemberStatus {
                id: *id,
                state: MemberState::of(facts),
                rebuilt_bytes: rebuild.map(|it| it.done_bytes),
                rebuild_bytes: rebuild.map(|it| it.total_bytes),
                free_bytes: stats.map_or(0, |it| it.free_bytes),
                used_bytes: stats.map_or(0, |it| it.used_bytes),
                work: stats.and_then(|it| it.work),
                latency_micros: latency.map_or(0, |(_, it)| micros(*it)),
                address: self.connected_address(at, *id).cloned(),
                reason: fault.map(|(_, why)| why.to_string()),
            }
        };
        VolumeStatus {
            phase: status.phase.to_owned(),
            generation: status.generation,
            epoch: status.epoch,
            size: status.size,
            replicas: volume.replicas.iter().map(member).collect(),
            unreconciled: status.unreconciled,
            unproven: status.unproven,
            disputed: status.disputed,
            lost: status.lost,
            scrubbed_bytes: status.scrub.map(|(done, _)| done),
            last_scrub: status.last_scrub,
            waiting: status.waiting,
            snapshots: status.snapshots,
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
