//! Learners: replicas that are brought into the in-sync set (rule R5).
//!
//! A rebuild goes snapshot by snapshot, oldest first. For each one that the learner lacks, its
//! head is made what the snapshot is at a member, and then the same snapshot is taken of it; so
//! whatever snapshots a learner has, they are complete, however often it is interrupted. Last
//! comes the head: the learner gets all changes from then on, and the chunks that it lacks are
//! copied under it.
//!
//! ```text
//!  next() ─► Resize │ Delete │ Revert │ Copy(snapshot) ─► Snapshot │ Copy(head) ─► Joining
//!    ▲                                                  │
//!    └──────────────── answered ◄───────────────────────┘
//! ```
//!
//! Only chunks that changed while it was away are copied, if this engine saw it leave; its own
//! dirty regions come on top, because it may hold what the others never got. Otherwise the
//! sums of everything are compared: both sides read their data, and a hundredth of it goes over
//! the wire.

use super::Engine;
use super::learner::{Learner, RebuildStep, forget};
use super::member::{JoinStep, Member, Role};
use super::notice::{MemberFault, Notice, Progress, RebuildKind};
use super::ops::{OneResult, Owner};
use super::sync::SyncKind;
use crate::ids::{FlushMark, FlushMarks, SnapshotId};
use crate::repl::evidence;
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;
use crate::repl::span::{Pieces, Span};
use crate::wire::{Reply, Request, Verify, Witnessed};

/// A replica that could not be brought up to date so often in a row gets a full copy.
const FULL_COPY_AFTER: u32 = 2;

impl Engine {
    pub(super) fn begin_learning(&mut self, slot: usize) {
        let Some(opened) = self.members[slot].opened.clone() else { return };
        let replica = self.members[slot].id;
        let mut dirty = Pieces::none(self.region);
        for region in &opened.dirty {
            dirty.insert(Span::new(u64::from(*region) * self.region, self.region));
        }
        let member = &mut self.members[slot];
        let same = opened.snapshots == self.snapshots
            && opened.head_parent == self.head_parent
            && opened.size == self.size;
        let known = FlushMark { generation: self.generation, number: member.flushed };
        let claim = member.claim();
        let known = if member.flushed > 0 { known } else { FlushMark::default() };
        if !skips!(self.sabotage, TrustStale) {
            // Its content is not the content that it had when it left.
            let found = match member.tracked {
                true => evidence::judge_return(&claim, self.generation, known),
                false => evidence::judge_content(&claim, known),
            };
            member.stale = member.stale.or(found);
        }
        // Earlier attempts failed: none of its content is used any more.
        let refused = member.failures >= FULL_COPY_AFTER;
        let delta = member.tracked && same && member.stale.is_none() && !refused;
        if delta && !skips!(self.sabotage, ForgetOwnDirt) {
            member.changed.extend(&dirty);
            // An older copy of it may have the same flush, and lack what came after.
            let intact = opened.witnessed == Witnessed::Intact;
            if !intact && !skips!(self.sabotage, TrustStale) {
                let Member { changed, unsettled, .. } = member;
                changed.extend(unsettled);
            }
        }
        let full = member.stale.is_some() || refused;
        member.tracked = true;
        if !delta {
            member.changed = Pieces::all(self.config.chunk, self.size);
        }
        member.fault = None;
        let learner = Learner {
            size: opened.size,
            snapshots: opened.snapshots,
            head_parent: opened.head_parent,
            step: RebuildStep::Deciding,
            live: false,
            todo: Pieces::none(self.config.chunk),
            busy: 0,
            delta,
            full,
            done_bytes: 0,
            total_bytes: 0,
        };
        member.role = Role::Learner(Box::new(learner));
        let how = match (delta, full) {
            (true, _) => RebuildKind::Delta,
            (false, true) => RebuildKind::Full,
            (false, false) => RebuildKind::Compare,
        };
        self.notice(Notice::RebuildStarted { replica, how });
        self.learn(slot, None);
    }

    /// Takes the next step of a rebuild.
    fn learn(&mut self, slot: usize, copied: Option<SnapshotId>) {
        let Role::Learner(learner) = &mut self.members[slot].role else { return };
        let step = learner.next(self.size, &self.snapshots, self.head_parent, copied);
        learner.step = step.clone();
        let request = match step {
            RebuildStep::Deciding => return,
            RebuildStep::Copy(view) => return self.begin_copy(slot, view),
            RebuildStep::Resize(size) => Request::Resize { size },
            RebuildStep::Delete(snapshot) => Request::DeleteSnapshot { snapshot },
            RebuildStep::Revert(to) => {
                // Another head altogether: nothing is known about it.
                learner.delta = false;
                self.members[slot].changed = Pieces::all(self.config.chunk, self.size);
                Request::Revert { to }
            }
            RebuildStep::Snapshot(info) => Request::Snapshot(info),
        };
        self.issue_one(request, slot, Owner::Learn(slot));
    }

    pub(super) fn learner_stepped(&mut self, slot: usize, result: OneResult) {
        let Role::Learner(learner) = &mut self.members[slot].role else { return };
        if let Err(refusal) = result {
            let why = refusal.map_or(MemberFault::Away, MemberFault::Refused);
            return self.learner_failed(slot, why);
        }
        match std::mem::replace(&mut learner.step, RebuildStep::Deciding) {
            RebuildStep::Resize(size) => learner.size = size,
            RebuildStep::Delete(id) => forget(&mut learner.snapshots, &mut learner.head_parent, id),
            RebuildStep::Revert(to) => learner.head_parent = to,
            RebuildStep::Snapshot(info) => {
                learner.head_parent = Some(info.id);
                learner.snapshots.push(info);
            }
            RebuildStep::Deciding | RebuildStep::Copy(_) => {}
        }
        self.learn(slot, None);
    }

    fn begin_copy(&mut self, slot: usize, view: Option<SnapshotId>) {
        let size = self.size;
        let under_way: Vec<Span> = self.ops.values().filter_map(super::ops::Op::span).collect();
        let member = &mut self.members[slot];
        let Role::Learner(learner) = &mut member.role else { return };
        if view.is_none() {
            // Changes that are under way were not sent to it; later ones are.
            learner.live = true;
            learner.todo = std::mem::replace(&mut member.changed, Pieces::none(self.config.chunk));
            under_way.into_iter().for_each(|span| learner.todo.insert(span));
        } else {
            learner.todo = Pieces::all(self.config.chunk, size);
        }
        let chunk = self.config.chunk;
        learner.total_bytes += learner.todo.len() * chunk;
    }

    pub(super) fn drive_rebuilds(&mut self) {
        let held = self.barrier.as_ref().is_some_and(super::barrier::Barrier::holds_changes);
        if held {
            return;
        }
        for slot in 0..self.members.len() {
            match self.members[slot].role {
                Role::Learner(_) if self.unreconciled.is_empty() => self.drive_learner(slot),
                Role::Joining { .. } => self.drive_joining(slot),
                _ => {}
            }
        }
    }

    fn drive_learner(&mut self, slot: usize) {
        loop {
            let Role::Learner(learner) = &mut self.members[slot].role else { return };
            let RebuildStep::Copy(view) = learner.step else { return };
            let Some(chunk) = learner.todo.first() else {
                if learner.busy == 0 {
                    self.copied(slot, view);
                }
                return;
            };
            if learner.busy >= self.config.copies || !self.throttle.take(self.config.chunk) {
                return;
            }
            let span = learner.todo.span(chunk).clipped(self.size);
            learner.todo.remove(chunk);
            if span.len() == 0 {
                continue;
            }
            learner.busy += 1;
            // Chunks that are known to have changed are copied unseen: equal checksums would
            // prove nothing about them.
            let copy_unseen = learner.full || (learner.delta && view.is_none());
            let kind = SyncKind::Rebuild { learner: slot, view, compare: !copy_unseen };
            self.begin_sync(kind, span, Verify::Suspect);
            self.drive_syncs();
        }
    }

    pub(super) fn chunk_copied(&mut self, slot: usize, span: Span) {
        if let Role::Learner(learner) = &mut self.members[slot].role {
            learner.busy -= 1;
            learner.done_bytes += span.len();
        }
    }

    fn copied(&mut self, slot: usize, view: Option<SnapshotId>) {
        match view {
            Some(id) => {
                let Role::Learner(learner) = &mut self.members[slot].role else { return };
                // The difference between the head of the volume and the snapshot is not known.
                learner.delta = false;
                self.learn(slot, Some(id));
            }
            None => {
                let since = self.next;
                self.members[slot].role = Role::Joining { since, step: JoinStep::Draining };
                self.drive_joining(slot);
            }
        }
    }

    fn drive_joining(&mut self, slot: usize) {
        let Role::Joining { since, step: JoinStep::Draining } = self.members[slot].role else {
            return;
        };
        let behind = self.ops.range(..since).any(|(_, op)| op.waits_for(slot));
        if !behind {
            self.members[slot].role = Role::Joining { since, step: JoinStep::Sealing };
            self.issue_one(Request::Seal, slot, Owner::Join(slot));
        }
    }

    pub(super) fn join_flushed(&mut self, slot: usize, result: OneResult) {
        let Role::Joining { since, step } = self.members[slot].role else { return };
        match result {
            Ok(_) if step == JoinStep::Sealing => {
                self.members[slot].role = Role::Joining { since, step: JoinStep::Flushing };
                // It has all that was acknowledged by now, and with it what the newest flush covers.
                let flush = self.numbered_flush(Vec::new());
                self.issue_one(flush, slot, Owner::Join(slot));
            }
            Ok(_) => self.members[slot].role = Role::Joining { since, step: JoinStep::Ready },
            Err(Some(refusal)) => self.learner_failed(slot, MemberFault::Refused(refusal)),
            Err(None) => self.learner_failed(slot, MemberFault::Away),
        }
    }

    /// The learner is a member now; its log holds more than those of the others.
    pub(super) fn joined(&mut self, slot: usize) {
        self.members[slot].tracked = false;
        self.members[slot].stale = None;
        self.members[slot].failures = 0;
        self.members[slot].rebuild_fault = None;
        let flushed = FlushMark { generation: self.generation, number: self.flush.number };
        if let Some(opened) = &mut self.members[slot].opened {
            // Its state when it was opened is outdated.
            opened.lost_writes = false;
            opened.marks = Some(FlushMarks { flushed, ..opened.marks.unwrap_or_default() });
        }
        self.issue_each(Request::Reconciled, Slots::one(slot), Owner::Unowned);
        self.issue_one(Request::Dirty, slot, Owner::Log(slot));
    }

    pub(super) fn log_known(&mut self, slot: usize, result: OneResult) {
        if result.is_err() && matches!(self.members[slot].role, Role::InSync) {
            // The connection broke; asked again when it resumes.
            self.issue_one(Request::Dirty, slot, Owner::Log(slot));
        }
        if let Ok(Reply::Dirty(regions)) = result {
            for region in regions {
                let span = Span::new(u64::from(region) * self.region, self.region);
                self.flush.regions.note(self.region, span, self.now);
            }
        }
    }

    /// The replica is on its own again. Its missing ranges are recorded if they are known.
    pub(super) fn learner_failed(&mut self, slot: usize, why: MemberFault) {
        let unfinished = self.drop_syncs_of(slot);
        let mut missing = Pieces::none(self.config.chunk);
        unfinished.into_iter().for_each(|span| missing.insert(span));
        for op in self.ops.values().filter(|op| op.concerns(slot)) {
            op.span().into_iter().for_each(|span| missing.insert(span));
        }
        missing.extend(&self.unreconciled);
        let replica = self.members[slot].id;
        let member = &mut self.members[slot];
        match &member.role {
            Role::Learner(learner) if learner.live => {
                missing.extend(&learner.todo);
                member.changed = missing;
            }
            Role::Joining { .. } => member.changed = missing,
            // Between two heads: only a comparison shows it.
            _ => member.tracked = false,
        }
        let may_be_member = self.control.proposed.has(slot);
        self.members[slot].role = if may_be_member { Role::Leaving } else { Role::Outside };
        let member = &mut self.members[slot];
        let pause = self.config.retry * 5 * (1 << member.failures.min(6));
        // One that went away is tried as soon as it is back.
        if why != MemberFault::Away {
            member.failures += 1;
            member.rebuild_fault = Some(why);
        }
        member.retry_learning = self.now + pause;
        self.notice(Notice::RebuildFailed { replica, why });
        self.disconnect(slot);
        if !may_be_member {
            self.forget_in_ops(slot);
        }
    }

    /// A snapshot was taken while the learner's head was incomplete: it gets the snapshot by the
    /// usual steps, and the head after it.
    pub(super) fn learners_missed_snapshot(&mut self, snapshot: SnapshotId) {
        for member in &mut self.members {
            if let Role::Learner(learner) = &mut member.role
                && learner.live
            {
                learner.live = false;
                learner.step = RebuildStep::Copy(Some(snapshot));
                member.changed = Pieces::none(self.config.chunk);
                member.tracked = true;
            }
        }
    }

    /// The members' content of a range is not what the learners were sent.
    pub(super) fn learners_recopy(&mut self, span: Span) {
        for member in &mut self.members {
            match &mut member.role {
                Role::Learner(learner) if learner.live => learner.todo.insert(span),
                _ => {}
            }
        }
    }

    /// The volume was changed as a whole: everybody who is not a member starts over.
    pub(super) fn drop_learners(&mut self) {
        for slot in 0..self.members.len() {
            if matches!(self.members[slot].role, Role::Learner(_) | Role::Joining { .. }) {
                self.learner_failed(slot, MemberFault::Different);
            }
        }
    }

    pub(super) fn rebuilds(&self) -> Vec<Progress> {
        let learners = self.members.iter().filter_map(|member| match &member.role {
            Role::Learner(learner) => Some(Progress {
                replica: member.id,
                done_bytes: learner.done_bytes,
                total_bytes: learner.total_bytes,
            }),
            _ => None,
        });
        learners.collect()
    }
}
