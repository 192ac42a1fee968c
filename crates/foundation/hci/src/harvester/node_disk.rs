//! Disks of nodes and their use.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Disk of a node that storage may use.
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
        /// File system of the device, used by the provisioner of the v1 data engine of Longhorn.
        file_system: Option<FileSystem>,
        /// Tags of the disk, which storage classes select disks by.
        tags: Vec<String>,
        /// Whether the device is to be used for volumes.
        provision: Option<bool>,
        /// Provisioner of the device: LVM or Longhorn.
        provisioner: Option<Provisioner>,
    }

    FileSystem {
        /// Directory on the node where the file system is mounted.
        mount_point: Option<String>,
        /// Whether the device is formatted even if it already has a file system.
        force_formatted: Option<bool>,
        /// Whether the file system is used for volumes. Replaced by spec.provision.
        provisioned: Option<bool>,
        /// Whether the file system is to be checked and repaired.
        repaired: Option<bool>,
    }

    Provisioner {
        /// Adds the device to a volume group of LVM.
        lvm: Option<LvmProvisioner>,
        /// Adds the device to Longhorn as a disk.
        longhorn: Option<LonghornProvisioner>,
    }

    LvmProvisioner {
        /// Name of the volume group.
        vg_name: String,
        /// Additional arguments for the creation of the volume group.
        parameters: Vec<String>,
    }

    LonghornProvisioner {
        /// Data engine of Longhorn that uses the device: LonghornV1 or LonghornV2.
        engine_version: String = {"enum": ["LonghornV1", "LonghornV2"]},
        /// Disk driver of the v2 data engine; selected automatically if empty.
        disk_driver: Option<String>,
    }

    BlockDeviceStatus {
        /// State of the device: Active if it is attached to its node.
        state: Option<String> = {"enum": ["Active", "Inactive", "Unknown"]},
        /// Progress of the provisioning: Provisioned, Unprovisioned or Unprovisioning.
        provision_phase: Option<String> = {"enum": ["Provisioned", "Unprovisioned", "Unprovisioning"]},
        /// Capacity, partitions and file system of the device as found on the node.
        device_status: Option<Any>,
        /// Tags that the disk currently has.
        tags: Vec<String>,
        conditions: Vec<Condition>,
    }

    /// LVM volume group of disks of a node.
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
        /// Desired state of the volume group: volumes can be created in it if Enabled.
        desired_state: String = {"enum": ["Enabled", "Disabled"]},
        /// Paths of the devices of the volume group, by name of the BlockDevice.
        devices: Map<String>,
        /// Additional arguments for the creation of the volume group.
        parameters: Option<String>,
    }

    LVMVolumeGroupStatus {
        /// Observed state of the volume group on its node.
        vg_status: Option<String> = {"enum": ["Active", "Inactive", "Unknown"]},
        /// Type of the logical volumes of the group, for example striped or dm-thin.
        vg_target_type: Option<String>,
        conditions: Vec<Condition>,
    }
}
