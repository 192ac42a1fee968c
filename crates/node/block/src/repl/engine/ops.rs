//! Calls under way, and what their answers mean.
//!
//! An operation is one request to some members. Its [`Scope`] says how many answers it needs, its
//! [`Owner`] who receives the result. It stays until every member that still matters has answered,
//! also when its owner was answered long ago: changes must not overtake each other at a learner
//! that is behind.

use super::event::{GuestError, Time};
use super::guest::Waiting;
use super::locks::Holder;
use super::notice::MemberFault;
pub(super) use super::owner::{OneResult, Owner, Scope};
use super::{Engine, Phase};
use crate::ids::Seq;
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;
use crate::repl::span::Span;
use crate::wire::{Refusal, Reply, Request};

#[derive(Debug)]
pub(super) struct Op {
    request: Request,
    seq: Seq,
    scope: Scope,
    owner: Option<Owner>,
    targets: Slots,
    waiting: Slots,
    refused: Slots,
    refusal: Option<Refusal>,
    started: Time,
    hold: Hold,
}

/// The lock that a change holds until every member has done it.
#[derive(Debug, Clone, Copy)]
enum Hold {
    Nothing,
    /// Its regions stay in the logs.
    Regions(Span),
    /// That, its range, and room for more changes.
    Range(Holder, Span),
}

impl Op {
    pub(super) fn span(&self) -> Option<Span> {
        let range = self.request.range().filter(|_| self.request.changes_blocks());
        range.map(|(offset, length)| Span::new(offset, length))
    }

    /// Whether the member has not done, or not been seen to do, this change.
    pub(super) fn concerns(&self, slot: usize) -> bool {
        self.waiting.has(slot) || self.refused.has(slot)
    }

    pub(super) fn waits_for(&self, slot: usize) -> bool {
        self.waiting.has(slot)
    }

    /// Whether some member of those that must all answer has done so.
    pub(super) fn was_answered_by_another(&self) -> bool {
        self.scope == Scope::All && !self.targets.without(self.waiting).is_empty()
    }

    pub(super) fn started(&self) -> Time {
        self.started
    }
}

impl Engine {
    pub(super) fn issue_one(&mut self, request: Request, slot: usize, owner: Owner) -> u64 {
        self.issue(request, Scope::One, Slots::one(slot), owner)
    }

    pub(super) fn issue_each(&mut self, request: Request, to: Slots, owner: Owner) -> u64 {
        self.issue(request, Scope::Each, to, owner)
    }

    /// To the in-sync set, and to live learners if it changes blocks. Members that are leaving
    /// are waited for although they get nothing: until the record says that they have left, they
    /// may be all that another engine finds.
    pub(super) fn issue_all(&mut self, request: Request, owner: Owner) -> u64 {
        let changes = request.changes_blocks();
        let live = self.slots(|member| changes && member.gets_changes());
        let targets = self.required().or(live);
        self.issue(request, Scope::All, targets, owner)
    }

    fn issue(&mut self, request: Request, scope: Scope, targets: Slots, owner: Owner) -> u64 {
        let id = self.number();
        let seq = match request.changes_blocks() {
            true => {
                self.seq = self.seq.next();
                self.seq
            }
            false => Seq(0),
        };
        for slot in
            targets.iter().filter(|slot| self.members[*slot].is_up()).collect::<Slots>().iter()
        {
            self.send(slot, id, seq, request.clone());
        }
        let op = Op {
            request,
            seq,
            scope,
            owner: Some(owner),
            targets,
            waiting: targets,
            refused: Slots::NONE,
            refusal: None,
            started: self.now,
            hold: Hold::Nothing,
        };
        self.ops.insert(id, op);
        id
    }

    /// A guest's change, whose range is locked by `holder`; without one, by the operation itself.
    pub(super) fn issue_change(
        &mut self,
        request: Request,
        waiting: Waiting,
        since: Time,
        holder: Option<Holder>,
    ) {
        let (offset, length) = request.range().expect("a change is of a range");
        let span = Span::new(offset, length);
        self.remember_change(span);
        let id = self.issue_all(request, Owner::Change { waiting, since });
        let holder = holder.unwrap_or_else(|| {
            self.locks.change(id, span);
            id
        });
        self.window += span.len();
        self.flush.regions.begin(self.region, span, self.now);
        // The replicas' logs have room for a limited number; when it is used up, writes wait.
        self.flush.due |= self.flush.regions.len() > self.config.max_dirty;
        if let Some(op) = self.ops.get_mut(&id) {
            op.hold = Hold::Range(holder, span);
        }
    }

    /// A copy that brings members or a learner up to what others have.
    pub(super) fn issue_copy(&mut self, request: Request, to: Slots, owner: Owner) {
        let (offset, length) = request.range().expect("a copy is of a range");
        let span = Span::new(offset, length);
        self.flush.regions.begin(self.region, span, self.now);
        let id = self.issue_each(request, to, owner);
        if let Some(op) = self.ops.get_mut(&id) {
            op.hold = Hold::Regions(span);
        }
    }

    /// Members that do not receive the change have one more chunk to catch up with.
    pub(super) fn remember_change(&mut self, span: Span) {
        for member in self.members.iter_mut().filter(|member| !member.gets_changes()) {
            if member.tracked {
                member.changed.insert(span);
            }
        }
    }

    /// Sends again what a member that resumes has not answered, in the old order.
    pub(super) fn resend(&mut self, slot: usize) {
        let again: Vec<(u64, Seq, Request)> = self
            .ops
            .iter()
            .filter(|(_, op)| op.waiting.has(slot))
            .map(|(id, op)| (*id, op.seq, op.request.clone()))
            .collect();
        for (id, seq, request) in again {
            self.send(slot, id, seq, request);
        }
    }

    pub(super) fn op_answered(&mut self, slot: usize, id: u64, result: Result<Reply, Refusal>) {
        let Some(op) = self.ops.get_mut(&id).filter(|op| op.waiting.has(slot)) else { return };
        op.waiting.remove(slot);
        let took = self.now.saturating_sub(op.started);
        if op.scope != Scope::Each {
            self.members[slot].latency.add(took);
        }
        if let (Ok(_), Request::Flush { number, .. }) = (&result, &op.request) {
            self.members[slot].flushed = self.members[slot].flushed.max(*number);
        }
        match result {
            Ok(reply) if op.scope == Scope::One => return self.end_one(id, Ok(reply)),
            Err(refusal) if op.scope == Scope::One => return self.end_one(id, Err(Some(refusal))),
            Ok(_) => {}
            Err(refusal) => {
                op.refused.add(slot);
                op.refusal = Some(refusal);
            }
        }
        self.review(id);
    }

    fn end_one(&mut self, id: u64, result: OneResult) {
        let owner = self.ops.remove(&id).and_then(|op| op.owner);
        match owner {
            Some(Owner::Read { waiting, since }) => self.read_answered(id, waiting, since, result),
            Some(Owner::Join(slot)) => self.join_flushed(slot, result),
            Some(Owner::Log(slot)) => self.log_known(slot, result),
            Some(Owner::Learn(slot)) => self.learner_stepped(slot, result),
            Some(Owner::SyncMap { sync, slot }) => self.sync_mapped(sync, slot, result),
            Some(Owner::SyncRead { sync, slot }) => self.sync_read(sync, slot, result),
            Some(Owner::MetadataScrub(slot)) => self.metadata_scrubbed(slot, result),
            Some(Owner::LayerScrub(slot)) => self.layers_scrubbed(slot, result),
            Some(Owner::LayerRead) => self.layer_read(result),
            Some(Owner::LayerRepair { slot, span }) => self.layer_repaired(slot, span, result),
            Some(Owner::Fill { fill, offset }) => self.filled(fill, offset, result),
            _ => {}
        }
    }

    /// Checks whether enough members have answered.
    fn review(&mut self, id: u64) {
        let required = self.required();
        let sound = self.slots(|member| member.counts() && member.fault.is_none());
        let Some(op) = self.ops.get_mut(&id) else { return };
        let must = match op.scope {
            Scope::All => op.targets.and(required),
            Scope::One | Scope::Each => op.targets,
        };
        let refused = must.and(op.refused);
        let done = must.without(op.waiting).without(op.refused);
        let answered = must.and(op.waiting).is_empty()
            || (skips!(self.sabotage, EarlyAck) && !done.is_empty());
        let all_refused = op.scope == Scope::All && !must.is_empty() && refused == must;
        // A member that refused is faulty if another one stays and succeeds. One that leaves does
        // not count: blaming the last one that stays would leave no member.
        let alone = op.scope == Scope::All && must.and(sound).without(op.refused).is_empty();
        let mut ended = None;
        let why = op.refusal.unwrap_or(Refusal::Io);
        let failed: Vec<usize> =
            op.refused.without(if alone { must } else { Slots::NONE }).iter().collect();
        if answered && (refused.is_empty() || all_refused || op.scope == Scope::Each) {
            ended = op.owner.take();
        }
        let span = op.span();
        if let (Some(Owner::Change { .. }), Some(span), true) = (&ended, span, refused.is_empty())
            && !self.disputes.is_empty()
        {
            self.disputes.rewritten(span);
        }
        let lasting = span.is_some() || matches!(ended, Some(Owner::Barrier));
        if ended.is_some() && refused.is_empty() && op.scope == Scope::All && lasting {
            self.remember_acked(done);
        }
        for slot in failed {
            // The owner's request may complete without this member before it leaves.
            span.into_iter().for_each(|span| self.members[slot].changed.insert(span));
            self.member_fault(slot, MemberFault::Refused(why));
        }
        if let Some(owner) = ended {
            let result = if refused.is_empty() { Ok(()) } else { Err(why) };
            if let (true, Some(span), true) = (all_refused, span, must.len() > 1) {
                // No member did it all, but some may have done a part.
                self.unreconciled.insert(span);
            }
            if let (true, Some(span)) = (all_refused, span) {
                self.learners_recopy(span);
            }
            self.op_ended(owner, result);
        }
        if self.ops.get(&id).is_some_and(|op| op.owner.is_none() && op.waiting.is_empty())
            && let Some(op) = self.ops.remove(&id)
        {
            self.release(op.hold);
        }
    }

    fn op_ended(&mut self, owner: Owner, result: Result<(), Refusal>) {
        match owner {
            Owner::Change { waiting, since } => {
                self.change_answered(waiting, since, result);
            }
            Owner::Flush => self.flushed(result),
            Owner::Barrier => self.barrier_answered(result),
            Owner::Settling => self.settled_flush(result),
            Owner::Closing => self.closing_answered(result),
            Owner::SyncWrite { sync } => self.sync_written(sync, result),
            _ => {}
        }
    }

    /// Everybody has done the change: its range is free.
    fn release(&mut self, hold: Hold) {
        match hold {
            Hold::Nothing => {}
            Hold::Regions(span) => self.flush.regions.end(self.region, span),
            Hold::Range(holder, span) => {
                self.window -= span.len();
                self.flush.regions.end(self.region, span);
                self.locks.change_done(holder, span);
            }
        }
    }

    /// The members that count have changed: some operations may now be complete.
    pub(super) fn review_ops(&mut self) {
        let all: Vec<u64> = self.ops.keys().copied().collect();
        for id in all {
            self.review(id);
        }
    }

    /// The member will not answer any more and is not waited for.
    pub(super) fn forget_in_ops(&mut self, slot: usize) {
        let concerned: Vec<u64> =
            self.ops.iter().filter(|(_, op)| op.targets.has(slot)).map(|(id, _)| *id).collect();
        for id in concerned {
            let Some(op) = self.ops.get_mut(&id) else { continue };
            let lost = op.scope == Scope::One;
            op.waiting.remove(slot);
            op.targets.remove(slot);
            op.refused.remove(slot);
            match lost {
                true => self.end_one(id, Err(None)),
                false => self.review(id),
            }
        }
    }

    /// A replica takes part in everything that is not acknowledged yet.
    pub(super) fn add_to_ops(&mut self, slot: usize) {
        for op in self.ops.values_mut() {
            if op.scope == Scope::All && op.owner.is_some() && !op.targets.has(slot) {
                op.targets.add(slot);
                op.waiting.add(slot);
            }
        }
    }

    /// Members that did not take part in an acknowledged change lack it.
    fn remember_acked(&mut self, done: Slots) {
        for (slot, member) in self.members.iter_mut().enumerate() {
            member.missed_acked |= !done.has(slot);
        }
    }

    /// Sends to another member the requests that only this one was sent.
    pub(super) fn reroute(&mut self, slot: usize) {
        let alone = |op: &Op| op.scope == Scope::One && op.waiting.has(slot);
        let ids: Vec<u64> =
            self.ops.iter().filter(|(_, op)| alone(op)).map(|(id, _)| *id).collect();
        for id in ids {
            self.end_one(id, Err(None));
        }
    }

    pub(super) fn guest_error(refusal: Refusal) -> GuestError {
        match refusal {
            Refusal::NoSpace => GuestError::NoSpace,
            Refusal::NoSnapshot => GuestError::NoSnapshot,
            Refusal::Invalid => GuestError::Invalid,
            Refusal::Busy => GuestError::Busy,
            Refusal::Fenced => GuestError::Shutdown,
            _ => GuestError::Io,
        }
    }

    /// The requests of the guest that wait for answers of members.
    pub(super) fn ops_guests(&self) -> Vec<u64> {
        let owners = self.ops.values().filter_map(|op| op.owner.as_ref());
        let guests = owners.filter_map(|owner| match owner {
            Owner::Change { waiting, .. } | Owner::Read { waiting, .. } => Some(waiting.guest),
            _ => None,
        });
        guests.collect()
    }

    pub(super) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Active)
    }
}
