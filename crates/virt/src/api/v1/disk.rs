//! Disks, and the volumes behind them.

use super::domain::FeatureState;
use crate::api::atom::{
    ClaimReference, DownwardAPIVolumeFile, Empty, LocalObjectReference, Quantity,
};
use crate::api::record::record;

record! {
    HostDisk {
        path: String,
        r#type: String,
        capacity: Option<Quantity>,
        shared: Option<bool>,
    }

    ConfigMapVolumeSource {
        name: Option<String> = {"default": ""},
        optional: Option<bool>,
        volume_label: Option<String>,
    }

    SecretVolumeSource {
        secret_name: Option<String>,
        optional: Option<bool>,
        volume_label: Option<String>,
    }

    DownwardAPIVolumeSource {
        fields: Vec<DownwardAPIVolumeFile>,
        volume_label: Option<String>,
    }

    ServiceAccountVolumeSource {
        service_account_name: Option<String>,
    }

    ContainerPathVolumeSource {
        path: String = {"maxLength": 4096, "x-kubernetes-validations": [{"rule": "self.startsWith('/')", "message": "path must be absolute (start with '/')"}, {"rule": "!self.contains('..')", "message": "path must not contain '..'"}]},
        read_only: Option<bool> = {"default": true, "x-kubernetes-validations": [{"rule": "self == true", "message": "readOnly must be true, write access is not supported"}]},
    }

    SysprepSource {
        secret: Option<LocalObjectReference>,
        config_map: Option<LocalObjectReference>,
    }

    CloudInitNoCloudSource {
        secret_ref: Option<LocalObjectReference>,
        user_data_base64: Option<String>,
        user_data: Option<String>,
        network_data_secret_ref: Option<LocalObjectReference>,
        network_data_base64: Option<String>,
        network_data: Option<String>,
    }

    CloudInitConfigDriveSource {
        secret_ref: Option<LocalObjectReference>,
        user_data_base64: Option<String>,
        user_data: Option<String>,
        network_data_secret_ref: Option<LocalObjectReference>,
        network_data_base64: Option<String>,
        network_data: Option<String>,
    }

    Disk {
        /// The name of the volume behind the disk.
        name: String,
        disk: Option<DiskTarget>,
        lun: Option<LunTarget>,
        cdrom: Option<CDRomTarget>,
        /// 1 boots first; unique over disks and interfaces.
        boot_order: Option<u64>,
        /// The serial number that the guest sees.
        serial: Option<String>,
        dedicated_io_thread as "dedicatedIOThread": Option<bool>,
        /// none, writethrough or writeback.
        cache: Option<String>,
        /// native or threads.
        io: Option<String>,
        tag: Option<String>,
        block_size: Option<BlockSize>,
        /// Several guests may write to the disk at once.
        shareable: Option<bool>,
        /// What an I/O error does to the guest: stop (default), report, ignore or enospace.
        error_policy: Option<String>,
        changed_block_tracking: Option<bool>,
    }

    CustomBlockSize {
        logical: Option<u64>,
        physical: Option<u64>,
        discard_granularity: Option<u64>,
    }

    BlockSize {
        custom: Option<CustomBlockSize>,
        match_volume: Option<FeatureState>,
    }

    DiskTarget {
        /// virtio, sata, scsi or usb.
        bus: Option<String>,
        readonly: Option<bool>,
        pci_address: Option<String>,
    }

    LunTarget {
        bus: Option<String>,
        readonly: Option<bool>,
        reservation: Option<bool>,
    }

    CDRomTarget {
        /// sata or scsi.
        bus: Option<String>,
        readonly: Option<bool>,
        tray: Option<String>,
    }

    Volume {
        name: String,
        /// A file on the node.
        host_disk: Option<HostDisk>,
        /// A claim in the same namespace.
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
        /// Data for cloud-init, as a disk labelled cidata.
        cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
        /// Data for cloud-init, as a disk labelled config-2.
        cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
        sysprep: Option<SysprepSource>,
        /// An image from a registry; writes are lost when the guest stops.
        container_disk: Option<ContainerDiskSource>,
        /// A claim that is only read; writes are lost when the guest stops.
        ephemeral: Option<EphemeralVolumeSource>,
        /// An empty disk that lives as long as the instance.
        empty_disk: Option<EmptyDiskSource>,
        /// A data volume in the same namespace.
        data_volume: Option<DataVolumeSource>,
        config_map: Option<ConfigMapVolumeSource>,
        secret: Option<SecretVolumeSource>,
        downward_api as "downwardAPI": Option<DownwardAPIVolumeSource>,
        service_account: Option<ServiceAccountVolumeSource>,
        downward_metrics: Option<Empty>,
        memory_dump: Option<MemoryDumpVolumeSource>,
        container_path: Option<ContainerPathVolumeSource>,
    }

    HotplugVolumeSource {
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
        data_volume: Option<DataVolumeSource>,
    }

    DataVolumeSource {
        name: String,
        hotpluggable: Option<bool>,
    }

    PersistentVolumeClaimVolumeSource {
        claim_name: String,
        read_only: Option<bool>,
        hotpluggable: Option<bool>,
    }

    MemoryDumpVolumeSource {
        claim_name: String,
        read_only: Option<bool>,
        hotpluggable: Option<bool>,
    }

    EphemeralVolumeSource {
        persistent_volume_claim: Option<ClaimReference>,
    }

    EmptyDiskSource {
        capacity: Quantity,
    }

    ContainerDiskSource {
        image: String,
        image_pull_secret: Option<String>,
        path: Option<String>,
        image_pull_policy: Option<String>,
    }

    UtilityVolume {
        name: String,
        claim_name: String,
        read_only: Option<bool>,
        r#type: Option<String>,
    }
}
