//! What is done to volumes again and again.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    RecurringJob {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<RecurringJobSpec>,
        status: Option<RecurringJobStatus>,
    }

    RecurringJobSpec {
        name: Option<String>,
        groups: Vec<String>,
        task: Option<String> = {"enum": [
            "snapshot", "snapshot-force-create", "snapshot-cleanup", "snapshot-delete", "backup",
            "backup-force-create", "filesystem-trim", "system-backup"
        ]},
        cron: Option<String>,
        retain: Option<i32>,
        retain_age: Option<String>,
        retention_policy: Option<String> = {"enum": ["count-based", "age-based"]},
        concurrency: Option<i32>,
        labels: Map<String>,
        parameters: Map<String>,
    }

    RecurringJobStatus {
        owner_id as "ownerID": Option<String>,
        execution_count: Option<i32>,
    }
}
