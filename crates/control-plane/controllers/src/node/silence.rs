//! How long each node has been silent, by the controller's own clock. Pure.
//!
//! Only time counts in which a renewal would have been seen: while the controller ran and its store
//! took writes. After any other time all nodes have a fresh window, so that a management node that
//! was down, suspended or had a stalled disk declares no node lost.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// A longer time between two checks means that the controller did not run.
const LONGEST_GAP: Duration = Duration::from_secs(3);

/// Of the time between two checks, at most so much more than the interval counts: renewals may have
/// been impossible in the rest.
const COUNTED_GAP: Duration = Duration::from_millis(500);

/// A silence that may be the store's fault. A longer one is old: if the store does not take writes
/// now, others fall silent, too.
const DOUBT: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(60);

/// The observed renewals of all nodes.
#[derive(Debug, Default)]
pub(crate) struct SilenceWindow {
    nodes: BTreeMap<Arc<str>, Renewal>,
}

#[derive(Debug)]
struct Renewal {
    /// `renewTime` of the lease when it was last read.
    time: String,
    silence: Duration,
}

/// One reading of all leases.
#[derive(Debug)]
pub(crate) struct LeaseReading<'a> {
    /// Since the check before.
    pub(crate) elapsed: Duration,
    /// How far two checks may be apart.
    pub(crate) interval: Duration,
    /// Whether the store took writes since then.
    pub(crate) store_is_writable: bool,
    /// `renewTime` of each node; empty for one without a lease.
    pub(crate) renewals: &'a BTreeMap<Arc<str>, String>,
}

impl SilenceWindow {
    /// Takes a check into account.
    pub(crate) fn read(&mut self, reading: &LeaseReading<'_>) {
        let longest = reading.interval + LONGEST_GAP;
        let counts = reading.store_is_writable && reading.elapsed <= longest;
        self.nodes.retain(|node, _| reading.renewals.contains_key(node));
        for (node, time) in reading.renewals {
            match self.nodes.get_mut(node) {
                Some(known) if known.time == *time && counts => {
                    known.silence += reading.elapsed.min(reading.interval + COUNTED_GAP);
                }
                _ => {
                    let fresh = Renewal { time: time.clone(), silence: Duration::ZERO };
                    self.nodes.insert(Arc::clone(node), fresh);
                }
            }
        }
    }

    /// How long a node has been silent.
    pub(crate) fn of(&self, node: &str) -> Duration {
        self.nodes.get(node).map_or(Duration::ZERO, |known| known.silence)
    }

    /// Whether a node with this `renewTime` would have fallen silent lately, by a check `elapsed`
    /// after the last one.
    pub(crate) fn is_doubtful(&self, node: &str, renewed: &str, elapsed: Duration) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|it| it.time == renewed && DOUBT.contains(&(it.silence + elapsed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Silence of node `n` after checks of (elapsed seconds, store is writable, renewTime).
    fn after(checks: &[(u64, bool, &str)]) -> u64 {
        let mut window = SilenceWindow::default();
        for (elapsed, store_is_writable, time) in checks {
            let renewals = BTreeMap::from([(Arc::from("n"), (*time).to_owned())]);
            window.read(&LeaseReading {
                elapsed: Duration::from_secs(*elapsed),
                interval: SECOND,
                store_is_writable: *store_is_writable,
                renewals: &renewals,
            });
        }
        let silence = window.of("n");
        let last = checks.last().map_or("", |(_, _, time)| *time);
        let is_doubtful = window.is_doubtful("n", last, Duration::ZERO);
        assert_eq!(is_doubtful, silence >= Duration::from_secs(2));
        assert!(!window.is_doubtful("n", "renewed", Duration::from_secs(3)));
        silence.as_secs()
    }

    #[test]
    fn only_time_in_which_a_renewal_would_have_been_seen_counts() {
        for (checks, silence) in [
            (&[][..], 0),
            // The first check after a start: earlier time does not count.
            (&[(0, true, "a")], 0),
            (&[(0, true, "a"), (1, true, "a"), (1, true, "a")], 2),
            (&[(0, true, "a"), (1, true, "a"), (1, true, "b")], 0),
            // The store was stalled: all nodes get a fresh window.
            (&[(0, true, "a"), (4, true, "a"), (1, false, "a"), (1, true, "a")], 1),
            // The controller did not run.
            (&[(0, true, "a"), (3, true, "a"), (20, true, "a")], 0),
            // A node without a lease is silent, too.
            (&[(0, true, ""), (1, true, ""), (1, true, "")], 2),
            // The controller was late: only a part counts.
            (&[(0, true, "a"), (3, true, "a"), (1, true, "a")], 2),
        ] {
            assert_eq!(after(checks), silence, "{checks:?}");
        }
    }

    #[test]
    fn a_node_that_is_gone_is_forgotten() {
        let mut window = SilenceWindow::default();
        let read = |names: &[&str]| -> BTreeMap<Arc<str>, String> {
            names.iter().map(|name| (Arc::from(*name), String::new())).collect()
        };
        for (names, silence) in
            [(&["a", "b"][..], 0), (&["a", "b"], 1), (&["b"], 0), (&["a", "b"], 0)]
        {
            let renewals = read(names);
            window.read(&LeaseReading {
                elapsed: SECOND,
                interval: SECOND,
                store_is_writable: true,
                renewals: &renewals,
            });
            assert_eq!(window.of("a").as_secs(), silence, "{names:?}");
        }
    }
}
