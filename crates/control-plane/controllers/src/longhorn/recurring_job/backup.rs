//! Recurring jobs that make backups: each run takes a snapshot and backs it up; when a backup is
//! complete, older ones of the job go, and so do the snapshots that they were made of.
//!
//! Only backups that this cluster's job asked for are removed, not those of another cluster that
//! has a job of the same name and the same backup target.

use base::clock;
use hci::longhorn::backup::Backup;
use hci::longhorn::job::{RecurringJob, RecurringJobSpec};
use hci::longhorn::{BACKUP_VOLUME_LABEL, DEFAULT_BACKUP_TARGET, NAMESPACE};
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::plan::{self, JOB_LABEL, RecurringTask};
use super::{JOBS, JobReconciler, read};
use crate::longhorn::backup::plan::wanted;
use crate::longhorn::record::BackupTargetFields;
use crate::longhorn::{BACKUP_TARGETS, BACKUPS, SETTINGS};
use crate::object;
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::record::setting;
use crate::resource::is_refused;

/// Whether the snapshots of backups go once there is a newer one.
const CLEAN_UP: &str = "auto-cleanup-recurring-job-backup-snapshot";

impl JobReconciler {
    /// Begins the backup of a volume, unless the one before it is still being made.
    pub(super) async fn back_up(
        &self,
        job: &RecurringJob,
        volume: &str,
        due: Timestamp,
    ) -> Result<(), ReconcileError> {
        let target = self.0.get(BACKUP_TARGETS, NAMESPACE, DEFAULT_BACKUP_TARGET).await;
        let target = target.doing("get the backup target")?.unwrap_or_default();
        if object::read::<BackupTargetFields<'_>>(&target).spec.url.is_empty() {
            let message = format!("volume {volume}: backup target is not set");
            self.complain(job, "FailedCreating", message).await;
            return Ok(());
        }
        let own = job.metadata.name.as_deref().unwrap_or_default();
        if is_going(own, &self.backups(volume).await?) {
            return Ok(());
        }
        let Some(snapshot) = self.take_snapshot(job, volume, due).await? else {
            return Ok(());
        };
        let unique = Uuid::new_v5(&Uuid::NAMESPACE_OID, snapshot.as_bytes()).simple().to_string();
        let name = format!("backup-{}", &unique[..16]);
        let mut wanted = wanted(&name, &snapshot, volume);
        let mut labels = job.spec.clone().unwrap_or_default().labels;
        labels.insert(JOB_LABEL.to_owned(), own.to_owned());
        wanted["spec"]["labels"] = json!(labels);
        match self.0.create(BACKUPS, NAMESPACE, &wanted).await {
            Err(failure) if is_refused(&failure, 409) => Ok(()),
            Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                let message = format!("volume {volume}: {}", refusal.message);
                self.complain(job, "FailedCreating", message).await;
                Ok(())
            }
            made => made.map(drop).doing("create a backup"),
        }
    }

    /// A backup that is complete, or failed, may make older ones expire.
    pub(super) async fn backup(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(BACKUPS, NAMESPACE, name).await.doing("get the backup")?;
        let Some(backup) = found.and_then(read::<Backup>) else {
            return Ok(ReconcileResult::Done);
        };
        let Some(job) = job_of(&backup).filter(|_| is_complete(&backup)) else {
            return Ok(ReconcileResult::Done);
        };
        let found = self.0.get(JOBS, NAMESPACE, job).await.doing("get the recurring job")?;
        let Some(job) = found.and_then(read::<RecurringJob>) else {
            return Ok(ReconcileResult::Done);
        };
        let spec = job.spec.clone().unwrap_or_default();
        if RecurringTask::of(&spec) != RecurringTask::Backup {
            return Ok(ReconcileResult::Done);
        }
        let Some(volume) = backup.metadata.labels.get(BACKUP_VOLUME_LABEL) else {
            return Ok(ReconcileResult::Done);
        };
        let own = job.metadata.name.as_deref().unwrap_or_default();
        let backups = self.backups(volume).await?;
        for old in expired(own, &spec, &backups, clock::now()) {
            let uid = old.metadata.uid.as_deref().unwrap_or_default();
            let name = old.metadata.name.as_deref().unwrap_or_default();
            let deleted = self.0.delete(BACKUPS, NAMESPACE, name, uid).await;
            deleted.doing("delete a backup")?;
        }
        self.expire(&job, volume).await?;
        Ok(ReconcileResult::Done)
    }

    async fn backups(&self, volume: &str) -> Result<Vec<Backup>, ReconcileError> {
        let label = format!("{BACKUP_VOLUME_LABEL}={volume}");
        let all = self.0.list(BACKUPS, NAMESPACE, &label).await.doing("list backups")?;
        Ok(all.into_iter().filter_map(read).collect())
    }

    /// How many snapshots a job keeps: of those that were backed up the last, unless the setting
    /// says otherwise.
    pub(super) async fn snapshot_retention(
        &self,
        job: &RecurringJob,
    ) -> Result<RecurringJobSpec, ReconcileError> {
        let mut spec = job.spec.clone().unwrap_or_default();
        if RecurringTask::of(&spec) != RecurringTask::Backup {
            return Ok(spec);
        }
        let found = self.0.get(SETTINGS, NAMESPACE, CLEAN_UP).await.doing("get a setting")?;
        if found.is_none_or(|setting| setting::value(&setting) != "false") {
            spec.retain = Some(1);
            spec.retention_policy = None;
        }
        Ok(spec)
    }
}

fn job_of(backup: &Backup) -> Option<&str> {
    backup.spec.as_ref()?.labels.get(JOB_LABEL).map(String::as_str)
}

fn state(backup: &Backup) -> &str {
    backup.status.as_ref().and_then(|status| status.state.as_deref()).unwrap_or_default()
}

fn is_complete(backup: &Backup) -> bool {
    state(backup) == "Completed"
}

/// Whether a backup of the job is still being made.
fn is_going(job: &str, backups: &[Backup]) -> bool {
    let mut own = backups.iter().filter(|own| job_of(own) == Some(job));
    own.any(|own| {
        own.metadata.deletion_timestamp.is_none() && !matches!(state(own), "Completed" | "Error")
    })
}

/// The backups of a volume that a job removes: those beyond its retention, and those that failed
/// before the newest that is complete.
fn expired<'a>(
    job: &str,
    spec: &RecurringJobSpec,
    backups: &'a [Backup],
    now: Timestamp,
) -> Vec<&'a Backup> {
    let own = || {
        let own = backups.iter().filter(|own| job_of(own) == Some(job));
        let own = own.filter(|own| own.metadata.deletion_timestamp.is_none());
        own.filter_map(|own| {
            let made: Timestamp =
                own.metadata.creation_timestamp.as_ref()?.to_string().parse().ok()?;
            Some((made, own))
        })
    };
    let complete: Vec<_> = own()
        .filter(|(_, own)| is_complete(own))
        .filter_map(|(made, own)| Some((made, own.metadata.name.as_deref()?)))
        .collect();
    let newest = complete.iter().map(|(made, _)| *made).max();
    let surplus = plan::surplus(complete, spec, now);
    own()
        .filter(|(made, own)| {
            let name = own.metadata.name.as_deref().unwrap_or_default();
            surplus.contains(&name)
                || state(own) == "Error" && newest.is_some_and(|newest| *made < newest)
        })
        .map(|(_, own)| own)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_go_by_number_and_failures_with_them() {
        let backup = |name: &str, minute: u32, job: &str, state: &str| {
            json!({
                "metadata": {
                    "name": name, "creationTimestamp": format!("2026-11-16T07:{minute:02}:00Z"),
                },
                "spec": {"labels": {JOB_LABEL: job}}, "status": {"state": state},
            })
        };
        let mut all = vec![
            backup("a", 1, "j", "Completed"),
            backup("broken", 2, "j", "Error"),
            backup("other", 3, "k", "Completed"),
            backup("b", 4, "j", "Completed"),
            backup("c", 5, "j", "Completed"),
            backup("late", 6, "j", "Error"),
        ];
        let now = "2026-11-16T07:10:00Z".parse().unwrap();
        for (retain, expected) in
            [(1, &["a", "broken", "b"][..]), (2, &["a", "broken"]), (5, &["broken"])]
        {
            let spec = RecurringJobSpec { retain: Some(retain), ..RecurringJobSpec::default() };
            let read: Vec<Backup> = serde_json::from_value(json!(all)).unwrap();
            let gone = expired("j", &spec, &read, now);
            let names: Vec<_> =
                gone.iter().filter_map(|own| own.metadata.name.as_deref()).collect();
            assert_eq!(names, expected, "{retain}");
            assert!(!is_going("j", &read));
        }
        all.push(backup("going", 7, "j", "InProgress"));
        let read: Vec<Backup> = serde_json::from_value(json!(all)).unwrap();
        assert!(is_going("j", &read) && !is_going("k", &read));
    }
}
