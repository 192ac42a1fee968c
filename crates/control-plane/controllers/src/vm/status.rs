//! The `status` of a virtual machine: pure.

use std::collections::BTreeSet;

use base::clock;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use virt::condition::{self, FailureCondition, of_machine};
use virt::printable_status::{StatusInput, printable_status};
use virt::reason::MachineFailure;
use virt::run_strategy::{RunSituation, is_request_done, start_failure};

use super::instance::GENERATION;
use super::volume_update::{self, Recovery};
use crate::object::{annotation, generation, list, name, text, uid};
use crate::vmi::any_claim_name;

/// The claims and data volumes behind the volumes of a machine.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    pub(crate) data_volumes: Vec<Value>,
    pub(crate) claims: Vec<Value>,
    /// Names of the classes of these claims whose volumes can be in a snapshot.
    pub(crate) snapshottable: BTreeSet<String>,
}

/// Where a claim names its class.
pub(super) const CLASS: &str = "/spec/storageClassName";

/// The results of earlier steps.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Reason and text of what did not work.
    pub(crate) failure: Option<(MachineFailure, String)>,
    pub(crate) restart: Restart,
    /// References to instancetype and preference as they are recorded.
    pub(crate) references: Map<String, Value>,
    /// Revisions that nothing refers to once these references are written.
    pub(crate) superseded: Vec<Value>,
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

/// The status of the machine: fields that are null have to go.
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
    let ready = vmi.is_some_and(|vmi| condition::is_true(vmi, "Ready"));
    status.insert("ready".into(), json!(ready));
    let seen = vmi.and_then(|vmi| annotation(vmi, GENERATION)).and_then(|own| own.parse().ok());
    if let Some::<i64>(seen) = seen {
        status.insert("observedGeneration".into(), json!(seen));
        status.insert("desiredGeneration".into(), json!(generation(vm)));
    }
    let situation = RunSituation::of(vm, vmi, now);
    // Known only from the first start on, which is how a first start is distinguished from a later.
    if vmi.is_some() || !text(vm, "/status/runStrategy").is_empty() {
        let strategy = situation.map(|own| own.strategy.as_str()).unwrap_or_default();
        status.insert("runStrategy".into(), json!(strategy));
    }
    status.insert("stateChangeRequests".into(), requests(vm, vmi, findings.asks_to_start));
    let random = vmi.map_or(0, |vmi| spread(uid(vmi)));
    status.insert("startFailure".into(), start_failure(vm, vmi, now, random));
    status.insert("conditions".into(), json!(conditions(vm, vmi, findings, now)));
    status.insert("volumeSnapshotStatuses".into(), json!(snapshot_statuses(vm, disks)));
    status.insert("volumeUpdateState".into(), volume_update::state(vm, vmi));
    let mut known = vm.clone();
    for (field, value) in &status {
        known["status"][field] = value.clone();
    }
    let printable = situation.map_or("Unknown", |situation| {
        let Disks { data_volumes, claims, .. } = disks;
        printable_status(&StatusInput {
            vm: &known,
            vmi,
            situation,
            starting: false,
            stopping: false,
            data_volumes: &referenced(vm, data_volumes),
            claims,
        })
    });
    status.insert("printableStatus".into(), json!(printable));
    json!({"status": status})
}

fn requests(vm: &Value, vmi: Option<&Value>, asks_to_start: bool) -> Value {
    let mut requests = list(vm, "/status/stateChangeRequests").to_vec();
    if is_request_done(vm, vmi) {
        requests.remove(0);
    }
    if asks_to_start && !requests.iter().any(|own| text(own, "/action") == "Start") {
        requests.push(json!({"action": "Start"}));
    }
    if requests.is_empty() { Value::Null } else { json!(requests) }
}

/// Keeps machines that fail together apart. It follows from the uid, which is random enough.
fn spread(uid: &str) -> u64 {
    uid.bytes().fold(7, |sum, byte| (sum * 31 + u64::from(byte)) % 65_521)
}

fn conditions(vm: &Value, vmi: Option<&Value>, findings: &Findings, now: Timestamp) -> Vec<Value> {
    let now = clock::rfc3339(now);
    let failure = findings.failure.as_ref();
    let failure =
        failure.map(|(reason, message)| FailureCondition { reason: reason.as_str(), message });
    let mut conditions = of_machine(vm, vmi, failure, &now);
    match &findings.restart {
        Restart::Needed(message) => {
            let needed = json!({"type": "RestartRequired", "status": "True", "message": message,
                "lastTransitionTime": now});
            condition::set(&mut conditions, needed);
        }
        Restart::NotNeeded => condition::remove(&mut conditions, "RestartRequired"),
        Restart::Unknown => {}
    }
    match volume_update::recovery(vm, vmi) {
        Recovery::Needed { reason, message } => {
            let needed = json!({"type": "ManualRecoveryRequired", "status": "True",
                "reason": reason, "message": message, "lastTransitionTime": now});
            condition::set(&mut conditions, needed);
        }
        Recovery::NotNeeded => {
            condition::remove(&mut conditions, "ManualRecoveryRequired");
            if vmi.is_none() {
                condition::remove(&mut conditions, "VolumesChange");
            }
        }
        Recovery::Unchanged => {}
    }
    steady(&mut conditions, vm);
    conditions
}

/// The time of the last probe is no change: a condition that is otherwise the same is kept.
fn steady(conditions: &mut [Value], vm: &Value) {
    for condition in conditions {
        if let Some(known) = condition::find(vm, text(condition, "/type")) {
            let mut probed = condition.clone();
            probed["lastProbeTime"] = known["lastProbeTime"].clone();
            if probed == *known
                || (probed["lastProbeTime"].is_null()
                    && without_probe(known) == without_probe(&probed))
            {
                *condition = known.clone();
            }
        }
    }
}

fn without_probe(condition: &Value) -> Value {
    let mut condition = condition.clone();
    if let Some(fields) = condition.as_object_mut() {
        fields.remove("lastProbeTime");
    }
    condition
}

/// Data volumes that the machine refers to as such.
fn referenced(vm: &Value, data_volumes: &[Value]) -> Vec<Value> {
    let volumes = list(vm, "/spec/template/spec/volumes");
    let named =
        |own: &&Value| volumes.iter().any(|volume| text(volume, "/dataVolume/name") == name(own));
    data_volumes.iter().filter(named).cloned().collect()
}

/// Whether each volume could be part of a snapshot.
fn snapshot_statuses(vm: &Value, disks: &Disks) -> Vec<Value> {
    let volumes = list(vm, "/spec/template/spec/volumes");
    let judge = |volume: &Value| {
        let name = text(volume, "/name");
        let persistent = ["persistentVolumeClaim", "dataVolume", "memoryDump"];
        let claim = any_claim_name(volume)
            .filter(|_| persistent.iter().any(|source| volume.get(source).is_some()));
        let found =
            |claim: &&str| disks.claims.iter().find(|own| crate::object::name(own) == *claim);
        let class = claim.as_ref().map(|claim| found(claim).map(|own| text(own, CLASS)));
        let reason = match class {
            None => format!("Snapshot is not supported for this volumeSource type [{name}]"),
            Some(None) => "PVC not found".to_owned(),
            Some(Some(class)) if disks.snapshottable.contains(class) => {
                return json!({"name": name, "enabled": true});
            }
            Some(Some(class)) => format!(
                "No VolumeSnapshotClass: Volume snapshots are not configured for this \
                 StorageClass [{class}] [{name}]"
            ),
        };
        json!({"name": name, "enabled": false, "reason": reason})
    };
    volumes.iter().map(judge).collect()
}

#[cfg(test)]
mod tests;
