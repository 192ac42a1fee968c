//! Addresses of machines on their networks: the pool of a network, and what a machine got of it.

use crd::atom::{Map, ObjectMeta, Time};
use crd::record::record;

use super::Condition;

record! {
    /// Addresses that machines of a network are given by DHCP.
    DhcpPool {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired network, addresses and DHCP options.
        spec: DhcpPoolSpec,
        /// Observed use of the addresses.
        status: Option<DhcpPoolStatus>,
    }

    DhcpPoolSpec {
        /// Addresses and options of IPv4.
        ipv4_config: Ipv4Config,
        /// NetworkAttachmentDefinition whose machines get the addresses: NAMESPACE/NAME.
        network_name: String = {"maxLength": 317, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "NetworkName is immutable"}]},
        /// Whether the pool is paused: no address is allocated and no DHCP request is answered.
        paused: Option<bool>,
    }

    Ipv4Config: {"x-kubernetes-validations": [{"rule": "!has(oldSelf.router) || has(self.router)", "message": "Router is required once set"}]} {
        /// Subnet of the network: 192.168.1.0/24.
        cidr: String = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "CIDR is immutable"}]},
        /// Source address of DHCP replies; by default the first free address of the subnet.
        server_ip as "serverIP": String = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "ServerIP is immutable"}]},
        /// Range of the addresses that are allocated to machines.
        pool: DhcpRange,
        /// Default gateway sent to machines (DHCP option 3).
        router: Option<String> = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Router is immutable"}]},
        /// Name servers sent to machines (DHCP option 6).
        dns: Vec<String> = {"maxItems": 3, "items": {"format": "ipv4"}},
        /// Domain name sent to machines (DHCP option 15).
        domain_name: Option<String>,
        /// Search domains sent to machines (DHCP option 119).
        domain_search: Vec<String>,
        /// Addresses of NTP servers sent to machines (DHCP option 42).
        ntp: Vec<String> = {"maxItems": 4},
        /// Lease time in seconds; by default one year.
        lease_time: Option<i64>,
    }

    DhcpRange: {"x-kubernetes-validations": [{"rule": "!has(oldSelf.exclude) || has(self.exclude)", "message": "Exclude is required once set"}]} {
        /// First address; by default the first of the subnet.
        start: String = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Start is immutable"}]},
        /// Last address; by default the last of the subnet.
        end: String = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "End is immutable"}]},
        /// Addresses that are not allocated.
        exclude: Vec<String> = {"maxItems": 4096, "items": {"format": "ipv4", "maxLength": 15}, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Exclude is immutable"}]},
    }

    DhcpPoolStatus {
        /// When the allocation of addresses last changed.
        last_update: Option<Time>,
        /// Allocated and free addresses.
        ipv4: Option<Ipv4Status>,
        /// Pod of the agent that answers DHCP requests. Not set by this platform.
        agent_pod_ref: Option<AgentPod>,
        conditions: Vec<Condition>,
    }

    Ipv4Status {
        /// MAC addresses by address; RESERVED for the server and the router, EXCLUDED for excluded addresses.
        allocated: Map<String>,
        /// Number of addresses that are allocated to machines.
        used: i64,
        /// Number of addresses that can still be allocated.
        available: i64,
    }

    AgentPod {
        /// Namespace of the pod.
        namespace: Option<String>,
        /// Name of the pod.
        name: Option<String>,
        /// Image of the pod.
        image: Option<String>,
        /// UID of the pod.
        uid: Option<String>,
    }

    /// Addresses of a machine on networks with DHCP.
    MachineNetworkConfig {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired addresses of a machine.
        spec: MachineNetworkConfigSpec,
        /// Addresses that are allocated to the machine.
        status: Option<MachineNetworkConfigStatus>,
    }

    MachineNetworkConfigSpec {
        /// Name of the VirtualMachine.
        vm_name: String = {"maxLength": 253, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "VMName is immutable"}]},
        /// Interfaces of the machine on networks with a pool.
        network_configs: Vec<InterfaceConfig> = {"maxItems": 32},
        /// Whether the allocation is paused; the machine keeps its allocated addresses.
        paused: Option<bool>,
    }

    InterfaceConfig {
        /// NetworkAttachmentDefinition of the interface: NAMESPACE/NAME.
        network_name: String = {"maxLength": 317},
        /// MAC address of the interface.
        mac_address: String = {"maxLength": 17},
        /// Requested address of the interface; by default any address of the pool.
        ip_address: Option<String> = {"format": "ipv4"},
    }

    MachineNetworkConfigStatus {
        /// Addresses of the interfaces.
        network_configs: Vec<InterfaceStatus>,
        conditions: Vec<Condition>,
    }

    InterfaceStatus {
        /// Address of the interface.
        allocated_ip_address as "allocatedIPAddress": Option<String>,
        /// MAC address of the interface.
        mac_address: Option<String>,
        /// NetworkAttachmentDefinition of the interface: NAMESPACE/NAME.
        network_name: Option<String>,
        /// State of the allocation: Allocated, Pending or Stale.
        state: Option<String>,
    }
}
