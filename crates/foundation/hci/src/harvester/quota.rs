//! How much of a namespace's storage snapshots may take.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    /// Limit for the space of snapshots in a namespace.
    ResourceQuota {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<ResourceQuotaSpec>,
        status: Option<ResourceQuotaStatus>,
    }

    ResourceQuotaSpec {
        /// Limits on the size of snapshots.
        snapshot_limit: Option<SnapshotLimit>,
    }

    SnapshotLimit {
        /// Limit on the size of all snapshots in the namespace, in bytes.
        namespace_total_snapshot_size_quota: Option<i64>,
        /// Limit on the size of the snapshots of a virtual machine in bytes, by its name.
        vm_total_snapshot_size_quota: Map<i64>,
    }

    ResourceQuotaStatus {
        /// Size of the existing snapshots.
        snapshot_limit_status: Option<SnapshotUsage>,
    }

    SnapshotUsage {
        /// Size of all snapshots in the namespace, in bytes.
        namespace_total_snapshot_size_usage: Option<i64>,
        /// Size of the snapshots of a virtual machine in bytes, by its name.
        vm_total_snapshot_size_usage: Map<i64>,
    }
}
