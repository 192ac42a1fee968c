//! Certificates and keys that are given as files and managed elsewhere, for `sheaf kube-apiserver`.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::issue::{self, Lifetime};
use super::pair::{PairError, certs_pem, parse_certs};
use super::tls::Material;
use super::{LEAF_LIFETIME, PkiError, ServingNames, files};

/// The paths of the files.
#[derive(Debug, Clone)]
pub struct GivenFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The CA of user certificates.
    pub client_ca: Option<PathBuf>,
    /// The CA of front proxies, which may name the user of a request.
    pub front_proxy_ca: Option<PathBuf>,
    /// Which of those may; empty means all.
    pub front_proxy_names: Vec<String>,
}

/// Why given files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GivenError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use {}", path.display())]
    Use { path: PathBuf, source: PairError },
    #[error("there is no certificate in {}", path.display())]
    Empty { path: PathBuf },
}

impl GivenFiles {
    /// Reads the current content of the files.
    pub fn read(&self) -> Result<Material, GivenError> {
        let key = text(&self.key)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|source| {
            GivenError::Use { path: self.key.clone(), source: PairError::Pem(source) }
        })?;
        let all = |path: &Option<PathBuf>| path.as_deref().map_or(Ok(Vec::new()), certificates);
        Ok(Material {
            certs: certificates(&self.cert)?,
            key,
            users: all(&self.client_ca)?,
            front_proxies: all(&self.front_proxy_ca)?,
            front_proxy_names: self.front_proxy_names.clone(),
        })
    }
}

fn text(path: &Path) -> Result<String, GivenError> {
    std::fs::read_to_string(path)
        .map_err(|source| GivenError::Read { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, GivenError> {
    let found = parse_certs(&text(path)?)
        .map_err(|source| GivenError::Use { path: path.to_owned(), source })?;
    if found.is_empty() {
        return Err(GivenError::Empty { path: path.to_owned() });
    }
    Ok(found)
}

/// Makes a self-signed certificate and its key, unless both files
/// are there. Says whether it did.
pub fn ensure_self_signed(
    cert: &Path,
    key: &Path,
    names: &ServingNames,
    now: Timestamp,
) -> Result<bool, PkiError> {
    if cert.exists() && key.exists() {
        return Ok(false);
    }
    let issued = |source| PkiError::Issue { subject: "kube-apiserver".to_owned(), source };
    let pair = KeyPair::generate().map_err(issued)?;
    let lifetime = Lifetime { now, length: LEAF_LIFETIME, limit: None };
    let der = issue::self_signed(&pair, names.all(), lifetime).map_err(issued)?;
    if let Some(dir) = key.parent() {
        files::make_directory(dir)?;
    }
    files::write(key, &pair.serialize_pem())?;
    files::write(cert, &certs_pem([&der]))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_certificate_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = (dir.path().join("c/apiserver.crt"), dir.path().join("c/apiserver.key"));
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let made = || ensure_self_signed(&cert, &key, &ServingNames::default(), now).unwrap();
        assert!(made() && !made());
        let files = GivenFiles {
            cert: cert.clone(),
            key: key.clone(),
            client_ca: None,
            front_proxy_ca: None,
            front_proxy_names: vec![],
        };
        let material = files.read().unwrap();
        assert_eq!(material.certs.len(), 1);
        assert!(super::super::tls::Tls::with(material).is_ok());
        let wrong = GivenFiles { client_ca: Some(key), ..files };
        assert!(matches!(wrong.read(), Err(GivenError::Empty { .. })));
    }
}
