//! A ZIP archive, written front to back. Pure.
//!
//! Each file is compressed as a whole, and only names and sizes are kept for the directory at the
//! end: an archive can be sent while it is made.

use std::io::Write as _;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
/// Deflate, names in UTF-8; no later format is needed.
const VERSION: u16 = 20;
const UTF8: u16 = 1 << 11;
const DEFLATE: u16 = 8;
/// The first day that the format knows: archives of the same objects are the same.
const DATE: u16 = 0x21;

/// The entry of a file in the directory.
#[derive(Debug)]
struct ZipEntry {
    name: String,
    crc: u32,
    compressed: u32,
    size: u32,
    offset: u32,
}

/// Why a file cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the archive would exceed 4 GiB or 65535 files")]
pub(super) struct ZipLimit;

#[derive(Debug, Default)]
pub(super) struct ZipWriter {
    offset: u32,
    entries: Vec<ZipEntry>,
}

impl ZipWriter {
    /// The bytes of one more file.
    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> Result<Vec<u8>, ZipLimit> {
        let mut crc = Crc::new();
        crc.update(content);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(5));
        // Writing to memory does not fail.
        let written = encoder.write_all(content).and_then(|()| encoder.finish());
        let data = written.map_err(|_| ZipLimit)?;
        let small = |length: usize| u32::try_from(length).map_err(|_| ZipLimit);
        let entry = ZipEntry {
            name: name.chars().take(1024).collect(),
            crc: crc.sum(),
            compressed: small(data.len())?,
            size: small(content.len())?,
            offset: self.offset,
        };
        let mut bytes = LOCAL.to_le_bytes().to_vec();
        bytes.extend_from_slice(&entry.facts());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes.extend_from_slice(entry.name.as_bytes());
        bytes.extend_from_slice(&data);
        self.offset = self.offset.checked_add(small(bytes.len())?).ok_or(ZipLimit)?;
        if self.entries.len() >= usize::from(u16::MAX) - 1 {
            return Err(ZipLimit);
        }
        self.entries.push(entry);
        Ok(bytes)
    }

    /// The directory, with which the archive ends.
    pub(super) fn finish(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for entry in &self.entries {
            bytes.extend_from_slice(&CENTRAL.to_le_bytes());
            bytes.extend_from_slice(&VERSION.to_le_bytes());
            bytes.extend_from_slice(&entry.facts());
            // No extra field, no comment, first disk, no attributes.
            bytes.extend_from_slice(&[0; 12]);
            bytes.extend_from_slice(&entry.offset.to_le_bytes());
            bytes.extend_from_slice(entry.name.as_bytes());
        }
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let count = u16::try_from(self.entries.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&END.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&0_u16.to_le_bytes());
        bytes
    }
}

impl ZipEntry {
    /// The fields that a file's own header and the directory share.
    fn facts(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for short in [VERSION, UTF8, DEFLATE, 0, DATE] {
            bytes.extend_from_slice(&short.to_le_bytes());
        }
        for long in [self.crc, self.compressed, self.size] {
            bytes.extend_from_slice(&long.to_le_bytes());
        }
        let length = u16::try_from(self.name.len()).unwrap_or(u16::MAX);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn files_come_out_as_they_went_in() {
        let mut zip = ZipWriter::default();
        let text = "one two three ".repeat(1000);
        let mut archive = zip.file("a/one.txt", text.as_bytes()).unwrap();
        let second = archive.len();
        archive.extend(zip.file("b.txt", b"").unwrap());
        let directory = archive.len();
        archive.extend(zip.finish());
        assert!(second < 500, "it is compressed: {second}");
        let short = |at: usize| usize::from(u16::from_le_bytes([archive[at], archive[at + 1]]));
        let long = |at: usize| u32::from_le_bytes(archive[at..at + 4].try_into().unwrap());
        // The end names the directory, the directory names the files.
        let end = archive.len() - 22;
        assert_eq!((long(end), short(end + 10)), (END, 2));
        assert_eq!(long(end + 16) as usize, directory);
        assert_eq!(long(directory), CENTRAL);
        assert_eq!(long(directory + 42), 0, "the first file is at the beginning");
        let next = directory + 46 + "a/one.txt".len();
        assert_eq!((long(next), long(next + 42) as usize), (CENTRAL, second));
        assert_eq!((long(0), short(26)), (LOCAL, "a/one.txt".len()));
        let data = 30 + short(26) + short(28);
        let packed = &archive[data..data + long(18) as usize];
        let mut unpacked = String::new();
        flate2::read::DeflateDecoder::new(packed).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
    }
}
