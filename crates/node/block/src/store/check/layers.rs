//! Reading a layer's map, and its data against it.

use std::collections::BTreeMap;

use super::{Depth, Problem, Report};
use crate::store::crc;
use crate::store::files::{FileId, Files, Place};
use crate::store::geometry::{BLOCK, Blocks, Region, region_count};
use crate::store::index::{Entry, LayerIndex};
use crate::store::layer::Layer;
use crate::store::map::{self, Crcs, MapPage, Owner, PAIR, Pair, Presence, decode_pair, no_crcs};
use crate::store::open::Sum;
use crate::store::recent::PageName;
use crate::store::sums::places::OTHERS;
use crate::store::sums::record::SumRecord;
use crate::store::super_block::SuperBlock;

/// Pairs of slots that are read at once.
const CHUNK: u32 = 128;

/// By page.
pub(super) type LeftSums = BTreeMap<PageName, SumRecord>;

pub(super) struct LayerCheck<'a> {
    pub(super) meta: &'a SuperBlock,
    pub(super) layer: &'a Layer,
    pub(super) sum: &'a Sum,
    /// Checksums of regions that were being written when the process was killed.
    pub(super) left: Option<&'a LeftSums>,
    /// Nothing in a replica of the first format.
    pub(super) index: Option<&'a LayerIndex>,
    /// The checksums of its map count only in regions that the log does not name.
    pub(super) is_written: bool,
    pub(super) depth: Depth,
}

/// Checks every region of a layer. Gives the number of its blocks.
pub(super) fn check_layer(
    check: &mut LayerCheck<'_>,
    files: &mut dyn Files,
    report: &mut Report,
    progress: &mut dyn FnMut(u64),
) -> u64 {
    let map = FileId::Map(Place::Own, check.layer.file);
    let regions = region_count(check.meta.size);
    let mut blocks = 0;
    for first in (0..regions).step_by(CHUNK as usize) {
        let count = CHUNK.min(regions - first);
        let pairs = files.read(map, u64::from(first) * PAIR, u64::from(count) * PAIR);
        match pairs {
            Ok(pairs) => {
                for (region, pair) in (first..).zip(pairs.chunks_exact(PAIR as usize)) {
                    blocks += check.region(files, Region(region), pair, report);
                }
            }
            Err(fault) => {
                report.add(Problem::Unreadable { file: map, errno: fault.errno() });
                return blocks;
            }
        }
        progress(u64::from(count));
    }
    check.count(blocks, report);
    blocks
}

/// The content of the slots of a region.
enum Page {
    Blank,
    Whole(MapPage),
    Damaged { older: Option<MapPage> },
}

fn unindexed(pair: &[u8], owner: Owner) -> Page {
    match decode_pair(pair, owner) {
        Pair::Blank => Page::Blank,
        Pair::Page(page) => Page::Whole(page),
        Pair::Damaged { older } => Page::Damaged { older },
    }
}

impl LayerCheck<'_> {
    fn region(
        &self,
        files: &mut dyn Files,
        region: Region,
        pair: &[u8],
        report: &mut Report,
    ) -> u64 {
        let file = FileId::Map(Place::Own, self.layer.file);
        let owner = Owner { tag: self.meta.tag(), file: self.layer.file, region };
        let logged = self.sum.presence.get(&(self.layer.file, region));
        let active = self.is_written && self.sum.active.contains(&region);
        let in_log = logged.is_some() || active;
        let page = match self.index {
            Some(index) => self.named(index.get(region), pair, owner, in_log, report),
            None => unindexed(pair, owner),
        };
        let page = match page {
            Page::Blank => None,
            Page::Whole(page) => Some(page),
            // The index has all that is needed where the log has the blocks.
            Page::Damaged { older } if in_log && (self.index.is_none() || logged.is_some()) => {
                report.add(Problem::TornPage { file, region });
                older
            }
            Page::Damaged { .. } => {
                report.add(Problem::DamagedPage { file, region });
                // The rest adds up all the same.
                let entry = self.index.and_then(|index| index.get(region));
                return entry.map_or(0, |entry| u64::from(entry.blocks()));
            }
        };
        let presence = match logged {
            Some(logged) => logged.over(page.as_ref()),
            None => page.as_ref().map_or(Presence::default(), |page| page.presence),
        };
        if !presence.lost.is_empty() {
            let blocks = presence.lost.len();
            report.add(Problem::LostBlocks { file, region, blocks });
        }
        let crcs = page.map_or_else(no_crcs, |page| page.crcs);
        if self.depth == Depth::Data
            && let Some((crcs, open)) = self.judged(region, active, &crcs)
        {
            self.data(files, region, &presence.data.without(&open), crcs, report);
        }
        u64::from(presence.data.len())
    }

    /// The checksums that data must match, and the blocks that need not.
    fn judged<'b>(
        &'b self,
        region: Region,
        active: bool,
        of_map: &'b Crcs,
    ) -> Option<(&'b Crcs, Blocks)> {
        if !active {
            return Some((of_map, Blocks::NONE));
        }
        let left = self.left?;
        match left.get(&(self.layer.file, region)) {
            Some(record) => Some((&record.crcs, record.open)),
            None if left.contains_key(&OTHERS) => None,
            None => Some((of_map, Blocks::NONE)),
        }
    }

    /// The page that the index names, or a newer one if the region was being written.
    fn named(
        &self,
        entry: Option<Entry>,
        pair: &[u8],
        owner: Owner,
        in_log: bool,
        report: &mut Report,
    ) -> Page {
        let found = match entry {
            _ if in_log => map::find_newest(pair, owner, entry),
            Some(entry) => map::find(pair, owner, entry),
            None => return Page::Blank,
        };
        let Some(page) = found else {
            return entry.map_or(Page::Blank, |_| Page::Damaged { older: None });
        };
        let damaged = map::damaged_slots(pair, owner, page.seq);
        if damaged.contains(&true) && !in_log {
            let file = FileId::Map(Place::Own, owner.file);
            let unclean = self.meta.body.clean.is_none();
            report.add(Problem::DamagedCopy { file, region: owner.region, unclean });
        }
        Page::Whole(page)
    }

    fn data(
        &self,
        files: &mut dyn Files,
        region: Region,
        blocks: &Blocks,
        crcs: &Crcs,
        report: &mut Report,
    ) {
        let file = FileId::Data(Place::Own, self.layer.file);
        for (first, count) in blocks.runs() {
            let start = region.start() + u64::from(first) * BLOCK;
            let data = match files.read(file, start, u64::from(count) * BLOCK) {
                Ok(data) => data,
                Err(fault) => {
                    report.add(Problem::Unreadable { file, errno: fault.errno() });
                    continue;
                }
            };
            report.checked_blocks += u64::from(count);
            let expected = &crcs[first as usize..];
            for ((at, found), expected) in (0u64..).zip(crc::of_blocks(&data)).zip(expected) {
                if found != *expected {
                    let offset = start + at * BLOCK;
                    report.add(Problem::BadBlock { file, offset, expected: *expected, found });
                }
            }
        }
    }

    fn count(&self, found: u64, report: &mut Report) {
        let recorded = match self.meta.body.clean {
            Some(_) => self.layer.blocks,
            None => self.sum.counts.get(&self.layer.file).map_or(0, |count| (*count).max(0) as u64),
        };
        if found != recorded {
            let file = FileId::Map(Place::Own, self.layer.file);
            report.add(Problem::Count { file, found, recorded });
        }
    }
}
