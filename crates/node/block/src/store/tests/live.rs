//! Metadata that is damaged on disk while the replica is used.

use std::collections::BTreeSet;

use super::basic::{at, driven, fresh, head, id, snapshot, write};
use super::world::{reopen, reopen_in};
use crate::ids::BootId;
use crate::store::drive::Driven;
use crate::store::files::sim::{Keep, SimFiles};
use crate::store::files::{FileId, FileNo, Files, Place, perform};
use crate::store::geometry::{BLOCK, REGION_BLOCKS, Region};
use crate::store::sabotage::{Check, leave_out};
use crate::store::*;

const MAP: FileId = FileId::Map(Place::Own, FileNo(1));
const MAP_OF_SNAPSHOT: FileId = FileId::Map(Place::Own, FileNo(0));
const INDEX: FileId = FileId::Index(Place::Own, FileNo(1));
const INDEX_OF_SNAPSHOT: FileId = FileId::Index(Place::Own, FileNo(0));
const FILES: [FileId; 8] = [
    FileId::Super,
    FileId::Log,
    FileId::Recent,
    FileId::Sums,
    MAP,
    MAP_OF_SNAPSHOT,
    INDEX,
    INDEX_OF_SNAPSHOT,
];
/// A block of another region.
const FAR: u64 = 3 * REGION_BLOCKS as u64;

/// A snapshot with blocks 0 to 7, and above it a head with blocks 4, 5 and some far away.
fn sample() -> SimFiles {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(write(0, 1, 8)).unwrap();
    replica.request(snapshot(1)).unwrap();
    replica.request(write(4, 2, 2)).unwrap();
    replica.request(write(FAR, 3, 2)).unwrap();
    replica.request(Request::CloseClean).unwrap();
    drop(replica);
    files
}

/// Every page is in memory, and some blocks are newer than what is on disk.
fn used(files: &mut SimFiles) -> Driven<'_> {
    let mut replica = driven(files);
    replica.request(write(8, 4, 1)).unwrap();
    replica.request(Request::Flush).unwrap();
    replica.request(write(9, 5, 1)).unwrap();
    survey(&mut replica);
    replica
}

/// Everything that a replica after [`used`] must show.
fn survey(replica: &mut Driven<'_>) {
    let expected = [1, 1, 1, 1, 2, 2, 1, 1, 4, 5, 0];
    for (block, fill) in (0..).zip(expected) {
        assert_eq!(head(replica, block), fill, "block {block}");
    }
    assert_eq!((head(replica, FAR), head(replica, FAR + 2)), (3, 0));
    assert_eq!(at(replica, View::Snapshot(id(1)), 4), 1);
}

fn verification(peers: Peers) -> Request {
    Request::ScrubMetadata { regions: 0..u32::MAX, peers }
}

fn verify(replica: &mut Driven<'_>) -> MetadataReport {
    let reply = replica.request(verification(Peers::Nobody)).unwrap();
    let Reply::Metadata(report) = reply else { panic!("not verified") };
    report
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip(u64),
    Zero,
    Cut,
    Swap,
    Of(FileId),
}

fn damage(files: &mut dyn Files, file: FileId, damage: Damage) {
    let len = files.len(file).unwrap().unwrap();
    let mut bytes = files.read(file, 0, len).unwrap().to_vec();
    match damage {
        Damage::Flip(offset) => bytes[(offset % len) as usize] ^= 4,
        Damage::Zero => bytes.fill(0),
        Damage::Cut => return files.truncate(file, 0).unwrap(),
        Damage::Swap => bytes.rotate_left((len / 2) as usize),
        Damage::Of(other) => bytes = files.read(other, 0, len).unwrap().to_vec(),
    }
    files.write(file, 0, &bytes).unwrap();
}

/// Nothing is worth more than a note.
fn check_whole(files: &mut SimFiles, context: &str) {
    let report = check_under(files, Depth::Data, Some(BootId::from_u128(1)), &mut |_| {});
    let notes = report.findings.iter().all(|it| it.severity() == Severity::Note);
    assert!(notes, "{context}: {report}");
    survey(&mut driven(files));
}

#[test]
fn metadata_that_is_intact_is_left_alone() {
    let mut files = sample();
    let mut replica = used(&mut files);
    assert_eq!(verify(&mut replica), MetadataReport::default());
    replica.request(Request::Flush).unwrap();
    assert_eq!(verify(&mut replica), MetadataReport::default());
}

#[test]
fn every_damage_of_metadata_is_repaired_from_memory() {
    for file in FILES {
        let mut ways = vec![Damage::Zero, Damage::Cut, Damage::Swap, Damage::Of(FileId::Reserve)];
        ways.extend(FILES.map(Damage::Of));
        ways.extend([0, 40, 300, 5000, 70_000].map(Damage::Flip));
        for way in ways {
            let context = format!("{way:?} of {file}");
            let mut files = sample();
            let mut replica = used(&mut files);
            damage(replica.files, file, way);
            let report = verify(&mut replica);
            assert!(report.left.is_empty() && report.lost_pages == 0, "{context}: {report:?}");
            if matches!(way, Damage::Zero | Damage::Cut) {
                assert!(report.repaired > 0, "{context}");
            }
            assert_eq!(verify(&mut replica), MetadataReport::default(), "{context}");
            survey(&mut replica);
            drop(replica);
            check_whole(&mut files.clone(), &format!("{context}, killed"));
            let mut replica = driven(&mut files);
            replica.request(Request::CloseClean).unwrap();
            drop(replica);
            check_whole(&mut files, &format!("{context}, closed"));
        }
    }
}

#[test]
fn a_page_that_is_not_in_memory_is_repaired_from_its_copy_or_lost() {
    let is_healthy = |files: &SimFiles| {
        let report = check(&mut files.clone(), Depth::Data, &mut |_| {});
        report.is_healthy()
    };
    let mut copies = 0;
    for (file, slot) in [(MAP, 0), (MAP, 1), (MAP_OF_SNAPSHOT, 0), (MAP_OF_SNAPSHOT, 1)] {
        let mut files = sample();
        files.flip(file, slot * 4096 + 300, 2);
        if !is_healthy(&files) {
            continue;
        }
        copies += 1;
        let mut replica = driven(&mut files);
        assert_eq!(verify(&mut replica), MetadataReport { repaired: 1, ..Default::default() });
        replica.request(Request::CloseClean).unwrap();
        drop(replica);
        let report = check(&mut files, Depth::Data, &mut |_| {});
        assert!(report.findings.is_empty(), "{report}");
    }
    assert!(copies > 1);
    let mut files = sample();
    [0, 1].iter().for_each(|slot| files.flip(MAP_OF_SNAPSHOT, slot * 4096 + 300, 2));
    let mut replica = driven(&mut files);
    assert_eq!(verify(&mut replica), MetadataReport { lost_pages: 1, ..Default::default() });
    // Its blocks are what a scrub finds, and no zeroes.
    let reply = replica.request(Request::ScrubSnapshots { region: Region(0) }).unwrap();
    let Reply::Scrubbed(bad) = reply else { panic!("not scrubbed") };
    assert_eq!(bad.len(), REGION_BLOCKS as usize);
    let read = Request::Read { view: View::Head, offset: 0, len: BLOCK };
    assert_eq!(replica.request(read).unwrap_err(), RequestError::Lost { offset: 0 });
    assert_eq!(verify(&mut replica).lost_pages, 1, "and stays so until it is repaired");
}

#[test]
fn a_missing_file_stops_a_replica_that_others_can_rebuild_and_no_other() {
    for file in [FileId::Super, FileId::Log, FileId::Data(Place::Own, FileNo(0)), MAP, INDEX] {
        let mut files = sample();
        let mut replica = used(&mut files);
        replica.files.remove(file).unwrap();
        let reply = replica.request(verification(Peers::InSync));
        let reason = StopReason::Damaged { file };
        assert_eq!(reply.unwrap_err(), RequestError::Stopped { reason }, "{file}");
    }
    let file = FileId::Data(Place::Own, FileNo(0));
    let mut files = sample();
    let mut replica = used(&mut files);
    replica.files.remove(file).unwrap();
    let report = verify(&mut replica);
    assert_eq!(report.left, [(file, MetadataFault::Missing)]);
    assert_eq!(head(&mut replica, FAR), 3, "it goes on");
}

#[test]
fn files_that_only_memory_needs_are_made_again() {
    for file in [FileId::Recent, FileId::Sums] {
        let mut files = sample();
        let mut replica = used(&mut files);
        replica.files.remove(file).unwrap();
        assert!(verify(&mut replica).repaired > 0, "{file}");
        assert_eq!(verify(&mut replica), MetadataReport::default(), "{file}");
        drop(replica);
        check_whole(&mut files, &file.to_string());
    }
}

/// Where a copy of each kind of metadata is damaged.
fn copies() -> Vec<(FileId, Vec<u64>)> {
    let slots = |file, slot: u64| [0, 1].map(|at| (file, vec![at * slot + 300]));
    let mut all = Vec::new();
    all.extend(slots(FileId::Super, 256 << 10));
    for file in [MAP, MAP_OF_SNAPSHOT, INDEX, INDEX_OF_SNAPSHOT] {
        all.extend(slots(file, 4096));
    }
    all.extend([0, 1].map(|at| (FileId::Log, (0..32).map(|it| (2 * it + at) * 4096).collect())));
    all
}

#[test]
fn a_power_cut_during_a_repair_leaves_the_good_copy() {
    let mut tried = BTreeSet::new();
    for (file, places) in copies() {
        for operations in 0.. {
            let mut files = sample();
            drop(used(&mut files));
            let mut replica = reopen(&mut files).unwrap();
            replica.submit(RequestId(1), Request::Flush);
            run(&mut replica, &mut files, u64::MAX);
            places.iter().for_each(|offset| files.flip(file, *offset, 3));
            // The newest version of a page has no copy while it is being changed.
            if !check(&mut files.clone(), Depth::Metadata, &mut |_| {}).is_healthy() {
                break;
            }
            tried.insert(file);
            replica.submit(RequestId(2), verification(Peers::Nobody));
            let done = run(&mut replica, &mut files, operations);
            for keep in [Keep::Nothing, Keep::Everything, Keep::Alternate] {
                let mut after = files.clone();
                after.power_cut(keep.clone());
                let replica = reopen_in(&mut after, BootId::from_u128(2));
                let replica = replica.unwrap_or_else(|error| {
                    panic!("{file} {places:?}, operation {operations}, {keep:?}: {error:?}")
                });
                survey(&mut Driven::new(replica, &mut after));
            }
            if done {
                break;
            }
        }
    }
    assert_eq!(tried.len(), 6, "{tried:?}");
}

/// Carries out so many operations on files. Gives whether there are no more.
fn run(replica: &mut Replica, files: &mut SimFiles, most: u64) -> bool {
    let mut left = most;
    while let Some(action) = replica.next_action() {
        match action {
            Action::Io(_) if left == 0 => return false,
            Action::Io(io) => {
                left -= 1;
                let result = perform(files, io.file, &io.op);
                replica.complete(io.id, result);
            }
            Action::Reply { result, .. } => drop(result.unwrap()),
        }
    }
    true
}

#[test]
fn a_replica_that_does_not_verify_is_noticed_by_a_check() {
    let damaged_after = |verifies: bool| {
        let mut files = sample();
        let mut replica = used(&mut files);
        damage(replica.files, MAP_OF_SNAPSHOT, Damage::Zero);
        leave_out((!verifies).then_some(Check::Live));
        let report = verify(&mut replica);
        leave_out(None);
        replica.request(Request::CloseClean).unwrap();
        drop(replica);
        assert_eq!(report.repaired > 0, verifies);
        !check(&mut files, Depth::Data, &mut |_| {}).is_healthy()
    };
    assert!(!damaged_after(true));
    assert!(damaged_after(false), "the check is not needed");
}
