//! The recent events of one table, and how much of them to keep.
//!
//! An event keeps the version it superseded alive, and this is nearly all it costs:
//! the version it made is either still current or superseded by a later event, which
//! then pays for it. So the weight of the log is the weight of all its `old`
//! versions plus a fixed sum per event, and dropping the first event frees its share.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Retention;
use crate::revision::Revision;
use crate::shape::{Event, Shape};

/// The bytes an event takes besides the versions it refers to.
const EVENT_WEIGHT: usize = 128;

pub(super) struct Log<S: Shape> {
    records: VecDeque<LogRecord<S>>,
    /// Every event after this revision is in the log.
    oldest: Revision,
    weight: usize,
}

struct LogRecord<S: Shape> {
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
        self.records.push_back(LogRecord { event, weight, seen });
    }

    pub(super) fn trim(&mut self, retention: &Retention, now: Instant) {
        while self.records.len() > retention.events
            && let Some(first) = self.records.front()
            && self.may_go(now.saturating_duration_since(first.seen), retention)
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

    /// Whether the first event may, being this old.
    fn may_go(&self, age: Duration, retention: &Retention) -> bool {
        let is_burst = self.weight > retention.calm && age > retention.fresh;
        self.weight > retention.bytes || age > retention.age || is_burst
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

/// The bytes that an event takes in the log.
pub(crate) fn weight<S: Shape>(shape: &S, event: &Event<S>) -> usize {
    EVENT_WEIGHT + event.old.as_ref().map_or(0, |old| shape.weight(&old.item))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::shape::StoredVersion;

    struct Sized;

    impl Shape for Sized {
        type Item = usize;
        type Frame = ();

        fn shape(&self, _: &str, _: &str, value: Bytes, _: Revision, _: Revision) -> usize {
            value.len()
        }

        fn weight(&self, item: &usize) -> usize {
            *item
        }
    }

    const KEEP: Retention = Retention {
        age: Duration::from_secs(60),
        bytes: 10_000,
        fresh: Duration::from_secs(30),
        calm: 4000,
        events: 3,
    };

    /// A log of one key updated at revisions 2 to 11, a second and `weight` bytes each.
    fn log(weight: usize, start: Instant) -> Log<Sized> {
        let version = |revision| {
            let (name, created) = ("a".into(), Revision::new(1));
            Some(Arc::new(StoredVersion {
                name,
                revision: Revision::new(revision),
                created,
                item: weight,
            }))
        };
        let mut log = Log::new(Revision::new(1));
        for revision in 2..=11 {
            let (old, new) = (version(revision - 1), version(revision));
            let event = Event::new(Revision::new(revision), "a".into(), old, new);
            log.push(&Sized, Arc::new(event), start + Duration::from_secs(revision));
        }
        log
    }

    fn check(weight: usize, seconds: u64, oldest: u64) {
        let start = Instant::now();
        let mut log = log(weight, start);
        log.trim(&KEEP, start + Duration::from_secs(seconds));
        assert_eq!(log.oldest(), Revision::new(oldest), "{weight} bytes, {seconds} seconds");
        let kept: Vec<u64> = log.after(log.oldest()).map(|event| event.revision.get()).collect();
        assert_eq!(kept, (oldest + 1..=11).collect::<Vec<_>>());
        assert_eq!(log.weight, kept.len() * (weight + EVENT_WEIGHT));
    }

    #[test]
    fn events_go_by_age_and_by_weight_but_the_last_stay() {
        check(10, 20, 1);
        check(10, 65, 4);
        check(10, 1000, 8);
        check(2000, 20, 7);
        check(9000, 20, 8);
    }

    #[test]
    fn events_of_a_burst_are_dropped_when_they_are_old() {
        check(800, 20, 1);
        check(800, 36, 5);
        check(800, 50, 7);
        check(200, 50, 1);
    }

    #[test]
    fn a_position_finds_the_events_after_it() {
        let log = log(1, Instant::now());
        for (position, count) in [(1, 10), (5, 6), (10, 1), (11, 0), (99, 0)] {
            assert_eq!(log.after(Revision::new(position)).len(), count, "after {position}");
        }
    }
}
