//! The VirtualMachine: what its owner asks for, and how it stands.

use super::instance::{VirtualMachineInstanceBackupStatus, VirtualMachineInstanceSpec};
use super::request::{AddVolumeOptions, RemoveVolumeOptions};
use crate::api::atom::{Empty, Map, ObjectMeta, Quantity, Time};
use crate::api::cdi;
use crate::api::record::record;

record! {
    StorageMigratedVolumeInfo {
        volume_name: String,
        source_pvc_info as "sourcePVCInfo": Option<PersistentVolumeClaimInfo>,
        destination_pvc_info as "destinationPVCInfo": Option<PersistentVolumeClaimInfo>,
    }

    PersistentVolumeClaimInfo {
        claim_name: Option<String>,
        access_modes: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        volume_mode: Option<String>,
        capacity: Map<Quantity>,
        requests: Map<Quantity>,
        preallocated: Option<bool>,
        filesystem_overhead: Option<String> = {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"},
    }

    DataVolumeTemplateSpec: {"nullable": true} {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
        spec: cdi::DataVolumeSpec,
        status: Option<Empty> = {"nullable": true},
    }

    VirtualMachineInstanceTemplateSpec {
        metadata: ObjectMeta = {"x-kubernetes-preserve-unknown-fields": true, "nullable": true},
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
        consecutive_fail_count: Option<i64>,
        last_failed_vmi_uid as "lastFailedVMIUID": Option<String>,
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
        volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
        /// How often the machine failed to start in a row, and when it is tried again.
        start_failure: Option<VirtualMachineStartFailure> = {"nullable": true},
        memory_dump_request: Option<VirtualMachineMemoryDumpRequest> = {"nullable": true},
        observed_generation: Option<i64>,
        desired_generation: Option<i64>,
        /// The run strategy that was last acted on.
        run_strategy: Option<String>,
        volume_update_state: Option<VolumeUpdateState>,
        changed_block_tracking: Option<ChangedBlockTrackingStatus> = {"nullable": true},
        instancetype_ref: Option<InstancetypeStatusRef> = {"nullable": true},
        preference_ref: Option<InstancetypeStatusRef> = {"nullable": true},
    }

    ControllerRevisionRef {
        name: Option<String>,
    }

    InstancetypeStatusRef {
        name: Option<String>,
        kind: Option<String>,
        controller_revision_ref: Option<ControllerRevisionRef>,
        infer_from_volume: Option<String>,
        infer_from_volume_failure_policy: Option<String>,
    }

    ChangedBlockTrackingStatus {
        state: String,
        backup_status: Option<VirtualMachineInstanceBackupStatus> = {"nullable": true},
    }

    VolumeUpdateState {
        volume_migration_state: Option<VolumeMigrationState>,
    }

    VolumeMigrationState {
        migrated_volumes: Vec<StorageMigratedVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
    }

    VolumeSnapshotStatus {
        name: String,
        enabled: bool,
        reason: Option<String>,
    }

    VirtualMachineVolumeRequest {
        add_volume_options: Option<AddVolumeOptions>,
        remove_volume_options: Option<RemoveVolumeOptions>,
    }

    VirtualMachineStateChangeRequest {
        action: String,
        data: Map<String>,
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
        claim_name: String,
        phase: String,
        remove: Option<bool>,
        start_timestamp: Option<Time>,
        end_timestamp: Option<Time>,
        file_name: Option<String>,
        message: Option<String>,
    }

    InstancetypeMatcher {
        name: Option<String>,
        /// VirtualMachineClusterInstancetype (default) or VirtualMachineInstancetype.
        kind: Option<String>,
        /// The ControllerRevision that pins the size.
        revision_name: Option<String>,
        /// A volume whose labels name the size.
        infer_from_volume: Option<String>,
        infer_from_volume_failure_policy: Option<String>,
    }

    PreferenceMatcher {
        name: Option<String>,
        /// VirtualMachineClusterPreference (default) or VirtualMachinePreference.
        kind: Option<String>,
        revision_name: Option<String>,
        /// A volume whose labels name the preference.
        infer_from_volume: Option<String>,
        infer_from_volume_failure_policy: Option<String>,
    }
}
