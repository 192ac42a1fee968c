//! `snapshot.kubevirt.io`: snapshots of machines, and going back to them.

use crate::api::atom::{
    Duration, Map, ObjectMeta, PersistentVolumeClaimSpec, Time, TypedLocalObjectReference,
};
use crate::api::record::record;
use crate::api::v1;

record! {
    /// Snapshot of a machine and its disks.
    VirtualMachineSnapshot {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired snapshot of a virtual machine.
        spec: VirtualMachineSnapshotSpec,
        /// Observed progress and content of the snapshot.
        status: Option<VirtualMachineSnapshotStatus>,
    }

    VirtualMachineSnapshotSpec {
        /// VirtualMachine that the snapshot is taken of.
        source: TypedLocalObjectReference,
        /// Whether the content is deleted with the snapshot: Delete or Retain.
        deletion_policy: Option<String>,
        /// Time after which an incomplete snapshot fails.
        failure_deadline: Option<Duration>,
        /// Whether the memory of a running guest is included, so that a restored machine continues
        /// from that point. Extension of the KubeVirt API.
        memory: Option<bool>,
    }

    SourceIndication {
        /// Property of the snapshot, for example Online or GuestAgent.
        indication: String,
        /// Human-readable details of the indication.
        message: String,
    }

    VirtualMachineSnapshotStatus {
        /// UID of the source.
        source_uid as "sourceUID": Option<String>,
        /// Name of the VirtualMachineSnapshotContent.
        virtual_machine_snapshot_content_name: Option<String>,
        /// When the snapshot was taken.
        creation_time: Option<Time> = {"nullable": true},
        /// Phase of the snapshot: InProgress, Succeeded, Failed, Deleting or Unknown.
        phase: Option<String>,
        /// Whether the snapshot is complete and can be restored.
        ready_to_use: Option<bool>,
        /// Last error while the snapshot was taken, if any.
        error: Option<SnapshotError>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
        /// Properties of the snapshot, for example Online or GuestAgent.
        indications: Vec<String> = {"x-kubernetes-list-type": "set"},
        /// Properties of the snapshot with details.
        source_indications: Vec<SourceIndication> = {"x-kubernetes-list-type": "atomic"},
        /// Volumes that are included in or excluded from the snapshot.
        snapshot_volumes: Option<SnapshotVolumesLists>,
    }

    SnapshotVolumesLists {
        /// Names of the volumes that the snapshot includes.
        included_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
        /// Names of the volumes that the snapshot excludes.
        excluded_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
    }

    SnapshotError {
        /// When the error occurred.
        time: Option<Time>,
        /// Message of the error.
        message: Option<String>,
    }

    Condition {
        /// Type of the condition.
        r#type: String,
        /// Status of the condition: True, False or Unknown.
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        /// When the status of the condition last changed.
        last_transition_time: Option<Time> = {"nullable": true},
        /// Reason of the last status change as one CamelCase word, for programs.
        reason: Option<String>,
        /// Human-readable details of the condition.
        message: Option<String>,
    }

    /// Content of a snapshot: the machine and the snapshots of its disks.
    VirtualMachineSnapshotContent {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired content: the virtual machine and its volumes.
        spec: VirtualMachineSnapshotContentSpec,
        /// Observed state of the volume snapshots.
        status: Option<VirtualMachineSnapshotContentStatus>,
    }

    VirtualMachineSnapshotContentSpec {
        /// Name of the VirtualMachineSnapshot.
        virtual_machine_snapshot_name: Option<String>,
        /// VirtualMachine as it was when the snapshot was taken.
        source: SourceSpec,
        /// Snapshots of the volumes of the virtual machine.
        volume_backups: Vec<VolumeBackup> = {"x-kubernetes-list-type": "atomic"},
    }

    /// Virtual machine with its configuration and run strategy; it exists also while no guest
    /// runs.
    VirtualMachine {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        /// Specification of the virtual machine.
        spec: Option<v1::VirtualMachineSpec>,
        /// Status of the virtual machine.
        status: Option<v1::VirtualMachineStatus>,
    }

    SourceSpec {
        /// VirtualMachine as it was when the snapshot was taken.
        virtual_machine: Option<VirtualMachine>,
    }

    PersistentVolumeClaim {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        /// Specification of the PersistentVolumeClaim.
        spec: Option<PersistentVolumeClaimSpec>,
    }

    VolumeBackup {
        /// Name of the volume.
        volume_name: String,
        /// PersistentVolumeClaim of the volume as it was when the snapshot was taken.
        persistent_volume_claim: PersistentVolumeClaim,
        /// Name of the VolumeSnapshot of the volume.
        volume_snapshot_name: Option<String>,
    }

    VirtualMachineSnapshotContentStatus {
        /// When the snapshot was taken.
        creation_time: Option<Time> = {"nullable": true},
        /// Whether the snapshot is complete and can be restored.
        ready_to_use: Option<bool>,
        /// Last error while the snapshot was taken, if any.
        error: Option<SnapshotError>,
        /// Observed state of the VolumeSnapshots.
        volume_snapshot_status: Vec<VolumeSnapshotStatus> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeSnapshotStatus {
        /// Name of the VolumeSnapshot.
        volume_snapshot_name: String,
        /// When the volume snapshot was taken.
        creation_time: Option<Time> = {"nullable": true},
        /// Whether the volume snapshot can be used to create a volume.
        ready_to_use: Option<bool>,
        /// Last error while the volume snapshot was taken, if any.
        error: Option<SnapshotError>,
    }

    /// Restore of a snapshot into its machine.
    VirtualMachineRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired restore: the snapshot and its target.
        spec: VirtualMachineRestoreSpec,
        /// Observed progress of the restore.
        status: Option<VirtualMachineRestoreStatus>,
    }

    VirtualMachineRestoreSpec {
        /// VirtualMachine that is restored, or created if it does not exist.
        target: TypedLocalObjectReference,
        /// Name of the VirtualMachineSnapshot to restore.
        virtual_machine_snapshot_name: String,
        /// Action if the target is running: WaitGracePeriod, StopTarget, FailImmediate or
        /// WaitEventually.
        target_readiness_policy: Option<String> = {"default": "WaitGracePeriod", "enum": ["StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"]},
        /// Naming of the restored volumes, for example PrefixTargetName.
        volume_restore_policy: Option<String>,
        /// Owner of the restored volumes: Vm or None.
        volume_ownership_policy: Option<String>,
        /// Names, labels and annotations of single restored volumes.
        volume_restore_overrides: Vec<VolumeRestoreOverride> = {"x-kubernetes-list-type": "atomic"},
        /// JSON patches that are applied to the restored virtual machine.
        patches: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineRestoreStatus {
        /// Restored volumes of the virtual machine.
        restores: Vec<VolumeRestore> = {"x-kubernetes-list-type": "atomic"},
        /// When the restore was completed.
        restore_time: Option<Time>,
        /// Names of the DataVolumes that were replaced.
        deleted_data_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
        /// Whether the restore is complete.
        complete: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeRestore {
        /// Name of the volume.
        volume_name: String,
        /// Name of the PersistentVolumeClaim that is created.
        persistent_volume_claim: String,
        /// Name of the VolumeSnapshot that is restored.
        volume_snapshot_name: String,
        /// Name of the DataVolume that is created.
        data_volume_name: Option<String>,
    }

    VolumeRestoreOverride {
        /// Name of the volume in the virtual machine.
        volume_name: Option<String>,
        /// Name of the restored PersistentVolumeClaim.
        restore_name: Option<String>,
        /// Labels of the restored claim.
        labels: Map<String>,
        /// Annotations of the restored claim.
        annotations: Map<String>,
    }
}
