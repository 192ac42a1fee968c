//! Asking a laboratory that runs: one line of JSON each way, over a socket in its directory.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};

use super::{LabError, Shared};
use crate::ids::ReplicaId;
use crate::run::{AdminReply, AdminRequest, VolumeKey, VolumeStatus};

/// The longest request that a client needs.
const MAX_LINE: u64 = 1 << 20;

/// Where the engine that has the volume is asked.
pub(super) const SOCKET: &str = "control.sock";

/// Requests to a laboratory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LabRequest {
    Status,
    Volume(AdminRequest),
    /// Ends a replica's process as a crash would.
    KillReplica {
        index: usize,
    },
    /// Starts its process. One that cannot be opened is replaced, as by `RebuildReplica`.
    StartReplica {
        index: usize,
    },
    /// Throws a replica away and lets an empty one take its place.
    RebuildReplica {
        index: usize,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LabReply {
    Status { volume: Box<VolumeStatus>, replicas: Vec<ReplicaStatus> },
    Volume(AdminReply),
    Done,
    Error { message: String },
}

/// A replica's place on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    pub index: usize,
    pub id: ReplicaId,
    pub dir: PathBuf,
    /// Nothing if it does not run.
    pub pid: Option<u32>,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Why nothing was answered.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no volume is being served in {dir}")]
    NotRunning { dir: PathBuf },
    #[error("no standby engine in {dir}: --standby starts one")]
    NoStandby { dir: PathBuf },
    #[error("the standby engine has not taken the volume yet: it is {phase}")]
    Unfinished { phase: String },
    #[error("cannot speak to the volume in {dir}")]
    Io { dir: PathBuf, source: io::Error },
    #[error("the answer cannot be understood")]
    Answer { source: serde_json::Error },
    #[error("{message}")]
    Refused { message: String },
}

/// Asks the laboratory of a directory.
pub fn ask(dir: &Path, request: &LabRequest) -> Result<LabReply, ClientError> {
    let none = |_| ClientError::NotRunning { dir: dir.to_owned() };
    ask_over(UnixStream::connect(dir.join(SOCKET)).map_err(none)?, dir, request)
}

/// Asks whoever is at the other end of a socket.
pub(super) fn ask_over(
    mut stream: UnixStream,
    dir: &Path,
    request: &LabRequest,
) -> Result<LabReply, ClientError> {
    let io = |source| ClientError::Io { dir: dir.to_owned(), source };
    let mut line = serde_json::to_vec(request).map_err(|source| ClientError::Answer { source })?;
    line.push(b'\n');
    stream.write_all(&line).map_err(io)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(io)?;
    match serde_json::from_str(&answer).map_err(|source| ClientError::Answer { source })? {
        LabReply::Error { message } => Err(ClientError::Refused { message }),
        reply => Ok(reply),
    }
}

/// Removes the socket when it is dropped; the thread ends with the process.
#[derive(Debug)]
pub(super) struct Listening(PathBuf);

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn listen(shared: &Arc<Shared>, name: &str) -> Result<Listening, LabError> {
    let path = shared.dir.join(name);
    let fail = |source| LabError::Io { path: path.clone(), source };
    // The listener holds a lock, so an earlier one has ended.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(fail)?;
    let shared = shared.clone();
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let shared = shared.clone();
            let answer = move || {
                // The client may have disconnected by now.
                let _ = converse(&shared, stream);
            };
            let _ = std::thread::Builder::new().stack_size(256 << 10).spawn(answer);
        }
    };
    std::thread::Builder::new().name("lab-control".to_owned()).spawn(accept).map_err(fail)?;
    Ok(Listening(path))
}

fn converse(shared: &Shared, stream: UnixStream) -> io::Result<()> {
    let mut line = String::new();
    io::Read::take(BufReader::new(&stream), MAX_LINE).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => shared.answer(request),
        Err(error) => LabReply::Error { message: format!("not a request: {error}") },
    };
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    (&stream).write_all(&line)
}

impl Shared {
    fn answer(&self, request: LabRequest) -> LabReply {
        let result = match request {
            LabRequest::Status => self.status(),
            LabRequest::Volume(request) => self
                .handle
                .ask(VolumeKey::FIRST, request)
                .map(LabReply::Volume)
                .map_err(|error| error.to_string()),
            LabRequest::KillReplica { index } => {
                self.checked(index).and_then(|_| match self.kill_replica(index) {
                    true => Ok(LabReply::Done),
                    false => Err(format!("replica {index} does not run")),
                })
            }
            LabRequest::StartReplica { index } => self.checked(index).and_then(|_| {
                self.reap();
                self.start_or_replace(index).map(|()| LabReply::Done)
            }),
            LabRequest::RebuildReplica { index } => self
                .checked(index)
                .and_then(|old| self.replace(index, old).map(|()| LabReply::Done)),
        };
        result.unwrap_or_else(|message| LabReply::Error { message })
    }

    fn status(&self) -> Result<LabReply, String> {
        let reply = self
            .handle
            .ask(VolumeKey::FIRST, AdminRequest::Status)
            .map_err(|error| error.to_string())?;
        let AdminReply::Status(volume) = reply else { return Err("no status".to_owned()) };
        self.reap();
        let unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        let replicas = description.replicas.iter().enumerate().map(|(index, id)| ReplicaStatus {
            index,
            id: *id,
            error: unusable.get(&index).cloned(),
            dir: self.replica_dir(index),
            pid: match self.in_process {
                true => Some(std::process::id()),
                false => {
                    self.replica_pid(index).map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
                }
            },
        });
        Ok(LabReply::Status { replicas: replicas.collect(), volume })
    }

    /// The replica at a place, if it is one that can be killed and started.
    fn checked(&self, index: usize) -> Result<ReplicaId, String> {
        if self.in_process {
            return Err("the replicas are in the process of the engine".to_owned());
        }
        let description = self.description.lock().unwrap_or_else(PoisonError::into_inner);
        let count = description.replicas.len();
        let found = description.replicas.get(index).copied();
        found.ok_or_else(|| format!("there is no replica {index}; they are 0 to {}", count - 1))
    }
}
