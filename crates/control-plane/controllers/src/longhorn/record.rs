//! The fields of Longhorn's objects that matter to its controllers.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use crate::record::condition::ConditionFields;
use crate::record::fields;

fields! {
    pub(crate) struct VolumeFields<'a> {
        spec: VolumeSpec<'a>,
        status: VolumeStatus<'a>,
    }

    pub(crate) struct VolumeSpec<'a> {
        size: &'a str,
        frontend: &'a str,
        node_id as "nodeID": &'a str,
        migration_node_id as "migrationNodeID": &'a str,
        number_of_replicas: Option<i64>,
        stale_replica_timeout: Option<i64>,
        data_source: &'a str,
        from_backup: &'a str,
        backing_image: &'a str,
        backup_compression_method: &'a str,
        data_locality: &'a str,
        encrypted: bool,
        node_selector: Vec<&'a str>,
        disk_selector: Vec<&'a str>,
        replica_soft_anti_affinity: &'a str,
        replica_zone_soft_anti_affinity: &'a str,
        replica_disk_soft_anti_affinity: &'a str,
    }

    pub(crate) struct VolumeStatus<'a> {
        state: &'a str,
        robustness: &'a str,
        current_node_id as "currentNodeID": &'a str,
        actual_size: Option<i64>,
        last_degraded_at: &'a str,
        restore_required: Option<bool>,
        clone_status: CloneStatus<'a>,
        kubernetes_status: KubernetesStatus<'a>,
        conditions: Vec<ConditionFields<'a>>,
    }

    /// The progress of a volume that begins as a copy.
    pub(crate) struct CloneStatus<'a> {
        state: &'a str,
    }

    /// The claim of a volume.
    pub(crate) struct KubernetesStatus<'a> {
        pv_name: &'a str,
        namespace: &'a str,
        pvc_name: &'a str,
        last_pvc_ref_at as "lastPVCRefAt": &'a str,
    }

    pub(super) struct EngineFields<'a> {
        spec: EngineSpec<'a>,
        status: EngineStatus<'a>,
    }

    pub(super) struct EngineSpec<'a> {
        node_id as "nodeID": &'a str,
        desire_state: &'a str,
        replica_address_map: BTreeMap<&'a str, &'a str>,
    }

    pub(super) struct EngineStatus<'a> {
        current_state: &'a str,
        current_size: &'a str,
        last_restored_backup: &'a str,
        replica_mode_map: BTreeMap<&'a str, &'a str>,
        snapshots: BTreeMap<&'a str, EngineSnapshot<'a>>,
        conditions: Vec<ConditionFields<'a>>,
    }

    pub(super) struct EngineSnapshot<'a> {
        size: &'a str,
    }

    pub(super) struct ReplicaFields<'a> {
        spec: ReplicaSpec<'a>,
        status: ReplicaStatus<'a>,
    }

    pub(super) struct ReplicaSpec<'a> {
        node_id as "nodeID": &'a str,
        disk_id as "diskID": &'a str,
        volume_size: &'a str,
        healthy_at: &'a str,
        last_healthy_at: &'a str,
        failed_at: &'a str,
        eviction_requested: bool,
        rebuild_retry_count: Option<i64>,
    }

    pub(super) struct ReplicaStatus<'a> {
        current_state: &'a str,
        ip: &'a str,
        storage_ip as "storageIP": &'a str,
        port: Option<i64>,
        conditions: Vec<ConditionFields<'a>>,
    }

    pub(super) struct AttachmentFields<'a> {
        spec: AttachmentSpec<'a>,
        status: AttachmentStatus<'a>,
    }

    pub(super) struct AttachmentSpec<'a> {
        attachment_tickets: BTreeMap<&'a str, TicketFields<'a>>,
    }

    pub(super) struct TicketFields<'a> {
        kind as "type": &'a str,
        node_id as "nodeID": &'a str,
        generation: i64,
        parameters: BTreeMap<&'a str, &'a str>,
    }

    pub(super) struct AttachmentStatus<'a> {
        attachment_ticket_statuses: BTreeMap<&'a str, TicketStatus>,
    }

    pub(super) struct TicketStatus {
        /// They are copied and changed.
        conditions: Vec<serde_json::Value>,
    }

    pub(super) struct SnapshotFields<'a> {
        spec: SnapshotSpec<'a>,
        status: SnapshotStatus<'a>,
    }

    pub(super) struct SnapshotSpec<'a> {
        volume: &'a str,
        create_snapshot: bool,
    }

    pub(super) struct SnapshotStatus<'a> {
        creation_time: &'a str,
        error: &'a str,
        ready_to_use: bool,
        restore_size: Option<i64>,
    }

    pub(super) struct BackupFields<'a> {
        spec: BackupSpec<'a>,
        status: BackupStatus<'a>,
    }

    pub(super) struct BackupSpec<'a> {
        snapshot_name: &'a str,
    }

    pub(super) struct BackupStatus<'a> {
        state: &'a str,
        error: &'a str,
        url: &'a str,
        volume_name: &'a str,
        volume_size: &'a str,
        snapshot_created_at: &'a str,
    }

    pub(crate) struct BackupTargetFields<'a> {
        spec: BackupTargetSpec<'a>,
        status: BackupTargetStatus<'a>,
    }

    pub(crate) struct BackupTargetSpec<'a> {
        url as "backupTargetURL": &'a str,
    }

    pub(crate) struct BackupTargetStatus<'a> {
        owner_id as "ownerID": &'a str,
        available: Option<bool>,
        conditions: Vec<ConditionFields<'a>>,
    }

    pub(crate) struct StorageNodeFields<'a> {
        spec: StorageNodeSpec<'a>,
        status: StorageNodeStatus<'a>,
    }

    pub(crate) struct StorageNodeSpec<'a> {
        allow_scheduling: Option<bool>,
        eviction_requested: bool,
        tags: Vec<&'a str>,
        disks: BTreeMap<&'a str, DiskSpec<'a>>,
    }

    pub(crate) struct DiskSpec<'a> {
        path: &'a str,
        allow_scheduling: Option<bool>,
        eviction_requested: bool,
        storage_reserved: i64,
        tags: Vec<&'a str>,
    }

    pub(crate) struct StorageNodeStatus<'a> {
        zone: &'a str,
        disk_status: BTreeMap<&'a str, DiskStatus<'a>>,
        conditions: Vec<ConditionFields<'a>>,
    }

    pub(crate) struct DiskStatus<'a> {
        uuid as "diskUUID": &'a str,
        path as "diskPath": &'a str,
        storage_maximum: i64,
        storage_available: i64,
        storage_scheduled: i64,
        conditions: Vec<ConditionFields<'a>>,
    }

    pub(crate) struct BackingImageFields<'a> {
        spec: BackingImageSpec<'a>,
        status: BackingImageStatus<'a>,
    }

    pub(crate) struct BackingImageSpec<'a> {
        source_type: &'a str,
        source_parameters: ImageParameters<'a>,
        node_selector: Vec<&'a str>,
        disk_selector: Vec<&'a str>,
        disk_file_spec_map: BTreeMap<&'a str, IgnoredAny>,
    }

    pub(crate) struct ImageParameters<'a> {
        encryption: &'a str,
        /// The backing image that this one is made of.
        origin as "backing-image": &'a str,
    }

    pub(crate) struct BackingImageStatus<'a> {
        size: Option<i64>,
        virtual_size: Option<i64>,
        disk_file_status_map: BTreeMap<&'a str, ImageFileStatus<'a>>,
    }

    /// The data of an image on one disk.
    pub(crate) struct ImageFileStatus<'a> {
        state: &'a str,
        progress: i64,
        message: &'a str,
    }
}

impl StorageNodeSpec<'_> {
    /// Whether the node takes replicas.
    pub(crate) fn is_open(&self) -> bool {
        self.allow_scheduling != Some(false) && !self.eviction_requested
    }
}

impl DiskSpec<'_> {
    /// Whether the disk takes replicas.
    pub(crate) fn is_open(&self) -> bool {
        self.allow_scheduling != Some(false) && !self.eviction_requested
    }
}
