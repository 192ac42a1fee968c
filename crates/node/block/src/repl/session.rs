//! The replica's side of replication: which engines may send which requests to this replica.
//!
//! ```text
//!             OPEN, generation ≥ promised
//!   Closed ───────────────────────────────► Draining ──nothing under way──► Promising
//!     ▲                                        ▲                                │ durable
//!     │ CLOSE                 a newer OPEN, in any state                        ▼
//!     └──────────────────────── Open ◄────────described──────────────── Describing
//!                                └── OPEN to resume, same engine and generation ──▲
//! ```
//!
//! Rule R1 lives here: a generation is promised durably before it is served, and from the moment
//! an OPEN with a newer one arrives, calls of older ones are refused. Draining is part of it: a
//! write of the old engine that is still on its way to the disk must not land after a write, or
//! behind a read, of the new one.
//!
//! A connection may break while calls are under way. The engine then resumes and sends again
//! what was not answered; a call that is still under way is joined, not repeated, because a
//! repeated write could otherwise end first and the original overwrite a later one.
//!
//! Does no I/O: [`Session::on`] takes an event and pushes actions.

mod calls;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::disk::{DiskReply, DiskRequest, DiskResult};
use super::sabotage::{Sabotage, skips};
use crate::ids::{BootId, EngineId, Generation, InstanceId, ReplicaId, VolumeId};
use crate::wire::{
    Answer, Call, Hello, HelloReply, Mode, Op, Open, Opened, Pong, Refusal, Reply, Request,
    VERSIONS,
};

/// Names a connection; the driver numbers them upwards.
pub type ConnectionId = u64;

/// The identity of this replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub volume: VolumeId,
    pub replica: ReplicaId,
    pub instance: InstanceId,
    pub boot: BootId,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SessionEvent {
    Call {
        connection: ConnectionId,
        call: Call,
    },
    Closed {
        connection: ConnectionId,
    },
    /// The store answered the request of this number.
    Disk {
        id: u64,
        result: DiskResult,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum SessionAction {
    Answer {
        connection: ConnectionId,
        op: Op,
        answer: Answer,
    },
    Disk {
        id: u64,
        request: DiskRequest,
    },
    /// End the connection: its peer is damaged or superseded.
    Drop {
        connection: ConnectionId,
    },
}

/// The session of one replica.
#[derive(Debug)]
pub struct Session {
    identity: Identity,
    region: u64,
    promised: Generation,
    state: State,
    /// Connections that said who they are.
    greeted: BTreeMap<ConnectionId, EngineId>,
    /// Connections that read beside the engine, with the generation they opened at.
    readers: BTreeMap<ConnectionId, Generation>,
    /// Requests that the store is working on.
    pending: BTreeMap<u64, Pending>,
    next: u64,
    /// Calls may be under way whose connection broke; searched only then.
    orphans: bool,
    /// When a change last arrived in a region, in arrivals since the session began.
    touched: BTreeMap<u32, u64>,
    arrivals: u64,
    stats: Pong,
    sabotage: Sabotage,
}

#[derive(Debug)]
enum State {
    Closed,
    Draining(Opening),
    Promising(Opening),
    Describing(Opening),
    Open(Writer),
}

/// An OPEN that has not been answered.
#[derive(Debug, Clone)]
struct Opening {
    writer: Writer,
    call: u64,
}

#[derive(Debug, Clone, Copy)]
struct Writer {
    connection: ConnectionId,
    engine: EngineId,
    generation: Generation,
}

#[derive(Debug)]
struct Pending {
    /// None, when the connection broke and the call has not been sent again yet.
    connection: Option<ConnectionId>,
    /// The engine that sent the call: each engine numbers its calls for itself.
    engine: EngineId,
    call: u64,
    generation: Generation,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Call(Op),
    Flush {
        settle: Vec<u32>,
        arrival: u64,
    },
    Promise,
    Describe,
    DescribeReader,
    /// Regions leave the log; then the flush that settled them is answered.
    Settle,
}

impl Session {
    /// A session over a store that says it promised `promised` and cuts its log into regions of
    /// `region` bytes.
    pub fn new(identity: Identity, promised: Generation, region: u64) -> Self {
        Self {
            identity,
            region,
            promised,
            state: State::Closed,
            greeted: BTreeMap::new(),
            readers: BTreeMap::new(),
            pending: BTreeMap::new(),
            next: 1,
            orphans: false,
            touched: BTreeMap::new(),
            arrivals: 0,
            stats: Pong::default(),
            sabotage: Sabotage::None,
        }
    }

    /// Sets the statistics that the next heartbeats report.
    pub fn set_stats(&mut self, stats: Pong) {
        self.stats = stats;
    }

    /// Leaves out a rule, to show that this is noticed.
    #[cfg(any(test, feature = "sim"))]
    pub(crate) fn sabotage(&mut self, sabotage: Sabotage) {
        self.sabotage = sabotage;
    }

    pub fn promised(&self) -> Generation {
        self.promised
    }

    /// How many requests the store has not answered.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// The only way the session changes.
    pub fn on(&mut self, event: SessionEvent, out: &mut Vec<SessionAction>) {
        match event {
            SessionEvent::Call { connection, call } => match call.request {
                Request::Hello(ref hello) => self.hello(connection, call.id, hello, out),
                _ if !self.greeted.contains_key(&connection) => {
                    out.push(SessionAction::Drop { connection });
                }
                Request::Open(ref open) => {
                    let open = open.clone();
                    self.open(connection, &call, &open, out);
                }
                _ => self.call(connection, call, out),
            },
            SessionEvent::Closed { connection } => self.closed(connection),
            SessionEvent::Disk { id, result } => {
                if let Some(pending) = self.pending.remove(&id) {
                    self.answered(pending, result, out);
                    self.drained(out);
                }
            }
        }
    }

    fn hello(
        &mut self,
        connection: ConnectionId,
        call: u64,
        hello: &Hello,
        out: &mut Vec<SessionAction>,
    ) {
        let version = hello.newest.min(VERSIONS.1);
        let result = if version < hello.oldest.max(VERSIONS.0) {
            Err(Refusal::Version)
        } else if (hello.volume, hello.replica) != (self.identity.volume, self.identity.replica) {
            Err(Refusal::WrongReplica)
        } else {
            self.greeted.insert(connection, hello.engine);
            Ok(Reply::Hello(HelloReply {
                version,
                instance: self.identity.instance,
                boot: self.identity.boot,
                promised: self.promised,
            }))
        };
        self.answer(connection, call, Op::Hello, result, out);
    }

    fn open(
        &mut self,
        connection: ConnectionId,
        call: &Call,
        open: &Open,
        out: &mut Vec<SessionAction>,
    ) {
        if call.generation < self.newest() {
            return self.answer(connection, call.id, Op::Open, Err(Refusal::Fenced), out);
        }
        let writer = Writer { connection, engine: open.engine, generation: call.generation };
        let opening = Opening { writer, call: call.id };
        match open.mode {
            Mode::ReadOnly => {
                self.readers.insert(connection, call.generation);
                let kind = Kind::DescribeReader;
                self.submit(connection, call, kind, DiskRequest::Describe, out);
            }
            Mode::Resume if self.is_open_by(&writer) => {
                self.supersede(connection, out);
                self.describe(opening, out);
            }
            // Generations are taken by compare-and-swap, so two engines never share one.
            _ if self.is_held_by_other(&writer) => {
                self.answer(connection, call.id, Op::Open, Err(Refusal::Fenced), out);
            }
            Mode::Write | Mode::Resume => {
                self.supersede(connection, out);
                self.readers.retain(|_, generation| *generation >= call.generation);
                self.state = State::Draining(opening);
                self.drained(out);
            }
        }
    }

    /// Goes on with an OPEN when nothing of an earlier engine is under way.
    fn drained(&mut self, out: &mut Vec<SessionAction>) {
        let State::Draining(opening) = &self.state else { return };
        let readers = self.pending.values().filter(|pending| {
            matches!(&pending.connection, Some(connection) if self.readers.contains_key(connection))
        });
        if readers.count() < self.pending.len() && !skips!(self.sabotage, NoDrain) {
            return;
        }
        let opening = opening.clone();
        let generation = opening.writer.generation;
        self.touched.clear();
        self.orphans = false;
        let pending = Pending {
            connection: Some(opening.writer.connection),
            engine: opening.writer.engine,
            call: opening.call,
            generation,
            kind: Kind::Promise,
        };
        self.state = State::Promising(opening);
        self.push(pending, DiskRequest::Promise { generation }, out);
    }

    fn describe(&mut self, opening: Opening, out: &mut Vec<SessionAction>) {
        let pending = Pending {
            connection: Some(opening.writer.connection),
            engine: opening.writer.engine,
            call: opening.call,
            generation: opening.writer.generation,
            kind: Kind::Describe,
        };
        self.state = State::Describing(opening);
        self.push(pending, DiskRequest::Describe, out);
    }

    /// A newer connection of a writer takes the place of an older one.
    fn supersede(&mut self, by: ConnectionId, out: &mut Vec<SessionAction>) {
        if skips!(self.sabotage, NoPromise) {
            return;
        }
        let old = match &self.state {
            State::Closed => None,
            State::Open(writer) => Some(writer.connection),
            State::Draining(opening) | State::Promising(opening) | State::Describing(opening) => {
                Some(opening.writer.connection)
            }
        };
        if let Some(connection) = old.filter(|old| *old != by) {
            self.closed(connection);
            out.push(SessionAction::Drop { connection });
        }
    }

    fn closed(&mut self, connection: ConnectionId) {
        self.greeted.remove(&connection);
        self.readers.remove(&connection);
        for pending in self.pending.values_mut() {
            if pending.connection == Some(connection) {
                pending.connection = None;
                self.orphans = true;
            }
        }
    }

    /// The newest generation that was asked for: an OPEN that still drains already fences.
    fn newest(&self) -> Generation {
        if skips!(self.sabotage, NoPromise) {
            return Generation(0);
        }
        match &self.state {
            State::Draining(opening) | State::Promising(opening) => {
                self.promised.max(opening.writer.generation)
            }
            _ => self.promised,
        }
    }

    fn is_open_by(&self, by: &Writer) -> bool {
        let current = match &self.state {
            State::Open(writer) => writer,
            State::Describing(opening) => &opening.writer,
            _ => return false,
        };
        current.engine == by.engine && current.generation == by.generation
    }

    fn is_held_by_other(&self, by: &Writer) -> bool {
        let current = match &self.state {
            State::Closed => return false,
            State::Open(writer) => writer,
            State::Draining(opening) | State::Promising(opening) | State::Describing(opening) => {
                &opening.writer
            }
        };
        current.generation == by.generation && current.engine != by.engine
    }
}
