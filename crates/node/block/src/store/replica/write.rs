//! Writing data.
//!
//! ```text
//! Start ──regions ready──► Writing ──written──► Recording ──► (reply)
//!   ▲ └─parked              │                     nothing new: at once
//!   └───────┘               └─written, fua──► Flushing ──► (reply)
//! ```
//!
//! A write that fails may have changed some of its sectors: its regions are read again before they
//! are used, so that their checksums are those of what is there.
//!
//! A write goes to its place in the layer's file at once; the map in memory follows when it has
//! been written, and a record of it outlives the process, see [`super::record`]. The block counts as present after a power cut only once a flush has made its
//! data durable and then its presence: until then a reader sees what was there before.

use bytes::Bytes;

use super::access::data_error;
use super::flush::Waiter;
use super::record::Safe;
use super::{OpStep, Parking, Purpose, Replica, own_data, own_map};
use crate::store::cache::{Known, PageIndex, PageKey};
use crate::store::files::FileNo;
use crate::store::geometry::{BLOCK, Blocks, MAX_REQUEST, REGION, Region, Span, spans};
use crate::store::recent::Ticket;
use crate::store::request::{IoFault, IoOp, IoResult, LayerRef, Reply, RequestError};
use crate::store::slab::Key;

#[derive(Debug)]
pub(super) struct WriteOp {
    layer: LayerRef,
    offset: u64,
    data: Bytes,
    crcs: Vec<u32>,
    fua: bool,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Start,
    Writing { left: u32, failed: Option<IoFault> },
    Recording(Ticket),
    Flushing,
}

impl WriteOp {
    pub(super) fn new(
        layer: LayerRef,
        offset: u64,
        data: Bytes,
        crcs: Vec<u32>,
        fua: bool,
    ) -> Self {
        Self { layer, offset, data, crcs, fua, stage: Stage::Start }
    }

    fn spans(&self) -> impl Iterator<Item = Span> + Clone + use<> {
        spans(self.offset, self.data.len() as u64)
    }
}

impl Replica {
    pub(super) fn step_write(&mut self, key: Key, write: &mut WriteOp) -> OpStep {
        match write.stage {
            Stage::Start => {}
            Stage::Writing { .. } => return OpStep::Wait,
            Stage::Recording(upto) if self.wait_recorded(upto, key) => {
                return OpStep::Done(Ok(Reply::Done));
            }
            Stage::Recording(_) => return OpStep::Wait,
            Stage::Flushing => return OpStep::Done(Ok(Reply::Done)),
        }
        if write.data.is_empty() {
            return OpStep::Done(Ok(Reply::Done));
        }
        if self.is_held(key) {
            return OpStep::Wait;
        }
        match self.pin_pages(key, write) {
            Ok(true) => self.issue_write(key, write),
            Ok(false) => {}
            Err(error) => return OpStep::Done(Err(error)),
        }
        OpStep::Wait
    }

    /// Makes all regions of a write ready and pins their pages, or none.
    fn pin_pages(&mut self, key: Key, write: &WriteOp) -> Result<bool, RequestError> {
        const { assert!(MAX_REQUEST / REGION + 2 <= 64, "a bit for each region of a write") };
        let mut parking = Parking::new(key);
        let mut pinned = 0u64;
        let mut failed = None;
        for (at, span) in write.spans().enumerate() {
            let file = self.file_of(write.layer, span.region);
            let blocks = Blocks::of(span.first, span.count);
            let ready = self.ready_to_write(&mut parking, file, span.region, &blocks);
            if span.first == 0 {
                self.look_ahead(span.region);
            }
            match ready {
                Ok(Some(index)) => {
                    // The next span's page may take the place of one that is not pinned.
                    self.cache.page_mut(index).pins += 1;
                    pinned |= 1 << at;
                }
                Ok(None) => debug_assert!(parking.parked),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        if failed.is_none() && !parking.parked {
            return Ok(true);
        }
        for (_, span) in write.spans().enumerate().filter(|(at, _)| pinned >> at & 1 == 1) {
            let file = self.file_of(write.layer, span.region);
            let index = self.pinned_page(file, span.region);
            self.cache.page_mut(index).pins -= 1;
        }
        failed.map_or(Ok(false), Err)
    }

    /// The file that a layer's region is written to.
    pub(super) fn file_of(&self, layer: LayerRef, region: Region) -> FileNo {
        match layer {
            LayerRef::Head => self.head_file(region),
            LayerRef::Snapshot(id) => {
                let layer = self.meta.body.layers.by_snapshot(id);
                layer.expect("checked when the request came").file
            }
        }
    }

    /// A page that is pinned, so that it is in memory for certain.
    pub(super) fn pinned_page(&mut self, file: FileNo, region: Region) -> PageIndex {
        match self.cache.known(PageKey { file: own_map(file), region }) {
            Known::Cached(index) => index,
            other => unreachable!("a pinned page is in memory, not {other:?}"),
        }
    }

    fn issue_write(&mut self, key: Key, write: &mut WriteOp) {
        let mut left = 0;
        let mut run: Option<(FileNo, u64, u64)> = None;
        for span in write.spans() {
            let file = self.file_of(write.layer, span.region);
            assert!(self.is_active(span.region), "data is written to active regions only");
            self.regions.touch(span.region).writers += 1;
            self.sums.begin_write((file, span.region), span.first, span.count);
            // Neighbouring regions are in one file, except at the cursor of a merge.
            run = match run {
                Some((same, start, len)) if same == file => Some((file, start, len + span.bytes())),
                other => {
                    left += self.issue_run(key, write, other);
                    Some((file, span.start(), span.bytes()))
                }
            };
        }
        left += self.issue_run(key, write, run);
        write.stage = Stage::Writing { left, failed: None };
        self.writes_in_flight += 1;
    }

    fn issue_run(&mut self, key: Key, write: &WriteOp, run: Option<(FileNo, u64, u64)>) -> u32 {
        let Some((file, offset, len)) = run else { return 0 };
        let from = (offset - write.offset) as usize;
        let data = write.data.slice(from..from + len as usize);
        let op = IoOp::Write { offset, data, durable: false };
        self.issue(Purpose::Op { op: key, part: 0 }, own_data(file), op);
        1
    }

    pub(super) fn write_io(&mut self, key: Key, write: &mut WriteOp, result: IoResult) -> OpStep {
        let Stage::Writing { left, failed } = &mut write.stage else {
            unreachable!("a completion without a write");
        };
        *left -= 1;
        if let Err(fault) = result {
            failed.get_or_insert(fault);
        }
        if *left > 0 {
            return OpStep::Wait;
        }
        let failed = *failed;
        let first = self.file_of(write.layer, Region::of(write.offset));
        let safe = self.finish_write(write, failed.is_none());
        self.writes_in_flight -= 1;
        if let Some(fault) = failed {
            return OpStep::Done(Err(data_error(own_data(first), fault)));
        }
        match safe {
            Safe::Now if !write.fua => OpStep::Done(Ok(Reply::Done)),
            Safe::Recorded(upto) if !write.fua => {
                write.stage = Stage::Recording(upto);
                self.pump_records();
                self.step_write(key, write)
            }
            _ => {
                write.stage = Stage::Flushing;
                self.want_flush(Waiter::Op(key));
                OpStep::Wait
            }
        }
    }

    /// Records what has been written, and releases pages and regions.
    fn finish_write(&mut self, write: &WriteOp, written: bool) -> Safe {
        let mut safe = Safe::Now;
        let mut crcs = write.crcs.as_slice();
        for span in write.spans() {
            let file = self.file_of(write.layer, span.region);
            let index = self.pinned_page(file, span.region);
            // Data of a failed write has to be synced like any other data.
            self.unsynced.insert(file);
            self.sums.end_write((file, span.region), span.first, span.count);
            let (these, rest) = crcs.split_at(span.count as usize);
            crcs = rest;
            let page = self.cache.page_mut(index);
            page.pins -= 1;
            if written {
                let first = span.first as usize;
                page.crcs[first..first + these.len()].copy_from_slice(these);
                page.version = page.version.wrapping_add(1);
                let blocks = Blocks::of(span.first, span.count);
                if page.current.data.and(&blocks) != blocks {
                    page.current.set_data(&blocks);
                    safe = safe.and(self.mark_changed(index));
                }
            }
            if !written {
                self.regions.doubt(span.region);
            }
            let entry = self.regions.entry(span.region);
            entry.writers -= 1;
            if entry.writers == 0 && !entry.waiting.is_empty() {
                self.wake_waiting(span.region);
            }
        }
        debug_assert_eq!(write.crcs.len() as u64 * BLOCK, write.data.len() as u64);
        safe
    }

    /// As [`Self::wake_region`], but a lock that is wanted stays wanted.
    fn wake_waiting(&mut self, region: Region) {
        let waiting = std::mem::take(&mut self.regions.entry(region).waiting);
        self.ready.extend(waiting);
    }
}

impl From<Result<(), RequestError>> for OpStep {
    fn from(result: Result<(), RequestError>) -> Self {
        Self::Done(result.map(|()| Reply::Done))
    }
}
