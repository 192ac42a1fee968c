//! The thread that writes.
//!
//! It takes everything that waits in its queue, commits it as one transaction with
//! one sync, shows the result to the mirror and only then answers. Each failure has
//! one answer:
//!
//! ```text
//!   ready ── batch ──► committed ── publish, answer ──► ready
//!              ├─────► full disk ── refuse, drop history ──► ready
//!              └─────► I/O error ──► lost ── reopen, read back ──► ready
//!                                     ▲             │
//!                                     └── failed ───┘   (writes are refused meanwhile)
//! ```
//!
//! When the commit itself failed, the file alone knows the outcome. The writer then
//! opens it anew, forces what it finds to disk, and reads the revision: either the
//! batch is there, and is published like any other, or it is not.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{Chain, Stop};
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::Health;
use super::batch::{Batch, CommitFailure, Compaction, commit};
use super::compact::Compactor;
use super::database::{Database, revision};
use crate::config::SqliteConfig;
use crate::mirror::Mirror;
use crate::revision::Revision;
use crate::seal::Sealing;
use crate::shape::{Event, Shape};
use crate::store::Unhealthy;
use crate::write::{Cause, Write, WriteChange, WriteError, Written};

/// A batch is full at this many writes or bytes; the others wait for the next.
const BATCH: usize = 512;
const BATCH_BYTES: usize = 8 << 20;
/// Rows of history dropped at once while no request waits.
const IDLE_ROWS: usize = 500;

pub(super) enum WriterRequest<S: Shape> {
    Write(Write, WriterReply<S>),
    /// Time has passed.
    Tick,
    Stop,
}

type WriterReply<S> = oneshot::Sender<Result<Written<S>, WriteError>>;

/// Sends the writer ticks and the stop request, as long as there is a store.
pub(super) async fn pace<S: Shape>(
    writer: mpsc::WeakSender<WriterRequest<S>>,
    mut stop: Stop,
    every: Duration,
) {
    loop {
        let request = tokio::select! {
            () = stop.requested() => WriterRequest::Stop,
            () = tokio::time::sleep(every) => WriterRequest::Tick,
        };
        let stopping = matches!(request, WriterRequest::Stop);
        let Some(writer) = writer.upgrade() else { return };
        if writer.send(request).await.is_err() || stopping {
            return;
        }
    }
}

pub(super) struct SqliteWriter<S: Shape> {
    config: SqliteConfig,
    sealing: Arc<Sealing>,
    /// Absent while lost.
    database: Option<Database>,
    /// The batch whose outcome is to be read back, if the last commit failed.
    in_doubt: Option<Batch>,
    mirror: Arc<Mirror<S>>,
    queue: mpsc::Receiver<WriterRequest<S>>,
    /// Taken from the queue while a batch was gathered, and not part of it.
    next: Option<WriterRequest<S>>,
    health: Arc<Health>,
    compactor: Compactor,
}

impl<S: Shape> SqliteWriter<S> {
    pub(super) fn new(
        config: SqliteConfig,
        database: Database,
        mirror: Arc<Mirror<S>>,
        queue: mpsc::Receiver<WriterRequest<S>>,
        health: Arc<Health>,
        compactor: Compactor,
    ) -> Self {
        let sealing = Arc::clone(database.sealing());
        let database = Some(database);
        Self {
            config,
            sealing,
            database,
            in_doubt: None,
            mirror,
            queue,
            next: None,
            health,
            compactor,
        }
    }

    /// Works until the store is stopped or no longer referenced, then closes the
    /// file before it releases the lock.
    pub(super) fn run(mut self, lock: File) {
        while let Some(request) = self.wait() {
            match request {
                WriterRequest::Write(write, reply) => self.serve(write, reply),
                WriterRequest::Tick => self.tick(),
                WriterRequest::Stop => break,
            }
        }
        self.queue.close();
        while let Ok(request) = self.queue.try_recv() {
            if let WriterRequest::Write(_, reply) = request {
                let _ = reply.send(Err(WriteError::Closed));
            }
        }
        drop(self.database.take());
        drop(lock);
    }

    /// The next request; compacts while there is none.
    fn wait(&mut self) -> Option<WriterRequest<S>> {
        if let Some(request) = self.next.take() {
            return Some(request);
        }
        while let Some(compaction) = self.compaction(IDLE_ROWS) {
            match self.queue.try_recv() {
                Ok(request) => return Some(request),
                Err(TryRecvError::Disconnected) => return None,
                // After a failure the next tick tries again.
                Err(TryRecvError::Empty) => {
                    if self.commit(Vec::new(), Some(compaction)).is_err() {
                        break;
                    }
                }
            }
        }
        self.queue.blocking_recv()
    }

    /// Commits a write together with those that wait behind it.
    fn serve(&mut self, write: Write, reply: WriterReply<S>) {
        let (writes, replies) = self.gather(write, reply);
        // More rows than the batch adds, so that compaction gains on any load.
        let compaction = self.compaction(2 * writes.len() + 64);
        match self.commit(writes, compaction) {
            Ok(outcomes) => {
                for (outcome, reply) in outcomes.into_iter().zip(replies) {
                    let _ = reply.send(outcome.map(|event| written(&event)));
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }

    fn gather(&mut self, write: Write, reply: WriterReply<S>) -> (Vec<Write>, Vec<WriterReply<S>>) {
        let mut bytes = size(&write);
        let (mut writes, mut replies) = (vec![write], vec![reply]);
        while writes.len() < BATCH && bytes < BATCH_BYTES {
            match self.queue.try_recv() {
                Ok(WriterRequest::Write(write, reply)) => {
                    bytes += size(&write);
                    writes.push(write);
                    replies.push(reply);
                }
                Ok(other) => {
                    self.next = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        (writes, replies)
    }

    fn compaction(&self, rows: usize) -> Option<Compaction> {
        self.compactor.due().map(|to| Compaction { to, rows })
    }

    /// Makes the writes durable and visible, or says why none of them is.
    fn commit(
        &mut self,
        writes: Vec<Write>,
        compaction: Option<Compaction>,
    ) -> Result<Outcomes<S>, WriteError> {
        if self.database.is_none() {
            // A batch found to be committed after all was answered long ago.
            self.reopen().map_err(|source| WriteError::Unavailable { source })?;
        }
        let database = self.database.as_mut().expect("it was reopened if it was lost");
        match commit(database, writes, self.mirror.revision(), compaction) {
            Ok(batch) => {
                if let Some(Compaction { to, .. }) = compaction
                    && batch.compacted
                {
                    self.compactor.finished(to);
                }
                // Dropping history proves nothing about room for more.
                if !batch.changes.is_empty() {
                    self.recovered();
                }
                Ok(self.publish(batch))
            }
            Err(CommitFailure::NoSpace) => {
                let earlier = self.health.lock().replace(Unhealthy::NoSpace);
                if earlier.is_none() {
                    warn!(path = %self.config.path.display(), "no space is left, refusing writes");
                }
                self.compactor.starve();
                Err(WriteError::NoSpace)
            }
            Err(CommitFailure::Aborted(source)) => {
                let source = self.lose(source);
                Err(WriteError::Unavailable { source })
            }
            Err(CommitFailure::InDoubt(batch, source)) => {
                let source = self.lose(source);
                self.in_doubt = Some(*batch);
                match self.reopen() {
                    Ok(Some(outcomes)) => Ok(outcomes),
                    Ok(None) => Err(WriteError::Unavailable { source }),
                    Err(_) => Err(WriteError::Unknown { source }),
                }
            }
        }
    }

    /// Shows a committed batch to the readers.
    fn publish(&mut self, batch: Batch) -> Outcomes<S> {
        let Batch { verdicts, changes, displaced, .. } = batch;
        let mut events = self.mirror.publish(changes).into_iter();
        if displaced > 0 {
            self.compactor.note(self.mirror.revision(), displaced, Instant::now());
        }
        let mut event = || events.next().flatten().expect("a committed change has its event");
        verdicts.into_iter().map(|verdict| verdict.map(|()| event())).collect()
    }

    /// Closes a connection that failed.
    fn lose(&mut self, source: rusqlite::Error) -> Cause {
        error!(path = %self.config.path.display(), error = %Chain(&source), "cannot write");
        let source: Cause = Arc::new(source);
        self.database = None;
        *self.health.lock() = Some(Unhealthy::Unavailable { source: Arc::clone(&source) });
        source
    }

    /// Opens the file anew, and returns what became of a batch in doubt if it was
    /// committed.
    fn reopen(&mut self) -> Result<Option<Outcomes<S>>, Cause> {
        let (database, found) = self.reread()?;
        self.database = Some(database);
        let before = self.mirror.revision();
        let outcomes = match self.in_doubt.take() {
            Some(batch) if found == batch.last(before) => Some(self.publish(batch)),
            _ => None,
        };
        assert_eq!(found, self.mirror.revision(), "the file lost or gained revisions");
        self.recovered();
        Ok(outcomes)
    }

    fn reread(&self) -> Result<(Database, Revision), Cause> {
        let database = Database::open(&self.config, &self.sealing)
            .map_err(|error| -> Cause { Arc::new(error) })?;
        let found = settled_revision(&database).map_err(|error| -> Cause { Arc::new(error) })?;
        Ok((database, found))
    }

    fn recovered(&self) {
        if self.health.lock().take().is_some() {
            info!(path = %self.config.path.display(), "writes are possible again");
        }
    }

    fn tick(&mut self) {
        self.compactor.tick(Instant::now());
        self.mirror.trim();
        if self.health.lock().is_some() {
            // There may be no writes, so this probes whether it works again. A
            // failure has been reported already.
            let _ = self.probe();
        }
    }

    /// Tries a commit that changes nothing but has to be written and synced.
    fn probe(&mut self) -> Result<(), Cause> {
        let Some(database) = &self.database else { return self.reopen().map(drop) };
        // The log itself may be what fills the disk; emptying it is worth a try.
        let _ = settled_revision(database);
        let probed = database.set_revision(self.mirror.revision());
        probed.map_err(|error| -> Cause { Arc::new(error) })?;
        self.recovered();
        Ok(())
    }
}

impl<S: Shape> Drop for SqliteWriter<S> {
    /// Nothing will change any more, even if the writer did not end in order.
    fn drop(&mut self) {
        self.mirror.close();
    }
}

/// For each write the event it made, or why it was refused.
type Outcomes<S> = Vec<Result<Arc<Event<S>>, WriteError>>;

/// The revision of the file after everything in it has been forced to disk: a log
/// whose sync failed may be readable and still not be there after a power cut.
fn settled_revision(database: &Database) -> rusqlite::Result<Revision> {
    let busy: i64 =
        database.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy != 0 {
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            None,
        ));
    }
    revision(&database.connection, "revision")
}

fn written<S: Shape>(event: &Event<S>) -> Written<S> {
    let entry = event.new.as_ref().or(event.old.as_ref());
    let entry = Arc::clone(entry.expect("an event has an old or a new version"));
    Written { revision: event.revision, entry }
}

fn size(write: &Write) -> usize {
    match &write.change {
        WriteChange::Put(value) => value.len(),
        WriteChange::Delete => 0,
    }
}
