//! Restores of machines from their backups and snapshots. Errors that upstream answers with 500 are
//! 422 here, so that clients do not repeat a request that cannot succeed.

use kinds::syntax::subdomain;
use serde_json::Value;

use super::{BACKUPS, RESTORES, SCHEDULES, kind, schedule_id, target_value};
use crate::admit::reference::{Reference, authorize_disks, authorize_machine};
use crate::admit::{
    AdmissionResult, HARVESTER, Refusal, SNAPSHOTS, Write, machine_quota, split_id, text,
};

const BACKUP_FIELD: &str = "spec.virtualMachineBackupName";
const TARGET_FIELD: &str = "spec.target.name";
const KEEP_ADDRESS_FIELD: &str = "spec.keepMacAddress";

/// One that waits for its machine to be stopped has begun as well.
pub(super) fn is_under_way(restore: &Value) -> bool {
    let conditions = restore.pointer("/status/conditions").and_then(Value::as_array);
    let mut all = conditions.into_iter().flatten();
    let in_progress = all.any(|own| own["type"] == "InProgress" && own["status"] == "True");
    in_progress
        && restore["status"]["complete"] != true
        && restore["metadata"]["deletionTimestamp"].is_null()
}

pub(in crate::admit) fn validate(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (Some(object), None) => validate_new_restore(write, object),
        (Some(object), Some(old)) if object["spec"] != old["spec"] && !write.trusted => {
            Err(Refusal::invalid("spec", "VirtualMachineRestore spec is immutable"))
        }
        (None, Some(old)) if !write.trusted => validate_removal(write, old),
        _ => Ok(()),
    }
}

/// The history of a machine is kept as long as the machine.
fn validate_removal(write: &Write<'_>, old: &Value) -> AdmissionResult {
    let target = text(old, "/spec/target/name");
    match find_machine(write, write.namespace, target) {
        Some(machine) if machine["metadata"]["deletionTimestamp"].is_null() => {
            let message =
                format!("The restore can't be removed because the restored VM {target} exists");
            Err(Refusal::invalid(TARGET_FIELD, message))
        }
        _ => Ok(()),
    }
}

fn find_machine(write: &Write<'_>, namespace: &str, name: &str) -> Option<Value> {
    write.objects.get("kubevirt.io", "virtualmachines", namespace, name)
}

fn validate_new_restore(write: &Write<'_>, restore: &Value) -> AdmissionResult {
    let target = text(restore, "/spec/target/name");
    if let problems @ [_, ..] = subdomain(target).as_slice() {
        let message = format!("Target VM name is invalid, err: {}", problems.join("; "));
        return Err(Refusal::invalid(TARGET_FIELD, message));
    }
    let backup = read_backup(write, restore)?;
    authorize_data(write, text(&backup, "/metadata/namespace"), &backup)?;
    authorize_new_claims(write, &backup)?;
    validate_schedule(write, &backup)?;
    validate_surroundings(write, &backup)?;
    if kind(&backup) == "snapshot" {
        validate_snapshot(write, restore, &backup)?;
    } else {
        validate_backup(write, restore, &backup)?;
    }
    validate_target(write, restore, &backup, target)
}

/// The backup, if machines can be restored from it.
fn read_backup(write: &Write<'_>, restore: &Value) -> Result<Value, Refusal> {
    let name = text(restore, "/spec/virtualMachineBackupName");
    let namespace = match text(restore, "/spec/virtualMachineBackupNamespace") {
        "" => write.namespace,
        namespace => namespace,
    };
    let field = "spec.virtualMachineBackupNamespace";
    let (group, resource) = (HARVESTER, BACKUPS);
    Reference { field, group, resource, namespace, name }.authorize(write)?;
    let refuse = |message: String| Err(Refusal::invalid(BACKUP_FIELD, message));
    let Some(backup) = write.objects.get(HARVESTER, BACKUPS, namespace, name) else {
        return refuse(format!(
            "can't get vmbackup {namespace}/{name}, err: {BACKUPS}.{HARVESTER} \"{name}\" not found"
        ));
    };
    if backup["status"]["readyToUse"] != true {
        return refuse(format!("VMBackup {namespace}/{name} is not ready"));
    }
    if backup["metadata"]["deletionTimestamp"].is_string() {
        return refuse(format!("vmbackup {namespace}/{name} is deleted"));
    }
    Ok(backup)
}

/// A schedule that runs would back up the machine while it is restored.
fn validate_schedule(write: &Write<'_>, backup: &Value) -> AdmissionResult {
    let Some((namespace, name)) = schedule_id(backup).and_then(split_id) else { return Ok(()) };
    match write.objects.get(HARVESTER, SCHEDULES, namespace, name) {
        Some(schedule) if schedule["spec"]["suspend"] != true => {
            let message = format!("Source schedule {namespace}/{name} is running");
            Err(Refusal::invalid("", message))
        }
        _ => Ok(()),
    }
}

/// The snapshot classes and the networks that the restored machine needs.
fn validate_surroundings(write: &Write<'_>, backup: &Value) -> AdmissionResult {
    let classes = backup["status"]["csiDriverVolumeSnapshotClassNames"].as_object();
    for (driver, class) in classes.into_iter().flatten() {
        let class = class.as_str().unwrap_or_default();
        if write.objects.get(SNAPSHOTS, "volumesnapshotclasses", "", class).is_none() {
            let message = format!("can't get volumeSnapshotClass {class} for driver {driver}");
            return Err(Refusal::invalid(BACKUP_FIELD, message));
        }
    }
    let networks = backup.pointer("/status/source/spec/template/spec/networks");
    for network in networks.and_then(Value::as_array).into_iter().flatten() {
        let own = text(network, "/multus/networkName");
        let (namespace, name) = own.split_once('/').unwrap_or(("default", own));
        let plural = "network-attachment-definitions";
        let group = "k8s.cni.cncf.io";
        if !own.is_empty() && write.objects.get(group, plural, namespace, name).is_none() {
            let message = format!(
                "failed to get network attachment definition {own}, err: {plural}.{group} \"{name}\" not found"
            );
            return Err(Refusal::invalid(BACKUP_FIELD, message));
        }
    }
    Ok(())
}

fn validate_snapshot(write: &Write<'_>, restore: &Value, backup: &Value) -> AdmissionResult {
    if text(backup, "/metadata/namespace") != write.namespace {
        return Err(Refusal::invalid(
            "spec.virtualMachineBackupNamespace",
            "restore to other namespace with backup type snapshot is not supported",
        ));
    }
    let replaces = restore["spec"]["newVM"] != true;
    if replaces && text(restore, "/spec/deletionPolicy") == "delete" {
        return Err(Refusal::invalid(
            "spec.deletionPolicy",
            "delete policy with backup type snapshot for replacing VM is not supported",
        ));
    }
    Ok(())
}

/// A backup is read from the target that is set now, and its volumes replace only such volumes
/// as no snapshot needs.
fn validate_backup(write: &Write<'_>, restore: &Value, backup: &Value) -> AdmissionResult {
    let refuse = |message: String| Err(Refusal::invalid(BACKUP_FIELD, message));
    let id = id_of(backup);
    let target = target_value(write);
    if location(&target).is_none() {
        return refuse("backup target is not set".to_owned());
    }
    if location(&backup["status"]["backupTarget"]) != location(&target) {
        let shown = ["endpoint", "bucketName", "bucketRegion"]
            .map(|field| format!("{field}:{}", target[field].as_str().unwrap_or_default()));
        let shown = shown.join(" ");
        return refuse(format!("backup target {{{shown}}} is not matched in vmBackup {id}"));
    }
    let volumes = backup["status"]["volumeBackups"].as_array().map_or(&[][..], Vec::as_slice);
    let keeps =
        restore["spec"]["newVM"] == true || text(restore, "/spec/deletionPolicy") == "retain";
    for volume in volumes.iter().filter(|_| !keeps) {
        validate_volume(write, volume)?;
    }
    let foreign = volumes.iter().position(|own| text(own, "/longhornBackupName").is_empty());
    match foreign {
        Some(index) => refuse(format!(
            "vmbackup {id} vb {} at index {index} not from LH, it can't be recovered",
            text(&volumes[index], "/name")
        )),
        None => Ok(()),
    }
}

fn id_of(object: &Value) -> String {
    format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// The place of a backup target: its bucket with the region, else its share. The endpoint of a
/// bucket is not part of it, as backups do not record it.
fn location(target: &Value) -> Option<(&str, &str)> {
    let bucket = text(target, "/bucketName");
    let share = text(target, "/endpoint").trim_start_matches("nfs://");
    match (bucket, share) {
        ("", "") => None,
        ("", share) => Some((share, "")),
        (bucket, _) => Some((bucket, text(target, "/bucketRegion"))),
    }
}

/// A claim that snapshots hold cannot be replaced by a restore that deletes it.
fn validate_volume(write: &Write<'_>, volume: &Value) -> AdmissionResult {
    let claim = claim_of(volume);
    let all = write.objects.list(HARVESTER, BACKUPS, "");
    let holds = |own: &&Value| {
        let volumes = own["status"]["volumeBackups"].as_array().into_iter().flatten();
        kind(own) == "snapshot" && volumes.into_iter().any(|volume| claim_of(volume) == claim)
    };
    let names: Vec<&str> =
        all.iter().filter(holds).map(|own| text(own, "/metadata/name")).collect();
    if names.is_empty() {
        return Ok(());
    }
    let message = format!(
        "can't use delete policy, the volume {claim:?} is used by the VM Snapshot(s) {}",
        names.join(", ")
    );
    Err(Refusal::invalid(BACKUP_FIELD, message))
}

fn claim_of(volume: &Value) -> String {
    id_of(&volume["persistentVolumeClaim"])
}

/// A viewer of a namespace sees its backups, but neither its disks nor its Secrets: a restore into
/// another namespace needs the right to clone the disks (CDI's rule), and to get the Secrets.
fn authorize_data(write: &Write<'_>, namespace: &str, backup: &Value) -> AdmissionResult {
    if write.trusted || namespace == write.namespace {
        return Ok(());
    }
    let field = "spec.virtualMachineBackupNamespace";
    authorize_disks(write, field, namespace, text(backup, "/metadata/name"))?;
    for secret in backup["status"]["secretBackups"].as_array().into_iter().flatten() {
        let (group, resource, name) = ("", "secrets", text(secret, "/name"));
        Reference { field, group, resource, namespace, name }.authorize(write)?;
    }
    Ok(())
}

/// A controller writes the machine of a restore. Its disks come from the backup; of claims that
/// would be created beside them, the classes are those that the user may use.
fn authorize_new_claims(write: &Write<'_>, backup: &Value) -> AdmissionResult {
    let disks = backup["status"]["volumeBackups"].as_array();
    let restored: Vec<&str> = disks
        .into_iter()
        .flatten()
        .map(|own| text(own, "/persistentVolumeClaim/metadata/name"))
        .collect();
    let source = &backup["status"]["source"];
    let is_new = |name: &str| !restored.contains(&name);
    authorize_machine(write, &source["metadata"], &source["spec"], is_new)
}

fn validate_target(
    write: &Write<'_>,
    restore: &Value,
    backup: &Value,
    target: &str,
) -> AdmissionResult {
    match (restore["spec"]["newVM"] == true, find_machine(write, write.namespace, target)) {
        (true, Some(_)) => {
            let message = format!("VM {target} is already exists");
            Err(Refusal::invalid("spec.newVM", message))
        }
        (true, None) => validate_new_machine(write, restore, backup),
        (false, None) => {
            let message = format!("can't replace nonexistent vm {target}");
            Err(Refusal::invalid(TARGET_FIELD, message))
        }
        (false, Some(vm)) => validate_replaced(write, &vm, target),
    }
}

fn validate_replaced(write: &Write<'_>, vm: &Value, target: &str) -> AdmissionResult {
    if vm["status"]["ready"] == true {
        let message = format!("Please stop the VM \"{target}\" before doing a restore");
        return Err(Refusal::invalid(TARGET_FIELD, message));
    }
    let all = write.objects.list(HARVESTER, RESTORES, write.namespace);
    let same = |own: &Value| text(own, "/spec/target/name") == target && is_under_way(own);
    if all.iter().any(same) {
        let message = format!(
            "Please wait for the previous VM restore on the {}/{target} to be complete first.",
            write.namespace
        );
        return Err(Refusal::invalid(TARGET_FIELD, message));
    }
    machine_quota::check_start(write, vm).map_err(|shortage| {
        Refusal::invalid(TARGET_FIELD, format!("Failed to restore the exist vm, err: {shortage}"))
    })
}

fn validate_new_machine(write: &Write<'_>, restore: &Value, backup: &Value) -> AdmissionResult {
    machine_quota::check_new(write, &backup["status"]["source"]["spec"]).map_err(|shortage| {
        Refusal::invalid("spec.newVM", format!("Failed to restore the new vm, err: {shortage}"))
    })?;
    if restore["spec"]["keepMacAddress"] != true {
        return Ok(());
    }
    let namespace = text(backup, "/metadata/namespace");
    let all = write.objects.list(HARVESTER, RESTORES, "");
    let is_twin = |own: &&Value| {
        own["spec"]["newVM"] == true
            && own["spec"]["keepMacAddress"] == true
            && text(own, "/spec/virtualMachineBackupName") == text(backup, "/metadata/name")
            && text(own, "/spec/virtualMachineBackupNamespace") == namespace
    };
    if let Some(twin) = all.iter().find(is_twin) {
        let message = format!(
            "can't restore the new vm with the same macaddress as the vmrestore {}",
            id_of(twin)
        );
        return Err(Refusal::invalid(KEEP_ADDRESS_FIELD, message));
    }
    let source = find_machine(write, namespace, text(backup, "/spec/source/name"));
    let uid = &backup["status"]["sourceUID"];
    if uid.is_string() && source.is_some_and(|vm| vm["metadata"]["uid"] == *uid) {
        let message = "can't restore the new vm with the same macaddress because the source vm is still existent";
        return Err(Refusal::invalid(KEEP_ADDRESS_FIELD, message));
    }
    Ok(())
}
