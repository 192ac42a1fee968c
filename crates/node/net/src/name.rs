//! Names of network interfaces, and of what we make beside them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The kernel's limit, without the closing zero.
const MAX_NAME_LEN: usize = 15;

/// The name of an interface that is safe everywhere we write it: in paths below `/proc/sys`, in
/// nftables rules, on command lines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkName(String);

/// Why a text cannot name an interface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkNameError {
    #[error("interface name {name:?} must have 1 to {MAX_NAME_LEN} characters")]
    Length { name: String },
    #[error(
        "interface name {name:?} must begin with a letter or digit and have letters, digits, '-', '_' and '.' only"
    )]
    Character { name: String },
}

impl LinkName {
    /// A name that begins with `prefix` and is the same for the same `key`.
    pub fn derived(prefix: &Self, key: &str) -> Self {
        let hash = Sha256::digest(key.as_bytes());
        let digits = hash.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        let room = MAX_NAME_LEN.saturating_sub(prefix.0.len());
        let rest = digits.take(room).filter_map(|digit| char::from_digit(digit.into(), 16));
        Self(prefix.0.chars().chain(rest).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LinkName {
    type Err = LinkNameError;

    fn from_str(name: &str) -> Result<Self, LinkNameError> {
        if name.is_empty() || name.len() > MAX_NAME_LEN {
            return Err(LinkNameError::Length { name: name.to_owned() });
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let begins = name.as_bytes()[0].is_ascii_alphanumeric();
        if !begins || !name.bytes().all(is_plain) {
            return Err(LinkNameError::Character { name: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }
}

impl TryFrom<String> for LinkName {
    type Error = LinkNameError;

    fn try_from(name: String) -> Result<Self, LinkNameError> {
        name.parse()
    }
}

impl From<LinkName> for String {
    fn from(name: LinkName) -> Self {
        name.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_safe_in_paths_and_rules_pass() {
        for good in ["sheaf0", "br-lan", "enp3s0f1.100", "a"] {
            assert!(good.parse::<LinkName>().is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "-x", "a/b", "a b", "a\"", "a;b", "sixteen-letters-", "ü"] {
            assert!(bad.parse::<LinkName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn derived_names_fit_and_differ() {
        let prefix: LinkName = "shf-".parse().unwrap();
        let name = LinkName::derived(&prefix, "uid/0");
        assert_eq!(name.as_str().len(), 15);
        assert!(name.as_str().starts_with("shf-"));
        assert!(name.as_str().parse::<LinkName>().is_ok());
        assert_ne!(name, LinkName::derived(&prefix, "uid/1"));
    }
}
