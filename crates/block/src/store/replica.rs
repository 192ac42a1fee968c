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
//!  flush    sync data files ─► presence into the log ─► replies          (replica/flush.rs)
//!  clean    flush ─► checkpoint ─► map pages ─► regions inactive          (replica/clean.rs)
//!  control  one change of the super block after the other                (replica/control.rs)
//!  work     merges and hydration, region by region                        (replica/work.rs)
//! ```
//!
//! An operation that has to wait is parked in one list; whatever it waits for puts it back on
//! the ready list, and it looks at everything again from the start. It holds nothing while it
//! is parked, so there is nothing to deadlock on.
//!
//! When metadata cannot be written the replica stops: memory and disk differ, and opening it anew
//! is the only way to know what is true.

mod access;
mod clean;
mod control;
mod flush;
mod look;
mod read;
mod repair;
mod status;
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
use self::look::{MapOp, ScrubOp};
use self::read::{Gate, ReadOp};
use self::repair::RepairOp;
pub use self::status::{Progress, SnapshotStatus, Status};
use self::trash::Trash;
use self::verify::{PunchOp, VerifyOp};
use self::work::{BatchOp, WorkState};
use self::write::WriteOp;
use self::zero::ZeroOp;
use super::cache::{Cache, PageIndex, PageKey};
use super::files::{FileId, FileNo, Place};
use super::geometry::{BLOCK, MAX_REQUEST, Region};
use super::layer::{Link, Work, WorkKind};
use super::log::{LogWriter, Lsn};
use super::open::BasePlace;
use super::region::{Eager, Regions};
use super::request::{
    Action, Io, IoFault, IoId, IoOp, IoResult, LayerRef, Reply, Request, RequestError, RequestId,
    StopReason, View,
};
use super::slab::{Key, Slab};
use super::super_block::SuperBlock;

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
    /// How the head is looked up.
    chain: Vec<Link>,
    /// Counts changes of what lies under what.
    chain_version: u64,
    /// Blocks of data in each layer, as committed.
    counts: BTreeMap<FileNo, u64>,
    cache: Cache,
    regions: Regions,
    log: LogWriter,
    log_waiters: VecDeque<(Lsn, LogWaiter)>,
    flush: Flush,
    clean: Clean,
    control: Control,
    work: WorkState,
    trash: Trash,
    gate: Gate,
    /// Data files with writes that no sync covers.
    unsynced: BTreeSet<FileNo>,
    /// Pages whose presence has changed since the last flush began.
    changed: Vec<PageIndex>,
    /// Pages being loaded, and who waits.
    loading: BTreeMap<PageKey, Vec<Key>>,
    /// Pages whose place in the map is being allocated, and who waits.
    allocating: BTreeMap<PageKey, Vec<Key>>,
    /// Who waits for a region to become inactive.
    room_waiters: Vec<Key>,
    /// Regions of layers with space to give back.
    to_punch: BTreeSet<(FileNo, Region)>,
    punching: bool,
    writes_in_flight: u32,
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

/// What an operation on a file is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    Op { op: Key, part: u32 },
    Load(PageKey),
    Allocate(PageKey),
    Log,
    FlushSync(FileNo),
    CleanWrite(PageIndex),
    CleanSync(FileId),
    Control(FileId),
    Trash,
}

/// Something that takes more than one step.
#[derive(Debug)]
struct Op {
    /// Nothing if the replica itself wants it.
    request: Option<RequestId>,
    kind: OpKind,
}

#[derive(Debug)]
enum OpKind {
    Read(ReadOp),
    Write(WriteOp),
    Zero(ZeroOp),
    Map(MapOp),
    Scrub(ScrubOp),
    Repair(RepairOp),
    Verify(VerifyOp),
    Punch(PunchOp),
    Batch(BatchOp),
}

/// Whether an operation goes on.
#[derive(Debug)]
enum Step {
    /// Somebody puts it on the ready list.
    Wait,
    /// It goes to the end of the ready list by itself.
    Again,
    Done(Result<Reply, RequestError>),
}

/// What [`super::open`] knows after it has read a directory.
#[derive(Debug)]
pub(crate) struct Opened {
    pub meta: SuperBlock,
    pub bases: Vec<BasePlace>,
    pub base_links: Vec<Link>,
    pub counts: BTreeMap<FileNo, u64>,
    pub suspects: Vec<Region>,
    pub cursor: Region,
    pub log: LogWriter,
    pub limits: Limits,
}

impl Replica {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { meta, bases, base_links, counts, suspects, cursor, log, limits } = opened;
        let mut regions = Regions::new(limits.active_regions);
        if limits.settled_by_caller {
            regions.hold();
        }
        suspects.into_iter().for_each(|region| regions.inherit(region));
        let mut replica = Self {
            meta,
            bases,
            base_links,
            chain: Vec::new(),
            chain_version: 0,
            counts,
            cache: Cache::new(limits.cache_pages.max(2 * limits.active_regions + 32)),
            regions,
            log,
            log_waiters: VecDeque::new(),
            flush: Flush::default(),
            clean: Clean::default(),
            control: Control::default(),
            work: WorkState::new(cursor),
            trash: Trash::default(),
            gate: Gate::default(),
            unsynced: BTreeSet::new(),
            changed: Vec::new(),
            loading: BTreeMap::new(),
            allocating: BTreeMap::new(),
            room_waiters: Vec::new(),
            to_punch: BTreeSet::new(),
            punching: false,
            writes_in_flight: 0,
            ops: Slab::default(),
            ios: Slab::default(),
            ready: VecDeque::new(),
            out: VecDeque::new(),
            life: Life::Serving,
            rechecked: 0,
            issued: 0,
            summed_by_caller: limits.summed_by_caller,
        };
        replica.rebuild_chain();
        replica.settle();
        replica
    }

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
            Request::DirtyRegions => {
                let regions = self.regions.active().map(|(region, _)| region).collect();
                self.reply(id, Ok(Reply::Regions(regions)));
            }
            Request::Reconciled { regions } => {
                regions.into_iter().for_each(|region| self.regions.reconcile(region));
                self.want_room();
                self.reply(id, Ok(Reply::Done));
            }
            Request::Settle { regions } => {
                regions.into_iter().for_each(|region| self.regions.settle(region));
                self.want_clean(Eager::No);
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
            Purpose::Allocate(key) => self.page_allocated(key, result),
            Purpose::Log => self.log_written(result),
            Purpose::FlushSync(file) => self.flush_synced(file, result),
            Purpose::CleanWrite(page) => self.clean_written(page, result),
            Purpose::CleanSync(file) => self.clean_synced(file, result),
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
            self.advance_work();
            self.advance_trash();
            self.advance_punch();
            self.advance_verify();
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

    fn start(&mut self, request: Option<RequestId>, kind: OpKind) {
        let key = self.ops.insert(Op { request, kind });
        self.drive(key);
    }

    /// Lets an operation look at the world again.
    fn drive(&mut self, key: Key) {
        let Some(mut op) = self.ops.lend(key) else { return };
        let step = match &mut op.kind {
            OpKind::Read(read) => self.step_read(key, read),
            OpKind::Write(write) => self.step_write(key, write),
            OpKind::Zero(zero) => self.step_zero(key, zero),
            OpKind::Map(map) => self.step_map(key, map),
            OpKind::Scrub(scrub) => self.step_scrub(key, scrub),
            OpKind::Repair(repair) => self.step_repair(key, repair),
            OpKind::Verify(verify) => self.step_verify(key, verify),
            OpKind::Punch(punch) => self.step_punch(key, punch),
            OpKind::Batch(batch) => self.step_batch(key, batch),
        };
        self.after(key, op, step);
    }

    fn op_io(&mut self, key: Key, part: u32, result: IoResult) {
        let Some(mut op) = self.ops.lend(key) else { return };
        let step = match &mut op.kind {
            OpKind::Read(read) => self.read_io(read, part, result),
            OpKind::Write(write) => self.write_io(key, write, result),
            OpKind::Scrub(scrub) => self.scrub_io(key, scrub, result),
            OpKind::Repair(repair) => self.repair_io(repair, result),
            OpKind::Verify(verify) => self.verify_io(key, verify, result),
            OpKind::Punch(punch) => self.punch_io(punch, result),
            OpKind::Batch(batch) => self.batch_io(key, batch, part, result),
            OpKind::Zero(_) | OpKind::Map(_) => unreachable!("does no I/O of its own"),
        };
        self.after(key, op, step);
    }

    fn after(&mut self, key: Key, op: Op, step: Step) {
        match step {
            Step::Wait => self.ops.give_back(key, op),
            Step::Again => {
                self.ops.give_back(key, op);
                self.ready.push_back(key);
            }
            Step::Done(result) => {
                self.ops.free(key);
                if let Some(id) = op.request {
                    self.reply(id, result);
                }
            }
        }
    }

    /// Ends operations that wait for something that failed.
    fn fail_ops(&mut self, keys: Vec<Key>, error: &RequestError) {
        for key in keys {
            if let Some(mut op) = self.ops.lend(key) {
                match &mut op.kind {
                    OpKind::Verify(verify) => self.abandon_verify(verify, error),
                    OpKind::Punch(punch) => self.abandon_punch(punch),
                    OpKind::Batch(batch) => self.abandon_batch(batch, error),
                    OpKind::Scrub(scrub) => self.end_scrub(scrub),
                    OpKind::Repair(repair) => self.abandon_repair(repair),
                    OpKind::Read(read) => self.leave(read),
                    OpKind::Write(_) | OpKind::Zero(_) | OpKind::Map(_) => {}
                }
                self.after(key, op, Step::Done(Err(error.clone())));
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

    /// Why a request cannot even begin.
    fn refusal(&self, request: &Request) -> Option<RequestError> {
        match request {
            Request::Read { offset, len, .. } => self.bad_range(*offset, *len, MAX_REQUEST),
            Request::Write { offset, data, crcs, .. }
            | Request::Fill { offset, data, crcs, .. }
            | Request::Repair { offset, data, crcs, .. } => {
                let len = data.len() as u64;
                self.bad_range(*offset, len, MAX_REQUEST).or_else(|| {
                    if crcs.len() as u64 != len / BLOCK {
                        return Some(RequestError::CrcCount {
                            blocks: len / BLOCK,
                            crcs: crcs.len(),
                        });
                    }
                    if self.summed_by_caller && matches!(request, Request::Write { .. }) {
                        return None;
                    }
                    let bad = super::crc::first_mismatch(data, crcs)?;
                    Some(RequestError::Checksum { offset: offset + bad as u64 * BLOCK })
                })
            }
            Request::WriteZeroes { offset, len, .. }
            | Request::Discard { offset, len }
            | Request::FillZeroes { offset, len, .. } => self.bad_range(*offset, *len, u64::MAX),
            Request::ReadMap { offset, len, .. } => self.bad_range(*offset, *len, look::MAX_MAP),
            Request::Scrub { region } => self.bad_range(region.start(), 0, 0),
            _ => None,
        }
        .or_else(|| self.bad_layer(request))
    }

    fn bad_range(&self, offset: u64, len: u64, most: u64) -> Option<RequestError> {
        let size = self.meta.size;
        if !offset.is_multiple_of(BLOCK) || !len.is_multiple_of(BLOCK) {
            Some(RequestError::Unaligned { offset, len })
        } else if offset.checked_add(len).is_none_or(|end| end > size) {
            Some(RequestError::OutOfRange { offset, len, size })
        } else if len > most {
            Some(RequestError::TooLong { len })
        } else {
            None
        }
    }

    fn bad_layer(&self, request: &Request) -> Option<RequestError> {
        let named = match request {
            Request::Read { view: View::Snapshot(id), .. }
            | Request::ReadMap { of: super::request::MapOf::View(View::Snapshot(id)), .. }
            | Request::ReadMap {
                of: super::request::MapOf::Layer(LayerRef::Snapshot(id)), ..
            }
            | Request::Repair { layer: LayerRef::Snapshot(id), .. } => *id,
            Request::Fill { layer: LayerRef::Snapshot(id), .. }
            | Request::FillZeroes { layer: LayerRef::Snapshot(id), .. } => {
                let layer = self.meta.body.layers.by_snapshot(*id);
                if layer.is_some_and(|layer| !layer.filling) {
                    return Some(RequestError::SnapshotSealed { id: *id });
                }
                *id
            }
            _ => return None,
        };
        let missing = self.meta.body.layers.by_snapshot(named).is_none();
        missing.then_some(RequestError::NoSuchSnapshot { id: named })
    }

    fn rebuild_chain(&mut self) {
        let head = self.meta.body.layers.head;
        self.chain = self.links_from(head);
        self.chain_version += 1;
    }

    fn links_from(&self, top: super::layer::LayerNo) -> Vec<Link> {
        let work = self.current_work();
        let mut links = self.meta.body.layers.links(top, work.as_ref());
        links.extend(&self.base_links);
        links
    }

    /// The work on its way, with the cursor as it is now.
    fn current_work(&self) -> Option<Work> {
        let work = self.meta.body.work.as_ref()?;
        Some(Work { cursor: self.work.cursor(), ..work.clone() })
    }

    /// The file that a write to the head goes to.
    fn head_file(&self, region: Region) -> FileNo {
        let layers = &self.meta.body.layers;
        if let Some(Work { kind: WorkKind::MergeDown { from, into }, .. }) = &self.meta.body.work
            && *from == layers.head
            && region < self.work.cursor()
        {
            return layers.get(*into).file;
        }
        layers.head().file
    }

    /// Whether something shows through where the file has nothing.
    fn has_below(&self, file: FileNo) -> bool {
        let layer = self.meta.body.layers.by_file(file);
        self.meta.body.base.is_some() || layer.is_none_or(|layer| layer.parent.is_some())
    }
}

impl OpKind {
    /// The operation for a request, or the request back if it changes the super block.
    fn for_request(replica: &Replica, request: Request) -> Result<Self, Request> {
        Ok(match request {
            Request::Read { view, offset, len } => Self::Read(ReadOp::new(view, offset, len)),
            Request::Write { offset, data, crcs, fua } => {
                Self::Write(WriteOp::new(LayerRef::Head, offset, data, crcs, fua))
            }
            Request::Fill { layer, offset, data, crcs } => {
                Self::Write(WriteOp::new(layer, offset, data, crcs, false))
            }
            Request::Repair { layer, offset, data, crcs } => {
                Self::Repair(RepairOp::new(layer, offset, data, crcs))
            }
            Request::WriteZeroes { offset, len, fua } => {
                Self::Zero(ZeroOp::new(LayerRef::Head, offset, len, fua))
            }
            Request::Discard { offset, len } => {
                Self::Zero(ZeroOp::new(LayerRef::Head, offset, len, false))
            }
            Request::FillZeroes { layer, offset, len, vacant } => {
                let mut zero = ZeroOp::new(layer, offset, len, false);
                zero.vacant = vacant;
                Self::Zero(zero)
            }
            Request::ReadMap { of, offset, len } => Self::Map(MapOp::new(of, offset, len)),
            Request::Scrub { region } => Self::Scrub(ScrubOp::new(replica, region)),
            other => return Err(other),
        })
    }
}

fn own_map(file: FileNo) -> FileId {
    FileId::Map(Place::Own, file)
}

fn own_data(file: FileNo) -> FileId {
    FileId::Data(Place::Own, file)
}
