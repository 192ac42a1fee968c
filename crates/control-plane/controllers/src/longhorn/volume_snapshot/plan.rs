//! The objects and the status of a snapshot of a claim: pure.

use base::clock;
use hci::together::TOGETHER;
use jiff::Timestamp;
use serde_json::{Value, json};
use types::Quantity;

use crate::longhorn::object::handle;
use crate::object::{annotation, int, is_true, name, namespace, text, uid};

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
    match text(snapshot, "/spec/source/volumeSnapshotContentName") {
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
    let given = text(content, "/spec/source/snapshotHandle");
    if let Some((_, own)) = given.strip_prefix("snap://").and_then(|rest| rest.split_once('/')) {
        return own.to_owned();
    }
    longhorn_name(text(content, "/spec/volumeSnapshotRef/uid"))
}

/// The backup that a content was prepared for: `bak://VOLUME/BACKUP`.
pub(super) fn backup_of(content: &Value) -> Option<&str> {
    let handle = text(content, "/spec/source/snapshotHandle").strip_prefix("bak://")?;
    handle.split_once('/').map(|(_, backup)| backup)
}

/// The status of a content, by the backup that it was prepared for.
pub(super) fn backup_status(
    content: &Value,
    name: &str,
    backup: Option<&Value>,
    now: Timestamp,
) -> Value {
    let before = text(content, "/status/error/message");
    let handle = text(content, "/spec/source/snapshotHandle");
    let is_same =
        |own: &&Value| handle == format!("bak://{}/{name}", text(own, "/status/volumeName"));
    let Some(backup) = backup.filter(is_same) else {
        return fault(&format!("backup {name} is not found"), now, before);
    };
    if text(backup, "/status/state") != "Completed" {
        return fault(&format!("backup {name} is not complete"), now, before);
    }
    let size: i64 = text(backup, "/status/volumeSize").parse().unwrap_or_default();
    let mut status = json!({"snapshotHandle": handle, "readyToUse": true, "restoreSize": size});
    if let Ok(at) = text(backup, "/status/snapshotCreatedAt").parse::<Timestamp>()
        && let Ok(at) = i64::try_from(at.as_nanosecond())
    {
        status["creationTime"] = json!(at);
    }
    if content["status"].get("error").is_some() {
        status["error"] = Value::Null;
    }
    json!({"status": status})
}

/// The content to make; nothing if the class belongs to somebody else.
pub(super) fn content(
    snapshot: &Value,
    claim: Option<&Value>,
    volume: Option<&Value>,
    classes: &[Value],
) -> Result<Option<Value>, SnapshotError> {
    let claim_name = text(snapshot, "/spec/source/persistentVolumeClaimName").to_owned();
    let class = text(snapshot, "/spec/volumeSnapshotClassName");
    let ours = volume.and_then(handle);
    let class = match class {
        "" => {
            let marked = classes.iter().find(|own| {
                annotation(own, DEFAULT) == Some("true") && text(own, "/driver") == hci::DRIVER
            });
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
    if text(class, "/driver") != hci::DRIVER {
        return Ok(None);
    }
    let claim = claim.ok_or_else(|| SnapshotError::NoClaim { name: claim_name.clone() })?;
    let bound = text(claim, "/status/phase") == "Bound";
    let Some(volume) = volume.filter(|_| bound) else {
        return Err(SnapshotError::Unbound { name: claim_name });
    };
    let Some(handle) = ours else {
        let (class, driver) = (name(class).to_owned(), text(class, "/driver").to_owned());
        return Err(SnapshotError::OtherDriver { class, driver, claim: claim_name });
    };
    let mode = match text(volume, "/spec/volumeMode") {
        "" => "Filesystem",
        mode => mode,
    };
    let mut metadata = json!({"name": content_name(snapshot), "finalizers": [CONTENT_BOUND]});
    if let Some(together) = annotation(snapshot, TOGETHER) {
        metadata["annotations"] = json!({TOGETHER: together});
    }
    Ok(Some(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": metadata,
        "spec": {
            "deletionPolicy": text(class, "/deletionPolicy"), "driver": hci::DRIVER,
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
    match class.map_or("", |own| text(own, "/parameters/type")) {
        "snap" => Ok(()),
        "" => Err(SnapshotError::Kind { found: "bak".into() }),
        other => Err(SnapshotError::Kind { found: other.to_owned() }),
    }
}

/// Whether a content is for this snapshot and no other of its name.
pub(super) fn belongs(content: &Value, snapshot: &Value) -> bool {
    let to = |field: &str| text(content, &format!("/spec/volumeSnapshotRef/{field}"));
    to("name") == name(snapshot)
        && to("namespace") == namespace(snapshot)
        && (to("uid").is_empty() || to("uid") == uid(snapshot))
}

/// A content that was prepared for a snapshot learns which one it became.
pub(super) fn binding(snapshot: &Value, content: &Value) -> Option<Value> {
    let unbound = text(content, "/spec/volumeSnapshotRef/uid").is_empty();
    (unbound && belongs(content, snapshot))
        .then(|| json!({"spec": {"volumeSnapshotRef": {"uid": uid(snapshot)}}}))
}

/// A claim that is about to be made from the snapshot.
pub(super) fn is_source(snapshot: &Value, claims: &[Value]) -> bool {
    claims.iter().any(|claim| {
        let from = |source: &str| {
            text(claim, &format!("/spec/{source}/kind")) == "VolumeSnapshot"
                && text(claim, &format!("/spec/{source}/name")) == name(snapshot)
        };
        (from("dataSource") || from("dataSourceRef"))
            && text(claim, "/status/phase") != "Bound"
            && text(claim, "/metadata/deletionTimestamp").is_empty()
    })
}

/// The status of a snapshot, by its content.
pub(super) fn status(snapshot: &Value, content: &Value) -> Value {
    let told = &content["status"];
    let mut status = json!({
        "boundVolumeSnapshotContentName": name(content),
        "readyToUse": is_true(content, "/status/readyToUse"),
    });
    if let Some(at) = int(content, "/status/creationTime")
        && let Ok(at) = Timestamp::from_nanosecond(i128::from(at))
    {
        status["creationTime"] = json!(clock::rfc3339(at));
    }
    if let Some(size) = int(content, "/status/restoreSize") {
        status["restoreSize"] = json!(Quantity::from_bytes(size).to_string());
    }
    let known = !snapshot["status"]["error"].is_null();
    if told.get("error").is_some_and(|own| !own.is_null()) {
        status["error"] = told["error"].clone();
    } else if known {
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
    let Some(taken) = taken else {
        let why = format!("snapshot {own} is not found");
        return fault(&why, now, text(content, "/status/error/message"));
    };
    let failed = text(taken, "/status/error");
    if !failed.is_empty() {
        return fault(failed, now, text(content, "/status/error/message"));
    }
    let handle = format!("snap://{}/{}", text(taken, "/spec/volume"), name(taken));
    let ready = is_true(taken, "/status/readyToUse");
    let mut status = json!({"snapshotHandle": handle, "readyToUse": ready});
    if let Ok(at) = text(taken, "/status/creationTime").parse::<Timestamp>()
        && let Ok(at) = i64::try_from(at.as_nanosecond())
    {
        status["creationTime"] = json!(at);
    }
    if let Some(size) = int(taken, "/status/restoreSize") {
        status["restoreSize"] = json!(size);
    }
    if content["status"].get("error").is_some() {
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
mod tests {
    use super::*;

    fn classes() -> Vec<Value> {
        let class = |name: &str, driver: &str, default: &str| {
            json!({"metadata": {"name": name, "annotations": {DEFAULT: default}},
                "driver": driver, "deletionPolicy": "Delete", "parameters": {"type": "snap"}})
        };
        vec![class("own", hci::DRIVER, "true"), class("other", "example.org", "false")]
    }

    fn snapshot(class: &str) -> Value {
        json!({"metadata": {"name": "s", "namespace": "n", "uid": "u"},
            "spec": {"volumeSnapshotClassName": class,
                "source": {"persistentVolumeClaimName": "c"}}})
    }

    #[test]
    fn a_snapshot_gets_content_by_its_class() {
        let claim = json!({"status": {"phase": "Bound"}});
        let volume = json!({"spec": {"volumeMode": "Block",
            "csi": {"driver": hci::DRIVER, "volumeHandle": "v"}}});
        let local = json!({"spec": {"local": {}}});
        let make = |class: &str, claim: Option<&Value>, volume: Option<&Value>| {
            content(&snapshot(class), claim, volume, &classes())
                .map_err(|own| own.to_string())
                .map(|own| own.map(|own| own["spec"]["source"]["volumeHandle"].clone()))
        };
        let made = Ok(Some(json!("v")));
        assert_eq!(make("own", Some(&claim), Some(&volume)), made);
        assert_eq!(make("", Some(&claim), Some(&volume)), made, "the default of the driver");
        assert_eq!(make("other", Some(&claim), Some(&volume)), Ok(None));
        assert_eq!(make("", Some(&claim), Some(&local)), Ok(None));
        for (class, claim, volume, expected) in [
            ("none", Some(&claim), Some(&volume), "snapshot class none is not found"),
            ("own", None, None, "failed to get PVC c: it is not found"),
            (
                "own",
                Some(&json!({})),
                None,
                "the PVC c is not yet bound to a PV, will not attempt to take a snapshot",
            ),
            (
                "own",
                Some(&claim),
                Some(&local),
                "snapshot class own is for driver driver.longhorn.io, and the volume of PVC c is \
                 not",
            ),
        ] {
            assert_eq!(make(class, claim, volume), Err(expected.to_owned()));
        }
    }

    #[test]
    fn what_longhorn_tells_reaches_the_snapshot() {
        let now = Timestamp::UNIX_EPOCH;
        let mut own = json!({"metadata": {"name": "snapcontent-u"},
            "spec": {"volumeSnapshotRef": {"uid": "u"}}});
        assert_eq!(own_name(&own), "snapshot-u");
        assert_eq!(content_of("snapshot-u").as_deref(), Some("snapcontent-u"));
        let taken = json!({"metadata": {"name": "snapshot-u"}, "spec": {"volume": "v"},
            "status": {"readyToUse": true, "creationTime": "2026-01-02T03:04:05Z",
                "restoreSize": 1_i64 << 30}});
        own["status"] = content_status(&own, "snapshot-u", Some(&taken), now)["status"].clone();
        assert_eq!(own["status"]["snapshotHandle"], "snap://v/snapshot-u");
        let told = status(&snapshot("own"), &own)["status"].clone();
        assert_eq!(told["creationTime"], "2026-01-02T03:04:05Z");
        assert_eq!((&told["restoreSize"], &told["readyToUse"]), (&json!("1Gi"), &json!(true)));
        let failed = json!({"status": {"error": "no room"}});
        let told = content_status(&own, "snapshot-u", Some(&failed), now);
        assert_eq!(text(&told, "/status/error/message"), "no room");
        let gone = content_status(&own, "snapshot-u", None, now);
        assert_eq!(text(&gone, "/status/error/message"), "snapshot snapshot-u is not found");
    }

    #[test]
    fn a_content_of_a_backup_is_ready_when_that_is_complete() {
        let now = Timestamp::UNIX_EPOCH;
        let content = json!({"spec": {"source": {"snapshotHandle": "bak://v/b"}}});
        assert_eq!(backup_of(&content), Some("b"));
        let backup = |state: &str, volume: &str| json!({"status": {"state": state, "volumeName": volume, "volumeSize": "7"}});
        let told = backup_status(&content, "b", Some(&backup("Completed", "v")), now);
        assert_eq!(told["status"]["readyToUse"], true);
        assert_eq!(told["status"]["restoreSize"], 7);
        for other in [None, Some(backup("Completed", "w")), Some(backup("InProgress", "v"))] {
            let told = backup_status(&content, "b", other.as_ref(), now);
            assert_eq!(told["status"]["readyToUse"], false, "{other:?}");
        }
    }

    #[test]
    fn only_snapshots_are_taken_and_the_parameter_is_named() {
        let class = |kind: &str| json!({"parameters": {"type": kind}});
        assert_eq!(check_class(Some(&class("snap"))), Ok(()));
        let refused = check_class(Some(&class("bak"))).unwrap_err().to_string();
        assert!(refused.starts_with("parameter type \"bak\""), "{refused}");
    }

    #[test]
    fn a_prepared_content_is_bound_to_the_snapshot_it_names() {
        let content = |uid: &str, name: &str| json!({"spec": {"volumeSnapshotRef": {"namespace": "n", "name": name, "uid": uid}}});
        let own = snapshot("own");
        assert!(binding(&own, &content("", "s")).is_some());
        assert!(binding(&own, &content("u", "s")).is_none());
        assert!(binding(&own, &content("", "t")).is_none());
        assert!(belongs(&content("u", "s"), &own) && !belongs(&content("x", "s"), &own));
    }

    #[test]
    fn a_snapshot_stays_while_a_claim_is_made_from_it() {
        let claim = |phase: &str| {
            json!({"spec": {"dataSource": {"kind": "VolumeSnapshot", "name": "s"}},
                "status": {"phase": phase}})
        };
        assert!(is_source(&snapshot("own"), &[claim("Pending")]));
        assert!(!is_source(&snapshot("own"), &[claim("Bound")]));
    }
}
