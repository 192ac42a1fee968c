//! Damaged files: a clear error or a repair, never a panic, and never data that was not written.

use bytes::Bytes;

use super::world::{LIMITS, REGIONS, options, reopen};
use crate::ids::{ReplicaId, SnapshotId, VolumeId};
use crate::store::drive::Driven;
use crate::store::files::sim::{Rng, SimFiles};
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::{BLOCK, REGION_BLOCKS};
use crate::store::super_block::{SLOT, SlotError};
use crate::store::*;

/// How the replica with its content is stopped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stop {
    Clean,
    Kill,
}

/// Two regions with data in two layers; every block holds its own number.
pub(super) fn sample(stop: Stop) -> SimFiles {
    let mut files = SimFiles::new();
    create(&mut files, &options()).unwrap();
    let replica = reopen(&mut files).unwrap();
    let mut driven = Driven::new(replica, &mut files);
    for block in 0..40 {
        driven.request(write(block)).unwrap();
    }
    let (id, name) = (SnapshotId::from_u128(1), "one".into());
    let labels = Default::default();
    driven.request(Request::Snapshot { id, name, created: 0, labels }).unwrap();
    for block in (20..60).chain(600..620) {
        driven.request(write(block)).unwrap();
    }
    driven.request(Request::Flush).unwrap();
    if stop == Stop::Clean {
        driven.request(Request::CloseClean).unwrap();
    }
    drop(driven);
    files
}

fn content(block: u64) -> Bytes {
    let word = (block + 1).to_le_bytes();
    word.iter().copied().cycle().take(BLOCK as usize).collect()
}

fn write(block: u64) -> Request {
    let data = content(block);
    let crcs = crc::of_blocks(&data).collect();
    Request::Write { offset: block * BLOCK, data, crcs, fua: false }
}

fn is_written(block: u64) -> bool {
    block < 60 || (600..620).contains(&block)
}

/// Opens, reads everything, and says how many blocks were not as they should be, all of them with
/// an error or a checksum that shows it. Data that is wrong without a sign is a failure.
pub(super) fn survey(mut files: SimFiles, trusted: bool) -> Result<usize, OpenError> {
    let report = check(&mut files, Depth::Data, &mut |_| {});
    let replica = reopen(&mut files)?;
    let mut driven = Driven::new(replica, &mut files);
    let mut bad = 0;
    for block in (0..64).chain(596..624) {
        let request = Request::Read { view: View::Head, offset: block * BLOCK, len: BLOCK };
        match driven.request(request) {
            Ok(Reply::Data(data)) => {
                let crcs = data.crcs.clone();
                let bytes = data.into_bytes();
                let expected =
                    if is_written(block) { content(block) } else { vec![0; BLOCK as usize].into() };
                if crc::first_mismatch(&bytes, &crcs).is_some() {
                    bad += 1;
                } else if bytes != expected {
                    // After an unclean stop a region that was being written is taken as it is.
                    assert!(
                        trusted,
                        "block {block} is wrong without a sign; the check said {report}"
                    );
                }
            }
            Ok(other) => panic!("not data: {other:?}"),
            Err(_) => bad += 1,
        }
    }
    // A request for damaged data does not stop the others.
    driven.request(write(0)).map(drop).unwrap_or(());
    // A check does not read data that was being written.
    if bad > 0 && !trusted {
        assert!(!report.is_healthy(), "{bad} blocks are bad but the check said {report}");
    }
    Ok(bad)
}

#[test]
fn an_undamaged_sample_is_healthy() {
    for stop in [Stop::Clean, Stop::Kill] {
        assert_eq!(survey(sample(stop), false).unwrap(), 0, "{stop:?}");
    }
}

#[test]
fn a_flipped_bit_anywhere_is_found_or_harmless() {
    let own = |no| [FileId::Data(Place::Own, FileNo(no)), FileId::Map(Place::Own, FileNo(no))];
    for stop in [Stop::Clean, Stop::Kill] {
        let whole = sample(stop);
        let mut rng = Rng::new(stop as u64);
        let mut seen = [0; 3];
        for round in 0..300 {
            let mut files = whole.clone();
            let file =
                [FileId::Super, FileId::Log, own(0)[0], own(0)[1], own(1)[0], own(1)[1]][round % 6];
            let len = files.len(file).unwrap().unwrap().max(1);
            // Mostly where something is.
            let near = if rng.one_in(4) { len } else { len.min(16 << 10) };
            let offset = match file {
                FileId::Super => rng.below(2) * SLOT + rng.below(6000),
                _ => rng.below(near),
            };
            files.flip(file, offset, rng.below(8) as u8);
            // The head's regions are taken as they are after a kill.
            let trusted = stop == Stop::Kill && file == own(1)[0];
            match survey(files, trusted) {
                Ok(0) => seen[0] += 1,
                Ok(_) => seen[1] += 1,
                Err(_) => seen[2] += 1,
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{stop:?}: {seen:?}");
    }
}

#[test]
fn garbage_in_any_file_is_no_reason_to_panic() {
    let whole = sample(Stop::Kill);
    let own = Place::Own;
    let no = FileNo(1);
    for file in [FileId::Super, FileId::Log, FileId::Map(own, no), FileId::Data(own, no)] {
        for seed in 0..40 {
            let mut files = whole.clone();
            let mut rng = Rng::new(seed);
            let garbage: Vec<u8> = (0..4096).map(|_| rng.draw() as u8).collect();
            let at = rng.below(files.len(file).unwrap().unwrap() / 4096 + 1) * 4096;
            files.write(file, at, &garbage).unwrap();
            let trusted = matches!(file, FileId::Data(..));
            let _: Result<usize, OpenError> = survey(files, trusted);
        }
    }
}

#[test]
fn one_lost_super_block_is_survived_two_are_not() {
    let whole = sample(Stop::Clean);
    let garbage = vec![0xa5; 4096];
    for slot in [0, 1] {
        let mut files = whole.clone();
        files.write(FileId::Super, slot * SLOT, &garbage).unwrap();
        let report = check(&mut files.clone(), Depth::Metadata, &mut |_| {});
        assert!(report.is_healthy() && report.to_string().contains("warning"), "{report}");
        assert_eq!(survey(files.clone(), false).unwrap(), 0);
        // Opening has mended it.
        drop(reopen(&mut files).unwrap());
        let report = check(&mut files, Depth::Metadata, &mut |_| {});
        assert!(!report.to_string().contains("warning"), "{report}");
    }
    let mut files = whole.clone();
    for slot in [0, 1] {
        files.write(FileId::Super, slot * SLOT, &garbage).unwrap();
    }
    let error = survey(files, false).unwrap_err();
    assert_eq!(error, OpenError::Super([SlotError::Magic, SlotError::Magic]));
}

#[test]
fn another_version_is_refused_and_left_alone() {
    let mut files = sample(Stop::Clean);
    let meta = read_super(&mut files).unwrap();
    let mut slot = meta.encode().unwrap();
    slot[8] = 3;
    slot[12..16].fill(0);
    let crc = crc::crc32c(&slot[..4096]);
    slot[12..16].copy_from_slice(&crc.to_le_bytes());
    files.write(FileId::Super, 0, &slot).unwrap();
    let before = files.clone();
    let error = reopen(&mut files).unwrap_err();
    assert!(error.to_string().contains("format version 3; this program knows 2"), "{error}");
    for file in [FileId::Super, FileId::Log] {
        let len = files.len(file).unwrap().unwrap();
        let (mut a, mut b) = (before.clone(), files.clone());
        assert_eq!(a.read(file, 0, len), b.read(file, 0, len), "{file} was touched");
    }
}

#[test]
fn another_volume_or_replica_is_refused() {
    let mut files = sample(Stop::Clean);
    let mut try_open = |volume: u128, replica: u128| {
        let options = OpenOptions {
            boot: None,
            volume: Some(VolumeId::from_u128(volume)),
            replica: Some(ReplicaId::from_u128(replica)),
            limits: LIMITS,
        };
        open(&mut files, &mut NoBases, options).map(drop)
    };
    assert!(matches!(try_open(9, 2), Err(OpenError::Volume { .. })));
    assert!(matches!(try_open(1, 9), Err(OpenError::Replica { .. })));
    try_open(1, 2).unwrap();
}

#[test]
fn missing_files_are_named() {
    for name in ["log", "L0.data", "L1.map"] {
        let mut files = sample(Stop::Kill);
        let file = FileId::parse(name).unwrap();
        files.remove(file).unwrap();
        assert_eq!(reopen(&mut files).map(drop).unwrap_err(), OpenError::Missing { file });
        let report = check(&mut files, Depth::Data, &mut |_| {});
        assert!(report.to_string().contains(&format!("{name} is missing")), "{report}");
    }
    let mut empty = SimFiles::new();
    let error = reopen(&mut empty).map(drop).unwrap_err();
    assert_eq!(error, OpenError::Super([SlotError::Empty, SlotError::Empty]));
}

#[test]
fn another_directory_is_not_a_damaged_replica() {
    let report = check(&mut SimFiles::new(), Depth::Data, &mut |_| {});
    assert!(!report.is_replica() && !report.is_healthy() && report.remedy().is_none(), "{report}");
    assert!(report.to_string().contains("not a replica directory"), "{report}");
    let mut files = sample(Stop::Clean);
    files.remove(FileId::Super).unwrap();
    let report = check(&mut files, Depth::Data, &mut |_| {});
    assert!(report.is_replica() && !report.is_healthy(), "{report}");
    assert!(report.remedy().unwrap().contains("delete this replica"), "{report}");
}

#[test]
fn a_map_of_zeroes_is_damage() {
    let map = FileId::Map(Place::Own, FileNo(1));
    let mut files = sample(Stop::Clean);
    let len = files.len(map).unwrap().unwrap();
    files.write(map, 0, &vec![0; len as usize]).unwrap();
    let report = check(&mut files, Depth::Metadata, &mut |_| {});
    assert!(!report.is_healthy() && report.remedy().is_some(), "{report}");
}

#[test]
fn a_failed_sync_stops_the_replica_and_reopening_reports_the_truth() {
    let mut files = sample(Stop::Clean);
    let mut replica = reopen(&mut files).unwrap();
    replica.submit(RequestId(1), write(3));
    replica.submit(RequestId(2), Request::Flush);
    let mut replies = Vec::new();
    let mut syncs = 0;
    while let Some(action) = replica.next_action() {
        match action {
            Action::Reply { id, result } => {
                if id == RequestId(1) {
                    replica.submit(RequestId(3), Request::Flush);
                }
                replies.push((id.0, result.is_ok()));
            }
            Action::Io(io) => {
                let result = if matches!(io.op, IoOp::Sync) {
                    syncs += 1;
                    Err(IoFault::Errno(5))
                } else {
                    files::perform(&mut files, io.file, &io.op)
                };
                replica.complete(io.id, result);
            }
        }
    }
    assert_eq!(syncs, 1);
    replies.sort_unstable();
    assert_eq!(replies, [(1, true), (2, true), (3, false)], "2 had nothing to make durable");
    replica.submit(RequestId(4), write(4));
    let Some(Action::Reply { result: Err(error), .. }) = replica.next_action() else {
        panic!("a stopped replica answers at once");
    };
    assert!(matches!(error, RequestError::Stopped { .. }), "{error}");
    assert_eq!(survey(files, false).unwrap(), 0);
}

#[test]
fn a_check_shows_how_far_it_is() {
    let mut files = sample(Stop::Clean);
    let mut last = None;
    check(&mut files, Depth::Data, &mut |progress| {
        assert!(
            last.is_none_or(|before: CheckProgress| before.done_regions < progress.done_regions)
        );
        last = Some(progress);
    });
    let last = last.unwrap();
    assert_eq!((last.done_regions, last.total_regions), (2 * REGIONS, 2 * REGIONS));
    assert_eq!(u64::from(REGION_BLOCKS) * BLOCK * REGIONS, options().size);
}
