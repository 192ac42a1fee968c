//! A replica over a disk in memory, with operations that complete in any order.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};

use super::model::{self, Covered, Model, Value, ZERO};
use crate::ids::{BootId, ReplicaId, SnapshotId, VolumeId};
use crate::store::files::perform;
use crate::store::files::sim::{Keep, Rng, SimFiles};
use crate::store::geometry::{BLOCK, REGION_BLOCKS};
use crate::store::layer::LayerNo;
use crate::store::{
    Action, CreateOptions, Depth, Finding, Io, IoFault, IoOp, Limits, NoBases, OpenError,
    OpenOptions, Peers, Problem, Replica, Reply, Request, RequestError, RequestId, Severity, View,
    check, crc, create, open, read_super,
};

pub(super) const REGIONS: u64 = 16;
/// Few blocks, so that operations meet.
const SPOTS: [u64; 6] = [0, 1, 2, 63, 64, 511];

pub(super) const LIMITS: Limits =
    Limits { cache_pages: 6, active_regions: 8, settled_by_caller: false, summed_by_caller: false };

#[derive(Clone, Debug)]
enum Asked {
    Read {
        view: View,
        first: u64,
        count: u64,
    },
    /// All of the range is busy; only blocks that the model knows are named.
    Write {
        first: u64,
        count: u64,
        blocks: Vec<(u64, usize)>,
    },
    Flush(Covered),
    Snapshot(SnapshotId),
    /// The writes that the snapshot made durable.
    Seal(Covered),
    Delete(SnapshotId),
    Revert(SnapshotId, LayerNo),
    Expand,
    Other,
}

pub(super) struct World {
    pub(super) files: SimFiles,
    boot: BootId,
    pub(super) replica: Replica,
    pub(super) model: Model,
    pub(super) rng: Rng,
    pending: Vec<Io>,
    asked: BTreeMap<RequestId, Asked>,
    /// Blocks that are read or written.
    busy: BTreeSet<u64>,
    next: u64,
    snapshots: u128,
    /// A snapshot that is cut and perhaps not sealed, and what it makes durable.
    cut: Option<(SnapshotId, Covered)>,
    pub(super) size: u64,
    /// Whether requests may fail for lack of space.
    pub(super) tight: bool,
    /// Metadata on disk is verified beside everything else.
    pub(super) verifies: bool,
    /// Pieces of metadata that a verification repaired.
    pub(super) repaired: u32,
    pub(super) failures: u64,
    pub(super) steps: u64,
}

pub(super) fn options() -> CreateOptions {
    let (volume, replica) = (VolumeId::from_u128(1), ReplicaId::from_u128(2));
    let size = REGIONS * u64::from(REGION_BLOCKS) * BLOCK;
    let usual = CreateOptions::new(volume, replica, size);
    CreateOptions { log_pages: 32, recent: 12, reserve: 96 << 10, ..usual }
}

pub(super) fn reopen(files: &mut SimFiles) -> Result<Replica, OpenError> {
    reopen_in(files, BootId::from_u128(1))
}

pub(super) fn reopen_in(files: &mut SimFiles, boot: BootId) -> Result<Replica, OpenError> {
    let options = OpenOptions { limits: LIMITS, boot: Some(boot), ..OpenOptions::default() };
    open(files, &mut NoBases, options)
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut files = SimFiles::new();
        create(&mut files, &options()).unwrap();
        let replica = reopen(&mut files).unwrap();
        Self {
            files,
            boot: BootId::from_u128(1),
            replica,
            model: Model::default(),
            rng: Rng::new(seed),
            pending: Vec::new(),
            asked: BTreeMap::new(),
            busy: BTreeSet::new(),
            next: 0,
            snapshots: 0,
            cut: None,
            size: options().size,
            tight: false,
            verifies: false,
            repaired: 0,
            failures: 0,
            steps: 0,
        }
    }

    /// One random thing happens.
    pub(super) fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        self.collect()?;
        let busy = self.pending.len() as u64;
        if busy > 0 && self.rng.below(busy + 4) > 1 {
            self.complete_one();
        } else {
            self.ask();
        }
        self.collect()
    }

    /// Asks for something that does not overlap what is in flight.
    fn ask(&mut self) {
        match self.rng.below(40) {
            0..=15 => self.ask_write(),
            16..=19 => self.ask_zero(),
            20..=27 => self.ask_read(View::Head),
            28..=30 => self.flush(),
            31..=32 => self.replica.grant(self.rng.below(64) * BLOCK),
            33 if !self.model.snapshots.is_empty() => {
                let id = self.some_snapshot();
                self.ask_read(View::Snapshot(id));
            }
            34 if self.model.snapshots.len() < 5 && self.is_calm() => {
                if self.rng.one_in(2) {
                    self.prepare();
                }
                self.snapshot();
            }
            35 if !self.model.snapshots.is_empty() && !self.is_changing() && !self.is_reading() => {
                let id = self.some_snapshot();
                self.delete(id);
            }
            36 if !self.model.snapshots.is_empty() && self.is_calm() && self.rng.one_in(3) => {
                let id = self.some_snapshot();
                self.revert(id);
            }
            37 if self.size < 24 * u64::from(REGION_BLOCKS) * BLOCK && !self.is_changing() => {
                self.size += BLOCK * (1 + self.rng.below(600));
                self.submit(Request::Expand { size: self.size }, Asked::Expand);
            }
            38..=39 if self.verifies && self.rng.one_in(2) => {
                let first = self.rng.below(2) as u32 * 8;
                let (regions, peers) = (first..first + 16, Peers::Nobody);
                self.submit(Request::ScrubMetadata { regions, peers }, Asked::Other);
            }
            38 => {
                let regions = (0..24).map(crate::store::geometry::Region).collect();
                self.submit(Request::Reconciled { regions }, Asked::Other);
            }
            39 => {
                let region = crate::store::geometry::Region(self.rng.below(REGIONS) as u32);
                self.submit(Request::Scrub { region }, Asked::Other);
            }
            _ => {}
        }
    }

    fn some_snapshot(&mut self) -> SnapshotId {
        let at = self.rng.below(self.model.snapshots.len() as u64) as usize;
        *self.model.snapshots.keys().nth(at).unwrap()
    }

    /// A run of blocks around a spot.
    fn place(&mut self) -> (u64, u64) {
        let spot = SPOTS[self.rng.below(SPOTS.len() as u64) as usize];
        let first = self.rng.below(REGIONS) * u64::from(REGION_BLOCKS) + spot;
        let count = [1, 1, 1, 2, 3, 5][self.rng.below(6) as usize];
        (first, count.min(REGIONS * u64::from(REGION_BLOCKS) - first))
    }

    fn ask_write(&mut self) {
        let (first, count) = self.place();
        if (first..first + count).any(|block| self.busy.contains(&block)) || self.is_changing() {
            return;
        }
        let fua = self.rng.one_in(8);
        self.write(first, count, fua);
    }

    pub(super) fn write(&mut self, first: u64, count: u64, fua: bool) {
        let (mut data, mut blocks) = (BytesMut::new(), Vec::new());
        for block in first..first + count {
            let value = [self.model.number(); 8];
            data.extend(model::encode(value));
            blocks.push((block, self.model.submitted(block, value)));
        }
        let data = data.freeze();
        let crcs = crc::of_blocks(&data).collect();
        let request = Request::Write { offset: first * BLOCK, data, crcs, fua };
        self.submit(request, Asked::Write { first, count, blocks });
    }

    fn ask_zero(&mut self) {
        let (first, mut count) = self.place();
        if self.tight {
            // A longer one may fail half way.
            count = 1;
        } else if self.rng.one_in(4) {
            count = (REGIONS * u64::from(REGION_BLOCKS) - first).min(1 + self.rng.below(1500));
        }
        let inside = |block: &u64| (first..first + count).contains(block);
        if self.busy.iter().any(inside) || self.is_changing() {
            return;
        }
        self.zero(first, count);
    }

    pub(super) fn zero(&mut self, first: u64, count: u64) {
        let touched: Vec<u64> = self.model.content().into_keys().collect();
        let inside = |block: &u64| (first..first + count).contains(block);
        let blocks = touched.into_iter().filter(|block| inside(block));
        let blocks = blocks.map(|block| (block, self.model.submitted(block, ZERO))).collect();
        let (offset, len) = (first * BLOCK, count * BLOCK);
        let request = match self.rng.below(2) {
            0 => Request::Discard { offset, len },
            _ => Request::WriteZeroes { offset, len, fua: self.rng.one_in(8) },
        };
        self.submit(request, Asked::Write { first, count, blocks });
    }

    fn ask_read(&mut self, view: View) {
        let (first, count) = self.place();
        let overlaps = (first..first + count).any(|block| self.busy.contains(&block));
        if (view == View::Head && overlaps) || self.is_changing() {
            return;
        }
        let request = Request::Read { view, offset: first * BLOCK, len: count * BLOCK };
        self.submit(request, Asked::Read { view, first, count });
    }

    fn submit(&mut self, request: Request, asked: Asked) {
        let id = RequestId(self.next);
        self.next += 1;
        match &asked {
            Asked::Read { view: View::Head, first, count } => {
                self.busy.extend(*first..*first + *count);
            }
            Asked::Write { first, count, .. } => self.busy.extend(*first..*first + *count),
            _ => {}
        }
        self.asked.insert(id, asked);
        self.replica.submit(id, request);
    }

    pub(super) fn flush(&mut self) {
        let asked = Asked::Flush(self.model.cover());
        self.submit(Request::Flush, asked);
    }

    pub(super) fn snapshot(&mut self) {
        self.snapshots += 1;
        let id = SnapshotId::from_u128(self.snapshots);
        let (name, labels) = (format!("s{}", self.snapshots), BTreeMap::new());
        self.submit(Request::Snapshot { id, name, created: 0, labels }, Asked::Snapshot(id));
    }

    pub(super) fn prepare(&mut self) {
        self.submit(Request::Prepare, Asked::Other);
    }

    /// Whether no snapshot waits for its cut.
    pub(super) fn is_cut(&self) -> bool {
        !self.asked.values().any(|asked| matches!(asked, Asked::Snapshot(_)))
    }

    pub(super) fn delete(&mut self, id: SnapshotId) {
        self.submit(Request::DeleteSnapshot { id }, Asked::Delete(id));
    }

    pub(super) fn revert(&mut self, id: SnapshotId) {
        let head = read_super(&mut self.files).unwrap().body.layers.head;
        self.submit(Request::Revert { to: id }, Asked::Revert(id, head));
    }

    /// Carries out the oldest operation in flight. False if there is none.
    pub(super) fn complete_oldest(&mut self) -> Result<bool, String> {
        self.collect()?;
        if self.pending.is_empty() {
            return Ok(false);
        }
        let io = self.pending.remove(0);
        let result = perform(&mut self.files, io.file, &io.op);
        self.replica.complete(io.id, result);
        self.collect()?;
        Ok(true)
    }

    /// Whether no guest request is in flight, as an engine makes sure before a snapshot.
    fn is_calm(&self) -> bool {
        self.busy.is_empty() && !self.is_changing() && self.model.uncertain.is_empty()
    }

    /// Whether a snapshot is being read.
    fn is_reading(&self) -> bool {
        let reads = |asked: &Asked| matches!(asked, Asked::Read { view: View::Snapshot(_), .. });
        self.asked.values().any(reads)
    }

    fn is_changing(&self) -> bool {
        self.asked.values().any(|asked| {
            matches!(
                asked,
                Asked::Snapshot(_) | Asked::Revert(..) | Asked::Delete(_) | Asked::Expand
            )
        })
    }

    fn complete_one(&mut self) {
        let at = self.rng.below(self.pending.len() as u64) as usize;
        let io = self.pending.swap_remove(at);
        let result = perform(&mut self.files, io.file, &io.op);
        self.replica.complete(io.id, result);
    }

    /// Takes what the replica wants and says.
    fn collect(&mut self) -> Result<(), String> {
        while let Some(action) = self.replica.next_action() {
            match action {
                Action::Io(io) => self.pending.push(io),
                Action::Reply { id, result } => self.answer(id, result)?,
            }
        }
        Ok(())
    }

    fn answer(&mut self, id: RequestId, result: Result<Reply, RequestError>) -> Result<(), String> {
        let asked = self.asked.remove(&id).ok_or("a request was answered twice")?;
        match &asked {
            Asked::Read { view: View::Head, first, count } | Asked::Write { first, count, .. } => {
                (*first..*first + *count).for_each(|block| assert!(self.busy.remove(&block)));
            }
            _ => {}
        }
        let reply = match result {
            Ok(reply) => reply,
            Err(RequestError::NoSpace) if self.tight => {
                self.out_of_space(&asked);
                return Ok(());
            }
            Err(error) => return Err(format!("{asked:?} failed: {error}")),
        };
        match asked {
            Asked::Read { view, first, count } => {
                let found = values(reply).map_err(|e| {
                    format!("{view:?} {first}+{count}: {e} {:#?}", self.replica.status())
                })?;
                for (block, found) in (first..first + count).zip(found) {
                    if view == View::Head && self.model.uncertain.contains(&block) {
                        self.model.observe(block, found)?;
                        continue;
                    }
                    let expected = match view {
                        View::Head => self.model.now(block),
                        View::Snapshot(id) => {
                            self.model.snapshots[&id].get(&block).copied().unwrap_or(ZERO)
                        }
                    };
                    if found != expected {
                        return Err(format!("{view:?} block {block}: {found:?} not {expected:?}"));
                    }
                }
            }
            Asked::Write { blocks, .. } => {
                blocks.iter().for_each(|(block, position)| self.model.answered(*block, *position));
            }
            Asked::Flush(covered) => self.model.flushed(&covered),
            Asked::Snapshot(id) => {
                self.model.snapshots.insert(id, self.model.content());
                let covered = self.model.cover();
                self.cut = Some((id, covered.clone()));
                self.submit(Request::Seal, Asked::Seal(covered));
            }
            Asked::Seal(covered) => {
                self.cut = None;
                self.model.flushed(&covered);
            }
            Asked::Delete(id) => drop(self.model.snapshots.remove(&id)),
            Asked::Revert(id, _) => {
                let content = self.model.snapshots[&id].clone();
                self.model.become_certain(&content);
            }
            Asked::Expand => {}
            Asked::Other => match reply {
                Reply::Scrubbed(bad) if !bad.is_empty() => {
                    return Err(format!("scrub found {bad:?}"));
                }
                Reply::Metadata(report) if report.lost_pages > 0 || !report.left.is_empty() => {
                    return Err(format!("verification found {report:?}"));
                }
                Reply::Metadata(report) => self.repaired += report.repaired,
                _ => {}
            },
        }
        Ok(())
    }

    /// A write that failed left something that is old or new.
    fn out_of_space(&mut self, asked: &Asked) {
        if let Asked::Write { blocks, .. } = asked {
            self.failures += 1;
            self.model.uncertain.extend(blocks.iter().map(|(block, _)| *block));
        }
    }

    /// Completes everything that is in flight.
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.collect()?;
        while !self.pending.is_empty() {
            self.complete_one();
            self.collect()?;
        }
        if !self.asked.is_empty() {
            return Err(format!("never answered: {:?}", self.asked));
        }
        Ok(())
    }

    /// The directory if the power fails now, and the model of its allowed content.
    pub(super) fn after_cut(&mut self, keep: Keep) -> World {
        let mut files = self.files.clone();
        for io in &self.pending {
            // Operations in flight may have been carried out.
            if self.rng.one_in(2) && !matches!(io.op, IoOp::Read { .. }) {
                let _: Result<Bytes, IoFault> = perform(&mut files, io.file, &io.op);
            }
        }
        files.power_cut(keep);
        let boot = BootId::from_u128(self.boot.as_u128() + 1);
        self.follow(files, boot)
    }

    /// The files if the process is killed now: any part of the operations in flight, whole pages
    /// each, and all completed ones.
    pub(super) fn after_kill(&mut self) -> World {
        let mut files = self.files.clone();
        for io in &self.pending {
            let mut op = io.op.clone();
            if let IoOp::Write { data, durable: false, .. } = &mut op {
                let pages = (data.len() as u64).div_ceil(BLOCK);
                let kept = self.rng.below(pages + 1) * BLOCK;
                data.truncate(kept as usize);
            } else if self.rng.one_in(2) {
                continue;
            }
            if !matches!(op, IoOp::Read { .. }) {
                let _: Result<Bytes, IoFault> = perform(&mut files, io.file, &op);
            }
        }
        self.follow(files, self.boot)
    }

    /// The replica that is opened next.
    fn follow(&mut self, mut files: SimFiles, boot: BootId) -> World {
        examine(&mut files);
        let replica = match reopen_in(&mut files, boot) {
            Ok(replica) => replica,
            // The reserve was used up by an earlier cut: it opens when there is room.
            Err(OpenError::Io { source: IoFault::NoSpace, .. }) if self.tight => {
                files.capacity = None;
                reopen_in(&mut files, boot).unwrap()
            }
            Err(error) => panic!("cannot open: {error:?}"),
        };
        let mut world = World {
            files,
            boot,
            replica,
            model: self.model.clone(),
            rng: Rng::new(self.rng.draw()),
            pending: Vec::new(),
            asked: BTreeMap::new(),
            busy: BTreeSet::new(),
            next: 0,
            snapshots: self.snapshots + 1,
            cut: self.cut.clone(),
            size: self.size,
            tight: self.tight,
            verifies: self.verifies,
            repaired: self.repaired,
            failures: self.failures,
            steps: 0,
        };
        let lost = if boot == self.boot { None } else { world.cut.take() };
        world.decide(self.asked.values(), lost);
        world
    }

    /// Finds out whether changes that were in flight took place.
    fn decide<'a>(
        &mut self,
        asked: impl Iterator<Item = &'a Asked>,
        lost: Option<(SnapshotId, Covered)>,
    ) {
        let status = self.replica.status();
        let now = read_super(&mut self.files).unwrap().body.layers.head;
        let exists = |id: &SnapshotId| status.snapshots.iter().any(|s| s.info.id == *id);
        let (mut came, mut reverted) = (None, None);
        for asked in asked {
            match asked {
                Asked::Snapshot(id) if exists(id) => came = Some(*id),
                Asked::Delete(id) if !exists(id) => drop(self.model.snapshots.remove(id)),
                Asked::Revert(id, head) if *head != now => reverted = Some(*id),
                Asked::Expand => self.size = status.size,
                _ => {}
            }
        }
        if let Some(id) = came {
            self.model.snapshots.insert(id, self.model.content());
            // Its process was killed, and the next one seals it.
            self.cut = Some((id, self.model.cover()));
        }
        // Or the power went: then it was sealed, or it was never taken.
        if let Some((id, covered)) = lost {
            match exists(&id) {
                true => self.model.flushed(&covered),
                false => drop(self.model.snapshots.remove(&id)),
            }
        }
        if let Some(id) = reverted {
            let content = self.model.snapshots[&id].clone();
            self.model.become_certain(&content);
        }
        let known: BTreeSet<_> = status.snapshots.iter().map(|s| s.info.id).collect();
        assert_eq!(known, self.model.snapshots.keys().copied().collect());
        assert_eq!(status.size, self.size);
    }

    /// Reads everything, head and snapshots, and compares.
    pub(super) fn audit(&mut self, when: Audit) -> Result<(), String> {
        let blocks: Vec<u64> = (0..REGIONS)
            .flat_map(|region| SPOTS.map(|spot| region * u64::from(REGION_BLOCKS) + spot))
            .chain(self.model.content().into_keys())
            .filter(|block| *block < self.size / BLOCK)
            .collect();
        for block in &blocks {
            let found = self.read_now(View::Head, *block)?;
            if when == Audit::AfterKill {
                self.model.observe_killed(*block, found)?;
            } else if when == Audit::AfterCut || self.model.uncertain.contains(block) {
                self.model.observe(*block, found)?;
            } else if found != self.model.now(*block) {
                return Err(format!("block {block}: {found:?} not {:?}", self.model.now(*block)));
            }
        }
        for (id, content) in self.model.snapshots.clone() {
            for block in &blocks {
                let expected = content.get(block).copied().unwrap_or(ZERO);
                let found = self.read_now(View::Snapshot(id), *block)?;
                if found != expected {
                    return Err(format!("{id} block {block}: {found:?} not {expected:?}"));
                }
            }
        }
        Ok(())
    }

    fn read_now(&mut self, view: View, block: u64) -> Result<Value, String> {
        let id = RequestId(self.next);
        self.next += 1;
        self.replica.submit(id, Request::Read { view, offset: block * BLOCK, len: BLOCK });
        loop {
            match self.replica.next_action() {
                Some(Action::Reply { id: of, result }) if of == id => {
                    let reply = result.map_err(|error| format!("block {block}: {error}"))?;
                    return Ok(values(reply).map_err(|e| {
                        format!("{view:?} {block}: {e} {:#?}", self.replica.status())
                    })?[0]);
                }
                Some(Action::Reply { .. }) => return Err("an unexpected reply".into()),
                Some(Action::Io(io)) => {
                    let result = perform(&mut self.files, io.file, &io.op);
                    self.replica.complete(io.id, result);
                }
                None => return Err(format!("block {block} is never read")),
            }
        }
    }
}

/// The event before an audit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Audit {
    Steady,
    AfterKill,
    AfterCut,
}

/// The checker must find nothing that opening does not put right, and count as the log does.
fn examine(files: &mut SimFiles) {
    let report = check(files, Depth::Data, &mut |_| {});
    let bad = report.findings.iter().any(|finding| finding.severity() != Severity::Note);
    let torn_slot = |finding: &Finding| matches!(finding.problem, Problem::SuperSlot { .. });
    let only_torn_slot = report.findings.iter().all(|finding| {
        finding.severity() == Severity::Note || (report.is_healthy() && torn_slot(finding))
    });
    assert!(!bad || only_torn_slot, "{report}");
}

/// The values of the blocks that were read; the checksums must be theirs.
fn values(reply: Reply) -> Result<Vec<Value>, String> {
    let Reply::Data(data) = reply else { return Err("not data".into()) };
    let crcs = data.crcs.clone();
    let bytes = data.into_bytes();
    if bytes.len() != crcs.len() * BLOCK as usize {
        return Err("data and checksums differ in length".into());
    }
    if let Some(bad) = crc::first_mismatch(&bytes, &crcs) {
        return Err(format!("checksum of block {bad} of the read does not match"));
    }
    (0..crcs.len())
        .map(|at| model::decode(&bytes.slice(at * BLOCK as usize..(at + 1) * BLOCK as usize)))
        .collect()
}
