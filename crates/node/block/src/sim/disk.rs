//! A model of a replica's store on a disk with a cache.
//!
//! Written data is readable at once and durable after a flush. The end of the process loses no
//! answered write; a power cut loses any part, sector by sector, of unflushed writes, and data and
//! checksum separately. The dirty-region log is durable before the data.

use std::collections::BTreeSet;

use bytes::Bytes;

pub(crate) use super::cell::{Blocks, Cell};
use super::cell::{mix, zero_crc};
use super::rng::Rng;
use crate::checksum::{KeyedSum, crc32c};
use crate::ids::{Epoch, FlushMarks, Generation, SnapshotId};
use crate::repl::disk::{Description, DiskReply, DiskRequest, DiskResult};
use crate::wire::{
    BLOCK, BlockState, Crcs, DamagedBlock, MetadataReport, Refusal, SnapshotInfo, Verify, Witnessed,
};

#[derive(Debug, Clone)]
pub(crate) struct ModelDisk {
    promised: Generation,
    epoch: Epoch,
    marks: Option<FlushMarks>,
    size: u64,
    region: u64,
    /// The content that reads return.
    now: Blocks,
    /// The content that surely survives a power cut.
    durable: Blocks,
    unflushed: BTreeSet<u64>,
    log: BTreeSet<u32>,
    /// Regions of the log at the last unclean stop: blocks in them may be torn.
    suspect: BTreeSet<u32>,
    lost_writes: bool,
    snapshots: Vec<(SnapshotInfo, Blocks)>,
    head_parent: Option<SnapshotId>,
    /// Snapshots that a power cut takes away.
    unsealed: BTreeSet<SnapshotId>,
    /// Writes are refused for lack of space.
    pub(crate) full: bool,
}

impl ModelDisk {
    pub(crate) fn new(size: u64, region: u64) -> Self {
        Self {
            promised: Generation(0),
            epoch: Epoch(0),
            marks: None,
            size,
            region,
            now: Blocks::new(),
            durable: Blocks::new(),
            unflushed: BTreeSet::new(),
            log: BTreeSet::new(),
            suspect: BTreeSet::new(),
            lost_writes: false,
            snapshots: Vec::new(),
            head_parent: None,
            unsealed: BTreeSet::new(),
            full: false,
        }
    }

    pub(crate) fn head(&self) -> &Blocks {
        &self.now
    }

    pub(crate) fn snapshots(&self) -> &[(SnapshotInfo, Blocks)] {
        &self.snapshots
    }

    /// Does what it was asked, now.
    pub(crate) fn execute(&mut self, request: &DiskRequest) -> DiskResult {
        match request {
            DiskRequest::Read { view, offset, length } => {
                return self.read(*view, *offset, *length);
            }
            DiskRequest::Write { offset, data, crcs, fua } => {
                self.write(*offset, data, crcs, *fua)?;
            }
            DiskRequest::WriteZeroes { offset, length, fua } => {
                self.zero(*offset, *length, *fua)?;
            }
            DiskRequest::Discard { offset, length } => self.zero(*offset, *length, false)?,
            DiskRequest::Flush { marks } => {
                self.flush();
                self.marks = match (self.marks, *marks) {
                    (Some(old), Some(new)) => Some(old.merged(new)),
                    (old, new) => new.or(old),
                };
            }
            DiskRequest::Prepare => {}
            DiskRequest::Seal => self.seal(),
            DiskRequest::CloseClean => {
                self.seal();
                self.flush();
            }
            DiskRequest::Snapshot(info) => self.snapshot(info),
            DiskRequest::DeleteSnapshot { snapshot } => self.delete(*snapshot),
            DiskRequest::Revert { to } => self.revert(*to)?,
            DiskRequest::Resize { size } => self.size = *size,
            DiskRequest::ReadMap { view, offset, length, verify } => {
                return self.map(*view, *offset, *length, *verify);
            }
            DiskRequest::Scrub { offset, length } => return self.damage(*offset, *length),
            // Damage is noticed here whenever it is read.
            DiskRequest::ScrubMetadata { .. } => {
                return Ok(DiskReply::Metadata(MetadataReport::default()));
            }
            DiskRequest::Repair { snapshot, offset, data, crcs } => {
                self.repair(*snapshot, *offset, data, crcs)?;
            }
            DiskRequest::Dirty => return Ok(DiskReply::Dirty(self.log.iter().copied().collect())),
            DiskRequest::Settle { regions } => self.settle(regions),
            DiskRequest::Promise { generation } => {
                self.seal();
                self.promised = self.promised.max(*generation);
            }
            DiskRequest::SetEpoch { epoch } => self.epoch = self.epoch.max(*epoch),
            DiskRequest::Reconciled => self.lost_writes = false,
            DiskRequest::Describe => return Ok(self.describe()),
        }
        Ok(DiskReply::Done)
    }

    fn blocks(&self, offset: u64, length: u64) -> Result<std::ops::Range<u64>, Refusal> {
        let aligned = offset.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK);
        match aligned && offset + length <= self.size {
            true => Ok(offset / BLOCK..(offset + length) / BLOCK),
            false => Err(Refusal::Invalid),
        }
    }

    fn view(&self, view: Option<SnapshotId>) -> Result<&Blocks, Refusal> {
        let Some(id) = view else { return Ok(&self.now) };
        let found = self.snapshots.iter().find(|(info, _)| info.id == id);
        found.map(|(_, blocks)| blocks).ok_or(Refusal::NoSnapshot)
    }

    fn read(&self, view: Option<SnapshotId>, offset: u64, length: u32) -> DiskResult {
        let blocks = self.blocks(offset, u64::from(length))?;
        let view = self.view(view)?;
        let mut data = Vec::with_capacity(length as usize);
        let mut crcs = Vec::new();
        for block in blocks {
            match view.get(&block) {
                Some(cell) => {
                    data.extend_from_slice(&cell.data);
                    crcs.push(cell.crc);
                }
                None => {
                    data.resize(data.len() + BLOCK as usize, 0);
                    crcs.push(zero_crc());
                }
            }
        }
        Ok(DiskReply::Data { data: Bytes::from(data), crcs: crcs.into_iter().collect() })
    }

    fn map(
        &mut self,
        view: Option<SnapshotId>,
        offset: u64,
        length: u32,
        verify: Verify,
    ) -> DiskResult {
        let blocks = self.blocks(offset, u64::from(length))?;
        let view_of = self.view(view)?;
        let keyed = verify.key().map(KeyedSum::new);
        let state = |block: u64| match view_of.get(&block) {
            None => BlockState::Zero,
            Some(cell) => {
                let region = u32::try_from(block * BLOCK / self.region).expect("few regions");
                let checks = verify != Verify::Suspect || self.log.contains(&region);
                let sum = keyed.as_ref().map(|keyed| keyed.of(&cell.data));
                match checks && crc32c(&cell.data) != cell.crc {
                    true => BlockState::Bad,
                    false => BlockState::Data(sum.unwrap_or(cell.crc.into())),
                }
            }
        };
        let mut map: Vec<BlockState> = blocks.clone().map(state).collect();
        if verify == Verify::Adopt && view.is_none() {
            let torn = |block: u64| {
                self.suspect.contains(&u32::try_from(block * BLOCK / self.region).expect("few"))
            };
            let torn: Vec<bool> = blocks.clone().map(torn).collect();
            let bad = blocks.zip(&mut map).zip(torn);
            for ((block, state), _) in
                bad.filter(|((_, state), torn)| **state == BlockState::Bad && *torn)
            {
                let cell = self.now.get_mut(&block).expect("a bad block is there");
                cell.crc = crc32c(&cell.data);
                *state = BlockState::Data(cell.crc.into());
                self.unflushed.insert(block);
            }
        }
        Ok(DiskReply::Map(map))
    }

    /// Blocks of snapshots that do not fit their checksums.
    fn damage(&self, offset: u64, length: u32) -> DiskResult {
        let blocks = self.blocks(offset, u64::from(length))?;
        let bad = self.snapshots.iter().flat_map(|(info, cells)| {
            let bad = cells.range(blocks.clone()).filter(|(_, cell)| !cell.is_whole());
            bad.map(|(block, _)| DamagedBlock { snapshot: info.id, offset: block * BLOCK })
        });
        Ok(DiskReply::Damage(bad.collect()))
    }

    /// Only what is damaged is changed.
    fn repair(
        &mut self,
        snapshot: SnapshotId,
        offset: u64,
        data: &Bytes,
        crcs: &Crcs,
    ) -> Result<(), Refusal> {
        let blocks = self.blocks(offset, data.len() as u64)?;
        let found = self.snapshots.iter_mut().find(|(info, _)| info.id == snapshot);
        let (_, cells) = found.ok_or(Refusal::NoSnapshot)?;
        for (at, block) in blocks.enumerate() {
            let bytes = at * BLOCK as usize..(at + 1) * BLOCK as usize;
            let cell = Cell { data: data.slice(bytes), crc: crcs.as_slice()[at] };
            match cells.get_mut(&block).filter(|found| !found.is_whole() || **found == cell) {
                Some(found) => *found = cell,
                None => return Err(Refusal::Invalid),
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &Bytes, crcs: &Crcs, fua: bool) -> Result<(), Refusal> {
        let blocks = self.blocks(offset, data.len() as u64)?;
        if self.full {
            return Err(Refusal::NoSpace);
        }
        for (at, block) in blocks.enumerate() {
            let bytes = at * BLOCK as usize..(at + 1) * BLOCK as usize;
            let cell = Cell { data: data.slice(bytes), crc: crcs.as_slice()[at] };
            self.put(block, Some(cell), fua);
        }
        Ok(())
    }

    fn zero(&mut self, offset: u64, length: u32, fua: bool) -> Result<(), Refusal> {
        for block in self.blocks(offset, u64::from(length))? {
            self.put(block, None, fua);
        }
        Ok(())
    }

    fn put(&mut self, block: u64, cell: Option<Cell>, fua: bool) {
        self.log.insert(u32::try_from(block * BLOCK / self.region).expect("few regions"));
        let store = |blocks: &mut Blocks| match &cell {
            Some(cell) => drop(blocks.insert(block, cell.clone())),
            None => drop(blocks.remove(&block)),
        };
        store(&mut self.now);
        if fua {
            store(&mut self.durable);
            self.unflushed.remove(&block);
        } else {
            self.unflushed.insert(block);
        }
    }

    fn flush(&mut self) {
        for block in std::mem::take(&mut self.unflushed) {
            match self.now.get(&block) {
                Some(cell) => drop(self.durable.insert(block, cell.clone())),
                None => drop(self.durable.remove(&block)),
            }
        }
    }

    fn snapshot(&mut self, info: &SnapshotInfo) {
        if self.snapshots.iter().any(|(known, _)| known.id == info.id) {
            return;
        }
        self.unsealed.insert(info.id);
        self.snapshots.push((info.clone(), self.now.clone()));
        self.head_parent = Some(info.id);
    }

    fn seal(&mut self) {
        if !self.unsealed.is_empty() {
            self.flush();
            self.unsealed.clear();
        }
    }

    fn delete(&mut self, id: SnapshotId) {
        let found = self.snapshots.iter().find(|(info, _)| info.id == id);
        let parent = found.and_then(|(info, _)| info.parent);
        self.snapshots.retain(|(info, _)| info.id != id);
        for (info, _) in self.snapshots.iter_mut().filter(|(info, _)| info.parent == Some(id)) {
            info.parent = parent;
        }
        if self.head_parent == Some(id) {
            self.head_parent = parent;
        }
    }

    fn revert(&mut self, to: Option<SnapshotId>) -> Result<(), Refusal> {
        let blocks = match to {
            Some(_) => self.view(to)?.clone(),
            None => Blocks::new(),
        };
        self.now = blocks.clone();
        self.durable = blocks;
        self.unflushed.clear();
        self.head_parent = to;
        Ok(())
    }

    fn settle(&mut self, regions: &[u32]) {
        for region in regions {
            self.log.remove(region);
            self.suspect.remove(region);
        }
    }

    fn describe(&self) -> DiskReply {
        DiskReply::Description(Box::new(Description {
            promised: self.promised,
            epoch: self.epoch,
            marks: self.marks,
            witnessed: Witnessed::Unknown,
            size: self.size,
            region: self.region,
            lost_writes: self.lost_writes,
            dirty: self.log.iter().copied().collect(),
            snapshots: self.snapshots.iter().map(|(info, _)| info.clone()).collect(),
            head_parent: self.head_parent,
        }))
    }

    /// The process has ended without closing.
    pub(crate) fn stopped(&mut self) {
        self.suspect = self.log.clone();
    }

    /// The process ended while this was under way: any part of it may have been done.
    pub(crate) fn half_done(&mut self, request: &DiskRequest, rng: &mut Rng) {
        let blocks = match request {
            DiskRequest::Write { offset, data, .. } => self.blocks(*offset, data.len() as u64),
            DiskRequest::WriteZeroes { offset, length, .. }
            | DiskRequest::Discard { offset, length } => self.blocks(*offset, u64::from(*length)),
            DiskRequest::Settle { .. } => return,
            _ => {
                if rng.chance(500) {
                    let _ = self.execute(request);
                }
                return;
            }
        };
        let before = self.now.clone();
        let durable = (self.durable.clone(), self.unflushed.clone());
        if self.execute(request).is_err() {
            return;
        }
        if rng.chance(300) {
            return;
        }
        (self.durable, self.unflushed) = durable;
        for block in blocks.unwrap_or_default() {
            let mixed = mix(before.get(&block), self.now.get(&block), rng);
            self.set(block, mixed);
            self.unflushed.insert(block);
        }
    }

    fn set(&mut self, block: u64, cell: Option<Cell>) {
        match cell {
            Some(cell) => drop(self.now.insert(block, cell)),
            None => drop(self.now.remove(&block)),
        }
    }

    /// Any part of what was not flushed is lost.
    pub(crate) fn power_cut(&mut self, rng: &mut Rng) {
        // A store seals by itself, in its own time.
        if rng.chance(300) {
            self.seal();
        }
        for id in std::mem::take(&mut self.unsealed) {
            self.delete(id);
        }
        let style = rng.below(4);
        for block in std::mem::take(&mut self.unflushed) {
            let (old, new) = (self.durable.get(&block).cloned(), self.now.get(&block).cloned());
            let kept = match style {
                0 => old,
                1 => new,
                2 if rng.chance(500) => old,
                2 => new,
                _ => mix(old.as_ref(), new.as_ref(), rng),
            };
            self.set(block, kept);
        }
        self.durable = self.now.clone();
        self.lost_writes |= !self.log.is_empty();
    }

    /// A page of the map is damaged: nothing is known about the blocks of a region any more.
    pub(crate) fn damage_map(&mut self, rng: &mut Rng) {
        let per_region = self.region / BLOCK;
        let first = rng.below(self.size.div_ceil(self.region)) * per_region;
        let zeroes = || Cell { data: Bytes::from(vec![0; BLOCK as usize]), crc: zero_crc() };
        for block in first..(first + per_region).min(self.size / BLOCK) {
            for blocks in [&mut self.now, &mut self.durable] {
                let cell = blocks.entry(block).or_insert_with(zeroes);
                cell.crc = !crc32c(&cell.data);
            }
        }
    }

    /// A bit of a block changes by itself.
    pub(crate) fn rot(&mut self, rng: &mut Rng) -> Option<u64> {
        let block = *self.now.keys().nth(rng.index(self.now.len()))?;
        let at = rng.index(BLOCK as usize);
        self.now.get_mut(&block).into_iter().for_each(|cell| cell.flip(at));
        self.durable.get_mut(&block).into_iter().for_each(|cell| cell.flip(at));
        Some(block)
    }

    /// The same in a snapshot.
    pub(crate) fn rot_snapshot(&mut self, rng: &mut Rng) -> Option<u64> {
        let which = rng.index(self.snapshots.len());
        let (_, cells) = self.snapshots.get_mut(which)?;
        let which = rng.index(cells.len());
        let (block, cell) = cells.iter_mut().nth(which)?;
        cell.flip(rng.index(BLOCK as usize));
        Some(*block)
    }
}
