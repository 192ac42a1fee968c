//! Schedules of backups and snapshots.

use std::time::Duration;

use serde_json::Value;

use super::{SCHEDULES, has_target};
use crate::admit::{AdmissionResult, HARVESTER, Refusal, Write, text};
use crate::schedule::Schedule;

/// On a schedule, with any value: it may run as often as it likes.
const SKIP_CRON_CHECK: &str = "harvesterhci.io/svmbackupSkipCronCheck";
const SHORTEST_PERIOD: Duration = Duration::from_secs(60 * 60);
const SHORTEST_OFFSET: Duration = Duration::from_secs(10 * 60);

/// Schedules: readable, not too close to each other, one for each machine, with which it stays.
pub(in crate::admit) fn validate(write: &Write<'_>) -> AdmissionResult {
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
    // Names in other namespaces are not shown to users who may not read them.
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
