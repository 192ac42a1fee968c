//! A client for QEMU's monitor protocol.
//!
//! One task reads, one writes, and callers share a cloneable [`Qmp`]. Replies find their caller by
//! id; events are sent to a broadcast channel unchanged, known to us or not. A line that is not
//! JSON, is longer than [`codec::LONGEST_LINE`], or answers no open request ends the connection
//! with an error for all waiting callers; it never panics. QEMU may be stopped or stuck: every
//! command ends after the client's time limit.

pub mod codec;
mod commands;
mod disk_export;
mod hotplug;
mod layout;
mod memory_dump;
mod migration;
mod mirror;
mod outgoing;
mod state;
mod types;
mod visibility;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{Stop, Tasks};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};
use tracing::debug;

use crate::isolation::{GuestRoot, VisitError};
use codec::{Band, Lines, OUT_OF_BAND, QmpMessage, WireError};
pub use hotplug::UnplugError;
pub use memory_dump::MemoryDumpError;
pub use migration::{MigrationLimits, MigrationProgress, MigrationStatus};
pub use mirror::{MirrorError, MirrorJob, MirrorObservation, MirrorOptions, MirrorScope};
use outgoing::OutgoingQueue;
pub use state::StateError;
pub use types::{BlockStats, CpuSlot, Event, RunState, ShutdownReason, Vcpu};

/// Commands that wait for the writer; more than that means that QEMU has stopped reading.
const QUEUE: usize = 64;
/// Events that a slow listener may be behind before it misses some.
const EVENTS: usize = 256;

/// Why a command did not do what it should.
#[derive(Debug, Clone, thiserror::Error)]
pub enum QmpError {
    #[error("cannot {command}: QEMU did not answer within {} s", limit.as_secs_f32())]
    TimedOut { command: String, limit: Duration },
    #[error("cannot {command}: {description}")]
    Refused { command: String, class: String, description: String },
    #[error("cannot {command}: the monitor connection is closed")]
    Closed { command: String, source: Option<WireError> },
    #[error("cannot understand QEMU's answer to {command}")]
    Unexpected { command: String, source: Arc<serde_json::Error> },
    #[error(transparent)]
    Hidden(#[from] VisitError),
    #[error("QMP monitor sent no greeting")]
    NoGreeting,
}

impl QmpError {
    /// QEMU says that the thing named in the command does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Refused { class, description, .. } => {
                class == "DeviceNotFound"
                    || description.contains("not found")
                    || description.contains("Failed to find")
            }
            _ => false,
        }
    }
}

type QmpReply = Result<Value, (String, String)>;
type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<QmpReply>>>>;

/// A connection to one monitor; clones share it.
#[derive(Debug, Clone)]
pub struct Qmp {
    commands: mpsc::Sender<OutgoingQueue>,
    waiting: Waiting,
    events: broadcast::Sender<Event>,
    closed: watch::Receiver<Option<WireError>>,
    next: Arc<AtomicU64>,
    disconnect: Arc<Notify>,
    limit: Duration,
    /// The band of commands that cannot wait.
    urgent: Band,
    /// The root of this QEMU, where files are shown to it.
    root: Option<GuestRoot>,
}

/// How a connection's reader and its callers are notified of one another's end.
struct ReaderEnd {
    lines: Lines<OwnedReadHalf>,
    waiting: Waiting,
    events: broadcast::Sender<Event>,
    closed: watch::Sender<Option<WireError>>,
    disconnect: Arc<Notify>,
}

impl Qmp {
    /// Greets the monitor at the other end. Every command will be given `limit` to be answered.
    pub async fn connect(
        stream: UnixStream,
        tasks: &Tasks,
        limit: Duration,
    ) -> Result<Self, QmpError> {
        Self::connect_with(stream, tasks, limit, broadcast::channel(EVENTS).0).await
    }

    /// As [`Self::connect`], with a channel of events that outlives this connection.
    pub async fn connect_with(
        stream: UnixStream,
        tasks: &Tasks,
        limit: Duration,
        events: broadcast::Sender<Event>,
    ) -> Result<Self, QmpError> {
        let (read, write) = stream.into_split();
        let mut lines = Lines::new(read);
        let greeting = async {
            match lines.next().await {
                Ok(QmpMessage::Greeting { out_of_band }) => Ok(out_of_band),
                Ok(_) => Err(QmpError::NoGreeting),
                Err(source) => {
                    Err(QmpError::Closed { command: "connect".to_owned(), source: Some(source) })
                }
            }
        };
        let timed_out = |_| QmpError::TimedOut { command: "connect".to_owned(), limit };
        let out_of_band = tokio::time::timeout(limit, greeting).await.map_err(timed_out)??;
        let (commands, queue) = mpsc::channel(QUEUE);
        let (closed, is_closed) = watch::channel(None);
        let waiting = Waiting::default();
        let disconnect = Arc::new(Notify::new());
        let reader = ReaderEnd {
            lines,
            waiting: Arc::clone(&waiting),
            events: events.clone(),
            closed,
            disconnect: Arc::clone(&disconnect),
        };
        tasks.spawn("qmp reader", reader.run(tasks.stop_signal()));
        tasks.spawn("qmp writer", write_all(queue, write, is_closed.clone()));
        let qmp = Self {
            commands,
            waiting,
            events,
            closed: is_closed,
            next: Arc::new(AtomicU64::new(1)),
            disconnect,
            limit,
            urgent: if out_of_band { Band::Out } else { Band::Normal },
            root: None,
        };
        let capabilities = if out_of_band { json!({"enable": [OUT_OF_BAND]}) } else { json!({}) };
        qmp.execute::<Value>("qmp_capabilities", capabilities).await?;
        Ok(qmp)
    }

    /// The same connection with another limit for each command.
    #[must_use]
    pub fn with_limit(&self, limit: Duration) -> Self {
        Self { limit, ..self.clone() }
    }

    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Resolves when the connection has ended. Cancel-safe.
    pub async fn closed(&self) {
        let mut closed = self.closed.clone();
        // An error means that the reader is gone, which is the same.
        let _ = closed.wait_for(Option::is_some).await;
    }

    /// Ends the connection, for everyone who shares it.
    pub fn disconnect(&self) {
        self.disconnect.notify_waiters();
    }

    /// Runs one command and decodes what it returns.
    ///
    /// Cancel-safe in that the connection stays usable; the command may have taken effect.
    pub async fn execute<T: DeserializeOwned>(
        &self,
        command: &str,
        arguments: Value,
    ) -> Result<T, QmpError> {
        let value = tokio::time::timeout(
            self.limit,
            self.ask(command, arguments, Vec::new(), Band::Normal),
        )
        .await
        .map_err(|_| QmpError::TimedOut { command: command.to_owned(), limit: self.limit })??;
        serde_json::from_value(value).map_err(|source| QmpError::Unexpected {
            command: command.to_owned(),
            source: Arc::new(source),
        })
    }

    /// As [`Self::execute`] for commands that return nothing of interest.
    pub async fn run(&self, command: &str, arguments: Value) -> Result<(), QmpError> {
        self.execute::<Value>(command, arguments).await.map(|_| ())
    }

    /// As [`Self::run`], with descriptors that travel along.
    pub async fn run_with_fds(
        &self,
        command: &str,
        arguments: Value,
        fds: Vec<OwnedFd>,
    ) -> Result<(), QmpError> {
        tokio::time::timeout(self.limit, self.ask(command, arguments, fds, Band::Normal))
            .await
            .map_err(|_| QmpError::TimedOut { command: command.to_owned(), limit: self.limit })?
            .map(|_| ())
    }

    /// As [`Self::run`], for the few commands that QEMU takes while its main loop is blocked.
    async fn run_urgently(&self, command: &str, arguments: Value) -> Result<(), QmpError> {
        tokio::time::timeout(self.limit, self.ask(command, arguments, Vec::new(), self.urgent))
            .await
            .map_err(|_| QmpError::TimedOut { command: command.to_owned(), limit: self.limit })?
            .map(|_| ())
    }

    async fn ask(
        &self,
        command: &str,
        arguments: Value,
        fds: Vec<OwnedFd>,
        band: Band,
    ) -> Result<Value, QmpError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        lock(&self.waiting).insert(id, reply);
        let _forget = ForgetOnDrop { waiting: &self.waiting, id };
        let mut line = codec::command(command, arguments, id, band);
        line.push(b'\n');
        let line = OutgoingQueue { line, fds };
        let closed = || QmpError::Closed {
            command: command.to_owned(),
            source: self.closed.borrow().clone(),
        };
        // The reader empties the table when it ends; a caller that comes later must not wait.
        if self.closed.borrow().is_some() || self.commands.send(line).await.is_err() {
            return Err(closed());
        }
        match answer.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err((class, description))) => {
                Err(QmpError::Refused { command: command.to_owned(), class, description })
            }
            Err(_) => Err(closed()),
        }
    }
}

fn lock(waiting: &Waiting) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<QmpReply>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets a question whose caller has stopped waiting.
struct ForgetOnDrop<'a> {
    waiting: &'a Waiting,
    id: u64,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        lock(self.waiting).remove(&self.id);
    }
}

impl ReaderEnd {
    async fn run(mut self, mut stop: Stop) {
        let disconnect = Arc::clone(&self.disconnect);
        let disconnected = disconnect.notified();
        tokio::pin!(disconnected);
        let end = loop {
            let next = tokio::select! {
                next = self.lines.next() => next,
                () = &mut disconnected => Err(WireError::End),
                () = stop.requested() => Err(WireError::End),
                // Every handle is gone, so no caller will ask or listen again.
                () = self.closed.closed() => Err(WireError::End),
            };
            match next {
                Ok(message) => self.apply(message),
                Err(end) => break end,
            }
        };
        debug!(error = %end, "monitor connection ended");
        let _ = self.closed.send(Some(end));
        // Dropping the senders wakes everyone who waits for an answer.
        lock(&self.waiting).clear();
    }

    fn apply(&mut self, message: QmpMessage) {
        match message {
            QmpMessage::Event(event) => {
                // An event without a receiver is dropped.
                let _ = self.events.send(event);
            }
            QmpMessage::Reply { id: Some(id), reply } => {
                // A caller that gave up has removed itself.
                if let Some(caller) = lock(&self.waiting).remove(&id) {
                    let _ = caller.send(reply);
                }
            }
            QmpMessage::Reply { id: None, reply } => {
                debug!(?reply, "reply without an id");
            }
            QmpMessage::Greeting { .. } => debug!("second greeting"),
        }
    }
}

async fn write_all(
    mut queue: mpsc::Receiver<OutgoingQueue>,
    socket: OwnedWriteHalf,
    mut closed: watch::Receiver<Option<WireError>>,
) {
    loop {
        let line = tokio::select! {
            line = queue.recv() => line,
            _ = closed.wait_for(Option::is_some) => return,
        };
        // A write can hang for as long as QEMU is stopped; the end of the reader ends it.
        let Some(line) = line else { return };
        tokio::select! {
            written = line.send(&socket) => if written.is_err() { return },
            _ = closed.wait_for(Option::is_some) => return,
        }
    }
}

#[cfg(test)]
mod tests;
