//! Networks of the cluster: which cards of which nodes carry them, and what the nodes report.

use crd::atom::{LabelSelector, Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    /// Physical network that the nodes are connected to.
    ClusterNetwork {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        status: Option<ClusterNetworkStatus>,
    }

    ClusterNetworkStatus {
        conditions: Vec<Condition>,
    }

    /// Network interfaces of nodes that carry a cluster network.
    VlanConfig {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VlanConfigSpec,
    }

    VlanConfigSpec {
        /// Description of the uplink for users.
        description: Option<String>,
        /// Name of the cluster network that the uplink is for.
        cluster_network: String = {"maxLength": 12},
        /// Labels of the nodes that get the uplink; empty selects all nodes.
        node_selector: Map<String>,
        /// Network cards and options of the uplink.
        uplink: UplinkSpec,
    }

    UplinkSpec {
        /// Names of the network cards that the bond consists of.
        nics: Vec<String>,
        /// MTU, queue length and address of the bond.
        link_attributes: Option<UplinkAttributes>,
        /// Mode and link monitoring of the bond.
        bond_options: Option<BondOptions>,
    }

    UplinkAttributes {
        /// MTU of the cluster network; 0 means 1500.
        mtu: Option<i32> = {"minimum": 0},
        /// Length of the transmit queue; -1 leaves it as it is.
        tx_q_len: Option<i32> = {"minimum": -1, "default": -1},
        /// Ethernet address of the bond: six bytes in base64.
        hardware_addr: Option<String>,
    }

    BondOptions {
        /// Mode of the bond, for example active-backup or 802.3ad.
        mode: Option<String> = {"default": "active-backup", "enum": ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]},
        /// Interval of link monitoring in milliseconds; -1 means 100.
        miimon: Option<i32> = {"minimum": -1, "default": -1},
    }

    /// State of a cluster network on one node.
    VlanStatus {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        status: Option<VlanStatusReport>,
    }

    VlanStatusReport {
        /// Name of the cluster network.
        cluster_network: String,
        /// Name of the VlanConfig that is applied on the node.
        vlan_config: String,
        /// Name of the LinkMonitor of the cluster network.
        link_monitor: String,
        /// Name of the node.
        node: String,
        conditions: Vec<Condition>,
    }

    /// State of network interfaces of the nodes.
    LinkMonitor {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: LinkMonitorSpec,
        status: Option<LinkMonitorStatus>,
    }

    LinkMonitorSpec {
        /// Labels of the nodes whose links are reported; empty selects all nodes.
        node_selector: Map<String>,
        /// Rules that select the reported links; a link has to match both.
        target_link_rule: Option<TargetLinkRule>,
    }

    TargetLinkRule {
        /// Regular expression for the type of a link: `device` is a network card, others have
        /// the names of the kernel. Empty matches all.
        type_rule: Option<String>,
        /// Regular expression for the name of a link; empty matches all.
        name_rule: Option<String>,
    }

    LinkMonitorStatus {
        /// Links by the name of their node.
        link_status: Map<Vec<LinkStatus>>,
        conditions: Vec<Condition>,
    }

    LinkStatus {
        /// Name of the link.
        name: String,
        /// Index of the link on its node.
        index: Option<i64>,
        /// Type of the link: `device` is a network card, others have the names of the kernel.
        r#type: Option<String>,
        /// MAC address of the link.
        mac: Option<String>,
        /// Whether the link is in promiscuous mode.
        promiscuous: Option<bool>,
        /// Operational state of the link: up, down or unknown.
        state: Option<String> = {"enum": ["up", "down", "unknown"]},
        /// Index of the bond or bridge that the link belongs to.
        master_index: Option<i64>,
    }

    /// Addresses of the nodes on a VLAN.
    HostNetworkConfig {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: HostNetworkConfigSpec,
        status: Option<HostNetworkConfigStatus>,
    }

    HostNetworkConfigSpec: {"x-kubernetes-validations": [{"rule": "self.mode != 'static' || (has(self.ips) && size(self.ips) > 0)", "message": "spec.ips must be specified and non-empty when mode is static"}]} {
        /// Description of the interface for users.
        description: Option<String>,
        /// Name of the cluster network that the interface is on.
        cluster_network: String = {"minLength": 1},
        /// VLAN ID of the interface.
        vlan_id as "vlanID": i32 = {"minimum": 1, "maximum": 4094},
        /// Address assignment of the interface: `static` uses `ips`, `dhcp` a DHCP server.
        mode: String = {"enum": ["static", "dhcp"]},
        /// Addresses with prefix length, by the name of the node.
        ips: Map<String> = {"maxProperties": 500, "additionalProperties": {"maxLength": 50}},
        /// Selector of the nodes that get the interface; all nodes if it is absent.
        node_selector: Option<LabelSelector>,
        /// Whether tunnels of overlay networks use the interface.
        underlay: Option<bool>,
    }

    HostNetworkConfigStatus {
        conditions: Vec<Condition>,
        /// State of the interface by the name of the node.
        node_status: Map<HostNetworkNodeStatus>,
    }

    HostNetworkNodeStatus {
        /// Name of the cluster network.
        cluster_network: Option<String>,
        /// VLAN ID of the interface.
        vlan_id as "vlanID": Option<i32>,
        /// Address assignment of the interface: static or dhcp.
        mode: Option<String>,
        /// Current address of the interface with its prefix length.
        address: Option<String>,
        /// Generation of the HostNetworkConfig that the conditions were computed from.
        observed_generation: Option<i64>,
        conditions: Vec<Condition>,
    }
}
