//! The engine's state of one replica.
//!
//! ```text
//!            promised at activation
//!  Outside ──► Candidate ──────────────► InSync ──fault, another is well──► Leaving
//!   ▲  │                                   ▲                                  │
//!   │  └─opened─► Learner ──copied──► Joining ──swapped──┘                    │
//!   └─────────────────┴── fault ─────────┴──────────── swapped ◄──────────────┘
//! ```
//!
//! The fault of an in-sync member is only noted at first: while no other member is well, it may
//! come back and go on. It is leaving when its removal was proposed to the control plane.

use std::time::Duration;

use super::event::{Connection, Time};
use super::learner::Learner;
use super::notice::{MemberFault, Stale};
use super::pace::Latency;
use crate::ids::{BootId, Generation, InstanceId, ReplicaId, SnapshotId};
use crate::repl::evidence::Claim;
use crate::repl::span::Pieces;
use crate::wire::{Opened, Pong, SnapshotInfo};

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: ReplicaId,
    /// The record or the owner wants it to be part of the volume.
    pub(super) wanted: bool,
    pub(super) role: Role,
    pub(super) link: Link,
    pub(super) connection: Connection,
    /// Which life of the replica the session is with.
    pub(super) life: Option<(InstanceId, BootId)>,
    /// The life that was found when it had restarted.
    pub(super) next_life: Option<(InstanceId, BootId)>,
    /// A change was acknowledged without it since it left the in-sync set.
    pub(super) missed_acked: bool,
    pub(super) opened: Option<Box<Opened>>,
    /// The protocol that it speaks, and what it had promised when it was greeted.
    pub(super) version: u16,
    pub(super) promised: Generation,
    /// Why it is older than what was acknowledged. Stays until it has a full copy.
    pub(super) stale: Option<Stale>,
    /// The newest flush of this engine that it answered.
    pub(super) flushed: u64,
    /// Regions that were in the dirty-region logs when it left.
    pub(super) unsettled: Pieces,
    /// When the newest call was sent that proves that the replica has promised no other engine.
    pub(super) proof: Option<Time>,
    pub(super) ping: Option<(u64, Time)>,
    pub(super) last_ping: Time,
    pub(super) up_since: Time,
    pub(super) away: Option<Time>,
    /// It is away because its host closed the connection.
    pub(super) closed: bool,
    /// How often it was removed because it did not answer, without a long time between.
    pub(super) strikes: u32,
    /// How often in a row it could not be rebuilt.
    pub(super) failures: u32,
    /// Why it could not be rebuilt the last time.
    pub(super) rebuild_fault: Option<MemberFault>,
    pub(super) fault: Option<MemberFault>,
    pub(super) latency: Latency,
    /// The statistics that it reported last.
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

/// Size, size of regions, what the head is above, and snapshots.
pub(super) type Shape<'a> = (u64, u64, Option<SnapshotId>, &'a [SnapshotInfo]);

impl Member {
    pub(super) fn new(id: ReplicaId, chunk: u64) -> Self {
        Self {
            id,
            wanted: false,
            role: Role::Outside,
            link: Link::Down { retry: Time::ZERO },
            connection: 0,
            life: None,
            next_life: None,
            missed_acked: true,
            opened: None,
            version: 0,
            promised: Generation(0),
            stale: None,
            flushed: 0,
            unsettled: Pieces::none(chunk),
            proof: None,
            ping: None,
            last_ping: Time::ZERO,
            up_since: Time::ZERO,
            away: None,
            closed: false,
            strikes: 0,
            failures: 0,
            rebuild_fault: None,
            fault: None,
            latency: Latency::default(),
            stats: None,
            changed: Pieces::none(chunk),
            tracked: false,
            retry_learning: Time::ZERO,
        }
    }

    /// Properties that must be the same on all members.
    pub(super) fn shape(&self) -> Option<Shape<'_>> {
        let opened = self.opened.as_ref()?;
        Some((opened.size, opened.region, opened.head_parent, opened.snapshots.as_slice()))
    }

    /// Its report of itself, to be compared with the knowledge of the others.
    pub(super) fn claim(&self) -> Claim {
        let opened = self.opened.as_ref();
        Claim {
            promised: self.promised,
            epoch: opened.map(|it| it.epoch).unwrap_or_default(),
            keeps_marks: self.version >= 2,
            marks: opened.and_then(|it| it.marks),
            witnessed: opened.map(|it| it.witnessed).unwrap_or_default(),
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

    /// Whether the replica receives every write of the guest.
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
