//! Trusted CAs, and the client certificate that we present.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use base::tls::NoCertVerification;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use super::ConnectError;

/// The CAs that are trusted for the certificate of the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Trust {
    /// The authorities that this machine trusts.
    System,
    /// A bundle of authorities, as PEM.
    Bundle(Arc<[u8]>),
    /// No authority is needed: `insecureSkipTLSVerify`.
    Anything,
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClientIdentity {
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl Hash for ClientIdentity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.certificate.hash(state);
    }
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Trust {
    pub(super) fn client_config(
        &self,
        identity: Option<&ClientIdentity>,
    ) -> Result<Arc<ClientConfig>, ConnectError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ConnectError::Trust(error.to_string()))?;
        let builder = match self {
            Self::System => builder.with_root_certificates(system_roots()),
            Self::Bundle(pem) => {
                let named = Named::new(roots(pem)?, pem, provider)?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(named))
            }
            Self::Anything => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(NoCertVerification::new(provider))),
        };
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain: Result<Vec<_>, _> =
                    CertificateDer::pem_slice_iter(&identity.certificate).collect();
                let key = PrivateKeyDer::from_pem_slice(&identity.key);
                let (Ok(chain), Ok(key)) = (chain, key) else {
                    return Err(ConnectError::Trust("the client certificate is no PEM".to_owned()));
                };
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| ConnectError::Trust(error.to_string()))?
            }
        };
        // One request at a time on a connection spreads them over all backends of a service.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem).flatten() {
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(ConnectError::Trust("unable to parse bytes as PEM block".to_owned()));
    }
    Ok(roots)
}

fn system_roots() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let load = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    };
    ROOTS.get_or_init(load).clone()
}

/// Trusts the authorities of a bundle, and each certificate in it by itself:
/// many webhook servers sign their certificate with its own key and give that as bundle.
#[derive(Debug)]
struct Named {
    authorities: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Named {
    fn new(
        roots: RootCertStore,
        pem: &[u8],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, ConnectError> {
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| ConnectError::Trust(error.to_string()))?;
        let certificates = CertificateDer::pem_slice_iter(pem).flatten().collect();
        Ok(Self { authorities, certificates })
    }
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.authorities.verify_server_cert(certificate, others, name, ocsp, now);
        if verdict.is_ok() || !self.certificates.iter().any(|known| known == certificate) {
            return verdict;
        }
        let wrong = rustls::Error::InvalidCertificate;
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|_| wrong(CertificateError::BadEncoding))?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let now = x509_parser::time::ASN1Time::from_timestamp(seconds)
            .map_err(|_| wrong(CertificateError::Expired))?;
        if !parsed.validity().is_valid_at(now) {
            return Err(wrong(CertificateError::Expired));
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A self-signed certificate, and no authority.
    fn lonely() -> rcgen::Certificate {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params =
            rcgen::CertificateParams::new(vec!["hook.example.com".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2040, 1, 1);
        params.self_signed(&key).unwrap()
    }

    #[test]
    fn a_certificate_in_the_bundle_vouches_for_itself_only() {
        let (known, other) = (lonely(), lonely());
        let pem = known.pem().into_bytes();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let named = Named::new(roots(&pem).unwrap(), &pem, provider).unwrap();
        let verify = |certificate: &rcgen::Certificate, name: &str, year: u64| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600));
            named.verify_server_cert(certificate.der(), &[], &name, &[], now).is_ok()
        };
        assert!(verify(&known, "hook.example.com", 2030));
        assert!(!verify(&known, "other.example.com", 2030), "another name");
        assert!(!verify(&known, "hook.example.com", 2050), "out of date");
        assert!(!verify(&other, "hook.example.com", 2030), "another certificate");
    }
}
