//! Maps: which blocks a layer has, and their checksums.
//!
//! The file `L<n>.map` has two slots of 4 KiB for each region, at *region × 8 KiB*. A page is
//! written to the slot *sequence mod 2*, so that the last durable version survives a torn write.
//! When its region becomes inactive, the other slot gets a copy. Which version counts, and
//! whether there is one at all, is in the index: see [`super::index`].
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SMAP` |
//! | 4 | 4 | CRC-32C of the page, with this field zero |
//! | 8 | 8 | sequence of the page, from 1 |
//! | 16 | 4 | number of the file |
//! | 20 | 4 | region |
//! | 24 | 8 | tag of the replica |
//! | 32 | 2 | format version: 1, or 2 with the next field and the last |
//! | 40 | 8 | number of the clean that wrote it |
//! | 64 | 64 | bit per block: has data, in the data file at the block's offset in the volume |
//! | 128 | 64 | bit per block: is zeroes, whatever is below |
//! | 192 | 2048 | CRC-32C of each block that has data |
//! | 2240 | 64 | bit per block: lost, because a page before this one was damaged |
//!
//! A page on disk never claims a block whose data was not durable before. Its checksums count
//! only while the region is not active in the log: see [`super::region`].

use super::bytes_at::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use super::crc::crc32c;
use super::files::FileNo;
use super::geometry::{Blocks, REGION_BLOCKS, Region};
use super::index::Entry;
use crate::checksum::crc32c_of_page;

pub const PAGE: usize = 4096;
/// Both slots of a region.
pub const PAIR: u64 = 2 * PAGE as u64;
const MAGIC: u32 = u32::from_le_bytes(*b"SMAP");
const VERSION: u16 = 2;
/// Without the number of the clean and lost blocks.
const FIRST_VERSION: u16 = 1;
const LOST: usize = 192 + 4 * REGION_BLOCKS as usize;

/// Which blocks of a region a layer has. The sets are disjoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    pub data: Blocks,
    pub zero: Blocks,
    /// Unknown: the metadata was damaged. The log has no field for them: a block is lost until it
    /// is one of the others.
    pub lost: Blocks,
}

impl Presence {
    pub fn new(data: Blocks, zero: Blocks) -> Self {
        Self { data, zero, lost: Blocks::NONE }
    }

    /// Nothing is known about any block.
    pub(crate) fn all_lost() -> Self {
        Self { lost: Blocks::of(0, REGION_BLOCKS), ..Self::default() }
    }

    /// The newer presence of a page, as the log or a record of recent changes has it, with the
    /// blocks of the page that are still lost.
    #[must_use]
    pub(crate) fn over(self, page: Option<&MapPage>) -> Self {
        let lost = page.map_or(Blocks::NONE, |page| page.presence.lost);
        Self { lost: lost.without(&self.data.or(&self.zero)), ..self }
    }

    /// Blocks that do not show what is below.
    pub fn any(&self) -> Blocks {
        self.data.or(&self.zero).or(&self.lost)
    }

    pub fn set_data(&mut self, blocks: &Blocks) {
        self.data = self.data.or(blocks);
        self.zero = self.zero.without(blocks);
        self.lost = self.lost.without(blocks);
    }

    pub fn set_zero(&mut self, blocks: &Blocks) {
        self.data = self.data.without(blocks);
        self.zero = self.zero.or(blocks);
        self.lost = self.lost.without(blocks);
    }

    /// Lost blocks become zeroes: the log could not say that they are no longer lost.
    pub fn set_vacant(&mut self, blocks: &Blocks) {
        let lost = self.lost.and(blocks);
        self.data = self.data.without(blocks);
        self.zero = self.zero.without(blocks);
        self.set_zero(&lost);
    }

    pub fn is_sane(&self) -> bool {
        self.data.and(&self.zero).is_empty() && self.data.or(&self.zero).and(&self.lost).is_empty()
    }
}

/// The layer and region that a page belongs to.
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
    /// The clean that wrote it.
    pub clean: u64,
    /// Of the page.
    pub crc: u32,
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

pub fn encode(owner: Owner, seq: u64, clean: u64, presence: &Presence, crcs: &Crcs) -> Vec<u8> {
    debug_assert!(seq > 0 && presence.is_sane());
    let mut page = vec![0; PAGE];
    put_u32(&mut page, 0, MAGIC);
    put_u64(&mut page, 8, seq);
    put_u32(&mut page, 16, owner.file.0);
    put_u32(&mut page, 20, owner.region.0);
    put_u64(&mut page, 24, owner.tag);
    put_u16(&mut page, 32, VERSION);
    put_u64(&mut page, 40, clean);
    for i in 0..8 {
        put_u64(&mut page, LOST + i * 8, presence.lost.0[i]);
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

/// The checksum of an encoded page.
pub(crate) fn crc_of(page: &[u8]) -> u32 {
    get_u32(page, 4)
}

/// The content of one slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Slot {
    Blank,
    Valid(Box<MapPage>),
    Invalid,
}

/// Reads one slot.
pub fn decode_slot(page: &[u8], owner: Owner) -> Slot {
    if page.iter().all(|byte| *byte == 0) {
        return Slot::Blank;
    }
    let version = get_u16(page, 32);
    let whole = get_u32(page, 0) == MAGIC
        && crc32c_of_page(page) == get_u32(page, 4)
        && (version == VERSION || version == FIRST_VERSION);
    let seq = get_u64(page, 8);
    let ours = get_u32(page, 16) == owner.file.0
        && get_u32(page, 20) == owner.region.0
        && get_u64(page, 24) == owner.tag;
    if !whole || !ours || seq == 0 {
        return Slot::Invalid;
    }
    let words = |at: usize| Blocks(std::array::from_fn(|i| get_u64(page, at + i * 8)));
    let mut presence = Presence::new(words(64), words(128));
    let mut clean = 0;
    if version == VERSION {
        clean = get_u64(page, 40);
        presence.lost = words(LOST);
    }
    if !presence.is_sane() {
        return Slot::Invalid;
    }
    let mut crcs = no_crcs();
    for (i, crc) in crcs.iter_mut().enumerate() {
        *crc = get_u32(page, 192 + i * 4);
    }
    Slot::Valid(Box::new(MapPage { seq, clean, crc: crc_of(page), presence, crcs }))
}

/// The valid pages of a pair of slots.
pub(crate) fn decode_slots(pair: &[u8], owner: Owner) -> [Option<MapPage>; 2] {
    let (first, second) = pair.split_at(PAGE);
    [first, second].map(|slot| match decode_slot(slot, owner) {
        Slot::Valid(page) => Some(*page),
        Slot::Blank | Slot::Invalid => None,
    })
}

/// The page that an index names.
pub(crate) fn find(pair: &[u8], owner: Owner, entry: Entry) -> Option<MapPage> {
    let slots = decode_slots(pair, owner).into_iter().flatten();
    slots.into_iter().find(|page| Entry::of(page) == entry)
}

/// Which slots hold neither the version that counts nor the one before or after it.
pub(crate) fn damaged_slots(pair: &[u8], owner: Owner, seq: u64) -> [bool; 2] {
    let (first, second) = pair.split_at(PAGE);
    [first, second].map(|slot| match decode_slot(slot, owner) {
        Slot::Valid(other) => other.seq < seq.saturating_sub(1),
        Slot::Blank => seq > 1,
        Slot::Invalid => true,
    })
}

/// The newest page of a region that was being written: not older than the one that the index
/// names.
pub(crate) fn find_newest(pair: &[u8], owner: Owner, entry: Option<Entry>) -> Option<MapPage> {
    let counts = |page: &MapPage| {
        let found = Entry::of(page);
        entry.is_none_or(|entry| found == entry || found.seq > entry.seq)
    };
    let slots = decode_slots(pair, owner).into_iter().flatten();
    slots.filter(counts).max_by_key(|page| page.seq)
}

/// The state of a region by its pair of slots, if there is no index.
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
    match (decode_slot(first, owner), decode_slot(second, owner)) {
        (Slot::Blank, Slot::Blank) => Pair::Blank,
        (Slot::Valid(a), Slot::Valid(b)) => {
            let (old, new) = if a.seq < b.seq { (a, b) } else { (b, a) };
            // Versions follow each other; a gap means that one was never written.
            if old.seq + 1 == new.seq || old == new {
                Pair::Page(*new)
            } else {
                Pair::Damaged { older: Some(*new) }
            }
        }
        // The first version is alone; any later one has a predecessor.
        (Slot::Blank, Slot::Valid(page)) if page.seq == 1 => Pair::Page(*page),
        (Slot::Valid(page), _) | (_, Slot::Valid(page)) => Pair::Damaged { older: Some(*page) },
        (Slot::Invalid, _) | (_, Slot::Invalid) => Pair::Damaged { older: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { tag: 7, file: FileNo(3), region: Region(9) };

    fn page(seq: u64) -> Vec<u8> {
        let presence = Presence::new(Blocks::of(0, seq as u32), Blocks::of(100, 1));
        let mut crcs = no_crcs();
        crcs[0] = 77;
        encode(OWNER, seq, 5, &presence, &crcs)
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

    #[test]
    fn the_page_that_the_index_names_is_found_in_either_slot() {
        let [two, one] = decode_slots(&pair(Some(2), Some(1)), OWNER).map(Option::unwrap);
        let (entry, before) = (Entry::of(&two), Entry::of(&one));
        let named = |a, b, entry| find(&pair(a, b), OWNER, entry).map(|page| page.seq);
        assert_eq!(named(Some(2), Some(1), entry), Some(2));
        assert_eq!(named(None, Some(2), entry), Some(2), "a copy");
        for (a, b) in [(None, None), (None, Some(1)), (Some(4), Some(3))] {
            assert_eq!(named(a, b, entry), None, "{a:?} {b:?}");
        }
        let newest = |a, b, entry| find_newest(&pair(a, b), OWNER, entry).map(|page| page.seq);
        assert_eq!(newest(Some(2), Some(3), Some(entry)), Some(3));
        assert_eq!(newest(Some(2), Some(1), Some(before)), Some(2));
        assert_eq!(newest(None, Some(1), Some(entry)), None, "an older one does not count");
        assert_eq!(newest(None, Some(1), None), Some(1));
    }

    #[test]
    fn a_page_of_the_first_version_has_no_lost_blocks() {
        let mut bytes = page(3);
        put_u16(&mut bytes, 32, FIRST_VERSION);
        put_u64(&mut bytes, 40, 0);
        put_u32(&mut bytes, 4, 0);
        let crc = crc32c(&bytes);
        put_u32(&mut bytes, 4, crc);
        let Slot::Valid(found) = decode_slot(&bytes, OWNER) else { panic!("it is valid") };
        assert_eq!((found.seq, found.clean, found.presence.lost), (3, 0, Blocks::NONE));
    }
}
