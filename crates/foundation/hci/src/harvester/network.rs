//! Networks of the cluster: which cards of which nodes carry them, and what the nodes report.

use crd::atom::{Map, ObjectMeta};
use crd::record::record;

use super::Condition;

record! {
    ClusterNetwork {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        status: Option<ClusterNetworkStatus>,
    }

    ClusterNetworkStatus {
        conditions: Vec<Condition>,
    }

    VlanConfig {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        spec: VlanConfigSpec,
    }

    VlanConfigSpec {
        /// Purpose of the uplink.
        description: Option<String>,
        /// Name of the cluster network that the uplink is for.
        cluster_network: String = {"maxLength": 12},
        /// Labels of the nodes that get the uplink; empty selects all nodes.
        node_selector: Map<String>,
        /// Cards and options of the uplink.
        uplink: UplinkSpec,
    }

    UplinkSpec {
        /// Names of the network cards that the bond consists of.
        nics: Vec<String>,
        /// MTU, queue length and address of the bond.
        link_attributes: Option<UplinkAttributes>,
        /// How the bond uses its cards.
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
        /// Mode of the bond.
        mode: Option<String> = {"default": "active-backup", "enum": ["balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb"]},
        /// How often the carrier of the cards is looked at, in milliseconds; -1 means 100.
        miimon: Option<i32> = {"minimum": -1, "default": -1},
    }

    VlanStatus {
        api_version: Option<String>,
        kind: Option<String>,
        metadata: ObjectMeta,
        status: Option<VlanStatusReport>,
    }

    VlanStatusReport {
        /// Name of the cluster network.
        cluster_network: String,
        /// Name of the VlanConfig that the node follows.
        vlan_config: String,
        /// Name of the LinkMonitor of the cluster network.
        link_monitor: String,
        /// Name of the node.
        node: String,
        conditions: Vec<Condition>,
    }
}
