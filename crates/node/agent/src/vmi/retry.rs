//! When a step that failed is tried again: later after each failure, and at once when something
//! that it may wait for has changed.

use std::time::Duration;

use base::Backoff;
use tokio::time::Instant;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(5);

pub(super) struct Retry {
    backoff: Backoff,
    /// Before this, the step is not tried again.
    at: Option<Instant>,
}

impl Default for Retry {
    fn default() -> Self {
        Self { backoff: Backoff::new(FIRST_RETRY, LAST_RETRY), at: None }
    }
}

impl Retry {
    /// The time of the next attempt after a failure.
    pub(super) fn later(&mut self) -> Instant {
        let at = Instant::now() + self.backoff.delay();
        self.at = Some(at);
        at
    }

    /// A pause before the next attempt, for those who wait here.
    pub(super) fn pause(&mut self) -> Duration {
        self.backoff.delay()
    }

    /// The next attempt may be now, since something has changed; another failure waits longer still.
    pub(super) fn now(&mut self) {
        self.at = None;
    }

    pub(super) fn succeeded(&mut self) {
        self.backoff.reset();
        self.at = None;
    }

    /// The time of the next attempt, if it is not yet.
    pub(super) fn not_before(&self) -> Option<Instant> {
        self.at.filter(|at| Instant::now() < *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_until_one_succeeds() {
        let mut retry = Retry::default();
        assert_eq!(retry.not_before(), None);
        let first = retry.later();
        assert_eq!(retry.not_before(), Some(first));
        tokio::time::sleep_until(first).await;
        assert_eq!(retry.not_before(), None);
        for _ in 0..9 {
            retry.later();
        }
        assert!(retry.later() - Instant::now() > LAST_RETRY / 2);
        retry.now();
        assert_eq!(retry.not_before(), None);
        retry.succeeded();
        assert!(retry.later() - Instant::now() <= FIRST_RETRY * 2);
    }
}
