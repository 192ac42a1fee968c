//! The machines of the cluster: their processes and the content of their disks.

use std::collections::BTreeMap;

use super::Time;
use super::disks::Disk;
use super::world::{CHUNK, Start, What, World};
use crate::ids::{BootId, EngineId, FlushMark, Generation, InstanceId, ReplicaId, SnapshotId};
use crate::repl::disk::{DiskReply, DiskRequest, DiskResult};
use crate::repl::engine::{Command, Config, Engine, Event, GuestId};
use crate::repl::session::{Identity, Session};
use crate::wire::Witnessed;

/// A replica and the machine it is on.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) replica: ReplicaId,
    pub(crate) disk: Disk,
    pub(crate) session: Option<Session>,
    pub(crate) instance: InstanceId,
    pub(crate) boot: BootId,
    /// Counts the restarts of the process: messages for an earlier one are dropped.
    pub(crate) life: u64,
    /// Requests that the disk is working on.
    pub(crate) working: BTreeMap<u64, DiskRequest>,
    /// The disk answers nothing before this.
    pub(crate) hangs_until: Time,
    /// When it last lost power.
    pub(crate) power_cut: Option<Time>,
    /// Changes that were answered, as the disk counts them and as the machine does.
    pub(crate) answered: u64,
    pub(crate) witness: (BootId, u64),
    pub(crate) witnessed: Witnessed,
    /// An older copy of the disk.
    pub(crate) copy: Option<Copied>,
    /// Its disk is gone for good.
    pub(crate) destroyed: bool,
}

/// A copy of a replica's directory.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) disk: Disk,
    /// The newest flush in it.
    pub(crate) flushed: FlushMark,
    pub(crate) answered: u64,
}

impl Host {
    /// Compares the two counts, as a process does when it starts.
    fn compare_witness(&mut self, counts: bool) {
        let (boot, witness) = self.witness;
        self.witnessed = match (counts && boot == self.boot, self.answered < witness) {
            (false, _) => Witnessed::Unknown,
            (true, true) => Witnessed::RolledBack,
            (true, false) => Witnessed::Intact,
        };
        if self.witnessed != Witnessed::RolledBack {
            self.witness = (self.boot, self.answered);
        }
    }

    /// Carries out a request, and counts it if it changes something.
    pub(crate) fn execute(&mut self, request: &DiskRequest) -> DiskResult {
        let mut result = self.disk.execute(request);
        let rolled_back = self.witnessed == Witnessed::RolledBack;
        match (request, &mut result) {
            (_, Ok(DiskReply::Description(description))) => description.witnessed = self.witnessed,
            (DiskRequest::Reconciled, _) if rolled_back => {
                self.answered = self.witness.1;
                self.witnessed = Witnessed::Intact;
            }
            (DiskRequest::SetEpoch { .. }, _) if self.witnessed == Witnessed::Unknown => {
                self.witnessed = Witnessed::Intact;
            }
            (
                DiskRequest::Write { .. }
                | DiskRequest::WriteZeroes { .. }
                | DiskRequest::Discard { .. }
                | DiskRequest::Snapshot(_)
                | DiskRequest::Revert { .. }
                | DiskRequest::DeleteSnapshot { .. },
                Ok(_),
            ) if !rolled_back => {
                self.answered += 1;
                self.witness = (self.boot, self.answered);
            }
            _ => {}
        }
        result
    }
}

/// An engine with its guest.
#[derive(Debug)]
pub(crate) struct EngineHost {
    pub(crate) engine: Option<Engine>,
    /// The machine it runs on; may be one without a replica.
    pub(crate) host: usize,
    pub(crate) deadline: Time,
    /// Requests whose answers the guest waits for.
    pub(crate) waiting: BTreeMap<GuestId, Asked>,
    /// The guest makes new requests.
    pub(crate) busy: bool,
    pub(crate) active: bool,
    /// Reads before the volume was taken are not judged: another engine has it and writes, and
    /// the guest that comes with it reads again once it has arrived.
    pub(crate) standby: bool,
    /// When it was started for a guest that believes in nothing.
    pub(crate) fresh: Option<Time>,
}

/// A request of a guest that was not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) at: Time,
    pub(crate) what: AskedWhat,
}

#[derive(Debug, Clone)]
pub(crate) enum AskedWhat {
    Read { first: usize, count: usize, judged: bool },
    Write { tag: u64, fua: bool },
    Flush,
    Snapshot { id: SnapshotId },
    Other,
}

impl EngineHost {
    /// Is on standby for a guest that has not arrived.
    pub(crate) fn is_waiting(&self) -> bool {
        self.standby && !self.busy && !self.active
    }
}

impl World {
    pub(crate) fn start_host(&mut self, host: usize) {
        if self.hosts[host].session.is_some() || self.hosts[host].destroyed {
            return;
        }
        let it = &mut self.hosts[host];
        it.life += 1;
        it.compare_witness(self.plan.witness);
        it.instance = InstanceId::from_u128(self.rng.u128());
        let identity = Identity {
            volume: self.volume,
            replica: it.replica,
            instance: it.instance,
            boot: it.boot,
        };
        let mut session = Session::new(identity, it.disk.promised(), self.plan.region());
        session.sabotage(self.plan.sabotage);
        it.session = Some(session);
    }

    pub(crate) fn start_engine(&mut self, start: &Start) -> usize {
        // A guest that died is followed by another one without expectations; a standby engine
        // serves a guest that is alive.
        let guest_survived =
            start.standby || (!self.guest_is_dead && self.served.0 > Generation(0));
        let host = self.rng.index(self.hosts.len() + 1);
        let mut config =
            Config::new(self.volume, EngineId::from_u128(self.rng.u128()), format!("node{host}"));
        config.guest_survived = guest_survived;
        config.open_wait = Time::from_millis(150);
        config.lease = Time::from_millis(100);
        config.heartbeat = Time::from_millis(40);
        config.member_timeout = Time::from_millis(300);
        config.reconnect_timeout = Time::from_millis(80);
        config.suspect_after = Time::from_millis(200);
        config.retry = Time::from_millis(10);
        config.settle_after = Time::from_millis(self.rng.between(20, 200));
        config.max_dirty = self.rng.index(6) + 1;
        config.chunk = CHUNK;
        config.copies = self.rng.index(4) + 1;
        config.slow_floor = Time::from_millis(30);
        config.slow_limit = self.rng.chance(500).then(|| Time::from_millis(200));
        let mut engine = Engine::new(config);
        engine.sabotage(self.plan.sabotage);
        let server = self.servers.len();
        self.servers.push(EngineHost {
            engine: Some(engine),
            host,
            deadline: Time::ZERO,
            waiting: BTreeMap::new(),
            busy: start.busy,
            active: false,
            standby: start.standby,
            fresh: (!guest_survived).then_some(self.now),
        });
        let replicas: Vec<ReplicaId> =
            self.hosts.iter().filter(|it| !it.destroyed).map(|it| it.replica).collect();
        let local = self.hosts.get(host).filter(|it| !it.destroyed).map(|it| it.replica);
        self.trace(|| format!("engine {server} starts on host {host}: {start:?}"));
        let command = match start.standby {
            true => Command::Standby { replicas, local },
            false => Command::Activate { replicas, local },
        };
        self.engine_event(server, Event::Command(command));
        if start.busy {
            self.after(Time::from_millis(1), What::GuestTurn { server });
        }
        server
    }
}
