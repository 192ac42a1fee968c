//! Synchronizing the backup target: whether it can be reached, and which backups are on it. Objects
//! of the API follow what is found, so that backups of another cluster appear.

use std::collections::{BTreeMap, BTreeSet};

use ::backup::{BackupConfig, BackupStore, BackupUrl, VolumeConfig};
use base::{Chain, clock};
use hci::longhorn::{BACKUP_TARGET_LABEL, BACKUP_VOLUME_LABEL, FINALIZER, NAMESPACE};
use kube::api::{DeleteParams, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tracing::{debug, warn};

use super::object::{self, TargetObject};
use super::target::OpenTargetError;
use super::{BACKUP_TARGETS, BACKUP_VOLUMES, BACKUPS, BackupContext, description};
use crate::storage::longhorn;
use crate::volume::hex;

/// Bytes that Longhorn counts for each block, whatever its size.
const COUNTED_BLOCK: u64 = 2 << 20;

/// The status of a complete backup.
pub(super) fn backup_status(
    backup: &BackupConfig,
    volume: &VolumeConfig,
    url: &BackupUrl,
) -> Value {
    json!({
        "state": "Completed", "progress": 100, "url": url.to_string(),
        "snapshotName": backup.snapshot_name, "snapshotCreatedAt": backup.snapshot_created_at,
        "backupCreatedAt": backup.created_time, "size": backup.size.to_string(),
        "labels": backup.labels, "volumeName": backup.volume_name,
        "volumeSize": volume.size.to_string(), "volumeCreated": volume.created_time,
        "volumeBackingImageName": volume.backing_image_name,
        "compressionMethod": backup.compression_method,
        "newlyUploadDataSize": backup.newly_uploaded_data_size.to_string(),
        "reUploadedDataSize": backup.re_uploaded_data_size.to_string(),
        "lastSyncedAt": clock::now_rfc3339(),
    })
}

fn volume_status(volume: &VolumeConfig) -> Value {
    json!({
        "size": volume.size.to_string(), "labels": volume.labels,
        "createdAt": volume.created_time, "lastBackupName": volume.last_backup_name,
        "lastBackupAt": volume.last_backup_at,
        "dataStored": (volume.block_count * COUNTED_BLOCK).to_string(),
        "backingImageName": volume.backing_image_name,
        "backingImageChecksum": volume.backing_image_checksum,
        "storageClassName": volume.storage_class_name, "lastSyncedAt": clock::now_rfc3339(),
    })
}

/// Longhorn's name for the BackupVolume of a volume on a target.
fn backup_volume_name(volume: &str, target: &str) -> String {
    let sum = hex(&Sha256::digest(format!("{volume}-{target}").as_bytes()));
    format!("{volume}-{}", &sum[..8])
}

/// The content of a target.
#[derive(Debug, Default)]
struct Found {
    volumes: BTreeMap<String, VolumeConfig>,
    /// Complete backups by name.
    backups: BTreeMap<String, BackupConfig>,
    /// Volumes of which something could not be read: nothing is concluded about their backups.
    unread: BTreeSet<String>,
}

/// Reads the target, brings the objects up to date, and reports on the target.
pub(super) async fn synchronise(context: &BackupContext, target: &TargetObject) {
    let found = read(context, target).await;
    let now = clock::now_rfc3339();
    let status = match &found {
        Ok(_) => json!({
            "available": true, "lastSyncedAt": now,
            "conditions": [{"type": "Unavailable", "status": "False", "reason": "",
                "message": "", "lastTransitionTime": now, "lastProbeTime": now}],
        }),
        Err(failure) => {
            let message = Chain(failure).to_string();
            debug!(target = target.name, error = message, "backup target is unavailable");
            json!({
                "available": false,
                "conditions": [{"type": "Unavailable", "status": "True", "reason": "Unavailable",
                    "message": message, "lastTransitionTime": now, "lastProbeTime": now}],
            })
        }
    };
    if let Ok(found) = found {
        if let Err(failure) = write(context, target, found).await {
            warn!(error = %Chain(&failure), "cannot write down the backups of the target");
        }
        if let Err(failure) = description::hand_over(context, target).await {
            warn!(error = %Chain(&failure), "cannot read the descriptions of machines on the target");
        }
    }
    if let Err(failure) = context.report(BACKUP_TARGETS, &target.name, status).await {
        warn!(error = %Chain(&failure), "cannot report on the backup target");
    }
}

async fn read(context: &BackupContext, target: &TargetObject) -> Result<Found, OpenTargetError> {
    let store = context.open(target).await?;
    let mut found = Found::default();
    for name in store.volumes().await? {
        if let Err(failure) = read_volume(&store, &name, &mut found).await {
            warn!(volume = name, error = %Chain(&failure), "cannot read backups of a volume");
            found.unread.insert(name);
        }
    }
    Ok(found)
}

async fn read_volume(
    store: &BackupStore,
    name: &str,
    found: &mut Found,
) -> Result<(), ::backup::StoreError> {
    let Some(volume) = store.volume(name).await? else { return Ok(()) };
    for own in store.backups(name).await? {
        if let Some(mut backup) = store.backup(name, &own).await?
            && backup.is_complete()
        {
            // The list of blocks can be long, and is of no use here.
            backup.blocks = Vec::new();
            found.backups.insert(own, backup);
        }
    }
    found.volumes.insert(name.to_owned(), volume);
    Ok(())
}

async fn write(
    context: &BackupContext,
    target: &TargetObject,
    found: Found,
) -> Result<(), kube::Error> {
    for (name, volume) in &found.volumes {
        let own = backup_volume_name(name, &target.name);
        let spec = json!({"backupTargetName": target.name, "volumeName": name});
        if create(context, BACKUP_VOLUMES, &own, name, &target.name, spec, &[]).await? {
            context.report(BACKUP_VOLUMES, &own, volume_status(volume)).await?;
        }
    }
    for (name, backup) in &found.backups {
        let Some(volume) = found.volumes.get(&backup.volume_name) else { continue };
        let finalizers = [FINALIZER];
        let of = &backup.volume_name;
        if create(context, BACKUPS, name, of, &target.name, json!({}), &finalizers).await? {
            let url =
                BackupUrl { target: target.url.clone(), volume: of.clone(), backup: name.clone() };
            let mut status = backup_status(backup, volume, &url);
            status["backupTargetName"] = json!(target.name);
            context.report(BACKUPS, name, status).await?;
        }
    }
    remove_missing(context, target, &found).await
}

/// Whether the object is for this node to report on: it was found on the target, now or before.
async fn create(
    context: &BackupContext,
    (kind, plural): (&str, &str),
    name: &str,
    volume: &str,
    target: &str,
    spec: Value,
    finalizers: &[&str],
) -> Result<bool, kube::Error> {
    let api = longhorn(&context.client, kind, plural);
    if let Some(found) = api.get_opt(name).await? {
        // One that a user asked for is reported on by the node that made it.
        let is_asked_for = kind == BACKUPS.0 && found.data["spec"]["snapshotName"] != Value::Null;
        return Ok(!is_asked_for && found.metadata.deletion_timestamp.is_none());
    }
    let made = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "finalizers": finalizers,
            "labels": {BACKUP_VOLUME_LABEL: volume, BACKUP_TARGET_LABEL: target}},
        "spec": spec,
    });
    let Ok(object) = serde_json::from_value::<DynamicObject>(made) else { return Ok(false) };
    match api.create(&PostParams::default(), &object).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(refused)) if (400..500).contains(&refused.code) => {
            debug!(kind, name, reason = refused.message, "an object of the target is refused");
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

/// Objects of backups that are not on the target any more go.
async fn remove_missing(
    context: &BackupContext,
    target: &TargetObject,
    found: &Found,
) -> Result<(), kube::Error> {
    let api = longhorn(&context.client, BACKUPS.0, BACKUPS.1);
    for own in api.list(&ListParams::default()).await?.items {
        let Some(backup) = object::backup(&own) else { continue };
        let is_here = BackupUrl::parse(&backup.url).is_ok_and(|url| url.target == target.url);
        let is_found = backup.snapshot.is_empty();
        let is_known =
            found.backups.contains_key(&backup.name) || found.unread.contains(&backup.volume);
        if is_found && is_here && backup.state == "Completed" && !is_known {
            api.delete(&backup.name, &DeleteParams::default()).await.map(drop)?;
        }
    }
    let api = longhorn(&context.client, BACKUP_VOLUMES.0, BACKUP_VOLUMES.1);
    for own in api.list(&ListParams::default()).await?.items {
        let volume = own.data["spec"]["volumeName"].as_str().unwrap_or_default();
        let is_own = own.data["spec"]["backupTargetName"] == target.name.as_str();
        if is_own && !found.volumes.contains_key(volume) && !found.unread.contains(volume) {
            let name = own.metadata.name.unwrap_or_default();
            api.delete(&name, &DeleteParams::default()).await.map(drop)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_volume_is_named_by_volume_and_target() {
        let name = backup_volume_name("pvc-1", "default");
        assert!(name.starts_with("pvc-1-") && name.len() == "pvc-1-".len() + 8, "{name}");
        assert_ne!(name, backup_volume_name("pvc-1", "other"));
    }

    #[test]
    fn a_backup_reports_its_url_and_sizes_as_texts() {
        let backup = BackupConfig { name: "b1".into(), size: 7, ..BackupConfig::default() };
        let volume = VolumeConfig { size: 1 << 20, ..VolumeConfig::default() };
        let url =
            BackupUrl { target: "s3://b@r/".into(), volume: "v1".into(), backup: "b1".into() };
        let status = backup_status(&backup, &volume, &url);
        assert_eq!(status["url"], "s3://b@r/?backup=b1&volume=v1");
        assert_eq!((&status["size"], &status["volumeSize"]), (&json!("7"), &json!("1048576")));
    }
}
