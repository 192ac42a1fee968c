//! Requests to the storage process, none of which blocks another.
//!
//! Each request has a connection of its own, so that a slow one (the detach of a volume whose last
//! writes are in progress) does not delay the others.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::ids::VolumeId;
use block::run::{AdminReply, AdminRequest};
use block::storage::{Answered, MAX_ANSWER, Question, Reply, Request, StorageStatus};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Questions at a time; the storage process takes more than that.
const MAX_REQUESTS: usize = 16;
/// A storage process that does not answer for so long is asked again later.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Why nothing came of a question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("the storage process cannot be reached")]
    Connect(#[source] io::Error),
    #[error("cannot speak to the storage process")]
    Io(#[source] io::Error),
    #[error("the storage process ended before it answered")]
    Ended,
    #[error("the storage process takes longer than {} s to answer", REQUEST_TIMEOUT.as_secs())]
    Slow,
    #[error("the storage process cannot be understood")]
    Answer(#[source] serde_json::Error),
    #[error("{message}")]
    Refused { message: String },
}

/// The way to the storage process of a directory, whether or not it runs.
#[derive(Debug, Clone)]
pub(crate) struct StorageLink {
    socket: Arc<Path>,
    turns: Arc<Semaphore>,
}

impl StorageLink {
    pub(super) fn new(dir: &Path) -> Self {
        let socket = dir.join("control.sock").into();
        Self { socket, turns: Arc::new(Semaphore::new(MAX_REQUESTS)) }
    }

    pub(super) async fn connect(&self) -> Result<Connection, LinkError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(LinkError::Connect)?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    pub(super) async fn ask(&self, request: &Request) -> Result<Reply, LinkError> {
        let _turn = self.turns.acquire().await;
        let asked = async {
            let mut conversation = self.connect().await?;
            conversation.say(request).await?;
            conversation.reply().await
        };
        timeout(REQUEST_TIMEOUT, asked).await.map_err(|_| LinkError::Slow)?
    }

    pub(super) async fn status(&self) -> Result<StorageStatus, LinkError> {
        match self.ask(&Request::Status).await? {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Snapshots, sizes and the like of a volume that is attached.
    pub(super) async fn ask_volume(
        &self,
        volume: VolumeId,
        request: AdminRequest,
    ) -> Result<AdminReply, LinkError> {
        match self.ask(&Request::Volume { volume, request }).await? {
            Reply::Volume { reply } => Ok(reply),
            other => Err(unexpected(&other)),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    async fn say(&mut self, value: &(impl serde::Serialize + Sync)) -> Result<(), LinkError> {
        let mut line = serde_json::to_vec(value).map_err(LinkError::Answer)?;
        line.push(b'\n');
        self.stream.write_all(&line).await.map_err(LinkError::Io)
    }

    /// Not cancel-safe: half a line would be lost.
    async fn receive<T: serde::de::DeserializeOwned>(&mut self) -> Result<T, LinkError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.stream).take(MAX_ANSWER);
        match bounded.read_until(b'\n', &mut line).await.map_err(LinkError::Io)? {
            0 => Err(LinkError::Ended),
            _ => serde_json::from_slice(&line).map_err(LinkError::Answer),
        }
    }

    async fn reply(&mut self) -> Result<Reply, LinkError> {
        match self.receive().await? {
            Reply::Error { message } => Err(LinkError::Refused { message }),
            reply => Ok(reply),
        }
    }

    /// Subscribes to every change.
    pub(super) async fn watch(&mut self) -> Result<(), LinkError> {
        self.say(&Request::Watch).await
    }

    /// The next status that is reported.
    pub(super) async fn status(&mut self) -> Result<StorageStatus, LinkError> {
        match self.reply().await? {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(&other)),
        }
    }

    /// Offers to answer questions about records.
    pub(super) async fn offer_records(&mut self) -> Result<(), LinkError> {
        self.say(&Request::Records { grants: true }).await?;
        self.reply().await.map(drop)
    }

    /// Takes it apart into questions that come and answers that go.
    pub(super) fn split(self) -> (RequestSender, ReplyReceiver) {
        let (read, write) = self.stream.into_inner().into_split();
        (RequestSender(BufReader::new(read)), ReplyReceiver(write))
    }
}

#[derive(Debug)]
pub(super) struct RequestSender(BufReader<tokio::net::unix::OwnedReadHalf>);

impl RequestSender {
    pub(super) async fn next(&mut self) -> Result<Question, LinkError> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.0).take(MAX_ANSWER);
        match bounded.read_until(b'\n', &mut line).await.map_err(LinkError::Io)? {
            0 => Err(LinkError::Ended),
            _ => serde_json::from_slice(&line).map_err(LinkError::Answer),
        }
    }
}

#[derive(Debug)]
pub(super) struct ReplyReceiver(tokio::net::unix::OwnedWriteHalf);

impl ReplyReceiver {
    pub(super) async fn say(&mut self, answered: &Answered) -> Result<(), LinkError> {
        let mut line = serde_json::to_vec(answered).map_err(LinkError::Answer)?;
        line.push(b'\n');
        self.0.write_all(&line).await.map_err(LinkError::Io)
    }
}

fn unexpected(reply: &Reply) -> LinkError {
    let text = format!("an answer to something else: {reply:?}");
    LinkError::Answer(serde::de::Error::custom(text))
}
