//! Counters of work queues: counted by the workers, exported as metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// All queues, by name; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Workloads(Arc<Mutex<BTreeMap<&'static str, Arc<Workload>>>>);

impl Workloads {
    /// The counters of the queue called `name`; zero if it is new.
    pub fn of(&self, name: &'static str) -> Arc<Workload> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name).or_default())
    }

    pub fn all(&self) -> Vec<(&'static str, Arc<Workload>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, load)| (*name, Arc::clone(load))).collect()
    }
}

/// The counters of one queue.
#[derive(Debug, Default)]
pub struct Workload {
    added: AtomicU64,
    ready: AtomicU64,
    retried: AtomicU64,
    /// From the moment that a key is ready until its reconcile starts.
    pub waited: Durations,
    /// Duration of the reconcile.
    pub worked: Durations,
}

impl Workload {
    /// Sets the number of keys that were ever added, and the number of those that are ready.
    pub fn report(&self, (added, ready): (u64, usize)) {
        self.added.store(added, Ordering::Relaxed);
        self.ready.store(ready as u64, Ordering::Relaxed);
    }

    /// Counts a reconcile that failed and will be retried.
    pub fn retried(&self) {
        self.retried.fetch_add(1, Ordering::Relaxed);
    }

    /// Added, ready and retried.
    pub fn counts(&self) -> [u64; 3] {
        [&self.added, &self.ready, &self.retried].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Upper bounds in seconds; longer durations are in no bucket.
const ENDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0];

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Durations {
    count: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; ENDS.len()],
}

impl Durations {
    pub fn note(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(at) = ENDS.iter().position(|end| took.as_secs_f64() <= *end) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The upper bounds of the buckets in seconds, each with the number of durations up to it.
    pub fn up_to(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut below = 0;
        ENDS.iter().zip(&self.buckets).map(move |(end, bucket)| {
            below += bucket.load(Ordering::Relaxed);
            (*end, below)
        })
    }

    /// The number of durations, and their sum in seconds.
    pub fn sum(&self) -> (u64, f64) {
        let load = |atomic: &AtomicU64| atomic.load(Ordering::Relaxed);
        (load(&self.count), load(&self.nanos) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_keeps_its_numbers_under_its_name() {
        let loads = Workloads::default();
        loads.of("claims").report((3, 1));
        loads.of("claims").retried();
        let all = loads.all();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].0, all[0].1.counts()), ("claims", [3, 1, 1]));
    }

    #[test]
    fn durations_are_counted_below_each_end() {
        let durations = Durations::default();
        for took in [Duration::from_micros(500), Duration::from_secs(2), Duration::from_secs(99)] {
            durations.note(took);
        }
        let below: Vec<u64> = durations.up_to().map(|(_, count)| count).collect();
        assert_eq!(below, [0, 0, 0, 0, 0, 1, 1, 1, 1, 2]);
        assert_eq!(durations.sum(), (3, 101.0005));
    }
}
