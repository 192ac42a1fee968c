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
    // Two tables of data; the cluster behind the second is swapped with it.
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
fn data_before_a_broken_connection_is_kept() {
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
