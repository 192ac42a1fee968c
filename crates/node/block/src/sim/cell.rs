//! Blocks with their checksums, as a disk has them.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::rng::Rng;
use crate::wire::BLOCK;

const SECTOR: usize = 512;

/// A block as it is stored: its data and the checksum that was recorded for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) data: Bytes,
    pub(crate) crc: u32,
}

impl Cell {
    /// Whether its checksum fits.
    pub(crate) fn is_whole(&self) -> bool {
        crate::checksum::crc32c(&self.data) == self.crc
    }

    /// A bit of it changes by itself.
    pub(super) fn flip(&mut self, at: usize) {
        let mut data = self.data.to_vec();
        data[at] ^= 1 << (at % 8);
        self.data = Bytes::from(data);
    }
}

/// Blocks that are not all zeroes.
pub(crate) type Blocks = BTreeMap<u64, Cell>;

/// Some sectors of the old, some of the new, with either's checksum.
pub(super) fn mix(old: Option<&Cell>, new: Option<&Cell>, rng: &mut Rng) -> Option<Cell> {
    let zeroes = || Cell { data: Bytes::from(vec![0; BLOCK as usize]), crc: zero_crc() };
    if old.is_none() && new.is_none() {
        return None;
    }
    let (old, new) = (old.cloned().unwrap_or_else(zeroes), new.cloned().unwrap_or_else(zeroes));
    let mut data = old.data.to_vec();
    for (at, sector) in data.chunks_mut(SECTOR).enumerate() {
        if rng.chance(500) {
            sector.copy_from_slice(&new.data[at * SECTOR..(at + 1) * SECTOR]);
        }
    }
    let crc = if rng.chance(500) { old.crc } else { new.crc };
    Some(Cell { data: Bytes::from(data), crc })
}

/// The checksum of a block of zeroes.
pub(super) fn zero_crc() -> u32 {
    const ZEROES: [u8; BLOCK as usize] = [0; BLOCK as usize];
    static CRC: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CRC.get_or_init(|| crate::checksum::crc32c(&ZEROES))
}
