//! Reading the data of a suspect region again, and giving space back.
//!
//! After an unclean stop the data of an active region may be newer than the checksums in its map. It
//! is read once before the region is used, and each block is judged by what is known of it:
//!
//! - After a kill, the file `sums` has the checksums as of the last flush, and says which blocks may
//!   have been written since ([`crate::store::sums::places`]). A block that was flushed must match,
//!   or it is damaged: its checksum stays as it was recorded, and reads of it fail or are repaired
//!   from peers.
//! - A block that may have been written since the last flush is taken as it is: the write that was
//!   under way may have left the old content, the new, or some sectors of each, as on any disk.
//! - After a power cut all blocks of active regions are taken as they are. Writes since the last
//!   flush may have reached the disk without a trace of them elsewhere; only a sync before each
//!   write could distinguish them from damage.
//!
//! Every later read gives what was found now. The replication core finds out whether peers hold the
//! same, by comparing.

use super::access::Lookup;
use super::{OpKind, OpStep, Parking, Purpose, Replica, own_data, own_map};
use crate::store::cache::{Known, PageKey};
use crate::store::crc;
use crate::store::files::FileNo;
use crate::store::geometry::{BLOCK, Blocks, REGION_BLOCKS, Region, Span};
use crate::store::layer::written_files;
use crate::store::request::{IoFault, IoOp, IoResult, Reply, RequestError};
use crate::store::sabotage::{Check, is_left_out};
use crate::store::slab::Key;

/// Regions that wait for their space to be freed; those above this limit keep their space until
/// they are written or zeroed again.
pub(super) const MAX_PUNCHES: usize = 4096;

/// Fewer blocks in a row are not worth a change of the file system's metadata.
const MIN_PUNCH: u32 = 16;

#[derive(Debug)]
pub(super) struct VerifyOp {
    region: Region,
    /// The files that may have been written in the region; the last is read first.
    files: Vec<FileNo>,
    reading: Option<Span>,
}

impl Replica {
    pub(super) fn start_verify(&mut self, region: Region) {
        let body = &self.meta.body;
        let files = written_files(&body.layers, body.work.as_ref());
        self.work.verifying += 1;
        let key = self.ops.insert(super::Op {
            request: None,
            kind: OpKind::Verify(VerifyOp { region, files, reading: None }),
        });
        self.ready.push_back(key);
    }

    /// Verifies regions that no request needed yet, one region at a time: only then can it become
    /// inactive, and a snapshot be used as a base.
    pub(super) fn advance_verify(&mut self) {
        if self.work.verifying == 0
            && self.life == super::Life::Serving
            && let Some(region) = self.regions.next_unverified()
        {
            self.regions.entry(region).verifying = true;
            self.start_verify(region);
        }
    }

    pub(super) fn step_verify(&mut self, key: Key, verify: &mut VerifyOp) -> OpStep {
        if verify.reading.is_some() {
            return OpStep::Wait;
        }
        // New writes wait for us; those in flight record their checksums first.
        let entry = self.regions.entry(verify.region);
        if entry.writers > 0 {
            entry.waiting.push(key);
            return OpStep::Wait;
        }
        while let Some(file) = verify.files.last().copied() {
            if self.meta.body.layers.by_file(file).is_none() {
                verify.files.pop();
                continue;
            }
            let mut parking = Parking::new(key);
            let page = PageKey { file: own_map(file), region: verify.region };
            let index = match self.look_up(&mut parking, page) {
                Ok(Lookup::Wait) => return OpStep::Wait,
                Ok(Lookup::Blank) => {
                    verify.files.pop();
                    continue;
                }
                Ok(Lookup::Page(index)) => index,
                Err(error) => {
                    self.abandon_verify(verify, &error);
                    return OpStep::Done(Err(error));
                }
            };
            let page = self.cache.page_mut(index);
            let Some(first) = page.current.data.next(0) else {
                self.sums.take_left((file, verify.region));
                verify.files.pop();
                continue;
            };
            let last = page.current.data.runs().last().map_or(first, |(at, count)| at + count);
            page.pins += 1;
            let span = Span { region: verify.region, first, count: last - first };
            verify.reading = Some(span);
            let op = IoOp::Read { offset: span.start(), len: span.bytes() };
            self.issue(Purpose::Op { op: key, part: 0 }, own_data(file), op);
            return OpStep::Wait;
        }
        self.regions.verified(verify.region);
        self.want_room();
        self.work.verifying -= 1;
        self.wake_region(verify.region);
        OpStep::Done(Ok(Reply::Done))
    }

    pub(super) fn verify_io(
        &mut self,
        key: Key,
        verify: &mut VerifyOp,
        result: IoResult,
    ) -> OpStep {
        let span = verify.reading.take().expect("a read is in flight");
        let file = verify.files.pop().expect("the file that was read");
        let key_of = PageKey { file: own_map(file), region: verify.region };
        let Known::Cached(index) = self.cache.known(key_of) else {
            // The layer was dropped meanwhile.
            return self.step_verify(key, verify);
        };
        let page = self.cache.page_mut(index);
        page.pins -= 1;
        let data = match result {
            Ok(data) if data.len() as u64 == span.bytes() => data,
            other => {
                let errno = other.err().map_or(5, IoFault::errno);
                let error = RequestError::Io { file: own_data(file), errno };
                self.abandon_verify(verify, &error);
                return OpStep::Done(Err(error));
            }
        };
        let name = (file, verify.region);
        let (open, left) = (self.sums.open_blocks(name), self.sums.take_left(name));
        let page = self.cache.page_mut(index);
        let mut rechecked = 0;
        for (block, found) in (span.first..).zip(crc::of_blocks(&data)) {
            let known = &mut page.crcs[block as usize];
            let sum = match &left {
                _ if open.contains(block) || is_left_out(Check::Sums) => found,
                Some(left) => left[block as usize],
                None => *known,
            };
            if page.current.data.contains(block) && *known != sum {
                *known = sum;
                rechecked += 1;
            }
        }
        if rechecked > 0 {
            page.version = page.version.wrapping_add(1);
            self.rechecked += rechecked;
        }
        self.keep_page(name);
        self.step_verify(key, verify)
    }

    /// The region stays suspect; operations that need it get the error.
    pub(super) fn abandon_verify(&mut self, verify: &mut VerifyOp, error: &RequestError) {
        self.work.verifying -= 1;
        let entry = self.regions.entry(verify.region);
        entry.verifying = false;
        // Not by ourselves again: the disk would be asked for ever.
        entry.unreadable = true;
        let waiting = std::mem::take(&mut entry.waiting);
        self.fail_ops(waiting, error);
    }
}

/// Gives the space of a region's unused blocks back, under the region's lock.
#[derive(Debug)]
pub(super) struct PunchOp {
    file: FileNo,
    region: Region,
    left: u32,
    locked: bool,
}

impl Replica {
    pub(super) fn advance_punch(&mut self) {
        let serving = self.life == super::Life::Serving;
        if self.punching || !serving || self.control.is_holding() {
            return;
        }
        if let Some((file, region)) = self.to_punch.pop_first() {
            self.punching = true;
            let punch = PunchOp { file, region, left: 0, locked: false };
            self.start(None, OpKind::Punch(punch));
        }
    }

    pub(super) fn step_punch(&mut self, key: Key, punch: &mut PunchOp) -> OpStep {
        if punch.left > 0 {
            return OpStep::Wait;
        }
        let mut parking = Parking::new(key);
        if !punch.locked {
            if !self.lock(&mut parking, punch.region) {
                return OpStep::Wait;
            }
            punch.locked = true;
        }
        let page = PageKey { file: own_map(punch.file), region: punch.region };
        let used = match self.look_up(&mut parking, page) {
            Ok(Lookup::Wait) => return OpStep::Wait,
            Ok(Lookup::Blank) => Blocks::NONE,
            // A block that was not committed as unused would come back after a power cut.
            Ok(Lookup::Page(index)) => {
                let page = self.cache.page(index);
                page.current.data.or(&page.committed.data).or(&page.target.data)
            }
            Err(error) => {
                self.abandon_punch(punch);
                return OpStep::Done(Err(error));
            }
        };
        let unused = Blocks::of(0, REGION_BLOCKS).without(&used);
        for (first, count) in unused.runs().filter(|(_, count)| *count >= MIN_PUNCH) {
            let offset = punch.region.start() + u64::from(first) * BLOCK;
            let op = IoOp::Punch { offset, len: u64::from(count) * BLOCK };
            self.issue(Purpose::Op { op: key, part: 0 }, own_data(punch.file), op);
            punch.left += 1;
        }
        if punch.left > 0 {
            return OpStep::Wait;
        }
        self.abandon_punch(punch);
        OpStep::Done(Ok(Reply::Done))
    }

    /// A failure costs space, nothing else.
    pub(super) fn punch_io(&mut self, punch: &mut PunchOp, _result: IoResult) -> OpStep {
        punch.left -= 1;
        if punch.left > 0 {
            return OpStep::Wait;
        }
        // The zeroes must not come after a write that follows.
        self.unsynced.insert(punch.file);
        self.abandon_punch(punch);
        OpStep::Done(Ok(Reply::Done))
    }

    pub(super) fn abandon_punch(&mut self, punch: &mut PunchOp) {
        if punch.locked {
            self.unlock(punch.region);
        }
        self.punching = false;
    }
}
