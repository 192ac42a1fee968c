//! The nftables table that takes guests' packets to services off the bridge. Pure.
//!
//! Where `br_netfilter` is loaded, a connection that a guest opens through the bridge gets its new
//! destination while its frames are still on the bridge. The kernel then forwards them from port to
//! port instead of routing them, and ports of guests are isolated from each other. Frames that are
//! going to be translated are therefore taken from the tap before the bridge sees them, and enter
//! the node at `lo` as ordinary packets. This happens on every host, because `br_netfilter` may be
//! loaded at any time, by a container engine for instance.
//!
//! Only frames with a guest's own addresses are taken; all others meet the filter of the bridge.

use std::collections::BTreeSet;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::{Location, Service, hex, table};
use crate::rules::{DIGEST_CHAIN, set};
use crate::want::{Bridge, Port};

/// A table of this sort that exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenReroute {
    pub chains: BTreeSet<String>,
    /// The taps whose frames it reads. The kernel takes those out that were deleted.
    pub taps: BTreeSet<String>,
}

/// A transaction for nftables and its digest, which shows whether it has been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reroute {
    pub digest: String,
    pub text: String,
    taps: BTreeSet<String>,
}

impl Reroute {
    /// The transaction for these guests, whose taps exist.
    pub(crate) fn new(bridge: &Bridge, ports: &[&Port], services: &[Service]) -> Self {
        let guests: Vec<_> =
            ports.iter().filter_map(|port| Some((*port, port.address()?))).collect();
        let taps: BTreeSet<_> = guests.iter().map(|(port, _)| port.tap.to_string()).collect();
        let mut text = String::new();
        let guest = |(port, address): &(&Port, _)| {
            let Port { tap, mac, .. } = port;
            format!("\"{tap}\" . {mac} . {address}")
        };
        text += &set("guests", "ifname . ether_addr . ipv4_addr", guests.iter().map(guest));
        let addresses: BTreeSet<_> = services.iter().map(|each| each.address.to_string()).collect();
        text += &set("cluster_addresses", "ipv4_addr", addresses.into_iter());
        let node_port =
            |service: &Service| Some(format!("{} . {}", service.protocol, service.node_port?));
        let node_ports: BTreeSet<_> = services.iter().filter_map(node_port).collect();
        let external = |service: &Service| {
            let Service { protocol, port, .. } = service;
            let key = |address| format!("{address} . {protocol} . {port}");
            service.external_addresses.iter().map(key).collect::<Vec<_>>()
        };
        let external: BTreeSet<_> = services.iter().flat_map(external).collect();
        let socket = "ipv4_addr . inet_proto . inet_service";
        text += &set("external_addresses", socket, external.into_iter());
        text += &set("node_ports", "inet_proto . inet_service", node_ports.into_iter());
        text += &set("answering", socket, endpoints(services).into_iter());
        text += CHAINS;
        if !taps.is_empty() {
            text += &ingress(bridge, &taps);
        }
        let digest = hex(&Sha256::digest(text.as_bytes())[..12]);
        let table = table(&bridge.table);
        let text = format!(
            "add table netdev {table}\n\
             delete table netdev {table}\n\
             table netdev {table} {{\n\
             \tchain {DIGEST_CHAIN}{digest} {{\n\t}}\n\
             {text}}}\n"
        );
        Self { digest, text, taps }
    }

    /// Whether the table that exists is what the transaction would make.
    pub(crate) fn is_in_force(&self, seen: Option<&SeenReroute>) -> bool {
        let stamp = format!("{DIGEST_CHAIN}{}", self.digest);
        seen.is_some_and(|seen| seen.chains.contains(&stamp) && seen.taps == self.taps)
    }
}

/// The service endpoints that are guests of this node.
fn endpoints(services: &[Service]) -> BTreeSet<String> {
    let of = |service: &Service| {
        let protocol = service.protocol;
        let here = service.endpoints.iter().filter(|each| each.location == Location::ThisNode);
        let key =
            move |each: &super::Endpoint| format!("{} . {protocol} . {}", each.address, each.port);
        here.map(key).collect::<Vec<_>>()
    };
    services.iter().flat_map(of).collect()
}

const CHAINS: &str = "\
\tchain reroute {
\t\tiifname . ether saddr . ip saddr @guests meta pkttype set host ether daddr set 00:00:00:00:00:00 fwd to \"lo\"
\t}
";

/// Answers of a guest that reached itself through a service are translated as well.
fn ingress(bridge: &Bridge, taps: &BTreeSet<String>) -> String {
    let mut devices = String::new();
    for tap in taps {
        let _ = write!(devices, "{}\"{tap}\"", if devices.is_empty() { "" } else { ", " });
    }
    let gateway = bridge.gateway.addr();
    format!(
        "\
\tchain ingress {{
\t\ttype filter hook ingress devices = {{ {devices} }} priority 0; policy accept;
\t\tip daddr @cluster_addresses goto reroute
\t\tip daddr . meta l4proto . th dport @external_addresses goto reroute
\t\tmeta l4proto . th dport @node_ports fib daddr type local goto reroute
\t\tip daddr {gateway} ip saddr . meta l4proto . th sport @answering goto reroute
\t}}
"
    )
}
