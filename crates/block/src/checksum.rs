//! CRC-32C, as fast as the processor can: every block is summed when it is written, when it
//! comes over a wire and when it is read.

#[cfg(target_arch = "x86_64")]
mod fold;

/// CRC-32C (Castagnoli) of some data.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(crc) = fold::crc32c(data) {
        return crc;
    }
    crc32c::crc32c(data)
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
