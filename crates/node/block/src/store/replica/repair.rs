//! Rewriting damaged blocks with the data that their checksums are for, and blocks of which the
//! checksum is lost with what a peer has.
//!
//! ```text
//! Idle ──region locked──► Writing ──written──► Idle … all regions ──► (reply)
//!                                                      └─ some were lost ─► Flushing ──► (reply)
//! ```
//!
//! Repairs of lost blocks are not logged: the log has no checksums, and those of a layer that is
//! not written are not summed again. The page is updated once the data is durable, and the next
//! clean writes it; after a stop before that the blocks are lost as before.

use bytes::Bytes;

use super::access::{Lookup, data_error};
use super::flush::Waiter;
use super::sum::name_of;
use super::{OpStep, Parking, Purpose, Replica, own_data, own_map};
use crate::store::cache::{Known, PageIndex, PageKey};
use crate::store::files::{FileId, FileNo, Place};
use crate::store::geometry::{BLOCK, Blocks, REGION_BLOCKS, Region, Span, spans};
use crate::store::request::{IoOp, IoResult, LayerRef, Reply, RequestError};
use crate::store::slab::Key;
use crate::store::sums::places::ALL;

/// Works off its blocks region by region, each under its lock.
#[derive(Debug)]
pub(super) struct RepairOp {
    layer: LayerRef,
    offset: u64,
    data: Bytes,
    crcs: Vec<u32>,
    /// Bytes that are done.
    done: u64,
    locked: Option<Region>,
    stage: Stage,
    /// Pages, pinned, whose lost blocks have been written.
    found: Vec<RecoveredPage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    Writing { file: FileNo, bytes: u64 },
    Flushing,
}

/// Blocks of a page that were lost.
#[derive(Debug)]
struct RecoveredPage {
    page: PageKey,
    lost: Blocks,
}

impl RepairOp {
    pub(super) fn new(layer: LayerRef, offset: u64, data: Bytes, crcs: Vec<u32>) -> Self {
        let (done, locked, stage, found) = (0, None, Stage::Idle, Vec::new());
        Self { layer, offset, data, crcs, done, locked, stage, found }
    }

    fn rest(&self) -> Option<Span> {
        spans(self.offset + self.done, self.data.len() as u64 - self.done).next()
    }

    /// Where a block of a region is among those of the request.
    fn at(&self, region: Region, block: u32) -> usize {
        ((region.start() + u64::from(block) * BLOCK - self.offset) / BLOCK) as usize
    }

    fn is_zero(&self, at: usize) -> bool {
        let from = at * BLOCK as usize;
        self.data[from..from + BLOCK as usize].iter().all(|byte| *byte == 0)
    }
}

impl Replica {
    pub(super) fn step_repair(&mut self, key: Key, repair: &mut RepairOp) -> OpStep {
        match repair.stage {
            Stage::Idle => {}
            Stage::Writing { .. } => return OpStep::Wait,
            Stage::Flushing => {
                self.know_again(repair);
                return OpStep::Done(Ok(Reply::Done));
            }
        }
        let Some(span) = repair.rest() else { return self.finish_repair(key, repair) };
        match self.begin_repair(key, repair, span) {
            Ok(()) => OpStep::Wait,
            Err(error) => {
                self.abandon_repair(repair);
                OpStep::Done(Err(error))
            }
        }
    }

    /// Writes the blocks of one region, or waits for what that needs.
    fn begin_repair(
        &mut self,
        key: Key,
        repair: &mut RepairOp,
        span: Span,
    ) -> Result<(), RequestError> {
        let mut parking = Parking::new(key);
        if !self.ready_to_read(&mut parking, span.region) {
            return Ok(());
        }
        if repair.locked.is_none() {
            if !self.lock(&mut parking, span.region) {
                return Ok(());
            }
            repair.locked = Some(span.region);
        }
        let file = match repair.layer {
            LayerRef::Snapshot(id) if self.meta.body.layers.by_snapshot(id).is_none() => {
                return Err(RequestError::NoSuchSnapshot { id });
            }
            layer => self.file_of(layer, span.region),
        };
        let page = PageKey { file: own_map(file), region: span.region };
        let index = match self.look_up(&mut parking, page)? {
            Lookup::Wait => return Ok(()),
            Lookup::Blank => return Err(RequestError::NotRecorded { offset: span.start() }),
            Lookup::Page(index) => index,
        };
        let lost = self.lost_blocks(index, repair, span)?;
        if !lost.is_empty() {
            // The page will be written: its region is one of those that a clean checks.
            let Some(index) = self.ready_to_change(&mut parking, file, span.region, &ALL)? else {
                return Ok(());
            };
            self.cache.page_mut(index).pins += 1;
            self.sums.begin_write((file, span.region), 0, REGION_BLOCKS);
            repair.found.push(RecoveredPage { page, lost });
        }
        let from = repair.done as usize;
        let data = repair.data.slice(from..from + span.bytes() as usize);
        repair.stage = Stage::Writing { file, bytes: span.bytes() };
        let op = IoOp::Write { offset: span.start(), data, durable: false };
        self.issue(Purpose::Op { op: key, part: 0 }, own_data(file), op);
        Ok(())
    }

    /// The blocks of a span that are lost. The others must be recorded as what they are repaired
    /// with, so that a repair cannot change what a layer says.
    fn lost_blocks(
        &self,
        index: PageIndex,
        repair: &RepairOp,
        span: Span,
    ) -> Result<Blocks, RequestError> {
        let page = self.cache.page(index);
        for block in span.first..span.end() {
            let recorded = page.current.data.contains(block)
                && page.crcs[block as usize] == repair.crcs[repair.at(span.region, block)];
            if !recorded && !page.current.lost.contains(block) {
                let offset = span.region.start() + u64::from(block) * BLOCK;
                return Err(RequestError::NotRecorded { offset });
            }
        }
        Ok(page.current.lost.and(&Blocks::of(span.first, span.count)))
    }

    pub(super) fn repair_io(&mut self, repair: &mut RepairOp, result: IoResult) -> OpStep {
        let Stage::Writing { file, bytes } = repair.stage else {
            unreachable!("a completion without a write");
        };
        repair.stage = Stage::Idle;
        self.unsynced.insert(file);
        if let Err(fault) = result {
            self.abandon_repair(repair);
            return OpStep::Done(Err(data_error(own_data(file), fault)));
        }
        self.unlock_repair(repair);
        repair.done += bytes;
        // The lock of the next region is taken from the ready list, like any other.
        OpStep::Again
    }

    fn finish_repair(&mut self, key: Key, repair: &mut RepairOp) -> OpStep {
        if repair.found.is_empty() {
            return OpStep::Done(Ok(Reply::Done));
        }
        repair.stage = Stage::Flushing;
        self.want_flush(Waiter::Op(key));
        OpStep::Wait
    }

    /// The data of lost blocks is durable: their pages may say so.
    fn know_again(&mut self, repair: &mut RepairOp) {
        for RecoveredPage { page: name, lost } in std::mem::take(&mut repair.found) {
            self.sums.end_write(name_of(name), 0, REGION_BLOCKS);
            // The layer may have been dropped meanwhile.
            let Known::Cached(index) = self.cache.known(name) else { continue };
            let page = self.cache.page_mut(index);
            page.pins -= 1;
            let lost = lost.and(&page.current.lost);
            let before =
                page.committed.data.len() + u32::from(std::mem::take(&mut page.lost_blocks));
            for (first, count) in lost.runs() {
                for block in first..first + count {
                    let at = repair.at(name.region, block);
                    page.crcs[block as usize] = repair.crcs[at];
                    let one = Blocks::of(block, 1);
                    for presence in [&mut page.current, &mut page.target, &mut page.committed] {
                        match repair.is_zero(at) {
                            true => presence.set_zero(&one),
                            false => presence.set_data(&one),
                        }
                    }
                }
            }
            page.version = page.version.wrapping_add(1);
            let after = page.committed.data.len();
            if let FileId::Map(Place::Own, file) = name.file {
                let count = self.counts.entry(file).or_default();
                *count = (*count + u64::from(after)).saturating_sub(u64::from(before));
            }
        }
    }

    fn unlock_repair(&mut self, repair: &mut RepairOp) {
        if let Some(region) = repair.locked.take() {
            self.unlock(region);
        }
    }

    pub(super) fn abandon_repair(&mut self, repair: &mut RepairOp) {
        self.unlock_repair(repair);
        for found in std::mem::take(&mut repair.found) {
            self.sums.end_write(name_of(found.page), 0, REGION_BLOCKS);
            if let Known::Cached(index) = self.cache.known(found.page) {
                self.cache.page_mut(index).pins -= 1;
            }
        }
    }
}
