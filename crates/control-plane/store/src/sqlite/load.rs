//! Reading the file back into memory.
//!
//! Rows of the live state are read in the order of the file by one thread and shaped
//! by two others. The history is then walked backwards from the present: the version
//! a write made is the one the walk has arrived at, the version it displaced is in
//! its row. The two must agree, which checks the file against itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rusqlite::Row;

use super::OpenError;
use super::database::{Database, revision};
use crate::config::Retention;
use crate::mirror::{Loaded, Mirror, event_weight};
use crate::revision::Revision;
use crate::seal::{SealError, Sealing};
use crate::shape::{Event, Shape, StoredVersion};

/// Rows handed to a shaping thread at once.
const CHUNK: usize = 256;
const SHAPERS: usize = 2;

type LoadedVersion<S> = Arc<StoredVersion<<S as Shape>::Item>>;
type Entries<S> = BTreeMap<Arc<str>, LoadedVersion<S>>;

/// Everything found in a file.
pub(super) struct DatabaseContents<S: Shape> {
    tables: BTreeMap<Arc<str>, Loaded<S>>,
    revision: Revision,
    compacted: Revision,
    /// The bytes of all history in the file.
    pub(super) history: usize,
}

impl<S: Shape> DatabaseContents<S> {
    pub(super) fn into_mirror(self, shape: S, retention: Retention) -> Mirror<S> {
        Mirror::new(shape, retention, self.tables, self.compacted, self.revision)
    }
}

pub(super) fn load<S: Shape>(
    database: &Database,
    shape: &S,
    retention: &Retention,
) -> Result<DatabaseContents<S>, OpenError> {
    let connection = &database.connection;
    let path = connection.path().unwrap_or_default().to_owned();
    let fail = |source| OpenError::new(path.as_ref(), source);
    let names: HashMap<i64, Arc<str>> =
        database.dictionary().iter().map(|(name, id)| (*id, Arc::clone(name))).collect();

    let current = revision(connection, "revision").map_err(fail)?;
    let compacted = revision(connection, "compacted").map_err(fail)?;
    let sealed = |source| OpenError::Sealed { path: path.clone().into(), source };
    let entries = live(database, shape, &names).map_err(fail)?.map_err(sealed)?;
    let newest = entries.values().flat_map(BTreeMap::values).map(|entry| entry.revision).max();
    if compacted > current || newest > Some(current) {
        return Err(OpenError::Inconsistent { path: path.into(), revision: current });
    }

    let mut past = HistoryWalk { shape, retention, compacted, tables: BTreeMap::new(), history: 0 };
    for (tbl, entries) in entries {
        past.tables.insert(tbl, TableUnwind::new(entries, compacted));
    }
    if let Some(revision) = past.unwind(database, &names).map_err(fail)? {
        return Err(OpenError::Inconsistent { path: path.into(), revision });
    }
    let history = past.history;
    let tables = past.tables.into_iter().filter_map(|(tbl, table)| {
        let name = names.get(&tbl)?;
        Some((Arc::clone(name), table.finish()))
    });
    Ok(DatabaseContents { tables: tables.collect(), revision: current, compacted, history })
}

/// A row of the live state, or the version a row of history displaced.
struct RawEntry {
    tbl: i64,
    name: Arc<str>,
    revision: Revision,
    created: Revision,
    value: Bytes,
}

impl RawEntry {
    fn shaped<S: Shape>(
        self,
        shape: &S,
        names: &HashMap<i64, Arc<str>>,
        open: impl FnOnce(&str, &str, Bytes) -> Result<Bytes, SealError>,
    ) -> Result<LoadedVersion<S>, SealError> {
        let Self { tbl, name, revision, created, value } = self;
        let table = names.get(&tbl).map_or("", |table| table);
        let value = open(table, &name, value)?;
        let item = shape.shape(table, &name, value, revision, created);
        Ok(Arc::new(StoredVersion { name, revision, created, item }))
    }
}

fn live<S: Shape>(
    database: &Database,
    shape: &S,
    names: &HashMap<i64, Arc<str>>,
) -> rusqlite::Result<Result<BTreeMap<i64, Entries<S>>, SealError>> {
    let sealing = &**database.sealing();
    let (sender, receiver) = sync_channel::<Vec<RawEntry>>(4 * SHAPERS);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        let shapers: Vec<_> = (0..SHAPERS)
            .map(|_| scope.spawn(|| shape_chunks(&receiver, shape, names, sealing)))
            .collect();
        let mut select = database
            .connection
            .prepare("SELECT tbl, name, rev, created, value FROM current ORDER BY id")?;
        let mut rows = select.query([])?;
        let mut chunk = Vec::with_capacity(CHUNK);
        while let Some(row) = rows.next()? {
            chunk.push(raw_entry(row)?);
            if chunk.len() == CHUNK {
                // Fails only if both shapers panicked, which the join below passes on.
                let _ = sender.send(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)));
            }
        }
        let _ = sender.send(chunk);
        drop(sender);

        let mut unsorted: BTreeMap<i64, Vec<_>> = BTreeMap::new();
        for shaper in shapers {
            let shaped = shaper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let shaped = match shaped {
                Ok(shaped) => shaped,
                Err(error) => return Ok(Err(error)),
            };
            for (tbl, entry) in shaped {
                unsorted.entry(tbl).or_default().push((Arc::clone(&entry.name), entry));
            }
        }
        let sorted =
            unsorted.into_iter().map(|(tbl, entries)| (tbl, entries.into_iter().collect()));
        Ok(Ok(sorted.collect()))
    })
}

fn raw_entry(row: &Row<'_>) -> rusqlite::Result<RawEntry> {
    Ok(RawEntry {
        tbl: row.get(0)?,
        name: row.get_ref(1)?.as_str()?.into(),
        revision: Revision::from_i64(row.get(2)?),
        created: Revision::from_i64(row.get(3)?),
        value: Bytes::copy_from_slice(row.get_ref(4)?.as_blob()?),
    })
}

fn shape_chunks<S: Shape>(
    chunks: &Mutex<Receiver<Vec<RawEntry>>>,
    shape: &S,
    names: &HashMap<i64, Arc<str>>,
    sealing: &Sealing,
) -> Result<Vec<(i64, LoadedVersion<S>)>, SealError> {
    let (mut shaped, mut failure) = (Vec::new(), None);
    loop {
        let chunk = chunks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(chunk) = chunk else { return failure.map_or(Ok(shaped), Err) };
        // After a failure the rest is only taken, so that the reader is not held up.
        for raw in chunk.into_iter().filter(|_| failure.is_none()).collect::<Vec<_>>() {
            match (
                raw.tbl,
                raw.shaped(shape, names, |table, name, value| sealing.open(table, name, value)),
            ) {
                (tbl, Ok(version)) => shaped.push((tbl, version)),
                (_, Err(error)) => failure = Some(error),
            }
        }
    }
}

/// The walk back through history.
struct HistoryWalk<'a, S: Shape> {
    shape: &'a S,
    retention: &'a Retention,
    compacted: Revision,
    tables: BTreeMap<i64, TableUnwind<S>>,
    history: usize,
}

/// One table on the way back.
struct TableUnwind<S: Shape> {
    entries: Entries<S>,
    /// Keys that differ from `entries` at the point the walk has reached.
    changed: HashMap<Arc<str>, Option<LoadedVersion<S>>>,
    /// Newest first.
    events: Vec<Arc<Event<S>>>,
    weight: usize,
    /// Set when enough events were kept; older ones are passed over.
    cut: Option<Revision>,
    compacted: Revision,
}

impl<S: Shape> HistoryWalk<'_, S> {
    /// Returns the revision at which the file contradicts itself, if it does.
    fn unwind(
        &mut self,
        database: &Database,
        names: &HashMap<i64, Arc<str>>,
    ) -> rusqlite::Result<Option<Revision>> {
        let mut select = database.connection.prepare(
            "SELECT tbl, name, was_rev, was_created, was, rev FROM history ORDER BY rev DESC",
        )?;
        let mut rows = select.query([])?;
        let past = |table: &str, name: &str, value: Bytes| {
            database.sealing().open_past(table, name, value)
        };
        while let Some(row) = rows.next()? {
            let revision = Revision::from_i64(row.get(5)?);
            let tbl: i64 = row.get(0)?;
            let name: Arc<str> = row.get_ref(1)?.as_str()?.into();
            let bytes = row.get_ref(4)?.as_blob_or_null()?.map_or(0, <[u8]>::len);
            self.history += name.len() + bytes;
            let compacted = self.compacted;
            let table = self
                .tables
                .entry(tbl)
                .or_insert_with(|| TableUnwind::new(BTreeMap::new(), compacted));
            if table.cut.is_some() {
                continue;
            }
            let old = match row.get::<_, Option<i64>>(2)? {
                // Versions that were encrypted with a key that is gone are no longer part of the
                // history.
                Some(_) => match raw_entry(row)?.shaped(self.shape, names, past) {
                    Ok(old) => Some(old),
                    Err(_) => {
                        table.cut = Some(revision);
                        continue;
                    }
                },
                None => None,
            };
            if !table.step(self.shape, self.retention, revision, name, old) {
                return Ok(Some(revision));
            }
        }
        Ok(None)
    }
}

impl<S: Shape> TableUnwind<S> {
    fn new(entries: Entries<S>, compacted: Revision) -> Self {
        let (changed, events) = (HashMap::new(), Vec::new());
        Self { entries, changed, events, weight: 0, cut: None, compacted }
    }

    /// Takes back one write. Says whether it fits what is known of later ones.
    fn step(
        &mut self,
        shape: &S,
        retention: &Retention,
        revision: Revision,
        name: Arc<str>,
        old: Option<Arc<StoredVersion<S::Item>>>,
    ) -> bool {
        let new = match self.changed.get(&name) {
            Some(changed) => changed.clone(),
            None => self.entries.get(&name).cloned(),
        };
        let fits = new.as_ref().is_none_or(|new| new.revision == revision)
            && old.as_ref().is_none_or(|old| old.revision < revision)
            && (new.is_some() || old.is_some());
        let event = Event::new(revision, Arc::clone(&name), old.clone(), new);
        self.weight += event_weight(shape, &event);
        if self.weight > retention.bytes && self.events.len() >= retention.events {
            self.cut = Some(revision);
        } else {
            self.events.push(Arc::new(event));
            self.changed.insert(name, old);
        }
        fits
    }

    fn finish(mut self) -> Loaded<S> {
        self.events.reverse();
        let oldest = self.cut.unwrap_or(self.compacted);
        Loaded { entries: self.entries, events: self.events, oldest }
    }
}
