//! A work queue of keys: each key once, one worker per key, later again after a failure.
//!
//! The delay after a failure doubles, with the figures of client-go. A change brings a key
//! that fails back sooner, but not sooner than [`CHANGE_DELAY`] after the failure: a reconciler
//! whose failure writes an object that it watches itself would otherwise never pause.
//!
//! Pure: callers pass the time. A key added while it is being worked on is handed out
//! again afterwards, so that no change is missed. It never holds more than one entry
//! per key, which bounds it by the number of objects.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// First and longest delay after failures.
const FIRST_DELAY: Duration = Duration::from_millis(5);
const LONGEST_DELAY: Duration = Duration::from_secs(1000);
/// The longest delay of a key that fails and whose objects change.
const CHANGE_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Queue<K> {
    ready: VecDeque<K>,
    /// Since when each is ready.
    queued: BTreeMap<K, Instant>,
    running: BTreeSet<K>,
    /// Added while running.
    again: BTreeSet<K>,
    delayed: BTreeSet<(Instant, K)>,
    due: BTreeMap<K, Instant>,
    failures: BTreeMap<K, Failures>,
    added: u64,
}

/// The failures of a key since its last success.
#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    /// No change hands the key out before this.
    hold: Instant,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            queued: BTreeMap::new(),
            running: BTreeSet::new(),
            again: BTreeSet::new(),
            delayed: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
            added: 0,
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Hand this key out as soon as possible, because something about it changed.
    pub(crate) fn add(&mut self, key: K, now: Instant) {
        match self.failures.get(&key) {
            Some(failures) if failures.hold > now && !self.running.contains(&key) => {
                self.add_at(key, failures.hold);
            }
            _ => self.add_now(key, now),
        }
    }

    fn add_now(&mut self, key: K, now: Instant) {
        if let Some(at) = self.due.remove(&key) {
            self.delayed.remove(&(at, key.clone()));
        }
        if self.running.contains(&key) {
            self.added += u64::from(self.again.insert(key));
        } else {
            self.make_ready(key, now);
        }
    }

    fn make_ready(&mut self, key: K, now: Instant) {
        if let Entry::Vacant(place) = self.queued.entry(key.clone()) {
            place.insert(now);
            self.ready.push_back(key);
            self.added += 1;
        }
    }

    /// How many keys were ever added, and how many are ready now.
    pub(crate) fn counts(&self) -> (u64, usize) {
        (self.added, self.ready.len())
    }

    /// Hand this key out at `at`, or earlier if it is added before.
    pub(crate) fn add_at(&mut self, key: K, at: Instant) {
        if self.queued.contains_key(&key) || self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        if let Some(later) = self.due.insert(key.clone(), at) {
            self.delayed.remove(&(later, key.clone()));
        }
        self.delayed.insert((at, key));
    }

    /// The next key to work on, and how long it was ready; the caller reports `done` or `failed`.
    pub(crate) fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
        {
            let Some((_, key)) = self.delayed.pop_first() else { break };
            self.add_now(key, now);
        }
        let key = self.ready.pop_front()?;
        let since = self.queued.remove(&key).unwrap_or(now);
        self.running.insert(key.clone());
        Some((key, now.saturating_duration_since(since)))
    }

    pub(crate) fn done(&mut self, key: &K, now: Instant) {
        self.failures.remove(key);
        self.finish(key, now);
    }

    /// Hand it out again after a delay that doubles each time.
    pub(crate) fn failed(&mut self, key: &K, now: Instant) {
        let count = self.failures.get(key).map_or(0, |failures| failures.count);
        let delay = FIRST_DELAY.saturating_mul(1 << count.min(20)).min(LONGEST_DELAY);
        let hold = now + delay.min(CHANGE_DELAY);
        self.failures.insert(key.clone(), Failures { count: count + 1, hold });
        self.running.remove(key);
        let changed = self.again.remove(key);
        self.added -= u64::from(changed);
        self.add_at(key.clone(), if changed { hold } else { now + delay });
    }

    /// When `take` will have something although nothing is added.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    fn finish(&mut self, key: &K, now: Instant) {
        self.running.remove(key);
        if self.again.remove(key) {
            // It was counted when it was added.
            self.added -= 1;
            self.make_ready(key.clone(), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(queue: &mut Queue<i32>, now: Instant) -> Option<i32> {
        queue.take(now).map(|(key, _)| key)
    }

    #[test]
    fn it_reports_how_many_came_and_how_long_they_were_ready() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(2);
        queue.add(1, now);
        queue.add(1, now);
        queue.add(2, later);
        assert_eq!(queue.counts(), (2, 2));
        assert_eq!(queue.take(later), Some((1, Duration::from_secs(2))));
        queue.add(1, later);
        assert_eq!(queue.counts(), (3, 1), "once more while it runs");
        queue.done(&1, later);
        assert_eq!(queue.counts(), (3, 2));
        assert_eq!(queue.take(later), Some((2, Duration::ZERO)));
    }

    #[test]
    fn a_key_added_twice_is_handed_out_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(1, now);
        queue.add(1, now);
        assert_eq!(next(&mut queue, now), Some(1));
        assert_eq!(next(&mut queue, now), None);
    }

    #[test]
    fn a_key_added_while_running_is_handed_out_afterwards() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(1, now);
        queue.take(now);
        queue.add(1, now);
        assert_eq!(next(&mut queue, now), None);
        queue.done(&1, now);
        assert_eq!(next(&mut queue, now), Some(1));
    }

    #[test]
    fn failures_wait_longer_each_time_until_one_succeeds() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        let mut delays = Vec::new();
        queue.add(1, now);
        for _ in 0..3 {
            assert_eq!(next(&mut queue, now), Some(1));
            queue.failed(&1, now);
            assert_eq!(next(&mut queue, now), None);
            let due = queue.next_due().unwrap();
            delays.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(delays, [5, 10, 20]);
        assert_eq!(next(&mut queue, now), Some(1));
        queue.done(&1, now);
        queue.add(1, now);
        queue.take(now);
        queue.failed(&1, now);
        assert_eq!((queue.next_due().unwrap() - now).as_millis(), 5);
    }

    #[test]
    fn a_change_during_a_back_off_waits_for_a_second_at_most() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.add(1, now);
        let mut delays = Vec::new();
        for round in 0..12 {
            assert_eq!(next(&mut queue, now), Some(1));
            // A write of the attempt itself, seen while it runs or afterwards.
            if round % 2 == 0 {
                queue.add(1, now);
                queue.failed(&1, now);
            } else {
                queue.failed(&1, now);
                queue.add(1, now);
            }
            assert_eq!(next(&mut queue, now), None);
            let due = queue.next_due().unwrap();
            delays.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(delays[..4], [5, 10, 20, 40]);
        assert_eq!(delays[8..], [1000, 1000, 1000, 1000]);
        assert_eq!(next(&mut queue, now), Some(1));
        queue.done(&1, now);
        queue.add(1, now);
        assert_eq!(next(&mut queue, now), Some(1), "a success ends the back-off");
    }

    #[test]
    fn the_longest_delay_is_a_thousand_seconds() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.add(1, now);
        for _ in 0..40 {
            queue.take(now);
            queue.failed(&1, now);
            now = queue.next_due().unwrap();
        }
        queue.take(now);
        queue.failed(&1, now);
        assert_eq!(queue.next_due(), Some(now + Duration::from_secs(1000)));
    }

    #[test]
    fn an_addition_overtakes_a_delay() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_at(1, now + Duration::from_secs(9));
        queue.add(1, now);
        assert_eq!(next(&mut queue, now), Some(1));
        queue.done(&1, now);
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn the_earlier_of_two_delays_wins() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_at(1, now + Duration::from_secs(9));
        queue.add_at(1, now + Duration::from_secs(3));
        queue.add_at(1, now + Duration::from_secs(5));
        assert_eq!(queue.next_due(), Some(now + Duration::from_secs(3)));
    }
}
