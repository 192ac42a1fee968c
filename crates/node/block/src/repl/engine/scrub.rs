//! A walk over the whole volume that reads everything, on every member.
//!
//! The content of the head is compared between the members, region by region. The layers of
//! snapshots do not change any more, and members may have them layered differently: each member
//! compares its own with their checksums, and a damaged block is replaced by the content of the
//! snapshot on another member.
//!
//! ```text
//!  Metadata of some regions (`scrub_metadata`)
//!     │
//!  Head (a sync) ──► Scanning ─all answered──► Reading ──whole──► Writing ──┐
//!                                                 ▲    └─bad: another member │
//!                                                 └───────── next run ◄──────┘
//! ```
//!
//! A snapshot cannot be deleted while its layers are being checked: the barrier waits.

use std::collections::{BTreeMap, VecDeque};

use super::damage::{DamageList, MetadataList};
use super::guest::length;
use super::notice::Notice;
use super::ops::{OneResult, Owner};
use super::scrub_metadata::MetadataScrub;
use super::sync::SyncKind;
use super::{Engine, Phase};
use crate::ids::SnapshotId;
use crate::repl::control::ByteRange;
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;
use crate::repl::span::Span;
use crate::wire::{BLOCK, Crcs, DamagedBlock, Reply, Request, Verify};

/// The version of the protocol that knows of damage in snapshots.
const SNAPSHOTS_SINCE: u16 = 3;

#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// The region that comes next.
    pub(super) next: u64,
    pub(super) step: ScrubStep,
    pub(super) bad: u64,
    /// Damage left in snapshots.
    damage: DamageList,
    /// The metadata of regions before this one was verified.
    pub(super) verified: u64,
    pub(super) metadata: MetadataList,
}

#[derive(Debug, Default)]
pub(super) enum ScrubStep {
    #[default]
    Idle,
    Metadata(MetadataScrub),
    /// The heads of a region are compared.
    Head,
    /// That is done, and the snapshots follow.
    HeadDone(Span),
    Layers(LayerScrub),
}

impl Scrub {
    /// Snapshots must stay as they are.
    pub(super) fn checks_layers(&self) -> bool {
        matches!(self.step, ScrubStep::Layers(_))
    }
}

/// The layers of snapshots in a region.
#[derive(Debug)]
pub(super) struct LayerScrub {
    span: Span,
    /// Members whose reply is missing.
    pending: Slots,
    damage: BTreeMap<(usize, u64), Slots>,
    runs: VecDeque<DamagedRun>,
}

/// Blocks in a row that are damaged on the same members.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DamagedRun {
    snapshot: SnapshotId,
    span: Span,
    at: Slots,
    /// Members that were asked for them.
    tried: Slots,
    /// Members that write them.
    writing: Slots,
}

impl DamagedRun {
    fn new(snapshot: SnapshotId, span: Span, at: Slots) -> Self {
        Self { snapshot, span, at, tried: Slots::NONE, writing: Slots::NONE }
    }

    fn blocks(&self) -> u64 {
        self.span.len() / BLOCK
    }

    /// Block by block: some of them may be whole at a member that has others damaged.
    fn split(&self) -> impl DoubleEndedIterator<Item = Self> {
        let (snapshot, start, at) = (self.snapshot, self.span.start, self.at);
        (0..self.blocks())
            .map(move |block| Self::new(snapshot, Span::new(start + block * BLOCK, BLOCK), at))
    }
}

/// Damaged blocks as runs, oldest snapshot first: a newer snapshot may show blocks of an older one.
fn runs(damage: &BTreeMap<(usize, u64), Slots>, order: &[SnapshotId]) -> VecDeque<DamagedRun> {
    let mut runs: VecDeque<DamagedRun> = VecDeque::new();
    for ((at, offset), slots) in damage {
        let Some(snapshot) = order.get(*at).copied() else { continue };
        match runs.back_mut() {
            Some(run)
                if run.snapshot == snapshot && run.span.end == *offset && run.at == *slots =>
            {
                run.span.end += BLOCK;
            }
            _ => runs.push_back(DamagedRun::new(snapshot, Span::new(*offset, BLOCK), *slots)),
        }
    }
    runs
}

impl Engine {
    pub(super) fn drive_scrub(&mut self) {
        let Some(scrub) = &mut self.scrub else { return };
        if !self.unreconciled.is_empty() {
            return;
        }
        match scrub.step {
            ScrubStep::Idle => {}
            ScrubStep::HeadDone(span) => return self.scrub_layers(span),
            ScrubStep::Metadata(_) | ScrubStep::Head | ScrubStep::Layers(_) => return,
        }
        let span = Span::new(scrub.next * self.region, self.region).clipped(self.size);
        if span.len() == 0 {
            let bad_blocks = scrub.bad;
            let (damage, metadata) = (&mut scrub.damage, &mut scrub.metadata);
            let found = (std::mem::take(damage), std::mem::take(metadata));
            self.last_scrub = Some((bad_blocks, found.0, found.1));
            self.scrub = None;
            return self.notice(Notice::ScrubDone { bad_blocks });
        }
        if self.begin_metadata() || !self.throttle.take(span.len()) {
            return;
        }
        if let Some(scrub) = &mut self.scrub {
            scrub.next += 1;
            scrub.step = ScrubStep::Head;
            self.begin_sync(SyncKind::Scrub, span, Verify::Deep);
        }
    }

    /// The heads are the same now, or a member left.
    pub(super) fn head_scrubbed(&mut self, span: Span) {
        if let Some(scrub) = &mut self.scrub {
            scrub.step = ScrubStep::HeadDone(span);
        }
    }

    fn scrub_layers(&mut self, span: Span) {
        let pending = self.slots(|it| it.is_readable() && it.version >= SNAPSHOTS_SINCE);
        let skips = skips!(self.sabotage, HeadScrub);
        if self.snapshots.is_empty() || pending.is_empty() || skips {
            return self.region_scrubbed();
        }
        if !self.throttle.take(span.len()) {
            return;
        }
        let layers = LayerScrub { span, pending, damage: BTreeMap::new(), runs: VecDeque::new() };
        if let Some(scrub) = &mut self.scrub {
            scrub.step = ScrubStep::Layers(layers);
        }
        for slot in pending.iter() {
            let request = Request::Scrub { offset: span.start, length: length(span) };
            self.issue_one(request, slot, Owner::LayerScrub(slot));
        }
    }

    fn region_scrubbed(&mut self) {
        if let Some(scrub) = &mut self.scrub {
            scrub.step = ScrubStep::Idle;
        }
    }

    fn layers(&mut self) -> Option<&mut LayerScrub> {
        match self.scrub.as_mut().map(|scrub| &mut scrub.step) {
            Some(ScrubStep::Layers(layers)) => Some(layers),
            _ => None,
        }
    }

    /// The member has checked its layers. One that did not is left out.
    pub(super) fn layers_scrubbed(&mut self, slot: usize, result: OneResult) {
        let order: Vec<SnapshotId> = self.snapshots.iter().map(|info| info.id).collect();
        let Some(layers) = self.layers() else { return };
        layers.pending.remove(slot);
        if let Ok(Reply::Damage(blocks)) = result {
            for DamagedBlock { snapshot, offset } in blocks {
                let known = order.iter().position(|id| *id == snapshot);
                let within = layers.span.start <= offset && offset + BLOCK <= layers.span.end;
                if let (Some(at), true, true) = (known, within, offset.is_multiple_of(BLOCK)) {
                    layers.damage.entry((at, offset)).or_insert(Slots::NONE).add(slot);
                }
            }
        }
        if layers.pending.is_empty() {
            layers.runs = runs(&layers.damage, &order);
            self.repair_layers();
        }
    }

    /// Asks a member for the next run that is damaged elsewhere.
    fn repair_layers(&mut self) {
        let readable = self.readable();
        loop {
            let active = self.phase == Phase::Active;
            let Some(layers) = self.layers() else { return };
            let Some(run) = layers.runs.front_mut().filter(|_| active) else {
                return self.region_scrubbed();
            };
            let others = readable.without(run.at).without(run.tried);
            let Some(from) = others.iter().next() else {
                let run = run.clone();
                layers.runs.pop_front();
                self.left_damaged(&run, run.at);
                continue;
            };
            run.tried.add(from);
            let (view, offset) = (Some(run.snapshot), run.span.start);
            let request = Request::Read { view, offset, length: length(run.span) };
            self.issue_one(request, from, Owner::LayerRead);
            return;
        }
    }

    /// No member that can be reached has it, or it could not be written.
    fn left_damaged(&mut self, run: &DamagedRun, at: Slots) {
        let (snapshot, offset, length) = (run.snapshot, run.span.start, run.span.len());
        if let Some(scrub) = &mut self.scrub {
            scrub.bad += run.blocks();
        }
        for slot in at.iter() {
            let replica = self.members[slot].id;
            if let Some(scrub) = &mut self.scrub {
                scrub.damage.add(snapshot, replica, ByteRange { offset, length });
            }
            self.notice(Notice::SnapshotDamaged { replica, snapshot, offset, length });
        }
    }

    pub(super) fn layer_read(&mut self, result: OneResult) {
        let (readable, region, now) = (self.readable(), self.region, self.now);
        let Some(layers) = self.layers() else { return };
        let Some(run) = layers.runs.front_mut() else { return };
        let Some((data, crcs)) = whole(result, run.span) else {
            if run.blocks() > 1 {
                let run = run.clone();
                layers.runs.pop_front();
                run.split().rev().for_each(|block| layers.runs.push_front(block));
            }
            return self.repair_layers();
        };
        run.writing = run.at.and(readable);
        let (to, snapshot, span) = (run.writing, run.snapshot, run.span);
        if to.is_empty() {
            layers.runs.pop_front();
            return self.repair_layers();
        }
        for slot in to.iter() {
            // The page that says what is there again is written when the region is settled.
            self.flush.regions.begin(region, span, now);
            let (data, crcs) = (data.clone(), crcs.clone());
            let request = Request::Repair { snapshot, offset: span.start, data, crcs };
            self.issue_one(request, slot, Owner::LayerRepair { slot, span });
        }
    }

    pub(super) fn layer_repaired(&mut self, slot: usize, span: Span, result: OneResult) {
        self.flush.regions.end(self.region, span);
        let replica = self.members[slot].id;
        let Some(layers) = self.layers() else { return };
        let Some(run) = layers.runs.front_mut().filter(|run| run.writing.has(slot)) else { return };
        run.writing.remove(slot);
        let run = run.clone();
        if run.writing.is_empty() {
            layers.runs.pop_front();
        }
        match result {
            Ok(_) => {
                if let Some(scrub) = &mut self.scrub {
                    scrub.bad += run.blocks();
                }
                let (offset, length) = (span.start, span.len());
                self.notice(Notice::Repaired { replica, offset, length });
            }
            Err(_) => self.left_damaged(&run, Slots::one(slot)),
        }
        if run.writing.is_empty() {
            self.repair_layers();
        }
    }
}

/// The data that was read, if every block matches its checksum.
fn whole(result: OneResult, span: Span) -> Option<(bytes::Bytes, Crcs)> {
    let Ok(Reply::Data { data, crcs }) = result else { return None };
    let complete = data.len() as u64 == span.len();
    (complete && crcs.mismatch(&data).is_none()).then_some((data, crcs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_becomes_runs_with_the_oldest_snapshot_first() {
        let [one, two] = [1, 2].map(SnapshotId::from_u128);
        let slots = |list: &[usize]| list.iter().copied().collect::<Slots>();
        let damage = BTreeMap::from([
            ((1, 0), slots(&[0])),
            ((0, 4 * BLOCK), slots(&[0])),
            ((0, 5 * BLOCK), slots(&[0])),
            ((0, 6 * BLOCK), slots(&[0, 2])),
            ((0, 8 * BLOCK), slots(&[0, 2])),
            ((2, 0), slots(&[1])),
        ]);
        let run = |snapshot, block, count, at: &[usize]| {
            DamagedRun::new(snapshot, Span::new(block * BLOCK, count * BLOCK), slots(at))
        };
        let found = runs(&damage, &[one, two]);
        let expected = [
            run(one, 4, 2, &[0]),
            run(one, 6, 1, &[0, 2]),
            run(one, 8, 1, &[0, 2]),
            run(two, 0, 1, &[0]),
        ];
        assert_eq!(found, expected, "and a snapshot that is gone is left out");
        let single: Vec<DamagedRun> = found[0].split().collect();
        assert_eq!(single, [run(one, 4, 1, &[0]), run(one, 5, 1, &[0])]);
    }
}
