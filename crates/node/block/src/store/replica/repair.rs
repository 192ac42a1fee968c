//! Rewriting damaged blocks with the data that their checksums are for.

use bytes::Bytes;

use super::access::{Lookup, data_error};
use super::{OpStep, Parking, Purpose, Replica, own_data, own_map};
use crate::store::cache::PageKey;
use crate::store::files::FileNo;
use crate::store::geometry::{BLOCK, Region, Span, spans};
use crate::store::request::{IoOp, IoResult, LayerRef, Reply, RequestError};
use crate::store::slab::Key;

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
    writing: Option<(FileNo, u64)>,
}

impl RepairOp {
    pub(super) fn new(layer: LayerRef, offset: u64, data: Bytes, crcs: Vec<u32>) -> Self {
        Self { layer, offset, data, crcs, done: 0, locked: None, writing: None }
    }

    fn rest(&self) -> Option<Span> {
        spans(self.offset + self.done, self.data.len() as u64 - self.done).next()
    }
}

impl Replica {
    pub(super) fn step_repair(&mut self, key: Key, repair: &mut RepairOp) -> OpStep {
        if repair.writing.is_some() {
            return OpStep::Wait;
        }
        let Some(span) = repair.rest() else { return OpStep::Done(Ok(Reply::Done)) };
        let mut parking = Parking::new(key);
        if !self.ready_to_read(&mut parking, span.region) {
            return OpStep::Wait;
        }
        if repair.locked.is_none() {
            if !self.lock(&mut parking, span.region) {
                return OpStep::Wait;
            }
            repair.locked = Some(span.region);
        }
        let file = self.file_of(repair.layer, span.region);
        let page = PageKey { file: own_map(file), region: span.region };
        let recorded = match self.look_up(&mut parking, page) {
            Ok(Lookup::Wait) => return OpStep::Wait,
            Ok(Lookup::Blank) => Err(RequestError::NotRecorded { offset: span.start() }),
            Ok(Lookup::Page(index)) => self.is_recorded(index, repair, span),
            Err(error) => Err(error),
        };
        if let Err(error) = recorded {
            self.abandon_repair(repair);
            return OpStep::Done(Err(error));
        }
        let from = repair.done as usize;
        let data = repair.data.slice(from..from + span.bytes() as usize);
        repair.writing = Some((file, span.bytes()));
        let op = IoOp::Write { offset: span.start(), data, durable: false };
        self.issue(Purpose::Op { op: key, part: 0 }, own_data(file), op);
        OpStep::Wait
    }

    fn is_recorded(
        &self,
        index: crate::store::cache::PageIndex,
        repair: &RepairOp,
        span: Span,
    ) -> Result<(), RequestError> {
        let page = self.cache.page(index);
        let crcs = &repair.crcs[(repair.done / BLOCK) as usize..];
        for (block, crc) in (span.first..span.end()).zip(crcs) {
            if !page.current.data.contains(block) || page.crcs[block as usize] != *crc {
                let offset = span.region.start() + u64::from(block) * BLOCK;
                return Err(RequestError::NotRecorded { offset });
            }
        }
        Ok(())
    }

    pub(super) fn repair_io(&mut self, repair: &mut RepairOp, result: IoResult) -> OpStep {
        let (file, bytes) = repair.writing.take().expect("a write is in flight");
        self.unsynced.insert(file);
        self.abandon_repair(repair);
        if let Err(fault) = result {
            return OpStep::Done(Err(data_error(own_data(file), fault)));
        }
        repair.done += bytes;
        if repair.rest().is_none() {
            return OpStep::Done(Ok(Reply::Done));
        }
        // The lock of the next region is taken from the ready list, like any other.
        OpStep::Again
    }

    pub(super) fn abandon_repair(&mut self, repair: &mut RepairOp) {
        if let Some(region) = repair.locked.take() {
            self.unlock(region);
        }
    }
}
