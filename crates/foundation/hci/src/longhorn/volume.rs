//! Volumes: their specification and their status.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    Volume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired size, replicas and attachment of the volume.
        spec: Option<VolumeSpec>,
        /// Observed state of the volume.
        status: Option<VolumeStatus>,
    }

    VolumeSpec {
        /// Size of the volume in bytes.
        size: Option<String>,
        /// Frontend of the volume, for example blockdev.
        frontend: Option<String> = {"enum": ["blockdev", "iscsi", "nvmf", "ublk", ""]},
        /// URL of the backup that the volume is restored from.
        from_backup: Option<String>,
        /// Whether the recurring jobs of the backup are restored: enabled, disabled or ignored.
        restore_volume_recurring_job: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Source of a clone: `snap://VOLUME/SNAPSHOT` or `vol://VOLUME`.
        data_source: Option<String>,
        /// Mode of a clone: full-copy or linked-clone.
        clone_mode: Option<String> = {"enum": ["", "full-copy", "linked-clone"]},
        /// Whether a replica is kept on the node of the engine: disabled, best-effort or strict-local.
        data_locality: Option<String> = {"enum": ["disabled", "best-effort", "strict-local"]},
        /// Minutes after which a failed replica is deleted.
        stale_replica_timeout: Option<i32>,
        /// Node that the volume is to be attached to.
        node_id as "nodeID": Option<String>,
        /// Node that runs the engine.
        engine_node_id as "engineNodeID": Option<String>,
        /// Node that the volume is migrated to.
        migration_node_id as "migrationNodeID": Option<String>,
        /// Container image of the engine.
        image: Option<String>,
        /// Name of the backing image that the volume is created from.
        backing_image: Option<String>,
        /// Whether the volume is a standby (disaster recovery) volume, which follows the backups
        /// of a volume in another cluster.
        standby as "Standby": Option<bool>,
        /// Tags that disks of replicas must have.
        disk_selector: Vec<String>,
        /// Tags that nodes of replicas must have.
        node_selector: Vec<String>,
        /// Topology that nodes of replicas must have.
        topology_requirement: Vec<Map<String>>,
        /// Whether the volume is attached without a frontend, for example for maintenance.
        disable_frontend: Option<bool>,
        /// Whether the revision counter of replicas is disabled.
        revision_counter_disabled: Option<bool>,
        /// Whether a trim of the file system also frees space in snapshots, by marking them as
        /// removed: enabled, disabled or ignored.
        unmap_mark_snap_chain_removed: Option<String> = {"enum": ["ignored", "disabled", "enabled"]},
        /// Whether replicas may share a node: enabled, disabled or ignored.
        replica_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Whether replicas may share a zone: enabled, disabled or ignored.
        replica_zone_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Whether replicas may share a disk: enabled, disabled or ignored.
        replica_disk_soft_anti_affinity: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Client that last attached the volume.
        last_attached_by: Option<String>,
        /// Access mode of the volume: rwo, rwop or rwx.
        access_mode: Option<String> = {"enum": ["rwo", "rwop", "rwx"]},
        /// The volume can be attached to two nodes during a live migration.
        migratable: Option<bool>,
        /// Whether the data is encrypted.
        encrypted: Option<bool>,
        /// Desired number of replicas.
        number_of_replicas: Option<i32>,
        /// Whether replicas are rebalanced when nodes are added: ignored, disabled, least-effort
        /// or best-effort.
        replica_auto_balance: Option<String> = {"enum": ["ignored", "disabled", "least-effort", "best-effort"]},
        /// Whether checksums of snapshots are verified: ignored, disabled, enabled or fast-check.
        snapshot_data_integrity: Option<String> = {"enum": ["ignored", "disabled", "enabled", "fast-check"]},
        /// Compression of backups: none, lz4 or gzip.
        backup_compression_method: Option<String> = {"enum": ["none", "lz4", "gzip"]},
        /// Size of blocks in backups, in bytes.
        backup_block_size: Option<String> = {"enum": ["2097152", "16777216"]},
        /// Data engine; only v1 is supported.
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        /// Maximum number of snapshots of the volume.
        snapshot_max_count: Option<i32>,
        /// Maximum total size of the snapshots in bytes.
        snapshot_max_size: Option<String>,
        /// Whether the file system is frozen for snapshots: enabled, disabled or ignored.
        freeze_filesystem_for_snapshot: Option<String> = {"enum": ["ignored", "enabled", "disabled"]},
        /// Backup target of the volume.
        backup_target_name: Option<String>,
        /// Whether replicas are rebuilt while the volume is detached: enabled, disabled or ignored.
        offline_rebuilding: Option<String> = {"enum": ["ignored", "disabled", "enabled"]},
        /// Bandwidth limit of replica rebuilds in MB/s; 0 means no limit.
        replica_rebuilding_bandwidth_limit: Option<i64> = {"minimum": 0},
        /// Maximum number of files that a rebuild copies in parallel.
        rebuild_concurrent_sync_limit: Option<i32> = {"minimum": 0, "maximum": 5},
        /// When the computation of snapshot checksums was requested.
        snapshot_hashing_requested_at: Option<String>,
    }

    VolumeStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// State of the volume: creating, attached, detached, attaching, detaching or deleting.
        state: Option<String>,
        /// Health of the replicas: healthy, degraded, faulted or unknown.
        robustness: Option<String>,
        /// Node that the volume is attached to.
        current_node_id as "currentNodeID": Option<String>,
        /// Node that runs the engine.
        current_engine_node_id as "currentEngineNodeID": Option<String>,
        /// Node that the volume is being migrated to.
        current_migration_node_id as "currentMigrationNodeID": Option<String>,
        /// Engine image in use.
        current_image: Option<String>,
        /// PersistentVolume, claim and workloads of the volume.
        kubernetes_status: Option<KubernetesStatus>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Name of the latest backup.
        last_backup: Option<String>,
        /// Time of the latest backup.
        last_backup_at: Option<String>,
        /// Whether the volume is attached without a frontend.
        frontend_disabled: Option<bool>,
        /// Whether the volume has to be restored from a backup.
        restore_required: Option<bool>,
        /// Whether the restore from a backup has begun.
        restore_initiated: Option<bool>,
        /// Progress of the clone that fills the volume.
        clone_status: Option<CloneStatus>,
        /// When a remount was requested.
        remount_requested_at: Option<String>,
        /// Whether the volume has to be expanded to its new size.
        expansion_required: Option<bool>,
        /// Whether the volume is a standby (disaster recovery) volume.
        is_standby: Option<bool>,
        /// Space that the data and snapshots of one replica use, in bytes.
        actual_size: Option<i64>,
        /// Time since which the volume is degraded.
        last_degraded_at: Option<String>,
        /// When the volume was last salvaged automatically.
        last_auto_salvaged_at: Option<String>,
        /// NFS endpoint of a shared (rwx) volume.
        share_endpoint: Option<String>,
        /// State of the share manager.
        share_state: Option<String>,
        /// State of an engine switchover.
        switchover_state: Option<String>,
    }

    /// PersistentVolume, claim and workloads of a volume.
    KubernetesStatus {
        /// Name of the PersistentVolume.
        pv_name: Option<String>,
        /// Phase of the PersistentVolume.
        pv_status: Option<String>,
        /// Namespace of the claim.
        namespace: Option<String>,
        /// Name of the claim.
        pvc_name: Option<String>,
        /// When the claim last referred to the volume.
        last_pvc_ref_at as "lastPVCRefAt": Option<String>,
        /// When a pod last used the volume.
        last_pod_ref_at: Option<String>,
        /// Pods that use the volume, with their workloads.
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
        /// Name of the volume that is cloned.
        source_volume: Option<String>,
        /// Name of the snapshot that is cloned.
        snapshot: Option<String>,
        /// State of the clone, for example initiated, completed or failed.
        state: Option<String>,
        /// Number of attempts to clone.
        attempt_count: Option<i32>,
        /// Earliest time of the next attempt.
        next_allowed_attempt_at: Option<String>,
    }

    Engine {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired state of the engine process.
        spec: Option<EngineSpec>,
        /// Observed state of the engine process.
        status: Option<EngineStatus>,
    }

    EngineSpec {
        /// Name of the volume.
        volume_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<String>,
        /// Node that runs the engine.
        node_id as "nodeID": Option<String>,
        /// Container image of the engine.
        image: Option<String>,
        /// Desired state of the process: running or stopped.
        desire_state: Option<String>,
        /// Whether the log of the process is requested.
        log_requested: Option<bool>,
        /// Whether a salvage of failed replicas is requested.
        salvage_requested: Option<bool>,
        /// Data engine; only v1 is supported.
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        /// Frontend of the volume, for example blockdev.
        frontend: Option<String> = {"enum": ["blockdev", "iscsi", "nvmf", "ublk", ""]},
        /// Addresses of the replicas, by name of the replica.
        replica_address_map: Map<String>,
        /// Addresses of the replicas after an upgrade of the engine.
        upgraded_replica_address_map: Map<String>,
        /// Name of the backup volume that the volume is restored from.
        backup_volume: Option<String>,
        /// Name of the backup to restore.
        requested_backup_restore: Option<String>,
        /// Source of a clone: a volume or a snapshot.
        requested_data_source: Option<String>,
        /// Whether the volume has no frontend, for example during a restore.
        disable_frontend: Option<bool>,
        /// Whether the revision counter of replicas is disabled.
        revision_counter_disabled: Option<bool>,
        /// Whether a trim of the file system also frees space in snapshots, by marking them as
        /// removed.
        unmap_mark_snap_chain_removed_enabled: Option<bool>,
        /// Whether the engine serves the current attachment of the volume.
        active: Option<bool>,
        /// Maximum number of snapshots of the volume.
        snapshot_max_count: Option<i32>,
        /// Maximum total size of the snapshots in bytes.
        snapshot_max_size: Option<String>,
        /// Maximum number of files that a rebuild copies in parallel.
        rebuild_concurrent_sync_limit: Option<i32>,
    }

    EngineStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// Instance manager that runs the process.
        instance_manager_name: Option<String>,
        /// State of the process: running, stopped or error.
        current_state: Option<String>,
        /// Image that the process runs.
        current_image: Option<String>,
        /// IP address of the process.
        ip: Option<String>,
        /// IP address of the process in the storage network.
        storage_ip as "storageIP": Option<String>,
        /// Network port of the process.
        port: Option<i32>,
        /// Whether the process has been started.
        started: Option<bool>,
        /// Whether the log of the process has been fetched.
        log_fetched: Option<bool>,
        /// Whether the salvage has been carried out.
        salvage_executed: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// UUID of the engine.
        uuid: Option<String>,
        /// Current size of the volume in bytes.
        current_size: Option<String>,
        /// Addresses of the replicas in use, by name of the replica.
        current_replica_address_map: Map<String> = {"nullable": true},
        /// Mode of the replicas, by name: RW, WO (being rebuilt) or ERR.
        replica_mode_map: Map<String> = {"nullable": true},
        /// When each replica last changed its mode, by name.
        replica_transition_time_map: Map<String>,
        /// Endpoint of the frontend, for example the path of the block device.
        endpoint: Option<String>,
        /// Name of the backup that was restored last.
        last_restored_backup: Option<String>,
        /// Backups in progress, by identifier.
        backup_status: Map<Any> = {"nullable": true},
        /// Restores in progress, by replica.
        restore_status: Map<Any> = {"nullable": true},
        /// Removal of deleted snapshots, by replica.
        purge_status: Map<Any> = {"nullable": true},
        /// Rebuilds in progress, by replica.
        rebuild_status: Map<RebuildStatus> = {"nullable": true},
        /// Clones in progress, by replica.
        clone_status: Map<Any> = {"nullable": true},
        /// Snapshots of the volume, by name.
        snapshots: Map<SnapshotInfo> = {"nullable": true},
        /// Error of the last attempt to list the snapshots.
        snapshots_error: Option<String>,
        /// Whether the volume is being expanded.
        is_expanding: Option<bool>,
        /// Error of the last failed expansion.
        last_expansion_error: Option<String>,
        /// When the last expansion failed.
        last_expansion_failed_at: Option<String>,
    }

    RebuildStatus {
        /// Error of the rebuild, if it failed.
        error: Option<String>,
        /// Whether a rebuild is in progress.
        is_rebuilding: Option<bool>,
        /// Progress of the rebuild in percent.
        progress: Option<i32>,
        /// State of the rebuild.
        state: Option<String>,
        /// Address of the replica that the data is copied from.
        from_replica_address: Option<String>,
        /// Addresses of the replicas that the data is copied from.
        from_replica_address_list: Vec<String>,
        /// Bandwidth limit of the rebuild in MB/s.
        applied_rebuilding_mbps as "appliedRebuildingMBps": Option<i64>,
    }

    SnapshotInfo {
        /// Name of the snapshot.
        name: Option<String>,
        /// Name of the parent snapshot.
        parent: Option<String>,
        /// Names of the child snapshots.
        children: Map<bool> = {"nullable": true},
        /// Whether the snapshot is marked as removed and waits for its purge.
        removed: Option<bool>,
        /// Whether a user created the snapshot.
        usercreated: Option<bool>,
        /// When the snapshot was created.
        created: Option<String>,
        /// Size of the snapshot in bytes.
        size: Option<String>,
        /// Labels of the snapshot.
        labels: Map<String> = {"nullable": true},
    }

    Replica {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired state of the replica.
        spec: Option<ReplicaSpec>,
        /// Observed state of the replica process.
        status: Option<ReplicaStatus>,
    }

    ReplicaSpec {
        /// Name of the volume.
        volume_name: Option<String>,
        /// Size of the volume in bytes.
        volume_size: Option<String>,
        /// Node that holds the replica.
        node_id as "nodeID": Option<String>,
        /// Container image of the replica.
        image: Option<String>,
        /// Desired state of the process: running or stopped.
        desire_state: Option<String>,
        /// Whether the log of the process is requested.
        log_requested: Option<bool>,
        /// Whether a salvage of the failed replica is requested.
        salvage_requested: Option<bool>,
        /// Data engine; only v1 is supported.
        data_engine: Option<String> = {"enum": ["v1", "v2"]},
        /// Name of the engine that uses the replica.
        engine_name: Option<String>,
        /// Name of the engine on the target node of a migration.
        migration_engine_name: Option<String>,
        /// When the replica first became healthy after it was built.
        healthy_at: Option<String>,
        /// When the replica was last known to be healthy.
        last_healthy_at: Option<String>,
        /// When the replica failed; empty unless it is failed.
        failed_at: Option<String>,
        /// When the replica last failed.
        last_failed_at: Option<String>,
        /// UUID of the disk that holds the replica.
        disk_id as "diskID": Option<String>,
        /// Path of the disk on its node.
        disk_path: Option<String>,
        /// Name of the directory of the replica on the disk.
        data_directory_name: Option<String>,
        /// Name of the backing image of the volume.
        backing_image: Option<String>,
        /// Whether the replica belongs to the current attachment of the volume.
        active: Option<bool>,
        /// Name of the node that the replica must be on.
        hard_node_affinity: Option<String>,
        /// Number of times that the rebuild was retried.
        rebuild_retry_count: Option<i32>,
        /// Whether the replica is to be moved to another disk or node.
        eviction_requested: Option<bool>,
        /// Whether the revision counter of the replica is disabled.
        revision_counter_disabled: Option<bool>,
        /// Whether a trim of the file system also frees space in snapshots, by marking them as
        /// removed.
        unmap_mark_disk_chain_removed_enabled: Option<bool>,
        /// Maximum number of snapshots of the volume.
        snapshot_max_count: Option<i32>,
        /// Maximum total size of the snapshots in bytes.
        snapshot_max_size: Option<String>,
        /// Name of the replica that a linked clone reads from.
        linked_clone_src_replica_name: Option<String>,
    }

    ReplicaStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// Instance manager that runs the process.
        instance_manager_name: Option<String>,
        /// State of the process: running, stopped or error.
        current_state: Option<String>,
        /// Image that the process runs.
        current_image: Option<String>,
        /// IP address of the process.
        ip: Option<String>,
        /// IP address of the process in the storage network.
        storage_ip as "storageIP": Option<String>,
        /// Network port of the process.
        port: Option<i32>,
        /// Whether the process has been started.
        started: Option<bool>,
        /// Whether the log of the process has been fetched.
        log_fetched: Option<bool>,
        /// Whether the salvage has been carried out.
        salvage_executed: Option<bool>,
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// UUID of the replica.
        uuid: Option<String>,
    }
}
