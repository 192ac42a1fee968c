//! The file: its layout and the statements that change it.
//!
//! ```text
//! tables   id, name                     the dictionary: other tables name these by id
//! current  tbl, name, rev, created,     the live state, one row per key
//!          value
//! history  rev, tbl, name,              one row per write, holding what the write
//!          was_rev, was_created, was    displaced; all NULL if the key was absent
//! meta     key, value                   'revision': the last one given
//!                                       'compacted': history is complete after it
//!                                       'cluster': random, made with the file
//! ```
//!
//! History is an undo log: the version a write made is in `current` or, once
//! displaced, in the row of the write that displaced it. So each version is stored
//! once, a creation costs no second copy, and any prefix of the history can be
//! deleted without reading the rest.
//!
//! `current` is an ordinary table with an index over `(tbl, name)` rather than a
//! clustered one: values of some kilobytes inside an index B-tree would leave it
//! hardly any fan-out.
//!
//! `application_id` distinguishes our files from others, `user_version` is the version of
//! this layout. A transaction is durable when it is committed: the log is synced at
//! each commit (`synchronous=FULL`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::OpenError;
use crate::config::SqliteConfig;
use crate::mirror::{Durable, DurableChange};
use crate::revision::Revision;
use crate::seal::Sealing;
use crate::write::{Write, WriteChange, WriteError};

const APPLICATION: i64 = 0x5348_4546;
const FORMAT: i64 = 1;
const PAGE: u64 = 4096;

const LAYOUT: &str = "
    CREATE TABLE tables (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE current (
        id INTEGER PRIMARY KEY, tbl INTEGER NOT NULL, name TEXT NOT NULL,
        rev INTEGER NOT NULL, created INTEGER NOT NULL, value BLOB NOT NULL,
        UNIQUE (tbl, name));
    CREATE TABLE history (
        rev INTEGER PRIMARY KEY, tbl INTEGER NOT NULL, name TEXT NOT NULL,
        was_rev INTEGER, was_created INTEGER, was BLOB);
    CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
    INSERT INTO meta VALUES
        ('revision', 0), ('compacted', 0), ('cluster', lower(hex(randomblob(16))));
";

/// The connection that writes, and what it knows about the file.
pub(super) struct Database {
    pub(super) connection: Connection,
    sealing: Arc<Sealing>,
    dictionary: BTreeMap<Arc<str>, i64>,
}

/// The result of a write inside a transaction that is not committed yet.
pub(super) enum WriteVerdict {
    Done { change: Durable, displaced: usize },
    Refused(WriteError),
}

impl Database {
    pub(super) fn open(config: &SqliteConfig, sealing: &Arc<Sealing>) -> Result<Self, OpenError> {
        let fail = |source| OpenError::new(&config.path, source);
        let connection = Connection::open(&config.path).map_err(fail)?;
        check_format(&connection, &config.path)?;
        prepare(&connection, config.quota).map_err(fail)?;
        let dictionary = dictionary(&connection).map_err(fail)?;
        Ok(Self { connection, sealing: Arc::clone(sealing), dictionary })
    }

    pub(super) fn sealing(&self) -> &Arc<Sealing> {
        &self.sealing
    }

    pub(super) fn dictionary(&self) -> &BTreeMap<Arc<str>, i64> {
        &self.dictionary
    }

    /// Forgets what a transaction that was rolled back had added.
    pub(super) fn reload_dictionary(&mut self) -> rusqlite::Result<()> {
        self.dictionary = dictionary(&self.connection)?;
        Ok(())
    }

    /// Carries out one write as `revision`, inside the caller's transaction.
    pub(super) fn apply(
        &mut self,
        write: Write,
        revision: Revision,
    ) -> rusqlite::Result<WriteVerdict> {
        let Write { table, name, expect, change } = write;
        let tbl = self.table_id(&table)?;
        let found = self.find(tbl, &name)?;
        let current = found.as_ref().map(|found| found.revision);
        let absent = matches!(change, WriteChange::Delete) && current.is_none();
        if absent || !expect.is_met_by(current) {
            return Ok(WriteVerdict::Refused(WriteError::Conflict { current }));
        }
        let change = match (change, &found) {
            (WriteChange::Put(value), None) => {
                let stored = self.sealing.seal(&table, &name, &value);
                self.execute(
                    "INSERT INTO current (tbl, name, rev, created, value)
                     VALUES (?1, ?2, ?3, ?3, ?4)",
                    params![tbl, &*name, revision.to_i64(), &*stored],
                )?;
                DurableChange::Put { value, created: revision }
            }
            (WriteChange::Put(value), Some(found)) => {
                let stored = self.sealing.seal(&table, &name, &value);
                self.execute(
                    "UPDATE current SET rev = ?2, value = ?3 WHERE id = ?1",
                    params![found.id, revision.to_i64(), &*stored],
                )?;
                DurableChange::Put { value, created: found.created }
            }
            (WriteChange::Delete, found) => {
                let id = found.as_ref().map(|found| found.id);
                self.execute("DELETE FROM current WHERE id = ?1", params![id])?;
                DurableChange::Delete
            }
        };
        // Last, so that on a full disk a deletion can reuse the pages it has freed.
        self.remember(revision, tbl, &name, found.as_ref())?;
        let displaced = name.len() + found.map_or(0, |found| found.value.len());
        Ok(WriteVerdict::Done { change: Durable { table, name, revision, change }, displaced })
    }

    pub(super) fn set_revision(&self, revision: Revision) -> rusqlite::Result<()> {
        self.set_meta("revision", revision)
    }

    /// Drops at most `limit` rows of history up to `to`. Says whether all are gone.
    pub(super) fn compact(&self, to: Revision, limit: usize) -> rusqlite::Result<bool> {
        let mut last = self.connection.prepare_cached(
            "SELECT max(rev), count(*) FROM
                 (SELECT rev FROM history WHERE rev <= ?1 ORDER BY rev LIMIT ?2)",
        )?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (last, count): (Option<i64>, i64) =
            last.query_row(params![to.to_i64(), limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
        if let Some(last) = last {
            self.execute("DELETE FROM history WHERE rev <= ?1", params![last])?;
        }
        let done = count < limit;
        let compacted = if done { to } else { last.map_or(to, Revision::from_i64) };
        self.set_meta("compacted", compacted)?;
        Ok(done)
    }

    fn set_meta(&self, key: &str, revision: Revision) -> rusqlite::Result<()> {
        self.execute("UPDATE meta SET value = ?2 WHERE key = ?1", params![key, revision.to_i64()])
    }

    fn execute(&self, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(params).map(drop)
    }

    fn table_id(&mut self, table: &Arc<str>) -> rusqlite::Result<i64> {
        if let Some(id) = self.dictionary.get(table) {
            return Ok(*id);
        }
        self.execute("INSERT INTO tables (name) VALUES (?1)", params![&**table])?;
        let id = self.connection.last_insert_rowid();
        self.dictionary.insert(Arc::clone(table), id);
        Ok(id)
    }

    fn find(&self, tbl: i64, name: &str) -> rusqlite::Result<Option<FoundRow>> {
        let mut select = self.connection.prepare_cached(
            "SELECT id, rev, created, value FROM current WHERE tbl = ?1 AND name = ?2",
        )?;
        let found = select.query_row(params![tbl, name], |row| {
            Ok(FoundRow {
                id: row.get(0)?,
                revision: Revision::from_i64(row.get(1)?),
                created: Revision::from_i64(row.get(2)?),
                value: Bytes::copy_from_slice(row.get_ref(3)?.as_blob()?),
            })
        });
        found.optional()
    }

    fn remember(
        &self,
        revision: Revision,
        tbl: i64,
        name: &str,
        was: Option<&FoundRow>,
    ) -> rusqlite::Result<()> {
        self.execute(
            "INSERT INTO history VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                revision.to_i64(),
                tbl,
                name,
                was.map(|was| was.revision.to_i64()),
                was.map(|was| was.created.to_i64()),
                was.map(|was| &*was.value),
            ],
        )
    }
}

struct FoundRow {
    id: i64,
    revision: Revision,
    created: Revision,
    value: Bytes,
}

/// Opens a file of ours for reading only.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(path, flags).map_err(|source| OpenError::new(path, source))?;
    if check_format(&connection, path)? == Format::Empty {
        return Err(OpenError::Foreign { path: path.to_owned() });
    }
    Ok(connection)
}

/// Reads one of the revisions in `meta`.
pub(super) fn revision(connection: &Connection, key: &str) -> rusqlite::Result<Revision> {
    let select = "SELECT value FROM meta WHERE key = ?1";
    connection.query_row(select, [key], |row| row.get(0)).map(Revision::from_i64)
}

#[derive(PartialEq)]
enum Format {
    Empty,
    Known,
}

fn check_format(connection: &Connection, path: &Path) -> Result<Format, OpenError> {
    let fail = |source| OpenError::new(path, source);
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, found) =
        (pragma("application_id").map_err(fail)?, pragma("user_version").map_err(fail)?);
    let objects: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(fail)?;
    match (application, found) {
        (0, 0) if objects == 0 => Ok(Format::Empty),
        (APPLICATION, FORMAT) => Ok(Format::Known),
        (APPLICATION, found) if found > FORMAT => {
            Err(OpenError::Newer { path: path.to_owned(), found, known: FORMAT })
        }
        _ => Err(OpenError::Foreign { path: path.to_owned() }),
    }
}

/// Makes an empty file one of ours.
pub(super) fn lay_out(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {LAYOUT}
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; COMMIT;"
    ))
}

/// Sets how this connection works and lays out a new file.
fn prepare(connection: &Connection, quota: Option<u64>) -> rusqlite::Result<()> {
    // All reads are served from memory, so the page cache only carries B-tree inner
    // pages between commits. The log is copied back every 4 MiB and cut to 16 MiB.
    connection.execute_batch(
        "PRAGMA page_size = 4096;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 1000;
         PRAGMA journal_size_limit = 16777216;
         PRAGMA cache_size = -4096;
         PRAGMA mmap_size = 0;
         PRAGMA temp_store = MEMORY;
         PRAGMA busy_timeout = 5000;",
    )?;
    connection.set_prepared_statement_cache_capacity(32);
    if let Some(quota) = quota {
        let pages = i64::try_from(quota / PAGE).unwrap_or(i64::MAX);
        connection.pragma_update(None, "max_page_count", pages)?;
    }
    let laid_out: bool = connection.query_row(
        "SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'meta'",
        [],
        |row| row.get(0),
    )?;
    if !laid_out {
        lay_out(connection)?;
    }
    Ok(())
}

fn dictionary(connection: &Connection) -> rusqlite::Result<BTreeMap<Arc<str>, i64>> {
    let mut select = connection.prepare("SELECT name, id FROM tables")?;
    let rows = select.query_map([], |row| Ok((row.get::<_, String>(0)?.into(), row.get(1)?)))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_synced() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("store.sqlite");
        let database =
            Database::open(&SqliteConfig { path, quota: None }, &Arc::default()).unwrap();
        let text = |name| -> String {
            let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
            format!("{:?}", database.connection.pragma_query_value(None, name, value).unwrap())
        };
        assert_eq!(text("synchronous"), "Integer(2)");
        assert_eq!(text("journal_mode"), "Text(\"wal\")");
        assert_eq!(text("wal_autocheckpoint"), "Integer(1000)");
    }
}
