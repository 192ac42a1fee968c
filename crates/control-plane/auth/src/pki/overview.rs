//! The certificates in the files of a node with their ends, and a record of the client certificates
//! that were issued here. Nothing is changed but the record.
//!
//! The record `issued.json` says whom a serial number belongs to, so that a certificate can be
//! revoked. It has no keys. Certificates that have ended are dropped from it.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::pair::parse_certs;
use super::{CertificateFacts, PkiError, files};
use crate::revocation::ClientCertificate;

const RECORD: &str = "issued.json";
const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 30);
/// The newest are kept.
const MOST_RECORDED: usize = 5000;

/// Files with certificates, the authorities first.
const FILES: [&str; 12] = [
    "ca.pem",
    "ca-next.pem",
    "front-proxy-ca.pem",
    "etcd-ca.pem",
    "serving.pem",
    "admin.pem",
    "front-proxy-client.pem",
    "node.crt",
    "node-serving.crt",
    "etcd.crt",
    "etcd-ca.crt",
    "ca.crt",
];

/// A certificate in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnCertificate {
    pub file: &'static str,
    pub name: String,
    pub serial: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
    /// An authority that does not sign any more, or not yet.
    pub is_older: bool,
}

impl OwnCertificate {
    /// Whether it expires within a month, which automatic renewal should have prevented.
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        !self.is_older && self.expires.duration_since(now) < WARN_BEFORE
    }
}

/// A client certificate that was issued by this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    pub user: String,
    pub serial: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
}

/// The certificates in the directory of a node.
pub fn own_certificates(dir: &Path) -> Result<Vec<OwnCertificate>, PkiError> {
    let mut found: Vec<OwnCertificate> = Vec::new();
    for file in FILES {
        let path = dir.join(file);
        let Some(text) = files::read(&path)? else { continue };
        let pair = |source| PkiError::Pair { path: path.clone(), source };
        for (at, der) in parse_certs(&text).map_err(pair)?.iter().enumerate() {
            let facts = CertificateFacts::of(der).map_err(pair)?;
            let Ok(ClientCertificate { user, serial, issued, .. }) = ClientCertificate::of(der)
            else {
                continue;
            };
            if found.iter().all(|known| known.serial != serial) {
                let (expires, is_older) = (facts.not_after, at > 0);
                let name = user;
                found.push(OwnCertificate { file, name, serial, issued, expires, is_older });
            }
        }
    }
    Ok(found)
}

/// Notes a client certificate (PEM) that was issued.
pub fn record_issued(dir: &Path, pem: &str, now: Timestamp) -> Result<(), PkiError> {
    let certificate = super::first_der(pem).ok().and_then(|der| ClientCertificate::of(&der).ok());
    let Some(ClientCertificate { user, serial, issued, expires, .. }) = certificate else {
        return Ok(());
    };
    let _lock = files::lock(dir)?;
    let mut all = issued_certificates(dir, now)?;
    all.push(IssuedCertificate { user, serial, issued, expires });
    let surplus = all.len().saturating_sub(MOST_RECORDED);
    let text = serde_json::to_string(&all[surplus..]).unwrap_or_default();
    files::write(&dir.join(RECORD), &text)
}

/// The client certificates that were issued here and have not ended.
pub fn issued_certificates(dir: &Path, now: Timestamp) -> Result<Vec<IssuedCertificate>, PkiError> {
    let text = files::read(&dir.join(RECORD))?.unwrap_or_default();
    // A damaged record is no reason to issue nothing.
    let all: Vec<IssuedCertificate> = serde_json::from_str(&text).unwrap_or_default();
    Ok(all.into_iter().filter(|own| now < own.expires).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Pki, ServingNames};

    #[test]
    fn certificates_are_listed_with_their_ends() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (pki, _) = Pki::open(dir.path(), &ServingNames::default(), now).unwrap();
        let own = own_certificates(dir.path()).unwrap();
        let admin = own.iter().find(|own| own.file == "admin.pem").unwrap();
        assert_eq!((&*admin.name, admin.issued), ("system:admin", now));
        assert_eq!(own.len(), 5, "{own:?}");
        for (days, expected) in [(334, false), (336, true), (366, true)] {
            let later = now.checked_add(SignedDuration::from_hours(24 * days)).unwrap();
            assert_eq!(admin.ends_soon(later), expected, "{days}");
            assert!(!OwnCertificate { is_older: true, ..admin.clone() }.ends_soon(later));
        }

        let (hour, day) = (SignedDuration::from_hours(1), SignedDuration::from_hours(24));
        for (user, ttl) in [("jane", hour), ("bob", day)] {
            let identity = pki.issue_client(user, &[], ttl, now).unwrap();
            record_issued(dir.path(), &identity.cert_pem, now).unwrap();
        }
        let names = |at| {
            let issued = issued_certificates(dir.path(), at).unwrap();
            issued.into_iter().map(|own| own.user).collect::<Vec<_>>()
        };
        assert_eq!(names(now), ["jane", "bob"]);
        assert_eq!(names(now.checked_add(hour).unwrap()), ["bob"]);
        std::fs::write(dir.path().join(RECORD), "damaged").unwrap();
        assert!(names(now).is_empty());
    }
}
