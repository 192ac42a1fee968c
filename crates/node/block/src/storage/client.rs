//! Client of the control socket of a storage process.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::protocol::{
    Answered, Attachment, MAX_ANSWER, NewReplica, Question, RecordAnswer, Reply, Request,
    StorageStatus,
};
use crate::grant::ReplicaGrant;
use crate::ids::{ReplicaId, VolumeId};
use crate::run::{AdminReply, AdminRequest};

/// Why nothing came of a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no storage process is running in {dir}")]
    NotRunning { dir: PathBuf, source: io::Error },
    #[error("cannot speak to the storage process")]
    Io { source: io::Error },
    #[error("the storage process ended before it answered")]
    Ended,
    #[error("the answer of the storage process cannot be understood")]
    Answer { source: serde_json::Error },
    #[error("{message}")]
    Refused { message: String },
}

/// A connection to the storage process of a directory. Calls block until they are answered; a
/// caller that must not block makes them from a thread of its own.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    pub fn connect(dir: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(dir.join("control.sock"))
            .map_err(|source| ClientError::NotRunning { dir: dir.to_owned(), source })?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Gives up on an answer after so long; none: waits as long as it takes.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), ClientError> {
        let result = self.reader.get_ref().set_read_timeout(timeout);
        result.map_err(|source| ClientError::Io { source })
    }

    pub fn ask(&mut self, request: &Request) -> Result<Reply, ClientError> {
        self.send(request)?;
        match self.receive()? {
            Reply::Error { message } => Err(ClientError::Refused { message }),
            reply => Ok(reply),
        }
    }

    pub fn status(&mut self) -> Result<StorageStatus, ClientError> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    pub fn create_replica(&mut self, replica: NewReplica) -> Result<(), ClientError> {
        self.ask(&Request::CreateReplica(replica)).map(drop)
    }

    pub fn remove_replica(&mut self, replica: ReplicaId) -> Result<(), ClientError> {
        self.ask(&Request::RemoveReplica { replica }).map(drop)
    }

    pub fn create(&mut self, volume: VolumeId, size: u64) -> Result<(), ClientError> {
        self.ask(&Request::Create { volume, size }).map(drop)
    }

    pub fn delete(&mut self, volume: VolumeId) -> Result<(), ClientError> {
        self.ask(&Request::Delete { volume }).map(drop)
    }

    pub fn attach(&mut self, attachment: Attachment) -> Result<(), ClientError> {
        self.ask(&Request::Attach(attachment)).map(drop)
    }

    pub fn detach(&mut self, volume: VolumeId) -> Result<(), ClientError> {
        self.ask(&Request::Detach { volume }).map(drop)
    }

    /// Snapshots, sizes and the like of a volume that is attached.
    pub fn volume(
        &mut self,
        volume: VolumeId,
        request: AdminRequest,
    ) -> Result<AdminReply, ClientError> {
        match self.ask(&Request::Volume { volume, request })? {
            Reply::Volume { reply } => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }

    /// Says who else may connect to a volume's socket.
    pub fn grant(
        &mut self,
        volume: VolumeId,
        user: Option<u32>,
        group: Option<u32>,
    ) -> Result<(), ClientError> {
        self.ask(&Request::Grant { volume, user, group }).map(drop)
    }

    /// Says which nodes may open replicas.
    pub fn grant_replicas(
        &mut self,
        grants: BTreeMap<ReplicaId, ReplicaGrant>,
    ) -> Result<(), ClientError> {
        self.ask(&Request::GrantReplicas { grants }).map(drop)
    }

    /// Gives engines of other nodes further addresses; others than these are closed.
    pub fn listen_also(&mut self, addresses: Vec<SocketAddr>) -> Result<(), ClientError> {
        self.ask(&Request::ListenAlso { addresses }).map(drop)
    }

    /// The status now and after each change; `false` ends it.
    pub fn watch(
        mut self,
        mut on_status: impl FnMut(&StorageStatus) -> bool,
    ) -> Result<(), ClientError> {
        self.send(&Request::Watch)?;
        loop {
            match self.receive() {
                Ok(Reply::Status(status)) if on_status(&status) => {}
                Ok(Reply::Status(_)) | Err(ClientError::Ended) => return Ok(()),
                Ok(other) => return Err(unexpected(&other)),
                Err(error) => return Err(error),
            }
        }
    }

    pub fn stop(&mut self) -> Result<(), ClientError> {
        self.ask(&Request::Stop).map(drop)
    }

    /// Answers questions about records until the storage process ends.
    pub fn serve_records(
        mut self,
        mut answer: impl FnMut(&Question) -> RecordAnswer,
    ) -> Result<(), ClientError> {
        self.ask(&Request::Records { grants: false })?;
        loop {
            let question: Question = match self.receive() {
                Err(ClientError::Ended) => return Ok(()),
                other => other?,
            };
            let answer = answer(&question);
            self.send(&Answered { ask: question.ask, answer })?;
        }
    }

    fn send(&mut self, value: &impl serde::Serialize) -> Result<(), ClientError> {
        let mut line =
            serde_json::to_vec(value).map_err(|source| ClientError::Answer { source })?;
        line.push(b'\n');
        let mut stream = self.reader.get_ref();
        stream.write_all(&line).map_err(|source| ClientError::Io { source })
    }

    fn receive<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, ClientError> {
        let mut line = String::new();
        let count = (&mut self.reader).take(MAX_ANSWER).read_line(&mut line);
        match count.map_err(|source| ClientError::Io { source })? {
            0 => Err(ClientError::Ended),
            _ => serde_json::from_str(&line).map_err(|source| ClientError::Answer { source }),
        }
    }
}

fn unexpected(reply: &Reply) -> ClientError {
    let text = format!("an answer to something else: {reply:?}");
    ClientError::Answer { source: serde::de::Error::custom(text) }
}
