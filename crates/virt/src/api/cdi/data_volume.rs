//! DataVolumes: claims that are filled from somewhere.

use crate::api::atom::{
    Empty, LabelSelector, ObjectMeta, PersistentVolumeClaimSpec, Time, TypedLocalObjectReference,
    TypedObjectReference, VolumeResourceRequirements,
};
use crate::api::record::record;

record! {
    /// A claim that is filled from a source.
    DataVolume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: DataVolumeSpec,
        status: Option<DataVolumeStatus>,
    }

    DataVolumeSpec {
        /// Where the data comes from; exactly one.
        source: Option<DataVolumeSource>,
        /// A DataSource that says where the data comes from.
        source_ref: Option<DataVolumeSourceRef>,
        /// The claim, as it is.
        pvc: Option<PersistentVolumeClaimSpec>,
        /// The claim, with gaps filled by the StorageProfile of its class.
        storage: Option<StorageSpec>,
        priority_class_name: Option<String>,
        /// kubevirt (a disk image) or archive (a tar).
        content_type: Option<String> = {"enum": ["kubevirt", "archive"]},
        checkpoints: Vec<DataVolumeCheckpoint>,
        final_checkpoint: Option<bool>,
        /// Allocates the whole disk beforehand.
        preallocation: Option<bool>,
    }

    StorageSpec {
        access_modes: Vec<String>,
        selector: Option<LabelSelector>,
        resources: Option<VolumeResourceRequirements>,
        volume_name: Option<String>,
        storage_class_name: Option<String>,
        volume_mode: Option<String>,
        data_source: Option<TypedLocalObjectReference>,
        data_source_ref: Option<TypedObjectReference>,
    }

    DataVolumeCheckpoint {
        previous: String,
        current: String,
    }

    DataVolumeSource {
        http: Option<DataVolumeSourceHTTP>,
        s3: Option<DataVolumeSourceS3>,
        gcs: Option<DataVolumeSourceGCS>,
        registry: Option<DataVolumeSourceRegistry>,
        pvc: Option<DataVolumeSourcePVC>,
        upload: Option<Empty>,
        blank: Option<Empty>,
        imageio: Option<DataVolumeSourceImageIO>,
        vddk: Option<DataVolumeSourceVDDK>,
        snapshot: Option<DataVolumeSourceSnapshot>,
    }

    DataVolumeSourcePVC {
        namespace: String,
        name: String,
    }

    DataVolumeSourceSnapshot {
        namespace: String,
        name: String,
    }

    DataSourceRefSourceDataSource {
        namespace: String,
        name: String,
    }

    DataVolumeSourceS3 {
        url: String,
        secret_ref: Option<String>,
        cert_config_map: Option<String>,
    }

    DataVolumeSourceGCS {
        url: String,
        secret_ref: Option<String>,
    }

    DataVolumeSourceRegistry {
        /// docker://host/name:tag
        url: Option<String>,
        image_stream: Option<String>,
        pull_method: Option<String>,
        secret_ref: Option<String>,
        cert_config_map: Option<String>,
        platform: Option<PlatformOptions>,
    }

    PlatformOptions {
        architecture: Option<String>,
    }

    DataVolumeSourceHTTP {
        url: String,
        secret_ref: Option<String>,
        cert_config_map: Option<String>,
        extra_headers: Vec<String>,
        secret_extra_headers: Vec<String>,
        /// `sha256:…` of what is downloaded.
        checksum: Option<String>,
    }

    DataVolumeSourceImageIO {
        url: String,
        disk_id: String,
        secret_ref: Option<String>,
        cert_config_map: Option<String>,
        insecure_skip_verify: Option<bool>,
    }

    DataVolumeSourceVDDK {
        url: Option<String>,
        uuid: Option<String>,
        backing_file: Option<String>,
        thumbprint: Option<String>,
        secret_ref: Option<String>,
        init_image_url as "initImageURL": Option<String>,
        extra_args: Option<String>,
    }

    DataVolumeSourceRef {
        kind: String,
        namespace: Option<String>,
        name: String,
    }

    DataVolumeStatus {
        claim_name: Option<String>,
        phase: Option<String>,
        /// How much has arrived, in percent, or N/A.
        progress: Option<String>,
        restart_count: Option<i32>,
        conditions: Vec<DataVolumeCondition>,
    }

    DataVolumeCondition {
        r#type: String,
        status: String,
        last_transition_time: Option<Time>,
        last_heartbeat_time: Option<Time>,
        reason: Option<String>,
        message: Option<String>,
    }
}
