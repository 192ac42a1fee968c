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
use crate::object::{self, controlled_by, has_finalizer, is_deleting, is_true, name, text, uid};

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
    Tell(Value),
    Copy(Value),
    RemoveCopy(Value),
}

pub(super) fn step(seen: &BackupInput<'_>) -> BackupStep {
    let backup = seen.backup;
    if is_deleting(backup) {
        return removal(seen);
    }
    if matches!(text(backup, "/status/state"), "Completed" | "Error") {
        return remove_copy(seen).unwrap_or(BackupStep::Done);
    }
    // One that was found on the target is reported on by the node that found it.
    if text(backup, "/spec/snapshotName").is_empty() {
        return BackupStep::Done;
    }
    if let Some(patch) = adoption(seen) {
        return BackupStep::Patch(patch);
    }
    if text(backup, "/status/state") == "InProgress" {
        return BackupStep::Wait;
    }
    begin(seen)
}

fn fail(why: impl Into<String>) -> BackupStep {
    BackupStep::Tell(json!({"state": "Error", "error": why.into(), "progress": 0}))
}

fn pending(why: impl Into<String>) -> BackupStep {
    BackupStep::Tell(json!({"state": "Pending", "error": why.into()}))
}

/// The finalizer and the labels that ours have.
fn adoption(seen: &BackupInput<'_>) -> Option<Value> {
    let backup = seen.backup;
    let label = |key: &str| backup["metadata"]["labels"][key].as_str().unwrap_or_default();
    let volume = seen.snapshot.map_or("", |own| text(own, "/spec/volume"));
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
    let wanted = text(seen.backup, "/spec/snapshotName");
    let Some(target) = seen.target.filter(|own| !text(own, "/spec/backupTargetURL").is_empty())
    else {
        return pending("backup target is not set");
    };
    let Some(snapshot) = seen.snapshot else {
        return fail(format!("snapshot {wanted} is not found"));
    };
    let Some(volume) = seen.volume else {
        return fail(format!("volume {} is not found", text(snapshot, "/spec/volume")));
    };
    if is_true(volume, "/spec/encrypted") {
        let volume = name(volume);
        return fail(format!("volume {volume} is encrypted: it cannot be backed up yet"));
    }
    let error = text(snapshot, "/status/error");
    if !error.is_empty() {
        return fail(format!("snapshot {wanted} failed: {error}"));
    }
    if is_deleting(snapshot) || is_deleting(volume) {
        return fail(format!("snapshot {wanted} is being deleted"));
    }
    if !is_true(snapshot, "/status/readyToUse") {
        return pending(format!("snapshot {wanted} is not ready"));
    }
    let Some(copy) = seen.copy else {
        return BackupStep::Copy(copy_of(seen.backup, volume, wanted));
    };
    match text(copy, "/status/cloneStatus/state") {
        "completed" => assign(seen, snapshot, volume, target),
        "failed" => fail(format!("snapshot {wanted} cannot be copied")),
        _ => pending(""),
    }
}

/// A volume that shows the snapshot, beside one of its replicas.
fn copy_of(backup: &Value, volume: &Value, snapshot: &str) -> Value {
    let own = backup_source(uid(backup));
    json!({
        "apiVersion": API, "kind": "Volume",
        "metadata": {
            "name": own, "namespace": NAMESPACE, "labels": {VOLUME_LABEL: own},
            "finalizers": [FINALIZER], "ownerReferences": [controlled_by(backup, API, "Backup")],
        },
        "spec": {
            "size": text(volume, "/spec/size"), "numberOfReplicas": 1, "frontend": "blockdev",
            "dataSource": format!("snap://{}/{snapshot}", name(volume)), "accessMode": "rwo",
            "dataLocality": "disabled", "dataEngine": "v1", "migratable": false,
        },
    })
}

/// The node that has the copy reads it.
fn assign(seen: &BackupInput<'_>, snapshot: &Value, volume: &Value, target: &Value) -> BackupStep {
    let mut nodes = seen.replicas.iter().map(|own| text(own, "/spec/nodeID"));
    let Some(node) = nodes.find(|node| !node.is_empty()) else { return pending("") };
    let method = match text(volume, "/spec/backupCompressionMethod") {
        "" => seen.compression,
        own => own,
    };
    BackupStep::Tell(json!({
        "ownerID": node, "state": "InProgress", "progress": 0, "error": "",
        "snapshotName": name(snapshot), "volumeName": name(volume),
        "snapshotCreatedAt": text(snapshot, "/status/creationTime"),
        "volumeSize": text(volume, "/spec/size"), "compressionMethod": method,
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
    let owner = seen.target.map_or("", |own| text(own, "/status/ownerID"));
    let url = seen.target.map_or("", |own| text(own, "/spec/backupTargetURL"));
    // Without a target there is nothing that could be removed from it.
    if url.is_empty() || text(backup, "/status/state") == BACKUP_DELETED {
        let mut meta = object::version(backup);
        meta.insert("finalizers".into(), object::finalizers_without(backup, &[FINALIZER]).into());
        return BackupStep::Patch(json!({"metadata": meta}));
    }
    if owner.is_empty() {
        return BackupStep::Wait;
    }
    BackupStep::Tell(json!({"state": "Deleting", "ownerID": owner}))
}

/// Whether a backup is over, and how: nothing while it is made.
pub(crate) fn outcome(backup: &Value) -> Option<Result<(), String>> {
    match text(backup, "/status/state") {
        "Completed" => Some(Ok(())),
        "Error" => Some(Err(text(backup, "/status/error").to_owned())),
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

    fn told(step: BackupStep) -> (String, String) {
        let BackupStep::Tell(status) = step else { panic!("{step:?}") };
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
        assert_eq!(told(state("initiated")).0, "Pending");
        assert_eq!(told(state("failed")).0, "Error");
        let BackupStep::Tell(status) = state("completed") else { panic!() };
        assert_eq!((&status["ownerID"], &status["state"]), (&json!("one"), &json!("InProgress")));
        assert_eq!(run(&backup("InProgress"), |_| {}), BackupStep::Wait);
        let copy = json!({"metadata": {"name": "c"}});
        let over = run(&backup("Completed"), |all| all[2] = Some(copy.clone()));
        assert_eq!(over, BackupStep::RemoveCopy(copy));
        assert_eq!(run(&backup("Completed"), |_| {}), BackupStep::Done);
    }

    #[test]
    fn what_cannot_be_backed_up_says_why() {
        let new = backup("");
        let fails = |change: fn(&mut [Option<Value>; 4])| told(run(&new, change));
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
        let BackupStep::Tell(status) = run(&going("Completed"), |_| {}) else { panic!() };
        assert_eq!((&status["state"], &status["ownerID"]), (&json!("Deleting"), &json!("two")));
        assert!(matches!(run(&going(BACKUP_DELETED), |_| {}), BackupStep::Patch(_)));
        assert!(matches!(run(&going("Error"), |all| all[3] = None), BackupStep::Patch(_)));
        let copy = json!({"metadata": {"name": "c"}});
        let step = run(&going("InProgress"), |all| all[2] = Some(copy.clone()));
        assert_eq!(step, BackupStep::RemoveCopy(copy));
    }
}
