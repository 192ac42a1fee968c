//! Disks of nodes and their use.

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
        /// Node that the device belongs to.
        node_name: String,
        /// Path of the device on its node, for instance /dev/sdb.
        dev_path: String,
        /// File system of the device; for the provisioner of Longhorn's first engine.
        file_system: Option<FileSystem>,
        /// Tags of the disk, by which storage classes choose it.
        tags: Vec<String>,
        /// Whether the device is to be used for volumes.
        provision: Option<bool>,
        /// How the device is used for volumes.
        provisioner: Option<Provisioner>,
    }

    FileSystem {
        /// Directory on the node where the file system is mounted.
        mount_point: Option<String>,
        /// Whether the device is formatted although it has a file system.
        force_formatted: Option<bool>,
        /// Whether the file system is used for volumes. Replaced by spec.provision.
        provisioned: Option<bool>,
        /// Whether the file system is to be checked and repaired.
        repaired: Option<bool>,
    }

    Provisioner {
        /// Makes the device a part of a volume group of LVM.
        lvm: Option<LvmProvisioner>,
        /// Makes the device a disk of Longhorn.
        longhorn: Option<LonghornProvisioner>,
    }

    LvmProvisioner {
        /// Name of the volume group.
        vg_name: String,
        /// Additional arguments for the creation of the volume group.
        parameters: Vec<String>,
    }

    LonghornProvisioner {
        /// Data engine of Longhorn that uses the device.
        engine_version: String = {"enum": ["LonghornV1", "LonghornV2"]},
        /// Driver of the second engine for the device; empty chooses one.
        disk_driver: Option<String>,
    }

    BlockDeviceStatus {
        /// Whether the device is attached to its node.
        state: Option<String> = {"enum": ["Active", "Inactive", "Unknown"]},
        /// Whether the device is used for volumes.
        provision_phase: Option<String> = {"enum": ["Provisioned", "Unprovisioned", "Unprovisioning"]},
        /// Capacity, partitions and file system of the device as found on the node.
        device_status: Option<Any>,
        /// Tags that the disk has now.
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
        /// Name of the volume group.
        vg_name: String,
        /// Node that the volume group is on.
        node_name: String,
        /// Whether volumes may be created in the group.
        desired_state: String = {"enum": ["Enabled", "Disabled"]},
        /// Devices of the group: path by name of the BlockDevice.
        devices: Map<String>,
        /// Additional arguments for the creation of the volume group.
        parameters: Option<String>,
    }

    LVMVolumeGroupStatus {
        /// Whether the volume group is active on its node.
        vg_status: Option<String> = {"enum": ["Active", "Inactive", "Unknown"]},
        /// Type of the volumes of the group, for instance striped or dm-thin.
        vg_target_type: Option<String>,
        conditions: Vec<Condition>,
    }
}
