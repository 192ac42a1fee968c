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
        /// Average number of requests per second (QPS).
        qps: f64,
        /// Maximum number of requests in a burst.
        burst: i64,
    }

    RateLimiter {
        /// Token bucket rate limiter of requests.
        token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
    }

    RESTClientConfiguration {
        /// Rate limit of requests to the API server.
        rate_limiter: Option<RateLimiter>,
    }

    ReloadableComponentConfiguration {
        /// Options of the client of the Kubernetes API.
        rest_client: Option<RESTClientConfiguration>,
    }

    KubeVirtConfiguration {
        /// CPU model for guests that set none.
        cpu_model: Option<String>,
        /// CPU request for guests that set none.
        cpu_request: Option<Quantity>,
        /// Options for development and feature gates.
        developer_configuration: Option<DeveloperConfiguration>,
        /// Supported machine types, as glob patterns.
        emulated_machines: Vec<String>,
        /// Pull policy for images of container disks that set none.
        image_pull_policy: Option<String>,
        /// Limits and options of live migrations.
        migrations: Option<MigrationConfiguration>,
        /// Machine type for guests that set none.
        machine_type: Option<String>,
        /// Options of network interfaces of guests.
        network: Option<NetworkConfiguration>,
        /// Directory of the UEFI firmware (OVMF) on nodes.
        ovmf_path: Option<String>,
        /// SELinux type of launcher pods.
        selinux_launcher_type: Option<String>,
        /// Runtime class of launcher pods.
        default_runtime_class: Option<String>,
        /// System information that guests see in the SMBIOS tables.
        smbios: Option<SMBiosConfiguration>,
        /// Options by CPU architecture.
        architecture_configuration: Option<ArchConfiguration>,
        /// Eviction strategy for guests that set none: None, LiveMigrate, LiveMigrateIfPossible or
        /// External.
        eviction_strategy: Option<String>,
        /// Factor that the computed memory overhead of guests is multiplied by.
        additional_guest_memory_overhead_ratio: Option<String>,
        /// Resources of supporting containers, by type.
        support_container_resources: Vec<SupportContainerResources> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        /// Versions of the guest agent that are supported.
        supported_guest_agent_versions: Vec<String>,
        /// Seconds between measurements of the memory of a guest; 0 disables them.
        mem_balloon_stats_period: Option<u32>,
        /// Devices of nodes that guests may use by passthrough.
        permitted_host_devices: Option<PermittedHostDevices>,
        /// Mediated devices that nodes create.
        mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
        /// Minimum CPU model that nodes offer.
        min_cpu_model as "minCPUModel": Option<String>,
        /// CPU models that nodes do not offer.
        obsolete_cpu_models as "obsoleteCPUModels": Map<bool>,
        /// Maximum number of guests per node.
        virtual_machine_instances_per_node: Option<i64>,
        /// Options of the API server.
        api_configuration: Option<ReloadableComponentConfiguration>,
        /// Options of the admission webhooks.
        webhook_configuration: Option<ReloadableComponentConfiguration>,
        /// Options of the controllers.
        controller_configuration: Option<ReloadableComponentConfiguration>,
        /// Options of the node agents.
        handler_configuration: Option<ReloadableComponentConfiguration>,
        /// Protocol versions and ciphers of connections.
        tls_configuration: Option<TLSConfiguration>,
        /// Seccomp profile of the processes of guests.
        seccomp_configuration: Option<SeccompConfiguration>,
        /// StorageClass for the persistent state of TPM and UEFI.
        vm_state_storage_class: Option<String>,
        /// Options that apply to all guests.
        virtual_machine_options: Option<VirtualMachineOptions>,
        /// Kernel same-page merging (KSM) on nodes.
        ksm_configuration: Option<KSMConfiguration>,
        /// Selector of the namespaces whose guests get a CPU limit.
        auto_cpu_limit_namespace_label_selector as "autoCPULimitNamespaceLabelSelector": Option<LabelSelector>,
        /// Limits of CPU and memory hot-plug.
        live_update_configuration: Option<LiveUpdateConfiguration>,
        /// Whether changes of a virtual machine apply to the running guest (LiveUpdate) or at the
        /// next restart (Stage).
        vm_rollout_strategy: Option<String> = {"nullable": true, "enum": ["Stage", "LiveUpdate"]},
        /// Deployment of the common instance types and preferences.
        common_instancetypes_deployment: Option<CommonInstancetypesDeployment> = {"nullable": true},
        /// Deployment of the virtual machine templates API.
        virt_template_deployment: Option<VirtTemplateDeployment> = {"nullable": true},
        /// References of virtual machines to instance types.
        instancetype: Option<InstancetypeConfiguration> = {"nullable": true},
        /// Hypervisors that guests run on.
        hypervisors: Vec<HypervisorConfiguration> = {"x-kubernetes-list-type": "atomic", "maxItems": 1},
        /// Selectors of the virtual machines with changed block tracking, for incremental backups.
        changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors> = {"nullable": true},
        /// Options of SCSI persistent reservations.
        persistent_reservation_configuration: Option<PersistentReservationConfiguration> = {"nullable": true},
        /// Options of confidential computing.
        confidential_compute: Option<ConfidentialComputeConfiguration> = {"nullable": true},
        /// Whether the roles are aggregated to admin, edit and view: AggregateToDefault or Manual.
        role_aggregation_strategy: Option<String> = {"enum": ["AggregateToDefault", "Manual"]},
    }

    TDXAttestationConfiguration {
        /// Whether guests fail to start on nodes without attestation.
        enforced: Option<bool> = {"default": false},
        /// Socket of the quote generation service (QGS) on nodes.
        qgs_socket_path: Option<String> = {"default": "/var/run/tdx-qgs/qgs.socket"},
    }

    TDXConfiguration {
        /// Remote attestation of guests.
        attestation: Option<TDXAttestationConfiguration>,
    }

    ConfidentialComputeConfiguration {
        /// Options of Intel TDX.
        tdx: Option<TDXConfiguration> = {"nullable": true},
    }

    HypervisorConfiguration {
        /// Name of the hypervisor: kvm or hyperv-direct.
        name: Option<String> = {"enum": ["kvm", "hyperv-direct"]},
    }

    ChangedBlockTrackingSelectors {
        /// Labels of the selected namespaces.
        namespace_label_selector: Option<LabelSelector>,
        /// Labels of the selected virtual machines.
        virtual_machine_label_selector: Option<LabelSelector>,
    }

    InstancetypeConfiguration {
        /// Whether virtual machines keep a reference to their instance type, or its expansion:
        /// reference, expand or expandAll.
        reference_policy: Option<String> = {"nullable": true, "enum": ["reference", "expand", "expandAll"]},
    }

    CommonInstancetypesDeployment {
        /// Whether common instance types and preferences are created.
        enabled: Option<bool> = {"nullable": true},
    }

    VirtTemplateDeployment {
        /// Whether virtual machine templates are served.
        enabled: Option<bool> = {"nullable": true},
    }

    ArchConfiguration {
        /// Options for x86-64 (amd64) guests.
        amd64: Option<ArchSpecificConfiguration>,
        /// Options for 64-bit ARM (arm64) guests.
        arm64: Option<ArchSpecificConfiguration>,
        /// Options for POWER (ppc64le) guests.
        ppc64le: Option<ArchSpecificConfiguration>,
        /// Options for IBM Z (s390x) guests.
        s390x: Option<ArchSpecificConfiguration>,
        /// CPU architecture for guests that set none.
        default_architecture: Option<String>,
    }

    ArchSpecificConfiguration {
        /// Directory of the UEFI firmware on nodes.
        ovmf_path: Option<String>,
        /// Supported machine types, as glob patterns.
        emulated_machines: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Machine type for guests that set none.
        machine_type: Option<String>,
    }

    SMBiosConfiguration {
        /// Manufacturer in the SMBIOS system table.
        manufacturer: Option<String>,
        /// Product name in the SMBIOS system table.
        product: Option<String>,
        /// Version in the SMBIOS system table.
        version: Option<String>,
        /// SKU number in the SMBIOS system table.
        sku: Option<String>,
        /// Family in the SMBIOS system table.
        family: Option<String>,
    }

    SupportContainerResources {
        r#type: String,
        /// Resource requests and limits of the container.
        resources: ResourceRequirementsWithoutClaims,
    }

    CustomProfile {
        /// Name of a seccomp profile file on the node.
        localhost_profile: Option<String>,
        /// Whether the default profile of the container runtime is used.
        runtime_default_profile: Option<bool>,
    }

    VirtualMachineInstanceProfile {
        /// Custom seccomp profile of guests.
        custom_profile: Option<CustomProfile>,
    }

    SeccompConfiguration {
        /// Seccomp profile of the processes of guests.
        virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
    }

    VirtualMachineOptions {
        /// Disables free page reporting, with which guests return free memory to their node.
        disable_free_page_reporting: Option<Empty>,
        /// Disables the log of the serial console.
        disable_serial_console_log: Option<Empty>,
    }

    TLSConfiguration {
        /// Minimum TLS version that is accepted.
        min_tls_version as "minTLSVersion": Option<String> = {"enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]},
        /// Ciphers that are accepted with TLS 1.2.
        ciphers: Vec<String> = {"x-kubernetes-list-type": "set"},
    }

    DiskVerification {
        /// Memory limit of the verification of an image.
        memory_limit: Quantity,
    }

    DeveloperConfiguration {
        /// Names of the enabled feature gates.
        feature_gates: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Names of the disabled feature gates.
        disabled_feature_gates: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Percentage by which a volume can be smaller than requested.
        pvc_tolerate_less_space_up_to_percent: Option<i64>,
        /// Space that is reserved on volumes, in bytes.
        minimum_reserve_pvc_bytes as "minimumReservePVCBytes": Option<u64>,
        /// Percentage of the guest memory relative to the memory request, for overcommitment.
        memory_overcommit: Option<i64> = {"minimum": 10},
        /// Labels that the nodes of guests must have.
        node_selectors: Map<String>,
        /// Whether guests run with software emulation on nodes without hardware virtualization.
        use_emulation: Option<bool>,
        /// Number of virtual CPUs per requested CPU.
        cpu_allocation_ratio: Option<i64>,
        /// Minimum TSC frequency of the nodes in Hz.
        minimum_cluster_tsc_frequency as "minimumClusterTSCFrequency": Option<i64>,
        /// Limits of the verification of images.
        disk_verification: Option<DiskVerification>,
        /// Log verbosity of the components.
        log_verbosity: Option<LogVerbosity>,
        /// Whether the components serve profiling data.
        cluster_profiler: Option<bool>,
    }

    LogVerbosity {
        /// Log verbosity of the API server.
        virt_api as "virtAPI": Option<u64>,
        /// Log verbosity of the controllers.
        virt_controller: Option<u64>,
        /// Log verbosity of the node agents.
        virt_handler: Option<u64>,
        /// Log verbosity of the processes of guests.
        virt_launcher: Option<u64>,
        /// Log verbosity of the operator.
        virt_operator: Option<u64>,
        /// Log verbosity of the migration between clusters.
        virt_synchronization_controller: Option<u64>,
        /// Log verbosity of the node agents, by name of the node.
        node_verbosity: Map<u64>,
    }
}
