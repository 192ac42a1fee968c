//! DataVolumes: claims that are filled from somewhere.

use crate::api::atom::{
    Empty, LabelSelector, ObjectMeta, PersistentVolumeClaimSpec, Time, TypedLocalObjectReference,
    TypedObjectReference, VolumeResourceRequirements,
};
use crate::api::record::record;

record! {
    /// PersistentVolumeClaim that is filled with data from a source.
    DataVolume {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: DataVolumeSpec,
        status: Option<DataVolumeStatus>,
    }

    DataVolumeSpec {
        /// Source of the data; exactly one field must be set.
        source: Option<DataVolumeSource>,
        /// Reference to a DataSource that specifies the source of the data.
        source_ref: Option<DataVolumeSourceRef>,
        /// Specification of the PersistentVolumeClaim, used without changes.
        pvc: Option<PersistentVolumeClaimSpec>,
        /// Specification of the PersistentVolumeClaim; unset fields are taken from the
        /// StorageProfile.
        storage: Option<StorageSpec>,
        /// PriorityClass of the pods that transfer the data.
        priority_class_name: Option<String>,
        /// Content of the source: kubevirt for a disk image, archive for a tar archive.
        content_type: Option<String> = {"enum": ["kubevirt", "archive"]},
        /// Checkpoints of a multi-stage import.
        checkpoints: Vec<DataVolumeCheckpoint>,
        /// Whether the last of the checkpoints completes the import.
        final_checkpoint: Option<bool>,
        /// Whether all space of the disk image is allocated in advance.
        preallocation: Option<bool>,
    }

    StorageSpec {
        /// Access modes of the volume; by default those of the StorageProfile.
        access_modes: Vec<String>,
        /// Labels of the PersistentVolumes that may be bound.
        selector: Option<LabelSelector>,
        /// Requested size of the volume.
        resources: Option<VolumeResourceRequirements>,
        /// Name of the PersistentVolume to bind.
        volume_name: Option<String>,
        /// Name of the StorageClass; by default the default class.
        storage_class_name: Option<String>,
        /// Volume mode: Block or Filesystem; by default that of the StorageProfile.
        volume_mode: Option<String>,
        /// Object that the claim is created from.
        data_source: Option<TypedLocalObjectReference>,
        /// Object that the claim is created from, possibly in another namespace.
        data_source_ref: Option<TypedObjectReference>,
    }

    DataVolumeCheckpoint {
        /// Identifier of the previous checkpoint.
        previous: String,
        /// Identifier of this checkpoint.
        current: String,
    }

    DataVolumeSource {
        /// Disk image on an HTTP server.
        http: Option<DataVolumeSourceHTTP>,
        /// Disk image in an S3 bucket.
        s3: Option<DataVolumeSourceS3>,
        /// Disk image in Google Cloud Storage.
        gcs: Option<DataVolumeSourceGCS>,
        /// Disk image in a container registry.
        registry: Option<DataVolumeSourceRegistry>,
        /// PersistentVolumeClaim that is cloned.
        pvc: Option<DataVolumeSourcePVC>,
        /// Data that a client uploads.
        upload: Option<Empty>,
        /// Blank disk without data.
        blank: Option<Empty>,
        /// Disk of oVirt, read from its imageio service.
        imageio: Option<DataVolumeSourceImageIO>,
        /// Disk of VMware, read through VDDK.
        vddk: Option<DataVolumeSourceVDDK>,
        /// VolumeSnapshot that is restored.
        snapshot: Option<DataVolumeSourceSnapshot>,
    }

    DataVolumeSourcePVC {
        /// Namespace of the claim.
        namespace: String,
        /// Name of the claim.
        name: String,
    }

    DataVolumeSourceSnapshot {
        /// Namespace of the snapshot.
        namespace: String,
        /// Name of the snapshot.
        name: String,
    }

    DataSourceRefSourceDataSource {
        /// Namespace of the DataSource.
        namespace: String,
        /// Name of the DataSource.
        name: String,
    }

    DataVolumeSourceS3 {
        /// URL of the object.
        url: String,
        /// Secret with accessKeyId and secretKey.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
    }

    DataVolumeSourceGCS {
        /// URL of the object.
        url: String,
        /// Secret with the credentials.
        secret_ref: Option<String>,
    }

    DataVolumeSourceRegistry {
        /// URL of the container image, docker://HOST/NAME:TAG.
        url: Option<String>,
        /// OpenShift image stream with the disk image; not supported.
        image_stream: Option<String>,
        /// Pull method: pod or node. With both, the node pulls the image.
        pull_method: Option<String>,
        /// Secret with accessKeyId and secretKey.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
        /// Platform of the image.
        platform: Option<PlatformOptions>,
    }

    PlatformOptions {
        /// Architecture of the image, for example amd64.
        architecture: Option<String>,
    }

    DataVolumeSourceHTTP {
        /// URL of the image, http or https.
        url: String,
        /// Secret with accessKeyId and secretKey, for basic authentication.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
        /// Additional headers of the HTTP request.
        extra_headers: Vec<String>,
        /// Secrets with additional headers of the HTTP request.
        secret_extra_headers: Vec<String>,
        /// Checksum of the downloaded file, for example `sha256:…`.
        checksum: Option<String>,
    }

    DataVolumeSourceImageIO {
        /// URL of the oVirt engine.
        url: String,
        /// ID of the disk in oVirt.
        disk_id: String,
        /// Secret with the credentials.
        secret_ref: Option<String>,
        /// ConfigMap with CA certificates.
        cert_config_map: Option<String>,
        /// Whether the certificate of the server is not verified.
        insecure_skip_verify: Option<bool>,
    }

    DataVolumeSourceVDDK {
        /// URL of vCenter or ESXi.
        url: Option<String>,
        /// UUID of the virtual machine.
        uuid: Option<String>,
        /// Path of the disk in its datastore.
        backing_file: Option<String>,
        /// Thumbprint of the certificate of the server.
        thumbprint: Option<String>,
        /// Secret with the credentials.
        secret_ref: Option<String>,
        /// Image with the VDDK library.
        init_image_url as "initImageURL": Option<String>,
        /// ConfigMap with additional arguments of VDDK.
        extra_args: Option<String>,
    }

    DataVolumeSourceRef {
        /// Kind of the reference; only DataSource is supported.
        kind: String,
        /// Namespace of the DataSource; default is that of the DataVolume.
        namespace: Option<String>,
        /// Name of the DataSource.
        name: String,
    }

    DataVolumeStatus {
        /// Name of the PersistentVolumeClaim.
        claim_name: Option<String>,
        /// Phase of the import, for example Pending, WaitForFirstConsumer, ImportInProgress,
        /// CloneInProgress, UploadReady, Succeeded or Failed.
        phase: Option<String>,
        /// Progress of the transfer in percent, or N/A.
        progress: Option<String>,
        /// Number of times that the transfer was restarted.
        restart_count: Option<i32>,
        conditions: Vec<DataVolumeCondition>,
    }

    DataVolumeCondition {
        r#type: String,
        status: String,
        last_transition_time: Option<Time>,
        /// When the condition was last updated.
        last_heartbeat_time: Option<Time>,
        reason: Option<String>,
        message: Option<String>,
    }
}
