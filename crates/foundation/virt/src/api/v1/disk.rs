//! Disks, and the volumes behind them.

use super::domain::FeatureState;
use crate::api::atom::{
    ClaimReference, DownwardAPIVolumeFile, Empty, LocalObjectReference, Quantity,
};
use crate::api::record::record;

record! {
    HostDisk {
        /// Path of the file on the node.
        path: String,
        /// Disk for an existing file, DiskOrCreate to create a missing one.
        r#type: String,
        /// Size of a file that is created.
        capacity: Option<Quantity>,
        /// Several guests may use the file.
        shared: Option<bool>,
    }

    ConfigMapVolumeSource {
        /// Name of the ConfigMap.
        name: Option<String> = {"default": ""},
        /// The guest starts without the ConfigMap if it does not exist.
        optional: Option<bool>,
        /// Label of the disk.
        volume_label: Option<String>,
    }

    SecretVolumeSource {
        /// Name of the Secret.
        secret_name: Option<String>,
        /// The guest starts without the Secret if it does not exist.
        optional: Option<bool>,
        /// Label of the disk.
        volume_label: Option<String>,
    }

    DownwardAPIVolumeSource {
        /// Files with fields of the instance.
        fields: Vec<DownwardAPIVolumeFile>,
        /// Label of the disk.
        volume_label: Option<String>,
    }

    ServiceAccountVolumeSource {
        /// Name of the ServiceAccount.
        service_account_name: Option<String>,
    }

    ContainerPathVolumeSource {
        /// Path in the container of the guest.
        path: String = {"maxLength": 4096, "x-kubernetes-validations": [{"rule": "self.startsWith('/')", "message": "path must be absolute (start with '/')"}, {"rule": "!self.contains('..')", "message": "path must not contain '..'"}]},
        /// The guest cannot write to it.
        read_only: Option<bool> = {"default": true, "x-kubernetes-validations": [{"rule": "self == true", "message": "readOnly must be true, write access is not supported"}]},
    }

    SysprepSource {
        /// Secret with autounattend.xml or unattend.xml.
        secret: Option<LocalObjectReference>,
        /// ConfigMap with autounattend.xml or unattend.xml.
        config_map: Option<LocalObjectReference>,
    }

    CloudInitNoCloudSource {
        /// Secret with the user data, under the key userdata.
        secret_ref: Option<LocalObjectReference>,
        /// User data, Base64.
        user_data_base64: Option<String>,
        /// User data as text.
        user_data: Option<String>,
        /// Secret with the network data, under the key networkdata.
        network_data_secret_ref: Option<LocalObjectReference>,
        /// Network data, Base64.
        network_data_base64: Option<String>,
        /// Network data as text.
        network_data: Option<String>,
    }

    CloudInitConfigDriveSource {
        /// Secret with the user data, under the key userdata.
        secret_ref: Option<LocalObjectReference>,
        /// User data, Base64.
        user_data_base64: Option<String>,
        /// User data as text.
        user_data: Option<String>,
        /// Secret with the network data, under the key networkdata.
        network_data_secret_ref: Option<LocalObjectReference>,
        /// Network data, Base64.
        network_data_base64: Option<String>,
        /// Network data as text.
        network_data: Option<String>,
    }

    Disk {
        /// The name of the volume behind the disk.
        name: String,
        /// A hard disk.
        disk: Option<DiskTarget>,
        /// A SCSI device that is passed through.
        lun: Option<LunTarget>,
        /// A CD-ROM drive.
        cdrom: Option<CDRomTarget>,
        /// 1 boots first; unique over disks and interfaces.
        boot_order: Option<u64>,
        /// The serial number that the guest sees.
        serial: Option<String>,
        /// Give the disk a thread of its own.
        dedicated_io_thread as "dedicatedIOThread": Option<bool>,
        /// none, writethrough or writeback.
        cache: Option<String>,
        /// native or threads.
        io: Option<String>,
        /// Tag for the guest, in its device metadata.
        tag: Option<String>,
        /// Sizes of the sectors that the guest sees.
        block_size: Option<BlockSize>,
        /// Several guests may write to the disk at once.
        shareable: Option<bool>,
        /// What an I/O error does to the guest: stop (default), report, ignore or enospace.
        error_policy: Option<String>,
        /// Track changed blocks, for incremental backups.
        changed_block_tracking: Option<bool>,
    }

    CustomBlockSize {
        /// Logical sector size in bytes.
        logical: Option<u64>,
        /// Physical sector size in bytes.
        physical: Option<u64>,
        /// Smallest unit that can be discarded, in bytes.
        discard_granularity: Option<u64>,
    }

    BlockSize {
        /// These sizes.
        custom: Option<CustomBlockSize>,
        /// The sizes of the volume.
        match_volume: Option<FeatureState>,
    }

    DiskTarget {
        /// virtio, sata, scsi or usb.
        bus: Option<String>,
        /// The guest cannot write to the disk.
        readonly: Option<bool>,
        /// PCI address in the guest, for example 0000:81:01.0.
        pci_address: Option<String>,
    }

    LunTarget {
        /// virtio, sata or scsi.
        bus: Option<String>,
        /// The guest cannot write to the disk.
        readonly: Option<bool>,
        /// Allow SCSI persistent reservations.
        reservation: Option<bool>,
    }

    CDRomTarget {
        /// sata or scsi.
        bus: Option<String>,
        /// The guest cannot write to the disk; default true.
        readonly: Option<bool>,
        /// open or closed.
        tray: Option<String>,
    }

    Volume {
        /// Name that disks refer to.
        name: String,
        /// A file on the node.
        host_disk: Option<HostDisk>,
        /// A claim in the same namespace.
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
        /// Data for cloud-init, as a disk labelled cidata.
        cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
        /// Data for cloud-init, as a disk labelled config-2.
        cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
        /// Answer file for Windows, as a CD-ROM.
        sysprep: Option<SysprepSource>,
        /// An image from a registry; writes are lost when the guest stops.
        container_disk: Option<ContainerDiskSource>,
        /// A claim that is only read; writes are lost when the guest stops.
        ephemeral: Option<EphemeralVolumeSource>,
        /// An empty disk that lives as long as the instance.
        empty_disk: Option<EmptyDiskSource>,
        /// A data volume in the same namespace.
        data_volume: Option<DataVolumeSource>,
        /// Content of a ConfigMap, as a disk.
        config_map: Option<ConfigMapVolumeSource>,
        /// Content of a Secret, as a disk.
        secret: Option<SecretVolumeSource>,
        /// Fields of the instance, as a disk.
        downward_api as "downwardAPI": Option<DownwardAPIVolumeSource>,
        /// Token of a ServiceAccount, as a disk.
        service_account: Option<ServiceAccountVolumeSource>,
        /// Metrics of the node, as a disk.
        downward_metrics: Option<Empty>,
        /// Claim that a memory dump is written to.
        memory_dump: Option<MemoryDumpVolumeSource>,
        /// A path in the container of the guest.
        container_path: Option<ContainerPathVolumeSource>,
    }

    HotplugVolumeSource {
        /// A claim in the same namespace.
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
        /// A DataVolume in the same namespace.
        data_volume: Option<DataVolumeSource>,
    }

    DataVolumeSource {
        /// Name of the DataVolume.
        name: String,
        /// The volume can be detached while the guest runs.
        hotpluggable: Option<bool>,
    }

    PersistentVolumeClaimVolumeSource {
        /// Name of the claim.
        claim_name: String,
        /// The guest cannot write to it.
        read_only: Option<bool>,
        /// The volume can be detached while the guest runs.
        hotpluggable: Option<bool>,
    }

    MemoryDumpVolumeSource {
        /// Name of the claim.
        claim_name: String,
        /// The guest cannot write to it.
        read_only: Option<bool>,
        /// The volume can be detached while the guest runs.
        hotpluggable: Option<bool>,
    }

    EphemeralVolumeSource {
        /// The claim below, which is not changed.
        persistent_volume_claim: Option<ClaimReference>,
    }

    EmptyDiskSource {
        /// Size of the disk.
        capacity: Quantity,
    }

    ContainerDiskSource {
        /// Container image with the disk.
        image: String,
        /// Secret with credentials for the registry.
        image_pull_secret: Option<String>,
        /// Path of the disk in the image; default is the only file in /disk.
        path: Option<String>,
        /// When the image is pulled: Always, IfNotPresent or Never.
        image_pull_policy: Option<String>,
    }

    UtilityVolume {
        /// Name of the volume.
        name: String,
        /// Name of the claim.
        claim_name: String,
        /// The volume is not written to.
        read_only: Option<bool>,
        /// What the volume is for: MemoryDump or Backup.
        r#type: Option<String>,
    }
}
