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
        /// PriorityClass of the instance.
        priority_class_name: Option<String>,
        /// The virtual hardware.
        domain: DomainSpec,
        /// Labels that the node must have.
        node_selector: Map<String>,
        /// Rules about nodes and other instances for the placement.
        affinity: Option<Affinity>,
        /// Scheduler that places the instance.
        scheduler_name: Option<String>,
        /// ServiceAccount of the instance.
        service_account_name: Option<String>,
        /// Taints of nodes that the instance tolerates.
        tolerations: Vec<Toleration>,
        /// How instances are spread over nodes or zones.
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
        /// How the guest resolves names: ClusterFirst, Default or None.
        dns_policy: Option<String>,
        /// Name servers and search domains of the guest.
        dns_config: Option<PodDNSConfig>,
        /// Keys and passwords that are put into the guest.
        access_credentials: Vec<AccessCredential> = {"x-kubernetes-list-type": "atomic", "maxItems": 256},
        /// amd64, arm64 or s390x.
        architecture: Option<String>,
        /// Dynamically allocated devices that the guest may use.
        resource_claims: Vec<VirtualMachineInstanceResourceClaim> = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        /// Volumes for the platform, which the guest does not see.
        utility_volumes: Vec<UtilityVolume> = {"maxItems": 256, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }

    VirtualMachineInstanceResourceClaim {
        /// Name of the claim in this instance.
        name: String,
        /// Name of an existing ResourceClaim.
        resource_claim_name: Option<String>,
        /// Template from which a ResourceClaim is created.
        resource_claim_template_name: Option<String>,
    }

    VirtualMachineInstancePhaseTransitionTimestamp {
        /// The phase.
        phase: Option<String>,
        /// When the instance entered it.
        phase_transition_timestamp: Option<Time>,
    }

    TopologyHints {
        /// Frequency of the time stamp counter that the node must have, in Hz.
        tsc_frequency: Option<i64>,
    }

    VirtualMachineInstanceStatus {
        /// The node where the guest runs.
        node_name: Option<String>,
        /// Why the instance has failed, in one word.
        reason: Option<String>,
        conditions: Vec<VirtualMachineInstanceCondition>,
        /// Pending, Scheduling, Scheduled, Running, Succeeded, Failed, WaitingForSync or Unknown.
        phase: Option<String>,
        /// When the instance entered each phase.
        phase_transition_timestamps: Vec<VirtualMachineInstancePhaseTransitionTimestamp> = {"x-kubernetes-list-type": "atomic"},
        /// The interfaces of the guest with their addresses.
        interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
        /// What the guest agent tells about the guest.
        guest_os_info as "guestOSInfo": Option<VirtualMachineInstanceGuestOSInfo>,
        /// Progress and result of the latest migration.
        migration_state: Option<VirtualMachineInstanceMigrationState>,
        /// LiveMigration, or BlockMigration if disks have to be copied.
        migration_method: Option<String>,
        /// How migration data is transferred.
        migration_transport: Option<String>,
        /// Quality of service class: Guaranteed, Burstable or BestEffort.
        qos_class: Option<String>,
        /// Version of the component that runs the guest.
        launcher_container_image_version: Option<String>,
        /// The node that the guest should leave.
        evacuation_node_name: Option<String>,
        /// Pods of the instance by UID, with their nodes.
        active_pods: Map<String>,
        /// The state of each volume.
        volume_status: Vec<VolumeStatus> = {"x-kubernetes-list-type": "atomic"},
        /// Checksums of a kernel that is booted directly.
        kernel_boot_status: Option<KernelBootStatus>,
        /// Whether file systems of the guest are frozen.
        fs_freeze_status: Option<String>,
        /// Requirements on nodes that the guest can move to.
        topology_hints: Option<TopologyHints>,
        /// ControllerRevision with the specification that the instance was created from.
        virtual_machine_revision_name: Option<String>,
        /// User ID of the QEMU process.
        runtime_user: Option<u64>,
        /// Context ID of the guest for VSOCK.
        vsockcid as "VSOCKCID": Option<u32> = {"format": "int64", "minimum": 0, "maximum": 4294967295},
        /// SELinux context of the QEMU process.
        selinux_context: Option<String>,
        /// Machine type that QEMU uses.
        machine: Option<Machine>,
        /// Sockets, cores and threads that the guest has now.
        current_cpu_topology as "currentCPUTopology": Option<CPUTopology>,
        /// Memory that the guest has now.
        memory: Option<MemoryStatus>,
        /// Volumes that are moved to other claims.
        migrated_volumes: Vec<StorageMigratedVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        /// State of changed block tracking, which incremental backups need.
        changed_block_tracking: Option<ChangedBlockTrackingStatus> = {"nullable": true},
    }

    VolumeStatus {
        /// Name of the volume.
        name: String,
        /// Device name in the guest, for example vda.
        target: String,
        /// Phase of a hot-plugged volume: Pending, Ready or Detaching.
        phase: Option<String>,
        /// Why the volume is in this phase, in one word.
        reason: Option<String>,
        /// Why the volume is in this phase.
        message: Option<String>,
        /// The claim of the volume.
        persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
        /// Set for volumes that were plugged in while the guest ran.
        hotplug_volume: Option<HotplugVolumeStatus>,
        /// Size of the disk in bytes.
        size: Option<i64>,
        /// Progress of a memory dump to this volume.
        memory_dump_volume: Option<DomainMemoryDumpInfo>,
        /// Checksum of a container disk.
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
        /// The kernel.
        kernel_info: Option<KernelInfo>,
        /// The initial RAM disk.
        initrd_info: Option<InitrdInfo>,
    }

    DomainMemoryDumpInfo {
        /// When the dump began.
        start_timestamp: Option<Time>,
        /// When the dump ended.
        end_timestamp: Option<Time>,
        /// Claim that the dump is written to.
        claim_name: Option<String>,
        /// Name of the dump file on the claim.
        target_file_name: Option<String>,
    }

    HotplugVolumeStatus {
        /// Pod that attaches the volume.
        attach_pod_name: Option<String>,
        /// UID of that pod.
        attach_pod_uid as "attachPodUID": Option<String>,
    }

    ContainerDiskInfo {
        /// Checksum of the disk.
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
        /// MAC address.
        mac: Option<String>,
        /// Name of the interface in the specification.
        name: Option<String>,
        /// All IP addresses of the interface.
        ip_addresses: Vec<String>,
        /// Name of the interface on the node.
        pod_interface_name: Option<String>,
        /// Name of the interface in the guest.
        interface_name: Option<String>,
        /// Who reported the interface: domain, guest-agent or multus-status.
        info_source: Option<String>,
        /// Number of queues.
        queue_count: Option<i32>,
        /// up or down.
        link_state: Option<String>,
    }

    VirtualMachineInstanceGuestOSInfo {
        /// Name of the operating system.
        name: Option<String>,
        /// Release of the kernel.
        kernel_release: Option<String>,
        /// Version of the operating system.
        version: Option<String>,
        /// Name and version for display.
        pretty_name: Option<String>,
        /// Version of the operating system, for programs.
        version_id: Option<String>,
        /// Build of the kernel.
        kernel_version: Option<String>,
        /// Hardware architecture.
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
        /// The backup has ended.
        completed: Option<bool>,
        /// The backup has failed.
        failed: Option<bool>,
        /// Details about the result.
        backup_msg: Option<String>,
        /// Checkpoint that the next incremental backup starts from.
        checkpoint_name: Option<String>,
        /// Volumes in the backup.
        volumes: Vec<VirtualMachineInstanceBackupVolumeInfo> = {"x-kubernetes-list-type": "atomic"},
        /// Whether file systems of the guest were frozen.
        quiesce_status: Option<String>,
    }

    VirtualMachineInstanceBackupVolumeInfo {
        /// Name of the volume.
        volume_name: String,
    }

    Probe {
        /// Run a command in the guest through the guest agent.
        exec: Option<ExecAction>,
        /// Ask the guest agent for an answer.
        guest_agent_ping: Option<Empty>,
        /// Send an HTTP request to the guest.
        http_get: Option<HTTPGetAction>,
        /// Open a TCP connection to the guest.
        tcp_socket: Option<TCPSocketAction>,
        /// Seconds after the start of the guest before the first probe.
        initial_delay_seconds: Option<i32>,
        /// Seconds until a probe counts as failed.
        timeout_seconds: Option<i32>,
        /// Seconds between probes.
        period_seconds: Option<i32>,
        /// Successes in a row after a failure that count as success.
        success_threshold: Option<i32>,
        /// Failures in a row that count as failure.
        failure_threshold: Option<i32>,
    }

    MemoryStatus {
        /// Memory of the guest when it started.
        guest_at_boot: Option<Quantity>,
        /// Memory of the guest now.
        guest_current: Option<Quantity>,
        /// Memory that was requested for the guest.
        guest_requested: Option<Quantity>,
        /// Memory that QEMU needs beside that of the guest.
        memory_overhead: Option<Quantity>,
    }

    ReservedOverhead {
        /// Memory that is reserved in addition to the computed overhead.
        added_overhead: Option<Quantity>,
        /// Whether the memory of the guest is locked: Required or NotRequired.
        mem_lock: Option<String> = {"enum": ["NotRequired", "Required"]},
    }

    CPUTopology {
        /// Cores per socket.
        cores: Option<u32>,
        /// Number of sockets.
        sockets: Option<u32>,
        /// Threads per core.
        threads: Option<u32>,
    }
}
