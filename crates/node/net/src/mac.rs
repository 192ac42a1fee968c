//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The address of a network card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac([u8; 6]);

/// Why a text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an Ethernet address: six pairs of hexadecimal digits with colons")]
pub struct MacError {
    pub text: String,
}

impl Mac {
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// An address that is the same for the same `key`: locally administered, unicast.
    pub fn derived(key: &str) -> Self {
        let hash = Sha256::digest(key.as_bytes());
        Self([0x02, hash[0], hash[1], hash[2], hash[3], hash[4]])
    }

    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether a card may have it: neither a group's address nor all zero.
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl TryFrom<&[u8]> for Mac {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self(bytes.try_into()?))
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let refused = || MacError { text: text.to_owned() };
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().ok_or_else(refused)?;
            if part.len() != 2 || !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(refused());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| refused())?;
        }
        if parts.next().is_some() {
            return Err(refused());
        }
        Ok(Self(octets))
    }
}

impl TryFrom<String> for Mac {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_people_write_them_and_nothing_else() {
        for good in ["02:00:5e:10:00:01", "02-00-5E-10-00-01"] {
            assert_eq!(good.parse::<Mac>().unwrap().to_string(), "02:00:5e:10:00:01");
        }
        for bad in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:01:02", "2:0:5e:10:0:1", "+2:00:5e:10:00:01"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn derived_addresses_can_be_those_of_a_card() {
        let mac = Mac::derived("default/web-1/0");
        assert!(mac.is_unicast());
        assert_eq!(mac, Mac::derived("default/web-1/0"));
        assert_ne!(mac, Mac::derived("default/web-1/1"));
        assert!(!Mac::new([0; 6]).is_unicast());
        assert!(!Mac::new([0xff; 6]).is_unicast());
    }
}
