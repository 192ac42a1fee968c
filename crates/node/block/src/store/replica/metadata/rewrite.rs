//! Writing damaged metadata again.
//!
//! Pages of maps and indexes are written in place, with the bytes that count: only into slots that
//! are damaged, so that a power cut costs nothing that was there. The log and the super block are
//! written as they are when something changes.

use bytes::Bytes;

use super::compare::Fix;
use super::{MetadataOp, Step};
use crate::store::cache::{Known, PageKey};
use crate::store::files::FileId;
use crate::store::metadata::MetadataFault;
use crate::store::recent::stamp::encode_stamp;
use crate::store::region::Eager;
use crate::store::replica::metadata::pieces::Piece;
use crate::store::replica::{Purpose, Replica, own_map};
use crate::store::request::{IoFault, IoOp, IoResult};
use crate::store::slab::Key;

impl Replica {
    pub(super) fn rewrite(&mut self, key: Key, op: &mut MetadataOp, fix: Fix) {
        let purpose = Purpose::Op { op: key, part: 0 };
        match fix {
            Fix::Nothing => unreachable!("its content is lost"),
            Fix::Slots(file, slots) => {
                op.step = Step::Writing { left: slots.len() as u32, failed: None };
                for (offset, data) in slots {
                    self.issue(purpose, file, IoOp::Write { offset, data, durable: false });
                }
            }
            Fix::Clean => {
                op.step = Step::Cleaning { ticket: self.want_clean(Eager::No) };
                self.release_metadata(key);
            }
            Fix::Super(damaged) => {
                self.control.write_again(damaged);
                op.step = Step::Changing;
                self.release_metadata(key);
            }
            Fix::Recent => {
                self.verifying.holds_records = true;
                op.step = Step::RecentWaiting;
            }
            Fix::NewRecent => {
                self.verifying.holds_records = true;
                op.step = Step::MakingRecent;
                self.issue(purpose, FileId::Recent, IoOp::Create);
            }
            Fix::NewSums => {
                op.step = Step::MakingSums;
                self.issue(purpose, FileId::Sums, IoOp::Create);
            }
        }
    }

    /// Every write in place has ended.
    pub(super) fn slots_written(&mut self, key: Key, op: &mut MetadataOp, failed: Option<IoFault>) {
        match (failed, op.pieces.front().map(Piece::file)) {
            (Some(fault), _) => self.leave_piece(key, op, fault),
            // It is never synced.
            (None, None | Some(FileId::Recent)) => self.read_again(key, op),
            (None, Some(file)) => {
                op.step = Step::Syncing;
                self.issue(Purpose::Op { op: key, part: 0 }, file, IoOp::Sync);
            }
        }
    }

    pub(super) fn slots_synced(&mut self, key: Key, op: &mut MetadataOp, result: &IoResult) {
        match (result, op.pieces.front().map(Piece::file)) {
            (Err(fault), Some(file)) => self.cannot_sync(file, *fault),
            _ => self.read_again(key, op),
        }
    }

    fn read_again(&mut self, key: Key, op: &mut MetadataOp) {
        op.step = Step::Next;
        self.release_metadata(key);
    }

    fn leave_piece(&mut self, key: Key, op: &mut MetadataOp, fault: IoFault) {
        if let Some(piece) = op.pieces.front() {
            let fault = match fault {
                IoFault::NoSpace => MetadataFault::NoSpace,
                IoFault::Errno(_) => MetadataFault::Damaged,
            };
            op.report.leave(piece.file(), fault);
        }
        op.next_piece();
        self.release_metadata(key);
    }

    /// False if the operation waits.
    pub(super) fn after_metadata_clean(
        &mut self,
        ticket: u64,
        key: Key,
        op: &mut MetadataOp,
    ) -> bool {
        match self.cleaned(ticket) {
            None => {
                self.verifying.waiting.push(key);
                return false;
            }
            Some(Ok(())) => {
                // A piece that has just been written is verified too.
                if let Some(Piece::Log { upto, .. }) = op.pieces.front_mut() {
                    *upto = self.log.live().end;
                }
                op.step = Step::Next;
            }
            Some(Err(_)) => self.leave_piece(key, op, IoFault::NoSpace),
        }
        true
    }

    /// False if the operation waits.
    pub(super) fn after_super(&mut self, key: Key, op: &mut MetadataOp) -> bool {
        let idle = self.control.is_idle();
        match idle {
            true => op.step = Step::Next,
            false => self.verifying.changing.push(key),
        }
        idle
    }

    pub(super) fn recent_made(&mut self, key: Key, op: &mut MetadataOp, result: &IoResult) {
        match result {
            Ok(_) => op.step = Step::RecentWaiting,
            Err(fault) => self.leave_piece(key, op, *fault),
        }
    }

    /// Writes the file of recent changes, once no record is being written. False: the operation
    /// waits.
    pub(super) fn write_recent(&mut self, key: Key, op: &mut MetadataOp) -> bool {
        if self.recent.is_writing() {
            self.record_waiters.push(key);
            return false;
        }
        let (boot, tag) = (self.boot, self.meta.tag());
        let Self { recent, cache, .. } = self;
        let mut bytes = recent.written_anew(boot, tag, |(file, region)| {
            match cache.known(PageKey { file: own_map(file), region }) {
                Known::Cached(index) => Some(cache.page(index).current),
                Known::Blank | Known::Unknown => None,
            }
        });
        bytes.extend(encode_stamp(boot, tag, self.meta.body.session));
        op.step = Step::Writing { left: 1, failed: None };
        let write = IoOp::Write { offset: 0, data: Bytes::from(bytes), durable: false };
        self.issue(Purpose::Op { op: key, part: 0 }, FileId::Recent, write);
        false
    }

    pub(super) fn sums_made(&mut self, key: Key, op: &mut MetadataOp, result: &IoResult) {
        match result {
            Ok(_) => {
                self.log_mark.forget();
                self.sums.write_anew();
                self.mark_log();
                self.read_again(key, op);
            }
            Err(fault) => self.leave_piece(key, op, *fault),
        }
    }
}
