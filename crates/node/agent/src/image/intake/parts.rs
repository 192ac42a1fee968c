//! An image that has come, read again: part by part from where each of them is.
//!
//! Everything here blocks.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use qemu::image::{Layout, PartPosition};

use super::{HEAD, is_zero};

/// The parts of an image that has come, read again.
pub(super) struct Parts {
    pub(super) layout: Layout,
    pub(super) at: u64,
    buffer: Vec<u8>,
}

impl Parts {
    pub(super) fn of(image: &File, is_whole: bool) -> io::Result<Self> {
        let mut start = vec![0; HEAD];
        // Bytes left out at the start of a raw disk read as zeros, and so as a raw disk.
        let length = read(image, &mut start, 0)?;
        start.truncate(length);
        let layout = if is_whole { Layout::Whole } else { Layout::of(&start) };
        let buffer = vec![0; usize::try_from(layout.step()).expect("parts are small")];
        Ok(Self { layout, at: 0, buffer })
    }

    /// The next part, before `end`; its content is right only with the disk.
    pub(super) fn next(
        &mut self,
        image: &File,
        disk: Option<&File>,
        end: u64,
    ) -> io::Result<(PartPosition, &[u8])> {
        let step = self.layout.step();
        let length = usize::try_from(step.min(end - self.at)).expect("parts are small");
        let part = &mut self.buffer[..length];
        image.read_exact_at(part, self.at)?;
        let place = match (length as u64) < step {
            true => PartPosition::Image,
            false => self.layout.place(self.at / step, part),
        };
        if let (PartPosition::Disk { at }, Some(disk)) = (place, disk) {
            read(disk, part, at)?;
        }
        self.at += length as u64;
        Ok((place, part))
    }
}

/// Reads to the end of the buffer or of the file, behind which there are zeros.
fn read(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[filled..].fill(0);
    Ok(filled)
}

/// All of an image as it came, up to `end`; `each` says whether to go on.
pub(in crate::image) fn replay(
    image: &Path,
    disk: &Path,
    end: u64,
    is_whole: bool,
    mut each: impl FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let image = File::open(image)?;
    let mut parts = Parts::of(&image, is_whole)?;
    let disk = if let Layout::Whole = parts.layout { None } else { Some(File::open(disk)?) };
    while parts.at < end {
        if !each(parts.next(&image, disk.as_ref(), end)?.1) {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
    Ok(())
}

/// Puts an image together again.
pub(in crate::image) fn restore(image: &Path, disk: &Path, size: u64) -> io::Result<()> {
    let image = OpenOptions::new().read(true).write(true).open(image)?;
    let disk = File::open(disk)?;
    let mut parts = Parts::of(&image, false)?;
    while parts.at < size {
        let at = parts.at;
        let (place, part) = parts.next(&image, Some(&disk), size)?;
        if let PartPosition::Disk { .. } = place
            && !is_zero(part)
        {
            image.write_all_at(part, at)?;
        }
    }
    Ok(())
}
