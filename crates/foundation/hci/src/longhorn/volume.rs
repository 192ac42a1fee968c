//! Volumes: their specification and their status.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    Volume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<VolumeSpec>,
        /// What is observed.
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
        /// Conditions of the object, each with its reason.
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
        /// What is wanted.
        spec: Option<EngineSpec>,
        /// What is observed.
        status: Option<EngineStatus>,
    }

    EngineSpec {
        /// Name of the volume.
        volume_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<String>,
        /// Node that the object belongs to.
        node_id as "nodeID": Option<String>,
        /// Image of the engine.
        image: Option<String>,
        /// Wanted state of the process: running or stopped.
        desire_state: Option<String>,
        /// The log of the process is requested.
        log_requested: Option<bool>,
        /// A salvage is requested.
        salvage_requested: Option<bool>,
        /// Data engine: v1.
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        /// How clients reach the volume, for example blockdev.
        frontend: Option<String> = {"enum": ["blockdev", "iscsi", "nvmf", "ublk", ""]},
        /// Addresses of the replicas, by name.
        replica_address_map: Map<String>,
        /// Addresses of the replicas after an upgrade of the engine.
        upgraded_replica_address_map: Map<String>,
        /// Backup that the volume is restored from.
        backup_volume: Option<String>,
        /// Backup that is to be restored.
        requested_backup_restore: Option<String>,
        /// Volume or snapshot that the data is copied from.
        requested_data_source: Option<String>,
        /// Clients cannot reach the volume, for example during a restore.
        disable_frontend: Option<bool>,
        /// Writes are not counted.
        revision_counter_disabled: Option<bool>,
        /// Discards also free blocks in the snapshots of the volume.
        unmap_mark_snap_chain_removed_enabled: Option<bool>,
        /// The process belongs to the current attachment of the volume.
        active: Option<bool>,
        /// Largest number of snapshots.
        snapshot_max_count: Option<i32>,
        /// Largest total size of the snapshots in bytes.
        snapshot_max_size: Option<String>,
        /// How many files a rebuild copies at the same time.
        rebuild_concurrent_sync_limit: Option<i32>,
    }

    EngineStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// Instance manager that runs the process.
        instance_manager_name: Option<String>,
        /// State of the process: running, stopped or error.
        current_state: Option<String>,
        /// Image that the process runs.
        current_image: Option<String>,
        /// Address of the process.
        ip: Option<String>,
        /// Address of the process in the storage network.
        storage_ip as "storageIP": Option<String>,
        /// Port of the process.
        port: Option<i32>,
        /// The process has been started.
        started: Option<bool>,
        /// The log of the process has been fetched.
        log_fetched: Option<bool>,
        /// The salvage has been carried out.
        salvage_executed: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Unique identifier.
        uuid: Option<String>,
        /// Size in bytes that the engine serves.
        current_size: Option<String>,
        /// Addresses of the replicas that the engine uses, by name.
        current_replica_address_map: Map<String> = {"nullable": true},
        /// RW, WO or ERR.
        replica_mode_map: Map<String> = {"nullable": true},
        /// When each replica last changed its mode.
        replica_transition_time_map: Map<String>,
        /// Address at which clients reach the volume.
        endpoint: Option<String>,
        /// Backup that was restored last.
        last_restored_backup: Option<String>,
        /// Backups in progress, by identifier.
        backup_status: Map<Any> = {"nullable": true},
        /// Restores in progress, by replica.
        restore_status: Map<Any> = {"nullable": true},
        /// Removal of deleted snapshots, by replica.
        purge_status: Map<Any> = {"nullable": true},
        /// Rebuilds in progress, by replica.
        rebuild_status: Map<RebuildStatus> = {"nullable": true},
        /// Copies in progress, by replica.
        clone_status: Map<Any> = {"nullable": true},
        /// Snapshots of the volume, by name.
        snapshots: Map<SnapshotInfo> = {"nullable": true},
        /// Why the snapshots cannot be read.
        snapshots_error: Option<String>,
        /// The volume is being expanded.
        is_expanding: Option<bool>,
        /// Why the last expansion failed.
        last_expansion_error: Option<String>,
        /// When the last expansion failed.
        last_expansion_failed_at: Option<String>,
    }

    RebuildStatus {
        /// Why it failed.
        error: Option<String>,
        /// A rebuild is in progress.
        is_rebuilding: Option<bool>,
        /// Progress in percent.
        progress: Option<i32>,
        /// State of the rebuild.
        state: Option<String>,
        /// Replica that the data is copied from.
        from_replica_address: Option<String>,
        /// Replicas that the data is copied from.
        from_replica_address_list: Vec<String>,
        /// Bandwidth limit of the rebuild in megabytes per second.
        applied_rebuilding_mbps as "appliedRebuildingMBps": Option<i64>,
    }

    SnapshotInfo {
        /// Name of the snapshot.
        name: Option<String>,
        /// Snapshot that it is based on.
        parent: Option<String>,
        /// Snapshots that are based on it.
        children: Map<bool> = {"nullable": true},
        /// The snapshot is deleted and waits for its removal.
        removed: Option<bool>,
        /// A user created the snapshot.
        usercreated: Option<bool>,
        /// When it was created.
        created: Option<String>,
        /// Size in bytes.
        size: Option<String>,
        /// Labels.
        labels: Map<String> = {"nullable": true},
    }

    Replica {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<ReplicaSpec>,
        /// What is observed.
        status: Option<ReplicaStatus>,
    }

    ReplicaSpec {
        /// Name of the volume.
        volume_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<String>,
        /// Node that the object belongs to.
        node_id as "nodeID": Option<String>,
        /// Image of the engine.
        image: Option<String>,
        /// Wanted state of the process: running or stopped.
        desire_state: Option<String>,
        /// The log of the process is requested.
        log_requested: Option<bool>,
        /// A salvage is requested.
        salvage_requested: Option<bool>,
        /// Data engine: v1.
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        /// Engine that uses the replica.
        engine_name: Option<String>,
        /// Engine on the target node of a migration.
        migration_engine_name: Option<String>,
        /// When it first held all data since it was built.
        healthy_at: Option<String>,
        /// When the replica was last healthy.
        last_healthy_at: Option<String>,
        /// When the replica failed; empty if it has not.
        failed_at: Option<String>,
        /// When the replica last failed.
        last_failed_at: Option<String>,
        /// Disk that holds the replica.
        disk_id as "diskID": Option<String>,
        /// Path of the disk on its node.
        disk_path: Option<String>,
        /// Directory of the data on the disk.
        data_directory_name: Option<String>,
        /// Backing image of the volume.
        backing_image: Option<String>,
        /// The process belongs to the current attachment of the volume.
        active: Option<bool>,
        /// The replica must be on this node.
        hard_node_affinity: Option<String>,
        /// How often the rebuild was tried again.
        rebuild_retry_count: Option<i32>,
        /// The data is to be moved elsewhere.
        eviction_requested: Option<bool>,
        /// Writes are not counted.
        revision_counter_disabled: Option<bool>,
        /// Discards also free blocks in the snapshots of the replica.
        unmap_mark_disk_chain_removed_enabled: Option<bool>,
        /// Largest number of snapshots.
        snapshot_max_count: Option<i32>,
        /// Largest total size of the snapshots in bytes.
        snapshot_max_size: Option<String>,
        /// Replica that a linked copy reads from.
        linked_clone_src_replica_name: Option<String>,
    }

    ReplicaStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// Instance manager that runs the process.
        instance_manager_name: Option<String>,
        /// State of the process: running, stopped or error.
        current_state: Option<String>,
        /// Image that the process runs.
        current_image: Option<String>,
        /// Address of the process.
        ip: Option<String>,
        /// Address of the process in the storage network.
        storage_ip as "storageIP": Option<String>,
        /// Port of the process.
        port: Option<i32>,
        /// The process has been started.
        started: Option<bool>,
        /// The log of the process has been fetched.
        log_fetched: Option<bool>,
        /// The salvage has been carried out.
        salvage_executed: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Unique identifier.
        uuid: Option<String>,
    }
}
