//! Recurring jobs of volumes.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    RecurringJob {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<RecurringJobSpec>,
        /// What is observed.
        status: Option<RecurringJobStatus>,
    }

    RecurringJobSpec {
        /// Name of the job.
        name: Option<String>,
        /// Groups of volumes that the job is for.
        groups: Vec<String>,
        /// What the job does.
        task: Option<String> = {"enum": [
            "snapshot", "snapshot-force-create", "snapshot-cleanup", "snapshot-delete", "backup",
            "backup-force-create", "filesystem-trim", "system-backup"
        ]},
        /// Schedule of the job, as a cron expression.
        cron: Option<String>,
        /// How many snapshots or backups are kept.
        retain: Option<i32>,
        /// How long snapshots or backups are kept, if the policy is age-based.
        retain_age: Option<String>,
        /// count-based or age-based.
        retention_policy: Option<String> = {"enum": ["count-based", "age-based"]},
        /// How many volumes are worked on at the same time.
        concurrency: Option<i32>,
        /// Labels of the snapshots and backups of the job.
        labels: Map<String>,
        /// Parameters.
        parameters: Map<String>,
    }

    RecurringJobStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// How often the job has run.
        execution_count: Option<i32>,
    }
}
