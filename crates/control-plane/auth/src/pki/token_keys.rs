//! The files of the keys that sign service-account tokens: `service-account.pem`, and
//! `service-account-next.pem` while there is a key that will sign. When they change is decided by
//! [`crate::token::rotation`]. A crash leaves each file whole; a next key that signs already is
//! removed at the next step.

use std::path::{Path, PathBuf};

use super::{PkiError, files};
use crate::token::key::{KeyError, KeyRing, VerifyingKey};

const FILE: &str = "service-account.pem";
const NEXT_FILE: &str = "service-account-next.pem";

/// The keys of one server.
#[derive(Debug)]
pub struct TokenKeys {
    dir: PathBuf,
    ring: KeyRing,
    next: Option<KeyRing>,
}

impl TokenKeys {
    /// Reads the files of a directory that a server has filled.
    pub fn open(dir: &Path) -> Result<Self, PkiError> {
        let _lock = files::lock(dir)?;
        let read = |file: &str| -> Result<Option<KeyRing>, PkiError> {
            let path = dir.join(file);
            let Some(text) = files::read(&path)? else { return Ok(None) };
            KeyRing::parse(&text).map(Some).map_err(|source| PkiError::Keys { path, source })
        };
        let ring = read(FILE)?.ok_or_else(|| PkiError::Missing { path: dir.join(FILE) })?;
        Ok(Self { dir: dir.to_owned(), ring, next: read(NEXT_FILE)? })
    }

    /// The key that signs, and those that this server knows of.
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The key that will sign.
    pub fn next(&self) -> Option<&VerifyingKey> {
        self.next.as_ref().map(|next| &next.verifying()[0])
    }

    /// Makes the key that will sign.
    pub fn make_next(&mut self) -> Result<(), PkiError> {
        let next = KeyRing::generate().map_err(|source| self.failed(NEXT_FILE, source))?;
        self.write(NEXT_FILE, &next)?;
        self.next = Some(next);
        Ok(())
    }

    /// The next key signs from now on. Nothing happens if there is none.
    pub fn switch(&mut self) -> Result<(), PkiError> {
        let Some(next) = &self.next else { return Ok(()) };
        let ring = self.ring.switched(next).map_err(|source| self.failed(FILE, source))?;
        self.write(FILE, &ring)?;
        self.ring = ring;
        self.forget_next()
    }

    pub fn forget_next(&mut self) -> Result<(), PkiError> {
        let _lock = files::lock(&self.dir)?;
        files::remove(&self.dir.join(NEXT_FILE))?;
        self.next = None;
        Ok(())
    }

    /// Verifies with these keys beside its own, and with no others.
    pub fn verify_with(&mut self, others: Vec<VerifyingKey>) -> Result<(), PkiError> {
        let ring = self.ring.with_verifying(others);
        let ring = ring.map_err(|source| self.failed(FILE, source))?;
        if ring.verifying() != self.ring.verifying() {
            self.write(FILE, &ring)?;
            self.ring = ring;
        }
        Ok(())
    }

    fn write(&self, file: &str, ring: &KeyRing) -> Result<(), PkiError> {
        let _lock = files::lock(&self.dir)?;
        files::write(&self.dir.join(file), &ring.to_pem())
    }

    fn failed(&self, file: &str, source: KeyError) -> PkiError {
        PkiError::Keys { path: self.dir.join(file), source }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::pki::{Pki, ServingNames};

    #[test]
    fn a_switch_that_is_interrupted_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Pki::open(dir.path(), &ServingNames::default(), now).unwrap();
        let mut keys = TokenKeys::open(dir.path()).unwrap();
        let first = keys.ring().verifying()[0].clone();
        assert_eq!(keys.next(), None);
        keys.make_next().unwrap();
        let next = TokenKeys::open(dir.path()).unwrap().next().cloned().unwrap();
        let file = std::fs::read(dir.path().join(NEXT_FILE)).unwrap();
        keys.switch().unwrap();
        assert_eq!(keys.ring().verifying(), [next.clone(), first.clone()]);
        // The process was killed before it removed the file.
        std::fs::write(dir.path().join(NEXT_FILE), file).unwrap();
        let mut keys = TokenKeys::open(dir.path()).unwrap();
        assert_eq!((keys.ring().signing_id(), keys.next()), (next.id(), Some(&next)));
        keys.forget_next().unwrap();
        let mut keys = TokenKeys::open(dir.path()).unwrap();
        assert_eq!(keys.next(), None);
        assert_eq!(keys.ring().verifying(), [next.clone(), first]);
        keys.verify_with(vec![next.clone()]).unwrap();
        assert_eq!(TokenKeys::open(dir.path()).unwrap().ring().verifying(), [next]);
    }
}
