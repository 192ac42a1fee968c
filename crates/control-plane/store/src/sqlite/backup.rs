//! Copies of a store: taking one while it runs, and beginning anew from one.
//!
//! Both are written beside their final name and renamed when they are complete and
//! synced, so a file under that name is always whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::OpenError;
use super::database::{open_read_only, revision};

/// Why a copy could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("this engine has no backup of its own")]
    Unsupported,
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("cannot read the store")]
    Read { source: OpenError },
    #[error("cannot copy the store to {}", path.display())]
    Copy { path: PathBuf, source: rusqlite::Error },
    #[error("cannot finish {}", path.display())]
    Finish { path: PathBuf, source: io::Error },
    #[error("the backup was interrupted")]
    Interrupted,
}

/// Why a copy could not be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    #[error("cannot use backup {}", path.display())]
    Open { path: PathBuf, source: Box<OpenError> },
    #[error("cannot read backup {}", path.display())]
    Read { path: PathBuf, source: rusqlite::Error },
    #[error("backup {} is damaged", path.display())]
    Damaged { path: PathBuf },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: rusqlite::Error },
    #[error("cannot finish {}", path.display())]
    Finish { path: PathBuf, source: io::Error },
}

/// Copies the store at `from` as of one revision to `to`, which must not exist. The
/// store may be open, here or in another process; its writer goes on meanwhile.
pub fn backup(from: &Path, to: &Path) -> Result<(), BackupError> {
    if to.exists() {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    let partial = Partial::new(to);
    let connection = open_read_only(from).map_err(|source| BackupError::Read { source })?;
    copy(&connection, &partial.0)
        .map_err(|source| BackupError::Copy { path: to.to_owned(), source })?;
    partial.finish(to).map_err(|source| BackupError::Finish { path: to.to_owned(), source })
}

/// Makes a new store at `to` from the backup at `from`.
///
/// The new store is far ahead in revisions and has no history, so every client finds that its
/// revision is too old and lists again.
pub fn restore(from: &Path, to: &Path) -> Result<(), RestoreError> {
    for suffix in ["", "-wal", "-journal"] {
        let path = beside(to, suffix);
        if path.exists() {
            return Err(RestoreError::Exists { path });
        }
    }
    let connection = open_read_only(from)
        .map_err(|source| RestoreError::Open { path: from.to_owned(), source: Box::new(source) })?;
    let verdict: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(|source| RestoreError::Read { path: from.to_owned(), source })?;
    if verdict != "ok" {
        return Err(RestoreError::Damaged { path: from.to_owned() });
    }
    let partial = Partial::new(to);
    copy(&connection, &partial.0)
        .and_then(|()| leap(&partial.0))
        .map_err(|source| RestoreError::Write { path: to.to_owned(), source })?;
    partial.finish(to).map_err(|source| RestoreError::Finish { path: to.to_owned(), source })
}

/// Drops all history of a store that is not open, and every trace of it in the file.
pub(crate) fn scrub(path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    let transaction = connection.transaction()?;
    transaction.execute("DELETE FROM history", [])?;
    transaction.execute(
        "UPDATE meta SET value = (SELECT value FROM meta WHERE key = 'revision')
         WHERE key = 'compacted'",
        [],
    )?;
    transaction.commit()?;
    // Deleted rows stay readable in free pages and in the log until both are written anew.
    connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);")?;
    connection.close().map_err(|(_, error)| error)
}

fn copy(from: &Connection, to: &Path) -> rusqlite::Result<()> {
    // The path as text: SQLite takes no other, and the temporary name is beside one
    // it has already opened or will have to open.
    from.execute("VACUUM INTO ?1", [to.to_string_lossy()]).map(drop)
}

fn leap(path: &Path) -> rusqlite::Result<()> {
    let mut connection = Connection::open(path)?;
    let transaction = connection.transaction()?;
    let last = revision(&transaction, "revision")?;
    let leapt = last.leapt(base::clock::now().as_second()).to_i64();
    transaction.execute("DELETE FROM history", [])?;
    transaction
        .execute("UPDATE meta SET value = ?1 WHERE key IN ('revision', 'compacted')", [leapt])?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)
}

/// A file being written; removed again unless it is finished.
pub(super) struct Partial(pub(super) PathBuf);

impl Partial {
    pub(super) fn new(target: &Path) -> Self {
        let path = beside(target, ".partial");
        // Left over from an earlier attempt that was killed.
        let _ = fs::remove_file(&path);
        Self(path)
    }

    pub(super) fn finish(self, target: &Path) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        fs::rename(&self.0, target)?;
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)?.sync_all()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After `finish` there is nothing under this name any more.
        let _ = fs::remove_file(&self.0);
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
