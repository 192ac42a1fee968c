//! The certificate of this node between members of etcd. etcd gives all rights to every holder of
//! a certificate of its CA, so that CA is one of its own: it signs members only.
//!
//! Management nodes have the key of the CA and issue their own. A witness has not: it makes a
//! request, which a management node signs, and stores the answer.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair};

use super::authority::{self, Authority};
use super::pair::{self, Pair};
use super::{CertificateRequest, LEAF_LIFETIME, PkiError, files, issue, renewal};

const CA: &str = "etcd-ca.crt";

/// The files that etcd and its clients on this node read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A certificate that was signed for a member on another node, PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdCertificate {
    pub ca: String,
    pub certificate: String,
}

fn failed(source: rcgen::Error) -> PkiError {
    PkiError::Issue { subject: "etcd".to_owned(), source }
}

impl EtcdFiles {
    fn at(dir: &Path) -> Self {
        Self { ca: dir.join(CA), certificate: dir.join("etcd.crt"), key: dir.join("etcd.key") }
    }

    /// Makes the CA of etcd if there is none.
    pub fn ensure_ca(dir: &Path, now: Timestamp) -> Result<(), PkiError> {
        files::make_directory(dir)?;
        let _lock = files::lock(dir)?;
        Authority::open(dir, &authority::ETCD, now, &mut Vec::new()).map(drop)
    }

    /// The certificate for `address`; issued if it is missing, due, or for another address. etcd
    /// reads the files at each handshake, so a new certificate needs no restart.
    pub fn open(dir: &Path, address: IpAddr, now: Timestamp) -> Result<Self, PkiError> {
        files::make_directory(dir)?;
        let _lock = files::lock(dir)?;
        let ca = Authority::open(dir, &authority::ETCD, now, &mut Vec::new())?;
        let own = Self::at(dir);
        let key = own.key_pair()?;
        if !own.is_good(&key, &ca.facts().subject, address, now)? {
            let issuer = ca.issuer().map_err(failed)?;
            let lifetime = ca.lifetime(LEAF_LIFETIME, now);
            let cert = issue::etcd_member(&issuer, &key, address, lifetime).map_err(failed)?;
            files::write(&own.certificate, &pair::certs_pem([&cert]))?;
        }
        Ok(own)
    }

    /// The files of a node without the key of the CA, if they are good for `address`: nothing if
    /// another certificate has to be asked for.
    pub fn find(dir: &Path, address: IpAddr, now: Timestamp) -> Result<Option<Self>, PkiError> {
        let own = Self::at(dir);
        let (Some(ca), Some(_)) = (files::read(&own.ca)?, files::read(&own.key)?) else {
            return Ok(None);
        };
        let damaged = |source| PkiError::Pair { path: own.ca.clone(), source };
        let ca = pair::parse_certs(&ca).map_err(damaged)?;
        let subjects = ca.iter().filter_map(|cert| super::CertificateFacts::of(cert).ok());
        let key = own.key_pair()?;
        for facts in subjects {
            if own.is_good(&key, &facts.subject, address, now)? {
                return Ok(Some(own));
            }
        }
        Ok(None)
    }

    /// The files of a node without the key of the CA, as they are: usable until the certificate
    /// ends, even if it is time to ask for another.
    pub fn existing(dir: &Path) -> Option<Self> {
        let own = Self::at(dir);
        [&own.ca, &own.certificate, &own.key].iter().all(|path| path.exists()).then_some(own)
    }

    /// A request to be signed by a node with the key of the CA, PEM. The key is made once.
    pub fn request(dir: &Path) -> Result<String, PkiError> {
        files::make_directory(dir)?;
        let _lock = files::lock(dir)?;
        let key = Self::at(dir).key_pair()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = issue::common_name("sheaf-etcd");
        params.serialize_request(&key).and_then(|request| request.pem()).map_err(failed)
    }

    /// Takes a signed certificate over, if it belongs to the key.
    pub fn store(dir: &Path, signed: &EtcdCertificate) -> Result<Self, PkiError> {
        let _lock = files::lock(dir)?;
        let own = Self::at(dir);
        let broken = |path: &Path| {
            let path = path.to_owned();
            move |source| PkiError::Pair { path, source }
        };
        Pair::parse(&(own.key_pair()?.serialize_pem() + &signed.certificate))
            .map_err(broken(&own.certificate))?;
        pair::parse_certs(&signed.ca).map_err(broken(&own.ca))?;
        files::write(&own.ca, &signed.ca)?;
        files::write(&own.certificate, &signed.certificate)?;
        Ok(own)
    }

    /// The key, made if there is none.
    fn key_pair(&self) -> Result<KeyPair, PkiError> {
        match files::read(&self.key)? {
            Some(text) => KeyPair::from_pem(&text).map_err(|source| PkiError::Pair {
                path: self.key.clone(),
                source: pair::PairError::Key(source),
            }),
            None => {
                let key = KeyPair::generate().map_err(failed)?;
                files::write(&self.key, &key.serialize_pem())?;
                Ok(key)
            }
        }
    }

    /// Whether there is a certificate of this issuer for `address` that is not due.
    fn is_good(
        &self,
        key: &KeyPair,
        issuer: &[u8],
        address: IpAddr,
        now: Timestamp,
    ) -> Result<bool, PkiError> {
        let known = files::read(&self.certificate)?;
        let known = known.and_then(|text| Pair::parse(&(key.serialize_pem() + &text)).ok());
        Ok(known.is_some_and(|pair| {
            let facts = pair.facts();
            facts.issuer == issuer
                && facts.names.contains(&address.to_string())
                && !renewal::due(facts.not_before, facts.not_after, now)
        }))
    }
}

impl EtcdCertificate {
    /// Signs the key of a request for a member at `address`. Names in the request are ignored.
    pub fn sign(
        dir: &Path,
        request: &CertificateRequest,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        EtcdFiles::ensure_ca(dir, now)?;
        let _lock = files::lock(dir)?;
        let ca = Authority::open(dir, &authority::ETCD, now, &mut Vec::new())?;
        let path = dir.join(CA);
        let text = files::read(&path)?.ok_or(PkiError::Missing { path })?;
        let issuer = ca.issuer().map_err(failed)?;
        let lifetime = ca.lifetime(LEAF_LIFETIME, now);
        let cert = issue::etcd_member(&issuer, request.public_key(), address, lifetime);
        Ok(Self { ca: text, certificate: pair::certs_pem([&cert.map_err(failed)?]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::CertificateFacts;

    #[test]
    fn a_member_has_a_certificate_for_its_address_that_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let address = "10.0.0.1".parse().unwrap();
        let files = EtcdFiles::open(dir.path(), address, now).unwrap();
        let read = || std::fs::read_to_string(&files.certificate).unwrap();
        let first = read();
        let der = pair::parse_certs(&first).unwrap();
        let names = CertificateFacts::of(&der[0]).unwrap().names;
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["10.0.0.1"]);
        EtcdFiles::open(dir.path(), address, now).unwrap();
        assert_eq!(read(), first);
        let later = now.checked_add(jiff::SignedDuration::from_hours(24 * 250)).unwrap();
        EtcdFiles::open(dir.path(), address, later).unwrap();
        let renewed = read();
        assert_ne!(renewed, first);
        EtcdFiles::open(dir.path(), "10.0.0.9".parse().unwrap(), later).unwrap();
        assert_ne!(read(), renewed);
    }

    #[test]
    fn a_witness_has_its_certificate_signed_and_gets_no_key_of_the_ca() {
        let (cluster, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let address = "10.0.0.3".parse().unwrap();
        assert_eq!(EtcdFiles::find(own.path(), address, now).unwrap(), None);
        let request = EtcdFiles::request(own.path()).unwrap();
        assert_eq!(EtcdFiles::existing(own.path()), None);
        let parsed = CertificateRequest::parse(&request).unwrap();
        let signed = EtcdCertificate::sign(cluster.path(), &parsed, address, now).unwrap();
        let files = EtcdFiles::store(own.path(), &signed).unwrap();
        assert_eq!(EtcdFiles::existing(own.path()).as_ref(), Some(&files));
        assert_eq!(EtcdFiles::find(own.path(), address, now).unwrap(), Some(files));
        assert!(!own.path().join("etcd-ca.pem").exists());
        // Another address, and a certificate that is due, are asked for again.
        let later = now.saturating_add(jiff::SignedDuration::from_hours(24 * 360)).unwrap();
        let other = "10.0.0.4".parse().unwrap();
        for (address, now) in [(other, now), (address, later)] {
            assert_eq!(EtcdFiles::find(own.path(), address, now).unwrap(), None);
        }
        // A certificate of another key is refused, and the old one stays.
        let other = tempfile::tempdir().unwrap();
        let request = EtcdFiles::request(other.path()).unwrap();
        let request = CertificateRequest::parse(&request).unwrap();
        let foreign = EtcdCertificate::sign(cluster.path(), &request, address, now).unwrap();
        assert!(EtcdFiles::store(own.path(), &foreign).is_err());
        assert!(EtcdFiles::find(own.path(), address, now).unwrap().is_some());
    }

    #[test]
    fn the_ca_of_etcd_is_not_that_of_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let names = crate::pki::ServingNames::default();
        let (pki, _) = crate::pki::Pki::open(dir.path(), &names, now).unwrap();
        EtcdFiles::ensure_ca(dir.path(), now).unwrap();
        let etcd = std::fs::read_to_string(dir.path().join("etcd-ca.crt")).unwrap();
        assert_ne!(etcd, pki.ca_pem());
    }
}
