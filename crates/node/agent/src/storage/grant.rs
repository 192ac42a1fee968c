//! The nodes that may open the replicas of this node: the grants in Longhorn's objects, compared
//! with those sent to the storage process. Pure.
//!
//! A replica is for the node of its volume's engine (`spec.nodeID` of the Engine) and, while a
//! machine moves, for the node that it moves to (`spec.migrationNodeID` of the Volume). Both are
//! written by the controllers; nodes may not. Copies between replicas go through the engine, so
//! that replicas never connect to each other.

use std::collections::{BTreeMap, BTreeSet};

use block::grant::ReplicaGrant;
use block::ids::ReplicaId;

use super::object::{Engine, LonghornVolume, Replica};
use super::plan::StorageWorld;

/// Grants that fit into one request.
const MAX_GRANTS: usize = 500;

/// Nothing while the engine of the volume is not known: the existing grant stays.
fn wanted<'a>(
    volume: &LonghornVolume,
    engines: impl Iterator<Item = &'a Engine>,
) -> Option<ReplicaGrant> {
    let mut grant: Option<ReplicaGrant> = None;
    for engine in engines {
        let grant = grant.get_or_insert_default();
        grant.generation = grant.generation.max(engine.confirmed);
        let nodes = [Some(&engine.node), volume.migration_node.as_ref()];
        grant.nodes.extend(nodes.into_iter().flatten().filter(|node| !node.is_empty()).cloned());
    }
    grant
}

fn wanted_for(world: &StorageWorld<'_>, replica: &Replica) -> Option<ReplicaGrant> {
    let volume = world.volumes.get(&replica.volume)?;
    wanted(volume, world.engines.values().filter(|engine| engine.volume == replica.volume))
}

/// Grants that the storage process does not have yet. Nothing for one that knows none.
pub(super) fn changes(world: &StorageWorld<'_>) -> BTreeMap<ReplicaId, ReplicaGrant> {
    let Some(state) = world.state.filter(|state| state.knows_grants) else {
        return BTreeMap::new();
    };
    let known: BTreeMap<ReplicaId, Option<&ReplicaGrant>> =
        state.replicas.iter().map(|it| (it.replica, it.grant.as_ref())).collect();
    let own = world.replicas.values().filter(|it| it.node == world.node);
    own.filter_map(|replica| {
        let has = known.get(&replica.id)?;
        let wanted = wanted_for(world, replica)?;
        (*has != Some(&wanted)).then_some((replica.id, wanted))
    })
    .take(MAX_GRANTS)
    .collect()
}

/// Volumes whose objects are to be read again: the engine of a node waits for one of their
/// replicas, and what was watched does not name that node. A watch may be late.
pub(super) fn doubtful(world: &StorageWorld<'_>) -> BTreeSet<String> {
    let waiting = world.state.into_iter().flat_map(|state| &state.waiting_engines);
    let volume = |it: &block::storage::WaitingEngine| {
        let replica = world.replicas.values().find(|replica| replica.id == it.replica)?;
        let is_granted = wanted_for(world, replica).is_some_and(|own| own.nodes.contains(&it.node));
        (!is_granted).then(|| replica.volume.clone())
    };
    waiting.filter_map(volume).collect()
}

#[cfg(test)]
mod tests;
