//! `snapshot.storage.k8s.io`: snapshots of claims' volumes as storage drivers share them.

use crd::atom::{Map, ObjectMeta, Quantity, Time};
use crd::record::record;

pub const GROUP: &str = "snapshot.storage.k8s.io";

record! {
    /// Snapshot of a claim.
    VolumeSnapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired source and class of the snapshot.
        spec: VolumeSnapshotSpec,
        /// Observed state of the snapshot.
        status: Option<VolumeSnapshotStatus>,
    }

    VolumeSnapshotSpec {
        /// Source of the snapshot: a claim, or existing content.
        source: VolumeSnapshotSource,
        /// Name of the VolumeSnapshotClass of the snapshot.
        volume_snapshot_class_name: Option<String>,
    }

    /// Source of a snapshot; exactly one field must be set.
    VolumeSnapshotSource: {"oneOf": [
        {"required": ["persistentVolumeClaimName"]},
        {"required": ["volumeSnapshotContentName"]}
    ]} {
        /// Name of the PersistentVolumeClaim that the snapshot is taken of.
        persistent_volume_claim_name: Option<String>,
        /// Name of an existing VolumeSnapshotContent.
        volume_snapshot_content_name: Option<String>,
    }

    VolumeSnapshotStatus {
        /// Name of the VolumeSnapshotContent that the snapshot is bound to.
        bound_volume_snapshot_content_name: Option<String>,
        /// When the snapshot was taken.
        creation_time: Option<Time>,
        /// Whether the snapshot can be used to create a volume.
        ready_to_use: Option<bool>,
        /// Minimum size of a volume that is created from the snapshot.
        restore_size: Option<Quantity>,
        /// Last error while the snapshot was created, if any.
        error: Option<SnapshotFault>,
        /// Name of the VolumeGroupSnapshot that the snapshot belongs to.
        volume_group_snapshot_name: Option<String>,
    }

    SnapshotFault {
        /// When the error occurred.
        time: Option<Time>,
        /// Message of the error.
        message: Option<String>,
    }

    /// Driver and parameters of snapshots.
    VolumeSnapshotClass {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Name of the CSI driver that creates the snapshots.
        driver: String,
        /// Parameters of the CSI driver, by name.
        parameters: Map<String>,
        /// Whether the snapshot in the storage system is deleted with its object: Delete or
        /// Retain.
        deletion_policy: String = {"enum": ["Delete", "Retain"]},
    }

    /// Snapshot of a volume, as its driver knows it.
    VolumeSnapshotContent {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired content and its snapshot.
        spec: VolumeSnapshotContentSpec,
        /// Observed state of the snapshot in the storage system.
        status: Option<VolumeSnapshotContentStatus>,
    }

    VolumeSnapshotContentSpec {
        /// Whether the snapshot in the storage system is deleted with its object: Delete or
        /// Retain.
        deletion_policy: String = {"enum": ["Delete", "Retain"]},
        /// Name of the CSI driver that creates the snapshot.
        driver: String,
        /// Source of the content: a volume, or an existing snapshot.
        source: VolumeSnapshotContentSource,
        /// Volume mode of the source volume: Block or Filesystem.
        source_volume_mode: Option<String>,
        /// Name of the VolumeSnapshotClass of the snapshot.
        volume_snapshot_class_name: Option<String>,
        /// VolumeSnapshot that the content is bound to.
        volume_snapshot_ref: SnapshotReference,
    }

    VolumeSnapshotContentSource: {"oneOf": [
        {"required": ["volumeHandle"]},
        {"required": ["snapshotHandle"]}
    ]} {
        /// CSI handle of the volume that the snapshot is taken of.
        volume_handle: Option<String>,
        /// CSI handle of an existing snapshot.
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
        /// Resource version of the object.
        resource_version: Option<String>,
        /// Path of the referenced field in the object.
        field_path: Option<String>,
    }

    VolumeSnapshotContentStatus {
        /// CSI handle of the snapshot.
        snapshot_handle: Option<String>,
        /// When the snapshot was taken, in nanoseconds since 1970-01-01.
        creation_time: Option<i64>,
        /// Whether the snapshot can be used to create a volume.
        ready_to_use: Option<bool>,
        /// Minimum size of a volume that is created from the snapshot, in bytes.
        restore_size: Option<i64> = {"minimum": 0},
        /// Last error while the snapshot was created, if any.
        error: Option<SnapshotFault>,
        /// CSI handle of the group snapshot.
        volume_group_snapshot_handle: Option<String>,
    }
}
