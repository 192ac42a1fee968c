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
        /// What is wanted.
        spec: VirtualMachineSnapshotSpec,
        /// What is observed.
        status: Option<VirtualMachineSnapshotStatus>,
    }

    VirtualMachineSnapshotSpec {
        /// The virtual machine.
        source: TypedLocalObjectReference,
        /// Delete or Retain: what happens to the content when the object is deleted.
        deletion_policy: Option<String>,
        /// How long the snapshot may take.
        failure_deadline: Option<Duration>,
        /// Whether the memory of a guest that runs belongs to the snapshot, so that a machine
        /// that is restored goes on where it was. Not a field of KubeVirt's.
        memory: Option<bool>,
    }

    SourceIndication {
        /// How the snapshot was taken, for example Online or GuestAgent.
        indication: String,
        /// Explanation.
        message: String,
    }

    VirtualMachineSnapshotStatus {
        /// UID of the source.
        source_uid as "sourceUID": Option<String>,
        /// Content of the snapshot.
        virtual_machine_snapshot_content_name: Option<String>,
        /// When it was created.
        creation_time: Option<Time> = {"nullable": true},
        /// Phase of the object.
        phase: Option<String>,
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// Why it failed.
        error: Option<SnapshotError>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
        /// How the snapshot was taken.
        indications: Vec<String> = {"x-kubernetes-list-type": "set"},
        /// How the snapshot was taken, with explanations.
        source_indications: Vec<SourceIndication> = {"x-kubernetes-list-type": "atomic"},
        /// Volumes in the snapshot.
        snapshot_volumes: Option<SnapshotVolumesLists>,
    }

    SnapshotVolumesLists {
        /// Volumes in the snapshot.
        included_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
        /// Volumes that are not in the snapshot.
        excluded_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
    }

    SnapshotError {
        /// When it happened.
        time: Option<Time>,
        /// Explanation.
        message: Option<String>,
    }

    Condition {
        /// Type of the condition.
        r#type: String,
        /// True, False or Unknown.
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        /// When the status last changed.
        last_transition_time: Option<Time> = {"nullable": true},
        /// Why, in one word.
        reason: Option<String>,
        /// Explanation.
        message: Option<String>,
    }

    VirtualMachineSnapshotContent {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VirtualMachineSnapshotContentSpec,
        /// What is observed.
        status: Option<VirtualMachineSnapshotContentStatus>,
    }

    VirtualMachineSnapshotContentSpec {
        /// Name of the snapshot.
        virtual_machine_snapshot_name: Option<String>,
        /// What it is made of.
        source: SourceSpec,
        /// Volumes of the snapshot.
        volume_backups: Vec<VolumeBackup> = {"x-kubernetes-list-type": "atomic"},
    }

    /// A machine that outlives its runs: it holds how the guest is made and whether it runs.
    VirtualMachine {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        /// Specification of the virtual machine.
        spec: Option<v1::VirtualMachineSpec>,
        /// Status of the virtual machine.
        status: Option<v1::VirtualMachineStatus>,
    }

    SourceSpec {
        /// The virtual machine as it was.
        virtual_machine: Option<VirtualMachine>,
    }

    PersistentVolumeClaim {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true},
        /// Specification of the claim.
        spec: Option<PersistentVolumeClaimSpec>,
    }

    VolumeBackup {
        /// Name of the volume.
        volume_name: String,
        /// The claim of the volume.
        persistent_volume_claim: PersistentVolumeClaim,
        /// Snapshot of the volume.
        volume_snapshot_name: Option<String>,
    }

    VirtualMachineSnapshotContentStatus {
        /// When it was created.
        creation_time: Option<Time> = {"nullable": true},
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// Why it failed.
        error: Option<SnapshotError>,
        /// State of the snapshots of the volumes.
        volume_snapshot_status: Vec<VolumeSnapshotStatus> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeSnapshotStatus {
        /// Snapshot of the volume.
        volume_snapshot_name: String,
        /// When it was created.
        creation_time: Option<Time> = {"nullable": true},
        /// It is complete and can be used.
        ready_to_use: Option<bool>,
        /// Why it failed.
        error: Option<SnapshotError>,
    }

    VirtualMachineRestore {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VirtualMachineRestoreSpec,
        /// What is observed.
        status: Option<VirtualMachineRestoreStatus>,
    }

    VirtualMachineRestoreSpec {
        /// The virtual machine that is restored or created.
        target: TypedLocalObjectReference,
        /// Name of the snapshot.
        virtual_machine_snapshot_name: String,
        /// What happens if the target runs: WaitGracePeriod, StopTarget, FailImmediate or WaitEventually.
        target_readiness_policy: Option<String> = {"default": "WaitGracePeriod", "enum": ["StopTarget", "WaitGracePeriod", "FailImmediate", "WaitEventually"]},
        /// How restored volumes are named.
        volume_restore_policy: Option<String>,
        /// Who owns restored volumes: Vm or None.
        volume_ownership_policy: Option<String>,
        /// Changes of single volumes.
        volume_restore_overrides: Vec<VolumeRestoreOverride> = {"x-kubernetes-list-type": "atomic"},
        /// JSON patches of the virtual machine.
        patches: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    VirtualMachineRestoreStatus {
        /// Volumes that are restored.
        restores: Vec<VolumeRestore> = {"x-kubernetes-list-type": "atomic"},
        /// When the restore was complete.
        restore_time: Option<Time>,
        /// DataVolumes that were replaced.
        deleted_data_volumes: Vec<String> = {"x-kubernetes-list-type": "set"},
        /// The restore is complete.
        complete: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeRestore {
        /// Name of the volume.
        volume_name: String,
        /// The claim of the volume.
        persistent_volume_claim: String,
        /// Snapshot of the volume.
        volume_snapshot_name: String,
        /// DataVolume of the volume.
        data_volume_name: Option<String>,
    }

    VolumeRestoreOverride {
        /// Name of the volume.
        volume_name: Option<String>,
        /// Name of the restored volume.
        restore_name: Option<String>,
        /// Labels.
        labels: Map<String>,
        /// Annotations.
        annotations: Map<String>,
    }
}
