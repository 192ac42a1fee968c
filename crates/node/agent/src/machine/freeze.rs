//! Keeping a guest still for an instant, so that its disks can be captured together.
//!
//! ```text
//!  noted ─► file systems frozen, if the guest has an agent ─► stopped ─► work
//!                                forgotten ◄─ thawed ◄─ going on ◄────────┘
//! ```
//!
//! With the guest's memory the guest goes on until nearly all of it is written, and is not frozen:
//! it would wake up so.
//!
//! The note comes first: a guest whose keeper was killed meanwhile goes on when the next one
//! finds the note. A guest that a user paused is left paused.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Chain;
use hci::together::Quiesce;
use qemu::guest_agent::GuestAgent;
use qemu::qmp::{Qmp, QmpError, RunState, StateError};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::info::AgentState;
use super::live::LiveMachine;
use super::saved_memory::{SaveError, SavedMemory};

/// The note, in a machine's folder.
const NOTE: &str = "held.json";
/// A guest that does not freeze for so long is captured as it is.
const FREEZE: Duration = Duration::from_secs(10);
/// QEMU is busy while it writes memory.
const ANSWER: Duration = Duration::from_secs(60);

/// The state that a guest is released from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FreezeRecord {
    frozen: bool,
    stopped: bool,
}

/// Why a guest could not be kept still.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HoldError {
    #[error("cannot record that the guest is frozen")]
    Note(#[source] io::Error),
    #[error("cannot stop the guest for a moment")]
    Stop(#[source] QmpError),
    #[error("cannot write the guest's memory to {}", path.display())]
    Memory { path: PathBuf, source: StateError },
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error("cannot resume the guest")]
    Resume(#[source] QmpError),
    #[error("the machine ended")]
    Ended,
}

/// How a guest was kept still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreezeMethod {
    /// For how long its processors were paused.
    pub(crate) pause: Duration,
    pub(crate) quiesce: Quiesce,
}

/// Whether a guest is kept still at the moment; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreezeState(Arc<AtomicBool>);

impl FreezeState {
    pub(crate) fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl LiveMachine {
    /// Keeps the guest still while `work` is done, at the instant of the `memory` that is written.
    /// `work` learns how the guest was prepared. It is finished also if the caller is dropped,
    /// because the guest must go on.
    pub(crate) async fn hold<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        memory: Option<SavedMemory>,
        work: impl FnOnce(Quiesce) -> F + Send + 'static,
    ) -> Result<(FreezeMethod, T), HoldError> {
        let (done, outcome) = oneshot::channel();
        let live = self.clone();
        self.running.tasks().spawn("hold", async move {
            // No receiver is left.
            drop(done.send(live.freeze_here(memory.as_ref(), work).await));
        });
        outcome.await.map_err(|_| HoldError::Ended)?
    }

    async fn freeze_here<T, F: Future<Output = T>>(
        &self,
        memory: Option<&SavedMemory>,
        work: impl FnOnce(Quiesce) -> F,
    ) -> Result<(FreezeMethod, T), HoldError> {
        self.holding.0.store(true, Ordering::Relaxed);
        let held = self.freeze_recorded(memory, work).await;
        self.holding.0.store(false, Ordering::Relaxed);
        self.ask_again();
        held
    }

    async fn freeze_recorded<T, F: Future<Output = T>>(
        &self,
        memory: Option<&SavedMemory>,
        work: impl FnOnce(Quiesce) -> F,
    ) -> Result<(FreezeMethod, T), HoldError> {
        let qmp = self.running.qmp().await.map_err(HoldError::Stop)?;
        let running = qmp.run_state().await.map_err(HoldError::Stop)? == RunState::Running;
        let wanted = running && memory.is_none();
        let can_freeze = wanted && self.info.borrow().agent == AgentState::Connected;
        let note = FreezeRecord { frozen: can_freeze, stopped: running };
        self.running.dir().store(NOTE, &note).map_err(HoldError::Note)?;
        let quiesce = match (wanted, can_freeze) {
            (_, true) => freeze(&self.agent, FREEZE).await,
            (true, false) => Quiesce::NoAgent,
            (false, false) => Quiesce::Skipped,
        };
        let written = match memory {
            Some(memory) => write_memory(&qmp, memory).await,
            None => Ok(()),
        };
        let since = Instant::now();
        let stopped = match (written, running) {
            (Ok(()), true) => qmp.pause().await.map_err(HoldError::Stop),
            (written, _) => written,
        };
        let outcome = match stopped {
            Ok(()) => Ok(work(quiesce).await),
            Err(failure) => Err(failure),
        };
        let resumed = if running { qmp.resume().await } else { Ok(()) };
        let pause = since.elapsed();
        if can_freeze {
            self.thaw().await;
        }
        resumed.map_err(HoldError::Resume)?;
        self.remove_freeze_record();
        if let Some(memory) = memory.filter(|_| outcome.is_ok()) {
            complete_memory(memory).await?;
        }
        let pause = if running { pause } else { Duration::ZERO };
        outcome.map(|outcome| (FreezeMethod { pause, quiesce }, outcome))
    }

    async fn thaw(&self) {
        if let Err(failure) = self.agent.thaw().await {
            warn!(error = %Chain(&failure), "cannot thaw a guest's file systems");
        }
    }

    fn remove_freeze_record(&self) {
        let note = self.running.dir().path().join(NOTE);
        if let Err(failure) = std::fs::remove_file(note)
            && failure.kind() != io::ErrorKind::NotFound
        {
            warn!(error = %Chain(&failure), "cannot remove freeze record of guest");
        }
    }

    /// Lets a guest go on that an earlier process kept still.
    pub(crate) async fn release(&self) {
        let Ok(Some(note)) = self.running.dir().load::<FreezeRecord>(NOTE) else { return };
        info!("frozen guest resumed");
        let resumed = async {
            let qmp = self.running.qmp().await?;
            // No request waits for the memory that it may still be writing.
            if let Err(failure) = qmp.cancel_state().await {
                debug!(error = %Chain(&failure), "no memory is being written");
            }
            let is_paused =
                matches!(qmp.run_state().await?, RunState::Paused | RunState::PostMigrate);
            if note.stopped && is_paused { qmp.resume().await } else { Ok(()) }
        };
        if let Err(failure) = resumed.await {
            warn!(error = %Chain(&failure), "cannot resume guest");
            return;
        }
        if note.frozen {
            // Its agent may be far from answering, and the guest itself goes on already.
            let live = self.clone();
            self.running.tasks().spawn("thaw", async move { live.thaw().await });
        }
        self.remove_freeze_record();
    }
}

async fn freeze(agent: &GuestAgent, limit: Duration) -> Quiesce {
    match tokio::time::timeout(limit, agent.freeze()).await {
        Ok(Ok(_)) => Quiesce::Frozen,
        Ok(Err(failure)) => {
            warn!(error = %Chain(&failure), "snapshot without file system freeze");
            Quiesce::Failed
        }
        Err(_) => {
            warn!("snapshot without file system freeze: the guest agent does not answer");
            Quiesce::Failed
        }
    }
}

/// Afterwards the guest is paused.
async fn write_memory(qmp: &Qmp, memory: &SavedMemory) -> Result<(), HoldError> {
    let file = memory.begin()?;
    let saved = qmp.with_limit(ANSWER).save_state(file.into()).await;
    if let Err(source) = saved {
        if let Err(failure) = qmp.cancel_state().await {
            debug!(error = %Chain(&failure), "no memory is being written");
        }
        drop(memory.discard());
        return Err(HoldError::Memory { path: memory.path().into(), source });
    }
    Ok(())
}

/// Only now, because the guest need not wait for it.
async fn complete_memory(memory: &SavedMemory) -> Result<(), HoldError> {
    let (own, path) = (memory.clone(), memory.path());
    let done = tokio::task::spawn_blocking(move || own.complete()).await;
    let ended =
        |_| SaveError::File { path: path.into(), source: io::ErrorKind::Interrupted.into() };
    Ok(done.map_err(ended)??)
}

#[cfg(test)]
mod tests {
    use base::Tasks;
    use qemu::RunDir;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::UnixListener;

    use super::*;

    /// An agent that answers each command but the synchronizing ones with `reply`.
    async fn serve(listener: UnixListener, reply: Option<Value>) {
        let (stream, _) = listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut lines = BufReader::new(read).split(b'\n');
        while let Ok(Some(line)) = lines.next_segment().await {
            let line: Vec<u8> = line.into_iter().filter(|byte| *byte != 0xff).collect();
            let command: Value = serde_json::from_slice(&line).unwrap();
            let mut answer = match (&command["execute"], &reply) {
                (name, _) if name == "guest-sync-delimited" => {
                    let mut answer = vec![0xff];
                    let id = json!({"return": command["arguments"]["id"]});
                    answer.extend(id.to_string().bytes());
                    answer
                }
                (_, Some(reply)) => reply.to_string().into_bytes(),
                (_, None) => continue,
            };
            answer.push(b'\n');
            write.write_all(&answer).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_freeze_counts_only_if_the_agent_says_so() {
        let refusal = json!({"error": {"class": "GenericError", "desc": "no"}});
        for (reply, limit, expected) in [
            (Some(json!({"return": 2})), FREEZE, Quiesce::Frozen),
            (Some(refusal), FREEZE, Quiesce::Failed),
            (None, Duration::from_millis(200), Quiesce::Failed),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let dir = RunDir::new(folder.path());
            let listener = UnixListener::bind(folder.path().join("agent.sock")).unwrap();
            let tasks = Tasks::default();
            let agent = GuestAgent::open(dir, &tasks);
            tokio::select! {
                found = freeze(&agent, limit) => assert_eq!(found, expected, "{reply:?}"),
                () = serve(listener, reply.clone()) => panic!("the channel closed"),
            }
        }
    }
}
