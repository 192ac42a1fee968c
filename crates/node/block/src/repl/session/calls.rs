//! Calls of an open session: to the store, and the store's answers back.

use super::{
    Answer, Call, ConnectionId, DiskReply, DiskRequest, DiskResult, Kind, Op, Opened, Pending,
    Refusal, Reply, Request, Session, SessionAction, State,
};
use crate::ids::{FlushMark, FlushMarks};
use crate::repl::sabotage::skips;
use crate::repl::span::{Pieces, Span};

impl Session {
    pub(super) fn call(
        &mut self,
        connection: ConnectionId,
        call: Call,
        out: &mut Vec<SessionAction>,
    ) {
        let op = call.request.op();
        if let Err(refusal) = self.admit(connection, &call) {
            return self.answer(connection, call.id, op, Err(refusal), out);
        }
        if let Request::Write { data, crcs, .. }
        | Request::Copy { data, crcs, .. }
        | Request::Repair { data, crcs, .. } = &call.request
            && crcs.mismatch(data).is_some()
        {
            // Damaged on the way. The engine sends it again over another connection.
            self.closed(connection);
            return out.push(SessionAction::Drop { connection });
        }
        let engine = self.greeted.get(&connection).copied();
        let same = |pending: &&mut Pending| {
            pending.call == call.id
                && Some(pending.engine) == engine
                && pending.generation == call.generation
                && matches!(pending.kind, Kind::Call(_) | Kind::Flush { .. } | Kind::Settle)
        };
        if self.orphans
            && let Some(pending) = self.pending.values_mut().find(same)
        {
            pending.connection = Some(connection);
            return;
        }
        self.arrivals += 1;
        let touches = call.request.changes_blocks() || op == Op::Repair;
        if let (true, Some((offset, length))) = (touches, call.request.range()) {
            let mut regions = Pieces::none(self.region);
            regions.insert(Span::new(offset, length));
            for region in regions.iter() {
                let region = u32::try_from(region).unwrap_or(u32::MAX);
                self.touched.insert(region, self.arrivals);
            }
        }
        match call.request.clone() {
            Request::Ping => {
                let stats = self.stats;
                self.answer(connection, call.id, op, Ok(Reply::Pong(stats)), out);
            }
            Request::Flush { settle, number, complete } => {
                let kind = Kind::Flush { settle, arrival: self.arrivals };
                let mark = |number| match number {
                    0 => FlushMark::default(),
                    number => FlushMark { generation: call.generation, number },
                };
                let marks = FlushMarks { flushed: mark(number), complete: mark(complete) };
                let marks = (number > 0).then_some(marks);
                self.submit(connection, &call, kind, DiskRequest::Flush { marks }, out);
            }
            request => match to_disk(request) {
                Some(request) => {
                    self.submit(connection, &call, Kind::Call(op), request, out);
                }
                None => self.answer(connection, call.id, op, Err(Refusal::Invalid), out),
            },
        }
    }

    /// Whether the connection may make this call now.
    fn admit(&self, connection: ConnectionId, call: &Call) -> Result<(), Refusal> {
        if skips!(self.sabotage, NoPromise) {
            return Ok(());
        }
        if call.generation < self.newest() {
            return Err(Refusal::Fenced);
        }
        match &self.state {
            State::Open(writer) if writer.connection == connection => {
                match writer.generation == call.generation {
                    true => Ok(()),
                    false => Err(Refusal::Fenced),
                }
            }
            _ if self.readers.contains_key(&connection) => match call.request {
                Request::Read { .. } | Request::Ping => Ok(()),
                _ => Err(Refusal::ReadOnly),
            },
            _ => Err(Refusal::NotOpen),
        }
    }

    /// The store has answered.
    pub(super) fn answered(
        &mut self,
        pending: Pending,
        result: DiskResult,
        out: &mut Vec<SessionAction>,
    ) {
        match pending.kind {
            Kind::Call(op) => {
                if op == Op::Close && result.is_ok() && matches!(self.state, State::Open(_)) {
                    self.state = State::Closed;
                }
                self.reply(&pending, op, result.map(to_reply), out);
            }
            Kind::Flush { ref settle, arrival } => {
                let settled = match result.is_ok() {
                    true => self.settled(settle, arrival),
                    false => Vec::new(),
                };
                if settled.is_empty() {
                    return self.reply(&pending, Op::Flush, result.map(to_reply), out);
                }
                let pending = Pending { kind: Kind::Settle, ..pending };
                self.push(pending, DiskRequest::Settle { regions: settled }, out);
            }
            Kind::Promise => self.promise_answered(&pending, &result, out),
            Kind::Describe => {
                let reply = result.map(|reply| self.opened(reply));
                if let State::Describing(opening) = &self.state
                    && opening.call == pending.call
                    && Some(opening.writer.connection) == pending.connection
                {
                    self.state = match reply {
                        Ok(_) => State::Open(opening.writer),
                        Err(_) => State::Closed,
                    };
                    self.reply(&pending, Op::Open, reply, out);
                }
            }
            Kind::DescribeReader => {
                let reply = result.map(|reply| self.opened(reply));
                self.reply(&pending, Op::Open, reply, out);
            }
            Kind::Settle => self.reply(&pending, Op::Flush, result.map(to_reply), out),
        }
    }

    fn promise_answered(
        &mut self,
        pending: &Pending,
        result: &DiskResult,
        out: &mut Vec<SessionAction>,
    ) {
        if result.is_ok() {
            self.promised = self.promised.max(pending.generation);
        }
        // A newer OPEN may have come meanwhile; it waits for this answer and goes on by itself.
        let State::Promising(opening) = &self.state else { return };
        let opening = opening.clone();
        match result {
            Ok(_) => self.describe(opening, out),
            Err(refusal) => {
                self.state = State::Closed;
                self.reply(pending, Op::Open, Err(*refusal), out);
            }
        }
    }

    /// The regions that the engine calls settled, except those that a change has reached since
    /// the engine said so.
    fn settled(&mut self, regions: &[u32], arrival: u64) -> Vec<u32> {
        let quiet = |region: &u32| self.touched.get(region).is_none_or(|last| *last < arrival);
        let regions: Vec<u32> = regions.iter().copied().filter(quiet).collect();
        for region in &regions {
            self.touched.remove(region);
        }
        regions
    }

    fn opened(&self, reply: DiskReply) -> Reply {
        match reply {
            DiskReply::Description(it) => Reply::Opened(Box::new(Opened {
                instance: self.identity.instance,
                boot: self.identity.boot,
                epoch: it.epoch,
                marks: it.marks,
                witnessed: it.witnessed,
                size: it.size,
                region: it.region,
                lost_writes: it.lost_writes,
                dirty: it.dirty,
                snapshots: it.snapshots,
                head_parent: it.head_parent,
            })),
            other => to_reply(other),
        }
    }

    pub(super) fn submit(
        &mut self,
        connection: ConnectionId,
        call: &Call,
        kind: Kind,
        request: DiskRequest,
        out: &mut Vec<SessionAction>,
    ) {
        let Some(engine) = self.greeted.get(&connection).copied() else { return };
        let pending = Pending {
            connection: Some(connection),
            engine,
            call: call.id,
            generation: call.generation,
            kind,
        };
        self.push(pending, request, out);
    }

    pub(super) fn push(
        &mut self,
        pending: Pending,
        request: DiskRequest,
        out: &mut Vec<SessionAction>,
    ) {
        let id = self.next;
        self.next += 1;
        self.pending.insert(id, pending);
        out.push(SessionAction::Disk { id, request });
    }

    fn reply(
        &self,
        pending: &Pending,
        op: Op,
        result: Result<Reply, Refusal>,
        out: &mut Vec<SessionAction>,
    ) {
        let Some(connection) = pending.connection else { return };
        // Done or not, an engine that was superseded must not take it for an acknowledgement:
        // the new one may already have read the state without it.
        let fenced = pending.generation < self.newest() && op != Op::Open;
        let result = if fenced { Err(Refusal::Fenced) } else { result };
        self.answer(connection, pending.call, op, result, out);
    }

    pub(super) fn answer(
        &self,
        connection: ConnectionId,
        id: u64,
        op: Op,
        result: Result<Reply, Refusal>,
        out: &mut Vec<SessionAction>,
    ) {
        let answer = Answer { id, generation: self.newest(), result };
        out.push(SessionAction::Answer { connection, op, answer });
    }
}

fn to_disk(request: Request) -> Option<DiskRequest> {
    Some(match request {
        Request::Write { offset, data, crcs, fua } | Request::Copy { offset, data, crcs, fua } => {
            DiskRequest::Write { offset, data, crcs, fua }
        }
        Request::Read { view, offset, length } => DiskRequest::Read { view, offset, length },
        Request::Discard { offset, length } => DiskRequest::Discard { offset, length },
        Request::WriteZeroes { offset, length, fua } => {
            DiskRequest::WriteZeroes { offset, length, fua }
        }
        Request::Prepare => DiskRequest::Prepare,
        Request::Snapshot(info) => DiskRequest::Snapshot(info),
        Request::Seal => DiskRequest::Seal,
        Request::Revert { to } => DiskRequest::Revert { to },
        Request::DeleteSnapshot { snapshot } => DiskRequest::DeleteSnapshot { snapshot },
        Request::Resize { size } => DiskRequest::Resize { size },
        Request::ReadMap { view, offset, length, verify } => {
            DiskRequest::ReadMap { view, offset, length, verify }
        }
        Request::Scrub { offset, length } => DiskRequest::Scrub { offset, length },
        Request::ScrubMetadata { offset, length, alone } => {
            DiskRequest::ScrubMetadata { offset, length, alone }
        }
        Request::Repair { snapshot, offset, data, crcs } => {
            DiskRequest::Repair { snapshot, offset, data, crcs }
        }
        Request::Dirty => DiskRequest::Dirty,
        Request::Close => DiskRequest::CloseClean,
        Request::Reconciled => DiskRequest::Reconciled,
        Request::SetEpoch(epoch) => DiskRequest::SetEpoch { epoch },
        Request::Hello(_) | Request::Open(_) | Request::Flush { .. } | Request::Ping => {
            return None;
        }
    })
}

fn to_reply(reply: DiskReply) -> Reply {
    match reply {
        DiskReply::Data { data, crcs } => Reply::Data { data, crcs },
        DiskReply::Map(map) => Reply::Map(map),
        DiskReply::Dirty(regions) => Reply::Dirty(regions),
        DiskReply::Damage(blocks) => Reply::Damage(blocks),
        DiskReply::Metadata(report) => Reply::Metadata(report),
        DiskReply::Done | DiskReply::Description(_) => Reply::Done,
    }
}
