//! Replicas: one copy of a volume on one disk.

use crd::atom::ObjectMeta;
use crd::record::record;

use crate::longhorn::Condition;

record! {
    /// Copy of a volume on one disk.
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
