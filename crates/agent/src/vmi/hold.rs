//! Keeping a guest still for an instant, so that its disks can be captured together.
//!
//! ```text
//!  noted ─► file systems frozen, if the guest has an agent ─► stopped ─► work
//!                                forgotten ◄─ thawed ◄─ going on ◄────────┘
//! ```
//!
//! The note comes first: a guest whose keeper was killed meanwhile goes on when the next one
//! finds the note. A guest that somebody paused is left paused.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Chain;
use qemu::qmp::{QmpError, RunState};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{info, warn};

use super::live::Live;
use super::status::AgentState;

/// The note, in a machine's folder.
const NOTE: &str = "held.json";
/// A guest that does not freeze for so long is captured as it is.
const FREEZE: Duration = Duration::from_secs(10);

/// What a guest is released from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    frozen: bool,
    stopped: bool,
}

/// Why a guest could not be kept still.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldError {
    #[error("cannot note that the guest is kept still")]
    Note(#[source] io::Error),
    #[error("cannot stop the guest for a moment")]
    Stop(#[source] QmpError),
    #[error("cannot let the guest go on")]
    Resume(#[source] QmpError),
    #[error("the machine ended")]
    Ended,
}

/// How a guest was kept still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// For how long its processors stood.
    pub(crate) pause: Duration,
    pub(crate) frozen: bool,
}

/// Whether a guest is kept still at the moment; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Holding(Arc<AtomicBool>);

impl Holding {
    pub(super) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Live {
    /// Keeps the guest still while `work` is done. That is finished also if the caller is
    /// dropped, because the guest must go on.
    pub(crate) async fn hold<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<(Held, T), HoldError> {
        let (done, outcome) = oneshot::channel();
        let live = self.clone();
        self.running.tasks().spawn("hold", async move {
            // Nobody is left to hear it.
            drop(done.send(live.hold_here(work).await));
        });
        outcome.await.map_err(|_| HoldError::Ended)?
    }

    async fn hold_here<T>(&self, work: impl Future<Output = T>) -> Result<(Held, T), HoldError> {
        self.holding.0.store(true, Ordering::Relaxed);
        let held = self.hold_noted(work).await;
        self.holding.0.store(false, Ordering::Relaxed);
        self.ask_again();
        held
    }

    async fn hold_noted<T>(&self, work: impl Future<Output = T>) -> Result<(Held, T), HoldError> {
        let qmp = self.running.qmp().await.map_err(HoldError::Stop)?;
        let running = qmp.run_state().await.map_err(HoldError::Stop)? == RunState::Running;
        let can_freeze = running && self.info.borrow().agent == AgentState::Connected;
        let note = Note { frozen: can_freeze, stopped: running };
        self.running.dir().store(NOTE, &note).map_err(HoldError::Note)?;
        let frozen = can_freeze && self.freeze().await;
        let since = Instant::now();
        let stopped = if running { qmp.pause().await } else { Ok(()) };
        let outcome = match stopped {
            Ok(()) => Ok(work.await),
            Err(failure) => Err(HoldError::Stop(failure)),
        };
        let resumed = if running { qmp.resume().await } else { Ok(()) };
        let pause = since.elapsed();
        if can_freeze {
            self.thaw().await;
        }
        resumed.map_err(HoldError::Resume)?;
        self.forget_hold();
        let pause = if running { pause } else { Duration::ZERO };
        outcome.map(|outcome| (Held { pause, frozen }, outcome))
    }

    async fn freeze(&self) -> bool {
        match tokio::time::timeout(FREEZE, self.agent.freeze()).await {
            Ok(Ok(_)) => true,
            Ok(Err(failure)) => {
                warn!(error = %Chain(&failure), "a guest is captured without having flushed");
                false
            }
            Err(_) => {
                warn!("a guest is captured without having flushed: its agent does not answer");
                false
            }
        }
    }

    async fn thaw(&self) {
        if let Err(failure) = self.agent.thaw().await {
            warn!(error = %Chain(&failure), "cannot thaw a guest's file systems");
        }
    }

    fn forget_hold(&self) {
        let note = self.running.dir().path().join(NOTE);
        if let Err(failure) = std::fs::remove_file(note)
            && failure.kind() != io::ErrorKind::NotFound
        {
            warn!(error = %Chain(&failure), "cannot forget that a guest was kept still");
        }
    }

    /// Lets a guest go on that an earlier process kept still.
    pub(super) async fn release(&self) {
        let Ok(Some(note)) = self.running.dir().load::<Note>(NOTE) else { return };
        info!("a guest that was kept still goes on");
        let resumed = async {
            let qmp = self.running.qmp().await?;
            let stands = matches!(qmp.run_state().await?, RunState::Paused | RunState::PostMigrate);
            if note.stopped && stands { qmp.resume().await } else { Ok(()) }
        };
        if let Err(failure) = resumed.await {
            warn!(error = %Chain(&failure), "cannot let a guest go on");
            return;
        }
        if note.frozen {
            // Its agent may be far from answering, and the guest itself goes on already.
            let live = self.clone();
            self.running.tasks().spawn("thaw", async move { live.thaw().await });
        }
        self.forget_hold();
    }
}
