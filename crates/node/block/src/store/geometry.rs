//! Blocks and regions: the units in which a volume is stored.
//!
//! ```text
//! volume   |0      2 MiB   |4 MiB   ...            a multiple of 4 KiB long
//! regions  |   0   |   1   |   2   ...             512 blocks each
//! blocks   |0 … 511|512 …  |                       4 KiB each
//! ```
//!
//! A *block* is the unit of presence and of checksums. A *region* is the unit of the
//! dirty-region log, of a page of the map, and of the locks between guests and background work.
//! It is as large as a block of a Longhorn backup, so a backup's difference is a list of regions.

/// Bytes in a block.
pub const BLOCK: u64 = 4096;

/// Blocks in a region.
pub const REGION_BLOCKS: u32 = 512;

/// Bytes in a region.
pub const REGION: u64 = BLOCK * REGION_BLOCKS as u64;

/// The largest volume: the limit of both a region number of 32 bits and a file of ext4.
pub const MAX_VOLUME: u64 = 15 << 40;

/// The largest single read or write. Larger ones are split by the caller.
pub const MAX_REQUEST: u64 = 32 << 20;

/// The number of a region, counted from the start of the volume.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Region(pub u32);

impl Region {
    /// The region that holds the byte at `offset`.
    pub fn of(offset: u64) -> Self {
        Self(u32::try_from(offset / REGION).expect("a volume has less than 2^32 regions"))
    }

    /// Where the region begins, in bytes of the volume.
    pub fn start(self) -> u64 {
        u64::from(self.0) * REGION
    }

    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// How many regions a volume of `size` bytes has.
pub fn region_count(size: u64) -> u32 {
    u32::try_from(size.div_ceil(REGION)).expect("a volume has less than 2^32 regions")
}

/// A run of blocks inside one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub region: Region,
    /// The first block, counted from the start of the region.
    pub first: u32,
    pub count: u32,
}

impl Span {
    /// The whole region.
    pub fn whole(region: Region) -> Self {
        Self { region, first: 0, count: REGION_BLOCKS }
    }

    /// Where the span begins, in bytes of the volume.
    pub fn start(self) -> u64 {
        self.region.start() + u64::from(self.first) * BLOCK
    }

    /// One past the last block.
    pub fn end(self) -> u32 {
        self.first + self.count
    }

    pub fn bytes(self) -> u64 {
        u64::from(self.count) * BLOCK
    }
}

/// Cuts an aligned range of bytes at the borders of regions.
pub fn spans(offset: u64, len: u64) -> impl Iterator<Item = Span> + Clone {
    debug_assert!(offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK));
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let region = Region::of(at);
        let stop = end.min(region.start() + REGION);
        let span = Span {
            region,
            first: u32::try_from((at - region.start()) / BLOCK).expect("within a region"),
            count: u32::try_from((stop - at) / BLOCK).expect("within a region"),
        };
        at = stop;
        Some(span)
    })
}

/// A set of the 512 blocks of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks(pub [u64; 8]);

impl Blocks {
    pub const NONE: Self = Self([0; 8]);

    pub fn of(first: u32, count: u32) -> Self {
        debug_assert!(first + count <= REGION_BLOCKS);
        let mut set = Self::NONE;
        for (index, word) in set.0.iter_mut().enumerate() {
            let base = index as u32 * 64;
            let from = first.clamp(base, base + 64) - base;
            let to = (first + count).clamp(base, base + 64) - base;
            if from < to {
                let ones = if to - from == 64 { u64::MAX } else { (1 << (to - from)) - 1 };
                *word = ones << from;
            }
        }
        set
    }

    pub fn contains(&self, block: u32) -> bool {
        self.0[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; 8]
    }

    pub fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The first block at or after `from` that is in the set.
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut at = from;
        while at < REGION_BLOCKS {
            let word = self.0[(at / 64) as usize] >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The runs of neighbouring blocks, in order: first block and count.
    pub fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next(at)?;
            let mut end = first + 1;
            while end < REGION_BLOCKS && self.contains(end) {
                end += 1;
            }
            at = end;
            Some((first, end - first))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_the_borders_of_regions() {
        let cut = |offset, len| {
            spans(offset, len).map(|s| (s.region.0, s.first, s.count)).collect::<Vec<_>>()
        };
        assert_eq!(cut(0, BLOCK), [(0, 0, 1)]);
        assert_eq!(cut(REGION - BLOCK, 2 * BLOCK), [(0, 511, 1), (1, 0, 1)]);
        assert_eq!(cut(BLOCK, 2 * REGION), [(0, 1, 511), (1, 0, 512), (2, 0, 1)]);
        assert_eq!(cut(BLOCK, 0), []);
    }

    #[test]
    fn sets_of_blocks_agree_with_a_list() {
        for (first, count) in [(0, 0), (0, 1), (63, 2), (0, 512), (64, 64), (500, 12), (1, 130)] {
            let set = Blocks::of(first, count);
            let list: Vec<u32> = (0..512).filter(|b| set.contains(*b)).collect();
            assert_eq!(list, (first..first + count).collect::<Vec<_>>());
            assert_eq!(set.len(), count);
            let runs: Vec<_> = set.runs().collect();
            assert_eq!(runs, if count == 0 { vec![] } else { vec![(first, count)] });
        }
    }

    #[test]
    fn runs_are_maximal() {
        let set = Blocks::of(0, 3).or(&Blocks::of(62, 4)).or(&Blocks::of(511, 1));
        assert_eq!(set.runs().collect::<Vec<_>>(), [(0, 3), (62, 4), (511, 1)]);
    }
}
