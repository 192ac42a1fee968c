//! Volumes: their specification and their status.

mod engine;
mod replica;

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

pub use engine::{Engine, EngineSpec, EngineStatus, RebuildStatus, SnapshotInfo};
pub use replica::{Replica, ReplicaSpec, ReplicaStatus};

record! {
    /// Replicated volume.
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
}
