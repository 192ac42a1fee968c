//! Nodes and their disks.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Disks of a node and the replicas on them.
    Node {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired disks and scheduling of the node.
        spec: Option<NodeSpec>,
        /// Observed state of the node and its disks.
        status: Option<NodeStatus>,
    }

    NodeSpec {
        /// Name of the node.
        name: Option<String>,
        /// Disks of the node, by name.
        disks: Map<DiskSpec>,
        /// Whether new replicas can be scheduled on the node.
        allow_scheduling: Option<bool>,
        /// Whether all replicas on the node are to be moved to other nodes.
        eviction_requested: Option<bool>,
        /// Tags of the node, which volumes select nodes by.
        tags: Vec<String>,
        /// CPU request of the instance manager in millicores.
        instance_manager_cpu_request as "instanceManagerCPURequest": Option<i32>,
    }

    DiskSpec {
        /// Type of the disk: filesystem or block.
        disk_type: Option<String> = {"enum": ["filesystem", "block"]},
        /// Path of the disk on its node.
        path: Option<String>,
        /// Driver of a block disk: auto, aio or nvme.
        disk_driver: Option<String> = {"enum": ["", "auto", "aio", "nvme"]},
        /// Whether new replicas can be scheduled on the disk.
        allow_scheduling: Option<bool>,
        /// Whether all replicas on the disk are to be moved to other disks.
        eviction_requested: Option<bool>,
        /// Space that is not available for replicas, in bytes.
        storage_reserved: Option<i64>,
        /// Tags of the disk, which volumes select disks by.
        tags: Vec<String>,
    }

    NodeStatus {
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Observed state of the disks, by name.
        disk_status: Map<DiskStatus> = {"nullable": true},
        /// Region of the node, from its topology labels.
        region: Option<String>,
        /// Zone of the node, from its topology labels.
        zone: Option<String>,
        /// Whether replicas are moved to other nodes since the node is being drained.
        auto_evicting: Option<bool>,
        /// Progress of the verification of snapshot checksums.
        snapshot_check_status: Option<Any>,
    }

    DiskStatus {
        /// Conditions of the object, each with its reason.
        conditions: Vec<Condition> = {"nullable": true},
        /// Free space of the disk in bytes.
        storage_available: Option<i64>,
        /// Space that is reserved for the scheduled replicas, in bytes.
        storage_scheduled: Option<i64>,
        /// Capacity of the disk in bytes.
        storage_maximum: Option<i64>,
        /// Size of the scheduled replicas in bytes, by name of the replica.
        scheduled_replica: Map<i64> = {"nullable": true},
        /// Size of the backing images on the disk in bytes, by name of the image.
        scheduled_backing_image: Map<i64> = {"nullable": true},
        /// UUID of the disk.
        disk_uuid as "diskUUID": Option<String>,
        /// Name of the disk.
        disk_name: Option<String>,
        /// Path of the disk on its node.
        disk_path: Option<String>,
        /// Type of the disk: filesystem or block.
        disk_type: Option<String>,
        /// Driver of a block disk: aio or nvme.
        disk_driver: Option<String>,
        /// Type of the file system of the disk, for example ext4.
        filesystem_type: Option<String>,
        /// Name of the instance manager of the disk.
        instance_manager_name: Option<String>,
        /// SMART health data, by device.
        health_data: Map<Any>,
    }
}
