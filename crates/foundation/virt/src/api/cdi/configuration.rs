//! Configuration of imports: CDI, CDIConfig, StorageProfile.

use crate::api::atom::{
    Affinity, ComputeResources, Duration, Empty, LocalObjectReference, Map, ObjectMeta,
    OperatorCondition, Toleration,
};
use crate::api::record::record;

record! {
    StorageProfile {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: StorageProfileSpec,
        status: Option<StorageProfileStatus>,
    }

    StorageProfileSpec {
        /// How volumes of the class are cloned: copy, snapshot or csi-clone.
        clone_strategy: Option<String>,
        /// Access and volume modes of claims that do not say, best first.
        claim_property_sets: Vec<ClaimPropertySet> = {"maxItems": 8},
        /// What imports by schedule are kept as: pvc or snapshot.
        data_import_cron_source_format: Option<String>,
        /// VolumeSnapshotClass for clones by snapshot.
        snapshot_class: Option<String>,
    }

    StorageProfileStatus {
        /// Storage class that the profile is about.
        storage_class: Option<String>,
        /// Provisioner of the storage class.
        provisioner: Option<String>,
        /// How volumes of the class are cloned.
        clone_strategy: Option<String>,
        /// Access and volume modes in use, best first.
        claim_property_sets: Vec<ClaimPropertySet> = {"maxItems": 8},
        /// What imports by schedule are kept as.
        data_import_cron_source_format: Option<String>,
        /// VolumeSnapshotClass in use.
        snapshot_class: Option<String>,
    }

    ClaimPropertySet {
        /// Access modes that go with the volume mode.
        access_modes: Vec<String> = {"maxItems": 4, "x-kubernetes-validations": [{"rule": "self.all(am, am in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])", "message": "Illegal AccessMode"}], "required": true},
        /// Volume mode: Block or Filesystem.
        volume_mode: String = {"enum": ["Block", "Filesystem"]},
    }

    CDI {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: CDISpec,
        status: Option<CDIStatus>,
    }

    CertConfig {
        /// How long a certificate is valid.
        duration: Option<Duration>,
        /// How long before its end a certificate is renewed.
        renew_before: Option<Duration>,
    }

    CDICertConfig {
        /// Certificates of the authorities.
        ca: Option<CertConfig>,
        /// Certificates of servers.
        server: Option<CertConfig>,
        /// Certificates of clients.
        client: Option<CertConfig>,
    }

    CDISpec {
        /// When images of CDI's components are pulled.
        image_pull_policy: Option<String> = {"enum": ["Always", "IfNotPresent", "Never"]},
        /// Whether CDI may be removed while there are data volumes.
        uninstall_strategy: Option<String> = {"enum": ["RemoveWorkloads", "BlockUninstallIfWorkloadsExist"]},
        /// Where CDI's components run.
        infra: Option<ComponentConfig>,
        /// Where pods that move data run.
        workload: Option<NodePlacement>,
        /// Changes of CDI's components.
        customize_components: Option<CustomizeComponents>,
        /// How volumes are cloned, whatever storage profiles say.
        clone_strategy_override: Option<String> = {"enum": ["copy", "snapshot", "csi-clone"]},
        /// Configuration, which is copied to the CDIConfig.
        config: Option<CDIConfigSpec>,
        /// Lifetimes of certificates.
        cert_config: Option<CDICertConfig>,
        /// Priority class of CDI's components.
        priority_class: Option<String>,
    }

    ComponentConfig {
        /// Labels that nodes must have.
        node_selector: Map<String>,
        /// Affinity of the pods.
        affinity: Option<Affinity>,
        /// Taints of nodes that pods tolerate.
        tolerations: Vec<Toleration>,
        /// How many replicas the controller has.
        deployment_replicas: Option<i32>,
        /// How many replicas the API server has.
        api_server_replicas: Option<i32>,
        /// How many replicas the upload proxy has.
        upload_proxy_replicas: Option<i32>,
    }

    CustomizeComponents {
        /// Patches of the components' objects.
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
        /// State of the installation.
        phase: Option<String>,
        conditions: Vec<OperatorCondition>,
        /// Version of the operator.
        operator_version: Option<String>,
        /// Version that is being installed.
        target_version: Option<String>,
        /// Version that is installed.
        observed_version: Option<String>,
    }

    CDIConfig {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: CDIConfigSpec,
        status: Option<CDIConfigStatus>,
    }

    FilesystemOverhead {
        /// Share of a volume that its file system needs, 0 to 1.
        global: Option<String> = {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"},
        /// The same by storage class.
        storage_class: Map<String> = {"additionalProperties": {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"}},
    }

    CDIConfigSpec {
        /// URL of the upload proxy, in place of the one found.
        upload_proxy_url_override as "uploadProxyURLOverride": Option<String>,
        /// Proxy that imports go through.
        import_proxy: Option<ImportProxy>,
        /// Storage class of scratch space.
        scratch_space_storage_class: Option<String>,
        /// Resources of pods that move data.
        pod_resource_requirements: Option<ComputeResources>,
        /// Features that are switched on.
        feature_gates: Vec<String>,
        /// Space that file systems need.
        filesystem_overhead: Option<FilesystemOverhead>,
        /// Whether space is allocated when a volume is filled, if it does not say.
        preallocation: Option<bool>,
        /// Registries whose certificates are not checked.
        insecure_registries: Vec<String>,
        /// Seconds after which completed data volumes are deleted.
        data_volume_ttl_seconds as "dataVolumeTTLSeconds": Option<i32>,
        /// TLS versions and ciphers of CDI's servers.
        tls_security_profile: Option<TLSSecurityProfile>,
        /// Secrets for the registries of CDI's images.
        image_pull_secrets: Vec<LocalObjectReference>,
        /// How much is logged, from 1.
        log_verbosity: Option<i32>,
    }

    CDIConfigStatus {
        /// URL of the upload proxy.
        upload_proxy_url as "uploadProxyURL": Option<String>,
        /// Certificate authority of the upload proxy, PEM.
        upload_proxy_ca as "uploadProxyCA": Option<String>,
        /// Proxy that imports go through.
        import_proxy: Option<ImportProxy>,
        /// Storage class of scratch space.
        scratch_space_storage_class: Option<String>,
        /// Resources of pods that move data.
        default_pod_resource_requirements: Option<ComputeResources>,
        /// Space that file systems need.
        filesystem_overhead: Option<FilesystemOverhead>,
        /// Whether space is allocated when a volume is filled.
        preallocation: Option<bool>,
        /// Secrets for the registries of CDI's images.
        image_pull_secrets: Vec<LocalObjectReference>,
    }

    ImportProxy {
        /// URL of the proxy for HTTP.
        http_proxy as "HTTPProxy": Option<String>,
        /// URL of the proxy for HTTPS.
        https_proxy as "HTTPSProxy": Option<String>,
        /// Hosts that are reached without a proxy, separated by commas.
        no_proxy: Option<String>,
        /// ConfigMap with the certificate authority of the proxy.
        trusted_ca_proxy as "trustedCAProxy": Option<String>,
    }

    TLSSecurityProfile {
        r#type: Option<String> = {"enum": ["Old", "Intermediate", "Modern", "Custom"]},
        /// Profile for very old clients.
        old: Option<Empty> = {"nullable": true},
        /// Profile for most clients.
        intermediate: Option<Empty> = {"nullable": true},
        /// Profile for clients that know TLS 1.3.
        modern: Option<Empty> = {"nullable": true},
        /// A profile of its own.
        custom: Option<CustomTLSProfile> = {"nullable": true},
    }

    CustomTLSProfile {
        /// Ciphers, in the words of OpenSSL.
        ciphers: Vec<String> = {"required": true},
        /// Oldest version of TLS.
        min_tls_version as "minTLSVersion": String = {"enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]},
    }

    NodePlacement {
        /// Labels that nodes must have.
        node_selector: Map<String>,
        /// Affinity of the pods.
        affinity: Option<Affinity>,
        /// Taints of nodes that pods tolerate.
        tolerations: Vec<Toleration>,
    }
}
