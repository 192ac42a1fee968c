//! Payloads that are not data: lists, maps of blocks, and documents.
//!
//! Messages that are sent once per session or once per snapshot are JSON, so that a field can be
//! added without a new version; frequent ones are binary.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BLOCK, BlockState, Crcs, DamagedBlock, Op, Verify, WireError};
use crate::checksum::SumKey;
use crate::ids::SnapshotId;

/// Bytes of the id of a snapshot.
const ID: usize = 16;

pub(super) fn document<T: Serialize>(value: &T) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("our documents have string keys only"))
}

pub(super) fn parse<T: DeserializeOwned>(op: Op, bytes: &[u8]) -> Result<T, WireError> {
    serde_json::from_slice(bytes).map_err(|_| WireError::Field { op, field: "payload" })
}

pub(super) fn numbers(list: &[u32]) -> Bytes {
    let mut out = BytesMut::with_capacity(list.len() * 4);
    list.iter().for_each(|number| out.put_u32_le(*number));
    out.freeze()
}

pub(super) fn parse_numbers(op: Op, bytes: &[u8]) -> Result<Vec<u32>, WireError> {
    if !bytes.len().is_multiple_of(4) {
        return Err(WireError::Field { op, field: "payload" });
    }
    let numbers = bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
    Ok(numbers.collect())
}

pub(super) fn view(view: Option<SnapshotId>) -> Bytes {
    match view {
        Some(id) => Bytes::copy_from_slice(&id.as_u128().to_le_bytes()),
        None => Bytes::new(),
    }
}

pub(super) fn parse_snapshot(op: Op, bytes: &[u8]) -> Result<SnapshotId, WireError> {
    let bytes = bytes.try_into().map_err(|_| WireError::Field { op, field: "snapshot" })?;
    Ok(SnapshotId::from_u128(u128::from_le_bytes(bytes)))
}

/// The view that a map covers, and the key that its blocks are summed with.
pub(super) fn view_and_key(snapshot: Option<SnapshotId>, verify: Verify) -> Bytes {
    let Some(key) = verify.key() else { return view(snapshot) };
    let mut out = BytesMut::from(&view(snapshot)[..]);
    out.put_u128_le(key.0);
    out.freeze()
}

pub(super) fn split_key(
    op: Op,
    bytes: &[u8],
    keyed: bool,
) -> Result<(&[u8], Option<SumKey>), WireError> {
    if !keyed {
        return Ok((bytes, None));
    }
    let (view, key) = bytes.split_last_chunk().ok_or(WireError::Field { op, field: "key" })?;
    Ok((view, Some(SumKey(u128::from_le_bytes(*key)))))
}

/// A snapshot, checksums, and the blocks that they are of. Not often sent: it is copied, and summed
/// as a whole.
pub(super) fn repair(snapshot: SnapshotId, crcs: &Crcs, data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(ID + crcs.as_slice().len() * 4 + data.len());
    out.put_u128_le(snapshot.as_u128());
    crcs.as_slice().iter().for_each(|crc| out.put_u32_le(*crc));
    out.put_slice(data);
    out.freeze()
}

pub(super) fn parse_repair(
    op: Op,
    length: u32,
    mut bytes: Bytes,
) -> Result<(SnapshotId, Crcs, Bytes), WireError> {
    let table = (u64::from(length) / BLOCK) as usize * 4;
    if bytes.len() != ID + table + length as usize {
        return Err(WireError::Field { op, field: "payload" });
    }
    let snapshot = parse_snapshot(op, &bytes.split_to(ID))?;
    let crcs = parse_numbers(op, &bytes.split_to(table))?;
    Ok((snapshot, crcs.into_iter().collect(), bytes))
}

pub(super) fn damage(blocks: &[DamagedBlock]) -> Bytes {
    let mut out = BytesMut::with_capacity(blocks.len() * (ID + 8));
    for block in blocks {
        out.put_u128_le(block.snapshot.as_u128());
        out.put_u64_le(block.offset);
    }
    out.freeze()
}

pub(super) fn parse_damage(op: Op, mut bytes: &[u8]) -> Result<Vec<DamagedBlock>, WireError> {
    if !bytes.len().is_multiple_of(ID + 8) {
        return Err(WireError::Field { op, field: "payload" });
    }
    let mut blocks = Vec::with_capacity(bytes.len() / (ID + 8));
    while bytes.has_remaining() {
        let snapshot = SnapshotId::from_u128(bytes.get_u128_le());
        blocks.push(DamagedBlock { snapshot, offset: bytes.get_u64_le() });
    }
    Ok(blocks)
}

/// One byte per block, then the sums of those that have data, in order: 4 bytes each if that is
/// enough for all of them, 16 if not.
pub(super) fn map(blocks: &[BlockState]) -> Bytes {
    let is_long =
        |block: &BlockState| matches!(block, BlockState::Data(sum) if *sum > u128::from(u32::MAX));
    let long = blocks.iter().any(is_long);
    let mut out = BytesMut::with_capacity(blocks.len() * if long { 17 } else { 5 });
    for block in blocks {
        out.put_u8(match block {
            BlockState::Zero => 0,
            BlockState::Data(_) => 1,
            BlockState::Bad => 2,
        });
    }
    for block in blocks {
        match block {
            BlockState::Data(sum) if long => out.put_u128_le(*sum),
            BlockState::Data(sum) => out.put_u32_le(*sum as u32),
            BlockState::Zero | BlockState::Bad => {}
        }
    }
    out.freeze()
}

pub(super) fn parse_map(op: Op, blocks: usize, bytes: &[u8]) -> Result<Vec<BlockState>, WireError> {
    let bad = WireError::Field { op, field: "map" };
    if bytes.len() < blocks {
        return Err(bad);
    }
    let (kinds, sums) = bytes.split_at(blocks);
    let count = kinds.iter().filter(|kind| **kind == 1).count();
    let width = match sums.len() {
        len if len == count * 4 => 4,
        len if len == count * 16 => 16,
        _ => return Err(bad),
    };
    let number = |sum: &[u8]| sum.iter().rev().fold(0, |sum, byte| sum << 8 | u128::from(*byte));
    let mut sums = sums.chunks_exact(width).map(number);
    let mut out = Vec::with_capacity(blocks);
    for kind in kinds {
        out.push(match kind {
            0 => BlockState::Zero,
            1 => BlockState::Data(sums.next().ok_or_else(|| bad.clone())?),
            2 => BlockState::Bad,
            _ => return Err(bad),
        });
    }
    Ok(out)
}
