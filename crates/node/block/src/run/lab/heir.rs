//! The owner of a volume: an engine holds it, another may be on standby and inherit it.
//!
//! ```text
//!  take ─► Held ─────────────────────────────── the process ends ─► free
//!  stand_by ─► Waiting ─ the lock is free ─► Held: replicas that ended are started, and the
//!                                            usual socket is listened on
//! ```
//!
//! The holder of the lock supervises the processes. The record decides which engine may write: a
//! standby engine takes the volume first, by a new generation, and the lock when the other one has
//! ended.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::control::{self, Listening, SOCKET, ask_over};
use super::{ClientError, LabError, LabReply, LabRequest, Shared};
use crate::run::{AdminRequest, chain};

/// Where an engine on standby listens.
const STANDBY: &str = "standby.sock";

/// How long a handover may take: a replica that cannot be reached is waited for.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Whether the volume is ours.
pub(super) enum Hold {
    /// For as long as the file is open, whatever happens to this process.
    Held { _lock: File },
    /// Keeps a second one from standing by.
    Waiting { _lock: File },
}

impl Hold {
    pub(super) fn take(dir: &Path) -> Result<Self, LabError> {
        lock_directory(dir).map(|lock| Self::Held { _lock: lock })
    }

    pub(super) fn stand_by(dir: &Path) -> Result<Self, LabError> {
        let path = dir.join("standby.lock");
        let io = |source| LabError::Io { path: path.clone(), source };
        let options = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = options.map_err(io)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self::Waiting { _lock: lock }),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(LabError::StandsBy { dir: dir.to_owned() })
            }
            Err(std::fs::TryLockError::Error(source)) => Err(io(source)),
        }
    }
}

/// Keeps others out for as long as the file is open, whatever happens to this process.
pub(super) fn lock_directory(dir: &Path) -> Result<File, LabError> {
    let io = |source| LabError::Io { path: dir.to_owned(), source };
    let file = File::open(dir).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(LabError::InUse { dir: dir.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(io(source)),
    }
}

/// The sockets of a laboratory; removed with it.
pub(super) type Sockets = Arc<Mutex<Vec<Listening>>>;

/// Listens for people, and for the end of who has the volume.
pub(super) fn listen(shared: &Arc<Shared>) -> Result<Sockets, LabError> {
    let name = if shared.is_held() { SOCKET } else { STANDBY };
    let sockets = Arc::new(Mutex::new(vec![control::listen(shared, name)?]));
    if name == STANDBY {
        let (shared, inherited) = (shared.clone(), sockets.clone());
        let fail = |source| LabError::Shard { source };
        let inherit = move || {
            if let Err(error) = shared.inherit(&inherited) {
                tracing::error!(error = chain(&error), "cannot take over volume directory");
            }
        };
        std::thread::Builder::new().name("lab-heir".to_owned()).spawn(inherit).map_err(fail)?;
    }
    Ok(sockets)
}

impl Shared {
    pub(super) fn is_held(&self) -> bool {
        matches!(*self.hold.lock().unwrap_or_else(PoisonError::into_inner), Hold::Held { .. })
    }

    /// Waits until the holder of the directory has ended, and serves it from then on.
    fn inherit(self: &Arc<Self>, sockets: &Sockets) -> Result<(), LabError> {
        let io = |source| LabError::Io { path: self.dir.clone(), source };
        let lock = File::open(&self.dir).map_err(io)?;
        lock.lock().map_err(io)?;
        *self.hold.lock().unwrap_or_else(PoisonError::into_inner) = Hold::Held { _lock: lock };
        let count = self.description.lock().unwrap_or_else(PoisonError::into_inner).replicas.len();
        for index in 0..count {
            self.start_replica(index)?;
        }
        let listening = control::listen(self, SOCKET)?;
        sockets.lock().unwrap_or_else(PoisonError::into_inner).push(listening);
        Ok(())
    }
}

/// Lets the engine on standby take the volume, and waits until it has.
pub fn handover(dir: &Path) -> Result<(), ClientError> {
    let ask = |request: &LabRequest| {
        let none = |_| ClientError::NoStandby { dir: dir.to_owned() };
        ask_over(UnixStream::connect(dir.join(STANDBY)).map_err(none)?, dir, request)
    };
    ask(&LabRequest::Volume(AdminRequest::Switch))?;
    let start = Instant::now();
    loop {
        let phase = match ask(&LabRequest::Status)? {
            LabReply::Status { volume, .. } => volume.phase,
            _ => String::new(),
        };
        if phase == "active" {
            return Ok(());
        }
        if start.elapsed() > HANDOVER_TIMEOUT {
            return Err(ClientError::Unfinished { phase });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
