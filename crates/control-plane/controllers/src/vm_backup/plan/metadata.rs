//! The description of a backed-up machine on the target: its content, the Backup object for one
//! that was found, and the machine's secrets in it. Pure.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hci::harvester::backup::{SecretBackup, VirtualMachineBackup, VolumeBackup};
use hci::longhorn::NAMESPACE as LONGHORN_NAMESPACE;
use hci::vm_backup_metadata::{
    CONTENT, METADATA_READY, PENDING, SECRET_TYPE, VmBackupMetadata, location, secret_name,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use virt::v1::VirtualMachineInstanceSpec;

use super::upload;
use crate::condition::{self, Condition};
use crate::object::{annotation, is_true, list, name, namespace, text, uid};

/// On a backup that was made of a file of the target: the Secret with the content of that file.
pub(crate) const IMPORTED_FROM: &str = "sheaf.io/imported-from";

/// How far the description of a machine's backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataState {
    /// Its content is to be handed to the node that owns the target.
    Unwritten,
    /// That node is to write, or has removed, the file.
    NotStored,
    Stored,
}

pub(crate) fn state(backup: &Value) -> MetadataState {
    let found = condition::find(list(backup, "/status/conditions"), METADATA_READY);
    match found.map(|own| text(own, "/status")) {
        None => MetadataState::Unwritten,
        Some("True") => MetadataState::Stored,
        Some(_) => MetadataState::NotStored,
    }
}

/// Whether the file of a backup that is deleted is still on the target, which removes it.
pub(crate) fn is_on_target(backup: &Value, target: &Value) -> bool {
    let url = text(target, "/spec/backupTargetURL");
    let here = serde_json::to_value(location(url)).unwrap_or_default();
    let is_here = !url.is_empty() && backup["status"]["backupTarget"] == here;
    is_here && state(backup) == MetadataState::Stored
}

/// The secrets that the machine of a backup uses.
pub(crate) fn secrets_of(backup: &Value) -> BTreeSet<String> {
    let spec = backup["status"]["source"]["spec"]["template"]["spec"].clone();
    let spec: VirtualMachineInstanceSpec = serde_json::from_value(spec).unwrap_or_default();
    virt::node_access::secrets(&spec).into_iter().map(str::to_owned).collect()
}

/// A secret as a description holds it.
pub(crate) fn secret_backup(secret: &Value) -> SecretBackup {
    let data = secret["data"].as_object().into_iter().flatten();
    let data = data.filter_map(|(key, own)| Some((key.clone(), own.as_str()?.to_owned())));
    SecretBackup { name: name(secret).to_owned(), data: data.collect() }
}

/// The description of a backup that is complete; nothing if the backup has none to describe.
pub(crate) fn described(backup: &Value, secrets: Vec<SecretBackup>) -> Option<VmBackupMetadata> {
    let read: VirtualMachineBackup = serde_json::from_value(backup.clone()).ok()?;
    let status = read.status?;
    // Only what is the same in every cluster.
    let lasting = |own: VolumeBackup| VolumeBackup {
        progress: None,
        ready_to_use: None,
        creation_time: None,
        error: None,
        ..own
    };
    Some(VmBackupMetadata {
        name: name(backup).to_owned(),
        namespace: namespace(backup).to_owned(),
        backup_spec: read.spec,
        vm_source_spec: Some(status.source?),
        volume_backups: status.volume_backups.into_iter().map(lasting).collect(),
        secret_backups: secrets,
    })
}

/// The Secret with the content of a file, for the backup with this uid.
pub(crate) fn carrier(uid: &str, metadata: &VmBackupMetadata) -> Value {
    let content = serde_json::to_vec(metadata).unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
        "metadata": {"name": secret_name(uid), "namespace": LONGHORN_NAMESPACE},
        "data": {CONTENT: BASE64.encode(content)},
    })
}

/// The content of the file that such a Secret carries.
pub(crate) fn carried(secret: &Value) -> Vec<u8> {
    let encoded = secret["data"][CONTENT].as_str().unwrap_or_default();
    BASE64.decode(encoded).unwrap_or_default()
}

/// Has the file written, and names the secrets in it.
pub(crate) fn handed_over(backup: &Value, metadata: &VmBackupMetadata, now: Timestamp) -> Value {
    let mut conditions = condition::of(backup);
    let pending = Condition::new(METADATA_READY, "False").because(PENDING, "");
    condition::set(&mut conditions, &pending, now);
    let names = metadata.secret_backups.iter().map(|own| json!({"name": own.name, "data": {}}));
    let names: Vec<Value> = names.collect();
    json!({"status": {"conditions": conditions, "secretBackups": names}})
}

/// The decision about a file that was found.
#[derive(Debug, PartialEq)]
pub(crate) enum Import {
    /// The cluster has a backup of this name.
    Known,
    /// The backup is created.
    Create,
    /// The backup was created of this file, and the rest follows.
    Complete,
    /// The data of a disk is not known here yet, or belongs to another backup.
    Wait { backup: String },
}

/// `disks` are Longhorn's backups that the file names, and `owners` the uids of all backups of
/// machines.
pub(crate) fn import(
    secret: &Value,
    metadata: &VmBackupMetadata,
    existing: Option<&Value>,
    disks: &[Option<Value>],
    owners: &BTreeSet<String>,
) -> Import {
    match existing {
        Some(own) if annotation(own, IMPORTED_FROM) != Some(name(secret)) => return Import::Known,
        Some(_) => return Import::Complete,
        None => {}
    }
    let names = metadata.volume_backups.iter().zip(disks);
    let is_free = |disk: &Value| {
        let is_complete = text(disk, "/status/state") == "Completed";
        let owner = annotation(disk, upload::BELONGS_TO);
        is_complete && owner.is_none_or(|owner| !owners.contains(owner))
    };
    let missing = names.into_iter().find(|(_, disk)| !disk.as_ref().is_some_and(is_free));
    match missing {
        Some((volume, _)) => {
            Import::Wait { backup: volume.longhorn_backup_name.clone().unwrap_or_default() }
        }
        None => Import::Create,
    }
}

/// The backup that a file describes.
pub(crate) fn imported(
    secret: &Value,
    metadata: &VmBackupMetadata,
    target: &Value,
    now: Timestamp,
) -> Value {
    let mut disks = metadata.volume_backups.clone();
    for disk in &mut disks {
        disk.ready_to_use = Some(true);
        disk.progress = Some(100);
    }
    let mut conditions = Vec::new();
    for (kind, status) in [("Ready", "True"), ("InProgress", "False"), (METADATA_READY, "True")] {
        condition::set(&mut conditions, &Condition::new(kind, status), now);
    }
    let names = metadata.secret_backups.iter().map(|own| json!({"name": own.name, "data": {}}));
    let names: Vec<Value> = names.collect();
    let source = metadata.vm_source_spec.as_ref();
    json!({
        "apiVersion": super::API, "kind": "VirtualMachineBackup",
        "metadata": {
            "name": metadata.name, "namespace": metadata.namespace,
            "annotations": {IMPORTED_FROM: name(secret)}, "finalizers": [upload::FINALIZER],
        },
        "spec": metadata.backup_spec,
        "status": {
            "readyToUse": true, "progress": 100, "source": source, "volumeBackups": disks,
            "sourceUID": source.and_then(|own| own.metadata.uid.as_deref()),
            "secretBackups": names, "conditions": conditions,
            "backupTarget": location(text(target, "/spec/backupTargetURL")),
            "csiDriverVolumeSnapshotClassNames": {hci::DRIVER: "longhorn"},
        },
    })
}

/// The name of a secret of the backup for the restored machine.
pub(crate) fn restored_name(restore: &Value, secret: &str) -> String {
    match is_true(restore, "/spec/newVM") {
        true => format!("{}-{secret}", text(restore, "/spec/target/name")),
        false => secret.to_owned(),
    }
}

/// A secret of the restored machine, which it owns.
pub(crate) fn restored_secret(restore: &Value, vm: &Value, own: &SecretBackup) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": restored_name(restore, &own.name), "namespace": namespace(restore),
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "name": name(vm), "uid": uid(vm)}],
        },
        "data": own.data,
    })
}

/// JSON patches by which a new machine refers to its own copies of the secrets.
pub(crate) fn secret_patches(restore: &Value, backup: &Value) -> Vec<String> {
    let known: BTreeSet<&str> =
        list(backup, "/status/secretBackups").iter().map(|own| text(own, "/name")).collect();
    let base = "/spec/template/spec";
    let spec = &backup["status"]["source"]["spec"]["template"]["spec"];
    let volumes = spec["volumes"].as_array().into_iter().flatten().enumerate();
    let credentials = spec["accessCredentials"].as_array().into_iter().flatten().enumerate();
    let mut found = Vec::new();
    let mut note = |part: String, path: &str, own: &Value| {
        let secret = text(own, path);
        if !secret.is_empty() && known.contains(secret) {
            let value = restored_name(restore, secret);
            let path = format!("{base}/{part}{path}");
            found.push(json!({"op": "replace", "path": path, "value": value}).to_string());
        }
    };
    for (index, own) in volumes {
        for path in VOLUME_SECRETS {
            note(format!("volumes/{index}"), path, own);
        }
    }
    for (index, own) in credentials {
        for path in CREDENTIAL_SECRETS {
            note(format!("accessCredentials/{index}"), path, own);
        }
    }
    found
}

/// Where volumes and credentials of machines name secrets.
const VOLUME_SECRETS: [&str; 7] = [
    "/cloudInitNoCloud/secretRef/name",
    "/cloudInitNoCloud/networkDataSecretRef/name",
    "/cloudInitConfigDrive/secretRef/name",
    "/cloudInitConfigDrive/networkDataSecretRef/name",
    "/sysprep/secret/name",
    "/secret/secretName",
    "/containerDisk/imagePullSecret",
];
const CREDENTIAL_SECRETS: [&str; 2] =
    ["/sshPublicKey/source/secret/secretName", "/userPassword/source/secret/secretName"];

/// The claims of a restore name classes that may exist in another cluster only; the default class
/// is used instead.
pub(crate) fn with_known_classes(backup: &Value, classes: &BTreeSet<String>) -> Value {
    let mut backup = backup.clone();
    let disks = backup["status"]["volumeBackups"].as_array_mut().into_iter().flatten();
    for disk in disks {
        let spec = &mut disk["persistentVolumeClaim"]["spec"];
        let class = spec["storageClassName"].as_str().unwrap_or_default();
        if !class.is_empty()
            && !classes.contains(class)
            && let Some(spec) = spec.as_object_mut()
        {
            spec.remove("storageClassName");
        }
    }
    backup
}

#[cfg(test)]
mod tests;
