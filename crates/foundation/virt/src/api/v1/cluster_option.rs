//! The configuration in the KubeVirt object: defaults and limits of all guests.

use super::cluster_device::{
    KSMConfiguration, LiveUpdateConfiguration, MediatedDevicesConfiguration, NetworkConfiguration,
    PermittedHostDevices, PersistentReservationConfiguration, ResourceRequirementsWithoutClaims,
};
use super::migration::MigrationConfiguration;
use crate::api::atom::{Empty, LabelSelector, Map, Quantity};
use crate::api::record::record;

record! {
    TokenBucketRateLimiter {
        qps: f64,
        burst: i64,
    }

    RateLimiter {
        token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
    }

    RESTClientConfiguration {
        rate_limiter: Option<RateLimiter>,
    }

    ReloadableComponentConfiguration {
        rest_client: Option<RESTClientConfiguration>,
    }

    KubeVirtConfiguration {
        cpu_model: Option<String>,
        cpu_request: Option<Quantity>,
        developer_configuration: Option<DeveloperConfiguration>,
        emulated_machines: Vec<String>,
        image_pull_policy: Option<String>,
        migrations: Option<MigrationConfiguration>,
        machine_type: Option<String>,
        network: Option<NetworkConfiguration>,
        ovmf_path: Option<String>,
        selinux_launcher_type: Option<String>,
        default_runtime_class: Option<String>,
        smbios: Option<SMBiosConfiguration>,
        architecture_configuration: Option<ArchConfiguration>,
        eviction_strategy: Option<String>,
        additional_guest_memory_overhead_ratio: Option<String>,
        support_container_resources: Vec<SupportContainerResources> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        supported_guest_agent_versions: Vec<String>,
        mem_balloon_stats_period: Option<u32>,
        permitted_host_devices: Option<PermittedHostDevices>,
        mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
        min_cpu_model as "minCPUModel": Option<String>,
        obsolete_cpu_models as "obsoleteCPUModels": Map<bool>,
        virtual_machine_instances_per_node: Option<i64>,
        api_configuration: Option<ReloadableComponentConfiguration>,
        webhook_configuration: Option<ReloadableComponentConfiguration>,
        controller_configuration: Option<ReloadableComponentConfiguration>,
        handler_configuration: Option<ReloadableComponentConfiguration>,
        tls_configuration: Option<TLSConfiguration>,
        seccomp_configuration: Option<SeccompConfiguration>,
        vm_state_storage_class: Option<String>,
        virtual_machine_options: Option<VirtualMachineOptions>,
        ksm_configuration: Option<KSMConfiguration>,
        auto_cpu_limit_namespace_label_selector as "autoCPULimitNamespaceLabelSelector": Option<LabelSelector>,
        live_update_configuration: Option<LiveUpdateConfiguration>,
        vm_rollout_strategy: Option<String> = {"nullable": true, "enum": ["Stage", "LiveUpdate"]},
        common_instancetypes_deployment: Option<CommonInstancetypesDeployment> = {"nullable": true},
        virt_template_deployment: Option<VirtTemplateDeployment> = {"nullable": true},
        instancetype: Option<InstancetypeConfiguration> = {"nullable": true},
        hypervisors: Vec<HypervisorConfiguration> = {"x-kubernetes-list-type": "atomic", "maxItems": 1},
        changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors> = {"nullable": true},
        persistent_reservation_configuration: Option<PersistentReservationConfiguration> = {"nullable": true},
        confidential_compute: Option<ConfidentialComputeConfiguration> = {"nullable": true},
        role_aggregation_strategy: Option<String> = {"enum": ["AggregateToDefault", "Manual"]},
    }

    TDXAttestationConfiguration {
        enforced: Option<bool> = {"default": false},
        qgs_socket_path: Option<String> = {"default": "/var/run/tdx-qgs/qgs.socket"},
    }

    TDXConfiguration {
        attestation: Option<TDXAttestationConfiguration>,
    }

    ConfidentialComputeConfiguration {
        tdx: Option<TDXConfiguration> = {"nullable": true},
    }

    HypervisorConfiguration {
        name: Option<String> = {"enum": ["kvm", "hyperv-direct"]},
    }

    ChangedBlockTrackingSelectors {
        namespace_label_selector: Option<LabelSelector>,
        virtual_machine_label_selector: Option<LabelSelector>,
    }

    InstancetypeConfiguration {
        reference_policy: Option<String> = {"nullable": true, "enum": ["reference", "expand", "expandAll"]},
    }

    CommonInstancetypesDeployment {
        enabled: Option<bool> = {"nullable": true},
    }

    VirtTemplateDeployment {
        enabled: Option<bool> = {"nullable": true},
    }

    ArchConfiguration {
        amd64: Option<ArchSpecificConfiguration>,
        arm64: Option<ArchSpecificConfiguration>,
        ppc64le: Option<ArchSpecificConfiguration>,
        s390x: Option<ArchSpecificConfiguration>,
        default_architecture: Option<String>,
    }

    ArchSpecificConfiguration {
        ovmf_path: Option<String>,
        emulated_machines: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        machine_type: Option<String>,
    }

    SMBiosConfiguration {
        manufacturer: Option<String>,
        product: Option<String>,
        version: Option<String>,
        sku: Option<String>,
        family: Option<String>,
    }

    SupportContainerResources {
        r#type: String,
        resources: ResourceRequirementsWithoutClaims,
    }

    CustomProfile {
        localhost_profile: Option<String>,
        runtime_default_profile: Option<bool>,
    }

    VirtualMachineInstanceProfile {
        custom_profile: Option<CustomProfile>,
    }

    SeccompConfiguration {
        virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
    }

    VirtualMachineOptions {
        disable_free_page_reporting: Option<Empty>,
        disable_serial_console_log: Option<Empty>,
    }

    TLSConfiguration {
        min_tls_version as "minTLSVersion": Option<String> = {"enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]},
        ciphers: Vec<String> = {"x-kubernetes-list-type": "set"},
    }

    DiskVerification {
        memory_limit: Quantity,
    }

    DeveloperConfiguration {
        feature_gates: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        disabled_feature_gates: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        pvc_tolerate_less_space_up_to_percent: Option<i64>,
        minimum_reserve_pvc_bytes as "minimumReservePVCBytes": Option<u64>,
        memory_overcommit: Option<i64> = {"minimum": 10},
        node_selectors: Map<String>,
        use_emulation: Option<bool>,
        cpu_allocation_ratio: Option<i64>,
        minimum_cluster_tsc_frequency as "minimumClusterTSCFrequency": Option<i64>,
        disk_verification: Option<DiskVerification>,
        log_verbosity: Option<LogVerbosity>,
        cluster_profiler: Option<bool>,
    }

    LogVerbosity {
        virt_api as "virtAPI": Option<u64>,
        virt_controller: Option<u64>,
        virt_handler: Option<u64>,
        virt_launcher: Option<u64>,
        virt_operator: Option<u64>,
        virt_synchronization_controller: Option<u64>,
        node_verbosity: Map<u64>,
    }
}
