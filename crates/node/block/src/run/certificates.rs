//! This node's certificates, read again when their files were replaced.
//!
//! The files are compared with what was read whenever a connection begins, in either direction:
//! that is when a certificate is shown or verified, and nothing has to wait for a timer. Connections
//! that exist go on with what they began with. Files that cannot be used, because one of them is
//! still being written or the key does not fit, change nothing; the certificates from before stay.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::chain;
use super::tls::{Role, Tls, TlsError};

/// The files of a node's certificates, in PEM form.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The authority whose certificates are accepted.
    pub ca: PathBuf,
    /// This node's chain and its key.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The requirements for the certificates of peers.
    pub peers: Role,
}

/// Why certificates cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot use the certificates in {}", path.display())]
    Use { path: PathBuf, source: TlsError },
}

impl TlsFiles {
    pub fn load(&self) -> Result<Tls, TlsFilesError> {
        let (ca, certificate, key) = (read(&self.ca)?, read(&self.certificate)?, read(&self.key)?);
        let used = Tls::from_pem(&ca, &certificate, &key, self.peers.clone());
        used.map_err(|source| TlsFilesError::Use { path: self.certificate.clone(), source })
    }

    /// Distinguishes a replaced file from the one before; nothing if one of them is missing.
    fn stamp(&self) -> Option<Stamp> {
        let one = |path: &Path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
        };
        Some([one(&self.ca)?, one(&self.certificate)?, one(&self.key)?])
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    std::fs::read(path).map_err(|source| TlsFilesError::Read { path: path.into(), source })
}

type Stamp = [(u64, u64, u64, i64, i64); 3];

/// The certificates that new connections use.
#[derive(Debug)]
pub(super) struct Certificates {
    current: Tls,
    /// Nothing for certificates that came from no files.
    files: Option<TlsFiles>,
    /// The files that were loaded last, with or without success.
    seen: Option<Stamp>,
}

impl Certificates {
    pub(super) fn fixed(tls: Tls) -> Self {
        Self { current: tls, files: None, seen: None }
    }

    pub(super) fn from_files(files: TlsFiles) -> Result<Self, TlsFilesError> {
        // Taken first: a file that is replaced meanwhile is read again.
        let seen = files.stamp();
        Ok(Self { current: files.load()?, files: Some(files), seen })
    }

    /// For a connection that begins.
    pub(super) fn current(&mut self) -> &Tls {
        if let Some(files) = &self.files {
            let stamp = files.stamp();
            if stamp.is_some() && stamp != self.seen {
                self.seen = stamp;
                match files.load() {
                    Ok(tls) => {
                        self.current = tls;
                        tracing::info!("certificates of replication reloaded");
                    }
                    Err(error) => {
                        let error = chain(&error);
                        tracing::warn!(%error, "replaced certificates cannot be used; keeping the old");
                    }
                }
            }
        }
        &self.current
    }
}
