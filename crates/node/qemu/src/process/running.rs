//! A machine whose process exists: its state, its monitor, and its end.
//!
//! Its [`Watcher`] handles changes that no caller requested. Dropping every handle ends the
//! watcher and leaves the machine running.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{Chain, Tasks};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, watch};
use tracing::debug;

use super::start::{self, Started};
use super::watcher::{ProcessWatcher, reap, record};
use super::{Exit, ProcessId, Spec, sys};
use crate::argv::device::usb_socket;
use crate::isolation::{GuestRoot, host_thread};
use crate::machine::{LinkState, Start};
use crate::qmp::{Event, Qmp, QmpError, RunState};
use crate::run_dir::{AGENT, MACHINE, RunDir, SERIAL};

/// How often a guest that does not react is reminded of its power button.
const PRESS_AGAIN: Duration = Duration::from_secs(5);
const EVENTS: usize = 256;
/// Relative to the folder that QEMU runs in, because a socket's path must be short.
const POST_COPY_SOCKET: &str = "post-copy.sock";
/// How long QEMU has to accept a connection, and how often its full queue is tried.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
const ACCEPT_RETRY: Duration = Duration::from_millis(10);
/// A picture of a screen is never larger.
const LARGEST_PICTURE: u64 = 64 << 20;

/// A machine whose process exists, or did when this was made; clones share it.
#[derive(Debug, Clone)]
pub struct RunningMachine {
    shared: Arc<ProcessShared>,
}

#[derive(Debug)]
struct ProcessShared {
    dir: RunDir,
    id: ProcessId,
    spec: Mutex<Spec>,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    limit: Duration,
    events: broadcast::Sender<Event>,
    state: watch::Receiver<Option<RunState>>,
    qmp: watch::Receiver<Option<Qmp>>,
    exit: watch::Receiver<Option<Exit>>,
    tasks: Tasks,
}

impl RunningMachine {
    pub(super) fn watch(
        tasks: &Tasks,
        dir: RunDir,
        spec: Spec,
        started: Started,
        limit: Duration,
    ) -> Self {
        let pidfd = sys::exit_signal(started.pidfd).expect("a runtime with I/O is running");
        let pidfd = Arc::new(pidfd);
        let events = broadcast::channel(EVENTS).0;
        let (state, states) = watch::channel(None);
        let (qmp, qmps) = watch::channel(None);
        let (exit, exits) = watch::channel(None);
        let watcher = ProcessWatcher {
            dir: dir.clone(),
            root: GuestRoot::new(started.id.pid, dir.path()),
            pidfd: Arc::clone(&pidfd),
            limit,
            events: events.clone(),
            state,
            qmp,
            exit,
            tasks: tasks.clone(),
        };
        tasks.spawn("machine", watcher.run(tasks.stop_signal()));
        if let Some(tpm) = started.tpm {
            tasks.spawn("tpm", reap(tpm, tasks.stop_signal()));
        }
        let shared = ProcessShared {
            dir,
            id: started.id,
            spec: Mutex::new(spec),
            pidfd,
            limit,
            events,
            state: states,
            qmp: qmps,
            exit: exits,
            tasks: tasks.clone(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub fn dir(&self) -> &RunDir {
        &self.shared.dir
    }

    pub fn process(&self) -> ProcessId {
        self.shared.id
    }

    /// The running machine, with the devices plugged since its start.
    pub fn spec(&self) -> Spec {
        self.shared.spec.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers a change that was made while the machine runs, on disk as well.
    pub fn update_spec(&self, change: impl FnOnce(&mut Spec)) -> io::Result<()> {
        let mut spec = self.shared.spec.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = spec.clone();
        change(&mut changed);
        self.shared.dir.store(MACHINE, &changed)?;
        *spec = changed;
        Ok(())
    }

    /// The last known run state; `None` until QEMU has answered once.
    pub fn state(&self) -> Option<RunState> {
        self.shared.state.borrow().clone()
    }

    /// The run state and its changes.
    pub fn states(&self) -> watch::Receiver<Option<RunState>> {
        self.shared.state.clone()
    }

    /// Events of QEMU, over reconnections.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.shared.events.subscribe()
    }

    /// The monitor; waits for a connection if there is none.
    pub async fn qmp(&self) -> Result<Qmp, QmpError> {
        let mut connection = self.shared.qmp.clone();
        let limit = self.shared.limit;
        let connected = tokio::time::timeout(limit, connection.wait_for(Option::is_some)).await;
        let command = || "reach the monitor".to_owned();
        match connected {
            Ok(Ok(qmp)) => qmp.clone().ok_or(QmpError::NoGreeting),
            Ok(Err(_)) => Err(QmpError::Closed { command: command(), source: None }),
            Err(_) => Err(QmpError::TimedOut { command: command(), limit }),
        }
    }

    /// Waits until QEMU has answered; false if it takes longer than `limit`.
    pub(super) async fn ready(&self, limit: Duration) -> bool {
        let mut state = self.states();
        let answered = async { state.wait_for(Option::is_some).await.map(drop) };
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(())) => true,
            // The watcher ended because the process did; the caller that waits for that will see
            // it.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => false,
        }
    }

    /// Lets the guest run if it is meant to and never has.
    pub async fn begin(&self) -> Result<(), QmpError> {
        let machine = self.spec().machine;
        let qmp = self.qmp().await?;
        // Settings that the command line does not offer.
        for nic in machine.nics.iter().filter(|nic| nic.link == LinkState::Down) {
            qmp.set_link(&nic.id(), false).await?;
        }
        if let Some(balloon) = &machine.devices.balloon {
            qmp.set_balloon_interval(balloon.statistics_interval).await?;
        }
        match (machine.start, qmp.run_state().await?) {
            (Start::Run, RunState::Prelaunch) => qmp.resume().await,
            _ => Ok(()),
        }
    }

    /// Why the machine ended, once it has. Cancel-safe.
    pub async fn exited(&self) -> Exit {
        let mut exit = self.shared.exit.clone();
        // Cloned at once: a reference into the channel must not be held across an await.
        let ended = exit.wait_for(Option::is_some).await.map(|exit| exit.clone());
        match ended {
            Ok(exit) => exit.unwrap_or(Exit::Died { status: None, signal: None }),
            // The watcher was asked to stop, and the machine lives on.
            Err(_) => std::future::pending().await,
        }
    }

    pub fn exit(&self) -> Option<Exit> {
        self.shared.exit.borrow().clone()
    }

    /// Asks the guest to power off, and ends it if it has not after `grace`.
    pub async fn stop(&self, grace: Duration) -> Exit {
        let deadline = tokio::time::Instant::now() + grace;
        while tokio::time::Instant::now() < deadline {
            let wait = PRESS_AGAIN.min(deadline - tokio::time::Instant::now());
            let press = async {
                if let Err(error) = self.press_power_button(wait).await {
                    debug!(error = %Chain(&error), "cannot press the power button");
                }
                tokio::time::sleep(wait).await;
            };
            tokio::select! {
                exit = self.exited() => return exit,
                _ = tokio::time::timeout(wait, press) => {}
            }
            // A machine that never ran has no guest who could listen.
            if self.state() == Some(RunState::Prelaunch) {
                break;
            }
        }
        self.kill().await
    }

    async fn press_power_button(&self, limit: Duration) -> Result<(), QmpError> {
        let qmp = self.qmp().await?.with_limit(limit);
        // A paused guest cannot shut down.
        if qmp.run_state().await? == RunState::Paused {
            qmp.resume().await?;
        }
        qmp.power_down().await
    }

    /// Ends the process at once.
    pub async fn kill(&self) -> Exit {
        if self.exit().is_none() {
            // If the guest was faster, its own reason is on disk already.
            record(&self.shared.dir, &Exit::Killed);
            if let Err(error) = pidfd_send_signal(self.shared.pidfd.get_ref(), Signal::KILL) {
                debug!(%error, "cannot signal the process");
            }
        }
        self.exited().await
    }

    pub(super) fn leave_cgroup(&self) {
        start::leave_cgroup(&self.shared.dir, &self.spec());
    }

    /// Where new background work of this machine is started.
    pub fn tasks(&self) -> &Tasks {
        &self.shared.tasks
    }

    /// Ties each virtual processor to its processors of the host, in order.
    pub async fn pin(&self, host_cpus: &[Vec<usize>]) -> Result<(), PinError> {
        let vcpus = self.qmp().await?.vcpus().await?;
        for (vcpu, cpus) in vcpus.iter().zip(host_cpus) {
            let mut set = CpuSet::new();
            for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
                set.set(*cpu);
            }
            let failed = |source: io::Error| PinError::Refused { vcpu: vcpu.cpu_index, source };
            let thread = host_thread(self.shared.id.pid, vcpu.thread_id).map_err(failed)?;
            let thread = thread.ok_or_else(|| failed(rustix::io::Errno::SRCH.into()))?;
            sched_setaffinity(Some(thread), &set).map_err(|errno| failed(errno.into()))?;
        }
        Ok(())
    }

    /// The guest's serial port. QEMU serves one connection at a time: see [`crate::console`].
    pub async fn serial(&self) -> io::Result<UnixStream> {
        self.shared.dir.connect(SERIAL).await
    }

    /// The channel of the guest agent. One connection at a time.
    pub async fn agent_channel(&self) -> io::Result<UnixStream> {
        self.shared.dir.connect(AGENT).await
    }

    /// A new connection to the VNC server.
    pub async fn vnc(&self) -> io::Result<UnixStream> {
        self.own_socket("vm/vnc.sock").await
    }

    /// The socket of one of the USB devices that clients pass through. QEMU serves one connection
    /// at a time; another one would wait unanswered.
    pub async fn usb_redirection(&self, slot: u8) -> io::Result<UnixStream> {
        self.own_socket(&format!("vm/{}", usb_socket(slot))).await
    }

    /// A stream for a post-copy whose first one broke, on its target.
    pub async fn recover_post_copy(&self) -> Result<UnixStream, RecoverError> {
        let asked = self.qmp().await?.recover_post_copy(POST_COPY_SOCKET).await;
        match (asked, self.own_socket(&format!("vm/{POST_COPY_SOCKET}")).await) {
            // It may listen already, for one who never came.
            (Ok(()) | Err(QmpError::Refused { .. }), Ok(stream)) => Ok(stream),
            (Ok(()), Err(source)) => Err(RecoverError::Connect(source)),
            (Err(failure), _) => Err(failure.into()),
        }
    }

    /// QEMU accepts one connection after the other, and its queue is short: a full one is not an
    /// error, but a moment to wait.
    async fn connect(&self, path: &str) -> io::Result<UnixStream> {
        let connect = async {
            loop {
                match self.shared.dir.connect(path).await {
                    Err(failure) if failure.kind() == io::ErrorKind::WouldBlock => {
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                    connected => return connected,
                }
            }
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "QEMU accepts no connection");
        tokio::time::timeout(ACCEPT_TIMEOUT, connect).await.map_err(|_| late())?
    }

    async fn own_socket(&self, path: &str) -> io::Result<UnixStream> {
        let stream = self.connect(path).await?;
        // QEMU's own folder is writable for QEMU: a socket found there could belong to any
        // process.
        if stream.peer_cred()?.pid() == Some(self.shared.id.pid) {
            Ok(stream)
        } else {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, "not the machine's own socket"))
        }
    }

    /// The first screen as a PNG.
    pub async fn screenshot(&self) -> Result<Vec<u8>, ScreenshotError> {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = self.shared.dir.vm().join(format!("screen-{number}.png"));
        self.qmp().await?.screendump(&path).await?;
        let picture = tokio::task::spawn_blocking(move || {
            let picture = read_untrusted(&path);
            let _ = std::fs::remove_file(&path);
            picture
        });
        picture.await.map_err(io::Error::other).flatten().map_err(ScreenshotError::Read)
    }
}

/// Why a virtual processor runs where it likes.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("cannot pin virtual processor {vcpu}")]
    Refused { vcpu: u32, source: io::Error },
}

/// Why a post-copy does not go on.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("cannot connect to the socket that QEMU continues a post-copy on")]
    Connect(#[source] io::Error),
}

/// Why there is no picture of the screen.
#[derive(Debug, thiserror::Error)]
pub enum ScreenshotError {
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("cannot read the picture")]
    Read(#[source] io::Error),
}

/// Reads a file that QEMU made: it follows no link and waits for no pipe.
fn read_untrusted(path: &std::path::Path) -> io::Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_PICTURE).read_to_end(&mut bytes)?;
    Ok(bytes)
}
