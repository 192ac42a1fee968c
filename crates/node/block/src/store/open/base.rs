//! The bases of a linked clone: layers in other directories, and at the bottom perhaps an image.

use std::collections::BTreeMap;
use std::path::Path;

use aws_lc_rs::digest;

use super::super::files::{Directory, FileId, FileNo, Files, Place};
use super::super::geometry::{BLOCK, Region, region_count};
use super::super::image_sums::{self, ImageSums};
use super::super::index::{self, LayerIndex, LoadError, Loading};
use super::super::layer::{Base, Content, ImageIdentity, Link};
use super::super::log;
use super::super::request::IoFault;
use super::super::super_block::{SlotError, SuperBlock};
use super::{OpenError, read_super, sum};
use crate::ids::{ReplicaId, SnapshotId};

/// Clones of clones of clones: deeper than this they should be hydrated.
const MAX_DEPTH: usize = 8;

/// Where a base's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePlace {
    /// The directory, or the image itself.
    pub path: String,
    pub is_image: bool,
    /// Of an image that has them.
    pub(crate) sums: Option<ImageSums>,
    /// Marks the pages of its maps.
    pub(crate) tag: u64,
    /// Bytes of data that it holds for the clone.
    pub(crate) bytes: u64,
}

/// Why a base cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    #[error("nothing was said about the files at {path}")]
    Unknown { path: String },
    #[error("cannot read {path}")]
    Io { path: String, source: IoFault },
    #[error("{path} holds no replica: {first}; {second}", first = slots[0], second = slots[1])]
    Super { path: String, slots: [SlotError; 2] },
    #[error("{path} holds replica {found}, not {expected}")]
    Identity { path: String, found: ReplicaId, expected: ReplicaId },
    #[error("snapshot {snapshot} is no longer in {path}")]
    NoSnapshot { path: String, snapshot: SnapshotId },
    #[error("base image {path} is missing")]
    Missing { path: String },
    #[error("image {path} is not the one that the volume was made from")]
    OtherImage { path: String },
    #[error("{path} is a qcow2 image; only a raw one can be a base")]
    NotRaw { path: String },
    #[error("image {path} has {found} bytes, not {expected}")]
    ImageSize { path: String, found: u64, expected: u64 },
    #[error("{path}: {file} and the map that goes with it are not what the super block says")]
    Index { path: String, file: FileId },
    #[error("more than {MAX_DEPTH} bases under each other")]
    TooDeep,
}

/// The properties that are recorded of an image that is to be a base.
pub fn describe_image(bases: &mut dyn Bases, path: &str) -> Result<Base, BaseError> {
    let files = bases.files(path)?;
    let bytes = image_len(files, path)?;
    let io = |source| BaseError::Io { path: path.to_owned(), source };
    if files.read(FileId::Image(0), 0, BLOCK).map_err(io)?.starts_with(b"QFI\xfb") {
        return Err(BaseError::NotRaw { path: path.to_owned() });
    }
    let identity = Some(identify(files, path, bytes)?);
    Ok(Base::Image { path: path.to_owned(), bytes, identity })
}

fn image_len(files: &mut dyn Files, path: &str) -> Result<u64, BaseError> {
    let found = files.len(FileId::Image(0));
    let found = found.map_err(|source| BaseError::Io { path: path.to_owned(), source })?;
    found.ok_or_else(|| BaseError::Missing { path: path.to_owned() })
}

/// Blocks of an image that are compared: another image differs in one of them, or it is a copy.
const SAMPLES: u64 = 64;

fn identify(files: &mut dyn Files, path: &str, bytes: u64) -> Result<ImageIdentity, BaseError> {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&bytes.to_le_bytes());
    let last = bytes.div_ceil(BLOCK).saturating_sub(1);
    let mut before = None;
    for sample in 0..SAMPLES {
        let block = last * sample / (SAMPLES - 1);
        if before.replace(block) == Some(block) {
            continue;
        }
        let read = files.read(FileId::Image(0), block * BLOCK, BLOCK);
        let data = read.map_err(|source| BaseError::Io { path: path.to_owned(), source })?;
        context.update(&block.to_le_bytes());
        context.update(&data);
    }
    let sum = context.finish();
    Ok(ImageIdentity(sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Finds the files of bases.
pub trait Bases {
    /// The files of the directory at `path`, or of the image there.
    fn files(&mut self, path: &str) -> Result<&mut dyn Files, BaseError>;

    /// The checksums of the image at `path`, if there are any.
    fn sums(&mut self, _path: &str, _bytes: u64) -> Option<ImageSums> {
        None
    }
}

/// For replicas that have no base.
#[derive(Clone, Copy, Debug)]
pub struct NoBases;

impl Bases for NoBases {
    fn files(&mut self, path: &str) -> Result<&mut dyn Files, BaseError> {
        Err(BaseError::Unknown { path: path.to_owned() })
    }
}

/// Bases are directories and images of the host, opened for reading only.
#[derive(Debug, Default)]
pub struct DirectoryBases(BTreeMap<String, Directory>);

impl Bases for DirectoryBases {
    fn files(&mut self, path: &str) -> Result<&mut dyn Files, BaseError> {
        Ok(self.0.entry(path.to_owned()).or_insert_with(|| Directory::read_only(path)))
    }

    fn sums(&mut self, path: &str, bytes: u64) -> Option<ImageSums> {
        image_sums::load(Path::new(path), bytes)
    }
}

/// Follows the bases down to the last.
pub(super) fn resolve(bases: &mut dyn Bases, base: Option<&Base>) -> Result<Resolved, BaseError> {
    let mut resolved = Resolved::default();
    let Resolved { places, links, indexes } = &mut resolved;
    let mut next = base.cloned();
    while let Some(base) = next {
        if places.len() == MAX_DEPTH {
            return Err(BaseError::TooDeep);
        }
        let number = places.len() as u8;
        let place;
        (place, next) = match base {
            Base::Image { path, bytes, identity } => {
                (image(bases, path, bytes, identity.as_ref(), number, links)?, None)
            }
            Base::Replica { path, replica, snapshot, .. } => {
                let files = bases.files(&path)?;
                snapshot_of(files, path, replica, snapshot, number, links, indexes)?
            }
        };
        places.push(place);
    }
    Ok(resolved)
}

/// The bases of a replica.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) places: Vec<BasePlace>,
    pub(super) links: Vec<Link>,
    /// Of the maps of bases.
    pub(super) indexes: Vec<(FileId, LayerIndex)>,
}

fn image(
    bases: &mut dyn Bases,
    path: String,
    bytes: u64,
    identity: Option<&ImageIdentity>,
    number: u8,
    links: &mut Vec<Link>,
) -> Result<BasePlace, BaseError> {
    let data = FileId::Image(number);
    let files = bases.files(&path)?;
    let found = image_len(files, &path)?;
    if found != bytes {
        return Err(BaseError::ImageSize { path, found, expected: bytes });
    }
    if let Some(identity) = identity
        && *identity != identify(files, &path, bytes)?
    {
        return Err(BaseError::OtherImage { path });
    }
    let sums = bases.sums(&path, bytes);
    let map = Content::Image { bytes, summed: sums.is_some() };
    links.push(Link { data, map, from: Region(0) });
    Ok(BasePlace { path, is_image: true, sums, tag: 0, bytes })
}

fn snapshot_of(
    files: &mut dyn Files,
    path: String,
    replica: ReplicaId,
    snapshot: SnapshotId,
    number: u8,
    links: &mut Vec<Link>,
    indexes: &mut Vec<(FileId, LayerIndex)>,
) -> Result<(BasePlace, Option<Base>), BaseError> {
    let meta = match read_super(files) {
        Ok(meta) => meta,
        Err(OpenError::Super(slots)) => return Err(BaseError::Super { path, slots }),
        Err(OpenError::Io { source, .. }) => return Err(BaseError::Io { path, source }),
        Err(other) => unreachable!("reading a super block does not end in {other}"),
    };
    if meta.replica != replica {
        return Err(BaseError::Identity { path, found: meta.replica, expected: replica });
    }
    let body = &meta.body;
    let Some(top) = body.layers.pinned(snapshot) else {
        return Err(BaseError::NoSnapshot { path, snapshot });
    };
    let counts = if body.indexed { BTreeMap::new() } else { counts(files, &meta, &path)? };
    let mut blocks = 0;
    for layer in body.layers.chain(top.no) {
        let place = Place::Base(number);
        blocks += layer.blocks;
        let root = layer.root.unwrap_or_default();
        let regions = region_count(meta.size);
        let loading = Loading { tag: meta.tag(), file: layer.file, root, regions };
        let loaded = match counts.get(&layer.file) {
            // A base is not changed here, so that its index is in memory only.
            Some(blocks) => index::build(files, loading, *blocks),
            None => index::load(files, loading).map(|(index, _)| index),
        };
        let loaded = loaded.map_err(|error| match error {
            LoadError::Io(_, source) => BaseError::Io { path: path.clone(), source },
            LoadError::Contradicts => {
                let file = FileId::Index(Place::Own, layer.file);
                BaseError::Index { path: path.clone(), file }
            }
        })?;
        indexes.push((FileId::Map(place, layer.file), loaded));
        links.push(Link {
            data: FileId::Data(place, layer.file),
            map: Content::Map(FileId::Map(place, layer.file)),
            from: Region(0),
        });
    }
    let place =
        BasePlace { path, is_image: false, sums: None, tag: meta.tag(), bytes: blocks * BLOCK };
    Ok((place, meta.body.base))
}

/// The number of blocks of each layer of a base of the first format.
fn counts(
    files: &mut dyn Files,
    meta: &SuperBlock,
    path: &str,
) -> Result<BTreeMap<FileNo, u64>, BaseError> {
    if meta.body.clean.is_some() {
        let layers = meta.body.layers.layers.iter();
        return Ok(layers.map(|layer| (layer.file, layer.blocks)).collect());
    }
    let len = log::ring_bytes(meta.body.log_pages);
    let io = |source| BaseError::Io { path: path.to_owned(), source };
    let ring = files.read(FileId::Log, 0, len).map_err(io)?;
    let replay = log::replay(&ring, meta.tag());
    let replay =
        replay.map_err(|_| BaseError::Index { path: path.to_owned(), file: FileId::Log })?;
    Ok(sum(&replay.records).blocks(meta))
}
