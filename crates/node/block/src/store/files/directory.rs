//! A replica's files in a directory of the host.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use super::{FileId, Files};
use crate::store::request::IoFault;

/// Files are opened when they are first used and stay open.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    mode: Mode,
    open: BTreeMap<FileId, File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    ReadWrite,
    ReadOnly,
}

impl Directory {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: Mode::ReadWrite, open: BTreeMap::new() }
    }

    /// Nothing in it can be changed through this.
    pub fn read_only(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: Mode::ReadOnly, open: BTreeMap::new() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&mut self, id: FileId) -> io::Result<&File> {
        if !self.open.contains_key(&id) {
            let write = self.mode == Mode::ReadWrite;
            // A base that is an image is named by its own path.
            let path = match id {
                FileId::Image(_) => self.path.clone(),
                _ => self.path.join(id.to_string()),
            };
            let file = OpenOptions::new().read(true).write(write).open(path)?;
            self.open.insert(id, file);
        }
        Ok(&self.open[&id])
    }
}

impl Files for Directory {
    fn read(&mut self, file: FileId, offset: u64, len: u64) -> Result<Bytes, IoFault> {
        let mut data = vec![0; len as usize];
        let file = match self.file(file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(data.into()),
            Err(error) => return Err(fault(error)),
        };
        let mut done = 0;
        while done < data.len() {
            match file.read_at(&mut data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fault(error)),
            }
        }
        Ok(data.into())
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), IoFault> {
        self.file(file).and_then(|file| file.write_all_at(data, offset)).map_err(fault)
    }

    fn write_durable(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<(), IoFault> {
        self.write(file, offset, data)?;
        self.sync(file)
    }

    fn sync(&mut self, file: FileId) -> Result<(), IoFault> {
        self.file(file).and_then(File::sync_data).map_err(fault)
    }

    fn punch(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), IoFault> {
        let file = self.file(file).map_err(fault)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(file, flags, offset, len) {
            // A file system without holes keeps the space; what is there is not read.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(fault(errno.into())),
        }
    }

    fn allocate(&mut self, file: FileId, offset: u64, len: u64) -> Result<(), IoFault> {
        let file = self.file(file).map_err(fault)?;
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(fault(errno.into())),
        }
    }

    fn create(&mut self, file: FileId) -> Result<(), IoFault> {
        let path = self.path.join(file.to_string());
        let created =
            OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path);
        self.open.insert(file, created.map_err(fault)?);
        Ok(())
    }

    fn truncate(&mut self, file: FileId, len: u64) -> Result<(), IoFault> {
        self.file(file).and_then(|file| file.set_len(len)).map_err(fault)
    }

    fn remove(&mut self, file: FileId) -> Result<(), IoFault> {
        self.open.remove(&file);
        match std::fs::remove_file(self.path.join(file.to_string())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault(error)),
            _ => Ok(()),
        }
    }

    fn sync_directory(&mut self) -> Result<(), IoFault> {
        File::open(&self.path).and_then(|directory| directory.sync_all()).map_err(fault)
    }

    fn list(&mut self) -> Result<Vec<String>, IoFault> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(fault)? {
            names.push(entry.map_err(fault)?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn len(&mut self, file: FileId) -> Result<Option<u64>, IoFault> {
        match self.file(file).and_then(File::metadata) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }
}

fn fault(error: io::Error) -> IoFault {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => IoFault::NoSpace,
        _ => IoFault::Errno(error.raw_os_error().unwrap_or(5)),
    }
}
