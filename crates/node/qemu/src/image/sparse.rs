//! Writing disks with holes where there are only zeros.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// Holes are made in steps of this.
const BLOCK: usize = 64 << 10;
/// Read at once.
const CHUNK: usize = 16 * BLOCK;

/// Copies `from` into an empty file, leaving out blocks of zeros; returns the length.
///
/// More than `most` bytes are an error, however small they were when they were compressed.
pub fn copy_sparse(
    from: &mut dyn Read,
    to: &File,
    most: u64,
    mut progress: impl FnMut(u64),
) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let filled = fill(from, &mut chunk)?;
        if filled == 0 {
            break;
        }
        for (index, block) in chunk[..filled].chunks(BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                to.write_all_at(block, at + (index * BLOCK) as u64)?;
            }
        }
        at += filled as u64;
        if at > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than allowed"));
        }
        progress(at);
    }
    to.set_len(at)?;
    to.sync_all()?;
    Ok(at)
}

/// Reads until the buffer is full or the source is at its end.
fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
