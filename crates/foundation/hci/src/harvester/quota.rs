//! How much of a namespace's storage snapshots may take.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    ResourceQuota {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<ResourceQuotaSpec>,
        status: Option<ResourceQuotaStatus>,
    }

    ResourceQuotaSpec {
        snapshot_limit: Option<SnapshotLimit>,
    }

    SnapshotLimit {
        namespace_total_snapshot_size_quota: Option<i64>,
        vm_total_snapshot_size_quota: Map<i64>,
    }

    ResourceQuotaStatus {
        snapshot_limit_status: Option<SnapshotUsage>,
    }

    SnapshotUsage {
        namespace_total_snapshot_size_usage: Option<i64>,
        vm_total_snapshot_size_usage: Map<i64>,
    }
}
