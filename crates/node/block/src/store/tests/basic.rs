//! Requests one by one, over files without faults.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::world::{LIMITS, options, reopen};
use crate::ids::{Epoch, Generation, ReplicaId, SnapshotId, VolumeId};
use crate::store::drive::Driven;
use crate::store::files::sim::SimFiles;
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::{BLOCK, REGION, Region};
use crate::store::layer::{Base, SnapshotInfo};
use crate::store::*;

pub(super) fn bytes(fill: u8, blocks: u64) -> Bytes {
    vec![fill; (blocks * BLOCK) as usize].into()
}

pub(super) fn write(block: u64, fill: u8, blocks: u64) -> Request {
    let data = bytes(fill, blocks);
    let crcs = crc::of_blocks(&data).collect();
    Request::Write { offset: block * BLOCK, data, crcs, fua: false }
}

pub(super) fn id(number: u128) -> SnapshotId {
    SnapshotId::from_u128(number)
}

pub(super) fn snapshot(number: u128) -> Request {
    let (name, labels) = (format!("s{number}"), BTreeMap::new());
    Request::Snapshot { id: id(number), name, created: 0, labels }
}

pub(super) fn fresh() -> SimFiles {
    let mut files = SimFiles::new();
    create(&mut files, &options()).unwrap();
    files
}

pub(super) fn driven(files: &mut SimFiles) -> Driven<'_> {
    let replica = reopen(files).unwrap();
    Driven::new(replica, files)
}

/// The first byte of a block; all of its bytes are the same.
pub(super) fn at(driven: &mut Driven<'_>, view: View, block: u64) -> u8 {
    let request = Request::Read { view, offset: block * BLOCK, len: BLOCK };
    let Reply::Data(data) = driven.request(request).unwrap() else { panic!("not data") };
    let crcs = data.crcs.clone();
    let bytes = data.into_bytes();
    assert_eq!(crc::first_mismatch(&bytes, &crcs), None);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

pub(super) fn head(driven: &mut Driven<'_>, block: u64) -> u8 {
    at(driven, View::Head, block)
}

#[test]
fn what_is_written_is_read_and_what_is_not_is_zeroes() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(write(510, 7, 4)).unwrap();
    let found: Vec<u8> = (508..516).map(|block| head(&mut replica, block)).collect();
    assert_eq!(found, [0, 0, 7, 7, 7, 7, 0, 0]);
    let read = Request::Read { view: View::Head, offset: 508 * BLOCK, len: 8 * BLOCK };
    let Reply::Data(data) = replica.request(read).unwrap() else { panic!("not data") };
    assert_eq!(data.parts.len(), 3, "zeroes, one run over the border of a region, zeroes");
    replica.request(Request::Discard { offset: 511 * BLOCK, len: 2 * BLOCK }).unwrap();
    let found: Vec<u8> = (509..515).map(|block| head(&mut replica, block)).collect();
    assert_eq!(found, [0, 7, 0, 0, 7, 0]);
}

#[test]
fn bad_requests_are_refused_with_their_reason() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    let size = options().size;
    let read = |offset, len| Request::Read { view: View::Head, offset, len };
    let crcs = |count| vec![crc::ZERO_BLOCK; count];
    let put = |offset, len: usize, count| {
        let data = vec![0; len].into();
        Request::Write { offset, data, crcs: crcs(count), fua: false }
    };
    let cases = [
        (read(1, BLOCK), RequestError::Unaligned { offset: 1, len: BLOCK }),
        (read(0, 511), RequestError::Unaligned { offset: 0, len: 511 }),
        (read(size, BLOCK), RequestError::OutOfRange { offset: size, len: BLOCK, size }),
        (
            read(u64::MAX - 4095, 4096),
            RequestError::OutOfRange { offset: u64::MAX - 4095, len: 4096, size },
        ),
        (put(0, 8192, 1), RequestError::CrcCount { blocks: 2, crcs: 1 }),
        (
            Request::Write { offset: 0, data: bytes(1, 1), crcs: crcs(1), fua: false },
            RequestError::Checksum { offset: 0 },
        ),
        (
            Request::Read { view: View::Snapshot(id(9)), offset: 0, len: BLOCK },
            RequestError::NoSuchSnapshot { id: id(9) },
        ),
        (Request::DeleteSnapshot { id: id(9) }, RequestError::NoSuchSnapshot { id: id(9) }),
        (Request::Revert { to: id(9) }, RequestError::NoSuchSnapshot { id: id(9) }),
        (Request::Hydrate, RequestError::NoBase),
    ];
    for (request, expected) in cases {
        let text = format!("{request:?}");
        assert_eq!(replica.request(request).unwrap_err(), expected, "{text}");
    }
    for size in [4096, size + 1, u64::MAX, 0] {
        let error = replica.request(Request::Expand { size }).unwrap_err();
        assert!(matches!(error, RequestError::BadSize { .. }), "{size}");
    }
    assert_eq!(head(&mut replica, 0), 0);
}

#[test]
fn odd_sizes_and_full_directories_are_refused() {
    for size in [0, 1, 4095, 4097, u64::MAX, (15 << 40) + 4096] {
        let error = create(&mut SimFiles::new(), &CreateOptions { size, ..options() }).unwrap_err();
        assert!(matches!(error, CreateError::Size { .. }), "{size}");
    }
    let mut files = fresh();
    let error = create(&mut files, &options()).unwrap_err();
    assert_eq!(error, CreateError::NotEmpty { name: "L0.data".into() });
}

#[test]
fn promises_and_epochs_only_grow_and_survive() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(Request::Promise { generation: Generation(5) }).unwrap();
    replica.request(Request::SetEpoch { epoch: Epoch(3) }).unwrap();
    drop(replica);
    let mut replica = driven(&mut files);
    let status = replica.replica.status();
    assert_eq!((status.promised, status.epoch), (Generation(5), Epoch(3)));
    assert!(replica.request(Request::Promise { generation: Generation(4) }).is_err());
    assert!(replica.request(Request::SetEpoch { epoch: Epoch(2) }).is_err());
    replica.request(Request::Promise { generation: Generation(5) }).unwrap();
}

#[test]
fn a_clean_close_leaves_nothing_to_replay() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(write(0, 1, 3)).unwrap();
    replica.request(Request::CloseClean).unwrap();
    assert_eq!(replica.request(Request::Flush).unwrap_err(), RequestError::Closed);
    drop(replica);
    assert!(read_super(&mut files).unwrap().body.clean.is_some());
    let report = check(&mut files, Depth::Data, &mut |_| {});
    assert!(report.is_healthy() && report.checked_blocks == 3, "{report}");
    let mut replica = driven(&mut files);
    assert_eq!(replica.replica.status().inherited_regions, 0);
    assert_eq!(head(&mut replica, 2), 1);
    // A second session that was not closed replays from where the first ended.
    replica.request(write(5, 2, 1)).unwrap();
    replica.request(Request::Flush).unwrap();
    drop(replica);
    let mut replica = driven(&mut files);
    assert_eq!((head(&mut replica, 2), head(&mut replica, 5)), (1, 2));
    assert_eq!(replica.replica.status().inherited_regions, 1);
}

#[test]
fn merging_keeps_what_shows_in_both_directions() {
    // Many blocks below: the head is merged down. Few: the snapshot is merged up.
    for (below, above) in [(20, 2), (2, 20)] {
        let mut files = fresh();
        let mut replica = driven(&mut files);
        replica.request(write(0, 1, below)).unwrap();
        replica.request(write(1000, 1, 1)).unwrap();
        replica.request(snapshot(1)).unwrap();
        replica.request(write(1, 2, above)).unwrap();
        replica.request(Request::Discard { offset: 0, len: BLOCK }).unwrap();
        replica.request(Request::Flush).unwrap();
        let content = |replica: &mut Driven<'_>| -> Vec<u8> {
            (0..24).chain([1000]).map(|block| head(replica, block)).collect()
        };
        let before = content(&mut replica);
        replica.request(Request::DeleteSnapshot { id: id(1) }).unwrap();
        assert_eq!(content(&mut replica), before);
        replica.work();
        assert_eq!(content(&mut replica), before);
        let status = replica.replica.status();
        assert_eq!(status.work, None);
        assert_eq!(status.unique_bytes, status.head_bytes);
        drop(replica);
        let layers = files.list().unwrap().into_iter().filter(|name| name.ends_with(".data"));
        assert_eq!(layers.count(), 1);
        assert_eq!(content(&mut driven(&mut files)), before);
    }
}

#[test]
fn snapshots_form_a_tree_and_reverts_move_between_them() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    for number in 1..=3 {
        replica.request(write(0, number as u8, 1)).unwrap();
        replica.request(snapshot(number)).unwrap();
    }
    replica.request(Request::Revert { to: id(1) }).unwrap();
    assert_eq!(head(&mut replica, 0), 1);
    replica.request(write(1, 9, 1)).unwrap();
    replica.request(snapshot(4)).unwrap();
    replica.request(Request::DeleteSnapshot { id: id(2) }).unwrap();
    replica.work();
    replica.request(Request::Revert { to: id(3) }).unwrap();
    assert_eq!((head(&mut replica, 0), head(&mut replica, 1)), (3, 0));
    assert_eq!(at(&mut replica, View::Snapshot(id(4)), 1), 9);
    let status = replica.replica.status();
    let parents: Vec<_> = status.snapshots.iter().map(|s| (s.info.id, s.parent)).collect();
    assert_eq!(parents, [(id(3), Some(id(1))), (id(1), None), (id(4), Some(id(1)))]);
}

#[test]
fn a_volume_with_as_many_snapshots_as_possible_works() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    for number in 0..250 {
        replica.request(write(number, 1 + (number % 200) as u8, 1)).unwrap();
        replica.request(snapshot(u128::from(number))).unwrap();
    }
    let error = replica.request(snapshot(1000)).unwrap_err();
    assert_eq!(error, RequestError::TooManySnapshots { count: 250 });
    assert_eq!((head(&mut replica, 0), head(&mut replica, 249)), (1, 50));
    for number in 1..250 {
        replica.request(Request::DeleteSnapshot { id: id(number) }).unwrap();
    }
    replica.work();
    assert_eq!((head(&mut replica, 0), head(&mut replica, 249)), (1, 50));
    assert_eq!(replica.replica.status().snapshots.len(), 1);
}

#[test]
fn a_larger_volume_reads_zeroes_where_it_grew() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    let old = options().size;
    replica.request(Request::Expand { size: old + 3 * BLOCK }).unwrap();
    let block = old / BLOCK;
    replica.request(write(block + 1, 4, 2)).unwrap();
    assert_eq!((head(&mut replica, block), head(&mut replica, block + 2)), (0, 4));
    drop(replica);
    assert_eq!(reopen(&mut files).unwrap().volume_size(), old + 3 * BLOCK);
}

pub(super) struct OneBase(pub(super) SimFiles);

impl Bases for OneBase {
    fn files(&mut self, _: &str) -> Result<&mut dyn Files, BaseError> {
        Ok(&mut self.0)
    }
}

fn pin() -> Pin {
    Pin { volume: VolumeId::from_u128(11), replica: ReplicaId::from_u128(12), path: "clone".into() }
}

fn clone_of(base: Base, source: &SimFiles) -> (SimFiles, Replica) {
    let mut files = SimFiles::new();
    let (volume, replica) = (VolumeId::from_u128(11), ReplicaId::from_u128(12));
    let options = CreateOptions { volume, replica, base: Some(base), ..options() };
    create(&mut files, &options).unwrap();
    let open_options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let replica = open(&mut files, &mut OneBase(source.clone()), open_options).unwrap();
    (files, replica)
}

#[test]
fn a_clone_shows_its_base_until_it_has_a_copy_of_its_own() {
    let mut source = fresh();
    let mut replica = driven(&mut source);
    replica.request(write(0, 1, 4)).unwrap();
    replica.request(snapshot(1)).unwrap();
    replica.request(write(0, 2, 1)).unwrap();
    replica.request(Request::Pin { snapshot: id(1), pin: pin() }).unwrap();
    // Deleted it is gone for people, and stays for its clone.
    replica.request(Request::DeleteSnapshot { id: id(1) }).unwrap();
    assert!(replica.replica.status().snapshots.is_empty());
    drop(replica);
    assert!(matches!(remove(&mut source), Err(RemoveError::Pinned { .. })));

    let base = Base::Replica {
        path: "source".into(),
        volume: VolumeId::from_u128(1),
        replica: ReplicaId::from_u128(2),
        snapshot: id(1),
    };
    let (mut files, replica) = clone_of(base, &source);
    let mut clone = Driven::new(replica, &mut files);
    clone.bases.push(Box::new(source.clone()));
    clone.request(write(1, 3, 1)).unwrap();
    clone.request(Request::Discard { offset: 2 * BLOCK, len: BLOCK }).unwrap();
    let content = |clone: &mut Driven<'_>| (0..5).map(|b| head(clone, b)).collect::<Vec<u8>>();
    assert_eq!(content(&mut clone), [1, 3, 0, 1, 0]);
    let status = clone.replica.status();
    assert_eq!((status.unique_bytes, status.shared_bytes > 0), (0, true), "nothing is flushed yet");
    clone.request(Request::Hydrate).unwrap();
    clone.work();
    clone.request(Request::Flush).unwrap();
    assert_eq!(clone.replica.status().unique_bytes, 3 * BLOCK);
    clone.bases.clear();
    assert_eq!(content(&mut clone), [1, 3, 0, 1, 0]);
    drop(clone);
    assert_eq!(content(&mut driven(&mut files)), [1, 3, 0, 1, 0]);

    let mut replica = driven(&mut source);
    replica.work();
    let layers = |replica: &Driven<'_>| replica.replica.status().unique_bytes / BLOCK;
    assert_eq!(layers(&replica), 5, "the clone may need all of the snapshot");
    replica.request(Request::Unpin { replica: pin().replica }).unwrap();
    replica.work();
    assert_eq!(layers(&replica), 4, "overwritten data is not needed");
    assert_eq!((0..4).map(|b| head(&mut replica, b)).collect::<Vec<u8>>(), [2, 1, 1, 1]);
    drop(replica);
    remove(&mut source).unwrap();
    assert!(source.list().unwrap().is_empty());
}

#[test]
fn an_image_is_a_base_too() {
    let mut image = SimFiles::new();
    image.create(FileId::Image(0)).unwrap();
    image.write(FileId::Image(0), 0, &[5; 3 * 4096 + 100]).unwrap();
    let base = describe(&image);
    let Base::Image { bytes: 12388, identity: Some(_), .. } = &base else { panic!("{base:?}") };
    let (mut files, replica) = clone_of(base, &image);
    let mut clone = Driven::new(replica, &mut files);
    clone.bases.push(Box::new(image));
    clone.request(write(1, 6, 1)).unwrap();
    assert_eq!((0..3).map(|b| head(&mut clone, b)).collect::<Vec<_>>(), [5, 6, 5]);
    let read = Request::Read { view: View::Head, offset: 3 * BLOCK, len: 2 * BLOCK };
    let Reply::Data(data) = clone.request(read).unwrap() else { panic!("not data") };
    let tail = data.into_bytes();
    assert!(tail[..100].iter().all(|b| *b == 5) && tail[100..].iter().all(|b| *b == 0));
    clone.request(Request::Hydrate).unwrap();
    clone.work();
    clone.bases.clear();
    assert_eq!((0..3).map(|b| head(&mut clone, b)).collect::<Vec<_>>(), [5, 6, 5]);
}

fn describe(image: &SimFiles) -> Base {
    describe_image(&mut OneBase(image.clone()), "image.raw").unwrap()
}

#[test]
fn a_base_that_is_another_or_missing_is_refused() {
    let image = |fill: u8, bytes: u64| {
        let mut files = SimFiles::new();
        files.create(FileId::Image(0)).unwrap();
        files.write(FileId::Image(0), 0, &vec![fill; bytes as usize]).unwrap();
        files
    };
    let base = Some(describe(&image(5, 8192)));
    let mut files = SimFiles::new();
    create(&mut files, &CreateOptions { base, ..options() }).unwrap();
    let mut open_over = |image: SimFiles| {
        let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
        open(&mut files, &mut OneBase(image), options).map(drop).map_err(|error| {
            let OpenError::Base { source } = error else { panic!("{error}") };
            source.to_string()
        })
    };
    let mut changed = image(5, 8192);
    changed.write(FileId::Image(0), 5000, &[6]).unwrap();
    for (other, text) in [
        (SimFiles::new(), "base image image.raw is missing"),
        (image(5, 4096), "image image.raw has 4096 bytes, not 8192"),
        (image(6, 8192), "image image.raw is not the one that the volume was made from"),
        (changed, "image image.raw is not the one that the volume was made from"),
    ] {
        assert_eq!(open_over(other).unwrap_err(), text);
    }
    open_over(image(5, 8192)).unwrap();
    let mut qcow = image(0, 8192);
    qcow.write(FileId::Image(0), 0, b"QFI\xfb").unwrap();
    let error = describe_image(&mut OneBase(qcow), "i").unwrap_err();
    assert_eq!(error.to_string(), "i is a qcow2 image; only a raw one can be a base");
}

#[test]
fn a_rebuild_fills_snapshots_from_below() {
    let mut files = SimFiles::new();
    let info = |number: u128| SnapshotInfo {
        id: id(number),
        name: format!("s{number}"),
        created: 0,
        labels: BTreeMap::new(),
    };
    let snapshots = vec![info(1), info(2)];
    create(&mut files, &CreateOptions { snapshots, ..options() }).unwrap();
    let mut replica = driven(&mut files);
    let fill = |number, block: u64, byte| {
        let data = bytes(byte, 1);
        let crcs = crc::of_blocks(&data).collect();
        let layer = LayerRef::Snapshot(id(number));
        Request::Fill { layer, offset: block * BLOCK, data, crcs }
    };
    replica.request(write(0, 9, 1)).unwrap();
    for (number, block, byte) in [(2, 1, 2), (1, 1, 1), (1, 2, 1), (1, 0, 1)] {
        replica.request(fill(number, block, byte)).unwrap();
    }
    let zeroes = Request::FillZeroes {
        layer: LayerRef::Snapshot(id(2)),
        offset: 2 * BLOCK,
        len: BLOCK,
        vacant: false,
    };
    replica.request(zeroes).unwrap();
    for number in [1, 2] {
        replica.request(Request::SealLayer { id: id(number) }).unwrap();
    }
    let error = replica.request(fill(1, 5, 1)).unwrap_err();
    assert_eq!(error, RequestError::SnapshotSealed { id: id(1) });
    let read = |replica: &mut Driven<'_>, view| (0..3).map(|b| at(replica, view, b)).collect();
    let views = [View::Head, View::Snapshot(id(2)), View::Snapshot(id(1))];
    let found: Vec<Vec<u8>> = views.map(|view| read(&mut replica, view)).to_vec();
    assert_eq!(found, [[9, 2, 0], [1, 2, 0], [1, 1, 1]]);
}

#[test]
fn the_map_says_what_layers_and_views_hold() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(write(0, 1, 2)).unwrap();
    replica.request(snapshot(1)).unwrap();
    replica.request(write(2, 2, 1)).unwrap();
    replica.request(Request::Discard { offset: 0, len: BLOCK }).unwrap();
    let mut map = |of| {
        let request = Request::ReadMap { of, offset: 0, len: 4 * BLOCK };
        let Reply::Map(infos) = replica.request(request).unwrap() else { panic!("not a map") };
        infos
    };
    let data = |fill| BlockInfo::Data { crc: Some(crc::crc32c(&bytes(fill, 1))) };
    use BlockInfo::{Vacant, Zero};
    assert_eq!(map(MapOf::View(View::Head)), [Zero, data(1), data(2), Vacant]);
    assert_eq!(map(MapOf::Layer(LayerRef::Head)), [Zero, Vacant, data(2), Vacant]);
    let below = MapOf::Layer(LayerRef::Snapshot(id(1)));
    assert_eq!(map(below), [data(1), data(1), Vacant, Vacant]);
}

#[test]
fn a_full_disk_is_reported_and_work_goes_on_when_there_is_room() {
    let mut files = fresh();
    // Two slots of the map and of the index, the mark of the log, and five blocks.
    files.capacity = Some(files.used() + 11);
    let mut replica = driven(&mut files);
    replica.request(write(0, 1, 4)).unwrap();
    replica.request(Request::Flush).unwrap();
    for _ in 0..3 {
        assert_eq!(replica.request(write(4, 2, 16)).unwrap_err(), RequestError::NoSpace);
        assert_eq!(replica.request(write(5000, 2, 1)).unwrap_err(), RequestError::NoSpace);
    }
    replica.request(write(0, 3, 4)).unwrap();
    replica.request(Request::Flush).unwrap();
    replica.request(Request::Promise { generation: Generation(1) }).unwrap();
    replica.request(Request::CloseClean).unwrap();
    drop(replica);
    let report = check(&mut files, Depth::Data, &mut |_| {});
    assert!(report.is_healthy(), "{report}");
    files.capacity = None;
    let mut replica = driven(&mut files);
    replica.request(write(4, 2, 16)).unwrap();
    assert_eq!((0..6).map(|b| head(&mut replica, b)).collect::<Vec<_>>(), [3, 3, 3, 3, 2, 2]);
}

#[test]
fn discarded_space_comes_back() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(write(0, 1, 600)).unwrap();
    replica.request(Request::Flush).unwrap();
    replica.request(Request::Discard { offset: 0, len: REGION }).unwrap();
    replica.request(Request::Flush).unwrap();
    replica.run();
    assert_eq!(replica.replica.status().unique_bytes, 88 * BLOCK);
    drop(replica);
    let data = FileId::Data(Place::Own, FileNo(0));
    assert!(files.pages_of(data) <= 88, "{}", files.pages_of(data));
}

#[test]
fn scrubbing_finds_a_flipped_bit_and_repair_mends_it() {
    let mut files = fresh();
    let mut replica = driven(&mut files);
    replica.request(write(0, 1, 8)).unwrap();
    replica.request(snapshot(1)).unwrap();
    replica.request(Request::CloseClean).unwrap();
    drop(replica);
    files.flip(FileId::Data(Place::Own, FileNo(0)), 3 * BLOCK + 17, 5);
    let report = check(&mut files, Depth::Data, &mut |_| {});
    assert!(!report.is_healthy() && report.to_string().contains("block at 12288"), "{report}");
    let mut replica = driven(&mut files);
    let scrub = |replica: &mut Driven<'_>| {
        let reply = replica.request(Request::Scrub { region: Region(0) }).unwrap();
        let Reply::Scrubbed(bad) = reply else { panic!("not scrubbed") };
        bad.iter().map(|bad| (bad.layer, bad.offset)).collect::<Vec<_>>()
    };
    assert_eq!(scrub(&mut replica), [(Some(id(1)), 3 * BLOCK)]);
    let repair = |fill| {
        let data = bytes(fill, 1);
        let crcs = crc::of_blocks(&data).collect();
        let layer = LayerRef::Snapshot(id(1));
        Request::Repair { layer, offset: 3 * BLOCK, data, crcs }
    };
    let error = replica.request(repair(2)).unwrap_err();
    assert_eq!(error, RequestError::NotRecorded { offset: 3 * BLOCK });
    replica.request(repair(1)).unwrap();
    assert_eq!(scrub(&mut replica), []);
}

#[test]
fn a_terabyte_needs_little_memory() {
    const TIB: u64 = 1 << 40;
    let mut files = SimFiles::new();
    create(&mut files, &CreateOptions { size: TIB, log_pages: LOG_PAGES, ..options() }).unwrap();
    let replica = open(&mut files, &mut NoBases, OpenOptions::default()).unwrap();
    let mut replica = Driven::new(replica, &mut files);
    let mut memory = 0;
    for number in 0..4 {
        for at in 0..3000u64 {
            let block = (at * 7_919 + number * 31) * 512 % (TIB / BLOCK);
            replica.request(write(block, 1, 1)).unwrap();
            let read = (at * 104_729 * 512) % (TIB / BLOCK);
            head(&mut replica, read);
        }
        memory = memory.max(replica.replica.status().memory);
        replica.request(snapshot(u128::from(number))).unwrap();
    }
    assert!(memory <= 8 << 20, "{memory} bytes for maps of a terabyte");
    assert!(memory >= 4 << 20, "{memory} bytes: the test did not fill the cache");
    // A discard of everything ends, and within the same bounds.
    replica.request(Request::Discard { offset: 0, len: TIB / 64 }).unwrap();
    assert!(replica.replica.status().memory <= 8 << 20);
}
