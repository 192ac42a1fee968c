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
        node: Option<String>,
        pod: Option<String>,
        migration_uid as "migrationUID": Option<String>,
        domain_name: Option<String>,
        domain_namespace: Option<String>,
        sync_address: Option<String>,
        persistent_state_pvc_name as "persistentStatePVCName": Option<String>,
        selinux_context: Option<String>,
        virtual_machine_instance_uid as "virtualMachineInstanceUID": Option<String>,
        node_selectors: Map<String>,
    }

    VirtualMachineInstanceMigrationTargetState {
        node: Option<String>,
        pod: Option<String>,
        migration_uid as "migrationUID": Option<String>,
        domain_name: Option<String>,
        domain_namespace: Option<String>,
        sync_address: Option<String>,
        persistent_state_pvc_name as "persistentStatePVCName": Option<String>,
        selinux_context: Option<String>,
        virtual_machine_instance_uid as "virtualMachineInstanceUID": Option<String>,
        domain_ready_timestamp: Option<Time>,
        domain_detected: Option<bool>,
        node_address: Option<String>,
        direct_migration_node_ports: Map<i64>,
        attachment_pod_uid as "attachmentPodUID": Option<String>,
        cpu_set: Vec<i64> = {"x-kubernetes-list-type": "atomic"},
        node_topology: Option<String>,
    }

    VirtualMachineInstanceMigrationState {
        start_timestamp: Option<Time> = {"nullable": true},
        end_timestamp: Option<Time> = {"nullable": true},
        target_node_domain_ready_timestamp: Option<Time>,
        target_node_domain_detected: Option<bool>,
        target_node_address: Option<String>,
        target_direct_migration_node_ports: Map<i64>,
        target_node: Option<String>,
        target_pod: Option<String>,
        target_attachment_pod_uid as "targetAttachmentPodUID": Option<String>,
        source_node: Option<String>,
        source_pod: Option<String>,
        completed: Option<bool>,
        failed: Option<bool>,
        abort_requested: Option<bool>,
        abort_status: Option<String>,
        failure_reason: Option<String>,
        migration_uid: Option<String>,
        mode: Option<String>,
        migration_policy_name: Option<String>,
        migration_configuration: Option<VMIMConfigurationOptions>,
        target_cpu_set as "targetCPUSet": Vec<i64> = {"x-kubernetes-list-type": "atomic"},
        target_node_topology: Option<String>,
        source_persistent_state_pvc_name as "sourcePersistentStatePVCName": Option<String>,
        target_persistent_state_pvc_name as "targetPersistentStatePVCName": Option<String>,
        source_state: Option<VirtualMachineInstanceMigrationSourceState>,
        target_state: Option<VirtualMachineInstanceMigrationTargetState>,
        migration_network_type: Option<String>,
        target_memory_overhead: Option<Quantity>,
    }

    VirtualMachineInstanceMigration {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstanceMigrationSpec,
        status: Option<VirtualMachineInstanceMigrationStatus>,
    }

    VirtualMachineInstanceMigrationSpec {
        /// The instance to move, in the same namespace.
        vmi_name: Option<String>,
        /// Labels that the new node must have, besides those of the instance.
        added_node_selector: Map<String>,
        send_to: Option<VirtualMachineInstanceMigrationSource>,
        receive: Option<VirtualMachineInstanceMigrationTarget>,
        priority: Option<String>,
    }

    VirtualMachineInstanceMigrationSource {
        migration_id as "migrationID": String,
        connect_url as "connectURL": String,
    }

    VirtualMachineInstanceMigrationTarget {
        migration_id as "migrationID": String,
    }

    VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
        phase: Option<String>,
        phase_transition_timestamp: Option<Time>,
    }

    VirtualMachineInstanceMigrationStatus {
        phase: Option<String>,
        conditions: Vec<VirtualMachineInstanceMigrationCondition>,
        phase_transition_timestamps: Vec<VirtualMachineInstanceMigrationPhaseTransitionTimestamp> = {"x-kubernetes-list-type": "atomic"},
        migration_state: Option<VirtualMachineInstanceMigrationState>,
        synchronization_addresses: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    StallDetectorOptions {
        stall_margin: Option<i64> = {"minimum": 0, "maximum": 100},
        ewma_alpha: Option<Quantity>,
        stall_progress_timeout: Option<i64> = {"minimum": 0},
        switchover_timeout: Option<i64> = {"minimum": 0},
        precopy_possible_factor: Option<Quantity>,
        patience_window_decay_factor: Option<Quantity>,
        search_local_minima: Option<bool>,
        completion_timeout_factor: Option<Quantity>,
    }

    ExperimentalMigrationOptions {
        stall_detector: Option<StallDetectorOptions>,
        downtime_tuning: Option<DowntimeTuningOptions>,
        compression: Option<String> = {"enum": ["none", "zstd"]},
    }

    DowntimeTuningOptions {
        initial_ms: Option<i64> = {"minimum": 1},
        steps: Option<i32> = {"minimum": 1},
        start_after_iteration: Option<i64> = {"minimum": 1},
        cooldown_seconds: Option<i32> = {"minimum": 1},
    }

    VMIMConfigurationOptions {
        node_drain_taint_key: Option<String>,
        parallel_outbound_migrations_per_node: Option<u32>,
        parallel_migrations_per_cluster: Option<u32>,
        allow_auto_converge: Option<bool>,
        bandwidth_per_migration: Option<Quantity>,
        completion_timeout_per_gi_b: Option<i64>,
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        progress_timeout: Option<i64>,
        utility_volumes_timeout: Option<i64>,
        unsafe_migration_override: Option<bool>,
        allow_post_copy: Option<bool>,
        allow_workload_disruption: Option<bool>,
        disable_tls as "disableTLS": Option<bool>,
        network: Option<String>,
        match_se_linux_level_on_migration as "matchSELinuxLevelOnMigration": Option<bool>,
        experimental: Option<ExperimentalMigrationOptions>,
    }

    MigrationConfiguration {
        node_drain_taint_key: Option<String>,
        parallel_outbound_migrations_per_node: Option<u32>,
        parallel_migrations_per_cluster: Option<u32>,
        allow_auto_converge: Option<bool>,
        bandwidth_per_migration: Option<Quantity>,
        completion_timeout_per_gi_b: Option<i64>,
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        progress_timeout: Option<i64>,
        utility_volumes_timeout: Option<i64>,
        unsafe_migration_override: Option<bool>,
        allow_post_copy: Option<bool>,
        allow_workload_disruption: Option<bool>,
        disable_tls as "disableTLS": Option<bool>,
        network: Option<String>,
        match_se_linux_level_on_migration as "matchSELinuxLevelOnMigration": Option<bool>,
    }
}
