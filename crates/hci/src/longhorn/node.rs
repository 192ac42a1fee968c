//! Nodes and their disks.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    Node {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<NodeSpec>,
        status: Option<NodeStatus>,
    }

    NodeSpec {
        name: Option<String>,
        disks: Map<DiskSpec>,
        allow_scheduling: Option<bool>,
        eviction_requested: Option<bool>,
        tags: Vec<String>,
        instance_manager_cpu_request as "instanceManagerCPURequest": Option<i32>,
    }

    DiskSpec {
        disk_type: Option<String> = {"enum": ["filesystem", "block"]},
        path: Option<String>,
        disk_driver: Option<String> = {"enum": ["", "auto", "aio", "nvme"]},
        allow_scheduling: Option<bool>,
        eviction_requested: Option<bool>,
        /// Bytes that are not for volumes.
        storage_reserved: Option<i64>,
        tags: Vec<String>,
    }

    NodeStatus {
        conditions: Vec<Condition> = {"nullable": true},
        disk_status: Map<DiskStatus> = {"nullable": true},
        region: Option<String>,
        zone: Option<String>,
        auto_evicting: Option<bool>,
        snapshot_check_status: Option<Any>,
    }

    DiskStatus {
        conditions: Vec<Condition> = {"nullable": true},
        storage_available: Option<i64>,
        storage_scheduled: Option<i64>,
        storage_maximum: Option<i64>,
        /// Bytes by replica.
        scheduled_replica: Map<i64> = {"nullable": true},
        scheduled_backing_image: Map<i64> = {"nullable": true},
        disk_uuid as "diskUUID": Option<String>,
        disk_name: Option<String>,
        disk_path: Option<String>,
        disk_type: Option<String>,
        disk_driver: Option<String>,
        filesystem_type: Option<String>,
        instance_manager_name: Option<String>,
        health_data: Map<Any>,
    }
}
