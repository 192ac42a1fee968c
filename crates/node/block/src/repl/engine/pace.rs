//! How fast members are, and how fast a rebuild may be.

use std::time::Duration;

use super::event::Time;

/// The latency of a member's answers, newer ones counting more.
#[derive(Debug, Default)]
pub(super) struct Latency {
    average: Duration,
    /// Since when it has been much slower than its peers.
    pub(super) slow_since: Option<Time>,
}

impl Latency {
    pub(super) fn add(&mut self, took: Duration) {
        self.average = match self.average.is_zero() {
            true => took,
            false => (self.average * 7 + took) / 8,
        };
    }

    pub(super) fn average(&self) -> Duration {
        self.average
    }
}

/// A bucket of bytes whose filling rate follows the guest's latency: it grows slowly while the
/// guest is well, fast once it has been silent for a while, and is halved when it suffers.
#[derive(Debug)]
pub(super) struct Throttle {
    slowest: u64,
    fastest: u64,
    limit: Duration,
    rate: u64,
    tokens: u64,
    filled: Time,
    /// The guest's requests since the rate was last set: how many, and how long together.
    seen: (u32, Duration),
    /// Ticks in a row without a request.
    silent: u32,
}

impl Throttle {
    pub(super) fn new((slowest, fastest): (u64, u64), limit: Duration) -> Self {
        let rate = fastest.min(slowest.saturating_mul(16));
        Self {
            slowest,
            fastest,
            limit,
            rate,
            tokens: rate / 10,
            filled: Time::ZERO,
            seen: (0, Duration::ZERO),
            silent: 0,
        }
    }

    pub(super) fn observe(&mut self, latency: Duration) {
        self.seen.0 += 1;
        self.seen.1 += latency;
    }

    /// Sets the rate for the time until the next tick.
    pub(super) fn tick(&mut self, now: Time) {
        let (count, total) = std::mem::take(&mut self.seen);
        let suffers = count > 0 && total / count > self.limit;
        self.silent = if count == 0 { self.silent.saturating_add(1) } else { 0 };
        self.rate = match (suffers, self.silent) {
            (true, _) => self.rate / 2,
            (false, 0) => self.rate + self.rate / 8,
            // A guest that asks for something now and then must not find more than it left.
            (false, 1) => self.rate.saturating_mul(2),
            // There is no guest that could be slowed down.
            (false, _) => self.rate.saturating_mul(8),
        };
        self.rate = self.rate.clamp(self.slowest, self.fastest);
        let passed = now.saturating_sub(self.filled).min(Duration::from_secs(1));
        self.filled = now;
        let fresh = u128::from(self.rate) * passed.as_micros() / 1_000_000;
        let room = self.rate / 4;
        self.tokens =
            (self.tokens + u64::try_from(fresh).unwrap_or(u64::MAX)).min(room.max(1 << 20));
    }

    /// Takes `bytes` out of the bucket, unless it is empty. An excess is owed.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        if self.tokens == 0 {
            return false;
        }
        self.tokens = self.tokens.saturating_sub(bytes);
        true
    }

    /// The bandwidth that the guest leaves to a rebuild now, in bytes per second.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_slows_down_while_the_guest_suffers() {
        let mut throttle = Throttle::new((1 << 20, 1 << 30), Duration::from_millis(10));
        let mut now = Time::ZERO;
        for _ in 0..20 {
            now += Duration::from_millis(100);
            throttle.observe(Duration::from_millis(50));
            throttle.tick(now);
        }
        assert_eq!(throttle.rate(), 1 << 20);
        for _ in 0..200 {
            now += Duration::from_millis(100);
            throttle.observe(Duration::from_millis(1));
            throttle.tick(now);
        }
        assert_eq!(throttle.rate(), 1 << 30);
    }

    #[test]
    fn a_rebuild_speeds_up_when_the_guest_falls_silent_and_not_when_it_pauses() {
        let suffering = || {
            let mut throttle = Throttle::new((1 << 20, 1 << 30), Duration::from_millis(10));
            for _ in 0..20 {
                throttle.observe(Duration::from_millis(50));
                throttle.tick(Time::ZERO);
            }
            throttle
        };
        let mut throttle = suffering();
        (0..5).for_each(|_| throttle.tick(Time::ZERO));
        assert_eq!(throttle.rate(), 1 << 30);
        let mut throttle = suffering();
        for _ in 0..5 {
            throttle.tick(Time::ZERO);
            throttle.observe(Duration::from_millis(50));
            throttle.tick(Time::ZERO);
        }
        assert_eq!(throttle.rate(), 1 << 20);
    }

    #[test]
    fn an_empty_bucket_fills_at_the_rate() {
        let mut throttle = Throttle::new((1 << 20, 1 << 20), Duration::from_millis(10));
        while throttle.take(64 << 10) {}
        throttle.tick(Duration::from_millis(500));
        let taken = std::iter::repeat_with(|| throttle.take(64 << 10)).take_while(|ok| *ok).count();
        assert_eq!(taken, 8);
    }
}
