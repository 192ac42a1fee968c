//! The engine for one node: a SQLite file.
//!
//! One thread owns the connection that writes (see [`writer`]); nothing else uses
//! the file while the store is open, except backups, which only read. Other
//! processes are kept out by a lock on a file beside the database. It is not the
//! database itself, because SQLite's own locks on that would be lost when we close
//! ours.

mod backup;
mod batch;
mod compact;
mod database;
mod export;
mod load;
mod read;
mod writer;

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::Tasks;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::config::{Retention, SqliteConfig};
use crate::mirror::Mirror;
use crate::revision::Revision;
use crate::seal::{SealError, Sealing};
use crate::shape::Shape;
use crate::store::Unhealthy;
use crate::write::{Write, WriteError, Written};

pub(crate) use backup::scrub;
pub use backup::{BackupError, RestoreError, backup, restore};
use database::Database;
pub(crate) use export::{BackupWriter, ExportedRow};
pub(crate) use read::SqliteReader;
use writer::{SqliteWriter, WriterRequest};

/// Requests that may wait for the writer before callers have to wait to ask.
const QUEUE: usize = 1024;

pub(crate) struct Sqlite<S: Shape> {
    path: PathBuf,
    requests: mpsc::Sender<WriterRequest<S>>,
    health: Arc<Health>,
}

/// The last error of the writer; `None` if it is healthy.
pub(crate) type Health = Mutex<Option<Unhealthy>>;

/// Why a store in a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot lock {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("{} is in use by another process", path.display())]
    InUse { path: PathBuf },
    #[error("cannot open database {}", path.display())]
    Open { path: PathBuf, source: rusqlite::Error },
    #[error("database {} is damaged", path.display())]
    Damaged { path: PathBuf, source: rusqlite::Error },
    #[error("{} is not a database of this program", path.display())]
    Foreign { path: PathBuf },
    #[error("database {} has format {found}; this version supports up to {known}", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("database {} contradicts itself at revision {revision}", path.display())]
    Inconsistent { path: PathBuf, revision: Revision },
    #[error("cannot read the contents of {}", path.display())]
    Sealed { path: PathBuf, source: SealError },
    #[error("the store was closed while it was being opened")]
    Closed,
}

impl OpenError {
    fn new(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => Self::Damaged { path, source },
            _ => Self::Open { path, source },
        }
    }
}

impl<S: Shape> Sqlite<S> {
    pub(crate) async fn open(
        config: SqliteConfig,
        retention: Retention,
        sealing: Arc<Sealing>,
        shape: S,
        tasks: &Tasks,
    ) -> Result<(Arc<Mirror<S>>, Self), OpenError> {
        let path = config.path.clone();
        let opening = tokio::task::spawn_blocking(move || {
            let lock = lock(&config.path)?;
            let database = Database::open(&config, &sealing)?;
            let loaded = load::load(&database, &shape, &retention)?;
            Ok::<_, OpenError>((lock, config, database, shape, loaded))
        });
        let (lock, config, database, shape, loaded) =
            opening.await.map_err(|_| OpenError::Closed)??;

        let history = loaded.history;
        let mirror = Arc::new(loaded.into_mirror(shape, retention));
        let health = Arc::new(Health::default());
        let (requests, queue) = mpsc::channel(QUEUE);
        let writer = SqliteWriter::new(
            config,
            database,
            Arc::clone(&mirror),
            queue,
            Arc::clone(&health),
            compact::Compactor::new(&retention, mirror.revision(), history),
        );
        tasks.spawn("sqlite writer", async move {
            // A panic is passed on, so that it is seen under the task's name.
            tokio::task::spawn_blocking(move || writer.run(lock))
                .await
                .expect("the writer stopped over a broken invariant");
        });
        tasks.spawn(
            "sqlite pace",
            writer::pace(requests.downgrade(), tasks.stop_signal(), retention.pace()),
        );
        Ok((mirror, Self { path, requests, health }))
    }

    pub(crate) async fn write(&self, write: Write) -> Result<Written<S>, WriteError> {
        let (reply, answer) = oneshot::channel();
        let request = WriterRequest::Write(write, reply);
        self.requests.send(request).await.map_err(|_| WriteError::Closed)?;
        // The writer answers everything before it ends, unless an invariant broke.
        answer.await.unwrap_or_else(|gone| Err(WriteError::Unknown { source: Arc::new(gone) }))
    }

    pub(crate) fn health(&self) -> Result<(), Unhealthy> {
        if self.requests.is_closed() {
            return Err(Unhealthy::Closed);
        }
        self.health.lock().clone().map_or(Ok(()), Err)
    }

    pub(crate) async fn backup(&self, to: PathBuf) -> Result<(), BackupError> {
        let from = self.path.clone();
        let work = tokio::task::spawn_blocking(move || backup::backup(&from, &to));
        work.await.map_err(|_| BackupError::Interrupted)?
    }
}

/// How long to wait for a lock. A process that was killed or has closed the store may leave it for
/// a moment to one that it was starting just then: a child has all files until it is executed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// Keeps other processes out until it is dropped. May block.
fn lock(database: &Path) -> Result<File, OpenError> {
    let mut path = database.as_os_str().to_owned();
    path.push(".lock");
    let path = PathBuf::from(path);
    let file = File::options().create(true).append(true).open(&path);
    let file = file.map_err(|source| OpenError::Lock { path: path.clone(), source })?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(LOCK_RETRY);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: database.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(OpenError::Lock { path, source }),
        }
    }
}
