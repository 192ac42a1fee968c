//! Reading a layer's map, and its data against it.

use super::{Depth, Problem, Report};
use crate::store::crc;
use crate::store::files::{FileId, Files, Place};
use crate::store::geometry::{BLOCK, Region, region_count};
use crate::store::layer::Layer;
use crate::store::map::{Crcs, MapPage, Owner, PAIR, Pair, Presence, decode_pair, no_crcs};
use crate::store::open::Sum;
use crate::store::super_block::SuperBlock;

/// Pairs of slots that are read at once.
const CHUNK: u32 = 128;

pub(super) struct LayerCheck<'a> {
    pub(super) meta: &'a SuperBlock,
    pub(super) layer: &'a Layer,
    pub(super) sum: &'a Sum,
    /// Its checksums count only in regions that the log does not name.
    pub(super) is_written: bool,
    pub(super) depth: Depth,
}

/// Looks at every region of a layer. Gives the number of its blocks.
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
        let page = match decode_pair(pair, owner) {
            Pair::Blank => None,
            Pair::Page(page) => Some(page),
            Pair::Damaged { older } if logged.is_some() || active => {
                report.add(Problem::TornPage { file, region });
                older
            }
            Pair::Damaged { .. } => {
                report.add(Problem::DamagedPage { file, region });
                return 0;
            }
        };
        let (found, crcs) = match page {
            Some(MapPage { presence, crcs, .. }) => (presence, crcs),
            None => (Presence::default(), no_crcs()),
        };
        let presence = logged.copied().unwrap_or(found);
        if self.depth == Depth::Data && !active {
            self.data(files, region, &presence, &crcs, report);
        }
        u64::from(presence.data.len())
    }

    fn data(
        &self,
        files: &mut dyn Files,
        region: Region,
        presence: &Presence,
        crcs: &Crcs,
        report: &mut Report,
    ) {
        let file = FileId::Data(Place::Own, self.layer.file);
        for (first, count) in presence.data.runs() {
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
