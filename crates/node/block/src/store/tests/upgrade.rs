//! Directories that were written by the first version of the format, without indexes.

use super::basic::OneBase;
use super::damage::survey;
use super::world::{LIMITS, options, reopen};
use crate::ids::{ReplicaId, SnapshotId, VolumeId};
use crate::store::files::sim::SimFiles;
use crate::store::files::{FileId, Files};
use crate::store::layer::Base;
use crate::store::map::PAIR;
use crate::store::sabotage::{Check, leave_out};
use crate::store::{
    BaseError, CreateOptions, Depth, OpenError, OpenOptions, check, create, open, read_super,
};

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

/// Ways to make a map say that the layer has nothing, with their names.
fn emptied(packed: &[u8]) -> Vec<(String, SimFiles)> {
    let mut damaged = Vec::new();
    for name in ["L0.map", "L1.map"] {
        let map = FileId::parse(name).unwrap();
        let whole = unpack(packed);
        let len = whole.clone().len(map).unwrap().unwrap();
        let mut zeroed = whole.clone();
        zeroed.write(map, 0, &vec![0; len as usize]).unwrap();
        damaged.push((format!("{name} zeroed"), zeroed));
        for region in 0..2 {
            let mut page = whole.clone();
            page.write(map, region * PAIR, &[0; PAIR as usize]).unwrap();
            damaged.push((format!("region {region} of {name} zeroed"), page));
            let mut short = whole.clone();
            short.truncate(map, region * PAIR).unwrap();
            damaged.push((format!("{name} truncated to {region} regions"), short));
        }
    }
    damaged
}

#[test]
fn a_map_of_the_first_version_that_lost_pages_does_not_become_zeroes() {
    for (name, packed) in SAMPLES {
        for (what, mut files) in emptied(packed) {
            let healthy = check(&mut files.clone(), Depth::Data, &mut |_| {}).is_healthy();
            // The survey compares the data. The log of the killed one has some pages.
            let result = survey(files.clone(), false);
            let refused = matches!(result, Err(OpenError::Index { .. }));
            assert!(refused || result == Ok(0), "{name}, {what}: {result:?}");
            assert!(refused != healthy, "{name}, {what}: {result:?}, healthy: {healthy}");
            if refused {
                assert!(reopen(&mut files).is_err(), "{name}, {what}");
                assert!(!read_super(&mut files).unwrap().body.indexed, "{name}, {what}");
            }
        }
    }
}

#[test]
fn counts_that_are_not_compared_are_noticed() {
    leave_out(Some(Check::Counts));
    let served = |(_, files): &(String, SimFiles)| {
        std::panic::catch_unwind(|| survey(files.clone(), false)).is_err()
    };
    let found = emptied(SAMPLES[0].1).iter().filter(|it| served(it)).count();
    leave_out(None);
    assert!(found > 2, "zeroes were served without a sign in {found} cases");
}

#[test]
fn blank_regions_are_lost_where_a_damaged_page_may_hide_their_blocks() {
    let map = FileId::parse("L1.map").unwrap();
    let mut files = unpack(SAMPLES[0].1);
    for slot in [0, PAIR / 2] {
        files.flip(map, slot + 300, 1);
    }
    files.write(map, PAIR, &[0; PAIR as usize]).unwrap();
    let bad = survey(files, false).unwrap();
    assert!(bad > 0, "blocks of the region of zeroes are not served");
}

#[test]
fn a_base_of_the_first_version_that_lost_pages_is_refused() {
    let open_over = |source: SimFiles| {
        let mut files = SimFiles::new();
        let base = Base::Replica {
            path: "source".into(),
            volume: VolumeId::from_u128(1),
            replica: ReplicaId::from_u128(2),
            snapshot: SnapshotId::from_u128(1),
        };
        let (volume, replica) = (VolumeId::from_u128(11), ReplicaId::from_u128(12));
        create(&mut files, &CreateOptions { volume, replica, base: Some(base), ..options() })
            .unwrap();
        let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
        open(&mut files, &mut OneBase(source), options).map(drop)
    };
    for (name, packed) in SAMPLES {
        assert_eq!(open_over(unpack(packed)), Ok(()), "{name}");
        for (what, files) in emptied(packed).into_iter().filter(|(what, _)| what.contains("L0")) {
            // The snapshot has one region.
            let expected = what.contains("region 1") || what.contains("to 1 regions");
            let result = open_over(files);
            let refused =
                matches!(&result, Err(OpenError::Base { source: BaseError::Index { .. } }));
            assert_eq!(refused, !expected, "{name}, {what}: {result:?}");
        }
    }
}
