//! The guest network of several nodes: which node a guest of another node is reached through.
//!
//! Guests of one node are routed to one another (see the crate's documentation), and so are guests
//! of different nodes: every node has a VXLAN device and a route for each guest that is elsewhere.
//! No broadcast crosses the tunnel. Every node answers ARP for all guests and for the gateway with the
//! same Ethernet address, so that nothing changes for a guest that moves.
//!
//! Knows nothing of Kubernetes; the agent says which guest is where. `plan` compares that with what
//! there is, `rules` restricts what may come out of the tunnel, `link` does I/O.

pub(crate) mod link;
pub(crate) mod plan;
pub(crate) mod rules;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use crate::mac::Mac;
use crate::name::LinkName;
use crate::want::Bridge;

/// The identifier of our network in VXLAN frames.
pub(crate) const VNI: u32 = 0x5348;
/// The UDP port that IANA assigned to VXLAN.
pub(crate) const PORT: u16 = 4789;
/// Marks our routes, as the protocol that made them.
pub(crate) const ROUTES: u8 = 83;
/// Bytes of outer headers: Ethernet, IP, UDP, VXLAN.
const OVERHEAD_IPV4: u32 = 50;
const OVERHEAD_IPV6: u32 = 70;
/// The smallest MTU of IPv4.
const LEAST_MTU: u32 = 576;

/// Whether guests of other nodes can be reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GuestOverlay {
    /// Not known yet: the existing overlay stays.
    #[default]
    Unknown,
    /// No other node has guests on this network.
    Alone,
    Connected(Overlay),
}

/// This node's end of the tunnel, and the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The address of this node on the network between nodes.
    pub underlay: IpAddr,
    /// The Ethernet address of this node's tunnel device.
    pub mac: Mac,
    /// The address on the guest network that guests of other nodes see this node as.
    pub address: Ipv4Addr,
    pub peers: Vec<OverlayPeer>,
}

/// Another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayPeer {
    pub underlay: IpAddr,
    pub mac: Mac,
    pub address: Ipv4Addr,
    /// The guests that run there.
    pub guests: BTreeSet<Ipv4Addr>,
    /// Guests that will run there soon: they may send already.
    pub expected: BTreeSet<Ipv4Addr>,
}

impl Overlay {
    /// The Ethernet address of a node's tunnel device.
    pub fn mac_of(node: &str) -> Mac {
        Mac::derived(&format!("tunnel {node}"))
    }

    /// The addresses of nodes on the guest network.
    pub(crate) fn nodes(&self) -> BTreeSet<Ipv4Addr> {
        self.peers.iter().map(|peer| peer.address).chain([self.address]).collect()
    }
}

impl GuestOverlay {
    pub(crate) fn connected(&self) -> Option<&Overlay> {
        match self {
            Self::Connected(overlay) => Some(overlay),
            Self::Unknown | Self::Alone => None,
        }
    }
}

/// The name of the tunnel device.
pub(crate) fn device(bridge: &Bridge) -> LinkName {
    let name = format!("{}vxlan", bridge.tap_prefix);
    // A prefix that leaves no room for it is shorter than a name.
    name.parse().unwrap_or_else(|_| LinkName::derived(&bridge.tap_prefix, "vxlan"))
}

/// The name of the nftables table that guards the tunnel, in the family `inet`.
pub(crate) fn table(table: &str) -> String {
    format!("{table}_overlay")
}

/// The MTU of the tunnel over a link with this MTU.
pub(crate) fn mtu(underlay: IpAddr, link: u32) -> u32 {
    let overhead = if underlay.is_ipv4() { OVERHEAD_IPV4 } else { OVERHEAD_IPV6 };
    link.saturating_sub(overhead).max(LEAST_MTU)
}

#[cfg(test)]
mod tests;
