//! One replica in this process: its store, its session, and the files under them.
//!
//! ```text
//!  calls ──► Session ──DiskRequest──► translate ──Request──► Replica ──IoOp──► Table, Offload
//!  answers ◄───────── DiskReply ◄──────────────── Reply ◄────────── results ◄──┘
//! ```
//!
//! A closed store is opened again when the next engine connects. One that stopped because its disk
//! failed is opened again too, as another instance of the replica: writes that it answered before
//! may be lost.

mod translate;

#[cfg(any(test, feature = "sim"))]
pub(crate) use self::translate::{damage, metadata, metadata_request, states};

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use self::translate::{RequestPlan, StoreRequest};
use super::chain;
use super::files::{Started, Table};
use super::offload::{Done, Op};
use super::witness::Witness;
use crate::ids::{BootId, InstanceId, ReplicaId, VolumeId};
use crate::repl::disk::{DiskReply, DiskRequest, DiskResult};
use crate::repl::session::{Identity, Session, SessionAction, SessionEvent};
use crate::store::files::{Directory, FileId};
use crate::store::geometry::{REGION, Region};
use crate::store::{
    Action, DirectoryBases, IoId, IoOp, IoResult, Limits, OpenError, OpenOptions, Replica,
    ReplicaFault, RequestError, RequestId,
};
use crate::wire::{Pong, Refusal};

/// Background work gets so much at a time: little while engines wait for answers, as much as the
/// disk gives while no engine does.
const GRANT_BUSY: u64 = 1 << 20;
const GRANT_IDLE: u64 = 16 << 20;

/// A replica that this process serves.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) volume: VolumeId,
    pub(super) replica: ReplicaId,
    path: PathBuf,
    limits: Limits,
    pub(super) session: Session,
    boot: BootId,
    witness: Witness,
    store: Option<Replica>,
    table: Table,
    /// Regions that were being written when an earlier process ended.
    inherited: Vec<Region>,
    /// Requests that the session waits for.
    in_flight: BTreeMap<u64, StoreRequest>,
    next: u64,
    requests: BTreeMap<RequestId, u64>,
    /// Operations that are carried out elsewhere.
    away: BTreeMap<u64, (IoId, FileId)>,
    next_away: u64,
    /// Requests that came while the store could not be opened yet.
    waiting: VecDeque<(u64, DiskRequest)>,
    /// The store must not be used any more.
    broken: bool,
    /// Why the store could not be opened again.
    fault: Option<NotServed>,
    /// Others than the session who wait for an answer.
    askers: BTreeMap<RequestId, mpsc::Sender<StoreResult>>,
}

/// Why a replica is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotServed {
    pub why: String,
    /// The fault of its files, if there is one.
    pub fault: Option<ReplicaFault>,
}

/// A store's answer.
pub(super) type StoreResult = Result<crate::store::Reply, RequestError>;

/// Work that a host hands to its shard.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) actions: Vec<SessionAction>,
    pub(super) ops: Vec<(u64, Op)>,
    /// Every connection ends: the replica has begun another life.
    pub(super) reborn: bool,
}

impl Host {
    /// `witnesses` is a directory outside of the replica's, in which changes are counted.
    pub(super) fn open(path: &Path, witnesses: &Path, boot: BootId) -> Result<Self, OpenError> {
        // Sessions compare what comes over a wire with its checksums.
        let limits =
            Limits { settled_by_caller: true, summed_by_caller: true, ..Limits::default() };
        let (store, table) = open_store(path, limits, boot)?;
        let status = store.status();
        let identity = Identity {
            volume: status.volume,
            replica: status.replica,
            instance: InstanceId::random(),
            boot,
        };
        Ok(Self {
            volume: status.volume,
            replica: status.replica,
            path: path.to_owned(),
            limits,
            session: Session::new(identity, status.promised, REGION),
            boot,
            witness: Witness::open(path, witnesses, status.replica, boot),
            inherited: store.dirty_regions(),
            store: Some(store),
            table,
            in_flight: BTreeMap::new(),
            next: 0,
            requests: BTreeMap::new(),
            away: BTreeMap::new(),
            next_away: 0,
            waiting: VecDeque::new(),
            broken: false,
            fault: None,
            askers: BTreeMap::new(),
        })
    }

    pub(super) fn on(&mut self, event: SessionEvent, wanted: &mut Wanted) {
        let from = wanted.actions.len();
        self.session.on(event, &mut wanted.actions);
        self.serve(from, wanted);
    }

    /// Carries out what the session asked of the store, and what follows from it.
    fn serve(&mut self, from: usize, wanted: &mut Wanted) {
        let mut at = from;
        while at < wanted.actions.len() {
            if matches!(wanted.actions[at], SessionAction::Disk { .. }) {
                let SessionAction::Disk { id, request } = wanted.actions.remove(at) else {
                    continue;
                };
                self.submit(id, request, wanted);
            } else {
                at += 1;
            }
        }
    }

    fn submit(&mut self, id: u64, request: DiskRequest, wanted: &mut Wanted) {
        if !self.is_usable() {
            self.waiting.push_back((id, request));
            self.revive(wanted);
            return;
        }
        let Some(store) = &mut self.store else { return };
        match request {
            DiskRequest::Reconciled => self.witness.rebuilt(),
            DiskRequest::SetEpoch { .. } => self.witness.accepted(),
            _ => {}
        }
        match translate::plan(request, store, &self.inherited) {
            RequestPlan::Answer(mut result) => {
                if let Ok(DiskReply::Description(description)) = &mut result {
                    description.witnessed = self.witness.found();
                }
                self.answered(id, result, wanted);
            }
            RequestPlan::Submit { pending, requests } => {
                self.in_flight.insert(id, pending);
                for request in requests {
                    let number = RequestId(self.next);
                    self.next += 1;
                    self.requests.insert(number, id);
                    store.submit(number, request);
                }
            }
        }
        self.pump(wanted);
    }

    /// Something for the store that no engine asks for.
    pub(super) fn ask(
        &mut self,
        request: crate::store::Request,
        answer: mpsc::Sender<StoreResult>,
        wanted: &mut Wanted,
    ) {
        if self.store.is_none() && !self.broken {
            self.revive(wanted);
        }
        let Some(store) = self.store.as_mut().filter(|_| !self.broken) else { return };
        let number = RequestId(self.next);
        self.next += 1;
        self.askers.insert(number, answer);
        store.submit(number, request);
        self.pump(wanted);
    }

    fn is_usable(&self) -> bool {
        self.store.is_some() && !self.broken && self.waiting.is_empty()
    }

    /// Opens the store again once nothing of the old one is under way.
    fn revive(&mut self, wanted: &mut Wanted) {
        if !self.away.is_empty() {
            return;
        }
        if self.store.is_none() || self.broken {
            self.store = None;
            match open_store(&self.path, self.limits, self.boot) {
                Ok((store, table)) => {
                    self.fault = None;
                    self.inherited = store.dirty_regions();
                    self.store = Some(store);
                    self.table = table;
                }
                Err(error) => {
                    self.note_fault(&error);
                    for (id, _) in std::mem::take(&mut self.waiting) {
                        self.answered(id, Err(Refusal::Io), wanted);
                    }
                    return;
                }
            }
            if std::mem::take(&mut self.broken) {
                self.begin_life(wanted);
                return;
            }
        }
        while let Some((id, request)) = self.waiting.pop_front() {
            self.submit_now(id, request, wanted);
        }
    }

    /// Logged once: an attempt follows every tick.
    fn note_fault(&mut self, error: &OpenError) {
        let fault = NotServed { why: chain(error), fault: Some(error.fault()) };
        if self.fault.as_ref() != Some(&fault) {
            tracing::error!(replica = %self.replica, path = %self.path.display(), error = fault.why, "cannot open the replica");
            self.fault = Some(fault);
        }
    }

    fn submit_now(&mut self, id: u64, request: DiskRequest, wanted: &mut Wanted) {
        let rest = std::mem::take(&mut self.waiting);
        self.submit(id, request, wanted);
        self.waiting.extend(rest);
    }

    /// Earlier answers cannot be relied on any more.
    fn begin_life(&mut self, wanted: &mut Wanted) {
        self.waiting.clear();
        self.in_flight.clear();
        self.requests.clear();
        self.askers.clear();
        let identity = Identity {
            volume: self.volume,
            replica: self.replica,
            instance: InstanceId::random(),
            boot: self.boot,
        };
        let promised = self.session.promised();
        self.session = Session::new(identity, promised, REGION);
        wanted.reborn = true;
    }

    /// Lets the store go on until it waits for something.
    fn pump(&mut self, wanted: &mut Wanted) {
        while let Some(action) = self.store.as_mut().and_then(Replica::next_action) {
            match action {
                Action::Io(io) => self.start(io.id, io.file, io.op, wanted),
                Action::Reply { id, result } => {
                    if let Some(asker) = self.askers.remove(&id) {
                        let _ = asker.send(result);
                        continue;
                    }
                    let Some(asker) = self.requests.remove(&id) else { continue };
                    self.replied(asker, result, wanted);
                }
            }
        }
    }

    fn start(&mut self, id: IoId, file: FileId, op: IoOp, wanted: &mut Wanted) {
        match self.table.start(file, op) {
            Started::Done(result) => self.complete(id, result),
            Started::Away(op) => {
                self.away.insert(self.next_away, (id, file));
                wanted.ops.push((self.next_away, op));
                self.next_away += 1;
            }
        }
    }

    fn complete(&mut self, id: IoId, result: IoResult) {
        if let Some(store) = &mut self.store {
            store.complete(id, result);
        }
    }

    /// An operation that was carried out elsewhere has ended.
    pub(super) fn done(&mut self, key: u64, done: Done, wanted: &mut Wanted) {
        let Some((id, file)) = self.away.remove(&key) else { return };
        if let Some(created) = done.created {
            self.table.insert(file, created);
        }
        if !self.broken {
            self.complete(id, done.result);
        }
        self.pump(wanted);
        if !self.waiting.is_empty() {
            self.revive(wanted);
        }
    }

    fn replied(
        &mut self,
        asker: u64,
        result: Result<crate::store::Reply, RequestError>,
        wanted: &mut Wanted,
    ) {
        if let Err(RequestError::Stopped { reason }) = &result
            && !self.broken
        {
            tracing::error!(replica = %self.replica, %reason, "replica stopped; reopening it");
            self.broken = true;
        }
        let Some(pending) = self.in_flight.get_mut(&asker) else { return };
        let Some(result) = pending.take(result) else { return };
        let closed = pending.is_close() && result.is_ok();
        if pending.is_change() && result.is_ok() {
            self.witness.count();
        }
        self.in_flight.remove(&asker);
        if closed {
            self.store = None;
        }
        self.answered(asker, result, wanted);
    }

    fn answered(&mut self, id: u64, result: DiskResult, wanted: &mut Wanted) {
        let from = wanted.actions.len();
        self.session.on(SessionEvent::Disk { id, result }, &mut wanted.actions);
        self.serve(from, wanted);
    }

    /// Now and then: background work, and what heartbeats report.
    pub(super) fn tick(&mut self, wanted: &mut Wanted) {
        if self.broken {
            self.revive(wanted);
        }
        let Some(store) = &mut self.store else { return };
        let status = store.status();
        if status.work.is_some() {
            store.grant(if self.in_flight.is_empty() { GRANT_IDLE } else { GRANT_BUSY });
        }
        let free = rustix::fs::statvfs(&self.path).map_or(0, |it| it.f_bavail * it.f_frsize);
        self.session.set_stats(Pong {
            free_bytes: free,
            used_bytes: status.unique_bytes,
            merging: u32::from(status.work.is_some()),
            dirty_regions: u32::try_from(status.active_regions).unwrap_or(u32::MAX),
            work: status.work.as_ref().map(translate::progress),
        });
        self.pump(wanted);
    }

    /// The status of the store, while it is open.
    pub(super) fn status(&self) -> Option<crate::store::Status> {
        self.store.as_ref().map(Replica::status)
    }

    /// Why it cannot be opened, unless it can.
    pub(super) fn fault(&self) -> Option<&NotServed> {
        self.fault.as_ref()
    }

    /// Whether there is work to be granted.
    pub(super) fn is_busy(&self) -> bool {
        self.broken || self.store.as_ref().is_some_and(|store| store.status().work.is_some())
    }

    /// Whether an operation is still carried out elsewhere.
    pub(super) fn is_away(&self) -> bool {
        !self.away.is_empty()
    }
}

fn open_store(path: &Path, limits: Limits, boot: BootId) -> Result<(Replica, Table), OpenError> {
    let mut files = Directory::new(path);
    let mut bases = DirectoryBases::default();
    let options = OpenOptions { limits, boot: Some(boot), ..OpenOptions::default() };
    let store = crate::store::open(&mut files, &mut bases, options)?;
    let bases = store.bases().iter().map(|base| PathBuf::from(&base.path)).collect();
    Ok((store, Table::new(path, bases)))
}

/// This life of the kernel. One that cannot be named is taken for another each time: that only
/// makes everybody more careful.
pub(super) fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().parse().unwrap_or_else(|_| BootId::random())
}
