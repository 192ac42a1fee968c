//! Engine and Replica objects of a volume: new objects, and the desired spec of an engine. Pure.

use hci::longhorn::{FINALIZER, NAMESPACE, VOLUME_LABEL};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::place::ReplicaPlacement;
use super::replica::{Replica, ReplicaSet};
use super::state::Instance;
use crate::longhorn::API;
use crate::longhorn::object::engine_name;
use crate::longhorn::record::{EngineFields, VolumeFields};
use crate::object::{controlled_by, is_merged, name, read, uid};

fn metadata(volume: &Value, own: &str, node: &str) -> Value {
    let mut labels = json!({VOLUME_LABEL: name(volume)});
    if !node.is_empty() {
        labels["longhornnode"] = json!(node);
    }
    json!({
        "name": own, "namespace": NAMESPACE, "labels": labels, "finalizers": [FINALIZER],
        "ownerReferences": [controlled_by(volume, API, "Volume")],
    })
}

pub(super) fn engine(volume: &Value) -> Value {
    let spec = read::<VolumeFields<'_>>(volume).spec;
    json!({
        "apiVersion": API, "kind": "Engine",
        "metadata": metadata(volume, &engine_name(name(volume)), ""),
        "spec": {
            "volumeName": name(volume), "volumeSize": spec.size, "nodeID": "",
            "desireState": "stopped", "frontend": spec.frontend,
            "dataEngine": "v1", "active": true, "replicaAddressMap": {},
            "requestedDataSource": spec.data_source,
        },
    })
}

/// A new Replica; `index` numbers those that are created at the same `now`.
pub(super) fn replica(
    volume: &Value,
    place: &ReplicaPlacement,
    source: Option<&str>,
    index: usize,
    now: Timestamp,
) -> Value {
    // Names must differ from all earlier ones, and be the same if the same plan is made twice.
    let seed = format!("{}/{}/{index}", uid(volume), now.as_nanosecond());
    let mark = &Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes()).simple().to_string()[..8];
    let own = name(volume);
    let spec = read::<VolumeFields<'_>>(volume).spec;
    let mut metadata = metadata(volume, &format!("{own}-r-{mark}"), &place.node);
    metadata["labels"]["longhorndiskuuid"] = json!(place.disk);
    let mut replica = json!({
        "apiVersion": API, "kind": "Replica", "metadata": metadata,
        "spec": {
            "volumeName": own, "volumeSize": spec.size, "nodeID": place.node,
            "diskID": place.disk, "diskPath": place.path,
            "dataDirectoryName": format!("{own}-{mark}"), "desireState": "stopped",
            "engineName": engine_name(own), "dataEngine": "v1", "active": true,
            "backingImage": spec.backing_image,
            "healthyAt": "", "failedAt": "", "evictionRequested": false, "rebuildRetryCount": 0,
        },
    });
    if let Some(source) = source {
        replica["spec"]["linkedCloneSrcReplicaName"] = json!(source);
    }
    replica
}

/// The desired engine of a detached volume; its node is kept until it has stopped.
pub(super) fn detached_engine(engine: &EngineFields<'_>, size: &str, still: bool) -> Value {
    let mut spec = json!({"desireState": "stopped", "volumeSize": size});
    if still {
        spec["nodeID"] = json!("");
        spec["replicaAddressMap"] = difference(engine, Map::new());
    }
    json!({"spec": spec})
}

/// The desired engine of an attached volume. `None` until all replicas that it needs are running.
pub(super) fn attached_engine(
    engine: &EngineFields<'_>,
    census: &ReplicaSet<'_>,
    size: &str,
    node: &str,
) -> Option<Value> {
    let EngineFields { spec, status } = engine;
    let begun = spec.desire_state == "running";
    let mut core = census.core().peekable();
    let ready = core.peek().is_some() && core.all(|own| own.state == Instance::Running);
    if !begun && !ready {
        return None;
    }
    let is_running = status.current_state == "running";
    let mut addresses = Map::new();
    for own in census.usable() {
        let listed = spec.replica_address_map.contains_key(own.name);
        // Copies that have to be built join an engine that runs.
        let joins =
            own.state == Instance::Running && (own.healthy || census.is_fresh() || is_running);
        if joins || listed {
            addresses.insert(own.name.to_owned(), json!(address(own)));
        }
    }
    // The last replicas stay listed even if they are down.
    if addresses.is_empty() {
        return None;
    }
    Some(json!({"spec": {
        "nodeID": node, "desireState": "running", "volumeSize": size,
        "replicaAddressMap": difference(engine, addresses),
    }}))
}

/// The network address of a replica; empty for one that is used on its own node only.
fn address(replica: &Replica<'_>) -> String {
    let status = &replica.fields.status;
    let port = status.port.unwrap_or_default();
    let host = match status.storage_ip {
        "" => status.ip,
        host => host,
    };
    if port == 0 || host.is_empty() { String::new() } else { format!("{host}:{port}") }
}

/// A merge patch keeps what it does not name.
fn difference(engine: &EngineFields<'_>, mut wanted: Map<String, Value>) -> Value {
    for &name in engine.spec.replica_address_map.keys() {
        wanted.entry(name).or_insert(Value::Null);
    }
    Value::Object(wanted)
}

/// The patch, unless the object has all of its values already.
pub(super) fn patch_if_needed(object: &Value, patch: Value) -> Option<Value> {
    (!is_merged(object, &patch)).then_some(patch)
}
