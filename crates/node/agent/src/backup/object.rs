//! Longhorn's objects, as far as backups need them. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use hci::harvester::backup::BackupTarget;
use hci::longhorn::BACKUP_VOLUME_LABEL;
use hci::vm_backup_metadata::{METADATA_READY, PENDING};
use kube::api::DynamicObject;
use serde_json::Value;

/// How often a target is read unless it says otherwise.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(300);

/// A place for backups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetObject {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) secret: String,
    pub(super) owner: String,
    /// Nothing if it is only read when asked to.
    pub(super) poll_interval: Option<Duration>,
    pub(super) sync_requested: String,
}

/// A backup that is to be made, is there, or is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BackupObject {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) volume: String,
    pub(super) snapshot: String,
    pub(super) snapshot_created: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) block_size: Option<u64>,
    pub(super) is_full: bool,
    pub(super) owner: String,
    pub(super) state: String,
    pub(super) url: String,
    pub(super) is_deleting: bool,
    pub(super) compression: String,
}

/// A volume that is filled from a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RestoredVolume {
    pub(super) name: String,
    pub(super) from_backup: String,
}

/// The action for the description of a machine's backup on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DescriptionStep {
    Write,
    Remove,
}

/// A backup of a machine whose description is to be written or removed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MachineBackup {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Where the backup is.
    pub(super) location: BackupTarget,
    pub(super) step: DescriptionStep,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

/// Go's notation of a duration, as far as poll intervals use it: `5m0s`.
fn duration(text: &str) -> Option<Duration> {
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = match rest[digits..].chars().next()? {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        seconds = seconds.checked_add(number.checked_mul(unit)?)?;
        rest = &rest[digits + 1..];
    }
    Some(Duration::from_secs(seconds))
}

pub(super) fn target(object: &DynamicObject) -> Option<TargetObject> {
    let data = &object.data;
    let interval = duration(text(data, "/spec/pollInterval")).unwrap_or(DEFAULT_POLL_INTERVAL);
    Some(TargetObject {
        name: name(object),
        url: text(data, "/spec/backupTargetURL").to_owned(),
        secret: text(data, "/spec/credentialSecret").to_owned(),
        owner: text(data, "/status/ownerID").to_owned(),
        poll_interval: Some(interval).filter(|interval| !interval.is_zero()),
        sync_requested: text(data, "/spec/syncRequestedAt").to_owned(),
    })
}

pub(super) fn backup(object: &DynamicObject) -> Option<BackupObject> {
    let data = &object.data;
    let own = |pointer: &str| text(data, pointer).to_owned();
    let label = object.metadata.labels.as_ref().and_then(|all| all.get(BACKUP_VOLUME_LABEL));
    let labels = data.pointer("/spec/labels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let volume = match text(data, "/status/volumeName") {
        "" => label.cloned().unwrap_or_default(),
        volume => volume.to_owned(),
    };
    Some(BackupObject {
        name: name(object),
        uid: object.metadata.uid.clone().unwrap_or_default(),
        volume,
        snapshot: own("/spec/snapshotName"),
        snapshot_created: own("/status/snapshotCreatedAt"),
        labels: labels.collect(),
        block_size: text(data, "/spec/backupBlockSize").parse().ok(),
        is_full: text(data, "/spec/backupMode") == "full",
        owner: own("/status/ownerID"),
        state: own("/status/state"),
        url: own("/status/url"),
        is_deleting: object.metadata.deletion_timestamp.is_some(),
        compression: own("/status/compressionMethod"),
    })
}

pub(super) fn volume(object: &DynamicObject) -> Option<RestoredVolume> {
    let data = &object.data;
    let from_backup = text(data, "/spec/fromBackup").to_owned();
    let required = data.pointer("/status/restoreRequired") == Some(&Value::Bool(true));
    let wanted = !from_backup.is_empty() && required;
    let is_deleting = object.metadata.deletion_timestamp.is_some();
    (wanted && !is_deleting).then(|| RestoredVolume { name: name(object), from_backup })
}

pub(super) fn machine_backup(object: &DynamicObject) -> Option<MachineBackup> {
    let status = &object.data["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut own = conditions.filter(|own| own["type"] == METADATA_READY);
    let condition = own.next()?;
    let is_deleting = object.metadata.deletion_timestamp.is_some();
    let step = match (is_deleting, text(condition, "/status"), text(condition, "/reason")) {
        (false, "False", PENDING) => DescriptionStep::Write,
        (true, "True", _) => DescriptionStep::Remove,
        _ => return None,
    };
    Some(MachineBackup {
        namespace: object.metadata.namespace.clone()?,
        name: name(object),
        uid: object.metadata.uid.clone()?,
        location: serde_json::from_value(status["backupTarget"].clone()).unwrap_or_default(),
        step,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_written_once_and_removed_with_its_backup() {
        let step = |deleted: Option<&str>, condition: Option<(&str, &str)>| {
            let conditions: Vec<Value> = condition
                .into_iter()
                .map(|(status, reason)| {
                    serde_json::json!({"type": METADATA_READY, "status": status, "reason": reason})
                })
                .collect();
            let object: DynamicObject = serde_json::from_value(serde_json::json!({
                "metadata": {"name": "b", "namespace": "n", "uid": "u",
                    "deletionTimestamp": deleted},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            machine_backup(&object).map(|own| own.step)
        };
        let deleted = Some("2026-01-02T03:04:05Z");
        for (deletion, condition, expected) in [
            (None, None, None),
            (None, Some(("False", PENDING)), Some(DescriptionStep::Write)),
            (None, Some(("True", "")), None),
            (deleted, Some(("True", "")), Some(DescriptionStep::Remove)),
            (deleted, Some(("False", PENDING)), None),
            (deleted, Some(("False", "Removed")), None),
        ] {
            assert_eq!(step(deletion, condition), expected, "{deletion:?} {condition:?}");
        }
    }

    #[test]
    fn durations_are_gos() {
        let seconds = |text| duration(text).map(|own| own.as_secs());
        assert_eq!(seconds("5m0s"), Some(300));
        assert_eq!(seconds("1h2m3s"), Some(3723));
        assert_eq!((seconds("0s"), seconds("x"), seconds("5")), (Some(0), None, None));
    }
}
