//! What lies under a linked clone: layers in other directories, and at the bottom perhaps an
//! image.

use std::collections::BTreeMap;

use super::super::files::{Directory, FileId, Files, Place};
use super::super::geometry::{BLOCK, Region};
use super::super::layer::{Base, Content, Link};
use super::super::request::IoFault;
use super::super::super_block::SlotError;
use super::{OpenError, read_super};
use crate::ids::{ReplicaId, SnapshotId};

/// Clones of clones of clones: deeper than this they should be hydrated.
const MAX_DEPTH: usize = 8;

/// Where a base's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePlace {
    /// The directory, or the image itself.
    pub path: String,
    pub is_image: bool,
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
    #[error("image {path} has {found} bytes, not {expected}")]
    ImageSize { path: String, found: u64, expected: u64 },
    #[error("more than {MAX_DEPTH} bases under each other")]
    TooDeep,
}

/// Finds the files of bases.
pub trait Bases {
    /// The files of the directory at `path`, or of the image there.
    fn files(&mut self, path: &str) -> Result<&mut dyn Files, BaseError>;
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
}

/// Follows the bases down to the last.
pub(super) fn resolve(
    bases: &mut dyn Bases,
    base: Option<&Base>,
) -> Result<(Vec<BasePlace>, Vec<Link>), BaseError> {
    let (mut places, mut links) = (Vec::new(), Vec::new());
    let mut next = base.cloned();
    while let Some(base) = next {
        if places.len() == MAX_DEPTH {
            return Err(BaseError::TooDeep);
        }
        let number = places.len() as u8;
        let place;
        (place, next) = match base {
            Base::Image { path, bytes } => (image(bases, path, bytes, number, &mut links)?, None),
            Base::Replica { path, replica, snapshot, .. } => {
                snapshot_of(bases, path, replica, snapshot, number, &mut links)?
            }
        };
        places.push(place);
    }
    Ok((places, links))
}

fn image(
    bases: &mut dyn Bases,
    path: String,
    bytes: u64,
    number: u8,
    links: &mut Vec<Link>,
) -> Result<BasePlace, BaseError> {
    let data = FileId::Image(number);
    let found = bases.files(&path)?.len(FileId::Image(0));
    let found = found.map_err(|source| BaseError::Io { path: path.clone(), source })?.unwrap_or(0);
    if found != bytes {
        return Err(BaseError::ImageSize { path, found, expected: bytes });
    }
    links.push(Link { data, map: Content::Image { bytes }, from: Region(0) });
    Ok(BasePlace { path, is_image: true, tag: 0, bytes })
}

fn snapshot_of(
    bases: &mut dyn Bases,
    path: String,
    replica: ReplicaId,
    snapshot: SnapshotId,
    number: u8,
    links: &mut Vec<Link>,
) -> Result<(BasePlace, Option<Base>), BaseError> {
    let meta = match read_super(bases.files(&path)?) {
        Ok(meta) => meta,
        Err(OpenError::Super(slots)) => return Err(BaseError::Super { path, slots }),
        Err(OpenError::Io { source, .. }) => return Err(BaseError::Io { path, source }),
        Err(other) => unreachable!("reading a super block does not end in {other}"),
    };
    if meta.replica != replica {
        return Err(BaseError::Identity { path, found: meta.replica, expected: replica });
    }
    let body = &meta.body;
    let Some(top) = body.layers.by_snapshot(snapshot) else {
        return Err(BaseError::NoSnapshot { path, snapshot });
    };
    let mut blocks = 0;
    for layer in body.layers.chain(top.no) {
        let place = Place::Base(number);
        blocks += layer.blocks;
        links.push(Link {
            data: FileId::Data(place, layer.file),
            map: Content::Map(FileId::Map(place, layer.file)),
            from: Region(0),
        });
    }
    let place = BasePlace { path, is_image: false, tag: meta.tag(), bytes: blocks * BLOCK };
    Ok((place, meta.body.base))
}
