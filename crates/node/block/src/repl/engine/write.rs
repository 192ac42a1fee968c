//! Writes of the guest: whole blocks go out as they are, others are filled up first.
//!
//! Replicas store and sum whole blocks only. For a write that begins or ends inside a block the
//! engine locks the blocks, reads the missing parts from one member, and writes the whole.

use bytes::{Bytes, BytesMut};

use super::Engine;
use super::event::{GuestError, Time};
use super::guest::{GuestOperation, Waiting, length};
use super::ops::{OneResult, Owner};
use crate::repl::span::Span;
use crate::wire::{BLOCK, Crcs, Reply, Request};

/// A write that waits for the rest of its first and last block.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) waiting: Waiting,
    span: Span,
    /// The blocks as far as they are known; the guest's bytes are put in at the end.
    buffer: BytesMut,
    left: usize,
    since: Time,
}

impl Engine {
    pub(super) fn start_write(&mut self, waiting: Waiting) {
        let GuestOperation::Write { offset, data, fua } = &waiting.what else { return };
        let span = waiting.span();
        if span.start == *offset && span.len() == data.len() as u64 {
            let data = self.cover(*offset, data.clone());
            let crcs = Crcs::of(&data);
            let request = Request::Write { offset: *offset, data, crcs, fua: *fua };
            let since = waiting.since;
            return self.issue_change(request, waiting, since, None);
        }
        self.begin_fill(waiting);
    }

    pub(super) fn start_zeroes(&mut self, waiting: Waiting) {
        let GuestOperation::WriteZeroes { span, fua } = waiting.what else { return };
        if span == waiting.span() {
            let request = Request::WriteZeroes { offset: span.start, length: length(span), fua };
            let since = waiting.since;
            return self.issue_change(request, waiting, since, None);
        }
        match usize::try_from(span.len()) {
            Ok(len) if span.len() <= u64::from(crate::wire::MAX_DATA) => {
                let data = Bytes::from(vec![0; len]);
                let what = GuestOperation::Write { offset: span.start, data, fua };
                self.begin_fill(Waiting { what, ..waiting });
            }
            _ => self.cut_zeroes(waiting, span, fua),
        }
    }

    /// The ragged ends of a long range become writes of their own.
    fn cut_zeroes(&mut self, waiting: Waiting, span: Span, fua: bool) {
        let start = span.start.next_multiple_of(BLOCK);
        let end = span.end / BLOCK * BLOCK;
        let pieces = [
            Span { start: span.start, end: start },
            Span { start, end },
            Span { start: end, end: span.end },
        ];
        let pieces: Vec<Span> =
            pieces.into_iter().filter(|piece| piece.start < piece.end).collect();
        self.add_parts(waiting.guest, pieces.len());
        for span in pieces.into_iter().rev() {
            self.queue.push_front(Waiting {
                what: GuestOperation::WriteZeroes { span, fua },
                ..waiting.clone()
            });
        }
    }

    fn begin_fill(&mut self, waiting: Waiting) {
        let span = waiting.span();
        let id = self.number();
        self.locks.change(id, span);
        let size = usize::try_from(span.len()).expect("within MAX_DATA");
        let since = waiting.since;
        let fill = Fill { waiting, span, buffer: BytesMut::zeroed(size), left: 0, since };
        self.fills.insert(id, fill);
        self.read_ends(id);
    }

    fn read_ends(&mut self, id: u64) {
        let Some(fill) = self.fills.get_mut(&id) else { return };
        let GuestOperation::Write { offset, data, .. } = &fill.waiting.what else { return };
        let (from, to) = (*offset, *offset + data.len() as u64);
        let mut ends = Vec::new();
        if from % BLOCK != 0 {
            ends.push(from / BLOCK * BLOCK);
        }
        let last = to / BLOCK * BLOCK;
        if to % BLOCK != 0 && ends.first() != Some(&last) {
            ends.push(last);
        }
        fill.left = ends.len();
        let Some(slot) = self.readable().iter().next() else { return self.requeue_fill(id) };
        for offset in ends {
            let request = Request::Read { view: None, offset, length: BLOCK as u32 };
            self.issue_one(request, slot, Owner::Fill { fill: id, offset });
        }
    }

    pub(super) fn filled(&mut self, id: u64, offset: u64, result: OneResult) {
        match result {
            Ok(Reply::Data { data, crcs })
                if data.len() as u64 == BLOCK && crcs.mismatch(&data).is_none() =>
            {
                let data = self.uncover(offset, data);
                let Some(fill) = self.fills.get_mut(&id) else { return };
                let at = usize::try_from(offset - fill.span.start).expect("within MAX_DATA");
                fill.buffer[at..at + data.len()].copy_from_slice(&data);
                fill.left = fill.left.saturating_sub(1);
                if fill.left == 0 {
                    self.write_filled(id);
                }
            }
            Err(None) => self.requeue_fill(id),
            _ => self.abandon_fill(id),
        }
    }

    /// The member went away; the write begins anew when a member can be asked.
    fn requeue_fill(&mut self, id: u64) {
        if let Some(fill) = self.fills.remove(&id) {
            self.locks.change_done(id, fill.span);
            self.queue.push_front(fill.waiting);
        }
    }

    fn write_filled(&mut self, id: u64) {
        let Some(mut fill) = self.fills.remove(&id) else { return };
        let GuestOperation::Write { offset, data, fua } = &fill.waiting.what else { return };
        let at = usize::try_from(*offset - fill.span.start).expect("within a block");
        fill.buffer[at..at + data.len()].copy_from_slice(data);
        let data = self.cover(fill.span.start, fill.buffer.freeze());
        let crcs = Crcs::of(&data);
        let request = Request::Write { offset: fill.span.start, data, crcs, fua: *fua };
        self.issue_change(request, fill.waiting, fill.since, Some(id));
    }

    /// A block could not be read. A read of it is what repairs it, so one goes first.
    fn abandon_fill(&mut self, id: u64) {
        let Some(fill) = self.fills.remove(&id) else { return };
        self.locks.change_done(id, fill.span);
        let mut waiting = fill.waiting;
        waiting.attempts += 1;
        if waiting.attempts > 8 {
            return self.reply(waiting.guest, Err(GuestError::Io));
        }
        self.begin_repair(waiting);
    }
}
