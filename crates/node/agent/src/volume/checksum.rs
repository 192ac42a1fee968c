//! Sums that people give with an image, as `algorithm:hex`.

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

/// Why a checksum says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "checksum {text:?} is not understood: it has to be md5, sha1, sha256 or sha512, a colon, and \
     the sum in hexadecimal digits"
)]
pub(super) struct ChecksumError {
    text: String,
}

/// The expected checksum of an image, and the one of the data so far.
#[derive(Debug, Clone)]
pub(crate) struct Checksum {
    expected: String,
    hasher: Hasher,
}

#[derive(Debug, Clone)]
enum Hasher {
    Md5(Md5),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Checksum {
    pub(super) fn parse(text: &str) -> Result<Self, ChecksumError> {
        let refused = || ChecksumError { text: text.to_owned() };
        let (algorithm, sum) = text.split_once(':').ok_or_else(refused)?;
        let (hasher, digits) = match algorithm.to_ascii_lowercase().as_str() {
            "md5" => (Hasher::Md5(Md5::new()), 32),
            "sha1" => (Hasher::Sha1(Sha1::new()), 40),
            "sha256" => (Hasher::Sha256(Sha256::new()), 64),
            "sha512" => (Hasher::Sha512(Sha512::new()), 128),
            _ => return Err(refused()),
        };
        let expected = sum.trim().to_ascii_lowercase();
        if expected.len() != digits || !expected.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        Ok(Self { expected, hasher })
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match &mut self.hasher {
            Hasher::Md5(hasher) => hasher.update(bytes),
            Hasher::Sha1(hasher) => hasher.update(bytes),
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The sum that was found instead of the one that was given.
    pub(super) fn finish(self) -> Result<(), Mismatch> {
        let found = match self.hasher {
            Hasher::Md5(hasher) => hex(&hasher.finalize()),
            Hasher::Sha1(hasher) => hex(&hasher.finalize()),
            Hasher::Sha256(hasher) => hex(&hasher.finalize()),
            Hasher::Sha512(hasher) => hex(&hasher.finalize()),
        };
        if found == self.expected {
            return Ok(());
        }
        Err(Mismatch { expected: self.expected, found })
    }
}

/// An image that is not the one that was meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("checksum mismatch: expected {expected}, got {found}")]
pub(super) struct Mismatch {
    expected: String,
    found: String,
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_all_kinds_are_checked() {
        for (text, good) in [
            ("md5:900150983cd24fb0d6963f7d28e17f72", true),
            ("MD5:900150983CD24FB0D6963F7D28E17F72", true),
            ("sha1:a9993e364706816aba3e25717850c26c9cd0d89d", true),
            ("sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", true),
            ("md5:00000000000000000000000000000000", false),
        ] {
            let mut checksum = Checksum::parse(text).unwrap();
            checksum.update(b"a");
            checksum.update(b"bc");
            assert_eq!(checksum.finish().is_ok(), good, "{text}");
        }
    }

    #[test]
    fn what_is_no_checksum_is_refused() {
        for text in ["", "md5", "md5:", "md5:12", "crc32:12345678", "sha256:zz", "900150983cd2"] {
            assert!(Checksum::parse(text).is_err(), "{text}");
        }
    }
}
