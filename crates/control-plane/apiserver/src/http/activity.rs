//! Requests in progress on one connection, and the time since the last one ended. An idle
//! connection costs memory and a slot, so it is closed after a while; a watch is no idle time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use crate::http::respond::Body;

#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    started: Instant,
    active: AtomicU32,
    /// Milliseconds from the start to the end of the last request.
    last_end: AtomicU64,
}

impl ConnectionActivity {
    pub(crate) fn new() -> Arc<Self> {
        let (active, last_end) = Default::default();
        Arc::new(Self { started: Instant::now(), active, last_end })
    }

    /// Counts a request until what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.active.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(Arc::clone(self))
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Completes when there was no request for `timeout`.
    pub(crate) async fn idle(&self, timeout: Duration) {
        let mut wait = timeout;
        while !wait.is_zero() {
            tokio::time::sleep(wait).await;
            wait = if self.is_active() {
                timeout
            } else {
                let last_end = Duration::from_millis(self.last_end.load(Ordering::Relaxed));
                timeout.saturating_sub(self.started.elapsed().saturating_sub(last_end))
            };
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<ConnectionActivity>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let elapsed = u64::try_from(self.0.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_end.store(elapsed, Ordering::Relaxed);
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a response; the request is in progress until it ends.
#[derive(Debug)]
pub(crate) struct ActiveBody {
    body: Body,
    _request: ActiveRequest,
}

impl ActiveBody {
    pub(crate) fn new(body: Body, request: ActiveRequest) -> Self {
        Self { body, _request: request }
    }
}

impl HttpBody for ActiveBody {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_its_last_request_has_ended() {
        let activity = ConnectionActivity::new();
        let start = Instant::now();
        let timeout = Duration::from_secs(10);
        let request = activity.begin();
        let watching = Arc::clone(&activity);
        let idle = tokio::spawn(async move { watching.idle(timeout).await });
        tokio::time::sleep(Duration::from_secs(35)).await;
        assert!(!idle.is_finished(), "a request is in progress");
        drop(request);
        idle.await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(45));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_any_request_is_idle() {
        let start = Instant::now();
        ConnectionActivity::new().idle(Duration::from_secs(10)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(10));
    }
}
