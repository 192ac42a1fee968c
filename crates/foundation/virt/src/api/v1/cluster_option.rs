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
        /// Requests per second in the long run.
        qps: f64,
        /// Requests that may be sent at once.
        burst: i64,
    }

    RateLimiter {
        /// A limit with a bucket of tokens.
        token_bucket_rate_limiter: Option<TokenBucketRateLimiter>,
    }

    RESTClientConfiguration {
        /// Limit for requests to the API.
        rate_limiter: Option<RateLimiter>,
    }

    ReloadableComponentConfiguration {
        /// Client of the API.
        rest_client: Option<RESTClientConfiguration>,
    }

    KubeVirtConfiguration {
        /// Processor model of guests that name none.
        cpu_model: Option<String>,
        /// Processor time that guests reserve if they say nothing.
        cpu_request: Option<Quantity>,
        /// Options for development and feature gates.
        developer_configuration: Option<DeveloperConfiguration>,
        /// Machine types that may be used, as patterns.
        emulated_machines: Vec<String>,
        /// When images of container disks are pulled if they say nothing.
        image_pull_policy: Option<String>,
        /// Limits and options of live migrations.
        migrations: Option<MigrationConfiguration>,
        /// Machine type of guests that name none.
        machine_type: Option<String>,
        /// Options for the interfaces of guests.
        network: Option<NetworkConfiguration>,
        /// Directory of the EFI firmware.
        ovmf_path: Option<String>,
        /// SELinux type of launcher pods.
        selinux_launcher_type: Option<String>,
        /// Runtime class of launcher pods.
        default_runtime_class: Option<String>,
        /// What guests see in the system tables of the firmware.
        smbios: Option<SMBiosConfiguration>,
        /// Options per processor architecture.
        architecture_configuration: Option<ArchConfiguration>,
        /// What happens to guests that name no strategy when their node is drained.
        eviction_strategy: Option<String>,
        /// Factor for the memory that is reserved besides that of the guest.
        additional_guest_memory_overhead_ratio: Option<String>,
        /// Resources of supporting containers.
        support_container_resources: Vec<SupportContainerResources> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        /// Versions of the guest agent that are supported.
        supported_guest_agent_versions: Vec<String>,
        /// Seconds between two measurements of a guest's memory; 0 turns them off.
        mem_balloon_stats_period: Option<u32>,
        /// Devices of nodes that guests may use.
        permitted_host_devices: Option<PermittedHostDevices>,
        /// Mediated devices that nodes create.
        mediated_devices_configuration: Option<MediatedDevicesConfiguration>,
        /// Oldest processor model that is offered.
        min_cpu_model as "minCPUModel": Option<String>,
        /// Processor models that are not offered.
        obsolete_cpu_models as "obsoleteCPUModels": Map<bool>,
        /// Most guests of a node.
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
        /// System calls that guests' processes may use.
        seccomp_configuration: Option<SeccompConfiguration>,
        /// Storage class for the state of TPMs and firmware.
        vm_state_storage_class: Option<String>,
        /// Options of all guests.
        virtual_machine_options: Option<VirtualMachineOptions>,
        /// Merging of equal memory pages on nodes.
        ksm_configuration: Option<KSMConfiguration>,
        /// Namespaces whose guests get a processor limit.
        auto_cpu_limit_namespace_label_selector as "autoCPULimitNamespaceLabelSelector": Option<LabelSelector>,
        /// How far running guests can grow.
        live_update_configuration: Option<LiveUpdateConfiguration>,
        /// Whether changes of a machine apply to its running guest (LiveUpdate) or wait for a
        /// restart (Stage).
        vm_rollout_strategy: Option<String> = {"nullable": true, "enum": ["Stage", "LiveUpdate"]},
        /// Whether instance types and preferences are shipped.
        common_instancetypes_deployment: Option<CommonInstancetypesDeployment> = {"nullable": true},
        /// Whether templates of machines are served.
        virt_template_deployment: Option<VirtTemplateDeployment> = {"nullable": true},
        /// How machines refer to instance types.
        instancetype: Option<InstancetypeConfiguration> = {"nullable": true},
        /// Hypervisors that run guests.
        hypervisors: Vec<HypervisorConfiguration> = {"x-kubernetes-list-type": "atomic", "maxItems": 1},
        /// Machines whose changed blocks are recorded for incremental backups.
        changed_block_tracking_label_selectors: Option<ChangedBlockTrackingSelectors> = {"nullable": true},
        /// SCSI persistent reservations.
        persistent_reservation_configuration: Option<PersistentReservationConfiguration> = {"nullable": true},
        /// Encrypted guests.
        confidential_compute: Option<ConfidentialComputeConfiguration> = {"nullable": true},
        /// Whether the roles extend admin, edit and view: AggregateToDefault or Manual.
        role_aggregation_strategy: Option<String> = {"enum": ["AggregateToDefault", "Manual"]},
    }

    TDXAttestationConfiguration {
        /// Guests do not start where attestation is not possible.
        enforced: Option<bool> = {"default": false},
        /// Socket of the quote generation service on nodes.
        qgs_socket_path: Option<String> = {"default": "/var/run/tdx-qgs/qgs.socket"},
    }

    TDXConfiguration {
        /// Attestation of guests.
        attestation: Option<TDXAttestationConfiguration>,
    }

    ConfidentialComputeConfiguration {
        /// Intel TDX.
        tdx: Option<TDXConfiguration> = {"nullable": true},
    }

    HypervisorConfiguration {
        /// Name of the hypervisor.
        name: Option<String> = {"enum": ["kvm", "hyperv-direct"]},
    }

    ChangedBlockTrackingSelectors {
        /// Labels of namespaces.
        namespace_label_selector: Option<LabelSelector>,
        /// Labels of machines.
        virtual_machine_label_selector: Option<LabelSelector>,
    }

    InstancetypeConfiguration {
        /// Whether machines keep a reference or a copy: reference, expand or expandAll.
        reference_policy: Option<String> = {"nullable": true, "enum": ["reference", "expand", "expandAll"]},
    }

    CommonInstancetypesDeployment {
        /// Whether they are created.
        enabled: Option<bool> = {"nullable": true},
    }

    VirtTemplateDeployment {
        /// Whether they are served.
        enabled: Option<bool> = {"nullable": true},
    }

    ArchConfiguration {
        /// Options for x86-64.
        amd64: Option<ArchSpecificConfiguration>,
        /// Options for 64-bit ARM.
        arm64: Option<ArchSpecificConfiguration>,
        /// Options for POWER.
        ppc64le: Option<ArchSpecificConfiguration>,
        /// Options for IBM Z.
        s390x: Option<ArchSpecificConfiguration>,
        /// Processor architecture of guests that name none.
        default_architecture: Option<String>,
    }

    ArchSpecificConfiguration {
        /// Directory of the EFI firmware.
        ovmf_path: Option<String>,
        /// Machine types that may be used, as patterns.
        emulated_machines: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Machine type of guests that name none.
        machine_type: Option<String>,
    }

    SMBiosConfiguration {
        /// Manufacturer of the system.
        manufacturer: Option<String>,
        /// Product name of the system.
        product: Option<String>,
        /// Version of the system.
        version: Option<String>,
        /// Stock number of the system.
        sku: Option<String>,
        /// Family of the system.
        family: Option<String>,
    }

    SupportContainerResources {
        r#type: String,
        /// Requests and limits.
        resources: ResourceRequirementsWithoutClaims,
    }

    CustomProfile {
        /// Profile in a file of the node.
        localhost_profile: Option<String>,
        /// Use the profile of the container runtime.
        runtime_default_profile: Option<bool>,
    }

    VirtualMachineInstanceProfile {
        /// A profile other than the usual one.
        custom_profile: Option<CustomProfile>,
    }

    SeccompConfiguration {
        /// Profile of guests' processes.
        virtual_machine_instance_profile: Option<VirtualMachineInstanceProfile>,
    }

    VirtualMachineOptions {
        /// Guests do not return free memory to their node.
        disable_free_page_reporting: Option<Empty>,
        /// The serial console is not logged.
        disable_serial_console_log: Option<Empty>,
    }

    TLSConfiguration {
        /// Oldest version that is accepted.
        min_tls_version as "minTLSVersion": Option<String> = {"enum": ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]},
        /// Ciphers of TLS 1.2 that are accepted.
        ciphers: Vec<String> = {"x-kubernetes-list-type": "set"},
    }

    DiskVerification {
        /// Memory that the check of an image may use.
        memory_limit: Quantity,
    }

    DeveloperConfiguration {
        /// Features that are turned on.
        feature_gates: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// Features that are turned off.
        disabled_feature_gates: Vec<String> = {"x-kubernetes-list-type": "atomic"},
        /// How much smaller than requested a volume may be, in percent.
        pvc_tolerate_less_space_up_to_percent: Option<i64>,
        /// Space of a volume that is left free.
        minimum_reserve_pvc_bytes as "minimumReservePVCBytes": Option<u64>,
        /// Guest memory in percent of the memory that is reserved for it.
        memory_overcommit: Option<i64> = {"minimum": 10},
        /// Labels that nodes of guests must have.
        node_selectors: Map<String>,
        /// Run guests without hardware virtualization where there is none.
        use_emulation: Option<bool>,
        /// Virtual processors per reserved processor.
        cpu_allocation_ratio: Option<i64>,
        /// Lowest clock frequency of processors, in hertz.
        minimum_cluster_tsc_frequency as "minimumClusterTSCFrequency": Option<i64>,
        /// Check of images.
        disk_verification: Option<DiskVerification>,
        /// How much the components log.
        log_verbosity: Option<LogVerbosity>,
        /// Serve profiles of the components.
        cluster_profiler: Option<bool>,
    }

    LogVerbosity {
        /// Verbosity of the API server.
        virt_api as "virtAPI": Option<u64>,
        /// Verbosity of the controllers.
        virt_controller: Option<u64>,
        /// Verbosity of the node agents.
        virt_handler: Option<u64>,
        /// Verbosity of guests' processes.
        virt_launcher: Option<u64>,
        /// Verbosity of the operator.
        virt_operator: Option<u64>,
        /// Verbosity of migrations between clusters.
        virt_synchronization_controller: Option<u64>,
        /// Verbosity of the node agents, by node.
        node_verbosity: Map<u64>,
    }
}
