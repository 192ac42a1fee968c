//! Data that is damaged between a kill and the next start, in regions that were being written.

use bytes::Bytes;

use super::world::{options, reopen, reopen_in};
use crate::ids::BootId;
use crate::store::drive::Driven;
use crate::store::files::sim::{Keep, Rng, SimFiles};
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::BLOCK;
use crate::store::*;

const DATA: FileId = FileId::Data(Place::Own, FileNo(0));

fn write(block: u64, fill: u8) -> Request {
    let data = Bytes::from(vec![fill; BLOCK as usize]);
    let crcs = crc::of_blocks(&data).collect();
    Request::Write { offset: block * BLOCK, data, crcs, fua: false }
}

/// A replica that was killed: block 0 was flushed twice, block 1 written since the last flush.
fn killed() -> SimFiles {
    let mut files = SimFiles::new();
    create(&mut files, &options()).unwrap();
    let replica = reopen(&mut files).unwrap();
    let mut driven = Driven::new(replica, &mut files);
    for fill in [1, 2] {
        driven.request(write(0, fill)).unwrap();
        driven.request(write(1, fill)).unwrap();
        driven.request(Request::Flush).unwrap();
    }
    driven.request(write(1, 3)).unwrap();
    drop(driven);
    files
}

/// Whether a block can be read: its content matches its checksum.
fn is_readable(driven: &mut Driven<'_>, block: u64) -> bool {
    let request = Request::Read { view: View::Head, offset: block * BLOCK, len: BLOCK };
    let Ok(Reply::Data(data)) = driven.request(request) else { return false };
    let crcs = data.crcs.clone();
    crc::first_mismatch(&data.into_bytes(), &crcs).is_none()
}

fn are_readable(files: &mut SimFiles, boot: u128) -> [bool; 2] {
    let replica = reopen_in(files, BootId::from_u128(boot)).unwrap();
    let mut driven = Driven::new(replica, files);
    [0, 1].map(|block| is_readable(&mut driven, block))
}

fn is_healthy(files: &SimFiles) -> bool {
    let boot = Some(BootId::from_u128(1));
    check_under(&mut files.clone(), Depth::Data, boot, &mut |_| {}).is_healthy()
}

#[test]
fn a_kill_alone_makes_no_block_unreadable() {
    let mut files = killed();
    assert!(is_healthy(&files));
    for _ in 0..3 {
        assert_eq!(are_readable(&mut files, 1), [true; 2]);
        assert!(is_healthy(&files));
    }
    files.power_cut(Keep::Random(Rng::new(1)));
    assert_eq!(are_readable(&mut files, 2), [true; 2]);
    assert_eq!(are_readable(&mut files, 2), [true; 2], "killed before anything was flushed");
}

#[test]
fn a_flushed_block_that_is_damaged_after_a_kill_is_not_read_as_data() {
    let mut files = killed();
    files.flip(DATA, 100, 1);
    assert!(!is_healthy(&files));
    for _ in 0..3 {
        assert_eq!(are_readable(&mut files, 1), [false, true], "not after another kill either");
    }
    let replica = reopen(&mut files).unwrap();
    let mut driven = Driven::new(replica, &mut files);
    driven.request(write(0, 5)).unwrap();
    assert!(is_readable(&mut driven, 0), "written again");
    drop(driven);
    assert_eq!(are_readable(&mut files, 1), [true; 2]);
}

#[test]
fn what_an_unflushed_write_left_is_taken_as_it_is() {
    let mut files = killed();
    files.flip(DATA, BLOCK + 100, 1);
    assert!(is_healthy(&files));
    assert_eq!(are_readable(&mut files, 1), [true; 2]);
    // A flush makes it what the block holds, and from then on it is damaged or whole.
    let replica = reopen(&mut files).unwrap();
    let mut driven = Driven::new(replica, &mut files);
    assert!(is_readable(&mut driven, 1));
    driven.request(Request::Flush).unwrap();
    drop(driven);
    files.flip(DATA, BLOCK + 200, 1);
    assert_eq!(are_readable(&mut files, 1), [true, false]);
}

#[test]
fn lost_checksums_make_blocks_unreadable_and_never_damage_readable() {
    for flips in [false, true] {
        let mut files = killed();
        files.remove(FileId::Sums).unwrap();
        if flips {
            files.flip(DATA, 100, 1);
        }
        assert!(!is_healthy(&files));
        for _ in 0..2 {
            assert_eq!(are_readable(&mut files, 1), [false; 2]);
        }
    }
}

#[test]
fn after_a_power_cut_nothing_is_known_of_regions_that_were_written() {
    let mut files = killed();
    files.power_cut(Keep::Everything);
    files.flip(DATA, 100, 1);
    assert_eq!(are_readable(&mut files, 2), [true; 2]);
    assert_eq!(are_readable(&mut files, 2), [true; 2]);
}
