//! Connections to hosts of the cluster, as `net` judges them. Pure.

use ipnet::Ipv4Net;
use net::{ClusterHosts, FirstPacket, HostVerdict};
use serde_json::Value;

use super::{TraceObjects, TraceStep, TracedGuest, Tracer, text};
use crate::egress::NodeRanges;

impl Tracer<'_> {
    /// The addresses of the node of a guest.
    pub(super) fn own_host(&self, node: &str, network: Ipv4Net) -> ClusterHosts {
        let own = self.objects.nodes.iter().find(|own| text(own, "/metadata/name") == node);
        let own = own.map(NodeRanges::of_node);
        let api_ports = self.cluster.api_ports.clone();
        ClusterHosts { api_ports, ..own.unwrap_or_default().hosts(network) }
    }

    /// The decision about a packet for a host of the cluster, and whether that is the guest's own node,
    /// to which connections are not judged by policies.
    pub(super) fn host(
        &self,
        sender: &TracedGuest<'_>,
        packet: &FirstPacket,
        network: Ipv4Net,
    ) -> Option<(TraceStep, bool)> {
        let is_own = self.own_host(sender.node, network).judge(network, packet);
        let is_own = is_own != HostVerdict::Elsewhere;
        let to = packet.to;
        let refused = |table| {
            let what = "guests reach the API, ports of services and ping there, and nothing else";
            (false, format!("{to} is a host of the cluster: {what}: {table}"))
        };
        let (is_accepted, detail) = match self.cluster.hosts(network).judge(network, packet) {
            HostVerdict::Elsewhere => return None,
            HostVerdict::Api => {
                (true, format!("{to} is a host of the cluster: guests reach the API"))
            }
            HostVerdict::NodePort if !is_own => {
                (true, format!("{to} is a host of the cluster: guests reach ports of services"))
            }
            HostVerdict::NodePort | HostVerdict::Refused if is_own => {
                refused("inet sheaf, chain input")
            }
            HostVerdict::NodePort | HostVerdict::Refused => {
                refused("inet sheaf_hosts, chain to_host")
            }
        };
        Some((TraceStep { stage: "host", is_accepted, detail }, is_own))
    }
}

/// The addresses of all hosts, and the ports of the API on them.
pub(super) fn cluster(objects: &TraceObjects) -> NodeRanges {
    let is_virtual = |own: &&Value| text(own, "/metadata/name") == hci::cluster::VIP_LEASE;
    let leases = objects.leases.iter().filter(is_virtual).map(NodeRanges::of_lease);
    let ranges = objects.nodes.iter().map(NodeRanges::of_node).chain(leases);
    let mut all = ranges.fold(NodeRanges::default(), NodeRanges::with);
    let is_api = |slice: &&Value| {
        text(slice, "/metadata/namespace") == "default"
            && slice["metadata"]["labels"]["kubernetes.io/service-name"] == "kubernetes"
    };
    let ports = objects.slices.iter().filter(is_api).flat_map(|slice| slice["ports"].as_array());
    let ports = ports.flatten().filter_map(|port| u16::try_from(port["port"].as_u64()?).ok());
    all.api_ports.extend(ports);
    all
}
