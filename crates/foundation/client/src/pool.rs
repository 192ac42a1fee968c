//! A client of one of several servers, which can be replaced while it is used: when credentials
//! are renewed, and when a server cannot be reached.

use std::sync::{Arc, PoisonError, RwLock};

use http::Request;
use kube::Client;
use kube::client::Body;
use tracing::info;

use crate::in_process;

/// The servers of a cluster. All requests go to one until it cannot be reached.
#[derive(Clone)]
pub struct ServerPool(Arc<RwLock<PoolState>>);

struct PoolState {
    servers: Vec<Client>,
    active: usize,
    /// Grows with every change, so that one failure is counted once.
    changes: u64,
}

impl std::fmt::Debug for ServerPool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ServerPool").finish_non_exhaustive()
    }
}

impl ServerPool {
    /// `first` is used first; the others when it cannot be reached.
    pub fn new(first: Client, others: Vec<Client>) -> Self {
        let servers = std::iter::once(first).chain(others).collect();
        Self(Arc::new(RwLock::new(PoolState { servers, active: 0, changes: 0 })))
    }

    /// Uses these from now on, the one that is used now first.
    pub fn replace(&self, first: Client, others: Vec<Client>) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.servers = std::iter::once(first).chain(others).collect();
        state.active %= state.servers.len();
        state.changes += 1;
    }

    /// A client that goes wherever the pool says at the time of each request.
    pub fn client(&self) -> Client {
        let pool = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let pool = pool.clone();
            async move { pool.send(request).await }
        });
        in_process(service, |_| {})
    }

    async fn send(&self, request: Request<Body>) -> kube::Result<http::Response<Body>> {
        let (client, seen) = self.current();
        let answer = client.send(request).await;
        if answer.is_err() {
            self.give_up(seen);
        }
        answer
    }

    fn current(&self) -> (Client, u64) {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (state.servers[state.active].clone(), state.changes)
    }

    /// Turns to the next server, unless somebody has done so since `seen`.
    fn give_up(&self, seen: u64) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if state.changes != seen || state.servers.len() < 2 {
            return;
        }
        state.active = (state.active + 1) % state.servers.len();
        state.changes += 1;
        info!(server = state.active, "turning to another API server");
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;

    use super::*;

    fn server(name: &'static str) -> Client {
        let answer = move |_: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(name))))
        };
        in_process(tower::service_fn(answer), |_| {})
    }

    fn dead() -> Client {
        let refuse = |_: Request<Body>| async {
            Err::<Response<Full<Bytes>>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        };
        in_process(tower::service_fn(refuse), |_| {})
    }

    async fn ask(client: &Client) -> Option<String> {
        client.request_text(Request::get("/").body(vec![]).unwrap()).await.ok()
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_left_for_the_next() {
        let pool = ServerPool::new(dead(), vec![server("two")]);
        let client = pool.client();
        assert_eq!(ask(&client).await, None);
        assert_eq!(ask(&client).await.as_deref(), Some("two"));
        assert_eq!(ask(&client).await.as_deref(), Some("two"));
        pool.replace(server("three"), vec![]);
        assert_eq!(ask(&client).await.as_deref(), Some("three"));
    }

    #[tokio::test]
    async fn one_server_is_asked_again() {
        let pool = ServerPool::new(dead(), vec![]);
        let client = pool.client();
        assert_eq!(ask(&client).await, None);
        pool.replace(server("one"), vec![]);
        assert_eq!(ask(&client).await.as_deref(), Some("one"));
    }
}
