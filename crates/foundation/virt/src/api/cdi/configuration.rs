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
        clone_strategy: Option<String>,
        claim_property_sets: Vec<ClaimPropertySet> = {"maxItems": 8},
        data_import_cron_source_format: Option<String>,
        snapshot_class: Option<String>,
    }

    StorageProfileStatus {
        storage_class: Option<String>,
        provisioner: Option<String>,
        clone_strategy: Option<String>,
        claim_property_sets: Vec<ClaimPropertySet> = {"maxItems": 8},
        data_import_cron_source_format: Option<String>,
        snapshot_class: Option<String>,
    }

    ClaimPropertySet {
        access_modes: Vec<String> = {"maxItems": 4, "x-kubernetes-validations": [{"rule": "self.all(am, am in ['ReadWriteOnce', 'ReadOnlyMany', 'ReadWriteMany', 'ReadWriteOncePod'])", "message": "Illegal AccessMode"}], "required": true},
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
        duration: Option<Duration>,
        renew_before: Option<Duration>,
    }

    CDICertConfig {
        ca: Option<CertConfig>,
        server: Option<CertConfig>,
        client: Option<CertConfig>,
    }

    CDISpec {
        image_pull_policy: Option<String> = {"enum": ["Always", "IfNotPresent", "Never"]},
        uninstall_strategy: Option<String> = {"enum": ["RemoveWorkloads", "BlockUninstallIfWorkloadsExist"]},
        infra: Option<ComponentConfig>,
        workload: Option<NodePlacement>,
        customize_components: Option<CustomizeComponents>,
        clone_strategy_override: Option<String> = {"enum": ["copy", "snapshot", "csi-clone"]},
        config: Option<CDIConfigSpec>,
        cert_config: Option<CDICertConfig>,
        priority_class: Option<String>,
    }

    ComponentConfig {
        node_selector: Map<String>,
        affinity: Option<Affinity>,
        tolerations: Vec<Toleration>,
        deployment_replicas: Option<i32>,
        api_server_replicas: Option<i32>,
        upload_proxy_replicas: Option<i32>,
    }

    CustomizeComponents {
        patches: Vec<CustomizeComponentsPatch> = {"x-kubernetes-list-type": "atomic"},
        flags: Option<Flags>,
    }

    Flags {
        api: Map<String>,
        controller: Map<String>,
        upload_proxy: Map<String>,
    }

    CustomizeComponentsPatch {
        resource_name: String = {"minLength": 1},
        resource_type: String = {"minLength": 1},
        patch: String,
        r#type: String,
    }

    CDIStatus {
        phase: Option<String>,
        conditions: Vec<OperatorCondition>,
        operator_version: Option<String>,
        target_version: Option<String>,
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
        global: Option<String> = {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"},
        storage_class: Map<String> = {"additionalProperties": {"pattern": "^(0(?:\\.\\d{1,3})?|1)$"}},
    }

    CDIConfigSpec {
        upload_proxy_url_override as "uploadProxyURLOverride": Option<String>,
        import_proxy: Option<ImportProxy>,
        scratch_space_storage_class: Option<String>,
        pod_resource_requirements: Option<ComputeResources>,
        feature_gates: Vec<String>,
        filesystem_overhead: Option<FilesystemOverhead>,
        preallocation: Option<bool>,
        insecure_registries: Vec<String>,
        data_volume_ttl_seconds as "dataVolumeTTLSeconds": Option<i32>,
        tls_security_profile: Option<TLSSecurityProfile>,
        image_pull_secrets: Vec<LocalObjectReference>,
        log_verbosity: Option<i32>,
    }

    CDIConfigStatus {
        upload_proxy_url as "uploadProxyURL": Option<String>,
        upload_proxy_ca as "uploadProxyCA": Option<String>,
        import_proxy: Option<ImportProxy>,
        scratch_space_storage_class: Option<String>,
        default_pod_resource_requirements: Option<ComputeResources>,
        filesystem_overhead: Option<FilesystemOverhead>,
        preallocation: Option<bool>,
        image_pull_secrets: Vec<LocalObjectReference>,
    }

    ImportProxy {
        http_proxy as "HTTPProxy": Option<String>,
        https_proxy as "HTTPSProxy": Option<String>,
        no_proxy: Option<String>,
        trusted_ca_proxy as "trustedCAProxy": Option<String>,
    }

    TLSSecurityProfile {
        r#type: Option<String> = {"enum": ["Old", "Intermediate", "Modern", "Custom"]},
        old: Option<Empty> = {"nullable": true},
        intermediate: Option<Empty> = {"nullable": true},
        modern: Option<Empty> = {"nullable": true},
        custom: Option<CustomTLSProfile> = {"nullable": true},
    }

    CustomTLSProfile {
        ciphers: Vec<String> = {"required": true},
        min_tls_version as "minTLSVersion": String = {"enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]},
    }

    NodePlacement {
        node_selector: Map<String>,
        affinity: Option<Affinity>,
        tolerations: Vec<Toleration>,
    }
}
