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
        /// Node of the guest.
        node: Option<String>,
        /// Pod that represents the guest.
        pod: Option<String>,
        /// UID of the migration object.
        migration_uid as "migrationUID": Option<String>,
        /// Name of the guest for its hypervisor.
        domain_name: Option<String>,
        /// Namespace of the guest.
        domain_namespace: Option<String>,
        /// Address for migrations between clusters.
        sync_address: Option<String>,
        /// Claim with the state of TPM and firmware.
        persistent_state_pvc_name as "persistentStatePVCName": Option<String>,
        /// SELinux context of the process.
        selinux_context: Option<String>,
        /// UID of the instance.
        virtual_machine_instance_uid as "virtualMachineInstanceUID": Option<String>,
        /// Labels that the nodes of the guest must have.
        node_selectors: Map<String>,
    }

    VirtualMachineInstanceMigrationTargetState {
        /// Node of the guest.
        node: Option<String>,
        /// Pod that represents the guest.
        pod: Option<String>,
        /// UID of the migration object.
        migration_uid as "migrationUID": Option<String>,
        /// Name of the guest for its hypervisor.
        domain_name: Option<String>,
        /// Namespace of the guest.
        domain_namespace: Option<String>,
        /// Address for migrations between clusters.
        sync_address: Option<String>,
        /// Claim with the state of TPM and firmware.
        persistent_state_pvc_name as "persistentStatePVCName": Option<String>,
        /// SELinux context of the process.
        selinux_context: Option<String>,
        /// UID of the instance.
        virtual_machine_instance_uid as "virtualMachineInstanceUID": Option<String>,
        /// When the target was ready to receive.
        domain_ready_timestamp: Option<Time>,
        /// Whether the target has started its process.
        domain_detected: Option<bool>,
        /// Address that the memory is sent to.
        node_address: Option<String>,
        /// Ports of the target by their purpose.
        direct_migration_node_ports: Map<i64>,
        /// UID of the pod that attaches plugged volumes.
        attachment_pod_uid as "attachmentPodUID": Option<String>,
        /// Processors that the guest gets.
        cpu_set: Vec<i64> = {"x-kubernetes-list-type": "atomic"},
        /// NUMA topology of the target, as JSON.
        node_topology: Option<String>,
    }

    VirtualMachineInstanceMigrationState {
        /// When memory began to be sent.
        start_timestamp: Option<Time> = {"nullable": true},
        /// When the migration ended.
        end_timestamp: Option<Time> = {"nullable": true},
        /// When the target was ready to receive.
        target_node_domain_ready_timestamp: Option<Time>,
        /// Whether the target has started its process.
        target_node_domain_detected: Option<bool>,
        /// Address that the memory is sent to.
        target_node_address: Option<String>,
        /// Ports of the target by their purpose.
        target_direct_migration_node_ports: Map<i64>,
        /// Node that the guest moves to.
        target_node: Option<String>,
        /// Pod that represents the guest there.
        target_pod: Option<String>,
        /// UID of the pod there that attaches plugged volumes.
        target_attachment_pod_uid as "targetAttachmentPodUID": Option<String>,
        /// Node that the guest moves from.
        source_node: Option<String>,
        /// Pod that represents the guest before.
        source_pod: Option<String>,
        /// The guest runs on the target.
        completed: Option<bool>,
        /// The guest stays on the source.
        failed: Option<bool>,
        /// The migration is to be canceled.
        abort_requested: Option<bool>,
        /// Aborting, Succeeded or Failed.
        abort_status: Option<String>,
        /// Why the migration failed.
        failure_reason: Option<String>,
        /// UID of the migration object.
        migration_uid: Option<String>,
        /// How memory is sent: PreCopy or PostCopy.
        mode: Option<String>,
        /// Policy that applies.
        migration_policy_name: Option<String>,
        /// Limits and options that apply.
        migration_configuration: Option<VMIMConfigurationOptions>,
        /// Processors that the guest gets on the target.
        target_cpu_set as "targetCPUSet": Vec<i64> = {"x-kubernetes-list-type": "atomic"},
        /// NUMA topology of the target, as JSON.
        target_node_topology: Option<String>,
        /// Claim with the state of TPM and firmware on the source.
        source_persistent_state_pvc_name as "sourcePersistentStatePVCName": Option<String>,
        /// Claim with the state of TPM and firmware on the target.
        target_persistent_state_pvc_name as "targetPersistentStatePVCName": Option<String>,
        /// The side of the source.
        source_state: Option<VirtualMachineInstanceMigrationSourceState>,
        /// The side of the target.
        target_state: Option<VirtualMachineInstanceMigrationTargetState>,
        /// Network that is used: pod or migration.
        migration_network_type: Option<String>,
        /// Memory that is reserved on the target besides that of the guest.
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
        /// The guest goes to another cluster.
        send_to: Option<VirtualMachineInstanceMigrationSource>,
        /// The guest comes from another cluster.
        receive: Option<VirtualMachineInstanceMigrationTarget>,
        /// Order among waiting migrations: system-critical, user-triggered or system-maintenance.
        priority: Option<String>,
    }

    VirtualMachineInstanceMigrationSource {
        /// Name that both clusters know the migration by.
        migration_id as "migrationID": String,
        /// Address of the other cluster.
        connect_url as "connectURL": String,
    }

    VirtualMachineInstanceMigrationTarget {
        /// Name that both clusters know the migration by.
        migration_id as "migrationID": String,
    }

    VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
        /// The phase.
        phase: Option<String>,
        /// When it was entered.
        phase_transition_timestamp: Option<Time>,
    }

    VirtualMachineInstanceMigrationStatus {
        /// Pending, Scheduling, Scheduled, PreparingTarget, TargetReady, Running, Succeeded or
        /// Failed.
        phase: Option<String>,
        conditions: Vec<VirtualMachineInstanceMigrationCondition>,
        /// When each phase was entered.
        phase_transition_timestamps: Vec<VirtualMachineInstanceMigrationPhaseTransitionTimestamp> = {"x-kubernetes-list-type": "atomic"},
        /// Details of the move.
        migration_state: Option<VirtualMachineInstanceMigrationState>,
        /// Addresses for migrations between clusters.
        synchronization_addresses: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    StallDetectorOptions {
        /// By how many percent the rest must shrink to count as progress.
        stall_margin: Option<i64> = {"minimum": 0, "maximum": 100},
        /// Weight of the latest measurement in averages.
        ewma_alpha: Option<Quantity>,
        /// Seconds without progress after which a migration is stalled.
        stall_progress_timeout: Option<i64> = {"minimum": 0},
        /// Seconds that the switch may take.
        switchover_timeout: Option<i64> = {"minimum": 0},
        /// Factor of the estimate whether copying can end.
        precopy_possible_factor: Option<Quantity>,
        /// By which factor the waiting time shrinks.
        patience_window_decay_factor: Option<Quantity>,
        /// Switch where the rest is smallest.
        search_local_minima: Option<bool>,
        /// Factor for the longest duration.
        completion_timeout_factor: Option<Quantity>,
    }

    ExperimentalMigrationOptions {
        /// How a stalled migration is detected.
        stall_detector: Option<StallDetectorOptions>,
        /// How the allowed interruption grows.
        downtime_tuning: Option<DowntimeTuningOptions>,
        /// Compression of the memory that is sent.
        compression: Option<String> = {"enum": ["none", "zstd"]},
    }

    DowntimeTuningOptions {
        /// Interruption that is allowed first, in milliseconds.
        initial_ms: Option<i64> = {"minimum": 1},
        /// Steps up to the maximum.
        steps: Option<i32> = {"minimum": 1},
        /// Pass after which it begins to grow.
        start_after_iteration: Option<i64> = {"minimum": 1},
        /// Seconds between two steps.
        cooldown_seconds: Option<i32> = {"minimum": 1},
    }

    VMIMConfigurationOptions {
        /// Taint of nodes whose guests are migrated away.
        node_drain_taint_key: Option<String>,
        /// Most migrations that leave a node at a time; the default is 2.
        parallel_outbound_migrations_per_node: Option<u32>,
        /// Most migrations in the cluster at a time; the default is 5.
        parallel_migrations_per_cluster: Option<u32>,
        /// Slow guests down that change their memory faster than it can be sent.
        allow_auto_converge: Option<bool>,
        /// Bytes per second of a migration; 0 is no limit.
        bandwidth_per_migration: Option<Quantity>,
        /// Seconds for each GiB of memory after which a migration is given up; the default is 150.
        completion_timeout_per_gi_b: Option<i64>,
        /// How long a guest may stand still, in milliseconds; the default is 300.
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        /// Seconds without progress after which a migration is given up; the default is 150.
        progress_timeout: Option<i64>,
        /// Seconds that volumes of tools may take to be detached.
        utility_volumes_timeout: Option<i64>,
        /// Migrate guests that could lose data.
        unsafe_migration_override: Option<bool>,
        /// Let guests go on at the target before all memory is there; not supported here.
        allow_post_copy: Option<bool>,
        /// Pause guests that are not migrated in time, until the rest of their memory is sent.
        allow_workload_disruption: Option<bool>,
        /// Send memory without encryption; it is always encrypted here.
        disable_tls as "disableTLS": Option<bool>,
        /// NetworkAttachmentDefinition that migrations use; not supported here.
        network: Option<String>,
        /// Give the target the SELinux level of the source.
        match_se_linux_level_on_migration as "matchSELinuxLevelOnMigration": Option<bool>,
        /// Experimental options.
        experimental: Option<ExperimentalMigrationOptions>,
    }

    MigrationConfiguration {
        /// Taint of nodes whose guests are migrated away.
        node_drain_taint_key: Option<String>,
        /// Most migrations that leave a node at a time; the default is 2.
        parallel_outbound_migrations_per_node: Option<u32>,
        /// Most migrations in the cluster at a time; the default is 5.
        parallel_migrations_per_cluster: Option<u32>,
        /// Slow guests down that change their memory faster than it can be sent.
        allow_auto_converge: Option<bool>,
        /// Bytes per second of a migration; 0 is no limit.
        bandwidth_per_migration: Option<Quantity>,
        /// Seconds for each GiB of memory after which a migration is given up; the default is 150.
        completion_timeout_per_gi_b: Option<i64>,
        /// How long a guest may stand still, in milliseconds; the default is 300.
        max_downtime_ms: Option<u64> = {"minimum": 1, "maximum": 2000000},
        /// Seconds without progress after which a migration is given up; the default is 150.
        progress_timeout: Option<i64>,
        /// Seconds that volumes of tools may take to be detached.
        utility_volumes_timeout: Option<i64>,
        /// Migrate guests that could lose data.
        unsafe_migration_override: Option<bool>,
        /// Let guests go on at the target before all memory is there; not supported here.
        allow_post_copy: Option<bool>,
        /// Pause guests that are not migrated in time, until the rest of their memory is sent.
        allow_workload_disruption: Option<bool>,
        /// Send memory without encryption; it is always encrypted here.
        disable_tls as "disableTLS": Option<bool>,
        /// NetworkAttachmentDefinition that migrations use; not supported here.
        network: Option<String>,
        /// Give the target the SELinux level of the source.
        match_se_linux_level_on_migration as "matchSELinuxLevelOnMigration": Option<bool>,
    }
}
