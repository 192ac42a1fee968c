//! What the engine knows of one replica.
//!
//! ```text
//!            promised at activation
//!  Outside ──► Candidate ──────────────► InSync ──fault, another is well──► Leaving
//!   ▲  │                                   ▲                                  │
//!   │  └─opened─► Learner ──copied──► Joining ──swapped──┘                    │
//!   └─────────────────┴── fault ─────────┴──────────── swapped ◄──────────────┘
//! ```
//!
//! The fault of an in-sync member is only noted at first: while nobody else is well, it may come
//! back and go on. It is leaving when its removal was proposed to the control plane.

use std::time::Duration;

use super::event::{Connection, Time};
use super::notice::MemberFault;
use super::pace::Latency;
use super::rebuild::Learner;
use crate::ids::{BootId, InstanceId, ReplicaId};
use crate::repl::span::Pieces;
use crate::wire::{Opened, Pong};

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: ReplicaId,
    /// Somebody wants it to be part of the volume.
    pub(super) wanted: bool,
    pub(super) role: Role,
    pub(super) link: Link,
    pub(super) connection: Connection,
    /// Which life of the replica the session is with.
    pub(super) life: Option<(InstanceId, BootId)>,
    pub(super) opened: Option<Box<Opened>>,
    /// When the newest call was sent that proves that the replica has promised no other engine.
    pub(super) proof: Option<Time>,
    pub(super) ping: Option<(u64, Time)>,
    pub(super) last_ping: Time,
    pub(super) up_since: Time,
    pub(super) away: Option<Time>,
    pub(super) fault: Option<MemberFault>,
    pub(super) latency: Latency,
    /// What it said last of itself.
    pub(super) stats: Option<Pong>,
    /// Chunks changed while the replica did not get changes; of a member, those that it refused.
    pub(super) changed: Pieces,
    /// `changed` is complete: nothing else differs, but for the replica's own dirty regions.
    pub(super) tracked: bool,
    /// Not before this is it tried as a learner again.
    pub(super) retry_learning: Time,
}

#[derive(Debug)]
pub(super) enum Role {
    Outside,
    Candidate,
    InSync,
    Leaving,
    Learner(Box<Learner>),
    /// Has everything; counts for acknowledgements, but is not in the record yet.
    Joining {
        /// Operations with lower numbers were begun before it counted.
        since: u64,
        step: JoinStep,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinStep {
    Draining,
    /// Its snapshots become durable, and then the rest.
    Sealing,
    Flushing,
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Link {
    Down { retry: Time },
    Connecting { since: Time },
    Greeting { since: Time, call: u64 },
    Opening { since: Time, call: u64 },
    Up,
}

impl Member {
    pub(super) fn new(id: ReplicaId, chunk: u64) -> Self {
        Self {
            id,
            wanted: false,
            role: Role::Outside,
            link: Link::Down { retry: Time::ZERO },
            connection: 0,
            life: None,
            opened: None,
            proof: None,
            ping: None,
            last_ping: Time::ZERO,
            up_since: Time::ZERO,
            away: None,
            fault: None,
            latency: Latency::default(),
            stats: None,
            changed: Pieces::none(chunk),
            tracked: false,
            retry_learning: Time::ZERO,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// In sync, and no reason to doubt it.
    pub(super) fn is_readable(&self) -> bool {
        matches!(self.role, Role::InSync) && self.is_up() && self.fault.is_none()
    }

    /// Its answers count for acknowledgements, now and when those that leave have left.
    pub(super) fn counts(&self) -> bool {
        matches!(self.role, Role::InSync | Role::Joining { .. })
    }

    /// Gets every change of the guest.
    pub(super) fn gets_changes(&self) -> bool {
        match &self.role {
            Role::InSync | Role::Joining { .. } => true,
            Role::Learner(learner) => learner.live,
            Role::Outside | Role::Candidate | Role::Leaving => false,
        }
    }

    /// Part of the volume, or on its way to be.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.role, Role::InSync | Role::Joining { .. } | Role::Learner(_))
    }

    /// A proof younger than `lease` that no other engine has been promised anything.
    pub(super) fn has_lease(&self, now: Time, lease: Duration) -> bool {
        self.proof.is_some_and(|proof| now < proof + lease)
    }

    /// Whether the replica can take up its session again after `fault`.
    pub(super) fn is_curable(fault: MemberFault) -> bool {
        use MemberFault::{Away, Removed, Slow, TimedOut};
        matches!(fault, Away | TimedOut | Slow | Removed)
    }
}
