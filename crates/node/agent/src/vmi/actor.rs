//! The task of one machine: calls `plan`, carries out the step, waits for a change, and repeats.
//!
//! It owns all state of the machine and is the only writer of its status. Between two steps it may
//! be stopped, or killed with the whole process; the next one continues from the files in the
//! folder of the machine and from the API.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, Tasks, clock};
use futures_util::FutureExt as _;
use jiff::Timestamp;
use qemu::{Exit, RunDir, RunDirState};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, info, info_span, warn};

use super::attend::attend;
use super::awaited::{AwaitedObjects, Object};
use super::disks::DiskState;
use super::plan::{self, DesiredMachine, ObservedMachine, VmiStep};
use super::process_state::ProcessState;
use super::resume::Resumed;
use super::retry::Retry;
use super::status::MachineProblem;
use crate::context::Context;
use crate::machine::{ATTACHMENTS, Attachment, KnownMachine, LiveMachine, Vmi};

/// How long a failed step waits where a watch reports what happens; only for what a watch can miss.
const WATCHED_RETRY: Duration = Duration::from_secs(60);

pub(super) struct VmiActor {
    pub(super) context: Arc<Context>,
    pub(super) dir: RunDir,
    pub(super) object: watch::Receiver<KnownMachine>,
    /// The running machine, for requests to this node.
    live: watch::Sender<Option<LiveMachine>>,
    pub(super) tasks: Tasks,
    stop: Stop,
    pub(super) local: LocalMachine,
    /// The object as our last write left it, until the watch delivers a newer one.
    pub(super) written: Option<Arc<Vmi>>,
    /// Why the last step failed, for the status.
    pub(super) trouble: Option<MachineProblem>,
    pub(super) retry: Retry,
    /// Objects that are missing for the next step.
    pub(super) awaited: AwaitedObjects,
    /// Changes on the node.
    changes: watch::Receiver<()>,
    /// The user of the machine's QEMU process.
    pub(super) uid: Option<u32>,
    /// Why the machine has to end: its liveness probe failed.
    pub(super) condemned: Option<String>,
    pub(super) process: ProcessState,
    pub(super) disks: DiskState,
}

/// The state of a machine on this node.
pub(super) enum LocalMachine {
    Nothing,
    Unstarted,
    Running(LiveMachine),
    Ended(Exit),
}

/// The next action of the loop after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopControl {
    Again,
    Wait(Option<Instant>),
    End,
}

impl VmiActor {
    pub(super) fn new(
        context: Arc<Context>,
        dir: RunDir,
        object: watch::Receiver<KnownMachine>,
        live: watch::Sender<Option<LiveMachine>>,
        tasks: Tasks,
    ) -> Self {
        let stop = tasks.stop_signal();
        let changes = context.notifier.listen();
        Self {
            context,
            dir,
            object,
            live,
            tasks,
            stop,
            local: LocalMachine::Nothing,
            written: None,
            trouble: None,
            retry: Retry::default(),
            awaited: AwaitedObjects::default(),
            changes,
            uid: None,
            condemned: None,
            process: ProcessState::default(),
            disks: DiskState::default(),
        }
    }

    /// Runs until the machine is forgotten (true) or the agent stops (false).
    pub(super) async fn run(mut self) -> bool {
        let uid = self.dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let span = info_span!("vmi", uid);
        async move {
            self.adopt().boxed().await;
            self.run_loop().await
        }
        .instrument(span)
        .await
    }

    /// As [`Self::run`], for a machine whose process is attended to already.
    pub(super) async fn run_adopted(self) -> bool {
        let uid = self.dir.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let span = info_span!("vmi", uid);
        self.run_loop().instrument(span).await
    }

    async fn run_loop(mut self) -> bool {
        loop {
            match self.turn().boxed().await {
                LoopControl::Again => {}
                LoopControl::End => return true,
                LoopControl::Wait(until) => {
                    if !self.wait(until).await {
                        return false;
                    }
                }
            }
            if self.stop.is_requested() {
                return false;
            }
        }
    }

    /// Finds out what an earlier process left.
    async fn adopt(&mut self) {
        if !self.dir.path().exists() {
            return;
        }
        loop {
            match self.context.launcher.adopt(&self.dir).await {
                Ok(RunDirState::Running(running)) => {
                    info!(pid = running.process().pid, "found a running guest");
                    self.uid = running.spec().confinement.identity.map(|identity| identity.uid);
                    self.attend(running).await;
                    if let LocalMachine::Running(live) = &self.local {
                        live.release().await;
                        match live.resume().await {
                            Ok(Resumed::FromMemory) => live.set_clock_soon(),
                            Ok(Resumed::NotNeeded) => {}
                            Err(failure) => {
                                warn!(error = %Chain(&failure), "cannot resume guest");
                            }
                        }
                    }
                    self.process.unknown_to_networks = true;
                    self.process.was_found = true;
                }
                Ok(RunDirState::Ended { spec, exit }) => {
                    self.uid = spec.confinement.identity.map(|identity| identity.uid);
                    self.local = LocalMachine::Ended(exit);
                }
                Ok(RunDirState::Unstarted { spec }) => {
                    self.uid = spec.confinement.identity.map(|identity| identity.uid);
                    self.local = LocalMachine::Unstarted;
                }
                Ok(RunDirState::Nothing) => self.local = LocalMachine::Unstarted,
                Err(failure) => {
                    warn!(error = %Chain(&failure), "cannot report final state of machine");
                    let delay = self.retry.pause();
                    tokio::select! {
                        () = tokio::time::sleep(delay) => continue,
                        () = self.stop.requested() => {}
                    }
                }
            }
            self.retry.succeeded();
            return;
        }
    }

    /// Begins to manage a running process.
    pub(super) async fn attend(&mut self, running: qemu::RunningMachine) {
        let attachments: Vec<Attachment> =
            self.dir.load(ATTACHMENTS).ok().flatten().unwrap_or_default();
        let object = self.object.clone();
        let live = attend(&self.context, running, object, attachments, &self.tasks).await;
        self.live.send_replace(Some(live.clone()));
        self.process.changes = Some(live.news());
        self.local = LocalMachine::Running(live);
    }

    /// The object, if it exists.
    pub(super) fn present(&self) -> Option<Arc<Vmi>> {
        match &*self.object.borrow() {
            KnownMachine::Present(vmi) => Some(Arc::clone(vmi)),
            KnownMachine::Unknown | KnownMachine::Gone => None,
        }
    }

    /// The newest that is known of the object.
    fn known(&mut self) -> KnownMachine {
        let known = self.object.borrow_and_update().clone();
        if let (Some(written), KnownMachine::Present(watched)) = (&self.written, &known) {
            if is_older(&watched.version, &written.version) {
                return KnownMachine::Present(Arc::clone(written));
            }
            self.written = None;
        }
        known
    }

    async fn turn(&mut self) -> LoopControl {
        let known = self.known();
        // A guest that left may still fetch its memory from here.
        if let Some(after) = self.serve_post_copy(&known).boxed().await {
            return after;
        }
        let vmi = match known {
            KnownMachine::Unknown => return LoopControl::Wait(None),
            // One that moved to another node is that node's, and nothing is left to do here.
            KnownMachine::Present(vmi) if self.is_elsewhere(&vmi) => None,
            KnownMachine::Present(vmi) => Some(vmi),
            KnownMachine::Gone => None,
        };
        if let LocalMachine::Running(live) = &self.local
            && let Some(exit) = live.running.exit()
        {
            info!(?exit, "guest ended");
            self.end(exit);
        }
        let want = vmi.as_deref().map(|vmi| self.want(vmi));
        let step = plan::next(want.as_ref(), &self.seen(), clock::now());
        debug!(?step, "next step");
        match (step, vmi) {
            // Boxed, because only one of them exists at a time and some are large.
            (VmiStep::Launch, Some(vmi)) => self.launch(&vmi).boxed().await,
            (VmiStep::Reconcile, Some(vmi)) => self.reconcile_running(&vmi).boxed().await,
            (VmiStep::PressButton, Some(vmi)) => self.press_button(&vmi).boxed().await,
            (VmiStep::Finish(outcome), Some(vmi)) => self.finish(&vmi, outcome).boxed().await,
            (VmiStep::Release, Some(vmi)) => self.release(&vmi).boxed().await,
            (VmiStep::Kill, _) => self.kill().boxed().await,
            (VmiStep::CleanUp, _) => self.clean_up().boxed().await,
            (VmiStep::Forget, _) => LoopControl::End,
            (VmiStep::Wait(until), _) => LoopControl::Wait(until.map(instant)),
            (_, None) => LoopControl::Wait(None),
        }
    }

    pub(super) fn is_elsewhere(&self, vmi: &Vmi) -> bool {
        let owner = vmi.status["nodeName"].as_str().filter(|node| !node.is_empty());
        owner.is_some_and(|node| node != self.context.config.node_name)
    }

    fn want(&self, vmi: &Vmi) -> DesiredMachine {
        DesiredMachine {
            phase: vmi.phase(),
            deleted: vmi.deleted,
            evicted: vmi.shut_down_by(),
            grace: vmi.grace(),
            acpi: vmi.has_acpi(),
            finalizer: vmi.holds_finalizer(),
            condemned: self.condemned.is_some(),
        }
    }

    fn seen(&self) -> ObservedMachine {
        match &self.local {
            LocalMachine::Nothing => ObservedMachine::Nothing,
            LocalMachine::Unstarted => ObservedMachine::Unstarted,
            LocalMachine::Running(_) => ObservedMachine::Running { pressed: self.process.pressed },
            LocalMachine::Ended(exit) => ObservedMachine::Ended(exit.clone()),
        }
    }

    /// Waits for news, at most until `until`; false if the agent stops.
    async fn wait(&mut self, until: Option<Instant>) -> bool {
        let until = until.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        let news = async {
            match &mut self.process.changes {
                Some(news) => news.wait().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.object.changed() => changed.is_ok(),
            () = news => true,
            // Missing objects may exist now: the back-off ends.
            () = self.awaited.changed() => {
                self.retry.now();
                true
            }
            Ok(()) = self.changes.changed() => {
                self.retry.now();
                true
            }
            () = tokio::time::sleep_until(until) => true,
            () = self.stop.requested() => false,
        }
    }

    pub(super) fn end(&mut self, exit: Exit) {
        self.live.send_replace(None);
        self.process.changes = None;
        self.local = LocalMachine::Ended(exit);
    }

    /// Waits longer after each failure of the same kind.
    pub(super) fn later(&mut self) -> LoopControl {
        LoopControl::Wait(Some(self.retry.later()))
    }

    /// Waits for `objects` to change, if that is what is missing, and checks again in any case.
    pub(super) fn later_or_with(&mut self, objects: BTreeSet<Object>) -> LoopControl {
        let watched = !objects.is_empty();
        self.awaited.set(&self.context.client, objects);
        if watched {
            self.retry.now();
            return LoopControl::Wait(Some(Instant::now() + WATCHED_RETRY));
        }
        self.later()
    }
}

/// Whether a version is from before the other: since Kubernetes 1.35 they are numbers that grow.
fn is_older(one: &str, other: &str) -> bool {
    matches!((one.parse::<u64>(), other.parse::<u64>()), (Ok(one), Ok(other)) if one < other)
}

fn instant(at: Timestamp) -> Instant {
    let left = at.duration_since(clock::now());
    Instant::now() + Duration::try_from(left).unwrap_or(Duration::ZERO)
}
