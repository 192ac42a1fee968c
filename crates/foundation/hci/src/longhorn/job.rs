//! Recurring jobs of volumes.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    /// Schedule of snapshots, backups or trims of volumes.
    RecurringJob {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired task, schedule and volumes of the job.
        spec: Option<RecurringJobSpec>,
        /// Observed runs of the job.
        status: Option<RecurringJobStatus>,
    }

    RecurringJobSpec {
        /// Name of the job.
        name: Option<String>,
        /// Groups of volumes that the job runs for; default includes all volumes without a job.
        groups: Vec<String>,
        /// Task of the job, for example snapshot or backup.
        task: Option<String> = {"enum": [
            "snapshot", "snapshot-force-create", "snapshot-cleanup", "snapshot-delete", "backup",
            "backup-force-create", "filesystem-trim", "system-backup"
        ]},
        /// Schedule of the job, as a cron expression.
        cron: Option<String>,
        /// Number of snapshots or backups that are kept.
        retain: Option<i32>,
        /// Age after which snapshots or backups are deleted, if the retention policy is age-based.
        retain_age: Option<String>,
        /// Retention policy of snapshots and backups: count-based or age-based.
        retention_policy: Option<String> = {"enum": ["count-based", "age-based"]},
        /// Number of volumes that are processed at the same time.
        concurrency: Option<i32>,
        /// Labels of the snapshots and backups that the job creates.
        labels: Map<String>,
        /// Parameters of the task, by name.
        parameters: Map<String>,
    }

    RecurringJobStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// Number of times that the job has run.
        execution_count: Option<i32>,
    }
}
