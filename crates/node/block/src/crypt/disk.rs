//! A whole disk in a file, made the content of an encrypted volume or taken out of one.
//!
//! ```text
//!  plain      │ blocks …                          ─┐ encrypt
//!  encrypted  │ header, 16 MiB │ the same blocks … ◄┘   each in its place, holes stay holes
//! ```
//!
//! The result can be opened as a volume, by an engine or by `cryptsetup`; a volume may be based on
//! it. All functions here block.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::luks::{self, Cost, HeaderDisk, LuksError};
use super::{BLOCK, HEADER, Passphrase, is_hole};

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// Why a disk was not encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error(transparent)]
    Header(#[from] LuksError),
    #[error("cannot read the data to convert")]
    Read(#[source] io::Error),
    #[error("cannot write the result")]
    Write(#[source] io::Error),
    #[error("found {found} bytes, expected {expected}")]
    Cut { found: u64, expected: u64 },
    #[error("it was stopped")]
    Stopped,
}

/// Called with the progress, from 0 to 1; answers whether to go on.
pub type ProgressFn<'a> = &'a mut dyn FnMut(f32) -> bool;

/// Bytes of the file that a disk becomes when it is encrypted.
pub fn encrypted_len(disk: u64) -> u64 {
    HEADER + disk.next_multiple_of(BLOCK as u64)
}

/// Encrypts the disk `from` into the empty file `to`, under a key of its own that `passphrase`
/// opens. Blocks of zeroes become holes.
pub fn encrypt(
    from: &File,
    to: &File,
    passphrase: &Passphrase,
    cost: Cost,
    step: ProgressFn<'_>,
) -> Result<(), DiskError> {
    let length = from.metadata().map_err(DiskError::Read)?.len();
    to.set_len(encrypted_len(length)).map_err(DiskError::Write)?;
    let cipher = luks::format(&mut InFile(to), passphrase, cost)?;
    let start = cipher.start();
    walk(from, 0, length, step, &mut |at, run| {
        to.write_all_at(&cipher.encrypt(start + at, run), start + at)
    })
}

/// Decrypts what [`encrypt`] or an engine made, a disk of `length` bytes, into the empty file `to`.
pub fn decrypt(
    from: &File,
    to: &File,
    length: u64,
    passphrase: &Passphrase,
    step: ProgressFn<'_>,
) -> Result<(), DiskError> {
    let cipher = luks::unlock(&mut InFile(from), passphrase)?;
    let start = cipher.start();
    let expected = start + length.next_multiple_of(BLOCK as u64);
    let found = from.metadata().map_err(DiskError::Read)?.len();
    if found < expected {
        return Err(DiskError::Cut { found, expected });
    }
    walk(from, start, expected, step, &mut |at, run| {
        to.write_all_at(&cipher.decrypt(at, Bytes::copy_from_slice(run)), at - start)
    })?;
    to.set_len(length).map_err(DiskError::Write)
}

/// Hands on all blocks between two places that are no holes, neighbours together. The last is
/// filled up with zeroes.
fn walk(
    from: &File,
    start: u64,
    end: u64,
    step: ProgressFn<'_>,
    hand_on: &mut dyn FnMut(u64, &[u8]) -> io::Result<()>,
) -> Result<(), DiskError> {
    let mut buffer = vec![0; PIECE as usize];
    let mut at = start;
    while let Some(data) = data_after(from, at, end).map_err(DiskError::Read)? {
        at = data;
        let length = (end - at).min(PIECE);
        let padded = length.next_multiple_of(BLOCK as u64) as usize;
        let (read, rest) = buffer[..padded].split_at_mut(length as usize);
        from.read_exact_at(read, at).map_err(DiskError::Read)?;
        rest.fill(0);
        for (offset, run) in runs(&buffer[..padded]) {
            hand_on(at + offset as u64, run).map_err(DiskError::Write)?;
        }
        at += length;
        #[expect(clippy::cast_precision_loss, reason = "it is shown in percent")]
        let part = (at - start) as f32 / (end - start) as f32;
        if !step(part) {
            return Err(DiskError::Stopped);
        }
        if at == end {
            break;
        }
    }
    Ok(())
}

/// The first block from `at` that the file system has something for.
fn data_after(file: &File, at: u64, end: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(data) if data < end => Ok(Some((data / BLOCK as u64 * BLOCK as u64).max(at))),
        Ok(_) | Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Neighbouring blocks that are not zeroes, with where they are.
fn runs(data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let is_empty = |at: usize| is_hole(&data[at..at + BLOCK]);
        while at < data.len() && is_empty(at) {
            at += BLOCK;
        }
        let first = at;
        while at < data.len() && !is_empty(at) {
            at += BLOCK;
        }
        (first < at).then(|| (first, &data[first..at]))
    })
}

/// A header at the beginning of a file.
struct InFile<'a>(&'a File);

impl HeaderDisk for InFile<'_> {
    fn read(&mut self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, offset).map(|()| bytes)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const CHEAP: Cost = Cost { memory: 64, time: 1 };

    /// Something, nothing, something again, and an end in the middle of a block.
    fn disk() -> (File, Vec<u8>) {
        let mut content = vec![0; (9 << 20) + 512];
        content[..5000].fill(b'a');
        content[3 << 20..][..8192].fill(b'b');
        content[9 << 20..].fill(b'c');
        let file = tempfile::tempfile().unwrap();
        file.set_len(content.len() as u64).unwrap();
        for at in [0, 3 << 20, 9 << 20] {
            let end = content.len().min(at + 8192);
            file.write_all_at(&content[at..end], at as u64).unwrap();
        }
        (file, content)
    }

    fn all(file: &File) -> Vec<u8> {
        let mut content = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    #[test]
    fn a_disk_comes_back_as_it_was_and_is_hidden_meanwhile() {
        let (plain, content) = disk();
        let (hidden, back) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let secret = Passphrase::new("geheim");
        let mut reported = Vec::new();
        let mut note = |part: f32| {
            reported.push(part);
            true
        };
        encrypt(&plain, &hidden, &secret, CHEAP, &mut note).unwrap();
        assert!(reported.is_sorted() && reported.last() == Some(&1.0), "{reported:?}");
        let metadata = hidden.metadata().unwrap();
        assert_eq!(metadata.len(), encrypted_len(content.len() as u64));
        assert!(metadata.blocks() * 512 < 2 << 20, "holes stay holes");
        let stored = all(&hidden);
        for letter in [b'a', b'b', b'c'] {
            assert!(!stored.windows(32).any(|part| part.iter().all(|byte| *byte == letter)));
        }
        let length = content.len() as u64;
        decrypt(&hidden, &back, length, &secret, &mut |_| true).unwrap();
        assert!(all(&back) == content);
    }

    #[test]
    fn what_cannot_be_done_says_why() {
        let (plain, content) = disk();
        let (hidden, back) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let secret = Passphrase::new("geheim");
        let stopped = encrypt(&plain, &hidden, &secret, CHEAP, &mut |_| false);
        assert!(matches!(stopped, Err(DiskError::Stopped)), "{stopped:?}");
        let length = content.len() as u64;
        let wrong = decrypt(&hidden, &back, length, &Passphrase::new("x"), &mut |_| true);
        assert!(matches!(wrong, Err(DiskError::Header(LuksError::WrongPassphrase))), "{wrong:?}");
        let none = decrypt(&plain, &back, length, &secret, &mut |_| true);
        assert!(matches!(none, Err(DiskError::Header(LuksError::NotEncrypted))), "{none:?}");
        let cut = decrypt(&hidden, &back, 2 * length, &secret, &mut |_| true);
        assert!(matches!(cut, Err(DiskError::Cut { .. })), "{cut:?}");
        let twice = encrypt(&plain, &hidden, &secret, CHEAP, &mut |_| true);
        assert!(matches!(twice, Err(DiskError::Header(LuksError::HoldsData))), "{twice:?}");
    }
}
