//! Encryption at rest: the engine sends only ciphertext to its replicas.
//!
//! ```text
//!  guest ── plain blocks ──► engine: Cipher ── AES-256-XTS ──► replicas, wire, backups
//!                               ▲
//!  passphrase ── luks ── volume key, from the header in the first 16 MiB of the volume
//! ```
//!
//! [`luks`] is the header (LUKS2, as `cryptsetup` reads it), [`xts`] the mode, [`Cipher`] both
//! together on blocks of a volume, [`disk`] a whole one in a file. Checksums are of the
//! ciphertext. Offset 0 of the guest's disk is the first byte after the header.
//!
//! **Holes.** A block that was never written, was discarded, or was zeroed by a command that says
//! so, is a hole on every replica and reads as zeroes; zeroes that a guest writes as data are
//! encrypted. Without that every volume would be as large as it claims and a discard could not be
//! honoured. It shows readers of a replica which blocks are in use, as a discard on `dm-crypt`
//! does; and where `cryptsetup` opens an exported volume, holes read as noise. No block of
//! ciphertext is ever all zeroes, but for one in 2^32768.
//!
//! XTS encrypts and does not authenticate: a user with write access to a replica can change
//! blocks, to noise or back to earlier content. The checksums protect against accidents only.

pub mod disk;
pub mod luks;
mod xts;

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use zeroize::Zeroizing;

use self::xts::Xts;

/// The unit of holes.
const BLOCK: usize = 4096;

/// Bytes before the data of an encrypted volume, unless its header says otherwise.
pub const HEADER: u64 = 16 << 20;

/// Bytes of a volume key: two keys of AES-256.
pub const KEY: usize = 64;

/// The passphrase of a volume; erased when dropped, and never printed.
#[derive(Clone)]
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl Passphrase {
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(…)")
    }
}

/// Turns blocks of a volume into what is stored, and back.
#[derive(Clone)]
pub struct Cipher {
    xts: Arc<Xts>,
    /// Where the data begins.
    start: u64,
    /// Bytes that are encrypted together.
    sector: usize,
    /// Added to the number of a sector.
    tweak: u64,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, sector, .. } = self;
        f.debug_struct("Cipher").field("start", start).field("sector", sector).finish()
    }
}

impl Cipher {
    fn new(key: &[u8; KEY], start: u64, sector: usize, tweak: u64) -> Self {
        debug_assert!(BLOCK.is_multiple_of(sector) && start.is_multiple_of(BLOCK as u64));
        Self { xts: Arc::new(Xts::new(key)), start, sector, tweak }
    }

    /// Where the data begins in the volume.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Encrypts whole blocks that go to `offset` of the volume.
    pub fn encrypt(&self, offset: u64, data: &[u8]) -> Bytes {
        let mut out = BytesMut::from(data);
        let first = self.sector_at(offset);
        for (sector, bytes) in self.sectors(first).zip(out.chunks_exact_mut(self.sector)) {
            self.xts.encrypt(sector, bytes);
        }
        out.freeze()
    }

    /// Decrypts whole blocks from `offset` of the volume. Holes stay what they are.
    pub fn decrypt(&self, offset: u64, data: Bytes) -> Bytes {
        let mut out = data.try_into_mut().unwrap_or_else(|data| BytesMut::from(&data[..]));
        for (at, block) in (offset..).step_by(BLOCK).zip(out.chunks_exact_mut(BLOCK)) {
            if is_hole(block) {
                continue;
            }
            let first = self.sector_at(at);
            for (sector, bytes) in self.sectors(first).zip(block.chunks_exact_mut(self.sector)) {
                self.xts.decrypt(sector, bytes);
            }
        }
        out.freeze()
    }

    /// The number that `plain64` gives to what is at an offset: in units of 512 bytes, however
    /// large the sectors are.
    fn sector_at(&self, offset: u64) -> u64 {
        debug_assert!(offset >= self.start && offset.is_multiple_of(BLOCK as u64));
        (offset - self.start) / 512 + self.tweak
    }

    fn sectors(&self, first: u64) -> impl Iterator<Item = u64> + use<> {
        (first..).step_by(self.sector / 512)
    }
}

fn is_hole(block: &[u8]) -> bool {
    // The first bytes settle it for all but holes.
    block[..16] == [0; 16] && block.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(sector: usize) -> Cipher {
        let key = std::array::from_fn(|at| at as u8);
        Cipher::new(&key, HEADER, sector, 0)
    }

    #[test]
    fn blocks_come_back_and_holes_stay_holes() {
        for sector in [512, 4096] {
            let cipher = cipher(sector);
            let plain: Vec<u8> = (0..3 * BLOCK).map(|at| (at / 7) as u8).collect();
            let stored = cipher.encrypt(HEADER + 8192, &plain);
            assert_ne!(stored, plain);
            assert_eq!(cipher.decrypt(HEADER + 8192, stored.clone()), plain);
            assert_ne!(cipher.decrypt(HEADER + 4096, stored.clone()), plain, "bound to its place");
            let mut holed = stored.to_vec();
            holed[BLOCK..2 * BLOCK].fill(0);
            let read = cipher.decrypt(HEADER + 8192, holed.into());
            assert!(read[BLOCK..2 * BLOCK].iter().all(|byte| *byte == 0));
            assert_eq!(read[2 * BLOCK..], plain[2 * BLOCK..]);
        }
    }

    #[test]
    fn zeroes_that_are_data_are_not_taken_for_a_hole() {
        let stored = cipher(4096).encrypt(HEADER, &[0; BLOCK]);
        assert!(!is_hole(&stored));
        assert_eq!(cipher(4096).decrypt(HEADER, stored), vec![0; BLOCK]);
    }

    #[test]
    fn large_sectors_are_numbered_as_small_ones() {
        let large = cipher(4096).encrypt(HEADER + 4096, &[7; BLOCK]);
        let small = cipher(512).encrypt(HEADER + 4096, &[7; BLOCK]);
        assert_eq!(large[..512], small[..512], "both begin with sector 8");
        assert_ne!(large[512..1024], small[512..1024]);
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Passphrase::new("geheim")), "Passphrase(…)");
        assert!(!format!("{:?}", cipher(512)).contains("xts"));
    }
}
