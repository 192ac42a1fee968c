//! Backing images: read-only data that many volumes start from.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

record! {
    /// Image that replicated volumes begin as.
    BackingImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired source and copies of the backing image.
        spec: Option<BackingImageSpec>,
        /// Observed size and copies of the backing image.
        status: Option<BackingImageStatus>,
    }

    BackingImageSpec {
        /// Source of the data: download, upload, export-from-volume, restore or clone.
        source_type: Option<String> = {"enum": ["download", "upload", "export-from-volume", "restore", "clone"]},
        /// Parameters of the source, for example url.
        source_parameters: Map<String> = {"nullable": true},
        /// Expected SHA-512 checksum of the data.
        checksum: Option<String>,
        /// Disks that hold a copy of the backing image, by UUID of the disk.
        disk_file_spec_map: Map<DiskFileSpec>,
        /// Minimum number of copies.
        min_number_of_copies: Option<i32>,
        /// Tags that disks with a copy must have.
        disk_selector: Vec<String>,
        /// Tags that nodes with a copy must have.
        node_selector: Vec<String>,
        /// Name of the Secret with the key of an encrypted backing image.
        secret: Option<String>,
        /// Namespace of the secret.
        secret_namespace: Option<String>,
        /// Data engine; only v1 is supported.
        data_engine: Option<String> = {"default": "v1", "enum": ["v1", "v2"]},
    }

    DiskFileSpec {
        /// Whether the copy is to be moved to another disk.
        eviction_requested: Option<bool>,
        /// Data engine; only v1 is supported.
        data_engine: Option<String>,
    }

    BackingImageStatus {
        /// Node whose controller manages the object.
        owner_id as "ownerID": Option<String>,
        /// UUID of the backing image.
        uuid: Option<String>,
        /// Size of the image file in bytes.
        size: Option<i64>,
        /// Size of the disk that a machine sees, in bytes.
        virtual_size: Option<i64>,
        /// Space that the image file uses on the disk, in bytes.
        real_size: Option<i64>,
        /// SHA-512 checksum of the data.
        checksum: Option<String>,
        /// State of the copies, by UUID of their disk.
        disk_file_status_map: Map<DiskFileStatus> = {"nullable": true},
        /// When a copy was last used, by UUID of its disk.
        disk_last_ref_at_map: Map<String> = {"nullable": true},
    }

    DiskFileStatus {
        /// State of the copy, for example in-progress, ready or failed.
        state: Option<String>,
        /// Progress of the copy in percent.
        progress: Option<i32>,
        /// Details about the state of the copy, for example an error.
        message: Option<String>,
        /// When the state last changed.
        last_state_transition_time: Option<String>,
        /// Data engine; only v1 is supported.
        data_engine: Option<String>,
    }

    /// Source of a backing image.
    BackingImageDataSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired source of the data of a backing image.
        spec: Option<BackingImageDataSourceSpec>,
        /// Observed progress of the data source.
        status: Option<Any>,
    }

    BackingImageDataSourceSpec {
        /// Node that prepares the first copy.
        node_id as "nodeID": Option<String>,
        /// UUID of the backing image.
        uuid: Option<String>,
        /// UUID of the disk of the first copy.
        disk_uuid as "diskUUID": Option<String>,
        /// Path of the disk on its node.
        disk_path: Option<String>,
        /// Expected SHA-512 checksum of the data.
        checksum: Option<String>,
        /// Source of the data: download, upload, export-from-volume, restore or clone.
        source_type: Option<String>,
        /// Parameters of the source, for example url.
        parameters: Map<String>,
        /// Whether the first copy is complete and was taken over by the BackingImage.
        file_transferred: Option<bool>,
    }
}
