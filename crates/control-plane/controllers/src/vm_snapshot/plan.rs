//! The content and the status of a machine's snapshot: pure.

use base::clock;
use hci::together::{Quiesce, SnapshotGroup, TOGETHER};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::indication::{self, DiskCoverage};
use super::source::FoundClaim;
use crate::condition::{self, Condition};
use crate::longhorn::handle;
use crate::object::{
    annotation, controlled_by, controller, is_true, list, name, namespace, text, uid,
};
use crate::vmi::any_claim_name;

pub(super) const FINALIZER: &str = "snapshot.kubevirt.io/vmsnapshot-protection";
/// How long a snapshot may take where nothing is said.
const DEADLINE: SignedDuration = SignedDuration::from_mins(5);

/// A disk of a machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SnapshotDisk {
    pub(super) volume: String,
    /// Its claim, if that can be captured.
    pub(super) claim: Option<Value>,
}

/// The volumes of a machine that are claims: both names.
pub(super) fn claims(vm: &Value) -> Vec<(&str, &str)> {
    let volumes = list(vm, "/spec/template/spec/volumes").iter();
    volumes
        .filter(|own| own.get("ephemeral").is_none())
        .filter_map(|own| Some((text(own, "/name"), any_claim_name(own)?)))
        .collect()
}

pub(super) fn disk(found: FoundClaim) -> SnapshotDisk {
    let able = found.behind.as_ref().and_then(handle).is_some();
    SnapshotDisk { volume: found.volume, claim: found.claim.filter(|_| able) }
}

/// The group that captures the disks of a running machine at one instant. Those of a stopped
/// machine are not written to, and a single disk is always consistent: but its guest is asked to
/// flush.
fn together(
    snapshot: &Value,
    vm: &Value,
    vmi: Option<&Value>,
    count: usize,
) -> Option<SnapshotGroup> {
    vmi.filter(|own| is_online(own))?;
    Some(SnapshotGroup {
        instant: uid(snapshot).to_owned(),
        count,
        namespace: namespace(vm).to_owned(),
        machine: name(vm).to_owned(),
        memory: is_true(snapshot, "/spec/memory"),
    })
}

fn is_online(vmi: &Value) -> bool {
    text(vmi, "/status/phase") == "Running"
}

pub(super) fn content_name(snapshot: &Value) -> String {
    match text(snapshot, "/status/virtualMachineSnapshotContentName") {
        "" => format!("vmsnapshot-content-{}", uid(snapshot)),
        name => name.to_owned(),
    }
}

pub(super) fn content(
    snapshot: &Value,
    vm: &Value,
    vmi: Option<&Value>,
    disks: &[SnapshotDisk],
) -> Value {
    let mut machine = vm.clone();
    for field in ["resourceVersion", "managedFields", "generation"] {
        if let Some(meta) = machine["metadata"].as_object_mut() {
            meta.remove(field);
        }
    }
    let machine = json!({
        "metadata": machine["metadata"], "spec": machine["spec"], "status": vm["status"],
    });
    let backups: Vec<Value> = disks
        .iter()
        .filter_map(|disk| {
            let claim = disk.claim.as_ref()?;
            let meta = json!({
                "name": name(claim), "namespace": namespace(claim), "uid": uid(claim),
                "labels": claim["metadata"].get("labels").cloned().unwrap_or(json!({})),
                "annotations": claim["metadata"].get("annotations").cloned().unwrap_or(json!({})),
            });
            Some(json!({
                "volumeName": disk.volume,
                "persistentVolumeClaim": {"metadata": meta, "spec": claim["spec"]},
                "volumeSnapshotName": format!("vmsnapshot-{}-volume-{}", uid(snapshot), disk.volume),
            }))
        })
        .collect();
    let mut metadata = json!({"name": content_name(snapshot), "namespace": namespace(snapshot)});
    if text(snapshot, "/spec/deletionPolicy") != "Retain" {
        let owner =
            controlled_by(snapshot, "snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot");
        metadata["ownerReferences"] = json!([owner]);
    }
    if let Some(together) = together(snapshot, vm, vmi, backups.len()) {
        metadata["annotations"] = json!({TOGETHER: together.to_text()});
    }
    json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshotContent",
        "metadata": metadata,
        "spec": {
            "virtualMachineSnapshotName": name(snapshot),
            "source": {"virtualMachine": machine}, "volumeBackups": backups,
        },
    })
}

pub(super) fn snapshot_names(content: &Value) -> Vec<&str> {
    let backups = list(content, "/spec/volumeBackups").iter();
    backups.map(|own| text(own, "/volumeSnapshotName")).collect()
}

/// The snapshots of disks that a content asks for, of the driver's class for snapshots.
pub(super) fn snapshots(content: &Value, classes: &[Value]) -> Vec<Value> {
    let suits = |class: &&Value| {
        text(class, "/driver") == hci::DRIVER && text(class, "/parameters/type") == "snap"
    };
    let class = classes.iter().find(suits).map_or("longhorn-snapshot", name);
    let owner =
        controlled_by(content, "snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshotContent");
    list(content, "/spec/volumeBackups")
        .iter()
        .map(|own| {
            let mut metadata = json!({
                "name": text(own, "/volumeSnapshotName"), "namespace": namespace(content),
                "ownerReferences": [owner],
            });
            if let Some(together) = annotation(content, TOGETHER) {
                metadata["annotations"] = json!({TOGETHER: together});
            }
            json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": metadata,
                "spec": {
                    "volumeSnapshotClassName": class,
                    "source": {"persistentVolumeClaimName":
                        text(own, "/persistentVolumeClaim/metadata/name")},
                },
            })
        })
        .collect()
}

/// How far the disks are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DiskProgress {
    Waiting,
    Failed(String),
    /// All are captured.
    Taken {
        ready: bool,
    },
}

pub(super) fn progress(taken: &[Value]) -> DiskProgress {
    let failed = taken.iter().find(|own| !text(own, "/status/error/message").is_empty());
    if let Some(own) = failed {
        let why = text(own, "/status/error/message");
        return DiskProgress::Failed(format!("VolumeSnapshot {}: {why}", name(own)));
    }
    if !taken.iter().all(|own| !text(own, "/status/creationTime").is_empty()) {
        return DiskProgress::Waiting;
    }
    DiskProgress::Taken { ready: taken.iter().all(|own| is_true(own, "/status/readyToUse")) }
}

/// Whether the snapshot represents a backup that is restored: nothing is captured for it.
pub(super) fn is_prepared(snapshot: &Value) -> bool {
    controller(snapshot).is_some_and(|owner| {
        text(owner, "/kind") == "VirtualMachineRestore"
            && text(owner, "/apiVersion").starts_with("harvesterhci.io/")
    })
}

pub(super) fn is_over(snapshot: &Value) -> bool {
    matches!(text(snapshot, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a snapshot has taken longer than it may; `0` is for ever.
pub(super) fn is_late(snapshot: &Value, now: Timestamp) -> bool {
    let limit = match text(snapshot, "/spec/failureDeadline") {
        "" => DEADLINE,
        deadline => match deadline.parse::<SignedDuration>() {
            Ok(limit) if limit.is_zero() => return false,
            Ok(limit) => limit,
            Err(_) => DEADLINE,
        },
    };
    let began = text(snapshot, "/metadata/creationTimestamp").parse::<Timestamp>();
    began.is_ok_and(|began| now.duration_since(began) > limit)
}

fn with_conditions(snapshot: &Value, wanted: &[Condition], now: Timestamp) -> Vec<Value> {
    let mut conditions = condition::of(snapshot);
    for own in wanted {
        condition::set(&mut conditions, own, now);
    }
    conditions
}

pub(super) fn waiting(snapshot: &Value, why: &str, now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because(why, why),
        Condition::new("Ready", "False").because("Not ready", "Not ready"),
    ];
    json!({"status": {
        "phase": "InProgress", "readyToUse": false,
        "conditions": with_conditions(snapshot, &conditions, now),
    }})
}

pub(super) fn begun(
    snapshot: &Value,
    vm: &Value,
    vmi: Option<&Value>,
    disks: &[SnapshotDisk],
    now: Timestamp,
) -> Value {
    let names = |included: bool| -> Vec<&str> {
        let own = disks.iter().filter(|disk| disk.claim.is_some() == included);
        own.map(|disk| disk.volume.as_str()).collect()
    };
    let kept = DiskCoverage { captured: names(true).len(), left_out: names(false).len() };
    let indications = indication::at_start(vmi.filter(|own| is_online(own)), kept);
    let conditions = [
        Condition::new("Progressing", "True").because(
            "Source locked and operation in progress",
            "Source locked and operation in progress",
        ),
        Condition::new("Ready", "False").because("Not ready", "Not ready"),
    ];
    json!({"status": {
        "phase": "InProgress", "readyToUse": false, "sourceUID": uid(vm),
        "virtualMachineSnapshotContentName": content_name(snapshot),
        "indications": indications,
        "snapshotVolumes": {"includedVolumes": names(true), "excludedVolumes": names(false)},
        "conditions": with_conditions(snapshot, &conditions, now),
    }})
}

pub(super) fn faulty(snapshot: &Value, why: &str, now: Timestamp) -> Value {
    let mut error = json!({"message": why});
    if text(snapshot, "/status/error/message") != why {
        error["time"] = json!(clock::rfc3339(now));
    }
    let conditions = [
        Condition::new("Progressing", "False").because("In error state", why),
        Condition::new("Ready", "False").because("Not ready", "Not ready"),
    ];
    json!({"status": {"error": error, "conditions": with_conditions(snapshot, &conditions, now)}})
}

pub(super) fn failed(snapshot: &Value, why: &str, now: Timestamp) -> Value {
    let conditions = [
        Condition::new("Progressing", "False").because("Operation failed", why),
        Condition::new("Ready", "False").because("Not ready", "Not ready"),
        Condition::new("Failure", "True").because(why, why),
    ];
    json!({"status": {
        "phase": "Failed", "readyToUse": false,
        "conditions": with_conditions(snapshot, &conditions, now),
    }})
}

/// The instant is that of the last disk.
fn instant(taken: &[Value], now: Timestamp) -> String {
    let times = taken.iter().map(|own| text(own, "/status/creationTime"));
    times.max().map_or_else(|| clock::rfc3339(now), str::to_owned)
}

pub(super) fn content_status(taken: &[Value], ready: bool, now: Timestamp) -> Value {
    let disks: Vec<Value> = taken
        .iter()
        .map(|own| {
            json!({
                "volumeSnapshotName": name(own),
                "creationTime": text(own, "/status/creationTime"),
                "readyToUse": is_true(own, "/status/readyToUse"),
            })
        })
        .collect();
    json!({"status": {
        "creationTime": instant(taken, now), "readyToUse": ready, "volumeSnapshotStatus": disks,
    }})
}

pub(super) fn succeeded(
    snapshot: &Value,
    taken: &[Value],
    quiesce: Option<Quiesce>,
    now: Timestamp,
) -> Value {
    let indications = indication::of(snapshot, quiesce);
    let explained = indication::explained(&indications);
    let conditions = [
        Condition::new("Progressing", "False").because("Operation complete", "Operation complete"),
        Condition::new("Ready", "True").because("Ready", "Ready"),
    ];
    json!({"status": {
        "phase": "Succeeded", "readyToUse": true, "creationTime": instant(taken, now),
        "error": null, "indications": indications, "sourceIndications": explained,
        "conditions": with_conditions(snapshot, &conditions, now),
    }})
}

#[cfg(test)]
mod tests;
