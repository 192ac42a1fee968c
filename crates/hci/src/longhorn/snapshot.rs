//! Snapshots of one volume.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    Snapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<SnapshotSpec>,
        status: Option<SnapshotStatus>,
    }

    SnapshotSpec {
        /// The volume, which does not change.
        volume: String,
        create_snapshot: Option<bool>,
        labels: Map<String> = {"nullable": true},
    }

    SnapshotStatus {
        parent: Option<String>,
        children: Map<bool> = {"nullable": true},
        mark_removed: Option<bool>,
        user_created: Option<bool>,
        requested_time: Option<String>,
        creation_time: Option<String>,
        size: Option<i64>,
        labels: Map<String> = {"nullable": true},
        owner_id as "ownerID": Option<String>,
        error: Option<String>,
        restore_size: Option<i64>,
        ready_to_use: Option<bool>,
        checksum: Option<String>,
        checksum_calculated_at: Option<String>,
    }
}
