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
const ABOUT: Duration = Duration::from_secs(1);
/// So many flows are remembered before those that left are forgotten.
const CROWD: usize = 64;

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

    fn is_about(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) < ABOUT
    }
}

impl Meters {
    /// Somebody of this flow asks; says whether it has much while somebody else is about.
    pub(super) fn ask(&mut self, flow: u64, now: Instant) -> bool {
        if self.flows.len() >= CROWD && !self.flows.contains_key(&flow) {
            self.flows.retain(|_, meter| meter.is_about(now));
        }
        let meter = self.flows.entry(flow).or_insert(Meter { used: 0.0, since: now, asked: now });
        *meter = Meter { used: meter.used(now) + OVERHEAD, since: now, asked: now };
        meter.used > MUCH * MEMORY
            && self.flows.iter().any(|(other, meter)| *other != flow && meter.is_about(now))
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
    fn a_crowd_is_who_has_much_while_another_is_about() {
        let start = Instant::now();
        let mut it = Meters::default();
        let mut now = start;
        for _ in 0..200 {
            now += MS;
            it.ask(1, now);
            it.charge(1, 0.0005, now);
        }
        assert!(!it.ask(1, now), "nobody else is there to notice");
        assert!(!it.ask(2, now), "who asks once is none");
        assert!(it.ask(1, now));
        assert!(!it.clone().ask(1, now + ABOUT), "the other has left");
        it.ask(2, now + ABOUT);
        assert!(!it.ask(1, now + ABOUT), "what it had is long ago");
    }

    #[test]
    fn who_left_is_forgotten() {
        let mut now = Instant::now();
        let mut it = Meters::default();
        for flow in 0..10 * CROWD as u64 {
            it.ask(flow, now);
            now += ABOUT / 10;
        }
        assert!(it.flows.len() <= CROWD, "{}", it.flows.len());
    }
}
