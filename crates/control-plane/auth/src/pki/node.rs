//! The key and the certificates of one node, as files that its processes read.
//!
//! | file | content |
//! |---|---|
//! | `node.key` | the private key; made once, and what the cluster knows the node by |
//! | `node.crt` | the certificate of `system:node:NAME` as a client, also between storage processes |
//! | `node-serving.crt` | the certificate of the node's endpoint |
//! | `ca.crt` | what the node verifies the rest of the cluster by |
//!
//! A certificate that does not belong to the key is reported, never replaced silently.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;

use super::pair::{self, Pair};
use super::request::node_endpoint_name;
use super::{Identity, LEAF_LIFETIME, Pki, PkiError, files, renewal};
use crate::user::NODES;

/// The two certificates of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCertificate {
    Client,
    Serving,
}

impl NodeCertificate {
    fn file(self) -> &'static str {
        match self {
            Self::Client => "node.crt",
            Self::Serving => "node-serving.crt",
        }
    }

    /// The name of its signer.
    pub fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    pub fn usages(self) -> [&'static str; 2] {
        match self {
            Self::Client => ["digital signature", "client auth"],
            Self::Serving => ["digital signature", "server auth"],
        }
    }
}

/// The directory with the files of a node, and its key.
#[derive(Debug)]
pub struct NodeFiles {
    dir: PathBuf,
    key: KeyPair,
}

impl NodeFiles {
    /// Opens the directory; makes the key if there is none.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        files::make_directory(dir)?;
        let _lock = files::lock(dir)?;
        let path = dir.join("node.key");
        let issue = |source| PkiError::Issue { subject: "node.key".to_owned(), source };
        let key = match files::read(&path)? {
            Some(text) => KeyPair::from_pem(&text).map_err(|source| PkiError::Pair {
                path: path.clone(),
                source: pair::PairError::Key(source),
            })?,
            None => {
                let key = KeyPair::generate().map_err(issue)?;
                files::write(&path, &key.serialize_pem())?;
                key
            }
        };
        Ok(Self { dir: dir.to_owned(), key })
    }

    pub fn key_file(&self) -> PathBuf {
        self.dir.join("node.key")
    }

    pub fn ca_file(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    pub fn certificate_file(&self, which: NodeCertificate) -> PathBuf {
        self.dir.join(which.file())
    }

    /// The pin that the cluster records.
    pub fn key_pin(&self) -> String {
        pair::public_key_pin(&self.key.subject_public_key_info())
    }

    /// The request for a certificate, PEM.
    pub fn request(&self, which: NodeCertificate, node: &str) -> Result<String, PkiError> {
        let issue = |source| PkiError::Issue { subject: node.to_owned(), source };
        let names = match which {
            NodeCertificate::Client => vec![],
            NodeCertificate::Serving => vec![node_endpoint_name(node)],
        };
        let mut params = CertificateParams::new(names).map_err(issue)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
        params.distinguished_name.push(DnType::OrganizationName, NODES);
        params.serialize_request(&self.key).and_then(|request| request.pem()).map_err(issue)
    }

    /// A certificate with the key; nothing if there is none yet.
    pub fn identity(&self, which: NodeCertificate) -> Result<Option<Identity>, PkiError> {
        Ok(self.pair(which)?.map(|pair| pair.identity()))
    }

    /// Whether a certificate is missing, or is to be replaced at `now`.
    pub fn is_due(&self, which: NodeCertificate, now: Timestamp) -> Result<bool, PkiError> {
        Ok(self.pair(which)?.is_none_or(|pair| {
            let facts = pair.facts();
            renewal::due(facts.not_before, facts.not_after, now)
        }))
    }

    fn pair(&self, which: NodeCertificate) -> Result<Option<Pair>, PkiError> {
        let path = self.certificate_file(which);
        let Some(text) = files::read(&path)? else { return Ok(None) };
        let pair = Pair::parse(&(self.key.serialize_pem() + &text));
        pair.map(Some).map_err(|source| PkiError::Pair { path, source })
    }

    /// Takes a certificate over, if it belongs to the key.
    pub fn store(&self, which: NodeCertificate, pem: &str) -> Result<(), PkiError> {
        let path = self.certificate_file(which);
        Pair::parse(&(self.key.serialize_pem() + pem))
            .map_err(|source| PkiError::Pair { path: path.clone(), source })?;
        files::write(&path, pem)
    }

    /// The certificates that the node trusts, PEM; nothing before it has joined.
    pub fn ca_pem(&self) -> Result<Option<String>, PkiError> {
        files::read(&self.ca_file())
    }

    /// Trusts these from now on.
    pub fn store_ca(&self, pem: &str) -> Result<(), PkiError> {
        files::write(&self.ca_file(), pem)
    }
}

/// The certificate (PEM) of a bundle whose public key has this pin.
pub fn find_pinned(bundle: &str, pin: &str) -> Option<String> {
    let certs: Vec<CertificateDer<'static>> = pair::parse_certs(bundle).ok()?;
    let has_pin = |cert: &&CertificateDer<'static>| {
        super::CertificateFacts::of(cert)
            .is_ok_and(|facts| facts.public_key_pin().eq_ignore_ascii_case(pin))
    };
    certs.iter().find(has_pin).map(|cert| pair::certs_pem([cert]))
}

impl Pki {
    /// Gives the node of this server its certificates: it needs no approval.
    pub fn issue_node(
        &self,
        files: &NodeFiles,
        node: &str,
        now: Timestamp,
    ) -> Result<(), PkiError> {
        self.issue_serving(files, node, now)?;
        let which = NodeCertificate::Client;
        let is_ours = files.pair(which)?.is_some_and(|pair| {
            pair.facts().issuer == self.ca.facts().subject
                && crate::identity::common_name(&pair.certs()[0])
                    .is_ok_and(|name| name == format!("system:node:{node}"))
        });
        if is_ours && !files.is_due(which, now)? {
            return Ok(());
        }
        let name = format!("system:node:{node}");
        let issue = |source| PkiError::Issue { subject: name.clone(), source };
        let certs = self.ca.client_with(&files.key, &name, &[NODES], LEAF_LIFETIME, now);
        files.store(which, &pair::certs_pem(&certs.map_err(issue)?))
    }

    /// The certificate of the node's endpoint, for other nodes.
    fn issue_serving(&self, files: &NodeFiles, node: &str, now: Timestamp) -> Result<(), PkiError> {
        let which = NodeCertificate::Serving;
        let is_ours = files.pair(which)?.is_some_and(|pair| {
            pair.facts().issuer == self.ca.facts().subject
                && crate::identity::common_name(&pair.certs()[0])
                    .is_ok_and(|name| name == format!("system:node:{node}"))
        });
        if is_ours && !files.is_due(which, now)? {
            return Ok(());
        }
        let sign = |source| PkiError::Sign { node: node.to_owned(), source };
        let request = files.request(which, node)?;
        let request = super::CertificateRequest::parse(&request).map_err(sign)?;
        let usages = which.usages().map(str::to_owned);
        let signed = self.sign(&request, super::Signer::KubeletServing, &usages, None, now);
        files.store(which, &signed.map_err(sign)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{CertificateRequest, ServingNames, Signer};

    fn pki(dir: &Path, now: Timestamp) -> Pki {
        Pki::open(dir, &ServingNames::default(), now).unwrap().0
    }

    #[test]
    fn a_node_keeps_its_key_and_gets_its_certificates_signed() {
        let (cluster, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let pki = pki(cluster.path(), now);
        let files = NodeFiles::open(own.path()).unwrap();
        assert_eq!(NodeFiles::open(own.path()).unwrap().key_pin(), files.key_pin());
        for (which, signer) in [
            (NodeCertificate::Client, Signer::KubeletClient),
            (NodeCertificate::Serving, Signer::KubeletServing),
        ] {
            assert!(files.is_due(which, now).unwrap() && files.identity(which).unwrap().is_none());
            let request = files.request(which, "n2").unwrap();
            let request = CertificateRequest::parse(&request).unwrap();
            assert_eq!(request.public_key_pin(), files.key_pin());
            assert_eq!(request.names_own_endpoint(), which == NodeCertificate::Serving);
            let usages = which.usages().map(str::to_owned);
            assert_eq!(Signer::named(which.signer()), Some(signer));
            let cert = pki.sign(&request, signer, &usages, None, now).unwrap();
            files.store(which, &cert).unwrap();
            assert!(!files.is_due(which, now).unwrap());
            let later = now.checked_add(jiff::SignedDuration::from_hours(24 * 250)).unwrap();
            assert!(files.is_due(which, later).unwrap());
        }
        let other = tempfile::tempdir().unwrap();
        let other = NodeFiles::open(other.path()).unwrap();
        let stolen = files.identity(NodeCertificate::Client).unwrap().unwrap().cert_pem;
        assert!(matches!(
            other.store(NodeCertificate::Client, &stolen),
            Err(PkiError::Pair { source: pair::PairError::Mismatch { .. }, .. })
        ));
    }

    #[test]
    fn the_pinned_root_is_found_and_nothing_else() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (one, two) = (pki(one.path(), now).ca_pem(), pki(two.path(), now).ca_pem());
        let der = pair::parse_certs(&one).unwrap();
        let pin = crate::pki::CertificateFacts::of(&der[0]).unwrap().public_key_pin();
        assert_eq!(find_pinned(&format!("{two}{one}"), &pin), Some(one));
        assert_eq!(find_pinned(&two, &pin), None);
        assert_eq!(find_pinned("nonsense", &pin), None);
    }

    #[test]
    fn the_first_node_issues_its_own_certificate_once() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let pki = pki(dir.path(), now);
        let files = NodeFiles::open(dir.path()).unwrap();
        pki.issue_node(&files, "n1", now).unwrap();
        let first = files.identity(NodeCertificate::Client).unwrap();
        assert!(first.is_some());
        pki.issue_node(&files, "n1", now).unwrap();
        assert_eq!(files.identity(NodeCertificate::Client).unwrap(), first);
        pki.issue_node(&files, "n9", now).unwrap();
        assert_ne!(files.identity(NodeCertificate::Client).unwrap(), first);
    }
}
