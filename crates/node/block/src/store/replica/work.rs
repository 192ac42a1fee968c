//! Background work: merging a removed layer into its neighbour, and hydration of a clone.
//!
//! ```text
//!   ┌─── nothing to copy: next region ───┐
//!   ▼                                    │
//! Lock ─► Scan ──────────────────────────┤
//!   ▲       └─► Prepare ─► Copying ──────┤
//!   └────────────────────────────────────┤
//!                                        └─ batch full ─► Flushing ─► Cursor ─► unlock, done
//! ```
//!
//! A batch copies at most [`BATCH`] regions: writes to them wait until their copies are
//! durable and the cursor has passed. Reads go on. Work is done while there is a budget; the
//! driver grants it, so the driver decides how much guests may feel.
//!
//! Every region that the cursor passes is locked, also one with nothing to copy: in a merge down
//! of the head, the cursor decides where a write goes.

mod todo;

use super::access::data_error;
use super::control::Change;
use super::flush::Waiter;
use super::read::Resolving;
use super::record::Safe;
use super::{LogWaiter, OpKind, OpStep, Parking, Purpose, Replica, own_data};
use crate::store::crc;
use crate::store::files::FileNo;
use crate::store::geometry::{BLOCK, Blocks, REGION_BLOCKS, Region, region_count};
use crate::store::layer::Disposal;
use crate::store::log::Record;
use crate::store::request::{IoFault, IoOp, IoResult, Reply, RequestError};
use crate::store::slab::Key;
use crate::store::sums::places::ALL;

use self::todo::{Piece, Todo};

/// Regions in one batch.
const BATCH: usize = 4;
/// Regions that are checked in one go.
const SCAN: usize = 64;

#[derive(Debug)]
pub(super) struct WorkState {
    cursor: Region,
    /// The last cursor that is in the log, or on its way there.
    logged: Region,
    budget: u64,
    running: bool,
    /// Why it does not go on; cleared by the next grant.
    pub(super) stalled: Option<RequestError>,
    pub(super) copied: u64,
    /// Regions whose checksums are being read again.
    pub(super) verifying: u32,
}

impl WorkState {
    pub(super) fn new(cursor: Region) -> Self {
        let logged = cursor;
        Self { cursor, logged, budget: 0, running: false, stalled: None, copied: 0, verifying: 0 }
    }

    pub(super) fn cursor(&self) -> Region {
        self.cursor
    }

    /// For a checkpoint, which is written after every record in flight: it must not be older than
    /// the records that it replaces.
    pub(super) fn logged_cursor(&self) -> Region {
        self.logged
    }

    pub(super) fn grant(&mut self, bytes: u64) {
        self.budget = self.budget.saturating_add(bytes);
        self.stalled = None;
    }

    pub(super) fn is_paused(&self) -> bool {
        !self.running
    }

    /// Other work, or none.
    pub(super) fn restart(&mut self) {
        self.cursor = Region(0);
        self.logged = Region(0);
        self.copied = 0;
    }

    /// A step of the work was refused: try again when there is a new grant.
    pub(super) fn stall(&mut self, change: &Change, error: &RequestError) {
        if !matches!(change, Change::Request(_) | Change::Seal | Change::Rewrite) {
            self.stalled = Some(error.clone());
        }
    }
}

#[derive(Debug)]
pub(super) struct BatchOp {
    at: Region,
    stage: Stage,
    locked: Vec<Region>,
    regions: usize,
    copied: u64,
    resolving: Option<Box<Resolving>>,
}

#[derive(Debug)]
enum Stage {
    Lock,
    Scan,
    Prepare,
    Copying { todo: Box<Todo>, left: u32, failed: Option<RequestError> },
    Flushing,
    Cursor,
}

impl Replica {
    /// Begins, continues or finishes work if that is possible.
    pub(super) fn advance_work(&mut self) {
        let free = self.life == super::Life::Serving && self.control.is_idle();
        if !free || self.work.running || self.work.stalled.is_some() {
            return;
        }
        if self.meta.body.work.is_none() {
            let body = &self.meta.body;
            if let Some(disposal) = body.layers.disposal(&body.pins) {
                self.control.enqueue_own(match disposal {
                    Disposal::Drop(no) => Change::DropLayer(no),
                    Disposal::Merge(kind) => Change::BeginWork(kind),
                });
                self.advance_control();
            }
        } else if self.work.cursor.0 >= region_count(self.meta.size) {
            self.control.enqueue_own(Change::FinishWork);
            self.advance_control();
        } else if self.work.budget > 0 {
            self.work.running = true;
            let at = self.work.cursor;
            let batch = BatchOp {
                at,
                stage: Stage::Lock,
                locked: Vec::new(),
                regions: 0,
                copied: 0,
                resolving: None,
            };
            self.start(None, OpKind::Batch(batch));
        }
    }

    pub(super) fn step_batch(&mut self, key: Key, batch: &mut BatchOp) -> OpStep {
        loop {
            let mut parking = Parking::new(key);
            let went_on = match &batch.stage {
                Stage::Lock => Ok(self.lock_next(&mut parking, key, batch)),
                Stage::Scan => self.scan(&mut parking, batch),
                Stage::Prepare => self.prepare_copy(&mut parking, key, batch),
                Stage::Copying { .. } => Ok(false),
                Stage::Flushing => {
                    let work = self.meta.body.work.as_ref().map_or(0, |work| work.no);
                    let lsn = self.log.append(Record::Cursor { work, region: batch.at });
                    self.work.logged = batch.at;
                    self.log_waiters.push_back((lsn, LogWaiter::Op(key)));
                    batch.stage = Stage::Cursor;
                    Ok(false)
                }
                Stage::Cursor => {
                    self.finish_batch(batch);
                    return OpStep::Done(Ok(Reply::Done));
                }
            };
            match went_on {
                Ok(true) => {}
                Ok(false) => return OpStep::Wait,
                Err(error) => {
                    self.abandon_batch(batch, &error);
                    return OpStep::Done(Err(error));
                }
            }
        }
    }

    /// Takes the next region, unless the batch is full or everything is done.
    fn lock_next(&mut self, parking: &mut Parking, key: Key, batch: &mut BatchOp) -> bool {
        // Locked regions stay active; there must be room for one more.
        let most = SCAN.min(self.regions.limit() / 2);
        let full = batch.regions >= BATCH
            || batch.locked.len() >= most
            || batch.copied >= self.work.budget
            || self.control.is_holding()
            || batch.at.0 >= region_count(self.meta.size);
        if full {
            batch.stage = Stage::Flushing;
            self.want_flush(Waiter::Op(key));
            return false;
        }
        let locked = self.lock(parking, batch.at);
        if locked {
            batch.locked.push(batch.at);
            batch.stage = Stage::Scan;
        }
        locked
    }

    /// Finds out whether there is something to copy.
    fn scan(&mut self, parking: &mut Parking, batch: &mut BatchOp) -> Result<bool, RequestError> {
        match self.todo(parking, batch.at, &mut batch.resolving)? {
            None => return Ok(false),
            Some(todo) if todo.is_empty() => {
                batch.at = batch.at.next();
                batch.stage = Stage::Lock;
            }
            Some(_) => batch.stage = Stage::Prepare,
        }
        Ok(true)
    }

    /// Begins to read.
    fn prepare_copy(
        &mut self,
        parking: &mut Parking,
        key: Key,
        batch: &mut BatchOp,
    ) -> Result<bool, RequestError> {
        let target = self.target_file();
        let Some(index) = self.ready_to_change(parking, target, batch.at, &ALL)? else {
            return Ok(false);
        };
        let Some(todo) = self.todo(parking, batch.at, &mut batch.resolving)? else {
            return Ok(false);
        };
        self.cache.page_mut(index).pins += 1;
        self.sums.begin_write((target, batch.at), 0, REGION_BLOCKS);
        let entry = self.regions.entry(batch.at);
        entry.touched = true;
        let left = todo.pieces.len() as u32;
        for (part, piece) in (0u32..).zip(&todo.pieces) {
            let op = IoOp::Read { offset: piece.span.start(), len: piece.span.bytes() };
            self.issue(Purpose::Op { op: key, part: part * 2 }, piece.file, op);
        }
        batch.stage = Stage::Copying { todo: Box::new(todo), left, failed: None };
        if left == 0 {
            self.finish_region(batch);
            return Ok(true);
        }
        Ok(false)
    }

    /// The file that the work writes.
    fn target_file(&self) -> FileNo {
        let work = self.meta.body.work.as_ref().expect("there is work");
        self.meta.body.layers.get(work.kind.target()).file
    }

    /// Even parts are reads, odd ones the writes that follow.
    pub(super) fn batch_io(
        &mut self,
        key: Key,
        batch: &mut BatchOp,
        part: u32,
        result: IoResult,
    ) -> OpStep {
        let target = self.target_file();
        let Stage::Copying { todo, left, failed } = &mut batch.stage else {
            unreachable!("a completion without a copy");
        };
        let index = (part / 2) as usize;
        let piece = todo.pieces[index];
        let outcome = if part.is_multiple_of(2) {
            match result {
                Ok(data) => todo.check(index, &data).map(|()| Some(data)),
                Err(fault) => Err(data_error(piece.file, fault)),
            }
        } else {
            result.map(|_| None).map_err(|fault| data_error(own_data(target), fault))
        };
        match outcome {
            Ok(Some(data)) if failed.is_none() => {
                let op = IoOp::Write { offset: piece.span.start(), data, durable: false };
                self.issue(Purpose::Op { op: key, part: part + 1 }, own_data(target), op);
                return OpStep::Wait;
            }
            Ok(_) => {}
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
        *left -= 1;
        if *left > 0 {
            return OpStep::Wait;
        }
        if let Some(error) = failed.take() {
            self.abandon_batch(batch, &error);
            return OpStep::Done(Err(error));
        }
        self.finish_region(batch);
        self.step_batch(key, batch)
    }

    /// The target has the blocks: notes it, and goes to the next region.
    fn finish_region(&mut self, batch: &mut BatchOp) {
        let Stage::Copying { todo, .. } = std::mem::replace(&mut batch.stage, Stage::Lock) else {
            unreachable!("called when a region was copied");
        };
        let file = self.target_file();
        let index = self.pinned_page(file, batch.at);
        self.sums.end_write((file, batch.at), 0, REGION_BLOCKS);
        let page = self.cache.page_mut(index);
        page.pins -= 1;
        let data = todo.data();
        for (first, count) in data.runs() {
            let blocks = first as usize..(first + count) as usize;
            page.crcs[blocks.clone()].copy_from_slice(&todo.crcs[blocks]);
        }
        page.version = page.version.wrapping_add(1);
        page.current.set_data(&data);
        page.current.set_zero(&todo.zero);
        page.current.set_vacant(&todo.vacant);
        // The batch ends with a flush, which waits for the record.
        let _: Safe = self.mark_changed(index);
        self.unsynced.insert(file);
        batch.regions += 1;
        batch.copied += u64::from(data.len()) * BLOCK;
        batch.at = batch.at.next();
    }

    fn finish_batch(&mut self, batch: &mut BatchOp) {
        debug_assert!(batch.at >= self.work.cursor);
        self.work.cursor = batch.at;
        self.work.budget = self.work.budget.saturating_sub(batch.copied);
        self.work.copied += batch.copied;
        self.work.running = false;
        self.rebuild_chain();
        for region in std::mem::take(&mut batch.locked) {
            self.unlock(region);
        }
    }

    /// Everything copied so far in the batch is copied again later.
    pub(super) fn abandon_batch(&mut self, batch: &mut BatchOp, error: &RequestError) {
        if let Stage::Copying { .. } = batch.stage {
            let file = self.target_file();
            let index = self.pinned_page(file, batch.at);
            self.cache.page_mut(index).pins -= 1;
            self.sums.end_write((file, batch.at), 0, REGION_BLOCKS);
            self.unsynced.insert(file);
        }
        for region in std::mem::take(&mut batch.locked) {
            self.unlock(region);
        }
        self.work.running = false;
        self.work.stalled = Some(error.clone());
    }
}

impl Todo {
    /// Refuses to spread a damaged block.
    fn check(&mut self, piece: usize, data: &[u8]) -> Result<(), RequestError> {
        let Piece { span, file, recorded } = self.pieces[piece];
        if data.len() as u64 != span.bytes() {
            return Err(data_error(file, IoFault::Errno(5)));
        }
        let crcs = &mut self.crcs[span.first as usize..span.end() as usize];
        if recorded {
            if let Some(bad) = crc::first_mismatch(data, crcs) {
                return Err(RequestError::Checksum { offset: span.start() + bad as u64 * BLOCK });
            }
        } else {
            crcs.iter_mut().zip(crc::of_blocks(data)).for_each(|(crc, found)| *crc = found);
        }
        Ok(())
    }

    fn data(&self) -> Blocks {
        let sets = self.pieces.iter().map(|piece| Blocks::of(piece.span.first, piece.span.count));
        sets.fold(Blocks::NONE, |all, set| all.or(&set))
    }
}
