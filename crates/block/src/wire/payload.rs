//! Payloads that are not data: lists, maps of blocks, and documents.
//!
//! What is sent once per session or once per snapshot is JSON, so that a field can be added
//! without a new version; what is sent often is binary.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{BlockState, Op, WireError};
use crate::ids::SnapshotId;

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

/// One byte per block, then the checksums of those that have data, in order.
pub(super) fn map(blocks: &[BlockState]) -> Bytes {
    let mut out = BytesMut::with_capacity(blocks.len() * 5);
    for block in blocks {
        out.put_u8(match block {
            BlockState::Zero => 0,
            BlockState::Data(_) => 1,
            BlockState::Bad => 2,
        });
    }
    for block in blocks {
        if let BlockState::Data(crc) = block {
            out.put_u32_le(*crc);
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
    let sums = parse_numbers(op, sums)?;
    let mut sums = sums.into_iter();
    let mut out = Vec::with_capacity(blocks);
    for kind in kinds {
        out.push(match kind {
            0 => BlockState::Zero,
            1 => BlockState::Data(sums.next().ok_or_else(|| bad.clone())?),
            2 => BlockState::Bad,
            _ => return Err(bad),
        });
    }
    if sums.next().is_some() {
        return Err(bad);
    }
    Ok(out)
}
