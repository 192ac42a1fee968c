//! Processes of replicas: being one, and finding, starting and ending them.

use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::{LabError, Shared};
use crate::run::{Address, Driver, Listener, Shard};
use crate::store::OpenError;

/// How long a replica may take to come up: it may have a log to replay.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A process of a replica ends by itself when no engine has come for so long.
const LONELY: Duration = Duration::from_secs(60);

/// And for so long, when the process that started it is gone.
const ORPHANED: Duration = Duration::from_secs(1);

/// How long an earlier process may take to end.
const LINGERING: Duration = Duration::from_secs(5);

/// Options of a process of replicas.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    pub dir: PathBuf,
    /// Where engines connect.
    pub listen: Address,
    pub driver: Driver,
    /// End when no engine has been connected for so long.
    pub idle: Option<Duration>,
    /// Standard input is a pipe of the process that started this one. When that is gone, end as soon
    /// as no engine is connected.
    pub with_parent: bool,
}

/// Why a replica cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{dir} is used by another process")]
    InUse { dir: PathBuf },
    #[error("cannot use {dir}")]
    Io { dir: PathBuf, source: io::Error },
    #[error("cannot open the replica in {dir}")]
    Open { dir: PathBuf, source: OpenError },
    #[error("cannot listen on {address}")]
    Listen { address: Address, source: io::Error },
    #[error("the data path failed")]
    Shard { source: io::Error },
}

/// Serves a replica until the process is ended; `ready` is called with its address.
pub fn serve(
    options: &ServeOptions,
    ready: impl FnOnce(&Shard, &Address),
) -> Result<(), ServeError> {
    let dir = &options.dir;
    let io = |source| ServeError::Io { dir: dir.clone(), source };
    let lock = std::fs::File::open(dir).map_err(io)?;
    // A process that was killed releases it when all that it had asked of the kernel has ended.
    let start = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(std::fs::TryLockError::WouldBlock) if start.elapsed() < LINGERING => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(ServeError::InUse { dir: dir.clone() });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(io(source)),
        }
    }
    let mut shard = Shard::new(options.driver).map_err(|source| ServeError::Shard { source })?;
    shard.add_replica(dir).map_err(|source| ServeError::Open { dir: dir.clone(), source })?;
    let fail = |source| ServeError::Listen { address: options.listen.clone(), source };
    let listener = Listener::bind(&options.listen).map_err(fail)?;
    let address = listener.address().map_err(fail)?;
    shard.listen_for_engines(listener).map_err(fail)?;
    if let Some(idle) = options.idle {
        shard.end_when_idle(idle);
    }
    if options.with_parent {
        let handle = shard.handle();
        let watch = move || {
            let _ = io::Read::read_to_end(&mut io::stdin(), &mut Vec::new());
            handle.with(|shard| shard.end_when_idle(ORPHANED));
        };
        let thread = std::thread::Builder::new().name("parent".to_owned());
        thread.stack_size(64 << 10).spawn(watch).map_err(io)?;
    }
    ready(&shard, &address);
    let result = shard.run().map_err(|source| ServeError::Shard { source });
    drop(lock);
    result
}

impl Shared {
    pub(super) fn replica_dir(&self, index: usize) -> PathBuf {
        self.dir.join(format!("replica-{index}"))
    }

    pub(super) fn socket(&self, index: usize) -> PathBuf {
        self.dir.join(format!("replica-{index}.sock"))
    }

    /// The process that serves a replica, if there is one.
    pub(super) fn replica_pid(&self, index: usize) -> Option<Pid> {
        pid_of(&self.socket(index))
    }

    /// Starts the process of a replica, unless it runs, and says where it is reached.
    pub(super) fn start_replica(&self, index: usize) -> Result<Address, LabError> {
        let socket = self.socket(index);
        let start = Instant::now();
        while is_dying(&socket) && start.elapsed() < START_TIMEOUT {
            std::thread::sleep(Duration::from_millis(2));
        }
        if pid_of(&socket).is_none() {
            self.spawn_replica(index, &socket)?;
        }
        Ok(Address::Unix(socket))
    }

    fn spawn_replica(&self, index: usize, socket: &Path) -> Result<(), LabError> {
        let options = ServeOptions {
            dir: self.replica_dir(index),
            listen: Address::Unix(socket.to_owned()),
            driver: self.driver,
            idle: Some(LONELY),
            with_parent: true,
        };
        let fail = |source| LabError::Spawn { index, source };
        let log = self.dir.join(format!("replica-{index}.log"));
        let errors = std::fs::File::options().create(true).append(true).open(&log).map_err(fail)?;
        let mut command = (self.spawn)(&options);
        // In a group of its own: Ctrl-C at a terminal is for the engine, which then ends them.
        // Its input ends with this process, however that ends.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(errors).process_group(0);
        let mut child = command.spawn().map_err(fail)?;
        let start = Instant::now();
        while pid_of(socket).is_none() {
            let ended = child.try_wait().map_err(fail)?.is_some();
            if ended || start.elapsed() > START_TIMEOUT {
                let _ = child.kill();
                let _ = child.wait();
                return Err(LabError::NotUp { index, log });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.children.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        Ok(())
    }

    /// Ends a process as a crash would. False if there is none.
    pub(super) fn kill_replica(&self, index: usize) -> bool {
        let Some(pid) = self.replica_pid(index) else { return false };
        let _ = rustix::process::kill_process(pid, Signal::KILL);
        let start = Instant::now();
        while self.replica_pid(index) == Some(pid) && start.elapsed() < START_TIMEOUT {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.reap();
        true
    }

    /// Takes note of children that have ended.
    pub(super) fn reap(&self) {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Ends all processes of replicas; the engine has released them.
    pub(super) fn stop_replicas(&self) {
        let count = self.description.lock().unwrap_or_else(PoisonError::into_inner).replicas.len();
        for index in 0..count {
            if let Some(pid) = self.replica_pid(index) {
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
        }
        let start = Instant::now();
        while (0..count).any(|index| self.replica_pid(index).is_some()) {
            if start.elapsed() > START_TIMEOUT {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.reap();
    }
}

/// The process that listens on a socket, from the kernel and not from files.
fn pid_of(socket: &Path) -> Option<Pid> {
    let stream = UnixStream::connect(socket).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    Some(peer.pid)
}

/// Whether who listens on a socket was killed and is on its way: it must not be taken for one
/// that serves.
fn is_dying(socket: &Path) -> bool {
    let Some(pid) = pid_of(socket) else { return false };
    let path = format!("/proc/{}/status", pid.as_raw_nonzero());
    // Gone since.
    let Ok(status) = std::fs::read_to_string(path) else { return true };
    let has = |field: &str, what: &dyn Fn(&str) -> bool| {
        let mut lines = status.lines();
        lines.any(|line| line.strip_prefix(field).is_some_and(|value| what(value.trim())))
    };
    let killed = |mask: &str| {
        let bit = 1 << (Signal::KILL.as_raw() - 1);
        u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & bit > 0)
    };
    // Its memory goes before its sockets do.
    !status.contains("\nVmSize:") || has("SigPnd:", &killed) || has("ShdPnd:", &killed)
}
