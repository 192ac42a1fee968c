//! The source of a migration: sends a running guest to another node, and keeps it if that fails.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use base::{Stop, clock};
use client::Fault;
use hyper_util::rt::TokioIo;
use qemu::machine::{DiskSource, Firmware};
use qemu::qmp::{Event, MigrationLimits, MigrationStatus, Qmp, QmpError, RunState};
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use super::offer::{self, Content, MigrationOffer, UnfitMachine};
use super::peer::{Peer, PeerConnection, PeerError};
use super::progress::{self, MigrationPace, MigrationRequest, Pace};
use super::{MigrationNote, OUTGOING};
use crate::api;
use crate::event::EventNote;
use crate::vmi::actor::{LoopControl, VmiActor};
use crate::vmi::live::LiveMachine;
use crate::vmi::object::Vmi;
use crate::vmi::registry::KnownMachine;
use crate::vmi::state;

/// For the target to make the machine and to have its volumes.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(90);
/// For the target to claim volumes; the guest stands still.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(6);
/// Between two attempts to write the object.
const RETRY: Duration = Duration::from_millis(300);
/// How often QEMU is asked besides its events.
const LOOK: Duration = Duration::from_millis(500);

/// Why a guest stays where it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum MigrationFailure {
    #[error(transparent)]
    Unfit(#[from] UnfitMachine),
    #[error("the guest is paused")]
    Paused,
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error("QEMU could not send the guest: {message}")]
    Stream { message: String },
    #[error("Live migration is not completed after {} sec and has been aborted", limit.as_secs())]
    Deadline { limit: Duration },
    #[error("Live migration stuck for {} sec and has been aborted", limit.as_secs())]
    Stalled { limit: Duration },
    #[error("Live migration aborted by user")]
    Aborted,
    #[error("the machine is being stopped")]
    Stopping,
    #[error("the agent of the source node is being stopped")]
    AgentStops,
    #[error("the agent of the source node was started again")]
    AgentRestarted,
    #[error("cannot {doing} a file of the machine")]
    File { doing: &'static str, source: std::io::Error },
    #[error("the machine cannot be given to the target: its object asks for something else now")]
    Refused,
    #[error("cannot write the machine")]
    Write(#[source] Fault),
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
            Ok(downtime) => {
                // QEMU is killed next; what the guest keeps is on the target.
                state::remove_migrated(&self.context, vmi, &self.dir);
                self.report_migrated(vmi, &request, downtime);
            }
            Err(failure) => self.roll_back(vmi, live, &request, &failure).await,
        }
        Some(LoopControl::Again)
    }

    async fn migrate(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        request: &MigrationRequest,
    ) -> Result<Option<u64>, MigrationFailure> {
        let qmp = live.running.qmp().await?;
        if qmp.run_state().await? != RunState::Running {
            return Err(MigrationFailure::Paused);
        }
        let offer = self.describe(vmi, live, request, &qmp).await?;
        let note = MigrationNote::new(&request.migration, vmi);
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
        let body = serde_json::to_vec(&offer).unwrap_or_default();
        let prepared = async {
            let mut connection = peer.connect().await?;
            connection.put(&path(request, "prepare"), body, PREPARE_TIMEOUT).await?;
            Ok::<_, MigrationFailure>(connection)
        };
        let control = unwanted.clone().guard(prepared).await?;
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
        let stream = peer.connect().await?.stream(&path(request, "stream")).await?;
        let send = self.send(vmi, live, request, stream);
        unwanted.guard(send).await?;
        self.switch(vmi, &qmp, request, control).await
    }

    /// Sends the memory of the guest until it has stopped.
    async fn send(
        &mut self,
        vmi: &Arc<Vmi>,
        live: &LiveMachine,
        request: &MigrationRequest,
        stream: hyper::upgrade::Upgraded,
    ) -> Result<(), MigrationFailure> {
        let failed = |source| MigrationFailure::File { doing: "make a socket for", source };
        let (ours, theirs) = StdStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let mut ours = UnixStream::from_std(ours).map_err(failed)?;
        // It ends with either side, and then QEMU says that the migration failed.
        self.tasks.spawn("migration-stream", async move {
            let mut stream = TokioIo::new(stream);
            let _ = tokio::io::copy_bidirectional(&mut ours, &mut stream).await;
        });
        let qmp = live.running.qmp().await?;
        qmp.set_migration_capabilities().await?;
        let limits = MigrationLimits {
            bandwidth: request.bandwidth,
            downtime_millis: request.downtime_millis,
            auto_converge: request.auto_converge,
        };
        let events = live.running.events();
        qmp.migrate(OwnedFd::from(theirs), limits).await?;
        let memory = live.running.spec().machine.memory.guest;
        let pace = MigrationPace::new(request, memory, std::time::Instant::now());
        let bound = pace.bound();
        let late = |_| MigrationFailure::Deadline { limit: bound };
        let sent = self.until_sent(vmi, request, &qmp, pace, events);
        tokio::time::timeout(bound, sent).await.map_err(late)?
    }

    /// Waits until the guest has stopped because almost all of its memory is sent, or because it
    /// may stand still for the rest.
    async fn until_sent(
        &mut self,
        vmi: &Arc<Vmi>,
        request: &MigrationRequest,
        qmp: &Qmp,
        mut pace: MigrationPace,
        mut events: broadcast::Receiver<Event>,
    ) -> Result<(), MigrationFailure> {
        loop {
            let now = qmp.migration_progress().await?;
            match now.status {
                MigrationStatus::PreSwitchover => return Ok(()),
                MigrationStatus::Failed | MigrationStatus::Completed => {
                    return Err(broken(now.error));
                }
                _ => {}
            }
            match pace.judge(now.remaining, std::time::Instant::now()) {
                Pace::Continue => {}
                Pace::Pause => {
                    info!(namespace = vmi.namespace, name = vmi.name, "guest stands still");
                    qmp.allow_any_downtime().await?;
                    let paused = |vmi: &Vmi| Some(progress::paused(vmi));
                    self.write_until_known(vmi, request, paused).await?;
                    continue;
                }
                Pace::Stalled(limit) => return Err(MigrationFailure::Stalled { limit }),
                Pace::Late(limit) => return Err(MigrationFailure::Deadline { limit }),
            }
            // An event that was missed is made up for by the next look.
            let _ = tokio::time::timeout(LOOK, events.recv()).await;
        }
    }

    /// The guest stands still: its volumes and then its object are given to the target.
    async fn switch(
        &mut self,
        vmi: &Arc<Vmi>,
        qmp: &Qmp,
        request: &MigrationRequest,
        mut control: PeerConnection,
    ) -> Result<Option<u64>, MigrationFailure> {
        let begun = Instant::now();
        let path = path(request, "switch");
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
            is_free.then(|| progress::handed_over(vmi, request, now))
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

    /// Everything that the target needs to know of the machine.
    async fn describe(
        &self,
        vmi: &Vmi,
        live: &LiveMachine,
        request: &MigrationRequest,
        qmp: &Qmp,
    ) -> Result<MigrationOffer, MigrationFailure> {
        let mut machine = live.running.spec().machine;
        let info = live.info.borrow().clone();
        let filled = info.topology.map_or(machine.cpu.sockets, |topology| topology.sockets);
        if info.growth > 0 || filled > machine.cpu.sockets {
            return Err(UnfitMachine::Grown.into());
        }
        let failed = |source| MigrationFailure::File { doing: "read", source };
        let mut seeds = BTreeMap::new();
        for disk in &machine.disks {
            // Seeds lie in the folder of the machine; other files belong to the node.
            if let DiskSource::File(image) = &disk.source
                && image.path.parent() == Some(self.dir.path())
            {
                let bytes = std::fs::read(&image.path).map_err(failed)?;
                seeds.insert(disk.name.clone(), Content::new(&bytes));
            }
        }
        offer::check(&machine, &seeds)?;
        machine.layout = Some(qmp.layout(&machine).await?);
        let variables = match &machine.firmware {
            Firmware::Efi(efi) => Some(Content::new(&std::fs::read(&efi.vars).map_err(failed)?)),
            Firmware::Bios | Firmware::BiosWithSerial => None,
        };
        Ok(MigrationOffer {
            migration: request.migration.clone(),
            namespace: vmi.namespace.clone(),
            name: vmi.name.clone(),
            uid: vmi.uid.clone(),
            machine,
            qemu: qmp.version().await?,
            processor: offer::processor(),
            seeds,
            variables,
        })
    }

    fn report_migrated(&self, vmi: &Vmi, request: &MigrationRequest, downtime: Option<u64>) {
        let message = format!("The VirtualMachineInstance migrated to node {}.", request.target);
        self.report(vmi, EventNote::normal("Migrated", message));
        if let Some(downtime) = downtime {
            info!(downtime, target = request.target, "guest migrated");
        }
    }
}

pub(super) fn path(request: &MigrationRequest, what: &str) -> String {
    format!("/v1/migrations/{}/{what}", request.migration)
}

fn broken(error: Option<String>) -> MigrationFailure {
    let message = error.unwrap_or_else(|| "the target ended the stream".into());
    MigrationFailure::Stream { message }
}

/// The end of a migration that nobody holds up any more.
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
        let _ = tokio::time::timeout(LOOK, events.recv()).await;
    }
}

/// What ends a migration before the guest has stopped.
#[derive(Clone)]
struct Unwanted {
    object: watch::Receiver<KnownMachine>,
    stop: Stop,
    node: String,
    request: MigrationRequest,
}

impl Unwanted {
    /// Does `work` for as long as the migration is wanted.
    async fn guard<T>(
        mut self,
        work: impl Future<Output = Result<T, MigrationFailure>>,
    ) -> Result<T, MigrationFailure> {
        tokio::select! {
            done = work => done,
            why = self.wait() => Err(why),
        }
    }

    async fn wait(&mut self) -> MigrationFailure {
        loop {
            let known = self.object.borrow_and_update().clone();
            if let KnownMachine::Present(vmi) = known
                && let Some(why) = self.objection(&vmi)
            {
                return why;
            }
            tokio::select! {
                changed = self.object.changed() => if changed.is_err() {
                    return MigrationFailure::AgentStops;
                },
                () = self.stop.requested() => return MigrationFailure::AgentStops,
            }
        }
    }

    fn objection(&self, vmi: &Vmi) -> Option<MigrationFailure> {
        let state = progress::state(vmi);
        let is_ours = state.migration_uid.as_deref() == Some(&self.request.migration);
        if is_ours && state.abort_requested == Some(true) {
            return Some(MigrationFailure::Aborted);
        }
        if vmi.deleted.is_some() || vmi.shut_down_by().is_some() {
            return Some(MigrationFailure::Stopping);
        }
        (progress::owner(vmi) != self.node).then_some(MigrationFailure::Refused)
    }
}
