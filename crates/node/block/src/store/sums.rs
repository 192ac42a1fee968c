//! The mark: how far the log of a replica was durable, at least.
//!
//! It is the beginning of the file `sums`, written after every batch of the log and never synced. A
//! log that ends earlier is an older copy. What is found is true, also after a power cut; without the
//! file less is known.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SMRK` |
//! | 4 | 4 | CRC-32C of these 32 bytes, with this field zero |
//! | 8 | 8 | tag of the replica |
//! | 16 | 8 | the first page of the log that may not be durable |

use super::bytes_at::{get_u32, get_u64, put_u32, put_u64};
use super::crc::crc32c;
use crate::checksum::crc32c_of_page;

const MAGIC: u32 = u32::from_le_bytes(*b"SMRK");
/// Bytes of the mark.
pub const MARK: u64 = 32;

/// The first page of the log that may not be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(pub(crate) u64);

impl Mark {
    pub(crate) fn encode(self, tag: u64) -> Vec<u8> {
        let mut bytes = vec![0; MARK as usize];
        put_u32(&mut bytes, 0, MAGIC);
        put_u64(&mut bytes, 8, tag);
        put_u64(&mut bytes, 16, self.0);
        let crc = crc32c(&bytes);
        put_u32(&mut bytes, 4, crc);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], tag: u64) -> Option<Self> {
        let bytes = bytes.get(..MARK as usize)?;
        let ours = get_u32(bytes, 0) == MAGIC
            && crc32c_of_page(bytes) == get_u32(bytes, 4)
            && get_u64(bytes, 8) == tag;
        ours.then(|| Self(get_u64(bytes, 16)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_only_by_its_replica() {
        let bytes = Mark(9).encode(3);
        assert_eq!(Mark::decode(&bytes, 3), Some(Mark(9)));
        assert_eq!(Mark::decode(&bytes, 4), None);
        assert_eq!(Mark::decode(&[0; MARK as usize], 3), None);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(&bad, 3), None, "bit {bit}");
        }
    }
}
