//! When work that failed is tried again: after a pause that grows while the same work fails, and at
//! once when other work is wanted. Pure: callers give the time.
//!
//! Without it, every event of a watch would repeat the writes and the warnings of what fails.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Backoff;
use tokio::time::Instant;

/// The pieces of work of one kind that have failed, by key. `T` is what was wanted: another wish
/// under the same key is new work.
#[derive(Debug)]
pub(crate) struct Retries<K, T> {
    first: Duration,
    most: Duration,
    failed: BTreeMap<K, FailedWork<T>>,
}

#[derive(Debug)]
struct FailedWork<T> {
    wanted: T,
    backoff: Backoff,
    until: Instant,
}

impl<K: Ord, T: PartialEq> Retries<K, T> {
    /// Pauses double from `first` to `most`.
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, failed: BTreeMap::new() }
    }

    /// How long the work has to wait yet; nothing if it may be tried now.
    pub(crate) fn pause(&self, key: &K, wanted: &T, now: Instant) -> Option<Duration> {
        let failed = self.failed.get(key).filter(|failed| failed.wanted == *wanted)?;
        Some(failed.until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Notes a failure; returns the pause before the next attempt.
    pub(crate) fn fail(&mut self, key: K, wanted: T, now: Instant) -> Duration {
        let known = self.failed.remove(&key).filter(|failed| failed.wanted == wanted);
        let mut backoff =
            known.map_or_else(|| Backoff::new(self.first, self.most), |known| known.backoff);
        let pause = backoff.delay();
        self.failed.insert(key, FailedWork { wanted, backoff, until: now + pause });
        pause
    }

    /// Call after a success.
    pub(crate) fn succeed(&mut self, key: &K) {
        self.failed.remove(key);
    }

    /// Forgets the failures of work that is gone.
    pub(crate) fn retain(&mut self, is_there: impl Fn(&K) -> bool) {
        self.failed.retain(|key, _| is_there(key));
    }
}

/// The shorter of two pauses; nothing means none.
pub(crate) fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http::{Request, Response, StatusCode};
    use http_body_util::Full;
    use hyper::body::Bytes;
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;

    /// The attempts of a minute with pauses that double from one or two seconds.
    pub(crate) const MOST_ATTEMPTS: usize = 8;

    /// A client whose every request is refused, and the methods and paths of these requests.
    pub(crate) fn refusing(code: u16) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            log.lock().push(format!("{} {}", request.method(), request.uri().path()));
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
                "message": "refused by the test", "reason": "Refused", "code": code,
            });
            let mut response = Response::new(Full::new(Bytes::from(status.to_string())));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        (client::in_process(service, |_| {}), asked)
    }

    /// Calls `work` for a minute, whenever its pause has ended, and on other events every second.
    pub(crate) async fn a_minute_of(mut work: impl AsyncFnMut() -> Option<Duration>) {
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end {
            let pause = work().await;
            let event = Duration::from_secs(1);
            tokio::time::sleep(pause.map_or(event, |pause| pause.min(event))).await;
        }
    }

    #[test]
    fn pauses_grow_until_a_success_or_another_wish() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut retries = Retries::new(second, 4 * second);
        assert_eq!(retries.pause(&"a", &1, start), None);
        for expected in [1, 2, 4, 4] {
            assert_eq!(retries.fail("a", 1, start), expected * second);
        }
        assert_eq!(retries.pause(&"a", &1, start + second), Some(3 * second));
        assert_eq!(retries.pause(&"a", &1, start + 4 * second), None);
        // Other work is not held back by it.
        assert_eq!(retries.pause(&"a", &2, start), None);
        assert_eq!(retries.pause(&"b", &1, start), None);
        assert_eq!(retries.fail("a", 2, start), second);
        retries.succeed(&"a");
        assert_eq!(retries.pause(&"a", &2, start), None);
        assert_eq!(retries.fail("a", 2, start), second);
        retries.retain(|key| *key != "a");
        assert_eq!(retries.pause(&"a", &2, start), None);
        assert_eq!(sooner(None, Some(second)), Some(second));
        assert_eq!(sooner(Some(2 * second), Some(second)), Some(second));
    }
}
