//! The next step of a backup: pure.
//!
//! ```text
//!  Pending ── the copy of the snapshot is there ──► InProgress ── the node reports ──► Completed
//!     └──── the snapshot cannot be backed up ───► Error
//!  deleted: Deleting ── the node reports ──► Deleted ── the finalizer goes
//! ```

use hci::longhorn::{
    BACKUP_DELETED, BACKUP_TARGET_LABEL, BACKUP_VOLUME_LABEL, DEFAULT_BACKUP_TARGET, FINALIZER,
    NAMESPACE, VOLUME_LABEL, backup_source,
};
use serde_json::{Value, json};

use crate::longhorn::API;
use crate::longhorn::record::{
    BackupFields, BackupTargetFields, ReplicaFields, SnapshotFields, VolumeFields,
};
use crate::object::{self, controlled_by, has_finalizer, is_deleting, name, read, uid};

/// The objects and facts of a backup.
#[derive(Debug)]
pub(super) struct BackupInput<'a> {
    pub(super) backup: &'a Value,
    pub(super) snapshot: Option<&'a Value>,
    pub(super) volume: Option<&'a Value>,
    /// The volume that the backup is read from, and its replicas.
    pub(super) copy: Option<&'a Value>,
    pub(super) replicas: &'a [Value],
    pub(super) target: Option<&'a Value>,
    pub(super) compression: &'a str,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum BackupStep {
    Done,
    Wait,
    Patch(Value),
    /// A status to write, if it is not what the backup says.
    PatchStatus(Value),
    Copy(Value),
    RemoveCopy(Value),
}

pub(super) fn step(seen: &BackupInput<'_>) -> BackupStep {
    let backup = seen.backup;
    if is_deleting(backup) {
        return removal(seen);
    }
    let BackupFields { spec, status } = read(backup);
    if matches!(status.state, "Completed" | "Error") {
        return remove_copy(seen).unwrap_or(BackupStep::Done);
    }
    // One that was found on the target is reported on by the node that found it.
    if spec.snapshot_name.is_empty() {
        return BackupStep::Done;
    }
    if let Some(patch) = adoption(seen) {
        return BackupStep::Patch(patch);
    }
    if status.state == "InProgress" {
        return BackupStep::Wait;
    }
    begin(seen)
}

fn fail(why: impl Into<String>) -> BackupStep {
    BackupStep::PatchStatus(json!({"state": "Error", "error": why.into(), "progress": 0}))
}

fn pending(why: impl Into<String>) -> BackupStep {
    BackupStep::PatchStatus(json!({"state": "Pending", "error": why.into()}))
}

/// The finalizer and the labels that ours have.
fn adoption(seen: &BackupInput<'_>) -> Option<Value> {
    let backup = seen.backup;
    let label = |key: &str| object::label(backup, key).unwrap_or_default();
    let volume = seen.snapshot.map_or("", |own| read::<SnapshotFields<'_>>(own).spec.volume);
    let is_labelled =
        label(BACKUP_VOLUME_LABEL) == volume && !label(BACKUP_TARGET_LABEL).is_empty();
    if has_finalizer(backup, FINALIZER) && (is_labelled || volume.is_empty()) {
        return None;
    }
    let mut meta = object::version(backup);
    let mut finalizers = object::finalizers_without(backup, &[FINALIZER]);
    finalizers.push(json!(FINALIZER));
    meta.insert("finalizers".into(), finalizers.into());
    let mut labels = json!({BACKUP_TARGET_LABEL: DEFAULT_BACKUP_TARGET});
    if !volume.is_empty() {
        labels[BACKUP_VOLUME_LABEL] = json!(volume);
    }
    meta.insert("labels".into(), labels);
    Some(json!({"metadata": meta}))
}

fn begin(seen: &BackupInput<'_>) -> BackupStep {
    let wanted = read::<BackupFields<'_>>(seen.backup).spec.snapshot_name;
    let is_set = |own: &&Value| !read::<BackupTargetFields<'_>>(own).spec.url.is_empty();
    let Some(target) = seen.target.filter(is_set) else {
        return pending("backup target is not set");
    };
    let Some(snapshot) = seen.snapshot else {
        return fail(format!("snapshot {wanted} is not found"));
    };
    let SnapshotFields { spec, status } = read(snapshot);
    let Some(volume) = seen.volume else {
        return fail(format!("volume {} is not found", spec.volume));
    };
    if read::<VolumeFields<'_>>(volume).spec.encrypted {
        let volume = name(volume);
        return fail(format!("volume {volume} is encrypted: it cannot be backed up yet"));
    }
    let error = status.error;
    if !error.is_empty() {
        return fail(format!("snapshot {wanted} failed: {error}"));
    }
    if is_deleting(snapshot) || is_deleting(volume) {
        return fail(format!("snapshot {wanted} is being deleted"));
    }
    if !status.ready_to_use {
        return pending(format!("snapshot {wanted} is not ready"));
    }
    let Some(copy) = seen.copy else {
        return BackupStep::Copy(copy_of(seen.backup, volume, wanted));
    };
    match read::<VolumeFields<'_>>(copy).status.clone_status.state {
        "completed" => assign(seen, snapshot, volume, target),
        "failed" => fail(format!("snapshot {wanted} cannot be copied")),
        _ => pending(""),
    }
}

/// A volume that shows the snapshot, beside one of its replicas.
fn copy_of(backup: &Value, volume: &Value, snapshot: &str) -> Value {
    let own = backup_source(uid(backup));
    let size = read::<VolumeFields<'_>>(volume).spec.size;
    json!({
        "apiVersion": API, "kind": "Volume",
        "metadata": {
            "name": own, "namespace": NAMESPACE, "labels": {VOLUME_LABEL: own},
            "finalizers": [FINALIZER], "ownerReferences": [controlled_by(backup, API, "Backup")],
        },
        "spec": {
            "size": size, "numberOfReplicas": 1, "frontend": "blockdev",
            "dataSource": format!("snap://{}/{snapshot}", name(volume)), "accessMode": "rwo",
            "dataLocality": "disabled", "dataEngine": "v1", "migratable": false,
        },
    })
}

/// The node that has the copy reads it.
fn assign(seen: &BackupInput<'_>, snapshot: &Value, volume: &Value, target: &Value) -> BackupStep {
    let mut nodes = seen.replicas.iter().map(|own| read::<ReplicaFields<'_>>(own).spec.node_id);
    let Some(node) = nodes.find(|node| !node.is_empty()) else { return pending("") };
    let spec = read::<VolumeFields<'_>>(volume).spec;
    let method = match spec.backup_compression_method {
        "" => seen.compression,
        own => own,
    };
    BackupStep::PatchStatus(json!({
        "ownerID": node, "state": "InProgress", "progress": 0, "error": "",
        "snapshotName": name(snapshot), "volumeName": name(volume),
        "snapshotCreatedAt": read::<SnapshotFields<'_>>(snapshot).status.creation_time,
        "volumeSize": spec.size, "compressionMethod": method,
        "backupTargetName": name(target),
    }))
}

fn remove_copy(seen: &BackupInput<'_>) -> Option<BackupStep> {
    let copy = seen.copy?;
    Some(if is_deleting(copy) { BackupStep::Wait } else { BackupStep::RemoveCopy(copy.clone()) })
}

/// First the copy goes, then the backup from its target, then the object.
fn removal(seen: &BackupInput<'_>) -> BackupStep {
    let backup = seen.backup;
    if !has_finalizer(backup, FINALIZER) {
        return BackupStep::Done;
    }
    if let Some(step) = remove_copy(seen) {
        return step;
    }
    let target: BackupTargetFields<'_> = seen.target.map(read).unwrap_or_default();
    let state = read::<BackupFields<'_>>(backup).status.state;
    // Without a target there is nothing that could be removed from it.
    if target.spec.url.is_empty() || state == BACKUP_DELETED {
        let mut meta = object::version(backup);
        meta.insert("finalizers".into(), object::finalizers_without(backup, &[FINALIZER]).into());
        return BackupStep::Patch(json!({"metadata": meta}));
    }
    match target.status.owner_id {
        "" => BackupStep::Wait,
        owner => BackupStep::PatchStatus(json!({"state": "Deleting", "ownerID": owner})),
    }
}

/// The end of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackupOutcome {
    Completed,
    /// With the error that the node recorded.
    Failed(String),
}

/// Whether a backup is over, and how: nothing while it is made.
pub(crate) fn outcome(backup: &Value) -> Option<BackupOutcome> {
    let status = read::<BackupFields<'_>>(backup).status;
    match status.state {
        "Completed" => Some(BackupOutcome::Completed),
        "Error" => Some(BackupOutcome::Failed(status.error.to_owned())),
        _ => None,
    }
}

/// The backups that a machine's disks have.
pub(crate) fn wanted(backup: &str, snapshot: &str, volume: &str) -> Value {
    json!({
        "apiVersion": API, "kind": "Backup",
        "metadata": {
            "name": backup, "namespace": NAMESPACE, "finalizers": [FINALIZER],
            "labels": {BACKUP_VOLUME_LABEL: volume, BACKUP_TARGET_LABEL: DEFAULT_BACKUP_TARGET},
        },
        "spec": {"snapshotName": snapshot, "labels": {}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::text;

    fn backup(state: &str) -> Value {
        json!({"metadata": {"name": "b", "uid": "u", "finalizers": [FINALIZER], "labels":
            {BACKUP_VOLUME_LABEL: "v", BACKUP_TARGET_LABEL: "default"}},
            "spec": {"snapshotName": "s"}, "status": {"state": state}})
    }

    fn run(backup: &Value, change: impl Fn(&mut [Option<Value>; 4])) -> BackupStep {
        let replica = json!({"spec": {"nodeID": "one"}});
        let mut all = [
            Some(json!({"metadata": {"name": "s"}, "spec": {"volume": "v"},
                "status": {"readyToUse": true, "creationTime": "t"}})),
            Some(json!({"metadata": {"name": "v"}, "spec": {"size": "5"}})),
            None,
            Some(json!({"metadata": {"name": "default"},
                "spec": {"backupTargetURL": "s3://b@r/"}, "status": {"ownerID": "two"}})),
        ];
        change(&mut all);
        let [snapshot, volume, copy, target] = &all;
        step(&BackupInput {
            backup,
            snapshot: snapshot.as_ref(),
            volume: volume.as_ref(),
            copy: copy.as_ref(),
            replicas: &[replica],
            target: target.as_ref(),
            compression: "lz4",
        })
    }

    fn state_and_error(step: BackupStep) -> (String, String) {
        let BackupStep::PatchStatus(status) = step else { panic!("{step:?}") };
        (text(&status, "/state").to_owned(), text(&status, "/error").to_owned())
    }

    #[test]
    fn a_backup_is_read_from_a_copy_by_the_node_that_has_it() {
        let BackupStep::Copy(copy) = run(&backup(""), |_| {}) else { panic!() };
        assert_eq!(copy["spec"]["dataSource"], "snap://v/s");
        let state = |state: &str| {
            let copy =
                json!({"metadata": {"name": "c"}, "status": {"cloneStatus": {"state": state}}});
            run(&backup(""), |all| all[2] = Some(copy.clone()))
        };
        assert_eq!(state_and_error(state("initiated")).0, "Pending");
        assert_eq!(state_and_error(state("failed")).0, "Error");
        let BackupStep::PatchStatus(status) = state("completed") else { panic!() };
        assert_eq!((&status["ownerID"], &status["state"]), (&json!("one"), &json!("InProgress")));
        assert_eq!(run(&backup("InProgress"), |_| {}), BackupStep::Wait);
        let copy = json!({"metadata": {"name": "c"}});
        let over = run(&backup("Completed"), |all| all[2] = Some(copy.clone()));
        assert_eq!(over, BackupStep::RemoveCopy(copy));
        assert_eq!(run(&backup("Completed"), |_| {}), BackupStep::Done);
    }

    #[test]
    fn a_backup_that_cannot_be_taken_says_why() {
        let new = backup("");
        let fails = |change: fn(&mut [Option<Value>; 4])| state_and_error(run(&new, change));
        assert_eq!(fails(|all| all[0] = None), ("Error".into(), "snapshot s is not found".into()));
        let (state, why) = fails(|all| all[1].as_mut().unwrap()["spec"]["encrypted"] = json!(true));
        assert!(state == "Error" && why.contains("encrypted"), "{why}");
        let (state, why) = fails(|all| all[3] = None);
        assert_eq!((state.as_str(), why.as_str()), ("Pending", "backup target is not set"));
        let (state, _) =
            fails(|all| all[0].as_mut().unwrap()["status"]["readyToUse"] = json!(false));
        assert_eq!(state, "Pending");
        let mut found = backup("");
        found["spec"] = json!({});
        assert_eq!(run(&found, |_| {}), BackupStep::Done);
        let mut bare = backup("");
        bare["metadata"]["finalizers"] = json!([]);
        assert!(matches!(run(&bare, |_| {}), BackupStep::Patch(_)));
    }

    #[test]
    fn a_backup_goes_from_its_target_before_it_goes() {
        let going = |state: &str| {
            let mut own = backup(state);
            own["metadata"]["deletionTimestamp"] = json!("t");
            own
        };
        let BackupStep::PatchStatus(status) = run(&going("Completed"), |_| {}) else { panic!() };
        assert_eq!((&status["state"], &status["ownerID"]), (&json!("Deleting"), &json!("two")));
        assert!(matches!(run(&going(BACKUP_DELETED), |_| {}), BackupStep::Patch(_)));
        assert!(matches!(run(&going("Error"), |all| all[3] = None), BackupStep::Patch(_)));
        let copy = json!({"metadata": {"name": "c"}});
        let step = run(&going("InProgress"), |all| all[2] = Some(copy.clone()));
        assert_eq!(step, BackupStep::RemoveCopy(copy));
    }
}
