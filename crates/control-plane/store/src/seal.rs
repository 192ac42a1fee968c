//! Encryption at rest: values are sealed on their way into an engine, and opened on their way into
//! the mirror. They are encrypted in the file, in etcd, in history and in backups, and plain in
//! memory.
//!
//! ```text
//! k8s:enc:{method}:v1:{key}:{sealed bytes}
//! ```
//!
//! The form is the one upstream uses, so that its tools recognize it. A value without the
//! prefix is plain. Which key sealed a value is written in front of it, so any number of older
//! keys can go on opening while the first one seals.

mod method;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use method::Secret;
pub use method::{Method, SecretError};

const PREFIX: &[u8] = b"k8s:enc:";

/// Why a value cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error(
        "{table} {name} is encrypted with key {key:?} ({method}), which is not among the keys given"
    )]
    UnknownKey { table: String, name: String, method: String, key: String },
    #[error(
        "{table} {name} cannot be decrypted with key {key:?}: the key is another one of that name, or the value is damaged"
    )]
    Wrong { table: String, name: String, key: String },
    #[error("{table} {name} is encrypted in an unknown format")]
    Form { table: String, name: String },
}

/// A named secret and its encryption method.
#[derive(Clone)]
pub struct SealKey {
    name: String,
    secret: Arc<Secret>,
}

impl SealKey {
    /// The name must not be empty or contain a colon.
    pub fn new(name: &str, method: Method, secret: &[u8]) -> Result<Self, SecretError> {
        if name.is_empty() || name.contains(':') {
            return Err(SecretError::Name { name: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), secret: Arc::new(Secret::new(method, secret)?) })
    }

    fn head(&self) -> Vec<u8> {
        format!("k8s:enc:{}:v1:{}:", self.secret.method().name(), self.name).into_bytes()
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({} {})", self.secret.method().name(), self.name)
    }
}

/// Which tables a rule is for.
pub type TableFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// How the values of some tables are kept.
#[derive(Clone)]
pub struct SealRule {
    pub covers: TableFilter,
    /// The key for new values; `None` stores them unencrypted.
    pub writes: Option<SealKey>,
    /// Further keys that existing values may be encrypted with.
    pub reads: Vec<SealKey>,
}

impl fmt::Debug for SealRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, reads, .. } = self;
        out.debug_struct("SealRule").field("writes", writes).field("reads", reads).finish()
    }
}

/// How values are kept, by table; the first rule that covers one counts.
#[derive(Default)]
pub struct Sealing {
    rules: Vec<SealRule>,
    /// The values that were read and are not stored the way that they would be written now.
    stale: Mutex<BTreeSet<(String, String)>>,
    counts_stale: bool,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sealing").field("rules", &self.rules.len()).finish_non_exhaustive()
    }
}

impl Sealing {
    pub fn new(rules: Vec<SealRule>) -> Self {
        Self { rules, ..Self::default() }
    }

    /// The same, but remembering what is not kept as it would be written now.
    #[must_use]
    pub fn counting_stale(self) -> Self {
        Self { counts_stale: true, ..self }
    }

    /// The stale values found so far, by table and name.
    pub(crate) fn stale(&self) -> BTreeSet<(String, String)> {
        self.stale.lock().clone()
    }

    /// The stored form of `value`.
    pub(crate) fn seal(&self, table: &str, name: &str, value: &Bytes) -> Bytes {
        match self.writer(table) {
            None => value.clone(),
            Some(key) => {
                let mut sealed = key.head();
                key.secret.seal(value, &context(table, name), &mut sealed);
                sealed.into()
            }
        }
    }

    fn writer(&self, table: &str) -> Option<&SealKey> {
        self.rules.iter().find(|rule| (rule.covers)(table))?.writes.as_ref()
    }

    /// The plain value of `stored`, the newest version of its key so far.
    pub(crate) fn open(&self, table: &str, name: &str, stored: Bytes) -> Result<Bytes, SealError> {
        let (value, current) = self.opened(table, name, stored)?;
        if self.counts_stale {
            let key = (table.to_owned(), name.to_owned());
            let mut stale = self.stale.lock();
            if current {
                stale.remove(&key)
            } else {
                stale.insert(key)
            };
        }
        Ok(value)
    }

    /// The same for a version of the past, of which it does not matter how it was kept.
    pub(crate) fn open_past(
        &self,
        table: &str,
        name: &str,
        stored: Bytes,
    ) -> Result<Bytes, SealError> {
        self.opened(table, name, stored).map(|(value, _)| value)
    }

    /// The value, and whether it is kept as it would be written now.
    fn opened(&self, table: &str, name: &str, stored: Bytes) -> Result<(Bytes, bool), SealError> {
        if !stored.starts_with(PREFIX) {
            return Ok((stored, self.writer(table).is_none()));
        }
        let form = || SealError::Form { table: table.to_owned(), name: name.to_owned() };
        let (method, key, sealed) = split(&stored).ok_or_else(form)?;
        let all = self.rules.iter().flat_map(|rule| rule.writes.iter().chain(&rule.reads));
        let known = all.filter(|known| known.name == key && known.secret.method().name() == method);
        let mut failure = SealError::UnknownKey {
            table: table.to_owned(),
            name: name.to_owned(),
            method: method.to_owned(),
            key: key.to_owned(),
        };
        for known in known {
            match known.secret.open(sealed, &context(table, name)) {
                Some(value) => {
                    let writer = self.writer(table);
                    let current =
                        writer.is_some_and(|writer| Arc::ptr_eq(&writer.secret, &known.secret));
                    return Ok((value.into(), current));
                }
                None => {
                    failure = SealError::Wrong {
                        table: table.to_owned(),
                        name: name.to_owned(),
                        key: key.to_owned(),
                    };
                }
            }
        }
        Err(failure)
    }
}

/// The context that a value is bound to: one that is copied over another does not open.
fn context(table: &str, name: &str) -> Vec<u8> {
    format!("{table}//{name}").into_bytes()
}

fn split(stored: &[u8]) -> Option<(&str, &str, &[u8])> {
    let rest = stored.strip_prefix(PREFIX)?;
    let mut parts = rest.splitn(4, |byte| *byte == b':');
    let (method, version, key, sealed) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let text = |bytes| std::str::from_utf8(bytes).ok();
    (version == b"v1").then_some((text(method)?, text(key)?, sealed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Method; 3] = [Method::AesCbc, Method::AesGcm, Method::Secretbox];

    fn key(name: &str, method: Method, byte: u8) -> SealKey {
        SealKey::new(name, method, &[byte; 32]).unwrap()
    }

    fn sealing(writes: Option<SealKey>, reads: Vec<SealKey>) -> Sealing {
        let covers: TableFilter = Arc::new(|table: &str| table == "secrets");
        Sealing::new(vec![SealRule { covers, writes, reads }])
    }

    #[test]
    fn a_sealed_value_opens_again_and_is_hidden() {
        for method in METHODS {
            let sealing = sealing(Some(key("k", method, 1)), vec![]);
            for value in [&b""[..], b"{}", &[b'x'; 1000]] {
                let value = Bytes::copy_from_slice(value);
                let sealed = sealing.seal("secrets", "n/a", &value);
                assert!(sealed.starts_with(format!("k8s:enc:{}:v1:k:", method.name()).as_bytes()));
                assert_ne!(
                    sealed,
                    sealing.seal("secrets", "n/a", &value),
                    "{method:?} repeats itself"
                );
                assert!(value.len() < 8 || !sealed.windows(8).any(|part| part == &value[..8]));
                assert_eq!(sealing.open("secrets", "n/a", sealed).unwrap(), value);
                assert_eq!(sealing.seal("configmaps", "n/a", &value), value);
            }
        }
    }

    #[test]
    fn an_older_key_goes_on_opening_and_is_known_as_stale() {
        let value = Bytes::from_static(b"{\"a\":1}");
        let old = sealing(Some(key("old", Method::AesGcm, 1)), vec![]);
        let sealed = old.seal("secrets", "a", &value);
        let new =
            sealing(Some(key("new", Method::Secretbox, 2)), vec![key("old", Method::AesGcm, 1)]);
        let new = new.counting_stale();
        assert_eq!(new.open("secrets", "a", sealed).unwrap(), value);
        assert_eq!(new.open("secrets", "plain", value.clone()).unwrap(), value);
        let fresh = new.seal("secrets", "b", &value);
        new.open("secrets", "b", fresh).unwrap();
        new.open("configmaps", "plain", value.clone()).unwrap();
        let stale: Vec<_> = new.stale().into_iter().map(|(_, name)| name).collect();
        assert_eq!(stale, ["a", "plain"]);
    }

    #[test]
    fn without_its_key_a_value_says_which_one_it_needs() {
        let value = Bytes::from_static(b"{}");
        let sealed =
            sealing(Some(key("k1", Method::AesCbc, 1)), vec![]).seal("secrets", "n/a", &value);
        let none = Sealing::default().open("secrets", "n/a", sealed.clone()).unwrap_err();
        assert_eq!(
            none.to_string(),
            "secrets n/a is encrypted with key \"k1\" (aescbc), which is not among the keys given"
        );
        let other = sealing(Some(key("k1", Method::AesGcm, 1)), vec![]);
        assert!(matches!(other.open("secrets", "n/a", sealed), Err(SealError::UnknownKey { .. })));
        let gcm = other.seal("secrets", "n/a", &value);
        let wrong = sealing(Some(key("k1", Method::AesGcm, 2)), vec![]);
        assert!(matches!(wrong.open("secrets", "n/a", gcm.clone()), Err(SealError::Wrong { .. })));
        // Moved to another name it does not open either.
        assert!(matches!(other.open("secrets", "n/b", gcm), Err(SealError::Wrong { .. })));
        let odd = Bytes::from_static(b"k8s:enc:kms:v2");
        assert!(matches!(other.open("secrets", "x", odd), Err(SealError::Form { .. })));
    }

    #[test]
    fn secrets_have_the_length_their_method_needs() {
        for (method, length, fits) in [
            (Method::AesCbc, 16, true),
            (Method::AesCbc, 32, true),
            (Method::AesCbc, 31, false),
            (Method::AesGcm, 24, true),
            (Method::AesGcm, 32, true),
            (Method::AesGcm, 0, false),
            (Method::Secretbox, 32, true),
            (Method::Secretbox, 16, false),
        ] {
            assert_eq!(
                SealKey::new("k", method, &vec![0; length]).is_ok(),
                fits,
                "{method:?} {length}"
            );
        }
        assert!(SealKey::new("a:b", Method::AesGcm, &[0; 32]).is_err());
    }
}
