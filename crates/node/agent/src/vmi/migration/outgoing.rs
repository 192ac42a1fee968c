//! The source of a migration: sends a running guest to another node, and keeps it if that fails.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use client::Fault;
use hyper_util::rt::TokioIo;
use qemu::qmp::{Event, MigrationLimits, MigrationStatus, Qmp, QmpError, RunState};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::broadcast;
use tokio::time::Instant;
use tracing::{info, warn};

use super::failure::MigrationFailure;
use super::offer::Prepared;
use super::peer::{Peer, PeerConnection};
use super::progress::{self, MigrationPace, MigrationRequest, Pace};
use super::unwanted::Unwanted;
use super::{MigrationNote, OUTGOING, path};
use crate::api;
use crate::event::EventNote;
use crate::machine::{LiveMachine, Vmi};
use crate::vmi::actor::{LoopControl, VmiActor};
use crate::vmi::state;

/// For the target to make the machine and to have its volumes.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(90);
/// For the target to claim volumes; the guest is paused.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(6);
/// Between two attempts to write the object.
const RETRY: Duration = Duration::from_millis(300);
/// How often QEMU is asked besides its events.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How a guest left.
enum Sent {
    /// It is the target's; milliseconds that it was paused.
    Whole(Option<u64>),
    /// It is being switched to post-copy: `serve_post_copy` goes on.
    PostCopy,
}

/// How the memory of a guest is sent that has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyMode {
    Pre,
    Post,
}

/// The fate of a write that must be known.
pub(super) enum Written {
    Yes,
    /// The object is not as it would have to be.
    Refused(Arc<Vmi>),
    Gone,
}

impl VmiActor {
    /// Carries out a migration that the object asks for. Nothing if it asks for none.
    pub(in crate::vmi) async fn migrate_if_asked(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
    ) -> Option<LoopControl> {
        let request = MigrationRequest::of(vmi, &self.context.config.node_name);
        let note: Option<MigrationNote> = self.dir.load(OUTGOING).ok().flatten();
        let Some(request) = request else {
            if note.is_some() {
                self.forget_migration();
            }
            return None;
        };
        let is_interrupted = note.is_some_and(|note| note.migration == request.migration);
        let result = if is_interrupted {
            Err(MigrationFailure::AgentRestarted)
        } else if request.is_aborted {
            Err(MigrationFailure::Aborted)
        } else {
            self.migrate(vmi, live, &request).await
        };
        match result {
            Ok(Sent::PostCopy) => {}
            Ok(Sent::Whole(downtime)) => {
                // QEMU is killed next; what the guest keeps is on the target.
                state::remove_migrated(&self.context, vmi, &self.dir);
                self.report_migrated(vmi, &request, downtime);
            }
            Err(failure) => return Some(self.roll_back(vmi, live, &request, &failure).await),
        }
        Some(LoopControl::Again)
    }

    async fn migrate(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        request: &MigrationRequest,
    ) -> Result<Sent, MigrationFailure> {
        let qmp = live.running.qmp().await?;
        if qmp.run_state().await? != RunState::Running {
            return Err(MigrationFailure::Paused);
        }
        let offer = self.describe(vmi, live, request, &qmp).await?;
        let mut note = MigrationNote::new(&request.migration, vmi);
        note.target.clone_from(&request.target);
        note.moved = offer.moved();
        let failed = |source| MigrationFailure::File { doing: "write", source };
        self.dir.store(OUTGOING, &note).map_err(failed)?;
        let unwanted = Unwanted {
            object: self.object.clone(),
            stop: self.tasks.stop_signal(),
            node: self.context.config.node_name.clone(),
            request: request.clone(),
        };
        info!(namespace = vmi.namespace, name = vmi.name, target = request.target, "migrating");
        let peer = Peer::find(&self.context, &self.tasks, &request.target).await?;
        self.announce_copies(vmi, request, &note).await?;
        let body = serde_json::to_vec(&offer).unwrap_or_default();
        let prepared = async {
            let mut connection = peer.connect().await?;
            let path = path(&request.migration, "prepare");
            let answer = connection.put(&path, body, PREPARE_TIMEOUT).await?;
            Ok::<_, MigrationFailure>((connection, answer))
        };
        let (control, answer) = unwanted.clone().guard(prepared).await?;
        let prepared: Prepared = serde_json::from_slice(&answer).unwrap_or_default();
        let request = &self.without_refused_post_copy(vmi, request, &prepared);
        let message = "VirtualMachineInstance Migration Target Prepared.";
        self.report(vmi, EventNote::normal("PreparingTarget", message));
        let address = peer.address.ip().to_string();
        let now = clock::now();
        let started = |vmi: &Vmi| Some(progress::started(vmi, &address, now));
        match self.write_until_known(vmi, request, started).await? {
            Written::Yes => {}
            Written::Refused(_) | Written::Gone => return Err(MigrationFailure::Refused),
        }
        let message = "VirtualMachineInstance is migrating.";
        self.report(vmi, EventNote::normal("Migrating", message));
        let copies = self.copy_disks(vmi, live, request, &peer, &offer, &prepared);
        let copies = unwanted.clone().guard(copies).await?;
        let stream = peer.connect().await?.stream(&path(&request.migration, "stream")).await?;
        let send = self.send(vmi, live, request, stream);
        let mode = unwanted.guard(send).await?;
        // The guest is paused.
        copies.finish(&qmp).await?;
        match mode {
            CopyMode::Pre => self.switch(vmi, &qmp, request, &note, control).await.map(Sent::Whole),
            CopyMode::Post => {
                let switched = self.switch_to_post_copy(live, request, note, control).await;
                switched.map(|()| Sent::PostCopy)
            }
        }
    }

    /// The requested options, without post-copy if the target refuses it, which is reported.
    fn without_refused_post_copy(
        &self,
        vmi: &Vmi,
        request: &MigrationRequest,
        prepared: &Prepared,
    ) -> MigrationRequest {
        if request.allows_post_copy && !prepared.post_copy {
            let message = progress::post_copy_refused(request, prepared);
            warn!(namespace = vmi.namespace, name = vmi.name, message, "no post-copy");
            self.report(vmi, EventNote::warning("PostCopyNotPossible", message));
        }
        let allows_post_copy = request.allows_post_copy && prepared.post_copy;
        MigrationRequest { allows_post_copy, ..request.clone() }
    }

    /// The end of a stream that QEMU writes to and reads from; the other end goes to the target.
    pub(super) fn carry(
        &self,
        stream: hyper::upgrade::Upgraded,
    ) -> Result<OwnedFd, MigrationFailure> {
        let failed = |source| MigrationFailure::File { doing: "make a socket for", source };
        let (ours, theirs) = StdStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let mut ours = UnixStream::from_std(ours).map_err(failed)?;
        // It ends with either side, and then QEMU says that the migration failed.
        self.tasks.spawn("migration-stream", async move {
            let mut stream = TokioIo::new(stream);
            let _ = tokio::io::copy_bidirectional(&mut ours, &mut stream).await;
        });
        Ok(theirs.into())
    }

    /// Sends the memory of the guest until it has stopped.
    async fn send(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        request: &MigrationRequest,
        stream: hyper::upgrade::Upgraded,
    ) -> Result<CopyMode, MigrationFailure> {
        let stream = self.carry(stream)?;
        let qmp = live.running.qmp().await?;
        qmp.set_migration_capabilities().await?;
        let limits = MigrationLimits {
            bandwidth: request.bandwidth,
            downtime_millis: request.downtime_millis,
            auto_converge: request.auto_converge,
            post_copy: request.allows_post_copy,
        };
        let events = live.running.events();
        qmp.migrate(stream, limits).await?;
        let memory = live.running.spec().machine.memory.guest;
        let pace = MigrationPace::new(request, memory, std::time::Instant::now());
        let bound = pace.bound();
        let late = |_| MigrationFailure::Deadline { limit: bound };
        let sent = self.until_sent(vmi, request, &qmp, pace, events);
        tokio::time::timeout(bound, sent).await.map_err(late)?
    }

    /// Waits until the guest has stopped because almost all of its memory is sent, or because it
    /// may be paused for the rest.
    async fn until_sent(
        &mut self,
        vmi: &Arc<Vmi>,
        request: &MigrationRequest,
        qmp: &Qmp,
        mut pace: MigrationPace,
        mut events: broadcast::Receiver<Event>,
    ) -> Result<CopyMode, MigrationFailure> {
        let mut mode = CopyMode::Pre;
        loop {
            let now = qmp.migration_progress().await?;
            match now.status {
                MigrationStatus::PreSwitchover => return Ok(mode),
                MigrationStatus::Failed | MigrationStatus::Completed => {
                    return Err(broken(now.error));
                }
                _ => {}
            }
            match pace.judge(now.remaining, std::time::Instant::now()) {
                Pace::Continue => {}
                Pace::Pause => {
                    info!(namespace = vmi.namespace, name = vmi.name, "guest paused");
                    qmp.allow_any_downtime().await?;
                    let paused = |vmi: &Vmi| Some(progress::paused(vmi));
                    self.write_until_known(vmi, request, paused).await?;
                    continue;
                }
                Pace::PostCopy => {
                    qmp.start_post_copy().await?;
                    mode = CopyMode::Post;
                    continue;
                }
                Pace::Stalled(limit) => return Err(MigrationFailure::Stalled { limit }),
                Pace::Late(limit) => return Err(MigrationFailure::Deadline { limit }),
            }
            // An event that was missed is made up for by the next poll.
            let _ = tokio::time::timeout(POLL_INTERVAL, events.recv()).await;
        }
    }

    /// The guest is paused: its volumes and then its object are given to the target.
    async fn switch(
        &mut self,
        vmi: &Arc<Vmi>,
        qmp: &Qmp,
        request: &MigrationRequest,
        note: &MigrationNote,
        mut control: PeerConnection,
    ) -> Result<Option<u64>, MigrationFailure> {
        let begun = Instant::now();
        let path = path(&request.migration, "switch");
        let claimed = control.put(&path, Vec::new(), SWITCH_TIMEOUT);
        let completed = async {
            qmp.continue_migration().await?;
            settled(qmp).await
        };
        let (claimed, completed) = tokio::join!(claimed, completed);
        let (status, error, downtime) = completed?;
        claimed?;
        if status != MigrationStatus::Completed {
            return Err(broken(error));
        }
        let now = clock::now();
        let given = |vmi: &Vmi| {
            let state = progress::state(vmi);
            let is_free = state.abort_requested != Some(true);
            is_free.then(|| progress::handed_over(vmi, request, &note.moved, now))
        };
        match self.write_until_known(vmi, request, given).await? {
            Written::Yes => {}
            Written::Refused(now) if progress::owner(&now) == request.target => {}
            Written::Refused(_) | Written::Gone => return Err(MigrationFailure::Refused),
        }
        let millis = begun.elapsed().as_millis();
        info!(millis, qemu = downtime, target = request.target, "guest handed over");
        Ok(downtime)
    }

    /// Writes the object, and does not return before it is known whether it was written.
    pub(super) async fn write_until_known(
        &mut self,
        vmi: &Arc<Vmi>,
        request: &MigrationRequest,
        change: impl Fn(&Vmi) -> Option<Value>,
    ) -> Result<Written, MigrationFailure> {
        let vmis = api::vmis_in(&self.context.client, &vmi.namespace);
        let node = self.context.config.node_name.clone();
        let mut stop = self.tasks.stop_signal();
        loop {
            let failure = match api::present(vmis.get(&vmi.name).await) {
                Ok(None) => return Ok(Written::Gone),
                Ok(Some(object)) => {
                    let Ok(now) = Vmi::read(object) else { return Ok(Written::Gone) };
                    let now = Arc::new(now);
                    if now.uid != vmi.uid {
                        return Ok(Written::Gone);
                    }
                    let patch = change(&now).filter(|_| request.is_asked_by(&now, &node));
                    let Some(patch) = patch else { return Ok(Written::Refused(now)) };
                    match api::merge(&vmis, &vmi.name, &patch).await {
                        Ok(object) => {
                            self.remember(object);
                            return Ok(Written::Yes);
                        }
                        Err(failure) if api::is_conflict(&failure) => continue,
                        Err(failure @ kube::Error::Api(_)) => {
                            return Err(MigrationFailure::Write(Fault(failure)));
                        }
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            warn!(error = %Fault(failure), "cannot write the machine that migrates yet");
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = stop.requested() => return Err(MigrationFailure::AgentStops),
            }
        }
    }

    fn report_migrated(&self, vmi: &Vmi, request: &MigrationRequest, downtime: Option<u64>) {
        let message = format!("The VirtualMachineInstance migrated to node {}.", request.target);
        self.report(vmi, EventNote::normal("Migrated", message));
        if let Some(downtime) = downtime {
            info!(downtime, target = request.target, "guest migrated");
        }
    }
}

fn broken(error: Option<String>) -> MigrationFailure {
    let message = error.unwrap_or_else(|| "the target ended the stream".into());
    MigrationFailure::Stream { message }
}

/// The end of a migration that waits for no event any more.
pub(super) async fn settled(
    qmp: &Qmp,
) -> Result<(MigrationStatus, Option<String>, Option<u64>), QmpError> {
    let mut events = qmp.events();
    loop {
        let now = qmp.migration_progress().await?;
        if matches!(
            now.status,
            MigrationStatus::Completed | MigrationStatus::Failed | MigrationStatus::None
        ) {
            return Ok((now.status, now.error, now.downtime));
        }
        let _ = tokio::time::timeout(POLL_INTERVAL, events.recv()).await;
    }
}
