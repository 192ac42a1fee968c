//! Bodies of requests to subresources, and their answers.

use super::disk::{Disk, HotplugVolumeSource};
use super::instance::VirtualMachineInstanceGuestOSInfo;
use crate::api::atom::{Any, Duration, Map};
use crate::api::record::record;

record! {
    RestartOptions {
        api_version: Option<String>,
        kind: Option<String>,
        grace_period_seconds: Option<i64>,
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    StartOptions {
        api_version: Option<String>,
        kind: Option<String>,
        paused: Option<bool>,
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    PauseOptions {
        api_version: Option<String>,
        kind: Option<String>,
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    UnpauseOptions {
        api_version: Option<String>,
        kind: Option<String>,
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    StopOptions {
        api_version: Option<String>,
        kind: Option<String>,
        grace_period: Option<i64>,
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    MigrateOptions {
        api_version: Option<String>,
        kind: Option<String>,
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        added_node_selector: Map<String>,
    }

    EvacuateCancelOptions {
        api_version: Option<String>,
        kind: Option<String>,
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        evacuation_node_name: String,
    }

    VirtualMachineInstanceGuestAgentInfo {
        api_version: Option<String>,
        kind: Option<String>,
        guest_agent_version: Option<String>,
        supported_commands: Vec<GuestAgentCommandInfo> = {"x-kubernetes-list-type": "atomic"},
        hostname: Option<String>,
        os: Option<VirtualMachineInstanceGuestOSInfo>,
        timezone: Option<String>,
        user_list: Vec<VirtualMachineInstanceGuestOSUser>,
        fs_info: Option<VirtualMachineInstanceFileSystemInfo>,
        fs_freeze_status: Option<String>,
    }

    GuestAgentCommandInfo {
        name: String,
        enabled: Option<bool>,
    }

    VirtualMachineInstanceGuestOSUserList {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: Option<Any>,
        items: Vec<VirtualMachineInstanceGuestOSUser> = {"required": true},
    }

    VirtualMachineInstanceGuestOSUser {
        user_name: String,
        domain: Option<String>,
        login_time: Option<f64>,
    }

    VirtualMachineInstanceFileSystemInfo {
        disks: Vec<VirtualMachineInstanceFileSystem> = {"required": true},
    }

    VirtualMachineInstanceFileSystemList {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: Option<Any>,
        items: Vec<VirtualMachineInstanceFileSystem> = {"required": true},
    }

    VirtualMachineInstanceFileSystemDisk {
        serial: Option<String>,
        bus_type: String,
    }

    VirtualMachineInstanceFileSystem {
        disk_name: String,
        mount_point: String,
        file_system_type: String,
        used_bytes: i64,
        total_bytes: i64,
        disk: Vec<VirtualMachineInstanceFileSystemDisk>,
    }

    FreezeUnfreezeTimeout {
        unfreeze_timeout: Duration,
    }

    AddVolumeOptions {
        /// Name of the volume and its disk.
        name: String,
        /// Disk of the volume, as the guest sees it.
        disk: Disk,
        /// PersistentVolumeClaim or DataVolume to attach.
        volume_source: HotplugVolumeSource,
        /// With All, the request is validated but not carried out (dry run).
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    RemoveVolumeOptions {
        /// Name of the volume.
        name: String,
        /// With All, the request is validated but not carried out (dry run).
        dry_run: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }
}
