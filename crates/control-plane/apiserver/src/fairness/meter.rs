//! Finds flows that use so much that others are slowed down. Pure: the caller reports usage and
//! time.
//!
//! A read is served in one go, before the next connection is read, so the number of open requests
//! of a user means nothing. Their recent cost does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The cost of a request besides the time in its seat: reading, checking and sending it.
const OVERHEAD: f64 = 50e-6;
/// The time constant of the usage average, in seconds: older usage hardly counts.
const MEMORY: f64 = 0.25;
/// The part of one processor above which others would notice.
const MUCH: f64 = 0.2;
/// A flow counts as active if it sent a request within this time.
const ACTIVE_WINDOW: Duration = Duration::from_secs(1);
/// So many flows are kept before those that are no longer active are removed.
const MANY_FLOWS: usize = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct Meters {
    flows: HashMap<u64, Meter>,
}

#[derive(Debug, Clone, Copy)]
struct Meter {
    /// Seconds of a processor, fewer the longer ago they were.
    used: f64,
    since: Instant,
    asked: Instant,
}

impl Meter {
    fn used(&self, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.since).as_secs_f64();
        self.used * (-age / MEMORY).exp()
    }

    fn is_active(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) < ACTIVE_WINDOW
    }
}

impl Meters {
    /// Counts a request; returns whether its flow is heavy while another flow is active.
    pub(super) fn ask(&mut self, flow: u64, now: Instant) -> bool {
        if self.flows.len() >= MANY_FLOWS && !self.flows.contains_key(&flow) {
            self.flows.retain(|_, meter| meter.is_active(now));
        }
        let meter = self.flows.entry(flow).or_insert(Meter { used: 0.0, since: now, asked: now });
        *meter = Meter { used: meter.used(now) + OVERHEAD, since: now, asked: now };
        meter.used > MUCH * MEMORY
            && self.flows.iter().any(|(other, meter)| *other != flow && meter.is_active(now))
    }

    /// A seat of this flow was used for so long.
    pub(super) fn charge(&mut self, flow: u64, seconds: f64, now: Instant) {
        if let Some(meter) = self.flows.get_mut(&flow) {
            *meter = Meter { used: meter.used(now) + seconds, since: now, asked: meter.asked };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_flow_is_heavy_while_another_is_active() {
        let start = Instant::now();
        let mut it = Meters::default();
        let mut now = start;
        for _ in 0..200 {
            now += MS;
            it.ask(1, now);
            it.charge(1, 0.0005, now);
        }
        assert!(!it.ask(1, now), "no other flow is active");
        assert!(!it.ask(2, now), "a flow with one request is not heavy");
        assert!(it.ask(1, now));
        assert!(!it.clone().ask(1, now + ACTIVE_WINDOW), "the other is no longer active");
        it.ask(2, now + ACTIVE_WINDOW);
        assert!(!it.ask(1, now + ACTIVE_WINDOW), "its usage is long ago");
    }

    #[test]
    fn flows_that_are_no_longer_active_are_removed() {
        let mut now = Instant::now();
        let mut it = Meters::default();
        for flow in 0..10 * MANY_FLOWS as u64 {
            it.ask(flow, now);
            now += ACTIVE_WINDOW / 10;
        }
        assert!(it.flows.len() <= MANY_FLOWS, "{}", it.flows.len());
    }
}
