//! Verifying a replica's directory without changing it, and saying what was found.
//!
//! It reads the same files as [`super::open`] and, beyond that, every map and, if requested, every
//! block. Damage that the next open will repair by itself is a *note*: a replica that was not
//! stopped cleanly has a log to replay, and may have a torn page in a region that the log names.
//! An *error* is damage that opening does not repair: the replica needs a rebuild, or a block a
//! repair.
//!
//! It must not run on a directory that is in use: the files would change while they are read.

mod finding;
mod layers;

use std::fmt;

pub use self::finding::{Finding, Problem, Severity};
use self::layers::{LayerCheck, LeftSums, check_layer};
use super::files::{FileId, Files, Place};
use super::geometry::{BLOCK, region_count};
use super::index::{self, LayerIndex, LoadError, Loading, Root};
use super::layer::{Layer, written_files};
use super::log::{self, LogError, Record};
use super::open::{
    OpenError, Sum, block_sums, check_ages, check_newest, check_sense, read_slots, recent_damage,
    roots, sum,
};
use super::recent::PLACE;
use super::sums::{self, Mark};
use super::super_block::SuperBlock;
use crate::ids::BootId;

/// The count of changes that the host keeps beside the store's files: see `run::witness`.
const ANSWERED: &str = "answered";

/// How much is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Super block, log and maps.
    Metadata,
    /// Every block of data too.
    #[default]
    Data,
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckProgress {
    pub done_regions: u64,
    pub total_regions: u64,
}

/// Result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// The super block of the replica, if that could be read.
    pub meta: Option<SuperBlock>,
    pub layers: Vec<LayerReport>,
    pub checked_blocks: u64,
}

/// One layer, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerReport {
    pub file: FileId,
    /// Nothing for the head.
    pub snapshot: Option<String>,
    pub blocks: u64,
}

impl Report {
    /// Whether opening and reading will work.
    pub fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity() != Severity::Error)
    }

    /// Whether the directory holds a replica at all, damaged or not.
    pub fn is_replica(&self) -> bool {
        !self.findings.iter().any(|finding| finding.problem == Problem::NotReplica)
    }

    /// Recommended action after damage.
    pub fn remedy(&self) -> Option<&'static str> {
        let repairable = |finding: &Finding| {
            finding.severity() != Severity::Error
                || matches!(
                    finding.problem,
                    Problem::BadBlock { .. }
                        | Problem::DamagedPage { .. }
                        | Problem::LostBlocks { .. }
                )
        };
        let forgets_only = |finding: &Finding| {
            finding.severity() != Severity::Error
                || matches!(finding.problem, Problem::Recent { .. })
        };
        if self.is_healthy() || !self.is_replica() {
            None
        } else if self.findings.iter().all(forgets_only) {
            Some(
                "attach the volume, so that the replica gets what it lacks from the others; if it \
                 has no other replica, what was written since the last flush before the kill may \
                 be lost",
            )
        } else if self.findings.iter().all(repairable) {
            Some(
                "scrub the volume to repair the blocks from its other replicas; if it has none, \
                 restore it from a backup",
            )
        } else {
            Some(
                "delete this replica, so that a new one is built from the others; if the volume \
                 has no other replica, restore it from a backup",
            )
        }
    }

    /// Adds what was found beside the files of the store.
    pub fn add(&mut self, problem: Problem) {
        self.findings.push(Finding { problem });
    }
}

/// Reads a directory and reports. State that only matters under the kernel that it was used with
/// is left out.
pub fn check(
    files: &mut dyn Files,
    depth: Depth,
    progress: &mut dyn FnMut(CheckProgress),
) -> Report {
    check_under(files, depth, None, progress)
}

/// Reads a directory and reports. `boot` is the kernel that runs.
pub fn check_under(
    files: &mut dyn Files,
    depth: Depth,
    boot: Option<BootId>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Report {
    let mut report = Report::default();
    if !holds_replica(files) {
        report.add(Problem::NotReplica);
        return report;
    }
    let Some(meta) = check_super(files, &mut report) else { return report };
    report.meta = Some(meta.clone());
    if let Err(error) = check_sense(&meta) {
        report.add(Problem::Nonsense { what: error.to_string() });
        return report;
    }
    note_state(&meta, &mut report);
    check_names(files, &meta, &mut report);
    check_recent(files, &meta, boot, &mut report);
    check_hints(files, &meta, &mut report);
    let sum = check_log(files, &meta, &mut report);
    let left = left_sums(files, &meta, boot);
    let roots = roots(&meta, &sum.roots);
    let total = u64::from(region_count(meta.size)) * meta.body.layers.layers.len() as u64;
    let mut done = 0;
    for layer in &meta.body.layers.layers {
        let written = written_files(&meta.body.layers, meta.body.work.as_ref());
        let is_written = written.contains(&layer.file);
        let root = roots.get(&layer.file).copied().unwrap_or_default();
        let index = check_index(files, &meta, layer, root, &mut report);
        if index.is_none() && meta.body.indexed {
            continue;
        }
        let (sum, left, index) = (&sum, left.as_ref(), index.as_ref());
        let mut check = LayerCheck { meta: &meta, layer, sum, left, index, is_written, depth };
        let blocks = check_layer(&mut check, files, &mut report, &mut |regions| {
            done += regions;
            progress(CheckProgress { done_regions: done, total_regions: total });
        });
        report.layers.push(LayerReport {
            file: FileId::Data(Place::Own, layer.file),
            snapshot: layer.snapshot.as_ref().map(|info| info.name.clone()),
            blocks,
        });
    }
    report
}

/// The checksums that a killed process left for its successor, if there are any.
fn left_sums(files: &mut dyn Files, meta: &SuperBlock, boot: Option<BootId>) -> Option<LeftSums> {
    let boot = boot.filter(|_| meta.body.clean.is_none() && meta.body.boot == boot)?;
    let records = meta.body.summed.then(|| block_sums(files, meta, boot))?;
    Some(records.into_iter().flatten().map(|record| (record.page, record)).collect())
}

/// A replica that lost its super block still has its log or layers.
fn holds_replica(files: &mut dyn Files) -> bool {
    // A directory that cannot be listed is reported by whoever needs it.
    let is_own = |name: &String| FileId::parse(name).is_some();
    files.list().map_or(true, |names| names.iter().any(is_own))
}

fn check_super(files: &mut dyn Files, report: &mut Report) -> Option<SuperBlock> {
    let slots = match read_slots(files) {
        Ok(slots) => slots,
        Err(_) => {
            report.add(Problem::Unreadable { file: FileId::Super, errno: 5 });
            return None;
        }
    };
    let broken: Vec<_> = (0u8..)
        .zip(&slots)
        .filter_map(|(at, slot)| Some((at, slot.as_ref().err()?.clone())))
        .collect();
    let chosen = SuperBlock::choose(slots);
    for (slot, error) in broken {
        let problem = Problem::SuperSlot { slot, error, other_is_good: chosen.is_ok() };
        report.add(problem);
    }
    chosen.ok()
}

fn note_state(meta: &SuperBlock, report: &mut Report) {
    if meta.body.clean.is_none() {
        report.add(Problem::Unclean);
    }
    if let Some(work) = &meta.body.work {
        report.add(Problem::Work { kind: work.kind });
    }
    for pin in &meta.body.pins {
        let (snapshot, by, path) = (pin.snapshot, pin.by.replica, pin.by.path.clone());
        report.add(Problem::Pinned { snapshot, by, path });
    }
    if let Some(base) = &meta.body.base {
        report.add(Problem::Based { base: base.clone() });
    }
}

fn check_names(files: &mut dyn Files, meta: &SuperBlock, report: &mut Report) {
    let names = match files.list() {
        Ok(names) => names,
        Err(fault) => {
            report.add(Problem::Unreadable { file: FileId::Directory, errno: fault.errno() });
            return;
        }
    };
    let layers = meta.body.layers.layers.iter();
    let needed: Vec<FileId> = layers
        .flat_map(|layer| FileId::of_layer(layer.file))
        .chain([FileId::Super, FileId::Log, FileId::Recent, FileId::Sums, FileId::Reserve])
        .collect();
    for file in &needed {
        // Without these a replica works; the next open makes them.
        let optional = matches!(file, FileId::Recent | FileId::Sums | FileId::Reserve)
            || (matches!(file, FileId::Index(..)) && !meta.body.indexed);
        if !optional && !names.contains(&file.to_string()) {
            report.add(Problem::Missing { file: *file });
        }
    }
    for name in names {
        match FileId::parse(&name) {
            Some(file) if !needed.contains(&file) => report.add(Problem::Orphan { file }),
            Some(_) => {}
            None if name == ANSWERED => {}
            None => report.add(Problem::Foreign { name }),
        }
    }
}

/// Recent changes count after a kill, under the same kernel.
fn check_recent(
    files: &mut dyn Files,
    meta: &SuperBlock,
    boot: Option<BootId>,
    report: &mut Report,
) {
    if meta.body.clean.is_some() || boot.is_none() || meta.body.boot != boot {
        return;
    }
    let len = (u64::from(meta.body.recent_places) + 1) * PLACE;
    match files.read(FileId::Recent, 0, len) {
        Ok(bytes) => {
            if let Some(damage) = recent_damage(files, meta, &bytes) {
                report.add(Problem::Recent { damage });
            }
        }
        Err(fault) => {
            report.add(Problem::Unreadable { file: FileId::Recent, errno: fault.errno() });
        }
    }
}

/// Files that the next open makes anew, whatever they hold.
fn check_hints(files: &mut dyn Files, meta: &SuperBlock, report: &mut Report) {
    if meta.body.session == 0 {
        return;
    }
    let mark = files.read(FileId::Sums, 0, sums::MARK).unwrap_or_default();
    let is_blank = mark.iter().all(|byte| *byte == 0);
    let exists = files.len(FileId::Sums).ok().flatten().is_some();
    if !exists || (!is_blank && Mark::decode(&mark, meta.tag()).is_none()) {
        report.add(Problem::Hint { file: FileId::Sums });
    }
    let reserve = files.len(FileId::Reserve).ok().flatten();
    if reserve.is_none_or(|len| len < meta.body.reserve) {
        report.add(Problem::Hint { file: FileId::Reserve });
    }
    let recent = files.len(FileId::Recent).ok().flatten().unwrap_or(0);
    if recent < u64::from(meta.body.recent_places) * PLACE {
        report.add(Problem::Hint { file: FileId::Recent });
    }
}

/// Reads the index of a layer; nothing if it has none, or if nothing in it can be believed.
fn check_index(
    files: &mut dyn Files,
    meta: &SuperBlock,
    layer: &Layer,
    root: Root,
    report: &mut Report,
) -> Option<LayerIndex> {
    let file = FileId::Index(Place::Own, layer.file);
    if !meta.body.indexed {
        return None;
    }
    let regions = region_count(meta.size);
    match index::load(files, Loading { tag: meta.tag(), file: layer.file, root, regions }) {
        Ok((index, health)) => {
            for page in health.damaged_slots {
                report.add(Problem::IndexSlot { file, page, unclean: meta.body.clean.is_none() });
            }
            if health.rebuilt {
                report.add(Problem::IndexRebuilt { file });
            }
            Some(index)
        }
        Err(LoadError::Contradicts) => {
            report.add(Problem::Index { file });
            None
        }
        Err(LoadError::Io(file, fault)) => {
            report.add(Problem::Unreadable { file, errno: fault.errno() });
            None
        }
    }
}

/// The sum of the log, if it will be replayed.
fn check_log(files: &mut dyn Files, meta: &SuperBlock, report: &mut Report) -> Sum {
    if let Some(next) = meta.body.clean {
        if let Err(OpenError::Stale { file }) = check_newest(files, meta, next) {
            report.add(Problem::Stale { file });
        }
        return Sum::default();
    }
    let len = log::ring_bytes(meta.body.log_pages);
    let ring = match files.read(FileId::Log, 0, len) {
        Ok(ring) => ring,
        Err(fault) => {
            report.add(Problem::Unreadable { file: FileId::Log, errno: fault.errno() });
            return Sum::default();
        }
    };
    match log::replay(&ring, meta.tag()) {
        Ok(replay) if matches!(replay.records.first(), Some(Record::Checkpoint { .. })) => {
            let sum = sum(&replay.records);
            if let Err(OpenError::Stale { file }) = check_ages(files, meta, &sum, replay.next) {
                report.add(Problem::Stale { file });
            }
            let (pages, torn) = (replay.pages, replay.torn);
            report.add(Problem::Replay { pages, torn, regions: sum.active.len() as u64 });
            sum
        }
        Ok(replay) => {
            report.add(Problem::Log { error: LogError::Record { seq: replay.tail } });
            Sum::default()
        }
        Err(error) => {
            report.add(Problem::Log { error });
            Sum::default()
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(meta) = &self.meta {
            writeln!(f, "replica {} of volume {}", meta.replica, meta.volume)?;
            writeln!(
                f,
                "size {} bytes, generation {}, epoch {}",
                meta.size, meta.body.promised, meta.body.epoch
            )?;
        }
        for layer in &self.layers {
            let name = layer.snapshot.as_deref().unwrap_or("(head or removed)");
            writeln!(f, "layer {}: {name}, {} bytes of data", layer.file, layer.blocks * BLOCK)?;
        }
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let verdict = if self.is_healthy() { "healthy" } else { "damaged" };
        write!(f, "{verdict}; {} blocks compared with their checksums", self.checked_blocks)
    }
}
