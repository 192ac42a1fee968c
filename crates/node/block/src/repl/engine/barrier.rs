//! Changes of the volume as a whole: snapshots, revert, delete, resize.
//!
//! ```text
//!  Waiting ──reconciled──► Draining ──nothing under way──► Sent ──all answered──► done
//!     └─reconciled─► Preparing ─┘                           └─► Sealing ──────────►
//!                    (a snapshot)                          (a snapshot)
//! ```
//!
//! While it drains and is sent, changes of the guest are held back, so that every member does it at
//! the same point of the volume's history. Reads are still served, except during a revert.
//!
//! A snapshot holds changes back for a round trip and not for a disk: slow work is done before
//! (files are created) and after (its content becomes durable), while the guest writes. The
//! snapshot exists when it is sealed. One that cannot be sealed anywhere is deleted again.

use super::Engine;
use super::event::{GuestError, GuestId, GuestReply, GuestRequest};
use super::member::Role;
use super::ops::Owner;
use crate::wire::{BLOCK, Refusal, Request, SnapshotInfo};

#[derive(Debug)]
pub(super) struct Barrier {
    pub(super) guest: GuestId,
    request: Request,
    step: BarrierStep,
    /// The reason why a snapshot is deleted again.
    undoes: Option<Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BarrierStep {
    Waiting,
    Preparing,
    Draining,
    Sent,
    Sealing,
}

impl Barrier {
    pub(super) fn holds_changes(&self) -> bool {
        matches!(self.step, BarrierStep::Draining | BarrierStep::Sent)
    }

    pub(super) fn is_sent(&self) -> bool {
        self.step == BarrierStep::Sent
    }

    pub(super) fn holds_reads(&self) -> bool {
        self.holds_changes() && matches!(self.request, Request::Revert { .. })
    }
}

impl Engine {
    pub(super) fn drive_barrier(&mut self) {
        if self.barrier.is_none()
            && let Some((guest, request)) = self.barriers.pop_front()
        {
            match self.barrier_request(request) {
                Ok(request) => {
                    let step = BarrierStep::Waiting;
                    self.barrier = Some(Barrier { guest, request, step, undoes: None });
                }
                Err(result) => return self.reply(guest, result.map(|()| GuestReply::Done)),
            }
        }
        let Some(barrier) = &mut self.barrier else { return };
        if barrier.step == BarrierStep::Waiting && self.unreconciled.is_empty() {
            match barrier.request {
                Request::Snapshot(_) => {
                    barrier.step = BarrierStep::Preparing;
                    self.issue_all(Request::Prepare, Owner::Barrier);
                    return;
                }
                _ => barrier.step = BarrierStep::Draining,
            }
        }
        let scrubs = self.scrub.as_ref().is_some_and(super::scrub::Scrub::checks_layers);
        let idle = self.syncs.is_empty() && !scrubs && self.locks.nothing_changes();
        if barrier.step == BarrierStep::Draining && idle && self.unreconciled.is_empty() {
            barrier.step = BarrierStep::Sent;
            let request = barrier.request.clone();
            self.issue_all(request, Owner::Barrier);
        }
    }

    /// The request to the members; `Err` is a result that needs no request.
    fn barrier_request(&self, request: GuestRequest) -> Result<Request, Result<(), GuestError>> {
        let known = |id| self.snapshots.iter().any(|info| info.id == id);
        let learning = self
            .members
            .iter()
            .any(|member| matches!(member.role, Role::Learner(_) | Role::Joining { .. }));
        match request {
            GuestRequest::Snapshot { id, .. } if known(id) => Err(Ok(())),
            GuestRequest::Snapshot { id, name, created, labels } => {
                let parent = self.head_parent;
                Ok(Request::Snapshot(SnapshotInfo { id, name, parent, created, labels }))
            }
            GuestRequest::Revert { to: id } | GuestRequest::DeleteSnapshot { id } if !known(id) => {
                Err(Err(GuestError::NoSnapshot))
            }
            // A rebuild copies snapshot by snapshot, so they must not change meanwhile.
            GuestRequest::DeleteSnapshot { .. } | GuestRequest::Revert { .. } if learning => {
                Err(Err(GuestError::Busy))
            }
            GuestRequest::DeleteSnapshot { id } => Ok(Request::DeleteSnapshot { snapshot: id }),
            GuestRequest::Revert { to } => Ok(Request::Revert { to: Some(to) }),
            GuestRequest::Resize { size } if size == self.size => Err(Ok(())),
            GuestRequest::Resize { size } if size > self.size && size % BLOCK == 0 => {
                Ok(Request::Resize { size })
            }
            _ => Err(Err(GuestError::Invalid)),
        }
    }

    pub(super) fn barrier_answered(&mut self, result: Result<(), Refusal>) {
        let Some(mut barrier) = self.barrier.take() else { return };
        match (barrier.step, result) {
            (BarrierStep::Preparing, Ok(())) => {
                barrier.step = BarrierStep::Draining;
                self.barrier = Some(barrier);
                return self.drive_barrier();
            }
            (BarrierStep::Sent, Ok(())) => {
                self.changed_as_a_whole(barrier.request.clone());
                if let Request::Snapshot(_) = barrier.request {
                    barrier.step = BarrierStep::Sealing;
                    self.barrier = Some(barrier);
                    self.issue_all(Request::Seal, Owner::Barrier);
                    return;
                }
            }
            (BarrierStep::Sealing, Err(refusal)) => {
                if let Request::Snapshot(info) = &barrier.request {
                    self.drop_learners();
                    barrier.request = Request::DeleteSnapshot { snapshot: info.id };
                    barrier.step = BarrierStep::Draining;
                    barrier.undoes = Some(refusal);
                    self.barrier = Some(barrier);
                    return self.drive_barrier();
                }
            }
            _ => {}
        }
        let result = barrier.undoes.map_or(result, Err);
        let result = result.map(|()| GuestReply::Done).map_err(Self::guest_error);
        self.reply(barrier.guest, result);
    }

    /// Every member has carried out the change.
    fn changed_as_a_whole(&mut self, request: Request) {
        // A replica that was replaced by a copy from before lacks the flush that follows.
        self.flush.regions.note_all();
        self.flush.due = true;
        match request {
            Request::Snapshot(info) => {
                self.learners_missed_snapshot(info.id);
                self.untrack();
                self.head_parent = Some(info.id);
                self.snapshots.push(info);
            }
            Request::DeleteSnapshot { snapshot } => {
                super::learner::forget(&mut self.snapshots, &mut self.head_parent, snapshot);
            }
            Request::Revert { to } => {
                self.untrack();
                self.head_parent = to;
            }
            Request::Resize { size } => {
                self.size = size;
                self.drop_learners();
                self.untrack();
            }
            _ => {}
        }
    }

    /// Stops the change tracking of replicas outside of the in-sync set: it refers to another head.
    fn untrack(&mut self) {
        for member in &mut self.members {
            if matches!(member.role, Role::Outside | Role::Leaving) {
                member.tracked = false;
            }
        }
    }
}
