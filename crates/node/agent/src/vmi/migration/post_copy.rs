//! Post-copy: the guest goes on at the target before all of its memory is there.
//!
//! ```text
//!  source                                            target
//!   guest stopped, volumes claimed by the target
//!   note on disk, migrate-continue ═══ devices ═══►  QEMU has the devices; the guest is paused
//!   asks whether it has them ─────────────────────►  yes
//!   object is given to the target ────────────────►  the guest goes on and fetches its memory
//!   serves memory, reconnects ════════ pages ═════►  has everything: writes that it is completed
//!   QEMU is killed
//! ```
//!
//! From `migrate-continue` on the guest never goes on at the source: nothing here cancels the
//! migration or resumes QEMU, which would do both. Either side may lose its agent, through which the
//! stream goes, and find its part in a note; a stream that is not restored in time loses the guest,
//! and it is started again as after a crash.

use std::sync::Arc;
use std::time::Duration;

use base::{Chain, clock};
use qemu::qmp::{MigrationStatus, Qmp, QmpError};
use serde_json::Value;
use tokio::time::Instant;
use tracing::{info, warn};

use super::failure::MigrationFailure;
use super::incoming::read;
use super::outgoing::Written;
use super::peer::{Peer, PeerConnection};
use super::progress::{self, MigrationRequest};
use super::recovery::{self, Ownership, ServeStep, TakeStep};
use super::{INCOMING, MigrationNote, OUTGOING, path};
use crate::api;
use crate::event::EventNote;
use crate::machine::{KnownMachine, LiveMachine, Vmi};
use crate::vmi::actor::{LocalMachine, LoopControl, VmiActor};

/// How often QEMU is asked besides its events.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Between two attempts to restore the stream.
const RECONNECT: Duration = Duration::from_secs(1);
/// For the target to claim volumes; the guest is paused.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(6);
/// For QEMU to begin the switch that it was ordered: its migration thread may be late.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// For the QEMU of the target to read the state of all devices.
const LOADED_TIMEOUT: Duration = Duration::from_secs(6);

impl VmiActor {
    /// The guest is paused: it is switched to post-copy, once the target has its volumes.
    pub(super) async fn switch_to_post_copy(
        &mut self,
        live: &LiveMachine,
        request: &MigrationRequest,
        note: MigrationNote,
        mut control: PeerConnection,
    ) -> Result<(), MigrationFailure> {
        // Until here a failure leaves the guest at the source.
        control.put(&path(&request.migration, "switch"), Vec::new(), SWITCH_TIMEOUT).await?;
        let note = MigrationNote { post_copy: true, ..note };
        let failed = |source| MigrationFailure::File { doing: "write", source };
        self.dir.store(OUTGOING, &note).map_err(failed)?;
        if let Err(failure) = live.running.qmp().await?.continue_migration().await {
            // The next step sees its state.
            warn!(error = %Chain(&failure), "QEMU did not confirm the switch to post-copy");
        }
        info!(target = request.target, "guest switched to post-copy");
        Ok(())
    }

    /// One step of the source of a post-copy; nothing if this machine is none.
    pub(in crate::vmi) async fn serve_post_copy(
        &mut self,
        known: &KnownMachine,
    ) -> Option<LoopControl> {
        let note: MigrationNote = self.dir.load(OUTGOING).ok().flatten()?;
        let LocalMachine::Running(live) = &self.local else { return None };
        let live = live.clone();
        if !note.post_copy || live.running.exit().is_some() {
            return None;
        }
        let status = match live.running.qmp().await {
            Ok(qmp) => status_after_switch(&qmp).await,
            Err(failure) => Err(failure),
        };
        let Ok(status) = status else { return Some(self.later()) };
        let (owner, is_over) = match known {
            KnownMachine::Unknown => return None,
            KnownMachine::Present(vmi) => self.seen_by(vmi, &note),
            // It is not this node's any more: whether there is still a guest is asked when it
            // matters.
            KnownMachine::Gone if status == MigrationStatus::PostCopyPaused => {
                match read(&self.context, &note.namespace, &note.name).await {
                    Ok(Some(vmi)) => self.seen_by(&vmi, &note),
                    Ok(None) => (Ownership::Target, true),
                    Err(_) => (Ownership::Target, false),
                }
            }
            KnownMachine::Gone => (Ownership::Target, false),
        };
        let step = recovery::serve(status, owner, is_over, self.broken_for(status));
        Some(match step {
            ServeStep::HandOver => match known {
                KnownMachine::Present(vmi) => match self.confirm_loaded(&note).await {
                    Ok(()) => self.hand_over_post_copy(vmi, &note).await,
                    Err(failure) => {
                        warn!(error = %Chain(&failure), "cannot hand over a guest in post-copy yet");
                        LoopControl::Wait(Some(Instant::now() + RECONNECT))
                    }
                },
                KnownMachine::Unknown | KnownMachine::Gone => self.later(),
            },
            ServeStep::Wait => LoopControl::Wait(Some(Instant::now() + POLL_INTERVAL)),
            ServeStep::Reconnect => {
                if let Err(failure) = self.reconnect_post_copy(&live, &note).await {
                    warn!(error = %Chain(&failure), "cannot restore the stream of a post-copy yet");
                }
                LoopControl::Wait(Some(Instant::now() + RECONNECT))
            }
            ServeStep::RollBack => {
                let note = MigrationNote { post_copy: false, ..note };
                if self.dir.store(OUTGOING, &note).is_err() { self.later() } else { return None }
            }
            ServeStep::End => {
                info!(target = note.target, ?status, "post-copy is over at its source");
                self.process.broken_since = None;
                let exit = live.running.kill().await;
                self.end(exit);
                LoopControl::Again
            }
            ServeStep::Lost => {
                warn!("guest lost: its post-copy ended before the target had it");
                self.process.broken_since = None;
                let exit = live.running.kill().await;
                self.end(exit);
                LoopControl::Again
            }
        })
    }

    /// The owner of the guest by its object, and whether the migration is over.
    fn seen_by(&self, vmi: &Vmi, note: &MigrationNote) -> (Ownership, bool) {
        let state = progress::state(vmi);
        let is_ours = state.migration_uid.as_deref() == Some(&note.migration);
        let is_over = !is_ours || state.completed == Some(true) || state.failed == Some(true);
        let is_here = progress::owner(vmi) == self.context.config.node_name;
        (if is_here { Ownership::Source } else { Ownership::Target }, is_over)
    }

    /// For how long the stream has been broken.
    fn broken_for(&mut self, status: MigrationStatus) -> Duration {
        if status != MigrationStatus::PostCopyPaused {
            self.process.broken_since = None;
            return Duration::ZERO;
        }
        self.process.broken_since.get_or_insert_with(Instant::now).elapsed()
    }

    /// Asks the target whether its QEMU has the state of all devices.
    async fn confirm_loaded(&self, note: &MigrationNote) -> Result<(), MigrationFailure> {
        let peer = Peer::find(&self.context, &self.tasks, &note.target).await?;
        let mut control = peer.connect().await?;
        control.put(&path(&note.migration, "loaded"), Vec::new(), LOADED_TIMEOUT).await?;
        Ok(())
    }

    /// The guest is the target's from this write on.
    async fn hand_over_post_copy(&mut self, vmi: &Arc<Vmi>, note: &MigrationNote) -> LoopControl {
        let node = self.context.config.node_name.clone();
        // Not asked for any more: the next read of the object shows what became of it.
        let Some(request) = MigrationRequest::of(vmi, &node) else { return self.later() };
        let given = |vmi: &Vmi| Some(progress::handed_over_post_copy(vmi, &request, &note.moved));
        match self.write_until_known(vmi, &request, given).await {
            Ok(Written::Yes) => {
                info!(target = request.target, "guest handed over, memory follows");
                LoopControl::Again
            }
            Ok(Written::Refused(_) | Written::Gone) | Err(_) => self.later(),
        }
    }

    async fn reconnect_post_copy(
        &self,
        live: &LiveMachine,
        note: &MigrationNote,
    ) -> Result<(), MigrationFailure> {
        let peer = Peer::find(&self.context, &self.tasks, &note.target).await?;
        let stream = peer.connect().await?.stream(&path(&note.migration, "resume")).await?;
        let fd = self.carry(stream)?;
        live.running.qmp().await?.resume_post_copy(fd).await?;
        info!(target = note.target, "stream of a post-copy restored");
        Ok(())
    }

    /// One step of the target of a post-copy, whose guest runs.
    pub(in crate::vmi) async fn follow_post_copy(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        note: &MigrationNote,
    ) -> LoopControl {
        let status = match live.running.qmp().await {
            Ok(qmp) => qmp.migration_progress().await.map(|now| now.status),
            Err(failure) => Err(failure),
        };
        // One that does not answer waits for memory, as one that says so.
        let status = status.unwrap_or(MigrationStatus::PostCopyPaused);
        match recovery::take(status, self.broken_for(status)) {
            TakeStep::Wait => {
                let state = progress::state(vmi);
                let is_refused = state.abort_status.as_deref() == Some("Failed");
                if state.abort_requested == Some(true) && !is_refused {
                    return self.patch(vmi, &progress::abort_refused(vmi)).await;
                }
                LoopControl::Wait(Some(Instant::now() + POLL_INTERVAL))
            }
            TakeStep::Complete => {
                let after = self.patch(vmi, &progress::completed(vmi, clock::now())).await;
                if after == LoopControl::Again && self.forget_arrival() {
                    info!(source = note.source, "guest has all of its memory");
                    let node = &self.context.config.node_name;
                    let message = format!("The VirtualMachineInstance migrated to node {node}.");
                    self.report(vmi, EventNote::normal("Migrated", message));
                }
                after
            }
            TakeStep::Lost(limit) => {
                let failure = MigrationFailure::PostCopyLost { limit };
                let why = failure.to_string();
                warn!(namespace = vmi.namespace, name = vmi.name, error = why, "guest lost");
                let lost = progress::failed(vmi, &why, false, clock::now());
                let after = self.patch(vmi, &lost).await;
                if after == LoopControl::Again {
                    self.report(vmi, EventNote::warning("Migrated", why));
                    self.process.broken_since = None;
                    let exit = live.running.kill().await;
                    self.end(exit);
                }
                after
            }
        }
    }

    async fn patch(&mut self, vmi: &Vmi, patch: &Value) -> LoopControl {
        let vmis = api::vmis_in(&self.context.client, &vmi.namespace);
        match api::merge(&vmis, &vmi.name, patch).await {
            Ok(object) => {
                self.remember(object);
                LoopControl::Again
            }
            Err(failure) => {
                warn!(error = %client::Fault(failure), "cannot write the machine that migrates yet");
                self.later()
            }
        }
    }

    fn forget_arrival(&self) -> bool {
        let removed = std::fs::remove_file(self.dir.path().join(INCOMING));
        if let Err(failure) = &removed {
            warn!(error = %Chain(failure), "cannot remove the note of a migration");
        }
        removed.is_ok()
    }
}

/// The status of a migration that was perhaps ordered to switch. QEMU confirms the order before it
/// leaves the status from which a migration can be rolled back.
async fn status_after_switch(qmp: &Qmp) -> Result<MigrationStatus, QmpError> {
    let mut events = qmp.events();
    let deadline = Instant::now() + BEGIN_TIMEOUT;
    loop {
        let status = qmp.migration_progress().await?.status;
        if status != MigrationStatus::PreSwitchover || Instant::now() >= deadline {
            return Ok(status);
        }
        let _ = tokio::time::timeout(POLL_INTERVAL, events.recv()).await;
    }
}
