//! Following the changes of one table.
//!
//! A watcher is a position in the table's log, not a queue: waiting costs nothing per
//! event, a thousand watchers share each event, and a slow one delays no other. The
//! price is that one which falls behind the retained history has to start over.

use std::fmt;
use std::sync::Arc;

use crate::mirror::{Compacted, Table, WatchPull};
use crate::revision::Revision;
use crate::shape::{Event, Shape};

pub struct Watcher<S: Shape> {
    table: Arc<Table<S>>,
    /// Every change up to here has been handed out.
    seen: Revision,
}

/// Why a watch cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The next events were dropped before they were taken.
    #[error("the watch fell behind the history kept since revision {oldest}")]
    Lagged { oldest: Revision },
    #[error("the store is closed")]
    Closed,
}

impl<S: Shape> Watcher<S> {
    pub(crate) fn new(table: Arc<Table<S>>, from: Revision) -> Self {
        Self { table, seen: from }
    }

    /// Waits for changes and takes those available, about `max` at most and never
    /// none.
    ///
    /// Cancel-safe: nothing is taken unless it is returned.
    pub async fn next(&mut self, max: usize) -> Result<Vec<Arc<Event<S>>>, WatchError> {
        let max = max.max(1);
        loop {
            // Made before the read: from now on it receives every change.
            let changed = self.table.changed();
            match self.table.pull(self.seen, max) {
                WatchPull::Events(events, seen) => {
                    self.seen = seen;
                    return Ok(events);
                }
                WatchPull::Nothing(seen) => self.seen = seen,
                WatchPull::Lagged(Compacted { oldest }) => {
                    return Err(WatchError::Lagged { oldest });
                }
                WatchPull::Closed => return Err(WatchError::Closed),
            }
            changed.await;
        }
    }

    /// The revision up to which this watcher has seen every change of its table,
    /// which moves on even while the table is quiet.
    pub fn seen(&mut self) -> Revision {
        if let WatchPull::Nothing(seen) = self.table.pull(self.seen, 0) {
            self.seen = seen;
        }
        self.seen
    }
}

impl<S: Shape> fmt::Debug for Watcher<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watcher").field("seen", &self.seen).finish_non_exhaustive()
    }
}
