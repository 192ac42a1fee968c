//! The mark: how far the log of a replica was durable, and recent changes were recorded, at least.
//!
//! It is the beginning of the file `sums`, written after every batch of the log and never synced.
//! [`record`] has the rest of the file, which is about the checksums of data.
//! A log that ends earlier is an older copy. Its content is true whenever it is found, also after
//! a power cut; without the file less is known.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SMRK` |
//! | 4 | 4 | CRC-32C of these 32 bytes, with this field zero |
//! | 8 | 8 | tag of the replica |
//! | 16 | 8 | the first page of the log that may not be durable |
//! | 24 | 8 | the last change of which the file `recent` had it and all before; per boot |

pub(crate) mod places;
pub(crate) mod record;

use super::bytes_at::{get_u32, get_u64, put_u32, put_u64};
use super::crc::crc32c;
use super::recent::Ticket;
use crate::checksum::crc32c_of_page;

const MAGIC: u32 = u32::from_le_bytes(*b"SMRK");
/// Bytes of the mark.
pub const MARK: u64 = 32;

/// How far files were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The first page of the log that may not be durable.
    pub(crate) next: u64,
    pub(crate) recorded: Ticket,
}

impl Mark {
    pub(crate) fn encode(self, tag: u64) -> Vec<u8> {
        let mut bytes = vec![0; MARK as usize];
        put_u32(&mut bytes, 0, MAGIC);
        put_u64(&mut bytes, 8, tag);
        put_u64(&mut bytes, 16, self.next);
        put_u64(&mut bytes, 24, self.recorded.0);
        let crc = crc32c(&bytes);
        put_u32(&mut bytes, 4, crc);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], tag: u64) -> Option<Self> {
        let bytes = bytes.get(..MARK as usize)?;
        let ours = get_u32(bytes, 0) == MAGIC
            && crc32c_of_page(bytes) == get_u32(bytes, 4)
            && get_u64(bytes, 8) == tag;
        let (next, recorded) = (get_u64(bytes, 16), Ticket(get_u64(bytes, 24)));
        ours.then_some(Self { next, recorded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_only_by_its_replica() {
        let mark = Mark { next: 9, recorded: Ticket(4) };
        let bytes = mark.encode(3);
        assert_eq!(Mark::decode(&bytes, 3), Some(mark));
        assert_eq!(Mark::decode(&bytes, 4), None);
        assert_eq!(Mark::decode(&[0; MARK as usize], 3), None);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&bad, 3), None, "bit {bit}");
        }
    }
}
