//! Writing the two slots of the super block, and what their completions mean.

use bytes::Bytes;

use super::{Change, ControlState, Running};
use crate::store::files::FileId;
use crate::store::replica::{Purpose, Replica};
use crate::store::request::{IoOp, IoResult};
use crate::store::super_block::SLOTS;

impl Replica {
    pub(super) fn write_slot(&mut self, offset: u64, data: Bytes) {
        let op = IoOp::Write { offset, data, durable: true };
        self.issue(Purpose::Control(FileId::Super), FileId::Super, op);
    }

    pub(in crate::store::replica) fn control_io(&mut self, file: FileId, result: IoResult) {
        let Some(mut running) = self.control.running.take() else {
            unreachable!("a completion without a change");
        };
        match &mut running.state {
            ControlState::Creating { left, failed, .. } => {
                *left -= 1;
                if let Err(fault) = result {
                    failed.get_or_insert(fault);
                }
                if *left == 1 {
                    self.issue(
                        Purpose::Control(FileId::Directory),
                        FileId::Directory,
                        IoOp::SyncDirectory,
                    );
                }
                self.control.running = Some(running);
            }
            ControlState::Cutting { .. } => match (result, running.state) {
                (Ok(_), ControlState::Cutting { next, effect }) => {
                    running.state = ControlState::Quieting;
                    self.finish_cut(running, *next, effect);
                }
                (Err(fault), _) => self.cannot_write(file, fault),
                (Ok(_), _) => unreachable!("it was cutting"),
            },
            ControlState::Writing { .. } => match result {
                Ok(_) => self.mirror(running),
                Err(fault) => self.cannot_write(file, fault),
            },
            ControlState::Mirroring { unfinished } => match (result, unfinished.take()) {
                (Ok(_), Some((next, effect))) => self.finish_change(running, *next, effect),
                (Ok(_), None) => {}
                (Err(fault), _) => self.cannot_write(file, fault),
            },
            other => unreachable!("no operation is in flight in {other:?}"),
        }
    }

    /// The first slot is durable: its content is valid.
    fn mirror(&mut self, mut running: Running) {
        let mirroring = ControlState::Mirroring { unfinished: None };
        let ControlState::Writing { next, data, effect } =
            std::mem::replace(&mut running.state, mirroring)
        else {
            unreachable!("called when the first slot was written");
        };
        self.write_slot(SLOTS[1 - self.control.first], data);
        self.control.first = 0;
        if running.plan.closes {
            running.state = ControlState::Mirroring { unfinished: Some((next, effect)) };
            self.control.running = Some(running);
            return;
        }
        let (change, plan) = (Change::FinishWork, running.plan);
        self.finish_change(running, *next, effect);
        let state = ControlState::Mirroring { unfinished: None };
        self.control.running = Some(Running { id: None, change, plan, state });
    }
}
