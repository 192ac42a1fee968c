//! Pages of maps in memory: a bounded number of them, found without allocation.
//!
//! A page has three versions of its presence:
//!
//! ```text
//! current ──flush begins──► target ──log is durable──► committed ──clean──► on disk
//! ```
//!
//! Reads see `current`. Only `committed` is ever written to the map, so that a page on disk
//! never claims data that is not durable. A page that is not `committed` or not on disk, or that
//! is pinned by something in flight, is not thrown out; such pages belong to active regions,
//! of which there is a bounded number.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::files::FileId;
use super::geometry::Region;
use super::index::Entry;
use super::map::{Crcs, MapPage, Presence, no_crcs};

/// Names a page: a map file and a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PageKey {
    pub file: FileId,
    pub region: Region,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub key: PageKey,
    /// The version on disk; zero if there is none.
    pub seq: u64,
    /// The clean that wrote it.
    pub clean: u64,
    pub current: Presence,
    pub target: Presence,
    pub committed: Presence,
    pub crcs: Box<Crcs>,
    /// Counts changes that a clean must write.
    pub version: u32,
    /// The version that is on disk.
    pub written: u32,
    pub pins: u32,
    /// `current` has changed since the last flush began.
    pub changed: bool,
    /// A flush is on its way to commit `target`.
    pub flushing: bool,
    /// Blocks of data that a lost page had: they are taken off the layer's count when something
    /// is known about the page again.
    pub lost_blocks: u16,
    /// Its checksums are needed for a record in the file `sums`.
    pub unsummed: bool,
    /// A write of it cannot fail for lack of space.
    pub allocated: bool,
    used: bool,
}

impl Page {
    fn new(key: PageKey, page: Option<MapPage>) -> Self {
        let (seq, clean, presence, crcs) = match page {
            Some(page) => (page.seq, page.clean, page.presence, page.crcs),
            None => (0, 0, Presence::default(), no_crcs()),
        };
        Self {
            key,
            seq,
            clean,
            current: presence,
            target: presence,
            committed: presence,
            crcs,
            version: 0,
            written: 0,
            pins: 0,
            changed: false,
            flushing: false,
            lost_blocks: 0,
            unsummed: false,
            // A page that was written before has its space allocated.
            allocated: seq > 1,
            used: true,
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.version != self.written || self.changed || self.flushing
    }
}

/// Information about a page that needs no read from disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The layer has nothing of the region.
    Blank,
    Cached(PageIndex),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageIndex(u32);

#[derive(Debug)]
pub(crate) struct Cache {
    pages: Vec<Option<Page>>,
    free: Vec<u32>,
    index: HashMap<PageKey, PageIndex, BuildHasherDefault<KeyHasher>>,
    blanks: BTreeMap<FileId, Blanks>,
    limit: usize,
    hand: usize,
}

impl Cache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            pages: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            blanks: BTreeMap::new(),
            limit,
            hand: 0,
        }
    }

    pub(crate) fn known(&mut self, key: PageKey) -> Known {
        if let Some(&index) = self.index.get(&key) {
            self.page_mut(index).used = true;
            return Known::Cached(index);
        }
        if self.blanks.get(&key.file).is_some_and(|blanks| blanks.is_blank(key.region)) {
            return Known::Blank;
        }
        Known::Unknown
    }

    /// A page in memory for certain: it was just found, or is pinned.
    pub(crate) fn page(&self, index: PageIndex) -> &Page {
        self.pages[index.0 as usize].as_ref().expect("an index names a page")
    }

    pub(crate) fn page_mut(&mut self, index: PageIndex) -> &mut Page {
        self.pages[index.0 as usize].as_mut().expect("an index names a page")
    }

    /// A file that was just created has nothing.
    pub(crate) fn add_fresh(&mut self, map: FileId) {
        self.blanks.insert(map, Blanks { fresh: true, chunks: BTreeMap::new() });
    }

    pub(crate) fn set_blank(&mut self, key: PageKey) {
        self.blanks.entry(key.file).or_default().set(key.region, Fact::Blank);
        self.trim_blanks();
    }

    /// Brings in a page that is damaged on disk: every block of it is lost.
    pub(crate) fn insert_lost(&mut self, key: PageKey, entry: Entry) -> PageIndex {
        let index = self.insert(key, None);
        let page = self.page_mut(index);
        page.seq = u64::from(entry.seq);
        page.lost_blocks = entry.blocks();
        page.current = Presence::all_lost();
        page.target = page.current;
        page.committed = page.current;
        index
    }

    /// Brings a page in. Nothing on disk makes an empty one.
    pub(crate) fn insert(&mut self, key: PageKey, page: Option<MapPage>) -> PageIndex {
        debug_assert!(!self.index.contains_key(&key));
        if let Some(blanks) = self.blanks.get_mut(&key.file) {
            blanks.set(key.region, Fact::Occupied);
        }
        self.trim_blanks();
        self.make_room();
        let page = Some(Page::new(key, page));
        let index = match self.free.pop() {
            Some(index) => {
                self.pages[index as usize] = page;
                PageIndex(index)
            }
            None => {
                self.pages.push(page);
                PageIndex(u32::try_from(self.pages.len() - 1).expect("a bounded number of pages"))
            }
        };
        self.index.insert(key, index);
        index
    }

    /// Throws one page out if there are too many and one is not needed.
    fn make_room(&mut self) {
        if self.index.len() < self.limit {
            return;
        }
        // Twice around: the first time only takes back the mark of recent use.
        for _ in 0..2 * self.pages.len() {
            self.hand = (self.hand + 1) % self.pages.len();
            let Some(page) = &mut self.pages[self.hand] else { continue };
            if std::mem::take(&mut page.used) || page.pins > 0 || page.unsummed || page.is_dirty() {
                continue;
            }
            let key = page.key;
            self.index.remove(&key);
            self.pages[self.hand] = None;
            self.free.push(u32::try_from(self.hand).expect("a bounded number of pages"));
            return;
        }
    }

    /// Forgets a file that is being removed, with pages that are still pinned: later lookups find
    /// that they are gone.
    pub(crate) fn forget(&mut self, map: FileId) {
        for slot in 0..self.pages.len() {
            if let Some(page) = &self.pages[slot]
                && page.key.file == map
            {
                let key = page.key;
                self.index.remove(&key);
                self.pages[slot] = None;
                self.free.push(u32::try_from(slot).expect("a bounded number of pages"));
            }
        }
        self.blanks.remove(&map);
    }

    /// Pages that are not on disk as they should be.
    pub(crate) fn unwritten(&self) -> Vec<PageIndex> {
        let pages = (0u32..).zip(&self.pages);
        pages
            .filter(|(_, page)| page.as_ref().is_some_and(|page| page.version != page.written))
            .map(|(index, _)| PageIndex(index))
            .collect()
    }

    /// Whether a file's pages on disk are older than those in memory.
    pub(crate) fn has_unwritten(&self, map: FileId) -> bool {
        self.pages.iter().flatten().any(|page| page.key.file == map && page.is_dirty())
    }

    /// Bytes held, for the bound that a test asserts.
    pub(crate) fn memory(&self) -> usize {
        let page = size_of::<Option<Page>>() + size_of::<Crcs>();
        let entry = size_of::<(PageKey, PageIndex)>() + 1;
        let chunks: usize = self.blanks.values().map(|blanks| blanks.chunks.len()).sum();
        self.index.len() * size_of::<Crcs>()
            + self.pages.capacity() * (page - size_of::<Crcs>())
            + self.index.capacity() * entry
            + chunks * (size_of::<Chunk>() + 32)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.index.len()
    }

    fn trim_blanks(&mut self) {
        let chunks: usize = self.blanks.values().map(|blanks| blanks.chunks.len()).sum();
        if chunks > MAX_CHUNKS {
            // They only save reads; the same information is on disk.
            self.blanks.clear();
        }
    }
}

/// Chunks of blank marks over all files: one MiB.
const MAX_CHUNKS: usize = 2048;
const CHUNK_REGIONS: u32 = 4096;

type Chunk = [u64; CHUNK_REGIONS as usize / 64];

/// Which regions a map is known to have nothing of. In a fresh file a bit marks a region that is
/// no longer blank, in others one that was found blank.
#[derive(Debug, Default)]
struct Blanks {
    fresh: bool,
    chunks: BTreeMap<u32, Box<Chunk>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fact {
    Blank,
    Occupied,
}

impl Blanks {
    fn is_blank(&self, region: Region) -> bool {
        let chunk = self.chunks.get(&(region.0 / CHUNK_REGIONS));
        let within = region.0 % CHUNK_REGIONS;
        let bit = chunk.is_some_and(|chunk| chunk[within as usize / 64] >> (within % 64) & 1 == 1);
        bit != self.fresh
    }

    fn set(&mut self, region: Region, fact: Fact) {
        let bit = (fact == Fact::Blank) != self.fresh;
        let at = region.0 / CHUNK_REGIONS;
        if !bit && !self.chunks.contains_key(&at) {
            return;
        }
        let chunk =
            self.chunks.entry(at).or_insert_with(|| Box::new([0; CHUNK_REGIONS as usize / 64]));
        let within = region.0 % CHUNK_REGIONS;
        let mask = 1 << (within % 64);
        let word = &mut chunk[within as usize / 64];
        *word = if bit { *word | mask } else { *word & !mask };
    }
}

/// Keys are small numbers chosen by us; mixing them once is enough.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::{FileNo, Place};
    use super::*;

    const MAP: FileId = FileId::Map(Place::Own, FileNo(1));

    fn key(region: u32) -> PageKey {
        PageKey { file: MAP, region: Region(region) }
    }

    #[test]
    fn only_unused_pages_are_evicted() {
        let mut cache = Cache::new(4);
        let pinned = cache.insert(key(0), None);
        cache.page_mut(pinned).pins = 1;
        let dirty = cache.insert(key(1), None);
        cache.page_mut(dirty).version = 1;
        for region in 2..100 {
            cache.insert(key(region), None);
            assert!(cache.len() <= 4);
        }
        assert_eq!(cache.known(key(0)), Known::Cached(pinned));
        assert_eq!(cache.known(key(1)), Known::Cached(dirty));
        assert_eq!(cache.known(key(2)), Known::Unknown);
        assert!(matches!(cache.known(key(99)), Known::Cached(_)));
    }

    #[test]
    fn blank_regions_are_remembered() {
        let mut cache = Cache::new(2);
        assert_eq!(cache.known(key(5)), Known::Unknown);
        cache.set_blank(key(5));
        assert_eq!(cache.known(key(5)), Known::Blank);
        assert_eq!(cache.known(key(6)), Known::Unknown);
        cache.insert(key(5), None);
        cache.forget(MAP);
        cache.add_fresh(MAP);
        assert_eq!(cache.known(key(70_000)), Known::Blank);
        cache.insert(key(70_000), None);
        for region in 1..5 {
            cache.insert(key(region), None);
        }
        assert_eq!(cache.known(key(70_000)), Known::Unknown, "thrown out, and not blank");
        assert_eq!(cache.known(key(70_001)), Known::Blank);
    }
}
