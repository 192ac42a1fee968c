//! Directories that were written by the first version of the format, without indexes.

use super::damage::survey;
use super::world::reopen;
use crate::store::files::sim::SimFiles;
use crate::store::files::{FileId, Files};
use crate::store::{Depth, check, read_super};

/// The sample of the tests of damage, as the program wrote it before there were indexes.
const SAMPLES: [(&str, &[u8]); 2] = [
    ("clean", include_bytes!("fixtures/version-1-clean.bin")),
    ("killed", include_bytes!("fixtures/version-1-killed.bin")),
];

/// Reads files that were packed as runs of equal words: for each file the length of its name, its
/// name, its length, the number of runs, and for each run its first word, its length and the word.
fn unpack(mut packed: &[u8]) -> SimFiles {
    fn take<'a>(packed: &mut &'a [u8], len: usize) -> &'a [u8] {
        let (taken, rest) = packed.split_at(len);
        *packed = rest;
        taken
    }
    fn number(packed: &mut &[u8], len: usize) -> u64 {
        let bytes = take(packed, len).iter().rev();
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
    let mut files = SimFiles::new();
    while !packed.is_empty() {
        let len = number(&mut packed, 1) as usize;
        let name = std::str::from_utf8(take(&mut packed, len)).unwrap();
        let file = FileId::parse(name).unwrap();
        files.create(file).unwrap();
        let len = number(&mut packed, 8);
        for _ in 0..number(&mut packed, 4) {
            let (first, count) = (number(&mut packed, 4), number(&mut packed, 4));
            let word = take(&mut packed, 8).repeat(count as usize);
            files.write(file, first * 8, &word).unwrap();
        }
        files.allocate(file, 0, len).unwrap();
        files.sync(file).unwrap();
    }
    files.sync_directory().unwrap();
    files
}

#[test]
fn a_replica_of_the_first_version_is_brought_up_to_date() {
    for (name, packed) in SAMPLES {
        let mut files = unpack(packed);
        assert!(!read_super(&mut files).unwrap().body.indexed);
        let report = check(&mut files, Depth::Data, &mut |_| {});
        assert!(report.is_healthy(), "{name}: {report}");
        assert_eq!(survey(files.clone(), false).unwrap(), 0, "{name}");
        let old = files.clone();
        drop(reopen(&mut files).unwrap());
        assert!(read_super(&mut files).unwrap().body.indexed);
        let report = check(&mut files, Depth::Data, &mut |_| {});
        assert!(report.is_healthy(), "{name}: {report}");
        assert_eq!(survey(files.clone(), false).unwrap(), 0, "{name}");
        // The power goes before the super block says so: it is done again.
        files.replace(FileId::Super, &old, FileId::Super);
        assert_eq!(survey(files, false).unwrap(), 0, "{name}");
    }
}

#[test]
fn damage_in_a_replica_of_the_first_version_is_not_taken_over() {
    let (_, packed) = SAMPLES[0];
    let mut files = unpack(packed);
    let map = FileId::parse("L1.map").unwrap();
    files.flip(map, 4096 + 300, 1);
    let bad = survey(files.clone(), false).unwrap();
    assert!(bad > 0);
    drop(reopen(&mut files).unwrap());
    assert_eq!(survey(files, false).unwrap(), bad);
}
