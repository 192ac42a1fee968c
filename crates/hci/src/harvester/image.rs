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
        description: Option<String>,
        display_name: String,
        source_type: String = {"enum": ["download", "upload", "export-from-volume", "restore", "clone"]},
        pvc_name: Option<String>,
        pvc_namespace: Option<String>,
        url: Option<String>,
        /// SHA-512 of the file that is imported.
        checksum: Option<String>,
        storage_class_parameters: Map<String>,
        /// How often an import that failed is tried again.
        retry: Option<i32> = {"default": 3, "minimum": 0, "maximum": 10},
        security_parameters: Option<SecurityParameters>,
        target_storage_class_name: Option<String>,
    }

    /// How an encrypted image is made of a plain one, or the other way round.
    SecurityParameters {
        crypto_operation: String = {"enum": ["encrypt", "decrypt"]},
        source_image_name: String,
        source_image_namespace: String,
    }

    VirtualMachineImageStatus {
        applied_url: Option<String>,
        progress: Option<i32>,
        size: Option<i64>,
        virtual_size: Option<i64>,
        storage_class_name: Option<String>,
        target_storage_class_name: Option<String>,
        failed: Option<i32> = {"default": 0, "minimum": 0},
        last_failed_time: Option<String>,
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
        image_name: String,
        compress_type: Option<String> = {"default": "qcow2", "enum": ["qcow2"]},
    }

    VirtualMachineImageDownloaderStatus {
        status: Option<String> = {"enum": ["Progressing", "Ready"]},
        download_url: Option<String>,
        conditions: Vec<Condition>,
    }
}
