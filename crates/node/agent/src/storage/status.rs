//! The status of replicas, engines and snapshots: the changes that objects of this node do not
//! have yet, and the status of replicas. Pure.

mod engine;
mod patch;
mod snapshot;

use std::borrow::Cow;
use std::collections::BTreeMap;

use block::ids::ReplicaId;
use block::storage::StorageStatus;
use block::store::ReplicaFault;
use hci::longhorn::{REPLICA_DAMAGED, REPLICA_MISSING};
use jiff::Timestamp;
use serde_json::{Value, json};

use self::engine::engine;
pub(super) use self::patch::{condition, difference};
use self::snapshot::snapshot;
use super::act::WrittenKind;
use super::object::{Engine, Replica};
use super::plan::{JobKey, StorageWorld, served};

/// Values that the storage process does not know.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplicaAddress<'a> {
    pub(super) address: &'a str,
    pub(super) now: Timestamp,
}

/// Where replicas of this node are reached: at its address for storage once the storage process
/// listens there, and else at `known`.
pub(super) fn replica_address<'a>(world: &StorageWorld<'_>, known: &'a str) -> Cow<'a, str> {
    let listens = world.state.and_then(|state| state.listens_also.as_deref()).unwrap_or_default();
    let own = world.address.filter(|own| listens.iter().any(|address| address.ip() == *own));
    own.map_or(Cow::Borrowed(known), |own| Cow::Owned(own.to_string()))
}

/// The changes that objects of this node do not have yet. `trouble` is why the last action on one
/// failed.
pub(super) fn news<'a>(
    world: &StorageWorld<'_>,
    place: ReplicaAddress<'_>,
    trouble: impl Fn(&JobKey) -> Option<&'a str>,
) -> Vec<(WrittenKind, String, Value)> {
    let mut news = Vec::new();
    for own in world.replicas.values().filter(|it| it.node == world.node) {
        let status = replica(world, place, own, trouble(&JobKey::Replica(own.name.clone())));
        let patch = difference(&own.status, &status);
        news.extend(patch.map(|patch| (WrittenKind::Replica, own.name.clone(), patch)));
    }
    let here = |it: &&Engine| {
        it.node == world.node || it.node.is_empty() && it.status["ownerID"] == world.node
    };
    // While a machine moves, its volumes may be claimed elsewhere: nothing is wrong with them.
    let is_moving = |it: &&Engine| {
        let volume = world.volumes.get(&it.volume);
        let attached = volume.zip(world.state).and_then(|(it, state)| served(state, it.id));
        volume.is_some_and(|volume| volume.migration_node.is_some())
            && attached.is_some_and(|attached| attached.error.is_some())
    };
    for own in world.engines.values().filter(here).filter(|it| !is_moving(it)) {
        let status = engine(world, place, own, trouble(&JobKey::Engine(own.name.clone())));
        let patch = difference(&own.status, &status);
        news.extend(patch.map(|patch| (WrittenKind::Engine, own.name.clone(), patch)));
    }
    for own in world.snapshots.values() {
        let together = own.together.as_ref().map(|it| JobKey::Instant(it.instant.clone()));
        let trouble = together
            .and_then(|key| trouble(&key))
            .or_else(|| trouble(&JobKey::Snapshot(own.name.clone())));
        let status = snapshot(world, own, trouble);
        let patch = status.and_then(|status| difference(&own.status, &status));
        news.extend(patch.map(|patch| (WrittenKind::Snapshot, own.name.clone(), patch)));
    }
    news
}

/// The status of a replica of this node. `trouble` is why the last work on it failed.
fn replica(
    world: &StorageWorld<'_>,
    place: ReplicaAddress<'_>,
    replica: &Replica,
    trouble: Option<&str>,
) -> Value {
    let state = world.state;
    let known = state.and_then(|it| it.replicas.iter().find(|it| it.replica == replica.id));
    let error = known.and_then(|it| it.error.as_deref()).or(trouble);
    let is_served = known.is_some_and(|it| it.error.is_none());
    // Both `running` and `stopped` say that its files are there.
    let current = match (error, is_served, replica.is_wanted) {
        (_, true, true) => "running",
        (_, true, false) => "stopped",
        (Some(_), false, _) => "error",
        (None, false, _) => "starting",
    };
    let port = state.and_then(port).filter(|_| current == "running");
    let old = &replica.status["conditions"];
    let message = error.unwrap_or_default();
    let conditions = match error {
        Some(_) => vec![condition(
            old,
            "InstanceCreation",
            false,
            replica_reason(known.and_then(|it| it.fault)),
            message,
            place.now,
        )],
        None => vec![condition(old, "InstanceCreation", true, "", "", place.now)],
    };
    // Once reported it stays: it records that there was data.
    let made = is_served || replica.was_made;
    json!({
        "ownerID": world.node,
        "currentState": current,
        "currentImage": if current == "running" { replica.image.as_str() } else { "" },
        "started": current == "running",
        "ip": address(place, current),
        "storageIP": address(place, current),
        "port": port.unwrap_or(0),
        "uuid": if made { replica.id.to_string() } else { String::new() },
        "conditions": conditions,
    })
}

/// By these reasons the volume's controller decides whether another replica takes the place.
fn replica_reason(fault: Option<ReplicaFault>) -> &'static str {
    match fault {
        Some(ReplicaFault::Missing) => REPLICA_MISSING,
        Some(ReplicaFault::Damaged) => REPLICA_DAMAGED,
        Some(ReplicaFault::Base | ReplicaFault::Unreadable) | None => "InstanceCreationFailed",
    }
}

fn address<'a>(place: ReplicaAddress<'a>, current: &str) -> &'a str {
    if current == "running" { place.address } else { "" }
}

fn port(state: &StorageStatus) -> Option<u16> {
    match state.listen {
        Some(block::run::Address::Tcp(address)) => Some(address.port()),
        _ => None,
    }
}

fn names<'a>(world: &StorageWorld<'a>, volume: &str) -> BTreeMap<ReplicaId, &'a str> {
    let own = world.replicas.values().filter(|it| it.volume == volume);
    own.map(|it| (it.id, it.name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_says_whether_its_files_can_be_used_again() {
        for (fault, expected) in [
            (None, "InstanceCreationFailed"),
            (Some(ReplicaFault::Unreadable), "InstanceCreationFailed"),
            (Some(ReplicaFault::Base), "InstanceCreationFailed"),
            (Some(ReplicaFault::Missing), "ReplicaMissing"),
            (Some(ReplicaFault::Damaged), "ReplicaDamaged"),
        ] {
            assert_eq!(replica_reason(fault), expected, "{fault:?}");
        }
    }
}
