//! Backing images: read-only data that many volumes start from.

use crd::atom::{Any, Map, ObjectMeta};
use crd::record::record;

record! {
    BackingImage {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<BackingImageSpec>,
        status: Option<BackingImageStatus>,
    }

    BackingImageSpec {
        source_type: Option<String> = {"enum": ["download", "upload", "export-from-volume", "restore", "clone"]},
        source_parameters: Map<String> = {"nullable": true},
        checksum: Option<String>,
        disk_file_spec_map: Map<DiskFileSpec>,
        min_number_of_copies: Option<i32>,
        disk_selector: Vec<String>,
        node_selector: Vec<String>,
        secret: Option<String>,
        secret_namespace: Option<String>,
        data_engine: Option<String> = {"default": "v1", "enum": ["v1", "v2"]},
    }

    DiskFileSpec {
        eviction_requested: Option<bool>,
        data_engine: Option<String>,
    }

    BackingImageStatus {
        owner_id as "ownerID": Option<String>,
        uuid: Option<String>,
        size: Option<i64>,
        virtual_size: Option<i64>,
        real_size: Option<i64>,
        checksum: Option<String>,
        disk_file_status_map: Map<DiskFileStatus> = {"nullable": true},
        disk_last_ref_at_map: Map<String> = {"nullable": true},
    }

    DiskFileStatus {
        state: Option<String>,
        progress: Option<i32>,
        message: Option<String>,
        last_state_transition_time: Option<String>,
        data_engine: Option<String>,
    }

    BackingImageDataSource {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: Option<BackingImageDataSourceSpec>,
        status: Option<Any>,
    }

    BackingImageDataSourceSpec {
        node_id as "nodeID": Option<String>,
        uuid: Option<String>,
        disk_uuid as "diskUUID": Option<String>,
        disk_path: Option<String>,
        checksum: Option<String>,
        source_type: Option<String>,
        parameters: Map<String>,
        file_transferred: Option<bool>,
    }
}
