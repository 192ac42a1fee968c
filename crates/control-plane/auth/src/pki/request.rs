//! Certificate signing requests: the certificates that each signer signs, and how. The rules are
//! upstream's.

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateSigningRequestParams, ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509CertificationRequest};

use super::{Pki, issue};
use crate::pki::encode_pem;
use crate::subject::{CertificateSubject, SubjectError};

/// The longest that anything is signed for.
const MAX_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
const NODES: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// The name in the serving certificate of a node's endpoint. Under a domain of its own, so that a
/// node cannot pass for the API server, whatever it is called.
pub fn node_endpoint_name(node: &str) -> String {
    format!("{node}.node.sheaf.internal")
}

/// One that signs, by the names of upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signer {
    /// `kubernetes.io/kube-apiserver-client`: any user as a client.
    Client,
    /// `kubernetes.io/kube-apiserver-client-kubelet`: a node as a client.
    KubeletClient,
    /// `kubernetes.io/kubelet-serving`: a node as a server.
    KubeletServing,
}

impl Signer {
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "kubernetes.io/kube-apiserver-client" => Some(Self::Client),
            "kubernetes.io/kube-apiserver-client-kubelet" => Some(Self::KubeletClient),
            "kubernetes.io/kubelet-serving" => Some(Self::KubeletServing),
            _ => None,
        }
    }
}

/// Why something is not signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("unable to parse csr {0:?}")]
    Unreadable(String),
    #[error("certificate request is not signed by its own key")]
    Signature,
    #[error("certificate request names no user")]
    Subject(#[source] SubjectError),
    #[error("usages did not match {wanted}")]
    Usages { wanted: &'static str },
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error("DNS or IP subjectAltName is required")]
    NamesRequired,
    #[error("{kind} subjectAltNames are not allowed")]
    NamesForbidden { kind: &'static str },
    #[error("certificate cannot be issued")]
    Issue,
}

/// A request, taken apart.
#[derive(Debug)]
pub struct CertificateRequest {
    params: CertificateSigningRequestParams,
    /// As it is encoded, with every organization.
    encoded_subject: Vec<u8>,
    encoded_key: Vec<u8>,
    pub subject: CertificateSubject,
}

impl CertificateRequest {
    /// Reads PEM and checks that its creator has the key.
    pub fn parse(pem: &str) -> Result<Self, RequestError> {
        let unreadable =
            |error: &dyn std::fmt::Display| RequestError::Unreadable(error.to_string());
        let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| unreadable(&error))?;
        let params =
            CertificateSigningRequestParams::from_der(&der).map_err(|error| match error {
                rcgen::Error::InvalidCertificationRequestSignature => RequestError::Signature,
                other => unreadable(&other),
            })?;
        let (_, parsed) =
            X509CertificationRequest::from_der(&der).map_err(|error| unreadable(&error))?;
        let info = &parsed.certification_request_info;
        let subject = CertificateSubject::of(&info.subject).map_err(RequestError::Subject)?;
        let encoded_subject = info.subject.as_raw().to_vec();
        let encoded_key = info.subject_pki.raw.to_vec();
        Ok(Self { params, encoded_subject, encoded_key, subject })
    }

    /// The pin of the key that asks, as [`super::CertificateFacts::public_key_pin`] has it.
    pub fn public_key_pin(&self) -> String {
        super::pair::public_key_pin(&self.encoded_key)
    }

    /// The key that asks.
    pub(super) fn public_key(&self) -> &rcgen::PublicKey {
        &self.params.public_key
    }

    /// Whether it asks for the name of its own node's endpoint and no other.
    pub fn names_own_endpoint(&self) -> bool {
        let node = self.subject.common_name.strip_prefix(NODE_PREFIX).unwrap_or_default();
        match self.params.params.subject_alt_names.as_slice() {
            [SanType::DnsName(name)] => name.as_str() == node_endpoint_name(node),
            _ => false,
        }
    }

    /// Whether `signer` is willing to sign this for `usages`.
    pub fn check(&self, signer: Signer, usages: &[String]) -> Result<(), RequestError> {
        let names = &self.params.params.subject_alt_names;
        check_usages(signer, usages)?;
        if signer == Signer::Client {
            return Ok(());
        }
        if self.subject.organizations != [NODES] {
            return Err(RequestError::Organization);
        }
        if self.subject.common_name.strip_prefix(NODE_PREFIX).is_none_or(str::is_empty) {
            return Err(RequestError::CommonName);
        }
        let kinds = names.iter().map(kind_of);
        let allowed: &[&str] = match signer {
            Signer::KubeletServing => &["DNS", "IP"],
            Signer::Client | Signer::KubeletClient => &[],
        };
        if let Some(kind) = kinds.into_iter().find(|kind| !allowed.contains(kind)) {
            return Err(RequestError::NamesForbidden { kind });
        }
        if signer == Signer::KubeletServing && names.is_empty() {
            return Err(RequestError::NamesRequired);
        }
        Ok(())
    }
}

fn kind_of(name: &SanType) -> &'static str {
    match name {
        SanType::DnsName(_) => "DNS",
        SanType::IpAddress(_) => "IP",
        SanType::Rfc822Name(_) => "Email",
        SanType::URI(_) => "URI",
        _ => "Other",
    }
}

fn check_usages(signer: Signer, usages: &[String]) -> Result<(), RequestError> {
    let (needed, wanted) = match signer {
        Signer::Client => (
            &["client auth"][..],
            "client auth, with digital signature and key encipherment at most",
        ),
        Signer::KubeletClient => (
            &["client auth", "digital signature"][..],
            "digital signature and client auth, with key encipherment at most",
        ),
        Signer::KubeletServing => (
            &["server auth", "digital signature"][..],
            "digital signature and server auth, with key encipherment at most",
        ),
    };
    let more = ["digital signature", "key encipherment"];
    let has = |usage: &&str| usages.iter().any(|given| given == usage);
    let known = |usage: &String| needed.contains(&&**usage) || more.contains(&&**usage);
    if needed.iter().all(has) && usages.iter().all(known) {
        return Ok(());
    }
    Err(RequestError::Usages { wanted })
}

impl Pki {
    /// Signs what [`Request::check`] has let pass, for as long as was asked, within reason.
    pub fn sign(
        &self,
        request: &CertificateRequest,
        signer: Signer,
        usages: &[String],
        seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, RequestError> {
        request.check(signer, usages)?;
        let wanted = seconds.map_or(MAX_LIFETIME, SignedDuration::from_secs);
        let length = wanted.clamp(SHORTEST, MAX_LIFETIME);
        let mut params = request.params.clone();
        let purpose = match signer {
            Signer::KubeletServing => ExtendedKeyUsagePurpose::ServerAuth,
            Signer::Client | Signer::KubeletClient => ExtendedKeyUsagePurpose::ClientAuth,
        };
        let encipherment = usages.iter().any(|usage| usage == "key encipherment");
        let mut key_usages = vec![KeyUsagePurpose::DigitalSignature];
        key_usages.extend(encipherment.then_some(KeyUsagePurpose::KeyEncipherment));
        let mut dated = self.ca.lifetime(length, now).params();
        dated.distinguished_name = params.params.distinguished_name.clone();
        dated.subject_alt_names = params.params.subject_alt_names.clone();
        dated.key_usages = key_usages;
        dated.extended_key_usages = vec![purpose];
        dated.use_authority_key_identifier_extension = true;
        params.params = dated;
        let failed = |_| RequestError::Issue;
        let issuer = self.ca.issuer().map_err(failed)?;
        let cert = params.signed_by(&issuer).map_err(failed)?;
        // Names of several organizations come back only by putting the subject in as it was.
        let cert = issue::with_subject(cert.der(), &request.encoded_subject, issuer.key())
            .map_err(failed)?;
        Ok(encode_pem("CERTIFICATE", &cert))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn pem(name: &str, organization: &str, names: &[&str]) -> String {
        let mut params =
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
                .unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        if !organization.is_empty() {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    fn usages(list: &[&str]) -> Vec<String> {
        list.iter().map(|&usage| usage.to_owned()).collect()
    }

    #[test]
    fn each_signer_signs_its_own_kind_only() {
        use Signer::{Client, KubeletClient, KubeletServing};
        let client: &[&str] = &["client auth", "digital signature"];
        let server: &[&str] = &["server auth", "digital signature", "key encipherment"];
        let node = |names: &[&str]| pem("system:node:a", "system:nodes", names);
        for (signer, request, given, expected) in [
            (Client, pem("jane", "dev", &[]), client, None),
            (Client, pem("jane", "dev", &[]), &["client auth"][..], None),
            (Client, pem("jane", "dev", &[]), server, Some("usages did not match")),
            (KubeletClient, node(&[]), client, None),
            (KubeletClient, node(&[]), &["client auth"], Some("usages did not match")),
            (KubeletClient, node(&["host"]), client, Some("DNS subjectAltNames are not allowed")),
            (KubeletClient, pem("jane", "system:nodes", &[]), client, Some("common name")),
            (KubeletClient, pem("system:node:a", "dev", &[]), client, Some("organization")),
            (KubeletServing, node(&["host", "10.0.0.1"]), server, None),
            (KubeletServing, node(&[]), server, Some("DNS or IP subjectAltName is required")),
            (KubeletServing, node(&["host"]), client, Some("usages did not match")),
        ] {
            let outcome =
                CertificateRequest::parse(&request).unwrap().check(signer, &usages(given));
            match (outcome, expected) {
                (Ok(()), None) => {}
                (Err(error), Some(part)) => {
                    assert!(error.to_string().contains(part), "{signer:?}: {error}");
                }
                (outcome, expected) => panic!("{signer:?} {given:?}: {outcome:?} {expected:?}"),
            }
        }
    }

    #[test]
    fn a_signed_certificate_names_the_requested_user() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (pki, _) = Pki::open(dir.path(), &crate::pki::ServingNames::default(), now).unwrap();
        let request = CertificateRequest::parse(&pem("jane", "dev", &[])).unwrap();
        let usages = usages(&["client auth"]);
        let cert = pki.sign(&request, Signer::Client, &usages, Some(3600), now).unwrap();
        let der = rustls::pki_types::CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
        let tls = crate::pki::tls::Tls::new(&pki).unwrap();
        let crate::pki::tls::Peer::User(user) = tls.peer(std::slice::from_ref(&der), now).unwrap()
        else {
            panic!("it names a user")
        };
        assert_eq!((user.name.as_str(), user.groups), ("jane", vec!["dev".to_owned()]));
        let facts = crate::pki::CertificateFacts::of(&der).unwrap();
        assert_eq!(facts.not_after.as_second() - now.as_second(), 3600);
    }

    #[test]
    fn a_node_serves_its_own_name_only() {
        let own = node_endpoint_name("a");
        for (names, expected) in [
            (&[own.as_str()][..], true),
            (&[], false),
            (&["kubernetes"], false),
            (&["10.0.0.1"], false),
            (&[own.as_str(), "10.0.0.1"], false),
            (&["b.node.sheaf.internal"], false),
        ] {
            let request = pem("system:node:a", "system:nodes", names);
            let request = CertificateRequest::parse(&request).unwrap();
            assert_eq!(request.names_own_endpoint(), expected, "{names:?}");
            assert_eq!(request.public_key_pin().len(), 64);
        }
    }

    #[test]
    fn a_request_must_be_signed_by_its_own_key() {
        assert!(matches!(CertificateRequest::parse("nonsense"), Err(RequestError::Unreadable(_))));
        let good = pem("jane", "", &[]);
        let der = CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap();
        let mut bad = der.to_vec();
        let at = bad.windows(4).position(|part| part == b"jane").unwrap();
        bad[at] = b'k';
        let bad = encode_pem("CERTIFICATE REQUEST", &bad);
        assert_eq!(CertificateRequest::parse(&bad).unwrap_err(), RequestError::Signature);
    }
}
