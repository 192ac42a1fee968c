//! Authentication and encryption of connections between nodes.
//!
//! Both ends show the certificate that the cluster gave to their node, and want to see one of the
//! same authority with a node's name and role: an engine is no more trusted than a replica. TLS 1.3
//! only. Sockets in the file system are guarded by its permissions and stay plain; so does a wire
//! without certificates, for a machine alone. The plain path does not come through here.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, OtherError, RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::stream::Filled;
use super::sys::receive;

/// Received at once.
const CHUNK: usize = 256 << 10;

/// Encrypted before it is sent.
const BATCH: usize = 512 << 10;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{what} is not in PEM form, or empty")]
    Pem { what: &'static str },
    #[error("the authority's certificate cannot be used")]
    Authority { source: VerifierBuilderError },
    #[error("the node's certificate and key cannot be used")]
    Node { source: rustls::Error },
}

/// Required properties of a peer's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// One of its organisations.
    pub organisation: String,
    /// The prefix of its name.
    pub name_prefix: String,
}

impl Role {
    /// A node, as Kubernetes calls it.
    pub fn node() -> Self {
        Self { organisation: "system:nodes".to_owned(), name_prefix: "system:node:".to_owned() }
    }
}

/// The certificates of this node and what others must show.
#[derive(Clone, Debug)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    peers: Arc<Role>,
}

impl Tls {
    /// From the authority's certificates, and this node's chain and key.
    pub fn from_pem(
        authority: &[u8],
        chain: &[u8],
        key: &[u8],
        peers: Role,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(authority, "the authority")?);
        let chain = certificates(chain, "the node's certificate")?;
        let key = || {
            PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Pem { what: "the node's key" })
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let known =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        let known = known.map_err(|source| TlsError::Authority { source })?;
        let role = Arc::new(peers);
        let peers = Arc::new(Peers { known, role: role.clone() });
        let node = |source| TlsError::Node { source };
        let versions = &[&rustls::version::TLS13];
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(node)?
            .dangerous()
            .with_custom_certificate_verifier(peers.clone())
            .with_client_auth_cert(chain.clone(), key()?)
            .map_err(node)?;
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(node)?
            .with_client_cert_verifier(peers)
            .with_single_cert(chain, key()?)
            .map_err(node)?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), peers: role })
    }

    /// The other end must be the node of this name; any node, if there is none.
    pub(super) fn connect(&self, node: Option<&str>) -> io::Result<Session> {
        // Not sent. The verifier compares it with the node that the certificate names; an address
        // means any.
        let name = match node {
            Some(node) => ServerName::try_from(node.to_owned()).map_err(io::Error::other)?,
            None => ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        };
        let connection = ClientConnection::new(self.client.clone(), name);
        Ok(Session::new(connection.map_err(io::Error::other)?.into(), self.peers.clone()))
    }

    pub(super) fn accept(&self) -> io::Result<Session> {
        let connection = ServerConnection::new(self.server.clone());
        Ok(Session::new(connection.map_err(io::Error::other)?.into(), self.peers.clone()))
    }
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(TlsError::Pem { what })
}

/// One connection's keys and what is between the socket and us.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    received: BytesMut,
    peers: Arc<Role>,
}

impl Session {
    fn new(mut connection: Connection, peers: Arc<Role>) -> Self {
        // The sender bounds the data that waits to be sent.
        connection.set_buffer_limit(None);
        Self { connection, received: BytesMut::new(), peers }
    }

    /// The node that the peer's certificate names; nothing before that was verified.
    pub(super) fn peer_node(&self) -> Option<String> {
        if self.connection.is_handshaking() {
            return None;
        }
        let certificate = self.connection.peer_certificates()?.first()?;
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let node = common_name(&parsed).strip_prefix(self.peers.name_prefix.as_str())?;
        (!node.is_empty()).then(|| node.to_owned())
    }

    /// Whether to poll for writability. Data to send waits for the peer during the handshake.
    pub(super) fn wants_write(&self, waiting: usize) -> bool {
        self.connection.wants_write() || (waiting > 0 && !self.connection.is_handshaking())
    }

    /// Puts what has arrived at the end of `buffer`, all of it: nothing is left inside.
    pub(super) fn fill(&mut self, fd: BorrowedFd<'_>, buffer: &mut BytesMut) -> io::Result<Filled> {
        let Self { connection, received, .. } = self;
        received.clear();
        received.reserve(CHUNK);
        match receive(fd, received) {
            Ok(0) => return Ok(Filled::End),
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Filled::Nothing),
            Err(errno) => return Err(errno.into()),
        }
        let mut rest = &received[..];
        while !rest.is_empty() {
            connection.read_tls(&mut rest)?;
            let state = match connection.process_new_packets() {
                Ok(state) => state,
                Err(error) => {
                    // The peer is sent the reason, if it listens.
                    let _ = connection.write_tls(&mut Socket(fd));
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            let count = state.plaintext_bytes_to_read();
            if count > 0 {
                let end = buffer.len();
                buffer.resize(end + count, 0);
                connection.reader().read_exact(&mut buffer[end..])?;
            }
            if state.peer_has_closed() {
                return Ok(Filled::End);
            }
        }
        Ok(Filled::Some)
    }

    /// Sends what fits.
    pub(super) fn flush(
        &mut self,
        fd: BorrowedFd<'_>,
        out: &mut VecDeque<Bytes>,
        waiting: &mut usize,
    ) -> io::Result<()> {
        loop {
            while self.connection.wants_write() {
                match self.connection.write_tls(&mut Socket(fd)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            if self.connection.is_handshaking() || out.is_empty() {
                return Ok(());
            }
            let mut taken = 0;
            while taken < BATCH
                && let Some(piece) = out.pop_front()
            {
                self.connection.writer().write_all(&piece)?;
                taken += piece.len();
            }
            *waiting -= taken;
        }
    }
}

/// A socket that never blocks.
struct Socket<'a>(BorrowedFd<'a>);

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut ancillary = SendAncillaryBuffer::default();
        let pieces = &pieces[..pieces.len().min(512)];
        Ok(rustix::net::sendmsg(self.0, pieces, &mut ancillary, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Nodes of the cluster, whichever end they are on.
///
/// Both ends are verified by the rules for clients: a node's certificate is one of a client, and
/// which host it is on says nothing about whether it may have the data.
#[derive(Debug)]
struct Peers {
    known: Arc<dyn ClientCertVerifier>,
    role: Arc<Role>,
}

/// The name that a certificate gives its owner: the same for the check of the role and of grants.
fn common_name<'a>(certificate: &X509Certificate<'a>) -> &'a str {
    certificate.subject.iter_common_name().find_map(|it| it.as_str().ok()).unwrap_or_default()
}

/// A certificate of the cluster that is no node's.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of {name:?} is not one of {organisation:?}")]
struct WrongRole {
    name: String,
    organisation: String,
}

impl Peers {
    fn check_role(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let bad = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| bad())?;
        let name = common_name(&parsed);
        let mut organisations =
            parsed.subject().iter_organization().filter_map(|it| it.as_str().ok());
        let Role { organisation, name_prefix } = &*self.role;
        if name.starts_with(name_prefix.as_str()) && organisations.any(|it| it == organisation) {
            return Ok(());
        }
        let wrong = WrongRole { name: name.to_owned(), organisation: organisation.clone() };
        let other = OtherError(Arc::new(wrong));
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
    }
}

/// A node that is not the one that has the replica.
#[derive(Debug, thiserror::Error)]
#[error("the certificate of {name:?} is not that of node {node}, which has the replica")]
struct WrongNode {
    name: String,
    node: String,
}

impl Peers {
    fn check_node(
        &self,
        certificate: &CertificateDer<'_>,
        node: &str,
    ) -> Result<(), rustls::Error> {
        let bad = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| bad())?;
        let name = common_name(&parsed);
        if name.strip_prefix(self.role.name_prefix.as_str()) == Some(node) {
            return Ok(());
        }
        let wrong = WrongNode { name: name.to_owned(), node: node.to_owned() };
        let other = OtherError(Arc::new(wrong));
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
    }
}

impl ClientCertVerifier for Peers {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.known.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.known.verify_client_cert(end, between, now)?;
        self.check_role(end)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.supported_verify_schemes()
    }
}

impl ServerCertVerifier for Peers {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _revoked: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify_client_cert(end, between, now)?;
        if let ServerName::DnsName(node) = name {
            self.check_node(end, node.as_ref())?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.known.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.supported_verify_schemes()
    }
}
