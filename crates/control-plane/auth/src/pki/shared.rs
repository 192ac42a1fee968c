//! The keys that management nodes share: read to be handed to a new one, and stored there.

use std::collections::BTreeMap;
use std::path::Path;

use super::{PkiError, SHARED_FILES, files, find_pinned};

const TOKEN_KEYS: &str = "service-account.pem";

/// Why keys of a cluster are not taken over.
#[derive(Debug, thiserror::Error)]
pub enum SharedFileError {
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("the server sent no {file}")]
    Missing { file: &'static str },
    #[error("the server sent a ca.pem that does not have the pin of the token")]
    OtherCa,
    #[error("this data directory has another {file}: choose another --data-dir")]
    Other { file: &'static str },
}

/// All shared files by name.
pub fn read_shared(dir: &Path) -> Result<BTreeMap<String, String>, PkiError> {
    let _lock = files::lock(dir)?;
    let mut all = BTreeMap::new();
    for file in SHARED_FILES {
        let path = dir.join(file);
        let text = files::read(&path)?.ok_or(PkiError::Missing { path })?;
        all.insert(file.to_owned(), text);
    }
    Ok(all)
}

/// Takes the keys of the cluster whose CA has this pin over. Can be repeated; files that differ
/// from those that are there are refused.
pub fn store_shared(
    dir: &Path,
    pin: &str,
    given: &BTreeMap<String, String>,
) -> Result<(), SharedFileError> {
    files::make_directory(dir)?;
    let _lock = files::lock(dir)?;
    let mut fresh = Vec::new();
    for file in SHARED_FILES {
        let text = given.get(file).ok_or(SharedFileError::Missing { file })?;
        if file == "ca.pem" && find_pinned(text, pin).is_none() {
            return Err(SharedFileError::OtherCa);
        }
        match files::read(&dir.join(file))? {
            // Each server comes to have one of its own, and publishes it when it starts.
            Some(_) if file == TOKEN_KEYS => {}
            Some(own) if own != *text => return Err(SharedFileError::Other { file }),
            Some(_) => {}
            None => fresh.push((file, text)),
        }
    }
    for (file, text) in fresh {
        files::write(&dir.join(file), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::pki::{EtcdFiles, Pki, ServingNames};

    #[test]
    fn keys_are_taken_over_once_and_only_of_the_pinned_cluster() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (pki, _) = Pki::open(one.path(), &ServingNames::default(), now).unwrap();
        assert!(matches!(read_shared(one.path()), Err(PkiError::Missing { .. })));
        EtcdFiles::ensure_ca(one.path(), now).unwrap();
        let keys = read_shared(one.path()).unwrap();
        let der = crate::pki::pair::parse_certs(&pki.ca_pem()).unwrap();
        let pin = crate::pki::CertificateFacts::of(&der[0]).unwrap().public_key_pin();
        let refused = store_shared(two.path(), &"ab".repeat(32), &keys);
        assert!(matches!(refused, Err(SharedFileError::OtherCa)));
        assert!(read_shared(two.path()).is_err(), "nothing was written");
        store_shared(two.path(), &pin, &keys).unwrap();
        store_shared(two.path(), &pin, &keys).unwrap();
        assert_eq!(read_shared(two.path()).unwrap(), keys);
        // The key of tokens has changed since.
        std::fs::write(two.path().join(TOKEN_KEYS), "changed").unwrap();
        store_shared(two.path(), &pin, &keys).unwrap();
        std::fs::write(two.path().join(TOKEN_KEYS), &keys[TOKEN_KEYS]).unwrap();
        // A server on those keys has the same CA.
        let (twin, _) = Pki::open(two.path(), &ServingNames::default(), now).unwrap();
        assert_eq!(twin.ca_pem(), pki.ca_pem());
        let mut other = keys.clone();
        other.insert("etcd-ca.pem".into(), "x".into());
        let refused = store_shared(two.path(), &pin, &other);
        assert!(matches!(refused, Err(SharedFileError::Other { file: "etcd-ca.pem" })));
    }
}
