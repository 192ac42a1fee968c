//! A machine's backup on the target: a snapshot of the machine, and a backup of each of its disks.
//! Pure.

use base::clock;
use hci::vm_backup_metadata::location;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{conditions, disk};
use crate::longhorn::backup::plan::{self as longhorn_backup, BackupOutcome};
use crate::object::{annotation, has_finalizer, int, is_true, list, name, text, uid};

/// Holds a backup of a machine until the backups of its disks are asked to go.
pub(crate) const FINALIZER: &str = "wrangler.cattle.io/harvester-vm-backup-controller";
/// The machine's backup that a backup of Longhorn's belongs to, by its uid. The status of a
/// machine's backup is for its users to write, so nothing is believed of it without this.
pub(crate) const BELONGS_TO: &str = "sheaf.io/vm-backup";

/// Whether nothing is left to be done.
pub(crate) fn is_over(backup: &Value) -> bool {
    is_true(backup, "/status/readyToUse") || !text(backup, "/status/error/message").is_empty()
}

pub(crate) fn is_held(backup: &Value) -> bool {
    has_finalizer(backup, FINALIZER)
}

/// Whether a backup of Longhorn's was made for this one.
pub(crate) fn belongs(longhorn: &Value, backup: &Value) -> bool {
    annotation(longhorn, BELONGS_TO) == Some(uid(backup))
}

/// The name of Longhorn's backup of a disk.
pub(crate) fn longhorn_name(backup: &Value, index: usize) -> String {
    format!("backup-{}-{index}", uid(backup).replace('-', ""))
}

/// Longhorn's backup of a disk, by the handle of the disk's snapshot: `snap://VOLUME/SNAPSHOT`.
pub(crate) fn longhorn_backup(backup: &Value, index: usize, handle: &str) -> Option<Value> {
    let (volume, snapshot) = handle.strip_prefix("snap://")?.split_once('/')?;
    let mut wanted = longhorn_backup::wanted(&longhorn_name(backup, index), snapshot, volume);
    wanted["metadata"]["annotations"] = mark(backup);
    Some(wanted)
}

/// The annotation of a backup of Longhorn's that belongs to a machine's backup.
pub(crate) fn mark(backup: &Value) -> Value {
    json!({BELONGS_TO: uid(backup)})
}

/// The disks of the machine, as the content of its snapshot lists them.
pub(crate) fn snapshots(content: &Value) -> Vec<&str> {
    let disks = list(content, "/spec/volumeBackups").iter();
    disks.map(|own| text(own, "/volumeSnapshotName")).collect()
}

fn fault(own: &Value, why: &str, now: Timestamp) -> Value {
    let mut error = json!({"message": why});
    if text(own, "/status/error/message") != why {
        error["time"] = json!(clock::rfc3339(now));
    }
    error
}

/// The status while the snapshot of the machine is taken.
pub(crate) fn waiting(backup: &Value, now: Timestamp) -> Value {
    json!({"status": {
        "readyToUse": false, "progress": 0,
        "conditions": conditions(backup, false, true, "", now),
    }})
}

/// The status while disks are uploaded, and afterwards.
pub(crate) fn status(
    backup: &Value,
    content: &Value,
    target: &Value,
    made: &[Option<Value>],
    now: Timestamp,
) -> Value {
    let machine = &content["spec"]["source"]["virtualMachine"];
    let disks: Vec<Value> = list(content, "/spec/volumeBackups")
        .iter()
        .zip(made)
        .enumerate()
        .map(|(index, (own, made))| volume(backup, own, content, index, made.as_ref(), now))
        .collect();
    let over: Vec<_> =
        made.iter().map(|own| own.as_ref().and_then(longhorn_backup::outcome)).collect();
    let failed = over.iter().find_map(|own| match own {
        Some(BackupOutcome::Failed(why)) => Some(why.clone()),
        _ => None,
    });
    let ready = failed.is_none() && over.iter().all(|own| *own == Some(BackupOutcome::Completed));
    let why = failed.unwrap_or_default();
    let going = !ready && why.is_empty();
    let sum: i64 = disks.iter().filter_map(|own| int(own, "/progress")).sum();
    let count = i64::try_from(disks.len()).unwrap_or(1).max(1);
    let mut status = json!({
        "readyToUse": ready, "progress": if ready { 100 } else { sum / count },
        "sourceUID": text(machine, "/metadata/uid"), "source":
            {"metadata": machine["metadata"], "spec": machine["spec"]},
        "volumeBackups": disks, "backupTarget": location(text(target, "/spec/backupTargetURL")),
        "csiDriverVolumeSnapshotClassNames": {hci::DRIVER: "longhorn"},
        "conditions": conditions(backup, ready, going, &why, now),
    });
    if ready && text(backup, "/status/creationTime").is_empty() {
        status["creationTime"] = json!(clock::rfc3339(now));
    }
    if !why.is_empty() {
        status["error"] = fault(backup, &why, now);
    }
    json!({"status": status})
}

fn volume(
    backup: &Value,
    own: &Value,
    content: &Value,
    index: usize,
    made: Option<&Value>,
    now: Timestamp,
) -> Value {
    let mut volume = disk(own, content);
    let done = made.is_some_and(|own| text(own, "/status/state") == "Completed");
    let progress = made.and_then(|own| int(own, "/status/progress")).unwrap_or(0);
    volume["longhornBackupName"] = json!(longhorn_name(backup, index));
    volume["readyToUse"] = json!(done);
    volume["progress"] = json!(if done { 100 } else { progress });
    if let Some(Some(BackupOutcome::Failed(why))) = made.map(longhorn_backup::outcome) {
        volume["error"] = fault(backup, &why, now);
    }
    volume
}

/// The backups of Longhorn's that a machine's backup names.
pub(crate) fn named(backup: &Value) -> Vec<String> {
    let backups = list(backup, "/status/volumeBackups").iter();
    let mut names: Vec<String> =
        backups.map(|own| text(own, "/longhornBackupName").to_owned()).collect();
    names.retain(|own| !own.is_empty());
    names
}

/// The objects that restore a backup: the machine's snapshot with its content, and a snapshot with
/// its content for each disk. Each is owned by the restore.
#[derive(Debug, PartialEq)]
pub(crate) struct PreparedRestore {
    /// The name of the machine's snapshot and of its content.
    pub(crate) name: String,
    pub(crate) vm_snapshot: Value,
    pub(crate) vm_content: Value,
    /// Snapshot and content of each disk, which have the same name.
    pub(crate) disks: Vec<(Value, Value)>,
}

pub(crate) fn prepared(restore: &Value, backup: &Value, made: &[Value]) -> PreparedRestore {
    let base = format!("restore-{}", uid(restore));
    let space = text(restore, "/metadata/namespace");
    let owner = crate::object::controlled_by(restore, super::API, "VirtualMachineRestore");
    let meta = |name: &str| json!({"name": name, "namespace": space, "ownerReferences": [owner]});
    let mut volumes = Vec::new();
    let mut disks = Vec::new();
    for (index, (own, made)) in list(backup, "/status/volumeBackups").iter().zip(made).enumerate() {
        let disk = format!("{base}-{index}");
        let handle = format!("bak://{}/{}", text(made, "/status/volumeName"), name(made));
        let reference = json!({"apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshot", "namespace": space, "name": disk});
        let content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": disk},
            // The backup stays when the snapshot goes.
            "spec": {"driver": hci::DRIVER, "deletionPolicy": "Retain",
                "source": {"snapshotHandle": handle}, "volumeSnapshotRef": reference},
        });
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": meta(&disk), "spec": {"source": {"volumeSnapshotContentName": disk}},
        });
        volumes.push(json!({
            "volumeName": text(own, "/volumeName"), "volumeSnapshotName": disk,
            "persistentVolumeClaim": own["persistentVolumeClaim"],
        }));
        disks.push((snapshot, content));
    }
    let inner = "snapshot.kubevirt.io/v1beta1";
    let vm_content = json!({
        "apiVersion": inner, "kind": "VirtualMachineSnapshotContent", "metadata": meta(&base),
        "spec": {"virtualMachineSnapshotName": base, "volumeBackups": volumes,
            "source": {"virtualMachine": backup["status"]["source"]}},
    });
    let source = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine",
        "name": text(backup, "/status/source/metadata/name")});
    let vm_snapshot = json!({
        "apiVersion": inner, "kind": "VirtualMachineSnapshot", "metadata": meta(&base),
        "spec": {"source": source},
    });
    PreparedRestore { name: base, vm_snapshot, vm_content, disks }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup() -> Value {
        json!({"metadata": {"name": "b", "namespace": "n", "uid": "u-1"}, "spec": {}})
    }

    fn content() -> Value {
        json!({"spec": {
            "source": {"virtualMachine": {"metadata": {"name": "m", "uid": "v"}, "spec": {}}},
            "volumeBackups": [
                {"volumeName": "root", "volumeSnapshotName": "s0",
                    "persistentVolumeClaim": {"metadata": {"name": "c"}}},
                {"volumeName": "data", "volumeSnapshotName": "s1", "persistentVolumeClaim": {}},
            ],
        }})
    }

    fn made(state: &str, progress: i64, error: &str) -> Option<Value> {
        Some(json!({"status": {"state": state, "progress": progress, "error": error}}))
    }

    fn status_of(made: &[Option<Value>]) -> Value {
        let target = json!({"spec": {"backupTargetURL": "s3://bu@re/"}});
        let patch = status(&backup(), &content(), &target, made, Timestamp::UNIX_EPOCH);
        patch["status"].clone()
    }

    #[test]
    fn a_backup_is_ready_when_all_disks_are_on_the_target() {
        let half = status_of(&[made("InProgress", 50, ""), made("Completed", 100, "")]);
        assert_eq!((&half["readyToUse"], &half["progress"]), (&json!(false), &json!(75)));
        assert_eq!(
            half["backupTarget"],
            json!({"endpoint": "", "bucketName": "bu",
            "bucketRegion": "re"})
        );
        assert_eq!(half["volumeBackups"][1]["longhornBackupName"], "backup-u1-1");
        assert_eq!(half["volumeBackups"][1]["readyToUse"], true);
        let all = status_of(&[made("Completed", 100, ""), made("Completed", 100, "")]);
        assert_eq!((&all["readyToUse"], &all["progress"]), (&json!(true), &json!(100)));
        let none = status_of(&[None, made("Completed", 100, "")]);
        assert_eq!(none["readyToUse"], false);
        let failed = status_of(&[made("Error", 0, "no room"), made("InProgress", 5, "")]);
        assert_eq!(failed["error"]["message"], "no room");
        assert_eq!(failed["volumeBackups"][0]["error"]["message"], "no room");
    }

    #[test]
    fn a_disk_is_backed_up_from_its_snapshot_and_marked() {
        let own = longhorn_backup(&backup(), 0, "snap://vol/snap").unwrap();
        assert_eq!(own["spec"]["snapshotName"], "snap");
        assert!(belongs(&own, &backup()));
        let mut other = backup();
        other["metadata"]["uid"] = json!("u-2");
        assert!(!belongs(&own, &other));
        assert_eq!(longhorn_backup(&backup(), 0, "bak://v/b"), None);
    }

    #[test]
    fn a_restore_gets_snapshots_that_stand_for_the_backups() {
        let restore = json!({"metadata": {"name": "r", "namespace": "n", "uid": "x"}});
        let mut own = backup();
        own["status"] = json!({"source": {"metadata": {"name": "m"}, "spec": {}},
            "volumeBackups": [{"volumeName": "root", "longhornBackupName": "backup-u1-0",
                "persistentVolumeClaim": {"metadata": {"name": "c"}}}]});
        let made = json!({"metadata": {"name": "backup-u1-0"}, "status": {"volumeName": "vol"}});
        let all = prepared(&restore, &own, &[made]);
        let (snapshot, content) = &all.disks[0];
        assert_eq!(content["spec"]["source"]["snapshotHandle"], "bak://vol/backup-u1-0");
        assert_eq!(content["spec"]["deletionPolicy"], "Retain");
        assert_eq!(snapshot["spec"]["source"]["volumeSnapshotContentName"], "restore-x-0");
        let volume = &all.vm_content["spec"]["volumeBackups"][0];
        assert_eq!(volume["volumeSnapshotName"], "restore-x-0");
        assert_eq!(named(&own), ["backup-u1-0"]);
    }
}
