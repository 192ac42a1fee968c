//! Which claims a restore makes of a snapshot, and when its target may be replaced: pure.

mod machine;
mod status;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use types::Quantity;

pub(super) use self::machine::{machine, machine_patch};
pub(super) use self::status::{begun, complete, failed, waiting};
use crate::condition;
use crate::object::{
    annotation, controlled_by, controller, is_true, list, name, namespace, quantity, text, uid,
};

/// The restore that made a machine what it is.
const RESTORED_BY: &str = "restore.kubevirt.io/lastRestoreUID";
/// How long the target may take to stop where nothing else is said.
const GRACE: SignedDuration = SignedDuration::from_mins(5);

/// A disk that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restored {
    pub(super) volume: String,
    /// The claim that is made for it.
    pub(super) claim: String,
    /// The one that was captured.
    pub(super) former: String,
    pub(super) snapshot: String,
}

pub(super) fn is_over(restore: &Value) -> bool {
    is_true(restore, "/status/complete") || condition::is(restore, "Failure", "True")
}

/// Disks as the restore wrote them down, or as it will.
pub(super) fn disks(restore: &Value, content: &Value) -> Vec<Restored> {
    let override_of = |volume: &str| {
        let all = list(restore, "/spec/volumeRestoreOverrides").iter();
        let own = all.into_iter().find(|own| text(own, "/volumeName") == volume);
        own.map(|own| text(own, "/restoreName")).filter(|name| !name.is_empty())
    };
    list(content, "/spec/volumeBackups")
        .iter()
        .filter(|own| !text(own, "/volumeSnapshotName").is_empty())
        .map(|own| {
            let volume = text(own, "/volumeName");
            let claim = match override_of(volume) {
                Some(name) => name.to_owned(),
                None if text(restore, "/spec/volumeRestorePolicy") == "PrefixTargetName" => {
                    format!("{}-{volume}", text(restore, "/spec/target/name"))
                }
                None => format!("restore-{}-{volume}", uid(restore)),
            };
            Restored {
                volume: volume.to_owned(),
                claim,
                former: text(own, "/persistentVolumeClaim/metadata/name").to_owned(),
                snapshot: text(own, "/volumeSnapshotName").to_owned(),
            }
        })
        .collect()
}

/// Whether the target may be replaced now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetReadiness {
    Yes,
    Stop,
    Wait,
    Fail,
}

pub(super) fn readiness(restore: &Value, runs: bool, now: Timestamp) -> TargetReadiness {
    if !runs {
        return TargetReadiness::Yes;
    }
    let began = text(restore, "/metadata/creationTimestamp").parse::<Timestamp>();
    let late = began.is_ok_and(|began| now.duration_since(began) > GRACE);
    match text(restore, "/spec/targetReadinessPolicy") {
        "StopTarget" => TargetReadiness::Stop,
        "FailImmediate" => TargetReadiness::Fail,
        "WaitEventually" => TargetReadiness::Wait,
        _ if late => TargetReadiness::Fail,
        _ => TargetReadiness::Wait,
    }
}

/// A claim like the one that was captured, with what it held then.
pub(super) fn claim(
    restore: &Value,
    content: &Value,
    disk: &Restored,
    taken: Option<&Value>,
) -> Value {
    let backups = list(content, "/spec/volumeBackups").iter();
    let backup = backups.into_iter().find(|own| text(own, "/volumeName") == disk.volume);
    let former = backup.map_or(Value::Null, |own| own["persistentVolumeClaim"].clone());
    let asked = quantity(&former, "/spec/resources/requests/storage");
    let held = taken.and_then(|own| quantity(own, "/status/restoreSize"));
    let size: Option<Quantity> = asked.max(held);
    let mut spec = json!({
        "accessModes": former["spec"]["accessModes"],
        "resources": {"requests": {"storage": size.map(|own| own.to_string())}},
        "dataSource": {"apiGroup": hci::snapshot::GROUP, "kind": "VolumeSnapshot",
            "name": disk.snapshot},
    });
    for field in ["storageClassName", "volumeMode"] {
        if let Some(own) = former["spec"].get(field) {
            spec[field] = own.clone();
        }
    }
    let mut metadata = json!({
        "name": disk.claim, "namespace": namespace(restore),
        "annotations": {"restore.kubevirt.io/name": name(restore)},
    });
    if let Some(labels) = former["metadata"].get("labels").filter(|own| own.is_object()) {
        metadata["labels"] = labels.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": spec})
}

/// Bound, or sure to be once it is used.
pub(super) fn is_usable(claim: &Value) -> bool {
    text(claim, "/status/phase") == "Bound"
}

pub(super) fn is_restored(vm: &Value, restore: &Value) -> bool {
    annotation(vm, RESTORED_BY) == Some(uid(restore))
}

/// The reason of a restore that waits because its target is another machine.
pub(super) const FOREIGN: &str =
    "restore source and restore target are different but restore target already exists";

/// Whether the target exists and is another machine than the captured one; such a machine is never
/// replaced. A machine that this restore has created is its own; the target of a restore for a
/// clone or for a backup was checked by that.
pub(super) fn is_foreign(vm: &Value, snapshot: &Value, restore: &Value) -> bool {
    let judged = controller(restore).is_some_and(|own| text(own, "/kind") != "VirtualMachine");
    let source = text(snapshot, "/status/sourceUID");
    !judged && !source.is_empty() && source != uid(vm) && !is_restored(vm, restore)
}

/// The patch that makes the machine the owner of a restore without a controller.
pub(super) fn adoption(restore: &Value, vm: &Value) -> Option<Value> {
    controller(restore).is_none().then(|| {
        let mut owners = list(restore, "/metadata/ownerReferences").to_vec();
        owners.push(controlled_by(vm, "kubevirt.io/v1", "VirtualMachine"));
        json!({"metadata": {"ownerReferences": owners}})
    })
}

/// Data volumes of the target's templates whose disks are replaced.
pub(super) fn former_data_volumes(vm: Option<&Value>, disks: &[Restored]) -> Vec<String> {
    let templates = vm.map_or(&[][..], |vm| list(vm, "/spec/dataVolumeTemplates")).iter();
    let replaced = |own: &&Value| disks.iter().any(|disk| disk.former == name(own));
    templates.filter(replaced).map(|own| name(own).to_owned()).collect()
}

/// New claims go with their machine, unless the restore says otherwise.
pub(super) fn ownership(restore: &Value, machine: &Value) -> Option<Value> {
    if text(restore, "/spec/volumeOwnershipPolicy") == "None" {
        return None;
    }
    let owner = controlled_by(machine, "kubevirt.io/v1", "VirtualMachine");
    Some(json!({"metadata": {"ownerReferences": [owner]}}))
}

#[cfg(test)]
mod tests;
