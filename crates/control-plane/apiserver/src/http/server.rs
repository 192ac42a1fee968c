//! The network side: accepting connections, TLS, HTTP/1.1 and HTTP/2, and ending well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use auth::pki::tls::{Peer, Tls};
use base::{Tasks, clock};
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use crate::access::identity::Transport;
use crate::api::Api;
use crate::extension::SourceAddress;
use crate::http::websocket::Upgrade;

/// A client that does not finish its handshake or its headers by then is not worth waiting for.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections at once; beyond that they wait in the kernel's queue.
const CONNECTIONS: usize = 8192;
const STREAMS: u32 = 1000;

/// Accepts connections until asked to stop.
pub async fn serve(api: Api, listener: TcpListener, tls: Tls, tasks: Tasks) {
    let acceptor = TlsAcceptor::from(tls.config());
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut stop = tasks.stop_signal();
    let http = Arc::new(http_server());
    loop {
        let place = tokio::select! {
            place = places.clone().acquire_owned() => place,
            () = stop.requested() => return,
        };
        let Ok(place) = place else { return };
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
        let connection = Connection {
            api: api.clone(),
            acceptor: acceptor.clone(),
            tls: tls.clone(),
            http: http.clone(),
            stop: tasks.stop_signal(),
        };
        tokio::spawn(async move {
            connection.run(stream, from).await;
            drop(place);
        });
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
}

impl Connection {
    async fn run(mut self, stream: TcpStream, from: SocketAddr) {
        let _ = stream.set_nodelay(true);
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await;
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                debug!(%from, error = %base::Chain(&error), "TLS handshake failed");
                return;
            }
            Err(_) => return,
        };
        let transport = Arc::new(Transport::Network(self.peer(&stream)));
        let api = self.api.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (api, transport) = (api.clone(), transport.clone());
            async move {
                if request.headers().contains_key(http::header::UPGRADE) {
                    let upgrade = hyper::upgrade::on(&mut request);
                    request.extensions_mut().insert(Upgrade::new(upgrade));
                }
                request.extensions_mut().insert(SourceAddress(from));
                let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
                Ok::<_, std::convert::Infallible>(api.handle(request, &transport).await)
            }
        });
        let connection = self.http.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
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

    fn peer(&self, stream: &tokio_rustls::server::TlsStream<TcpStream>) -> Option<Peer> {
        let chain = stream.get_ref().1.peer_certificates()?;
        match self.tls.peer(chain, clock::now()) {
            Ok(peer) => Some(peer),
            Err(error) => {
                debug!(error = %base::Chain(&error), "client certificate names nobody");
                None
            }
        }
    }
}
