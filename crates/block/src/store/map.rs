//! Maps: which blocks a layer has, and their checksums.
//!
//! The file `L<n>.map` has two slots of 4 KiB for each region, at *region × 8 KiB*. A page is
//! written to the slot *sequence mod 2*, so that the last durable version survives a torn write.
//! Slots that were never written are zeroes (mostly holes) and mean that the layer has nothing
//! of the region.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SMAP` |
//! | 4 | 4 | CRC-32C of the page, with this field zero |
//! | 8 | 8 | sequence of the page, from 1 |
//! | 16 | 4 | number of the file |
//! | 20 | 4 | region |
//! | 24 | 8 | tag of the replica |
//! | 32 | 2 | format version |
//! | 64 | 64 | bit per block: has data, in the data file at the block's offset in the volume |
//! | 128 | 64 | bit per block: is zeroes, whatever is below |
//! | 192 | 2048 | CRC-32C of each block that has data |
//!
//! A page on disk never claims a block whose data was not durable before. Its checksums count
//! only while the region is not active in the log: see [`super::region`].

use super::bytes_at::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use super::crc::crc32c;
use super::files::FileNo;
use super::geometry::{Blocks, REGION_BLOCKS, Region};
use crate::checksum::crc32c_of_page;

pub const PAGE: usize = 4096;
/// Both slots of a region.
pub const PAIR: u64 = 2 * PAGE as u64;
const MAGIC: u32 = u32::from_le_bytes(*b"SMAP");
const VERSION: u16 = 1;

/// Which blocks of a region a layer has. The two sets are disjoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    pub data: Blocks,
    pub zero: Blocks,
}

impl Presence {
    /// Blocks that do not show what is below.
    pub fn any(&self) -> Blocks {
        self.data.or(&self.zero)
    }

    pub fn set_data(&mut self, blocks: &Blocks) {
        self.data = self.data.or(blocks);
        self.zero = self.zero.without(blocks);
    }

    pub fn set_zero(&mut self, blocks: &Blocks) {
        self.data = self.data.without(blocks);
        self.zero = self.zero.or(blocks);
    }

    pub fn set_vacant(&mut self, blocks: &Blocks) {
        self.data = self.data.without(blocks);
        self.zero = self.zero.without(blocks);
    }

    pub fn is_sane(&self) -> bool {
        self.data.and(&self.zero).is_empty()
    }
}

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub tag: u64,
    pub file: FileNo,
    pub region: Region,
}

pub type Crcs = [u32; REGION_BLOCKS as usize];

/// A page as it is on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct MapPage {
    pub seq: u64,
    pub presence: Presence,
    pub crcs: Box<Crcs>,
}

pub(crate) fn no_crcs() -> Box<Crcs> {
    Box::new([0; REGION_BLOCKS as usize])
}

/// Where a version of a page is written.
pub fn offset(region: Region, seq: u64) -> u64 {
    u64::from(region.0) * PAIR + (seq % 2) * PAGE as u64
}

pub fn encode(owner: Owner, seq: u64, presence: &Presence, crcs: &Crcs) -> Vec<u8> {
    debug_assert!(seq > 0 && presence.is_sane());
    let mut page = vec![0; PAGE];
    put_u32(&mut page, 0, MAGIC);
    put_u64(&mut page, 8, seq);
    put_u32(&mut page, 16, owner.file.0);
    put_u32(&mut page, 20, owner.region.0);
    put_u64(&mut page, 24, owner.tag);
    put_u16(&mut page, 32, VERSION);
    for i in 0..8 {
        put_u64(&mut page, 64 + i * 8, presence.data.0[i]);
        put_u64(&mut page, 128 + i * 8, presence.zero.0[i]);
    }
    for (i, crc) in crcs.iter().enumerate() {
        put_u32(&mut page, 192 + i * 4, *crc);
    }
    let crc = crc32c(&page);
    put_u32(&mut page, 4, crc);
    page
}

/// What is in one slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    Blank,
    Valid(MapPage),
    Invalid,
}

/// Reads one slot; `index` is its position in the pair.
pub fn decode_slot(page: &[u8], owner: Owner, index: u64) -> Slot {
    if page.iter().all(|byte| *byte == 0) {
        return Slot::Blank;
    }
    let whole = get_u32(page, 0) == MAGIC
        && crc32c_of_page(page) == get_u32(page, 4)
        && get_u16(page, 32) == VERSION;
    let seq = get_u64(page, 8);
    let ours = get_u32(page, 16) == owner.file.0
        && get_u32(page, 20) == owner.region.0
        && get_u64(page, 24) == owner.tag;
    if !whole || !ours || seq == 0 || seq % 2 != index {
        return Slot::Invalid;
    }
    let words = |at: usize| Blocks(std::array::from_fn(|i| get_u64(page, at + i * 8)));
    let presence = Presence { data: words(64), zero: words(128) };
    if !presence.is_sane() {
        return Slot::Invalid;
    }
    let mut crcs = no_crcs();
    for (i, crc) in crcs.iter_mut().enumerate() {
        *crc = get_u32(page, 192 + i * 4);
    }
    Slot::Valid(MapPage { seq, presence, crcs })
}

/// What a pair of slots says about a region.
#[derive(Clone, Debug, PartialEq)]
pub enum Pair {
    /// The layer has nothing here.
    Blank,
    Page(MapPage),
    /// A version is lost, perhaps the newest. `older` is the one that is left.
    Damaged {
        older: Option<MapPage>,
    },
}

/// Reads both slots of a region.
pub fn decode_pair(pair: &[u8], owner: Owner) -> Pair {
    let (first, second) = pair.split_at(PAGE);
    match (decode_slot(first, owner, 0), decode_slot(second, owner, 1)) {
        (Slot::Blank, Slot::Blank) => Pair::Blank,
        (Slot::Valid(a), Slot::Valid(b)) => {
            let (old, new) = if a.seq < b.seq { (a, b) } else { (b, a) };
            // Versions follow each other; a gap means that one was never written.
            if old.seq + 1 == new.seq {
                Pair::Page(new)
            } else {
                Pair::Damaged { older: Some(new) }
            }
        }
        // The first version is alone; any later one has a predecessor.
        (Slot::Blank, Slot::Valid(page)) if page.seq == 1 => Pair::Page(page),
        (Slot::Valid(page), _) | (_, Slot::Valid(page)) => Pair::Damaged { older: Some(page) },
        (Slot::Invalid, _) | (_, Slot::Invalid) => Pair::Damaged { older: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { tag: 7, file: FileNo(3), region: Region(9) };

    fn page(seq: u64) -> Vec<u8> {
        let presence = Presence { data: Blocks::of(0, seq as u32), zero: Blocks::of(100, 1) };
        let mut crcs = no_crcs();
        crcs[0] = 77;
        encode(OWNER, seq, &presence, &crcs)
    }

    fn pair(a: Option<u64>, b: Option<u64>) -> Vec<u8> {
        [a, b].iter().flat_map(|seq| seq.map_or(vec![0; PAGE], page)).collect()
    }

    #[test]
    fn the_newer_slot_counts() {
        for (a, b, newest) in [(None, Some(1), 1), (Some(2), Some(1), 2), (Some(2), Some(3), 3)] {
            let Pair::Page(found) = decode_pair(&pair(a, b), OWNER) else { panic!("{a:?} {b:?}") };
            assert_eq!(found.seq, newest);
            assert_eq!(found.presence.data, Blocks::of(0, newest as u32));
            assert_eq!(found.crcs[0], 77);
        }
        assert_eq!(decode_pair(&pair(None, None), OWNER), Pair::Blank);
    }

    #[test]
    fn a_lost_version_is_damage_not_an_older_truth() {
        let mut torn = pair(Some(2), Some(3));
        torn[PAGE + 300] ^= 1;
        assert!(
            matches!(decode_pair(&torn, OWNER), Pair::Damaged { older: Some(page) } if page.seq == 2)
        );
        for (a, b) in [(Some(2), None), (None, Some(3)), (Some(2), Some(5))] {
            assert!(matches!(decode_pair(&pair(a, b), OWNER), Pair::Damaged { .. }), "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_page_of_another_place_is_not_taken() {
        let bytes = pair(Some(2), Some(1));
        for other in [
            Owner { tag: 8, ..OWNER },
            Owner { file: FileNo(4), ..OWNER },
            Owner { region: Region(8), ..OWNER },
        ] {
            assert_eq!(decode_pair(&bytes, other), Pair::Damaged { older: None });
        }
    }
}
