//! Client of the QEMU guest agent.
//!
//! The channel has no notion of a connection: the agent may be absent, may answer a command that
//! was sent minutes ago, or may end in the middle of an answer. So each exchange begins with a
//! number that must be returned (`guest-sync-delimited`), and everything before it is discarded. One
//! task owns the channel and sends one command at a time; callers wait only for the time limit that
//! they gave. The channel stays open between commands, because agents poll a closed one.

mod commands;
mod types;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use base::{Stop, Tasks};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use crate::run_dir::{AGENT, RunDir};
pub use commands::{Replace, Shutdown};
pub use types::{
    Address, CommandResult, FileSystem, GuestDisk, Info, Interface, OsInfo, Timezone, TrimmedPath,
    User,
};
use wire::Channel;

/// Commands that may wait in the queue.
const QUEUE: usize = 32;

/// Why a command of the guest agent failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AgentError {
    #[error("the guest agent did not answer to {command} within {} s", limit.as_secs_f32())]
    NoAnswer { command: String, limit: Duration },
    #[error("the guest agent refused {command}: {description}")]
    Refused { command: String, class: String, description: String },
    #[error("cannot understand the guest agent's answer to {command}")]
    Unexpected { command: String, source: Arc<serde_json::Error> },
    #[error("cannot reach the guest agent's channel")]
    Channel(#[source] Arc<std::io::Error>),
    #[error("the guest agent's channel is closed")]
    Closed,
}

impl AgentError {
    /// Whether the agent answered that it does not know or does not allow the command.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Refused { class, .. } if class == "CommandNotFound")
    }

    /// Whether the other side closed the open channel instead of answering.
    fn is_disconnect(&self) -> bool {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let kind = match self {
            Self::Channel(error) => Some(error.kind()),
            _ => None,
        };
        matches!(kind, Some(BrokenPipe | ConnectionReset | UnexpectedEof))
    }
}

struct AgentCall {
    command: Command,
    reply: oneshot::Sender<Result<Value, AgentError>>,
}

struct Command {
    name: String,
    arguments: Value,
}

/// The agent of one guest; clones share the channel.
#[derive(Debug, Clone)]
pub struct GuestAgent {
    questions: mpsc::Sender<AgentCall>,
}

impl GuestAgent {
    /// Opens the channel of the machine in `dir`, now and again after it was lost. Ends when
    /// every handle is gone.
    pub fn open(dir: RunDir, tasks: &Tasks) -> Self {
        let (questions, queue) = mpsc::channel(QUEUE);
        tasks.spawn("guest agent", serve(dir, queue, tasks.stop_signal()));
        Self { questions }
    }

    /// Executes one command. `limit` includes the time in the queue.
    pub async fn execute<T: DeserializeOwned>(
        &self,
        command: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<T, AgentError> {
        let ask = async {
            let (reply, answer) = oneshot::channel();
            let command = Command { name: command.to_owned(), arguments };
            let question = AgentCall { command, reply };
            self.questions.send(question).await.map_err(|_| AgentError::Closed)?;
            answer.await.map_err(|_| AgentError::Closed)?
        };
        let value = tokio::time::timeout(limit, ask)
            .await
            .map_err(|_| AgentError::NoAnswer { command: command.to_owned(), limit })??;
        serde_json::from_value(value).map_err(|source| AgentError::Unexpected {
            command: command.to_owned(),
            source: Arc::new(source),
        })
    }
}

async fn serve(dir: RunDir, mut queue: mpsc::Receiver<AgentCall>, mut stop: Stop) {
    let mut channel = connect(&dir).await.ok();
    loop {
        let question = tokio::select! {
            question = queue.recv() => question,
            () = stop.requested() => return,
        };
        let Some(mut question) = question else { return };
        if question.reply.is_closed() {
            continue;
        }
        let answer = tokio::select! {
            answer = answer(&dir, &mut channel, &question.command) => answer,
            // The caller has given up: the exchange is cancelled.
            () = question.reply.closed() => {
                channel = None;
                continue;
            }
            () = stop.requested() => return,
        };
        let _ = question.reply.send(answer);
    }
}

async fn connect(dir: &RunDir) -> std::io::Result<Channel<UnixStream>> {
    Ok(Channel::new(dir.connect(AGENT).await?))
}

/// Sends one command; closes the channel if its state is unknown afterwards.
async fn answer(
    dir: &RunDir,
    channel: &mut Option<Channel<UnixStream>>,
    command: &Command,
) -> Result<Value, AgentError> {
    let lost = |error| AgentError::Channel(Arc::new(error));
    let mut open = match channel.take() {
        Some(open) => open,
        None => connect(dir).await.map_err(lost)?,
    };
    let exchanged = open.exchange(&command.name, &command.arguments).await;
    let reply = exchanged.map_err(|error| {
        debug!(%error, "guest agent's channel lost");
        lost(error)
    })?;
    *channel = Some(open);
    if let Some(error) = reply.get("error") {
        let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        return Err(AgentError::Refused {
            command: command.name.clone(),
            class: text("class"),
            description: text("desc"),
        });
    }
    Ok(reply.get("return").cloned().unwrap_or_else(|| json!({})))
}

#[cfg(test)]
mod tests;
