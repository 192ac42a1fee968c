//! The handle the rest of the system holds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;

use crate::config::{Config, Engine};
use crate::etcd::{self, Etcd};
use crate::mirror::{Compacted, Mirror, Page, Range};
use crate::revision::Revision;
use crate::shape::{Shape, StoredVersion};
use crate::sqlite::{self, BackupError, Sqlite};
use crate::watch::Watcher;
use crate::write::{Cause, Write, WriteError, Written};

/// An open store; clones share it.
///
/// It closes when the last clone is dropped or its [`Tasks`] are stopped: writes under
/// way are finished, later ones are refused, and watches end.
pub struct Store<S: Shape> {
    inner: Arc<Inner<S>>,
}

struct Inner<S: Shape> {
    mirror: Arc<Mirror<S>>,
    engine: RunningEngine<S>,
}

enum RunningEngine<S: Shape> {
    Sqlite(Sqlite<S>),
    Etcd(Box<Etcd<S>>),
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    #[error(transparent)]
    Etcd(#[from] etcd::OpenError),
}

/// Why the store cannot serve writes at the moment. It keeps serving reads, and it
/// recovers by itself once the cause is gone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unhealthy {
    #[error("no space is left in the store")]
    NoSpace,
    #[error("the store cannot be reached")]
    Unavailable { source: Cause },
    #[error("the store is closed")]
    Closed,
}

/// Why the present could not be established.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FenceError {
    #[error("the store cannot be reached")]
    Unavailable { source: Cause },
    #[error("the mirror did not reach revision {revision} in time")]
    Behind { revision: Revision },
}

impl<S: Shape> Store<S> {
    /// Opens the store, creating it if it is not there, and loads all of it.
    pub async fn open(config: Config, shape: S, tasks: &Tasks) -> Result<Self, OpenError> {
        let (mirror, engine) = match config.engine {
            Engine::Sqlite(sqlite) => {
                let (mirror, sqlite) =
                    Sqlite::open(sqlite, config.retention, config.sealing, shape, tasks).await?;
                (mirror, RunningEngine::Sqlite(sqlite))
            }
            Engine::Etcd(etcd) => {
                let (mirror, etcd) =
                    Etcd::open(etcd, config.retention, config.sealing, shape, tasks).await?;
                (mirror, RunningEngine::Etcd(Box::new(etcd)))
            }
        };
        Ok(Self { inner: Arc::new(Inner { mirror, engine }) })
    }

    /// Resolves when the change is durable and visible to every later read.
    ///
    /// A caller that stops waiting does not undo it: the write happens or not.
    pub async fn write(&self, write: Write) -> Result<Written<S>, WriteError> {
        write.check()?;
        match &self.inner.engine {
            RunningEngine::Sqlite(sqlite) => sqlite.write(write).await,
            RunningEngine::Etcd(etcd) => etcd.write(write).await,
        }
    }

    pub fn get(&self, table: &str, name: &str) -> Option<Arc<StoredVersion<S::Item>>> {
        self.inner.mirror.entry(table, name)
    }

    pub fn list(&self, table: &str, range: Range<'_>) -> Result<Page<S>, Compacted> {
        self.inner.mirror.list(table, range)
    }

    /// Follows `table` from just after `from`, which may lie in the future.
    pub fn watch(&self, table: &str, from: Revision) -> Result<Watcher<S>, Compacted> {
        self.inner.mirror.watch(table, from)
    }

    /// Waits until reads show every write acknowledged anywhere before the call, and
    /// returns a revision at which they do.
    pub async fn fence(&self) -> Result<Revision, FenceError> {
        match &self.inner.engine {
            // There is no other writer than ours, and it publishes before it answers.
            RunningEngine::Sqlite(_) => Ok(self.revision()),
            RunningEngine::Etcd(etcd) => etcd.fence().await,
        }
    }

    /// Whether reads show everything up to `revision` within `limit`.
    pub async fn reached(&self, revision: Revision, limit: Duration) -> bool {
        self.inner.mirror.reached(revision, limit).await
    }

    /// The revision up to which everything is visible.
    pub fn revision(&self) -> Revision {
        self.inner.mirror.revision()
    }

    /// The first revision from which `table` can be watched or listed.
    pub fn oldest(&self, table: &str) -> Revision {
        self.inner.mirror.oldest(table)
    }

    /// How many entries a table has.
    pub fn count(&self, table: &str) -> usize {
        self.inner.mirror.count(table)
    }

    /// The tables that have entries, in order.
    pub fn tables(&self) -> Vec<Arc<str>> {
        self.inner.mirror.names()
    }

    pub fn health(&self) -> Result<(), Unhealthy> {
        match &self.inner.engine {
            RunningEngine::Sqlite(sqlite) => sqlite.health(),
            RunningEngine::Etcd(etcd) => etcd.health(),
        }
    }

    /// Writes a consistent copy of the store to `path`, which must not exist, while
    /// the store goes on. etcd has its own tool for this.
    pub async fn backup(&self, path: &Path) -> Result<(), BackupError> {
        let path: PathBuf = path.to_owned();
        match &self.inner.engine {
            RunningEngine::Sqlite(sqlite) => sqlite.backup(path).await,
            RunningEngine::Etcd(_) => Err(BackupError::Unsupported),
        }
    }
}

impl<S: Shape> Clone for Store<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S: Shape> fmt::Debug for Store<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Store").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl<S: Shape> Drop for Inner<S> {
    fn drop(&mut self) {
        self.mirror.close();
    }
}
