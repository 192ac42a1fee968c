//! Longhorn's recurring jobs: at the times of their schedule they take and remove snapshots of
//! the volumes that are labelled for them, and back them up (`backup`).
//!
//! A run is repeated until it is noted on the job: the names of its snapshots follow from its
//! time, so that a second attempt makes none twice.

mod backup;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, clock};
use hci::longhorn::job::RecurringJob;
use hci::longhorn::snapshot::Snapshot;
use hci::longhorn::volume::Volume;
use hci::longhorn::{NAMESPACE, VOLUME_LABEL};
use hci::schedule::LAST_RUN;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{info, warn};
use uuid::Uuid;

use self::plan::{JOB_LABEL, RecurringTask, SOURCE_LABEL};
use super::{API, BACKUPS, LONGHORN_VOLUMES, SETTINGS, SNAPSHOTS, snapshot};
use crate::event::{self, EventType, Regarding};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::setting;
use crate::resource::{CLAIMS, Objects, Resource, VMIS, is_refused};

const JOBS: Resource = Resource::new("longhorn.io", "v1beta2", "recurringjobs");
const SOURCE: &str = "longhorn-recurring-job";
const WHILE_DETACHED: &str = "allow-recurring-job-while-volume-detached";

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecurringJobKey {
    Job(Arc<str>),
    /// A snapshot that is ready may make an older one expire.
    Snapshot(Arc<str>),
    /// The same for one that is complete.
    Backup(Arc<str>),
}

#[derive(Debug, Default)]
pub(crate) struct Jobs;

impl EventMapper for Jobs {
    type Key = RecurringJobKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<RecurringJobKey> {
        match touch {
            ObjectChange::Object { kind, name, state: ObjectState::Live, .. } if JOBS.is(kind) => {
                vec![RecurringJobKey::Job(Arc::clone(name))]
            }
            ObjectChange::Object { kind, name, state: ObjectState::Live, .. }
                if SNAPSHOTS.is(kind) =>
            {
                vec![RecurringJobKey::Snapshot(Arc::clone(name))]
            }
            ObjectChange::Object { kind, name, state: ObjectState::Live, .. }
                if BACKUPS.is(kind) =>
            {
                vec![RecurringJobKey::Backup(Arc::clone(name))]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct JobReconciler(Objects);

impl Reconciler for JobReconciler {
    type Key = RecurringJobKey;

    async fn reconcile(&self, work: &RecurringJobKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            RecurringJobKey::Job(name) => self.job(name, clock::now()).await,
            RecurringJobKey::Snapshot(name) => self.snapshot(name).await,
            RecurringJobKey::Backup(name) => self.backup(name).await,
        }
    }
}

impl JobReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }

    async fn job(&self, name: &str, now: Timestamp) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(JOBS, NAMESPACE, name).await.doing("get the recurring job")?;
        let Some(job) = found.and_then(read::<RecurringJob>) else {
            return Ok(ReconcileResult::Done);
        };
        let times = match plan::times(&job, now) {
            Ok(times) => times,
            Err(failure) => {
                warn!(job = name, error = %Chain(&failure), "recurring job has no schedule");
                return Ok(ReconcileResult::Done);
            }
        };
        if let Some(due) = times.due {
            self.run(&job, due).await?;
        } else if let Some(mark) = times.mark {
            self.mark(&job, name, mark).await?;
        }
        let wait = times.next.map(|next| next.duration_since(clock::now()));
        let wait = wait.map(|wait| Duration::try_from(wait).unwrap_or_default());
        Ok(wait.map_or(ReconcileResult::Done, |wait| {
            ReconcileResult::Again(wait.max(Duration::from_millis(10)))
        }))
    }

    async fn run(&self, job: &RecurringJob, due: Timestamp) -> Result<(), ReconcileError> {
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let spec = job.spec.clone().unwrap_or_default();
        let volumes = self.volumes(job).await?;
        info!(job = name, task = spec.task, volumes = volumes.len(), "recurring job runs");
        for volume in &volumes {
            match RecurringTask::of(&spec) {
                RecurringTask::Snapshot => self.take(job, volume, due).await?,
                RecurringTask::Cleanup | RecurringTask::Delete => self.expire(job, volume).await?,
                RecurringTask::Trim => self.trim(job, volume, due).await?,
                RecurringTask::Backup => self.back_up(job, volume, due).await?,
                RecurringTask::Unsupported => {
                    let task = spec.task.as_deref().unwrap_or_default();
                    let message = format!("volume {volume}: task {task} is not supported");
                    self.complain(job, "FailedCreating", message).await;
                }
            }
        }
        self.note(job, name, due).await
    }

    /// The names of the volumes that a job is for and that it can be done on now.
    async fn volumes(&self, job: &RecurringJob) -> Result<Vec<String>, ReconcileError> {
        let found = self.0.get(SETTINGS, NAMESPACE, WHILE_DETACHED).await;
        let found = found.doing("get a setting")?;
        let while_detached = found.is_some_and(|setting| setting::value(&setting) == "true");
        let label = format!("{SOURCE_LABEL}=enabled");
        let claims = self.0.list(CLAIMS, "", &label).await.doing("list claims")?;
        let claims: BTreeMap<_, _> = claims
            .into_iter()
            .filter_map(read::<PersistentVolumeClaim>)
            .map(|claim| claim.metadata)
            .map(|meta| ((meta.namespace, meta.name), meta.labels.unwrap_or_default()))
            .collect();
        let all = self.0.list(LONGHORN_VOLUMES, NAMESPACE, "").await.doing("list volumes")?;
        let chosen = all.into_iter().filter_map(read::<Volume>).filter(|volume| {
            let used = volume.status.clone().unwrap_or_default().kubernetes_status;
            let used = used.unwrap_or_default();
            let labels = claims.get(&(used.namespace, used.pvc_name));
            let labels = labels.unwrap_or(&volume.metadata.labels);
            plan::is_selected(job, labels) && plan::is_fit(volume, while_detached)
        });
        Ok(chosen.filter_map(|volume| volume.metadata.name).collect())
    }

    async fn take(
        &self,
        job: &RecurringJob,
        volume: &str,
        due: Timestamp,
    ) -> Result<(), ReconcileError> {
        let own = job.metadata.name.as_deref().unwrap_or_default();
        self.expire(job, volume).await?;
        if plan::is_pending(own, &self.snapshots(volume).await?) {
            return Ok(());
        }
        self.take_snapshot(job, volume, due).await.map(drop)
    }

    /// The name of the snapshot of a run; nothing if it was refused.
    async fn take_snapshot(
        &self,
        job: &RecurringJob,
        volume: &str,
        due: Timestamp,
    ) -> Result<Option<String>, ReconcileError> {
        let own = job.metadata.name.as_deref().unwrap_or_default();
        let mut labels = job.spec.clone().unwrap_or_default().labels;
        labels.insert(JOB_LABEL.to_owned(), own.to_owned());
        let seed = format!("{}/{volume}/{due}", job.metadata.uid.as_deref().unwrap_or_default());
        let unique = Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes());
        // As Longhorn's: the first letters of the name of its cron job.
        let begin: String = format!("{own}-c").chars().take(8).collect();
        let name = format!("{begin}-{unique}");
        let wanted = snapshot::wanted(&name, volume, &json!(labels));
        match self.0.create(SNAPSHOTS, NAMESPACE, &wanted).await {
            Err(failure) if is_refused(&failure, 409) => Ok(Some(name)),
            Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                let message = format!("volume {volume}: {}", refusal.message);
                self.complain(job, "FailedCreating", message).await;
                Ok(None)
            }
            made => made.map(|_| Some(name)).doing("create a snapshot"),
        }
    }

    /// Requests that the guest with the volume discards the unused blocks of its file systems.
    async fn trim(
        &self,
        job: &RecurringJob,
        volume: &str,
        due: Timestamp,
    ) -> Result<(), ReconcileError> {
        let found =
            self.0.get(LONGHORN_VOLUMES, NAMESPACE, volume).await.doing("get the volume")?;
        let status = found.and_then(read::<Volume>).unwrap_or_default().status.unwrap_or_default();
        let used = status.kubernetes_status.unwrap_or_default();
        let (namespace, claim) =
            (used.namespace.unwrap_or_default(), used.pvc_name.unwrap_or_default());
        let vmis = self.0.list(VMIS, &namespace, "").await.doing("list instances")?;
        let Some(vmi) = plan::user_of(&vmis, &claim) else {
            let message = format!("volume {volume}: no running virtual machine uses it");
            self.complain(job, "FailedFilesystemTrim", message).await;
            return Ok(());
        };
        let annotations = json!({virt::FILESYSTEM_TRIM_AT: clock::rfc3339(due)});
        let patch = json!({"metadata": {"annotations": annotations}});
        let written = self.0.merge(VMIS, &namespace, vmi, &patch).await;
        written.map(drop).doing("request a trim of an instance")
    }

    /// Removes the snapshots of a volume that a job does not keep.
    async fn expire(&self, job: &RecurringJob, volume: &str) -> Result<(), ReconcileError> {
        let own = job.metadata.name.as_deref().unwrap_or_default();
        let spec = self.snapshot_retention(job).await?;
        let snapshots = self.snapshots(volume).await?;
        for name in plan::expired(own, &spec, &snapshots, clock::now()) {
            let uid = snapshots.iter().find(|it| it.metadata.name.as_deref() == Some(name));
            let uid = uid.and_then(|it| it.metadata.uid.as_deref()).unwrap_or_default();
            match self.0.delete(SNAPSHOTS, NAMESPACE, name, uid).await {
                Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                    let message = format!(
                        "failed to clean up old snapshots of volume {volume}: {}",
                        refusal.message
                    );
                    self.complain(job, "FailedDeleting", message).await;
                }
                deleted => deleted.doing("delete a snapshot")?,
            }
        }
        Ok(())
    }

    async fn snapshots(&self, volume: &str) -> Result<Vec<Snapshot>, ReconcileError> {
        let label = format!("{VOLUME_LABEL}={volume}");
        let all = self.0.list(SNAPSHOTS, NAMESPACE, &label).await.doing("list snapshots")?;
        Ok(all.into_iter().filter_map(read).collect())
    }

    async fn note(
        &self,
        job: &RecurringJob,
        name: &str,
        due: Timestamp,
    ) -> Result<(), ReconcileError> {
        let count = job.status.clone().unwrap_or_default().execution_count.unwrap_or_default();
        let patch = json!({"status": {"executionCount": count.saturating_add(1)}});
        let written = self.0.merge_status(JOBS, NAMESPACE, name, &patch).await;
        written.doing("count the run of a recurring job")?;
        self.mark(job, name, due).await
    }

    async fn mark(
        &self,
        job: &RecurringJob,
        name: &str,
        due: Timestamp,
    ) -> Result<(), ReconcileError> {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let annotations = json!({LAST_RUN: clock::rfc3339(due)});
        let patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
        let written = self.0.merge(JOBS, NAMESPACE, name, &patch).await;
        written.map(drop).doing("note the run of a recurring job")
    }

    async fn snapshot(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(SNAPSHOTS, NAMESPACE, name).await.doing("get the snapshot")?;
        let Some(snapshot) = found.and_then(read::<Snapshot>) else {
            return Ok(ReconcileResult::Done);
        };
        let ready = snapshot.status.unwrap_or_default().ready_to_use == Some(true);
        let spec = snapshot.spec.unwrap_or_default();
        let Some(job) = spec.labels.get(JOB_LABEL).filter(|_| ready) else {
            return Ok(ReconcileResult::Done);
        };
        let found = self.0.get(JOBS, NAMESPACE, job).await.doing("get the recurring job")?;
        let job = found.and_then(read::<RecurringJob>);
        let takes = |job: &RecurringJob| {
            job.spec.as_ref().is_some_and(|spec| RecurringTask::of(spec) == RecurringTask::Snapshot)
        };
        if let Some(job) = job.filter(takes) {
            self.expire(&job, &spec.volume).await?;
        }
        Ok(ReconcileResult::Done)
    }

    async fn complain(&self, job: &RecurringJob, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: API,
            kind: "RecurringJob",
            namespace: NAMESPACE,
            name: job.metadata.name.as_deref().unwrap_or_default(),
            uid: job.metadata.uid.as_deref().unwrap_or_default(),
        };
        event::record(&self.0.0, SOURCE, &regarding, EventType::Warning, reason, message).await;
    }
}

/// An object as its record; nothing if it is none.
fn read<T: DeserializeOwned>(object: Value) -> Option<T> {
    serde_json::from_value(object).ok()
}

#[cfg(test)]
mod tests;
