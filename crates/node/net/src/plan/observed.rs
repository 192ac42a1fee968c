//! The observed network of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use crate::mac::Mac;
use crate::name::LinkName;
use crate::overlay::plan::SeenOverlay;
use crate::service::reroute::SeenReroute;
use crate::tap::Queues;
use crate::vlan::PortVlan;

/// The observed state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedNetwork {
    /// The bridge, taps with our prefix, and foreign bridges that ports want.
    pub links: BTreeMap<LinkName, NetworkInterface>,
    /// The addresses of our bridge.
    pub addresses: Vec<Ipv4Net>,
    /// Permanent neighbours on our bridge.
    pub neighbours: BTreeMap<Ipv4Addr, Mac>,
    /// The digest of the rules in force.
    pub rules: Option<String>,
    /// The chains of the table of services.
    pub service_chains: Option<BTreeSet<String>>,
    /// The table that takes packets to services off the bridge.
    pub reroute: Option<SeenReroute>,
    /// The digest of the rules for hosts of the cluster in force.
    pub hosts: Option<String>,
    /// The digest of the policies in force.
    pub policies: Option<String>,
    /// The chains of policies for interfaces on bridges.
    pub tap_chains: Option<BTreeSet<String>>,
    /// The values of those sysctls in [`sysctls`](super::sysctls) that exist.
    pub sysctls: BTreeMap<String, String>,
    /// The tunnel to other nodes.
    pub overlay: SeenOverlay,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkInterface {
    pub index: u32,
    pub kind: LinkKind,
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub is_up: bool,
    pub group: u32,
    /// The index of the bridge it belongs to.
    pub master: Option<u32>,
    /// Whether a bridge keeps VLANs apart.
    pub filters_vlans: bool,
    /// The VLANs of a port of such a bridge.
    pub vlans: PortVlan,
}

impl NetworkInterface {
    /// Whether a guest uses it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.kind, LinkKind::Tap { is_open: true, .. })
    }
}

/// The relevant properties of each type of interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    Bridge,
    Tap {
        owner: Option<u32>,
        queues: Queues,
        /// A process has it open: QEMU.
        is_open: bool,
        is_isolated: bool,
    },
    /// A VXLAN device with this address of the node.
    Tunnel {
        underlay: Option<IpAddr>,
    },
    Other,
}
