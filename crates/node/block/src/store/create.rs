//! Making the directory of a new replica.
//!
//! The super block is written last: a directory without a valid one is no replica, and what a
//! crash leaves of it can be removed.

use super::files::{FileId, Files};
use super::geometry::{BLOCK, MAX_VOLUME, Region};
use super::layer::{Base, LayerTable, SnapshotInfo};
use super::log::{self, Header, Record};
use super::recent;
use super::request::IoFault;
use super::super_block::{Body, SLOT, SLOTS, SuperBlock};
use crate::ids::{Epoch, Generation, ReplicaId, VolumeId};

/// The usual length of the log.
pub const LOG_PAGES: u32 = 1024;

/// The usual number of places for recent changes: two for each region that may be active.
pub const RECENT: u32 = 1568;

/// The usual reserve: a page for each region that may be active.
pub const RESERVE: u64 = 4 << 20;

/// Properties of the new replica.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    pub volume: VolumeId,
    pub replica: ReplicaId,
    /// Bytes; a multiple of 4096.
    pub size: u64,
    pub log_pages: u32,
    /// Pages of maps that may have changes which are not durable yet.
    pub recent: u32,
    /// Bytes that are kept free for replay after an unclean stop on a full disk.
    pub reserve: u64,
    /// The base, which is read where nothing was written. A snapshot must be pinned before.
    pub base: Option<Base>,
    /// Snapshots that a rebuild will fill, from the oldest to the newest.
    pub snapshots: Vec<SnapshotInfo>,
    pub promised: Generation,
    pub epoch: Epoch,
}

impl CreateOptions {
    pub fn new(volume: VolumeId, replica: ReplicaId, size: u64) -> Self {
        Self {
            volume,
            replica,
            size,
            log_pages: LOG_PAGES,
            recent: RECENT,
            reserve: RESERVE,
            base: None,
            snapshots: Vec::new(),
            promised: Generation::default(),
            epoch: Epoch::default(),
        }
    }
}

/// Why a replica could not be created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    #[error("size {size} is not valid: {reason}")]
    Size { size: u64, reason: &'static str },
    #[error(
        "a log of {pages} pages is not possible; it has {} to {}",
        log::MIN_PAGES,
        log::MAX_PAGES
    )]
    Log { pages: u32 },
    #[error("the directory holds a replica already, or what is left of one: {name}")]
    NotEmpty { name: String },
    #[error("the layer table of {bytes} bytes is too long")]
    LayerTable { bytes: usize },
    #[error("cannot list the directory")]
    List { source: IoFault },
    #[error("cannot create {file}")]
    Create { file: FileId, source: IoFault },
}

/// Makes a replica in an empty directory.
pub fn create(files: &mut dyn Files, options: &CreateOptions) -> Result<(), CreateError> {
    check(options)?;
    let names = files.list().map_err(|source| CreateError::List { source })?;
    if let Some(name) = names.into_iter().find(|name| FileId::parse(name).is_some()) {
        return Err(CreateError::NotEmpty { name });
    }
    let meta = first_super_block(options);
    let encoded = meta.encode().map_err(|bytes| CreateError::LayerTable { bytes })?;
    fill(files, FileId::Super, 2 * SLOT)?;
    fill(files, FileId::Log, log::ring_bytes(options.log_pages))?;
    fill(files, FileId::Recent, u64::from(options.recent) * recent::PLACE)?;
    let fail = |file| move |source| CreateError::Create { file, source };
    let page = first_page(meta.tag());
    files.write_durable(FileId::Log, 0, &page).map_err(fail(FileId::Log))?;
    for layer in &meta.body.layers.layers {
        for file in FileId::of_layer(layer.file) {
            files.create(file).map_err(fail(file))?;
        }
    }
    files.create(FileId::Reserve).map_err(fail(FileId::Reserve))?;
    if options.reserve > 0 {
        files.allocate(FileId::Reserve, 0, options.reserve).map_err(fail(FileId::Reserve))?;
    }
    files.sync(FileId::Reserve).map_err(fail(FileId::Reserve))?;
    files.sync_directory().map_err(fail(FileId::Directory))?;
    for slot in SLOTS {
        files.write_durable(FileId::Super, slot, &encoded).map_err(fail(FileId::Super))?;
    }
    Ok(())
}

fn check(options: &CreateOptions) -> Result<(), CreateError> {
    let size = options.size;
    let reason = if size == 0 {
        "a volume has at least one block"
    } else if !size.is_multiple_of(BLOCK) {
        "not a multiple of 4096"
    } else if size > MAX_VOLUME {
        "larger than 15 TiB"
    } else if !(log::MIN_PAGES..=log::MAX_PAGES).contains(&options.log_pages) {
        return Err(CreateError::Log { pages: options.log_pages });
    } else {
        return Ok(());
    };
    Err(CreateError::Size { size, reason })
}

fn first_super_block(options: &CreateOptions) -> SuperBlock {
    let mut layers = LayerTable::new();
    for snapshot in &options.snapshots {
        layers.snapshot(snapshot.clone());
    }
    for layer in &mut layers.layers {
        layer.filling = layer.snapshot.is_some();
    }
    SuperBlock {
        seq: 1,
        volume: options.volume,
        replica: options.replica,
        size: options.size,
        body: Body {
            session: 0,
            clean: Some(1),
            log_pages: options.log_pages,
            log_next: 1,
            boot: None,
            indexed: true,
            lost: false,
            recent_places: 0,
            summed: false,
            reserve: options.reserve,
            promised: options.promised,
            marks: None,
            epoch: options.epoch,
            layers,
            base: options.base.clone(),
            pins: Vec::new(),
            work: None,
        },
    }
}

/// The first page of a log and its copy: an empty checkpoint.
fn first_page(tag: u64) -> Vec<u8> {
    let mut records = Vec::new();
    Record::Checkpoint { work: 0, cursor: Region(0) }.encode(&mut records);
    let mut page = vec![0; log::PAGE];
    let header = Header { seq: 0, batch: 0, tail: 0, tag, before: 0 };
    log::encode_page(header, &records, &mut page);
    page.repeat(2)
}

/// Writes a file once in full, so that later writes need neither space nor the journal.
fn fill(files: &mut dyn Files, file: FileId, len: u64) -> Result<(), CreateError> {
    let fail = |source| CreateError::Create { file, source };
    files.create(file).map_err(fail)?;
    let zeroes = vec![0; SLOT as usize];
    let mut at = 0;
    while at < len {
        let count = (len - at).min(SLOT);
        files.write(file, at, &zeroes[..count as usize]).map_err(fail)?;
        at += count;
    }
    files.sync(file).map_err(fail)
}

/// Why a replica's directory must not be removed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    #[error("snapshot {snapshot} is the base of replica {by} at {path}")]
    Pinned { snapshot: crate::ids::SnapshotId, by: ReplicaId, path: String },
    #[error("cannot remove {file}")]
    Remove { file: FileId, source: IoFault },
}

/// Removes the files of a replica that is not open, unless a clone needs them.
///
/// The super block goes first: after a crash the rest is not taken for a replica. A directory
/// whose super block cannot be read has no pins that could be honoured.
pub fn remove(files: &mut dyn Files) -> Result<(), RemoveError> {
    if let Ok(meta) = super::open::read_super(files)
        && let Some(pin) = meta.body.pins.first()
    {
        let (by, path) = (pin.by.replica, pin.by.path.clone());
        return Err(RemoveError::Pinned { snapshot: pin.snapshot, by, path });
    }
    let fail = |file| move |source| RemoveError::Remove { file, source };
    files.remove(FileId::Super).map_err(fail(FileId::Super))?;
    files.sync_directory().map_err(fail(FileId::Directory))?;
    let names = files.list().map_err(fail(FileId::Directory))?;
    for file in names.iter().filter_map(|name| FileId::parse(name)) {
        files.remove(file).map_err(fail(file))?;
    }
    files.sync_directory().map_err(fail(FileId::Directory))
}
