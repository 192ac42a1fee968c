//! Checksums of consecutive blocks.

use std::sync::Arc;

use super::BLOCK;
use crate::checksum::crc32c;

/// The crc32c of each 4 KiB block of some data.
///
/// Cloned once for every replica that a write goes to, so sharing must be cheap; most writes
/// are of one block, which needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crcs {
    One(u32),
    Many(Arc<[u32]>),
}

impl Crcs {
    /// Sums `data`, whose length is a multiple of the block.
    pub fn of(data: &[u8]) -> Self {
        debug_assert!((data.len() as u64).is_multiple_of(BLOCK));
        if data.len() as u64 == BLOCK {
            return Self::One(crc32c(data));
        }
        data.chunks(BLOCK as usize).map(crc32c).collect()
    }

    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::One(crc) => std::slice::from_ref(crc),
            Self::Many(crcs) => crcs,
        }
    }

    /// The first block of `data` that is not what was summed.
    pub fn mismatch(&self, data: &[u8]) -> Option<usize> {
        if data.len() as u64 != self.len() as u64 * BLOCK {
            return Some(0);
        }
        let blocks = data.chunks(BLOCK as usize).zip(self.as_slice());
        blocks.enumerate().find(|(_, (block, crc))| crc32c(block) != **crc).map(|(i, _)| i)
    }
}

impl FromIterator<u32> for Crcs {
    fn from_iter<I: IntoIterator<Item = u32>>(crcs: I) -> Self {
        let crcs: Arc<[u32]> = crcs.into_iter().collect();
        match *crcs {
            [one] => Self::One(one),
            _ => Self::Many(crcs),
        }
    }
}
