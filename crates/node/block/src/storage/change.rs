//! Waiting for something to change.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts what changes in a storage process.
#[derive(Debug, Default)]
pub(super) struct Changes {
    count: Mutex<u64>,
    came: Condvar,
}

impl Changes {
    pub(super) fn notify(&self) {
        *self.count() += 1;
        self.came.notify_all();
    }

    /// The number of changes so far: at once if there were some since `seen`, or else after the
    /// next one, but no later than `limit`.
    pub(super) fn wait(&self, seen: u64, limit: Duration) -> u64 {
        let waiting = self.came.wait_timeout_while(self.count(), limit, |count| *count == seen);
        *waiting.unwrap_or_else(PoisonError::into_inner).0
    }

    fn count(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ends_the_wait_and_is_not_missed_before_it() {
        let changes = Changes::default();
        changes.notify();
        assert_eq!(changes.wait(0, Duration::from_secs(60)), 1, "it was before the wait");
        assert_eq!(changes.wait(1, Duration::from_millis(1)), 1, "nothing came");
        std::thread::scope(|scope| {
            scope.spawn(|| changes.notify());
            assert_eq!(changes.wait(1, Duration::from_secs(60)), 2);
        });
    }
}
