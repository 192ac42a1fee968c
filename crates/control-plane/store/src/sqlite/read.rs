//! Reading a file of which no store is open.

use std::fs::File;
use std::path::Path;

use rusqlite::Connection;

use super::database::{open_read_only, revision};
use super::{OpenError, lock};
use crate::revision::Revision;

pub(crate) struct SqliteReader {
    connection: Connection,
    pub(crate) revision: Revision,
    pub(crate) entries: u64,
    /// Keeps stores from opening the file meanwhile.
    _lock: File,
}

impl SqliteReader {
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let fail = |source| OpenError::new(path, source);
        let lock = lock(path)?;
        let connection = open_read_only(path)?;
        let revision = revision(&connection, "revision").map_err(fail)?;
        let count = "SELECT count(*) FROM current";
        let entries: i64 = connection.query_row(count, [], |row| row.get(0)).map_err(fail)?;
        Ok(Self { connection, revision, entries: entries.cast_unsigned(), _lock: lock })
    }

    /// Hands over every entry as table, name and value.
    pub(crate) fn each(&self, mut take: impl FnMut(&str, &str, &[u8])) -> rusqlite::Result<()> {
        let mut select = self.connection.prepare(
            "SELECT tables.name, current.name, value FROM current
             JOIN tables ON tables.id = tbl ORDER BY current.id",
        )?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            take(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_blob()?);
        }
        Ok(())
    }
}
