//! The desired network of a node, in the caller's terms, and its validation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::hosts::HostGuard;
use crate::mac::Mac;
use crate::name::LinkName;
use crate::overlay::GuestOverlay;
use crate::policy::GuestPolicies;
use crate::service::Service;
use crate::tap::Queues;
use crate::vlan::PortVlan;

/// The smallest MTU that IPv4 allows for, and the largest a bridge takes.
const MTU: std::ops::RangeInclusive<u16> = 576..=65_521;

/// One bridge with NAT, and the ports of all guests of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredNetwork {
    pub bridge: Bridge,
    pub ports: Vec<Port>,
    /// Services that guests and the node can reach; while they are not known, the rules for them
    /// stay as they are.
    pub services: Option<Vec<Service>>,
    pub hosts: HostGuard,
    pub policies: GuestPolicies,
    pub overlay: GuestOverlay,
    /// Ports to bridges whose DHCP requests this node answers, and the address of the server. Rules keep
    /// these requests off the wire and drop replies of other servers.
    pub dhcp: BTreeMap<LinkName, Ipv4Addr>,
}

/// The NAT network of the node. Two of them on one host differ in name, prefix and table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    pub name: LinkName,
    /// The prefix of our taps' names; taps that have it and are not desired are removed.
    pub tap_prefix: LinkName,
    /// The name of our nftables tables.
    pub table: String,
    /// The host's address on the bridge, with the length of the prefix that guests share.
    pub gateway: Ipv4Net,
    pub mtu: u16,
    /// TCP ports that guests may reach on the host besides DHCP, DNS and ping: the API's port, at
    /// least.
    pub host_tcp: BTreeSet<u16>,
    /// Destinations with a route back to guests, for which source addresses are not translated.
    pub direct: Vec<Ipv4Net>,
}

impl Bridge {
    /// The usual names around `gateway`.
    pub fn new(gateway: Ipv4Net) -> Self {
        Self {
            name: "sheaf0".parse().expect("a valid name"),
            tap_prefix: "shf-".parse().expect("a valid name"),
            table: "sheaf".to_owned(),
            gateway,
            mtu: 1500,
            host_tcp: BTreeSet::new(),
            direct: vec![],
        }
    }

    /// Fixed, so that the bridge does not take on that of a port and guests' ARP caches stay true.
    pub fn mac(&self) -> Mac {
        Mac::derived(&format!("bridge {} {}", self.name, self.gateway))
    }

    /// The name of a tap for whatever `key` says, for instance a machine's id and an interface.
    pub fn tap_name(&self, key: &str) -> LinkName {
        LinkName::derived(&self.tap_prefix, key)
    }
}

/// One network card of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub tap: LinkName,
    pub mac: Mac,
    /// The user that may open the tap besides root.
    pub owner: u32,
    pub queues: Queues,
    pub attachment: Attachment,
}

/// Where a port leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attachment {
    /// To our own bridge, with an address that we chose.
    Nat { address: Ipv4Addr, inbound: InboundPolicy },
    /// To a bridge of an uplink, or one that the administrator created. A bridge that does not filter
    /// VLANs accepts ports of the untagged network only.
    Bridge { name: LinkName, guard: SpoofGuard, vlans: PortVlan },
}

/// Which new connections a guest of the NAT network accepts. Ping and answers always pass, and so
/// does what the node itself sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboundPolicy {
    All,
    Only(BTreeSet<(Protocol, u16)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        })
    }
}

/// Spoofing checks of a guest on a bridge that is not ours. Its addresses are not ours to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpoofGuard {
    /// It may send from its own Ethernet address only.
    pub own_mac_only: bool,
    /// It may not answer as a DHCP server or advertise itself as an IPv6 router.
    pub no_servers: bool,
    /// Frames with a VLAN tag are dropped in both directions, and so is what only bridges send.
    pub access_port: bool,
}

/// Why a desired network is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WantError {
    #[error("table name {table:?} must begin with a letter and have letters, digits and '_' only")]
    Table { table: String },
    #[error("mtu {mtu} must be between {} and {}", MTU.start(), MTU.end())]
    Mtu { mtu: u16 },
    #[error("gateway {gateway} must be a host address in a prefix of at most 29 bits")]
    Gateway { gateway: Ipv4Net },
    #[error("bridge {bridge} must not begin with the prefix {prefix} of taps")]
    BridgeLikeTap { bridge: LinkName, prefix: LinkName },
    #[error("tap {tap} must begin with {prefix}")]
    Prefix { tap: LinkName, prefix: LinkName },
    #[error("address {mac} of tap {tap} is not that of a network card")]
    Mac { tap: LinkName, mac: Mac },
    #[error("address {address} of tap {tap} must be a free host address of {network}")]
    Address { tap: LinkName, address: Ipv4Addr, network: Ipv4Net },
    #[error("tap {tap} cannot be attached to {bridge}, which has addresses of its own")]
    OwnBridge { tap: LinkName, bridge: LinkName },
    #[error("taps {tap} and {other} have the same {what}")]
    Twice { tap: LinkName, other: LinkName, what: &'static str },
}

impl DesiredNetwork {
    /// A network that neither serves nor restricts anything.
    pub fn new(bridge: Bridge, ports: Vec<Port>) -> Self {
        let (hosts, policies) = (HostGuard::Unenforced, GuestPolicies::Unenforced);
        let overlay = GuestOverlay::Unknown;
        Self { bridge, ports, services: None, hosts, policies, overlay, dhcp: BTreeMap::new() }
    }

    /// Checks each part, and that no two parts conflict.
    pub fn check(&self) -> Result<(), WantError> {
        self.bridge.check()?;
        for (index, port) in self.ports.iter().enumerate() {
            port.check(&self.bridge)?;
            for other in &self.ports[..index] {
                port.check_beside(other)?;
            }
        }
        Ok(())
    }
}

impl Bridge {
    fn check(&self) -> Result<(), WantError> {
        let table = &self.table;
        let is_plain = table.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !is_plain || !table.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(WantError::Table { table: table.clone() });
        }
        if !MTU.contains(&self.mtu) {
            return Err(WantError::Mtu { mtu: self.mtu });
        }
        let gateway = self.gateway;
        let is_host = gateway.addr() != gateway.network() && gateway.addr() != gateway.broadcast();
        if gateway.prefix_len() > 29 || gateway.prefix_len() == 0 || !is_host {
            return Err(WantError::Gateway { gateway });
        }
        if self.name.as_str().starts_with(self.tap_prefix.as_str()) {
            return Err(WantError::BridgeLikeTap {
                bridge: self.name.clone(),
                prefix: self.tap_prefix.clone(),
            });
        }
        Ok(())
    }
}

impl Port {
    /// The address on the NAT network.
    pub fn address(&self) -> Option<Ipv4Addr> {
        match self.attachment {
            Attachment::Nat { address, .. } => Some(address),
            Attachment::Bridge { .. } => None,
        }
    }

    pub(crate) fn check(&self, bridge: &Bridge) -> Result<(), WantError> {
        let tap = || self.tap.clone();
        let prefix = bridge.tap_prefix.as_str();
        if !self.tap.as_str().starts_with(prefix) || self.tap.as_str().len() == prefix.len() {
            return Err(WantError::Prefix { tap: tap(), prefix: bridge.tap_prefix.clone() });
        }
        if !self.mac.is_unicast() || self.mac == bridge.mac() {
            return Err(WantError::Mac { tap: tap(), mac: self.mac });
        }
        match &self.attachment {
            Attachment::Nat { address, .. } => {
                let network = bridge.gateway.trunc();
                let taken = [network.network(), network.broadcast(), bridge.gateway.addr()];
                if !network.contains(address) || taken.contains(address) {
                    return Err(WantError::Address { tap: tap(), address: *address, network });
                }
            }
            Attachment::Bridge { name, .. } if *name == bridge.name => {
                return Err(WantError::OwnBridge { tap: tap(), bridge: name.clone() });
            }
            Attachment::Bridge { .. } => {}
        }
        Ok(())
    }

    /// Whether both can exist. The same Ethernet address may appear on two bridges, since KubeVirt
    /// lets people choose them, but not twice on ours.
    pub(crate) fn check_beside(&self, other: &Self) -> Result<(), WantError> {
        let twice =
            |what| Err(WantError::Twice { tap: self.tap.clone(), other: other.tap.clone(), what });
        if self.tap == other.tap {
            return twice("name");
        }
        match (&self.attachment, &other.attachment) {
            (Attachment::Nat { .. }, Attachment::Nat { .. }) if self.mac == other.mac => {
                twice("Ethernet address")
            }
            (Attachment::Nat { address: a, .. }, Attachment::Nat { address: b, .. }) if a == b => {
                twice("IP address")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(tap: &str, mac: u8, address: [u8; 4]) -> Port {
        Port {
            tap: tap.parse().unwrap(),
            mac: Mac::new([2, 0, 0, 0, 0, mac]),
            owner: 0,
            queues: Queues::Single,
            attachment: Attachment::Nat { address: address.into(), inbound: InboundPolicy::All },
        }
    }

    fn check(ports: Vec<Port>, change: impl Fn(&mut Bridge)) -> String {
        let mut bridge = Bridge::new("10.52.0.1/24".parse().unwrap());
        change(&mut bridge);
        DesiredNetwork::new(bridge, ports)
            .check()
            .map_or_else(|error| error.to_string(), |()| "fine".into())
    }

    #[test]
    fn ports_that_cannot_be_are_refused_with_the_reason() {
        let good = || port("shf-a", 1, [10, 52, 0, 2]);
        let foreign = Port {
            attachment: Attachment::Bridge {
                name: "sheaf0".parse().unwrap(),
                guard: SpoofGuard::default(),
                vlans: PortVlan::untagged(),
            },
            ..good()
        };
        for (ports, answer) in [
            (vec![good()], "fine"),
            (vec![good(), port("shf-b", 2, [10, 52, 0, 3])], "fine"),
            (vec![port("tap0", 1, [10, 52, 0, 2])], "tap tap0 must begin with shf-"),
            (vec![port("shf-", 1, [10, 52, 0, 2])], "tap shf- must begin with shf-"),
            (
                vec![port("shf-a", 1, [10, 52, 0, 1])],
                "address 10.52.0.1 of tap shf-a must be a free host address of 10.52.0.0/24",
            ),
            (
                vec![port("shf-a", 1, [10, 52, 1, 9])],
                "address 10.52.1.9 of tap shf-a must be a free host address of 10.52.0.0/24",
            ),
            (
                vec![good(), port("shf-b", 1, [10, 52, 0, 3])],
                "taps shf-b and shf-a have the same Ethernet address",
            ),
            (
                vec![good(), port("shf-b", 2, [10, 52, 0, 2])],
                "taps shf-b and shf-a have the same IP address",
            ),
            (vec![good(), good()], "taps shf-a and shf-a have the same name"),
            (
                vec![foreign],
                "tap shf-a cannot be attached to sheaf0, which has addresses of its own",
            ),
        ] {
            assert_eq!(check(ports, |_| {}), answer);
        }
    }

    #[test]
    fn bridges_that_cannot_be_are_refused_with_the_reason() {
        type Change = fn(&mut Bridge);
        let cases: [(Change, &str); 5] = [
            (
                |bridge| bridge.table = "she af".into(),
                r#"table name "she af" must begin with a letter and have letters, digits and '_' only"#,
            ),
            (|bridge| bridge.mtu = 100, "mtu 100 must be between 576 and 65521"),
            (
                |bridge| bridge.gateway = "10.52.0.0/24".parse().unwrap(),
                "gateway 10.52.0.0/24 must be a host address in a prefix of at most 29 bits",
            ),
            (
                |bridge| bridge.gateway = "10.52.0.1/31".parse().unwrap(),
                "gateway 10.52.0.1/31 must be a host address in a prefix of at most 29 bits",
            ),
            (
                |bridge| bridge.name = "shf-0".parse().unwrap(),
                "bridge shf-0 must not begin with the prefix shf- of taps",
            ),
        ];
        for (change, answer) in cases {
            assert_eq!(check(vec![], change), answer);
        }
    }
}
