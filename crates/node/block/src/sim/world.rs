//! The queue of events and what each does.

use std::collections::{BTreeMap, BTreeSet};

use super::backup::Backup;
use super::disk::ModelDisk;
use super::disks::Disk;
use super::hosts::{EngineHost, Host};
use super::net::{Net, Way, Wire};
use super::oracle::{Oracle, View};
use super::stored::StoredDisk;
use super::traffic::{engine_wire, reencode};
use super::{Outcome, Plan, Rng, Time, Violation};
use crate::ids::{BootId, Generation, InstanceId, ReplicaId, SnapshotId, VolumeId};
use crate::repl::control::{Record, Version, Versioned};
use crate::repl::disk::{DiskReply, DiskRequest};
use crate::repl::engine::{Action, ControlAnswer, Event, Notice};
use crate::repl::session::{SessionAction, SessionEvent};
use crate::wire::{BLOCK, Call, Witnessed};

pub(crate) const CHUNK: u64 = 2 * BLOCK;

#[derive(Debug)]
pub(crate) enum What {
    EngineTimer {
        server: usize,
    },
    /// Something arrives at an engine.
    ToEngine {
        server: usize,
        event: Event,
    },
    Accept {
        wire: Wire,
        replica: usize,
    },
    Frame {
        wire: Wire,
        call: Call,
    },
    /// The engine's side of a connection was closed.
    Hangup {
        wire: Wire,
    },
    DiskDone {
        host: usize,
        life: u64,
        id: u64,
    },
    Control {
        server: usize,
        swap: Option<(Version, Record)>,
    },
    GuestTurn {
        server: usize,
    },
    Trouble,
    Heal {
        engine_host: usize,
        replica: usize,
    },
    StartHost {
        host: usize,
    },
    StartEngine(Box<Start>),
    Arrived {
        from: usize,
        to: usize,
    },
    DiskFree {
        host: usize,
    },
    ControlBack,
    Supervise,
}

/// An engine that is to be started.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) standby: bool,
    pub(crate) busy: bool,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) now: Time,
    pub(crate) queue: BTreeMap<(Time, u64), What>,
    counter: u64,
    pub(crate) hosts: Vec<Host>,
    pub(crate) servers: Vec<EngineHost>,
    pub(crate) net: Net,
    pub(crate) record: Versioned,
    pub(crate) control_away: bool,
    pub(crate) backup: Backup,
    pub(crate) oracle: Oracle,
    pub(crate) outcome: Outcome,
    pub(crate) next_guest: u64,
    pub(crate) left: u64,
    pub(crate) violation: Option<String>,
    /// The newest generation that served, and since when.
    pub(crate) served: (Generation, Time),
    pub(crate) calm: bool,
    /// When the last fault ends: after that requests are answered within a bound.
    pub(crate) troubled: Time,
    pub(crate) volume: VolumeId,
    pub(crate) notices: Vec<Notice>,
    /// The content that acknowledged snapshots may have.
    pub(crate) snapshots: BTreeMap<SnapshotId, View>,
    /// Blocks that an engine found disputed at some time.
    pub(crate) disputed: BTreeSet<u64>,
    /// The guest died and none has been served since.
    pub(crate) guest_is_dead: bool,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut rng = Rng::new(plan.seed ^ 0xabcd);
        let size = plan.blocks * BLOCK;
        let mut hosts = Vec::new();
        let volume = VolumeId::from_u128(rng.u128());
        for _ in 0..plan.replicas {
            let replica = ReplicaId::from_u128(rng.u128());
            hosts.push(Host {
                replica,
                disk: match plan.real_store {
                    true => Disk::Stored(Box::new(StoredDisk::new(volume, replica, size))),
                    false => Disk::Model(Box::new(ModelDisk::new(size, plan.region()))),
                },
                session: None,
                instance: InstanceId::from_u128(rng.u128()),
                boot: BootId::from_u128(rng.u128()),
                life: 0,
                working: BTreeMap::new(),
                hangs_until: Time::ZERO,
                power_cut: None,
                answered: 0,
                witness: (BootId::from_u128(0), 0),
                witnessed: Witnessed::Unknown,
                copy: None,
                destroyed: false,
            });
        }
        let record = Record::new(hosts.iter().map(|host| host.replica));
        let left = plan.requests;
        let sectors = usize::try_from(size).expect("small") / super::oracle::SECTOR;
        Self {
            volume,
            plan,
            rng,
            now: Time::ZERO,
            queue: BTreeMap::new(),
            counter: 0,
            hosts,
            servers: Vec::new(),
            net: Net::default(),
            record: Versioned { version: Version(1), record },
            control_away: false,
            backup: Backup::default(),
            oracle: Oracle::new(sectors),
            outcome: Outcome::default(),
            next_guest: 1,
            left,
            violation: None,
            served: (Generation(0), Time::ZERO),
            calm: false,
            troubled: Time::ZERO,
            notices: Vec::new(),
            snapshots: BTreeMap::new(),
            disputed: BTreeSet::new(),
            guest_is_dead: false,
        }
    }

    pub(crate) fn run(mut self) -> Result<Outcome, Violation> {
        for host in 0..self.hosts.len() {
            self.start_host(host);
        }
        self.start_engine(&Start { standby: false, busy: true });
        self.plan_trouble();
        let end = self.plan.length;
        self.run_until(|world| world.now >= end);
        if self.violation.is_none() {
            self.finish();
        }
        match self.violation.take() {
            None => Ok(self.outcome),
            Some(what) => Err(Violation { seed: self.plan.seed, at: self.now, what }),
        }
    }

    /// Handles events until `done`, a violation, or nothing is left to happen.
    pub(crate) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        while self.violation.is_none() && !done(self) {
            let Some(((at, _), what)) = self.queue.pop_first() else { return };
            self.now = self.now.max(at);
            self.outcome.events += 1;
            self.handle(what);
        }
    }

    pub(crate) fn at(&mut self, at: Time, what: What) {
        self.counter += 1;
        self.queue.insert((at.max(self.now), self.counter), what);
    }

    pub(crate) fn after(&mut self, delay: Time, what: What) {
        self.at(self.now + delay, what);
    }

    pub(crate) fn trace(&self, text: impl FnOnce() -> String) {
        if self.plan.trace {
            eprintln!("{:>12?} {}", self.now, text());
        }
    }

    pub(crate) fn wrong(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn handle(&mut self, what: What) {
        match what {
            What::EngineTimer { server } => {
                if self.servers[server].deadline <= self.now {
                    self.engine_event(server, Event::Timer);
                }
            }
            What::ToEngine { server, event } => self.engine_event(server, event),
            What::Accept { wire, replica } => self.accept(wire, replica),
            What::Frame { wire, call } => self.frame(wire, call),
            What::Hangup { wire } => self.hangup(wire),
            What::DiskDone { host, life, id } => self.disk_done(host, life, id),
            What::Control { server, swap } => self.control(server, swap),
            What::GuestTurn { server } => self.guest_turn(server),
            What::Trouble => self.trouble(),
            What::Heal { engine_host, replica } => self.net.heal(engine_host, replica),
            What::StartHost { host } => self.start_host(host),
            What::StartEngine(start) => {
                if !self.calm {
                    self.start_engine(&start);
                }
            }
            What::Arrived { from, to } => self.arrived(from, to),
            What::DiskFree { host } => self.hosts[host].disk.set_full(false),
            What::ControlBack => self.control_away = false,
            What::Supervise => self.supervise(),
        }
    }

    pub(crate) fn engine_event(&mut self, server: usize, event: Event) {
        let Some(mut engine) = self.servers[server].engine.take() else { return };
        let mut out = Vec::new();
        engine.on(self.now, event, &mut out);
        let deadline = engine.deadline();
        self.servers[server].active = engine.is_active();
        self.servers[server].standby &= !engine.is_active();
        let generation = engine.generation();
        self.servers[server].engine = Some(engine);
        if self.servers[server].deadline != deadline {
            self.servers[server].deadline = deadline;
            self.at(deadline, What::EngineTimer { server });
        }
        for action in out {
            self.engine_action(server, generation, action);
        }
    }

    fn engine_action(&mut self, server: usize, generation: Generation, action: Action) {
        match action {
            Action::Connect { replica, connection } => self.connect(server, replica, connection),
            Action::Disconnect { connection, .. } => {
                let wire = (server, connection);
                self.send(wire, Way::There, What::Hangup { wire });
            }
            Action::Send { connection, call, .. } => {
                let wire = (server, connection);
                self.trace(|| {
                    format!(
                        "  {wire:?} call {} {:?} {:?}",
                        call.id,
                        call.request.op(),
                        call.request.range()
                    )
                });
                let call = self.through_the_codec(wire, call);
                if let Some(call) = call {
                    self.send(wire, Way::There, What::Frame { wire, call });
                }
            }
            Action::Reply { id, result } => self.guest_answered(server, generation, id, result),
            Action::ReadRecord => {
                let delay = self.rng.micros(50, 3000);
                self.after(delay, What::Control { server, swap: None });
            }
            Action::Swap { expect, record } => {
                let delay = self.rng.micros(50, 3000);
                self.after(delay, What::Control { server, swap: Some((expect, record)) });
            }
            Action::Notice(notice) => self.notice(server, notice),
        }
    }

    /// A request that an engine received after a newer one had taken over must not succeed. An
    /// earlier one may: the replicas carried it out before they promised anything to the newer
    /// one.
    pub(crate) fn acknowledged(&mut self, generation: Generation, asked: Time) {
        let (newest, since) = self.served;
        if generation < newest && asked > since {
            self.wrong(format!("generation {generation} took a change after {newest} was active"));
        }
    }

    pub(crate) fn session(&mut self, host: usize, event: SessionEvent) {
        let Some(session) = &mut self.hosts[host].session else { return };
        let mut out = Vec::new();
        session.on(event, &mut out);
        for action in out {
            match action {
                SessionAction::Answer { connection, op, answer } => {
                    let wire = engine_wire(connection);
                    let replica = self.hosts[host].replica;
                    self.trace(|| {
                        let result = answer.result.as_ref().map(|_| ()).map_err(|it| *it);
                        format!("  {wire:?} host {host} answers {} {op:?} {result:?}", answer.id)
                    });
                    let answer = match self.rng.chance(50) {
                        true => reencode(op, &answer),
                        false => answer,
                    };
                    self.deliver(wire, Event::Answer { replica, connection: wire.1, answer });
                }
                SessionAction::Disk { id, request } => self.submit(host, id, request),
                SessionAction::Drop { connection } => self.reset(engine_wire(connection)),
            }
        }
    }

    fn submit(&mut self, host: usize, id: u64, request: DiskRequest) {
        let slow = if self.rng.chance(20) { 10 } else { 1 };
        let delay = self.rng.micros(10, self.plan.disk * slow);
        let at = (self.now + delay).max(self.hosts[host].hangs_until);
        let life = self.hosts[host].life;
        // In the order of asking, as the contract has it; only the answer takes its time.
        if let DiskRequest::Settle { .. } = &request {
            let _ = self.hosts[host].disk.execute(&request);
        }
        self.hosts[host].working.insert(id, request);
        self.at(at, What::DiskDone { host, life, id });
    }

    fn disk_done(&mut self, host: usize, life: u64, id: u64) {
        let it = &mut self.hosts[host];
        if it.life != life {
            return;
        }
        if self.now < it.hangs_until {
            let until = it.hangs_until;
            return self.at(until, What::DiskDone { host, life, id });
        }
        let Some(request) = it.working.remove(&id) else { return };
        let result = match request {
            DiskRequest::Settle { .. } => Ok(DiskReply::Done),
            request => it.execute(&request),
        };
        self.session(host, SessionEvent::Disk { id, result });
    }

    fn control(&mut self, server: usize, swap: Option<(Version, Record)>) {
        let lossy = self.plan.faults.control_plane && !self.calm;
        let lost_before = self.control_away || lossy && self.rng.chance(50);
        let lost_after = lossy && self.rng.chance(50);
        let mut answer = ControlAnswer::Unavailable;
        if !lost_before {
            answer = match swap {
                None => ControlAnswer::Read(self.record.clone()),
                Some((expect, record)) if expect == self.record.version => {
                    self.check_record(&record);
                    let version = Version(expect.0 + 1);
                    self.record = Versioned { version, record };
                    ControlAnswer::Swapped(version)
                }
                Some(_) => ControlAnswer::Conflict(self.record.clone()),
            };
        }
        if lost_after {
            answer = ControlAnswer::Unavailable;
        }
        let delay = self.rng.micros(50, 3000);
        self.after(delay, What::ToEngine { server, event: Event::Control(answer) });
    }

    fn check_record(&mut self, record: &Record) {
        if record.isr.is_empty() || record.generation < self.record.record.generation {
            self.wrong(format!("the record went from {:?} to {record:?}", self.record.record));
        }
    }
}
