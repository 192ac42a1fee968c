//! A replica as a state machine: requests and completions in, operations and replies out.
//!
//! [`Replica`] does no I/O, reads no clock and never blocks. The driver submits requests,
//! carries out the operations it finds in [`Replica::next_action`] in any order, and reports
//! each by [`Replica::complete`].
//!
//! ```text
//!  submit ──► Op ──┬─ waits for a map page, a region, room, the end of a hold
//!                  ├─ operations on files
//!                  └─ reply
//!
//!  record   presence into the file `recent`, for the next process         (replica/record.rs)
//!  sum      checksums into the file `sums`, for the next process          (replica/sum.rs)
//!  flush    sync data files ─► presence into the log ─► replies          (replica/flush.rs)
//!  clean    flush ─► checkpoint ─► maps, indexes ─► regions inactive      (replica/clean.rs)
//!  control  one change of the super block after the other                (replica/control.rs)
//!  work     merges and hydration, region by region                        (replica/work.rs)
//! ```
//!
//! An operation that has to wait is parked in one list; the event that it waits for puts it back
//! on the ready list, and it checks everything again from the start. It holds nothing while it is
//! parked, so there is nothing to deadlock on.
//!
//! When metadata cannot be written the replica stops: memory and disk differ, and opening it anew
//! is the only way to know what is true.

mod access;
mod chain;
mod clean;
mod control;
mod flush;
mod gate;
mod inspect;
mod mark;
mod metadata;
mod opened;
mod ops;
mod read;
mod record;
mod refuse;
mod repair;
mod status;
mod sum;
mod trash;
mod verify;
mod work;
mod write;
mod zero;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::access::Parking;
use self::clean::Clean;
use self::control::Control;
use self::flush::Flush;
use self::gate::Gate;
use self::mark::LogMark;
use self::metadata::Verifying;
pub(crate) use self::opened::{Left, Opened};
use self::ops::{Op, OpKind, OpStep};
pub use self::status::{Progress, SnapshotStatus, Status};
use self::trash::Trash;
use self::work::WorkState;
use super::cache::{Cache, PageIndex, PageKey};
use super::files::{FileId, FileNo, Place};
use super::geometry::Region;
use super::index::Index;
use super::layer::Link;
use super::log::{LogWriter, Lsn};
use super::open::BasePlace;
use super::recent::{PageName, Recent};
use super::region::{Eager, Regions};
use super::request::{
    Action, Io, IoFault, IoId, IoOp, IoResult, Reply, Request, RequestError, RequestId, StopReason,
};
use super::slab::{Key, Slab};
use super::sums::places::SumPlaces;
use super::super_block::SuperBlock;
use crate::ids::{BootId, FlushMarks};

/// How much memory and log a replica may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages of maps in memory, of 2.5 KiB each. At least the pages that active regions may keep
    /// from being thrown out (two each, during a merge) and a few to work with.
    pub cache_pages: usize,
    /// Regions that may be written without a record in the log, and are read again after an
    /// unclean stop: the time of recovery against the cost of a wide working set.
    pub active_regions: usize,
    /// Regions leave the dirty-region log only after [`Request::Settle`]: whether the peers have
    /// what was written to them is more than a replica can know.
    pub settled_by_caller: bool,
    /// The caller has compared data with its checksums: they are not summed again.
    pub summed_by_caller: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cache_pages: 2048,
            active_regions: 768,
            settled_by_caller: false,
            summed_by_caller: false,
        }
    }
}

/// A replica that is open.
#[derive(Debug)]
pub struct Replica {
    /// As it is on disk, but for the counts.
    meta: SuperBlock,
    bases: Vec<BasePlace>,
    base_links: Vec<Link>,
    /// How the head is resolved.
    chain: Vec<Link>,
    /// Counts changes of what lies under what.
    chain_version: u64,
    /// Blocks of data in each layer, as committed.
    counts: BTreeMap<FileNo, u64>,
    cache: Cache,
    index: Index,
    /// Of the kernel that runs: marks what outlives this process, but not that.
    boot: BootId,
    recent: Recent,
    log_mark: LogMark,
    /// Operations that wait for a record to be written.
    record_waiters: Vec<Key>,
    sums: SumPlaces,
    /// Operations that wait for a record of checksums to be written.
    sum_waiters: Vec<Key>,
    regions: Regions,
    log: LogWriter,
    log_waiters: VecDeque<(Lsn, LogWaiter)>,
    flush: Flush,
    /// Flushes that are durably known here.
    marks: Option<FlushMarks>,
    clean: Clean,
    control: Control,
    work: WorkState,
    trash: Trash,
    gate: Gate,
    /// Data files with writes that no sync covers.
    unsynced: BTreeSet<FileNo>,
    /// The super block has a cut that no sync covers.
    super_unsynced: bool,
    /// Pages whose presence has changed since the last flush began.
    changed: Vec<PageIndex>,
    /// Pages being loaded, and who waits.
    loading: BTreeMap<PageKey, Vec<Key>>,
    /// Pages whose place in the map is being allocated, and who waits.
    allocating: BTreeMap<PageKey, Vec<Key>>,
    /// Pages of indexes that have a place since the replica was opened.
    index_places: BTreeSet<(FileId, u32)>,
    /// Operations that wait for a region to become inactive.
    room_waiters: Vec<Key>,
    /// Regions of layers with space to give back.
    to_punch: BTreeSet<(FileNo, Region)>,
    punching: bool,
    writes_in_flight: u32,
    verifying: Verifying,
    ops: Slab<Op>,
    ios: Slab<Purpose>,
    ready: VecDeque<Key>,
    out: VecDeque<Action>,
    life: Life,
    rechecked: u64,
    /// Operations that were asked of the driver.
    issued: u64,
    summed_by_caller: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Serving,
    Closed,
    Stopped(StopReason),
}

#[derive(Clone, Copy, Debug)]
enum LogWaiter {
    Activated(Region),
    Flush,
    Checkpoint,
    Op(Key),
}

/// The purpose of an operation on a file.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Op { op: Key, part: u32 },
    Load(PageKey),
    Allocate(PageKey, access::Part),
    Log,
    Record,
    Sum { place: u32, page: PageName },
    Mark,
    FlushSync(FileId),
    CleanWrite(FileId),
    CleanSync(FileId),
    CleanCopy,
    Control(FileId),
    Trash,
}

impl Replica {
    /// The next thing for the driver to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.out.pop_front()
    }

    /// Takes a request; its reply comes as an action, perhaps at once.
    pub fn submit(&mut self, id: RequestId, request: Request) {
        let refusal = match self.life {
            Life::Serving => self.refusal(&request),
            Life::Closed => Some(RequestError::Closed),
            Life::Stopped(reason) => Some(RequestError::Stopped { reason }),
        };
        if let Some(error) = refusal {
            self.reply(id, Err(error));
            return;
        }
        match request {
            Request::Flush => self.want_flush(flush::Waiter::Request(id)),
            Request::FlushMarked { marks } => {
                self.note_marks(marks);
                self.want_flush(flush::Waiter::Request(id));
            }
            Request::Seal => self.want_seal(id),
            Request::DirtyRegions => {
                let regions = self.regions.active().map(|(region, _)| region).collect();
                self.reply(id, Ok(Reply::Regions(regions)));
            }
            Request::Reconciled { regions } => {
                regions.into_iter().for_each(|region| self.regions.reconcile(region));
                self.want_room();
                self.forget_loss();
                self.reply(id, Ok(Reply::Done));
            }
            Request::Settle { regions } => {
                regions.into_iter().for_each(|region| self.regions.settle(region));
                self.want_clean(Eager::No);
                self.forget_loss();
                self.reply(id, Ok(Reply::Done));
            }
            request => match OpKind::for_request(self, request) {
                Ok(kind) => self.start(Some(id), kind),
                Err(request) => self.control.enqueue(Some(id), request),
            },
        }
        self.settle();
    }

    /// An operation on a file has ended.
    pub fn complete(&mut self, id: IoId, result: IoResult) {
        let Some(purpose) = self.ios.remove(id.0) else {
            debug_assert!(self.life != Life::Serving, "completion of an unknown operation");
            return;
        };
        if matches!(self.life, Life::Stopped(_)) {
            return;
        }
        match purpose {
            Purpose::Op { op, part } => self.op_io(op, part, result),
            Purpose::Load(key) => self.page_loaded(key, result),
            Purpose::Allocate(key, part) => self.page_allocated(key, part, result),
            Purpose::Log => self.log_written(result),
            Purpose::Record => self.record_written(result),
            Purpose::Sum { place, page } => self.sum_written(place, page, result),
            Purpose::Mark => self.mark_written(),
            Purpose::FlushSync(file) => self.flush_synced(file, result),
            Purpose::CleanWrite(file) => self.clean_written(file, result),
            Purpose::CleanSync(file) => self.clean_synced(file, result),
            Purpose::CleanCopy => self.clean_copied(),
            Purpose::Control(file) => self.control_io(file, result),
            Purpose::Trash => self.trash_io(result),
        }
        self.settle();
    }

    /// Lets background work copy so many bytes more.
    pub fn grant(&mut self, bytes: u64) {
        if self.life == Life::Serving {
            self.work.grant(bytes);
            self.settle();
        }
    }

    /// Whether nothing is in flight and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.ops.len() == 0 && self.ios.len() == 0 && self.out.is_empty()
    }

    /// Does everything that can be done without waiting: goes round until nothing happens.
    fn settle(&mut self) {
        loop {
            let before = (self.issued, self.clean.begun, self.clean.ended);
            while let Some(key) = self.ready.pop_front() {
                self.drive(key);
            }
            self.advance_control();
            self.advance_verifications();
            self.advance_work();
            self.advance_trash();
            self.advance_punch();
            self.advance_verify();
            self.pump_records();
            self.pump_sums();
            self.pump_log();
            self.advance_clean();
            self.pump_log();
            let after = (self.issued, self.clean.begun, self.clean.ended);
            let quiet = self.ready.is_empty() && before == after;
            if quiet || matches!(self.life, Life::Stopped(_)) {
                return;
            }
        }
    }

    fn reply(&mut self, id: RequestId, result: Result<Reply, RequestError>) {
        self.out.push_back(Action::Reply { id, result });
    }

    fn issue(&mut self, purpose: Purpose, file: FileId, op: IoOp) {
        let id = IoId(self.ios.insert(purpose));
        self.issued += 1;
        self.out.push_back(Action::Io(Io { id, file, op }));
    }

    /// Serves nothing from now on; see the module's documentation.
    fn stop(&mut self, reason: StopReason) {
        if matches!(self.life, Life::Stopped(_)) {
            return;
        }
        self.life = Life::Stopped(reason);
        let error = RequestError::Stopped { reason };
        let ops = self.ops.drain().into_iter().filter_map(|op| op.request);
        let waiting = self.flush.take_requests().into_iter().chain(self.control.take_requests());
        for id in ops.collect::<Vec<_>>().into_iter().chain(waiting) {
            self.reply(id, Err(error.clone()));
        }
        self.ready.clear();
    }

    fn cannot_write(&mut self, file: FileId, fault: IoFault) {
        self.stop(StopReason::Write { file, errno: fault.errno() });
    }

    fn cannot_sync(&mut self, file: FileId, fault: IoFault) {
        self.stop(StopReason::Sync { file, errno: fault.errno() });
    }
}

fn own_map(file: FileNo) -> FileId {
    FileId::Map(Place::Own, file)
}

fn own_index(file: FileNo) -> FileId {
    FileId::Index(Place::Own, file)
}

fn own_data(file: FileNo) -> FileId {
    FileId::Data(Place::Own, file)
}
