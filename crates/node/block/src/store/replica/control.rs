//! Changes of the super block, one after the other.
//!
//! ```text
//! Idle ─► Creating ─► Cleaning ─► Holding ─► Settling ─► Quieting ─► Writing ─► Mirroring ─► Idle
//!           files      all maps    no write    once more    nothing     first       second
//!                      to disk     in flight   while held   uses files  slot        slot
//!                                     └─► Cutting: first slot ─► Idle, then Seal
//! ```
//!
//! A change takes only the steps it needs. Until the first slot is durable nothing has changed: a
//! power cut leaves the old state, and files that were created are removed at the next open.
//! Then the change is true and is answered, while the second slot follows; only a close waits
//! for both.
//!
//! A snapshot must not keep writes waiting for a disk. It is cut: the new super block is left to
//! the kernel, and writes go on at once, into the new layer. The next flush makes the super block
//! durable before anything of that layer; until then a power cut leaves the old one, and so what
//! a flush had promised. The change that follows, a seal, makes all that the snapshot holds
//! durable and says so in the super block. A power cut before that takes the snapshot back. Since
//! only the first slot knows of the cut, the seal is written to the second one first.

mod change;
mod cut;
mod slots;

use std::collections::VecDeque;

use bytes::Bytes;

use self::change::{ChangePlan, Effect};
use super::{Life, Purpose, Replica, own_map};
use crate::store::files::{FileId, FileNo};
use crate::store::layer::{LayerNo, WorkKind, written_files};
use crate::store::log::Record;
use crate::store::region::Eager;
use crate::store::request::{IoFault, IoOp, Reply, Request, RequestError, RequestId};
use crate::store::slab::Key;
use crate::store::super_block::{SLOTS, SuperBlock};

#[derive(Debug, Default)]
pub(super) struct Control {
    queue: VecDeque<(Option<RequestId>, Change)>,
    running: Option<Running>,
    /// Writes to the head wait, here.
    hold: bool,
    held: Vec<Key>,
    /// Files that were created for the next layer.
    prepared: Option<FileNo>,
    /// The slot that is written first; the other one holds the newest state.
    first: usize,
    /// Requests that wait for snapshots to become durable.
    sealers: Vec<RequestId>,
}

/// A change of the super block.
#[derive(Debug)]
pub(super) enum Change {
    Request(Request),
    BeginWork(WorkKind),
    FinishWork,
    DropLayer(LayerNo),
    /// Writes that a power cut lost have been copied from the peers, or given up.
    ForgetLoss,
    /// Snapshots that were cut become durable.
    Seal,
    /// The same once more: a slot is damaged.
    Rewrite,
}

#[derive(Debug)]
struct Running {
    id: Option<RequestId>,
    change: Change,
    plan: ChangePlan,
    state: ControlState,
}

#[derive(Debug)]
enum ControlState {
    /// Three files, then their directory.
    Creating {
        left: u32,
        failed: Option<IoFault>,
    },
    Cleaning {
        ticket: u64,
    },
    Holding,
    Settling {
        ticket: u64,
    },
    Quieting,
    Cutting {
        next: Box<SuperBlock>,
        effect: Effect,
    },
    Writing {
        next: Box<SuperBlock>,
        data: Bytes,
        effect: Effect,
    },
    /// A close is not finished before the second slot is durable.
    Mirroring {
        unfinished: Option<(Box<SuperBlock>, Effect)>,
    },
}

impl Control {
    pub(super) fn enqueue(&mut self, id: Option<RequestId>, request: Request) {
        self.queue.push_back((id, Change::Request(request)));
    }

    pub(super) fn enqueue_own(&mut self, change: Change) {
        self.queue.push_back((None, change));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.queue.is_empty()
    }

    /// Whether both slots are as they should be.
    pub(super) fn is_at_rest(&self) -> bool {
        self.is_idle() && self.first == 0
    }

    pub(super) fn is_closing(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.plan.closes)
    }

    /// Has both slots written again while they are at rest, a damaged one first.
    pub(super) fn write_again(&mut self, damaged: [bool; 2]) {
        debug_assert!(self.is_at_rest());
        self.first = usize::from(!damaged[0]);
        self.enqueue_own(Change::Rewrite);
    }

    /// Whether a change waits for background work to pause.
    pub(super) fn is_holding(&self) -> bool {
        self.hold
    }

    pub(super) fn take_requests(&mut self) -> Vec<RequestId> {
        let running = self.running.take().and_then(|running| running.id);
        let queued = self.queue.drain(..).filter_map(|(id, _)| id);
        running.into_iter().chain(queued).chain(self.sealers.drain(..)).collect()
    }
}

impl Replica {
    /// Whether writes to the head are held; then the operation is parked.
    pub(super) fn is_held(&mut self, key: Key) -> bool {
        if self.control.hold {
            self.control.held.push(key);
        }
        self.control.hold
    }

    pub(super) fn advance_control(&mut self) {
        while self.life == Life::Serving {
            let Some(mut running) = self.control.running.take() else {
                let Some((id, change)) = self.control.queue.pop_front() else { return };
                self.begin_change(id, change);
                continue;
            };
            let next = match &running.state {
                ControlState::Creating { left, .. } => {
                    (*left == 0).then(|| self.after_creating(&running))
                }
                ControlState::Cleaning { ticket } => {
                    self.cleaned(*ticket).map(|ok| ok.map(|()| self.after_cleaning(&running.plan)))
                }
                ControlState::Holding => (self.writes_in_flight == 0 && self.work.is_paused())
                    .then(|| {
                        if running.plan.cuts {
                            return Ok(ControlState::Quieting);
                        }
                        let eager = if running.plan.closes { Eager::All } else { Eager::No };
                        Ok(ControlState::Settling { ticket: self.want_clean(eager) })
                    }),
                ControlState::Settling { ticket } => {
                    self.cleaned(*ticket).map(|ok| ok.map(|()| ControlState::Quieting))
                }
                ControlState::Quieting if running.plan.prepares => {
                    self.finish_prepare(&running);
                    continue;
                }
                ControlState::Quieting => {
                    self.is_quiet(&running).then(|| self.write_super(&running))
                }
                ControlState::Cutting { .. }
                | ControlState::Writing { .. }
                | ControlState::Mirroring { .. } => None,
            };
            match next {
                None => {
                    self.control.running = Some(running);
                    self.advance_clean();
                    return;
                }
                Some(Ok(state)) => {
                    running.state = state;
                    self.control.running = Some(running);
                }
                Some(Err(error)) => self.refuse_change(running, error),
            }
        }
    }

    fn begin_change(&mut self, id: Option<RequestId>, change: Change) {
        let plan = match self.plan_change(&change) {
            Ok(plan) => plan,
            Err(error) => {
                if let Some(id) = id {
                    self.reply(id, Err(error));
                }
                return;
            }
        };
        let state = match plan.creates {
            Some(file) if self.control.prepared == Some(file) => self.after_files(&plan),
            Some(file) => {
                // Background work took the number that was prepared for.
                if let Some(stale) = self.control.prepared.take() {
                    self.trash.throw(stale);
                }
                for file in FileId::of_layer(file) {
                    self.issue(Purpose::Control(file), file, IoOp::Create);
                }
                ControlState::Creating { left: 4, failed: None }
            }
            None => self.after_files(&plan),
        };
        self.control.running = Some(Running { id, change, plan, state });
    }

    fn after_creating(&mut self, running: &Running) -> Result<ControlState, RequestError> {
        let ControlState::Creating { failed, .. } = running.state else {
            unreachable!("called when files were created");
        };
        match failed {
            Some(fault) => Err(super::access::data_error(FileId::Directory, fault)),
            None => Ok(self.after_files(&running.plan)),
        }
    }

    fn after_files(&mut self, plan: &ChangePlan) -> ControlState {
        if plan.cleans {
            ControlState::Cleaning { ticket: self.want_clean(Eager::No) }
        } else {
            self.after_cleaning(plan)
        }
    }

    fn after_cleaning(&mut self, plan: &ChangePlan) -> ControlState {
        if plan.holds {
            self.control.hold = true;
            ControlState::Holding
        } else {
            ControlState::Quieting
        }
    }

    /// Whether the clean with this number has ended, and how.
    pub(super) fn cleaned(&self, ticket: u64) -> Option<Result<(), RequestError>> {
        let starved = self.clean.starved == self.clean.ended;
        let outcome = if starved { Err(RequestError::NoSpace) } else { Ok(()) };
        (self.clean.ended >= ticket).then_some(outcome)
    }

    /// Whether nothing but reads may still touch a file that is to be dropped.
    fn is_quiet(&self, running: &Running) -> bool {
        let leaving = self.leaving_file(&running.change);
        leaving.is_none_or(|file| !self.flush.is_syncing(file))
            && (!running.plan.drops || self.is_at_rest())
    }

    fn is_at_rest(&self) -> bool {
        !self.punching
            && self.work.verifying == 0
            && self.allocating.is_empty()
            && self.clean.ended == self.clean.begun
    }

    fn write_super(&mut self, running: &Running) -> Result<ControlState, RequestError> {
        let mut next = self.meta.clone();
        next.seq += 1;
        next.body.log_next = self.log.durable_next();
        next.body.marks = self.marks;
        let effect = self.apply_change(&running.change, &mut next)?;
        let were = written_files(&self.meta.body.layers, self.meta.body.work.as_ref());
        for layer in &mut next.body.layers.layers {
            layer.blocks = self.counts.get(&layer.file).copied().unwrap_or(0);
            layer.root = Some(self.index.root(layer.file));
            // A layer that is written no more keeps its doubts.
            layer.unverified = were.contains(&layer.file) && self.is_in_doubt(layer.file);
        }
        if let Some(work) = &mut next.body.work
            && self.meta.body.work.as_ref().is_some_and(|current| current.no == work.no)
        {
            work.cursor = self.work.cursor();
        }
        if let Some(file) = self.leaving_file(&running.change) {
            // Its content is not read once the change is durable, and until then the layers
            // are as they were: there is nothing to sync or to give back.
            self.unsynced.remove(&file);
            self.to_punch.retain(|(of, _)| *of != file);
        }
        let encoded = next.encode().map_err(|bytes| RequestError::LayerTableFull { bytes })?;
        let (data, next) = (Bytes::from(encoded), Box::new(next));
        if running.plan.creates.is_some() {
            self.control.prepared = None;
        }
        if running.plan.cuts {
            debug_assert_eq!(self.control.first, 0, "a cut is sealed before the next change");
            let op = IoOp::Write { offset: SLOTS[0], data, durable: false };
            self.issue(Purpose::Control(FileId::Super), FileId::Super, op);
            return Ok(ControlState::Cutting { next, effect });
        }
        self.write_slot(SLOTS[self.control.first], data.clone());
        Ok(ControlState::Writing { next, data, effect })
    }

    /// Whether the checksums that a layer has on disk may be older than its data.
    pub(super) fn is_in_doubt(&self, file: FileNo) -> bool {
        !self.regions.are_verified() || self.cache.has_unwritten(own_map(file))
    }

    fn finish_change(&mut self, running: Running, next: SuperBlock, effect: Effect) {
        self.meta = next;
        self.take_effect(effect);
        self.rebuild_chain();
        if running.plan.closes {
            self.life = Life::Closed;
            let held = std::mem::take(&mut self.control.held);
            self.fail_ops(held, &RequestError::Closed);
            for id in self.control.take_requests() {
                self.reply(id, Err(RequestError::Closed));
            }
        }
        // After a close nothing is logged, and a cut is not durable yet.
        if !running.plan.closes && !running.plan.cuts {
            self.log.append(Record::SuperBlock { seq: self.meta.seq });
        }
        self.release();
        if self.meta.body.layers.is_sealed() {
            self.answer_sealers(&Ok(Reply::Done));
        }
        if let Some(id) = running.id {
            self.reply(id, Ok(Reply::Done));
        }
    }

    /// Nothing has changed; the created file is not needed.
    fn refuse_change(&mut self, running: Running, error: RequestError) {
        if let Some(file) = running.plan.creates {
            self.control.prepared = None;
            // Its number is not used again: it is removed while others are created.
            self.meta.body.layers.next = file.0 + 1;
            self.trash.throw(file);
        }
        self.release();
        if matches!(running.change, Change::Rewrite) {
            self.control.first = 0;
        }
        if matches!(running.change, Change::Seal) {
            self.answer_sealers(&Err(error.clone()));
        }
        self.work.stall(&running.change, &error);
        if let Some(id) = running.id {
            self.reply(id, Err(error));
        }
    }

    /// Nothing is left of a power cut once the peers agree on what it may have cost.
    pub(super) fn forget_loss(&mut self) {
        if self.meta.body.lost && self.regions.inherited() == 0 {
            self.meta.body.lost = false;
            self.control.enqueue_own(Change::ForgetLoss);
        }
    }

    fn release(&mut self) {
        self.control.hold = false;
        let held = std::mem::take(&mut self.control.held);
        self.ready.extend(held);
    }
}
