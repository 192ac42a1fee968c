//! The node endpoint on the network: TLS with certificates on both sides. The TLS configuration
//! decides which peers may connect; renewed certificates are used from the next connection on. A
//! node that connects may only do what `endpoint::migration` allows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use super::{Endpoint, connection};
use crate::config::{EndpointPeer, EndpointWire};

/// More connections than this are not accepted at a time.
const MAX_CONNECTIONS: usize = 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// After a port was in use, or connections could not be accepted.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Serves until `stop`; streams that are open end with it.
pub(crate) async fn serve_remote(endpoint: Arc<Endpoint>, wire: EndpointWire, mut stop: Stop) {
    let listener = tokio::select! {
        listener = listen(wire.address) => listener,
        () = stop.requested() => return,
    };
    info!(address = %wire.address, "node endpoint serves the gateway");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, from)) => {
                    let tls = wire.tls.borrow().clone();
                    let Some(tls) = tls else {
                        debug!(%from, "node endpoint has no certificate yet");
                        continue;
                    };
                    let endpoint = Arc::clone(&endpoint);
                    let identify = wire.identify;
                    connections.spawn(async move {
                        let acceptor = TlsAcceptor::from(tls);
                        handshake(endpoint, acceptor, stream, (from, identify)).await;
                    });
                }
                Err(failure) => {
                    warn!(error = %Chain(&failure), "cannot accept a connection");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stop.requested() => return,
        }
    }
}

/// A server that was killed keeps its port for a moment.
async fn listen(address: SocketAddr) -> TcpListener {
    let mut is_told = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(failure) => {
                if !is_told {
                    is_told = true;
                    warn!(%address, error = %Chain(&failure), "node endpoint cannot listen yet");
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

async fn handshake(
    endpoint: Arc<Endpoint>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    (from, identify): (SocketAddr, fn(&CertificateDer<'_>) -> Option<EndpointPeer>),
) {
    let _ = stream.set_nodelay(true);
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates();
            match certificates.and_then(|all| all.first()).and_then(identify) {
                Some(peer) => connection(endpoint, peer, stream).await,
                None => warn!(%from, "connection is refused: its certificate names nobody"),
            }
        }
        Ok(Err(failure)) => warn!(%from, error = %Chain(&failure), "connection is refused"),
        Err(_) => debug!(%from, "handshake took too long"),
    }
}
