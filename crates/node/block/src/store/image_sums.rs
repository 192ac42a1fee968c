//! Checksums of a base image, in a file beside it.
//!
//! ```text
//!  image         raw, never written again
//!  image.sums    header (64 bytes) · one CRC-32C for each block of 4096 bytes, little endian
//!
//!  header:  magic (8) · version · block size · bytes of the image (8) · CRC of the table ·
//!           CRC of the header before this, zeroes
//! ```
//!
//! With them, a block of the image is like one of a layer: damage is noticed when it is read, and
//! gets repaired from other replicas. Without them, or where they are damaged themselves, the image
//! is taken as it is.
//!
//! All replicas of a process that lie on an image share its checksums: 1 MiB for each GiB.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::crc;
use super::geometry::BLOCK;

const MAGIC: &[u8; 8] = b"SHFIMSUM";
const VERSION: u32 = 1;
const HEADER: usize = 64;
/// Where the checksum of the header is.
const SEAL: usize = 28;
/// The largest image whose checksums are kept in memory.
const MAX_IMAGE: u64 = 64 << 30;
/// Read at once.
const PIECE: u64 = 1 << 20;

/// The checksum of each block of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSums(Arc<[u32]>);

impl ImageSums {
    pub(crate) fn blocks(&self) -> &[u32] {
        &self.0
    }
}

/// Why checksums cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SumsError {
    #[error("cannot use {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} holds no checksums of this image", path.display())]
    Other { path: PathBuf },
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf },
    #[error("the check was stopped")]
    Stopped,
}

/// The file with the checksums of an image.
pub fn sums_path(image: &Path) -> PathBuf {
    let mut path = image.as_os_str().to_owned();
    path.push(".sums");
    path.into()
}

fn encode(bytes: u64, sums: &[u32]) -> Vec<u8> {
    let table: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let mut header = Vec::with_capacity(HEADER + table.len());
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&(BLOCK as u32).to_le_bytes());
    header.extend_from_slice(&bytes.to_le_bytes());
    header.extend_from_slice(&crc::crc32c(&table).to_le_bytes());
    let seal = crc::crc32c(&header);
    header.extend_from_slice(&seal.to_le_bytes());
    header.resize(HEADER, 0);
    header.extend(table);
    header
}

/// Errors of decoding a file of checksums.
#[derive(Debug, PartialEq, Eq)]
enum DecodeError {
    Other,
    Damaged,
}

fn decode(file: &[u8], bytes: u64) -> Result<Vec<u32>, DecodeError> {
    let header = file.get(..HEADER).ok_or(DecodeError::Damaged)?;
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if !header.starts_with(MAGIC) || crc::crc32c(&header[..SEAL]) != word(SEAL) {
        return Err(DecodeError::Damaged);
    }
    let long = u64::from(word(16)) | u64::from(word(20)) << 32;
    if word(8) != VERSION || word(12) != BLOCK as u32 || long != bytes {
        return Err(DecodeError::Other);
    }
    let table = &file[HEADER..];
    let is_complete = table.len() as u64 == bytes.div_ceil(BLOCK) * 4;
    if !is_complete || crc::crc32c(table) != word(24) {
        return Err(DecodeError::Damaged);
    }
    let sums = table.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    Ok(sums.collect())
}

/// Sums an image that is complete, and puts the checksums beside it. `goes_on` says whether to.
pub fn record_sums(image: &Path, goes_on: impl Fn() -> bool) -> Result<(), SumsError> {
    let mut sums = Vec::new();
    let bytes = walk(image, goes_on, |_, block| sums.push(crc::crc32c(block)))?;
    let (path, aside) = (sums_path(image), image.with_extension("sums-new"));
    let fail = |source| SumsError::Io { path: path.clone(), source };
    let mut file = File::create(&aside).map_err(fail)?;
    file.write_all(&encode(bytes, &sums)).and_then(|()| file.sync_all()).map_err(fail)?;
    fs::rename(&aside, &path).map_err(fail)
}

/// Compares an image with its checksums. Gives the ranges that differ.
pub fn check_image(image: &Path, goes_on: impl Fn() -> bool) -> Result<Vec<Range<u64>>, SumsError> {
    let bytes = length(image)?;
    let sums = read(image, bytes)?;
    let mut damaged = Vec::new();
    walk(image, goes_on, |at, block| {
        if sums.get((at / BLOCK) as usize) == Some(&crc::crc32c(block)) {
            return;
        }
        add_block(&mut damaged, at);
    })?;
    Ok(damaged)
}

/// Gets damaged ranges of an image from another copy of it. Gives what is left: blocks that are
/// damaged there too are not taken.
pub fn repair_image(
    image: &Path,
    from: &Path,
    damaged: &[Range<u64>],
) -> Result<Vec<Range<u64>>, SumsError> {
    let sums = read(image, length(image)?)?;
    let fail = |path: &Path| {
        let path = path.to_owned();
        move |source| SumsError::Io { path, source }
    };
    let source = File::open(from).map_err(fail(from))?;
    let target = File::options().write(true).open(image).map_err(fail(image))?;
    let length = target.metadata().map_err(fail(image))?.len();
    let mut left = Vec::new();
    for range in damaged {
        for at in range.clone().step_by(BLOCK as usize) {
            let mut block = vec![0; BLOCK as usize];
            fill(&source, at, &mut block).map_err(fail(from))?;
            if sums.get((at / BLOCK) as usize) != Some(&crc::crc32c(&block)) {
                add_block(&mut left, at);
                continue;
            }
            block.truncate(length.saturating_sub(at).min(BLOCK) as usize);
            target.write_all_at(&block, at).map_err(fail(image))?;
        }
    }
    target.sync_data().map_err(fail(image))?;
    Ok(left)
}

fn add_block(ranges: &mut Vec<Range<u64>>, at: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == at => last.end += BLOCK,
        _ => ranges.push(at..at + BLOCK),
    }
}

fn length(image: &Path) -> Result<u64, SumsError> {
    let found = fs::metadata(image);
    found.map(|it| it.len()).map_err(|source| SumsError::Io { path: image.to_owned(), source })
}

fn read(image: &Path, bytes: u64) -> Result<Vec<u32>, SumsError> {
    let path = sums_path(image);
    let file = fs::read(&path);
    let file = file.map_err(|source| SumsError::Io { path: path.clone(), source })?;
    decode(&file, bytes).map_err(|error| match error {
        DecodeError::Other => SumsError::Other { path },
        DecodeError::Damaged => SumsError::Damaged { path },
    })
}

/// Goes through the blocks of an image; the last one is filled up with zeroes. Gives its length.
fn walk(
    image: &Path,
    goes_on: impl Fn() -> bool,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<u64, SumsError> {
    let fail = |source| SumsError::Io { path: image.to_owned(), source };
    let file = File::open(image).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let mut piece = vec![0; PIECE as usize];
    for at in (0..bytes).step_by(PIECE as usize) {
        if !goes_on() {
            return Err(SumsError::Stopped);
        }
        let count = (bytes - at).min(PIECE).next_multiple_of(BLOCK) as usize;
        let piece = &mut piece[..count];
        fill(&file, at, piece).map_err(fail)?;
        (at..)
            .step_by(BLOCK as usize)
            .zip(piece.chunks_exact(BLOCK as usize))
            .for_each(|(at, block)| each(at, block));
    }
    Ok(bytes)
}

/// Reads as much as there is; the rest is zeroes.
fn fill(file: &File, at: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[done..].fill(0);
    Ok(())
}

/// Which file of checksums it is, and the length of its image: one that was replaced is read again.
type SumsFile = (u64, u64, i64, i64, u64);

type SharedSums = (SumsFile, Weak<[u32]>);

/// The checksums that some replica of this process uses.
static SHARED: Mutex<BTreeMap<PathBuf, SharedSums>> = Mutex::new(BTreeMap::new());

/// The checksums of an image, if there are any that can be used.
pub(super) fn load(image: &Path, bytes: u64) -> Option<ImageSums> {
    let path = sums_path(image);
    let found = fs::metadata(&path).ok().filter(|_| bytes <= MAX_IMAGE)?;
    let file = (found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), bytes);
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, sums)) = shared.get(&path)
        && *known == file
        && let Some(sums) = sums.upgrade()
    {
        return Some(ImageSums(sums));
    }
    // Those that are damaged are found by whoever checks the image.
    let sums: Arc<[u32]> = read(image, bytes).ok()?.into();
    shared.retain(|_, (_, known)| known.strong_count() > 0);
    shared.insert(path, (file, Arc::downgrade(&sums)));
    Some(ImageSums(sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(dir: &Path, name: &str, bytes: usize) -> PathBuf {
        let path = dir.join(name);
        let content: Vec<u8> = (0..bytes).map(|at| (at / 4096 % 250) as u8 + 1).collect();
        fs::write(&path, content).unwrap();
        path
    }

    fn damage(path: &Path, at: u64) {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"damage", at).unwrap();
    }

    #[test]
    fn damage_is_found_and_repaired_from_a_copy_that_is_whole_there() {
        let dir = tempfile::tempdir().unwrap();
        let one = image(dir.path(), "one", 3 * (1 << 20) + 512);
        let two = image(dir.path(), "two", 3 * (1 << 20) + 512);
        assert!(matches!(check_image(&one, || true), Err(SumsError::Io { .. })), "not summed yet");
        assert!(matches!(record_sums(&one, || false), Err(SumsError::Stopped)));
        record_sums(&one, || true).unwrap();
        assert!(check_image(&one, || true).unwrap().is_empty());
        let before = fs::read(&one).unwrap();
        // Neighbours, the last block, and one that the copy has damaged too.
        for at in [8192, 12288, 3 << 20, 1 << 20] {
            damage(&one, at);
        }
        damage(&two, 1 << 20);
        let range = |offset, length| offset..offset + length;
        let found = check_image(&one, || true).unwrap();
        assert_eq!(found, [range(8192, 8192), range(1 << 20, 4096), range(3 << 20, 4096)]);
        let left = repair_image(&one, &two, &found).unwrap();
        assert_eq!(left, [range(1 << 20, 4096)]);
        assert_eq!(check_image(&one, || true).unwrap(), left);
        fs::write(&two, &before).unwrap();
        assert!(repair_image(&one, &two, &left).unwrap().is_empty());
        assert!(fs::read(&one).unwrap() == before, "its length stays too");
    }

    #[test]
    fn checksums_that_are_damaged_or_of_another_image_are_not_used() {
        let sums: Vec<u32> = (0..300).collect();
        let whole = encode(300 * BLOCK - 100, &sums);
        assert_eq!(decode(&whole, 300 * BLOCK - 100), Ok(sums));
        assert_eq!(decode(&whole, 300 * BLOCK), Err(DecodeError::Other));
        for at in [0, 9, 17, 25, 29, HEADER, whole.len() - 1] {
            let mut bad = whole.clone();
            bad[at] ^= 4;
            assert_eq!(decode(&bad, 300 * BLOCK - 100), Err(DecodeError::Damaged), "{at}");
        }
        for len in [0, 10, HEADER, whole.len() - 4] {
            let error = Err(DecodeError::Damaged);
            assert_eq!(decode(&whole[..len], 300 * BLOCK - 100), error, "{len}");
        }
    }

    #[test]
    fn replicas_on_the_same_image_share_its_checksums() {
        let dir = tempfile::tempdir().unwrap();
        let path = image(dir.path(), "one", 64 << 10);
        assert_eq!(load(&path, 64 << 10), None);
        record_sums(&path, || true).unwrap();
        let first = load(&path, 64 << 10).unwrap();
        let second = load(&path, 64 << 10).unwrap();
        assert!(Arc::ptr_eq(&first.0, &second.0));
        assert_eq!(first.blocks().len(), 16);
        assert_eq!(load(&path, 60 << 10), None, "the image has another length");
        fs::write(sums_path(&path), "nonsense").unwrap();
        assert_eq!(load(&path, 64 << 10), None, "it was replaced");
    }
}
