//! The certificate of this node between members of etcd. etcd gives everything to whoever has a
//! certificate of its CA, so that CA is one of its own: it signs members, and nobody else.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::KeyPair;

use super::authority::{self, Authority};
use super::pair::{self, Pair};
use super::{LEAF_LIFETIME, PkiError, files, issue, renewal};

/// The files that etcd and its clients on this node read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl EtcdFiles {
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
        let own = Self {
            ca: dir.join("etcd-ca.crt"),
            certificate: dir.join("etcd.crt"),
            key: dir.join("etcd.key"),
        };
        let failed = |source| PkiError::Issue { subject: "etcd".to_owned(), source };
        let key = match files::read(&own.key)? {
            Some(text) => KeyPair::from_pem(&text).map_err(|source| PkiError::Pair {
                path: own.key.clone(),
                source: pair::PairError::Key(source),
            })?,
            None => {
                let key = KeyPair::generate().map_err(failed)?;
                files::write(&own.key, &key.serialize_pem())?;
                key
            }
        };
        let known = files::read(&own.certificate)?;
        let known = known.and_then(|text| Pair::parse(&(key.serialize_pem() + &text)).ok());
        let is_good = known.is_some_and(|pair| {
            let facts = pair.facts();
            facts.issuer == ca.facts().subject
                && facts.names.contains(&address.to_string())
                && !renewal::due(facts.not_before, facts.not_after, now)
        });
        if !is_good {
            let issuer = ca.issuer().map_err(failed)?;
            let lifetime = ca.lifetime(LEAF_LIFETIME, now);
            let cert = issue::etcd_member(&issuer, &key, address, lifetime).map_err(failed)?;
            files::write(&own.certificate, &pair::certs_pem([&cert]))?;
        }
        Ok(own)
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
