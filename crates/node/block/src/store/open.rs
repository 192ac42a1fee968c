//! Opening a replica: its identity, how it stopped, and the content of its log.
//!
//! ```text
//! super ─► identity ─► base ─┬─ stopped cleanly ──────────────────────────────┐
//!                            └─ not ─► replay the log ─► mend the maps ───────┤
//!                                      same boot ─► recent changes ───────────┤
//!                                                                             ▼
//!                    files that no layer has are removed ─► super: in use ─► Replica
//! ```
//!
//! Replay writes the presence that the log holds into the maps, in the slot that does not count
//! yet, so a crash during replay is followed by the same replay. A torn slot can only belong to
//! a region that the log names; those are mended here, and from then on a bad slot is damage.
//!
//! Where only a process ended, everything that it wrote is in the kernel's cache, and nothing that
//! was answered is lost: see [`super::recent`]. The boot shows whether it was more than that.
//!
//! The place of a page is allocated before it is needed, but a power cut may undo that. If the
//! disk is full then, replay uses the space of the file `reserve`, which is filled up again when
//! there is room. A second power cut before that may find no space at all: the replica opens
//! when there is some, and nothing is lost.

mod base;
mod block_sums;
mod fault;
mod indexes;
mod left;
mod replay;

use std::collections::{BTreeMap, BTreeSet};

pub use self::base::{BaseError, BasePlace, Bases, DirectoryBases, NoBases, describe_image};
pub(crate) use self::block_sums::left as block_sums;
pub use self::fault::ReplicaFault;
pub(crate) use self::indexes::roots;
pub(crate) use self::left::damage as recent_damage;
use self::replay::{Recovered, recover};
pub(crate) use self::replay::{Sum, check_ages, sum};
use super::files::{FileId, FileNo, Files, Place};
use super::geometry::{BLOCK, MAX_VOLUME, Region, region_count};
use super::index::Index;
use super::layer::Layer;
use super::log::{self, LogError, LogWriter, Record};
use super::replica::{Limits, Opened, Replica};
use super::request::IoFault;
use super::super_block::{SLOT, SLOTS, SlotError, SuperBlock};
use crate::ids::{BootId, ReplicaId, VolumeId};

/// Expectations and permissions of the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Refuse any other.
    pub volume: Option<VolumeId>,
    pub replica: Option<ReplicaId>,
    pub limits: Limits,
    /// The kernel that runs. Without it an unclean stop counts as a power cut.
    pub boot: Option<BootId>,
}

/// Why a replica could not be opened. Nothing has been changed, except that a replay may have
/// been carried out in part.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("no valid super block: the first is {}, the second {}", .0[0], .0[1])]
    Super([SlotError; 2]),
    #[error("belongs to volume {found}, not {expected}")]
    Volume { found: VolumeId, expected: VolumeId },
    #[error("is replica {found}, not {expected}")]
    Replica { found: ReplicaId, expected: ReplicaId },
    #[error("the super block contradicts itself: {what}")]
    Nonsense { what: &'static str },
    #[error("{file} is missing")]
    Missing { file: FileId },
    #[error("{file} is an older copy: other files of the replica are newer")]
    Stale { file: FileId },
    #[error("{file} and the map that goes with it are not what the log says they are")]
    Index { file: FileId },
    #[error("cannot read the log")]
    Log { source: LogError },
    #[error("the base cannot be used")]
    Base { source: BaseError },
    #[error("cannot access {file}")]
    Io { file: FileId, source: IoFault },
}

/// Opens a replica for use.
pub fn open(
    files: &mut dyn Files,
    bases: &mut dyn Bases,
    options: OpenOptions,
) -> Result<Replica, OpenError> {
    let slots = read_slots(files)?;
    let both_valid = slots.iter().all(Result::is_ok);
    // The newest version is perhaps in one slot only: the other one is written first.
    let order = match &slots {
        [Ok(a), Ok(b)] if a.seq > b.seq => [SLOTS[1], SLOTS[0]],
        [Ok(_), Err(_)] => [SLOTS[1], SLOTS[0]],
        _ => SLOTS,
    };
    let meta = SuperBlock::choose(slots).map_err(OpenError::Super)?;
    check_identity(&meta, &options)?;
    check_sense(&meta)?;
    check_files(files, &meta)?;
    let base::Resolved { places: bases, links: base_links, indexes } =
        base::resolve(bases, meta.body.base.as_ref())
            .map_err(|source| OpenError::Base { source })?;
    let end = match (meta.body.clean, options.boot) {
        (Some(_), _) => End::Clean,
        (None, Some(boot)) if meta.body.boot == Some(boot) => End::Killed,
        (None, _) => End::PowerCut,
    };
    let mut recovered = match meta.body.clean {
        Some(next) => {
            check_newest(files, &meta, next)?;
            let mut recovered = Recovered::clean(&meta, next);
            recovered.index = match meta.body.indexed {
                true => indexes::load(files, &meta, &BTreeMap::new())?,
                false => indexes::build(files, &meta, &recovered.counts)?,
            };
            recovered
        }
        None => recover(files, &meta, end)?,
    };
    for (map, index) in indexes {
        recovered.index.insert(map, index);
    }
    let boot = options.boot.unwrap_or(NO_BOOT);
    let mut left = left::read(files, &meta, boot, end, &recovered)?;
    let opening = block_sums::Opening {
        meta: &meta,
        boot,
        end,
        suspects: &recovered.suspects,
        active: options.limits.active_regions,
    };
    left.sums = block_sums::prepare(files, &opening);
    // A damaged slot might have been the newer one, with layers that this one does not know.
    if both_valid {
        remove_orphans(files, &meta)?;
    }
    let Recovered { counts, suspects, cursor, marks, mut log, index, .. } = recovered;
    let before = meta.clone();
    let mut meta = meta;
    if let Some(logged) = marks {
        meta.body.marks = Some(meta.body.marks.unwrap_or_default().merged(logged));
    }
    meta.seq += 1;
    meta.body.indexed = true;
    meta.body.log_next = log.durable_next();
    for layer in &mut meta.body.layers.layers {
        layer.root = Some(index.root(layer.file));
    }
    meta.body.session = meta.body.session.saturating_add(1);
    meta.body.boot = options.boot;
    meta.body.recent_places = u32::try_from(left.places).unwrap_or(0);
    meta.body.summed = left.sums.keeps();
    // Without all of the recent changes a kill is no better than a power cut.
    let forgets = end == End::PowerCut || left.damage.is_some();
    meta.body.lost = (meta.body.lost || forgets) && !suspects.is_empty();
    // Snapshots that were cut: see the states of a change of the super block.
    match end {
        End::Clean => meta.body.layers.seal(),
        End::Killed => {}
        End::PowerCut => {
            let layers = meta.body.layers.layers.iter_mut();
            layers.filter(|layer| layer.unsealed).for_each(Layer::take_back);
        }
    }
    if meta.body.clean.take().is_some() {
        begin_log(&mut log, &meta, cursor, &counts);
    } else {
        log.append(Record::SuperBlock { seq: meta.seq });
    }
    if let Some(work) = &mut meta.body.work {
        work.cursor = cursor;
    }
    let encoded = meta.encode().map_err(|_| OpenError::Nonsense { what: "it does not fit" })?;
    let io = |source| OpenError::Io { file: FileId::Super, source };
    // A process that was killed may have left the newest to the kernel.
    files.sync(FileId::Super).map_err(io)?;
    for slot in order {
        files.write_durable(FileId::Super, slot, &encoded).map_err(io)?;
    }
    if end == End::Killed {
        left::renew(files, &before, boot, &mut left);
    }
    fill_reserve(files, meta.body.reserve);
    let limits = options.limits;
    Ok(Replica::new(Opened {
        meta,
        bases,
        base_links,
        counts,
        suspects,
        cursor,
        index,
        log,
        limits,
        boot,
        left,
    }))
}

/// The boot of a replica whose state cannot be relied on.
const NO_BOOT: BootId = BootId::from_u128(0);

/// How the last use of a replica ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    /// The process was, and not the kernel.
    Killed,
    PowerCut,
}

/// Reads the newer of the two super blocks.
pub fn read_super(files: &mut dyn Files) -> Result<SuperBlock, OpenError> {
    SuperBlock::choose(read_slots(files)?).map_err(OpenError::Super)
}

pub(crate) fn read_slots(
    files: &mut dyn Files,
) -> Result<[Result<SuperBlock, SlotError>; 2], OpenError> {
    let mut slot = |index: u64| {
        let read = files.read(FileId::Super, index * SLOT, SLOT);
        let data = read.map_err(|source| OpenError::Io { file: FileId::Super, source })?;
        Ok(SuperBlock::decode(&data))
    };
    Ok([slot(0)?, slot(1)?])
}

fn check_identity(meta: &SuperBlock, options: &OpenOptions) -> Result<(), OpenError> {
    if let Some(expected) = options.volume
        && expected != meta.volume
    {
        return Err(OpenError::Volume { found: meta.volume, expected });
    }
    match options.replica {
        Some(expected) if expected != meta.replica => {
            Err(OpenError::Replica { found: meta.replica, expected })
        }
        _ => Ok(()),
    }
}

/// More than a reserve ever needs.
const MAX_RESERVE: u64 = 1 << 30;

/// More than a replica is made with.
const MAX_PLACES: u32 = 1 << 14;

/// Layers and pieces of work are not so many in the life of a disk.
const MAX_NUMBER: u32 = 1 << 30;

/// A checksum says that the bytes are as they were written, not that they make sense.
pub(crate) fn check_sense(meta: &SuperBlock) -> Result<(), OpenError> {
    let body = &meta.body;
    let layers = &body.layers.layers;
    let exists = |no| layers.iter().any(|layer| layer.no == no);
    let what = if meta.size == 0 || !meta.size.is_multiple_of(BLOCK) || meta.size > MAX_VOLUME {
        "the size is not possible"
    } else if body.log_pages < log::MIN_PAGES {
        "the log is too short"
    } else if body.log_pages > log::MAX_PAGES || body.reserve > MAX_RESERVE {
        "the log or the reserve is larger than any"
    } else if body.recent_places > MAX_PLACES {
        "the file of recent changes is larger than any"
    } else if body.layers.next > MAX_NUMBER || body.clean.is_some_and(|seq| seq > u64::MAX / 2) {
        "a number is greater than any that was given"
    } else if !exists(body.layers.head) {
        "the head is not a layer"
    } else if layers.iter().any(|layer| layer.parent.is_some_and(|parent| !exists(parent))) {
        "a parent is not a layer"
    } else if (1..layers.len()).any(|at| {
        let (earlier, layer) = layers.split_at(at);
        earlier.iter().any(|other| other.no == layer[0].no || other.file == layer[0].file)
    }) {
        "a layer is there twice"
    } else if layers.iter().any(|layer| is_own_ancestor(meta, layer.no)) {
        "layers go round in a circle"
    } else if body.work.as_ref().is_some_and(|work| !work.kind.layers().into_iter().all(exists)) {
        "background work names a layer that does not exist"
    } else {
        return Ok(());
    };
    Err(OpenError::Nonsense { what })
}

fn is_own_ancestor(meta: &SuperBlock, no: super::layer::LayerNo) -> bool {
    let layers = &meta.body.layers;
    layers.chain(no).take(layers.layers.len() + 1).count() > layers.layers.len()
}

fn check_files(files: &mut dyn Files, meta: &SuperBlock) -> Result<(), OpenError> {
    let layers = meta.body.layers.layers.iter();
    let needed = layers.flat_map(|layer| {
        [FileId::Data(Place::Own, layer.file), FileId::Map(Place::Own, layer.file)]
    });
    for file in needed.chain([FileId::Log]) {
        let len = files.len(file).map_err(|source| OpenError::Io { file, source })?;
        if len.is_none() {
            return Err(OpenError::Missing { file });
        }
    }
    Ok(())
}

/// Removes what an interrupted snapshot or removal left.
fn remove_orphans(files: &mut dyn Files, meta: &SuperBlock) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { file: FileId::Directory, source };
    let mut removed = false;
    for name in files.list().map_err(io)? {
        let Some(file) = FileId::parse(&name) else { continue };
        if let FileId::Data(_, no) | FileId::Map(_, no) | FileId::Index(_, no) = file
            && meta.body.layers.by_file(no).is_none()
        {
            files.remove(file).map_err(|source| OpenError::Io { file, source })?;
            removed = true;
        }
    }
    if removed { files.sync_directory().map_err(io) } else { Ok(()) }
}

/// Takes the reserve back if replay has used it. A disk that is still full is no reason not to
/// open.
fn fill_reserve(files: &mut dyn Files, bytes: u64) {
    if bytes > 0 && files.len(FileId::Reserve).is_ok_and(|len| len.unwrap_or(0) < bytes) {
        let _: Result<(), IoFault> = files.create(FileId::Reserve);
        if files.allocate(FileId::Reserve, 0, bytes).is_err() {
            let _: Result<(), IoFault> = files.truncate(FileId::Reserve, 0);
        }
    }
}

/// Whether a super block that says that the replica was stopped cleanly is the newest: then nothing
/// is in the log that came after it. A log that is damaged or older does not matter, because
/// nothing in it is needed.
pub(crate) fn check_newest(
    files: &mut dyn Files,
    meta: &SuperBlock,
    next: u64,
) -> Result<(), OpenError> {
    let len = log::ring_bytes(meta.body.log_pages);
    let io = |source| OpenError::Io { file: FileId::Log, source };
    let ring = files.read(FileId::Log, 0, len).map_err(io)?;
    match log::replay(&ring, meta.tag()) {
        Ok(replay) if replay.next > next || sum(&replay.records).super_seq > meta.seq => {
            Err(OpenError::Stale { file: FileId::Super })
        }
        _ => Ok(()),
    }
}

/// After a clean stop the log begins anew, with a checkpoint.
fn begin_log(
    log: &mut LogWriter,
    meta: &SuperBlock,
    cursor: Region,
    counts: &BTreeMap<FileNo, u64>,
) {
    let work = meta.body.work.as_ref().map_or(0, |work| work.no);
    log.append(Record::Checkpoint { work, cursor });
    for (file, blocks) in counts {
        log.append(Record::Count { file: *file, blocks: *blocks });
    }
    for layer in &meta.body.layers.layers {
        let root = layer.root.unwrap_or_default();
        log.append(Record::Root { file: layer.file, root });
    }
    log.append(Record::SuperBlock { seq: meta.seq });
    if let Some(marks) = meta.body.marks {
        log.append(Record::Marks(marks));
    }
}

impl Recovered {
    fn clean(meta: &SuperBlock, next: u64) -> Self {
        let layers = meta.body.layers.layers.iter();
        Self {
            counts: layers.map(|layer| (layer.file, layer.blocks)).collect(),
            suspects: Vec::new(),
            cursor: meta.body.work.as_ref().map_or(Region(0), |work| work.cursor),
            marks: None,
            log: LogWriter::new(meta.body.log_pages, meta.tag(), next, next, 0),
            unsynced: BTreeSet::new(),
            index: Index::default(),
        }
    }
}

/// Whether a region is one of the volume's.
fn is_inside(meta: &SuperBlock, region: Region) -> bool {
    region.0 < region_count(meta.size)
}
