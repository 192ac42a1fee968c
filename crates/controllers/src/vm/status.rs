//! What `status` of a virtual machine says: pure.

use base::clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::decision::{self, is_over, strategy};
use super::instance::GENERATION;
use super::printable;
use crate::condition::{self, Condition};
use crate::object::{annotation, generation, int, list, text, uid};
use crate::vmi::any_claim_name;

/// First and longest delay after a start that failed.
const FIRST: i64 = 10;
const LONGEST: i64 = 300;
/// Conditions that are the machine's own and not its instance's.
const OWN: [&str; 4] = ["Ready", "Failure", "RestartRequired", "ManualRecoveryRequired"];

/// What stands behind the volumes of a machine.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    pub(crate) data_volumes: Vec<Value>,
    pub(crate) claims: Vec<Value>,
}

/// What was found out on the way.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Reason and text of what did not work.
    pub(crate) failure: Option<(&'static str, String)>,
    pub(crate) restart: Restart,
    /// References to instancetype and preference as they are recorded.
    pub(crate) references: Map<String, Value>,
    /// Asks for a start after the instance is gone.
    pub(crate) asks_to_start: bool,
}

/// Whether the running guest differs from what is meant.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Restart {
    #[default]
    Unknown,
    NotNeeded,
    Needed(String),
}

/// The status of the machine: fields that are absent have to go.
pub(crate) fn status(
    vm: &Value,
    vmi: Option<&Value>,
    disks: &Disks,
    findings: &Findings,
    now: Timestamp,
) -> Value {
    let mut status = Map::new();
    status.extend(findings.references.clone());
    status.insert("created".into(), json!(vmi.is_some()));
    status
        .insert("ready".into(), json!(vmi.is_some_and(|vmi| condition::is(vmi, "Ready", "True"))));
    let seen = vmi.and_then(|vmi| annotation(vmi, GENERATION)).and_then(|own| own.parse().ok());
    if let Some(seen) = seen {
        let seen: i64 = seen;
        status.insert("observedGeneration".into(), json!(seen));
        status.insert("desiredGeneration".into(), json!(generation(vm)));
    }
    // Known only from the first start on, which is how a first start is told from a later.
    if vmi.is_some() || !text(vm, "/status/runStrategy").is_empty() {
        status.insert("runStrategy".into(), json!(strategy(vm)));
    }
    status.insert("stateChangeRequests".into(), requests(vm, vmi, findings.asks_to_start));
    status.insert("startFailure".into(), start_failure(vm, vmi, now));
    status.insert("conditions".into(), json!(conditions(vm, vmi, findings, now)));
    status.insert("volumeSnapshotStatuses".into(), json!(snapshot_statuses(vm, disks)));
    let mut known = vm.clone();
    for (field, value) in &status {
        known["status"][field] = value.clone();
    }
    let printable = printable::printable_status(&known, vmi, disks);
    status.insert("printableStatus".into(), json!(printable));
    json!({"status": status})
}

fn requests(vm: &Value, vmi: Option<&Value>, asks_to_start: bool) -> Value {
    let mut requests = list(vm, "/status/stateChangeRequests").to_vec();
    if decision::is_first_request_met(vm, vmi) {
        requests.remove(0);
    }
    if asks_to_start && !requests.iter().any(|own| text(own, "/action") == "Start") {
        requests.push(json!({"action": "Start"}));
    }
    if requests.is_empty() { Value::Null } else { json!(requests) }
}

/// Counts instances that ended before they ever ran.
fn start_failure(vm: &Value, vmi: Option<&Value>, now: Timestamp) -> Value {
    let known = vm.pointer("/status/startFailure").cloned().unwrap_or_default();
    let has_run = |vmi: &Value| {
        let times = list(vmi, "/status/phaseTransitionTimestamps");
        times.iter().any(|own| text(own, "/phase") == "Running")
    };
    let retries = matches!(strategy(vm), "Always" | "RerunOnFailure" | "Once");
    match vmi {
        _ if !retries => Value::Null,
        Some(vmi) if has_run(vmi) => Value::Null,
        Some(vmi) if is_over(vmi) && text(&known, "/lastFailedVMIUID") != uid(vmi) => {
            let count = int(&known, "/consecutiveFailCount").unwrap_or_default() + 1;
            let delay = SignedDuration::from_secs(back_off(count, uid(vmi)));
            let after = now.checked_add(delay).unwrap_or(now);
            json!({"consecutiveFailCount": count, "lastFailedVMIUID": uid(vmi),
                "retryAfterTimestamp": clock::rfc3339(after)})
        }
        _ => known,
    }
}

/// Seconds to wait after so many failures. Up to half as much again keeps machines that fail
/// together apart; it follows from the uid, which is random enough.
fn back_off(count: i64, uid: &str) -> i64 {
    let delay = FIRST.saturating_mul(count.saturating_mul(count)).min(LONGEST);
    let spread = uid.bytes().fold(7_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 65_521);
    (delay + spread % (delay / 2 + 1)).min(LONGEST)
}

fn conditions(vm: &Value, vmi: Option<&Value>, findings: &Findings, now: Timestamp) -> Vec<Value> {
    let mut conditions = condition::of(vm);
    let theirs = vmi.map_or(&[][..], |vmi| list(vmi, "/status/conditions"));
    match (vmi, condition::find(theirs, "Ready")) {
        (_, Some(ready)) => copy(&mut conditions, ready),
        (None, _) => {
            let ready = Condition::new("Ready", "False");
            let ready = ready.because("VMINotExists", "VMI does not exist");
            condition::set(&mut conditions, &ready, now);
        }
        (Some(_), None) => {
            let ready = Condition::new("Ready", "False");
            let text = "VMI is missing the Ready condition";
            condition::set(&mut conditions, &ready.because("VMIConditionMissing", text), now);
        }
    }
    match &findings.failure {
        Some((reason, message)) => {
            let failure = Condition::new("Failure", "True").because(reason, &**message);
            condition::set(&mut conditions, &failure, now);
        }
        None => condition::remove(&mut conditions, "Failure"),
    }
    match &findings.restart {
        Restart::Needed(message) => {
            let needed = Condition::new("RestartRequired", "True").because("", &**message);
            condition::set(&mut conditions, &needed, now);
        }
        Restart::NotNeeded => condition::remove(&mut conditions, "RestartRequired"),
        Restart::Unknown => {}
    }
    conditions.retain(|own| {
        let kind = text(own, "/type");
        OWN.contains(&kind) || condition::find(theirs, kind).is_some()
    });
    for theirs in theirs.iter().filter(|own| !OWN.contains(&text(own, "/type"))) {
        copy(&mut conditions, theirs);
    }
    conditions
}

fn copy(conditions: &mut Vec<Value>, theirs: &Value) {
    let kind = text(theirs, "/type");
    match conditions.iter_mut().find(|own| text(own, "/type") == kind) {
        Some(own) => *own = theirs.clone(),
        None => conditions.push(theirs.clone()),
    }
}

/// Whether each volume could be part of a snapshot. Nothing takes snapshots yet.
fn snapshot_statuses(vm: &Value, disks: &Disks) -> Vec<Value> {
    let volumes = list(vm, "/spec/template/spec/volumes");
    let judge = |volume: &Value| {
        let name = text(volume, "/name");
        let persistent = ["persistentVolumeClaim", "dataVolume", "memoryDump"];
        let claim = any_claim_name(volume)
            .filter(|_| persistent.iter().any(|source| volume.get(source).is_some()));
        let reason = match claim {
            None => format!("Snapshot is not supported for this volumeSource type [{name}]"),
            Some(claim) => {
                match disks.claims.iter().find(|own| crate::object::name(own) == claim) {
                    Some(claim) => format!(
                        "No VolumeSnapshotClass: Volume snapshots are not configured for this \
                     StorageClass [{}] [{name}]",
                        text(claim, "/spec/storageClassName")
                    ),
                    None => "PVC not found".to_owned(),
                }
            }
        };
        json!({"name": name, "enabled": false, "reason": reason})
    };
    volumes.iter().map(judge).collect()
}

#[cfg(test)]
mod tests;
