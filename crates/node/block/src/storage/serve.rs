//! Taking requests: a thread per connection, which are few.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Shared;
use super::addresses::AddressError;
use super::protocol::{Answered, MAX_LINE, Reply, Request, StorageStatus};
use super::replicas::ReplicaError;
use super::state::Grant;
use super::volumes::VolumeError;
use crate::run::{MemberState, MemberStatus, VolumeStatus, chain};

/// Supervisors have some at a time.
const MAX_CONNECTIONS: usize = 64;

/// Changes within this time are reported together.
const GATHER: Duration = Duration::from_millis(5);
/// How often watchers are sent the status while a volume is being opened, while something long is
/// under way, and while nothing is: amounts of data change without a notice, and a closed
/// connection is detected by writing to it.
const OPENING: Duration = Duration::from_millis(100);
const BUSY: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_secs(10);

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// Serves what was served before, then takes requests until the process ends.
pub(super) fn serve(shared: &Arc<Shared>, path: &Path, ready: impl FnOnce()) {
    shared.open_replicas();
    shared.restore();
    if let Err(error) = shared.save(&shared.inner()) {
        tracing::error!(error = %chain(&error), "cannot save the state");
    }
    let listener = match UnixListener::bind(path) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(path = %path.display(), %error, "cannot accept requests");
            return shared.handle.stop();
        }
    };
    ready();
    let connections = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if connections.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            tracing::warn!("connection limit reached; closing connection");
            connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (shared, count) = (shared.clone(), connections.clone());
        let thread = std::thread::Builder::new().name("storage-request".to_owned());
        let started = thread.stack_size(512 << 10).spawn(move || {
            converse(&shared, stream);
            count.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = started {
            tracing::error!(%error, "cannot accept request");
            connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn converse(shared: &Shared, stream: UnixStream) {
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Some(line) = line(&mut reader) {
        let reply = match serde_json::from_str(&line) {
            Ok(Request::Records { grants }) => return be_asked(shared, reader, writer, grants),
            Ok(Request::Watch) => return send_changes(shared, writer),
            Ok(request) => shared.answer(request),
            Err(error) => Reply::Error { message: format!("this is no request: {error}") },
        };
        if say(&mut writer, &reply).is_err() {
            return;
        }
    }
}

/// The connection answers questions about records from now on.
fn be_asked(
    shared: &Shared,
    mut reader: BufReader<UnixStream>,
    mut writer: UnixStream,
    grants: bool,
) {
    shared.supervised(grants);
    if say(&mut writer, &Reply::Done).is_err() {
        return;
    }
    let number = shared.records.served_by(writer);
    while let Some(line) = line(&mut reader) {
        match serde_json::from_str::<Answered>(&line) {
            Ok(answered) => shared.records.answered(answered),
            Err(error) => {
                tracing::warn!(%error, "invalid reply to volume record request");
                break;
            }
        }
    }
    shared.records.gone(number);
}

/// Sends every change to the connection from now on.
fn send_changes(shared: &Shared, mut writer: UnixStream) {
    let _ = writer.set_write_timeout(Some(QUIET));
    let (mut seen, mut limit) = (0, Duration::ZERO);
    loop {
        let now = shared.changes.wait(seen, limit);
        if now != seen {
            std::thread::sleep(GATHER);
        }
        seen = shared.changes.wait(now, Duration::ZERO);
        let status = shared.status();
        limit = pace(&status);
        if say(&mut writer, &Reply::Status(status)).is_err() {
            return;
        }
    }
}

/// How soon there is progress to report.
fn pace(status: &StorageStatus) -> Duration {
    let any = |is: fn(&VolumeStatus) -> bool| {
        status.volumes.iter().filter_map(|it| it.status.as_ref()).any(is)
    };
    if any(|it| it.phase != "active") {
        return OPENING;
    }
    let moves = any(|it| it.unreconciled > 0 || it.replicas.iter().any(is_changing));
    let works = status.replicas.iter().any(|it| it.work.is_some());
    if moves || works { BUSY } else { QUIET }
}

fn is_changing(member: &MemberStatus) -> bool {
    member.rebuilt_bytes.is_some()
        || matches!(member.state, MemberState::Connecting | MemberState::Disconnected)
}

fn line(reader: &mut BufReader<UnixStream>) -> Option<String> {
    let mut line = String::new();
    match reader.take(MAX_LINE).read_line(&mut line) {
        Ok(count) if count > 0 && line.ends_with('\n') => Some(line),
        _ => None,
    }
}

fn say(writer: &mut UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    writer.write_all(&line)
}

impl Shared {
    fn status(&self) -> StorageStatus {
        let (waiting_engines, refused_engines) = self.refusals();
        StorageStatus {
            pid: std::process::id(),
            listen: self.listen.clone(),
            volumes: self.volume_states(),
            replicas: self.replica_states(),
            knows_grants: true,
            knows_replica_nodes: true,
            listens_also: Some(self.further_addresses()),
            waiting_engines,
            refused_engines,
        }
    }

    fn answer(&self, request: Request) -> Reply {
        let done = match request {
            Request::Status => return Reply::Status(self.status()),
            Request::Volume { volume, request } => match self.ask_volume(volume, request) {
                Ok(reply) => {
                    self.changes.notify();
                    return Reply::Volume { reply };
                }
                Err(error) => Err(error),
            },
            Request::CreateReplica(new) => self.create_replica(&new),
            Request::RemoveReplica { replica } => self.remove_replica(replica),
            Request::Create { volume, size } => self.create(volume, size),
            Request::Delete { volume } => self.delete(volume),
            Request::Attach(attachment) => self.attach(attachment),
            Request::Detach { volume } => self.detach(volume),
            Request::Grant { volume, user, group } => self.grant(volume, Grant { user, group }),
            Request::GrantReplicas { grants } => self.grant_replicas(grants),
            Request::ListenAlso { addresses } => self.listen_also(addresses),
            Request::HangUp { volume } => self.disconnect_clients(volume),
            Request::Stop => {
                self.handle.stop();
                Ok(())
            }
            Request::Records { .. } | Request::Watch => Ok(()),
        };
        self.changes.notify();
        match done {
            Ok(()) => Reply::Done,
            Err(error) => Reply::Error { message: chain(&error) },
        }
    }
}
