//! Receives an image and writes the data of its disk while it is downloaded.
//!
//! Data of the disk is written to its place there at once, the rest stays at its place in
//! `download`, which is as long as the received data: reading that file again shows which parts
//! were moved to the disk. So data is written once, an import resumes where it was, and the whole
//! image can be put together again: to be summed, or to be converted by a tool that knows the
//! format better.
//!
//! Everything here blocks.

mod parts;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use qemu::image::{Layout, PartPosition};

use self::parts::Parts;
pub(super) use self::parts::{replay, restore};

/// Read and written at once, in whole parts.
const CHUNK: usize = 1 << 20;
/// With so much it is known what an image is.
const HEAD: usize = 64 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The form of a received image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageForm {
    /// The disk is complete.
    Disk,
    /// Some of it is on the disk; it has to be put together again.
    Parts,
    /// Nothing was moved.
    Whole,
}

#[derive(Debug)]
pub(super) struct ImageIntake {
    image: File,
    disk: File,
    /// Known with the first bytes.
    layout: Option<Layout>,
    /// The part that is not complete yet, and room for more.
    buffer: Vec<u8>,
    held: usize,
    /// Bytes that are where they belong: whole parts.
    at: u64,
}

impl ImageIntake {
    /// Goes on after `at` bytes; with none it begins anew.
    pub(super) fn open(image: &Path, disk: &Path, at: u64, is_whole: bool) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(at == 0).mode(0o600);
        let (image, disk) = (options.open(image)?, options.open(disk)?);
        let buffer = vec![0; CHUNK];
        let mut intake = Self { image, disk, layout: None, buffer, held: 0, at: 0 };
        if at > 0 {
            intake.image.set_len(at)?;
            intake.resume(at, is_whole)?;
        }
        Ok(intake)
    }

    fn resume(&mut self, at: u64, is_whole: bool) -> io::Result<()> {
        if at >= HEAD as u64 {
            let mut parts = Parts::of(&self.image, is_whole)?;
            let step = parts.layout.step();
            while parts.at + step <= at {
                parts.next(&self.image, None, at)?;
            }
            self.at = parts.at;
            if let Layout::Raw = parts.layout {
                self.disk.set_len(self.at)?;
            }
            self.fit(step);
            self.layout = Some(parts.layout);
        }
        self.held = usize::try_from(at - self.at).expect("less than a part");
        self.image.read_exact_at(&mut self.buffer[..self.held], self.at)
    }

    fn fit(&mut self, step: u64) {
        let step = usize::try_from(step).expect("parts are small");
        self.buffer.resize(self.buffer.len().max(step), 0);
    }

    /// For others who sync them.
    pub(super) fn files(&self) -> io::Result<(File, File)> {
        Ok((self.image.try_clone()?, self.disk.try_clone()?))
    }

    /// Takes what comes until its end, also until a bad one; answers how much there is and what
    /// has become of it. `passed` gets what came, and how much is in its place.
    pub(super) fn take(
        &mut self,
        from: &mut impl Read,
        mut passed: impl FnMut(&[u8], u64),
    ) -> io::Result<(u64, ImageForm)> {
        loop {
            let before = self.held;
            let filled = fill(from, &mut self.buffer, &mut self.held);
            let came = before..self.held;
            let layout = self.layout.get_or_insert_with(|| Layout::of(&self.buffer[..self.held]));
            let step = layout.step();
            let (is_end, whole) = (came.end < self.buffer.len(), came.end as u64 / step * step);
            self.place(usize::try_from(whole).expect("within the buffer"))?;
            passed(&self.buffer[came], self.at);
            self.carry(usize::try_from(whole).expect("within the buffer"));
            if filled.is_err() || is_end {
                let size = self.end()?;
                filled?;
                let layout = self.layout.as_ref();
                let form = match layout {
                    Some(layout) if layout.is_complete() => ImageForm::Disk,
                    Some(Layout::Qcow2(_)) => ImageForm::Parts,
                    _ => ImageForm::Whole,
                };
                return Ok((size, form));
            }
            self.fit(step);
        }
    }

    /// Writes whole parts where they belong, what is in a row at once.
    fn place(&mut self, whole: usize) -> io::Result<()> {
        let Some(layout) = &mut self.layout else { return Ok(()) };
        let step = usize::try_from(layout.step()).expect("parts are small");
        let mut row: Option<(PartPosition, std::ops::Range<usize>)> = None;
        for start in (0..whole).step_by(step) {
            let part = &self.buffer[start..start + step];
            let place = layout.place((self.at + start as u64) / step as u64, part);
            if is_zero(part) {
                continue;
            }
            match &mut row {
                Some((first, range)) if range.end == start && follows(*first, range, place) => {
                    range.end += step;
                }
                _ => {
                    if let Some((place, range)) = row.replace((place, start..start + step)) {
                        write(&self.image, &self.disk, place, self.at, &self.buffer, range)?;
                    }
                }
            }
        }
        if let Some((place, range)) = row {
            write(&self.image, &self.disk, place, self.at, &self.buffer, range)?;
        }
        self.at += whole as u64;
        // The file has the full length, even if parts are on the disk.
        if whole > 0 { self.image.set_len(self.at) } else { Ok(()) }
    }

    fn carry(&mut self, whole: usize) {
        self.buffer.copy_within(whole..self.held, 0);
        self.held -= whole;
    }

    /// An incomplete part stays in the image, and is continued there if more data arrives.
    fn end(&mut self) -> io::Result<u64> {
        let tail = &self.buffer[..self.held];
        self.image.write_all_at(tail, self.at)?;
        let size = self.at + tail.len() as u64;
        match &self.layout {
            Some(Layout::Raw) => self.disk.write_all_at(tail, self.at)?,
            Some(Layout::Qcow2(_)) => {}
            _ => return Ok(size),
        }
        let length = self.layout.as_ref().map_or(size, |layout| layout.disk(size));
        self.disk.set_len(length)?;
        Ok(size)
    }
}

/// Whether a part goes directly behind those before it.
fn follows(first: PartPosition, row: &std::ops::Range<usize>, next: PartPosition) -> bool {
    match (first, next) {
        (PartPosition::Image, PartPosition::Image) => true,
        (PartPosition::Disk { at: first }, PartPosition::Disk { at }) => {
            first + row.len() as u64 == at
        }
        _ => false,
    }
}

fn write(
    image: &File,
    disk: &File,
    place: PartPosition,
    at: u64,
    buffer: &[u8],
    row: std::ops::Range<usize>,
) -> io::Result<()> {
    let own = at + row.start as u64;
    let bytes = &buffer[row];
    match place {
        PartPosition::Image => image.write_all_at(bytes, own),
        PartPosition::Disk { at } => disk.write_all_at(bytes, at),
        PartPosition::Both { at } => {
            image.write_all_at(bytes, own)?;
            disk.write_all_at(bytes, at)
        }
    }
}

fn is_zero(part: &[u8]) -> bool {
    part.chunks(ZEROS.len()).all(|piece| piece == &ZEROS[..piece.len()])
}

/// Reads until the buffer is full or the source is at its end, for better or worse.
fn fill(from: &mut impl Read, buffer: &mut [u8], held: &mut usize) -> io::Result<()> {
    while *held < buffer.len() {
        match from.read(&mut buffer[*held..]) {
            Ok(0) => break,
            Ok(count) => *held += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
