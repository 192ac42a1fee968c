//! Reading an index, and making it anew from the map.

use std::collections::BTreeMap;

use super::page::{IndexPage, Owner, Slot, decode};
use super::{Entry, LayerIndex, PAGE, PAIR, REGIONS, Root};
use crate::store::files::{FileId, FileNo, Files, Place};
use crate::store::geometry::{REGION_BLOCKS, Region};
use crate::store::map::{self, Pair};
use crate::store::request::IoFault;
use crate::store::sabotage::{Check, is_left_out};

/// Pages that are read at once.
const CHUNK: u64 = 64;

/// Which index, and what it must add up to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loading {
    pub(crate) tag: u64,
    pub(crate) file: FileNo,
    pub(crate) root: Root,
    /// Regions of the volume.
    pub(crate) regions: u32,
}

impl Loading {
    /// Whether a slot holds what a clean left that did not come to its end.
    fn is_unfinished(&self, slot: &Slot) -> bool {
        matches!(slot, Slot::Valid(page) if page.clean > self.root.clean)
    }
}

/// The condition of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// Pages with a slot that is damaged while the other one is good.
    pub(crate) damaged_slots: Vec<u32>,
    /// It had to be read from the map.
    pub(crate) rebuilt: bool,
}

/// Why there is no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    /// It does not add up to what the log says, and neither does the map.
    Contradicts,
    Io(FileId, IoFault),
}

/// Reads the index of a layer as of its root.
pub(crate) fn load(
    files: &mut dyn Files,
    loading: Loading,
) -> Result<(LayerIndex, Health), LoadError> {
    let mut health = Health::default();
    let mut index = LayerIndex::default();
    let mut lost = Vec::new();
    let pages = loading.regions.div_ceil(REGIONS);
    let file = FileId::Index(Place::Own, loading.file);
    let io = |fault| LoadError::Io(file, fault);
    let len = files.len(file).map_err(io)?.unwrap_or(0);
    let there = u32::try_from(len.div_ceil(PAIR)).unwrap_or(u32::MAX).min(pages);
    let mut first = 0;
    while first < there {
        let count = u64::from(there - first).min(CHUNK);
        let bytes = files.read(file, u64::from(first) * PAIR, count * PAIR).map_err(io)?;
        for (number, pair) in (first..).zip(bytes.chunks_exact(PAIR as usize)) {
            let owner = Owner { tag: loading.tag, file: loading.file, page: number };
            let (first, second) = pair.split_at(PAGE);
            let slots = [decode(first, owner), decode(second, owner)];
            if slots.iter().any(|slot| loading.is_unfinished(slot)) {
                index.unfinished.insert(number);
            }
            match choose(slots, &loading, number, &mut health) {
                Chosen::Blank => {}
                Chosen::Page(page) => index.add(loading.file, number, page),
                Chosen::Lost => lost.push(number),
            }
        }
        first += count as u32;
    }
    for number in lost {
        // Nothing if the first version of the page was torn by a power cut.
        let page = from_map(files, &loading, number, 1)?;
        if !page.entries.is_empty() {
            health.rebuilt = true;
            index.add(loading.file, number, page);
        }
    }
    if index.digest == loading.root.digest || is_left_out(Check::Root) {
        return Ok((index, health));
    }
    // A file that is too short, of zeroes, an older copy or of another replica.
    let mut index = LayerIndex::default();
    for number in 0..pages {
        let page = from_map(files, &loading, number, 1)?;
        if !page.entries.is_empty() {
            index.add(loading.file, number, page);
        }
    }
    health.rebuilt = true;
    match index.digest == loading.root.digest {
        true => Ok((index, health)),
        false => Err(LoadError::Contradicts),
    }
}

enum Chosen {
    Blank,
    Page(IndexPage),
    Lost,
}

/// The version of a page that counted at the root's clean.
fn choose(slots: [Slot; 2], loading: &Loading, number: u32, health: &mut Health) -> Chosen {
    let damaged = slots.contains(&Slot::Invalid);
    let blank = slots.contains(&Slot::Blank);
    let counting = slots.into_iter().filter_map(|slot| match slot {
        Slot::Valid(page) if page.clean <= loading.root.clean => Some(page),
        _ => None,
    });
    match counting.max_by_key(|page| (page.clean, page.seq)) {
        Some(page) => {
            if damaged || (blank && page.seq > 1) {
                health.damaged_slots.push(number);
            }
            Chosen::Page(page)
        }
        None if damaged => Chosen::Lost,
        // Or the first version is of a clean that did not come to its end.
        None => Chosen::Blank,
    }
}

/// Makes a page of the index from the pages of the map that counted at the root's clean.
fn from_map(
    files: &mut dyn Files,
    loading: &Loading,
    number: u32,
    seq: u64,
) -> Result<IndexPage, LoadError> {
    let first = number * REGIONS;
    let count = loading.regions.saturating_sub(first).min(REGIONS);
    let clean = loading.root.clean;
    let mut entries = Vec::new();
    each_pair(files, loading, first..first + count, |owner, pair| {
        let slots = map::decode_slots(pair, owner).into_iter().flatten();
        let counting = slots.filter(|page| page.clean <= clean);
        if let Some(page) = counting.max_by_key(|page| page.seq) {
            entries.push(((owner.region.0 - first) as u16, Entry::of(&page)));
        }
    })?;
    Ok(IndexPage { seq, clean, entries })
}

fn each_pair(
    files: &mut dyn Files,
    loading: &Loading,
    regions: std::ops::Range<u32>,
    mut each: impl FnMut(map::Owner, &[u8]),
) -> Result<(), LoadError> {
    let file = FileId::Map(Place::Own, loading.file);
    let io = |fault| LoadError::Io(file, fault);
    let len = files.len(file).map_err(io)?.unwrap_or(0);
    let end = u32::try_from(len.div_ceil(map::PAIR)).unwrap_or(u32::MAX).min(regions.end);
    let mut first = regions.start;
    while first < end {
        let count = u64::from(end - first).min(CHUNK);
        let offset = u64::from(first) * map::PAIR;
        let bytes = files.read(file, offset, count * map::PAIR).map_err(io)?;
        for (region, pair) in (first..).zip(bytes.chunks_exact(map::PAIR as usize)) {
            let region = Region(region);
            let owner = map::Owner { tag: loading.tag, file: loading.file, region };
            each(owner, pair);
        }
        first += count as u32;
    }
    Ok(())
}

/// Makes the index of a map of the first format, which had none.
///
/// A page of zeroes appears there like one that was never written. The count of the layer's blocks,
/// which the super block or the log has, distinguishes them: `blocks` is what the pages must add up
/// to. Where damaged pages leave it open how many blocks are missing, every blank region is lost
/// with them, because any of them may have held some.
pub(crate) fn build(
    files: &mut dyn Files,
    loading: Loading,
    blocks: u64,
) -> Result<LayerIndex, LoadError> {
    let mut found = Found::default();
    let mut entries = BTreeMap::new();
    each_pair(files, &loading, 0..loading.regions, |owner, pair| {
        let entry = match map::decode_pair(pair, owner) {
            Pair::Blank => return,
            Pair::Page(page) => {
                found.blocks += u64::from(page.presence.data.len());
                Entry::of(&page)
            }
            Pair::Damaged { older } => {
                found.damaged += 1;
                found.older += older.map_or(0, |page| u64::from(page.presence.data.len()));
                Entry::LOST
            }
        };
        entries.insert(owner.region.0, entry);
    })?;
    match found.judge(blocks) {
        _ if is_left_out(Check::Counts) => {}
        Blank::Empty => {}
        Blank::MayBeLost => {
            for region in 0..loading.regions {
                entries.entry(region).or_insert(Entry::LOST);
            }
        }
        Blank::IsLost => return Err(LoadError::Contradicts),
    }
    let mut pages: BTreeMap<u32, Vec<(u16, Entry)>> = BTreeMap::new();
    for (region, entry) in entries {
        pages.entry(region / REGIONS).or_default().push(((region % REGIONS) as u16, entry));
    }
    let mut index = LayerIndex::default();
    for (number, entries) in pages {
        let page = IndexPage { seq: 1, clean: loading.root.clean, entries };
        index.add(loading.file, number, page);
    }
    Ok(index)
}

/// The content of the pages of a map without an index.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// Blocks of data in whole pages.
    blocks: u64,
    damaged: u64,
    /// Blocks of data in what is left of damaged pages.
    older: u64,
}

/// The meaning of regions without a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blank {
    Empty,
    /// Damaged pages may have held the blocks that are missing, or not.
    MayBeLost,
    IsLost,
}

impl Found {
    fn judge(self, expected: u64) -> Blank {
        let most = self.blocks + self.damaged * u64::from(REGION_BLOCKS);
        if self.blocks + self.older == expected {
            Blank::Empty
        } else if self.damaged > 0 && (self.blocks..=most).contains(&expected) {
            Blank::MayBeLost
        } else {
            Blank::IsLost
        }
    }
}

/// The bytes of an index that was made anew, with their offsets: both slots of each page.
pub(crate) fn pages(index: &LayerIndex, loading: Loading) -> Vec<(u64, Vec<u8>)> {
    let bytes = |(number, page): (&u32, &IndexPage)| {
        let owner = Owner { tag: loading.tag, file: loading.file, page: *number };
        (u64::from(*number) * PAIR, super::encode(owner, page).repeat(2))
    };
    index.pages.iter().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_regions_count_as_blank_only_if_the_blocks_add_up() {
        for (blocks, damaged, older, expected, verdict) in [
            (0, 0, 0, 0, Blank::Empty),
            (40, 0, 0, 40, Blank::Empty),
            (0, 0, 0, 40, Blank::IsLost),
            (41, 0, 0, 40, Blank::IsLost),
            (20, 1, 20, 40, Blank::Empty),
            (20, 1, 0, 40, Blank::MayBeLost),
            (20, 1, 30, 40, Blank::MayBeLost),
            (20, 1, 0, 533, Blank::IsLost),
            (20, 1, 0, 19, Blank::IsLost),
        ] {
            let found = Found { blocks, damaged, older };
            assert_eq!(found.judge(expected), verdict, "{found:?}, {expected}");
        }
    }
}
