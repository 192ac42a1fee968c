//! The objects and the status of a snapshot of a claim: pure.

use base::clock;
use hci::together::TOGETHER;
use jiff::Timestamp;
use serde_json::{Value, json};
use types::Quantity;

use super::record::{
    SnapshotClassFields, SnapshotReference, VolumeSnapshotContentFields, VolumeSnapshotFields,
};
use crate::longhorn::object::{bytes, handle};
use crate::longhorn::record::{BackupFields, BackupStatus, SnapshotFields};
use crate::object::{annotation, is_deleting, name, namespace, read, uid};
use crate::record::claim::{
    ClaimFields, ContentReference, PersistentVolumeFields, volume_mode_or_default,
};

pub(super) const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
pub(super) const CONTENT_BOUND: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
const DEFAULT: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// Why there is no snapshot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error("failed to get PVC {name}: it is not found")]
    NoClaim { name: String },
    #[error("the PVC {name} is not yet bound to a PV, will not attempt to take a snapshot")]
    Unbound { name: String },
    #[error("snapshot class {name} is not found")]
    NoClass { name: String },
    #[error("cannot find default snapshot class")]
    NoDefault,
    #[error("snapshot class {class} is for driver {driver}, and the volume of PVC {claim} is not")]
    OtherDriver { class: String, driver: String, claim: String },
    #[error("snapshot content {content} is not found")]
    NoContent { content: String },
    #[error("snapshot content {content} is bound to a different snapshot")]
    Misbound { content: String },
    #[error(
        "parameter type \"{found}\" of the snapshot class is not supported: it must be snap; \
         a VirtualMachineBackup or a Backup of Longhorn makes backups"
    )]
    Kind { found: String },
}

/// The content of a snapshot: its own, or the one that it names.
pub(super) fn content_name(snapshot: &Value) -> String {
    match read::<VolumeSnapshotFields<'_>>(snapshot).spec.source.content_name {
        "" => format!("snapcontent-{}", uid(snapshot)),
        prepared => prepared.to_owned(),
    }
}

/// The content that a snapshot of Longhorn's was taken for.
pub(super) fn content_of(own: &str) -> Option<String> {
    own.strip_prefix("snapshot-").map(|uid| format!("snapcontent-{uid}"))
}

/// Longhorn's snapshot that is taken for a VolumeSnapshot with this UID.
pub(crate) fn longhorn_name(uid: &str) -> String {
    format!("snapshot-{uid}")
}

/// Longhorn's snapshot behind a content.
pub(super) fn own_name(content: &Value) -> String {
    let spec = read::<VolumeSnapshotContentFields<'_>>(content).spec;
    let given = spec.source.snapshot_handle;
    if let Some((_, own)) = given.strip_prefix("snap://").and_then(|rest| rest.split_once('/')) {
        return own.to_owned();
    }
    longhorn_name(spec.snapshot.uid)
}

/// The backup that a content was prepared for: `bak://VOLUME/BACKUP`.
pub(super) fn backup_of(content: &Value) -> Option<&str> {
    let spec = read::<VolumeSnapshotContentFields<'_>>(content).spec;
    let handle = spec.source.snapshot_handle.strip_prefix("bak://")?;
    handle.split_once('/').map(|(_, backup)| backup)
}

/// The status of a content, by the backup that it was prepared for.
pub(super) fn backup_status(
    content: &Value,
    name: &str,
    backup: Option<&Value>,
    now: Timestamp,
) -> Value {
    let VolumeSnapshotContentFields { spec, status: before } = read(content);
    let fault = |why: &str| fault(why, now, before.error_message());
    let handle = spec.source.snapshot_handle;
    let backup = backup.map(|own| read::<BackupFields<'_>>(own).status);
    let is_same = |own: &BackupStatus<'_>| handle == format!("bak://{}/{name}", own.volume_name);
    let Some(backup) = backup.filter(is_same) else {
        return fault(&format!("backup {name} is not found"));
    };
    if backup.state != "Completed" {
        return fault(&format!("backup {name} is not complete"));
    }
    let size = bytes(backup.volume_size);
    let mut status = json!({"snapshotHandle": handle, "readyToUse": true, "restoreSize": size});
    if let Ok(at) = backup.snapshot_created_at.parse::<Timestamp>()
        && let Ok(at) = i64::try_from(at.as_nanosecond())
    {
        status["creationTime"] = json!(at);
    }
    if before.error.is_some() {
        status["error"] = Value::Null;
    }
    json!({"status": status})
}

/// The content to make; nothing if the class belongs to another driver.
pub(super) fn content(
    snapshot: &Value,
    claim: Option<&Value>,
    volume: Option<&Value>,
    classes: &[Value],
) -> Result<Option<Value>, SnapshotError> {
    let spec = read::<VolumeSnapshotFields<'_>>(snapshot).spec;
    let claim_name = spec.source.claim_name.to_owned();
    let ours = volume.and_then(handle);
    let class = match spec.class_name {
        "" => {
            let driver = |own: &Value| read::<SnapshotClassFields<'_>>(own).driver == hci::DRIVER;
            let mut marked = classes.iter().filter(|own| annotation(own, DEFAULT) == Some("true"));
            let marked = marked.find(|own| driver(own));
            // The driver of the volume decides whose default applies.
            if ours.is_none() && volume.is_some() {
                return Ok(None);
            }
            marked.ok_or(SnapshotError::NoDefault)?
        }
        wanted => classes
            .iter()
            .find(|own| name(own) == wanted)
            .ok_or_else(|| SnapshotError::NoClass { name: wanted.to_owned() })?,
    };
    let SnapshotClassFields { driver, deletion_policy, .. } = read(class);
    if driver != hci::DRIVER {
        return Ok(None);
    }
    let claim = claim.ok_or_else(|| SnapshotError::NoClaim { name: claim_name.clone() })?;
    let bound = read::<ClaimFields<'_>>(claim).status.phase == "Bound";
    let Some(volume) = volume.filter(|_| bound) else {
        return Err(SnapshotError::Unbound { name: claim_name });
    };
    let Some(handle) = ours else {
        let (class, driver) = (name(class).to_owned(), driver.to_owned());
        return Err(SnapshotError::OtherDriver { class, driver, claim: claim_name });
    };
    let mode = read::<PersistentVolumeFields<'_>>(volume).spec.volume_mode;
    let mode = volume_mode_or_default(mode);
    let mut metadata = json!({"name": content_name(snapshot), "finalizers": [CONTENT_BOUND]});
    if let Some(together) = annotation(snapshot, TOGETHER) {
        metadata["annotations"] = json!({TOGETHER: together});
    }
    Ok(Some(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": metadata,
        "spec": {
            "deletionPolicy": deletion_policy, "driver": hci::DRIVER,
            "source": {"volumeHandle": handle}, "sourceVolumeMode": mode,
            "volumeSnapshotClassName": name(class),
            "volumeSnapshotRef": {
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "namespace": namespace(snapshot), "name": name(snapshot), "uid": uid(snapshot),
            },
        },
    })))
}

pub(super) fn check_class(class: Option<&Value>) -> Result<(), SnapshotError> {
    // Upstream takes backups where nothing is said.
    match class.map_or("", |own| read::<SnapshotClassFields<'_>>(own).parameters.kind) {
        "snap" => Ok(()),
        "" => Err(SnapshotError::Kind { found: "bak".into() }),
        other => Err(SnapshotError::Kind { found: other.to_owned() }),
    }
}

/// The snapshot that a content names.
pub(super) fn bound_to(content: &Value) -> SnapshotReference<'_> {
    read::<VolumeSnapshotContentFields<'_>>(content).spec.snapshot
}

/// Whether a content is for this snapshot and no other of its name.
pub(super) fn belongs(content: &Value, snapshot: &Value) -> bool {
    let to = bound_to(content);
    to.name == name(snapshot)
        && to.namespace == namespace(snapshot)
        && (to.uid.is_empty() || to.uid == uid(snapshot))
}

/// A content that was prepared for a snapshot learns which one it became.
pub(super) fn binding(snapshot: &Value, content: &Value) -> Option<Value> {
    let unbound = bound_to(content).uid.is_empty();
    (unbound && belongs(content, snapshot))
        .then(|| json!({"spec": {"volumeSnapshotRef": {"uid": uid(snapshot)}}}))
}

/// Whether a claim is still being made from the snapshot.
pub(super) fn is_source(snapshot: &Value, claims: &[Value]) -> bool {
    let is_it = |source: &ContentReference<'_>| {
        source.kind == "VolumeSnapshot" && source.name == name(snapshot)
    };
    claims.iter().any(|claim| {
        let ClaimFields { spec, status } = read(claim);
        (is_it(&spec.data_source) || is_it(&spec.data_source_ref))
            && status.phase != "Bound"
            && !is_deleting(claim)
    })
}

/// The status of a snapshot, by its content.
pub(super) fn status(snapshot: &Value, content: &Value) -> Value {
    let reported = read::<VolumeSnapshotContentFields<'_>>(content).status;
    let before = read::<VolumeSnapshotFields<'_>>(snapshot).status;
    let mut status = json!({
        "boundVolumeSnapshotContentName": name(content),
        "readyToUse": reported.ready_to_use,
    });
    if let Some(at) = reported.creation_time
        && let Ok(at) = Timestamp::from_nanosecond(i128::from(at))
    {
        status["creationTime"] = json!(clock::rfc3339(at));
    }
    if let Some(size) = reported.restore_size {
        status["restoreSize"] = json!(Quantity::from_bytes(size).to_string());
    }
    if let Some(error) = reported.error {
        status["error"] = error.into();
    } else if before.error.is_some() {
        status["error"] = Value::Null;
    }
    json!({"status": status})
}

/// The status of a content, by Longhorn's snapshot.
pub(super) fn content_status(
    content: &Value,
    own: &str,
    taken: Option<&Value>,
    now: Timestamp,
) -> Value {
    let before = read::<VolumeSnapshotContentFields<'_>>(content).status;
    let Some(taken) = taken else {
        let why = format!("snapshot {own} is not found");
        return fault(&why, now, before.error_message());
    };
    let SnapshotFields { spec, status: reported } = read(taken);
    if !reported.error.is_empty() {
        return fault(reported.error, now, before.error_message());
    }
    let handle = format!("snap://{}/{}", spec.volume, name(taken));
    let mut status = json!({"snapshotHandle": handle, "readyToUse": reported.ready_to_use});
    if let Ok(at) = reported.creation_time.parse::<Timestamp>()
        && let Ok(at) = i64::try_from(at.as_nanosecond())
    {
        status["creationTime"] = json!(at);
    }
    if let Some(size) = reported.restore_size {
        status["restoreSize"] = json!(size);
    }
    if before.error.is_some() {
        status["error"] = Value::Null;
    }
    json!({"status": status})
}

pub(super) fn content_fault(why: &SnapshotError, now: Timestamp) -> Value {
    fault(&why.to_string(), now, "")
}

/// The same fault keeps its time.
fn fault(why: &str, now: Timestamp, before: &str) -> Value {
    let mut error = json!({"message": why});
    if before != why {
        error["time"] = json!(clock::rfc3339(now));
    }
    json!({"status": {"readyToUse": false, "error": error}})
}

#[cfg(test)]
mod tests;
