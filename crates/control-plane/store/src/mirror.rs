//! The current state and the recent events of every table, in memory.
//!
//! The mirror owns what readers see. It does no I/O and decides nothing: the engine
//! hands it changes that are already durable, in revision order, and it never shows
//! one before that.
//!
//! A list names the revision it was taken at, and a watch from that revision must
//! continue it exactly. [`Mirror::publish`] therefore applies changes in order, each
//! under its table's lock together with the table's own last revision, and only then
//! advances the revision published for all tables. A reader under the table's lock
//! takes the higher of the two: everything up to it has been applied to this table,
//! nothing after it has.

mod list;
mod log;
mod progress;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLock;

use crate::config::Retention;
use crate::revision::Revision;
use crate::shape::{Event, Shape, StoredVersion};
use crate::watch::Watcher;

pub use list::{Page, Range};
pub(crate) use log::weight as event_weight;
use progress::RevisionProgress;
pub(crate) use table::{Table, WatchPull};

/// The asked-for revision is no longer in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the history before revision {oldest} has been dropped")]
pub struct Compacted {
    /// The first revision that can still be asked for.
    pub oldest: Revision,
}

/// A durable change that becomes visible next.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(crate) table: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) revision: Revision,
    pub(crate) change: DurableChange,
}

#[derive(Debug)]
pub(crate) enum DurableChange {
    Put { value: Bytes, created: Revision },
    Delete,
}

/// The content of one table as an engine found it.
pub(crate) struct Loaded<S: Shape> {
    pub(crate) entries: BTreeMap<Arc<str>, Arc<StoredVersion<S::Item>>>,
    /// In revision order; together with `oldest` they reach up to the present.
    pub(crate) events: Vec<Arc<Event<S>>>,
    pub(crate) oldest: Revision,
}

impl<S: Shape> Loaded<S> {
    pub(crate) fn empty(oldest: Revision) -> Self {
        Self { entries: BTreeMap::new(), events: Vec::new(), oldest }
    }
}

pub(crate) struct Mirror<S: Shape> {
    shape: S,
    retention: Retention,
    tables: RwLock<Tables<S>>,
    progress: Arc<RevisionProgress>,
}

struct Tables<S: Shape> {
    by_name: BTreeMap<Arc<str>, Arc<Table<S>>>,
    /// Since when the history of a table that was not requested yet is complete.
    oldest: Revision,
}

impl<S: Shape> Mirror<S> {
    /// `oldest` is since when the history of tables not in `loaded` is known.
    pub(crate) fn new(
        shape: S,
        retention: Retention,
        loaded: BTreeMap<Arc<str>, Loaded<S>>,
        oldest: Revision,
        current: Revision,
    ) -> Self {
        let mirror = Self {
            shape,
            retention,
            tables: RwLock::new(Tables { by_name: BTreeMap::new(), oldest }),
            progress: Arc::new(RevisionProgress::new(current)),
        };
        mirror.replace(loaded, oldest, current);
        mirror
    }

    pub(crate) fn shape(&self) -> &S {
        &self.shape
    }

    pub(crate) fn revision(&self) -> Revision {
        self.progress.published()
    }

    /// Whether everything up to `revision` became visible within `limit`.
    pub(crate) async fn reached(&self, revision: Revision, limit: Duration) -> bool {
        self.progress.reached(revision, limit).await
    }

    /// Makes a batch visible. Returns the event of each change, or nothing for the
    /// deletion of a key that is not there.
    pub(crate) fn publish(&self, batch: Vec<Durable>) -> Vec<Option<Arc<Event<S>>>> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Vec::new() };
        assert!(first.revision > self.revision(), "a revision was published twice");
        let last = last.revision;
        let now = Instant::now();
        let mut touched: BTreeMap<Arc<str>, Arc<Table<S>>> = BTreeMap::new();
        let mut events = Vec::with_capacity(batch.len());
        for Durable { table, name, revision, change } in batch {
            let new = self.shaped(&table, &name, revision, change);
            let table = touched.entry(table).or_insert_with_key(|name| self.table(name));
            events.push(table.apply(&self.shape, &self.retention, revision, name, new, now));
        }
        self.progress.advance(last);
        touched.values().for_each(|table| table.wake());
        events
    }

    /// Moves on to `revision`, up to which no table of ours has changed.
    pub(crate) fn skip_to(&self, revision: Revision) {
        self.progress.advance(revision);
    }

    /// Puts a whole new state in place of the old one, whose history ends here: its
    /// watchers get the error that they lag.
    pub(crate) fn replace(
        &self,
        mut loaded: BTreeMap<Arc<str>, Loaded<S>>,
        oldest: Revision,
        current: Revision,
    ) {
        let mut tables = self.tables.write();
        tables.oldest = oldest;
        for (name, table) in &tables.by_name {
            let content = loaded.remove(name).unwrap_or_else(|| Loaded::empty(oldest));
            table.replace(&self.shape, content, current);
        }
        for (name, content) in loaded {
            let table = Arc::new(Table::new(oldest, Arc::clone(&self.progress)));
            table.replace(&self.shape, content, current);
            tables.by_name.insert(name, table);
        }
        self.progress.advance(current);
        tables.by_name.values().for_each(|table| table.wake());
    }

    /// Drops the history that retention no longer asks for.
    pub(crate) fn trim(&self) {
        let tables: Vec<_> = self.tables.read().by_name.values().cloned().collect();
        let now = Instant::now();
        tables.iter().for_each(|table| table.trim(&self.retention, now));
    }

    /// Ends every watch.
    pub(crate) fn close(&self) {
        self.progress.close();
        self.tables.read().by_name.values().for_each(|table| table.wake());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.progress.is_closed()
    }

    pub(crate) async fn closed(&self) {
        self.progress.closed().await;
    }

    pub(crate) fn entry(&self, table: &str, name: &str) -> Option<Arc<StoredVersion<S::Item>>> {
        self.tables.read().by_name.get(table)?.entry(name)
    }

    /// The event of `table` at `revision`, if it is still in the history.
    pub(crate) fn event(&self, table: &str, name: &str, at: Revision) -> Option<Arc<Event<S>>> {
        self.tables.read().by_name.get(table)?.event(name, at)
    }

    pub(crate) fn list(&self, table: &str, range: Range<'_>) -> Result<Page<S>, Compacted> {
        // Created if need be: a table that appears between searching for it and reading
        // the revision would make an empty list claim too high a revision.
        self.table(table).list(range)
    }

    pub(crate) fn watch(&self, table: &str, from: Revision) -> Result<Watcher<S>, Compacted> {
        let table = self.table(table);
        let oldest = table.oldest();
        if from < oldest { Err(Compacted { oldest }) } else { Ok(Watcher::new(table, from)) }
    }

    pub(crate) fn oldest(&self, table: &str) -> Revision {
        let tables = self.tables.read();
        tables.by_name.get(table).map_or(tables.oldest, |table| table.oldest())
    }

    pub(crate) fn count(&self, table: &str) -> usize {
        self.tables.read().by_name.get(table).map_or(0, |table| table.len())
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        let tables = self.tables.read();
        let filled = tables.by_name.iter().filter(|(_, table)| !table.is_empty());
        filled.map(|(name, _)| Arc::clone(name)).collect()
    }

    fn table(&self, name: &str) -> Arc<Table<S>> {
        if let Some(table) = self.tables.read().by_name.get(name) {
            return Arc::clone(table);
        }
        let mut tables = self.tables.write();
        let oldest = tables.oldest;
        let fresh = || Arc::new(Table::new(oldest, Arc::clone(&self.progress)));
        Arc::clone(tables.by_name.entry(name.into()).or_insert_with(fresh))
    }

    fn shaped(
        &self,
        table: &str,
        name: &Arc<str>,
        revision: Revision,
        change: DurableChange,
    ) -> Option<Arc<StoredVersion<S::Item>>> {
        let DurableChange::Put { value, created } = change else { return None };
        let item = self.shape.shape(table, name, value, revision, created);
        Some(Arc::new(StoredVersion { name: Arc::clone(name), revision, created, item }))
    }
}

impl<S: Shape> fmt::Debug for Mirror<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mirror").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
