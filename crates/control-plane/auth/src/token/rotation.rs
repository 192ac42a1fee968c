//! The keys that sign service-account tokens change by themselves. Pure: the time is an argument.
//!
//! Every API server signs with a key of its own, whose private half never leaves its node, and
//! verifies with the keys of all. The public halves are the data of one ConfigMap, which every
//! API server follows:
//!
//! ```text
//!   Make ──► Publish ── overlap ──► Switch: it signs ── lifetime ──► only verifies ──► Drop
//! ```
//! A key is published before it signs, so that no server meets a token that it cannot verify. The
//! server that signs with a key says so once a day; a key is dropped when the last token of it has
//! ended, and no token in a Secret, which never ends, is of it. Each step can be repeated: a
//! server that was killed goes on where it was.

use std::collections::{BTreeMap, BTreeSet};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::key::VerifyingKey;

/// The ConfigMap with the public keys.
pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "sheaf-token-keys";

/// The longest life of a token that a server with rotation issues.
pub const LONGEST_TOKEN: SignedDuration = SignedDuration::from_hours(24 * 365);
/// How often a server says that it signs with a key.
const TOUCH: SignedDuration = SignedDuration::from_hours(24);
/// Clocks of servers may be apart by this much.
const SLACK: SignedDuration = SignedDuration::from_hours(1);
const LONGEST_OVERLAP: SignedDuration = SignedDuration::from_hours(1);
const SHORTEST_OVERLAP: SignedDuration = SignedDuration::from_secs(1);

/// A public key, as it is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedKey {
    /// SubjectPublicKeyInfo, base64.
    pub public_key: String,
    pub created: Timestamp,
    /// The last time that a server reported that it signs with it.
    pub used: Timestamp,
}

impl PublishedKey {
    pub fn new(key: &VerifyingKey, now: Timestamp) -> Self {
        Self { public_key: BASE64_STANDARD.encode(key.spki()), created: now, used: now }
    }

    fn key(&self) -> Option<VerifyingKey> {
        VerifyingKey::from_spki(&BASE64_STANDARD.decode(&self.public_key).ok()?).ok()
    }
}

/// All published keys by ID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedKeys(BTreeMap<String, PublishedKey>);

impl PublishedKeys {
    /// Reads the data of the ConfigMap. Entries that are no keys, or not under their own ID, are
    /// left out.
    pub fn read<'a>(data: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let keys = data.into_iter().filter_map(|(id, value)| {
            let published: PublishedKey = serde_json::from_str(value).ok()?;
            let is_own = published.key().is_some_and(|key| key.id() == id);
            is_own.then(|| (id.to_owned(), published))
        });
        Self(keys.collect())
    }

    pub fn get(&self, id: &str) -> Option<&PublishedKey> {
        self.0.get(id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &PublishedKey)> {
        self.0.iter().map(|(id, key)| (&**id, key))
    }

    pub fn keys(&self) -> Vec<VerifyingKey> {
        self.0.values().filter_map(PublishedKey::key).collect()
    }
}

/// How often keys change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLifetime(Option<SignedDuration>);

impl KeyLifetime {
    /// Zero is never.
    pub fn new(lifetime: SignedDuration) -> Self {
        Self(Some(lifetime).filter(|lifetime| lifetime.is_positive()))
    }

    /// The time between publishing a key and signing with it.
    fn overlap(self) -> SignedDuration {
        let part = self.0.map_or(LONGEST_OVERLAP, |lifetime| lifetime / 24);
        part.clamp(SHORTEST_OVERLAP, LONGEST_OVERLAP)
    }
}

/// The state that one server decides on.
#[derive(Debug, Clone, Copy)]
pub struct RotationView<'a> {
    pub lifetime: KeyLifetime,
    /// The ID of the key that this server signs with.
    pub signing: &'a str,
    /// The key that it will sign with, if one was made.
    pub next: Option<&'a str>,
    pub published: &'a PublishedKeys,
}

/// The next action of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationStep {
    /// All keys that this server knows are published, the signing one among them.
    PublishOwn,
    PublishNext,
    /// The signing key is noted as used.
    Touch,
    /// A key is made for later.
    Make,
    /// The next key signs from now on.
    Switch,
    /// The next key signs already: a switch was interrupted.
    ForgetNext,
    /// No server has signed with these for so long that their tokens have ended; those in Secrets
    /// have to be searched.
    Drop(Vec<String>),
    /// Nothing until this time.
    Wait(Timestamp),
}

/// Decides the next action. `stored` are IDs of keys whose tokens are in Secrets.
pub fn next_step(
    view: &RotationView<'_>,
    stored: &BTreeSet<String>,
    now: Timestamp,
) -> RotationStep {
    let Some(signing) = view.published.get(view.signing) else { return RotationStep::PublishOwn };
    let touch_at = after(signing.used, TOUCH);
    if touch_at <= now {
        return RotationStep::Touch;
    }
    let mut wait = touch_at;
    match (view.next, view.lifetime.0) {
        (Some(next), _) if next == view.signing => return RotationStep::ForgetNext,
        (Some(next), _) => {
            let Some(next) = view.published.get(next) else { return RotationStep::PublishNext };
            let at = after(next.created, view.lifetime.overlap());
            if at <= now {
                return RotationStep::Switch;
            }
            wait = wait.min(at);
        }
        (None, Some(lifetime)) => {
            let at = after(signing.created, lifetime);
            if at <= now {
                return RotationStep::Make;
            }
            wait = wait.min(at);
        }
        (None, None) => {}
    }
    let keep = LONGEST_TOKEN + TOUCH + SLACK;
    let ended: Vec<String> = view
        .published
        .iter()
        .filter(|(id, key)| {
            *id != view.signing
                && Some(*id) != view.next
                && !stored.contains(*id)
                && after(key.used, keep) <= now
        })
        .map(|(id, _)| id.to_owned())
        .collect();
    if ended.is_empty() { RotationStep::Wait(wait) } else { RotationStep::Drop(ended) }
}

fn after(time: Timestamp, length: SignedDuration) -> Timestamp {
    time.saturating_add(length).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
