//! What replicas, engines and snapshots say of themselves. Pure.

use std::collections::BTreeMap;

use block::ids::{ReplicaId, SnapshotId};
use block::repl::control::ByteRange;
use block::run::{MemberState, MemberStatus, VolumeStatus};
use block::storage::{ReplicaState, StorageStatus, VolumeState};
use block::store::ReplicaFault;
use hci::longhorn::{REPLICA_DAMAGED, REPLICA_MISSING};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use virt::reason::VolumeFailure;

use super::act::WrittenKind;
use super::damage;
use super::object::{Engine, Replica, Snapshot};
use super::plan::{JobKey, StorageWorld, served, snapshot_place};

/// The condition of an engine and its volume that says which blocks cannot be read.
const READABLE: &str = "Readable";

/// The name of what was written since the last snapshot.
const HEAD: &str = "volume-head";

/// What the outside of the storage process adds.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplicaAddress<'a> {
    pub(super) address: &'a str,
    pub(super) now: Timestamp,
}

/// What the objects of this node do not say yet. `trouble` is why the last work on one failed.
pub(super) fn news<'a>(
    world: &StorageWorld<'_>,
    place: ReplicaAddress<'_>,
    trouble: impl Fn(&JobKey) -> Option<&'a str>,
) -> Vec<(WrittenKind, String, Value)> {
    let mut news = Vec::new();
    for own in world.replicas.values().filter(|it| it.node == world.node) {
        let told = replica(world, place, own, trouble(&JobKey::Replica(own.name.clone())));
        let patch = difference(&own.status, &told);
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
        let told = engine(world, place, own, trouble(&JobKey::Engine(own.name.clone())));
        let patch = difference(&own.status, &told);
        news.extend(patch.map(|patch| (WrittenKind::Engine, own.name.clone(), patch)));
    }
    for own in world.snapshots.values() {
        let together = own.together.as_ref().map(|it| JobKey::Instant(it.instant.clone()));
        let trouble = together
            .and_then(|key| trouble(&key))
            .or_else(|| trouble(&JobKey::Snapshot(own.name.clone())));
        let told = snapshot(world, own, trouble);
        let patch = told.and_then(|told| difference(&own.status, &told));
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
    // Once said it stays: it tells that there was data.
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

/// The status of an engine of this node.
fn engine(
    world: &StorageWorld<'_>,
    place: ReplicaAddress<'_>,
    engine: &Engine,
    trouble: Option<&str>,
) -> Value {
    let volume = world.volumes.get(&engine.volume);
    let attached = volume.zip(world.state).and_then(|(it, state)| served(state, it.id));
    let status = attached.and_then(|it| it.status.as_ref());
    let error = attached.and_then(|it| it.error.as_deref()).or(trouble);
    let is_active = status.is_some_and(|it| it.phase == "active");
    let current = match (engine.is_wanted && !engine.is_deleting, attached, error) {
        (true, _, _) if is_active => "running",
        (true, _, Some(_)) => "error",
        (true, _, None) => "starting",
        (false, Some(_), _) => "stopping",
        (false, None, _) => "stopped",
    };
    let old = &engine.status["conditions"];
    let mut told = json!({
        "ownerID": world.node,
        "currentState": current,
        "currentImage": if is_active { engine.image.as_str() } else { "" },
        "started": is_active,
        "ip": address(place, current),
        "storageIP": address(place, current),
        "port": 0,
        "endpoint": endpoint(attached.filter(|_| is_active)),
        "conditions": engine_conditions(
            old,
            error.or(status.and_then(|it| it.waiting.as_deref())),
            status.filter(|_| is_active),
            &names(world, &engine.volume),
            place.now,
        ),
    });
    let Some(status) = status.filter(|_| is_active) else {
        // What was true of the data stays so while nobody serves it.
        told["replicaModeMap"] = json!({});
        told["currentReplicaAddressMap"] = json!({});
        told["rebuildStatus"] = json!({});
        told["isExpanding"] = json!(false);
        return told;
    };
    let names = names(world, &engine.volume);
    told["currentSize"] = json!(status.size.to_string());
    told["isExpanding"] = json!(engine.size > status.size);
    told["currentReplicaAddressMap"] = json!(engine.replicas);
    told["replicaModeMap"] = modes(&status.replicas, &names);
    told["rebuildStatus"] = rebuilds(status, &names, engine);
    told["snapshots"] = snapshots(status, world.state.and_then(|it| fullest(it, status)));
    told
}

/// Why the volume is not served, and which blocks of it cannot be read. Only what is wrong with
/// blocks is told, and it stays while nobody serves them.
fn engine_conditions(
    old: &Value,
    error: Option<&str>,
    status: Option<&VolumeStatus>,
    names: &BTreeMap<ReplicaId, &str>,
    now: Timestamp,
) -> Vec<Value> {
    let mut all = vec![match error {
        Some(why) => condition(old, "InstanceCreation", false, "InstanceCreationFailed", why, now),
        None => condition(old, "InstanceCreation", true, "", "", now),
    }];
    match status {
        Some(status) => all.extend(
            unreadable(status)
                .map(|(reason, message)| condition(old, READABLE, false, reason, &message, now)),
        ),
        None => all.extend(
            old.as_array().into_iter().flatten().filter(|it| it["type"] == READABLE).cloned(),
        ),
    }
    all.extend(damage::engine_condition(old, status, names, now));
    all
}

/// The blocks of a volume that cannot be read, and why.
fn unreadable(status: &VolumeStatus) -> Option<(&'static str, String)> {
    let told = |ranges: &[ByteRange], what: &str| {
        let first = ranges.first()?.offset;
        let bytes: u64 = ranges.iter().map(|it| it.length).sum();
        Some(format!("{what}: {bytes} bytes, the first at offset {first}"))
    };
    let disputed = told(&status.disputed, "replicas differ and no evidence tells which is right");
    let lost = told(&status.lost, "no replica has the data that was written");
    let reason = match disputed {
        Some(_) => VolumeFailure::ReplicasDiffer.as_str(),
        None => VolumeFailure::NoGoodCopy.as_str(),
    };
    let all: Vec<String> = disputed.into_iter().chain(lost).collect();
    (!all.is_empty())
        .then(|| (reason, format!("{}; reads fail until they are written again", all.join("; "))))
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

fn endpoint(attached: Option<&VolumeState>) -> String {
    let socket = attached.and_then(|it| it.attachment.nbd.as_ref());
    socket.map(|path| format!("unix://{}", path.display())).unwrap_or_default()
}

fn names<'a>(world: &StorageWorld<'a>, volume: &str) -> BTreeMap<ReplicaId, &'a str> {
    let own = world.replicas.values().filter(|it| it.volume == volume);
    own.map(|it| (it.id, it.name.as_str())).collect()
}

/// A replica that the engine connects to has no mode yet: with `ERR` it would be given up.
fn modes(members: &[MemberStatus], names: &BTreeMap<ReplicaId, &str>) -> Value {
    let mode = |member: &MemberStatus| match member.state {
        MemberState::InSync => Some("RW"),
        MemberState::Learner => Some("WO"),
        MemberState::Away => Some("ERR"),
        MemberState::Connecting | MemberState::Disconnected => None,
    };
    let named = members.iter().filter_map(|it| Some((names.get(&it.id)?, mode(it)?)));
    json!(named.map(|(name, mode)| ((*name).to_owned(), mode)).collect::<BTreeMap<_, _>>())
}

fn rebuilds(status: &VolumeStatus, names: &BTreeMap<ReplicaId, &str>, engine: &Engine) -> Value {
    let mut all = Map::new();
    for member in &status.replicas {
        let Some(rebuild) = rebuild(member) else { continue };
        let Some(name) = names.get(&member.id) else { continue };
        let key = engine.replicas.get(*name).filter(|it| !it.is_empty());
        all.insert(key.map_or((*name).to_owned(), Clone::clone), rebuild);
    }
    Value::Object(all)
}

/// How far the rebuild of a replica is, or why the last one failed.
fn rebuild(member: &MemberStatus) -> Option<Value> {
    let error = member.reason.as_deref().unwrap_or_default();
    match (member.rebuilt_bytes, member.rebuild_bytes) {
        (Some(done), Some(total)) => {
            let progress = (done * 100).checked_div(total).unwrap_or(100).min(100);
            Some(json!({
                "isRebuilding": true, "progress": progress, "state": "in_progress", "error": error,
            }))
        }
        _ if error.is_empty() || member.state == MemberState::InSync => None,
        _ => Some(json!({
            "isRebuilding": false, "progress": 0, "state": "error", "error": error,
        })),
    }
}

/// A replica of the volume whose sizes are known.
fn fullest<'a>(state: &'a StorageStatus, status: &VolumeStatus) -> Option<&'a ReplicaState> {
    let is_member =
        |it: &&ReplicaState| status.replicas.iter().any(|member| member.id == it.replica);
    state.replicas.iter().filter(is_member).find(|it| it.used_bytes.is_some())
}

fn snapshots(status: &VolumeStatus, sizes: Option<&ReplicaState>) -> Value {
    let by_id: BTreeMap<SnapshotId, &str> =
        status.snapshots.iter().map(|it| (it.id, it.name.as_str())).collect();
    let bytes =
        |id: &SnapshotId| sizes.and_then(|it| it.snapshot_bytes.get(id)).copied().unwrap_or(0);
    let mut all = Map::new();
    for info in &status.snapshots {
        let children = status.snapshots.iter().filter(|it| it.parent == Some(info.id));
        let mut children: BTreeMap<String, bool> =
            children.map(|it| (it.name.clone(), true)).collect();
        if status.snapshots.last().map(|it| it.id) == Some(info.id) {
            children.insert(HEAD.into(), true);
        }
        let parent = info.parent.and_then(|id| by_id.get(&id).copied()).unwrap_or_default();
        all.insert(
            info.name.clone(),
            json!({
                "name": info.name, "parent": parent, "children": children, "removed": false,
                "usercreated": true, "created": created(&info.created),
                "size": bytes(&info.id).to_string(), "labels": info.labels,
            }),
        );
    }
    let parent = status.snapshots.last().map(|it| it.name.as_str()).unwrap_or_default();
    let head = sizes.and_then(|it| it.head_bytes).unwrap_or(0);
    all.insert(
        HEAD.into(),
        json!({
            "name": HEAD, "parent": parent, "children": {}, "removed": false,
            "usercreated": false, "created": "", "size": head.to_string(), "labels": {},
        }),
    );
    Value::Object(all)
}

/// Seconds since 1970, as time is written in objects.
fn created(seconds: &str) -> String {
    let time = seconds.parse().ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// The status of a snapshot; nothing while its volume is not served here.
fn snapshot(world: &StorageWorld<'_>, snapshot: &Snapshot, trouble: Option<&str>) -> Option<Value> {
    let (_, served) = snapshot_place(world, snapshot)?;
    let status = served.status.as_ref()?;
    let all = snapshots(status, world.state.and_then(|it| fullest(it, status)));
    let Some(info) = all.get(&snapshot.name) else {
        let error = match (snapshot.was_taken(), snapshot.is_to_be_taken, trouble) {
            (_, _, Some(trouble)) => trouble,
            (true, _, _) => "the snapshot does not exist in the volume any more",
            (false, false, _) => "there is no such snapshot, and createSnapshot is not set",
            (false, true, None) => return None,
        };
        let gone = !snapshot.is_deleting || trouble.is_some();
        return gone.then(|| json!({"error": error, "readyToUse": false, "ownerID": world.node}));
    };
    if super::group_snapshot::is_torn(world, snapshot) {
        return None;
    }
    let size = info["size"].as_str().and_then(|size| size.parse::<i64>().ok()).unwrap_or(0);
    let id = status.snapshots.iter().find(|it| it.name == snapshot.name).map(|it| it.id);
    let before = snapshot.status["error"].as_str().unwrap_or_default();
    let names = names(world, &snapshot.volume);
    let damage = id.map(|id| damage::error(status, id, &names, before)).unwrap_or_default();
    // A volume that grows later does not make its snapshots larger.
    let then = snapshot.status["restoreSize"].as_u64().filter(|size| *size > 0);
    Some(json!({
        "ownerID": world.node,
        "parent": info["parent"],
        "children": info["children"],
        "labels": info["labels"],
        "userCreated": true,
        "markRemoved": snapshot.is_deleting,
        "creationTime": info["created"],
        "size": size,
        "restoreSize": then.unwrap_or(status.size),
        "readyToUse": !snapshot.is_deleting,
        "error": trouble.unwrap_or(&damage),
    }))
}

/// One condition; the time of its last change is kept while nothing changes.
pub(super) fn condition(
    old: &Value,
    kind: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Value {
    let status = if holds { "True" } else { "False" };
    let known = old.as_array().and_then(|all| all.iter().find(|it| it["type"] == kind));
    let since =
        known.filter(|it| it["status"] == status).and_then(|it| it["lastTransitionTime"].as_str());
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastProbeTime": "",
        "lastTransitionTime": since.map_or_else(|| seconds(now), str::to_owned),
    })
}

fn seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

/// The merge patch that makes `old` say what `new` says, leaving alone what it says nothing of;
/// nothing if it does already.
pub(super) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let fields = new.as_object()?;
    let changed = fields.iter().filter_map(|(name, value)| {
        let before = old.get(name).unwrap_or(&Value::Null);
        let patch = if value.is_object() { whole(before, value) } else { changed(before, value) };
        Some((name.clone(), patch?))
    });
    let changed: Map<String, Value> = changed.collect();
    (!changed.is_empty()).then_some(Value::Object(changed))
}

fn changed(before: &Value, value: &Value) -> Option<Value> {
    let nothing = |it: &Value| match it {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    (before != value && !(nothing(before) && nothing(value))).then(|| value.clone())
}

/// Replaces a whole map: what is not in it any more goes.
fn whole(before: &Value, value: &Value) -> Option<Value> {
    if before == value {
        return None;
    }
    let (Some(old), Some(new)) = (before.as_object(), value.as_object()) else {
        let empty = before.is_null() && value.as_object().is_some_and(Map::is_empty);
        return (!empty).then(|| value.clone());
    };
    let mut patch = Map::new();
    for (name, value) in new {
        let before = old.get(name).unwrap_or(&Value::Null);
        let change = if value.is_object() { whole(before, value) } else { changed(before, value) };
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    patch.extend(gone.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_written_and_what_is_gone_is_removed() {
        let old = json!({"a": 1, "map": {"x": "RW", "y": "RW"}, "kept": true});
        let patch = |new: Value| difference(&old, &new);
        assert_eq!(patch(json!({"a": 1, "map": {"x": "RW", "y": "RW"}})), None);
        assert_eq!(patch(json!({"a": 2})), Some(json!({"a": 2})));
        assert_eq!(
            patch(json!({"map": {"x": "WO"}})),
            Some(json!({"map": {"x": "WO", "y": null}}))
        );
        assert_eq!(patch(json!({"map": {}})), Some(json!({"map": {"x": null, "y": null}})));
        assert_eq!(patch(json!({"new": {}, "text": ""})), None, "empty is as good as missing");
    }

    #[test]
    fn blocks_that_cannot_be_read_are_told_also_while_nobody_serves_them() {
        let now = Timestamp::from_second(1).unwrap();
        let mut status = VolumeStatus {
            phase: "active".into(),
            generation: block::ids::Generation(1),
            epoch: block::ids::Epoch(1),
            size: 1 << 20,
            replicas: vec![],
            unreconciled: 0,
            unproven: false,
            disputed: vec![],
            lost: vec![],
            scrubbed_bytes: None,
            last_scrub: None,
            waiting: None,
            snapshots: vec![],
        };
        let tell = |old: &Value, status: Option<&VolumeStatus>| {
            json!(engine_conditions(old, None, status, &BTreeMap::new(), now))
        };
        assert_eq!(tell(&Value::Null, Some(&status)).as_array().unwrap().len(), 1);
        let range = |offset| ByteRange { offset, length: 4096 };
        status.disputed = vec![range(4096), range(16384)];
        status.lost = vec![range(0)];
        let told = tell(&Value::Null, Some(&status));
        assert_eq!(told[1]["type"], "Readable");
        assert_eq!(told[1]["status"], "False");
        assert_eq!(told[1]["reason"], "ReplicasDiffer");
        assert_eq!(
            told[1]["message"],
            "replicas differ and no evidence tells which is right: 8192 bytes, the first at offset \
             4096; no replica has the data that was written: 4096 bytes, the first at offset 0; \
             reads fail until they are written again"
        );
        assert_eq!(tell(&told, None), told, "nobody serves it");
        (status.disputed, status.lost) = (vec![], vec![range(0)]);
        assert_eq!(tell(&told, Some(&status))[1]["reason"], "NoGoodCopy");
        status.lost.clear();
        assert_eq!(tell(&told, Some(&status)).as_array().unwrap().len(), 1, "all is written again");
    }

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

    fn member(state: MemberState, bytes: Option<u64>, reason: Option<&str>) -> MemberStatus {
        MemberStatus {
            id: ReplicaId::from_u128(1),
            state,
            rebuilt_bytes: bytes,
            rebuild_bytes: bytes.map(|it| it * 2),
            latency_micros: 0,
            free_bytes: 0,
            used_bytes: 0,
            work: None,
            reason: reason.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn a_replica_that_is_being_connected_is_not_given_up() {
        let names = BTreeMap::from([(ReplicaId::from_u128(1), "a")]);
        for (state, expected) in [
            (MemberState::InSync, json!({"a": "RW"})),
            (MemberState::Learner, json!({"a": "WO"})),
            (MemberState::Connecting, json!({})),
            (MemberState::Disconnected, json!({})),
            (MemberState::Away, json!({"a": "ERR"})),
        ] {
            let members = [member(state, None, None)];
            assert_eq!(modes(&members, &names), expected, "{state:?}");
        }
    }

    #[test]
    fn a_rebuild_that_failed_says_why() {
        for (what, member, expected) in [
            ("in sync", member(MemberState::InSync, None, None), None),
            ("not there, and never tried", member(MemberState::Away, None, None), None),
            (
                "on its way",
                member(MemberState::Learner, Some(5), None),
                Some((true, "in_progress", "")),
            ),
            (
                "again",
                member(MemberState::Learner, Some(5), Some("bad")),
                Some((true, "in_progress", "bad")),
            ),
            (
                "given up for now",
                member(MemberState::Away, None, Some("bad")),
                Some((false, "error", "bad")),
            ),
        ] {
            let expected = expected.map(|(is_rebuilding, state, error)| {
                let progress = if is_rebuilding { 50 } else { 0 };
                json!({
                    "isRebuilding": is_rebuilding, "progress": progress, "state": state,
                    "error": error,
                })
            });
            assert_eq!(rebuild(&member), expected, "{what}");
        }
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = condition(&Value::Null, "Ready", true, "", "", at(1));
        let old = json!([first]);
        let same = condition(&old, "Ready", true, "", "later", at(2));
        assert_eq!(same["lastTransitionTime"], "1970-01-01T00:00:01Z");
        let other = condition(&old, "Ready", false, "Broken", "", at(2));
        assert_eq!(other["lastTransitionTime"], "1970-01-01T00:00:02Z");
    }
}
