//! The network side: accepting connections, TLS, HTTP/1.1 and HTTP/2, and ending well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::pki::tls::{PeerError, Tls};
use auth::revocation::ClientCertificate;
use base::{Tasks, clock};
use futures_util::FutureExt as _;
use http::header::{AUTHORIZATION, UPGRADE};
use http::{Request, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::access::identity::{NetworkPeer, Transport};
use crate::api::Api;
use crate::extension::SourceAddress;
use crate::http::activity::{ActiveBody, ConnectionActivity};
use crate::http::body::RequestBody;
use crate::http::connections::{ConnectionRefused, ConnectionSlot, CountedStream};
use crate::http::stream_credentials::{StreamCredentials, head_of};
use crate::http::websocket::Upgrade;

/// A client that does not finish its handshake or its headers by then is not worth waiting for.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same while the limits are reached and only clients with a certificate are kept.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// An idle connection that was asked to close is dropped after this time.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Refused connections are logged this often at most.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);
const STREAMS: u32 = 1000;

/// The kind of clients of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerClients {
    /// Programs. They may show a certificate.
    Programs,
    /// Browsers. They are not asked for a certificate, and `/` is the page at `home`.
    Browsers { home: &'static str },
}

/// Accepts connections of programs until asked to stop.
pub async fn serve(api: Api, listener: TcpListener, tls: Tls, tasks: Tasks) {
    accept(api, listener, tls, tasks, ListenerClients::Programs).await;
}

/// Accepts connections of browsers until asked to stop.
pub async fn serve_browsers(
    api: Api,
    listener: TcpListener,
    tls: Tls,
    tasks: Tasks,
    home: &'static str,
) {
    accept(api, listener, tls, tasks, ListenerClients::Browsers { home }).await;
}

async fn accept(api: Api, listener: TcpListener, tls: Tls, tasks: Tasks, clients: ListenerClients) {
    let mut stop = tasks.stop_signal();
    let http = Arc::new(http_server());
    let mut refusals = RefusalLog::default();
    loop {
        let (stream, from) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: let some close first.
                    warn!(error = %base::Chain(&error), "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop.requested() => return,
        };
        let slot = match api.connections.open(from.ip()) {
            Ok(slot) => Arc::new(slot),
            Err(refused) => {
                refusals.note(from, &refused);
                continue;
            }
        };
        let connection = Connection {
            api: api.clone(),
            // Protocols and ciphers may have changed since the last one.
            acceptor: TlsAcceptor::from(match clients {
                ListenerClients::Programs => tls.config(),
                ListenerClients::Browsers { .. } => tls.browser_config(),
            }),
            tls: tls.clone(),
            http: http.clone(),
            stop: tasks.stop_signal(),
            slot,
            clients,
        };
        tokio::spawn(connection.run(stream, from));
    }
}

/// Logs refused connections without letting their sender fill the log.
#[derive(Debug, Default)]
struct RefusalLog {
    last: Option<Instant>,
    unlogged: u64,
}

impl RefusalLog {
    fn note(&mut self, from: SocketAddr, refused: &ConnectionRefused) {
        self.unlogged += 1;
        if self.last.is_some_and(|last| last.elapsed() < REFUSAL_LOG_INTERVAL) {
            return;
        }
        warn!(%from, count = self.unlogged, error = %refused, "connection refused");
        *self = Self { last: Some(Instant::now()), unlogged: 0 };
    }
}

fn http_server() -> auto::Builder<TokioExecutor> {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE_TIMEOUT)
        .max_buf_size(256 * 1024);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_header_list_size(128 * 1024)
        .initial_stream_window_size(256 * 1024)
        .initial_connection_window_size(1024 * 1024);
    http
}

struct Connection {
    api: Api,
    acceptor: TlsAcceptor,
    tls: Tls,
    http: Arc<auto::Builder<TokioExecutor>>,
    stop: base::Stop,
    slot: Arc<ConnectionSlot>,
    clients: ListenerClients,
}

impl Connection {
    async fn run(mut self, stream: TcpStream, from: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let Some(stream) = self.shake_hands(stream, from).await else { return };
        let peer = self.peer(&stream);
        if let Err(refused) = self.slot.shake_hands(peer.is_some()) {
            debug!(%from, error = %refused, "connection refused");
            return;
        }
        let certificate = peer.as_ref().map(|peer| peer.certificate.clone());
        let revoked = certificate.and_then(|own| self.api.authenticator.until_revoked(own));
        let transport = Arc::new(Transport::Network(peer));
        let activity = ConnectionActivity::new();
        let credentials = StreamCredentials::default();
        let ended = credentials.ended();
        let over = match revoked {
            None => ended,
            Some(revoked) => futures_util::future::select(revoked, ended).map(drop).boxed(),
        };
        let stream = CountedStream::new(stream, self.slot.clone(), Some(over));
        let shared = Arc::new((self.api.clone(), transport, self.slot.clone(), credentials));
        let (requests, clients) = (activity.clone(), self.clients);
        let service = service_fn(move |request: Request<Incoming>| {
            let (shared, active) = (shared.clone(), requests.begin());
            async move {
                let (api, transport, slot, credentials) = &*shared;
                let has_token = request.headers().contains_key(AUTHORIZATION);
                let head = request.headers().contains_key(UPGRADE).then(|| head_of(&request));
                let reply = api.handle(received(request, from, clients), transport).await;
                if let Some(head) =
                    head.filter(|_| reply.status() == StatusCode::SWITCHING_PROTOCOLS)
                {
                    credentials.check(api, transport, head);
                }
                // Other than anonymous requests, these are refused if the token is not good.
                if has_token && reply.status().is_success() {
                    slot.identify();
                }
                Ok::<_, std::convert::Infallible>(reply.map(|body| ActiveBody::new(body, active)))
            }
        });
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let idle_timeout = self.api.connections.idle_timeout();
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = activity.idle(idle_timeout) => {
                debug!(%from, "closing an idle connection");
                connection.as_mut().graceful_shutdown();
                close(connection, &activity, &mut self.stop).await;
                return;
            }
            () = self.stop.requested() => {
                connection.as_mut().graceful_shutdown();
                // Answers in progress may finish; the process ends soon after anyway.
                let _ = tokio::time::timeout(Duration::from_secs(1), connection).await;
                return;
            }
        };
        if let Err(error) = outcome {
            debug!(%from, error = %error, "connection ended early");
        }
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
        let timeout = if self.slot.is_probe() { PROBE_TIMEOUT } else { HANDSHAKE_TIMEOUT };
        match tokio::time::timeout(timeout, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                debug!(%from, error = %base::Chain(&error), "TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }

    fn peer(&self, stream: &tokio_rustls::server::TlsStream<TcpStream>) -> Option<NetworkPeer> {
        let chain = stream.get_ref().1.peer_certificates()?;
        let peer = self.tls.peer(chain, clock::now()).and_then(|peer| {
            Ok(NetworkPeer { peer, certificate: ClientCertificate::of(&chain[0])? })
        });
        let failed = |error: PeerError| {
            debug!(error = %base::Chain(&error), "client certificate names no user");
        };
        peer.map_err(failed).ok()
    }
}

/// A request as its handler needs it: with the address of its client, and with the connection if it
/// asks for another protocol.
fn received(
    mut request: Request<Incoming>,
    from: SocketAddr,
    clients: ListenerClients,
) -> Request<RequestBody> {
    if request.headers().contains_key(http::header::UPGRADE) {
        let upgrade = hyper::upgrade::on(&mut request);
        request.extensions_mut().insert(Upgrade::new(upgrade));
    }
    if let ListenerClients::Browsers { home } = clients
        && request.uri().path() == "/"
    {
        *request.uri_mut() = Uri::from_static(home);
    }
    request.extensions_mut().insert(SourceAddress(from));
    request.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// Waits until a connection has closed; one that does nothing is not waited for.
async fn close(
    mut connection: std::pin::Pin<&mut impl Future>,
    activity: &ConnectionActivity,
    stop: &mut base::Stop,
) {
    tokio::select! {
        _ = connection.as_mut() => {}
        () = activity.idle(CLOSE_TIMEOUT) => {}
        () = stop.requested() => {}
    }
}
