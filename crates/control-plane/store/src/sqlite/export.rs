//! A backup file that is written row by row, from a store that is not in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};

use super::backup::{BackupError, Partial};
use super::database::lay_out;
use crate::revision::Revision;

/// A key with its value as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportedRow {
    pub(crate) table: String,
    pub(crate) name: String,
    pub(crate) revision: Revision,
    pub(crate) created: Revision,
    pub(crate) value: Vec<u8>,
}

/// The file, under another name until it is complete.
pub(crate) struct BackupWriter {
    connection: Connection,
    partial: Partial,
    target: PathBuf,
    tables: BTreeMap<String, i64>,
}

impl BackupWriter {
    pub(crate) fn create(target: &Path) -> Result<Self, BackupError> {
        if target.exists() {
            return Err(BackupError::Exists { path: target.to_owned() });
        }
        let partial = Partial::new(target);
        let open = || {
            let connection = Connection::open(&partial.0)?;
            // The file does not count before it is finished and synced as a whole.
            connection.execute_batch(
                "PRAGMA page_size = 4096; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;",
            )?;
            lay_out(&connection)?;
            Ok(connection)
        };
        let connection =
            open().map_err(|source| BackupError::Copy { path: target.to_owned(), source })?;
        Ok(Self { connection, partial, target: target.to_owned(), tables: BTreeMap::new() })
    }

    pub(crate) fn add(&mut self, rows: &[ExportedRow]) -> Result<(), BackupError> {
        self.insert(rows).map_err(|source| BackupError::Copy { path: self.target.clone(), source })
    }

    fn insert(&mut self, rows: &[ExportedRow]) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for row in rows {
            if !self.tables.contains_key(&row.table) {
                transaction.execute("INSERT INTO tables (name) VALUES (?1)", [&row.table])?;
                self.tables.insert(row.table.clone(), transaction.last_insert_rowid());
            }
            let table = self.tables.get(&row.table);
            transaction
                .prepare_cached(
                    "INSERT INTO current (tbl, name, rev, created, value)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    table,
                    row.name,
                    row.revision.to_i64(),
                    row.created.to_i64(),
                    row.value
                ])?;
        }
        transaction.commit()
    }

    /// The file as of `revision`, without history, is complete.
    pub(crate) fn finish(self, revision: Revision) -> Result<(), BackupError> {
        let Self { connection, partial, target, .. } = self;
        let written = connection
            .execute(
                "UPDATE meta SET value = ?1 WHERE key IN ('revision', 'compacted')",
                [revision.to_i64()],
            )
            .and_then(|_| connection.close().map_err(|(_, error)| error));
        written.map_err(|source| BackupError::Copy { path: target.clone(), source })?;
        partial.finish(&target).map_err(|source| BackupError::Finish { path: target, source })
    }
}
