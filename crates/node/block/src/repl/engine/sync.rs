//! Makes a range the same on several replicas.
//!
//! ```text
//!  Locking ──range free──► Mapping ──all maps──► Moving ──all written──► done
//!     ▲                       │ no member has a block  │ a block read badly
//!     │                       ▼                        │
//!     └──────answered───── Adopting                    │
//!     └──────────────── checking every block ◄─────────┘
//! ```
//!
//! The reason decides which members take part and which of them is believed: [`SyncKind`].

use std::collections::BTreeMap;

use super::event::{GuestError, GuestId};
use super::guest::{Waiting, length};
use super::member::{Member, Role};
use super::notice::{MemberFault, Notice};
use super::ops::{OneResult, Owner};
use super::sync_plan::Run;
use super::{Engine, Phase};
use crate::checksum::SumKey;
use crate::ids::SnapshotId;
use crate::repl::slots::Slots;
use crate::repl::span::Span;
use crate::wire::{BLOCK, BlockState, Reply, Request, Verify};

/// How often a range is tried before it is given up.
const ATTEMPTS: u8 = 6;

#[derive(Debug)]
pub(super) struct Sync {
    pub(super) kind: SyncKind,
    pub(super) span: Span,
    pub(super) step: SyncStep,
    pub(super) locked: bool,
    pub(super) verify: Verify,
    pub(super) attempts: u8,
    pub(super) source: usize,
    pub(super) taking_part: Slots,
    pub(super) maps: BTreeMap<usize, Vec<BlockState>>,
    pub(super) runs: Vec<Run>,
    /// The member that was ordered to accept its content as right, where it may be torn.
    pub(super) adopted: Option<usize>,
    /// Something went wrong while moving: start over when nothing is under way any more. Copies
    /// of two attempts must not meet.
    pub(super) retry: Option<Verify>,
    /// No member that takes part has it, but one that is away may: it waits for that one.
    pub(super) patient: bool,
}

#[derive(Debug)]
pub(super) enum SyncKind {
    /// A region after an unclean stop: all members, the best one is believed.
    Reconcile,
    /// A chunk of a learner: the content of `view` at a member becomes the learner's head.
    Rebuild {
        learner: usize,
        view: Option<SnapshotId>,
        compare: bool,
    },
    /// Blocks that could not be read. The request goes on afterwards.
    Repair(Waiting),
    Scrub,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncStep {
    Locking,
    Mapping(Slots),
    Adopting,
    /// How many reads and writes are under way.
    Moving(usize),
}

impl Sync {
    pub(super) fn span(&self) -> Span {
        self.span
    }

    pub(super) fn guest(&self) -> Option<GuestId> {
        match &self.kind {
            SyncKind::Repair(waiting) => Some(waiting.guest),
            _ => None,
        }
    }

    pub(super) fn concerns(&self, slot: usize) -> bool {
        self.taking_part.has(slot)
    }

    fn is_of_learner(&self, slot: usize) -> bool {
        matches!(self.kind, SyncKind::Rebuild { learner, .. } if learner == slot)
    }
}

impl Engine {
    pub(super) fn drive_syncs(&mut self) {
        let holds = self.barrier.as_ref().is_some_and(super::barrier::Barrier::holds_changes);
        let sent = self.barrier.as_ref().is_some_and(super::barrier::Barrier::is_sent);
        if !self.unreconciled.is_empty() && !sent {
            self.begin_reconciles();
        }
        if self.scrub.is_some() && !holds && self.phase == Phase::Active {
            self.drive_scrub();
        }
        if self.syncs.is_empty() {
            return;
        }
        let idle: Vec<u64> = self
            .syncs
            .iter()
            .filter(|(_, sync)| sync.step == SyncStep::Locking)
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.advance(id);
        }
    }

    fn begin_reconciles(&mut self) {
        let running = |sync: &&Sync| matches!(sync.kind, SyncKind::Reconcile);
        let mut room =
            self.config.copies.saturating_sub(self.syncs.values().filter(running).count());
        if room == 0 {
            return;
        }
        // First the ranges that requests wait for, then the rest in order.
        let mut wanted: Vec<u64> = Vec::new();
        for waiting in self.queue.iter().take(64) {
            let span = waiting.span();
            wanted.extend(span.start / self.region..span.end.div_ceil(self.region));
        }
        wanted.extend(self.unreconciled.iter().take(self.config.copies * 2));
        for region in wanted {
            let span = self.unreconciled.span(region).clipped(self.size);
            let busy = self.syncs.values().filter(running).any(|sync| sync.span == span);
            if room > 0 && self.unreconciled.contains(region) && !busy {
                if span.len() == 0 {
                    self.unreconciled.remove(region);
                    continue;
                }
                self.begin_sync(SyncKind::Reconcile, span, Verify::Suspect);
                room -= 1;
            }
        }
    }

    pub(super) fn begin_repair(&mut self, waiting: Waiting) {
        let span = waiting.span();
        self.begin_sync(SyncKind::Repair(waiting), span, Verify::Deep);
    }

    pub(super) fn begin_sync(&mut self, kind: SyncKind, span: Span, verify: Verify) -> u64 {
        let id = self.number();
        let sync = Sync {
            kind,
            span,
            step: SyncStep::Locking,
            locked: false,
            verify,
            attempts: 0,
            source: 0,
            taking_part: Slots::NONE,
            maps: BTreeMap::new(),
            runs: Vec::new(),
            adopted: None,
            retry: None,
            patient: false,
        };
        self.syncs.insert(id, sync);
        id
    }

    /// The members that can take part now, and the one that is believed first.
    fn parties(&self, sync: &Sync) -> Option<(usize, Slots)> {
        let readable = self.readable();
        let best =
            readable.iter().max_by_key(|slot| (self.credibility(*slot), self.members[*slot].id))?;
        match sync.kind {
            // A member that is away must not miss it: it comes back, or it leaves.
            SyncKind::Reconcile => {
                let members = self.slots(Member::counts);
                let well =
                    |slot: usize| self.members[slot].is_up() && self.members[slot].fault.is_none();
                members.iter().all(well).then_some((best, members))
            }
            SyncKind::Repair(_) if sync.patient && !self.away().is_empty() => None,
            SyncKind::Repair(_) | SyncKind::Scrub => Some((best, readable)),
            SyncKind::Rebuild { learner, .. } => {
                let deep = sync.verify == Verify::Deep;
                let others = if deep { readable } else { Slots::one(best) };
                Some((best, others.or(Slots::one(learner))))
            }
        }
    }

    /// The most credible first.
    pub(super) fn by_credibility(&self, members: Slots) -> Vec<usize> {
        let mut members: Vec<usize> = members.iter().collect();
        members.sort_by_key(|slot| {
            std::cmp::Reverse((self.credibility(*slot), self.members[*slot].id))
        });
        members
    }

    /// Members that may have lost writes that they answered.
    pub(super) fn lossy(&self) -> Slots {
        self.slots(|member| member.opened.as_ref().is_some_and(|it| it.lost_writes))
    }

    /// Members that cannot be asked just now: they come back, or they leave.
    pub(super) fn away(&self) -> Slots {
        self.slots(|member| matches!(member.role, Role::InSync) && !member.is_readable())
    }

    /// Takes the lock, or goes on to ask for maps.
    fn advance(&mut self, id: u64) {
        let Some(sync) = self.syncs.get(&id) else { return };
        let Some((source, parties)) = self.parties(sync) else { return };
        let span = sync.span;
        // The head of a learner that gets no changes does not concern the others.
        let alone = matches!(sync.kind, SyncKind::Rebuild { view: Some(_), .. });
        if !alone && !sync.locked && !self.locks.try_change(id, span) {
            return;
        }
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        sync.locked = !alone;
        sync.source = source;
        sync.taking_part = parties;
        sync.maps.clear();
        sync.step = SyncStep::Mapping(parties);
        let (verify, view) = (sync.asks(self.config.sum_secret, id), sync.view());
        for slot in parties.iter() {
            let Some(sync) = self.syncs.get(&id) else { return };
            let view = if sync.is_of_learner(slot) { None } else { view };
            let request =
                Request::ReadMap { view, offset: span.start, length: length(span), verify };
            self.issue_one(request, slot, Owner::SyncMap { sync: id, slot });
        }
    }

    pub(super) fn sync_mapped(&mut self, id: u64, slot: usize, result: OneResult) {
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        if sync.step == SyncStep::Adopting {
            // When the connection broke it may not have received it: then it is sent again.
            if result == Err(None) {
                sync.adopted = None;
            }
            return self.again(id, Verify::Suspect);
        }
        let SyncStep::Mapping(mut left) = sync.step else { return };
        match result {
            Ok(Reply::Map(map)) if map.len() as u64 == sync.span.len() / BLOCK => {
                sync.maps.insert(slot, map);
                left.remove(slot);
                sync.step = SyncStep::Mapping(left);
                if left.is_empty() {
                    self.mapped(id);
                }
            }
            Err(None) => sync.step = SyncStep::Locking,
            _ => {
                let verify = sync.verify;
                self.blame(slot, result);
                self.again(id, verify);
            }
        }
    }

    /// A member could not even be read; without it the others may do better.
    fn blame(&mut self, slot: usize, result: OneResult) {
        let refusal = result.err().flatten().unwrap_or(crate::wire::Refusal::Invalid);
        let others = self.readable().without(Slots::one(slot));
        let learns = matches!(self.members[slot].role, Role::Learner(_) | Role::Joining { .. });
        if learns || !others.is_empty() {
            self.member_fault(slot, MemberFault::Refused(refusal));
        }
    }

    /// Starts over, keeping the lock.
    pub(super) fn again(&mut self, id: u64, verify: Verify) {
        let Some(sync) = self.syncs.get_mut(&id) else { return };
        sync.attempts += 1;
        sync.step = SyncStep::Locking;
        sync.verify = verify;
        // There is no going on without reconciling.
        if sync.attempts > ATTEMPTS && !matches!(sync.kind, SyncKind::Reconcile) {
            self.finish(id, false);
        }
    }

    pub(super) fn finish(&mut self, id: u64, done: bool) {
        let Some(sync) = self.syncs.remove(&id) else { return };
        self.locks.forget(id);
        if sync.locked {
            self.locks.change_done(id, sync.span);
        }
        match sync.kind {
            SyncKind::Reconcile => {
                let members = sync.taking_part;
                for (slot, member) in self.members.iter_mut().enumerate() {
                    member.missed_acked |= !members.has(slot);
                }
                self.unreconciled.remove(sync.span.start / self.region);
                if self.unreconciled.is_empty() {
                    self.reconciled();
                }
            }
            SyncKind::Rebuild { learner, .. } if done => self.chunk_copied(learner, sync.span),
            SyncKind::Rebuild { learner, .. } => {
                self.learner_failed(
                    learner,
                    MemberFault::Refused(crate::wire::Refusal::BadChecksum),
                );
            }
            SyncKind::Repair(waiting) if done => self.queue.push_front(waiting),
            SyncKind::Repair(waiting) => self.reply(waiting.guest, Err(GuestError::Io)),
            SyncKind::Scrub => self.head_scrubbed(sync.span),
        }
    }

    /// Every member has the same now; none is worse than another.
    fn reconciled(&mut self) {
        self.notice(Notice::Reconciled);
        self.reconciled_disputes();
        for member in &mut self.members {
            member.opened.iter_mut().for_each(|opened| opened.lost_writes = false);
        }
        let members = self.slots(Member::counts);
        self.issue_each(Request::Reconciled, members, Owner::Unowned);
    }

    /// The learner is gone: so is the work on it. Returns what was not done.
    pub(super) fn drop_syncs_of(&mut self, slot: usize) -> Vec<Span> {
        let ids: Vec<u64> = self
            .syncs
            .iter()
            .filter(|(_, sync)| sync.is_of_learner(slot))
            .map(|(id, _)| *id)
            .collect();
        let mut spans = Vec::new();
        for id in ids {
            if let Some(sync) = self.syncs.remove(&id) {
                self.locks.forget(id);
                if sync.locked {
                    self.locks.change_done(id, sync.span);
                }
                spans.push(sync.span);
            }
        }
        spans
    }
}

impl Sync {
    /// How the maps are made. Where they decide that blocks are the same, they need sums that no
    /// guest can make equal; a rebuild that copies everything only needs to know what is zeroes.
    fn asks(&self, secret: SumKey, id: u64) -> Verify {
        match (&self.kind, self.verify) {
            (SyncKind::Rebuild { compare: false, .. }, verify) | (_, verify @ Verify::Adopt) => {
                verify
            }
            _ => Verify::Compare(secret.of_comparison(id)),
        }
    }

    /// One block of the range.
    pub(super) fn block(&self, index: usize) -> Span {
        Span::new(self.span.start + index as u64 * BLOCK, BLOCK)
    }

    pub(super) fn view(&self) -> Option<SnapshotId> {
        match self.kind {
            SyncKind::Rebuild { view, .. } => view,
            _ => None,
        }
    }
}
