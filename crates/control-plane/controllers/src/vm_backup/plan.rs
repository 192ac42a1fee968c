//! Harvester's words for KubeVirt's snapshots and restores: pure.

pub(super) mod metadata;
pub(super) mod upload;

use base::clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::condition::{self, Condition};
use crate::object::{
    annotation, controlled_by, is_true, list, name, namespace, quantity, text, uid,
};

const API: &str = "harvesterhci.io/v1beta1";
const INNER: &str = "snapshot.kubevirt.io/v1beta1";
const RESTORED: &str = "restore.harvesterhci.io/name";
const RESTORED_BY: &str = "restore.harvesterhci.io/last-restore-uid";

/// Why nothing is restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RestoreError {
    #[error("backup {name} is not found")]
    NoBackup { name: String },
    #[error("backup {name} is not ready to use")]
    NotReady { name: String },
    #[error("restore to other namespace with backup type snapshot is not supported")]
    OtherNamespace,
    #[error("VM {name} is already exists")]
    Exists { name: String },
    #[error("can't replace nonexistent vm {name}")]
    Missing { name: String },
    #[error("delete policy with backup type snapshot for replacing VM is not supported")]
    Delete,
}

/// KubeVirt's snapshot for a backup. The time that the guest may stay frozen does not limit it: a
/// guest is frozen only for the instant at which its disks are captured.
pub(super) fn snapshot(backup: &Value) -> Value {
    let mut spec = json!({"source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine",
        "name": text(backup, "/spec/source/name")}});
    if is_true(backup, "/spec/memory") {
        spec["memory"] = json!(true);
    }
    json!({
        "apiVersion": INNER, "kind": "VirtualMachineSnapshot",
        "metadata": {
            "name": name(backup), "namespace": namespace(backup),
            "ownerReferences": [controlled_by(backup, API, "VirtualMachineBackup")],
        },
        "spec": spec,
    })
}

fn conditions(own: &Value, ready: bool, going: bool, why: &str, now: Timestamp) -> Vec<Value> {
    let say = |value: bool| if value { "True" } else { "False" };
    let mut conditions = condition::of(own);
    let reason = if why.is_empty() { "" } else { "Error" };
    let wanted = Condition::new("Ready", say(ready)).because(reason, why);
    condition::set(&mut conditions, &wanted, now);
    let wanted = Condition::new("InProgress", say(going)).because(reason, why);
    condition::set(&mut conditions, &wanted, now);
    conditions
}

pub(super) fn refused(own: &Value, why: &str, now: Timestamp) -> Value {
    let mut error = json!({"message": why});
    if text(own, "/status/error/message") != why {
        error["time"] = json!(clock::rfc3339(now));
    }
    json!({"status": {
        "error": error, "conditions": conditions(own, false, false, why, now),
    }})
}

/// The same for a restore, which has no field for errors of its own.
pub(super) fn refused_restore(own: &Value, why: &str, now: Timestamp) -> Value {
    json!({"status": {"conditions": conditions(own, false, false, why, now)}})
}

pub(super) fn backup_status(
    backup: &Value,
    inner: &Value,
    content: Option<&Value>,
    now: Timestamp,
) -> Value {
    let ready = is_true(inner, "/status/readyToUse");
    let failed = text(inner, "/status/phase") == "Failed";
    let message = text(inner, "/status/error/message");
    let why = if failed && message.is_empty() { "snapshot deadline exceeded" } else { message };
    let mut status = json!({
        "sourceUID": text(inner, "/status/sourceUID"),
        "readyToUse": ready,
        "progress": if ready { 100 } else { 0 },
        "conditions": conditions(backup, ready, !ready && !failed, why, now),
    });
    if ready {
        status["creationTime"] = json!(text(inner, "/status/creationTime"));
    }
    if !why.is_empty() {
        status["error"] = json!({"message": why});
    } else if backup["status"].get("error").is_some() {
        status["error"] = Value::Null;
    }
    if let Some(content) = content {
        let machine = &content["spec"]["source"]["virtualMachine"];
        status["source"] = json!({"metadata": machine["metadata"], "spec": machine["spec"]});
        let disks = list(content, "/spec/volumeBackups").iter();
        let disks: Vec<Value> = disks.map(|own| disk(own, content)).collect();
        status["volumeBackups"] = disks.into();
        let class = json!({hci::DRIVER: "longhorn-snapshot"});
        status["csiDriverVolumeSnapshotClassNames"] = class;
    }
    json!({"status": status})
}

fn disk(own: &Value, content: &Value) -> Value {
    let snapshot = text(own, "/volumeSnapshotName");
    let status = list(content, "/status/volumeSnapshotStatus").iter();
    let status = status.into_iter().find(|status| text(status, "/volumeSnapshotName") == snapshot);
    let ready = status.is_some_and(|status| is_true(status, "/readyToUse"));
    let size = quantity(own, "/persistentVolumeClaim/spec/resources/requests/storage");
    let mut disk = json!({
        "name": snapshot, "volumeName": text(own, "/volumeName"), "csiDriverName": hci::DRIVER,
        "persistentVolumeClaim": own["persistentVolumeClaim"], "readyToUse": ready,
        "progress": if ready { 100 } else { 0 },
        "volumeSize": size.map_or(0, |size| size.units()),
    });
    if let Some(status) = status {
        disk["creationTime"] = json!(text(status, "/creationTime"));
    }
    disk
}

pub(super) fn is_over(restore: &Value) -> bool {
    is_true(restore, "/status/complete")
}

pub(super) fn backup_namespace(restore: &Value) -> &str {
    match text(restore, "/spec/virtualMachineBackupNamespace") {
        "" => namespace(restore),
        there => there,
    }
}

pub(super) fn judge(
    restore: &Value,
    backup: Option<&Value>,
    vm: Option<&Value>,
) -> Result<(), RestoreError> {
    let own = text(restore, "/spec/virtualMachineBackupName").to_owned();
    let target = text(restore, "/spec/target/name").to_owned();
    let new = is_true(restore, "/spec/newVM");
    let backup = backup.ok_or_else(|| RestoreError::NoBackup { name: own.clone() })?;
    if !is_true(backup, "/status/readyToUse") {
        return Err(RestoreError::NotReady { name: own });
    }
    let is_snapshot = text(backup, "/spec/type") == "snapshot";
    if is_snapshot && backup_namespace(restore) != namespace(restore) {
        return Err(RestoreError::OtherNamespace);
    }
    match (new, vm) {
        (true, Some(_)) => Err(RestoreError::Exists { name: target }),
        (false, None) => Err(RestoreError::Missing { name: target }),
        // The snapshot lies in the volumes that would go.
        (false, _) if is_snapshot && text(restore, "/spec/deletionPolicy") == "delete" => {
            Err(RestoreError::Delete)
        }
        _ => Ok(()),
    }
}

/// KubeVirt's restore; claims of Harvester's machines have no owner.
pub(super) fn inner(restore: &Value, backup: Option<&Value>, snapshot: &str) -> Value {
    let kept = backup.filter(|_| is_true(restore, "/spec/keepMacAddress"));
    let mut patches = kept.map(addresses).unwrap_or_default();
    if let Some(backup) = backup.filter(|_| is_true(restore, "/spec/newVM")) {
        patches.extend(metadata::secret_patches(restore, backup));
    }
    json!({
        "apiVersion": INNER, "kind": "VirtualMachineRestore",
        "metadata": {
            "name": name(restore), "namespace": namespace(restore),
            "ownerReferences": [controlled_by(restore, API, "VirtualMachineRestore")],
        },
        "spec": {
            "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine",
                "name": text(restore, "/spec/target/name")},
            "virtualMachineSnapshotName": snapshot,
            "targetReadinessPolicy": "WaitEventually",
            "volumeOwnershipPolicy": "None",
            "patches": patches,
        },
    })
}

/// Gives a new machine the addresses of the one that was captured.
fn addresses(backup: &Value) -> Vec<String> {
    let path = "/spec/template/spec/domain/devices/interfaces";
    let interfaces = list(backup, &format!("/status/source{path}")).iter().enumerate();
    let known = interfaces.map(|(index, own)| (index, text(own, "/macAddress")));
    let patches = known.filter(|(_, address)| !address.is_empty()).map(|(index, address)| {
        json!({"op": "add", "path": format!("{path}/{index}/macAddress"), "value": address})
    });
    patches.map(|own| own.to_string()).collect()
}

/// Marks the machine, and has it run where it is to.
pub(super) fn machine_patch(restore: &Value, vm: &Value) -> Option<Value> {
    if annotation(vm, RESTORED_BY) == Some(uid(restore)) {
        return None;
    }
    let annotations = json!({RESTORED_BY: uid(restore), RESTORED: name(restore)});
    let halted = is_true(restore, "/spec/haltAfterRestore");
    let strategy = if halted { "Halted" } else { "RerunOnFailure" };
    Some(json!({
        "metadata": {"uid": uid(vm), "annotations": annotations},
        "spec": {"runStrategy": strategy, "running": null},
    }))
}

pub(super) fn restore_status(
    restore: &Value,
    inner: &Value,
    vm: Option<&Value>,
    now: Timestamp,
) -> Value {
    let done = is_true(inner, "/status/complete");
    let failed = condition::is(inner, "Failure", "True");
    let failure = condition::find(list(inner, "/status/conditions"), "Failure");
    let why = failure.filter(|_| failed).map_or("", |own| text(own, "/message"));
    let restores: Vec<Value> = list(inner, "/status/restores")
        .iter()
        .map(|own| {
            json!({
                "volumeName": text(own, "/volumeName"),
                "persistentVolumeClaimSpec": {"metadata": {
                    "name": text(own, "/persistentVolumeClaim"), "namespace": namespace(restore),
                }},
                "volumeBackupName": text(own, "/volumeSnapshotName"),
                "progress": if done { 100 } else { 0 },
            })
        })
        .collect();
    let mut status = json!({
        "complete": done, "progress": if done { 100 } else { 0 }, "restores": restores,
        "conditions": conditions(restore, done, !done && !failed, why, now),
    });
    if done {
        status["restoreTime"] = json!(text(inner, "/status/restoreTime"));
        status["targetUID"] = json!(vm.map_or("", uid));
    }
    json!({"status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_restored_is() {
        let restore = |new: bool, policy: &str| {
            json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {
                "target": {"name": "m"}, "virtualMachineBackupName": "b",
                "virtualMachineBackupNamespace": "n", "newVM": new, "deletionPolicy": policy}})
        };
        let ready = json!({"spec": {"type": "snapshot"}, "status": {"readyToUse": true}});
        let far = json!({"spec": {"type": "backup"}, "status": {"readyToUse": true}});
        let vm = json!({});
        let ask = |new, policy: &str, backup: Option<&Value>, vm: Option<&Value>| {
            judge(&restore(new, policy), backup, vm).map_err(|own| own.to_string())
        };
        assert_eq!(ask(true, "delete", Some(&ready), None), Ok(()));
        assert_eq!(ask(false, "retain", Some(&ready), Some(&vm)), Ok(()));
        assert_eq!(ask(false, "delete", Some(&far), Some(&vm)), Ok(()));
        for (new, policy, backup, vm, expected) in [
            (true, "retain", None, None, "backup b is not found"),
            (true, "retain", Some(&vm), None, "backup b is not ready to use"),
            (true, "retain", Some(&ready), Some(&vm), "VM m is already exists"),
            (false, "retain", Some(&ready), None, "can't replace nonexistent vm m"),
            (
                false,
                "delete",
                Some(&ready),
                Some(&vm),
                "delete policy with backup type snapshot for replacing VM is not supported",
            ),
        ] {
            assert_eq!(ask(new, policy, backup, vm), Err(expected.to_owned()));
        }
    }

    #[test]
    fn a_snapshot_may_take_longer_than_the_guest_may_be_frozen() {
        let backup = json!({"metadata": {"name": "b", "namespace": "n"},
            "spec": {"source": {"name": "m"}, "fsFreezeDeadline": "1s", "memory": true}});
        let spec = snapshot(&backup)["spec"].clone();
        assert_eq!((spec.get("failureDeadline"), &spec["memory"]), (None, &json!(true)));
    }

    #[test]
    fn a_restored_machine_runs_unless_it_is_halted_and_is_marked_once() {
        let restore = |halt: bool| json!({"metadata": {"name": "r", "uid": "u"}, "spec": {"haltAfterRestore": halt}});
        let vm = json!({"metadata": {"uid": "v"}});
        let run = machine_patch(&restore(false), &vm).unwrap();
        assert_eq!(run["spec"]["runStrategy"], "RerunOnFailure");
        assert_eq!(machine_patch(&restore(true), &vm).unwrap()["spec"]["runStrategy"], "Halted");
        let marked = json!({"metadata": {"uid": "v", "annotations": {RESTORED_BY: "u"}}});
        assert_eq!(machine_patch(&restore(false), &marked), None);
    }
}
