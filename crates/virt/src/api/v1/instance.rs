//! The VirtualMachineInstance: one run of a guest.

use super::disk::{UtilityVolume, Volume};
use super::domain::{DomainSpec, Machine};
use super::machine::{
    ChangedBlockTrackingStatus, PersistentVolumeClaimInfo, StorageMigratedVolumeInfo,
};
use super::migration::VirtualMachineInstanceMigrationState;
use super::network::{AccessCredential, Network};
use crate::api::atom::{
    Affinity, Empty, ExecAction, HTTPGetAction, Map, ObjectMeta, PodDNSConfig, Quantity,
    TCPSocketAction, Time, Toleration, TopologySpreadConstraint,
};
use crate::api::record::record;

record! {
    /// One run of a guest, from its placement to its end.
    VirtualMachineInstance {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstanceSpec,
        status: Option<VirtualMachineInstanceStatus>,
    }

    VirtualMachineInstanceSpec {
        priority_class_name: Option<String>,
        /// The virtual hardware.
        domain: DomainSpec,
        /// Labels that the node must have.
        node_selector: Map<String>,
        affinity: Option<Affinity>,
        scheduler_name: Option<String>,
        service_account_name: Option<String>,
        tolerations: Vec<Toleration>,
        topology_spread_constraints: Vec<TopologySpreadConstraint> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"]},
        /// What happens when the node is drained: None, LiveMigrate, LiveMigrateIfPossible or External.
        eviction_strategy: Option<String>,
        /// `Paused` starts the guest with its processors stopped.
        start_strategy: Option<String>,
        /// How long the guest may take to shut down before it is killed.
        termination_grace_period_seconds: Option<i64>,
        /// What the disks of the guest are made of.
        volumes: Vec<Volume> = {"maxItems": 256},
        /// A guest that fails this probe is stopped.
        liveness_probe: Option<Probe>,
        /// A guest that fails this probe is not ready.
        readiness_probe: Option<Probe>,
        /// The name of the guest on the network; the name of the instance if empty.
        hostname: Option<String>,
        /// The name of the headless service that makes the guest known.
        subdomain: Option<String>,
        /// Networks that interfaces of the guest connect to.
        networks: Vec<Network> = {"maxItems": 256},
        dns_policy: Option<String>,
        dns_config: Option<PodDNSConfig>,
        /// Keys and passwords that are put into the guest.
        access_credentials: Vec<AccessCredential> = {"x-kubernetes-list-type": "atomic", "maxItems": 256},
        /// amd64, arm64 or s390x.
        architecture: Option<String>,
        resource_claims: Vec<VirtualMachineInstanceResourceClaim> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        utility_volumes: Vec<UtilityVolume> = {"maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }

    VirtualMachineInstanceResourceClaim {
        name: String,
        resource_claim_name: Option<String>,
        resource_claim_template_name: Option<String>,
    }

    VirtualMachineInstancePhaseTransitionTimestamp {
        phase: Option<String>,
        phase_transition_timestamp: Option<Time>,
    }

    TopologyHints {
        tsc_frequency: Option<i64>,
    }

    VirtualMachineInstanceStatus {
        /// The node where the guest runs.
        node_name: Option<String>,
        reason: Option<String>,
        conditions: Vec<VirtualMachineInstanceCondition>,
        /// Pending, Scheduling, Scheduled, Running, Succeeded, Failed, WaitingForSync or Unknown.
        phase: Option<String>,
        phase_transition_timestamps: Vec<VirtualMachineInstancePhaseTransitionTimestamp> = {"x-kubernetes-list-type": "atomic"},
        /// The interfaces of the guest with their addresses.
        interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
        /// What the guest agent tells about the guest.
        guest_os_info as "guestOSInfo": Option<VirtualMachineInstanceGuestOSInfo>,
        migration_state: Option<VirtualMachineInstanceMigrationState>,
        migration_method: Option<String>,
        migration_transport: Option<String>,
        qos_class: Option<String>,
        launcher_container_image_version: Option<String>,
        /// The node that the guest should leave.
        evacuation_node_name: Option<String>,
        active_pods: Map<String>,
        /// The state of each volume.
        volume_status: Vec<VolumeStatus> = {"x-kubernetes-list-type": "atomic"},
        kernel_boot_status: Option<KernelBootStatus>,
        fs_freeze_status: Option<String>,
        topology_hints: Option<TopologyHints>,
        virtual_machine_revision_name: Option<String>,
        runtime_user: Option<u64>,
        vsockcid as "VSOCKCID": Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
        selinux_context: Option<String>,
        machine: Option<Machine>,
        current_cpu_topology as "currentCPUTopology": Option<CPUTopology>,
        memory: Option<MemoryStatus>,
        migrated_volumes: Vec<StorageMigratedVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        changed_block_tracking: Option<ChangedBlockTrackingStatus> = {"nullable": true},
    }

    VolumeStatus {
        name: String,
        target: String,
        phase: Option<String>,
        reason: Option<String>,
        message: Option<String>,
        persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
        hotplug_volume: Option<HotplugVolumeStatus>,
        size: Option<i64>,
        memory_dump_volume: Option<DomainMemoryDumpInfo>,
        container_disk_volume: Option<ContainerDiskInfo>,
    }

    KernelInfo {
        checksum: Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
    }

    InitrdInfo {
        checksum: Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
    }

    KernelBootStatus {
        kernel_info: Option<KernelInfo>,
        initrd_info: Option<InitrdInfo>,
    }

    DomainMemoryDumpInfo {
        start_timestamp: Option<Time>,
        end_timestamp: Option<Time>,
        claim_name: Option<String>,
        target_file_name: Option<String>,
    }

    HotplugVolumeStatus {
        attach_pod_name: Option<String>,
        attach_pod_uid as "attachPodUID": Option<String>,
    }

    ContainerDiskInfo {
        checksum: Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
    }

    VirtualMachineInstanceCondition {
        r#type: String,
        status: String,
        last_probe_time: Option<Time> = {"nullable": true},
        last_transition_time: Option<Time> = {"nullable": true},
        reason: Option<String>,
        message: Option<String>,
    }

    VirtualMachineInstanceNetworkInterface {
        ip_address: Option<String>,
        mac: Option<String>,
        name: Option<String>,
        ip_addresses: Vec<String>,
        pod_interface_name: Option<String>,
        interface_name: Option<String>,
        info_source: Option<String>,
        queue_count: Option<i32>,
        link_state: Option<String>,
    }

    VirtualMachineInstanceGuestOSInfo {
        name: Option<String>,
        kernel_release: Option<String>,
        version: Option<String>,
        pretty_name: Option<String>,
        version_id: Option<String>,
        kernel_version: Option<String>,
        machine: Option<String>,
        id: Option<String>,
    }

    VirtualMachineInstanceBackupStatus {
        backup_name: Option<String>,
        start_timestamp: Option<Time>,
        end_timestamp: Option<Time>,
        completed: Option<bool>,
        failed: Option<bool>,
        backup_msg: Option<String>,
        checkpoint_name: Option<String>,
        volumes: Vec<VirtualMachineInstanceBackupVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        quiesce_status: Option<String>,
    }

    VirtualMachineInstanceBackupVolumeInfo {
        volume_name: String,
    }

    Probe {
        exec: Option<ExecAction>,
        guest_agent_ping: Option<Empty>,
        http_get: Option<HTTPGetAction>,
        tcp_socket: Option<TCPSocketAction>,
        initial_delay_seconds: Option<i32>,
        timeout_seconds: Option<i32>,
        period_seconds: Option<i32>,
        success_threshold: Option<i32>,
        failure_threshold: Option<i32>,
    }

    MemoryStatus {
        guest_at_boot: Option<Quantity>,
        guest_current: Option<Quantity>,
        guest_requested: Option<Quantity>,
        memory_overhead: Option<Quantity>,
    }

    ReservedOverhead {
        added_overhead: Option<Quantity>,
        mem_lock: Option<String> = {"enum": ["NotRequired", "Required"]},
    }

    CPUTopology {
        cores: Option<u32>,
        sockets: Option<u32>,
        threads: Option<u32>,
    }
}
