//! Engines: the process that serves a volume, and its view of the replicas.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use crate::longhorn::Condition;

record! {
    /// Process that writes a volume to its replicas.
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
}
