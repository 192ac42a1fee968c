//! Operations: how they are started, driven, and ended.

use super::Replica;
use super::inspect::{MapOp, ScrubOp};
use super::metadata::MetadataOp;
use super::read::ReadOp;
use super::repair::RepairOp;
use super::verify::{PunchOp, VerifyOp};
use super::work::BatchOp;
use super::write::WriteOp;
use super::zero::ZeroOp;
use crate::store::request::{IoResult, Reply, RequestError, RequestId};
use crate::store::slab::Key;

/// Something that takes more than one step.
#[derive(Debug)]
pub(super) struct Op {
    /// Nothing if the replica itself wants it.
    pub(super) request: Option<RequestId>,
    pub(super) kind: OpKind,
}

#[derive(Debug)]
pub(super) enum OpKind {
    Read(ReadOp),
    Write(WriteOp),
    Zero(ZeroOp),
    Map(MapOp),
    Scrub(ScrubOp),
    Metadata(MetadataOp),
    Repair(RepairOp),
    Verify(VerifyOp),
    Punch(PunchOp),
    Batch(BatchOp),
}

/// Whether an operation goes on.
#[derive(Debug)]
pub(super) enum OpStep {
    /// An event puts it on the ready list.
    Wait,
    /// It goes to the end of the ready list by itself.
    Again,
    Done(Result<Reply, RequestError>),
}

impl Replica {
    pub(super) fn start(&mut self, request: Option<RequestId>, kind: OpKind) {
        let key = self.ops.insert(Op { request, kind });
        self.drive(key);
    }

    /// Lets an operation check its conditions again.
    pub(super) fn drive(&mut self, key: Key) {
        let Some(mut op) = self.ops.lend(key) else { return };
        let step = match &mut op.kind {
            OpKind::Read(read) => self.step_read(key, read),
            OpKind::Write(write) => self.step_write(key, write),
            OpKind::Zero(zero) => self.step_zero(key, zero),
            OpKind::Map(map) => self.step_map(key, map),
            OpKind::Scrub(scrub) => self.step_scrub(key, scrub),
            OpKind::Metadata(metadata) => self.step_metadata(key, metadata),
            OpKind::Repair(repair) => self.step_repair(key, repair),
            OpKind::Verify(verify) => self.step_verify(key, verify),
            OpKind::Punch(punch) => self.step_punch(key, punch),
            OpKind::Batch(batch) => self.step_batch(key, batch),
        };
        self.after(key, op, step);
    }

    pub(super) fn op_io(&mut self, key: Key, part: u32, result: IoResult) {
        let Some(mut op) = self.ops.lend(key) else { return };
        let step = match &mut op.kind {
            OpKind::Read(read) => self.read_io(read, part, result),
            OpKind::Write(write) => self.write_io(key, write, result),
            OpKind::Scrub(scrub) => self.scrub_io(scrub, result),
            OpKind::Metadata(metadata) => self.metadata_io(key, metadata, result),
            OpKind::Repair(repair) => self.repair_io(repair, result),
            OpKind::Verify(verify) => self.verify_io(key, verify, result),
            OpKind::Punch(punch) => self.punch_io(punch, result),
            OpKind::Batch(batch) => self.batch_io(key, batch, part, result),
            OpKind::Zero(_) | OpKind::Map(_) => unreachable!("does no I/O of its own"),
        };
        self.after(key, op, step);
    }

    pub(super) fn after(&mut self, key: Key, op: Op, step: OpStep) {
        match step {
            OpStep::Wait => self.ops.give_back(key, op),
            OpStep::Again => {
                self.ops.give_back(key, op);
                self.ready.push_back(key);
            }
            OpStep::Done(result) => {
                self.ops.free(key);
                if let Some(id) = op.request {
                    self.reply(id, result);
                }
            }
        }
    }

    /// Ends operations that wait for something that failed.
    pub(super) fn fail_ops(&mut self, keys: Vec<Key>, error: &RequestError) {
        for key in keys {
            if let Some(mut op) = self.ops.lend(key) {
                match &mut op.kind {
                    OpKind::Verify(verify) => self.abandon_verify(verify, error),
                    OpKind::Punch(punch) => self.abandon_punch(punch),
                    OpKind::Batch(batch) => self.abandon_batch(batch, error),
                    OpKind::Scrub(scrub) => self.end_scrub(scrub),
                    OpKind::Metadata(metadata) => self.end_metadata(key, metadata),
                    OpKind::Repair(repair) => self.abandon_repair(repair),
                    OpKind::Read(read) => self.leave(read),
                    OpKind::Write(_) | OpKind::Zero(_) | OpKind::Map(_) => {}
                }
                self.after(key, op, OpStep::Done(Err(error.clone())));
            }
        }
    }
}
