//! Starting machines and finding those that were started before.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use base::Tasks;

use super::start::{self, Started};
use super::{Binary, Exit, RunningMachine, Spec};
use crate::qmp::QmpError;
use crate::run_dir::{EXIT, MACHINE, PROCESS, RunDir};

/// How much of QEMU's last words an error repeats.
pub(super) const LAST_WORDS: usize = 2000;
/// For QEMU to be ready. It first allocates preallocated memory, which takes about a minute for
/// hundreds of GiB, and on a host that is overcommitted it waits for a processor. It ends by itself
/// if its arguments or disks are wrong: only a hanging QEMU takes that long.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// For the answer to a monitor command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a folder is checked whose process is between fork and exec.
const RECHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Why a machine was not started. No process is left behind.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("a process of the machine in {} exists already", dir.display())]
    AlreadyRunning { dir: PathBuf },
    #[error("cannot {step}")]
    Prepare { step: &'static str, source: io::Error },
    #[error("cannot open tap {ifname}")]
    Tap { ifname: String, source: io::Error },
    #[error("cannot make control group {name}")]
    Cgroup { name: String, source: io::Error },
    #[error("cannot run {}", binary.display())]
    Spawn { binary: PathBuf, source: io::Error },
    /// QEMU did not like its arguments, or could not open a disk.
    #[error("QEMU exited before it was ready: {said}")]
    EndedEarly { said: String },
    #[error("QEMU was not ready within {} s", limit.as_secs_f32())]
    NotReady { limit: Duration },
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

/// Why it is not known what is in a folder.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error("cannot read {}", dir.display())]
    Read { dir: PathBuf, source: io::Error },
    #[error("{} is locked, but its process cannot be found", dir.display())]
    Hidden { dir: PathBuf },
}

/// The state of a machine's folder.
#[derive(Debug)]
pub enum RunDirState {
    Running(RunningMachine),
    /// It ran, and is gone.
    Ended {
        spec: Spec,
        exit: Exit,
    },
    /// It was to be started, and no process came of it.
    Unstarted {
        spec: Spec,
    },
    /// No machine, at most a beginning of one.
    Nothing,
}

/// Starts and finds machines.
#[derive(Debug, Clone)]
pub struct Launcher {
    tasks: Tasks,
    binary: Binary,
    /// For QEMU to be ready.
    start_limit: Duration,
    /// For each monitor command.
    limit: Duration,
}

impl Launcher {
    pub fn new(tasks: Tasks, binary: Binary) -> Self {
        Self { tasks, binary, start_limit: START_TIMEOUT, limit: COMMAND_TIMEOUT }
    }

    /// The same with another limit for the start and for commands.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { start_limit: limit, limit, ..self }
    }

    /// Starts a machine in `dir` and waits until QEMU answers. The guest does not run yet:
    /// call [`Running::begin`] once its console is being read.
    pub async fn launch(&self, dir: &RunDir, spec: Spec) -> Result<RunningMachine, LaunchError> {
        let (folder, binary, plan) = (dir.clone(), self.binary.clone(), spec.clone());
        let started = blocking(move || start::start(&folder, &plan, &binary)).await?;
        let running = self.watch(dir, spec, started);
        tokio::select! {
            ready = running.ready(self.start_limit) => {
                if ready {
                    return Ok(running);
                }
                running.kill().await;
                Err(LaunchError::NotReady { limit: self.start_limit })
            }
            _ = running.exited() => {
                running.leave_cgroup();
                Err(LaunchError::EndedEarly { said: dir.log_tail(LAST_WORDS) })
            }
        }
    }

    /// Finds out what is in `dir`. A process that does not answer is adopted all the same.
    pub async fn adopt(&self, dir: &RunDir) -> Result<RunDirState, AdoptError> {
        let deadline = tokio::time::Instant::now() + self.limit;
        loop {
            let folder = dir.clone();
            match blocking(move || probe(&folder)).await? {
                RunDirProbe::Process(spec, started) => {
                    return Ok(RunDirState::Running(self.watch(dir, *spec, started)));
                }
                RunDirProbe::Settled(found) => return Ok(*found),
                RunDirProbe::Hidden => {}
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(AdoptError::Hidden { dir: dir.path().into() });
            }
            tokio::time::sleep(RECHECK_INTERVAL).await;
        }
    }

    /// Removes the folder and the control group of a machine whose process is gone.
    pub async fn clean_up(&self, dir: &RunDir) -> Result<(), AdoptError> {
        let folder = dir.clone();
        blocking(move || {
            let unread = |source| AdoptError::Read { dir: folder.path().into(), source };
            let lock = match folder.lock_patiently() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                lock => lock.map_err(unread)?,
            };
            // Held until the folder is gone, so that no process is started in it.
            let Some(_lock) = lock else {
                return Err(AdoptError::Hidden { dir: folder.path().into() });
            };
            if let Ok(Some(spec)) = folder.load::<Spec>(MACHINE) {
                start::leave_cgroup(&folder, &spec);
            }
            folder.remove().map_err(unread)
        })
        .await
    }

    fn watch(&self, dir: &RunDir, spec: Spec, started: Started) -> RunningMachine {
        RunningMachine::watch(&self.tasks, dir.clone(), spec, started, self.limit)
    }
}

/// Result of one probe of a folder.
enum RunDirProbe {
    Process(Box<Spec>, Started),
    Settled(Box<RunDirState>),
    /// The lock is held by a process that does not appear to be QEMU (yet).
    Hidden,
}

fn probe(dir: &RunDir) -> Result<RunDirProbe, AdoptError> {
    let unread = |source| AdoptError::Read { dir: dir.path().into(), source };
    let locked = dir.is_locked().map_err(unread)?;
    let Some(spec) = dir.load::<Spec>(MACHINE).map_err(unread)? else {
        return Ok(if locked {
            RunDirProbe::Hidden
        } else {
            RunDirProbe::Settled(Box::new(RunDirState::Nothing))
        });
    };
    if locked {
        let started = start::find(dir).map_err(unread)?;
        return Ok(match started {
            Some(started) => RunDirProbe::Process(Box::new(spec), started),
            None => RunDirProbe::Hidden,
        });
    }
    let was_started = dir.load::<super::ProcessId>(PROCESS).map_err(unread)?.is_some();
    let exit = dir.load::<Exit>(EXIT).map_err(unread)?;
    let unseen = was_started.then_some(Exit::Died { status: None, signal: None });
    let found = match exit.or(unseen) {
        Some(exit) => RunDirState::Ended { spec, exit },
        None => RunDirState::Unstarted { spec },
    };
    Ok(RunDirProbe::Settled(Box::new(found)))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        // It cannot be cancelled, so it panicked; the panic is ours.
        Err(failure) => std::panic::resume_unwind(failure.into_panic()),
    }
}
