//! From idle to active, and back (rule R2).
//!
//! The engine takes the next generation in the record, asks every recorded in-sync replica for a
//! promise, and waits a while for all of them. Those that promised and agree on the volume's shape
//! become the in-sync set, by a second swap if they are fewer. If a member did not promise, an old
//! engine may still read from it until its lease is over; nothing is served before.
//!
//! Replicas outside of the recorded set are asked too, without a promise: one of them may prove
//! that the record was restored from an older copy ([`evidence::is_restored`]). While nothing
//! proves that, one that cannot be reached is waited for briefly, because it is usually just down.
//! Once it is proven, every replica has to answer: the newest set may consist of those that are
//! missing.

use std::collections::BTreeSet;

use super::event::Time;
use super::member::{Link, Role};
use super::notice::{Fault, Notice, Stale};
use super::ops::Owner;
use super::{Closing, Engine, Phase};
use crate::ids::{Generation, ReplicaId};
use crate::repl::control::Record;
use crate::repl::evidence::{self, Claim};
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;
use crate::repl::span::{Pieces, Span};
use crate::wire::{Refusal, Request, Witnessed};

impl Engine {
    pub(super) fn claim(&mut self) {
        for slot in 0..self.members.len() {
            self.disconnect(slot);
            self.reroute(slot);
            if self.phase == Phase::Standby {
                // The engine that has the volume may have rebuilt it since.
                self.members[slot].stale = None;
            }
        }
        self.phase = Phase::Claiming;
        self.read_record();
    }

    pub(super) fn claim_answered(&mut self, record: &Record) {
        if record.engine == Some(self.config.engine) && self.outrun > record.generation {
            self.swap(record.raised_above(self.outrun));
        } else if record.engine == Some(self.config.engine) {
            self.generation = record.generation;
            self.begin_opening(record);
        } else if self.generation > Generation(0) {
            self.fence(record.generation);
        } else if !record.may_claim(&self.config.node) {
            self.fault(Fault::NotAllowed);
        } else if record.isr.is_empty() {
            self.fault(Fault::NoReplica);
        } else {
            self.swap(record.claimed(self.config.engine));
        }
    }

    /// A replica of the set has promised a newer generation than this engine's. Either another
    /// engine took the volume since, and the record says so; or the record was restored from an
    /// older copy, and its generation has to grow.
    pub(super) fn outrun_by(&mut self, promised: Generation) {
        self.outrun = self.outrun.max(promised);
        self.claim();
    }

    fn begin_opening(&mut self, record: &Record) {
        self.phase = Phase::Opening { since: self.now, warned: false };
        for replica in &record.isr {
            let slot = self.slot_or_new(*replica);
            self.members[slot].role = Role::Candidate;
            self.connect(slot);
        }
        if !skips!(self.sabotage, TrustStale) {
            self.outsiders().iter().for_each(|slot| self.connect(slot));
        }
    }

    /// Replicas of the volume outside of the set that the record names.
    fn outsiders(&self) -> Slots {
        self.slots(|member| member.wanted && matches!(member.role, Role::Outside))
    }

    /// The reports of those replicas that have answered.
    fn claims(&self, of: Slots) -> Vec<Claim> {
        let answered = of.iter().map(|slot| &self.members[slot]).filter(|it| it.is_up());
        answered.map(super::member::Member::claim).collect()
    }

    /// Whether to go on without the replicas outside of the set that have not answered.
    fn has_asked(&self, since: Time, restored: bool) -> bool {
        let missing = self.outsiders().iter().filter(|slot| !self.members[*slot].is_up());
        let missing: Vec<usize> = missing.collect();
        let pending = |slot: &usize| !matches!(self.members[*slot].link, Link::Down { .. });
        let brief = self.config.suspect_after.min(self.config.open_wait);
        match skips!(self.sabotage, TrustStale) {
            true => true,
            false if restored => missing.is_empty(),
            false => self.now >= since + brief || !missing.iter().any(pending),
        }
    }

    pub(super) fn drive_opening(&mut self) {
        let Phase::Opening { since, warned } = self.phase else { return };
        let candidates = self.slots(|member| matches!(member.role, Role::Candidate));
        let promised = candidates.iter().filter(|slot| self.members[*slot].is_up());
        let promised: Slots = promised.collect();
        let answered = promised.or(self.slots(|member| member.stale.is_some()));
        let complete = candidates.without(answered).is_empty();
        let late = self.now >= since + self.config.open_wait;
        let restored = self.is_restored(candidates);
        let ready = self.has_asked(since, restored) && (complete || (late && !restored));
        let current = if ready { self.without_stale(promised, complete) } else { promised };
        if late && !warned {
            self.phase = Phase::Opening { since, warned: true };
            if !ready {
                let missing = self.outsiders().or(candidates).without(answered);
                let missing = missing.iter().filter(|slot| !self.members[*slot].is_up());
                let missing = missing.map(|slot| self.members[slot].id).collect();
                self.wait_for(Notice::RecordRestored { missing });
            } else if current.is_empty() {
                self.wait_for(Notice::Waiting);
            }
        }
        if !ready {
            return;
        }
        if current.is_empty() {
            // Another engine may have taken the volume since, with other replicas.
            self.reread_later(self.config.open_wait);
            let mut stale = candidates.iter().filter_map(|slot| self.members[slot].stale);
            if let (true, Some(why)) = (complete, stale.next()) {
                self.fault(Fault::Stale(why));
            }
            return;
        }
        let lost =
            |slot: usize| self.members[slot].opened.as_ref().is_some_and(|it| it.lost_writes);
        if self.config.guest_survived && current.iter().all(lost) {
            // A guest that lives on must find every acknowledged write.
            if complete {
                self.fault(Fault::LostWrites);
            }
            return;
        }
        self.confirm(candidates, promised, current);
    }

    /// Says in a notice and in the status why the volume is not served.
    fn wait_for(&mut self, notice: Notice) {
        self.waiting = match &notice {
            Notice::RecordRestored { missing } => {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                Some(format!(
                    "the record of the volume is an older copy of itself, and replicas that do \
                     not answer may be newer than those that it names: {}; start them, or choose \
                     a replica with `sheaf volume salvage`",
                    missing.join(", ")
                ))
            }
            _ => Some("no in-sync replica can be reached".to_owned()),
        };
        self.notice(notice);
    }

    fn is_restored(&self, candidates: Slots) -> bool {
        let claims = self.claims(candidates.or(self.outsiders()));
        let record = self.control.record();
        let restored = record.is_some_and(|record| evidence::is_restored(record, &claims));
        restored && !skips!(self.sabotage, TrustStale)
    }

    /// Of those that promised, the ones that nothing proves to be older than the others.
    fn without_stale(&mut self, promised: Slots, settled: bool) -> Slots {
        let Some(record) = self.control.record().cloned() else { return Slots::NONE };
        let claims: Vec<Claim> = promised.iter().map(|it| self.members[it].claim()).collect();
        let mut current = promised;
        let others = self.claims(self.outsiders());
        for (slot, why) in promised.iter().zip(evidence::judge(&record, &claims, &others)) {
            let Some(why) = why.filter(|_| !skips!(self.sabotage, TrustStale)) else { continue };
            current.remove(slot);
            // While a member is still expected there may be more to know.
            if settled || !current.is_empty() {
                self.found_stale(slot, why);
            }
        }
        current
    }

    /// The replica is older than what was acknowledged: nothing in it counts.
    pub(super) fn found_stale(&mut self, slot: usize, why: Stale) {
        let member = &mut self.members[slot];
        member.tracked = false;
        if member.stale.replace(why).is_none() {
            let replica = member.id;
            self.notice(Notice::StaleReplica { replica, why });
        }
    }

    /// Chooses the members: the best source, and those that have the same snapshots and size.
    fn confirm(&mut self, candidates: Slots, promised: Slots, current: Slots) {
        let alike = |slot: usize| {
            let shape = self.members[slot].shape();
            current.iter().filter(|other| self.members[*other].shape() == shape).count()
        };
        let rank = |slot: &usize| (self.credibility(*slot), alike(*slot), self.members[*slot].id);
        let Some(source) = current.iter().max_by_key(rank) else { return };
        let Some(shape) = self.members[source].opened.clone() else { return };
        self.size = shape.size;
        self.region = shape.region;
        self.snapshots = shape.snapshots.clone();
        self.head_parent = shape.head_parent;
        self.unreconciled = Pieces::none(self.region);
        // They are opened again when they can be rebuilt.
        self.outsiders().iter().for_each(|slot| self.disconnect(slot));
        for slot in candidates.iter() {
            let same = self.members[slot].shape() == self.members[source].shape();
            if !current.has(slot) || !same {
                self.members[slot].role = Role::Outside;
                self.disconnect(slot);
            }
        }
        let wait = if promised == candidates { Time::ZERO } else { self.config.lease / 10 * 11 };
        self.lease_over = self.now + wait;
        self.phase = Phase::Confirming;
        if let Some(record) = self.control.record().cloned() {
            self.confirm_answered(&record);
        }
    }

    pub(super) fn confirm_answered(&mut self, record: &Record) {
        let chosen = self.slots(|member| matches!(member.role, Role::Candidate));
        let isr: BTreeSet<ReplicaId> = chosen.iter().map(|slot| self.members[slot].id).collect();
        let reconciling = self.reconciling(record, chosen);
        let agreed = record.isr == isr && record.reconciling == reconciling;
        match agreed && record.confirmed == self.generation {
            true => self.begin_settling(record, chosen),
            false => {
                let claims: Vec<Claim> = chosen.iter().map(|it| self.members[it].claim()).collect();
                let complete = evidence::known_complete(record, &claims);
                let known = self.members.iter().filter_map(|member| member.opened.as_ref());
                let newest = known.map(|opened| opened.epoch).max().unwrap_or_default();
                let next = record.confirmed(isr, complete).above_epoch(newest);
                self.swap(Record { reconciling, ..next });
            }
        }
    }

    fn begin_settling(&mut self, record: &Record, chosen: Slots) {
        self.phase = Phase::Settling { until: self.lease_over };
        self.know_disputes(record);
        for slot in chosen.iter() {
            self.members[slot].role = Role::InSync;
            if !self.members[slot].is_up() {
                self.members[slot].away = Some(self.now);
            }
            let regions = self.members[slot].opened.as_ref().map(|it| it.dirty.clone());
            for region in regions.unwrap_or_default() {
                let span = Span::new(u64::from(region) * self.region, self.region);
                if !skips!(self.sabotage, NoReconcile) {
                    self.unreconciled.insert(span);
                }
                self.flush.regions.note(self.region, span, self.now);
            }
        }
        // Data that is read from now on must not change again with the next power cut, and a
        // member without the first flush of this generation is known not to have been served in
        // it.
        let salvaged = self.slots(|member| {
            let opened = member.opened.as_ref().filter(|_| matches!(member.role, Role::InSync));
            opened.is_some_and(|it| it.witnessed == Witnessed::RolledBack)
        });
        if !salvaged.is_empty() {
            // Its missing writes were given up: its host starts a new count.
            self.issue_each(Request::Reconciled, salvaged, Owner::Unowned);
        }
        let flush = self.next_flush(Vec::new());
        self.issue_all(flush, Owner::Settling);
        self.settling_flush = true;
        self.send_epoch();
    }

    pub(super) fn settled_flush(&mut self, result: Result<(), Refusal>) {
        match result {
            Ok(()) => {
                self.flush.complete = self.flush.number;
                self.settling_flush = false;
            }
            Err(_) => self.fault(Fault::NoReplica),
        }
    }

    pub(super) fn drive_settling(&mut self) {
        let Phase::Settling { until } = self.phase else { return };
        self.drive_membership();
        if self.now < until || self.settling_flush {
            return;
        }
        self.phase = Phase::Active;
        let isr = self.required().iter().map(|slot| self.members[slot].id).collect();
        self.notice(Notice::Active {
            generation: self.generation,
            isr,
            reconcile_regions: self.unreconciled.len(),
        });
        self.drive();
    }

    pub(super) fn close(&mut self) {
        match self.phase {
            Phase::Active => self.phase = Phase::Closing(Closing::Draining),
            Phase::Closing(_) | Phase::Fenced | Phase::Faulted(_) | Phase::Closed => {}
            _ => self.closed(),
        }
    }

    pub(super) fn drive_closing(&mut self) {
        match self.phase {
            Phase::Closing(Closing::Draining) => {
                self.drop_learners();
                self.drive_barrier();
                self.drive_flush();
                self.start_ready();
                let idle = self.queue.is_empty()
                    && self.fills.is_empty()
                    && self.syncs.is_empty()
                    && self.barrier.is_none()
                    && self.barriers.is_empty()
                    && self.flush.is_idle()
                    && self.ops.is_empty()
                    && self.disputes.are_recorded()
                    && self.membership_is_settled();
                if idle {
                    self.phase = Phase::Closing(Closing::Flushing);
                    self.begin_flush(Time::ZERO, Owner::Closing);
                }
            }
            Phase::Closing(Closing::Releasing) => self.retry_control(),
            _ => {}
        }
    }

    pub(super) fn closing_answered(&mut self, result: Result<(), Refusal>) {
        match self.phase {
            Phase::Closing(Closing::Flushing) => {
                self.flushed(result);
                self.phase = Phase::Closing(Closing::Settling);
                self.begin_flush(Time::ZERO, Owner::Closing);
            }
            Phase::Closing(Closing::Settling) => {
                self.flushed(result);
                self.phase = Phase::Closing(Closing::Ending);
                self.issue_all(Request::Close, Owner::Closing);
            }
            Phase::Closing(Closing::Ending) => {
                self.phase = Phase::Closing(Closing::Releasing);
                let flushed = self.complete_mark();
                match self.control.record().cloned() {
                    Some(record) => {
                        let record = Record { engine: None, ..self.with_disputes(&record) };
                        self.swap(record.with_flush(flushed));
                    }
                    None => self.closed(),
                }
            }
            _ => {}
        }
    }

    pub(super) fn closed(&mut self) {
        self.notice(Notice::Closed);
        self.stop(Phase::Closed);
    }
}
