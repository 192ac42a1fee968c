//! `snapshot.storage.k8s.io`: snapshots of claims' volumes as storage drivers share them.

use crd::atom::{Map, ObjectMeta, Quantity, Time};
use crd::record::record;

pub const GROUP: &str = "snapshot.storage.k8s.io";

record! {
    VolumeSnapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeSnapshotSpec,
        status: Option<VolumeSnapshotStatus>,
    }

    VolumeSnapshotSpec {
        source: VolumeSnapshotSource,
        volume_snapshot_class_name: Option<String>,
    }

    /// Exactly one of the two.
    VolumeSnapshotSource: {"oneOf": [
        {"required": ["persistentVolumeClaimName"]},
        {"required": ["volumeSnapshotContentName"]}
    ]} {
        persistent_volume_claim_name: Option<String>,
        volume_snapshot_content_name: Option<String>,
    }

    VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: Option<String>,
        creation_time: Option<Time>,
        ready_to_use: Option<bool>,
        restore_size: Option<Quantity>,
        error: Option<SnapshotFault>,
        volume_group_snapshot_name: Option<String>,
    }

    SnapshotFault {
        time: Option<Time>,
        message: Option<String>,
    }

    VolumeSnapshotClass {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        driver: String,
        parameters: Map<String>,
        deletion_policy: String = {"enum": ["Delete", "Retain"]},
    }

    VolumeSnapshotContent {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VolumeSnapshotContentSpec,
        status: Option<VolumeSnapshotContentStatus>,
    }

    VolumeSnapshotContentSpec {
        deletion_policy: String = {"enum": ["Delete", "Retain"]},
        driver: String,
        source: VolumeSnapshotContentSource,
        source_volume_mode: Option<String>,
        volume_snapshot_class_name: Option<String>,
        volume_snapshot_ref: SnapshotReference,
    }

    VolumeSnapshotContentSource: {"oneOf": [
        {"required": ["volumeHandle"]},
        {"required": ["snapshotHandle"]}
    ]} {
        volume_handle: Option<String>,
        snapshot_handle: Option<String>,
    }

    SnapshotReference: {"x-kubernetes-map-type": "atomic"} {
        api_version: Option<String>,
        kind: Option<String>,
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        field_path: Option<String>,
    }

    VolumeSnapshotContentStatus {
        snapshot_handle: Option<String>,
        /// Nanoseconds since 1970.
        creation_time: Option<i64>,
        ready_to_use: Option<bool>,
        restore_size: Option<i64> = {"minimum": 0},
        error: Option<SnapshotFault>,
        volume_group_snapshot_handle: Option<String>,
    }
}
