//! The replicas of one volume: which of them are usable, and which are to be created or deleted.
//! Pure.
//!
//! A replica is *fresh* until the engine has it in sync for the first time. The last copy that
//! has data is never given up: where there is no other, an error only means waiting.

use hci::placement::{ExistingReplica, PlacementError, PlacementRequest};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::place::{NodeHealth, ReplicaPlacement, ReplicaPlacements, owned};
use super::replace::{self, FileFault, Replacement};
use super::state::{Copies, Instance};
use super::ticket::time;
use crate::longhorn::object::bytes;
use crate::longhorn::record::{EngineFields, ReplicaFields, VolumeFields};
use crate::object::{is_deleting, name, read};

/// A replica that never held data and failed is made anew after this long.
const FRESH_RETRY: SignedDuration = SignedDuration::from_secs(30);
/// How often the same files are tried before others are made.
const RETRIES: i64 = 5;
/// How long the engine may take to drop a replica that failed.
const DROP_TIMEOUT: SignedDuration = SignedDuration::from_secs(5);

/// The engine's state of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    None,
    InSync,
    Building,
    Failed,
}

#[derive(Debug)]
pub(super) struct Replica<'a> {
    pub(super) object: &'a Value,
    pub(super) fields: ReplicaFields<'a>,
    pub(super) name: &'a str,
    pub(super) node: &'a str,
    pub(super) disk: &'a str,
    pub(super) state: Instance,
    /// It has held all data once.
    pub(super) healthy: bool,
    pub(super) failed: Option<Timestamp>,
    pub(super) leaving: bool,
    pub(super) deleting: bool,
    pub(super) mode: Mode,
    pub(super) life: NodeHealth,
    /// How often it or its predecessors were tried without success.
    pub(super) tries: i64,
    pub(super) fault: Option<FileFault>,
    /// Name of the unusable replica that it replaces.
    pub(super) replaces: &'a str,
}

impl<'a> Replica<'a> {
    fn read(object: &'a Value, engine: &EngineFields<'_>, places: &ReplicaPlacements) -> Self {
        let fields: ReplicaFields<'_> = read(object);
        let spec = &fields.spec;
        let node = spec.node_id;
        let name = name(object);
        let mode = engine.status.replica_mode_map.get(name).copied();
        let failed = spec.failed_at;
        Self {
            object,
            name,
            node,
            disk: spec.disk_id,
            state: Instance::read(fields.status.current_state),
            healthy: !spec.healthy_at.is_empty(),
            // One whose time of failure is not readable failed long ago.
            failed: (!failed.is_empty()).then(|| time(failed).unwrap_or(Timestamp::MIN)),
            leaving: spec.eviction_requested,
            deleting: is_deleting(object),
            mode: match mode {
                Some("RW") => Mode::InSync,
                Some("WO") => Mode::Building,
                Some("ERR") => Mode::Failed,
                _ => Mode::None,
            },
            life: places.life(node),
            tries: spec.rebuild_retry_count.unwrap_or_default(),
            fault: FileFault::of(&fields.status.conditions),
            replaces: replace::predecessor(object),
            fields,
        }
    }

    /// It takes part, or will.
    pub(super) fn is_usable(&self) -> bool {
        self.failed.is_none() && !self.deleting
    }

    fn is_sound(&self) -> bool {
        self.is_usable() && self.mode == Mode::InSync
    }
}

/// All replicas of a volume.
#[derive(Debug)]
pub(super) struct ReplicaSet<'a>(pub(super) Vec<Replica<'a>>);

/// The action that is needed for the wanted number of copies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplicaAction<'a> {
    Enough,
    /// Files that are there are brought up to date.
    Reuse(&'a str),
    Make(NewCopy<'a>),
    /// One that failed may come back.
    Wait(Timestamp),
    NoPlace(PlacementError),
}

/// A replica to be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewCopy<'a> {
    pub(super) place: ReplicaPlacement,
    /// How often others were tried before it.
    pub(super) tries: i64,
    /// Name of the unusable replica that it replaces.
    pub(super) replaces: Option<&'a str>,
}

/// The rules for removing replicas.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retention {
    /// How many copies are asked for, and how many there should be.
    pub(super) asked: usize,
    pub(super) wanted: usize,
    /// A failed replica is kept for so long.
    pub(super) stale: SignedDuration,
    /// Blocks of the volume cannot be read: any copy may have them.
    pub(super) unreadable: bool,
    pub(super) now: Timestamp,
}

impl<'a> ReplicaSet<'a> {
    pub(super) fn new(
        replicas: &'a [Value],
        engine: Option<&Value>,
        places: &ReplicaPlacements,
    ) -> Self {
        let engine = engine.map(read).unwrap_or_default();
        Self(replicas.iter().map(|own| Replica::read(own, &engine, places)).collect())
    }

    pub(super) fn usable(&self) -> impl Iterator<Item = &Replica<'a>> {
        self.0.iter().filter(|own| own.is_usable())
    }

    /// No replica has ever been in sync: all of them hold the same, which is nothing.
    pub(super) fn is_fresh(&self) -> bool {
        !self.0.iter().any(|own| own.healthy)
    }

    /// Those without which the engine must not start.
    pub(super) fn core(&self) -> impl Iterator<Item = &Replica<'a>> {
        let fresh = self.is_fresh();
        self.usable().filter(move |own| fresh || own.healthy)
    }

    pub(super) fn copies(&self, wanted: usize) -> Copies {
        let sound = self.0.iter().filter(|own| own.is_sound()).count();
        let lost = self.0.iter().filter(|own| own.mode == Mode::Failed).count();
        let kept = self.core().count();
        Copies { wanted, sound, lost, kept, other: self.0.len() - kept }
    }

    /// Those that have failed and do not say so yet. `up` if they should run.
    pub(super) fn faults(&self, up: bool) -> Vec<&Replica<'a>> {
        let broken = |own: &Replica<'_>| {
            own.mode == Mode::Failed
                || own.state == Instance::Error
                || up && own.life != NodeHealth::Alive && own.mode != Mode::InSync
        };
        let spare = |than: &str| {
            self.usable().any(|own| {
                own.name != than
                    && own.healthy
                    && own.mode != Mode::Building
                    && !broken(own)
                    && own.life == NodeHealth::Alive
            })
        };
        let fresh = self.is_fresh();
        self.usable()
            .filter(|own| broken(own))
            .filter(|own| {
                if fresh { own.state == Instance::Error } else { spare(own.name) || !own.healthy }
            })
            .collect()
    }

    /// Replicas that are no longer needed.
    pub(super) fn surplus(&self, retention: Retention) -> Vec<&Replica<'a>> {
        let Retention { asked, wanted, stale, now, .. } = retention;
        let fresh = self.is_fresh();
        let staying = self.0.iter().filter(|own| own.is_sound() && !own.leaving).count();
        let enough = staying >= wanted.max(1);
        let is_spent = |own: &&Replica<'_>| match own.failed {
            Some(at) if fresh => now.duration_since(at) >= FRESH_RETRY,
            Some(_) if staying > 0 && replace::is_superseded(self, own) => true,
            Some(_) if own.fault.is_some() => replace::may_remove(self, retention),
            Some(at) => enough || staying > 0 && now.duration_since(at) >= stale,
            None => enough && own.leaving,
        };
        let mut spent: Vec<_> =
            self.0.iter().filter(|own| !own.deleting).filter(is_spent).collect();
        if staying > asked.max(1) {
            // One at a time: the next reconciliation sees what is left.
            let extra =
                self.0.iter().filter(|own| own.is_sound() && !own.leaving).max_by(|a, b| {
                    let load =
                        |of: &Replica<'_>| self.usable().filter(|own| own.node == of.node).count();
                    load(a).cmp(&load(b)).then_with(|| a.name.cmp(b.name))
                });
            spent.extend(extra);
        }
        spent
    }

    /// The next copy of a volume that has run; one is built at a time.
    pub(super) fn supply(
        &self,
        wanted: usize,
        wish: &PlacementRequest,
        places: &ReplicaPlacements,
        degraded_since: Option<Timestamp>,
        now: Timestamp,
    ) -> ReplicaAction<'a> {
        let staying = self.usable().filter(|own| !own.leaving);
        let building = self.usable().any(|own| own.mode != Mode::InSync);
        if staying.count() >= wanted || building {
            return ReplicaAction::Enough;
        }
        let failed = || {
            self.0.iter().filter(|own| {
                own.failed.is_some() && !own.deleting && !own.leaving && own.tries < RETRIES
            })
        };
        // A node tries again by itself what it cannot serve, and says when it can.
        let ready = failed().filter(|own| own.state != Instance::Error && places.serves(own));
        if let Some(own) = ready.min_by_key(|own| replace::retry_at(own)) {
            return match replace::retry_at(own) {
                due if now < due => ReplicaAction::Wait(due),
                // The engine still has the connection that failed.
                _ if own.mode == Mode::Failed => ReplicaAction::Wait(now + DROP_TIMEOUT),
                _ => ReplicaAction::Reuse(own.name),
            };
        }
        match replace::next(self, places, now) {
            Replacement::Of(name) => return self.make(wish, places, Some(name)),
            Replacement::Wait(due) => return ReplicaAction::Wait(due),
            Replacement::None => {}
        }
        let until =
            degraded_since.unwrap_or(now) + SignedDuration::from_secs(places.replenishment_wait);
        let may_return =
            |own: &Replica<'_>| own.life != NodeHealth::Gone && !replace::is_unusable(own, places);
        if failed().any(may_return) && now < until {
            return ReplicaAction::Wait(until);
        }
        match replace::next_attempt(self) {
            due if now < due => ReplicaAction::Wait(due),
            _ => self.make(wish, places, None),
        }
    }

    /// A disk on which another attempt failed is used again only if there is no other.
    fn make(
        &self,
        wish: &PlacementRequest,
        places: &ReplicaPlacements,
        replaces: Option<&'a str>,
    ) -> ReplicaAction<'a> {
        let failed = || self.0.iter().filter(|own| own.failed.is_some() && !own.deleting);
        let tries = failed().map(|own| own.tries + 1).max().unwrap_or(0);
        let mut avoided = self.placed();
        avoided.extend(failed().filter(|own| own.tries > 0).map(existing));
        match places.next(&avoided, wish).or_else(|_| places.next(&self.placed(), wish)) {
            Ok(place) => ReplicaAction::Make(NewCopy { place, tries, replaces }),
            Err(obstacle) => ReplicaAction::NoPlace(obstacle),
        }
    }

    /// The first copies of a new volume: as many places as there should be, or fewer and why.
    pub(super) fn first(
        &self,
        wanted: usize,
        wish: &PlacementRequest,
        places: &ReplicaPlacements,
    ) -> (Vec<ReplicaPlacement>, Option<PlacementError>) {
        let mut placed = self.placed();
        let mut found = Vec::new();
        // A failed replica keeps its place until it is removed: one that fails at once must not be
        // created again at once.
        let there = self.0.iter().filter(|own| !own.deleting).count();
        for _ in there..wanted {
            match places.next(&placed, wish) {
                Ok(place) => {
                    placed.push(ExistingReplica {
                        node: place.node.clone(),
                        disk: place.disk.clone(),
                        leaving: false,
                    });
                    found.push(place);
                }
                Err(obstacle) => return (found, Some(obstacle)),
            }
        }
        (found, None)
    }

    fn placed(&self) -> Vec<ExistingReplica> {
        self.usable().map(existing).collect()
    }
}

fn existing(own: &Replica<'_>) -> ExistingReplica {
    ExistingReplica { node: own.node.to_owned(), disk: own.disk.to_owned(), leaving: own.leaving }
}

/// The requirements of a volume for the placement of its replicas.
pub(super) fn wish(volume: &Value, engine_node: &str) -> PlacementRequest {
    let VolumeFields { spec, status } = read(volume);
    let near = spec.data_locality != "disabled" && !engine_node.is_empty();
    PlacementRequest {
        size: bytes(spec.size),
        actual_size: status.actual_size.unwrap_or_default(),
        node_tags: owned(&spec.node_selector),
        disk_tags: owned(&spec.disk_selector),
        near: near.then(|| engine_node.to_owned()),
        only: None,
    }
}

#[cfg(test)]
pub(super) mod tests;
