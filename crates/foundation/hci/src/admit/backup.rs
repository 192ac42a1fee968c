//! Backups of machines, and going back to them.

use std::time::Duration;

use kinds::syntax::subdomain;
use serde_json::Value;

use super::reference::Reference;
use super::{AdmissionResult, HARVESTER, Refusal, Write, snapshot_quota, text};
use crate::schedule::Schedule;

const RESTORES: &str = "virtualmachinerestores";
const BACKUPS: &str = "virtualmachinebackups";
const SCHEDULES: &str = "schedulevmbackups";
/// On a schedule, with any value: it may run as often as it likes.
const SKIP_CRON_CHECK: &str = "harvesterhci.io/svmbackupSkipCronCheck";
const SHORTEST_PERIOD: Duration = Duration::from_secs(60 * 60);
const SHORTEST_OFFSET: Duration = Duration::from_secs(10 * 60);

/// On a backup of a schedule: `NAMESPACE/NAME` of the schedule.
const SCHEDULE_ID: &str = "harvesterhci.io/svmbackupId";

pub(super) fn validate(write: &Write<'_>) -> AdmissionResult {
    if write.object.is_some_and(|own| text(own, "/spec/fsFreezeDeadline").starts_with('-')) {
        return Err(Refusal::invalid("spec.fsFreezeDeadline", "must not be negative"));
    }
    match (write.object, write.old) {
        (Some(object), None) => validate_creation(write, object),
        (Some(object), Some(old)) if kind(object) != kind(old) => {
            Err(Refusal::invalid("spec.type", "VMBackup type is immutable"))
        }
        (Some(object), Some(old)) if schedule_id(object) != schedule_id(old) => {
            let message = format!("annotation {SCHEDULE_ID} isn't allowed for updating");
            Err(Refusal::new(400, "", message))
        }
        (None, Some(_)) => validate_removal(write),
        _ => Ok(()),
    }
}

/// The type; a backup by default.
fn kind(backup: &Value) -> &str {
    match text(backup, "/spec/type") {
        "" => "backup",
        kind => kind,
    }
}

fn schedule_id(backup: &Value) -> Option<&str> {
    backup.pointer("/metadata/annotations")?.get(SCHEDULE_ID)?.as_str()
}

fn validate_creation(write: &Write<'_>, backup: &Value) -> AdmissionResult {
    // Backups of other clusters that were found on the target; their machine is not here.
    if write.trusted && backup["status"]["readyToUse"] == true {
        return Ok(());
    }
    let source = text(backup, "/spec/source/name");
    if source.is_empty() {
        return Err(Refusal::invalid("spec.source.name", "source VM name is empty"));
    }
    let machine = write.objects.get("kubevirt.io", "virtualmachines", write.namespace, source);
    if machine.is_none() {
        let message = format!("virtualmachines.kubevirt.io \"{source}\" not found");
        return Err(Refusal::invalid("spec.source.name", message));
    }
    if kind(backup) != "snapshot" && !has_target(write) {
        return Err(Refusal::invalid("spec.type", "backup target is not set"));
    }
    snapshot_quota::check_machine(write, source)
}

fn has_target(write: &Write<'_>) -> bool {
    let setting = write.objects.get(HARVESTER, "settings", "", "backup-target");
    let value = setting.map(|own| text(&own, "/value").to_owned()).unwrap_or_default();
    let target: Value = serde_json::from_str(&value).unwrap_or_default();
    !text(&target, "/endpoint").is_empty() || !text(&target, "/bucketName").is_empty()
}

fn validate_removal(write: &Write<'_>) -> AdmissionResult {
    let all = write.objects.list(HARVESTER, RESTORES, write.namespace);
    let uses = |own: &&Value| {
        text(own, "/spec/virtualMachineBackupName") == write.name && is_under_way(own)
    };
    match all.iter().find(uses) {
        Some(own) => {
            let name = text(own, "/metadata/name");
            let message = format!("vmrestore {}/{name} is in progress", write.namespace);
            Err(Refusal::new(400, "", message))
        }
        None => Ok(()),
    }
}

/// One that waits for its machine to be stopped has begun as well.
fn is_under_way(restore: &Value) -> bool {
    let conditions = restore.pointer("/status/conditions").and_then(Value::as_array);
    let mut all = conditions.into_iter().flatten();
    let told = all.any(|own| own["type"] == "InProgress" && own["status"] == "True");
    told && restore["status"]["complete"] != true
        && restore["metadata"]["deletionTimestamp"].is_null()
}

pub(super) fn validate_restore(write: &Write<'_>) -> AdmissionResult {
    match (write.object, write.old) {
        (Some(object), None) => validate_new_restore(write, object),
        (Some(object), Some(old)) if object["spec"] != old["spec"] && !write.trusted => {
            Err(Refusal::invalid("spec", "VirtualMachineRestore spec is immutable"))
        }
        _ => Ok(()),
    }
}

fn validate_new_restore(write: &Write<'_>, restore: &Value) -> AdmissionResult {
    let target = text(restore, "/spec/target/name");
    if let problems @ [_, ..] = subdomain(target).as_slice() {
        let message = format!("Target VM name is invalid, err: {}", problems.join("; "));
        return Err(Refusal::invalid("spec.target.name", message));
    }
    validate_backup(write, restore)?;
    validate_target(write, restore, target)
}

fn validate_backup(write: &Write<'_>, restore: &Value) -> AdmissionResult {
    let field = "spec.virtualMachineBackupName";
    let name = text(restore, "/spec/virtualMachineBackupName");
    let namespace = match text(restore, "/spec/virtualMachineBackupNamespace") {
        "" => write.namespace,
        namespace => namespace,
    };
    let field_of_namespace = "spec.virtualMachineBackupNamespace";
    let (group, resource) = (HARVESTER, BACKUPS);
    Reference { field: field_of_namespace, group, resource, namespace, name }.authorize(write)?;
    let Some(backup) = write.objects.get(HARVESTER, BACKUPS, namespace, name) else {
        let message = format!("can't get vmbackup {namespace}/{name}");
        return Err(Refusal::invalid(field, message));
    };
    if backup["metadata"]["deletionTimestamp"].is_string() {
        let message = format!("vmbackup {namespace}/{name} is deleted");
        return Err(Refusal::invalid(field, message));
    }
    if backup["status"]["readyToUse"] != true {
        let message = format!("VMBackup {namespace}/{name} is not ready");
        return Err(Refusal::invalid(field, message));
    }
    if kind(&backup) != "snapshot" {
        return Ok(());
    }
    if namespace != write.namespace {
        return Err(Refusal::invalid(
            field_of_namespace,
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

fn validate_target(write: &Write<'_>, restore: &Value, target: &str) -> AdmissionResult {
    let field = "spec.target.name";
    let machine = write.objects.get("kubevirt.io", "virtualmachines", write.namespace, target);
    match (restore["spec"]["newVM"] == true, machine) {
        (true, Some(_)) => {
            return Err(Refusal::invalid(field, format!("VM {target} is already exists")));
        }
        (false, None) => {
            return Err(Refusal::invalid(field, format!("can't replace nonexistent vm {target}")));
        }
        (false, Some(vm)) if vm["status"]["ready"] == true => {
            let message = format!("Please stop the VM \"{target}\" before doing a restore");
            return Err(Refusal::invalid(field, message));
        }
        _ => {}
    }
    let all = write.objects.list(HARVESTER, RESTORES, write.namespace);
    let same = |own: &&Value| text(own, "/spec/target/name") == target && is_under_way(own);
    match all.iter().find(same) {
        Some(own) => {
            let name = text(own, "/metadata/name");
            Err(Refusal::invalid(field, format!("vmrestore {name} of VM {target} is in progress")))
        }
        None => Ok(()),
    }
}

/// Schedules: readable, not too close to each other, one for each machine, with which it stays.
pub(super) fn validate_schedule(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let backup = &object["spec"]["vmbackup"];
    if write.old.is_some_and(|old| old["spec"]["vmbackup"] != *backup) {
        return Err(Refusal::invalid("spec.vmbackup", "source vm can't be changed"));
    }
    let count = |field: &str| object["spec"][field].as_i64();
    if let (Some(failures), Some(kept)) = (count("maxFailure"), count("retain"))
        && failures >= kept
    {
        let message = "max failure should be less than retain";
        return Err(Refusal::invalid("spec.maxFailure", message));
    }
    let Ok(schedule) = Schedule::parse(text(object, "/spec/cron")) else {
        return Err(Refusal::invalid("spec.cron", "invalid cron format"));
    };
    // A stored value does not prevent other changes.
    let is_new = write.old.is_none_or(|old| old["spec"]["cron"] != object["spec"]["cron"]);
    let skipped = object.pointer("/metadata/annotations").and_then(|all| all.get(SKIP_CRON_CHECK));
    if is_new && skipped.and_then(Value::as_str).unwrap_or_default().is_empty() {
        validate_pace(write, &schedule)?;
    }
    if write.old.is_none() {
        validate_only_schedule(write, backup)?;
    }
    let runs = |schedule: &Value| schedule["spec"]["suspend"] != true;
    let resumed = write.old.is_some_and(|old| !runs(old)) && runs(object);
    let needs_target = text(backup, "/type") != "snapshot";
    if needs_target && (write.old.is_none() || resumed) && !has_target(write) {
        return Err(Refusal::invalid("spec.suspend", "setting backup-target is not set"));
    }
    Ok(())
}

/// Each run reads all disks of a machine: runs are not too frequent, and not all at once.
fn validate_pace(write: &Write<'_>, schedule: &Schedule) -> AdmissionResult {
    let Some(period) = schedule.granularity() else { return Ok(()) };
    if period < SHORTEST_PERIOD {
        let (minutes, seconds) = (period.as_secs() / 60, period.as_secs() % 60);
        let period = match minutes {
            0 => format!("{seconds}s"),
            _ => format!("{minutes}m{seconds}s"),
        };
        let message = format!("schedule granularity {period} less than 1h0m0s");
        return Err(Refusal::invalid("spec.cron", message));
    }
    let all = write.objects.list(HARVESTER, SCHEDULES, "");
    let close = all.iter().find(|other| {
        let is_itself = text(other, "/metadata/name") == write.name
            && text(other, "/metadata/namespace") == write.namespace;
        let cron = Schedule::parse(text(other, "/spec/cron"));
        !is_itself
            && cron.is_ok_and(|other| {
                other.granularity() == Some(period)
                    && other.offset(schedule, period).is_some_and(|apart| apart < SHORTEST_OFFSET)
            })
    });
    let Some(close) = close else { return Ok(()) };
    // Names in other namespaces are not told to those who may not see them.
    let name = match text(close, "/metadata/namespace") {
        own if own == write.namespace => text(close, "/metadata/name"),
        _ => "of another namespace",
    };
    let message = format!("same granularity as schedule {name} and offset less than 10m0s");
    Err(Refusal::invalid("spec.cron", message))
}

fn validate_only_schedule(write: &Write<'_>, backup: &Value) -> AdmissionResult {
    let source = text(backup, "/source/name");
    let all = write.objects.list(HARVESTER, SCHEDULES, write.namespace);
    let other = all.iter().find(|other| {
        text(other, "/metadata/name") != write.name
            && text(other, "/spec/vmbackup/source/name") == source
    });
    let Some(other) = other else { return Ok(()) };
    let kind = text(other, "/spec/vmbackup/type");
    let message = format!("VM {}/{source} already has {kind} schedule", write.namespace);
    Err(Refusal::invalid("spec.vmbackup", message))
}
