//! Revoked client certificates: the list, and the certificates that it covers. Pure.
//!
//! The list is the data of one ConfigMap, which every API server follows. An entry covers one
//! certificate, by its serial number, or all certificates of a user that were issued before
//! a time. It is kept until no such certificate can be valid any more.
//!
//! | key | value |
//! |---|---|
//! | `serial.HEX` | a [`Revocation`] as JSON |
//! | `user.HEX`, the hexadecimal form of the name | the same, with `issuedBefore` |
//!
//! The key says as far as possible which certificates an entry covers: one that cannot be read
//! revokes.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::{IdentityError, common_name};
use crate::pki::{BACKDATE, public_key_pin};

/// The ConfigMap of the list.
pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "sheaf-revoked-certificates";

const WARN_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Keys of a ConfigMap are at most this long.
const MOST_KEY: usize = 253;
const NODE_PREFIX: &str = "system:node:";

/// A client certificate, as far as revocation goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub user: String,
    /// In hexadecimal digits, without leading zeros.
    pub serial: String,
    /// When it was made, which is a little after its validity begins.
    pub issued: Timestamp,
    pub expires: Timestamp,
    /// Pin of its public key. The cluster knows a node by it.
    pub key_pin: String,
}

impl ClientCertificate {
    /// Of a certificate (DER) that a CA of this cluster has signed.
    pub fn of(der: &[u8]) -> Result<Self, IdentityError> {
        let (_, cert) = X509Certificate::from_der(der).map_err(|_| IdentityError::Unreadable)?;
        let time = |time: x509_parser::time::ASN1Time| {
            Timestamp::from_second(time.timestamp()).map_err(|_| IdentityError::Unreadable)
        };
        let begin = time(cert.validity().not_before)?;
        Ok(Self {
            user: common_name(der)?,
            serial: serial(&hex(cert.raw_serial())),
            issued: begin.saturating_add(BACKDATE).unwrap_or(begin),
            expires: time(cert.validity().not_after)?,
            key_pin: public_key_pin(cert.public_key().raw),
        })
    }
}

impl ClientCertificate {
    /// Whether its holder should get another one now: a month before its end, or in the last tenth
    /// of a shorter life. Programs that renew theirs do so earlier.
    pub fn ends_soon(&self, now: Timestamp) -> bool {
        let life = self.expires.duration_since(self.issued);
        self.expires.duration_since(now) < WARN_BEFORE.min(life / 10)
    }

    /// The text of the warning that clients get then.
    pub fn warning(&self) -> String {
        let end = self.expires.strftime("%Y-%m-%dT%H:%M:%SZ");
        format!("the client certificate of {:?} ends at {end}", self.user)
    }
}

/// The certificates that an entry covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RevokedSubject {
    Serial(String),
    User(String),
}

/// Why an entry is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevocationError {
    #[error("{text:?} is not a serial number: those are hexadecimal digits")]
    Serial { text: String },
    #[error("the name {name:?} is too long")]
    LongName { name: String },
    #[error("certificates of nodes are not revoked here: `sheaf node remove {node}` removes one")]
    Node { node: String },
    #[error("key {key:?} begins with neither serial. nor user.")]
    Key { key: String },
    #[error("key {key:?} has a value that is no revocation")]
    Value { key: String },
    #[error("key {key:?} has no time issuedBefore")]
    NoTime { key: String },
}

impl RevokedSubject {
    /// Of a serial number as programs print it: with or without colons, in any case.
    pub fn serial(text: &str) -> Result<Self, RevocationError> {
        let digits: String = text.chars().filter(|letter| !":- ".contains(*letter)).collect();
        let digits = digits.strip_prefix("0x").unwrap_or(&digits);
        // A minus is no separator.
        let is_serial = !digits.is_empty()
            && !text.trim_start().starts_with('-')
            && digits.len() <= 64
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        match is_serial {
            true => Ok(Self::Serial(serial(&digits.to_ascii_lowercase()))),
            false => Err(RevocationError::Serial { text: text.to_owned() }),
        }
    }

    pub fn user(name: &str) -> Result<Self, RevocationError> {
        if let Some(node) = name.strip_prefix(NODE_PREFIX) {
            return Err(RevocationError::Node { node: node.to_owned() });
        }
        let subject = Self::User(name.to_owned());
        match name.is_empty() || subject.key().len() > MOST_KEY {
            true => Err(RevocationError::LongName { name: name.to_owned() }),
            false => Ok(subject),
        }
    }

    /// The key of its entry.
    pub fn key(&self) -> String {
        match self {
            Self::Serial(serial) => format!("serial.{serial}"),
            Self::User(name) => format!("user.{}", hex(name.as_bytes())),
        }
    }

    fn of_key(key: &str) -> Option<Self> {
        if let Some(text) = key.strip_prefix("serial.") {
            return Self::serial(text).ok();
        }
        let name = unhex(key.strip_prefix("user.")?)?;
        Some(Self::User(String::from_utf8(name).ok()?))
    }
}

/// The value of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Revocation {
    /// For users: certificates that were issued before are revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_before: Option<Timestamp>,
    pub revoked_at: Timestamp,
    /// Then all certificates that it covers have expired, and it can be removed.
    pub until: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// All revocations that are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevocationList {
    entries: BTreeMap<RevokedSubject, Option<Revocation>>,
}

impl RevocationList {
    /// Reads the data of the ConfigMap, also where admission would have refused it.
    pub fn read<'a>(data: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let entries = data.into_iter().filter_map(|(key, value)| {
            Some((RevokedSubject::of_key(key)?, serde_json::from_str(value).ok()))
        });
        Self { entries: entries.collect() }
    }

    /// Whether a certificate is revoked.
    pub fn revokes(&self, certificate: &ClientCertificate) -> bool {
        self.revoked_before(certificate).is_some()
    }

    /// The time from which on a certificate of the same user would be good again; the beginning of
    /// time if only this one is revoked.
    pub fn revoked_before(&self, certificate: &ClientCertificate) -> Option<Timestamp> {
        let user = self.entries.get(&RevokedSubject::User(certificate.user.clone()));
        let before = user.map(|entry| {
            entry.as_ref().and_then(|own| own.issued_before).unwrap_or(Timestamp::MAX)
        });
        if let Some(before) = before.filter(|before| certificate.issued < *before) {
            return Some(before);
        }
        let serial = RevokedSubject::Serial(certificate.serial.clone());
        self.entries.contains_key(&serial).then_some(Timestamp::MIN)
    }

    pub fn entries(&self) -> impl Iterator<Item = (&RevokedSubject, Option<&Revocation>)> {
        self.entries.iter().map(|(subject, entry)| (subject, entry.as_ref()))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys of entries about certificates that have all ended.
    pub fn ended(&self, now: Timestamp) -> Vec<String> {
        let ended = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.as_ref().is_some_and(|entry| entry.until <= now));
        ended.map(|(subject, _)| subject.key()).collect()
    }
}

/// Whether an entry says what it revokes, for those who write one.
pub fn check_entry(key: &str, value: &str) -> Result<(), RevocationError> {
    let subject = RevokedSubject::of_key(key).filter(|subject| subject.key() == key);
    let subject = subject.ok_or_else(|| RevocationError::Key { key: key.to_owned() })?;
    let entry = serde_json::from_str::<Revocation>(value);
    let entry = entry.map_err(|_| RevocationError::Value { key: key.to_owned() })?;
    if let RevokedSubject::User(name) = &subject {
        RevokedSubject::user(name)?;
        if entry.issued_before.is_none() {
            return Err(RevocationError::NoTime { key: key.to_owned() });
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let is_hex =
        text.len().is_multiple_of(2) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pairs = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    is_hex.then(|| pairs.collect::<Result<_, _>>().ok()).flatten()
}

/// One spelling of a number.
fn serial(digits: &str) -> String {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { digits.to_owned() }
}

#[cfg(test)]
mod tests;
