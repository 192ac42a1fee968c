//! TLS for the server: which certificate it shows and which clients it believes.
//!
//! Both can be swapped while connections are open; a connection keeps what it began
//! with. Clients need no certificate, but one that is shown must be good.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};

use super::Pki;
use super::authority::Authority;
use crate::identity::{IdentityError, common_name, user_from_certificate};
use crate::user::User;

/// Why TLS cannot be set up with these certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot use the serving certificate")]
    Serving(#[source] rustls::Error),
    #[error("cannot trust a certificate authority")]
    Root(#[source] rustls::Error),
    #[error("cannot verify client certificates")]
    Verifier(#[source] VerifierBuilderError),
}

/// Why a client certificate says nothing about its bearer.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("client shows no certificate")]
    NoCertificate,
    #[error("client certificate is not trusted")]
    NotTrusted(#[source] rustls::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// Whom a client certificate stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A user, as named in it.
    User(User),
    /// Somebody who may name the user in request headers. The name is theirs, not the user's.
    FrontProxy { name: String },
}

/// The server's side of TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    serving: Arc<Serving>,
    trust: Arc<Trust>,
}

impl Tls {
    pub fn new(pki: &Pki) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let serving = Arc::new(Serving(ArcSwap::from(certified_key(pki, &provider)?)));
        let trust = Arc::new(Trust(ArcSwap::from_pointee(Roots::new(pki, &provider)?)));
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Serving)?;
        let mut config =
            builder.with_client_cert_verifier(trust.clone()).with_cert_resolver(serving.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), serving, trust })
    }

    /// One configuration for the life of the server.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Takes over renewed certificates; new connections see them.
    pub fn reload(&self, pki: &Pki) -> Result<(), TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let (key, roots) = (certified_key(pki, &provider)?, Roots::new(pki, &provider)?);
        self.serving.0.store(key);
        self.trust.0.store(Arc::new(roots));
        Ok(())
    }

    /// Whom the certificates that a client showed in its handshake stand for.
    ///
    /// Checks them again: a resumed session did not, and which authority signed
    /// decides between a user and somebody who may speak for users.
    pub fn peer(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Peer, PeerError> {
        let (cert, rest) = chain.split_first().ok_or(PeerError::NoCertificate)?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let roots = self.trust.0.load();
        if roots.front_proxies.verify_client_cert(cert, rest, now).is_ok() {
            return Ok(Peer::FrontProxy { name: common_name(cert)? });
        }
        roots.users.verify_client_cert(cert, rest, now).map_err(PeerError::NotTrusted)?;
        Ok(Peer::User(user_from_certificate(cert)?))
    }
}

/// The server's TLS configuration, for those who never renew.
pub fn server_config(pki: &Pki) -> Result<Arc<ServerConfig>, TlsError> {
    Ok(Tls::new(pki)?.config())
}

fn certified_key(pki: &Pki, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = PrivatePkcs8KeyDer::from(pki.serving.key().serialize_der());
    let certs = pki.serving.certs().to_vec();
    CertifiedKey::from_der(certs, PrivateKeyDer::from(key), provider)
        .map(Arc::new)
        .map_err(TlsError::Serving)
}

#[derive(Debug)]
struct Serving(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

#[derive(Debug)]
struct Roots {
    users: Arc<dyn ClientCertVerifier>,
    front_proxies: Arc<dyn ClientCertVerifier>,
}

impl Roots {
    fn new(pki: &Pki, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let verifier = |authority: &Authority| {
            let mut roots = RootCertStore::empty();
            for cert in authority.trusted() {
                roots.add(cert.clone()).map_err(TlsError::Root)?;
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(TlsError::Verifier)
        };
        Ok(Self { users: verifier(&pki.ca)?, front_proxies: verifier(&pki.front_proxy_ca)? })
    }
}

/// Believes clients of either authority; which one it was is asked later.
#[derive(Debug)]
struct Trust(ArcSwap<Roots>);

impl ClientCertVerifier for Trust {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    // Hints would outlive a change of the authority, and Go clients keep a certificate
    // back whose issuer is not among them. No hints means that any may be shown.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let roots = self.0.load();
        let user = roots.users.verify_client_cert(cert, intermediates, now);
        user.or_else(|error| {
            roots.front_proxies.verify_client_cert(cert, intermediates, now).map_err(|_| error)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.load().users.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.load().users.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.load().users.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
