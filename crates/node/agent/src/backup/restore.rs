//! Filling a new volume from a backup, before it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::backup::{BackupUrl, RestoreError, UrlError};
use base::Chain;
use client::Fault;
use serde_json::{Value, json};
use tracing::info;

use super::object::{RestoredVolume, TargetObject};
use super::target::OpenTargetError;
use super::volume_io::AttachedDisk;
use super::{BackupContext, ENGINES};
use crate::storage::{HeldError, NbdClient};

/// How often the progress is written down.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// Why a volume is not filled.
#[derive(Debug, thiserror::Error)]
pub(super) enum FillVolumeError {
    #[error("spec.fromBackup of the volume is invalid")]
    Url(#[from] UrlError),
    #[error("spec.fromBackup names the backup target {found}, and the cluster uses {known}")]
    OtherTarget { found: String, known: String },
    #[error(transparent)]
    Open(#[from] OpenTargetError),
    #[error(transparent)]
    Held(#[from] HeldError),
    #[error("cannot write to the volume")]
    Connect(#[source] std::io::Error),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("cannot report on the restore")]
    Report(#[source] Fault),
}

/// The engine of a volume, in whose status a restore is reported.
fn engine(volume: &str) -> String {
    format!("{volume}-e-0")
}

fn restore_status(url: &str, backup: &str, state: &str, percent: u64, error: &str) -> Value {
    json!({"restoreStatus": {"volume": {
        "isRestoring": state == "in_progress", "lastRestored": "", "currentRestoringBackup": backup,
        "progress": percent, "error": error, "state": state, "backupURL": url,
    }}})
}

/// Writes all of a backup to its volume, and reports that it is there.
pub(super) async fn fill(
    context: &BackupContext,
    target: &TargetObject,
    volume: &RestoredVolume,
) -> Result<(), FillVolumeError> {
    let url = BackupUrl::parse(&volume.from_backup)?;
    if url.target != target.url {
        let (found, known) = (url.target, target.url.clone());
        return Err(FillVolumeError::OtherTarget { found, known });
    }
    let store = context.open(target).await?;
    let held = context.storage.hold(&volume.name, &format!("restore-{}", volume.name)).await?;
    let filled = async {
        let disk = NbdClient::connect(&held.served.socket).await;
        let mut disk = AttachedDisk(disk.map_err(FillVolumeError::Connect)?);
        let percent = Arc::new(AtomicU64::new(0));
        let progress = Arc::clone(&percent);
        let restoring = store.restore(&url.volume, &url.backup, &mut disk, move |done, all| {
            progress.store((done * 100 / all.max(1)).min(99), Ordering::Relaxed);
        });
        let mut restoring = std::pin::pin!(restoring);
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        loop {
            tokio::select! {
                done = &mut restoring => return Ok(done?),
                _ = ticks.tick() => {
                    let done = percent.load(Ordering::Relaxed);
                    let status =
                        restore_status(&volume.from_backup, &url.backup, "in_progress", done, "");
                    // The next report says it too.
                    let _ = context.report(ENGINES, &engine(&volume.name), status).await;
                }
            }
        }
    };
    let filled: Result<(), FillVolumeError> = filled.await;
    // Before the report: once the volume is complete a ticket that was left would never be
    // released, and this job may be cancelled.
    held.release().await;
    match filled {
        Ok(()) => {
            info!(volume = volume.name, backup = url.backup, "volume is restored from its backup");
            let mut status = restore_status(&volume.from_backup, &url.backup, "complete", 100, "");
            status["lastRestoredBackup"] = json!(url.backup);
            let written = context.report(ENGINES, &engine(&volume.name), status).await;
            written.map(drop).map_err(|failure| FillVolumeError::Report(Fault(failure)))
        }
        Err(failure) => {
            let why = Chain(&failure).to_string();
            let status = restore_status(&volume.from_backup, &url.backup, "error", 0, &why);
            let _ = context.report(ENGINES, &engine(&volume.name), status).await;
            Err(failure)
        }
    }
}
