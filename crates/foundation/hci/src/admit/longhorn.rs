//! Admission of Longhorn's settings, volumes and nodes.

mod growth;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{AdmissionResult, LONGHORN, Refusal, Write, text};
use crate::longhorn::NAMESPACE;
use crate::longhorn::node::Node;
use crate::setting;

pub(super) fn validate_setting(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else {
        return match setting::find(write.name) {
            Some(_) if !write.trusted => Err(Refusal::new(
                400,
                "",
                format!(
                    "setting {} cannot be deleted; set its value to {{}} or its default instead",
                    write.name
                ),
            )),
            _ => Ok(()),
        };
    };
    let Some(known) = setting::find(write.name) else {
        return Err(Refusal::new(
            400,
            "metadata.name",
            format!("setting {} is not supported", write.name),
        ));
    };
    match known.validation_error(text(object, "/value")) {
        Some(error) => Err(Refusal::new(400, "value", error)),
        None => Ok(()),
    }
}

const REPLICA_COUNT: &str = "default-replica-count";
const DATA_LOCALITY: &str = "default-data-locality";

/// Sets the defaults of a volume: those of the settings, and Longhorn's.
pub(super) fn complete_volume(write: &Write<'_>, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let is_unset = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(value) => value == 0 || value == "",
    };
    if is_unset(spec.get("numberOfReplicas")) {
        let engine = spec.get("dataEngine").and_then(Value::as_str).unwrap_or("v1");
        let count = setting::for_engine(&setting_value(write, REPLICA_COUNT), engine);
        let count = count.and_then(|count| count.parse::<i64>().ok()).unwrap_or(3);
        spec.insert("numberOfReplicas".to_owned(), json!(count));
    }
    if is_unset(spec.get("dataLocality")) {
        spec.insert("dataLocality".to_owned(), json!(setting_value(write, DATA_LOCALITY)));
    }
    for (field, value) in [
        ("frontend", json!("blockdev")),
        ("staleReplicaTimeout", json!(2880)),
        ("accessMode", json!("rwo")),
        ("dataEngine", json!("v1")),
        ("replicaAutoBalance", json!("ignored")),
        ("replicaSoftAntiAffinity", json!("ignored")),
        ("replicaZoneSoftAntiAffinity", json!("ignored")),
        ("replicaDiskSoftAntiAffinity", json!("ignored")),
        ("snapshotDataIntegrity", json!("ignored")),
        ("unmapMarkSnapChainRemoved", json!("ignored")),
        ("backupCompressionMethod", json!("lz4")),
    ] {
        spec.entry(field).or_insert(value);
    }
    // Half a block cannot be written: sizes are rounded up to 2 MiB, as there.
    if let Some(size) =
        spec.get("size").and_then(Value::as_str).and_then(|size| size.parse::<u64>().ok())
    {
        const STEP: u64 = 2 << 20;
        spec.insert("size".to_owned(), json!(size.next_multiple_of(STEP).to_string()));
    }
}

fn setting_value(write: &Write<'_>, name: &str) -> String {
    let found = write.objects.get(LONGHORN, "settings", NAMESPACE, name);
    setting::value(name, found.as_ref().map(|own| text(own, "/value"))).to_owned()
}

pub(super) fn validate_volume(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    let size = bytes(object).ok_or_else(|| {
        Refusal::new(400, "spec.size", "spec.size must be a number of bytes above 0, as a text")
    })?;
    let replicas = object["spec"]["numberOfReplicas"].as_i64().unwrap_or(0);
    if !(1..=20).contains(&replicas) {
        return Err(Refusal::new(
            400,
            "spec.numberOfReplicas",
            format!("number of replicas {replicas} is invalid: it must be from 1 to 20"),
        ));
    }
    if text(object, "/spec/dataLocality") == "strict-local" && replicas != 1 {
        return Err(Refusal::new(
            400,
            "spec.dataLocality",
            "number of replica count should be 1 when data locality is strict-local",
        ));
    }
    let Some(old) = write.old else { return Ok(()) };
    let before = bytes(old).unwrap_or(size);
    if size < before {
        return Err(Refusal::new(
            400,
            "spec.size",
            format!("shrinking volume {} is not supported", write.name),
        ));
    }
    growth::validate(write, before, size)?;
    for (pointer, field) in
        [("/spec/backingImage", "spec.backingImage"), ("/spec/encrypted", "spec.encrypted")]
    {
        if object.pointer(pointer) != old.pointer(pointer) {
            return Err(Refusal::new(400, field, format!("{field} is immutable")));
        }
    }
    Ok(())
}

fn bytes(volume: &Value) -> Option<u64> {
    text(volume, "/spec/size").parse().ok().filter(|size| *size > 0)
}

/// A disk may go only when it is empty and closed, and a node when its Kubernetes node is gone.
pub(super) fn validate_node(write: &Write<'_>) -> AdmissionResult {
    if write.object.is_none() && !write.trusted {
        return validate_node_deletion(write);
    }
    let (Some(object), Some(old)) = (write.object, write.old) else { return Ok(()) };
    let disks = |node: &Value| node["spec"]["disks"].as_object().cloned().unwrap_or_default();
    let kept = disks(object);
    for (name, disk) in disks(old) {
        if kept.contains_key(&name) {
            continue;
        }
        let status = &old["status"]["diskStatus"][&name];
        let holds = |what: &str| status[what].as_object().is_some_and(|all| !all.is_empty());
        let is_open = disk["allowScheduling"] == true;
        if is_open || holds("scheduledReplica") || holds("scheduledBackingImage") {
            return Err(Refusal::new(
                400,
                "spec.disks",
                format!(
                    "Delete Disk on node {} error: Please disable the disk {name} and remove all replicas and backing images first",
                    write.name
                ),
            ));
        }
    }
    for (name, disk) in &kept {
        if text(disk, "/path").is_empty() {
            return Err(Refusal::new(
                400,
                "spec.disks",
                format!("disk {name} has no path: give it a directory or a block device"),
            ));
        }
        if disk["storageReserved"].as_i64().is_some_and(|reserved| reserved < 0) {
            return Err(Refusal::new(
                400,
                "spec.disks",
                format!("storageReserved of disk {name} must not be below 0"),
            ));
        }
    }
    Ok(())
}

/// Longhorn's rule. There, a node may also go when its manager is missing; ours has none beside
/// the node itself.
fn validate_node_deletion(write: &Write<'_>) -> AdmissionResult {
    const UNINSTALLING: &str = "longhorn.io/delete-node-from-longhorn";
    let node: Node = read(write.old);
    if node.metadata.annotations.contains_key(UNINSTALLING) {
        return Ok(());
    }
    let count = |plural: &str| {
        let all = write.objects.list("longhorn.io", plural, write.namespace);
        all.iter().filter(|own| text(own, "/spec/nodeID") == write.name).count()
    };
    let (replicas, engines) = (count("replicas"), count("engines"));
    let status = node.status.unwrap_or_default();
    let ready = status.conditions.into_iter().find(|own| own.r#type == "Ready");
    let (ready, reason) =
        ready.map(|own| (own.status, own.reason.unwrap_or_default())).unwrap_or_default();
    let schedulable = node.spec.and_then(|spec| spec.allow_scheduling).unwrap_or_default();
    let is_gone = ready != "True" && reason == "KubernetesNodeGone";
    if is_gone && !schedulable && replicas + engines == 0 {
        return Ok(());
    }
    Err(Refusal::longhorn(
        "",
        format!(
            "could not delete node {} with node ready condition is {ready}, reason is {reason}, \
             node schedulable {schedulable}, and {replicas} replica, {engines} engine running on it",
            write.name
        ),
    ))
}

/// An object as its record; an object that does not fit it reads as empty.
pub(super) fn read<T: Default + for<'de> Deserialize<'de>>(object: Option<&Value>) -> T {
    object.and_then(|object| T::deserialize(object).ok()).unwrap_or_default()
}
