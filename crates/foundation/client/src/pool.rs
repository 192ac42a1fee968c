//! A client of one of several servers, which can be replaced while it is used: when credentials
//! are renewed, and when a server cannot be reached.
//!
//! A watch over a network that was cut may stay open for minutes without a server at its other
//! end. So all pending requests, and all responses that are still being read, end when a server
//! answers again after a request had failed or was given up; watchers then reconnect. Requests that
//! were sent after the failure go on. A connection on which nothing is answered is replaced.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base::Chain;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use kube::client::Body;
use kube::{Client, Config};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::BoxError;
use tracing::{info, warn};

use crate::in_process;

/// A request that was given up after so long was not answered because no server could be reached.
const STALL: Duration = Duration::from_secs(2);

/// The body of a server's response.
type PoolBody = UnsyncBoxBody<Bytes, BoxError>;

/// The servers of a cluster. All requests go to one until it cannot be reached.
#[derive(Clone)]
pub struct ServerPool(Arc<RwLock<PoolState>>, Arc<Reachability>);

/// A client of one server, and how to make another with connections of its own.
#[derive(Clone)]
pub struct PoolServer {
    client: Client,
    connect: Arc<dyn Fn() -> kube::Result<Client> + Send + Sync>,
}

impl std::fmt::Debug for PoolServer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PoolServer").finish_non_exhaustive()
    }
}

impl PoolServer {
    pub fn new(config: Config) -> kube::Result<Self> {
        Self::made_by(move || Client::try_from(config.clone()))
    }

    fn made_by(
        connect: impl Fn() -> kube::Result<Client> + Send + Sync + 'static,
    ) -> kube::Result<Self> {
        Ok(Self { client: connect()?, connect: Arc::new(connect) })
    }
}

/// Counts the changes of a pool: a request belongs to the one at which it was sent.
type Generation = u64;

/// Whether servers answered lately.
struct Reachability {
    /// A request failed or was given up since the last answer.
    is_doubtful: AtomicBool,
    /// Ends pending requests, and what is still being read, of earlier generations.
    cut: watch::Sender<Generation>,
    last_answer: RwLock<Instant>,
}

/// Notes that a request was given up, if it is dropped before it was answered.
struct PendingRequest<'a> {
    pool: &'a ServerPool,
    generation: Generation,
    began: Instant,
    is_over: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        if !self.is_over && self.began.elapsed() >= STALL {
            self.pool.stalled(self.generation, self.began);
        }
    }
}

struct PoolState {
    servers: Vec<PoolServer>,
    active: usize,
    /// One failure is counted once.
    generation: Generation,
}

impl std::fmt::Debug for ServerPool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ServerPool").finish_non_exhaustive()
    }
}

impl ServerPool {
    /// `first` is used first; the others when it cannot be reached.
    pub fn new(first: PoolServer, others: Vec<PoolServer>) -> Self {
        let servers = std::iter::once(first).chain(others).collect();
        let state = RwLock::new(PoolState { servers, active: 0, generation: 0 });
        let reachability = Reachability {
            is_doubtful: AtomicBool::default(),
            cut: watch::Sender::default(),
            last_answer: RwLock::new(Instant::now()),
        };
        Self(Arc::new(state), Arc::new(reachability))
    }

    /// Uses these from now on, the one that is used now first.
    pub fn replace(&self, first: PoolServer, others: Vec<PoolServer>) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.servers = std::iter::once(first).chain(others).collect();
        state.active %= state.servers.len();
        state.generation += 1;
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
        let (client, generation) = self.current();
        let began = Instant::now();
        let mut pending = PendingRequest { pool: self, generation, began, is_over: false };
        let answer = tokio::select! {
            answer = client.send(request) => answer,
            // Its connection is from before, and may lead nowhere.
            () = self.cut_after(generation) => {
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
            self.turn_to_next(generation);
        }
        match &answer {
            Err(_) => self.failed(generation),
            Ok(_) => self.answered(generation),
        }
        answer.map(|answer| answer.map(|body| self.interruptible(body, generation)))
    }

    /// A body that ends when servers answer again after they did not.
    fn interruptible(&self, body: Body, generation: Generation) -> PoolBody {
        let pool = self.clone();
        let cut = Box::pin(async move { pool.cut_after(generation).await });
        let body = StreamBody::new(BodyStream::new(body).take_until(cut));
        body.map_err(BoxError::from).boxed_unsync()
    }

    /// Resolves when a server has answered after a failure that was later than `generation`.
    async fn cut_after(&self, generation: Generation) {
        let mut cut = self.1.cut.subscribe();
        // The sender lives as long as this pool.
        let _ = cut.wait_for(|latest| *latest > generation).await;
    }

    fn current(&self) -> (Client, Generation) {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (state.servers[state.active].client.clone(), state.generation)
    }

    fn answered(&self, generation: Generation) {
        *self.1.last_answer.write().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let is_current = self.current().1 == generation;
        if is_current && self.1.is_doubtful.swap(false, Ordering::Relaxed) {
            info!("API server answers again; watches begin anew");
            self.1.cut.send_replace(generation);
        }
    }

    fn failed(&self, generation: Generation) {
        self.1.is_doubtful.store(true, Ordering::Relaxed);
        if !self.turn_to_next(generation) {
            self.change(generation, |_| {});
        }
    }

    /// A request of `generation` was given up. If nothing was answered since it began, its
    /// connection may lead nowhere, and the next request opens another.
    fn stalled(&self, generation: Generation, began: Instant) {
        self.1.is_doubtful.store(true, Ordering::Relaxed);
        let last_answer = *self.1.last_answer.read().unwrap_or_else(PoisonError::into_inner);
        let is_silent = last_answer < began;
        self.change(generation, |state| {
            let server = &mut state.servers[state.active];
            // A client starts a task.
            if !is_silent || tokio::runtime::Handle::try_current().is_err() {
                return;
            }
            match (server.connect)() {
                Ok(client) => {
                    info!("API server does not answer; connecting to it anew");
                    server.client = client;
                }
                Err(failure) => warn!(error = %Chain(&failure), "cannot connect to the server"),
            }
        });
    }

    /// Turns to the next server, unless another request has done so since `generation`. Whether
    /// there is another.
    fn turn_to_next(&self, generation: Generation) -> bool {
        let mut has_other = false;
        self.change(generation, |state| {
            has_other = state.servers.len() > 1;
            if has_other {
                state.active = (state.active + 1) % state.servers.len();
                info!(server = state.active, "turning to another API server");
            }
        });
        has_other
    }

    /// Applies a change and begins a generation, unless one has begun since `generation`.
    fn change(&self, generation: Generation, apply: impl FnOnce(&mut PoolState)) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if state.generation == generation {
            apply(&mut state);
            state.generation += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;

    use super::*;

    fn fixed(client: Client) -> PoolServer {
        PoolServer::made_by(move || Ok(client.clone())).unwrap()
    }

    fn answering(name: &'static str) -> Client {
        let answer = move |_: Request<Body>| async move {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(name))))
        };
        in_process(tower::service_fn(answer), |_| {})
    }

    fn server(name: &'static str) -> PoolServer {
        fixed(answering(name))
    }

    fn dead() -> PoolServer {
        let refuse = |_: Request<Body>| async {
            Err::<Response<Full<Bytes>>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        };
        fixed(in_process(tower::service_fn(refuse), |_| {}))
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
        let client = ServerPool::new(fixed(unavailable), vec![server("two")]).client();
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
        let pool = ServerPool::new(fixed(in_process(tower::service_fn(answer), |_| {})), vec![]);
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

    #[tokio::test(start_paused = true)]
    async fn a_connection_on_which_nothing_is_answered_is_replaced() {
        let connections = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = Arc::clone(&connections);
        let hang = |_: Request<Body>| std::future::pending::<io::Result<Response<Full<Bytes>>>>();
        let connect = move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(in_process(tower::service_fn(hang), |_| {})),
            _ => Ok(answering("ok")),
        };
        let pool = ServerPool::new(PoolServer::made_by(connect).unwrap(), vec![]);
        let client = pool.client();
        let waiting = tokio::spawn({
            let client = client.clone();
            async move { ask(&client).await }
        });
        // Soon enough that the server may only be slow.
        let _ = tokio::time::timeout(Duration::from_secs(1), ask(&client)).await;
        assert_eq!(connections.load(Ordering::Relaxed), 1);
        let _ = tokio::time::timeout(Duration::from_secs(3), ask(&client)).await;
        assert_eq!(ask(&client).await.as_deref(), Some("ok"));
        assert_eq!(connections.load(Ordering::Relaxed), 2);
        assert_eq!(waiting.await.unwrap(), None, "what was sent before ends as well");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_were_sent_after_a_failure_go_on() {
        let (release, held) = watch::channel(false);
        let answer = move |request: Request<Body>| {
            let mut held = held.clone();
            async move {
                match request.uri().path() {
                    "/fail" => return Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                    "/slow" => drop(held.wait_for(|released| *released).await),
                    _ => {}
                }
                Ok(Response::new(Full::new(Bytes::from("ok"))))
            }
        };
        let pool = ServerPool::new(fixed(in_process(tower::service_fn(answer), |_| {})), vec![]);
        let send = |path: &'static str| {
            let pool = pool.clone();
            async move { pool.send(Request::get(path).body(Body::empty()).unwrap()).await.is_ok() }
        };
        let before = tokio::spawn(send("/slow"));
        tokio::task::yield_now().await;
        assert!(!send("/fail").await);
        let after = tokio::spawn(send("/slow"));
        tokio::task::yield_now().await;
        assert!(send("/").await);
        assert!(!before.await.unwrap(), "it was sent before the failure");
        release.send_replace(true);
        assert!(after.await.unwrap());
    }
}
