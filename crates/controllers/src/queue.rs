//! A work queue of keys: each key once, one worker per key, later again after a failure.
//!
//! Pure: it is told the time. A key added while it is being worked on is handed out
//! again afterwards, so that no change is missed. It never holds more than one entry
//! per key, which bounds it by the number of objects.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

/// First and longest delay after failures.
const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct Queue<K> {
    ready: VecDeque<K>,
    queued: BTreeSet<K>,
    running: BTreeSet<K>,
    /// Added while running.
    again: BTreeSet<K>,
    delayed: BTreeSet<(Instant, K)>,
    due: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            queued: BTreeSet::new(),
            running: BTreeSet::new(),
            again: BTreeSet::new(),
            delayed: BTreeSet::new(),
            due: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Hand this key out as soon as possible.
    pub(crate) fn add(&mut self, key: K) {
        if let Some(at) = self.due.remove(&key) {
            self.delayed.remove(&(at, key.clone()));
        }
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// Hand this key out at `at`, or earlier if it is added before.
    pub(crate) fn add_at(&mut self, key: K, at: Instant) {
        if self.queued.contains(&key) || self.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        if let Some(later) = self.due.insert(key.clone(), at) {
            self.delayed.remove(&(later, key.clone()));
        }
        self.delayed.insert((at, key));
    }

    /// The next key to work on; the caller reports `done` or `failed`.
    pub(crate) fn take(&mut self, now: Instant) -> Option<K> {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
        {
            let Some((_, key)) = self.delayed.pop_first() else { break };
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    pub(crate) fn done(&mut self, key: &K) {
        self.failures.remove(key);
        self.finish(key);
    }

    /// Hand it out again after a delay that doubles each time.
    pub(crate) fn failed(&mut self, key: &K, now: Instant) {
        let count = self.failures.entry(key.clone()).or_default();
        let delay = FIRST.saturating_mul(1 << (*count).min(20)).min(LONGEST);
        *count += 1;
        self.finish(key);
        self.add_at(key.clone(), now + delay);
    }

    /// When `take` will have something although nothing is added.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }

    fn finish(&mut self, key: &K) {
        self.running.remove(key);
        if self.again.remove(key) {
            self.add(key.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_added_twice_is_handed_out_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(1);
        queue.add(1);
        assert_eq!(queue.take(now), Some(1));
        assert_eq!(queue.take(now), None);
    }

    #[test]
    fn a_key_added_while_running_is_handed_out_afterwards() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add(1);
        queue.take(now);
        queue.add(1);
        assert_eq!(queue.take(now), None);
        queue.done(&1);
        assert_eq!(queue.take(now), Some(1));
    }

    #[test]
    fn failures_wait_longer_each_time_until_one_succeeds() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        let mut delays = Vec::new();
        queue.add(1);
        for _ in 0..3 {
            assert_eq!(queue.take(now), Some(1));
            queue.failed(&1, now);
            assert_eq!(queue.take(now), None);
            let due = queue.next_due().unwrap();
            delays.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(delays, [20, 40, 80]);
        assert_eq!(queue.take(now), Some(1));
        queue.done(&1);
        queue.add(1);
        queue.take(now);
        queue.failed(&1, now);
        assert_eq!((queue.next_due().unwrap() - now).as_millis(), 20);
    }

    #[test]
    fn an_addition_overtakes_a_delay() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.add_at(1, now + Duration::from_secs(9));
        queue.add(1);
        assert_eq!(queue.take(now), Some(1));
        queue.done(&1);
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
