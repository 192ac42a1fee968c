//! Counting requests and bounding how many run at once.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::api::Api;
use crate::status::{ApiError, ApiResult};

/// Upstream's defaults for reading and writing requests in flight.
const READS: usize = 400;
const WRITES: usize = 200;

#[derive(Debug)]
pub(crate) struct Traffic {
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    requests: AtomicU64,
    failures: AtomicU64,
    watches: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            reads: Arc::new(Semaphore::new(READS)),
            writes: Arc::new(Semaphore::new(WRITES)),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            watches: AtomicU64::new(0),
        }
    }
}

impl Traffic {
    /// A place for one request; waits in line rather than refusing, up to a bound.
    pub(crate) async fn enter(&self, method: &Method) -> ApiResult<OwnedSemaphorePermit> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let line = if reads { &self.reads } else { &self.writes };
        let wait = std::time::Duration::from_secs(15);
        match tokio::time::timeout(wait, line.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(ApiError::too_many_requests(
                "too many requests are being served, please try again later",
            )),
        }
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watching(&self) {
        self.watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn render(&self, api: &Api) -> String {
        let mut text = String::new();
        let mut line = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        line("sheaf_requests_total", "counter", "Requests received.", count(&self.requests));
        line(
            "sheaf_request_failures_total",
            "counter",
            "Requests refused or failed.",
            count(&self.failures),
        );
        line("sheaf_watches_total", "counter", "Watches opened.", count(&self.watches));
        line("sheaf_store_revision", "gauge", "Newest revision.", api.store.revision().get());
        let catalog = api.catalog.load();
        line("sheaf_served_kinds", "gauge", "Kinds served.", catalog.all().len() as u64);
        text
    }
}
