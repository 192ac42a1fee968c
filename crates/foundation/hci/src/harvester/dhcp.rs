//! Addresses of machines on their networks: the pool of a network, and what a machine got of it.

use crd::atom::{Map, ObjectMeta, Time};
use crd::record::record;

use super::Condition;

record! {
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
        /// Nothing is allocated and no request is answered while this is true.
        paused: Option<bool>,
    }

    Ipv4Config: {"x-kubernetes-validations": [{"rule": "!has(oldSelf.router) || has(self.router)", "message": "Router is required once set"}]} {
        /// Subnet of the network: 192.168.1.0/24.
        cidr: String = {"x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "CIDR is immutable"}]},
        /// Address that answers come from; by default the first free one of the subnet.
        server_ip as "serverIP": String = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "ServerIP is immutable"}]},
        /// Range of the addresses that machines get.
        pool: DhcpRange,
        /// Default gateway that machines are told.
        router: Option<String> = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Router is immutable"}]},
        /// Name servers that machines are told.
        dns: Vec<String> = {"maxItems": 3, "items": {"format": "ipv4"}},
        /// Domain that machines are told.
        domain_name: Option<String>,
        /// Domains in which machines look for short names.
        domain_search: Vec<String>,
        /// Time servers that machines are told, by address.
        ntp: Vec<String> = {"maxItems": 4},
        /// Seconds until a machine renews its address at the latest; a year by default.
        lease_time: Option<i64>,
    }

    DhcpRange: {"x-kubernetes-validations": [{"rule": "!has(oldSelf.exclude) || has(self.exclude)", "message": "Exclude is required once set"}]} {
        /// First address; by default the first of the subnet.
        start: String = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Start is immutable"}]},
        /// Last address; by default the last of the subnet.
        end: String = {"format": "ipv4", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "End is immutable"}]},
        /// Addresses that no machine gets.
        exclude: Vec<String> = {"maxItems": 4096, "items": {"format": "ipv4", "maxLength": 15}, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Exclude is immutable"}]},
    }

    DhcpPoolStatus {
        /// When the addresses were last changed.
        last_update: Option<Time>,
        /// Use of the addresses.
        ipv4: Option<Ipv4Status>,
        /// Agent that answers requests, where that is a pod. Not written by this platform.
        agent_pod_ref: Option<AgentPod>,
        conditions: Vec<Condition>,
    }

    Ipv4Status {
        /// MAC addresses by address; RESERVED for the server and the router, EXCLUDED for excluded addresses.
        allocated: Map<String>,
        /// Number of addresses that machines have.
        used: i64,
        /// Number of addresses that are free.
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

    MachineNetworkConfig {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        /// Desired addresses of a machine.
        spec: MachineNetworkConfigSpec,
        /// Addresses that the machine has.
        status: Option<MachineNetworkConfigStatus>,
    }

    MachineNetworkConfigSpec {
        /// Name of the VirtualMachine.
        vm_name: String = {"maxLength": 253, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "VMName is immutable"}]},
        /// Interfaces of the machine on networks with a pool.
        network_configs: Vec<InterfaceConfig> = {"maxItems": 32},
        /// Nothing is allocated while this is true; what the machine has is kept.
        paused: Option<bool>,
    }

    InterfaceConfig {
        /// NetworkAttachmentDefinition of the interface: NAMESPACE/NAME.
        network_name: String = {"maxLength": 317},
        /// MAC address of the interface.
        mac_address: String = {"maxLength": 17},
        /// Address that the interface is to have; by default any of the pool.
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
        /// Allocated, Pending or Stale.
        state: Option<String>,
    }
}
