//! Requests of the guest, and when they may start.
//!
//! A request waits until the engine is active, nothing that overlaps it is under way, its region
//! is reconciled, no barrier is active, and, for reads, every member has lately proven that it
//! promised no newer generation. Requests that overlap start in the order of their arrival.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::event::{
    Action, Extent, GuestError, GuestId, GuestReply, GuestRequest, GuestResult, Time,
};
use super::ops::{OneResult, Owner};
use super::{Engine, Phase};
use crate::repl::span::Span;
use crate::wire::{BLOCK, BlockState, MAX_DATA, Refusal, Reply, Request, Verify};

/// The unit that a guest may address.
pub(super) const SECTOR: u64 = 512;

/// Ranges without data are cut into pieces of this size, so that none blocks others for long.
const MAX_RANGE: u64 = 64 << 20;

/// The longest range of one map request.
const MAP: u64 = MAX_DATA as u64;

/// How often a read is tried before the block counts as unreadable.
const ATTEMPTS: u8 = 4;

/// A request that has not started, or is kept for a retry while it is in progress.
#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(super) guest: GuestId,
    pub(super) what: GuestOperation,
    pub(super) since: Time,
    pub(super) attempts: u8,
}

#[derive(Debug, Clone)]
pub(super) enum GuestOperation {
    Read(Span),
    Map(Span),
    Write { offset: u64, data: Bytes, fua: bool },
    Discard(Span),
    WriteZeroes { span: Span, fua: bool },
}

/// A request that was split into several parts.
#[derive(Debug)]
pub(super) struct Parts {
    left: usize,
    error: Option<GuestError>,
}

impl Waiting {
    /// The blocks that it touches.
    pub(super) fn span(&self) -> Span {
        match &self.what {
            GuestOperation::Read(span)
            | GuestOperation::Map(span)
            | GuestOperation::Discard(span)
            | GuestOperation::WriteZeroes { span, .. } => span.aligned(BLOCK),
            GuestOperation::Write { offset, data, .. } => {
                Span::new(*offset, data.len() as u64).aligned(BLOCK)
            }
        }
    }

    /// Whether it covers whole blocks, so that no block has to be read first.
    fn is_whole(&self) -> bool {
        let exact = match &self.what {
            GuestOperation::Read(span)
            | GuestOperation::Map(span)
            | GuestOperation::Discard(span)
            | GuestOperation::WriteZeroes { span, .. } => *span,
            GuestOperation::Write { offset, data, .. } => Span::new(*offset, data.len() as u64),
        };
        exact == self.span()
    }

    fn is_read(&self) -> bool {
        matches!(self.what, GuestOperation::Read(_) | GuestOperation::Map(_))
    }
}

impl Engine {
    pub(super) fn guest(&mut self, id: GuestId, request: GuestRequest) {
        self.last_guest = self.now;
        if matches!(
            self.phase,
            Phase::Closing(_) | Phase::Closed | Phase::Fenced | Phase::Faulted(_)
        ) {
            return self.reply(id, Err(GuestError::Shutdown));
        }
        if !request.is_sane() {
            return self.reply(id, Err(GuestError::Invalid));
        }
        let request = match self.place(request) {
            Ok(request) => request,
            Err(error) => return self.reply(id, Err(error)),
        };
        match request {
            GuestRequest::Read { offset, length } => {
                self.enqueue(id, GuestOperation::Read(Span::new(offset, u64::from(length))));
            }
            GuestRequest::Write { offset, data, fua } => {
                self.enqueue(id, GuestOperation::Write { offset, data, fua });
            }
            GuestRequest::Discard { offset, length } => {
                // A hint: partial blocks stay unchanged.
                let start = offset.next_multiple_of(BLOCK);
                let end = (offset.saturating_add(length)) / BLOCK * BLOCK;
                match start < end {
                    true => self.cut(id, Span { start, end }, GuestOperation::Discard),
                    false => self.reply(id, Ok(GuestReply::Done)),
                }
            }
            GuestRequest::WriteZeroes { offset, length, fua } => {
                self.cut(id, Span::new(offset, length), |span| GuestOperation::WriteZeroes {
                    span,
                    fua,
                });
            }
            GuestRequest::Map { offset, length } => {
                let end = offset.saturating_add(length).min(offset / MAP * MAP + MAP);
                match self.phase {
                    // The map is not known; data can always be read.
                    Phase::Standby => {
                        let extent = Extent { length, hole: false };
                        self.reply(id, Ok(GuestReply::Map(vec![extent])));
                    }
                    _ => self.enqueue(id, GuestOperation::Map(Span { start: offset, end })),
                }
            }
            // Nothing was acknowledged here, so nothing can be missing.
            GuestRequest::Flush if self.phase == Phase::Standby => {
                self.reply(id, Ok(GuestReply::Done));
            }
            GuestRequest::Flush => self.flush.queued.push(id),
            other => self.barriers.push_back((id, other)),
        }
    }

    fn enqueue(&mut self, guest: GuestId, what: GuestOperation) {
        self.queue.push_back(Waiting { guest, what, since: self.now, attempts: 0 });
    }

    fn cut(&mut self, guest: GuestId, span: Span, what: impl Fn(Span) -> GuestOperation) {
        let mut pieces = Vec::new();
        let mut start = span.start;
        while start < span.end {
            let end = (start / MAX_RANGE * MAX_RANGE + MAX_RANGE).min(span.end);
            pieces.push(Span { start, end });
            start = end;
        }
        if pieces.len() > 1 {
            self.parts.insert(guest, Parts { left: pieces.len(), error: None });
        }
        if pieces.is_empty() {
            return self.reply(guest, Ok(GuestReply::Done));
        }
        for piece in pieces {
            self.enqueue(guest, what(piece));
        }
    }

    /// One part of a request becomes `count` parts.
    pub(super) fn add_parts(&mut self, guest: GuestId, count: usize) {
        let parts = self.parts.entry(guest).or_insert(Parts { left: 1, error: None });
        parts.left += count - 1;
    }

    /// Answers a request, or counts one part of it.
    pub(super) fn reply(&mut self, id: GuestId, mut result: GuestResult) {
        if let Some(parts) = self.parts.get_mut(&id) {
            parts.left -= 1;
            parts.error = parts.error.or(result.err());
            if parts.left > 0 {
                return;
            }
            result = parts.error.map_or(Ok(GuestReply::Done), Err);
            self.parts.remove(&id);
        }
        self.out.push(Action::Reply { id, result });
    }

    /// Starts all queued requests that may start.
    pub(super) fn start_ready(&mut self) {
        if self.queue.is_empty() {
            return;
        }
        let mut blocked: Vec<Span> = Vec::new();
        let mut lease = None;
        for _ in 0..self.queue.len() {
            let Some(waiting) = self.queue.pop_front() else { break };
            let span = waiting.span();
            if let Err(error) = self.check(&waiting) {
                self.reply(waiting.guest, Err(error));
                continue;
            }
            let may = !blocked.iter().any(|earlier| earlier.overlaps(span))
                && match waiting.is_read() {
                    true => self.may_read(span) && *lease.get_or_insert_with(|| self.has_lease()),
                    false => {
                        self.may_change(span) && (waiting.is_whole() || !self.readable().is_empty())
                    }
                };
            if may {
                self.start(waiting);
            } else {
                blocked.push(span);
                self.queue.push_back(waiting);
            }
        }
    }

    /// The size of the volume is known when the engine is active, not before.
    fn check(&self, waiting: &Waiting) -> Result<(), GuestError> {
        let (span, limit) = match &waiting.what {
            GuestOperation::Read(span) | GuestOperation::Map(span) => (*span, u64::from(MAX_DATA)),
            GuestOperation::Write { offset, data, .. } => (
                Span { start: *offset, end: offset.saturating_add(data.len() as u64) },
                u64::from(MAX_DATA),
            ),
            GuestOperation::Discard(span) | GuestOperation::WriteZeroes { span, .. } => {
                (*span, MAX_RANGE)
            }
        };
        let whole = span.start % SECTOR == 0 && span.end % SECTOR == 0;
        match whole && span.end > span.start && span.end <= self.size && span.len() <= limit {
            true => Ok(()),
            false => Err(GuestError::Invalid),
        }
    }

    fn may_read(&mut self, span: Span) -> bool {
        let held = self.barrier.as_ref().is_some_and(super::barrier::Barrier::holds_reads);
        !held
            && self.locks.may_read(span)
            && !self.unreconciled.touches(span)
            && !self.readable().is_empty()
    }

    fn may_change(&mut self, span: Span) -> bool {
        let held = self.barrier.as_ref().is_some_and(super::barrier::Barrier::holds_changes);
        !held
            && self.window < self.config.window
            && self.locks.may_change(span)
            && !self.unreconciled.touches(span)
    }

    fn start(&mut self, waiting: Waiting) {
        let needs_content = waiting.is_read() || !waiting.is_whole();
        if needs_content && self.disputes.is_disputed(waiting.span()) {
            return self.reply(waiting.guest, Err(GuestError::Io));
        }
        match &waiting.what {
            GuestOperation::Read(_) | GuestOperation::Map(_) => self.start_read(waiting),
            GuestOperation::Write { .. } => self.start_write(waiting),
            GuestOperation::Discard(span) => {
                let (offset, length) = (span.start, length(*span));
                let since = waiting.since;
                self.issue_change(Request::Discard { offset, length }, waiting, since, None);
            }
            GuestOperation::WriteZeroes { .. } => self.start_zeroes(waiting),
        }
    }

    fn start_read(&mut self, waiting: Waiting) {
        let span = waiting.span();
        let Some(slot) = self.fastest() else { return self.queue.push_back(waiting) };
        let (view, offset, length) = (None, span.start, length(span));
        let request = match waiting.what {
            GuestOperation::Map(_) => {
                Request::ReadMap { view, offset, length, verify: Verify::Suspect }
            }
            _ => Request::Read { view, offset, length },
        };
        let owner = Owner::Read { waiting, since: self.now };
        let id = self.issue_one(request, slot, owner);
        self.locks.read(id, span);
    }

    /// The member to read from: the one on this node, unless it is much slower than another.
    fn fastest(&self) -> Option<usize> {
        let local = |slot: usize| self.local == Some(self.members[slot].id);
        let cost = |slot: usize| {
            let latency = self.members[slot].latency.average();
            if local(slot) { latency / 3 } else { latency + std::time::Duration::from_nanos(1) }
        };
        self.readable().iter().min_by_key(|slot| (cost(*slot), *slot))
    }

    pub(super) fn read_answered(
        &mut self,
        id: u64,
        mut waiting: Waiting,
        since: Time,
        result: OneResult,
    ) {
        self.locks.read_done(id);
        let span = match waiting.what {
            GuestOperation::Read(span) => span,
            GuestOperation::Map(span) => return self.map_answered(waiting, span, result),
            _ => return,
        };
        let blocks = waiting.span();
        match result {
            Ok(Reply::Data { data, crcs })
                if data.len() as u64 == blocks.len() && crcs.mismatch(&data).is_none() =>
            {
                self.throttle.observe(self.now.saturating_sub(since));
                let data = self.uncover(blocks.start, data);
                let from = usize::try_from(span.start - blocks.start).expect("within a block");
                let to = from + usize::try_from(span.len()).expect("within MAX_DATA");
                self.reply(waiting.guest, Ok(GuestReply::Data(data.slice(from..to))));
            }
            // The member went away: another one is asked.
            Err(None) => self.queue.push_front(waiting),
            _ if self.phase == Phase::Standby && waiting.attempts < ATTEMPTS => {
                waiting.attempts += 1;
                self.queue.push_front(waiting);
            }
            _ if waiting.attempts >= ATTEMPTS => {
                self.found_lost(&[blocks]);
                self.reply(waiting.guest, Err(GuestError::Io));
            }
            _ => {
                waiting.attempts += 1;
                self.begin_repair(waiting);
            }
        }
    }

    fn map_answered(&mut self, waiting: Waiting, span: Span, result: OneResult) {
        match result {
            Ok(Reply::Map(blocks)) => {
                let extents = extents(&blocks, span);
                self.reply(waiting.guest, Ok(GuestReply::Map(extents)));
            }
            // The member went away: another one is asked.
            Err(None) => self.queue.push_front(waiting),
            _ => self.reply(waiting.guest, Err(GuestError::Io)),
        }
    }

    pub(super) fn change_answered(
        &mut self,
        waiting: Waiting,
        since: Time,
        result: Result<(), Refusal>,
    ) {
        self.throttle.observe(self.now.saturating_sub(since));
        let result = result.map(|()| GuestReply::Done).map_err(Self::guest_error);
        self.reply(waiting.guest, result);
    }

    pub(super) fn fail_all_guests(&mut self) {
        let mut ids: BTreeSet<GuestId> = BTreeSet::new();
        ids.extend(self.queue.drain(..).map(|waiting| waiting.guest));
        ids.extend(self.ops_guests());
        ids.extend(self.fills.values().map(|fill| fill.waiting.guest));
        ids.extend(self.syncs.values().filter_map(super::sync::Sync::guest));
        ids.extend(self.flush.take_all());
        ids.extend(self.barriers.drain(..).map(|(id, _)| id));
        ids.extend(self.barrier.take().map(|barrier| barrier.guest));
        self.parts.clear();
        for id in ids {
            self.out.push(Action::Reply { id, result: Err(GuestError::Shutdown) });
        }
    }
}

/// The runs of a range, given its blocks.
fn extents(blocks: &[BlockState], span: Span) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut at = span.start;
    for block in blocks {
        let end = (at / BLOCK * BLOCK + BLOCK).min(span.end);
        let (length, hole) = (end.saturating_sub(at), *block == BlockState::Zero);
        at = end;
        match extents.last_mut() {
            Some(last) if last.hole == hole => last.length += length,
            _ => extents.push(Extent { length, hole }),
        }
    }
    extents.retain(|extent| extent.length > 0);
    extents
}

/// The length of a range that is known to be short.
pub(super) fn length(span: Span) -> u32 {
    u32::try_from(span.len()).expect("ranges are cut to less than 4 GiB")
}
