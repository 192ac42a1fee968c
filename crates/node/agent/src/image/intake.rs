//! An image on its way in, taken apart as it comes.
//!
//! What belongs to the disk goes to its place there at once, the rest stays at its place in
//! `download`, which is as long as what has come: whoever reads that again learns again what
//! went to the disk. So data is written once, an import goes on where it was, and all of the
//! image can be put together again: to be summed, or to be converted by who knows it better.
//!
//! Everything here blocks.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use qemu::image::{Layout, PartPosition};

/// Read and written at once, in whole parts.
const CHUNK: usize = 1 << 20;
/// With so much it is known what an image is.
const HEAD: usize = 64 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What has become of an image.
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
        // This long it is; whatever of it is elsewhere.
        if whole > 0 { self.image.set_len(self.at) } else { Ok(()) }
    }

    fn carry(&mut self, whole: usize) {
        self.buffer.copy_within(whole..self.held, 0);
        self.held -= whole;
    }

    /// What is less than a part stays in the image, and goes on there if more comes.
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

/// The parts of an image that has come, read again.
struct Parts {
    layout: Layout,
    at: u64,
    buffer: Vec<u8>,
}

impl Parts {
    fn of(image: &File, is_whole: bool) -> io::Result<Self> {
        let mut start = vec![0; HEAD];
        // What was left out at the start of a raw disk reads as zeros, and so as a raw disk.
        let length = read(image, &mut start, 0)?;
        start.truncate(length);
        let layout = if is_whole { Layout::Whole } else { Layout::of(&start) };
        let buffer = vec![0; usize::try_from(layout.step()).expect("parts are small")];
        Ok(Self { layout, at: 0, buffer })
    }

    /// The next part, before `end`; its content is right only with the disk.
    fn next(
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
pub(super) fn replay(
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
pub(super) fn restore(image: &Path, disk: &Path, size: u64) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    struct Place {
        _dir: tempfile::TempDir,
        image: PathBuf,
        disk: PathBuf,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let (image, disk) = (dir.path().join("image"), dir.path().join("disk"));
        Place { _dir: dir, image, disk }
    }

    impl Place {
        /// Takes an image in pieces of this length, each by a process of its own.
        fn take(&self, content: &[u8], piece: usize) -> (u64, ImageForm) {
            let mut last = (0, ImageForm::Whole);
            for (index, piece) in content.chunks(piece.max(1)).enumerate() {
                assert_eq!(index > 0, last.0 > 0);
                let mut intake = ImageIntake::open(&self.image, &self.disk, last.0, false).unwrap();
                last = intake.take(&mut &piece[..], |_, _| {}).unwrap();
            }
            last
        }

        fn replayed(&self, size: u64) -> Vec<u8> {
            let mut all = Vec::new();
            let each = |part: &[u8]| {
                all.extend_from_slice(part);
                true
            };
            replay(&self.image, &self.disk, size, false, each).unwrap();
            all
        }
    }

    /// Data, a hole, data, and no whole number of clusters.
    fn content() -> Vec<u8> {
        let mut state = 1_u32;
        let mut content = vec![0; (3 << 20) + 1536];
        let hole = 1 << 20..2 << 20;
        for (at, byte) in content.iter_mut().enumerate() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if !hole.contains(&at) {
                *byte = state.to_be_bytes()[0];
            }
        }
        content
    }

    fn converted(raw: &[u8], options: &[&str]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, raw).unwrap();
        let mut tool = Command::new("qemu-img");
        let tool = tool.args(["convert", "-f", "raw"]).args(options).arg(&from).arg(&to);
        assert!(tool.status().expect("qemu-img is needed").success());
        fs::read(to).unwrap()
    }

    #[test]
    fn an_image_becomes_its_disk_and_can_be_had_again_as_it_came() {
        let raw = content();
        let qcow2 = |options: &[&str]| converted(&raw, &[&["-O", "qcow2"], options].concat());
        for (name, image, form) in [
            ("raw", raw.clone(), ImageForm::Disk),
            ("qcow2", qcow2(&[]), ImageForm::Disk),
            ("old", qcow2(&["-o", "compat=0.10"]), ImageForm::Disk),
            ("large clusters", qcow2(&["-o", "cluster_size=2M"]), ImageForm::Disk),
            ("compressed", qcow2(&["-c"]), ImageForm::Parts),
            ("another format", converted(&raw, &["-O", "vdi"]), ImageForm::Whole),
        ] {
            for piece in [image.len(), 1_000_003, 70_000] {
                let place = place();
                let taken = place.take(&image, piece);
                assert_eq!(taken, (image.len() as u64, form), "{name} in {piece}");
                assert!(place.replayed(taken.0) == image, "{name} in {piece}");
                if form == ImageForm::Disk {
                    assert!(fs::read(&place.disk).unwrap() == raw, "{name} in {piece}");
                }
                if form == ImageForm::Parts {
                    restore(&place.image, &place.disk, taken.0).unwrap();
                    assert!(fs::read(&place.image).unwrap() == image, "{name} in {piece}");
                }
            }
        }
    }

    #[test]
    fn an_image_whose_data_came_before_its_tables_is_put_together_again() {
        // Two tables of data; what is behind the second changes places with it.
        let raw = content();
        let mut image = converted(&raw, &["-O", "qcow2", "-o", "cluster_size=4k"]);
        let cluster = 4096;
        let number = |at: usize| u64::from_be_bytes(image[at..at + 8].try_into().unwrap());
        let l1 = usize::try_from(number(40)).unwrap();
        let second = usize::try_from(number(l1 + 8) & 0x00ff_ffff_ffff_fe00).unwrap();
        let data = second + cluster;
        let entry = (second..data).step_by(8).find(|at| number(*at) & !(1 << 63) == data as u64);
        let entry = entry.expect("its data follows it");
        image[entry..entry + 8].copy_from_slice(&(1 << 63 | second as u64).to_be_bytes());
        image[l1 + 8..l1 + 16].copy_from_slice(&(1 << 63 | data as u64).to_be_bytes());
        let (table, rest) = image[second..].split_at_mut(cluster);
        table.swap_with_slice(&mut rest[..cluster]);
        let place = place();
        let (size, form) = place.take(&image, 1_000_003);
        assert_eq!(form, ImageForm::Parts);
        assert!(fs::read(&place.image).unwrap() != image, "some of it was moved");
        restore(&place.image, &place.disk, size).unwrap();
        assert!(fs::read(&place.image).unwrap() == image);
    }

    #[test]
    fn what_came_before_a_bad_end_is_not_lost() {
        struct Broken<'a>(&'a [u8]);
        impl Read for Broken<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                match self.0.read(buffer)? {
                    0 => Err(io::ErrorKind::ConnectionAborted.into()),
                    count => Ok(count),
                }
            }
        }
        let (place, raw) = (place(), content());
        let mut intake = ImageIntake::open(&place.image, &place.disk, 0, false).unwrap();
        let failed = intake.take(&mut Broken(&raw[..100_000]), |_, _| {}).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::ConnectionAborted);
        assert_eq!(fs::metadata(&place.image).unwrap().len(), 100_000);
        let mut intake = ImageIntake::open(&place.image, &place.disk, 100_000, false).unwrap();
        intake.take(&mut &raw[100_000..], |_, _| {}).unwrap();
        assert!(fs::read(&place.disk).unwrap() == raw);
    }
}
