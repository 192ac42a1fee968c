//! Engines of this node: attached, changed, taken over and detached. Pure.

use std::path::{Path, PathBuf};

use block::ids::{ReplicaId, VolumeId};
use block::run::{Address, MemberState, VolumeStatus};
use block::storage::{Attachment, RecordPlace, ReplicaAt, StorageStatus, VolumeState};

use super::{StorageAction, StorageWorld, first_members, served};
use crate::storage::object::{Engine, LonghornVolume};

/// The engines that volumes are to be served by here.
pub(in crate::storage) fn is_for(world: &StorageWorld<'_>, engine: &Engine) -> bool {
    engine.node == world.node && engine.is_wanted && !engine.is_deleting
}

/// The engines of volumes that a machine brings along which still runs elsewhere.
pub(in crate::storage) fn is_arriving(world: &StorageWorld<'_>, engine: &Engine) -> bool {
    let volume = world.volumes.get(&engine.volume);
    let target = volume.and_then(|volume| volume.migration_node.as_deref());
    target == Some(world.node)
        && engine.node != world.node
        && engine.is_wanted
        && !engine.is_deleting
}

/// A volume is read beside its engine elsewhere until it is taken over.
fn arriving(
    world: &StorageWorld<'_>,
    state: &StorageStatus,
    engine: &Engine,
) -> Option<StorageAction> {
    let volume = world.volumes.get(&engine.volume)?;
    let wanted = members(world, engine)?;
    let attached = served(state, volume.id);
    // One that was taken over and is lost again is not claimed a second time.
    let is_lost = attached.is_some_and(|it| it.attachment.standby && it.error.is_some());
    if attached.is_some() && !is_lost {
        return None;
    }
    let mut action = attach(world, volume, engine, wanted, is_lost);
    if let StorageAction::Attach { attachment, is_new, .. } = &mut action {
        (attachment.standby, *is_new) = (true, false);
    }
    is_ready(state, &action).then_some(action)
}

pub(super) fn engine(
    world: &StorageWorld<'_>,
    state: &StorageStatus,
    engine: &Engine,
) -> Option<StorageAction> {
    if is_arriving(world, engine) {
        return arriving(world, state, engine);
    }
    let volume = world.volumes.get(&engine.volume);
    let attached = volume.and_then(|it| served(state, it.id));
    let name = engine.name.clone();
    if !is_for(world, engine) {
        let owner = engine.status["ownerID"].as_str().unwrap_or_default();
        let other =
            world.engines.values().any(|it| it.volume == engine.volume && is_for(world, it));
        if let Some(attached) = attached.filter(|_| !other) {
            let volume = attached.attachment.volume;
            // The record is for the node to write that has the volume now.
            let is_elsewhere = !engine.node.is_empty() && engine.node != world.node;
            let engine = (!is_elsewhere).then_some(name);
            return Some(StorageAction::Detach { engine, volume });
        }
        let ours = engine.node == world.node
            || engine.node.is_empty() && (owner.is_empty() || owner == world.node);
        let goes = engine.is_deleting && engine.holds_finalizer && ours;
        return goes.then_some(StorageAction::ReleaseEngine { engine: name });
    }
    let volume = volume?;
    let wanted = members(world, engine)?;
    let Some(attached) = attached else {
        let action = attach(world, volume, engine, wanted, false);
        return is_ready(state, &action).then_some(action);
    };
    if attached.attachment.standby {
        return Some(StorageAction::TakeOver { engine: name, volume: volume.id });
    }
    if attached.error.is_some() && volume.migration_node.is_some() {
        // The node that the machine moves to has claimed it, and decides by the machine's object.
        return None;
    }
    if attached.status.is_none() || attached.error.is_some() {
        let action = attach(world, volume, engine, wanted, true);
        return (is_ready(state, &action) && attached.error.is_some()).then_some(action);
    }
    change(volume, engine, attached, &wanted)
}

/// The next change of a volume that is served.
fn change(
    volume: &LonghornVolume,
    engine: &Engine,
    attached: &VolumeState,
    wanted: &[ReplicaAt],
) -> Option<StorageAction> {
    let name = engine.name.clone();
    let status = attached.status.as_ref().filter(|status| status.phase == "active")?;
    let is_other = engine.attached.as_deref().is_some_and(|node| node != attached.attachment.node);
    let is_stale = engine.claimant.is_some() && volume.migration_node.is_none();
    if is_other || is_stale {
        return Some(StorageAction::OwnRecord { engine: name });
    }
    let volume = volume.id;
    let has = &attached.attachment.replicas;
    if let Some(came) = wanted.iter().find(|it| !has.contains(it)) {
        return Some(StorageAction::AddMember { engine: name, volume, replica: came.clone() });
    }
    if let Some(gone) = has.iter().find(|it| wanted.iter().all(|other| other.id != it.id)) {
        return Some(StorageAction::DropMember { engine: name, volume, replica: gone.id });
    }
    if let Some(replica) = moved(wanted, status) {
        return Some(StorageAction::Reconnect { engine: name, volume, replica });
    }
    let size = engine.size;
    (size > status.size).then_some(StorageAction::Expand { engine: name, volume, size })
}

/// A replica that is connected at another address than its present one. Its connection is given up
/// only while others are in sync: what it misses is little, and it gets it from them.
fn moved(wanted: &[ReplicaAt], status: &VolumeStatus) -> Option<ReplicaId> {
    let members = &status.replicas;
    let is_safe = members.len() > 1
        && !status.unproven
        && members.iter().all(|member| member.state == MemberState::InSync);
    let is_elsewhere = |it: &&ReplicaAt| {
        let member = members.iter().find(|member| member.id == it.id);
        let connected = member.and_then(|member| member.address.as_ref());
        it.at.is_some() && connected.is_some() && connected != it.at.as_ref()
    };
    wanted.iter().find(is_elsewhere).map(|it| it.id).filter(|_| is_safe)
}

/// The replicas of an engine; nothing before all of them are known, or if there are none.
fn members(world: &StorageWorld<'_>, engine: &Engine) -> Option<Vec<ReplicaAt>> {
    let mut members = Vec::new();
    for (name, address) in &engine.replicas {
        let replica = world.replicas.get(name)?;
        let at = if replica.node == world.node { None } else { Some(far(address)?) };
        // Older programs would not report it back.
        let verifies = world.state.is_some_and(|state| state.knows_replica_nodes);
        let node = (verifies && at.is_some()).then(|| replica.node.clone());
        members.push(ReplicaAt { id: replica.id, at, node });
    }
    (!members.is_empty()).then_some(members)
}

/// `host:port`, with whatever before and after it.
fn far(address: &str) -> Option<Address> {
    let address = address.strip_prefix("tcp://").unwrap_or(address);
    let address = address.split('/').next().unwrap_or_default();
    address.parse().ok().map(Address::Tcp)
}

/// Whether an attachment can be asked for: every member that is here is served. One that cannot be,
/// because its files are missing or damaged, stops a volume only if that has no other member or
/// never had data.
fn is_ready(state: &StorageStatus, action: &StorageAction) -> bool {
    let StorageAction::Attach { attachment, is_new, .. } = action else { return false };
    let known = |member: &ReplicaAt| state.replicas.iter().find(|it| it.replica == member.id);
    let here = attachment.replicas.iter().filter(|it| it.at.is_none());
    let mut usable = attachment.replicas.iter().any(|it| it.at.is_some());
    for member in here {
        match known(member) {
            Some(state) if state.error.is_none() => usable = true,
            Some(_) if !is_new => {}
            Some(_) | None => return false,
        }
    }
    usable
}

fn attach(
    world: &StorageWorld<'_>,
    volume: &LonghornVolume,
    engine: &Engine,
    replicas: Vec<ReplicaAt>,
    again: bool,
) -> StorageAction {
    let attachment = Attachment {
        volume: volume.id,
        node: world.node.to_owned(),
        replicas,
        nbd: Some(socket(world.sockets, volume.id)),
        nbd_tcp: None,
        vhost: None,
        record: RecordPlace::Asked,
        encrypted: volume.is_encrypted,
        standby: false,
    };
    let first = first_members(world, engine);
    let used = world.replicas.values().any(|it| first.contains(&it.id) && it.was_healthy);
    StorageAction::Attach { engine: engine.name.clone(), attachment, first, is_new: !used, again }
}

/// Short, because the kernel takes no long names of sockets.
fn socket(dir: &Path, volume: VolumeId) -> PathBuf {
    dir.join(format!("{:016x}.sock", volume.as_u128() >> 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_what_surrounds_them() {
        let at = Some(Address::Tcp("10.0.0.2:9000".parse().unwrap()));
        for text in ["10.0.0.2:9000", "tcp://10.0.0.2:9000", "10.0.0.2:9000/v"] {
            assert_eq!(far(text), at, "{text}");
        }
        assert_eq!(far("host"), None);
        assert_eq!(far(""), None);
    }
}
