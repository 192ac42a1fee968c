//! Keeps a process that led from writing after its term: one that was stopped for longer than the
//! lease goes on where it was, and learns only later that another leads.
//!
//! Each write checks the clock first. One gap is left: a stop between that check and the commit,
//! if it is longer than the time between giving up and the end of the lease; writes to objects
//! that the new leader has changed then fail on their resource version.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

use crate::in_process;

/// Until when a term is certain; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct TermFence(Arc<RwLock<Option<Instant>>>);

impl TermFence {
    pub(super) fn extend(&self, until: Instant) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    fn is_certain(&self) -> bool {
        let until = *self.0.read().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// A client that writes only while the term is certain.
    pub(super) fn guard(self, client: Client) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, fence) = (client.clone(), self.clone());
            async move {
                let reads = matches!(*request.method(), Method::GET | Method::HEAD);
                if reads || fence.is_certain() {
                    return client.send(request).await;
                }
                let over = io::Error::other("leadership is not certain; nothing was written");
                Err(kube::Error::Service(over.into()))
            }
        });
        in_process(service, |_| {})
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_end_with_the_term_and_reads_go_on() {
        let answer = |_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("ok"))))
        };
        let fence = TermFence::default();
        let client = fence.clone().guard(in_process(tower::service_fn(answer), |_| {}));
        let send = async |method: Method| {
            let request = Request::builder().method(method).uri("/").body(vec![]).unwrap();
            client.request_text(request).await.is_ok()
        };
        assert!(!send(Method::POST).await, "no term has begun");
        fence.extend(Instant::now() + Duration::from_secs(10));
        assert!(send(Method::POST).await && send(Method::PATCH).await);
        // The process was suspended, and does not know yet.
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(!send(Method::DELETE).await && send(Method::GET).await);
        fence.extend(Instant::now() + Duration::from_secs(10));
        assert!(send(Method::PUT).await);
    }
}
