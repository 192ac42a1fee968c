//! Longhorn's backups: each is read from a copy of its snapshot, which exists only meanwhile, by
//! the node that has the copy. That node accesses the target, and reports the result.

pub(crate) mod plan;

use std::sync::Arc;
use std::time::Duration;

use hci::longhorn::{DEFAULT_BACKUP_TARGET, NAMESPACE, VOLUME_LABEL, backup_source};
use kube::Client;
use serde_json::{Value, json};

use self::plan::{BackupInput, BackupStep};
use super::record::{BackupFields, SnapshotFields};
use super::{BACKUP_TARGETS, BACKUPS, LONGHORN_VOLUMES, REPLICAS, SETTINGS, SNAPSHOTS};
use crate::object::{self, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::record::setting;
use crate::resource::{Objects, is_refused};

/// Snapshots, copies and targets change without a word to the backup.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Backups by name.
#[derive(Debug, Default)]
pub(crate) struct BackupMapper;

impl EventMapper for BackupMapper {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, .. } if BACKUPS.is(kind) => vec![Arc::clone(name)],
            _ => Vec::new(),
        }
    }
}

pub(crate) struct BackupReconciler(Objects);

impl Reconciler for BackupReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(BACKUPS, NAMESPACE, name).await.doing("get the backup")?;
        let Some(backup) = found else { return Ok(ReconcileResult::Done) };
        let source = backup_source(object::uid(&backup));
        let snapshot = read::<BackupFields<'_>>(&backup).spec.snapshot_name;
        let snapshot = self.0.get(SNAPSHOTS, NAMESPACE, snapshot).await;
        let snapshot = snapshot.doing("get the snapshot")?;
        let volume =
            snapshot.as_ref().map_or("", |own| read::<SnapshotFields<'_>>(own).spec.volume);
        let volume = self.0.get(LONGHORN_VOLUMES, NAMESPACE, volume).await;
        let copy = self.0.get(LONGHORN_VOLUMES, NAMESPACE, &source).await;
        let labels = format!("{VOLUME_LABEL}={source}");
        let replicas = self.0.list(REPLICAS, NAMESPACE, &labels).await;
        let target = self.0.get(BACKUP_TARGETS, NAMESPACE, DEFAULT_BACKUP_TARGET).await;
        let method = self.0.get(SETTINGS, NAMESPACE, "backup-compression-method").await;
        let volume = volume.doing("get the volume")?;
        let copy = copy.doing("get the copy of the snapshot")?;
        let replicas = replicas.doing("list the replicas of the copy")?;
        let target = target.doing("get the backup target")?;
        let method = method.doing("get a setting")?;
        let input = BackupInput {
            backup: &backup,
            snapshot: snapshot.as_ref(),
            volume: volume.as_ref(),
            copy: copy.as_ref(),
            replicas: &replicas,
            target: target.as_ref(),
            compression: method.as_ref().map_or("", setting::value),
        };
        self.carry_out(&backup, plan::step(&input)).await
    }
}

impl BackupReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn carry_out(
        &self,
        backup: &Value,
        step: BackupStep,
    ) -> Result<ReconcileResult, ReconcileError> {
        let name = object::name(backup);
        match step {
            BackupStep::Done => Ok(ReconcileResult::Done),
            BackupStep::Wait => Ok(ReconcileResult::Again(RECHECK_INTERVAL)),
            BackupStep::Patch(patch) => {
                match self.0.merge(BACKUPS, NAMESPACE, name, &patch).await {
                    Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
                    written => written.map(|_| ReconcileResult::Done).doing("change a backup"),
                }
            }
            BackupStep::PatchStatus(status) => {
                let patch = json!({"status": status});
                if object::is_merged(backup, &patch) {
                    return Ok(ReconcileResult::Again(RECHECK_INTERVAL));
                }
                match self.0.merge_status(BACKUPS, NAMESPACE, name, &patch).await {
                    Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
                    written => written
                        .map(|_| ReconcileResult::Again(RECHECK_INTERVAL))
                        .doing("say how a backup is"),
                }
            }
            BackupStep::Copy(volume) => {
                match self.0.create(LONGHORN_VOLUMES, NAMESPACE, &volume).await {
                    Err(failure) if is_refused(&failure, 409) => {}
                    made => drop(made.doing("have a snapshot copied")?),
                }
                Ok(ReconcileResult::Again(RECHECK_INTERVAL))
            }
            BackupStep::RemoveCopy(copy) => {
                let (own, uid) = (object::name(&copy), object::uid(&copy));
                let deleted = self.0.delete(LONGHORN_VOLUMES, NAMESPACE, own, uid).await;
                deleted.doing("remove the copy of a snapshot")?;
                Ok(ReconcileResult::Again(RECHECK_INTERVAL))
            }
        }
    }
}
