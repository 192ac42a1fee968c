//! TLS for the server: which certificate it shows and which clients it believes.
//!
//! Both can be swapped while connections are open, and so can protocols and ciphers; a
//! connection keeps what it began with. Clients need no certificate, but one that is shown must
//! be good.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::cipher_suite as suite;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, ParsedCertificate, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion,
};

use super::Pki;
use crate::identity::{IdentityError, common_name, user_from_certificate};
use crate::user::User;

/// Why TLS cannot be set up with these certificates.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot use the serving certificate")]
    Serving(#[source] rustls::Error),
    #[error("a certificate or key is not PEM")]
    Pem(#[source] pem::Error),
    #[error("cannot trust a certificate authority")]
    Root(#[source] rustls::Error),
    #[error("cannot verify client certificates")]
    Verifier(#[source] VerifierBuilderError),
    #[error("there is no TLS protocol or cipher {name:?}")]
    Parameter { name: String },
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

/// The identity in a client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A user, as named in it.
    User(User),
    /// A front proxy, which may name the user in request headers. The name is that of the proxy.
    FrontProxy { name: String },
}

/// The certificates and keys of a server and the CAs that it trusts, from any source.
#[derive(Debug)]
pub struct Material {
    /// The serving certificate, its own first.
    pub certs: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    /// The CAs of user certificates; without any, no client has one.
    pub users: Vec<CertificateDer<'static>>,
    /// The CAs of front proxies, which may name the user of a request.
    pub front_proxies: Vec<CertificateDer<'static>>,
    /// Which of those may; empty means all.
    pub front_proxy_names: Vec<String>,
}

impl Material {
    fn of(pki: &Pki) -> Self {
        let key = PrivatePkcs8KeyDer::from(pki.serving.key().serialize_der());
        Self {
            certs: pki.serving.certs().to_vec(),
            key: PrivateKeyDer::from(key),
            users: pki.ca.trusted().cloned().collect(),
            front_proxies: pki.front_proxy_ca.trusted().cloned().collect(),
            front_proxy_names: Vec::new(),
        }
    }
}

/// The server's side of TLS.
#[derive(Debug, Clone)]
pub struct Tls {
    offered: Arc<ArcSwap<ServerConfigs>>,
    serving: Arc<Serving>,
    trust: Arc<Trust>,
}

/// The configurations of new connections.
#[derive(Debug)]
struct ServerConfigs {
    programs: Arc<ServerConfig>,
    browsers: Arc<ServerConfig>,
}

impl ServerConfigs {
    fn new(
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
        serving: &Arc<Serving>,
        trust: &Arc<Trust>,
    ) -> Result<Self, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .map_err(TlsError::Serving)?;
        let browsers = builder.clone().with_no_client_auth().with_cert_resolver(serving.clone());
        let programs =
            builder.with_client_cert_verifier(trust.clone()).with_cert_resolver(serving.clone());
        Ok(Self { programs: with_alpn(programs), browsers: with_alpn(browsers) })
    }
}

impl Tls {
    pub fn new(pki: &Pki) -> Result<Self, TlsError> {
        Self::with(Material::of(pki))
    }

    /// TLS with certificates that the caller maintains.
    pub fn with(material: Material) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let trust = Arc::new(Trust {
            roots: ArcSwap::from_pointee(Roots::new(&material, &provider)?),
            signatures: provider.signature_verification_algorithms,
        });
        let own = ArcSwap::from(certified_key(material, &provider)?);
        let serving = Arc::new(Serving { own, chosen: ArcSwapOption::empty() });
        let (provider, versions) = (aws_lc_rs::default_provider(), rustls::DEFAULT_VERSIONS);
        let offered = ServerConfigs::new(provider, versions, &serving, &trust)?;
        Ok(Self { offered: Arc::new(ArcSwap::from_pointee(offered)), serving, trust })
    }

    /// The configuration of a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.offered.load().programs.clone()
    }

    /// The same certificate, without a request for one of the client: a browser that has any
    /// would ask its user which one to send.
    pub fn browser_config(&self) -> Arc<ServerConfig> {
        self.offered.load().browsers.clone()
    }

    /// Offers only these protocols and ciphers to new connections, by their names in OpenSSL.
    pub fn restrict(&self, protocols: &[&str], ciphers: &[&str]) -> Result<(), TlsError> {
        let unknown = |name: &str| TlsError::Parameter { name: name.to_owned() };
        let suite = |name: &&str| cipher(name).ok_or_else(|| unknown(name));
        let version = |name: &&str| match *name {
            "TLSv1.2" => Ok(&rustls::version::TLS12),
            "TLSv1.3" => Ok(&rustls::version::TLS13),
            other => Err(unknown(other)),
        };
        let cipher_suites = ciphers.iter().map(suite).collect::<Result<Vec<_>, _>>()?;
        let versions = protocols.iter().map(version).collect::<Result<Vec<_>, _>>()?;
        let provider = CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() };
        let offered = ServerConfigs::new(provider, &versions, &self.serving, &self.trust)?;
        self.offered.store(Arc::new(offered));
        Ok(())
    }

    /// Takes over renewed certificates; new connections see them.
    pub fn reload(&self, pki: &Pki) -> Result<(), TlsError> {
        self.replace(Material::of(pki))
    }

    /// The same for what [`Self::with`] was given.
    pub fn replace(&self, material: Material) -> Result<(), TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Roots::new(&material, &provider)?;
        let key = certified_key(material, &provider)?;
        self.serving.own.store(key);
        self.trust.roots.store(Arc::new(roots));
        Ok(())
    }

    /// Shows another certificate to clients that ask for a name in it; without one, the own
    /// certificate to all. Clients that ask for an address verify the own one.
    pub fn choose(&self, chosen: Option<(&str, &str)>) -> Result<(), TlsError> {
        let Some((certs, key)) = chosen else {
            self.serving.chosen.store(None);
            return Ok(());
        };
        let certs: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certs.as_bytes()).collect();
        let certs = certs.map_err(TlsError::Pem)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(TlsError::Pem)?;
        let provider = aws_lc_rs::default_provider();
        let key = CertifiedKey::from_der(certs, key, &provider).map_err(TlsError::Serving)?;
        self.serving.chosen.store(Some(Arc::new(key)));
        Ok(())
    }

    /// The identity in the certificates that a client presented in its handshake.
    ///
    /// Checks them again: a resumed session did not, and which authority signed
    /// decides between a user and a front proxy.
    pub fn peer(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Result<Peer, PeerError> {
        let (cert, rest) = chain.split_first().ok_or(PeerError::NoCertificate)?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let roots = self.trust.roots.load();
        if verified(roots.front_proxies.as_ref(), cert, rest, now).is_ok() {
            let name = common_name(cert)?;
            // One that is no front proxy may still be a user itself.
            if roots.front_proxy_names.is_empty() || roots.front_proxy_names.contains(&name) {
                return Ok(Peer::FrontProxy { name });
            }
        }
        verified(roots.users.as_ref(), cert, rest, now).map_err(PeerError::NotTrusted)?;
        Ok(Peer::User(user_from_certificate(cert)?))
    }
}

fn cipher(name: &str) -> Option<SupportedCipherSuite> {
    Some(match name {
        "TLS_AES_256_GCM_SHA384" => suite::TLS13_AES_256_GCM_SHA384,
        "TLS_AES_128_GCM_SHA256" => suite::TLS13_AES_128_GCM_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256" => suite::TLS13_CHACHA20_POLY1305_SHA256,
        "ECDHE-ECDSA-AES256-GCM-SHA384" => suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-ECDSA-AES128-GCM-SHA256" => suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-ECDSA-CHACHA20-POLY1305" => suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "ECDHE-RSA-AES256-GCM-SHA384" => suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "ECDHE-RSA-AES128-GCM-SHA256" => suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "ECDHE-RSA-CHACHA20-POLY1305" => suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        _ => return None,
    })
}

fn with_alpn(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// The server's TLS configuration, for those who never renew.
pub fn server_config(pki: &Pki) -> Result<Arc<ServerConfig>, TlsError> {
    Ok(Tls::new(pki)?.config())
}

fn certified_key(
    material: Material,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    CertifiedKey::from_der(material.certs, material.key, provider)
        .map(Arc::new)
        .map_err(TlsError::Serving)
}

#[derive(Debug)]
struct Serving {
    own: ArcSwap<CertifiedKey>,
    /// For clients that ask for one of its names.
    chosen: ArcSwapOption<CertifiedKey>,
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let chosen = self.chosen.load_full();
        let chosen = chosen.filter(|key| hello.server_name().is_some_and(|name| is_for(key, name)));
        Some(chosen.unwrap_or_else(|| self.own.load_full()))
    }
}

/// Whether a certificate has a name.
fn is_for(key: &CertifiedKey, name: &str) -> bool {
    let Some(cert) = key.cert.first().and_then(|cert| ParsedCertificate::try_from(cert).ok())
    else {
        return false;
    };
    let name = ServerName::try_from(name);
    name.is_ok_and(|name| rustls::client::verify_server_name(&cert, &name).is_ok())
}

type Verifier = Arc<dyn ClientCertVerifier>;

#[derive(Debug)]
struct Roots {
    users: Option<Verifier>,
    front_proxies: Option<Verifier>,
    front_proxy_names: Vec<String>,
}

impl Roots {
    fn new(material: &Material, provider: &Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let verifier = |trusted: &[CertificateDer<'static>]| {
            if trusted.is_empty() {
                return Ok(None);
            }
            let mut roots = RootCertStore::empty();
            for cert in trusted {
                roots.add(cert.clone()).map_err(TlsError::Root)?;
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()
                .map(Some)
                .map_err(TlsError::Verifier)
        };
        Ok(Self {
            users: verifier(&material.users)?,
            front_proxies: verifier(&material.front_proxies)?,
            front_proxy_names: material.front_proxy_names.clone(),
        })
    }
}

fn verified(
    verifier: Option<&Verifier>,
    cert: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<ClientCertVerified, rustls::Error> {
    let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    verifier.ok_or(unknown)?.verify_client_cert(cert, rest, now)
}

/// Believes clients of either authority; which one it was is asked later.
#[derive(Debug)]
struct Trust {
    roots: ArcSwap<Roots>,
    signatures: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Trust {
    fn offer_client_auth(&self) -> bool {
        let roots = self.roots.load();
        roots.users.is_some() || roots.front_proxies.is_some()
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
        let roots = self.roots.load();
        let user = verified(roots.users.as_ref(), cert, intermediates, now);
        user.or_else(|error| {
            verified(roots.front_proxies.as_ref(), cert, intermediates, now).map_err(|_| error)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signature, &self.signatures)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signature, &self.signatures)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
