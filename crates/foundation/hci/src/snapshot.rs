//! `snapshot.storage.k8s.io`: snapshots of claims' volumes as storage drivers share them.

use crd::atom::{Map, ObjectMeta, Quantity, Time};
use crd::record::record;

pub const GROUP: &str = "snapshot.storage.k8s.io";

record! {
    VolumeSnapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VolumeSnapshotSpec,
        /// What is observed.
        status: Option<VolumeSnapshotStatus>,
    }

    VolumeSnapshotSpec {
        /// What it is made of.
        source: VolumeSnapshotSource,
        /// Class of the snapshot.
        volume_snapshot_class_name: Option<String>,
    }

    /// Exactly one of the two.
    VolumeSnapshotSource: {"oneOf": [
        {"required": ["persistentVolumeClaimName"]},
        {"required": ["volumeSnapshotContentName"]}
    ]} {
        /// Claim that the snapshot is taken of.
        persistent_volume_claim_name: Option<String>,
        /// Content that exists already.
        volume_snapshot_content_name: Option<String>,
    }

    VolumeSnapshotStatus {
        /// Content of the snapshot.
        bound_volume_snapshot_content_name: Option<String>,
        /// When it was created.
        creation_time: Option<Time>,
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// Size of a volume that is restored from it.
        restore_size: Option<Quantity>,
        /// Why it failed.
        error: Option<SnapshotFault>,
        /// Group snapshot that it belongs to.
        volume_group_snapshot_name: Option<String>,
    }

    SnapshotFault {
        /// When it happened.
        time: Option<Time>,
        /// Explanation.
        message: Option<String>,
    }

    VolumeSnapshotClass {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Driver that makes snapshots.
        driver: String,
        /// Parameters.
        parameters: Map<String>,
        /// Delete or Retain: what happens to the content when the object is deleted.
        deletion_policy: String = {"enum": ["Delete", "Retain"]},
    }

    VolumeSnapshotContent {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VolumeSnapshotContentSpec,
        /// What is observed.
        status: Option<VolumeSnapshotContentStatus>,
    }

    VolumeSnapshotContentSpec {
        /// Delete or Retain: what happens to the content when the object is deleted.
        deletion_policy: String = {"enum": ["Delete", "Retain"]},
        /// Driver that makes snapshots.
        driver: String,
        /// What it is made of.
        source: VolumeSnapshotContentSource,
        /// Mode of the volume that the snapshot was taken of.
        source_volume_mode: Option<String>,
        /// Class of the snapshot.
        volume_snapshot_class_name: Option<String>,
        /// Snapshot that the content belongs to.
        volume_snapshot_ref: SnapshotReference,
    }

    VolumeSnapshotContentSource: {"oneOf": [
        {"required": ["volumeHandle"]},
        {"required": ["snapshotHandle"]}
    ]} {
        /// Volume that the snapshot is taken of.
        volume_handle: Option<String>,
        /// Snapshot in the storage system.
        snapshot_handle: Option<String>,
    }

    SnapshotReference: {"x-kubernetes-map-type": "atomic"} {
        api_version: Option<String>,
        kind: Option<String>,
        /// Namespace of the object.
        namespace: Option<String>,
        /// Name of the object.
        name: Option<String>,
        /// UID of the object.
        uid: Option<String>,
        /// Version of the object.
        resource_version: Option<String>,
        /// Part of the object.
        field_path: Option<String>,
    }

    VolumeSnapshotContentStatus {
        /// Snapshot in the storage system.
        snapshot_handle: Option<String>,
        /// Nanoseconds since 1970.
        creation_time: Option<i64>,
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// Size of a volume that is restored from it.
        restore_size: Option<i64> = {"minimum": 0},
        /// Why it failed.
        error: Option<SnapshotFault>,
        /// Group snapshot in the storage system.
        volume_group_snapshot_handle: Option<String>,
    }
}
