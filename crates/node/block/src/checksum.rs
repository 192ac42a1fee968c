//! CRC-32C, as fast as the processor can: every block is summed when it is written, when it
//! comes over a wire and when it is read. And sums with a key, where they decide that two blocks
//! are the same: a guest can find blocks with the same CRC, but not with the same [`KeyedSum`].

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C (Castagnoli) of some data.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data))
}

/// The same of a page that holds its own sum in its second four bytes, which were zero when it
/// was computed.
pub(crate) fn crc32c_of_page(page: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in [&page[..4], &[0; 4], &page[8..]] {
        digest.update(part);
    }
    narrow(digest.finalize())
}

/// A key that only the parties of a comparison know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SumKey(pub(crate) u128);

impl SumKey {
    pub(crate) fn random() -> Self {
        Self(uuid::Uuid::new_v4().as_u128() ^ uuid::Uuid::new_v4().as_u128().rotate_left(64))
    }

    /// The key of one comparison of many.
    pub(crate) fn of_comparison(self, number: u64) -> Self {
        Self(self.0 ^ u128::from(number))
    }
}

impl std::fmt::Debug for SumKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SumKey(..)")
    }
}

/// Sums blocks with a key: GMAC, whose sums of two blocks that differ are the same once in 2^120
/// keys. That is enough where the key is not known to whoever chose the blocks, and what is
/// summed is never shown to them.
pub(crate) struct KeyedSum(LessSafeKey);

impl KeyedSum {
    pub(crate) fn new(key: SumKey) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, &key.0.to_le_bytes());
        Self(LessSafeKey::new(key.expect("a key of AES-128 has 16 bytes")))
    }

    pub(crate) fn of(&self, block: &[u8]) -> u128 {
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let tag = self.0.seal_in_place_separate_tag(nonce, Aad::from(block), &mut []);
        let tag = tag.expect("a block is shorter than the limit of GCM");
        u128::from_le_bytes(tag.as_ref().try_into().expect("a tag of GCM has 16 bytes"))
    }
}

/// The crate answers sums of every width as the widest.
fn narrow(sum: u64) -> u32 {
    debug_assert!(u32::try_from(sum).is_ok());
    sum as u32
}

#[cfg(test)]
mod tests {
    /// The sum as its definition says, bit by bit.
    fn plain(data: &[u8]) -> u32 {
        let step = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
        !data.iter().fold(!0, byte)
    }

    #[test]
    fn every_length_and_every_place_in_memory_gives_the_sum_of_the_definition() {
        let data: Vec<u8> =
            (0..5000u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8).collect();
        let lengths = (0..=1100).chain([2047, 2048, 4095, 4096, 4097, 4352, 4900]);
        for (at, length) in lengths.enumerate() {
            let data = &data[at % 64..][..length];
            assert_eq!(super::crc32c(data), plain(data), "{length} bytes");
        }
    }

    #[test]
    fn a_page_is_summed_without_its_own_sum() {
        for length in [8, 9, 60, 176, 4096] {
            let mut page: Vec<u8> = (0..length).map(|at: u32| (at * 7 + 1) as u8).collect();
            page[4..8].fill(0);
            let sum = plain(&page);
            page[4..8].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(super::crc32c_of_page(&page), sum, "{length} bytes");
        }
    }

    /// Changes four bytes at the end of a block so that its CRC-32C is the one asked for.
    fn forge(block: &mut [u8], wanted: u32) {
        let at = block.len() - 4;
        let mut table = [0u32; 256];
        for (byte, entry) in (0u32..).zip(table.iter_mut()) {
            *entry =
                (0..8).fold(byte, |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 });
        }
        // Back from the end: which entries of the table were used.
        let mut crc = !wanted;
        let mut used = [0usize; 4];
        for slot in used.iter_mut().rev() {
            *slot = table.iter().position(|entry| entry >> 24 == crc >> 24).unwrap();
            crc = (crc ^ table[*slot]) << 8;
        }
        let mut crc = !plain(&block[..at]);
        for (byte, slot) in block[at..].iter_mut().zip(used) {
            *byte = (crc as u8) ^ slot as u8;
            crc = (crc >> 8) ^ table[slot];
        }
    }

    #[test]
    fn blocks_that_are_made_to_have_the_same_crc_have_other_keyed_sums() {
        let first = vec![7u8; 4096];
        let mut second = vec![9u8; 4096];
        forge(&mut second, super::crc32c(&first));
        assert_eq!(super::crc32c(&first), super::crc32c(&second));
        let sum = super::KeyedSum::new(super::SumKey::random());
        assert_ne!(sum.of(&first), sum.of(&second));
        assert_eq!(sum.of(&first), sum.of(&first.clone()));
        let other = super::KeyedSum::new(super::SumKey::random());
        assert_ne!(sum.of(&first), other.of(&first));
    }

    #[test]
    fn known_sums() {
        let rising: Vec<u8> = (0..32).collect();
        for (data, sum) in [
            (&b"123456789"[..], 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
            (&[0; 4096], 0x98f9_4189),
        ] {
            assert_eq!(super::crc32c(data), sum);
        }
    }
}
