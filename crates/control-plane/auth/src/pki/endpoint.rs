//! TLS between nodes, TLS 1.3 with certificates on both sides: an endpoint serves the gateway and
//! other nodes of the cluster, and a client connects only to the node whose name it expects. The
//! endpoint gets the name of the peer and decides which requests that node may make.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};

use super::Identity;
use crate::identity::user_from_certificate;
use crate::user::{GATEWAY, NODES, PLATFORM};

/// Why certificates cannot be used between nodes.
#[derive(Debug, thiserror::Error)]
pub enum EndpointTlsError {
    #[error("{what} is not PEM")]
    Pem { what: &'static str },
    #[error("cannot trust the cluster's CA")]
    Root(#[source] rustls::Error),
    #[error("cannot verify the gateway's certificate")]
    Verifier(#[source] VerifierBuilderError),
    #[error("cannot use the certificate")]
    Certificate(#[source] rustls::Error),
}

/// The peers that may connect to the endpoint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointPeer {
    Gateway,
    /// The node of this name.
    Node(String),
}

impl EndpointPeer {
    /// The peer that a verified certificate names, if it may connect.
    pub fn of(cert: &CertificateDer<'_>) -> Option<Self> {
        let user = user_from_certificate(cert).ok()?;
        if user.name == GATEWAY && user.is_in(PLATFORM) {
            return Some(Self::Gateway);
        }
        let node = user.name.strip_prefix("system:node:").filter(|node| !node.is_empty())?;
        user.is_in(NODES).then(|| Self::Node(node.to_owned()))
    }
}

/// For the endpoint of a node: shows `own`, and answers the gateway and nodes of the cluster.
pub fn endpoint_config(ca: &str, own: &Identity) -> Result<Arc<ServerConfig>, EndpointTlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let known = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider.clone());
    let known = known.build().map_err(EndpointTlsError::Verifier)?;
    let (chain, key) = parts(own)?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(EndpointTlsError::Certificate)?
        .with_client_cert_verifier(Arc::new(PeersOnly { known }))
        .with_single_cert(chain, key)
        .map_err(EndpointTlsError::Certificate)?;
    Ok(Arc::new(config))
}

/// For the gateway and for other nodes: shows `own`, and believes endpoints of the cluster's CA. The name of the node
/// is checked with [`super::node_endpoint_name`].
pub fn gateway_config(ca: &str, own: &Identity) -> Result<Arc<ClientConfig>, EndpointTlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let (chain, key) = parts(own)?;
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(EndpointTlsError::Certificate)?
        .with_root_certificates(roots(ca)?)
        .with_client_auth_cert(chain, key)
        .map_err(EndpointTlsError::Certificate)?;
    Ok(Arc::new(config))
}

fn roots(ca: &str) -> Result<RootCertStore, EndpointTlsError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(ca, "the CA certificate")? {
        roots.add(cert).map_err(EndpointTlsError::Root)?;
    }
    Ok(roots)
}

type ChainAndKey = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn parts(own: &Identity) -> Result<ChainAndKey, EndpointTlsError> {
    let key = PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes());
    let key = key.map_err(|_| EndpointTlsError::Pem { what: "the key" })?;
    Ok((certificates(&own.cert_pem, "the certificate")?, key))
}

fn certificates(
    pem: &str,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, EndpointTlsError> {
    let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    certs.ok().filter(|certs| !certs.is_empty()).ok_or(EndpointTlsError::Pem { what })
}

/// Believes certificates of the cluster that name its gateway or a node.
#[derive(Debug)]
struct PeersOnly {
    known: Arc<dyn ClientCertVerifier>,
}

impl ClientCertVerifier for PeersOnly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.known.verify_client_cert(cert, intermediates, now)?;
        let refused = CertificateError::ApplicationVerificationFailure;
        let peer = EndpointPeer::of(cert).map(|_| verified);
        peer.ok_or(rustls::Error::InvalidCertificate(refused))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConnection, ServerConnection};

    use super::*;
    use crate::pki::{
        CertificateRequest, NodeCertificate, NodeFiles, Pki, ServingNames, Signer,
        node_endpoint_name,
    };

    /// Whether a handshake succeeds on both sides.
    fn shake(server: &Arc<ServerConfig>, client: &Arc<ClientConfig>, name: &str) -> bool {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
        let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
        for _ in 0..8 {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut read = wire.as_slice();
            while !read.is_empty() {
                server.read_tls(&mut read).unwrap();
                if server.process_new_packets().is_err() {
                    return false;
                }
            }
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut read = wire.as_slice();
            while !read.is_empty() {
                client.read_tls(&mut read).unwrap();
                if client.process_new_packets().is_err() {
                    return false;
                }
            }
        }
        !client.is_handshaking() && !server.is_handshaking()
    }

    #[test]
    fn an_endpoint_answers_the_gateway_under_its_own_name() {
        let now = base::clock::now();
        let (cluster, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (pki, _) = Pki::open(cluster.path(), &ServingNames::default(), now).unwrap();
        let files = NodeFiles::open(own.path()).unwrap();
        let which = NodeCertificate::Serving;
        let request = files.request(which, "n2").unwrap();
        let request = CertificateRequest::parse(&request).unwrap();
        let usages = which.usages().map(str::to_owned);
        let cert = pki.sign(&request, Signer::KubeletServing, &usages, None, now).unwrap();
        files.store(which, &cert).unwrap();
        let ca = pki.ca_pem();
        let server = endpoint_config(&ca, &files.identity(which).unwrap().unwrap()).unwrap();
        let hour = SignedDuration::from_hours(1);
        let client = |name: &str, group: &str| {
            gateway_config(&ca, &pki.issue_client(name, &[group], hour, now).unwrap()).unwrap()
        };
        let gateway = client(GATEWAY, PLATFORM);
        assert!(shake(&server, &gateway, &node_endpoint_name("n2")));
        assert!(!shake(&server, &gateway, &node_endpoint_name("n3")));
        for (name, group) in
            [(GATEWAY, "dev"), ("mallory", PLATFORM), ("system:node:n3", "dev"), ("n3", NODES)]
        {
            let other = client(name, group);
            assert!(!shake(&server, &other, &node_endpoint_name("n2")), "{name} {group}");
        }
        let node = client("system:node:n3", NODES);
        assert!(shake(&server, &node, &node_endpoint_name("n2")));
        let elsewhere = tempfile::tempdir().unwrap();
        let (other, _) = Pki::open(elsewhere.path(), &ServingNames::default(), now).unwrap();
        let stranger = other.issue_client(GATEWAY, &[PLATFORM], hour, now).unwrap();
        let stranger = gateway_config(&ca, &stranger).unwrap();
        assert!(!shake(&server, &stranger, &node_endpoint_name("n2")));
    }
}
