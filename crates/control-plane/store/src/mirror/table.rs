//! One table of the mirror: its entries, its log, and the bell that wakes its watchers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::list::{Page, Range, page};
use super::log::Log;
use super::progress::RevisionProgress;
use super::{Compacted, Loaded};
use crate::config::Retention;
use crate::revision::Revision;
use crate::shape::{Event, Shape, StoredVersion};

pub(crate) struct Table<S: Shape> {
    state: RwLock<TableState<S>>,
    changed: Notify,
    progress: Arc<RevisionProgress>,
}

struct TableState<S: Shape> {
    entries: BTreeMap<Arc<str>, Arc<StoredVersion<S::Item>>>,
    log: Log<S>,
    /// The last change applied here; never behind an event of the log.
    last: Revision,
}

/// The result of a watcher's read at its position.
pub(crate) enum WatchPull<S: Shape> {
    /// Events to deliver, and the revision up to which the watcher then has seen all.
    Events(Vec<Arc<Event<S>>>, Revision),
    /// No events up to this revision.
    Nothing(Revision),
    Lagged(Compacted),
    Closed,
}

impl<S: Shape> Table<S> {
    pub(super) fn new(oldest: Revision, progress: Arc<RevisionProgress>) -> Self {
        let state = TableState { entries: BTreeMap::new(), log: Log::new(oldest), last: oldest };
        Self { state: RwLock::new(state), changed: Notify::new(), progress }
    }

    /// Makes one change visible; its watchers still sleep until [`Table::wake`].
    pub(super) fn apply(
        &self,
        shape: &S,
        retention: &Retention,
        revision: Revision,
        name: Arc<str>,
        new: Option<Arc<StoredVersion<S::Item>>>,
        now: Instant,
    ) -> Option<Arc<Event<S>>> {
        let mut state = self.state.write();
        assert!(revision >= state.last, "a table went back in time");
        state.last = revision;
        let old = match &new {
            Some(entry) => state.entries.insert(Arc::clone(&name), Arc::clone(entry)),
            None => Some(state.entries.remove(&name)?),
        };
        let event = Arc::new(Event::new(revision, name, old, new));
        state.log.push(shape, Arc::clone(&event), now);
        state.log.trim(retention, now);
        Some(event)
    }

    pub(super) fn replace(&self, shape: &S, loaded: Loaded<S>, last: Revision) {
        let now = Instant::now();
        let mut log = Log::new(loaded.oldest);
        loaded.events.into_iter().for_each(|event| log.push(shape, event, now));
        let old = {
            let mut state = self.state.write();
            std::mem::replace(&mut *state, TableState { entries: loaded.entries, log, last })
        };
        // Freeing a whole table takes a while; readers need not wait for it.
        drop(old);
    }

    pub(super) fn trim(&self, retention: &Retention, now: Instant) {
        self.state.write().log.trim(retention, now);
    }

    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    pub(super) fn entry(&self, name: &str) -> Option<Arc<StoredVersion<S::Item>>> {
        self.state.read().entries.get(name).cloned()
    }

    pub(super) fn event(&self, name: &str, at: Revision) -> Option<Arc<Event<S>>> {
        let state = self.state.read();
        let before = Revision::new(at.get().checked_sub(1)?);
        let mut at_once = state.log.after(before).take_while(|event| event.revision == at);
        at_once.find(|event| *event.name == *name).cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.state.read().entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.read().entries.is_empty()
    }

    pub(super) fn oldest(&self) -> Revision {
        self.state.read().log.oldest()
    }

    pub(super) fn list(&self, range: Range<'_>) -> Result<Page<S>, Compacted> {
        let state = self.state.read();
        let current = state.last.max(self.progress.published());
        let revision = range.at.map_or(current, |at| at.min(current));
        let oldest = state.log.oldest();
        if revision < oldest {
            return Err(Compacted { oldest });
        }
        Ok(page(&state.entries, state.log.after(revision), range, revision))
    }

    /// Resolves at the next [`Table::wake`] after it was made.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// At most `max` events after `seen`, or a few more: the changes of one revision
    /// are never torn apart, because a position between them has no name.
    pub(crate) fn pull(&self, seen: Revision, max: usize) -> WatchPull<S> {
        let state = self.state.read();
        if seen < state.log.oldest() {
            return WatchPull::Lagged(Compacted { oldest: state.log.oldest() });
        }
        let mut pending = state.log.after(seen).peekable();
        let mut events: Vec<Arc<Event<S>>> = Vec::with_capacity(pending.len().min(max));
        while let Some(event) = pending.peek()
            && (events.len() < max
                || events.last().is_some_and(|last| last.revision == event.revision))
        {
            events.push(Arc::clone(event));
            pending.next();
        }
        let current = state.last.max(self.progress.published());
        match (events.last(), pending.peek()) {
            (Some(last), Some(_)) => {
                let reached = last.revision;
                WatchPull::Events(events, reached)
            }
            (Some(_), None) => WatchPull::Events(events, seen.max(current)),
            (None, Some(_)) => WatchPull::Nothing(seen),
            (None, None) if self.progress.is_closed() => WatchPull::Closed,
            (None, None) => WatchPull::Nothing(seen.max(current)),
        }
    }
}
