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
        /// Type of the disk: Disk for an existing file, DiskOrCreate to create a missing one.
        r#type: String,
        /// Size of the file if it is created.
        capacity: Option<Quantity>,
        /// Whether several guests may use the file.
        shared: Option<bool>,
    }

    ConfigMapVolumeSource {
        /// Name of the ConfigMap.
        name: Option<String> = {"default": ""},
        /// Whether the guest starts without the ConfigMap if it does not exist.
        optional: Option<bool>,
        /// Volume label of the disk.
        volume_label: Option<String>,
    }

    SecretVolumeSource {
        /// Name of the Secret.
        secret_name: Option<String>,
        /// Whether the guest starts without the Secret if it does not exist.
        optional: Option<bool>,
        /// Volume label of the disk.
        volume_label: Option<String>,
    }

    DownwardAPIVolumeSource {
        /// Files with fields of the instance.
        fields: Vec<DownwardAPIVolumeFile>,
        /// Volume label of the disk.
        volume_label: Option<String>,
    }

    ServiceAccountVolumeSource {
        /// Name of the ServiceAccount.
        service_account_name: Option<String>,
    }

    ContainerPathVolumeSource {
        /// Absolute path in the container of the guest.
        path: String = {"maxLength": 4096, "x-kubernetes-validations": [{"rule": "self.startsWith('/')", "message": "path must be absolute (start with '/')"}, {"rule": "!self.contains('..')", "message": "path must not contain '..'"}]},
        /// Whether the path is mounted read-only; only true is supported.
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
        /// User data, encoded in Base64.
        user_data_base64: Option<String>,
        /// User data as plain text.
        user_data: Option<String>,
        /// Secret with the network data, under the key networkdata.
        network_data_secret_ref: Option<LocalObjectReference>,
        /// Network data, encoded in Base64.
        network_data_base64: Option<String>,
        /// Network data as plain text.
        network_data: Option<String>,
    }

    CloudInitConfigDriveSource {
        /// Secret with the user data, under the key userdata.
        secret_ref: Option<LocalObjectReference>,
        /// User data, encoded in Base64.
        user_data_base64: Option<String>,
        /// User data as plain text.
        user_data: Option<String>,
        /// Secret with the network data, under the key networkdata.
        network_data_secret_ref: Option<LocalObjectReference>,
        /// Network data, encoded in Base64.
        network_data_base64: Option<String>,
        /// Network data as plain text.
        network_data: Option<String>,
    }

    Disk {
        /// Name of the disk, which must be the name of a volume.
        name: String,
        /// Attaches the volume as a hard disk.
        disk: Option<DiskTarget>,
        /// Attaches the volume as a SCSI LUN that is passed through.
        lun: Option<LunTarget>,
        /// Attaches the volume as a CD-ROM.
        cdrom: Option<CDRomTarget>,
        /// Boot order of the disk, beginning with 1; unique among disks and interfaces.
        boot_order: Option<u64>,
        /// Serial number of the disk that the guest sees.
        serial: Option<String>,
        /// Whether the disk gets a dedicated I/O thread.
        dedicated_io_thread as "dedicatedIOThread": Option<bool>,
        /// Cache mode of the disk: none, writethrough or writeback.
        cache: Option<String>,
        /// I/O mode of the disk: native or threads.
        io: Option<String>,
        /// Tag of the device in the metadata of the guest.
        tag: Option<String>,
        /// Block sizes of the disk that the guest sees.
        block_size: Option<BlockSize>,
        /// Whether several guests may write to the disk at the same time.
        shareable: Option<bool>,
        /// Action on an I/O error: stop (default), report, ignore or enospace.
        error_policy: Option<String>,
        /// Whether changed blocks are tracked, for incremental backups.
        changed_block_tracking: Option<bool>,
    }

    CustomBlockSize {
        /// Logical block size in bytes.
        logical: Option<u64>,
        /// Physical block size in bytes.
        physical: Option<u64>,
        /// Discard granularity in bytes.
        discard_granularity: Option<u64>,
    }

    BlockSize {
        /// Custom block sizes of the disk.
        custom: Option<CustomBlockSize>,
        /// Uses the block sizes of the volume.
        match_volume: Option<FeatureState>,
    }

    DiskTarget {
        /// Bus of the disk: virtio, sata, scsi or usb.
        bus: Option<String>,
        /// Whether the disk is read-only for the guest.
        readonly: Option<bool>,
        /// PCI address in the guest, for example 0000:81:01.0.
        pci_address: Option<String>,
    }

    LunTarget {
        /// Bus of the LUN: virtio, sata or scsi.
        bus: Option<String>,
        /// Whether the LUN is read-only for the guest.
        readonly: Option<bool>,
        /// Whether the guest can use SCSI persistent reservations.
        reservation: Option<bool>,
    }

    CDRomTarget {
        /// Bus of the CD-ROM: sata or scsi.
        bus: Option<String>,
        /// Whether the CD-ROM is read-only; true by default.
        readonly: Option<bool>,
        /// State of the tray: open or closed.
        tray: Option<String>,
    }

    Volume {
        /// Name of the volume, which disks refer to.
        name: String,
        /// Disk image file on the node.
        host_disk: Option<HostDisk>,
        /// PersistentVolumeClaim in the same namespace.
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
        /// Data for cloud-init, as a NoCloud disk labelled cidata.
        cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
        /// Data for cloud-init, as a config drive labelled config-2.
        cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
        /// Answer file of Windows Sysprep, as a CD-ROM.
        sysprep: Option<SysprepSource>,
        /// Disk image in a container registry; writes are lost when the guest stops.
        container_disk: Option<ContainerDiskSource>,
        /// PersistentVolumeClaim that is used read-only; writes are lost when the guest stops.
        ephemeral: Option<EphemeralVolumeSource>,
        /// Empty disk that exists as long as the instance.
        empty_disk: Option<EmptyDiskSource>,
        /// DataVolume in the same namespace.
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
        /// PersistentVolumeClaim that a memory dump is written to.
        memory_dump: Option<MemoryDumpVolumeSource>,
        /// A path in the container of the guest.
        container_path: Option<ContainerPathVolumeSource>,
    }

    HotplugVolumeSource {
        /// PersistentVolumeClaim in the same namespace.
        persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
        /// A DataVolume in the same namespace.
        data_volume: Option<DataVolumeSource>,
    }

    DataVolumeSource {
        /// Name of the DataVolume.
        name: String,
        /// Whether the volume can be hot-unplugged while the guest runs.
        hotpluggable: Option<bool>,
    }

    PersistentVolumeClaimVolumeSource {
        /// Name of the PersistentVolumeClaim.
        claim_name: String,
        /// Whether the volume is read-only for the guest.
        read_only: Option<bool>,
        /// Whether the volume can be hot-unplugged while the guest runs.
        hotpluggable: Option<bool>,
    }

    MemoryDumpVolumeSource {
        /// Name of the PersistentVolumeClaim.
        claim_name: String,
        /// Whether the volume is read-only for the guest.
        read_only: Option<bool>,
        /// Whether the volume can be hot-unplugged while the guest runs.
        hotpluggable: Option<bool>,
    }

    EphemeralVolumeSource {
        /// PersistentVolumeClaim that the ephemeral volume is based on; it is not changed.
        persistent_volume_claim: Option<ClaimReference>,
    }

    EmptyDiskSource {
        /// Size of the disk.
        capacity: Quantity,
    }

    ContainerDiskSource {
        /// Container image that contains the disk.
        image: String,
        /// Secret with credentials for the registry.
        image_pull_secret: Option<String>,
        /// Path of the disk in the image; by default the only file in /disk.
        path: Option<String>,
        /// When the image is pulled: Always, IfNotPresent or Never.
        image_pull_policy: Option<String>,
    }

    UtilityVolume {
        /// Name of the volume.
        name: String,
        /// Name of the PersistentVolumeClaim.
        claim_name: String,
        /// Whether the volume is mounted read-only.
        read_only: Option<bool>,
        /// Purpose of the volume: MemoryDump or Backup.
        r#type: Option<String>,
    }
}
