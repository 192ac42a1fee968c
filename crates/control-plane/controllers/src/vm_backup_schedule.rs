//! Harvester's schedules of backups and snapshots: at their times they make a VirtualMachineBackup,
//! keep as many as they should, and suspend themselves when too many failed in a row.
//!
//! A run is repeated until it is noted on the schedule: the name of its backup follows from its
//! time, so that a second attempt makes none twice.

mod plan;

pub(crate) use self::plan::BY_FAILURES;

use std::time::Duration;

use base::{Chain, clock};
use hci::schedule::LAST_RUN;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tracing::{info, warn};

use self::plan::ScheduleStep;
use crate::event::{self, Regarding};
use crate::key::{Dependents, ObjectKey};
use crate::object::{self, is_deleting, is_merged};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{Objects, Resource, is_refused};
use crate::vm_backup::BACKUPS;

const SCHEDULES: Resource = Resource::new("harvesterhci.io", "v1beta1", "schedulevmbackups");
const SOURCE: &str = "vm-backup-schedule";
/// A backup that is restored from cannot be deleted now.
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Schedules, and their backups, which carry the schedule's UID in their name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScheduleMapper(pub(crate) Dependents);

impl EventMapper for ScheduleMapper {
    type Key = ObjectKey;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<ObjectKey> {
        let ObjectChange::Object { kind, namespace, name, state } = touch else {
            return Vec::new();
        };
        if SCHEDULES.is(kind) {
            let key = ObjectKey::new(namespace, name);
            if *state == ObjectState::Gone {
                self.0.forget(&key);
                return Vec::new();
            }
            return vec![key];
        }
        match plan::schedule_uid(name).filter(|_| BACKUPS.is(kind)) {
            Some(uid) => self.0.of(&ObjectKey::new(namespace, uid)),
            None => Vec::new(),
        }
    }
}

pub(crate) struct ScheduleReconciler {
    objects: Objects,
    waiting: Dependents,
}

impl Reconciler for ScheduleReconciler {
    type Key = ObjectKey;

    async fn reconcile(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        self.at(key, clock::now()).await
    }
}

impl ScheduleReconciler {
    pub(crate) fn new(client: Client, waiting: Dependents) -> Self {
        Self { objects: Objects(client), waiting }
    }

    async fn at(&self, key: &ObjectKey, now: Timestamp) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(SCHEDULES, &key.namespace, &key.name).await;
        let found = found.doing("get the schedule")?;
        let Some(schedule) = found.filter(|own| !is_deleting(own)) else {
            return Ok(ReconcileResult::Done);
        };
        let uid = object::uid(&schedule);
        self.waiting.set(key, [ObjectKey::new(&key.namespace, uid)].into());
        let label = format!("{}={uid}", plan::UID_LABEL);
        let backups = self.objects.list(BACKUPS, &key.namespace, &label).await;
        let backups = backups.doing("list the backups of a schedule")?;
        let step = match plan::plan(&schedule, &backups, now) {
            Ok(step) => step,
            Err(failure) => {
                warn!(schedule = %key.name, error = %Chain(&failure), "schedule cannot be read");
                return Ok(ReconcileResult::Done);
            }
        };
        if let Some(due) = step.create {
            self.create(&schedule, due).await?;
        }
        let kept = self.delete(&step).await?;
        self.write(&schedule, &step).await?;
        let wait = step.wake.map(|wake| wake.duration_since(clock::now()));
        let wait = wait.map(|wait| Duration::try_from(wait).unwrap_or_default());
        let wait = wait.map(|wait| wait.max(Duration::from_millis(10)));
        Ok(match (wait, kept) {
            (Some(wait), true) => ReconcileResult::Again(wait.min(RECHECK_INTERVAL)),
            (None, true) => ReconcileResult::Again(RECHECK_INTERVAL),
            (Some(wait), false) => ReconcileResult::Again(wait),
            (None, false) => ReconcileResult::Done,
        })
    }

    /// Makes the backup of a run. One that is refused is left out: the next run may be accepted.
    async fn create(&self, schedule: &Value, due: Timestamp) -> Result<(), ReconcileError> {
        let wanted = plan::backup(schedule, due);
        match self.objects.create(BACKUPS, object::namespace(schedule), &wanted).await {
            Err(failure) if is_refused(&failure, 409) => Ok(()),
            Err(kube::Error::Api(refusal)) if (400..500).contains(&refusal.code) => {
                let regarding = Regarding {
                    api_version: "harvesterhci.io/v1beta1",
                    kind: "ScheduleVMBackup",
                    namespace: object::namespace(schedule),
                    name: object::name(schedule),
                    uid: object::uid(schedule),
                };
                let message = format!("no backup is made: {}", refusal.message);
                event::warn(&self.objects.0, SOURCE, &regarding, "FailedCreating", message).await;
                Ok(())
            }
            made => {
                made.doing("create a backup")?;
                info!(schedule = object::name(schedule), "schedule makes a backup");
                Ok(())
            }
        }
    }

    /// Deletes what is not kept; true if some of it could not be deleted now.
    async fn delete(&self, step: &ScheduleStep<'_>) -> Result<bool, ReconcileError> {
        let mut kept = false;
        for own in &step.delete {
            let (namespace, name) = (object::namespace(own), object::name(own));
            match self.objects.delete(BACKUPS, namespace, name, object::uid(own)).await {
                // A machine is being restored from it.
                Err(failure) if is_refused(&failure, 400) => kept = true,
                deleted => deleted.doing("delete a backup")?,
            }
        }
        Ok(kept)
    }

    async fn write(&self, schedule: &Value, step: &ScheduleStep<'_>) -> Result<(), ReconcileError> {
        let mut patch = json!({"status": step.status});
        if step.suspend {
            patch["spec"] = json!({"suspend": true});
        }
        if let Some(mark) = step.mark {
            patch["metadata"]["annotations"] = json!({LAST_RUN: clock::rfc3339(mark)});
        }
        if is_merged(schedule, &patch) {
            return Ok(());
        }
        patch["metadata"]["uid"] = json!(object::uid(schedule));
        let (namespace, name) = (object::namespace(schedule), object::name(schedule));
        match self.objects.merge(SCHEDULES, namespace, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(()),
            written => written.map(drop).doing("note how a schedule is"),
        }
    }
}

#[cfg(test)]
mod tests;
