//! The status of an engine of this node and of the volume that it serves. Pure.

use std::collections::BTreeMap;

use block::ids::ReplicaId;
use block::repl::control::ByteRange;
use block::run::{MemberState, MemberStatus, VolumeStatus};
use block::storage::VolumeState;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use virt::reason::VolumeFailure;

use super::patch::condition;
use super::snapshot::{fullest, snapshots};
use super::{ReplicaAddress, address, names};
use crate::storage::damage;
use crate::storage::object::Engine;
use crate::storage::plan::{StorageWorld, served};

/// The condition of an engine and its volume that says which blocks cannot be read.
const READABLE: &str = "Readable";

/// The status of an engine of this node.
pub(super) fn engine(
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
    let mut report = json!({
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
        // Facts about the data stay valid while no engine serves it.
        report["replicaModeMap"] = json!({});
        report["currentReplicaAddressMap"] = json!({});
        report["rebuildStatus"] = json!({});
        report["isExpanding"] = json!(false);
        return report;
    };
    let names = names(world, &engine.volume);
    report["currentSize"] = json!(status.size.to_string());
    report["isExpanding"] = json!(engine.size > status.size);
    report["currentReplicaAddressMap"] = json!(connected(engine, &status.replicas, &names));
    report["replicaModeMap"] = modes(&status.replicas, &names);
    report["rebuildStatus"] = rebuilds(status, &names, engine);
    report["snapshots"] = snapshots(status, world.state.and_then(|it| fullest(it, status)));
    report
}

/// The addresses of replicas: where they are connected, and where they are to be otherwise.
fn connected<'a>(
    engine: &'a Engine,
    members: &[MemberStatus],
    names: &BTreeMap<ReplicaId, &str>,
) -> BTreeMap<&'a str, String> {
    let address = |(name, wanted): (&'a String, &String)| {
        let is_it = |member: &&MemberStatus| names.get(&member.id) == Some(&name.as_str());
        let connected = members.iter().find(is_it).and_then(|member| member.address.as_ref());
        (name.as_str(), connected.map_or_else(|| wanted.clone(), ToString::to_string))
    };
    engine.replicas.iter().map(address).collect()
}

/// Why the volume is not served, and which blocks of it cannot be read. Only what is wrong with
/// blocks is reported, and it stays while no engine serves them.
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
    all.extend(damage::metadata_condition(old, status, names, now));
    all
}

/// The blocks of a volume that cannot be read, and why.
fn unreadable(status: &VolumeStatus) -> Option<(&'static str, String)> {
    let describe = |ranges: &[ByteRange], what: &str| {
        let first = ranges.first()?.offset;
        let bytes: u64 = ranges.iter().map(|it| it.length).sum();
        Some(format!("{what}: {bytes} bytes, the first at offset {first}"))
    };
    let disputed =
        describe(&status.disputed, "replicas differ and no evidence decides which is right");
    let lost = describe(&status.lost, "no replica has the data that was written");
    let reason = match disputed {
        Some(_) => VolumeFailure::ReplicasDiffer.as_str(),
        None => VolumeFailure::NoGoodCopy.as_str(),
    };
    let all: Vec<String> = disputed.into_iter().chain(lost).collect();
    (!all.is_empty())
        .then(|| (reason, format!("{}; reads fail until they are written again", all.join("; "))))
}

fn endpoint(attached: Option<&VolumeState>) -> String {
    let socket = attached.and_then(|it| it.attachment.nbd.as_ref());
    socket.map(|path| format!("unix://{}", path.display())).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_blocks_are_reported_also_while_no_engine_serves_them() {
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
        let update = |old: &Value, status: Option<&VolumeStatus>| {
            json!(engine_conditions(old, None, status, &BTreeMap::new(), now))
        };
        assert_eq!(update(&Value::Null, Some(&status)).as_array().unwrap().len(), 1);
        let range = |offset| ByteRange { offset, length: 4096 };
        status.disputed = vec![range(4096), range(16384)];
        status.lost = vec![range(0)];
        let known = update(&Value::Null, Some(&status));
        assert_eq!(known[1]["type"], "Readable");
        assert_eq!(known[1]["status"], "False");
        assert_eq!(known[1]["reason"], "ReplicasDiffer");
        assert_eq!(
            known[1]["message"],
            "replicas differ and no evidence decides which is right: 8192 bytes, the first at \
             offset 4096; no replica has the data that was written: 4096 bytes, the first at \
             offset 0; reads fail until they are written again"
        );
        assert_eq!(update(&known, None), known, "no engine serves it");
        (status.disputed, status.lost) = (vec![], vec![range(0)]);
        assert_eq!(update(&known, Some(&status))[1]["reason"], "NoGoodCopy");
        status.lost.clear();
        assert_eq!(
            update(&known, Some(&status)).as_array().unwrap().len(),
            1,
            "all is written again"
        );
    }

    fn member(state: MemberState, bytes: Option<u64>, reason: Option<&str>) -> MemberStatus {
        MemberStatus {
            id: ReplicaId::from_u128(1),
            state,
            rebuilt_bytes: bytes,
            rebuild_bytes: bytes.map(|it| it * 2),
            latency_micros: 0,
            address: None,
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
        use MemberState::{Away, InSync, Learner};
        for (what, member, expected) in [
            ("in sync", member(InSync, None, None), None),
            ("not there, and never tried", member(Away, None, None), None),
            ("on its way", member(Learner, Some(5), None), Some((true, "in_progress", ""))),
            ("again", member(Learner, Some(5), Some("bad")), Some((true, "in_progress", "bad"))),
            ("given up for now", member(Away, None, Some("bad")), Some((false, "error", "bad"))),
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
}
