//! Damage in the layers of snapshots, which are not written any more.

use super::basic::{at, bytes, driven, fresh, head, id, snapshot, write};
use crate::store::drive::Driven;
use crate::store::files::sim::{Keep, SimFiles};
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::{BLOCK, REGION_BLOCKS, Region};
use crate::store::*;

/// A snapshot with blocks 0 to 7, and a head above it with blocks 4 to 5.
fn sample() -> SimFiles {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(write(0, 1, 8)).unwrap();
    replica.request(snapshot(1)).unwrap();
    replica.request(write(4, 2, 2)).unwrap();
    replica.request(Request::CloseClean).unwrap();
    drop(replica);
    files
}

fn lose_map(files: &mut SimFiles) {
    let map = FileId::Map(Place::Own, FileNo(0));
    let len = files.len(map).unwrap().unwrap();
    files.write(map, 0, &vec![0; len as usize]).unwrap();
}

fn damaged(driven: &mut Driven<'_>) -> Vec<u64> {
    let reply = driven.request(Request::ScrubSnapshots { region: Region(0) }).unwrap();
    let Reply::Scrubbed(bad) = reply else { panic!("not scrubbed") };
    assert!(bad.iter().all(|bad| bad.layer == Some(id(1))), "{bad:?}");
    bad.iter().map(|bad| bad.offset / BLOCK).collect()
}

/// A repair with the content that another replica's snapshot would have.
fn repair(block: u64) -> Request {
    let data = bytes(u8::from(block < 8), 1);
    let crcs = crc::of_blocks(&data).collect();
    Request::Repair { layer: LayerRef::Snapshot(id(1)), offset: block * BLOCK, data, crcs }
}

fn check_whole(files: &mut SimFiles) {
    let report = check(files, Depth::Data, &mut |_| {});
    assert!(report.is_healthy(), "{report}");
    let mut replica = driven(files);
    for block in 0..12 {
        let expected = u8::from(block < 8);
        assert_eq!(at(&mut replica, View::Snapshot(id(1)), block), expected, "block {block}");
    }
    assert_eq!((head(&mut replica, 4), head(&mut replica, 6)), (2, 1));
}

#[test]
fn a_scrub_of_snapshots_leaves_the_head_out() {
    let mut files = sample();
    files.flip(FileId::Data(Place::Own, FileNo(0)), 3 * BLOCK + 17, 5);
    files.flip(FileId::Data(Place::Own, FileNo(1)), 4 * BLOCK + 17, 5);
    let mut replica = driven(&mut files);
    assert_eq!(damaged(&mut replica), [3]);
    replica.request(repair(3)).unwrap();
    assert!(damaged(&mut replica).is_empty());
}

#[test]
fn a_snapshot_that_lost_its_map_is_repaired_in_place() {
    let mut files = sample();
    lose_map(&mut files);
    let mut replica = driven(&mut files);
    assert_eq!(damaged(&mut replica).len(), REGION_BLOCKS as usize);
    for block in 0..u64::from(REGION_BLOCKS) {
        replica.request(repair(block)).unwrap();
    }
    assert!(damaged(&mut replica).is_empty());
    // A repaired block is not changed any more.
    let mut other = repair(3);
    if let Request::Repair { data, crcs, .. } = &mut other {
        *data = bytes(9, 1);
        *crcs = crc::of_blocks(data).collect();
    }
    let error = replica.request(other).unwrap_err();
    assert_eq!(error, RequestError::NotRecorded { offset: 3 * BLOCK });
    replica.request(Request::CloseClean).unwrap();
    drop(replica);
    check_whole(&mut files);
}

#[test]
fn a_power_cut_after_a_repair_shows_what_was_written_or_damage() {
    for blocks in [1, 8, u64::from(REGION_BLOCKS)] {
        for keep in [Keep::Nothing, Keep::Everything, Keep::Alternate] {
            let mut files = sample();
            lose_map(&mut files);
            let mut replica = driven(&mut files);
            for block in 0..blocks {
                replica.request(repair(block)).unwrap();
            }
            drop(replica);
            files.power_cut(keep);
            let mut replica = driven(&mut files);
            for block in damaged(&mut replica) {
                replica.request(repair(block)).unwrap();
            }
            replica.request(Request::CloseClean).unwrap();
            drop(replica);
            check_whole(&mut files);
        }
    }
}
