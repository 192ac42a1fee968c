//! The VirtualMachine: its specification and its status.

use super::instance::{VirtualMachineInstanceBackupStatus, VirtualMachineInstanceSpec};
use super::request::{AddVolumeOptions, RemoveVolumeOptions};
use crate::api::atom::{Empty, Map, ObjectMeta, Quantity, Time};
use crate::api::cdi;
use crate::api::record::record;

record! {
    StorageMigratedVolumeInfo {
        /// Name of the volume in the machine.
        volume_name: String,
        /// The claim that the volume is moved from.
        source_pvc_info as "sourcePVCInfo": Option<PersistentVolumeClaimInfo>,
        /// The claim that the volume is moved to.
        destination_pvc_info as "destinationPVCInfo": Option<PersistentVolumeClaimInfo>,
    }

    PersistentVolumeClaimInfo {
        /// Name of the claim.
        claim_name: Option<String>,
        /// Access modes of the claim.
        access_modes: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Block or Filesystem.
        volume_mode: Option<String>,
        /// Size of the bound volume.
        capacity: Map<Quantity>,
        /// Size that the claim requests.
        requests: Map<Quantity>,
        /// The disk image was allocated in full when it was created.
        preallocated: Option<bool>,
        /// Share of the volume that the file system needs for itself, between 0 and 1.
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

    /// A machine that outlives its runs: it holds how the guest is made and whether it runs.
    VirtualMachine {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineSpec,
        status: Option<VirtualMachineStatus>,
    }

    VirtualMachineSpec {
        /// Deprecated: `true` is the run strategy Always, `false` is Halted.
        running: Option<bool>,
        /// When the guest runs: Always, RerunOnFailure, Manual, Halted, Once or WaitAsReceiver.
        run_strategy: Option<String>,
        /// The size of the machine, kept as an object of its own.
        instancetype: Option<InstancetypeMatcher>,
        /// Fills what the template leaves open, for example the bus of a disk.
        preference: Option<PreferenceMatcher>,
        /// The instance that is created when the machine starts.
        template: VirtualMachineInstanceTemplateSpec,
        /// Volumes that are created with the machine and deleted with it.
        data_volume_templates: Vec<DataVolumeTemplateSpec>,
        /// What an exchanged volume means: Replacement (default) or Migration.
        update_volumes_strategy: Option<String>,
    }

    VirtualMachineStartFailure {
        /// Number of failed starts in a row.
        consecutive_fail_count: Option<i64>,
        /// UID of the instance that failed last.
        last_failed_vmi_uid as "lastFailedVMIUID": Option<String>,
        /// Time of the next attempt.
        retry_after_timestamp: Option<Time>,
    }

    VirtualMachineStatus {
        /// The snapshot that is being taken.
        snapshot_in_progress: Option<String>,
        /// The restore that is being carried out.
        restore_in_progress: Option<String>,
        /// An instance exists.
        created: Option<bool>,
        /// The guest runs and is ready.
        ready: Option<bool>,
        /// The state of the machine in one word.
        printable_status: Option<String> = {"default": "Stopped"},
        conditions: Vec<VirtualMachineCondition>,
        /// Starts and stops that were asked for and are not done yet.
        state_change_requests: Vec<VirtualMachineStateChangeRequest>,
        /// Volumes that are to be attached or detached.
        volume_requests: Vec<VirtualMachineVolumeRequest> = {"x-kubernetes-list-type": "atomic"},
        /// Whether each volume can be part of a snapshot.
        volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
        /// How often the machine failed to start in a row, and when it is tried again.
        start_failure: Option<VirtualMachineStartFailure> = {"nullable": true},
        /// The memory dump that was requested, and its progress.
        memory_dump_request: Option<VirtualMachineMemoryDumpRequest> = {"nullable": true},
        /// Generation of the specification that the running instance was created from.
        observed_generation: Option<i64>,
        /// Generation of the current specification.
        desired_generation: Option<i64>,
        /// The run strategy that was last acted on.
        run_strategy: Option<String>,
        /// Progress of a change of volumes.
        volume_update_state: Option<VolumeUpdateState>,
        /// State of changed block tracking, which incremental backups need.
        changed_block_tracking: Option<ChangedBlockTrackingStatus> = {"nullable": true},
        /// The instancetype that is applied.
        instancetype_ref: Option<InstancetypeStatusRef> = {"nullable": true},
        /// The preference that is applied.
        preference_ref: Option<InstancetypeStatusRef> = {"nullable": true},
    }

    ControllerRevisionRef {
        /// Name of the ControllerRevision.
        name: Option<String>,
    }

    InstancetypeStatusRef {
        /// Name of the instancetype or preference.
        name: Option<String>,
        /// Kind of the instancetype or preference.
        kind: Option<String>,
        /// The ControllerRevision that keeps the applied version.
        controller_revision_ref: Option<ControllerRevisionRef>,
        /// Volume whose labels named the object.
        infer_from_volume: Option<String>,
        /// What happens if the volume names none: Reject or Ignore.
        infer_from_volume_failure_policy: Option<String>,
    }

    ChangedBlockTrackingStatus {
        /// State of the tracking: Enabled, Disabled, Initializing or an error.
        state: String,
        /// The backup that runs.
        backup_status: Option<VirtualMachineInstanceBackupStatus> = {"nullable": true},
    }

    VolumeUpdateState {
        /// Volumes that are moved to other claims.
        volume_migration_state: Option<VolumeMigrationState>,
    }

    VolumeMigrationState {
        /// The volumes with their old and new claims.
        migrated_volumes: Vec<StorageMigratedVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeSnapshotStatus {
        /// Name of the volume.
        name: String,
        /// The volume can be part of a snapshot.
        enabled: bool,
        /// Why it cannot.
        reason: Option<String>,
    }

    VirtualMachineVolumeRequest {
        /// Attach this volume.
        add_volume_options: Option<AddVolumeOptions>,
        /// Detach this volume.
        remove_volume_options: Option<RemoveVolumeOptions>,
    }

    VirtualMachineStateChangeRequest {
        /// Start or Stop.
        action: String,
        /// Options of the request, for example paused.
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
        /// Claim that the dump is written to.
        claim_name: String,
        /// Associating, InProgress, Unmounting, Completed, Dissociating or Failed.
        phase: String,
        /// The dump is to be removed from the machine.
        remove: Option<bool>,
        /// When the dump began.
        start_timestamp: Option<Time>,
        /// When the dump ended.
        end_timestamp: Option<Time>,
        /// Name of the dump file on the claim.
        file_name: Option<String>,
        /// Why the dump failed.
        message: Option<String>,
    }

    InstancetypeMatcher {
        /// Name of the instancetype.
        name: Option<String>,
        /// VirtualMachineClusterInstancetype (default) or VirtualMachineInstancetype.
        kind: Option<String>,
        /// The ControllerRevision that pins the size.
        revision_name: Option<String>,
        /// A volume whose labels name the size.
        infer_from_volume: Option<String>,
        /// What happens if the volume names no instancetype: Reject or Ignore.
        infer_from_volume_failure_policy: Option<String>,
    }

    PreferenceMatcher {
        /// Name of the preference.
        name: Option<String>,
        /// VirtualMachineClusterPreference (default) or VirtualMachinePreference.
        kind: Option<String>,
        /// ControllerRevision that keeps the version to apply.
        revision_name: Option<String>,
        /// A volume whose labels name the preference.
        infer_from_volume: Option<String>,
        /// What happens if the volume names no preference: Reject or Ignore.
        infer_from_volume_failure_policy: Option<String>,
    }
}
