//! Copying disks that are files of the source: its QEMU mirrors them to the QEMU of the target
//! while the guest runs, and ends the mirrors once the guest has stopped.
//!
//! QEMU connects to a socket of this agent, which relays to the target over TLS. A mirror that
//! fails or is abandoned leaves the guest on the files of the source.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use base::{Chain, Tasks};
use hyper_util::rt::TokioIo;
use qemu::machine::{Disk, DiskSource};
use qemu::process::ProcessUser;
use qemu::qmp::{MirrorJob, MirrorOptions, Qmp, QmpError};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::failure::MigrationFailure;
use super::offer::{MigrationOffer, Prepared};
use super::path;
use super::peer::{Peer, PeerError};
use super::progress::{MigrationPace, MigrationRequest, Pace};
use crate::event::EventNote;
use crate::machine::{LiveMachine, Vmi};
use crate::vmi::actor::VmiActor;

/// The socket that QEMU connects to, in the folder of the machine.
const SOCKET: &str = "copy.sock";
/// For the mirrors to end; at a switch, the guest is paused.
const END_TIMEOUT: Duration = Duration::from_secs(6);
/// How often QEMU is asked besides its events.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Disks that are mirrored to the target.
pub(super) struct DiskCopies {
    /// Each disk with the target's image of it.
    disks: Vec<MirroredDisk>,
    /// Connections are accepted for as long as it exists.
    _relay: Option<oneshot::Sender<()>>,
}

struct MirroredDisk {
    disk: Disk,
    next: Disk,
}

impl MirroredDisk {
    fn new(disk: Disk, socket: PathBuf) -> Self {
        let source = DiskSource::Nbd { socket, export: disk.name.clone(), reconnect_delay: 0 };
        let next = Disk { source, moves: disk.moves + 1, ..disk.clone() };
        Self { disk, next }
    }

    async fn job(&self, qmp: &Qmp) -> Result<MirrorJob, MigrationFailure> {
        Ok(qmp.observe_mirror(&self.disk, &self.next).await?.job)
    }

    fn failed(&self, why: impl Into<String>) -> MigrationFailure {
        MigrationFailure::DiskCopy { disk: self.disk.name.clone(), why: why.into() }
    }
}

impl VmiActor {
    /// Mirrors disks to the target; returns when all have the same content on both sides.
    pub(super) async fn copy_disks(
        &self,
        vmi: &Vmi,
        live: &LiveMachine,
        request: &MigrationRequest,
        peer: &Peer,
        offer: &MigrationOffer,
        prepared: &Prepared,
    ) -> Result<DiskCopies, MigrationFailure> {
        let mut copies = DiskCopies { disks: Vec::new(), _relay: None };
        let mirrored = offer.mirrored();
        if mirrored.is_empty() {
            return Ok(copies);
        }
        let names: Vec<&str> = mirrored.keys().copied().collect();
        let names = names.join(", ");
        info!(namespace = vmi.namespace, name = vmi.name, disks = names, "copying disks");
        let message = format!("Copying disks of the node to node {}: {names}", request.target);
        self.report(vmi, EventNote::normal("CopyingDisks", message));
        let user = live.running.spec().confinement.identity;
        let failed = |source| MigrationFailure::File { doing: "make a socket for", source };
        let socket = self.dir.path().join(SOCKET);
        let listener = listen(&socket, user.as_ref()).map_err(failed)?;
        let relay = Relay { peer: peer.clone(), path: path(&request.migration, "disks") };
        copies._relay = Some(relay.serve(&self.tasks, listener, mirrored.len()));
        let qmp = live.running.qmp().await?;
        for disk in &offer.machine.disks {
            if !mirrored.contains_key(disk.name.as_str()) {
                continue;
            }
            // A target of an earlier version knows nothing of copies.
            let scope = prepared.copies.get(&disk.name).copied();
            let missing = || MigrationFailure::NoDiskCopy { disk: disk.name.clone() };
            let scope = scope.ok_or_else(missing)?;
            let mirror = MirroredDisk::new(disk.clone(), socket.clone());
            let options = MirrorOptions { scope, bandwidth: request.bandwidth };
            qmp.start_mirror(&mirror.disk, &mirror.next, options).await?;
            copies.disks.push(mirror);
        }
        let bytes = mirrored.values().sum();
        // A paused guest would make nothing faster: each of its writes goes to both.
        let patient =
            MigrationRequest { allows_post_copy: false, allows_pause: false, ..request.clone() };
        let pace = MigrationPace::new(&patient, bytes, Instant::now());
        copies.until_ready(&qmp, pace).await?;
        Ok(copies)
    }

    /// Ends mirrors of a migration that failed, also one of an earlier process.
    pub(super) async fn abandon_disk_copies(&self, vmi: &Vmi, live: &LiveMachine) {
        let socket = self.dir.path().join(SOCKET);
        let machine = live.running.spec().machine;
        // The mirror of a claim to another one has a job of the same name, and is not of this.
        let disks = machine.disks.iter().filter(|disk| self.is_mirrored(vmi, disk));
        let disks = disks.map(|disk| MirroredDisk::new(disk.clone(), socket.clone()));
        let copies = DiskCopies { disks: disks.collect(), _relay: None };
        let abandoned = async {
            let qmp = live.running.qmp().await?;
            copies.abandon(&qmp).await
        };
        match tokio::time::timeout(END_TIMEOUT, abandoned).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => warn!(error = %Chain(&failure), "cannot end copies of disks"),
            Err(_) => warn!("copies of disks do not end"),
        }
        let _ = fs::remove_file(socket);
    }
}

impl DiskCopies {
    async fn until_ready(
        &self,
        qmp: &Qmp,
        mut pace: MigrationPace,
    ) -> Result<(), MigrationFailure> {
        let mut events = qmp.events();
        loop {
            let (mut remaining, mut is_ready) = (0, true);
            for disk in &self.disks {
                match disk.job(qmp).await? {
                    MirrorJob::Ready => {}
                    MirrorJob::Copying { done, total } => {
                        remaining += total.saturating_sub(done);
                        is_ready = false;
                    }
                    other => return Err(ended(disk, other)),
                }
            }
            if is_ready {
                return Ok(());
            }
            match pace.judge(remaining, Instant::now()) {
                Pace::Continue | Pace::Pause | Pace::PostCopy => {}
                Pace::Stalled(limit) => return Err(MigrationFailure::Stalled { limit }),
                Pace::Late(limit) => return Err(MigrationFailure::Deadline { limit }),
            }
            let _ = tokio::time::timeout(POLL_INTERVAL, events.recv()).await;
        }
    }

    /// Ends the mirrors of a guest that has stopped: the target has all of its data.
    pub(super) async fn finish(self, qmp: &Qmp) -> Result<(), MigrationFailure> {
        let finished = async {
            for disk in &self.disks {
                match disk.job(qmp).await? {
                    MirrorJob::Ready => qmp.end_mirror(&disk.next).await?,
                    other => return Err(ended(disk, other)),
                }
            }
            for disk in &self.disks {
                if let MirrorJob::Ended { error: Some(why) } = until_ended(disk, qmp).await? {
                    return Err(disk.failed(why));
                }
                qmp.discard_mirror(&disk.next).await?;
            }
            Ok(())
        };
        let late = |_| MigrationFailure::Deadline { limit: END_TIMEOUT };
        tokio::time::timeout(END_TIMEOUT, finished).await.map_err(late)?
    }

    async fn abandon(&self, qmp: &Qmp) -> Result<(), MigrationFailure> {
        for disk in &self.disks {
            if disk.job(qmp).await? == MirrorJob::Absent {
                continue;
            }
            match qmp.cancel_mirror(&disk.next).await {
                // It has ended by itself.
                Err(QmpError::Refused { .. }) | Ok(()) => {}
                Err(failure) => return Err(failure.into()),
            }
            until_ended(disk, qmp).await?;
            qmp.discard_mirror(&disk.next).await?;
        }
        Ok(())
    }
}

fn ended(disk: &MirroredDisk, job: MirrorJob) -> MigrationFailure {
    let why = match job {
        MirrorJob::Ended { error: Some(why) } => why,
        _ => "its mirror has ended".into(),
    };
    disk.failed(why)
}

async fn until_ended(disk: &MirroredDisk, qmp: &Qmp) -> Result<MirrorJob, MigrationFailure> {
    let mut events = qmp.events();
    loop {
        let job = disk.job(qmp).await?;
        if matches!(job, MirrorJob::Ended { .. } | MirrorJob::Absent) {
            return Ok(job);
        }
        let _ = tokio::time::timeout(POLL_INTERVAL, events.recv()).await;
    }
}

/// A socket that the user of QEMU may connect to. The folder is ours, so no link is followed.
fn listen(socket: &std::path::Path, user: Option<&ProcessUser>) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Err(failure) if failure.kind() != io::ErrorKind::NotFound => return Err(failure),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    if let Some(user) = user {
        std::os::unix::fs::chown(socket, Some(user.uid), Some(user.gid))?;
    }
    Ok(listener)
}

/// Joins connections of QEMU to the target.
#[derive(Clone)]
struct Relay {
    peer: Peer,
    path: String,
}

impl Relay {
    /// Accepts a connection for each disk, until the answer is dropped.
    fn serve(self, tasks: &Tasks, listener: UnixListener, disks: usize) -> oneshot::Sender<()> {
        let (wanted, mut unwanted) = oneshot::channel();
        let (relay, own_tasks) = (Arc::new(self), tasks.clone());
        tasks.spawn("migration-disks", async move {
            for _ in 0..disks {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = &mut unwanted => return,
                };
                match accepted {
                    Ok((connection, _)) => {
                        let relay = Arc::clone(&relay);
                        own_tasks.spawn("migration-disk", async move {
                            if let Err(failure) = relay.join(connection).await {
                                warn!(error = %Chain(&failure), "cannot reach disks of the target");
                            }
                        });
                    }
                    Err(failure) => {
                        warn!(error = %Chain(&failure), "cannot accept a connection of QEMU");
                        return;
                    }
                }
            }
        });
        wanted
    }

    async fn join(&self, mut connection: UnixStream) -> Result<(), PeerError> {
        let stream = self.peer.connect().await?.stream(&self.path).await?;
        let mut stream = TokioIo::new(stream);
        // It ends with either side, and then QEMU says that the mirror failed.
        let _ = tokio::io::copy_bidirectional(&mut connection, &mut stream).await;
        Ok(())
    }
}
