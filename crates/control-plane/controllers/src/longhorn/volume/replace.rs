//! Replicas whose files no attempt can open: when another one takes the place, and when the files
//! may go. Pure.
//!
//! ```text
//!  missing or damaged ─► failed ─► pause ─► another replica ─► all copies in sync ─► files removed
//!                                    ▲            │ failed as well
//!                                    └── longer ◄─┘
//! ```
//!
//! Nothing is replaced without a copy in sync to build from. Files that held data stay until no
//! other copy is doubtful: some blocks may be whole there and nowhere else.

use hci::longhorn::{REPLACES, REPLICA_DAMAGED, REPLICA_MISSING};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::place::ReplicaPlacements;
use super::replica::{Mode, Replica, ReplicaSet, Retention};
use crate::object::annotation;
use crate::record::condition::{ConditionFields, of_type};

/// The pause before a second attempt; each further one is twice as long.
const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(30);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// Files are missing, too, while their disk is not mounted. Its node reports that within 30 s.
const MISSING_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// Why no attempt can open the files of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileFault {
    Missing,
    Damaged,
}

impl FileFault {
    /// The fault of its files that the node of the replica reports in its conditions.
    pub(super) fn of(conditions: &[ConditionFields<'_>]) -> Option<Self> {
        let found = of_type(conditions, "InstanceCreation")?;
        match (found.status, found.reason) {
            ("False", REPLICA_MISSING) => Some(Self::Missing),
            ("False", REPLICA_DAMAGED) => Some(Self::Damaged),
            _ => None,
        }
    }
}

/// Name of the unusable replica that this one replaces.
pub(super) fn predecessor(replica: &Value) -> &str {
    annotation(replica, REPLACES).unwrap_or_default()
}

/// The next step of the replacement of unusable replicas.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Replacement<'a> {
    /// There are none, or each has a successor.
    None,
    Wait(Timestamp),
    /// Another replica takes the place of this one.
    Of(&'a str),
}

/// How long after its failure a replica that was tried so often is tried again.
fn pause(tries: i64) -> SignedDuration {
    match u32::try_from(tries) {
        Err(_) | Ok(0) => SignedDuration::ZERO,
        Ok(tries) => {
            let factor = 1_i32.checked_shl(tries - 1).filter(|it| *it > 0).unwrap_or(i32::MAX);
            FIRST_PAUSE.checked_mul(factor).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
        }
    }
}

/// Time of the next attempt with a failed replica.
pub(super) fn retry_at(own: &Replica<'_>) -> Timestamp {
    let failed = own.failed.unwrap_or(Timestamp::MIN);
    failed.checked_add(pause(own.tries)).unwrap_or(failed)
}

/// When another replica may be made, after all attempts before.
pub(super) fn next_attempt(set: &ReplicaSet<'_>) -> Timestamp {
    let failed = set.0.iter().filter(|own| own.failed.is_some());
    failed.map(retry_at).max().unwrap_or(Timestamp::MIN)
}

pub(super) fn next<'a>(
    set: &ReplicaSet<'a>,
    places: &ReplicaPlacements,
    now: Timestamp,
) -> Replacement<'a> {
    if !set.usable().any(|own| own.mode == Mode::InSync) {
        return Replacement::None;
    }
    let has_successor = |own: &Replica<'_>| set.usable().any(|it| it.replaces == own.name);
    let unusable = set.0.iter().filter(|own| is_unusable(own, places) && !has_successor(own));
    let Some(own) = unusable.min_by_key(|own| own.failed) else { return Replacement::None };
    let failed = own.failed.unwrap_or(now);
    let settled = match own.fault {
        Some(FileFault::Missing) => failed.checked_add(MISSING_PAUSE).unwrap_or(failed),
        _ => failed,
    };
    let due = settled.max(next_attempt(set));
    if now < due { Replacement::Wait(due) } else { Replacement::Of(own.name) }
}

/// Whether the files of a failed replica can be given up although node and disk are there.
pub(super) fn is_unusable(own: &Replica<'_>, places: &ReplicaPlacements) -> bool {
    own.failed.is_some() && !own.deleting && own.fault.is_some() && places.serves(own)
}

/// Whether the files of an unusable replica may be removed: all copies that there should be are in
/// sync, and every block of the volume can be read.
pub(super) fn may_remove(set: &ReplicaSet<'_>, retention: Retention) -> bool {
    let staying = set.usable().filter(|own| !own.leaving).count();
    let in_sync = set.usable().all(|own| own.mode == Mode::InSync);
    in_sync && staying >= retention.wanted.max(1) && !retention.unreadable
}

/// Whether a failed replica was never in sync and others were made after it: it holds nothing.
pub(super) fn is_superseded(set: &ReplicaSet<'_>, own: &Replica<'_>) -> bool {
    let never = own.fields.spec.last_healthy_at.is_empty() && !own.healthy;
    never && own.failed.is_some() && set.0.iter().any(|it| it.tries > own.tries)
}

#[cfg(test)]
mod tests;
