//! AES-256 in XTS mode (IEEE 1619), for sectors of whole cipher blocks.
//!
//! Written over the block cipher of the `aes` crate, which uses the processor's instructions where
//! there are some: blocks go through it many at a time, as its pipeline wants them.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use super::KEY;

/// Cipher blocks that are worked on together.
const BATCH: usize = 32;

pub(super) struct Xts {
    data: Aes256,
    tweak: Aes256,
}

impl Xts {
    /// The first half of the key is for the data, the second for the numbers of sectors.
    pub(super) fn new(key: &[u8; KEY]) -> Self {
        let half = |at: usize| {
            Aes256::new_from_slice(&key[at..at + KEY / 2]).expect("half a key is 32 bytes")
        };
        Self { data: half(0), tweak: half(KEY / 2) }
    }

    pub(super) fn encrypt(&self, sector: u64, bytes: &mut [u8]) {
        self.run(sector, bytes, |cipher, blocks| cipher.encrypt_blocks(blocks));
    }

    pub(super) fn decrypt(&self, sector: u64, bytes: &mut [u8]) {
        self.run(sector, bytes, |cipher, blocks| cipher.decrypt_blocks(blocks));
    }

    fn run(&self, sector: u64, bytes: &mut [u8], turn: impl Fn(&Aes256, &mut [aes::Block])) {
        let (blocks, rest) = Array::slice_as_chunks_mut(bytes);
        assert!(rest.is_empty(), "a sector is whole cipher blocks");
        let mut first = aes::Block::from(u128::from(sector).to_le_bytes());
        self.tweak.encrypt_block(&mut first);
        let mut tweak = u128::from_le_bytes(first.into());
        let mut tweaks = [0u128; BATCH];
        for blocks in blocks.chunks_mut(BATCH) {
            for slot in &mut tweaks[..blocks.len()] {
                *slot = tweak;
                // Multiplied by x in GF(2^128), reduced by x^128 + x^7 + x^2 + x + 1.
                tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
            }
            mask(blocks, &tweaks);
            turn(&self.data, blocks);
            mask(blocks, &tweaks);
        }
    }
}

fn mask(blocks: &mut [aes::Block], tweaks: &[u128]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        let masked = u128::from_le_bytes((*block).into()) ^ tweak;
        *block = masked.to_le_bytes().into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    }

    /// Vectors 10 and 11 of IEEE 1619-2007, annex B: AES-256, 512 bytes counting up.
    #[test]
    fn the_standard_s_vectors_are_met() {
        let key = "2718281828459045235360287471352662497757247093699959574966967627\
                   3141592653589793238462643383279502884197169399375105820974944592";
        let key: [u8; KEY] = hex(key).try_into().unwrap();
        let plain: Vec<u8> = (0..512).map(|at| at as u8).collect();
        for (sector, begins) in [
            (0xff, "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"),
            (0xffff, "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11"),
        ] {
            let mut bytes = plain.clone();
            Xts::new(&key).encrypt(sector, &mut bytes);
            assert_eq!(bytes[..32], hex(begins), "sector {sector:#x}");
            Xts::new(&key).decrypt(sector, &mut bytes);
            assert_eq!(bytes, plain);
        }
    }
}
