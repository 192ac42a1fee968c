//! Images of disks, and files made of them.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;
use super::backup::BackupTarget;

record! {
    /// Disk image that volumes of machines begin as.
    VirtualMachineImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineImageSpec,
        status: Option<VirtualMachineImageStatus>,
    }

    VirtualMachineImageSpec {
        /// Storage backend of the image: backingimage (Longhorn) or cdi.
        backend: Option<String> = {"default": "backingimage", "enum": ["backingimage", "cdi"]},
        /// Description of the image for users.
        description: Option<String>,
        /// Display name of the image, unique in its namespace.
        display_name: String,
        /// Source of the image data: download, upload, export-from-volume, restore or clone.
        source_type: String = {"enum": ["download", "upload", "export-from-volume", "restore", "clone"]},
        /// Name of the PersistentVolumeClaim to export.
        pvc_name: Option<String>,
        /// Namespace of the PersistentVolumeClaim to export.
        pvc_namespace: Option<String>,
        /// URL that the image is downloaded from.
        url: Option<String>,
        /// SHA-512 checksum of the file that is imported.
        checksum: Option<String>,
        /// Parameters of the StorageClass that is created for volumes of the image.
        storage_class_parameters: Map<String>,
        /// Number of times that a failed import is retried.
        retry: Option<i32> = {"default": 3, "minimum": 0, "maximum": 10},
        /// Source image and operation of an image that is the encrypted or decrypted copy of
        /// another.
        security_parameters: Option<SecurityParameters>,
        /// StorageClass that the data of the image is stored with.
        target_storage_class_name: Option<String>,
    }

    /// Creation of an encrypted image from a plain one, or of a plain image from an encrypted one.
    SecurityParameters {
        /// Operation on the source image: encrypt or decrypt.
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
        /// StorageClass for volumes that are created from the image.
        storage_class_name: Option<String>,
        /// StorageClass that the data of the image is stored with.
        target_storage_class_name: Option<String>,
        /// Number of failed attempts to import the image.
        failed: Option<i32> = {"default": 0, "minimum": 0},
        /// When the import last failed.
        last_failed_time: Option<String>,
        /// Backup target that stores the image.
        backup_target: Option<BackupTarget>,
        conditions: Vec<Condition>,
    }

    /// Download of an image in another format.
    VirtualMachineImageDownloader {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineImageDownloaderSpec,
        status: Option<VirtualMachineImageDownloaderStatus>,
    }

    VirtualMachineImageDownloaderSpec {
        /// Name of the VirtualMachineImage.
        image_name: String,
        /// Format of the compressed file: qcow2.
        compress_type: Option<String> = {"default": "qcow2", "enum": ["qcow2"]},
    }

    VirtualMachineImageDownloaderStatus {
        /// State of the preparation: Progressing or Ready.
        status: Option<String> = {"enum": ["Progressing", "Ready"]},
        /// URL to download the prepared file from.
        download_url: Option<String>,
        conditions: Vec<Condition>,
    }
}
