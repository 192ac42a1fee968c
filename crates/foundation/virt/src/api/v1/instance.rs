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
    /// Run of a guest, from its scheduling to its end.
    VirtualMachineInstance {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VirtualMachineInstanceSpec,
        status: Option<VirtualMachineInstanceStatus>,
    }

    VirtualMachineInstanceSpec {
        /// PriorityClass of the instance.
        priority_class_name: Option<String>,
        /// Virtual hardware of the guest.
        domain: DomainSpec,
        /// Labels that the node must have.
        node_selector: Map<String>,
        /// Node and instance affinity of the scheduling.
        affinity: Option<Affinity>,
        /// Name of the scheduler of the instance.
        scheduler_name: Option<String>,
        /// ServiceAccount of the instance.
        service_account_name: Option<String>,
        /// Taints that the instance tolerates.
        tolerations: Vec<Toleration>,
        /// Spreading of instances over nodes or zones.
        topology_spread_constraints: Vec<TopologySpreadConstraint> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["topologyKey", "whenUnsatisfiable"]},
        /// Action when the node is drained: None, LiveMigrate, LiveMigrateIfPossible or External.
        eviction_strategy: Option<String>,
        /// Start strategy; `Paused` starts the guest with its CPUs stopped.
        start_strategy: Option<String>,
        /// Grace period of the shutdown in seconds, after which the guest is killed.
        termination_grace_period_seconds: Option<i64>,
        /// Volumes that the disks and file systems of the guest refer to.
        volumes: Vec<Volume> = {"maxItems": 256},
        /// Liveness probe; a guest that fails it is stopped.
        liveness_probe: Option<Probe>,
        /// Readiness probe; a guest that fails it is not ready.
        readiness_probe: Option<Probe>,
        /// Host name of the guest; by default the name of the instance.
        hostname: Option<String>,
        /// Subdomain of the guest: the name of its headless Service.
        subdomain: Option<String>,
        /// Networks that the interfaces of the guest refer to.
        networks: Vec<Network> = {"maxItems": 256},
        /// DNS policy of the guest: ClusterFirst, Default or None.
        dns_policy: Option<String>,
        /// DNS servers and search domains of the guest.
        dns_config: Option<PodDNSConfig>,
        /// SSH keys and passwords that are added to the guest.
        access_credentials: Vec<AccessCredential> = {"x-kubernetes-list-type": "atomic", "maxItems": 256},
        /// CPU architecture of the guest: amd64, arm64 or s390x.
        architecture: Option<String>,
        /// ResourceClaims of devices that the guest may use.
        resource_claims: Vec<VirtualMachineInstanceResourceClaim> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        /// Volumes that the platform uses and the guest does not see.
        utility_volumes: Vec<UtilityVolume> = {"maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }

    VirtualMachineInstanceResourceClaim {
        /// Name of the claim, unique in the instance.
        name: String,
        /// Name of an existing ResourceClaim.
        resource_claim_name: Option<String>,
        /// Name of the ResourceClaimTemplate that a ResourceClaim is created from.
        resource_claim_template_name: Option<String>,
    }

    VirtualMachineInstancePhaseTransitionTimestamp {
        /// Phase that the instance entered.
        phase: Option<String>,
        /// When the instance entered the phase.
        phase_transition_timestamp: Option<Time>,
    }

    TopologyHints {
        /// TSC frequency that the node must have, in Hz.
        tsc_frequency: Option<i64>,
    }

    VirtualMachineInstanceStatus {
        /// Name of the node that the guest runs on.
        node_name: Option<String>,
        /// Reason of the failure as one CamelCase word, for programs.
        reason: Option<String>,
        conditions: Vec<VirtualMachineInstanceCondition>,
        /// Phase of the instance: Pending, Scheduling, Scheduled, Running, Succeeded, Failed,
        /// WaitingForSync or Unknown.
        phase: Option<String>,
        /// When the instance entered each phase.
        phase_transition_timestamps: Vec<VirtualMachineInstancePhaseTransitionTimestamp> = {"x-kubernetes-list-type": "atomic"},
        /// Network interfaces of the guest with their addresses.
        interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
        /// Operating system of the guest, as reported by the guest agent.
        guest_os_info as "guestOSInfo": Option<VirtualMachineInstanceGuestOSInfo>,
        /// Progress and result of the latest migration.
        migration_state: Option<VirtualMachineInstanceMigrationState>,
        /// Migration method: LiveMigration, or BlockMigration if disks are copied.
        migration_method: Option<String>,
        /// Transport of the migration data.
        migration_transport: Option<String>,
        /// Quality of service class: Guaranteed, Burstable or BestEffort.
        qos_class: Option<String>,
        /// Version of the component that runs the guest.
        launcher_container_image_version: Option<String>,
        /// Name of the node that the guest is to be evacuated from.
        evacuation_node_name: Option<String>,
        /// Nodes of the pods of the instance, by UID of the pod.
        active_pods: Map<String>,
        /// Observed state of the volumes.
        volume_status: Vec<VolumeStatus> = {"x-kubernetes-list-type": "atomic"},
        /// Checksums of the kernel and initial RAM disk that are booted directly.
        kernel_boot_status: Option<KernelBootStatus>,
        /// Freeze state of the file systems of the guest; frozen while they are.
        fs_freeze_status: Option<String>,
        /// Requirements on nodes that the guest can be migrated to.
        topology_hints: Option<TopologyHints>,
        /// Name of the ControllerRevision with the specification that the instance was created
        /// from.
        virtual_machine_revision_name: Option<String>,
        /// User ID of the QEMU process.
        runtime_user: Option<u64>,
        /// VSOCK context ID (CID) of the guest.
        vsockcid as "VSOCKCID": Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
        /// SELinux context of the QEMU process.
        selinux_context: Option<String>,
        /// Machine type that the guest was started with.
        machine: Option<Machine>,
        /// Current sockets, cores and threads of the guest.
        current_cpu_topology as "currentCPUTopology": Option<CPUTopology>,
        /// Current memory of the guest.
        memory: Option<MemoryStatus>,
        /// Volumes that are being migrated to other claims.
        migrated_volumes: Vec<StorageMigratedVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        /// State of changed block tracking, which incremental backups require.
        changed_block_tracking: Option<ChangedBlockTrackingStatus> = {"nullable": true},
    }

    VolumeStatus {
        /// Name of the volume.
        name: String,
        /// Name of the device in the guest, for example vda.
        target: String,
        /// Phase of a hot-plugged volume: Pending, Ready or Detaching.
        phase: Option<String>,
        /// Reason of the phase as one CamelCase word, for programs.
        reason: Option<String>,
        /// Human-readable details of the phase.
        message: Option<String>,
        /// PersistentVolumeClaim of the volume.
        persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
        /// Attachment of a hot-plugged volume; not set for other volumes.
        hotplug_volume: Option<HotplugVolumeStatus>,
        /// Size of the disk in bytes.
        size: Option<i64>,
        /// Progress of the memory dump to this volume.
        memory_dump_volume: Option<DomainMemoryDumpInfo>,
        /// Checksum of the image of a container disk.
        container_disk_volume: Option<ContainerDiskInfo>,
    }

    KernelInfo {
        /// Checksum of the kernel.
        checksum: Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
    }

    InitrdInfo {
        /// Checksum of the initial RAM disk.
        checksum: Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
    }

    KernelBootStatus {
        /// Checksum of the kernel.
        kernel_info: Option<KernelInfo>,
        /// Checksum of the initial RAM disk.
        initrd_info: Option<InitrdInfo>,
    }

    DomainMemoryDumpInfo {
        /// When the memory dump began.
        start_timestamp: Option<Time>,
        /// When the memory dump ended.
        end_timestamp: Option<Time>,
        /// Name of the claim that the memory dump is written to.
        claim_name: Option<String>,
        /// Name of the file of the memory dump on the claim.
        target_file_name: Option<String>,
    }

    HotplugVolumeStatus {
        /// Name of the pod that attaches the volume.
        attach_pod_name: Option<String>,
        /// UID of the pod that attaches the volume.
        attach_pod_uid as "attachPodUID": Option<String>,
    }

    ContainerDiskInfo {
        /// Checksum of the disk image.
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
        /// First IP address of the interface.
        ip_address: Option<String>,
        /// MAC address of the interface.
        mac: Option<String>,
        /// Name of the interface in the specification of the instance.
        name: Option<String>,
        /// All IP addresses of the interface.
        ip_addresses: Vec<String>,
        /// Name of the interface on the node.
        pod_interface_name: Option<String>,
        /// Name of the interface in the guest.
        interface_name: Option<String>,
        /// Sources of the information: domain, guest-agent or multus-status.
        info_source: Option<String>,
        /// Number of queues of the interface.
        queue_count: Option<i32>,
        /// State of the link: up or down.
        link_state: Option<String>,
    }

    VirtualMachineInstanceGuestOSInfo {
        /// Name of the operating system, for example Debian GNU/Linux.
        name: Option<String>,
        /// Release of the kernel.
        kernel_release: Option<String>,
        /// Version of the operating system.
        version: Option<String>,
        /// Name and version of the operating system for display.
        pretty_name: Option<String>,
        /// Version of the operating system, for programs.
        version_id: Option<String>,
        /// Version (build) of the kernel.
        kernel_version: Option<String>,
        /// Hardware architecture that the guest reports.
        machine: Option<String>,
        /// Identifier of the operating system, for example debian.
        id: Option<String>,
    }

    VirtualMachineInstanceBackupStatus {
        /// Name of the backup.
        backup_name: Option<String>,
        /// When the backup began.
        start_timestamp: Option<Time>,
        /// When the backup ended.
        end_timestamp: Option<Time>,
        /// Whether the backup has ended.
        completed: Option<bool>,
        /// Whether the backup has failed.
        failed: Option<bool>,
        /// Human-readable result of the backup.
        backup_msg: Option<String>,
        /// Checkpoint that the next incremental backup starts from.
        checkpoint_name: Option<String>,
        /// Volumes that the backup includes.
        volumes: Vec<VirtualMachineInstanceBackupVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        /// Whether the file systems of the guest were frozen for the backup.
        quiesce_status: Option<String>,
    }

    VirtualMachineInstanceBackupVolumeInfo {
        /// Name of the volume.
        volume_name: String,
    }

    Probe {
        /// Command that is executed in the guest through the guest agent.
        exec: Option<ExecAction>,
        /// Ping of the guest agent.
        guest_agent_ping: Option<Empty>,
        /// HTTP request to the guest.
        http_get: Option<HTTPGetAction>,
        /// TCP connection to the guest.
        tcp_socket: Option<TCPSocketAction>,
        /// Seconds between the start of the guest and the first probe.
        initial_delay_seconds: Option<i32>,
        /// Timeout of a probe in seconds.
        timeout_seconds: Option<i32>,
        /// Seconds between two probes.
        period_seconds: Option<i32>,
        /// Number of consecutive successes after which a failed probe succeeds.
        success_threshold: Option<i32>,
        /// Number of consecutive failures after which the probe fails.
        failure_threshold: Option<i32>,
    }

    MemoryStatus {
        /// Memory of the guest when it started.
        guest_at_boot: Option<Quantity>,
        /// Current memory of the guest.
        guest_current: Option<Quantity>,
        /// Memory that was requested for the guest.
        guest_requested: Option<Quantity>,
        /// Memory overhead of QEMU in addition to the guest memory.
        memory_overhead: Option<Quantity>,
    }

    ReservedOverhead {
        /// Memory that is reserved in addition to the computed memory overhead.
        added_overhead: Option<Quantity>,
        /// Whether the guest memory is locked in RAM: Required or NotRequired.
        mem_lock: Option<String> = {"enum": ["NotRequired", "Required"]},
    }

    CPUTopology {
        /// Number of cores per socket.
        cores: Option<u32>,
        /// Number of CPU sockets.
        sockets: Option<u32>,
        /// Number of threads per core.
        threads: Option<u32>,
    }
}
