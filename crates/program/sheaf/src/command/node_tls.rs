//! TLS between the agents of nodes: the certificate of an agent and the peers that it trusts,
//! replaced when certificates are renewed.

use std::net::SocketAddr;
use std::sync::Arc;

use agent::{EndpointPeer, EndpointWire, GrantVerification, PeerWire, RequestGrant};
use anyhow::{Context as _, Result};
use auth::pki::endpoint::{self, endpoint_config, gateway_config};
use auth::pki::grant::{AgentGrant, GrantVerifier, VerifiedGrant};
use auth::pki::{NodeCertificate, NodeFiles, node_endpoint_name};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::watch;

/// The sending ends of what an agent's connections are made with.
pub(super) struct NodeTls {
    endpoint: watch::Sender<Option<Arc<ServerConfig>>>,
    peers: watch::Sender<Option<Arc<ClientConfig>>>,
    grants: watch::Sender<Option<Arc<dyn GrantVerification>>>,
}

impl NodeTls {
    pub(super) fn new() -> Self {
        Self {
            endpoint: watch::channel(None).0,
            peers: watch::channel(None).0,
            grants: watch::channel(None).0,
        }
    }

    /// Uses the certificates that the files have now.
    pub(super) fn apply(&self, files: &NodeFiles) -> Result<()> {
        let ca = files.ca_pem()?.context("the cluster's CA is missing")?;
        let verifier = GrantVerifier::new(&ca).context("cannot verify grants")?;
        self.grants.send_replace(Some(Arc::new(ClusterGrantVerifier(verifier))));
        if let Some(serving) = files.identity(NodeCertificate::Serving)? {
            self.endpoint.send_replace(Some(endpoint_config(&ca, &serving)?));
        }
        if let Some(own) = files.identity(NodeCertificate::Client)? {
            self.peers.send_replace(Some(gateway_config(&ca, &own)?));
        }
        Ok(())
    }

    pub(super) fn endpoint(&self, address: SocketAddr) -> EndpointWire {
        let (tls, grants) = (self.endpoint.subscribe(), self.grants.subscribe());
        EndpointWire { address, tls, identify, grants }
    }

    pub(super) fn peers(&self) -> PeerWire {
        PeerWire { tls: self.peers.subscribe(), name: node_endpoint_name }
    }
}

/// Grants that a management node of the cluster has signed.
#[derive(Debug)]
struct ClusterGrantVerifier(GrantVerifier);

impl GrantVerification for ClusterGrantVerifier {
    fn verify(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<RequestGrant, Box<dyn std::error::Error + Send + Sync>> {
        let VerifiedGrant { grant, id, expires } = self.0.verify(token, now)?;
        let AgentGrant { node, method, path, user, machine } = grant;
        Ok(RequestGrant { node, method, path, user, machine, id, expires })
    }
}

fn identify(certificate: &CertificateDer<'_>) -> Option<EndpointPeer> {
    Some(match endpoint::EndpointPeer::of(certificate)? {
        endpoint::EndpointPeer::Gateway => EndpointPeer::Gateway,
        endpoint::EndpointPeer::Node(name) => EndpointPeer::Node(name),
    })
}
