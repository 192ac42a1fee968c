//! The task behind a running machine.
//!
//! It owns the monitor connection and the process's descriptor: it connects again when the
//! connection is lost, asks for the run state whenever an event says that it may have
//! changed, asks QEMU to quit when the guest is done, and reaps it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain, Stop, Tasks};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::io::unix::AsyncFd;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tracing::{debug, info, warn};

use super::{Exit, sys};
use crate::isolation::GuestRoot;
use crate::qmp::{Event, Qmp, QmpError, RunState, ShutdownReason};
use crate::run_dir::{EXIT, QMP, RunDir};

const LONGEST_LOG: u64 = 1 << 20;
const KEPT_LOG: usize = 64 << 10;
const LOG_CHECK: Duration = Duration::from_secs(60);

/// Waits for a child that ends by itself, so that no trace of it stays.
pub(super) async fn reap(pidfd: OwnedFd, mut stop: Stop) {
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
pub(super) fn record(dir: &RunDir, exit: &Exit) {
    let known = matches!(dir.load::<Exit>(EXIT), Ok(Some(_)));
    if !known && let Err(error) = dir.store(EXIT, exit) {
        warn!(dir = %dir.path().display(), %error, "cannot record why a machine ended");
    }
}

/// The task behind a [`Running`].
pub(super) struct ProcessWatcher {
    pub(super) dir: RunDir,
    pub(super) root: GuestRoot,
    pub(super) pidfd: Arc<AsyncFd<OwnedFd>>,
    pub(super) limit: Duration,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) state: watch::Sender<Option<RunState>>,
    pub(super) qmp: watch::Sender<Option<Qmp>>,
    pub(super) exit: watch::Sender<Option<Exit>>,
    pub(super) tasks: Tasks,
}

impl ProcessWatcher {
    pub(super) async fn run(self, mut stop: Stop) {
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
        let qmp = Qmp::connect_with(stream, &self.tasks, self.limit, self.events.clone()).await?;
        Ok(qmp.with_root(self.root.clone()))
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
                // No watcher ran when the guest went down: do now what was due then.
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
            // Adopted: a child of another process.
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
