//! From idle to active, and back (rule R2).
//!
//! The engine takes the next generation in the record, asks every recorded in-sync replica for a
//! promise, and waits a while for all of them. Those that promised and agree on the volume's shape
//! become the in-sync set, by a second swap if they are fewer. If somebody did not promise, an old
//! engine may still read from it until its lease is over; nothing is served before.

use std::collections::BTreeSet;

use super::event::Time;
use super::member::Role;
use super::notice::{Fault, Notice};
use super::ops::Owner;
use super::{Closing, Engine, Phase};
use crate::ids::ReplicaId;
use crate::repl::control::Record;
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;
use crate::repl::span::{Pieces, Span};
use crate::wire::{Refusal, Request};

impl Engine {
    pub(super) fn claim(&mut self) {
        for slot in 0..self.members.len() {
            self.hang_up(slot);
            self.reroute(slot);
        }
        self.phase = Phase::Claiming;
        self.read_record();
    }

    pub(super) fn claim_answered(&mut self, record: &Record) {
        if record.engine == Some(self.config.engine) {
            self.generation = record.generation;
            self.begin_opening(record);
        } else if !record.may_claim(&self.config.node) {
            self.fault(Fault::NotAllowed);
        } else if record.isr.is_empty() {
            self.fault(Fault::NoReplica);
        } else {
            self.swap(record.claimed(self.config.engine));
        }
    }

    fn begin_opening(&mut self, record: &Record) {
        self.phase = Phase::Opening { since: self.now, warned: false };
        for replica in &record.isr {
            let slot = self.slot_or_new(*replica);
            self.members[slot].role = Role::Candidate;
            self.connect(slot);
        }
    }

    pub(super) fn drive_opening(&mut self) {
        let Phase::Opening { since, warned } = self.phase else { return };
        let candidates = self.slots(|member| matches!(member.role, Role::Candidate));
        let promised = candidates.iter().filter(|slot| self.members[*slot].is_up());
        let promised: Slots = promised.collect();
        let late = self.now >= since + self.config.open_wait;
        if late && !warned {
            self.phase = Phase::Opening { since, warned: true };
            if promised.is_empty() {
                self.notice(Notice::Waiting);
            }
        }
        let complete = promised == candidates;
        if promised.is_empty() || !(complete || late) {
            return;
        }
        let lost =
            |slot: usize| self.members[slot].opened.as_ref().is_some_and(|it| it.lost_writes);
        if self.config.guest_survived && promised.iter().all(lost) {
            // A guest that lives on must find everything it was told is written.
            if complete {
                self.fault(Fault::LostWrites);
            }
            return;
        }
        self.confirm(candidates, promised);
    }

    /// Chooses the members: the best source, and those that have the same snapshots and size.
    fn confirm(&mut self, candidates: Slots, promised: Slots) {
        let rank = |slot: &usize| {
            let opened = self.members[*slot].opened.as_ref();
            (opened.is_some_and(|it| !it.lost_writes), self.members[*slot].id)
        };
        let Some(source) = promised.iter().max_by_key(rank) else { return };
        let Some(shape) = self.members[source].opened.clone() else { return };
        self.size = shape.size;
        self.region = shape.region;
        self.snapshots = shape.snapshots.clone();
        self.head_parent = shape.head_parent;
        self.unreconciled = Pieces::none(self.region);
        for slot in candidates.iter() {
            let same = self.members[slot].opened.as_ref().is_some_and(|it| {
                it.size == shape.size
                    && it.region == shape.region
                    && it.head_parent == shape.head_parent
                    && it.snapshots == shape.snapshots
            });
            if !promised.has(slot) || !same {
                self.members[slot].role = Role::Outside;
                self.hang_up(slot);
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
        match record.isr == isr {
            true => self.begin_settling(chosen),
            false => self.swap(record.with_isr(isr)),
        }
    }

    fn begin_settling(&mut self, chosen: Slots) {
        self.phase = Phase::Settling { until: self.lease_over };
        let mut dirty = false;
        for slot in chosen.iter() {
            self.members[slot].role = Role::InSync;
            if !self.members[slot].is_up() {
                self.members[slot].away = Some(self.now);
            }
            let regions = self.members[slot].opened.as_ref().map(|it| it.dirty.clone());
            for region in regions.unwrap_or_default() {
                let span = Span::new(u64::from(region) * self.region, self.region);
                dirty = true;
                if !skips!(self.sabotage, NoReconcile) {
                    self.unreconciled.insert(span);
                }
                self.flush.regions.note(self.region, span, self.now);
            }
        }
        if dirty {
            // What is read from now on must not change again with the next power cut.
            self.issue_all(Request::Flush { settle: Vec::new() }, Owner::Settling);
        }
        self.settling_flush = dirty;
        self.tell_epoch();
    }

    pub(super) fn settled_flush(&mut self, result: Result<(), Refusal>) {
        match result {
            Ok(()) => self.settling_flush = false,
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
                self.pump();
                let idle = self.queue.is_empty()
                    && self.fills.is_empty()
                    && self.syncs.is_empty()
                    && self.barrier.is_none()
                    && self.barriers.is_empty()
                    && self.flush.is_idle()
                    && self.ops.is_empty()
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

    pub(super) fn closing_answered(&mut self) {
        match self.phase {
            Phase::Closing(Closing::Flushing) => {
                self.phase = Phase::Closing(Closing::Ending);
                self.issue_all(Request::Close, Owner::Closing);
            }
            Phase::Closing(Closing::Ending) => {
                self.phase = Phase::Closing(Closing::Releasing);
                match self.control.record().cloned() {
                    Some(record) => self.swap(Record { engine: None, ..record }),
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
