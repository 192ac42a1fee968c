//! The header of an encrypted volume: LUKS2, as `cryptsetup` writes and reads it.
//!
//! ```text
//!  0          16 KiB        32 KiB                                  16 MiB
//!  │ binary   │ the same    │ key slot 0 │ key slot 1 │ …           │ data
//!  │ + JSON   │ once more   │   258048 bytes each                   │
//! ```
//!
//! A key slot holds the volume key, spread over 4000 stripes so that erasing any part of it is
//! enough, and encrypted by a key that a slow function makes of a passphrase. A digest of the
//! volume key shows whether it was the right one. The format is that of the *LUKS2 on-disk format
//! specification* 1.1: [`header`] the two copies, [`slot`] key slots.
//!
//! A change writes what it needs to the key slot first, then each copy of the header with a flush
//! between: a crash leaves one that is whole.

mod header;
mod slot;

#[cfg(test)]
mod tests;

use std::io;

use aws_lc_rs::rand;
use serde_json::json;
use zeroize::Zeroizing;

use self::header::{Header, HeaderError};
use super::{Cipher, HEADER, KEY, Passphrase};

pub use self::slot::Cost;

/// Reaches the part of a volume before its data. Offsets and lengths are multiples of 4096.
pub trait HeaderDisk {
    fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>>;
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
    fn flush(&mut self) -> io::Result<()>;
}

/// Why a volume cannot be unlocked, or its passphrases not changed.
#[derive(Debug, thiserror::Error)]
pub enum LuksError {
    #[error("wrong passphrase")]
    WrongPassphrase,
    #[error("the volume has no LUKS2 header")]
    NotEncrypted,
    #[error("the volume holds data and no LUKS2 header; it is not made an encrypted one")]
    HoldsData,
    #[error("both copies of the LUKS2 header are damaged")]
    Damaged,
    #[error("the LUKS2 header uses {what} {found:?}, which is not supported")]
    Unsupported { what: &'static str, found: String },
    #[error("no free LUKS key slot")]
    Full,
    #[error("cannot remove the only passphrase")]
    Last,
    #[error("a passphrase has at least one byte")]
    Empty,
    #[error("cannot access the header of the volume")]
    Io { source: io::Error },
}

impl From<io::Error> for LuksError {
    fn from(source: io::Error) -> Self {
        Self::Io { source }
    }
}

type VolumeKey = Zeroizing<[u8; KEY]>;

/// Whether there is nothing where a header would be, nor what is left of one.
pub fn is_blank(disk: &mut dyn HeaderDisk) -> Result<bool, LuksError> {
    const PIECE: usize = 1 << 20;
    for offset in (0..HEADER).step_by(PIECE) {
        if disk.read(offset, PIECE)?.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes an empty volume an encrypted one.
pub fn format(
    disk: &mut dyn HeaderDisk,
    passphrase: &Passphrase,
    cost: Cost,
) -> Result<Cipher, LuksError> {
    if !is_blank(disk)? {
        return Err(LuksError::HoldsData);
    }
    let mut key: VolumeKey = Zeroizing::new([0; KEY]);
    random(&mut key[..]);
    let (digest, salt) = slot::new_digest(&key, DIGEST_ROUNDS);
    let mut header = Header::new(json!({
        "keyslots": {},
        "tokens": {},
        "segments": { "0": {
            "type": "crypt",
            "offset": HEADER.to_string(),
            "size": "dynamic",
            "iv_tweak": "0",
            "encryption": "aes-xts-plain64",
            "sector_size": 4096,
        } },
        "digests": { "0": {
            "type": "pbkdf2",
            "keyslots": [],
            "segments": ["0"],
            "hash": "sha256",
            "iterations": DIGEST_ROUNDS,
            "salt": salt,
            "digest": digest,
        } },
        "config": {
            "json_size": (header::SIZE - 4096).to_string(),
            "keyslots_size": (HEADER - 2 * header::SIZE).to_string(),
        },
    }));
    slot::add(disk, &mut header, &key, passphrase, cost)?;
    header.store(disk)?;
    cipher(&header, &key)
}

/// The volume key is random: one check of it needs no protection by slowness.
const DIGEST_ROUNDS: u32 = 1000;

/// Opens a volume.
pub fn unlock(disk: &mut dyn HeaderDisk, passphrase: &Passphrase) -> Result<Cipher, LuksError> {
    let header = load(disk)?;
    let (_, key) = slot::open(disk, &header, passphrase)?;
    cipher(&header, &key)
}

/// Lets another passphrase open the volume too.
pub fn add_passphrase(
    disk: &mut dyn HeaderDisk,
    known: &Passphrase,
    new: &Passphrase,
    cost: Cost,
) -> Result<(), LuksError> {
    let mut header = load(disk)?;
    let (_, key) = slot::open(disk, &header, known)?;
    slot::add(disk, &mut header, &key, new, cost)?;
    header.store(disk)
}

/// Replaces a passphrase. Until the new one works, the old one does.
pub fn change_passphrase(
    disk: &mut dyn HeaderDisk,
    old: &Passphrase,
    new: &Passphrase,
    cost: Cost,
) -> Result<(), LuksError> {
    let mut header = load(disk)?;
    let (slot, key) = slot::open(disk, &header, old)?;
    slot::add(disk, &mut header, &key, new, cost)?;
    header.store(disk)?;
    slot::remove(disk, &mut header, &slot)?;
    header.store(disk)
}

/// Takes a passphrase out, unless it is the last.
pub fn remove_passphrase(
    disk: &mut dyn HeaderDisk,
    passphrase: &Passphrase,
) -> Result<(), LuksError> {
    let mut header = load(disk)?;
    let (slot, _) = slot::open(disk, &header, passphrase)?;
    if header.keyslots()?.len() < 2 {
        return Err(LuksError::Last);
    }
    slot::remove(disk, &mut header, &slot)?;
    header.store(disk)
}

fn load(disk: &mut dyn HeaderDisk) -> Result<Header, LuksError> {
    Header::load(disk)
}

fn cipher(header: &Header, key: &VolumeKey) -> Result<Cipher, LuksError> {
    let segment = header.segment()?;
    Ok(Cipher::new(key, segment.start, segment.sector, segment.tweak))
}

fn random(bytes: &mut [u8]) {
    rand::fill(bytes).expect("the system has randomness");
}

impl From<HeaderError> for LuksError {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::Absent => Self::NotEncrypted,
            HeaderError::Damaged => Self::Damaged,
            HeaderError::Unsupported { what, found } => Self::Unsupported { what, found },
        }
    }
}
