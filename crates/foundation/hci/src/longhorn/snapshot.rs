//! Snapshots of one volume.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    /// Snapshot of a volume.
    Snapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired snapshot of a volume.
        spec: Option<SnapshotSpec>,
        /// Observed size and relations of the snapshot.
        status: Option<SnapshotStatus>,
    }

    SnapshotSpec {
        /// Name of the volume; immutable.
        volume: String,
        /// Whether a new snapshot is taken; otherwise the object represents an existing snapshot.
        create_snapshot: Option<bool>,
        /// Labels of the snapshot.
        labels: Map<String> = {"nullable": true},
    }

    SnapshotStatus {
        /// Name of the parent snapshot.
        parent: Option<String>,
        /// Names of the child snapshots.
        children: Map<bool> = {"nullable": true},
        /// Whether the snapshot is marked as removed and waits for its purge.
        mark_removed: Option<bool>,
        /// Whether a user created the snapshot.
        user_created: Option<bool>,
        /// When the snapshot was requested.
        requested_time: Option<String>,
        /// When the snapshot was created.
        creation_time: Option<String>,
        /// Size of the snapshot in bytes.
        size: Option<i64>,
        /// Labels of the snapshot.
        labels: Map<String> = {"nullable": true},
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// Error of the snapshot, if it failed.
        error: Option<String>,
        /// Minimum size of a volume that is restored from the snapshot, in bytes.
        restore_size: Option<i64>,
        /// Whether the snapshot is complete and can be restored.
        ready_to_use: Option<bool>,
        /// Checksum of the data of the snapshot.
        checksum: Option<String>,
        /// When the checksum was calculated.
        checksum_calculated_at: Option<String>,
    }
}
