//! The owner that waits for an operation, and the members whose answers it needs.

use super::event::Time;
use super::guest::Waiting;
use crate::repl::span::Span;
use crate::wire::{Refusal, Reply};

/// The members whose answers an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The one member that was asked. If it goes away, the owner is notified.
    One,
    /// Every member of the in-sync set (R3).
    All,
    /// Every member that the request was sent to and that is still there.
    Each,
}

/// The request that an operation belongs to.
#[derive(Debug)]
pub(super) enum Owner {
    /// No operation waits for the reply.
    Unowned,
    Change {
        waiting: Waiting,
        since: Time,
    },
    Read {
        waiting: Waiting,
        since: Time,
    },
    Flush,
    Barrier,
    /// The flush that ends an activation.
    Settling,
    Closing,
    /// The flush before a learner joins.
    Join(usize),
    /// A step of a learner that is not copying.
    Learn(usize),
    /// The dirty-region log of a new member.
    Log(usize),
    SyncMap {
        sync: u64,
        slot: usize,
    },
    SyncRead {
        sync: u64,
        slot: usize,
    },
    SyncWrite {
        sync: u64,
    },
    /// A member verifies its metadata on disk.
    MetadataScrub(usize),
    /// A member checks for damage in its snapshots.
    LayerScrub(usize),
    /// A good copy of a block that is damaged on another member is read.
    LayerRead,
    LayerRepair {
        slot: usize,
        span: Span,
    },
    Fill {
        fill: u64,
        offset: u64,
    },
}

/// How an operation with [`Scope::One`] ended.
pub(super) type OneResult = Result<Reply, Option<Refusal>>;
