//! Backups of machines, their schedules, and restores.

mod restore;
mod schedule;
mod volume;

use serde_json::Value;

use super::{AdmissionResult, HARVESTER, Refusal, Write, snapshot_quota, text};

pub(super) use restore::validate as validate_restore;
pub(super) use schedule::validate as validate_schedule;
pub(super) use volume::provisioner;

const RESTORES: &str = "virtualmachinerestores";
const BACKUPS: &str = "virtualmachinebackups";
const SCHEDULES: &str = "schedulevmbackups";
const SOURCE: &str = "spec.source.name";

/// On a backup of a schedule: `NAMESPACE/NAME` of the schedule.
const SCHEDULE_ID: &str = "harvesterhci.io/svmbackupId";

/// Refuses a name that is taken: backups and snapshots are one kind, so the refusal by the store
/// would not say which of them has the name. Controllers know that refusal.
pub(super) fn complete(write: &Write<'_>, object: &Value) -> AdmissionResult {
    let (name, new) = (write.name, kind(object));
    if write.trusted || write.old.is_some() || name.is_empty() {
        return Ok(());
    }
    let Some(other) = write.objects.get(HARVESTER, BACKUPS, write.namespace, name) else {
        return Ok(());
    };
    let message = match kind(&other) {
        own if own == new => format!("{new} {name:?} already exists"),
        own => {
            format!("name {name:?} is already used by a {own} (backup and snapshot share names)")
        }
    };
    Err(Refusal::new(400, "", message))
}

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
        return Err(Refusal::invalid(SOURCE, "source VM name is empty"));
    }
    let machine = write.objects.get("kubevirt.io", "virtualmachines", write.namespace, source);
    let Some(machine) = machine else {
        let message = format!("virtualmachines.kubevirt.io \"{source}\" not found");
        return Err(Refusal::invalid(SOURCE, message));
    };
    validate_machine(write, &machine, source)?;
    snapshot_quota::check_machine(write, source)?;
    volume::validate(write, &machine, kind(backup))?;
    if kind(backup) != "snapshot" && !has_target(write) {
        return Err(Refusal::invalid("spec.type", "backup target is not set"));
    }
    Ok(())
}

/// A machine that moves, or whose disk others write to, has no state to keep.
fn validate_machine(write: &Write<'_>, machine: &Value, name: &str) -> AdmissionResult {
    let id = format!("{}/{name}", write.namespace);
    let plural = "virtualmachineinstancemigrations";
    let migrations = write.objects.list("kubevirt.io", plural, write.namespace);
    let moves = |own: &Value| {
        let phase = text(own, "/status/phase");
        let waits = matches!(phase, "" | "Pending" | "Succeeded" | "Failed");
        text(own, "/spec/vmiName") == name && !waits
    };
    if migrations.iter().any(moves) {
        return Err(Refusal::invalid(SOURCE, format!("vm {id} is in migration")));
    }
    let disks = machine.pointer("/spec/template/spec/domain/devices/disks");
    let mut disks = disks.and_then(Value::as_array).into_iter().flatten();
    match disks.find(|disk| disk["shareable"] == true) {
        Some(disk) => {
            let message = format!(
                "cannot back up VM {id}: disk {} is shareable and may be written by multiple VMs concurrently",
                text(disk, "/name")
            );
            Err(Refusal::invalid(SOURCE, message))
        }
        None => Ok(()),
    }
}

fn has_target(write: &Write<'_>) -> bool {
    let target = target_value(write);
    !text(&target, "/endpoint").is_empty() || !text(&target, "/bucketName").is_empty()
}

/// The value of the setting `backup-target`.
fn target_value(write: &Write<'_>) -> Value {
    let setting = write.objects.get(HARVESTER, "settings", "", "backup-target");
    let value = setting.map(|own| text(&own, "/value").to_owned()).unwrap_or_default();
    serde_json::from_str(&value).unwrap_or_default()
}

fn validate_removal(write: &Write<'_>) -> AdmissionResult {
    let all = write.objects.list(HARVESTER, RESTORES, write.namespace);
    let uses = |own: &&Value| {
        text(own, "/spec/virtualMachineBackupName") == write.name && restore::is_under_way(own)
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

#[cfg(test)]
mod tests;
