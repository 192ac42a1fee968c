//! A record in a file, for a laboratory on one machine.
//!
//! A lock file beside it makes read-compare-write one step among processes; the new content is
//! written aside, synced and renamed, so that a reader sees the old or the new record.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{ControlError, ControlPlane, Record, Version, Versioned};

/// A record in a file.
#[derive(Debug)]
pub struct FileControl {
    path: PathBuf,
    lock: File,
}

impl FileControl {
    /// Makes the file of a new volume; there must be none.
    pub fn create(path: &Path, record: &Record) -> Result<Self, ControlError> {
        let control = Self::open(path)?;
        control.lock.lock().map_err(ControlError::Io)?;
        let made = match path.try_exists() {
            Ok(false) => {
                control.replace(&Versioned { version: Version(1), record: record.clone() })
            }
            Ok(true) => Err(ControlError::Io(io::ErrorKind::AlreadyExists.into())),
            Err(error) => Err(ControlError::Io(error)),
        };
        control.lock.unlock().map_err(ControlError::Io)?;
        made.map(|()| control)
    }

    pub fn open(path: &Path) -> Result<Self, ControlError> {
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.with_extension("lock"))
            .map_err(ControlError::Io)?;
        Ok(Self { path: path.to_owned(), lock })
    }

    fn load(&self) -> Result<Versioned, ControlError> {
        let bytes = fs::read(&self.path).map_err(ControlError::Io)?;
        serde_json::from_slice(&bytes).map_err(ControlError::Corrupt)
    }

    fn replace(&self, state: &Versioned) -> Result<(), ControlError> {
        let aside = self.path.with_extension("new");
        let bytes = serde_json::to_vec_pretty(state).map_err(ControlError::Corrupt)?;
        let store = || -> io::Result<()> {
            let mut file = File::create(&aside)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&aside, &self.path)?;
            let parent = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        };
        store().map_err(ControlError::Io)
    }
}

impl ControlPlane for FileControl {
    fn read(&self) -> Result<Versioned, ControlError> {
        self.load()
    }

    fn compare_and_swap(&self, expect: Version, record: &Record) -> Result<Version, ControlError> {
        self.lock.lock().map_err(ControlError::Io)?;
        let swapped = self.load().and_then(|state| match state.version == expect {
            true => {
                let version = Version(expect.0 + 1);
                self.replace(&Versioned { version, record: record.clone() })?;
                Ok(version)
            }
            false => Err(ControlError::Conflict(Box::new(state))),
        });
        self.lock.unlock().map_err(ControlError::Io)?;
        swapped
    }
}
