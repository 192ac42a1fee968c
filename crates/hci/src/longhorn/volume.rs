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
        /// Size of the volume in bytes.
        size: Option<String>,
        /// How the volume is attached, for example blockdev.
        frontend: Option<String> = {"enum": ["blockdev", "iscsi", "nvmf", "ublk", ""]},
        /// URL of the backup that the volume is restored from.
        from_backup: Option<String>,
        /// Restore the recurring jobs of the backup too: enabled, disabled or ignored.
        restore_volume_recurring_job: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// `snap://VOLUME/SNAPSHOT` or `vol://VOLUME`.
        data_source: Option<String>,
        /// full-copy or linked-clone.
        clone_mode: Option<String> = {"enum": ["", "full-copy", "linked-clone"]},
        /// Whether a replica is kept on the node of the engine: disabled, best-effort or strict-local.
        data_locality: Option<String> = {"enum": ["disabled", "best-effort", "strict-local"]},
        /// Minutes.
        stale_replica_timeout: Option<i32>,
        /// The node to which it is to be attached.
        node_id as "nodeID": Option<String>,
        /// Node that runs the engine.
        engine_node_id as "engineNodeID": Option<String>,
        /// Node that the volume is migrated to.
        migration_node_id as "migrationNodeID": Option<String>,
        /// Engine image.
        image: Option<String>,
        /// Backing image that the volume begins as.
        backing_image: Option<String>,
        /// The volume follows a backup of another cluster.
        standby as "Standby": Option<bool>,
        /// Tags that disks of replicas must have.
        disk_selector: Vec<String>,
        /// Tags that nodes of replicas must have.
        node_selector: Vec<String>,
        /// Topology that nodes of replicas must have.
        topology_requirement: Vec<Map<String>>,
        /// Attach the volume without a frontend.
        disable_frontend: Option<bool>,
        /// Do not count revisions of replicas.
        revision_counter_disabled: Option<bool>,
        /// Whether discarding space removes snapshots: enabled, disabled or ignored.
        unmap_mark_snap_chain_removed: Option<String> = {"enum": ["ignored", "disabled", "enabled"]},
        /// Whether replicas may share a node: enabled, disabled or ignored.
        replica_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Whether replicas may share a zone: enabled, disabled or ignored.
        replica_zone_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Whether replicas may share a disk: enabled, disabled or ignored.
        replica_disk_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Who attached the volume last.
        last_attached_by: Option<String>,
        /// rwo or rwx.
        access_mode: Option<String> = {"enum": ["rwo", "rwop", "rwx"]},
        /// The volume can be attached to two nodes during a live migration.
        migratable: Option<bool>,
        /// The data is encrypted.
        encrypted: Option<bool>,
        /// Number of copies of the data.
        number_of_replicas: Option<i32>,
        /// Whether replicas are spread again when nodes join: ignored, disabled, least-effort or best-effort.
        replica_auto_balance: Option<String> = {"enum": ["ignored", "disabled", "least-effort", "best-effort"]},
        /// Whether checksums of snapshots are verified: ignored, disabled, enabled or fast-check.
        snapshot_data_integrity: Option<String> = {"enum": ["ignored", "disabled", "enabled", "fast-check"]},
        /// Compression of backups: none, lz4 or gzip.
        backup_compression_method: Option<String> = {"enum": ["none", "lz4", "gzip"]},
        /// Size of blocks in backups, in bytes.
        backup_block_size: Option<String> = {"enum": ["2097152", "16777216"]},
        /// v1 or v2.
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        /// Most snapshots that the volume may have.
        snapshot_max_count: Option<i32>,
        /// Most bytes that snapshots may use.
        snapshot_max_size: Option<String>,
        /// Whether the file system is frozen for snapshots: enabled, disabled or ignored.
        freeze_filesystem_for_snapshot: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Backup target of the volume.
        backup_target_name: Option<String>,
        /// Whether replicas are rebuilt while the volume is detached: enabled, disabled or ignored.
        offline_rebuilding: Option<String> = {"enum": ["ignored", "disabled", "enabled"]},
        /// Most MB/s for rebuilding replicas.
        replica_rebuilding_bandwidth_limit: Option<i64> = {"minimum": 0},
        /// Most files that a rebuild copies at once.
        rebuild_concurrent_sync_limit: Option<i32> = {"minimum": 0, "maximum": 5},
        /// When checksums of snapshots were requested.
        snapshot_hashing_requested_at: Option<String>,
    }

    VolumeStatus {
        /// Node that manages the volume.
        owner_id as "ownerID": Option<String>,
        /// creating, attached, detached, attaching, detaching or deleting.
        state: Option<String>,
        /// healthy, degraded, faulted or unknown.
        robustness: Option<String>,
        /// Node that the volume is attached to.
        current_node_id as "currentNodeID": Option<String>,
        /// Node that runs the engine.
        current_engine_node_id as "currentEngineNodeID": Option<String>,
        /// Node that the volume is being migrated to.
        current_migration_node_id as "currentMigrationNodeID": Option<String>,
        /// Engine image in use.
        current_image: Option<String>,
        /// Claim, PersistentVolume and users of the volume.
        kubernetes_status: Option<KubernetesStatus>,
        conditions: Vec<Condition> = {"nullable": true},
        /// Name of the latest backup.
        last_backup: Option<String>,
        /// Time of the latest backup.
        last_backup_at: Option<String>,
        /// The volume is attached without a frontend.
        frontend_disabled: Option<bool>,
        /// The volume has to be restored from a backup.
        restore_required: Option<bool>,
        /// The restore from a backup has begun.
        restore_initiated: Option<bool>,
        /// Progress of a clone.
        clone_status: Option<CloneStatus>,
        /// When a remount was requested.
        remount_requested_at: Option<String>,
        /// The volume has to grow to its new size.
        expansion_required: Option<bool>,
        /// The volume follows a backup of another cluster.
        is_standby: Option<bool>,
        /// Bytes that the data uses, with snapshots.
        actual_size: Option<i64>,
        /// Since when the volume is degraded.
        last_degraded_at: Option<String>,
        /// When the volume was last salvaged automatically.
        last_auto_salvaged_at: Option<String>,
        /// Endpoint of a shared file system.
        share_endpoint: Option<String>,
        /// State of the share manager.
        share_state: Option<String>,
        /// State of an engine switchover.
        switchover_state: Option<String>,
    }

    /// The claim that a volume belongs to.
    KubernetesStatus {
        /// Name of the PersistentVolume.
        pv_name: Option<String>,
        /// Phase of the PersistentVolume.
        pv_status: Option<String>,
        /// Namespace of the claim.
        namespace: Option<String>,
        /// Name of the claim.
        pvc_name: Option<String>,
        /// When the claim was last seen.
        last_pvc_ref_at as "lastPVCRefAt": Option<String>,
        /// When a pod last used the volume.
        last_pod_ref_at: Option<String>,
        /// Pods that use the volume.
        workloads_status: Vec<WorkloadStatus> = {"nullable": true},
    }

    WorkloadStatus {
        /// Name of the pod.
        pod_name: Option<String>,
        /// Phase of the pod.
        pod_status: Option<String>,
        /// Name of the workload.
        workload_name: Option<String>,
        /// Kind of the workload.
        workload_type: Option<String>,
    }

    CloneStatus {
        /// Volume that is cloned.
        source_volume: Option<String>,
        /// Snapshot that is cloned.
        snapshot: Option<String>,
        /// State of the clone.
        state: Option<String>,
        /// Number of attempts.
        attempt_count: Option<i32>,
        /// Earliest time of the next attempt.
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
