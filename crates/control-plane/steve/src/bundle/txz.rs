//! A file as a tar archive in an XZ stream, the form of the hardware report in Harvester's support
//! bundles. Pure.
//!
//! The data is stored as it is, in LZMA2's uncompressed chunks: the ZIP archive around it compresses.

use flate2::Crc;

const STREAM_MAGIC: &[u8] = b"\xfd7zXZ\0";
const FOOTER_MAGIC: &[u8] = b"YZ";
/// Blocks end with a CRC32.
const FLAGS: &[u8] = &[0, 1];
/// Twelve bytes with their checksum; one filter, LZMA2, with a dictionary of 64 KiB.
const BLOCK_HEADER: &[u8] = &[2, 0, 0x21, 1, 8, 0, 0, 0];
const LONGEST_CHUNK: usize = 1 << 16;
const FIRST_CHUNK: u8 = 1;
const NEXT_CHUNK: u8 = 2;
const TAR_BLOCK: usize = 512;

/// An archive with one file.
pub(super) fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    xz(&tar(name, content))
}

fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; TAR_BLOCK];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    for (at, field) in [(100, "0000644\0"), (108, "0000000\0"), (116, "0000000\0")] {
        put(at, field.as_bytes());
    }
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    // The checksum is of the header with spaces in its place.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header.to_vec();
    archive.extend_from_slice(content);
    pad(&mut archive, TAR_BLOCK);
    archive.extend_from_slice(&[0; 2 * TAR_BLOCK]);
    archive
}

fn xz(data: &[u8]) -> Vec<u8> {
    let mut stream = STREAM_MAGIC.to_vec();
    stream.extend_from_slice(FLAGS);
    stream.extend_from_slice(&checksum(FLAGS));
    let start = stream.len();
    stream.extend_from_slice(BLOCK_HEADER);
    stream.extend_from_slice(&checksum(BLOCK_HEADER));
    for (index, chunk) in data.chunks(LONGEST_CHUNK).enumerate() {
        stream.push(if index == 0 { FIRST_CHUNK } else { NEXT_CHUNK });
        let last = u16::try_from(chunk.len() - 1).expect("a chunk has at most 64 KiB");
        stream.extend_from_slice(&last.to_be_bytes());
        stream.extend_from_slice(chunk);
    }
    stream.push(0);
    let check = checksum(data);
    let unpadded = stream.len() - start + check.len();
    pad(&mut stream, 4);
    stream.extend_from_slice(&check);
    // The index: one block.
    let mut index = vec![0, 1];
    index.extend(variable_length(unpadded));
    index.extend(variable_length(data.len()));
    pad(&mut index, 4);
    index.extend_from_slice(&checksum(&index));
    stream.extend_from_slice(&index);
    let words = u32::try_from(index.len() / 4 - 1).expect("the index of one block is short");
    let footer = [&words.to_le_bytes()[..], FLAGS].concat();
    stream.extend_from_slice(&checksum(&footer));
    stream.extend_from_slice(&footer);
    stream.extend_from_slice(FOOTER_MAGIC);
    stream
}

fn pad(bytes: &mut Vec<u8>, unit: usize) {
    bytes.resize(bytes.len().next_multiple_of(unit), 0);
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum().to_le_bytes()
}

/// Seven bits in each byte, the lowest first; the highest bit says that more follow.
fn variable_length(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_stored_in_an_xz_stream() {
        let content = vec![b'a'; 2 * LONGEST_CHUNK];
        let stream = archive("scc/hardware.txt", &content);
        assert!(stream.starts_with(STREAM_MAGIC) && stream.ends_with(FOOTER_MAGIC));
        assert_eq!(stream.len() % 4, 0);
        // The checksum of the first header, as xz itself writes it.
        assert_eq!(stream[8..12], [0x69, 0x22, 0xde, 0x36]);
        assert_eq!(stream[24], FIRST_CHUNK);
        assert_eq!(stream[24 + 3..][..16], *b"scc/hardware.txt");
        assert_eq!(stream[24 + 3 + LONGEST_CHUNK], NEXT_CHUNK);
    }

    #[test]
    fn a_tar_archive_has_whole_blocks() {
        let archive = tar("a", b"text");
        assert_eq!(archive.len(), 4 * TAR_BLOCK);
        assert_eq!(archive[124..136], *b"00000000004\0");
        assert_eq!(archive[TAR_BLOCK..TAR_BLOCK + 4], *b"text");
        assert_eq!(archive[257..265], *b"ustar\x0000");
    }

    #[test]
    fn numbers_have_a_variable_length() {
        for (number, expected) in
            [(0, vec![0]), (127, vec![127]), (128, vec![0x80, 1]), (300, vec![0xac, 2])]
        {
            assert_eq!(variable_length(number), expected);
        }
    }
}
