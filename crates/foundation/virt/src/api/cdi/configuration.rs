//! Configuration of imports: CDI, CDIConfig, StorageProfile.

use crate::api::atom::{
    Affinity, ComputeResources, Duration, Empty, LocalObjectReference, Map, ObjectMeta,
    OperatorCondition, Toleration,
};
use crate::api::record::record;

record! {
    /// Access modes and volume modes of a storage class.
    StorageProfile {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: StorageProfileSpec,
        status: Option<StorageProfileStatus>,
    }

    StorageProfileSpec {
        /// Clone strategy for volumes of the storage class: copy, snapshot or csi-clone.
        clone_strategy: Option<String>,
        /// Access and volume modes for claims that do not set them, in order of preference.
        claim_property_sets: Vec<ClaimPropertySet> = {"maxItems": 8},
        /// Format of the data that a DataImportCron keeps: pvc or snapshot.
        data_import_cron_source_format: Option<String>,
        /// VolumeSnapshotClass of the snapshot clone strategy.
        snapshot_class: Option<String>,
    }

    StorageProfileStatus {
        /// StorageClass that the profile describes.
        storage_class: Option<String>,
        /// Provisioner of the storage class.
        provisioner: Option<String>,
        /// Clone strategy in use: copy, snapshot or csi-clone.
        clone_strategy: Option<String>,
        /// Access and volume modes in use, in order of preference.
        claim_property_sets: Vec<ClaimPropertySet> = {"maxItems": 8},
        /// Format in use for the data of a DataImportCron: pvc or snapshot.
        data_import_cron_source_format: Option<String>,
        /// VolumeSnapshotClass that is in use.
        snapshot_class: Option<String>,
    }

    ClaimPropertySet {
        /// Access modes that are supported with the volume mode.
        access_modes: Vec<String> = {"maxItems": 4, "x-kubernetes-validations": [{"rule": "self.all(am, am in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])", "message": "Illegal AccessMode"}], "required": true},
        /// Volume mode: Block or Filesystem.
        volume_mode: String = {"enum": ["Block", "Filesystem"]},
    }

    /// Configuration of the import of disks.
    CDI {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: CDISpec,
        status: Option<CDIStatus>,
    }

    CertConfig {
        /// Validity period of a certificate.
        duration: Option<Duration>,
        /// Time before its expiry at which a certificate is renewed.
        renew_before: Option<Duration>,
    }

    CDICertConfig {
        /// Lifetime of certificates of certificate authorities.
        ca: Option<CertConfig>,
        /// Lifetime of server certificates.
        server: Option<CertConfig>,
        /// Lifetime of client certificates.
        client: Option<CertConfig>,
    }

    CDISpec {
        /// Pull policy for the images of CDI's components.
        image_pull_policy: Option<String> = {"enum": ["Always", "IfNotPresent", "Never"]},
        /// Whether CDI can be removed while DataVolumes exist: RemoveWorkloads or
        /// BlockUninstallIfWorkloadsExist.
        uninstall_strategy: Option<String> = {"enum": ["RemoveWorkloads", "BlockUninstallIfWorkloadsExist"]},
        /// Placement and replicas of CDI's components.
        infra: Option<ComponentConfig>,
        /// Placement of the pods that transfer data.
        workload: Option<NodePlacement>,
        /// Patches and flags of CDI's components.
        customize_components: Option<CustomizeComponents>,
        /// Clone strategy that overrides those of the StorageProfiles: copy, snapshot or
        /// csi-clone.
        clone_strategy_override: Option<String> = {"enum": ["copy", "snapshot", "csi-clone"]},
        /// Desired configuration, which is copied to the CDIConfig.
        config: Option<CDIConfigSpec>,
        /// Lifetimes of the certificates of CDI.
        cert_config: Option<CDICertConfig>,
        /// PriorityClass of CDI's components.
        priority_class: Option<String>,
    }

    ComponentConfig {
        /// Labels that nodes must have.
        node_selector: Map<String>,
        /// Affinity of the pods.
        affinity: Option<Affinity>,
        /// Taints that the pods tolerate.
        tolerations: Vec<Toleration>,
        /// Number of replicas of the controller.
        deployment_replicas: Option<i32>,
        /// Number of replicas of the API server.
        api_server_replicas: Option<i32>,
        /// Number of replicas of the upload proxy.
        upload_proxy_replicas: Option<i32>,
    }

    CustomizeComponents {
        /// Patches of the objects of the components.
        patches: Vec<CustomizeComponentsPatch> = {"x-kubernetes-list-type": "atomic"},
        /// Command line flags of the components.
        flags: Option<Flags>,
    }

    Flags {
        /// Flags of the API server.
        api: Map<String>,
        /// Flags of the controller.
        controller: Map<String>,
        /// Flags of the upload proxy.
        upload_proxy: Map<String>,
    }

    CustomizeComponentsPatch {
        /// Name of the object to patch.
        resource_name: String = {"minLength": 1},
        /// Kind of the object to patch.
        resource_type: String = {"minLength": 1},
        /// The patch, as JSON text.
        patch: String,
        r#type: String,
    }

    CDIStatus {
        /// Phase of the installation: Deploying, Deployed, Deleting, Deleted or Error.
        phase: Option<String>,
        conditions: Vec<OperatorCondition>,
        /// Version of the operator.
        operator_version: Option<String>,
        /// Version that is being installed.
        target_version: Option<String>,
        /// Version that is installed.
        observed_version: Option<String>,
    }

    /// Effective configuration of the import of disks.
    CDIConfig {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: CDIConfigSpec,
        status: Option<CDIConfigStatus>,
    }

    FilesystemOverhead {
        /// Share of a volume that is reserved for file system overhead, from 0 to 1.
        global: Option<String> = {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"},
        /// Share that is reserved for file system overhead by StorageClass, from 0 to 1.
        storage_class: Map<String> = {"additionalProperties": {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"}},
    }

    CDIConfigSpec {
        /// URL of the upload proxy, which replaces the detected one.
        upload_proxy_url_override as "uploadProxyURLOverride": Option<String>,
        /// HTTP proxy of imports.
        import_proxy: Option<ImportProxy>,
        /// StorageClass for scratch space.
        scratch_space_storage_class: Option<String>,
        /// Resource requirements of the pods that transfer data.
        pod_resource_requirements: Option<ComputeResources>,
        /// Names of the enabled feature gates.
        feature_gates: Vec<String>,
        /// Space of volumes that is reserved for file system overhead.
        filesystem_overhead: Option<FilesystemOverhead>,
        /// Whether volumes are preallocated unless they specify it themselves.
        preallocation: Option<bool>,
        /// Registries that are accessed without verification of TLS certificates.
        insecure_registries: Vec<String>,
        /// Seconds after which a completed DataVolume is deleted.
        data_volume_ttl_seconds as "dataVolumeTTLSeconds": Option<i32>,
        /// TLS versions and ciphers of the servers of CDI.
        tls_security_profile: Option<TLSSecurityProfile>,
        /// Secrets with credentials for the registries of CDI's images.
        image_pull_secrets: Vec<LocalObjectReference>,
        /// Log level of CDI's components, from 1.
        log_verbosity: Option<i32>,
    }

    CDIConfigStatus {
        /// URL of the upload proxy.
        upload_proxy_url as "uploadProxyURL": Option<String>,
        /// Certificate of the authority that signed the upload proxy's certificate, PEM.
        upload_proxy_ca as "uploadProxyCA": Option<String>,
        /// HTTP proxy of imports in use.
        import_proxy: Option<ImportProxy>,
        /// StorageClass for scratch space in use.
        scratch_space_storage_class: Option<String>,
        /// Resource requirements of the pods that transfer data, in use.
        default_pod_resource_requirements: Option<ComputeResources>,
        /// Space of volumes that is reserved for file system overhead, in use.
        filesystem_overhead: Option<FilesystemOverhead>,
        /// Whether volumes are preallocated unless they specify it themselves.
        preallocation: Option<bool>,
        /// Secrets with credentials for the registries of CDI's images.
        image_pull_secrets: Vec<LocalObjectReference>,
    }

    ImportProxy {
        /// URL of the proxy for HTTP.
        http_proxy as "HTTPProxy": Option<String>,
        /// URL of the proxy for HTTPS.
        https_proxy as "HTTPSProxy": Option<String>,
        /// Hosts that are accessed without a proxy, separated by commas.
        no_proxy: Option<String>,
        /// ConfigMap with the certificate authority of the proxy.
        trusted_ca_proxy as "trustedCAProxy": Option<String>,
    }

    TLSSecurityProfile {
        r#type: Option<String> = {"enum": ["Old", "Intermediate", "Modern", "Custom"]},
        /// TLS profile for legacy clients.
        old: Option<Empty> = {"nullable": true},
        /// TLS profile for general use.
        intermediate: Option<Empty> = {"nullable": true},
        /// TLS profile for clients that support TLS 1.3.
        modern: Option<Empty> = {"nullable": true},
        /// Custom TLS profile with explicit ciphers and version.
        custom: Option<CustomTLSProfile> = {"nullable": true},
    }

    CustomTLSProfile {
        /// Names of the accepted ciphers, as used by OpenSSL.
        ciphers: Vec<String> = {"required": true},
        /// Minimum TLS version that is accepted.
        min_tls_version as "minTLSVersion": String = {"enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]},
    }

    NodePlacement {
        /// Labels that nodes must have.
        node_selector: Map<String>,
        /// Affinity of the pods.
        affinity: Option<Affinity>,
        /// Taints that the pods tolerate.
        tolerations: Vec<Toleration>,
    }
}
