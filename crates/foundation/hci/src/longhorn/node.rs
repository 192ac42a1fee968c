//! Nodes and their disks.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    Node {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<NodeSpec>,
        /// What is observed.
        status: Option<NodeStatus>,
    }

    NodeSpec {
        /// Name of the node.
        name: Option<String>,
        /// Disks of the node, by name.
        disks: Map<DiskSpec>,
        /// New replicas may be placed here.
        allow_scheduling: Option<bool>,
        /// The data is to be moved elsewhere.
        eviction_requested: Option<bool>,
        /// Tags that volumes select by.
        tags: Vec<String>,
        /// Processor request of the instance manager in thousandths.
        instance_manager_cpu_request as "instanceManagerCPURequest": Option<i32>,
    }

    DiskSpec {
        /// filesystem or block.
        disk_type: Option<String> = {"enum": ["filesystem", "block"]},
        /// Path on the node.
        path: Option<String>,
        /// Driver of the disk.
        disk_driver: Option<String> = {"enum": ["", "auto", "aio", "nvme"]},
        /// New replicas may be placed here.
        allow_scheduling: Option<bool>,
        /// The data is to be moved elsewhere.
        eviction_requested: Option<bool>,
        /// Bytes that are not for volumes.
        storage_reserved: Option<i64>,
        /// Tags that volumes select by.
        tags: Vec<String>,
    }

    NodeStatus {
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// State of the disks, by name.
        disk_status: Map<DiskStatus> = {"nullable": true},
        /// Region of the node.
        region: Option<String>,
        /// Zone of the node.
        zone: Option<String>,
        /// Replicas are moved away because the node is drained.
        auto_evicting: Option<bool>,
        /// Progress of the check of snapshots.
        snapshot_check_status: Option<Any>,
    }

    DiskStatus {
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Free bytes.
        storage_available: Option<i64>,
        /// Bytes that are promised to replicas.
        storage_scheduled: Option<i64>,
        /// Size in bytes.
        storage_maximum: Option<i64>,
        /// Bytes by replica.
        scheduled_replica: Map<i64> = {"nullable": true},
        /// Backing images on the disk, by name.
        scheduled_backing_image: Map<i64> = {"nullable": true},
        /// UUID of the disk.
        disk_uuid as "diskUUID": Option<String>,
        /// Name of the disk.
        disk_name: Option<String>,
        /// Path of the disk on its node.
        disk_path: Option<String>,
        /// filesystem or block.
        disk_type: Option<String>,
        /// Driver of the disk.
        disk_driver: Option<String>,
        /// Type of the file system.
        filesystem_type: Option<String>,
        /// Instance manager that runs the process.
        instance_manager_name: Option<String>,
        /// Health of the device.
        health_data: Map<Any>,
    }
}
