//! CRC-32C, as fast as the processor can: every block is summed when it is written, when it
//! comes over a wire and when it is read.

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
