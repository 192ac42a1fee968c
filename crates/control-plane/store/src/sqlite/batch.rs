//! Many writes in one transaction, for one sync.

use rusqlite::ErrorCode;

use super::database::{Database, WriteVerdict};
use crate::mirror::Durable;
use crate::revision::Revision;
use crate::write::{Write, WriteError};

/// A transaction's content, worth something only once it is committed.
#[derive(Default)]
pub(super) struct Batch {
    /// For each write whether it went into `changes`.
    pub(super) verdicts: Vec<Result<(), WriteError>>,
    pub(super) changes: Vec<Durable>,
    /// How much the history has grown.
    pub(super) displaced: usize,
    /// Whether the asked-for compaction is complete.
    pub(super) compacted: bool,
}

/// Part of the history to drop in the same transaction.
#[derive(Clone, Copy)]
pub(super) struct Compaction {
    pub(super) to: Revision,
    pub(super) rows: usize,
}

/// Why a transaction is not known to be committed.
pub(super) enum CommitFailure {
    /// Rolled back for want of space.
    NoSpace,
    /// Failed before its end; it cannot have been committed.
    Aborted(rusqlite::Error),
    /// Failed while being committed: it may be in the file or not.
    InDoubt(Box<Batch>, rusqlite::Error),
}

impl Batch {
    /// The revision the file has if this batch was committed on top of `before`.
    pub(super) fn last(&self, before: Revision) -> Revision {
        self.changes.last().map_or(before, |change| change.revision)
    }
}

/// Writes and syncs a batch that follows revision `before`.
pub(super) fn commit(
    database: &mut Database,
    writes: Vec<Write>,
    before: Revision,
    compaction: Option<Compaction>,
) -> Result<Batch, CommitFailure> {
    let batch = match fill(database, writes, before, compaction) {
        Ok(batch) => batch,
        Err(error) => return Err(aborted(database, error)),
    };
    match database.connection.execute_batch("COMMIT") {
        Ok(()) => Ok(batch),
        Err(error) if is_no_space(&error) => Err(aborted(database, error)),
        Err(error) => Err(CommitFailure::InDoubt(Box::new(batch), error)),
    }
}

fn fill(
    database: &mut Database,
    writes: Vec<Write>,
    before: Revision,
    compaction: Option<Compaction>,
) -> rusqlite::Result<Batch> {
    database.connection.execute_batch("BEGIN IMMEDIATE")?;
    let mut batch = Batch::default();
    if let Some(Compaction { to, rows }) = compaction {
        // First, so that the writes can reuse its pages.
        batch.compacted = database.compact(to, rows)?;
    }
    let mut last = before;
    for write in writes {
        let verdict = match database.apply(write, last.next())? {
            WriteVerdict::Refused(error) => Err(error),
            WriteVerdict::Done { change, displaced } => {
                last = change.revision;
                batch.changes.push(change);
                batch.displaced += displaced;
                Ok(())
            }
        };
        batch.verdicts.push(verdict);
    }
    if last > before {
        database.set_revision(last)?;
    }
    Ok(batch)
}

fn aborted(database: &mut Database, error: rusqlite::Error) -> CommitFailure {
    // SQLite may have rolled back by itself.
    if !database.connection.is_autocommit()
        && let Err(error) = database.connection.execute_batch("ROLLBACK")
    {
        return CommitFailure::Aborted(error);
    }
    match database.reload_dictionary() {
        Ok(()) if is_no_space(&error) => CommitFailure::NoSpace,
        Ok(()) => CommitFailure::Aborted(error),
        Err(error) => CommitFailure::Aborted(error),
    }
}

fn is_no_space(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}
