//! Verification of the metadata on disk while the replica is used, piece by piece.
//!
//! ```text
//!  Next ─► Reading ─► compared ─┬─ intact ─────────────────────────────► next piece
//!   ▲                           ├─ lost, or left and reported ─────────► next piece
//!   │                           ├─ rebuild: the replica stops
//!   │                           └─ rewrite ─► Writing, Cleaning, … ─┐
//!   └───────────────────────── the same piece again ────────────────┘
//! ```
//!
//! The content to compare with does not change meanwhile: a clean does not begin while a piece is
//! read or written again, and nothing is read while a clean runs. Guests wait for neither. They
//! take turns: after some pieces a clean that is wanted begins, and after a clean come some pieces.

mod compare;
mod pieces;
mod rewrite;

use std::collections::VecDeque;

use self::compare::{Compared, Fix};
use self::pieces::Piece;
use super::gate::Side;
use super::{Life, OpStep, Purpose, Replica};
use crate::store::metadata::{Found, MetadataReport, PageContent, Peers, Remedy, judge};
use crate::store::request::{IoResult, Reply, RequestError, StopReason};
use crate::store::slab::Key;

/// Pieces that are read while a clean waits.
const PIECES_IN_TURN: u32 = 8;

#[derive(Debug)]
pub(super) struct MetadataOp {
    pieces: VecDeque<Piece>,
    peers: Peers,
    /// How often the first piece was written again.
    attempts: u32,
    step: Step,
    /// Files of layers stay while they are read.
    entered: Option<Side>,
    report: MetadataReport,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Next,
    /// `stamp` changes if the piece is written meanwhile.
    Reading {
        stamp: u64,
    },
    /// Slots are written in place, and then made durable.
    Writing {
        left: u32,
        failed: Option<crate::store::IoFault>,
    },
    Syncing,
    /// Until the clean with this number has ended.
    Cleaning {
        ticket: u64,
    },
    /// Until the super block was written.
    Changing,
    /// The file of recent changes is made.
    MakingRecent,
    /// It waits for a record that is being written.
    RecentWaiting,
    /// The file `sums` is made.
    MakingSums,
}

/// Which verification reads a piece now, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Verifying {
    owner: Option<Key>,
    /// A clean has just ended: pieces are read before the next one.
    has_turn: bool,
    /// Pieces that may still be read before a clean that is wanted.
    left_in_turn: u32,
    /// Records of recent changes wait.
    holds_records: bool,
    waiting: Vec<Key>,
    /// Wait for the super block to be at rest.
    changing: Vec<Key>,
}

impl Verifying {
    pub(super) fn holds_cleans(&self) -> bool {
        self.owner.is_some()
    }

    pub(super) fn holds_records(&self) -> bool {
        self.holds_records
    }
}

impl MetadataOp {
    pub(super) fn new(replica: &Replica, regions: &std::ops::Range<u32>, peers: Peers) -> Self {
        Self {
            pieces: pieces::of(replica, regions),
            peers,
            attempts: 0,
            step: Step::Next,
            entered: None,
            report: MetadataReport::default(),
        }
    }

    fn next_piece(&mut self) {
        self.pieces.pop_front();
        self.attempts = 0;
        self.step = Step::Next;
    }
}

impl Replica {
    pub(super) fn step_metadata(&mut self, key: Key, op: &mut MetadataOp) -> OpStep {
        if op.entered.is_none() {
            op.entered = Some(self.gate.enter());
        }
        loop {
            if self.is_ending() {
                self.end_metadata(key, op);
                return OpStep::Done(Err(RequestError::Closed));
            }
            let goes_on = match (op.step, op.pieces.front().copied()) {
                (Step::Cleaning { ticket }, _) => self.after_metadata_clean(ticket, key, op),
                (Step::Changing, _) => self.after_super(key, op),
                (Step::RecentWaiting, _) => self.write_recent(key, op),
                (Step::Next, Some(piece)) => self.begin_piece(key, op, piece),
                (Step::Next, None) => {
                    self.end_metadata(key, op);
                    let report = std::mem::take(&mut op.report);
                    return OpStep::Done(Ok(Reply::Metadata(report)));
                }
                _ => false,
            };
            if !goes_on {
                return OpStep::Wait;
            }
        }
    }

    /// A clean that began now would not belong to the session any more.
    fn is_ending(&self) -> bool {
        self.life != Life::Serving || self.control.is_closing()
    }

    /// Reads the next piece. False if the operation waits.
    fn begin_piece(&mut self, key: Key, op: &mut MetadataOp, piece: Piece) -> bool {
        if self.verifying.owner != Some(key) && !self.take_turn(key) {
            if self.read_of(&piece).is_none() {
                self.found(key, op, Found::Intact, Fix::Nothing);
                return true;
            }
            self.verifying.waiting.push(key);
            return false;
        }
        if piece == Piece::Recent {
            // Its content is known while no record is being written.
            self.verifying.holds_records = true;
            if self.recent.is_writing() {
                self.record_waiters.push(key);
                return false;
            }
        }
        let Some((file, read)) = self.read_of(&piece) else {
            self.found(key, op, Found::Intact, Fix::Nothing);
            return true;
        };
        op.step = Step::Reading { stamp: self.stamp_of(&piece) };
        self.issue(Purpose::Op { op: key, part: 0 }, file, read);
        false
    }

    fn take_turn(&mut self, key: Key) -> bool {
        let free = self.verifying.owner.is_none() && self.clean.is_idle();
        let takes = free && (self.verifying.has_turn || !self.clean.is_wanted());
        if takes {
            self.verifying.owner = Some(key);
            self.verifying.has_turn = false;
            self.verifying.left_in_turn = PIECES_IN_TURN;
        }
        takes
    }

    /// A piece is done.
    fn end_piece(&mut self, key: Key) {
        if self.verifying.owner != Some(key) {
            return;
        }
        self.verifying.holds_records = false;
        self.verifying.left_in_turn = self.verifying.left_in_turn.saturating_sub(1);
        if self.verifying.left_in_turn == 0 || !self.clean.is_wanted() {
            self.release_metadata(key);
        }
    }

    pub(super) fn metadata_io(
        &mut self,
        key: Key,
        op: &mut MetadataOp,
        result: IoResult,
    ) -> OpStep {
        if let Step::Writing { left, failed } = &mut op.step {
            *left -= 1;
            *failed = failed.or(result.as_ref().err().copied());
            if *left > 0 {
                // A clean that began now might write the same slot.
                return OpStep::Wait;
            }
        }
        if self.is_ending() {
            self.end_metadata(key, op);
            return OpStep::Done(Err(RequestError::Closed));
        }
        match op.step {
            Step::Reading { stamp } => {
                if let Some(stop) = self.piece_read(key, op, stamp, &result) {
                    return stop;
                }
            }
            Step::Writing { failed, .. } => self.slots_written(key, op, failed),
            Step::Syncing => self.slots_synced(key, op, &result),
            Step::MakingRecent => self.recent_made(key, op, &result),
            Step::MakingSums => self.sums_made(key, op, &result),
            Step::Next | Step::Cleaning { .. } | Step::Changing | Step::RecentWaiting => {
                unreachable!("no operation on a file is in flight")
            }
        }
        self.step_metadata(key, op)
    }

    fn piece_read(
        &mut self,
        key: Key,
        op: &mut MetadataOp,
        stamp: u64,
        result: &IoResult,
    ) -> Option<OpStep> {
        let piece = op.pieces.front().copied()?;
        // It was written meanwhile, or belongs to a layer that is gone.
        let passed = stamp != self.stamp_of(&piece) || !self.has_piece(&piece);
        let follow = match self.compare(&piece, result) {
            _ if passed => return self.found(key, op, Found::Intact, Fix::Nothing),
            Compared::One(found, fix) => return self.found(key, op, found, fix),
            Compared::Regions(single) => single,
            Compared::Followed(rest) => {
                op.report.repaired += u32::from(op.attempts > 0);
                vec![rest]
            }
        };
        op.next_piece();
        follow.into_iter().rev().for_each(|piece| op.pieces.push_front(piece));
        self.end_piece(key);
        None
    }

    /// The finding about the first piece, and its consequence.
    fn found(&mut self, key: Key, op: &mut MetadataOp, found: Found, fix: Fix) -> Option<OpStep> {
        let file = op.pieces.front()?.file();
        let content = match fix {
            Fix::Nothing => PageContent::Lost,
            _ => PageContent::Known,
        };
        match judge(found, content, op.attempts, op.peers) {
            Remedy::Rewrite => {
                op.attempts += 1;
                self.rewrite(key, op, fix);
                return None;
            }
            Remedy::Rebuild => {
                let reason = StopReason::Damaged { file };
                self.stop(reason);
                return Some(OpStep::Done(Err(RequestError::Stopped { reason })));
            }
            Remedy::Nothing => op.report.repaired += u32::from(op.attempts > 0),
            Remedy::LoseBlocks => op.report.lost_pages += 1,
            Remedy::Report(fault) => op.report.leave(file, fault),
        }
        op.next_piece();
        self.end_piece(key);
        None
    }

    /// Lets cleans, records and other verifications go on.
    fn release_metadata(&mut self, key: Key) {
        if self.verifying.owner == Some(key) {
            self.verifying.owner = None;
            self.verifying.holds_records = false;
            self.wake_verifications();
        }
    }

    fn wake_verifications(&mut self) {
        let waiting = std::mem::take(&mut self.verifying.waiting);
        self.ready.extend(waiting);
    }

    /// A clean has ended, well or not.
    pub(super) fn clean_has_ended(&mut self) {
        self.verifying.has_turn = !self.verifying.waiting.is_empty();
        self.wake_verifications();
    }

    /// The super block may be at rest.
    pub(super) fn advance_verifications(&mut self) {
        if self.control.is_idle() {
            let waiting = std::mem::take(&mut self.verifying.changing);
            self.ready.extend(waiting);
        }
    }

    pub(super) fn end_metadata(&mut self, key: Key, op: &mut MetadataOp) {
        self.release_metadata(key);
        if let Some(side) = op.entered.take() {
            self.gate.leave(side);
        }
    }
}
