//! The recent events of one table, and how much of them to keep.
//!
//! An event keeps the version it superseded alive, and this is nearly all it costs:
//! the version it made is either still current or superseded by a later event, which
//! then pays for it. So the weight of the log is the weight of all its `old`
//! versions plus a fixed sum per event, and dropping the first event frees its share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::config::Retention;
use crate::revision::Revision;
use crate::shape::{Event, Shape};

/// The bytes an event takes besides the versions it refers to.
const EVENT_WEIGHT: usize = 128;

pub(super) struct Log<S: Shape> {
    records: VecDeque<Record<S>>,
    /// Every event after this revision is in the log.
    oldest: Revision,
    weight: usize,
}

struct Record<S: Shape> {
    event: Arc<Event<S>>,
    weight: usize,
    seen: Instant,
}

impl<S: Shape> Log<S> {
    pub(super) fn new(oldest: Revision) -> Self {
        Self { records: VecDeque::new(), oldest, weight: 0 }
    }

    pub(super) fn oldest(&self) -> Revision {
        self.oldest
    }

    pub(super) fn push(&mut self, shape: &S, event: Arc<Event<S>>, seen: Instant) {
        let weight = weight(shape, &event);
        self.weight += weight;
        self.records.push_back(Record { event, weight, seen });
    }

    pub(super) fn trim(&mut self, retention: &Retention, now: Instant) {
        while self.records.len() > retention.events
            && let Some(first) = self.records.front()
            && (self.weight > retention.bytes
                || now.saturating_duration_since(first.seen) > retention.age)
        {
            self.oldest = first.event.revision;
            self.weight -= first.weight;
            self.records.pop_front();
        }
        // A burst should not hold its memory for ever.
        if self.records.capacity() > 1024 && self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(self.records.len() * 2);
        }
    }

    /// The events after `revision`, oldest first.
    pub(super) fn after(
        &self,
        revision: Revision,
    ) -> impl DoubleEndedIterator<Item = &Arc<Event<S>>> + ExactSizeIterator {
        let start = self.records.partition_point(|record| record.event.revision <= revision);
        self.records.range(start..).map(|record| &record.event)
    }
}

/// What an event costs while it is in the log.
pub(crate) fn weight<S: Shape>(shape: &S, event: &Event<S>) -> usize {
    EVENT_WEIGHT + event.old.as_ref().map_or(0, |old| shape.weight(&old.item))
}
