//! The second half of a sync: differing blocks are read from a member that has them, and written
//! where they are missing.

use std::collections::BTreeMap;

use super::Engine;
use super::guest::length;
use super::notice::Notice;
use super::ops::{OneResult, Owner};
use super::sync::{Sync, SyncKind, SyncStep};
use super::sync_plan::{Run, Ties, Trust, plan};
use crate::repl::slots::Slots;
use crate::repl::span::Span;
use crate::wire::{BLOCK, BlockState, Crcs, Refusal, Reply, Request, Verify};

impl Engine {
    pub(super) fn mapped(&mut self, id: u64) {
        let served = self.slots(super::member::Member::is_served);
        let away = self.away();
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        if !sync.taking_part.without(served).is_empty() {
            // A member has left meanwhile; the others go on without it.
            sync.step = SyncStep::Locking;
            return;
        }
        let (compare, targets, trusted) = match sync.kind {
            SyncKind::Rebuild { learner, compare, .. } => {
                let learner = Slots::one(learner);
                (compare, learner, sync.taking_part.without(learner))
            }
            _ => (true, sync.taking_part, sync.taking_part),
        };
        let ties = match sync.kind {
            SyncKind::Repair(_) | SyncKind::Scrub => Ties::Ambiguous,
            SyncKind::Reconcile | SyncKind::Rebuild { .. } => Ties::BestMember,
        };
        // Elsewhere all members have the same, whatever they had flushed when they were opened.
        let ages = match sync.kind {
            SyncKind::Reconcile => self.ages(trusted),
            SyncKind::Repair(_) | SyncKind::Scrub | SyncKind::Rebuild { .. } => BTreeMap::new(),
        };
        let trusted = self.by_credibility(trusted);
        let lossy = self.lossy();
        let disputes = &self.disputes;
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        let start = sync.span.start;
        let disputed =
            |at: usize| disputes.is_disputed(Span::new(start + at as u64 * BLOCK, BLOCK));
        let trust = Trust { trusted: &trusted, lossy, ties, ages: &ages, disputed: &disputed };
        let mut found = plan(&sync.maps, &trust, targets, compare);
        if matches!(sync.kind, SyncKind::Rebuild { view: None, .. }) {
            // Disputed blocks are not served before a guest writes them: they need no copy.
            found.lost.retain(|at| !disputed(*at));
        }
        let ambiguous: Vec<Span> = found.ambiguous.iter().map(|at| sync.block(*at)).collect();
        let lost: Vec<Span> = found.lost.iter().map(|at| sync.block(*at)).collect();
        if !found.lost.is_empty() {
            match sync.kind {
                SyncKind::Reconcile if sync.adopted != Some(sync.source) => {
                    sync.step = SyncStep::Adopting;
                    sync.adopted = Some(sync.source);
                    let (span, source) = (sync.span, sync.source);
                    let request = Request::ReadMap {
                        view: None,
                        offset: span.start,
                        length: length(span),
                        verify: Verify::Adopt,
                    };
                    self.issue_one(request, source, Owner::SyncMap { sync: id, slot: source });
                    return;
                }
                SyncKind::Rebuild { .. } if sync.verify != Verify::Deep => {
                    return self.again(id, Verify::Deep);
                }
                SyncKind::Rebuild { .. } => return self.finish(id, false),
                // A guest would take an error for the truth.
                SyncKind::Repair(_) if !away.is_empty() => {
                    sync.patient = true;
                    sync.step = SyncStep::Locking;
                    return;
                }
                SyncKind::Reconcile | SyncKind::Repair(_) | SyncKind::Scrub => {
                    self.found_lost(&lost);
                }
            }
        }
        self.found_disputed(id, &ambiguous);
        self.report(id, &found.runs);
        self.move_runs(id, found.runs);
    }

    /// Reports blocks that should not have been different.
    fn report(&mut self, id: u64, runs: &[Run]) {
        let Some(sync) = self.syncs.get(&id) else { return };
        if !matches!(sync.kind, SyncKind::Repair(_) | SyncKind::Scrub) {
            return;
        }
        let mut notices = Vec::new();
        for run in runs {
            let (offset, length) =
                (sync.span.start + run.first as u64 * BLOCK, run.count as u64 * BLOCK);
            for slot in run.to.iter() {
                let replica = self.members[slot].id;
                let bad = sync.maps[&slot][run.first] == BlockState::Bad;
                notices.push(match bad {
                    true => Notice::Repaired { replica, offset, length },
                    false => Notice::Diverged { replica, offset, length },
                });
            }
        }
        if let Some(scrub) = &mut self.scrub
            && matches!(sync.kind, SyncKind::Scrub)
        {
            scrub.bad += runs.iter().map(|run| run.count as u64).sum::<u64>();
        }
        notices.into_iter().for_each(|notice| self.notice(notice));
    }

    fn move_runs(&mut self, id: u64, runs: Vec<Run>) {
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        let span = sync.span;
        let fua = matches!(sync.kind, SyncKind::Reconcile);
        sync.runs = runs.clone();
        sync.step = SyncStep::Moving(0);
        // One read of everything between the first and the last block that a member gives.
        let mut hulls: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for run in &runs {
            if let Some(from) = run.from {
                let hull = hulls.entry(from).or_insert((run.first, run.first));
                hull.1 = run.first + run.count;
            }
        }
        let view = sync.view();
        for (slot, (first, end)) in hulls {
            let offset = span.start + first as u64 * BLOCK;
            let length = length(Span::new(0, (end - first) as u64 * BLOCK));
            self.under_way(id);
            let request = Request::Read { view, offset, length };
            self.issue_one(request, slot, Owner::SyncRead { sync: id, slot });
        }
        for run in runs.iter().filter(|run| run.from.is_none()) {
            let offset = span.start + run.first as u64 * BLOCK;
            let length = length(Span::new(0, run.count as u64 * BLOCK));
            let request = Request::WriteZeroes { offset, length, fua };
            self.put(id, request, run.to);
        }
        self.moved(id);
    }

    pub(super) fn sync_read(&mut self, id: u64, slot: usize, result: OneResult) {
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        let SyncStep::Moving(left) = sync.step else { return };
        let (span, fua) = (sync.span, matches!(sync.kind, SyncKind::Reconcile));
        let runs: Vec<Run> =
            sync.runs.iter().filter(|run| run.from == Some(slot)).copied().collect();
        let first = runs.first().map_or(0, |run| run.first);
        sync.step = SyncStep::Moving(left - 1);
        let Ok(Reply::Data { data, crcs }) = result else {
            sync.retry = Some(sync.verify);
            return self.moved(id);
        };
        let pieces = runs.iter().map(|run| {
            let (from, to) = (run.first - first, run.first - first + run.count);
            let bytes = from * BLOCK as usize..to * BLOCK as usize;
            let sums: Crcs = crcs.as_slice().get(from..to)?.iter().copied().collect();
            let data = (bytes.end <= data.len()).then(|| data.slice(bytes))?;
            sums.mismatch(&data).is_none().then_some((*run, data, sums))
        });
        let Some(pieces) = pieces.collect::<Option<Vec<_>>>() else {
            sync.retry = Some(Verify::Deep);
            return self.moved(id);
        };
        for (run, data, crcs) in pieces {
            let offset = span.start + run.first as u64 * BLOCK;
            self.put(id, Request::Copy { offset, data, crcs, fua }, run.to);
        }
        self.moved(id);
    }

    fn put(&mut self, id: u64, request: Request, to: Slots) {
        // A member that has left since the plan was made has this range on its list of missed
        // ones.
        let to = to.and(self.slots(super::member::Member::is_served));
        if to.is_empty() {
            return;
        }
        self.under_way(id);
        self.issue_copy(request, to, Owner::SyncWrite { sync: id });
    }

    fn under_way(&mut self, id: u64) {
        if let Some(Sync { step: SyncStep::Moving(left), .. }) = self.syncs.get_mut(&id) {
            *left += 1;
        }
    }

    /// A range that one of them refused is not the same on all. It is gone over again with those
    /// that are left, or it would count as done while the one that refused still belongs to them.
    pub(super) fn sync_written(&mut self, id: u64, result: Result<(), Refusal>) {
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        if let SyncStep::Moving(left) = &mut sync.step {
            *left = left.saturating_sub(1);
            if result.is_err() {
                sync.retry.get_or_insert(sync.verify);
            }
            self.moved(id);
        }
    }

    fn moved(&mut self, id: u64) {
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        if sync.step == SyncStep::Moving(0) {
            match sync.retry.take() {
                Some(verify) => self.again(id, verify),
                None => self.finish(id, true),
            }
        }
    }
}
