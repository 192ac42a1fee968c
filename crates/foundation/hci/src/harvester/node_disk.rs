//! Disks of nodes and what they are used for.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    BlockDevice {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: BlockDeviceSpec,
        status: Option<BlockDeviceStatus>,
    }

    BlockDeviceSpec {
        node_name: String,
        dev_path: String,
        file_system: Option<FileSystem>,
        tags: Vec<String>,
        provision: Option<bool>,
        provisioner: Option<Provisioner>,
    }

    FileSystem {
        mount_point: Option<String>,
        force_formatted: Option<bool>,
        provisioned: Option<bool>,
        repaired: Option<bool>,
    }

    Provisioner {
        lvm: Option<LvmProvisioner>,
        longhorn: Option<LonghornProvisioner>,
    }

    LvmProvisioner {
        vg_name: String,
        parameters: Vec<String>,
    }

    LonghornProvisioner {
        engine_version: String = {"enum": ["LonghornV1", "LonghornV2"]},
        disk_driver: Option<String>,
    }

    BlockDeviceStatus {
        state: Option<String> = {"enum": ["Active", "Inactive", "Unknown"]},
        provision_phase: Option<String> = {"enum": ["Provisioned", "Unprovisioned", "Unprovisioning"]},
        device_status: Option<Any>,
        tags: Vec<String>,
        conditions: Vec<Condition>,
    }

    LVMVolumeGroup {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: LVMVolumeGroupSpec,
        status: Option<LVMVolumeGroupStatus>,
    }

    LVMVolumeGroupSpec {
        vg_name: String,
        node_name: String,
        desired_state: String = {"enum": ["Enabled", "Disabled"]},
        devices: Map<String>,
        parameters: Option<String>,
    }

    LVMVolumeGroupStatus {
        vg_status: Option<String> = {"enum": ["Active", "Inactive", "Unknown"]},
        vg_target_type: Option<String>,
        conditions: Vec<Condition>,
    }
}
