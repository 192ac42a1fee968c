//! Volumes: what is wanted of them and how they are.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    Volume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<VolumeSpec>,
        status: Option<VolumeStatus>,
    }

    VolumeSpec {
        size: Option<String>,
        frontend: Option<String> = {"enum": ["blockdev", "iscsi", "nvmf", "ublk", ""]},
        from_backup: Option<String>,
        restore_volume_recurring_job: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// `snap://VOLUME/SNAPSHOT` or `vol://VOLUME`.
        data_source: Option<String>,
        clone_mode: Option<String> = {"enum": ["", "full-copy", "linked-clone"]},
        data_locality: Option<String> = {"enum": ["disabled", "best-effort", "strict-local"]},
        /// Minutes.
        stale_replica_timeout: Option<i32>,
        /// The node to which it is to be attached.
        node_id as "nodeID": Option<String>,
        engine_node_id as "engineNodeID": Option<String>,
        migration_node_id as "migrationNodeID": Option<String>,
        image: Option<String>,
        backing_image: Option<String>,
        standby as "Standby": Option<bool>,
        disk_selector: Vec<String>,
        node_selector: Vec<String>,
        topology_requirement: Vec<Map<String>>,
        disable_frontend: Option<bool>,
        revision_counter_disabled: Option<bool>,
        unmap_mark_snap_chain_removed: Option<String> = {"enum": ["ignored", "disabled", "enabled"]},
        replica_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        replica_zone_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        replica_disk_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        last_attached_by: Option<String>,
        access_mode: Option<String> = {"enum": ["rwo", "rwop", "rwx"]},
        migratable: Option<bool>,
        encrypted: Option<bool>,
        number_of_replicas: Option<i32>,
        replica_auto_balance: Option<String> = {"enum": ["ignored", "disabled", "least-effort", "best-effort"]},
        snapshot_data_integrity: Option<String> = {"enum": ["ignored", "disabled", "enabled", "fast-check"]},
        backup_compression_method: Option<String> = {"enum": ["none", "lz4", "gzip"]},
        backup_block_size: Option<String> = {"enum": ["2097152", "16777216"]},
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        snapshot_max_count: Option<i32>,
        snapshot_max_size: Option<String>,
        freeze_filesystem_for_snapshot: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        backup_target_name: Option<String>,
        offline_rebuilding: Option<String> = {"enum": ["ignored", "disabled", "enabled"]},
        replica_rebuilding_bandwidth_limit: Option<i64> = {"minimum": 0},
        rebuild_concurrent_sync_limit: Option<i32> = {"minimum": 0, "maximum": 5},
        snapshot_hashing_requested_at: Option<String>,
    }

    VolumeStatus {
        owner_id as "ownerID": Option<String>,
        /// creating, attached, detached, attaching, detaching or deleting.
        state: Option<String>,
        /// healthy, degraded, faulted or unknown.
        robustness: Option<String>,
        current_node_id as "currentNodeID": Option<String>,
        current_engine_node_id as "currentEngineNodeID": Option<String>,
        current_migration_node_id as "currentMigrationNodeID": Option<String>,
        current_image: Option<String>,
        kubernetes_status: Option<KubernetesStatus>,
        conditions: Vec<Condition> = {"nullable": true},
        last_backup: Option<String>,
        last_backup_at: Option<String>,
        frontend_disabled: Option<bool>,
        restore_required: Option<bool>,
        restore_initiated: Option<bool>,
        clone_status: Option<CloneStatus>,
        remount_requested_at: Option<String>,
        expansion_required: Option<bool>,
        is_standby: Option<bool>,
        actual_size: Option<i64>,
        last_degraded_at: Option<String>,
        last_auto_salvaged_at: Option<String>,
        share_endpoint: Option<String>,
        share_state: Option<String>,
        switchover_state: Option<String>,
    }

    /// The claim that a volume belongs to.
    KubernetesStatus {
        pv_name: Option<String>,
        pv_status: Option<String>,
        namespace: Option<String>,
        pvc_name: Option<String>,
        last_pvc_ref_at as "lastPVCRefAt": Option<String>,
        last_pod_ref_at: Option<String>,
        workloads_status: Vec<WorkloadStatus> = {"nullable": true},
    }

    WorkloadStatus {
        pod_name: Option<String>,
        pod_status: Option<String>,
        workload_name: Option<String>,
        workload_type: Option<String>,
    }

    CloneStatus {
        source_volume: Option<String>,
        snapshot: Option<String>,
        state: Option<String>,
        attempt_count: Option<i32>,
        next_allowed_attempt_at: Option<String>,
    }

    Engine {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<EngineSpec>,
        status: Option<EngineStatus>,
    }

    EngineSpec {
        volume_name: Option<String>,
        volume_size: Option<String>,
        node_id as "nodeID": Option<String>,
        image: Option<String>,
        desire_state: Option<String>,
        log_requested: Option<bool>,
        salvage_requested: Option<bool>,
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        frontend: Option<String> = {"enum": ["blockdev", "iscsi", "nvmf", "ublk", ""]},
        replica_address_map: Map<String>,
        upgraded_replica_address_map: Map<String>,
        backup_volume: Option<String>,
        requested_backup_restore: Option<String>,
        requested_data_source: Option<String>,
        disable_frontend: Option<bool>,
        revision_counter_disabled: Option<bool>,
        unmap_mark_snap_chain_removed_enabled: Option<bool>,
        active: Option<bool>,
        snapshot_max_count: Option<i32>,
        snapshot_max_size: Option<String>,
        rebuild_concurrent_sync_limit: Option<i32>,
    }

    EngineStatus {
        owner_id as "ownerID": Option<String>,
        instance_manager_name: Option<String>,
        current_state: Option<String>,
        current_image: Option<String>,
        ip: Option<String>,
        storage_ip as "storageIP": Option<String>,
        port: Option<i32>,
        started: Option<bool>,
        log_fetched: Option<bool>,
        salvage_executed: Option<bool>,
        conditions: Vec<Condition> = {"nullable": true},
        uuid: Option<String>,
        current_size: Option<String>,
        current_replica_address_map: Map<String> = {"nullable": true},
        /// RW, WO or ERR.
        replica_mode_map: Map<String> = {"nullable": true},
        replica_transition_time_map: Map<String>,
        endpoint: Option<String>,
        last_restored_backup: Option<String>,
        backup_status: Map<Any> = {"nullable": true},
        restore_status: Map<Any> = {"nullable": true},
        purge_status: Map<Any> = {"nullable": true},
        rebuild_status: Map<RebuildStatus> = {"nullable": true},
        clone_status: Map<Any> = {"nullable": true},
        snapshots: Map<SnapshotInfo> = {"nullable": true},
        snapshots_error: Option<String>,
        is_expanding: Option<bool>,
        last_expansion_error: Option<String>,
        last_expansion_failed_at: Option<String>,
    }

    RebuildStatus {
        error: Option<String>,
        is_rebuilding: Option<bool>,
        progress: Option<i32>,
        state: Option<String>,
        from_replica_address: Option<String>,
        from_replica_address_list: Vec<String>,
        applied_rebuilding_mbps as "appliedRebuildingMBps": Option<i64>,
    }

    SnapshotInfo {
        name: Option<String>,
        parent: Option<String>,
        children: Map<bool> = {"nullable": true},
        removed: Option<bool>,
        usercreated: Option<bool>,
        created: Option<String>,
        size: Option<String>,
        labels: Map<String> = {"nullable": true},
    }

    Replica {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<ReplicaSpec>,
        status: Option<ReplicaStatus>,
    }

    ReplicaSpec {
        volume_name: Option<String>,
        volume_size: Option<String>,
        node_id as "nodeID": Option<String>,
        image: Option<String>,
        desire_state: Option<String>,
        log_requested: Option<bool>,
        salvage_requested: Option<bool>,
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        engine_name: Option<String>,
        migration_engine_name: Option<String>,
        /// When it first held all data since it was built.
        healthy_at: Option<String>,
        last_healthy_at: Option<String>,
        failed_at: Option<String>,
        last_failed_at: Option<String>,
        disk_id as "diskID": Option<String>,
        disk_path: Option<String>,
        data_directory_name: Option<String>,
        backing_image: Option<String>,
        active: Option<bool>,
        hard_node_affinity: Option<String>,
        rebuild_retry_count: Option<i32>,
        eviction_requested: Option<bool>,
        revision_counter_disabled: Option<bool>,
        unmap_mark_disk_chain_removed_enabled: Option<bool>,
        snapshot_max_count: Option<i32>,
        snapshot_max_size: Option<String>,
        linked_clone_src_replica_name: Option<String>,
    }

    ReplicaStatus {
        owner_id as "ownerID": Option<String>,
        instance_manager_name: Option<String>,
        current_state: Option<String>,
        current_image: Option<String>,
        ip: Option<String>,
        storage_ip as "storageIP": Option<String>,
        port: Option<i32>,
        started: Option<bool>,
        log_fetched: Option<bool>,
        salvage_executed: Option<bool>,
        conditions: Vec<Condition> = {"nullable": true},
        uuid: Option<String>,
    }
}
