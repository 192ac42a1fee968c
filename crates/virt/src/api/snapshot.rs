//! `snapshot.kubevirt.io`: snapshots of machines, and going back to them.

use crate::api::atom::{
    Duration, Map, ObjectMeta, PersistentVolumeClaimSpec, Time, TypedLocalObjectReference,
};
use crate::api::record::record;
use crate::api::v1;

record! {
    VirtualMachineSnapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineSnapshotSpec,
        status: Option<VirtualMachineSnapshotStatus>,
    }

    VirtualMachineSnapshotSpec {
        source: TypedLocalObjectReference,
        deletion_policy: Option<String>,
        failure_deadline: Option<Duration>,
        /// Whether the memory of a guest that runs belongs to the snapshot, so that a machine
        /// that is restored goes on where it was. Not a field of KubeVirt's.
        memory: Option<bool>,
    }

    SourceIndication {
        indication: String,
        message: String,
    }

    VirtualMachineSnapshotStatus {
        source_uid as "sourceUID": Option<String>,
        virtual_machine_snapshot_content_name: Option<String>,
        creation_time: Option<Time> = {"nullable": true},
        phase: Option<String>,
        ready_to_use: Option<bool>,
        error: Option<SnapshotError>,
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
        indications: Vec<String> = {"x-kubernetes-list-type": "set"},
        source_indications: Vec<SourceIndication> = {"x-kubernetes-list-type": "atomic"},
        snapshot_volumes: Option<SnapshotVolumesLists>,
    }

    SnapshotVolumesLists {
        included_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
        excluded_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
    }

    SnapshotError {
        time: Option<Time>,
        message: Option<String>,
    }

    Condition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

    VirtualMachineSnapshotContent {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineSnapshotContentSpec,
        status: Option<VirtualMachineSnapshotContentStatus>,
    }

    VirtualMachineSnapshotContentSpec {
        virtual_machine_snapshot_name: Option<String>,
        source: SourceSpec,
        volume_backups: Vec<VolumeBackup> = {"x-kubernetes-list-type": "atomic"},
    }

    /// A machine that outlives its runs: it holds how the guest is made and whether it runs.
    VirtualMachine {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        spec: Option<v1::VirtualMachineSpec>,
        status: Option<v1::VirtualMachineStatus>,
    }

    SourceSpec {
        virtual_machine: Option<VirtualMachine>,
    }

    PersistentVolumeClaim {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        spec: Option<PersistentVolumeClaimSpec>,
    }

    VolumeBackup {
        volume_name: String,
        persistent_volume_claim: PersistentVolumeClaim,
        volume_snapshot_name: Option<String>,
    }

    VirtualMachineSnapshotContentStatus {
        creation_time: Option<Time> = {"nullable": true},
        ready_to_use: Option<bool>,
        error: Option<SnapshotError>,
        volume_snapshot_status: Vec<VolumeSnapshotStatus> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeSnapshotStatus {
        volume_snapshot_name: String,
        creation_time: Option<Time> = {"nullable": true},
        ready_to_use: Option<bool>,
        error: Option<SnapshotError>,
    }

    VirtualMachineRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineRestoreSpec,
        status: Option<VirtualMachineRestoreStatus>,
    }

    VirtualMachineRestoreSpec {
        target: TypedLocalObjectReference,
        virtual_machine_snapshot_name: String,
        target_readiness_policy: Option<String> = {"default": "WaitGracePeriod", "enum": ["StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"]},
        volume_restore_policy: Option<String>,
        volume_ownership_policy: Option<String>,
        volume_restore_overrides: Vec<VolumeRestoreOverride> = {"x-kubernetes-list-type": "atomic"},
        patches: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineRestoreStatus {
        restores: Vec<VolumeRestore> = {"x-kubernetes-list-type": "atomic"},
        restore_time: Option<Time>,
        deleted_data_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
        complete: Option<bool>,
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeRestore {
        volume_name: String,
        persistent_volume_claim: String,
        volume_snapshot_name: String,
        data_volume_name: Option<String>,
    }

    VolumeRestoreOverride {
        volume_name: Option<String>,
        restore_name: Option<String>,
        labels: Map<String>,
        annotations: Map<String>,
    }
}
