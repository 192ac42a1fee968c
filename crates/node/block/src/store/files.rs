//! The files of a replica: their names, and a small synchronous interface to them for what is
//! not on the hot path (create, open, check) and for tests.
//!
//! | name | content |
//! |---|---|
//! | `super` | identity, layer table, state: [`super::super_block`] |
//! | `log` | ring of records: [`super::log`] |
//! | `recent` | presence that is not durable yet: [`super::recent`] |
//! | `sums` | checksums that are not in a map yet: [`super::sums`] |
//! | `reserve` | space that replay may use when the disk is full: [`super::open`] |
//! | `L<n>.data` | blocks of a layer, each at its offset in the volume; sparse |
//! | `L<n>.map` | presence and checksums of a layer's blocks: [`super::map`] |
//! | `L<n>.idx` | which page of the map counts for each region: [`super::index`] |
//!
//! A *base* is a directory with the same files that belong to another replica, or a raw image;
//! its files are only ever read.

mod directory;
pub mod sim;

use std::fmt;

use bytes::Bytes;

pub use self::directory::Directory;
use super::request::{IoFault, IoOp, IoResult};

/// The number in the name of a layer's files. Never used twice in a replica.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct FileNo(pub u32);

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In the replica's own directory.
    Own,
    /// In the base with this position in [`super::Replica::bases`].
    Base(u8),
}

/// One file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileId {
    Super,
    Log,
    Recent,
    Sums,
    Reserve,
    Data(Place, FileNo),
    Map(Place, FileNo),
    Index(Place, FileNo),
    /// The raw image that is the base with this position.
    Image(u8),
    /// The directory itself.
    Directory,
}

impl FileId {
    pub fn place(self) -> Place {
        match self {
            Self::Super
            | Self::Log
            | Self::Recent
            | Self::Sums
            | Self::Reserve
            | Self::Directory => Place::Own,
            Self::Data(place, _) | Self::Map(place, _) | Self::Index(place, _) => place,
            Self::Image(base) => Place::Base(base),
        }
    }

    /// The same file, as its own directory names it.
    #[must_use]
    pub fn local(self) -> Self {
        match self {
            Self::Data(_, no) => Self::Data(Place::Own, no),
            Self::Map(_, no) => Self::Map(Place::Own, no),
            Self::Index(_, no) => Self::Index(Place::Own, no),
            other => other,
        }
    }

    /// The files of a layer.
    pub fn of_layer(no: FileNo) -> [Self; 3] {
        let own = Place::Own;
        [Self::Data(own, no), Self::Map(own, no), Self::Index(own, no)]
    }

    /// The layer file that a name in the directory belongs to, if it is one.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "super" => return Some(Self::Super),
            "log" => return Some(Self::Log),
            "recent" => return Some(Self::Recent),
            "sums" => return Some(Self::Sums),
            "reserve" => return Some(Self::Reserve),
            _ => {}
        }
        let (number, kind) = name.strip_prefix('L')?.split_once('.')?;
        let no = FileNo(number.parse().ok()?);
        if no.0.to_string() != number {
            return None;
        }
        match kind {
            "data" => Some(Self::Data(Place::Own, no)),
            "map" => Some(Self::Map(Place::Own, no)),
            "idx" => Some(Self::Index(Place::Own, no)),
            _ => None,
        }
    }
}

/// The name in the directory. An image has none of its own.
impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Super => f.write_str("super"),
            Self::Log => f.write_str("log"),
            Self::Recent => f.write_str("recent"),
            Self::Sums => f.write_str("sums"),
            Self::Reserve => f.write_str("reserve"),
            Self::Data(_, no) => write!(f, "L{}.data", no.0),
            Self::Map(_, no) => write!(f, "L{}.map", no.0),
            Self::Index(_, no) => write!(f, "L{}.idx", no.0),
            Self::Image(_) => f.write_str("image"),
            Self::Directory => f.write_str("."),
        }
    }
}

/// The files of one directory. `file` is always a local one.
pub trait Files {
    /// Reads past the end return zeroes; so do those of a file that does not exist.
    fn read(&mut self, file: FileId, offset: u64, len: u64) -> Result<Bytes, IoFault>;
    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), IoFault>;
    /// As [`Files::write`] and durable when it returns.
    fn write_durable(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), IoFault>;
    fn sync(&mut self, file: FileId) -> Result<(), IoFault>;
    fn punch(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), IoFault>;
    fn allocate(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), IoFault>;
    fn create(&mut self, file: FileId) -> Result<(), IoFault>;
    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoFault>;
    fn remove(&mut self, file: FileId) -> Result<(), IoFault>;
    fn sync_directory(&mut self) -> Result<(), IoFault>;
    /// The names in the directory, sorted.
    fn list(&mut self) -> Result<Vec<String>, IoFault>;
    /// The length of a file, or nothing if it does not exist.
    fn len(&mut self, file: FileId) -> Result<Option<u64>, IoFault>;
}

/// Carries out one operation of a replica.
pub fn perform(files: &mut dyn Files, file: FileId, op: &IoOp) -> IoResult {
    let file = file.local();
    match op {
        IoOp::Read { offset, len } => return files.read(file, *offset, *len),
        IoOp::Write { offset, data, durable: false } => files.write(file, *offset, data)?,
        IoOp::Write { offset, data, durable: true } => files.write_durable(file, *offset, data)?,
        IoOp::Sync => files.sync(file)?,
        IoOp::Punch { offset, len } => files.punch(file, *offset, *len)?,
        IoOp::Allocate { offset, len } => files.allocate(file, *offset, *len)?,
        IoOp::Create => files.create(file)?,
        IoOp::Truncate { len } => files.truncate(file, *len)?,
        IoOp::Remove => files.remove(file)?,
        IoOp::SyncDirectory => files.sync_directory()?,
        IoOp::CheckName => {
            let name = file.to_string();
            files.list()?.contains(&name).then_some(()).ok_or(IoFault::Errno(2))?;
        }
    }
    Ok(Bytes::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let own = Place::Own;
        for file in
            [FileId::Super, FileId::Log, FileId::Data(own, FileNo(7)), FileId::Map(own, FileNo(0))]
        {
            assert_eq!(FileId::parse(&file.to_string()), Some(file));
        }
        for name in ["", "L.data", "L1", "L01.data", "L1.img", "L-1.map", "lost+found", "super.old"]
        {
            assert_eq!(FileId::parse(name), None, "{name}");
        }
    }
}
