//! The record in the control plane: taking a generation, shrinking and growing the in-sync set.
//!
//! One call at a time. A swap that was not answered may have happened, so until the record was
//! read again everybody that a proposal named stays required: [`Role::Leaving`] members were to be
//! removed and perhaps are, [`Role::Joining`] ones were to be added and perhaps are.

use std::collections::BTreeSet;
use std::time::Duration;

use super::event::{Action, ControlAnswer, Time};
use super::member::{JoinStep, Link, Member, Role};
use super::notice::{Fault, MemberFault, Notice};
use super::{Closing, Engine, Phase};
use crate::ids::{FlushMark, Generation, ReplicaId};
use crate::repl::control::{Record, Versioned};
use crate::repl::evidence;
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;
use crate::repl::span::{Pieces, Span};
use crate::wire::Request;

/// A member that answered for so long is not held responsible for earlier silence.
const STRIKES_FORGOTTEN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) known: Option<Versioned>,
    call: Option<Call>,
    retry: Option<Time>,
    /// Members of proposals that have no certain answer.
    pub(super) proposed: Slots,
}

#[derive(Debug)]
enum Call {
    Read,
    Swap(Box<Record>),
}

impl Control {
    pub(super) fn stop(&mut self) {
        (self.call, self.retry) = (None, None);
    }

    pub(super) fn record(&self) -> Option<&Record> {
        self.known.as_ref().map(|known| &known.record)
    }

    fn is_idle(&self) -> bool {
        self.call.is_none() && self.retry.is_none()
    }
}

impl Engine {
    pub(super) fn read_record(&mut self) {
        self.control.retry = None;
        self.control.call = Some(Call::Read);
        self.out.push(Action::ReadRecord);
    }

    pub(super) fn swap(&mut self, record: Record) {
        let Some(known) = &self.control.known else { return self.read_record() };
        self.out.push(Action::Swap { expect: known.version, record: record.clone() });
        self.control.retry = None;
        self.control.call = Some(Call::Swap(Box::new(record)));
    }

    pub(super) fn retry_control(&mut self) {
        if self.control.retry.is_some_and(|at| at <= self.now) {
            self.read_record();
        }
    }

    /// Reads the record again after a while, unless something is under way.
    pub(super) fn reread_later(&mut self, after: Duration) {
        if self.control.is_idle() {
            self.control.retry = Some(self.now + after);
        }
    }

    pub(super) fn control_answered(&mut self, answer: ControlAnswer) {
        let Some(call) = self.control.call.take() else { return };
        match (answer, call) {
            // Every member has been released. The release in the record is not needed: the next
            // engine takes a generation of its own.
            (ControlAnswer::Unavailable, _) if self.phase == Phase::Closing(Closing::Releasing) => {
                return self.closed();
            }
            (ControlAnswer::Unavailable, _) => {
                self.control.retry = Some(self.now + self.config.retry);
                return;
            }
            (ControlAnswer::Swapped(version), Call::Swap(record)) => {
                self.control.known = Some(Versioned { version, record: *record });
            }
            (ControlAnswer::Read(known) | ControlAnswer::Conflict(known), _) => {
                self.control.known = Some(known);
            }
            (ControlAnswer::Swapped(_), Call::Read) => return self.read_record(),
        }
        self.control.proposed = Slots::NONE;
        self.record_known();
    }

    /// The record is known for certain.
    fn record_known(&mut self) {
        let Some(record) = self.control.record().cloned() else { return };
        let taken = self.generation > Generation(0)
            && (record.generation != self.generation || record.engine != Some(self.config.engine));
        match self.phase {
            Phase::Idle | Phase::Closed | Phase::Fenced | Phase::Faulted(_) => {}
            Phase::Standby => self.open_readers(&record),
            Phase::Claiming => self.claim_answered(&record),
            Phase::Closing(Closing::Releasing) => self.closed(),
            _ if taken => self.fence(record.generation),
            Phase::Confirming => self.confirm_answered(&record),
            Phase::Opening { .. } | Phase::Settling { .. } | Phase::Active | Phase::Closing(_) => {
                self.apply(&record);
            }
        }
    }

    /// Brings roles into line with the record.
    fn apply(&mut self, record: &Record) {
        let mut changed = false;
        for slot in 0..self.members.len() {
            let named = record.isr.contains(&self.members[slot].id);
            match (&self.members[slot].role, named) {
                (Role::Joining { .. }, true) => {
                    let replica = self.members[slot].id;
                    self.members[slot].role = Role::InSync;
                    self.joined(slot);
                    self.notice(Notice::RebuildDone { replica });
                    changed = true;
                }
                (Role::Leaving | Role::InSync, false) => {
                    self.left(slot);
                    changed = true;
                }
                _ => {}
            }
        }
        if changed {
            let isr: Vec<ReplicaId> = record.isr.iter().copied().collect();
            self.notice(Notice::IsrChanged { epoch: record.epoch, isr });
            self.send_epoch();
            self.review_ops();
        }
    }

    pub(super) fn send_epoch(&mut self) {
        let Some(epoch) = self.control.record().map(|record| record.epoch) else { return };
        let members = self.readable();
        if members.is_empty() {
            // No member would answer, and a close would wait for that.
            return;
        }
        self.issue_each(Request::SetEpoch(epoch), members, super::ops::Owner::Unowned);
    }

    /// The record names the members as they are.
    pub(super) fn membership_is_settled(&self) -> bool {
        self.control.is_idle() && self.members.iter().all(Member::is_settled)
    }

    /// Proposes the set that the members' states ask for (R4, R5).
    pub(super) fn drive_membership(&mut self) {
        self.retry_control();
        if !self.control.is_idle() {
            return;
        }
        let Some(record) = self.control.record() else { return };
        if self.members.iter().all(Member::is_settled) {
            return self.record_disputes();
        }
        let stays = |member: &Member| match member.role {
            Role::InSync => member.fault.is_none(),
            Role::Joining { step, .. } => step == JoinStep::Ready,
            _ => false,
        };
        let wanted = self.slots(stays);
        // A set of which no member can be reached would not help.
        let well = wanted.iter().any(|slot| self.members[slot].is_up());
        let isr: BTreeSet<ReplicaId> = wanted.iter().map(|slot| self.members[slot].id).collect();
        if !well {
            return self.pardon();
        }
        if isr == record.isr {
            return;
        }
        let record = record.with_isr(isr, self.complete_mark());
        if self.needs_the_leaving(wanted) {
            return;
        }
        self.control.proposed = self.control.proposed.or(wanted);
        for slot in 0..self.members.len() {
            if matches!(self.members[slot].role, Role::InSync) && !wanted.has(slot) {
                self.begin_leaving(slot);
            }
        }
        self.swap(record);
    }

    /// Whether those who would stay have all lost writes that a guest who lived on believes in,
    /// and have not yet got them back from one who would leave.
    fn needs_the_leaving(&mut self, staying: Slots) -> bool {
        let lost = |member: &Member| member.opened.as_ref().is_some_and(|it| it.lost_writes);
        let all_lost = staying.iter().all(|slot| lost(&self.members[slot]));
        if !self.config.guest_survived || self.unreconciled.is_empty() || !all_lost {
            return false;
        }
        let leaving = self.slots(|member| matches!(member.role, Role::InSync) && !lost(member));
        let hopeless =
            |slot: usize| self.members[slot].fault.is_some_and(|fault| !Member::is_curable(fault));
        if leaving.without(staying).iter().all(hopeless) {
            self.fault(Fault::LostWrites);
        }
        true
    }

    /// No member is without fault. One that can be reached goes on: every member has everything
    /// that was acknowledged, whatever else it refused.
    fn pardon(&mut self) {
        // The record is known for certain here: members that it still names have not left, and
        // nothing was acknowledged without them.
        let named = self.control.record().map(|record| record.isr.clone()).unwrap_or_default();
        for member in self.members.iter_mut().filter(|member| named.contains(&member.id)) {
            if matches!(member.role, Role::Leaving) {
                member.role = Role::InSync;
                member.away = Some(self.now);
                member.link = Link::Down { retry: self.now };
                // Refused requests are sent again; without a connection they would not
                // arrive.
                if matches!(member.fault, Some(MemberFault::Refused(_))) {
                    member.fault = Some(MemberFault::Away);
                }
            }
        }
        let curable = |member: &Member| member.fault.is_some_and(Member::is_curable);
        let reachable = |member: &&mut Member| {
            matches!(member.role, Role::InSync)
                && member.is_up()
                && member.fault != Some(MemberFault::Restarted)
        };
        let best = self.members.iter_mut().filter(reachable).max_by_key(|member| curable(member));
        if let Some(member) = best {
            member.fault = None;
            return self.review_ops();
        }
        // Answered writes survive the end of the process: a replica that restarted under the same
        // kernel still has them all, and is opened anew. Its interrupted writes are sent again and
        // reconciled.
        for member in &mut self.members {
            let same_boot = match (member.life, member.next_life) {
                (Some((_, old)), Some((_, new))) => old == new,
                _ => false,
            };
            let restarted = member.fault == Some(MemberFault::Restarted);
            if matches!(member.role, Role::InSync) && restarted && same_boot {
                member.fault = None;
                member.link = Link::Down { retry: self.now };
            }
        }
    }

    /// From now on the member receives no changes; the ranges that it misses are recorded.
    fn begin_leaving(&mut self, slot: usize) {
        let why = self.members[slot].fault.unwrap_or(MemberFault::Away);
        let replica = self.members[slot].id;
        self.notice(Notice::MemberFailed { replica, why });
        let member = &mut self.members[slot];
        member.missed_acked = false;
        if self.now >= member.up_since + STRIKES_FORGOTTEN {
            member.strikes = 0;
        }
        member.strikes += u32::from(matches!(why, MemberFault::TimedOut | MemberFault::Slow));
        self.remember_missing(slot);
        self.members[slot].role = Role::Leaving;
        self.disconnect(slot);
    }

    /// The record no longer names the member.
    fn left(&mut self, slot: usize) {
        if matches!(self.members[slot].role, Role::InSync) {
            // Another engine took it out of the record.
            self.remember_missing(slot);
            self.disconnect(slot);
        }
        let member = &mut self.members[slot];
        member.role = Role::Outside;
        member.fault = None;
        member.away = None;
        member.closed = false;
        member.retry_learning = self.now + self.config.retry * (1 << member.strikes.min(7));
        self.forget_in_ops(slot);
    }

    /// Everything that the member may lack or have differently: ranges that it refused or has not
    /// answered, and those not reconciled yet. Its own dirty regions are added when it returns.
    fn remember_missing(&mut self, slot: usize) {
        let refused = &mut self.members[slot].changed;
        let mut missing = std::mem::replace(refused, Pieces::none(self.config.chunk));
        for op in self.ops.values().filter(|op| op.concerns(slot)) {
            op.span().into_iter().for_each(|span| missing.insert(span));
        }
        for sync in self.syncs.values().filter(|sync| sync.concerns(slot)) {
            missing.insert(sync.span());
        }
        missing.extend(&self.unreconciled);
        self.members[slot].changed = missing;
        self.members[slot].tracked = self.members[slot].stale.is_none();
        self.members[slot].unsettled = self.flush.regions.pieces(self.region);
    }

    /// Whether a replica outside of the set has every acknowledged change, while no member can be
    /// reached to copy from: it left since, and nothing was acknowledged without it.
    pub(super) fn may_rejoin(&self, slot: usize) -> bool {
        let member = &self.members[slot];
        let known = FlushMark { generation: self.generation, number: member.flushed };
        let whole = member.opened.as_ref().is_some_and(|it| !it.lost_writes)
            && evidence::judge_return(&member.claim(), self.generation, known).is_none()
            && member.shape()
                == Some((self.size, self.region, self.head_parent, self.snapshots.as_slice()));
        self.may_be_last_resort(slot) && member.stale.is_none() && whole && self.barrier.is_none()
    }

    /// Whether the replica may have everything while no member can be reached.
    pub(super) fn may_be_last_resort(&self, slot: usize) -> bool {
        let member = &self.members[slot];
        member.tracked && !member.missed_acked && self.readable().is_empty()
    }

    /// The replica counts again from now on: it gets what is under way, and what it may have half
    /// done is reconciled. It enters the record when all of that is durable.
    pub(super) fn rejoin(&mut self, slot: usize) {
        let Some(opened) = self.members[slot].opened.as_ref() else { return };
        for region in opened.dirty.clone() {
            let span = Span::new(u64::from(region) * self.region, self.region);
            self.unreconciled.insert(span);
            self.flush.regions.note(self.region, span, self.now);
        }
        let since = self.next;
        self.members[slot].role = Role::Joining { since, step: JoinStep::Draining };
        self.add_to_ops(slot);
        self.resend(slot);
    }

    /// The member did not do what the others did.
    pub(super) fn member_fault(&mut self, slot: usize, why: MemberFault) {
        match self.members[slot].role {
            Role::InSync => {
                let fault = &mut self.members[slot].fault;
                if fault.is_none_or(Member::is_curable) {
                    *fault = Some(why);
                }
                if skips!(self.sabotage, EarlyShrink) {
                    self.review_ops();
                }
            }
            Role::Learner(_) | Role::Joining { .. } => self.learner_failed(slot, why),
            Role::Outside | Role::Candidate | Role::Leaving => {}
        }
    }

    pub(super) fn remove_replica(&mut self, replica: ReplicaId) {
        let Some(slot) = self.slot(replica) else { return };
        self.members[slot].wanted = false;
        match self.members[slot].role {
            Role::Outside | Role::Candidate => self.disconnect(slot),
            _ => self.member_fault(slot, MemberFault::Removed),
        }
    }
}

impl Member {
    /// Nothing about the member asks for a change of the record.
    fn is_settled(&self) -> bool {
        match self.role {
            Role::InSync => self.fault.is_none(),
            Role::Leaving => false,
            Role::Joining { step, .. } => step != JoinStep::Ready,
            Role::Outside | Role::Candidate | Role::Learner(_) => true,
        }
    }
}
