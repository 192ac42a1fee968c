//! The KubeVirt object: configuration of the whole cluster.

use super::migration::MigrationConfiguration;
use crate::api::atom::{
    Affinity, Duration, Empty, LabelSelector, LocalObjectReference, Map, ObjectMeta, Quantity,
    Time, Toleration,
};
use crate::api::record::record;

record! {
    /// The configuration of virtual machines in this cluster. There is one.
    KubeVirt {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: KubeVirtSpec,
        status: Option<KubeVirtStatus>,
    }

    KubeVirtSelfSignConfiguration {
        ca_rotate_interval: Option<Duration>,
        cert_rotate_interval: Option<Duration>,
        ca_overlap_interval: Option<Duration>,
        ca: Option<CertConfig>,
        server: Option<CertConfig>,
    }

    CertConfig {
        /// How long a certificate is valid.
        duration: Option<Duration>,
        /// How long before its end a certificate is renewed.
        renew_before: Option<Duration>,
    }

    KubeVirtCertificateRotateStrategy {
        self_signed: Option<KubeVirtSelfSignConfiguration>,
    }

    KubeVirtWorkloadUpdateStrategy {
        workload_update_methods: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        batch_eviction_size: Option<i64>,
        batch_eviction_interval: Option<Duration>,
    }

    KubeVirtSpec {
        image_tag: Option<String>,
        image_registry: Option<String>,
        image_pull_policy: Option<String>,
        image_pull_secrets: Vec<LocalObjectReference> = {"x-kubernetes-list-type": "atomic"},
        monitor_namespace: Option<String>,
        service_monitor_namespace: Option<String>,
        monitor_account: Option<String>,
        workload_update_strategy: Option<KubeVirtWorkloadUpdateStrategy>,
        uninstall_strategy: Option<String>,
        certificate_rotate_strategy: Option<KubeVirtCertificateRotateStrategy>,
        product_version: Option<String>,
        product_name: Option<String>,
        product_component: Option<String>,
        synchronization_port: Option<String>,
        /// Everything that can be set for all machines.
        configuration: Option<KubeVirtConfiguration>,
        infra: Option<ComponentConfig>,
        workloads: Option<ComponentConfig>,
        customize_components: Option<CustomizeComponents>,
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
        handler: Map<String>,
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

    GenerationStatus {
        group: String,
        resource: String,
        namespace: Option<String>,
        name: String,
        last_generation: i64,
        hash: Option<String>,
    }

    KubeVirtStatus {
        phase: Option<String>,
        conditions: Vec<KubeVirtCondition>,
        operator_version: Option<String>,
        target_kube_virt_registry: Option<String>,
        target_kube_virt_version: Option<String>,
        target_deployment_config: Option<String>,
        target_deployment_id as "targetDeploymentID": Option<String>,
        observed_kube_virt_registry: Option<String>,
        observed_kube_virt_version: Option<String>,
        observed_deployment_config: Option<String>,
        observed_deployment_id as "observedDeploymentID": Option<String>,
        outdated_virtual_machine_instance_workloads: Option<i64>,
        observed_generation: Option<i64>,
        default_architecture: Option<String>,
        generations: Vec<GenerationStatus> = {"x-kubernetes-list-type": "atomic"},
        synchronization_addresses: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    KubeVirtCondition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

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

    PermittedHostDevices {
        pci_host_devices: Vec<PciHostDevice> = {"x-kubernetes-list-type": "atomic"},
        mediated_devices: Vec<MediatedHostDevice> = {"x-kubernetes-list-type": "atomic"},
        usb: Vec<USBHostDevice> = {"x-kubernetes-list-type": "atomic"},
    }

    USBHostDevice {
        resource_name: String,
        selectors: Vec<USBSelector> = {"x-kubernetes-list-type": "atomic"},
        external_resource_provider: Option<bool>,
    }

    USBSelector {
        vendor: String,
        product: String,
    }

    PciHostDevice {
        pci_vendor_selector: String,
        resource_name: String,
        external_resource_provider: Option<bool>,
    }

    MediatedHostDevice {
        mdev_name_selector: String,
        resource_name: String,
        external_resource_provider: Option<bool>,
    }

    MediatedDevicesConfiguration {
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        node_mediated_device_types: Vec<NodeMediatedDeviceTypesConfig> = {"x-kubernetes-list-type": "atomic"},
        enabled: Option<bool>,
    }

    NodeMediatedDeviceTypesConfig {
        node_selector: Map<String> = {"required": true},
        mediated_devices_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        mediated_device_types: Vec<String> = {"x-kubernetes-list-type": "atomic"},
    }

    KSMConfiguration {
        node_label_selector: Option<LabelSelector>,
    }

    NetworkConfiguration {
        default_network_interface: Option<String>,
        permit_slirp_interface: Option<bool>,
        permit_bridge_interface_on_pod_network: Option<bool>,
        binding: Map<InterfaceBindingPlugin>,
    }

    InterfaceBindingPlugin {
        sidecar_image: Option<String>,
        network_attachment_definition: Option<String>,
        domain_attachment_type: Option<String>,
        migration: Option<InterfaceBindingMigration>,
        downward_api as "downwardAPI": Option<String>,
        compute_resource_overhead: Option<ResourceRequirementsWithoutClaims>,
    }

    ResourceRequirementsWithoutClaims {
        limits: Map<Quantity>,
        requests: Map<Quantity>,
    }

    InterfaceBindingMigration {
        method: Option<String>,
    }

    LiveUpdateConfiguration {
        max_hotplug_ratio: Option<u32>,
        max_cpu_sockets: Option<u32>,
        max_guest: Option<Quantity>,
    }

    PersistentReservationConfiguration {
        enabled: Option<bool> = {"nullable": true},
    }

    ClaimRequest {
        /// Resource claim that the device comes from.
        claim_name: Option<String>,
        /// Request in the resource claim.
        request_name: Option<String>,
    }

    NodePlacement {
        /// Labels that nodes must have.
        node_selector: Map<String>,
        /// Affinity of the pods.
        affinity: Option<Affinity>,
        /// Taints of nodes that pods tolerate.
        tolerations: Vec<Toleration>,
    }

    ComponentConfig {
        node_placement: Option<NodePlacement>,
        replicas: Option<u8>,
    }
}
