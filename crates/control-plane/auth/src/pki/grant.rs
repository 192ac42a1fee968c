//! Grants for the endpoints of agents: one request to one node, for one user, within a minute.
//!
//! A management node signs them as JSON Web Tokens (ES256) with a key that it makes in memory. The
//! header has the certificate of that key (`x5c`), which the cluster's CA has issued for this use
//! only, so a node verifies grants with the CA that it has, and can forge none. The certificate of
//! the gateway, with which connections are made, signs nothing.

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::{Algorithm, EncodingKey, Header, Validation};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use serde::{Deserialize, Serialize};

use super::Identity;
use crate::identity::user_from_certificate;
use crate::token::key::VerifyingKey;
use crate::user::PLATFORM;

/// The name in the certificate of the key that signs grants.
pub const GRANT_SIGNER: &str = "system:sheaf-grants";
/// How long a grant is valid.
pub const GRANT_LIFETIME: SignedDuration = SignedDuration::from_secs(60);
/// Clocks of nodes may differ by this much.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);
const AUDIENCE: &str = "sheaf-agent";

/// One request to the endpoint of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentGrant {
    pub node: String,
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The user for whom the request is made, for the log of the node.
    pub user: String,
    /// The uid of the machine, if the request is for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// A grant whose signature was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedGrant {
    pub grant: AgentGrant,
    /// No other grant has this, so the node can refuse one that was used.
    pub id: String,
    pub expires: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    aud: String,
    jti: String,
    iat: i64,
    exp: i64,
    #[serde(flatten)]
    grant: AgentGrant,
}

/// Why grants cannot be signed or verified.
#[derive(Debug, thiserror::Error)]
pub enum GrantSetupError {
    #[error("{what} is not PEM")]
    Pem { what: &'static str },
    #[error("cannot trust the cluster's CA")]
    Root(#[source] rustls::Error),
    #[error("cannot verify certificates")]
    Verifier(#[source] VerifierBuilderError),
}

/// Why a grant is refused.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    #[error("the grant is not a token with the certificate of its signer")]
    Form,
    #[error("the certificate of the grant's signer is not of this cluster")]
    Certificate(#[source] rustls::Error),
    #[error("{name:?} may not sign grants")]
    Signer { name: String },
    #[error("the signature of the grant is wrong")]
    Signature(#[source] jsonwebtoken::errors::Error),
    #[error("the grant has expired")]
    Expired,
}

/// Signs the grants of one management node.
pub struct GrantSigner {
    key: EncodingKey,
    certificate: String,
}

impl std::fmt::Debug for GrantSigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("GrantSigner")
    }
}

impl GrantSigner {
    /// `own` is a certificate for [`GRANT_SIGNER`] with its key.
    pub fn new(own: &Identity) -> Result<Self, GrantSetupError> {
        let pem = |what| move |_| GrantSetupError::Pem { what };
        let key = PrivateKeyDer::from_pem_slice(own.key_pem.as_bytes()).map_err(pem("the key"))?;
        let certificate = CertificateDer::from_pem_slice(own.cert_pem.as_bytes())
            .map_err(pem("the certificate"))?;
        Ok(Self {
            key: EncodingKey::from_ec_der(key.secret_der()),
            certificate: BASE64_STANDARD.encode(&certificate),
        })
    }

    pub fn sign(&self, grant: AgentGrant, now: Timestamp) -> String {
        let header =
            Header { x5c: Some(vec![self.certificate.clone()]), ..Header::new(Algorithm::ES256) };
        let claims = Claims {
            aud: AUDIENCE.to_owned(),
            jti: uuid::Uuid::new_v4().to_string(),
            iat: now.as_second(),
            exp: now.as_second() + GRANT_LIFETIME.as_secs(),
            grant,
        };
        jsonwebtoken::encode(&header, &claims, &self.key)
            .expect("a key on P-256 signs plain claims")
    }
}

/// Verifies grants with the certificates of the cluster's CA.
#[derive(Debug)]
pub struct GrantVerifier {
    known: Arc<dyn ClientCertVerifier>,
}

impl GrantVerifier {
    pub fn new(ca_pem: &str) -> Result<Self, GrantSetupError> {
        let mut roots = RootCertStore::empty();
        for cert in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            let cert = cert.map_err(|_| GrantSetupError::Pem { what: "the CA certificate" })?;
            roots.add(cert).map_err(GrantSetupError::Root)?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let known = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(Self { known: known.build().map_err(GrantSetupError::Verifier)? })
    }

    /// The grant in a token; which request it is for is the caller's to compare.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedGrant, GrantError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| GrantError::Form)?;
        let chain = header.x5c.unwrap_or_default();
        let [certificate] = chain.as_slice() else { return Err(GrantError::Form) };
        let certificate = BASE64_STANDARD.decode(certificate).map_err(|_| GrantError::Form)?;
        let certificate = CertificateDer::from(certificate);
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let known = self.known.verify_client_cert(&certificate, &[], time);
        known.map_err(GrantError::Certificate)?;
        let signer = user_from_certificate(&certificate).map_err(|_| GrantError::Form)?;
        if signer.name != GRANT_SIGNER || !signer.is_in(PLATFORM) {
            return Err(GrantError::Signer { name: signer.name });
        }
        let key = VerifyingKey::from_certificate(&certificate).map_err(|_| GrantError::Form)?;
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_audience(&[AUDIENCE]);
        validation.required_spec_claims = ["aud".to_owned()].into();
        // Times are compared with `now`, below.
        validation.validate_exp = false;
        let data = jsonwebtoken::decode::<Claims>(token, &key.decoding_key(), &validation);
        let claims = data.map_err(GrantError::Signature)?.claims;
        let expires = Timestamp::from_second(claims.exp).map_err(|_| GrantError::Form)?;
        // A grant that is valid for longer, or from a later time on, is not one of ours.
        let latest = now + GRANT_LIFETIME + CLOCK_SKEW;
        if expires + CLOCK_SKEW <= now || latest < expires {
            return Err(GrantError::Expired);
        }
        Ok(VerifiedGrant { grant: claims.grant, id: claims.jti, expires: expires + CLOCK_SKEW })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Pki, ServingNames};
    use crate::user::GATEWAY;

    fn grant() -> AgentGrant {
        AgentGrant {
            node: "n2".to_owned(),
            method: "GET".to_owned(),
            path: "/v1/vmis/team/web/console".to_owned(),
            user: "jane".to_owned(),
            machine: Some("uid-1".to_owned()),
        }
    }

    fn pki() -> (tempfile::TempDir, Pki) {
        let dir = tempfile::tempdir().unwrap();
        let (pki, _) = Pki::open(dir.path(), &ServingNames::default(), base::clock::now()).unwrap();
        (dir, pki)
    }

    fn signer(pki: &Pki, name: &str, group: &str) -> GrantSigner {
        let hour = SignedDuration::from_hours(1);
        let own = pki.issue_client(name, &[group], hour, base::clock::now()).unwrap();
        GrantSigner::new(&own).unwrap()
    }

    #[test]
    fn a_grant_is_valid_for_a_minute_and_no_two_are_the_same() {
        let (_dir, pki) = pki();
        let now = base::clock::now();
        let signer = signer(&pki, GRANT_SIGNER, PLATFORM);
        let verifier = GrantVerifier::new(&pki.ca_pem()).unwrap();
        let token = signer.sign(grant(), now);
        let verified = verifier.verify(&token, now).unwrap();
        assert_eq!(verified.grant, grant());
        let other = verifier.verify(&signer.sign(grant(), now), now).unwrap();
        assert_ne!(verified.id, other.id);
        let skew = CLOCK_SKEW + GRANT_LIFETIME;
        assert!(verifier.verify(&token, now + skew - SignedDuration::from_secs(2)).is_ok());
        for wrong in
            [now + skew, now + SignedDuration::from_hours(1), now - SignedDuration::from_mins(2)]
        {
            let refused = verifier.verify(&token, wrong).unwrap_err();
            assert!(matches!(refused, GrantError::Expired | GrantError::Certificate(_)), "{wrong}");
        }
    }

    #[test]
    fn others_cannot_sign_grants() {
        let ((_dir, own), (_elsewhere, other)) = (pki(), pki());
        let now = base::clock::now();
        let verifier = GrantVerifier::new(&own.ca_pem()).unwrap();
        for (name, group) in [
            (GATEWAY, PLATFORM),
            (GRANT_SIGNER, "dev"),
            ("system:node:n2", "system:nodes"),
            ("system:admin", "system:masters"),
        ] {
            let token = signer(&own, name, group).sign(grant(), now);
            let refused = verifier.verify(&token, now).unwrap_err();
            assert!(matches!(refused, GrantError::Signer { .. }), "{name}: {refused:?}");
        }
        let token = signer(&other, GRANT_SIGNER, PLATFORM).sign(grant(), now);
        let refused = verifier.verify(&token, now).unwrap_err();
        assert!(matches!(refused, GrantError::Certificate(_)), "{refused:?}");
    }

    #[test]
    fn a_changed_grant_is_refused() {
        let (_dir, pki) = pki();
        let now = base::clock::now();
        let verifier = GrantVerifier::new(&pki.ca_pem()).unwrap();
        let signer = signer(&pki, GRANT_SIGNER, PLATFORM);
        let token = signer.sign(grant(), now);
        let other = signer.sign(AgentGrant { node: "n3".to_owned(), ..grant() }, now);
        let parts: Vec<&str> = token.split('.').collect();
        let others: Vec<&str> = other.split('.').collect();
        let mixed = [parts[0], others[1], parts[2]].join(".");
        assert!(matches!(verifier.verify(&mixed, now), Err(GrantError::Signature(_))));
        for text in ["", "a.b.c", parts[0]] {
            assert!(matches!(verifier.verify(text, now), Err(GrantError::Form)), "{text}");
        }
    }
}
