//! The file of a [`HostRecord`]: written as a whole and synchronised, under a lock that the server and
//! the watchdog share. It is held only while the file is read and written.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::trial::{HostRecord, TrialError, TrialEvent};

/// Names this boot of the host.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Why a record cannot be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot lock {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Trial(#[from] TrialError),
    #[error("trial {id} is over")]
    Over { id: u64 },
}

/// The record of a host in a directory.
#[derive(Debug, Clone)]
pub struct RecordFile {
    path: PathBuf,
}

impl RecordFile {
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join("host-network.json") }
    }

    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    pub fn load(&self) -> Result<HostRecord, RecordError> {
        let path = || self.path.clone();
        match std::fs::read(&self.path) {
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => Ok(HostRecord::default()),
            Err(source) => Err(RecordError::Read { path: path(), source }),
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|source| RecordError::Damaged { path: path(), source }),
        }
    }

    /// Changes the record; an error of `change` leaves it unchanged.
    pub fn change(
        &self,
        change: impl FnOnce(HostRecord) -> Result<HostRecord, RecordError>,
    ) -> Result<HostRecord, RecordError> {
        let _lock = self.lock()?;
        let before = self.load()?;
        let after = change(before.clone())?;
        if after != before {
            self.save(&after)
                .map_err(|source| RecordError::Write { path: self.path.clone(), source })?;
        }
        Ok(after)
    }

    /// An event of one trial; an error if that is over.
    pub fn on(&self, id: u64, event: TrialEvent) -> Result<HostRecord, RecordError> {
        self.change(|record| match &record.trial {
            Some(trial) if trial.id == id => Ok(record.on(event)?),
            _ => Err(RecordError::Over { id }),
        })
    }

    fn lock(&self) -> Result<File, RecordError> {
        let path = self.path.with_extension("lock");
        let locked = || {
            let mut options = OpenOptions::new();
            let file = options.create(true).truncate(false).write(true).open(&path)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        };
        locked().map_err(|source| RecordError::Lock { path: path.clone(), source })
    }

    fn save(&self, record: &HostRecord) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(record).map_err(io::Error::other)?)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// Names this boot of the host; empty where the kernel gives it no name.
pub fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Confirmation, HostChange, NewTrial, TrialChecks, TrialState};
    use super::*;

    #[test]
    fn a_record_outlives_its_process_and_refuses_events_of_other_trials() {
        let dir = tempfile::tempdir().unwrap();
        let file = RecordFile::new(dir.path());
        assert_eq!(file.load().unwrap(), HostRecord::default());
        let change = HostChange { bridge: "lan-br".parse().unwrap(), unit: None };
        let begun = TrialEvent::Begun(Box::new(NewTrial {
            change,
            confirmation: Confirmation::Auto,
            boot: "b".into(),
            deadline: 5,
            checks: TrialChecks::default(),
        }));
        let record = file.change(|record| Ok(record.on(begun)?)).unwrap();
        assert_eq!(RecordFile::new(dir.path()).load().unwrap(), record);
        assert!(matches!(file.on(9, TrialEvent::Applied), Err(RecordError::Over { id: 9 })));
        let record = file.on(1, TrialEvent::Applied).unwrap();
        let state = record.trial.map(|trial| trial.state);
        assert_eq!(state, Some(TrialState::AwaitingConfirmation));
        file.on(1, TrialEvent::Confirmed).unwrap();
        assert_eq!(file.load().unwrap().trial, None);
        assert!(matches!(
            file.on(1, TrialEvent::Late("x".into())),
            Err(RecordError::Over { id: 1 })
        ));
        std::fs::write(dir.path().join("host-network.json"), "{").unwrap();
        assert!(matches!(file.load(), Err(RecordError::Damaged { .. })));
    }
}
