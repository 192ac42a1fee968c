//! The storage process of this node: found, started, followed, started again.
//!
//! It is this program under another name, in a session of its own, and outlives us: volumes are
//! served without the agent. One that runs is found by its socket; two cannot run, because the
//! directory is locked. It is started when there is something for it to do, and asked to end
//! with us when it serves nothing.
//!
//! It runs as a user of its own if we are root and its files can be given to that user; otherwise as
//! ours, with a line in the log. One that an earlier version started goes on as the user it has.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain, Stop};
use block::storage::{Request, StorageStatus};
use rustix::fs::OFlags;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::certificate_copies::{CertificateCopies, REFRESH};
use super::link::{Connection, LinkError, StorageLink};
use super::user::StorageUser;
use crate::config::StorageWire;

/// Its volumes are opened before it reports that it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(20);
const LONGEST_RETRY_DELAY: Duration = Duration::from_secs(10);
/// A process that has lived so long did not die of its start.
const SETTLED: Duration = Duration::from_secs(10);
/// Its log begins anew when it is longer.
const LOG: u64 = 4 << 20;
const NO_LINK: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

/// Why there is no storage process.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    #[error("cannot start the storage process")]
    Start(#[source] io::Error),
    #[error("cannot write the log {}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("the storage process exited at start: {said}")]
    Ended { said: String },
    #[error("the storage process is not ready after {} s", START_TIMEOUT.as_secs())]
    Slow,
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Keeps the process of a directory running.
pub(super) struct Supervisor {
    pub(super) dir: PathBuf,
    pub(super) log: PathBuf,
    /// The user that it is to run as, if not ours.
    pub(super) user: Option<StorageUser>,
    /// Certificates that this user can read.
    pub(super) copies: Option<CertificateCopies>,
    /// Where engines of other nodes reach it, if there are other nodes.
    pub(super) wire: Option<StorageWire>,
    pub(super) link: StorageLink,
    /// Whether there is anything for it to do.
    pub(super) wanted: watch::Receiver<bool>,
    /// Its last status; nothing while it does not run.
    pub(super) reported: watch::Sender<Option<Arc<StorageStatus>>>,
}

impl Supervisor {
    pub(super) async fn run(mut self, mut stop: Stop) {
        let mut pauses = Backoff::new(FIRST_RETRY_DELAY, LONGEST_RETRY_DELAY);
        loop {
            let began = tokio::time::Instant::now();
            tokio::select! {
                () = stop.requested() => return self.part().await,
                () = self.live() => {}
            }
            self.reported.send_replace(None);
            if began.elapsed() > SETTLED {
                pauses.reset();
            }
            tokio::select! {
                () = stop.requested() => return,
                () = tokio::time::sleep(pauses.delay()) => {}
            }
        }
    }

    /// One life of the process, from its start or its finding to its end.
    async fn live(&mut self) {
        let (conversation, child) = match self.find_or_start().await {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(failure) => {
                warn!(error = %Chain(&failure), "volumes cannot be served");
                return;
            }
        };
        let follow = async {
            tokio::select! {
                failure = follow(conversation, &self.reported) => failure,
                () = self.renew_certificates() => LinkError::Ended,
            }
        };
        match child {
            None => report(&follow.await),
            Some(mut child) => tokio::select! {
                ended = child.wait() => warn!(?ended, "storage process exited; restarting it"),
                failure = follow => {
                    report(&failure);
                    // It closes its connections before it ends; nothing is done while it does.
                    if matches!(failure, LinkError::Ended | LinkError::Io(_)) {
                        let _ = tokio::time::timeout(START_TIMEOUT, child.wait()).await;
                    }
                }
            },
        }
    }

    /// Waits until it is wanted, if it does not run.
    async fn find_or_start(&mut self) -> Result<Option<(Connection, Option<Child>)>, ProcessError> {
        if let Ok(found) = self.link.connect().await {
            info!("found a running storage process");
            self.check_wire().await;
            return Ok(Some((found, None)));
        }
        if self.wanted.wait_for(|wanted| *wanted).await.is_err() {
            return Ok(None);
        }
        let user = self.hand_over().await;
        let wire = match user {
            Some(_) => self.copy_certificates(user).await,
            None => self.wire.clone(),
        };
        let child = start(&self.dir, &self.log, user, wire).await?;
        info!(pid = child.id(), "storage process started");
        Ok(Some((self.link.connect().await?, Some(child))))
    }

    /// Gives the files of the process to its user; nothing if it has to run as ours.
    async fn hand_over(&self) -> Option<StorageUser> {
        let (user, dir) = (self.user?, self.dir.clone());
        let given = tokio::task::spawn_blocking(move || user.take_over(&dir)).await.ok()?;
        match given {
            Ok(()) => Some(user),
            Err(failure) => {
                warn!(error = %Chain(&failure), "storage process runs as root");
                None
            }
        }
    }

    /// The certificates as that user can read them.
    async fn copy_certificates(&self, user: Option<StorageUser>) -> Option<StorageWire> {
        let (wire, copies) = (self.wire.clone()?, self.copies.clone().filter(|_| user.is_some())?);
        let copied = tokio::task::spawn_blocking(move || copies.refresh(&wire)).await.ok()?;
        match copied {
            Ok(wire) => Some(wire),
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot copy certificates for the storage process");
                None
            }
        }
    }

    /// Renewed certificates reach the process; never returns.
    async fn renew_certificates(&self) {
        loop {
            tokio::time::sleep(REFRESH).await;
            self.copy_certificates(self.user).await;
        }
    }

    /// One that was started before the node had a wire goes on without.
    async fn check_wire(&self) {
        let Some(wire) = &self.wire else { return };
        if self.link.status().await.is_ok_and(|status| status.listen.is_none()) {
            warn!(
                address = %wire.address,
                "storage process does not listen for other nodes: its replicas stay on this node \
                 until it is started again (sheaf storage stop)"
            );
        }
    }

    /// One that serves volumes stays; one that serves none would be left behind for nothing.
    async fn part(&self) {
        let idle = self.reported.borrow().as_ref().is_some_and(|status| status.volumes.is_empty());
        if idle && let Err(failure) = self.link.ask(&Request::Stop).await {
            debug!(error = %Chain(&failure), "the idle storage process stays");
        }
    }
}

async fn follow(
    mut conversation: Connection,
    reported: &watch::Sender<Option<Arc<StorageStatus>>>,
) -> LinkError {
    if let Err(failure) = conversation.watch().await {
        return failure;
    }
    loop {
        match conversation.status().await {
            Ok(status) => drop(reported.send_replace(Some(Arc::new(status)))),
            Err(failure) => return failure,
        }
    }
}

fn report(failure: &LinkError) {
    match failure {
        LinkError::Ended => warn!("storage process exited; restarting it"),
        failure => warn!(error = %Chain(failure), "storage process is no longer monitored"),
    }
}

/// Starts the process and waits until it is ready, which it says on its output.
async fn start(
    dir: &Path,
    path: &Path,
    user: Option<StorageUser>,
    wire: Option<StorageWire>,
) -> Result<Child, ProcessError> {
    let log = open_log(path);
    let log = log.map_err(|source| ProcessError::Log { path: path.into(), source })?;
    // Works even if the file it was started from was replaced or removed.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("sheaf").arg("storage").arg("--dir").arg(dir).process_group(0);
    if let Some(StorageUser { uid, gid }) = user {
        command.arg("--user").arg(format!("{uid}:{gid}"));
    }
    if let Some(wire) = wire.filter(can_listen) {
        command.arg("--listen").arg(wire.address.to_string());
        command.arg("--ca").arg(&wire.ca).arg("--cert").arg(&wire.certificate);
        command.arg("--key").arg(&wire.key);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().map_err(ProcessError::Start)?;
    let mut output = BufReader::new(child.stdout.take().expect("it was asked for"));
    let mut said = String::new();
    let ready = async {
        let _ = output.read_line(&mut said).await;
        said.starts_with("ready")
    };
    match tokio::time::timeout(START_TIMEOUT, ready).await {
        Ok(true) => Ok(child),
        Ok(false) => {
            let _ = child.wait().await;
            Err(ProcessError::Ended { said: last_line(path) })
        }
        Err(_) => Err(ProcessError::Slow),
    }
}

/// Whether a process could listen there. Volumes of this node are worth more than the wire: if the
/// address is not the node's, or its port is taken, they are served without.
fn can_listen(wire: &StorageWire) -> bool {
    if !wire.certificate.exists() {
        warn!("storage process does not listen for other nodes: this node has no certificate yet");
        return false;
    }
    match std::net::TcpListener::bind(wire.address) {
        Ok(_) => true,
        Err(failure) => {
            let address = wire.address;
            warn!(%address, error = %Chain(&failure), "storage process does not listen for other nodes");
            false
        }
    }
}

/// Opens the log, which lies in a directory that the process may write: no link is followed.
fn open_log(path: &Path) -> io::Result<File> {
    let anew = std::fs::symlink_metadata(path).is_ok_and(|log| log.len() > LOG);
    let mut options = OpenOptions::new();
    options.create(true).write(true).custom_flags(NO_LINK);
    let log = if anew { options.truncate(true) } else { options.append(true) }.open(path)?;
    if log.metadata()?.is_file() { Ok(log) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn last_line(path: &Path) -> String {
    let mut log = String::new();
    let opened = OpenOptions::new().read(true).custom_flags(NO_LINK).open(path);
    let _ = opened.and_then(|mut file| file.read_to_string(&mut log));
    log.trim_end().rsplit('\n').next().unwrap_or_default().to_owned()
}
