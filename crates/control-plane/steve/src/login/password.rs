//! Passwords: which are accepted, and how they are kept.
//!
//! A password is kept as an Argon2id hash with its own salt and the parameters it was made
//! with, so that those can be raised later. Pure but for the salt.

use argon2::{Algorithm, Argon2, Params, Version};
use base64::prelude::{BASE64_STANDARD, Engine as _};

/// As Rancher: shorter passwords are refused.
pub(crate) const SHORTEST: usize = 12;
/// Longer ones would let a request buy time on the CPU.
pub(crate) const LONGEST: usize = 1024;
/// KiB of memory, passes and lanes of new hashes, as OWASP recommends for Argon2id.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);
/// Hashes that ask for more memory than this were not made here.
const MOST_MEMORY: u32 = 256 * 1024;
const LENGTH: usize = 32;

/// Why a password is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("Password must be at least {} characters", SHORTEST)]
    Short,
    #[error("Password must be at most {} bytes", LONGEST)]
    Long,
    #[error("Password cannot be the same as the username")]
    Username,
    #[error("New password must be different from the current password")]
    Same,
    #[error("Password could not be hashed")]
    Hash,
}

/// A password as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PasswordHash {
    memory: u32,
    passes: u32,
    lanes: u32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// Whether a password may be chosen.
pub fn check(username: &str, password: &str) -> Result<(), PasswordError> {
    if password.chars().count() < SHORTEST {
        return Err(PasswordError::Short);
    }
    if password.len() > LONGEST {
        return Err(PasswordError::Long);
    }
    if password == username {
        return Err(PasswordError::Username);
    }
    Ok(())
}

impl PasswordHash {
    pub(crate) fn new(password: &str) -> Result<Self, PasswordError> {
        let salt = super::token::random_bytes(16);
        let (memory, passes, lanes) = COST;
        let hash = derive(password, &salt, COST).ok_or(PasswordError::Hash)?;
        Ok(Self { memory, passes, lanes, salt, hash })
    }

    /// The hash that the passwords of unknown users are compared with: as slow, and no password
    /// has this hash.
    pub(crate) fn placeholder() -> Option<Self> {
        let (memory, passes, lanes) = COST;
        Some(Self { memory, passes, lanes, salt: vec![0; 16], hash: vec![0; LENGTH] })
    }

    /// Takes as long for a wrong password as for the right one.
    pub(crate) fn matches(&self, password: &str) -> bool {
        let cost = (self.memory, self.passes, self.lanes);
        let found = derive(password, &self.salt, cost).unwrap_or_default();
        found.len() == self.hash.len()
            && found.iter().zip(&self.hash).fold(0, |all, (one, other)| all | (one ^ other)) == 0
    }

    /// `argon2id$m=19456,t=2,p=1$SALT$HASH`
    pub(crate) fn to_text(&self) -> String {
        let (salt, hash) = (BASE64_STANDARD.encode(&self.salt), BASE64_STANDARD.encode(&self.hash));
        let Self { memory, passes, lanes, .. } = self;
        format!("argon2id$m={memory},t={passes},p={lanes}${salt}${hash}")
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('$');
        let [name, cost, salt, hash] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        if name != "argon2id" || parts.next().is_some() {
            return None;
        }
        let mut numbers = cost.split(',').zip(["m=", "t=", "p="]);
        let mut number = || {
            let (text, prefix) = numbers.next()?;
            text.strip_prefix(prefix)?.parse::<u32>().ok()
        };
        let (memory, passes, lanes) = (number()?, number()?, number()?);
        let salt = BASE64_STANDARD.decode(salt).ok()?;
        let hash = BASE64_STANDARD.decode(hash).ok()?;
        (memory <= MOST_MEMORY).then_some(Self { memory, passes, lanes, salt, hash })
    }
}

fn derive(
    password: &str,
    salt: &[u8],
    (memory, passes, lanes): (u32, u32, u32),
) -> Option<Vec<u8>> {
    let params = Params::new(memory, passes, lanes, Some(LENGTH)).ok()?;
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let mut hash = vec![0; LENGTH];
    argon.hash_password_into(password.as_bytes(), salt, &mut hash).ok()?;
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_kept_as_text_and_knows_its_password() {
        let hash = PasswordHash::new("correct horse").unwrap();
        let text = hash.to_text();
        assert!(text.starts_with("argon2id$m=19456,t=2,p=1$"), "{text}");
        let read = PasswordHash::parse(&text).unwrap();
        assert_eq!(read, hash);
        assert!(read.matches("correct horse"));
        assert!(!read.matches("correct horsf"));
        assert_ne!(PasswordHash::new("correct horse").unwrap().to_text(), text, "salts differ");
    }

    #[test]
    fn texts_that_are_no_hash_are_not_read() {
        for text in [
            "",
            "argon2id",
            "bcrypt$m=1,t=1,p=1$AA==$AA==",
            "argon2id$m=1,t=1$AA==$AA==",
            "argon2id$m=999999999,t=1,p=1$AA==$AA==",
            "argon2id$m=8,t=1,p=1$AA==$AA==$x",
        ] {
            assert_eq!(PasswordHash::parse(text), None, "{text}");
        }
    }

    #[test]
    fn weak_passwords_are_refused() {
        for (password, expected) in [
            ("short", Err(PasswordError::Short)),
            ("administrator", Err(PasswordError::Username)),
            ("password1234", Ok(())),
            ("пароль123456", Ok(())),
        ] {
            assert_eq!(check("administrator", password), expected, "{password}");
        }
        assert_eq!(check("a", &"x".repeat(2000)), Err(PasswordError::Long));
    }
}
