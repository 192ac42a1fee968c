//! Going on from the memory of a snapshot instead of booting.
//!
//! The memory from which the guest resumes is recorded in the machine's folder before QEMU exists,
//! which then waits for it. If the memory is not here, the guest does not wait: it boots, as after
//! a power cut.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hci::together::RESUME;
use qemu::qmp::{QmpError, RunState, StateError};
use serde::{Deserialize, Serialize};
use tracing::info;

use crate::machine::{LiveMachine, Vmi, saved_memory};

/// The note, in a machine's folder.
const NOTE: &str = "resume.json";
/// QEMU is busy while it reads memory.
const ANSWER: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
struct ResumeRecord {
    memory: PathBuf,
}

/// Why a guest does not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeError {
    #[error("cannot read the memory of the guest from {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot resume the guest from {}", path.display())]
    Load { path: PathBuf, source: StateError },
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

/// The saved memory from which a machine is to resume, if it is here.
pub(super) fn source(vmi: &Vmi, agent_dir: &Path) -> Option<PathBuf> {
    saved_memory::source(vmi, vmi.annotations.get(RESUME)?, agent_dir)
}

pub(super) fn note(dir: &qemu::RunDir, memory: &Path) -> io::Result<()> {
    dir.store(NOTE, &ResumeRecord { memory: memory.to_path_buf() })
}

/// The outcome for a guest that may wait for its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumed {
    /// It goes on with the memory of a snapshot, and with the time of it.
    FromMemory,
    /// It does not wait for any.
    NotNeeded,
}

impl LiveMachine {
    /// Has a guest go on that waits for its memory; nothing happens to others.
    pub(super) async fn resume(&self) -> Result<Resumed, ResumeError> {
        let Ok(Some(note)) = self.running.dir().load::<ResumeRecord>(NOTE) else {
            return Ok(Resumed::NotNeeded);
        };
        let qmp = self.running.qmp().await?.with_limit(ANSWER);
        if qmp.run_state().await? != RunState::InMigrate {
            return Ok(Resumed::NotNeeded);
        }
        let path = note.memory;
        let file =
            File::open(&path).map_err(|source| ResumeError::Open { path: path.clone(), source })?;
        let loaded = qmp.load_state(file.into()).await;
        loaded.map_err(|source| ResumeError::Load { path, source })?;
        qmp.resume().await?;
        info!("guest resumed from saved memory");
        Ok(Resumed::FromMemory)
    }
}
