//! A machine whose process exists: its state, its monitor, and its end.
//!
//! One task per machine owns the monitor connection and the process's descriptor. It
//! connects again when the connection is lost, asks for the run state whenever an event says
//! that it may have changed, tells QEMU to quit when the guest is done, and reaps it.
//! Dropping every handle ends the task and leaves the machine running.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{Backoff, Chain, Stop, Tasks};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tracing::{debug, info, warn};

use super::start::{self, Started};
use super::{Exit, ProcessId, Spec, sys};
use crate::machine::{Link, Start};
use crate::qmp::{Event, Qmp, QmpError, RunState, ShutdownReason};
use crate::run_dir::{AGENT, EXIT, MACHINE, QMP, RunDir, SERIAL};

/// How often a guest that does not react is reminded of its power button.
const PRESS_AGAIN: Duration = Duration::from_secs(5);
const LONGEST_LOG: u64 = 1 << 20;
const KEPT_LOG: usize = 64 << 10;
const LOG_CHECK: Duration = Duration::from_secs(60);
const EVENTS: usize = 256;
/// A picture of a screen is never larger.
const LARGEST_PICTURE: u64 = 64 << 20;

/// A machine whose process exists, or did when this was made; clones share it.
#[derive(Debug, Clone)]
pub struct Running {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
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

impl Running {
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
        let watcher = Watcher {
            dir: dir.clone(),
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
        let shared = Shared {
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

    /// What runs, with what was plugged since.
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

    /// What QEMU reports, over reconnections.
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
            // The watcher ended because the process did; whoever waits for that will see it.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => false,
        }
    }

    /// Lets the guest run if it is meant to and never has.
    pub async fn begin(&self) -> Result<(), QmpError> {
        let machine = self.spec().machine;
        let qmp = self.qmp().await?;
        // What the command line has no words for.
        for nic in machine.nics.iter().filter(|nic| nic.link == Link::Down) {
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
            // The watcher was told to stop, and the machine lives on.
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
        // A guest that stands still cannot shut down.
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
        let stream = self.shared.dir.connect("vm/vnc.sock").await?;
        // QEMU's own folder is writable for QEMU: what is found there could be anybody's.
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

/// Waits for a child that ends by itself, so that no trace of it stays.
async fn reap(pidfd: OwnedFd, mut stop: Stop) {
    let Ok(exit) = sys::exit_signal(pidfd) else { return };
    tokio::select! {
        _ = exit.readable() => {
            let pidfd = std::os::fd::AsFd::as_fd(exit.get_ref());
            let _ = waitid(WaitId::PidFd(pidfd), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        }
        () = stop.requested() => {}
    }
}

/// Notes why a machine ends, unless that is known already.
fn record(dir: &RunDir, exit: &Exit) {
    let known = matches!(dir.load::<Exit>(EXIT), Ok(Some(_)));
    if !known && let Err(error) = dir.store(EXIT, exit) {
        warn!(dir = %dir.path().display(), %error, "cannot record why a machine ended");
    }
}

/// The task behind a [`Running`].
struct Watcher {
    dir: RunDir,
    pidfd: Arc<AsyncFd<OwnedFd>>,
    limit: Duration,
    events: broadcast::Sender<Event>,
    state: watch::Sender<Option<RunState>>,
    qmp: watch::Sender<Option<Qmp>>,
    exit: watch::Sender<Option<Exit>>,
    tasks: Tasks,
}

impl Watcher {
    async fn run(self, mut stop: Stop) {
        let pidfd = Arc::clone(&self.pidfd);
        tokio::select! {
            _ = pidfd.readable() => self.finish(),
            () = self.attend() => {}
            () = self.trim_log() => {}
            () = self.exit.closed() => {}
            () = stop.requested() => {}
        }
    }

    async fn trim_log(&self) {
        loop {
            tokio::time::sleep(LOG_CHECK).await;
            if let Err(error) = self.dir.trim_log(LONGEST_LOG, KEPT_LOG) {
                debug!(%error, "cannot trim the log");
            }
        }
    }

    /// Stays connected for as long as the process lives; never returns.
    async fn attend(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        loop {
            // Subscribed before the connection, so that no event falls between.
            let mut events = self.events.subscribe();
            match self.connect().await {
                Ok(qmp) => {
                    backoff.reset();
                    self.qmp.send_replace(Some(qmp.clone()));
                    self.follow(&qmp, &mut events).await;
                    self.qmp.send_replace(None);
                }
                Err(error) => debug!(error = %Chain(&error), "cannot connect to the monitor"),
            }
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    async fn connect(&self) -> Result<Qmp, QmpError> {
        let stream = self.dir.connect(QMP).await.map_err(|error| QmpError::Closed {
            command: "connect".to_owned(),
            source: Some(crate::qmp::codec::WireError::Read(Arc::new(error))),
        })?;
        Qmp::connect_with(stream, &self.tasks, self.limit, self.events.clone()).await
    }

    /// Keeps the run state current until the connection is lost.
    async fn follow(&self, qmp: &Qmp, events: &mut broadcast::Receiver<Event>) {
        let mut known = false;
        loop {
            if !known {
                known = self.refresh(qmp).await;
            }
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => {
                        if let Some(reason) = event.shutdown() {
                            self.guest_is_done(qmp, reason).await;
                        }
                        known = known && !event.changes_state();
                    }
                    Err(RecvError::Lagged(_)) => known = false,
                    Err(RecvError::Closed) => return,
                },
                () = qmp.closed() => return,
                // A question that QEMU left open is asked again.
                () = tokio::time::sleep(Duration::from_secs(1)), if !known => {}
            }
        }
    }

    async fn refresh(&self, qmp: &Qmp) -> bool {
        match qmp.run_state().await {
            Ok(state) => {
                // Nobody was looking when the guest went down: do now what was due then.
                match state {
                    // Or a reboot that counts as a shutdown; there is no trace of which.
                    RunState::Shutdown => {
                        self.guest_is_done(qmp, ShutdownReason::GuestShutdown).await;
                    }
                    RunState::GuestPanicked => {
                        self.guest_is_done(qmp, ShutdownReason::GuestPanic).await;
                    }
                    _ => {}
                }
                self.state.send_if_modified(|known| {
                    let changed = known.as_ref() != Some(&state);
                    *known = Some(state);
                    changed
                });
                true
            }
            Err(error) => {
                debug!(error = %Chain(&error), "cannot ask for the run state");
                false
            }
        }
    }

    /// The guest needs QEMU no longer: says why on disk, then lets it go.
    async fn guest_is_done(&self, qmp: &Qmp, reason: ShutdownReason) {
        let exit = match reason {
            ShutdownReason::GuestShutdown => Exit::GuestShutdown,
            ShutdownReason::GuestReset => Exit::GuestReset,
            ShutdownReason::GuestPanic => Exit::GuestPanic,
            // QEMU ends by itself, and not because of the guest.
            ShutdownReason::Host => return,
        };
        record(&self.dir, &exit);
        if let Err(error) = qmp.quit().await {
            debug!(error = %Chain(&error), "QEMU did not answer to quit");
        }
    }

    fn finish(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let pidfd = std::os::fd::AsFd::as_fd(self.pidfd.get_ref());
        let status = match waitid(WaitId::PidFd(pidfd), options) {
            Ok(status) => status,
            // Adopted: somebody else's child.
            Err(rustix::io::Errno::CHILD) => None,
            Err(error) => {
                warn!(%error, "cannot reap QEMU");
                None
            }
        };
        let died = Exit::Died {
            status: status.as_ref().and_then(|status| status.exit_status()),
            signal: status.as_ref().and_then(|status| status.terminating_signal()),
        };
        record(&self.dir, &died);
        let exit = self.dir.load::<Exit>(EXIT).ok().flatten().unwrap_or(died);
        info!(dir = %self.dir.path().display(), ?exit, "machine ended");
        self.exit.send_replace(Some(exit));
    }
}
