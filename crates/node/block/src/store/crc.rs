//! Checksums of blocks and of metadata.

use super::geometry::BLOCK;

/// CRC-32C of a block of zeroes.
pub const ZERO_BLOCK: u32 = 0x98f9_4189;

/// CRC-32C (Castagnoli), by what the processor has for it.
pub fn crc32c(data: &[u8]) -> u32 {
    crate::checksum::crc32c(data)
}

/// The checksum of each block of `data`.
pub fn of_blocks(data: &[u8]) -> impl Iterator<Item = u32> {
    data.chunks_exact(BLOCK as usize).map(crc32c)
}

/// The first block of `data` whose checksum is not the one expected.
pub fn first_mismatch(data: &[u8], crcs: &[u32]) -> Option<usize> {
    debug_assert_eq!(data.len(), crcs.len() * BLOCK as usize);
    of_blocks(data).zip(crcs).position(|(found, expected)| found != *expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constant_is_the_checksum_of_a_block_of_zeroes() {
        assert_eq!(crc32c(&[0; BLOCK as usize]), ZERO_BLOCK);
    }

    #[test]
    fn a_flipped_bit_is_found_in_its_block() {
        let mut data = vec![7u8; 3 * BLOCK as usize];
        let crcs: Vec<u32> = of_blocks(&data).collect();
        assert_eq!(first_mismatch(&data, &crcs), None);
        data[BLOCK as usize + 5] ^= 0x10;
        assert_eq!(first_mismatch(&data, &crcs), Some(1));
    }
}
