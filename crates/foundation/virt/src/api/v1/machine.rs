//! The VirtualMachine: its specification and its status.

use super::instance::{VirtualMachineInstanceBackupStatus, VirtualMachineInstanceSpec};
use super::request::{AddVolumeOptions, RemoveVolumeOptions};
use crate::api::atom::{Empty, Map, ObjectMeta, Quantity, Time};
use crate::api::cdi;
use crate::api::record::record;

record! {
    StorageMigratedVolumeInfo {
        /// Name of the volume in the virtual machine.
        volume_name: String,
        /// PersistentVolumeClaim that the volume is migrated from.
        source_pvc_info as "sourcePVCInfo": Option<PersistentVolumeClaimInfo>,
        /// PersistentVolumeClaim that the volume is migrated to.
        destination_pvc_info as "destinationPVCInfo": Option<PersistentVolumeClaimInfo>,
    }

    PersistentVolumeClaimInfo {
        /// Name of the PersistentVolumeClaim.
        claim_name: Option<String>,
        /// Access modes of the claim.
        access_modes: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Volume mode of the claim: Block or Filesystem.
        volume_mode: Option<String>,
        /// Capacity of the bound volume.
        capacity: Map<Quantity>,
        /// Requested size of the volume.
        requests: Map<Quantity>,
        /// Whether the disk image was preallocated.
        preallocated: Option<bool>,
        /// Share of the volume that is reserved for file system overhead, from 0 to 1.
        filesystem_overhead: Option<String> = {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"},
    }

    DataVolumeTemplateSpec: {"nullable": true} {
        api_version: Option<String>,
        kind: Option<String>,
        /// Name, labels and annotations of the DataVolume.
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        /// Source and size of the DataVolume.
        spec: cdi::DataVolumeSpec,
        /// Not used in templates.
        status: Option<Empty> = {"nullable": true},
    }

    VirtualMachineInstanceTemplateSpec {
        /// Labels and annotations of the instance.
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        /// Specification of the instance.
        spec: Option<VirtualMachineInstanceSpec>,
    }

    /// Virtual machine with its configuration and run strategy; it exists also while no guest
    /// runs.
    VirtualMachine {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineSpec,
        status: Option<VirtualMachineStatus>,
    }

    VirtualMachineSpec {
        /// Deprecated: use runStrategy. `true` means Always, `false` means Halted.
        running: Option<bool>,
        /// Run strategy of the guest: Always, RerunOnFailure, Manual, Halted, Once or
        /// WaitAsReceiver.
        run_strategy: Option<String>,
        /// Reference to the instance type, which sets the size of the virtual machine.
        instancetype: Option<InstancetypeMatcher>,
        /// Reference to the preference, which sets defaults for the template, for example the bus
        /// of disks.
        preference: Option<PreferenceMatcher>,
        /// Template of the instance that is created when the virtual machine starts.
        template: VirtualMachineInstanceTemplateSpec,
        /// Templates of DataVolumes that are created and deleted with the virtual machine.
        data_volume_templates: Vec<DataVolumeTemplateSpec>,
        /// Meaning of a changed volume: Replacement (default), or Migration of its data.
        update_volumes_strategy: Option<String>,
    }

    VirtualMachineStartFailure {
        /// Number of consecutive failed starts.
        consecutive_fail_count: Option<i64>,
        /// UID of the instance that failed last.
        last_failed_vmi_uid as "lastFailedVMIUID": Option<String>,
        /// Time of the next attempt to start.
        retry_after_timestamp: Option<Time>,
    }

    VirtualMachineStatus {
        /// Name of the VirtualMachineSnapshot that is in progress.
        snapshot_in_progress: Option<String>,
        /// Name of the VirtualMachineRestore that is in progress.
        restore_in_progress: Option<String>,
        /// Whether an instance exists.
        created: Option<bool>,
        /// Whether the guest is running and ready.
        ready: Option<bool>,
        /// State of the virtual machine for display, for example Running or Stopped.
        printable_status: Option<String> = {"default": "Stopped"},
        conditions: Vec<VirtualMachineCondition>,
        /// Requests to start or stop the instance that are not yet carried out.
        state_change_requests: Vec<VirtualMachineStateChangeRequest>,
        /// Requests to attach or detach volumes.
        volume_requests: Vec<VirtualMachineVolumeRequest> = {"x-kubernetes-list-type": "atomic"},
        /// Whether each volume can be included in a snapshot.
        volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
        /// Consecutive failed starts and the time of the next attempt.
        start_failure: Option<VirtualMachineStartFailure> = {"nullable": true},
        /// Requested memory dump and its progress.
        memory_dump_request: Option<VirtualMachineMemoryDumpRequest> = {"nullable": true},
        /// Generation of the specification that the running instance was created from.
        observed_generation: Option<i64>,
        /// Generation of the current specification.
        desired_generation: Option<i64>,
        /// Run strategy that was last applied.
        run_strategy: Option<String>,
        /// Progress of a change of the volumes.
        volume_update_state: Option<VolumeUpdateState>,
        /// State of changed block tracking, which incremental backups require.
        changed_block_tracking: Option<ChangedBlockTrackingStatus> = {"nullable": true},
        /// Instance type that is applied to the virtual machine.
        instancetype_ref: Option<InstancetypeStatusRef> = {"nullable": true},
        /// Preference that is applied to the virtual machine.
        preference_ref: Option<InstancetypeStatusRef> = {"nullable": true},
    }

    ControllerRevisionRef {
        /// Name of the ControllerRevision.
        name: Option<String>,
    }

    InstancetypeStatusRef {
        /// Name of the instance type or preference.
        name: Option<String>,
        /// Kind of the instance type or preference.
        kind: Option<String>,
        /// ControllerRevision that contains the applied version.
        controller_revision_ref: Option<ControllerRevisionRef>,
        /// Name of the volume that the instance type or preference is inferred from.
        infer_from_volume: Option<String>,
        /// Action if it cannot be inferred from the volume: Reject or Ignore.
        infer_from_volume_failure_policy: Option<String>,
    }

    ChangedBlockTrackingStatus {
        /// State of the tracking: Enabled, Disabled, Initializing or an error.
        state: String,
        /// Observed progress of the current backup.
        backup_status: Option<VirtualMachineInstanceBackupStatus> = {"nullable": true},
    }

    VolumeUpdateState {
        /// Migration of volumes to other claims.
        volume_migration_state: Option<VolumeMigrationState>,
    }

    VolumeMigrationState {
        /// Migrated volumes with their source and destination claims.
        migrated_volumes: Vec<StorageMigratedVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeSnapshotStatus {
        /// Name of the volume.
        name: String,
        /// Whether the volume can be included in a snapshot.
        enabled: bool,
        /// Reason why the volume cannot be included in a snapshot.
        reason: Option<String>,
    }

    VirtualMachineVolumeRequest {
        /// Volume that is to be attached.
        add_volume_options: Option<AddVolumeOptions>,
        /// Volume that is to be detached.
        remove_volume_options: Option<RemoveVolumeOptions>,
    }

    VirtualMachineStateChangeRequest {
        /// Requested action: Start or Stop.
        action: String,
        /// Options of the request, for example paused, by name.
        data: Map<String>,
        /// UID of the instance that is to be stopped.
        uid: Option<String>,
    }

    VirtualMachineCondition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

    VirtualMachineMemoryDumpRequest {
        /// Name of the claim that the memory dump is written to.
        claim_name: String,
        /// Phase of the memory dump: Associating, InProgress, Unmounting, Completed, Dissociating
        /// or Failed.
        phase: String,
        /// Whether the memory dump is to be removed from the virtual machine.
        remove: Option<bool>,
        /// When the memory dump began.
        start_timestamp: Option<Time>,
        /// When the memory dump ended.
        end_timestamp: Option<Time>,
        /// Name of the file of the memory dump on the claim.
        file_name: Option<String>,
        /// Human-readable cause of a failed memory dump.
        message: Option<String>,
    }

    InstancetypeMatcher {
        /// Name of the instance type.
        name: Option<String>,
        /// Kind of the instance type: VirtualMachineClusterInstancetype (default) or
        /// VirtualMachineInstancetype.
        kind: Option<String>,
        /// Name of the ControllerRevision with the version that is applied.
        revision_name: Option<String>,
        /// Name of the volume whose labels specify the instance type.
        infer_from_volume: Option<String>,
        /// Action if the instance type cannot be inferred from the volume: Reject or Ignore.
        infer_from_volume_failure_policy: Option<String>,
    }

    PreferenceMatcher {
        /// Name of the preference.
        name: Option<String>,
        /// Kind of the preference: VirtualMachineClusterPreference (default) or
        /// VirtualMachinePreference.
        kind: Option<String>,
        /// Name of the ControllerRevision with the version that is applied.
        revision_name: Option<String>,
        /// Name of the volume whose labels specify the preference.
        infer_from_volume: Option<String>,
        /// Action if the preference cannot be inferred from the volume: Reject or Ignore.
        infer_from_volume_failure_policy: Option<String>,
    }
}
