//! Backing images: read-only data that many volumes start from.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

record! {
    BackingImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<BackingImageSpec>,
        /// What is observed.
        status: Option<BackingImageStatus>,
    }

    BackingImageSpec {
        /// Where the data comes from: download, upload, export-from-volume, restore or clone.
        source_type: Option<String> = {"enum": ["download", "upload", "export-from-volume", "restore", "clone"]},
        /// Parameters of the source, for example url.
        source_parameters: Map<String> = {"nullable": true},
        /// Checksum of the data.
        checksum: Option<String>,
        /// Disks that are to hold a copy, by UUID.
        disk_file_spec_map: Map<DiskFileSpec>,
        /// Smallest number of copies.
        min_number_of_copies: Option<i32>,
        /// Tags that disks with a copy must have.
        disk_selector: Vec<String>,
        /// Tags that nodes with a copy must have.
        node_selector: Vec<String>,
        /// Secret with the key of an encrypted image.
        secret: Option<String>,
        /// Namespace of the secret.
        secret_namespace: Option<String>,
        /// Data engine: v1.
        data_engine: Option<String> = {"default": "v1", "enum": ["v1", "v2"]},
    }

    DiskFileSpec {
        /// The data is to be moved elsewhere.
        eviction_requested: Option<bool>,
        /// Data engine: v1.
        data_engine: Option<String>,
    }

    BackingImageStatus {
        /// Node that looks after the object.
        owner_id as "ownerID": Option<String>,
        /// Unique identifier.
        uuid: Option<String>,
        /// Size in bytes.
        size: Option<i64>,
        /// Size in bytes that a machine sees.
        virtual_size: Option<i64>,
        /// Bytes on the disk.
        real_size: Option<i64>,
        /// Checksum of the data.
        checksum: Option<String>,
        /// Copies, by UUID of their disk.
        disk_file_status_map: Map<DiskFileStatus> = {"nullable": true},
        /// When a copy was last used, by UUID of its disk.
        disk_last_ref_at_map: Map<String> = {"nullable": true},
    }

    DiskFileStatus {
        /// State of the object.
        state: Option<String>,
        /// Progress in percent.
        progress: Option<i32>,
        /// Explanation.
        message: Option<String>,
        /// When the state last changed.
        last_state_transition_time: Option<String>,
        /// Data engine: v1.
        data_engine: Option<String>,
    }

    BackingImageDataSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// What is wanted.
        spec: Option<BackingImageDataSourceSpec>,
        /// What is observed.
        status: Option<Any>,
    }

    BackingImageDataSourceSpec {
        /// Node that the object belongs to.
        node_id as "nodeID": Option<String>,
        /// Unique identifier.
        uuid: Option<String>,
        /// UUID of the disk.
        disk_uuid as "diskUUID": Option<String>,
        /// Path of the disk on its node.
        disk_path: Option<String>,
        /// Checksum of the data.
        checksum: Option<String>,
        /// Where the data comes from: download, upload, export-from-volume, restore or clone.
        source_type: Option<String>,
        /// Parameters.
        parameters: Map<String>,
        /// The file is complete.
        file_transferred: Option<bool>,
    }
}
