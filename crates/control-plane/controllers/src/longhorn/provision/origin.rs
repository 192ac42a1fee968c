//! The initial content of a new volume: pure.

use serde_json::Value;

use super::plan::ProvisionError;
use crate::key::ObjectKey;
use crate::longhorn::object::{handle, volume_bytes};
use crate::longhorn::record::BackupFields;
use crate::longhorn::volume_snapshot::record::{VolumeSnapshotContentFields, VolumeSnapshotFields};
use crate::object::{annotation, is_controlled_by, is_deleting, namespace, read};
use crate::populate::{self, AUTHORIZED, DRIVER_CLONE, POPULATOR};
use crate::record::claim::ClaimFields;

/// The initial content of a new volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Nothing,
    Claim(ObjectKey),
    Snapshot(ObjectKey),
    Other(String),
    /// A source in another namespace that its DataVolume does not vouch for, in the words of
    /// [`DRIVER_CLONE`].
    Unauthorized(String),
}

/// The origin of a claim, given the DataVolume that controls it, if one does.
pub(super) fn origin(claim: &Value, dv: Option<&Value>) -> Origin {
    if let Some(wanted) = annotation(claim, DRIVER_CLONE) {
        return driver_clone(claim, dv, wanted);
    }
    let spec = read::<ClaimFields<'_>>(claim).spec;
    let mut references = [spec.data_source_ref, spec.data_source].into_iter();
    let Some(own) = references.find(|own| !own.kind.is_empty()) else { return Origin::Nothing };
    let (group, elsewhere, kind, name) = (own.api_group, own.namespace, own.kind, own.name);
    if !elsewhere.is_empty() && elsewhere != namespace(claim) {
        return Origin::Other(format!("{kind} {elsewhere}/{name}"));
    }
    match (group, kind) {
        ("", "PersistentVolumeClaim") => Origin::Claim(ObjectKey::new(namespace(claim), name)),
        (hci::snapshot::GROUP, "VolumeSnapshot") => {
            Origin::Snapshot(ObjectKey::new(namespace(claim), name))
        }
        // It is filled afterwards, as its annotations say.
        ("cdi.kubevirt.io", _) if annotation(claim, POPULATOR).is_some() => Origin::Nothing,
        _ => Origin::Other(format!("{kind} {name}")),
    }
}

fn driver_clone(claim: &Value, dv: Option<&Value>, wanted: &str) -> Origin {
    let unauthorized = || Origin::Unauthorized(wanted.to_owned());
    let mut parts = wanted.splitn(3, '/');
    let (Some(kind), Some(there), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
        return unauthorized();
    };
    let vouched = dv.is_some_and(|dv| {
        let authorized = annotation(dv, AUTHORIZED).unwrap_or_default();
        is_controlled_by(claim, dv) && virt::admit::covers(authorized, kind, there, name)
    });
    if there != namespace(claim) && !vouched {
        return unauthorized();
    }
    match kind {
        "pvc" => Origin::Claim(ObjectKey::new(there, name)),
        "snapshot" => Origin::Snapshot(ObjectKey::new(there, name)),
        _ => unauthorized(),
    }
}

/// Data that a volume begins with, in Longhorn's words, and how much it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) source: String,
    pub(super) size: i64,
    /// As its user calls it.
    pub(super) name: String,
    /// The URL of the backup, if it is one.
    pub(super) backup_url: Option<String>,
}

/// The backup behind a snapshot's content: `bak://VOLUME/BACKUP`.
pub(super) fn backup_of(content: Option<&Value>) -> Option<&str> {
    let status = read::<VolumeSnapshotContentFields<'_>>(content?).status;
    let handle = status.snapshot_handle.strip_prefix("bak://")?;
    handle.split_once('/').map(|(_, backup)| backup)
}

/// The content of another claim, given the persistent volume that it is bound to.
pub(super) fn claim_content(
    name: &str,
    source: Option<&Value>,
    volume: Option<&Value>,
) -> Result<Content, ProvisionError> {
    let kind = "PersistentVolumeClaim";
    let missing = || ProvisionError::Missing { kind, name: name.to_owned() };
    let source = source.ok_or_else(missing)?;
    let status = read::<ClaimFields<'_>>(source).status;
    let ready = status.phase == "Bound" && !is_deleting(source) && populate::is_populated(source);
    let Some(volume) = volume.filter(|_| ready) else {
        return Err(ProvisionError::NotReady { kind, name: name.to_owned() });
    };
    let own =
        handle(volume).ok_or_else(|| ProvisionError::Foreign { kind, name: name.to_owned() })?;
    let size = volume_bytes(&status.capacity.storage).unwrap_or_default();
    let (source, name) = (format!("vol://{own}"), name.to_owned());
    Ok(Content { source, size, name, backup_url: None })
}

/// The content of a snapshot, given what it is bound to.
pub(super) fn snapshot_content(
    name: &str,
    snapshot: Option<&Value>,
    content: Option<&Value>,
    backup: Option<&Value>,
) -> Result<Content, ProvisionError> {
    let kind = "VolumeSnapshot";
    let snapshot =
        snapshot.ok_or_else(|| ProvisionError::Missing { kind, name: name.to_owned() })?;
    let ready = read::<VolumeSnapshotFields<'_>>(snapshot).status.ready_to_use;
    let Some(content) = content.filter(|_| ready && !is_deleting(snapshot)) else {
        return Err(ProvisionError::NotReady { kind, name: name.to_owned() });
    };
    let VolumeSnapshotContentFields { spec, status } = read(content);
    let source = status.snapshot_handle;
    let is_backup = source.starts_with("bak://");
    let is_known = is_backup || source.starts_with("snap://");
    if spec.driver != hci::DRIVER || !is_known {
        return Err(ProvisionError::Foreign { kind, name: name.to_owned() });
    }
    let size = status.restore_size.unwrap_or_default();
    let url = backup.map_or("", |own| read::<BackupFields<'_>>(own).status.url);
    if is_backup && url.is_empty() {
        return Err(ProvisionError::NotReady { kind, name: name.to_owned() });
    }
    let backup_url = is_backup.then(|| url.to_owned());
    Ok(Content { source: source.to_owned(), size, name: name.to_owned(), backup_url })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn content_comes_from_claims_and_snapshots_that_are_ready() {
        let snapshot =
            json!({"apiGroup": hci::snapshot::GROUP, "kind": "VolumeSnapshot", "name": "s"});
        let other = json!({"kind": "PersistentVolumeClaim", "name": "p"});
        let populator = json!({"apiGroup": "x", "kind": "Filler", "name": "f"});
        let foreign = json!({"kind": "PersistentVolumeClaim", "name": "p", "namespace": "other"});
        for (source, expected) in [
            (snapshot, Origin::Snapshot(ObjectKey::new("n", "s"))),
            (other, Origin::Claim(ObjectKey::new("n", "p"))),
            (populator, Origin::Other("Filler f".into())),
            (foreign, Origin::Other("PersistentVolumeClaim other/p".into())),
        ] {
            let claim = json!({"metadata": {"namespace": "n"}, "spec": {"dataSourceRef": source}});
            assert_eq!(origin(&claim, None), expected);
        }
        let ready = json!({"status": {"readyToUse": true}});
        let held = |handle: &str| {
            json!({"spec": {"driver": hci::DRIVER},
            "status": {"snapshotHandle": handle, "restoreSize": 5}})
        };
        let read = |own: Option<Value>, content: Value| {
            snapshot_content("s", own.as_ref(), Some(&content), None).map_err(|own| own.to_string())
        };
        let source = "snap://v/s".to_owned();
        let found = Content { source, size: 5, name: "s".into(), backup_url: None };
        assert_eq!(read(Some(ready.clone()), held("snap://v/s")), Ok(found));
        assert_eq!(read(None, held("")), Err("VolumeSnapshot s is not found".into()));
        let waiting = Err("VolumeSnapshot s is not ready to be copied".into());
        assert_eq!(read(Some(json!({})), held("")), waiting);
        assert!(read(Some(ready.clone()), held("tape://v/s")).is_err());
        assert!(read(Some(ready.clone()), held("bak://v/b")).is_err(), "no such backup");
        let backup = json!({"status": {"url": "s3://b@r/?backup=b&volume=v"}});
        let content = held("bak://v/b");
        assert_eq!(backup_of(Some(&content)), Some("b"));
        let found = snapshot_content("s", Some(&ready), Some(&content), Some(&backup)).unwrap();
        assert_eq!(found.backup_url.as_deref(), Some("s3://b@r/?backup=b&volume=v"));

        let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        let volume = json!({"spec": {"csi": {"driver": hci::DRIVER, "volumeHandle": "h"}}});
        let copy = claim_content("p", Some(&bound), Some(&volume)).unwrap();
        assert_eq!((copy.source.as_str(), copy.size), ("vol://h", 1 << 30));
        assert!(claim_content("p", Some(&json!({})), Some(&volume)).is_err());
        assert!(claim_content("p", Some(&bound), Some(&json!({"spec": {"local": {}}}))).is_err());
    }

    #[test]
    fn a_source_elsewhere_is_vouched_for_by_the_data_volume_that_controls_the_claim() {
        let claim = |from: &str| {
            json!({"metadata": {"namespace": "n", "annotations": {DRIVER_CLONE: from},
                "ownerReferences": [{"uid": "u", "controller": true}]}})
        };
        let dv = |uid: &str, from: &str| json!({"metadata": {"uid": uid, "annotations": {AUTHORIZED: from}}});
        let foreign = claim("pvc/m/from");
        let refused = Origin::Unauthorized("pvc/m/from".into());
        for (dv, expected) in [
            (None, refused.clone()),
            (Some(dv("u", "pvc/m/other")), refused.clone()),
            (Some(dv("another", "pvc/m/from")), refused),
            (Some(dv("u", "pvc/m/from")), Origin::Claim(ObjectKey::new("m", "from"))),
        ] {
            assert_eq!(origin(&foreign, dv.as_ref()), expected, "{dv:?}");
        }
        let own = claim("snapshot/n/s");
        assert_eq!(origin(&own, None), Origin::Snapshot(ObjectKey::new("n", "s")));
    }
}
