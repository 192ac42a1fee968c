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
        /// Limits of the space for snapshots.
        snapshot_limit: Option<SnapshotLimit>,
    }

    SnapshotLimit {
        /// Bytes that all snapshots of the namespace may take.
        namespace_total_snapshot_size_quota: Option<i64>,
        /// Bytes that the snapshots of one machine may take, by name of the machine.
        vm_total_snapshot_size_quota: Map<i64>,
    }

    ResourceQuotaStatus {
        /// Space that snapshots take.
        snapshot_limit_status: Option<SnapshotUsage>,
    }

    SnapshotUsage {
        /// Bytes that all snapshots of the namespace take.
        namespace_total_snapshot_size_usage: Option<i64>,
        /// Bytes that the snapshots of one machine take, by name of the machine.
        vm_total_snapshot_size_usage: Map<i64>,
    }
}
