//! Waiting longer after each failure, up to a limit.

use std::time::Duration;

/// Doubling delays from `first` to `most`. Not async and clock-free: it only says how long.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// How long to wait now; the next answer will be twice as long.
    pub fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(self.most);
        delay
    }

    /// Call after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_the_limit_and_starts_over() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        let delays: Vec<u128> = (0..4).map(|_| backoff.delay().as_millis()).collect();
        assert_eq!(delays, [100, 200, 300, 300]);
        backoff.reset();
        assert_eq!(backoff.delay().as_millis(), 100);
    }
}
