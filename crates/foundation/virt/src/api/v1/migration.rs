//! Moving a running guest: the migration object and the state both sides keep.

use crate::api::atom::{Map, ObjectMeta, Quantity, Time};
use crate::api::record::record;

record! {
    VirtualMachineInstanceMigrationCondition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

    VirtualMachineInstanceMigrationSourceState {
        /// Node that the guest runs on.
        node: Option<String>,
        /// Pod of the guest on the source.
        pod: Option<String>,
        /// UID of the VirtualMachineInstanceMigration.
        migration_uid as "migrationUID": Option<String>,
        /// Name of the domain of the guest in the hypervisor.
        domain_name: Option<String>,
        /// Namespace of the guest.
        domain_namespace: Option<String>,
        /// Address for migrations between clusters.
        sync_address: Option<String>,
        /// Name of the claim with the state of TPM and UEFI.
        persistent_state_pvc_name as "persistentStatePVCName": Option<String>,
        /// SELinux context of the QEMU process.
        selinux_context: Option<String>,
        /// UID of the VirtualMachineInstance.
        virtual_machine_instance_uid as "virtualMachineInstanceUID": Option<String>,
        /// Labels that the node of the guest must have.
        node_selectors: Map<String>,
    }

    VirtualMachineInstanceMigrationTargetState {
        /// Node that the guest is migrated to.
        node: Option<String>,
        /// Pod of the guest on the target.
        pod: Option<String>,
        /// UID of the VirtualMachineInstanceMigration.
        migration_uid as "migrationUID": Option<String>,
        /// Name of the domain of the guest in the hypervisor.
        domain_name: Option<String>,
        /// Namespace of the guest.
        domain_namespace: Option<String>,
        /// Address for migrations between clusters.
        sync_address: Option<String>,
        /// Name of the claim with the state of TPM and UEFI.
        persistent_state_pvc_name as "persistentStatePVCName": Option<String>,
        /// SELinux context of the QEMU process.
        selinux_context: Option<String>,
        /// UID of the VirtualMachineInstance.
        virtual_machine_instance_uid as "virtualMachineInstanceUID": Option<String>,
        /// When the target was ready to receive the guest.
        domain_ready_timestamp: Option<Time>,
        /// Whether the QEMU process of the target has started.
        domain_detected: Option<bool>,
        /// Address of the target that receives the migration data.
        node_address: Option<String>,
        /// Ports of the target, with their purpose.
        direct_migration_node_ports: Map<i64>,
        /// UID of the pod that attaches hot-plugged volumes.
        attachment_pod_uid as "attachmentPodUID": Option<String>,
        /// Physical CPUs that are dedicated to the guest.
        cpu_set: Vec<i64> = {"x-kubernetes-list-type": "atomic"},
        /// NUMA topology of the target, as JSON.
        node_topology: Option<String>,
    }

    VirtualMachineInstanceMigrationState {
        /// When the transfer of the memory began.
        start_timestamp: Option<Time> = {"nullable": true},
        /// When the migration ended.
        end_timestamp: Option<Time> = {"nullable": true},
        /// When the target was ready to receive the guest.
        target_node_domain_ready_timestamp: Option<Time>,
        /// Whether the QEMU process of the target has started.
        target_node_domain_detected: Option<bool>,
        /// Address of the target that receives the migration data.
        target_node_address: Option<String>,
        /// Ports of the target, with their purpose.
        target_direct_migration_node_ports: Map<i64>,
        /// Node that the guest is migrated to.
        target_node: Option<String>,
        /// Pod of the guest on the target.
        target_pod: Option<String>,
        /// UID of the pod on the target that attaches hot-plugged volumes.
        target_attachment_pod_uid as "targetAttachmentPodUID": Option<String>,
        /// Node that the guest is migrated from.
        source_node: Option<String>,
        /// Pod of the guest on the source.
        source_pod: Option<String>,
        /// Whether the migration has ended; the guest runs on the target unless it failed.
        completed: Option<bool>,
        /// Whether the migration has failed; the guest stays on the source.
        failed: Option<bool>,
        /// Whether the cancellation of the migration was requested.
        abort_requested: Option<bool>,
        /// State of the cancellation: Aborting, Succeeded or Failed.
        abort_status: Option<String>,
        /// Human-readable cause of a failed migration.
        failure_reason: Option<String>,
        /// UID of the VirtualMachineInstanceMigration.
        migration_uid: Option<String>,
        /// Mode of the memory transfer: PreCopy or PostCopy.
        mode: Option<String>,
        /// Name of the MigrationPolicy that applies.
        migration_policy_name: Option<String>,
        /// Migration options that apply.
        migration_configuration: Option<VMIMConfigurationOptions>,
        /// Physical CPUs of the target that are dedicated to the guest.
        target_cpu_set as "targetCPUSet": Vec<i64> = {"x-kubernetes-list-type": "atomic"},
        /// NUMA topology of the target, as JSON.
        target_node_topology: Option<String>,
        /// Name of the claim with the state of TPM and UEFI on the source.
        source_persistent_state_pvc_name as "sourcePersistentStatePVCName": Option<String>,
        /// Name of the claim with the state of TPM and UEFI on the target.
        target_persistent_state_pvc_name as "targetPersistentStatePVCName": Option<String>,
        /// State of the source of the migration.
        source_state: Option<VirtualMachineInstanceMigrationSourceState>,
        /// State of the target of the migration.
        target_state: Option<VirtualMachineInstanceMigrationTargetState>,
        /// Network of the migration data: pod or migration.
        migration_network_type: Option<String>,
        /// Memory overhead of QEMU on the target.
        target_memory_overhead: Option<Quantity>,
    }

    /// Live migration of a running guest to another node.
    VirtualMachineInstanceMigration {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstanceMigrationSpec,
        status: Option<VirtualMachineInstanceMigrationStatus>,
    }

    VirtualMachineInstanceMigrationSpec {
        /// Name of the VirtualMachineInstance to migrate, in the same namespace.
        vmi_name: Option<String>,
        /// Labels that the target node must have, in addition to those of the instance.
        added_node_selector: Map<String>,
        /// Target of a migration to another cluster.
        send_to: Option<VirtualMachineInstanceMigrationSource>,
        /// Source of a migration from another cluster.
        receive: Option<VirtualMachineInstanceMigrationTarget>,
        /// Priority among pending migrations: system-critical, user-triggered or
        /// system-maintenance.
        priority: Option<String>,
    }

    VirtualMachineInstanceMigrationSource {
        /// ID of the migration, the same in both clusters.
        migration_id as "migrationID": String,
        /// URL of the other cluster.
        connect_url as "connectURL": String,
    }

    VirtualMachineInstanceMigrationTarget {
        /// ID of the migration, the same in both clusters.
        migration_id as "migrationID": String,
    }

    VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
        /// Phase that the migration entered.
        phase: Option<String>,
        /// When the migration entered the phase.
        phase_transition_timestamp: Option<Time>,
    }

    VirtualMachineInstanceMigrationStatus {
        /// Phase of the migration: Pending, Scheduling, Scheduled, PreparingTarget, TargetReady,
        /// Running, Succeeded or Failed.
        phase: Option<String>,
        conditions: Vec<VirtualMachineInstanceMigrationCondition>,
        /// When the migration entered each phase.
        phase_transition_timestamps: Vec<VirtualMachineInstanceMigrationPhaseTransitionTimestamp> = {"x-kubernetes-list-type": "atomic"},
        /// Progress and result of the migration.
        migration_state: Option<VirtualMachineInstanceMigrationState>,
        /// Addresses for migrations between clusters.
        synchronization_addresses: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    StallDetectorOptions {
        /// Percentage by which the remaining data must decrease to count as progress.
        stall_margin: Option<i64> = {"minimum": 0, "maximum": 100},
        /// Weight of the latest sample in the moving average of the bandwidth, above 0 up to 1.
        ewma_alpha: Option<Quantity>,
        /// Seconds without progress after which a migration is stalled.
        stall_progress_timeout: Option<i64> = {"minimum": 0},
        /// Timeout of the switchover in seconds.
        switchover_timeout: Option<i64> = {"minimum": 0},
        /// Factor by which the estimated downtime may exceed the maximum before the migration is
        /// aborted.
        precopy_possible_factor: Option<Quantity>,
        /// Factor that the time between relaxations of the stall threshold is multiplied by after
        /// each.
        patience_window_decay_factor: Option<Quantity>,
        /// Whether a stalled migration waits for a local minimum of the remaining data.
        search_local_minima: Option<bool>,
        /// Factor that the completion timeout is multiplied by to get the total time limit.
        completion_timeout_factor: Option<Quantity>,
    }

    ExperimentalMigrationOptions {
        /// Options of the detection of stalled migrations.
        stall_detector: Option<StallDetectorOptions>,
        /// Options of the stepwise increase of the maximum downtime.
        downtime_tuning: Option<DowntimeTuningOptions>,
        /// Compression of the migration data: none or zstd.
        compression: Option<String> = {"enum": ["none", "zstd"]},
    }

    DowntimeTuningOptions {
        /// Initial maximum downtime in milliseconds.
        initial_ms: Option<i64> = {"minimum": 1},
        /// Number of steps up to the maximum downtime.
        steps: Option<i32> = {"minimum": 1},
        /// Number of memory iterations after which the downtime is first increased.
        start_after_iteration: Option<i64> = {"minimum": 1},
        /// Seconds between two increases of the downtime.
        cooldown_seconds: Option<i32> = {"minimum": 1},
    }

    VMIMConfigurationOptions {
        /// Key of the taint that marks a node as drained, so that its guests are migrated.
        node_drain_taint_key: Option<String>,
        /// Maximum number of parallel migrations from a node; 2 by default.
        parallel_outbound_migrations_per_node: Option<u32>,
        /// Maximum number of parallel migrations in the cluster; 5 by default.
        parallel_migrations_per_cluster: Option<u32>,
        /// Whether the CPUs of guests are throttled if their memory changes too fast
        /// (auto-converge).
        allow_auto_converge: Option<bool>,
        /// Bandwidth limit of a migration in bytes per second; 0 means no limit.
        bandwidth_per_migration: Option<Quantity>,
        /// Seconds per GiB of memory after which a migration is canceled; 150 by default.
        completion_timeout_per_gi_b: Option<i64>,
        /// Maximum downtime of a guest in milliseconds; 300 by default.
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        /// Seconds without progress after which a migration is canceled; 150 by default.
        progress_timeout: Option<i64>,
        /// Timeout of the detachment of utility volumes in seconds.
        utility_volumes_timeout: Option<i64>,
        /// Whether guests are migrated even if data could be lost.
        unsafe_migration_override: Option<bool>,
        /// Whether guests can continue on the target before all memory is copied (post-copy); not
        /// supported.
        allow_post_copy: Option<bool>,
        /// Whether guests that do not converge in time are paused until their memory is copied.
        allow_workload_disruption: Option<bool>,
        /// Whether the migration data is not encrypted; ignored, it is always encrypted.
        disable_tls as "disableTLS": Option<bool>,
        /// NetworkAttachmentDefinition of the migration network; not supported.
        network: Option<String>,
        /// Whether the target gets the SELinux level of the source.
        match_se_linux_level_on_migration as "matchSELinuxLevelOnMigration": Option<bool>,
        /// Experimental options of migrations.
        experimental: Option<ExperimentalMigrationOptions>,
    }

    MigrationConfiguration {
        /// Key of the taint that marks a node as drained, so that its guests are migrated.
        node_drain_taint_key: Option<String>,
        /// Maximum number of parallel migrations from a node; 2 by default.
        parallel_outbound_migrations_per_node: Option<u32>,
        /// Maximum number of parallel migrations in the cluster; 5 by default.
        parallel_migrations_per_cluster: Option<u32>,
        /// Whether the CPUs of guests are throttled if their memory changes too fast
        /// (auto-converge).
        allow_auto_converge: Option<bool>,
        /// Bandwidth limit of a migration in bytes per second; 0 means no limit.
        bandwidth_per_migration: Option<Quantity>,
        /// Seconds per GiB of memory after which a migration is canceled; 150 by default.
        completion_timeout_per_gi_b: Option<i64>,
        /// Maximum downtime of a guest in milliseconds; 300 by default.
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        /// Seconds without progress after which a migration is canceled; 150 by default.
        progress_timeout: Option<i64>,
        /// Timeout of the detachment of utility volumes in seconds.
        utility_volumes_timeout: Option<i64>,
        /// Whether guests are migrated even if data could be lost.
        unsafe_migration_override: Option<bool>,
        /// Whether guests can continue on the target before all memory is copied (post-copy); not
        /// supported.
        allow_post_copy: Option<bool>,
        /// Whether guests that do not converge in time are paused until their memory is copied.
        allow_workload_disruption: Option<bool>,
        /// Whether the migration data is not encrypted; ignored, it is always encrypted.
        disable_tls as "disableTLS": Option<bool>,
        /// NetworkAttachmentDefinition of the migration network; not supported.
        network: Option<String>,
        /// Whether the target gets the SELinux level of the source.
        match_se_linux_level_on_migration as "matchSELinuxLevelOnMigration": Option<bool>,
    }
}
