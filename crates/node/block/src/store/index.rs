//! Indexes: which page of a layer's map counts for each region.
//!
//! A slot of a map that is zeroes appears like one that was never written, and an older copy of a
//! map appears as a map. The file `L<n>.idx` therefore names, for each region of which the layer
//! has a page, the sequence and the checksum of that page. A map that does not hold this page is
//! damaged there: its blocks are *lost*, and are never taken for zeroes.
//!
//! The file has two slots of 4 KiB for each [`REGIONS`] regions, at *page × 8 KiB*. A version is
//! written to the slot *sequence mod 2* and, when it counts, into the other one as a copy.
//!
//! | at | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `SIDX` |
//! | 4 | 4 | CRC-32C of the page, with this field zero |
//! | 8 | 8 | sequence of the page, from 1 |
//! | 16 | 4 | number of the file |
//! | 20 | 4 | page |
//! | 24 | 8 | tag of the replica |
//! | 32 | 2 | format version |
//! | 40 | 8 | number of the clean that wrote it |
//! | 64 | 4000 | for each region: sequence u32 (zero: no page), checksum u32, blocks of data u16 |
//!
//! **Roots.** An older index would vouch for an older map. A [`Root`] is a digest over all entries
//! of a layer and the number of the clean that made them; it is in the log, and in the super block
//! after a clean stop. A clean writes pages of maps and indexes, makes them durable, and then puts
//! the new roots into the log. Pages of a clean that a crash interrupted carry a greater number
//! than the root, and the version before is in the other slot.
//!
//! An index that was lost is read from the map again: the digest says whether the result is
//! what it was.

mod load;
mod page;
mod verify;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub(crate) use self::load::{LoadError, Loading, build, load, pages};
use self::page::{IndexPage, Owner, encode};
use super::files::{FileId, FileNo, Place};
use super::geometry::Region;
use super::map::{MapPage, Presence};
use super::sabotage::{Check, is_left_out};

/// Regions that a page of an index covers.
pub const REGIONS: u32 = 400;
pub const PAGE: usize = 4096;
/// Both slots of a page.
pub const PAIR: u64 = 2 * PAGE as u64;

/// The page of a map that counts for a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub seq: u32,
    pub crc: u32,
    /// Blocks of data that it has, and [`HAS_LOST`].
    pub blocks: u16,
}

/// Some of the page's blocks are lost.
const HAS_LOST: u16 = 1 << 15;

impl Entry {
    /// No page has this checksum and this sequence.
    pub(crate) const LOST: Self = Self { seq: u32::MAX, crc: 0, blocks: 0 };

    pub(crate) fn of(page: &MapPage) -> Self {
        Self::new(page.seq, page.crc, &page.presence)
    }

    pub(crate) fn new(seq: u64, crc: u32, presence: &Presence) -> Self {
        let seq = u32::try_from(seq).unwrap_or(u32::MAX);
        let lost = if presence.lost.is_empty() { 0 } else { HAS_LOST };
        Self { seq, crc, blocks: presence.data.len() as u16 | lost }
    }

    pub(crate) fn blocks(self) -> u16 {
        self.blocks & !HAS_LOST
    }

    pub(crate) fn has_lost(self) -> bool {
        self.blocks & HAS_LOST != 0
    }
}

/// The expected digest of a layer's index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The last clean that changed the index. Pages of later ones do not count.
    pub clean: u64,
    pub digest: u64,
}

/// The share of an entry in the digest of its layer.
fn share(file: FileNo, region: Region, entry: Entry) -> u64 {
    let place = u64::from(file.0) << 32 | u64::from(region.0);
    let page = u64::from(entry.seq) << 32 | u64::from(entry.crc);
    [place, page, u64::from(entry.blocks)].into_iter().fold(0, |sum, word| mix(sum ^ word))
}

/// The finalizer of splitmix64.
fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where a region is in an index.
fn place(region: Region) -> (u32, u16) {
    (region.0 / REGIONS, (region.0 % REGIONS) as u16)
}

/// The index of one layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LayerIndex {
    /// As the last clean left it on disk.
    pages: BTreeMap<u32, IndexPage>,
    /// Pages of the map that are newer.
    newer: BTreeMap<Region, Entry>,
    /// Pages of which the other slot holds what a clean left that did not come to its end. The
    /// next one writes over it, or it would count.
    unfinished: BTreeSet<u32>,
    digest: u64,
}

impl LayerIndex {
    pub(crate) fn get(&self, region: Region) -> Option<Entry> {
        self.newer.get(&region).copied().or_else(|| self.settled(region))
    }

    fn settled(&self, region: Region) -> Option<Entry> {
        let (page, at) = place(region);
        let entries = &self.pages.get(&page)?.entries;
        let found = entries.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(entries[found].1)
    }

    fn add(&mut self, file: FileNo, number: u32, page: IndexPage) {
        let region = |at: u16| Region(number * REGIONS + u32::from(at));
        let shares = page.entries.iter().map(|(at, entry)| share(file, region(*at), *entry));
        self.digest = shares.fold(self.digest, u64::wrapping_add);
        self.pages.insert(number, page);
    }

    fn set(&mut self, file: FileNo, region: Region, entry: Entry) {
        let (number, at) = place(region);
        let entries = match self.pages.get_mut(&number) {
            Some(page) => &mut page.entries,
            None => {
                let page = IndexPage { seq: 0, clean: 0, entries: Vec::new() };
                &mut self.pages.entry(number).or_insert(page).entries
            }
        };
        match entries.binary_search_by_key(&at, |(at, _)| *at) {
            Ok(found) => {
                let old = std::mem::replace(&mut entries[found].1, entry);
                self.digest = self.digest.wrapping_sub(share(file, region, old));
            }
            Err(before) => entries.insert(before, (at, entry)),
        }
        self.digest = self.digest.wrapping_add(share(file, region, entry));
    }

    fn memory(&self) -> usize {
        let pages = self.pages.values();
        let entries: usize = pages.map(|page| page.entries.capacity()).sum();
        entries * size_of::<(u16, Entry)>()
            + self.pages.len() * (size_of::<IndexPage>() + 16)
            + self.newer.len() * (size_of::<(Region, Entry)>() + 16)
    }
}

/// A page of an index that is to be written.
#[derive(Debug, PartialEq)]
pub(crate) struct Due {
    pub(crate) file: FileNo,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
    /// Where its copy goes when it counts.
    pub(crate) copy: u64,
}

/// The index's statement about a region of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stated {
    /// The map has no index and is trusted. Only where a test leaves the check out.
    Unindexed,
    /// The layer has nothing of the region.
    Blank,
    At(Entry),
}

/// The indexes of all layers, own and of bases, in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    layers: BTreeMap<FileId, LayerIndex>,
    /// The last clean that came to its end.
    clean: u64,
    /// Entries that the running clean writes.
    writing: Vec<(FileNo, Region, Entry)>,
    /// The pages of indexes that go with it.
    begun: BTreeSet<(FileNo, u32)>,
}

fn own(file: FileNo) -> FileId {
    FileId::Map(Place::Own, file)
}

impl Index {
    pub(crate) fn new(clean: u64) -> Self {
        Self { clean, ..Self::default() }
    }

    /// Takes the index of a map.
    pub(crate) fn insert(&mut self, map: FileId, index: LayerIndex) {
        self.layers.insert(map, index);
    }

    pub(crate) fn forget(&mut self, map: FileId) {
        self.layers.remove(&map);
        self.writing.retain(|(file, ..)| own(*file) != map);
        self.begun.retain(|(file, _)| own(*file) != map);
    }

    pub(crate) fn get(&self, map: FileId, region: Region) -> Stated {
        match self.layers.get(&map) {
            Some(_) if is_left_out(Check::Index) => Stated::Unindexed,
            None => Stated::Unindexed,
            Some(layer) => layer.get(region).map_or(Stated::Blank, Stated::At),
        }
    }

    /// A page of a map that a clean wrote which did not come to its end.
    pub(crate) fn found_newer(&mut self, file: FileNo, region: Region, entry: Entry) {
        if let Some(layer) = self.layers.get_mut(&own(file))
            && layer.settled(region) != Some(entry)
        {
            layer.newer.insert(region, entry);
        }
    }

    /// Whether the place of a region in the index exists already.
    pub(crate) fn has_place(&self, map: FileId, region: Region) -> bool {
        let layer = self.layers.get(&map);
        layer.is_some_and(|layer| layer.pages.contains_key(&place(region).0))
    }

    /// The root of a layer as of the last clean.
    pub(crate) fn root(&self, file: FileNo) -> Root {
        let digest = self.layers.get(&own(file)).map_or(0, |layer| layer.digest);
        Root { clean: self.clean, digest }
    }

    /// The number that pages written now carry.
    pub(crate) fn next_clean(&self) -> u64 {
        self.clean + 1
    }

    /// A clean writes these pages of maps: gives the pages of indexes that go with them.
    pub(crate) fn begin(&mut self, tag: u64, pages: Vec<(FileNo, Region, Entry)>) -> Vec<Due> {
        let mut changed: BTreeMap<(FileNo, u32), IndexPage> = BTreeMap::new();
        let newer = self.own_layers().flat_map(|(file, layer)| {
            layer.newer.iter().map(move |(region, entry)| (file, *region, *entry))
        });
        let mut all: Vec<_> = newer.collect();
        all.extend(pages);
        for (file, layer) in self.own_layers() {
            let pages = layer.unfinished.iter();
            changed.extend(pages.map(|number| ((file, *number), self.next_page(file, *number))));
        }
        for (file, region, entry) in &all {
            let (number, at) = place(*region);
            let page =
                changed.entry((*file, number)).or_insert_with(|| self.next_page(*file, number));
            match page.entries.binary_search_by_key(&at, |(at, _)| *at) {
                Ok(found) => page.entries[found].1 = *entry,
                Err(before) => page.entries.insert(before, (at, *entry)),
            }
        }
        self.writing = all;
        self.begun = changed.keys().copied().collect();
        let due = changed.iter().map(|((file, number), page)| {
            let at = |seq: u64| u64::from(*number) * PAIR + (seq % 2) * PAGE as u64;
            Due {
                file: *file,
                offset: at(page.seq),
                data: encode(Owner { tag, file: *file, page: *number }, page),
                copy: at(page.seq + 1),
            }
        });
        due.collect()
    }

    /// Those of bases do not change.
    fn own_layers(&self) -> impl Iterator<Item = (FileNo, &LayerIndex)> {
        self.layers.iter().filter_map(|(map, layer)| match *map {
            FileId::Map(Place::Own, file) => Some((file, layer)),
            _ => None,
        })
    }

    /// The version of a page of an index that the next clean writes, without its changes.
    fn next_page(&self, file: FileNo, number: u32) -> IndexPage {
        let layer = self.layers.get(&own(file));
        let known = layer.and_then(|layer| layer.pages.get(&number));
        let (seq, entries) = known.map_or((0, Vec::new()), |page| (page.seq, page.entries.clone()));
        IndexPage { seq: seq + 1, clean: self.clean + 1, entries }
    }

    /// Everything that was begun is durable. Gives the layers with new roots.
    pub(crate) fn commit(&mut self) -> Vec<FileNo> {
        for (file, region, entry) in std::mem::take(&mut self.writing) {
            let Some(layer) = self.layers.get_mut(&own(file)) else { continue };
            layer.newer.remove(&region);
            layer.set(file, region, entry);
        }
        let pages = std::mem::take(&mut self.begun);
        if !pages.is_empty() {
            self.clean += 1;
        }
        for (file, number) in &pages {
            let Some(layer) = self.layers.get_mut(&own(*file)) else { continue };
            layer.unfinished.remove(number);
            let empty = IndexPage { seq: 0, clean: 0, entries: Vec::new() };
            let page = layer.pages.entry(*number).or_insert(empty);
            page.seq += 1;
            page.clean = self.clean;
        }
        let mut files: Vec<FileNo> = pages.into_iter().map(|(file, _)| file).collect();
        files.dedup();
        files
    }

    /// Discards the entries of a clean that was begun.
    pub(crate) fn abandon(&mut self) {
        self.writing.clear();
        for (file, number) in std::mem::take(&mut self.begun) {
            if let Some(layer) = self.layers.get_mut(&own(file)) {
                layer.unfinished.insert(number);
            }
        }
    }

    pub(crate) fn memory(&self) -> usize {
        self.layers.values().map(LayerIndex::memory).sum()
    }
}

#[cfg(test)]
mod tests;
