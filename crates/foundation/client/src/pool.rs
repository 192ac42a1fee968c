//! A client of one of several servers, which can be replaced while it is used: when credentials
//! are renewed, and when a server cannot be reached.
//!
//! A watch over a network that was cut may stay open for minutes without a server at its other
//! end. So all pending requests, and all responses that are still being read, end when a server
//! answers again after a request had failed or was given up; watchers then reconnect.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;
use tower::BoxError;
use tracing::info;

use crate::in_process;

/// A request that was given up after so long was not answered because no server could be reached.
const STALL: Duration = Duration::from_secs(2);

/// The body of a server's response.
type PoolBody = UnsyncBoxBody<Bytes, BoxError>;

/// The servers of a cluster. All requests go to one until it cannot be reached.
#[derive(Clone)]
pub struct ServerPool(Arc<RwLock<PoolState>>, Arc<Reachability>);

/// Whether servers answered lately.
#[derive(Default)]
struct Reachability {
    /// A request failed or was given up since the last answer.
    is_doubtful: AtomicBool,
    /// Ends what is still being read.
    cut: watch::Sender<()>,
}

/// Notes that a request was given up, if it is dropped before it was answered.
struct PendingRequest<'a> {
    reachability: &'a Reachability,
    began: Instant,
    is_over: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.began.elapsed() >= STALL {
            self.reachability.is_doubtful.store(true, Ordering::Relaxed);
        }
    }
}

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
        let state = RwLock::new(PoolState { servers, active: 0, changes: 0 });
        Self(Arc::new(state), Arc::default())
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

    async fn send(&self, request: Request<Body>) -> kube::Result<Response<PoolBody>> {
        let (client, seen) = self.current();
        let reachability = &*self.1;
        let began = Instant::now();
        let mut pending = PendingRequest { reachability, began, is_over: false };
        let mut cut = reachability.cut.subscribe();
        let answer = tokio::select! {
            answer = client.send(request) => answer,
            // Its connection is from before, and may lead nowhere.
            Ok(()) = cut.changed() => {
                pending.is_over = true;
                let broken = io::Error::from(io::ErrorKind::ConnectionAborted);
                return Err(kube::Error::Service(broken.into()));
            }
        };
        pending.is_over = true;
        let is_unavailable =
            |answer: &Response<Body>| answer.status() == StatusCode::SERVICE_UNAVAILABLE;
        if answer.as_ref().is_ok_and(is_unavailable) {
            // It answers, and cannot serve: its store may be cut off while that of another is not.
            self.give_up(seen);
        }
        if answer.is_err() {
            reachability.is_doubtful.store(true, Ordering::Relaxed);
            self.give_up(seen);
        } else if reachability.is_doubtful.swap(false, Ordering::Relaxed) {
            info!("API server answers again; watches begin anew");
            reachability.cut.send_replace(());
        }
        answer.map(|answer| answer.map(|body| self.interruptible(body)))
    }

    /// A body that ends when servers answer again after they did not.
    fn interruptible(&self, body: Body) -> PoolBody {
        let mut cut = self.1.cut.subscribe();
        let cut = Box::pin(async move {
            if cut.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        let body = StreamBody::new(BodyStream::new(body).take_until(cut));
        body.map_err(BoxError::from).boxed_unsync()
    }

    fn current(&self) -> (Client, u64) {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (state.servers[state.active].clone(), state.changes)
    }

    /// Turns to the next server, unless another request has done so since `seen`.
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
    async fn a_server_that_cannot_serve_is_left_for_the_next() {
        let refuse = |_: Request<Body>| async {
            let mut answer = Response::new(Full::new(Bytes::new()));
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Ok::<_, Infallible>(answer)
        };
        let unavailable = in_process(tower::service_fn(refuse), |_| {});
        let client = ServerPool::new(unavailable, vec![server("two")]).client();
        assert_eq!(ask(&client).await, None);
        assert_eq!(ask(&client).await.as_deref(), Some("two"));
    }

    #[tokio::test(start_paused = true)]
    async fn open_reads_end_when_a_server_answers_again() {
        let answer = |request: Request<Body>| async move {
            match request.uri().path() {
                "/watch" => {
                    let endless = futures_util::stream::pending::<
                        Result<http_body::Frame<Bytes>, Infallible>,
                    >();
                    Ok::<_, io::Error>(Response::new(StreamBody::new(endless).boxed_unsync()))
                }
                "/hang" => std::future::pending().await,
                "/fail" => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                _ => Ok(Response::new(Full::new(Bytes::from("ok")).boxed_unsync())),
            }
        };
        let pool = ServerPool::new(in_process(tower::service_fn(answer), |_| {}), vec![]);
        let send = |path: &str| pool.send(Request::get(path).body(Body::empty()).unwrap());
        let ends = async |watch: Response<PoolBody>| {
            let read = watch.into_body().collect();
            tokio::time::timeout(Duration::from_secs(60), read).await.is_ok()
        };
        for trouble in ["/hang", "/fail"] {
            let (calm, watch) = (send("/watch").await.unwrap(), send("/watch").await.unwrap());
            send("/").await.unwrap();
            assert!(!ends(calm).await, "nothing happened");
            let _ = tokio::time::timeout(Duration::from_secs(3), send(trouble)).await;
            send("/").await.unwrap();
            assert!(ends(watch).await, "{trouble}");
        }
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
