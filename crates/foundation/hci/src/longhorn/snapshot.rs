//! Snapshots of one volume.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

record! {
    Snapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<SnapshotSpec>,
        /// What is observed.
        status: Option<SnapshotStatus>,
    }

    SnapshotSpec {
        /// The volume, which does not change.
        volume: String,
        /// Take a new snapshot; otherwise the object describes one that exists.
        create_snapshot: Option<bool>,
        /// Labels.
        labels: Map<String> = {"nullable": true},
    }

    SnapshotStatus {
        /// Snapshot that it is based on.
        parent: Option<String>,
        /// Snapshots that are based on it.
        children: Map<bool> = {"nullable": true},
        /// The snapshot is deleted and waits for its removal.
        mark_removed: Option<bool>,
        /// A user created the snapshot.
        user_created: Option<bool>,
        /// When the snapshot was requested.
        requested_time: Option<String>,
        /// When it was created.
        creation_time: Option<String>,
        /// Size in bytes.
        size: Option<i64>,
        /// Labels.
        labels: Map<String> = {"nullable": true},
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// Why it failed.
        error: Option<String>,
        /// Size of a volume that is restored from it.
        restore_size: Option<i64>,
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// Checksum of the data.
        checksum: Option<String>,
        /// When the checksum was calculated.
        checksum_calculated_at: Option<String>,
    }
}
