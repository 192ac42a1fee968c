//! Sending a backup to its target, and removing one from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::backup::{BLOCK_SIZE, BackupRequest, BackupUrl, CreateError, DeleteError};
use base::{Chain, clock};
use client::Fault;
use hci::longhorn::{BACKUP_DELETED, backup_source};
use serde_json::json;
use tracing::info;

use super::object::{BackupObject, TargetObject};
use super::target::OpenTargetError;
use super::volume_io::AttachedDisk;
use super::{BACKUPS, BackupContext};
use crate::storage::{HeldError, NbdClient};

/// How often the progress is written down.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// Why a backup was not sent or removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackupJobError {
    #[error(transparent)]
    Open(#[from] OpenTargetError),
    #[error(transparent)]
    Held(#[from] HeldError),
    #[error("cannot read the copy of the snapshot")]
    Connect(#[source] std::io::Error),
    #[error(transparent)]
    Create(#[from] CreateError),
    #[error(transparent)]
    Delete(#[from] DeleteError),
    #[error("cannot report on the backup")]
    Report(#[source] Fault),
}

/// Makes a backup and reports that it is complete.
pub(super) async fn upload(
    context: &BackupContext,
    target: &TargetObject,
    backup: &BackupObject,
) -> Result<(), BackupJobError> {
    let store = context.open(target).await?;
    let source = backup_source(&backup.uid);
    let ticket = format!("backup-{}", backup.name);
    let held = context.storage.hold(&source, &ticket).await?;
    let sent = async {
        let disk = NbdClient::connect(&held.served.socket).await;
        let mut disk = AttachedDisk(disk.map_err(BackupJobError::Connect)?);
        let request = request(backup);
        let percent = Arc::new(AtomicU64::new(0));
        let shared = Arc::clone(&percent);
        let creating = store.create(&request, &mut disk, move |progress| {
            let done = progress.read * 100 / progress.size.max(1);
            shared.store(done.min(99), Ordering::Relaxed);
        });
        let mut creating = std::pin::pin!(creating);
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        loop {
            tokio::select! {
                made = &mut creating => return Ok(made?),
                _ = ticks.tick() => {
                    let status = json!({"progress": percent.load(Ordering::Relaxed)});
                    // The next report says it too.
                    let _ = context.report(BACKUPS, &backup.name, status).await;
                }
            }
        }
    };
    let sent: Result<::backup::BackupResult, BackupJobError> = sent.await;
    held.release().await;
    let made = sent?;
    info!(
        backup = backup.name,
        blocks = made.config.blocks.len(),
        sent = made.sent,
        "backup is complete"
    );
    let url = BackupUrl {
        target: target.url.clone(),
        volume: backup.volume.clone(),
        backup: backup.name.clone(),
    };
    let mut status = super::sync::backup_status(&made.config, &made.volume, &url);
    status["backupTargetName"] = json!(target.name);
    status["error"] = json!("");
    let written = context.report(BACKUPS, &backup.name, status).await;
    written.map(drop).map_err(|failure| BackupJobError::Report(Fault(failure)))
}

fn request(backup: &BackupObject) -> BackupRequest {
    let created = match backup.snapshot_created.as_str() {
        "" => clock::now_rfc3339(),
        created => created.to_owned(),
    };
    BackupRequest {
        volume: backup.volume.clone(),
        backup: backup.name.clone(),
        snapshot: backup.snapshot.clone(),
        snapshot_created: created,
        labels: backup.labels.clone(),
        block_size: backup.block_size.unwrap_or(BLOCK_SIZE),
        compression: backup.compression.parse().unwrap_or_default(),
        is_full: backup.is_full,
        ..BackupRequest::default()
    }
}

/// Writes down why a backup is held up; it is tried again.
pub(super) async fn complain(context: &BackupContext, backup: &str, failure: &BackupJobError) {
    let status = json!({"error": Chain(failure).to_string()});
    let _ = context.report(BACKUPS, backup, status).await;
}

/// Removes a backup from its target, if that is the one it was made on.
pub(super) async fn delete(
    context: &BackupContext,
    target: &TargetObject,
    backup: &BackupObject,
) -> Result<(), BackupJobError> {
    // One that was cut off has no URL yet, and its remains are on the target that it was meant for.
    let elsewhere = BackupUrl::parse(&backup.url).is_ok_and(|own| own.target != target.url);
    if !elsewhere && !backup.volume.is_empty() {
        let store = context.open(target).await?;
        store.delete(&backup.volume, &backup.name).await?;
        info!(backup = backup.name, volume = backup.volume, "backup is removed");
    }
    let written = context.report(BACKUPS, &backup.name, json!({"state": BACKUP_DELETED})).await;
    written.map(drop).map_err(|failure| BackupJobError::Report(Fault(failure)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_has_blocks_of_two_mebibytes_unless_it_says_otherwise() {
        let object = serde_json::from_value(json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": "Backup",
            "metadata": {"name": "b", "uid": "u", "labels": {"backup-volume": "pvc-1"}},
            "spec": {"snapshotName": "s", "labels": {"a": "b"}},
            "status": {"snapshotCreatedAt": "2026-01-02T03:04:05Z"},
        }));
        let mut own = super::super::object::backup(&object.unwrap()).unwrap();
        let made = request(&own);
        assert_eq!((made.block_size, made.volume.as_str()), (BLOCK_SIZE, "pvc-1"));
        assert_eq!(made.snapshot_created, "2026-01-02T03:04:05Z");
        own.block_size = Some(16 << 20);
        assert_eq!(request(&own).block_size, 16 << 20);
    }
}
