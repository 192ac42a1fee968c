//! The cluster's keys and certificates: creating them at first start, renewing
//! them in time, and saying exactly what is wrong when they do not fit together.
//!
//! Layout of the directory (mode 0700, files 0600):
//!
//! | file | content |
//! |---|---|
//! | `ca.pem` | private key and certificate of the cluster CA, then older CA certificates that are still trusted |
//! | `ca-next.pem` | the CA that will take over, while there is one |
//! | `ca.crt` | all trusted CA certificates, for others to read; derived |
//! | `front-proxy-ca.pem` | the CA of those who may speak for other users |
//! | `front-proxy-client.pem`, `serving.pem`, `admin.pem` | key and certificate of each |
//! | `node.key`, `node.crt` | key and certificate of this node, see `node` |
//! | `etcd-ca.pem`, `etcd.key`, `etcd.crt` | the CA of etcd, and this node's certificate of it, see `etcd` |
//! | `issued.json` | client certificates that were issued here, see [`overview`] |
//! | `service-account.pem` | the key that signs service-account tokens, then others that verify |
//! | `service-account-next.pem` | the key that will sign them, while there is one, see [`token_keys`] |
//!
//! A key and its certificate share one file, which is replaced by rename. A crash
//! therefore leaves the old pair or the new one, never half of each; a pair that
//! does not match was made by hand and is reported, never replaced.
//!
//! Nodes of one cluster share [`SHARED_FILES`]; the rest belongs to one node. A node
//! that prepares a new CA does so for itself: until nodes agree on one by themselves,
//! `ca-next.pem` has to be copied to the others before it takes over.

mod authority;
pub mod endpoint;
mod etcd;
mod files;
mod given;
pub mod grant;
mod issue;
mod node;
pub mod overview;
mod pair;
pub mod renewal;
mod request;
mod serving;
mod shared;
pub mod tls;
pub mod token_keys;

use std::io;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use rcgen::KeyPair;

use crate::revocation::{ClientCertificate, RevocationList};
use crate::token::key::{KeyError, KeyRing};
use crate::user::MASTERS;
use authority::Authority;
pub use etcd::{EtcdCertificate, EtcdFiles};
pub(crate) use files::write_private;
pub use given::{GivenError, GivenFiles, ensure_self_signed};
pub(crate) use issue::BACKDATE;
pub use node::{NodeCertificate, NodeFiles, find_pinned};
use pair::Pair;
pub use pair::first_der;
pub(crate) use pair::pem as encode_pem;
pub(crate) use pair::public_key_pin;
pub use pair::{CertificateFacts, PairError};
pub use request::{CertificateRequest, RequestError, Signer, node_endpoint_name};
pub use serving::ServingNames;
pub use shared::{SharedFileError, read_shared, store_shared};

/// Keys and certificates that all management nodes of a cluster share.
pub const SHARED_FILES: [&str; 4] =
    ["ca.pem", "front-proxy-ca.pem", "service-account.pem", "etcd-ca.pem"];

const FILES: [&str; 6] = [
    "ca.pem",
    "front-proxy-ca.pem",
    "service-account.pem",
    "admin.pem",
    "front-proxy-client.pem",
    "serving.pem",
];

const CA_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 3650);
const LEAF_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 365);
const ADMIN: &str = "system:admin";
const FRONT_PROXY: &str = "front-proxy-client";

/// Why the keys and certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot create directory {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot lock {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot use {}", path.display())]
    Pair { path: PathBuf, source: PairError },
    #[error("cannot use the keys in {}", path.display())]
    Keys { path: PathBuf, source: KeyError },
    /// Certificates of an earlier CA exist; making a new CA would invalidate them all.
    #[error("{} is missing but {} exists: restore it, or remove the directory to start anew",
        ca.display(), witness.display())]
    AuthorityLost { ca: PathBuf, witness: PathBuf },
    #[error("{} is missing: has a server been started with this directory?", path.display())]
    Missing { path: PathBuf },
    #[error("cannot issue a certificate for {subject:?}")]
    Issue { subject: String, source: rcgen::Error },
    #[error("cannot sign the certificate of node {node:?}")]
    Sign { node: String, source: RequestError },
}

/// Something that was made or replaced; callers log it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PkiChange {
    pub file: &'static str,
    pub reason: Reason,
}

/// Why a file was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It did not exist.
    Created,
    /// Less than a third of its life was left, or the clock is before its beginning.
    Renewed,
    /// The names or addresses it must carry are others now.
    NamesChanged,
    /// A new CA was made; it is trusted already but does not sign yet.
    AuthorityPrepared,
    /// The new CA signs from now on.
    AuthoritySwitched,
    /// The old one was revoked.
    Revoked,
    /// It was signed by a CA that does not sign any more.
    AuthorityChanged,
    /// An older key or certificate has expired and was dropped.
    Pruned,
}

/// A certificate with its private key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    pub cert_pem: String,
    pub key_pem: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Identity").field("cert_pem", &self.cert_pem).finish_non_exhaustive()
    }
}

/// All keys and certificates of this node.
#[derive(Debug)]
pub struct Pki {
    dir: PathBuf,
    ca: Authority,
    front_proxy_ca: Authority,
    serving: Pair,
    admin: Pair,
    front_proxy: Pair,
}

impl Pki {
    /// Opens the directory, creating whatever is missing and renewing what is due.
    pub fn open(
        dir: &Path,
        names: &ServingNames,
        now: Timestamp,
    ) -> Result<(Self, Vec<PkiChange>), PkiError> {
        files::make_directory(dir)?;
        let (mut pki, mut changes) = Self::read(dir, names, now)?;
        changes.extend(pki.renew_if_due(names, now)?);
        Ok((pki, changes))
    }

    /// Opens a directory that a server has filled, for commands that only need to read
    /// it or to issue a client certificate. Creates and renews nothing.
    pub fn load(dir: &Path, now: Timestamp) -> Result<Self, PkiError> {
        for file in FILES {
            let path = dir.join(file);
            if !path.exists() {
                return Err(PkiError::Missing { path });
            }
        }
        Ok(Self::read(dir, &ServingNames::default(), now)?.0)
    }

    fn read(
        dir: &Path,
        names: &ServingNames,
        now: Timestamp,
    ) -> Result<(Self, Vec<PkiChange>), PkiError> {
        let _lock = files::lock(dir)?;
        let mut changes = Vec::new();
        // The authorities come first: a crash later on must find them.
        let ca = Authority::open(dir, &authority::CLUSTER, now, &mut changes)?;
        let front_proxy_ca = Authority::open(dir, &authority::FRONT_PROXY, now, &mut changes)?;
        ensure_key_ring(dir, &mut changes)?;
        let admin = leaf(dir, "admin.pem", &mut changes, || {
            ca.client(ADMIN, &[MASTERS], LEAF_LIFETIME, now)
        })?;
        let front_proxy = leaf(dir, "front-proxy-client.pem", &mut changes, || {
            front_proxy_ca.client(FRONT_PROXY, &[], LEAF_LIFETIME, now)
        })?;
        let serving = leaf(dir, "serving.pem", &mut changes, || {
            ca.server(&KeyPair::generate()?, names, LEAF_LIFETIME, now)
        })?;
        let dir = dir.to_owned();
        let pki = Self { dir, ca, front_proxy_ca, serving, admin, front_proxy };
        Ok((pki, changes))
    }

    /// Renews what is due at `now` and re-issues the serving certificate if it does
    /// not carry `names`. Private keys of leaf certificates stay the same.
    ///
    /// Call it at least daily; after changes, swap them in with [`tls::Tls::reload`].
    pub fn renew_if_due(
        &mut self,
        names: &ServingNames,
        now: Timestamp,
    ) -> Result<Vec<PkiChange>, PkiError> {
        let _lock = files::lock(&self.dir)?;
        let mut changes = Vec::new();
        self.ca.advance(&self.dir, now, &mut changes)?;
        self.front_proxy_ca.advance(&self.dir, now, &mut changes)?;

        if let Some(reason) = self.leaf_due(&self.ca, &self.admin, now) {
            let issue =
                |key: &KeyPair| self.ca.client_with(key, ADMIN, &[MASTERS], LEAF_LIFETIME, now);
            self.admin = replace(&self.dir, "admin.pem", &self.admin, issue)?;
            changes.push(PkiChange { file: "admin.pem", reason });
        }
        if let Some(reason) = self.leaf_due(&self.front_proxy_ca, &self.front_proxy, now) {
            let issue = |key: &KeyPair| {
                self.front_proxy_ca.client_with(key, FRONT_PROXY, &[], LEAF_LIFETIME, now)
            };
            self.front_proxy =
                replace(&self.dir, "front-proxy-client.pem", &self.front_proxy, issue)?;
            changes.push(PkiChange { file: "front-proxy-client.pem", reason });
        }
        let due = self.leaf_due(&self.ca, &self.serving, now).or_else(|| {
            let carried = &self.serving.facts().names;
            (*carried != names.all()).then_some(Reason::NamesChanged)
        });
        if let Some(reason) = due {
            let issue = |key: &KeyPair| {
                self.ca.server(key, names, LEAF_LIFETIME, now).map(|pair| pair.into_certs())
            };
            self.serving = replace(&self.dir, "serving.pem", &self.serving, issue)?;
            changes.push(PkiChange { file: "serving.pem", reason });
        }
        Ok(changes)
    }

    /// Makes the administrator's certificate anew, with another key, if it was revoked.
    pub fn renew_revoked(
        &mut self,
        list: &RevocationList,
        now: Timestamp,
    ) -> Result<Vec<PkiChange>, PkiError> {
        let own = ClientCertificate::of(&self.admin.certs()[0]);
        let Some(before) = own.ok().and_then(|own| list.revoked_before(&own)) else {
            return Ok(Vec::new());
        };
        if before == Timestamp::MAX {
            // Nothing that could be made would be accepted.
            return Ok(Vec::new());
        }
        let _lock = files::lock(&self.dir)?;
        let (file, path) = ("admin.pem", self.dir.join("admin.pem"));
        let made = self.ca.client(ADMIN, &[MASTERS], LEAF_LIFETIME, now.max(before));
        let made = made.map_err(|source| PkiError::Issue { subject: file.to_owned(), source })?;
        files::write(&path, &made.to_pem())?;
        self.admin = made;
        Ok(vec![PkiChange { file, reason: Reason::Revoked }])
    }

    fn leaf_due(&self, ca: &Authority, pair: &Pair, now: Timestamp) -> Option<Reason> {
        let facts = pair.facts();
        if facts.issuer != ca.facts().subject {
            return Some(Reason::AuthorityChanged);
        }
        // Nothing is gained by renewing what ends with its CA anyway.
        let is_capped = facts.not_after >= ca.facts().not_after;
        let is_due = renewal::due(facts.not_before, facts.not_after, now) && !is_capped;
        is_due.then_some(Reason::Renewed)
    }

    /// A new client certificate for any user. Nothing is stored: return it and drop it.
    pub fn issue_client(
        &self,
        name: &str,
        groups: &[&str],
        ttl: SignedDuration,
        now: Timestamp,
    ) -> Result<Identity, PkiError> {
        let pair = self.ca.client(name, groups, ttl, now);
        let source = |source| PkiError::Issue { subject: name.to_owned(), source };
        Ok(pair.map_err(source)?.identity())
    }

    /// Every CA certificate that clients of this cluster should trust.
    pub fn ca_pem(&self) -> String {
        self.ca.trusted_pem()
    }

    /// Every CA certificate whose holders may speak for other users.
    pub fn front_proxy_ca_pem(&self) -> String {
        self.front_proxy_ca.trusted_pem()
    }

    pub fn serving(&self) -> Identity {
        self.serving.identity()
    }

    /// The client certificate of the first administrator.
    pub fn admin(&self) -> Identity {
        self.admin.identity()
    }

    /// The client certificate that this server presents to aggregated API servers when it acts for
    /// a user.
    pub fn front_proxy(&self) -> Identity {
        self.front_proxy.identity()
    }
}

fn leaf(
    dir: &Path,
    file: &'static str,
    changes: &mut Vec<PkiChange>,
    issue: impl FnOnce() -> Result<Pair, rcgen::Error>,
) -> Result<Pair, PkiError> {
    let path = dir.join(file);
    if let Some(text) = files::read(&path)? {
        return Pair::parse(&text).map_err(|source| PkiError::Pair { path, source });
    }
    let pair = issue().map_err(|source| PkiError::Issue { subject: file.to_owned(), source })?;
    files::write(&path, &pair.to_pem())?;
    changes.push(PkiChange { file, reason: Reason::Created });
    Ok(pair)
}

/// A new certificate for the key of `old`.
fn replace(
    dir: &Path,
    file: &'static str,
    old: &Pair,
    issue: impl FnOnce(
        &KeyPair,
    ) -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, rcgen::Error>,
) -> Result<Pair, PkiError> {
    let path = dir.join(file);
    let certs =
        issue(old.key()).map_err(|source| PkiError::Issue { subject: file.to_owned(), source })?;
    let pair =
        old.with_certs(certs).map_err(|source| PkiError::Pair { path: path.clone(), source })?;
    files::write(&path, &pair.to_pem())?;
    Ok(pair)
}

fn ensure_key_ring(dir: &Path, changes: &mut Vec<PkiChange>) -> Result<(), PkiError> {
    let path = dir.join("service-account.pem");
    let keys = |source| PkiError::Keys { path: path.clone(), source };
    if let Some(text) = files::read(&path)? {
        return KeyRing::parse(&text).map(drop).map_err(keys);
    }
    let ring = KeyRing::generate().map_err(keys)?;
    files::write(&path, &ring.to_pem())?;
    changes.push(PkiChange { file: "service-account.pem", reason: Reason::Created });
    Ok(())
}

#[cfg(test)]
mod tests;
