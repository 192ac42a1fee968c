//! Sums: the checksums of pages at rest, for the process that follows if this one is killed.
//!
//! The checksums of an active region are in memory; the map has older ones. What a process wrote to
//! a file outlives it in the kernel's cache, so a flush leaves a copy there of the checksums of the
//! pages that were written. It is never synced, and what a power cut leaves of it is not read.
//!
//! The file `sums` has places of 4 KiB. The first holds the [`Mark`]; places that hold nothing begin
//! with zeroes.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SSUM` |
//! | 4 | 4 | CRC-32C of the first 2112 bytes, with this field zero |
//! | 8 | 16 | boot |
//! | 24 | 8 | tag of the replica |
//! | 32 | 4 | number of the file |
//! | 36 | 4 | region |
//! | 64 | 2048 | CRC-32C of each block that has data |
//!
//! **Invariant.** A place holds what is true of its page's data: it is cleared before the first
//! write to the page that follows, and a write in flight keeps it from being filled.
//!
//! **Mark.** How far the log was durable, at least: a log that ends earlier is an older copy. It is true
//! whenever it is found, also after a power cut.

use super::bytes_at::{get_u32, get_u64, get_u128, put_u32, put_u64, put_u128};
use super::crc::crc32c;
use super::files::FileNo;
use super::geometry::{REGION_BLOCKS, Region};
use super::map::{Crcs, no_crcs};
use super::recent::PageName;
use crate::checksum::crc32c_of_page;
use crate::ids::BootId;

/// Bytes of a place.
pub const PLACE: u64 = 4096;
const MAGIC: u32 = u32::from_le_bytes(*b"SSUM");
const CRCS: usize = 64;
const LEN: usize = CRCS + 4 * REGION_BLOCKS as usize;
/// What is written over the beginning of a place to clear it.
pub(crate) const CLEAR: [u8; CRCS] = [0; CRCS];

const MARK_MAGIC: u32 = u32::from_le_bytes(*b"SMRK");
const MARK: usize = 32;

/// The first page of the log that may not be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) u64);

impl Mark {
    pub(crate) fn encode(self, tag: u64) -> Vec<u8> {
        let mut bytes = vec![0; MARK];
        put_u32(&mut bytes, 0, MARK_MAGIC);
        put_u64(&mut bytes, 8, tag);
        put_u64(&mut bytes, 16, self.0);
        let crc = crc32c(&bytes);
        put_u32(&mut bytes, 4, crc);
        bytes
    }

    pub(crate) fn decode(place: &[u8], tag: u64) -> Option<Self> {
        let bytes = place.get(..MARK)?;
        let ours = get_u32(bytes, 0) == MARK_MAGIC
            && crc32c_of_page(bytes) == get_u32(bytes, 4)
            && get_u64(bytes, 8) == tag;
        ours.then(|| Self(get_u64(bytes, 16)))
    }
}

/// Where a place is.
pub(crate) fn offset(place: u32) -> u64 {
    (u64::from(place) + 1) * PLACE
}

/// The checksums of one page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sums {
    pub(crate) page: PageName,
    pub(crate) crcs: Box<Crcs>,
}

pub(crate) fn encode(boot: BootId, tag: u64, page: PageName, crcs: &Crcs) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    put_u32(&mut bytes, 0, MAGIC);
    put_u128(&mut bytes, 8, boot.as_u128());
    put_u64(&mut bytes, 24, tag);
    put_u32(&mut bytes, 32, page.0.0);
    put_u32(&mut bytes, 36, page.1.0);
    for (i, crc) in crcs.iter().enumerate() {
        put_u32(&mut bytes, CRCS + i * 4, *crc);
    }
    let crc = crc32c(&bytes);
    put_u32(&mut bytes, 4, crc);
    bytes
}

/// What a place holds, if it is whole and of this boot.
pub(crate) fn decode(place: &[u8], boot: BootId, tag: u64) -> Option<Sums> {
    let bytes = place.get(..LEN)?;
    let ours = get_u32(bytes, 0) == MAGIC
        && get_u128(bytes, 8) == boot.as_u128()
        && get_u64(bytes, 24) == tag
        && crc32c_of_page(bytes) == get_u32(bytes, 4);
    ours.then(|| {
        let mut crcs = no_crcs();
        for (i, crc) in crcs.iter_mut().enumerate() {
            *crc = get_u32(bytes, CRCS + i * 4);
        }
        Sums { page: (FileNo(get_u32(bytes, 32)), Region(get_u32(bytes, 36))), crcs }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_as_they_were_written_and_only_in_their_boot() {
        let (boot, page) = (BootId::from_u128(7), (FileNo(2), Region(9)));
        let mut crcs = no_crcs();
        (crcs[0], crcs[511]) = (5, 6);
        let bytes = encode(boot, 3, page, &crcs);
        assert_eq!(decode(&bytes, boot, 3), Some(Sums { page, crcs }));
        assert_eq!(decode(&bytes, BootId::from_u128(8), 3), None);
        assert_eq!(decode(&bytes, boot, 4), None);
        for bit in (0..LEN * 8).step_by(7) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad, boot, 3), None, "bit {bit}");
        }
        let mut cleared = bytes;
        cleared[..CLEAR.len()].copy_from_slice(&CLEAR);
        assert_eq!(decode(&cleared, boot, 3), None);
    }
}
