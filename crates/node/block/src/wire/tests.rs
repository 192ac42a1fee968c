use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::checksum::SumKey;
use crate::ids::*;
use crate::store::MetadataFault;

fn info() -> SnapshotInfo {
    SnapshotInfo {
        id: SnapshotId::from_u128(9),
        name: "before-upgrade".into(),
        parent: Some(SnapshotId::from_u128(8)),
        created: "2026-11-15T00:00:00Z".into(),
        labels: BTreeMap::from([("who".into(), "cron".into())]),
    }
}

fn data(blocks: usize) -> (Bytes, Crcs) {
    let data: Vec<u8> = (0..blocks * BLOCK as usize).map(|i| (i / 7) as u8).collect();
    let crcs = Crcs::of(&data);
    (Bytes::from(data), crcs)
}

fn requests() -> Vec<Request> {
    let (one, one_crc) = data(1);
    let (five, five_crcs) = data(5);
    let view = Some(SnapshotId::from_u128(77));
    vec![
        Request::Hello(Hello {
            oldest: 1,
            newest: 3,
            volume: VolumeId::from_u128(1),
            replica: ReplicaId::from_u128(2),
            engine: EngineId::from_u128(3),
        }),
        Request::Open(Open { engine: EngineId::from_u128(3), mode: Mode::ReadOnly }),
        Request::Write { offset: 4096, data: one.clone(), crcs: one_crc.clone(), fua: true },
        Request::Write { offset: 0, data: five, crcs: five_crcs, fua: false },
        Request::Copy { offset: 8192, data: one.clone(), crcs: one_crc.clone(), fua: false },
        Request::Repair {
            snapshot: SnapshotId::from_u128(u128::MAX - 9),
            offset: 8192,
            data: one,
            crcs: one_crc,
        },
        Request::Scrub { offset: 2 << 20, length: 2 << 20 },
        Request::Read { view: None, offset: 0, length: 8192 },
        Request::Read { view, offset: 0, length: 4096 },
        Request::Flush { settle: vec![], number: 0, complete: 0 },
        Request::Flush { settle: vec![1, 2, 70000], number: 1 << 40, complete: (1 << 40) - 2 },
        Request::Discard { offset: 4096, length: 1 << 30 },
        Request::WriteZeroes { offset: 4096, length: 4096, fua: true },
        Request::Snapshot(info()),
        Request::Revert { to: None },
        Request::Revert { to: view },
        Request::DeleteSnapshot { snapshot: SnapshotId::from_u128(5) },
        Request::Resize { size: 1 << 40 },
        Request::ReadMap { view: None, offset: 0, length: 4 << 20, verify: Verify::Adopt },
        Request::ReadMap { view, offset: 4096, length: 4096, verify: Verify::Suspect },
        Request::ReadMap { view, offset: 4096, length: 4096, verify: Verify::Deep },
        Request::ReadMap { view, offset: 4096, length: 4096, verify: Verify::Compare(SumKey(7)) },
        Request::ReadMap {
            view: None,
            offset: 4096,
            length: 4096,
            verify: Verify::Compare(SumKey(u128::MAX)),
        },
        Request::Dirty,
        Request::Ping,
        Request::Close,
        Request::SetEpoch(Epoch(12)),
        Request::Reconciled,
        Request::Prepare,
        Request::Seal,
        Request::ScrubMetadata { offset: 0, length: 64 << 20, alone: true },
        Request::ScrubMetadata { offset: 64 << 20, length: 4096, alone: false },
    ]
}

fn answers() -> Vec<(Op, Result<Reply, Refusal>)> {
    let (data, crcs) = data(3);
    let opened = Opened {
        instance: InstanceId::from_u128(4),
        boot: BootId::from_u128(5),
        epoch: Epoch(6),
        marks: Some(FlushMarks {
            flushed: FlushMark { generation: Generation(2), number: 9 },
            complete: FlushMark { generation: Generation(2), number: 8 },
        }),
        witnessed: Witnessed::RolledBack,
        size: 1 << 30,
        region: 4 << 20,
        lost_writes: true,
        dirty: vec![0, 5],
        snapshots: vec![info()],
        head_parent: Some(info().id),
    };
    let hello = HelloReply {
        version: 1,
        instance: opened.instance,
        boot: opened.boot,
        promised: Generation(2),
    };
    vec![
        (Op::Hello, Ok(Reply::Hello(hello))),
        (Op::Open, Ok(Reply::Opened(Box::new(opened)))),
        (Op::Write, Ok(Reply::Done)),
        (Op::Read, Ok(Reply::Data { data, crcs })),
        (Op::ReadMap, Ok(Reply::Map(vec![BlockState::Zero, BlockState::Data(3), BlockState::Bad]))),
        (Op::ReadMap, Ok(Reply::Map(vec![BlockState::Data(u128::MAX - 3), BlockState::Data(5)]))),
        (Op::Dirty, Ok(Reply::Dirty(vec![1, 9]))),
        (
            Op::Scrub,
            Ok(Reply::Damage(vec![
                DamagedBlock { snapshot: SnapshotId::from_u128(7), offset: 4096 },
                DamagedBlock { snapshot: SnapshotId::from_u128(1 << 90), offset: 1 << 40 },
            ])),
        ),
        (Op::Scrub, Ok(Reply::Damage(vec![]))),
        (Op::Repair, Ok(Reply::Done)),
        (
            Op::Ping,
            Ok(Reply::Pong(Pong {
                free_bytes: 1,
                used_bytes: 2,
                merging: 3,
                dirty_regions: 4,
                work: Some(WorkProgress {
                    kind: Work::Merge,
                    done_regions: 5,
                    total_regions: 6,
                    copied_bytes: 7,
                    stalled: false,
                }),
            })),
        ),
        (Op::ScrubMetadata, Ok(Reply::Metadata(MetadataReport::default()))),
        (
            Op::ScrubMetadata,
            Ok(Reply::Metadata(MetadataReport {
                repaired: 1,
                lost_pages: 2,
                left: vec![MetadataDamage {
                    file: "L0.data".into(),
                    fault: MetadataFault::Missing,
                }],
            })),
        ),
        (Op::Write, Err(Refusal::Fenced)),
        (Op::Read, Err(Refusal::BadChecksum)),
        (Op::Write, Err(Refusal::NoSpace)),
    ]
}

/// Feeds a frame in pieces of `step` bytes.
fn through(encoded: &Encoded, step: usize) -> Frame {
    let mut decoder = Decoder::default();
    let bytes: Vec<u8> = [&encoded.head[..], &encoded.body[..]].concat();
    assert_eq!(bytes.len(), encoded.len());
    let mut pieces = bytes.chunks(step).peekable();
    while let Some(piece) = pieces.next() {
        decoder.push(piece);
        let frame = decoder.next_frame().unwrap();
        if pieces.peek().is_none() {
            return frame.expect("all bytes are there");
        }
        assert_eq!(frame, None);
        assert!(decoder.missing() > 0);
    }
    unreachable!("a frame has bytes")
}

#[test]
fn calls_arrive_as_they_were_sent() {
    for (index, request) in requests().into_iter().enumerate() {
        let call =
            Call { id: index as u64, generation: Generation(7), seq: Seq(index as u64), request };
        let frame = through(&encode_call(&call), 61 + index);
        assert_eq!(frame.header.op, call.request.op());
        assert_eq!(decode_call(frame).unwrap(), call);
    }
}

#[test]
fn answers_arrive_as_they_were_sent() {
    for (index, (op, result)) in answers().into_iter().enumerate() {
        let answer = Answer { id: index as u64, generation: Generation(9), result };
        let frame = through(&encode_answer(op, &answer), 4096);
        assert_eq!(decode_answer(frame).unwrap(), answer);
    }
}

#[test]
fn data_is_not_copied_on_its_way_out() {
    let (data, crcs) = data(2);
    let request = Request::Write { offset: 0, data: data.clone(), crcs, fua: false };
    let call = Call { id: 1, generation: Generation(1), seq: Seq(1), request };
    assert_eq!(encode_call(&call).body.as_ptr(), data.as_ptr());
    assert_eq!(encode_call(&call).head.len(), HEADER + 8);
}

#[test]
fn a_flipped_bit_outside_of_the_data_is_noticed() {
    for request in requests() {
        let call = Call { id: 3, generation: Generation(2), seq: Seq(5), request };
        let encoded = encode_call(&call);
        let table = decode_table(&encoded);
        let whole: Vec<u8> = [&encoded.head[..], &encoded.body[..]].concat();
        let summed = if table > 0 { HEADER + table * 4 } else { whole.len() };
        for at in 0..summed {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            assert!(decoder.next_frame().is_err(), "{:?} byte {at}", call.request.op());
        }
    }
}

fn decode_table(encoded: &Encoded) -> usize {
    let header = Header::decode(encoded.head.first_chunk().unwrap()).unwrap();
    header.table as usize
}

#[test]
fn a_flipped_bit_in_the_data_is_found_by_its_checksum() {
    let (data, crcs) = data(3);
    assert_eq!(crcs.mismatch(&data), None);
    let mut bytes = data.to_vec();
    bytes[BLOCK as usize + 5] ^= 4;
    assert_eq!(crcs.mismatch(&bytes), Some(1));
    assert_eq!(crcs.mismatch(&bytes[..5]), Some(0));
}

#[test]
fn a_frame_that_claims_too_much_is_refused_before_its_payload() {
    let mut header = Header::new(Op::Write);
    header.payload = MAX_PAYLOAD + 1;
    let mut decoder = Decoder::default();
    decoder.push(&header.encode());
    assert_eq!(decoder.next_frame(), Err(WireError::TooLarge { found: MAX_PAYLOAD + 1 }));
}

#[test]
fn ranges_that_are_no_blocks_are_refused() {
    for (op, offset, length, field) in [
        (Op::Read, 1, 4096, "offset"),
        (Op::Read, 0, 100, "length"),
        (Op::Read, 0, 0, "length"),
        (Op::Read, u64::MAX - 4095, 8192, "offset"),
        (Op::Read, 0, MAX_DATA + 4096, "length"),
        (Op::Discard, 0, 0, "length"),
        (Op::Write, 0, 4096, "table"),
    ] {
        let mut header = Header::new(op);
        (header.offset, header.length) = (offset, length);
        let frame = Frame { header, payload: Bytes::new() };
        assert_eq!(decode_call(frame), Err(WireError::Field { op, field }), "{op:?} {offset}");
    }
}

fn arbitrary_header() -> impl Strategy<Value = (u8, u8, u16, u64, u64, u32, u32)> {
    (0u8..23, any::<u8>(), 0u16..14, any::<u64>(), any::<u64>(), any::<u32>(), 0u32..4)
}

proptest! {
    #[test]
    fn garbage_is_an_error_and_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        prop_assert!(!matches!(decoder.next_frame(), Ok(Some(_))));
    }

    #[test]
    fn garbage_behind_a_good_header_is_an_error_or_a_message(
        (op, flags, status, id, offset, length, table) in arbitrary_header(),
        payload in prop::collection::vec(any::<u8>(), 0..9000),
    ) {
        let mut bytes = Header::new(Op::Ping).encode();
        bytes[4] = op;
        bytes[5] = flags;
        bytes[6..8].copy_from_slice(&status.to_le_bytes());
        bytes[8..16].copy_from_slice(&id.to_le_bytes());
        bytes[32..40].copy_from_slice(&offset.to_le_bytes());
        bytes[40..44].copy_from_slice(&length.to_le_bytes());
        bytes[44..48].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes[48..52].copy_from_slice(&table.to_le_bytes());
        let summed = if table > 0 { (table as usize * 4).min(payload.len()) } else { payload.len() };
        bytes[52..56].copy_from_slice(&crate::checksum::crc32c(&payload[..summed]).to_le_bytes());
        let crc = crate::checksum::crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        decoder.push(&payload);
        if let Ok(Some(frame)) = decoder.next_frame() {
            let call = decode_call(frame.clone());
            let answer = decode_answer(frame);
            // It goes one way only, and a message that was understood can be sent on.
            prop_assert!(call.is_err() || answer.is_err());
            if let Ok(call) = call {
                prop_assert_eq!(decode_call(through(&encode_call(&call), 50_000)).unwrap(), call);
            }
        }
    }
}
