//! Images of disks, and files made of them.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;
use super::backup::BackupTarget;

record! {
    VirtualMachineImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineImageSpec,
        status: Option<VirtualMachineImageStatus>,
    }

    VirtualMachineImageSpec {
        /// What keeps the image's data.
        backend: Option<String> = {"default": "backingimage", "enum": ["backingimage", "cdi"]},
        /// Free text.
        description: Option<String>,
        /// Name of the image for users; unique in its namespace.
        display_name: String,
        /// download, upload, export-from-volume, restore or clone.
        source_type: String = {"enum": ["download", "upload", "export-from-volume", "restore", "clone"]},
        /// Claim to export.
        pvc_name: Option<String>,
        /// Namespace of that claim.
        pvc_namespace: Option<String>,
        /// URL to download from.
        url: Option<String>,
        /// SHA-512 of the file that is imported.
        checksum: Option<String>,
        /// Parameters of the storage class of the image's volumes.
        storage_class_parameters: Map<String>,
        /// How often an import that failed is tried again.
        retry: Option<i32> = {"default": 3, "minimum": 0, "maximum": 10},
        /// Encrypt or decrypt another image.
        security_parameters: Option<SecurityParameters>,
        /// Storage class that the data of the image is stored with.
        target_storage_class_name: Option<String>,
    }

    /// How an encrypted image is made of a plain one, or the other way round.
    SecurityParameters {
        /// encrypt or decrypt.
        crypto_operation: String = {"enum": ["encrypt", "decrypt"]},
        /// Name of the source image.
        source_image_name: String,
        /// Namespace of the source image.
        source_image_namespace: String,
    }

    VirtualMachineImageStatus {
        /// URL that the image was downloaded from.
        applied_url: Option<String>,
        /// Progress of the import in percent.
        progress: Option<i32>,
        /// Size of the image file in bytes.
        size: Option<i64>,
        /// Size of the disk in the image, in bytes.
        virtual_size: Option<i64>,
        /// Storage class of volumes that begin as this image.
        storage_class_name: Option<String>,
        /// Storage class that the data of the image is stored with.
        target_storage_class_name: Option<String>,
        /// Number of failed attempts.
        failed: Option<i32> = {"default": 0, "minimum": 0},
        /// Time of the latest failed attempt.
        last_failed_time: Option<String>,
        /// Backup target that holds the image.
        backup_target: Option<BackupTarget>,
        conditions: Vec<Condition>,
    }

    VirtualMachineImageDownloader {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineImageDownloaderSpec,
        status: Option<VirtualMachineImageDownloaderStatus>,
    }

    VirtualMachineImageDownloaderSpec {
        /// Name of the image.
        image_name: String,
        /// Compression of the file, for example qcow2.
        compress_type: Option<String> = {"default": "qcow2", "enum": ["qcow2"]},
    }

    VirtualMachineImageDownloaderStatus {
        /// Progress of the preparation.
        status: Option<String> = {"enum": ["Progressing", "Ready"]},
        /// URL of the file.
        download_url: Option<String>,
        conditions: Vec<Condition>,
    }
}
