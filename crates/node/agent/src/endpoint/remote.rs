//! The node endpoint on the network: TLS with certificates on both sides. The TLS configuration
//! decides which peers may connect; renewed certificates are used from the next connection on. A
//! node that connects may only do what `endpoint::migration` allows.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{debug, info, warn};

use super::connections::{ConnectionRefused, ConnectionTable};
use super::{Endpoint, FurtherListener, RequestGate, connection};
use crate::config::{EndpointPeer, EndpointWire};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// After a port was in use, or connections could not be accepted.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Refused connections are logged this often at most.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Serves until `stop`; streams that are open end with it.
pub(crate) async fn serve_remote(
    endpoint: Arc<Endpoint>,
    wire: EndpointWire,
    (gate, mut further): (RequestGate, FurtherListener),
    mut stop: Stop,
) {
    let gate = Arc::new(gate);
    let listener = tokio::select! {
        listener = listen(wire.address) => listener,
        () = stop.requested() => return,
    };
    info!(address = %wire.address, "node endpoint serves the gateway");
    let mut connections = JoinSet::new();
    let (table, refusals) = (ConnectionTable::default(), RefusalLog::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            accepted = further.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.requested() => return,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot accept a connection");
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
        };
        let tls = wire.tls.borrow().clone();
        let Some(tls) = tls else {
            debug!(%from, "node endpoint has no certificate yet");
            continue;
        };
        let mut slot = match table.open(from.ip()) {
            Ok(slot) => slot,
            Err(refused) => {
                refusals.note(from, &refused);
                continue;
            }
        };
        let (endpoint, refusals) = (Arc::clone(&endpoint), refusals.clone());
        let (identify, gate) = (wire.identify, Arc::clone(&gate));
        connections.spawn(async move {
            let acceptor = TlsAcceptor::from(tls);
            let peer = handshake(acceptor, stream, (from, identify));
            let Some((peer, stream)) = peer.await else { return };
            match slot.identify(&peer) {
                Ok(()) => connection(endpoint, peer, Some(gate), stream).await,
                Err(refused) => refusals.note(from, &refused),
            }
        });
    }
}

/// Refused connections since the last line of the log; clones are the same.
#[derive(Debug, Clone, Default)]
struct RefusalLog(Arc<Mutex<RefusalCounts>>);

#[derive(Debug, Default)]
struct RefusalCounts {
    last: Option<Instant>,
    unlogged: u64,
}

impl RefusalLog {
    fn note(&self, from: SocketAddr, refused: &ConnectionRefused) {
        let mut counts = self.0.lock();
        counts.unlogged += 1;
        if counts.last.is_some_and(|last| last.elapsed() < REFUSAL_LOG_INTERVAL) {
            return;
        }
        warn!(%from, count = counts.unlogged, error = %refused, "connection is refused");
        *counts = RefusalCounts { last: Some(Instant::now()), unlogged: 0 };
    }
}

/// A server that was killed keeps its port for a moment.
async fn listen(address: SocketAddr) -> TcpListener {
    let mut is_reported = false;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(failure) => {
                if !is_reported {
                    is_reported = true;
                    warn!(%address, error = %Chain(&failure), "node endpoint cannot listen yet");
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

/// The peer that a connection is from, as its certificate says.
async fn handshake(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    (from, identify): (SocketAddr, fn(&CertificateDer<'_>) -> Option<EndpointPeer>),
) -> Option<(EndpointPeer, TlsStream<TcpStream>)> {
    let _ = stream.set_nodelay(true);
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            let certificates = stream.get_ref().1.peer_certificates();
            let peer = certificates.and_then(|all| all.first()).and_then(identify);
            if peer.is_none() {
                warn!(%from, "connection is refused: its certificate names no user");
            }
            Some((peer?, stream))
        }
        Ok(Err(failure)) => {
            warn!(%from, error = %Chain(&failure), "connection is refused");
            None
        }
        Err(_) => {
            debug!(%from, "handshake took too long");
            None
        }
    }
}
