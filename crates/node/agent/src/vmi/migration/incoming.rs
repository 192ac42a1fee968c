//! The target of a migration: a machine that is made here for a guest that runs elsewhere.
//!
//! One task per guest on its way. It holds the machine's folder, volumes and QEMU, and does what
//! the source asks over the node endpoint. When the object names this node, the task becomes that
//! of an ordinary machine; when it will never do so, everything is taken away again.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Tasks};
use client::Fault;
use qemu::process::RecoverError;
use qemu::qmp::QmpError;
use qemu::{RunDir, RunningMachine};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{info, warn};

use super::arrival::{arrive, claim, loaded};
use super::local_volume;
use super::offer::{MigrationOffer, Prepared, UnfitMachine};
use super::prepare::DISKS_SOCKET;
use super::recovery::{self, Verdict};
use super::session::MigrationSessions;
use super::{INCOMING, MigrationNote, progress};
use crate::api;
use crate::context::Context;
use crate::machine::{KnownMachine, LiveMachine, MachineEntry, Machines, ReadError, Vmi};
use crate::storage::TakeOverError;
use crate::vmi::actor::{LocalMachine, VmiActor};
use crate::vmi::resolve::ResolveError;
use crate::vmi::state;
use crate::volume::ReceiveError;

/// For what is left of an earlier stay of the machine to go.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two attempts to take away what was prepared.
const CLEAN_RETRY: Duration = Duration::from_millis(500);
/// How often the object is asked about a guest whose source is silent.
const RECHECK: Duration = Duration::from_secs(2);
/// Requests of the source that wait.
const REQUESTS: usize = 4;

/// Why a guest does not come here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IncomingError {
    #[error("no migration {migration} is expected here")]
    Unknown { migration: String },
    #[error("the machine is not to move from node {peer} to this one")]
    NotAsked { peer: String },
    #[error("an earlier stay of the machine on this node is still being cleaned up")]
    Leftovers,
    #[error("cannot read the machine")]
    Read(#[source] Fault),
    #[error("cannot understand the machine")]
    Object(#[source] ReadError),
    #[error(transparent)]
    Unfit(#[from] UnfitMachine),
    #[error("the machine cannot be prepared")]
    Start(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Volume(#[from] Box<ResolveError>),
    #[error(transparent)]
    Claim(#[from] TakeOverError),
    #[error(transparent)]
    LocalVolume(#[from] ReceiveError),
    #[error("cannot {doing} a file of the machine")]
    File { doing: &'static str, source: std::io::Error },
    #[error(transparent)]
    Qmp(#[from] QmpError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
    #[error("QEMU has not read the state of all devices yet")]
    NotLoaded,
}

/// A request of the source about a guest that was prepared for.
enum IncomingRequest {
    /// The stream is joined to QEMU.
    TakeIn(oneshot::Sender<Result<UnixStream, IncomingError>>),
    /// A connection to the exports of disks that are copied.
    Disks(oneshot::Sender<Result<UnixStream, IncomingError>>),
    /// The guest has stopped: its volumes are claimed.
    Switch(oneshot::Sender<Result<(), IncomingError>>),
    /// In post-copy: QEMU has the state of all devices.
    Loaded(oneshot::Sender<Result<(), IncomingError>>),
    Cancel(oneshot::Sender<()>),
}

/// All guests on their way to this node; clones share them.
#[derive(Clone)]
pub(crate) struct IncomingMigrations {
    context: Arc<Context>,
    machines: Machines,
    tasks: Tasks,
    sessions: MigrationSessions<IncomingRequest>,
}

impl IncomingMigrations {
    pub(crate) fn new(context: Arc<Context>, machines: Machines, tasks: Tasks) -> Self {
        Self { context, machines, tasks, sessions: MigrationSessions::default() }
    }

    /// Prepares for a guest of `peer`; when this is done, the stream may begin.
    pub(crate) async fn prepare(
        &self,
        peer: &str,
        offer: MigrationOffer,
    ) -> Result<Prepared, IncomingError> {
        let vmi = self.expected(peer, &offer).await?;
        self.until_clean(&vmi.uid).await?;
        let (requests, received) = mpsc::channel(REQUESTS);
        let (object, objects) = watch::channel(KnownMachine::Unknown);
        let (live, lives) = watch::channel(None);
        self.sessions.insert(peer, &offer.migration, requests);
        self.machines.insert(vmi.uid.clone(), MachineEntry { object, live: lives });
        let dir = RunDir::new(self.context.config.machines_dir().join(&vmi.uid));
        let context = Arc::clone(&self.context);
        let actor = VmiActor::new(context, dir, objects, live, self.tasks.clone());
        let peer = peer.to_owned();
        let session = Session { all: self.clone(), actor, vmi, peer, offer, received };
        let (reply, answer) = oneshot::channel();
        self.tasks.spawn("migration-target", session.run(reply));
        answer.await.unwrap_or(Err(IncomingError::Leftovers))
    }

    /// The socket that the stream of the source is copied to and from.
    pub(crate) async fn take_in(
        &self,
        peer: &str,
        migration: &str,
    ) -> Result<UnixStream, IncomingError> {
        self.ask(peer, migration, IncomingRequest::TakeIn).await?
    }

    /// A connection to the disks that the source copies.
    pub(crate) async fn disks(
        &self,
        peer: &str,
        migration: &str,
    ) -> Result<UnixStream, IncomingError> {
        self.ask(peer, migration, IncomingRequest::Disks).await?
    }

    /// The same as `take_in` for a post-copy whose stream broke: the guest runs here already.
    pub(crate) async fn take_in_again(
        &self,
        peer: &str,
        migration: &str,
    ) -> Result<UnixStream, IncomingError> {
        let is_asked = |live: &LiveMachine| {
            let note: Option<MigrationNote> = live.running.dir().load(INCOMING).ok().flatten();
            note.is_some_and(|note| note.migration == migration && note.source == peer)
        };
        let found = self.machines.running().into_iter().find(|(live, _)| is_asked(live));
        let unknown = || IncomingError::Unknown { migration: migration.to_owned() };
        let (live, _) = found.ok_or_else(unknown)?;
        Ok(live.running.recover_post_copy().await?)
    }

    /// Claims the volumes of the guest, which is paused.
    pub(crate) async fn switch(&self, peer: &str, migration: &str) -> Result<(), IncomingError> {
        self.ask(peer, migration, IncomingRequest::Switch).await?
    }

    /// Waits until QEMU has the state of all devices of a guest in post-copy.
    pub(crate) async fn loaded(&self, peer: &str, migration: &str) -> Result<(), IncomingError> {
        self.ask(peer, migration, IncomingRequest::Loaded).await?
    }

    /// Takes away what was prepared; nothing if there is nothing.
    pub(crate) async fn cancel(&self, peer: &str, migration: &str) {
        let _ = self.ask(peer, migration, IncomingRequest::Cancel).await;
    }

    /// Asks the session of a migration that comes from `peer`.
    async fn ask<T>(
        &self,
        peer: &str,
        migration: &str,
        request: impl FnOnce(oneshot::Sender<T>) -> IncomingRequest,
    ) -> Result<T, IncomingError> {
        let unknown = || IncomingError::Unknown { migration: migration.to_owned() };
        let requests = self.sessions.find(peer, migration).ok_or_else(unknown)?;
        let (reply, answer) = oneshot::channel();
        requests.send(request(reply)).await.map_err(|_| unknown())?;
        answer.await.map_err(|_| unknown())
    }

    /// The object, if it says that the guest of `peer` is to come here.
    async fn expected(
        &self,
        peer: &str,
        offer: &MigrationOffer,
    ) -> Result<Arc<Vmi>, IncomingError> {
        let vmi = read(&self.context, &offer.namespace, &offer.name).await?;
        let refused = || IncomingError::NotAsked { peer: peer.to_owned() };
        let vmi = vmi.filter(|vmi| vmi.uid == offer.uid).ok_or_else(refused)?;
        let (state, node) = (progress::state(&vmi), &self.context.config.node_name);
        let is_asked = progress::owner(&vmi) == peer
            && state.migration_uid.as_deref() == Some(&offer.migration)
            && state.source_node.as_deref() == Some(peer)
            && state.target_node.as_deref() == Some(node)
            && state.failed != Some(true)
            && state.completed != Some(true);
        if is_asked { Ok(Arc::new(vmi)) } else { Err(refused()) }
    }

    /// Waits for the end of an earlier stay of the machine here.
    async fn until_clean(&self, uid: &str) -> Result<(), IncomingError> {
        let clean = async {
            while self.machines.uids().iter().any(|known| known == uid) {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(CLEAN_TIMEOUT, clean).await.map_err(|_| IncomingError::Leftovers)
    }
}

pub(super) async fn read(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Vmi>, IncomingError> {
    let found = api::vmis_in(&context.client, namespace).get(name).await;
    let found = api::present(found).map_err(|source| IncomingError::Read(Fault(source)))?;
    found.map(Vmi::read).transpose().map_err(IncomingError::Object)
}

/// One guest on its way.
struct Session {
    all: IncomingMigrations,
    actor: VmiActor,
    vmi: Arc<Vmi>,
    /// The source.
    peer: String,
    offer: MigrationOffer,
    received: mpsc::Receiver<IncomingRequest>,
}

impl Session {
    async fn run(mut self, reply: oneshot::Sender<Result<Prepared, IncomingError>>) {
        let (name, namespace) = (self.vmi.name.clone(), self.vmi.namespace.clone());
        let prepared = self.actor.prepare_incoming(&self.vmi, &self.peer, &self.offer).await;
        let (running, prepared) = match prepared {
            Ok(prepared) => prepared,
            Err(failure) => {
                warn!(namespace, name, error = %Chain(&failure), "cannot prepare for a guest");
                let _ = reply.send(Err(failure));
                state::remove_migrated(&self.all.context, &self.vmi, &self.actor.dir);
                return self.discard().await;
            }
        };
        info!(namespace, name, migration = self.offer.migration, "prepared for a guest");
        let _ = reply.send(Ok(prepared));
        match self.wait(&running).await {
            Some(Verdict::Arrived) => self.adopt(running).await,
            Some(verdict @ (Verdict::Abandoned | Verdict::Undecided)) => {
                info!(namespace, name, "the guest does not come");
                running.kill().await;
                // Undecided, it may be the only copy of what the guest keeps.
                if verdict == Verdict::Abandoned {
                    state::remove_migrated(&self.all.context, &self.vmi, &self.actor.dir);
                }
                self.discard().await;
            }
            // The next process finds the folder, and the object says what to do.
            None => {}
        }
    }

    /// Does what the source asks until it is decided where the guest runs; nothing if the agent
    /// stops.
    async fn wait(&mut self, running: &RunningMachine) -> Option<Verdict> {
        let mut stop = self.all.tasks.stop_signal();
        let node = self.all.context.config.node_name.clone();
        loop {
            tokio::select! {
                request = self.received.recv() => match request? {
                    IncomingRequest::TakeIn(reply) => {
                        let _ = reply.send(take_in(running).await);
                    }
                    IncomingRequest::Disks(reply) => {
                        let failed = |source| IncomingError::File { doing: "open", source };
                        let opened = self.actor.dir.connect(DISKS_SOCKET).await;
                        let _ = reply.send(opened.map_err(failed));
                    }
                    IncomingRequest::Switch(reply) => {
                        let _ = reply.send(self.switch(running).await);
                    }
                    IncomingRequest::Loaded(reply) => {
                        let _ = reply.send(loaded(running).await);
                    }
                    IncomingRequest::Cancel(reply) => {
                        // The object decides, not the source alone: it may have given it away.
                        let verdict = self.verdict(&node).await;
                        let _ = reply.send(());
                        if verdict != Verdict::Arrived {
                            return Some(Verdict::Abandoned);
                        }
                    }
                },
                Ok(()) = self.actor.object.changed() => {
                    let object = self.actor.present();
                    if object.is_some_and(|vmi| progress::owner(&vmi) == node) {
                        return Some(Verdict::Arrived);
                    }
                }
                _ = running.exited() => return Some(self.verdict(&node).await),
                () = tokio::time::sleep(RECHECK) => match self.verdict(&node).await {
                    Verdict::Undecided | Verdict::Arrived => {}
                    Verdict::Abandoned => return Some(Verdict::Abandoned),
                },
                () = stop.requested() => return None,
            }
        }
    }

    async fn verdict(&self, node: &str) -> Verdict {
        match read(&self.all.context, &self.vmi.namespace, &self.vmi.name).await {
            Ok(Some(vmi)) if vmi.uid == self.vmi.uid => recovery::target(
                progress::owner(&vmi),
                &progress::state(&vmi),
                node,
                &self.offer.migration,
            ),
            Ok(_) => Verdict::Abandoned,
            // Not known now is no reason to decide.
            Err(_) => Verdict::Undecided,
        }
    }

    /// The guest has stopped: the source writes its disks no more, and all volumes are claimed.
    async fn switch(&self, running: &RunningMachine) -> Result<(), IncomingError> {
        if !self.offer.mirrored().is_empty() {
            running.qmp().await?.stop_disk_exports().await?;
        }
        let note: Option<MigrationNote> = self.actor.dir.load(INCOMING).ok().flatten();
        local_volume::sync(&self.all.context, note.as_ref()).await?;
        claim(&self.all.context, note.as_ref()).await
    }

    /// The guest is this node's: it goes on, and this task is that of its machine.
    async fn adopt(mut self, running: RunningMachine) {
        self.all.sessions.remove(&self.offer.migration);
        // Without the object the task of the machine does this.
        if let Some(vmi) = self.actor.present()
            && let Err(failure) = arrive(&self.all.context, &vmi, &self.actor.dir, &running).await
        {
            warn!(error = %Chain(&failure), "cannot let an arrived guest run yet");
        }
        self.actor.attend(running).await;
        if self.actor.run_adopted().await {
            self.all.machines.remove(&self.vmi.uid);
        }
    }

    async fn discard(mut self) {
        self.all.sessions.remove(&self.offer.migration);
        let mut stop = self.all.tasks.stop_signal();
        loop {
            self.actor.clean_up().await;
            if matches!(self.actor.local, LocalMachine::Nothing) {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(CLEAN_RETRY) => {}
                () = stop.requested() => return,
            }
        }
        self.all.machines.remove(&self.vmi.uid);
    }
}

/// A socket whose other end QEMU reads the guest from.
async fn take_in(running: &RunningMachine) -> Result<UnixStream, IncomingError> {
    let failed = |source| IncomingError::File { doing: "make a socket for", source };
    let (ours, theirs) = StdStream::pair().map_err(failed)?;
    running.qmp().await?.take_in(OwnedFd::from(theirs)).await?;
    ours.set_nonblocking(true).map_err(failed)?;
    UnixStream::from_std(ours).map_err(failed)
}
