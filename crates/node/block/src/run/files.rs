//! The files of one replica, open, and operations on them: at once where that cannot take long,
//! away from this thread where it can.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::offload::{Op, fault, write_at};
use super::sys::read_cached;
use crate::store::files::{FileId, Place};
use crate::store::{IoOp, IoResult};

/// Writes up to this long are carried out at once: copying into the kernel's cache is shorter
/// than a hand-over.
const INLINE: usize = 256 << 10;

/// State of an operation after its start.
pub(super) enum Started {
    Done(IoResult),
    /// To be carried out elsewhere.
    Away(Op),
}

#[derive(Debug)]
pub(super) struct Table {
    path: PathBuf,
    /// The directories and images under it.
    bases: Vec<PathBuf>,
    open: BTreeMap<FileId, Arc<File>>,
}

impl Table {
    pub(super) fn new(path: &Path, bases: Vec<PathBuf>) -> Self {
        Self { path: path.to_owned(), bases, open: BTreeMap::new() }
    }

    pub(super) fn start(&mut self, id: FileId, op: IoOp) -> Started {
        match self.prepare(id, op) {
            Ok(started) => started,
            Err(error) => Started::Done(Err(fault(&error))),
        }
    }

    /// A file that was made.
    pub(super) fn insert(&mut self, id: FileId, file: File) {
        self.open.insert(id, Arc::new(file));
    }

    fn prepare(&mut self, id: FileId, op: IoOp) -> io::Result<Started> {
        Ok(Started::Away(match op {
            IoOp::Read { offset, len } => {
                let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
                let file = match self.file(id) {
                    Ok(file) => file,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Ok(Started::Done(Ok(BytesMut::zeroed(len).freeze())));
                    }
                    Err(error) => return Err(error),
                };
                if let Some(data) = read_cached(file, offset, len) {
                    return Ok(Started::Done(Ok(data)));
                }
                Op::Read { file: file.clone(), offset, len }
            }
            IoOp::Write { offset, data, durable: false } if data.len() <= INLINE => {
                write_at(self.file(id)?, offset, &data, false)?;
                return Ok(Started::Done(Ok(Bytes::new())));
            }
            IoOp::Write { offset, data, durable } => {
                Op::Write { file: self.file(id)?.clone(), offset, data, durable }
            }
            IoOp::Sync => Op::Sync { file: self.file(id)?.clone() },
            IoOp::Punch { offset, len } => Op::Punch { file: self.file(id)?.clone(), offset, len },
            IoOp::Allocate { offset, len } => {
                Op::Allocate { file: self.file(id)?.clone(), offset, len }
            }
            IoOp::Truncate { len } => Op::Truncate { file: self.file(id)?.clone(), len },
            IoOp::Create => Op::Create { path: self.path_of(id)? },
            IoOp::Remove => {
                self.open.remove(&id);
                Op::Remove { path: self.path_of(id)? }
            }
            IoOp::SyncDirectory => Op::SyncDirectory { path: self.path.clone() },
            IoOp::CheckName => {
                Op::CheckName { file: self.file(id)?.clone(), path: self.path_of(id)? }
            }
        }))
    }

    fn file(&mut self, id: FileId) -> io::Result<&Arc<File>> {
        if !self.open.contains_key(&id) {
            let own = id.place() == Place::Own;
            let file = OpenOptions::new().read(true).write(own).open(self.path_of(id)?)?;
            self.open.insert(id, Arc::new(file));
        }
        Ok(&self.open[&id])
    }

    fn path_of(&self, id: FileId) -> io::Result<PathBuf> {
        let base = |at: u8| self.bases.get(usize::from(at)).ok_or(io::ErrorKind::NotFound);
        Ok(match (id, id.place()) {
            (FileId::Image(at), _) => base(at)?.clone(),
            (_, Place::Own) => self.path.join(id.to_string()),
            (_, Place::Base(at)) => base(at)?.join(id.local().to_string()),
        })
    }
}
