//! How the gateway reaches the nodes of the cluster: its own by a socket, the others over TLS.
//!
//! The certificate of a node must name it; a wrong address in the Node object leads nowhere
//! else.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use auth::pki::endpoint::gateway_config;
use auth::pki::grant::{AgentGrant, GRANT_SIGNER, GrantSigner};
use auth::pki::{Pki, node_endpoint_name};
use auth::user::{GATEWAY, PLATFORM};
use base::clock;
use futures_util::future::BoxFuture;
use gateway::{NodeConnection, NodeRequest, Nodes};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The certificate is issued again at every check of the certificates; this leaves much room.
const CERTIFICATE_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 7);

/// The gateway's certificate for other nodes; replaced as certificates are renewed.
#[derive(Clone, Default)]
pub(super) struct GatewayTls(Arc<RwLock<Option<GatewayKeys>>>);

#[derive(Clone)]
struct GatewayKeys {
    tls: Arc<ClientConfig>,
    /// Another key: the certificate of the gateway alone opens nothing.
    grants: Arc<GrantSigner>,
}

impl GatewayTls {
    /// Issues a certificate and uses it from now on.
    pub(super) fn renew(&self, pki: &Pki) -> Result<()> {
        let own = pki.issue_client(GATEWAY, &[PLATFORM], CERTIFICATE_LIFETIME, clock::now())?;
        let tls = gateway_config(&pki.ca_pem(), &own).context("cannot set up TLS to nodes")?;
        let own =
            pki.issue_client(GRANT_SIGNER, &[PLATFORM], CERTIFICATE_LIFETIME, clock::now())?;
        let grants = Arc::new(GrantSigner::new(&own).context("cannot set up grants for nodes")?);
        let keys = GatewayKeys { tls, grants };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
        Ok(())
    }

    fn current(&self) -> Option<GatewayKeys> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(super) struct ClusterNodes {
    /// The node that this process is, if it has an agent.
    pub(super) own: Option<String>,
    /// Where its agent listens.
    pub(super) socket: PathBuf,
    pub(super) client: Client,
    pub(super) tls: GatewayTls,
}

impl ClusterNodes {
    async fn remote(&self, node: &str) -> io::Result<Box<dyn NodeConnection>> {
        let found = Api::<Node>::all(self.client.clone()).get(node).await;
        let found = found.map_err(|error| io::Error::other(client::Fault(error)))?;
        let address = address(&found).ok_or_else(|| {
            io::Error::other(format!("node {node} reports no address to connect to"))
        })?;
        let name = ServerName::try_from(node_endpoint_name(node)).map_err(io::Error::other)?;
        let keys = self.tls.current();
        let keys = keys.ok_or_else(|| io::Error::other("the gateway has no certificate"))?;
        let connector = TlsConnector::from(keys.tls);
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            connector.connect(name, stream).await
        };
        let late = || {
            let text = format!("node {node} does not answer at {address}");
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        let stream = timeout(CONNECT_TIMEOUT, connected).await.map_err(|_| late())??;
        Ok(Box::new(stream))
    }
}

impl Nodes for ClusterNodes {
    fn connect<'a>(&'a self, node: &'a str) -> BoxFuture<'a, io::Result<Box<dyn NodeConnection>>> {
        Box::pin(async move {
            if self.own.as_deref() == Some(node) {
                let stream = UnixStream::connect(&self.socket).await?;
                return Ok(Box::new(stream) as Box<dyn NodeConnection>);
            }
            self.remote(node).await
        })
    }

    fn grant(&self, request: &NodeRequest<'_>) -> Option<String> {
        // The socket of the own node is for this process only.
        if self.own.as_deref() == Some(request.node) {
            return None;
        }
        let grant = AgentGrant {
            node: request.node.to_owned(),
            method: request.method.to_owned(),
            path: request.path.to_owned(),
            user: request.user.to_owned(),
            machine: request.machine.map(str::to_owned),
        };
        Some(self.tls.current()?.grants.sign(grant, clock::now()))
    }
}

/// Where the endpoint of a node is, as reported by the node.
fn address(node: &Node) -> Option<SocketAddr> {
    let status = node.status.as_ref()?;
    let port = status.daemon_endpoints.as_ref()?.kubelet_endpoint.as_ref()?.port;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let mut addresses = status.addresses.iter().flatten();
    let own = addresses.find(|address| address.type_ == "InternalIP")?;
    Some(SocketAddr::new(own.address.parse::<IpAddr>().ok()?, port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_reports_where_its_endpoint_is() {
        let internal = json!([{"type": "Hostname", "address": "n2"},
            {"type": "InternalIP", "address": "10.0.0.2"}]);
        let port = json!({"kubeletEndpoint": {"Port": 10250}});
        for (status, expected) in [
            (json!({"addresses": internal, "daemonEndpoints": port}), Some("10.0.0.2:10250")),
            (json!({"addresses": internal}), None),
            (json!({"daemonEndpoints": port}), None),
            (
                json!({"addresses": internal, "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}),
                None,
            ),
        ] {
            let node: Node = serde_json::from_value(json!({"status": status})).unwrap();
            assert_eq!(address(&node).map(|it| it.to_string()).as_deref(), expected, "{status}");
        }
    }
}
