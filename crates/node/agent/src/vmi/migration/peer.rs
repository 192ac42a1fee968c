//! The way to the endpoint of another node: TLS with both nodes' certificates, and HTTP on it.
//!
//! The certificate at the other end must name the node that was asked for; an address alone leads
//! nowhere.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use base::Tasks;
use bytes::Bytes;
use client::Fault;
use hci::node_network::{NodeNetwork, address_of};
use http::header::{CONNECTION, HOST, UPGRADE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::STREAM_PROTOCOL;
use crate::context::Context;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A node that is gone without a word is given up after so many milliseconds.
const SILENCE_MILLIS: u32 = 8_000;
/// The longest answer that is read.
const MAX_ANSWER: usize = 64 * 1024;

/// Why another node did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    #[error("this node has no address that other nodes reach: see --advertise-address")]
    Alone,
    #[error("cannot read node {node}")]
    Read { node: String, source: Fault },
    #[error("node {node} has no endpoint for machines that move")]
    NoAddress { node: String },
    #[error("node {node} cannot be reached")]
    Connect { node: String, source: io::Error },
    #[error("node {node} did not answer within {} s", limit.as_secs())]
    Late { node: String, limit: Duration },
    #[error("the connection to node {node} broke")]
    Broken { node: String, source: hyper::Error },
    #[error("cannot ask node {node}")]
    Request { node: String, source: http::Error },
    #[error("node {node}: {message}")]
    Refused { node: String, message: String },
}

/// Another node.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) node: String,
    pub(super) address: SocketAddr,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    tasks: Tasks,
}

/// A connection to it, for several requests.
pub(super) struct PeerConnection {
    node: String,
    sender: http1::SendRequest<Full<Bytes>>,
}

#[derive(Deserialize)]
struct PeerRefusal {
    message: String,
}

impl Peer {
    pub(super) async fn find(
        context: &Context,
        tasks: &Tasks,
        node: &str,
    ) -> Result<Self, PeerError> {
        let wire = context.config.wire.peers.as_ref().ok_or(PeerError::Alone)?;
        let tls = wire.tls.borrow().clone().ok_or(PeerError::Alone)?;
        let name = node.to_owned();
        let found = Api::<Node>::all(context.client.clone()).get(node).await;
        let found = found
            .map_err(|source| PeerError::Read { node: name.clone(), source: Fault(source) })?;
        let address = address(&found).ok_or(PeerError::NoAddress { node: name.clone() })?;
        let server = ServerName::try_from((wire.name)(node))
            .map_err(|_| PeerError::NoAddress { node: name.clone() })?;
        Ok(Self { node: name, address, name: server, tls, tasks: tasks.clone() })
    }

    pub(super) async fn connect(&self) -> Result<PeerConnection, PeerError> {
        let failed = |source| PeerError::Connect { node: self.node.clone(), source };
        let connected = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            rustix::net::sockopt::set_tcp_user_timeout(stream.as_fd(), SILENCE_MILLIS)?;
            TlsConnector::from(Arc::clone(&self.tls)).connect(self.name.clone(), stream).await
        };
        let late = |_| PeerError::Late { node: self.node.clone(), limit: CONNECT_TIMEOUT };
        let stream = timeout(CONNECT_TIMEOUT, connected).await.map_err(late)?.map_err(failed)?;
        let broken = |source| PeerError::Broken { node: self.node.clone(), source };
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        self.tasks.spawn("migration-peer", async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(PeerConnection { node: self.node.clone(), sender })
    }
}

impl PeerConnection {
    /// Sends a request that changes something, waits until that is done, and returns the answer.
    pub(super) async fn put(
        &mut self,
        path: &str,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Bytes, PeerError> {
        let node = self.node.clone();
        let asked = async {
            let request = self.request(Method::PUT, path, body, false)?;
            let answer = self.sender.send_request(request).await;
            let answer = answer.map_err(|source| self.broken(source))?;
            if answer.status() != StatusCode::OK {
                return Err(self.refused(answer).await);
            }
            Ok(read(answer).await)
        };
        timeout(limit, asked).await.map_err(|_| PeerError::Late { node, limit })?
    }

    /// Turns the connection into a stream of bytes.
    pub(super) async fn stream(mut self, path: &str) -> Result<Upgraded, PeerError> {
        let late = PeerError::Late { node: self.node.clone(), limit: CONNECT_TIMEOUT };
        let asked = async {
            let request = self.request(Method::GET, path, Vec::new(), true)?;
            let answer = self.sender.send_request(request).await;
            let answer = answer.map_err(|source| self.broken(source))?;
            if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Err(self.refused(answer).await);
            }
            hyper::upgrade::on(answer).await.map_err(|source| self.broken(source))
        };
        timeout(CONNECT_TIMEOUT, asked).await.map_err(|_| late)?
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        upgrades: bool,
    ) -> Result<Request<Full<Bytes>>, PeerError> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, "node");
        if upgrades {
            request = request.header(UPGRADE, STREAM_PROTOCOL).header(CONNECTION, "Upgrade");
        }
        request
            .body(Full::from(body))
            .map_err(|source| PeerError::Request { node: self.node.clone(), source })
    }

    fn broken(&self, source: hyper::Error) -> PeerError {
        PeerError::Broken { node: self.node.clone(), source }
    }

    async fn refused(&self, answer: Response<Incoming>) -> PeerError {
        let code = answer.status();
        let body = read(answer).await;
        let refusal: Option<PeerRefusal> = serde_json::from_slice(&body).ok();
        let message = refusal.map_or_else(|| format!("it answered {code}"), |it| it.message);
        PeerError::Refused { node: self.node.clone(), message }
    }
}

async fn read(answer: Response<Incoming>) -> Bytes {
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    body.map(http_body_util::Collected::to_bytes).unwrap_or_default()
}

/// Where the endpoint of a node is reached: on the network for migrations if there is one.
fn address(node: &Node) -> Option<SocketAddr> {
    let status = node.status.as_ref()?;
    let port = status.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref()?.port;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let annotations = node.metadata.annotations.as_ref();
    let own = annotations.and_then(|all| address_of(all, NodeNetwork::Migration));
    let mut known = status.addresses.iter().flatten();
    let known = || known.find(|address| address.type_ == "InternalIP")?.address.parse().ok();
    Some(SocketAddr::new(own.or_else(known)?, port))
}
