//! Files that no layer needs any more: cut in slices, so that no file system stalls, and removed.
//!
//! ```text
//! Idle ─throw─► Changing ─► Draining reads ─► Cutting data ─► Removing ─► Syncing ─► Idle
//! ```
//!
//! Reads that were begun before may still use the files; new ones do not. Files that a crash
//! leaves behind are removed at the next open.

use std::collections::VecDeque;

use super::gate::Side;
use super::{Purpose, Replica, own_data};
use crate::store::files::{FileId, FileNo};
use crate::store::request::{IoOp, IoResult};

/// The most space that one truncation frees.
const SLICE: u64 = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct Trash {
    queue: VecDeque<FileNo>,
    state: TrashState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrashState {
    #[default]
    Idle,
    Changing(FileNo),
    Draining(FileNo, Side),
    Cutting(FileNo, u64),
    Removing(FileNo, u32),
    Syncing,
}

impl Trash {
    pub(super) fn throw(&mut self, file: FileNo) {
        self.queue.push_back(file);
    }
}

impl Replica {
    /// Takes the steps that need no operation to end.
    pub(super) fn advance_trash(&mut self) {
        loop {
            self.trash.state = match self.trash.state {
                TrashState::Idle => match self.trash.queue.pop_front() {
                    Some(file) => TrashState::Changing(file),
                    None => return,
                },
                TrashState::Changing(file) => match self.gate.change() {
                    Some(side) => TrashState::Draining(file, side),
                    None => return,
                },
                TrashState::Draining(file, side) if self.gate.is_empty(side) => {
                    self.cut(file, self.meta.size)
                }
                _ => return,
            };
        }
    }

    fn cut(&mut self, file: FileNo, len: u64) -> TrashState {
        let len = len.saturating_sub(SLICE);
        self.issue(Purpose::Trash, own_data(file), IoOp::Truncate { len });
        TrashState::Cutting(file, len)
    }

    /// Failures are not ours to report: the next open tries again.
    pub(super) fn trash_io(&mut self, _result: IoResult) {
        self.trash.state = match self.trash.state {
            TrashState::Cutting(file, 0) => {
                for file in FileId::of_layer(file) {
                    self.issue(Purpose::Trash, file, IoOp::Remove);
                }
                TrashState::Removing(file, 3)
            }
            TrashState::Cutting(file, len) => self.cut(file, len),
            TrashState::Removing(_, 1) => {
                self.issue(Purpose::Trash, FileId::Directory, IoOp::SyncDirectory);
                TrashState::Syncing
            }
            TrashState::Removing(file, left) => TrashState::Removing(file, left - 1),
            TrashState::Syncing => TrashState::Idle,
            state @ (TrashState::Idle | TrashState::Changing(_) | TrashState::Draining(..)) => {
                unreachable!("no operation is in flight in {state:?}")
            }
        };
    }
}
