//! The hosts of the cluster, of which guests reach the API, ports of services and ping only. Pure.
//!
//! ```text
//!   forward   what a guest sends to a host, also through a service: replies, ping, the API and node
//!             ports pass; everything else is refused
//! ```
//!
//! Guests' connections to their own node are judged by `rules`, since they are not forwarded. The table
//! is separate from the others so that a start of the agent, which does not know the hosts yet, leaves
//! it as it is. Packets from a guest to a service come in at `lo` (see `service::reroute`), so the
//! sender is recognised by its address, which it cannot forge (see `rules`). Destinations are those
//! after DNAT: an endpoint of a service at a port of a host is refused, too.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use ipnet::Ipv4Net;
use sha2::{Digest, Sha256};

use crate::policy::judge::FirstPacket;
use crate::rules::{DIGEST_CHAIN, set};
use crate::service::hex;
use crate::want::{Bridge, Protocol};

/// Where services have ports on nodes.
const NODE_PORTS: RangeInclusive<u16> = 30_000..=32_767;

/// The name of the nftables table of hosts, in the family `inet`.
pub(crate) fn table(table: &str) -> String {
    format!("{table}_hosts")
}

/// Whether guests are kept from the hosts of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HostGuard {
    /// They are not, and rules that exist are left alone.
    #[default]
    Unenforced,
    /// Rules in force stay so until the hosts are known; where there are none, guests begin no
    /// connections to the outside.
    Unknown,
    Known(ClusterHosts),
}

/// Addresses of hosts of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterHosts {
    pub addresses: BTreeSet<Ipv4Net>,
    /// TCP ports of the API on them.
    pub api_ports: BTreeSet<u16>,
}

/// The decision about a packet of a guest that leaves the guest network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostVerdict {
    /// It is not for a host of the cluster.
    Elsewhere,
    /// It is for the API.
    Api,
    /// It is for a port that services may have on nodes.
    NodePort,
    Refused,
}

impl ClusterHosts {
    /// The decision that the rules make about the first packet of a connection. `network` is that of
    /// guests.
    pub fn judge(&self, network: Ipv4Net, packet: &FirstPacket) -> HostVerdict {
        let is_host = self.addresses.iter().any(|own| own.contains(&packet.to));
        if network.contains(&packet.to) || !is_host {
            return HostVerdict::Elsewhere;
        }
        match packet.protocol {
            Protocol::Tcp if self.api_ports.contains(&packet.port) => HostVerdict::Api,
            Protocol::Tcp | Protocol::Udp if NODE_PORTS.contains(&packet.port) => {
                HostVerdict::NodePort
            }
            Protocol::Tcp | Protocol::Udp | Protocol::Sctp => HostVerdict::Refused,
        }
    }
}

/// A transaction for nftables, and the digest that shows whether it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRules {
    pub digest: String,
    pub text: String,
}

impl HostRules {
    /// `hosts` are those of the cluster, if they are known.
    fn new(bridge: &Bridge, hosts: Option<&ClusterHosts>) -> Self {
        let body = hosts.map_or_else(|| closed(bridge), |hosts| body(bridge, hosts));
        let digest = hex(&Sha256::digest(body.as_bytes())[..12]);
        let table = table(&bridge.table);
        let text = format!(
            "add table inet {table}\n\
             delete table inet {table}\n\
             table inet {table} {{\n\
             \tchain {DIGEST_CHAIN}{digest} {{\n\t}}\n\
             {body}}}\n"
        );
        Self { digest, text }
    }

    /// The rules to load, unless they are in force; `seen` is the digest of those that are.
    pub(crate) fn missing(bridge: &Bridge, guard: &HostGuard, seen: Option<&str>) -> Option<Self> {
        let rules = match (guard, seen) {
            (HostGuard::Unenforced, _) | (HostGuard::Unknown, Some(_)) => return None,
            (HostGuard::Unknown, None) => Self::new(bridge, None),
            (HostGuard::Known(hosts), _) => Self::new(bridge, Some(hosts)),
        };
        (seen != Some(rules.digest.as_str())).then_some(rules)
    }
}

/// Connections that exist go on: an upgrade begins so. Packets are dropped, so that clients try again
/// until the hosts are known.
fn closed(bridge: &Bridge) -> String {
    let network = bridge.gateway.trunc();
    format!(
        "\
\tchain forward {{
\t\ttype filter hook forward priority -30; policy accept;
\t\tct state established,related accept
\t\tip saddr {network} ip daddr != {network} drop
\t}}
"
    )
}

fn body(bridge: &Bridge, hosts: &ClusterHosts) -> String {
    let network = bridge.gateway.trunc();
    // Overlapping intervals would be refused.
    let addresses: Vec<_> = hosts.addresses.iter().map(Ipv4Net::trunc).collect();
    let addresses: Vec<_> =
        Ipv4Net::aggregate(&addresses).iter().map(ToString::to_string).collect();
    let elements = match addresses.as_slice() {
        [] => String::new(),
        some => format!("\t\telements = {{ {} }}\n", some.join(", ")),
    };
    let api_ports: BTreeSet<_> = bridge.host_tcp.union(&hosts.api_ports).collect();
    let mut text =
        format!("\tset hosts {{\n\t\ttype ipv4_addr\n\t\tflags interval\n{elements}\t}}\n");
    text += &set("api", "inet_service", api_ports.into_iter().map(u16::to_string));
    let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
    text += &format!(
        "\
\tchain to_host {{
\t\tct direction reply accept
\t\tmeta l4proto icmp accept
\t\ttcp dport @api accept
\t\tmeta l4proto {{ tcp, udp }} th dport {first}-{last} accept
\t\tmeta l4proto tcp reject with tcp reset
\t\tdrop
\t}}
\tchain forward {{
\t\ttype filter hook forward priority -30; policy accept;
\t\tip saddr {network} ip daddr != {network} ip daddr @hosts goto to_host
\t}}
"
    );
    text
}

#[cfg(test)]
mod tests;
