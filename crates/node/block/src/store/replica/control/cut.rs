//! The phases of a snapshot: preparation, the cut, and the seal that makes it durable.

use super::change::Effect;
use super::{Change, Replica, Running};
use crate::store::request::{Reply, RequestError, RequestId};
use crate::store::super_block::SuperBlock;

impl Replica {
    /// The files are there for whoever needs them next.
    pub(super) fn finish_prepare(&mut self, running: &Running) {
        self.control.prepared = running.plan.creates;
        if let Some(id) = running.id {
            self.reply(id, Ok(Reply::Done));
        }
    }

    /// The kernel has the snapshot: later writes go on top of it.
    pub(super) fn finish_cut(&mut self, running: Running, next: SuperBlock, effect: Effect) {
        self.super_unsynced = true;
        self.control.first = 1;
        self.finish_change(running, next, effect);
        self.control.queue.push_front((None, Change::Seal));
    }

    /// A request waits until every snapshot is durable.
    pub(in crate::store::replica) fn want_seal(&mut self, id: RequestId) {
        if self.meta.body.layers.is_sealed() {
            return self.reply(id, Ok(Reply::Done));
        }
        self.control.sealers.push(id);
        let seals = |change: &Change| matches!(change, Change::Seal);
        let running = self.control.running.as_ref().is_some_and(|it| seals(&it.change));
        if !running && !self.control.queue.iter().any(|(_, change)| seals(change)) {
            self.control.enqueue_own(Change::Seal);
        }
    }

    pub(super) fn answer_sealers(&mut self, result: &Result<Reply, RequestError>) {
        for id in std::mem::take(&mut self.control.sealers) {
            self.reply(id, result.clone());
        }
    }
}
