//! A block of a volume as a file: its name, and how it is compressed. Pure.

use std::io::{self, Read as _, Write as _};
use std::str::FromStr;

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use sha2::{Digest as _, Sha512};

use crate::layout::hex;

/// Characters of a block's checksum: half of a SHA-512.
const CHECKSUM_LENGTH: usize = 64;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    None,
    Gzip,
    #[default]
    Lz4,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compression method {method:?} is unknown: it must be none, gzip or lz4")]
pub struct UnknownCompression {
    method: String,
}

impl Compression {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Lz4 => "lz4",
        }
    }
}

impl FromStr for Compression {
    type Err = UnknownCompression;

    fn from_str(text: &str) -> Result<Self, UnknownCompression> {
        match text {
            "none" => Ok(Self::None),
            // Backups of the first versions of Longhorn name none.
            "gzip" | "" => Ok(Self::Gzip),
            "lz4" => Ok(Self::Lz4),
            _ => Err(UnknownCompression { method: text.to_owned() }),
        }
    }
}

/// Why a file is not the block that its name says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlockError {
    #[error("block {checksum} cannot be decompressed")]
    Decompress { checksum: String, source: io::Error },
    #[error("block {checksum} has {found} bytes instead of {expected}")]
    Length { checksum: String, found: u64, expected: u64 },
    #[error("block {checksum} is damaged: its content has the checksum {found}")]
    Checksum { checksum: String, found: String },
}

pub(crate) fn checksum(block: &[u8]) -> String {
    hex(&Sha512::digest(block)[..CHECKSUM_LENGTH / 2])
}

pub(crate) fn is_checksum(text: &str) -> bool {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == CHECKSUM_LENGTH && text.bytes().all(digit)
}

pub(crate) fn compress(block: &[u8], method: Compression) -> io::Result<Vec<u8>> {
    match method {
        Compression::None => Ok(block.to_vec()),
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(block)?;
            encoder.finish()
        }
        Compression::Lz4 => {
            // As Longhorn writes frames: independent blocks of 4 MiB, a checksum of the content.
            let info = FrameInfo::new().block_size(BlockSize::Max4MB).content_checksum(true);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(block)?;
            encoder.finish().map_err(io::Error::other)
        }
    }
}

/// The content of a block's file, of exactly `size` bytes and with the checksum that it is named by.
pub(crate) fn open(
    file: &[u8],
    method: Compression,
    name: &str,
    size: u64,
) -> Result<Vec<u8>, BlockError> {
    let failed = |source| BlockError::Decompress { checksum: name.to_owned(), source };
    let block = decompress(file, method, size).map_err(failed)?;
    if block.len() as u64 != size {
        let (checksum, found) = (name.to_owned(), block.len() as u64);
        return Err(BlockError::Length { checksum, found, expected: size });
    }
    let found = checksum(&block);
    if found != name {
        return Err(BlockError::Checksum { checksum: name.to_owned(), found });
    }
    Ok(block)
}

/// At most one byte more than `size`: a small file can be the compressed form of a huge one.
fn decompress(file: &[u8], method: Compression, size: u64) -> io::Result<Vec<u8>> {
    let bounded = |reader: &mut dyn io::Read| {
        let mut block = Vec::new();
        reader.take(size + 1).read_to_end(&mut block).map(|_| block)
    };
    // A volume whose method was changed has blocks of both kinds.
    let method = match (method, file) {
        (Compression::None, _) => Compression::None,
        (_, [0x1f, 0x8b, ..]) => Compression::Gzip,
        (_, [0x04, 0x22, 0x4d, 0x18, ..]) => Compression::Lz4,
        (method, _) => method,
    };
    match method {
        Compression::None => bounded(&mut &file[..]),
        Compression::Gzip => bounded(&mut GzDecoder::new(file)),
        Compression::Lz4 => bounded(&mut FrameDecoder::new(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Lz4];

    #[test]
    fn a_block_comes_back_from_each_compression() {
        let block: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        let name = checksum(&block);
        assert!(is_checksum(&name));
        for method in ALL {
            let file = compress(&block, method).unwrap();
            let opened = open(&file, method, &name, block.len() as u64).unwrap();
            assert!(opened == block, "{method:?}");
            assert_eq!(method.name().parse(), Ok(method));
        }
        let gzip = compress(&block, Compression::Gzip).unwrap();
        assert!(open(&gzip, Compression::Lz4, &name, block.len() as u64).is_ok());
    }

    #[test]
    fn an_lz4_frame_has_the_header_of_longhorns() {
        let file = compress(&[7; 4096], Compression::Lz4).unwrap();
        assert_eq!(file[..6], [0x04, 0x22, 0x4d, 0x18, 0x64, 0x70]);
    }

    #[test]
    fn damage_of_any_kind_is_an_error() {
        let block = vec![1; 8192];
        let name = checksum(&block);
        for method in ALL {
            let mut file = compress(&block, method).unwrap();
            assert!(open(&file, method, &name, 4096).is_err(), "{method:?} too long");
            assert!(open(&file, method, &name, 16384).is_err(), "{method:?} too short");
            let middle = file.len() / 2;
            file[middle] ^= 0x40;
            assert!(open(&file, method, &name, 8192).is_err(), "{method:?} one bit");
            assert!(open(&file[..middle], method, &name, 8192).is_err(), "{method:?} torn");
        }
        let other = compress(&vec![2; 8192], Compression::Lz4).unwrap();
        assert!(matches!(
            open(&other, Compression::Lz4, &name, 8192),
            Err(BlockError::Checksum { .. })
        ));
    }
}
