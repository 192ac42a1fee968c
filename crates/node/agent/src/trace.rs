//! The fate of the first packet of a connection from a machine: the decisions that agents load
//! into nftables, carried out on a snapshot of objects. Pure; for `sheaf network trace`. Ways over
//! other networks than the guest network are in `bridged`.
//!
//! ```text
//!   source       the sender's node: from its own MAC and address only, and not to 169.254.0.0/16
//!   service      the sender's node: the address of a service becomes that of an endpoint
//!   host         the sender's node: hosts of the cluster offer the API and ports of services only
//!   egress       the sender's node: policies that select the sender
//!   ingress      the receiver's node: policies that select it, or its namespace's isolation
//!   ports        the receiver's node: `ports` of its interface
//! ```
//!
//! Firewalls of hosts and inside guests, and everything outside of the cluster, are not known here.

mod bridged;
mod host;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use net::{FirstPacket, InboundPolicy, Protocol};
use serde_json::Value;

use crate::egress::NodeRanges;
use crate::network::inbound_ports;
use crate::overlay::{RemoteGuest, RemoteGuests};
use crate::policy::{
    BridgedSources, JudgingNode, PolicySnapshot, PolicySources, Ruling, bridged_interfaces,
};
use crate::service::{ServiceNode, services_of};

/// Annotation of a node: the network of its guests.
const GUEST_NETWORK: &str = hci::guest_network::NETWORK;

/// Objects as the API shows them.
#[derive(Debug, Default)]
pub struct TraceObjects {
    /// NetworkPolicies.
    pub policies: Vec<Value>,
    /// ClusterNetworkPolicies.
    pub cluster_policies: Vec<Value>,
    /// MultiNetworkPolicies.
    pub multi_policies: Vec<Value>,
    pub namespaces: Vec<Value>,
    pub pods: Vec<Value>,
    pub instances: Vec<Value>,
    pub services: Vec<Value>,
    pub slices: Vec<Value>,
    pub nodes: Vec<Value>,
    /// Leases of `kube-system`: one has the virtual address of the API.
    pub leases: Vec<Value>,
    /// Pools of addresses of networks beside the guest network.
    pub pools: Vec<Value>,
}

/// A connection that is asked about.
#[derive(Debug, Clone, Copy)]
pub struct TraceQuery<'a> {
    pub namespace: &'a str,
    pub machine: &'a str,
    pub to: IpAddr,
    pub port: u16,
    pub protocol: TraceProtocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceProtocol {
    Tcp,
    Udp,
    Sctp,
}

impl From<TraceProtocol> for Protocol {
    fn from(protocol: TraceProtocol) -> Self {
        match protocol {
            TraceProtocol::Tcp => Self::Tcp,
            TraceProtocol::Udp => Self::Udp,
            TraceProtocol::Sctp => Self::Sctp,
        }
    }
}

/// The decision of one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    pub stage: &'static str,
    pub is_accepted: bool,
    pub detail: String,
}

/// The way to one destination. A step that does not accept is the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracePath {
    pub to: String,
    pub steps: Vec<TraceStep>,
}

impl TracePath {
    pub fn is_accepted(&self) -> bool {
        self.steps.iter().all(|step| step.is_accepted)
    }
}

/// Why nothing can be said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    #[error("machine {0} does not run")]
    NotRunning(String),
    #[error("machine {machine} has no network that leads to {to}")]
    NoWay { machine: String, to: IpAddr },
}

/// A guest on the network of its node.
struct TracedGuest<'a> {
    instance: &'a Value,
    name: String,
    node: &'a str,
    address: Ipv4Addr,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

struct Tracer<'a> {
    objects: &'a TraceObjects,
    /// Addresses of all nodes and of the API.
    cluster: NodeRanges,
    policies: PolicySnapshot,
    guests: Vec<TracedGuest<'a>>,
    networks: BTreeMap<&'a str, Ipv4Net>,
}

/// The ways of a packet: one, or one for each endpoint of a service.
pub fn trace(objects: &TraceObjects, query: &TraceQuery<'_>) -> Result<Vec<TracePath>, TraceError> {
    let tracer = Tracer::new(objects);
    let name = format!("{}/{}", query.namespace, query.machine);
    let is_running = objects.instances.iter().any(|own| {
        text(own, "/metadata/namespace") == query.namespace
            && text(own, "/metadata/name") == query.machine
            && text(own, "/status/phase") == "Running"
    });
    if !is_running {
        return Err(TraceError::NotRunning(name));
    }
    let guest = tracer.guests.iter().find(|guest| guest.name == name);
    let nics = bridged_interfaces(&BridgedSources {
        policies: &objects.multi_policies,
        namespaces: &objects.namespaces,
        instances: &objects.instances,
        pools: &objects.pools,
    });
    let bridged = bridged::paths(&nics, query, guest.is_some());
    if !bridged.is_empty() {
        return Ok(bridged);
    }
    let (Some(guest), IpAddr::V4(to)) = (guest, query.to) else {
        return Err(TraceError::NoWay { machine: name, to: query.to });
    };
    let mut source = TraceStep {
        stage: "source",
        is_accepted: true,
        detail: format!("{} of {} is its own address on node {}", guest.address, name, guest.node),
    };
    if to.is_link_local() {
        source.is_accepted = false;
        source.detail = "guests do not reach 169.254.0.0/16: inet sheaf, chain forward".into();
        return Ok(vec![TracePath { to: query.to.to_string(), steps: vec![source] }]);
    }
    Ok(tracer.paths(guest, query, to, &source))
}

impl<'a> Tracer<'a> {
    fn new(objects: &'a TraceObjects) -> Self {
        let networks: BTreeMap<&str, Ipv4Net> = objects
            .nodes
            .iter()
            .filter_map(|node| {
                let network = node["metadata"]["annotations"][GUEST_NETWORK].as_str()?;
                Some((text(node, "/metadata/name"), network.parse().ok()?))
            })
            .collect();
        let guests = objects.instances.iter().filter_map(|instance| {
            let node = text(instance, "/status/nodeName");
            let network = networks.get(node)?;
            let interfaces = instance["status"]["interfaces"].as_array()?.iter();
            let mut addresses =
                interfaces.filter_map(|own| own["ipAddress"].as_str()?.parse::<Ipv4Addr>().ok());
            let address = addresses.find(|address| network.contains(address))?;
            let (namespace, name) =
                (text(instance, "/metadata/namespace"), text(instance, "/metadata/name"));
            (text(instance, "/status/phase") == "Running").then(|| TracedGuest {
                instance,
                name: format!("{namespace}/{name}"),
                node,
                address,
            })
        });
        Self {
            objects,
            cluster: host::cluster(objects),
            policies: PolicySnapshot::new(&PolicySources {
                policies: &objects.policies,
                cluster_policies: &objects.cluster_policies,
                namespaces: &objects.namespaces,
                pods: &objects.pods,
            }),
            guests: guests.collect(),
            networks,
        }
    }

    /// Guests of other nodes on the same network.
    fn remote(&self, node: &str) -> RemoteGuests {
        let network = self.networks.get(node);
        let others = self
            .guests
            .iter()
            .filter(|guest| guest.node != node && self.networks.get(guest.node) == network);
        others
            .map(|guest| {
                let record = RemoteGuest {
                    namespace: text(guest.instance, "/metadata/namespace").to_owned(),
                    name: text(guest.instance, "/metadata/name").to_owned(),
                    hostname: String::new(),
                    subdomain: None,
                };
                (guest.address, record)
            })
            .collect()
    }

    fn paths(
        &self,
        guest: &TracedGuest<'_>,
        query: &TraceQuery<'_>,
        to: Ipv4Addr,
        source: &TraceStep,
    ) -> Vec<TracePath> {
        let protocol = Protocol::from(query.protocol);
        let network = self.networks.get(guest.node).copied().unwrap_or_default();
        let node = ServiceNode { name: guest.node.to_owned(), addresses: vec![], guests: network };
        let all = services_of(
            &self.objects.services,
            &self.objects.slices,
            &node,
            &self.remote(guest.node),
        );
        let service = all.iter().find(|service| {
            let is_at = service.address == to || service.external_addresses.contains(&to);
            is_at && service.port == query.port && service.protocol == protocol
        });
        let own = self.own_host(guest.node, network);
        let node_port = || {
            let is_here = own.addresses.contains(&Ipv4Net::from(to));
            let is_it = |service: &&net::Service| {
                service.node_port == Some(query.port) && service.protocol == protocol
            };
            all.iter().filter(|_| is_here).find(is_it)
        };
        let Some(service) = service.or_else(node_port) else {
            let packet = FirstPacket { from: guest.address, to, protocol, port: query.port };
            let mut steps = vec![source.clone()];
            self.walk(guest, &packet, &mut steps);
            return vec![TracePath { to: format!("{}:{}", query.to, query.port), steps }];
        };
        let step =
            |is_accepted: bool, detail: String| TraceStep { stage: "service", is_accepted, detail };
        if service.endpoints.is_empty() {
            let detail = format!("{} has no endpoint that is ready: refused", service.id);
            let steps = vec![source.clone(), step(false, detail)];
            return vec![TracePath { to: format!("{}:{}", query.to, query.port), steps }];
        }
        let paths = service.endpoints.iter().map(|endpoint| {
            let to = format!("{}:{}", endpoint.address, endpoint.port);
            let mut steps =
                vec![source.clone(), step(true, format!("{} leads to {to}", service.id))];
            let packet = FirstPacket {
                from: guest.address,
                to: endpoint.address,
                protocol,
                port: endpoint.port,
            };
            self.walk(guest, &packet, &mut steps);
            TracePath { to, steps }
        });
        paths.collect()
    }

    /// Policies of the sender, then those of the receiver, until one drops.
    fn walk(&self, sender: &TracedGuest<'_>, packet: &FirstPacket, steps: &mut Vec<TraceStep>) {
        let remote = self.remote(sender.node);
        let network = self.networks.get(sender.node).copied().unwrap_or_default();
        let host = self.host(sender, packet, network);
        let is_last = host.as_ref().is_some_and(|(step, is_own)| *is_own || !step.is_accepted);
        steps.extend(host.map(|(step, _)| step));
        if is_last {
            return;
        }
        let node = JudgingNode { name: sender.node, network, remote: &remote };
        let Ruling { is_accepted, detail } = self.policies.egress(&node, packet);
        steps.push(TraceStep { stage: "egress", is_accepted, detail });
        if !is_accepted {
            return;
        }
        let is_receiver = |guest: &&TracedGuest<'_>| {
            guest.address == packet.to && self.networks.get(guest.node) == Some(&network)
        };
        let Some(receiver) = self.guests.iter().find(is_receiver) else {
            let detail = if network.contains(&packet.to) {
                format!("{} is no guest that runs; the node answers itself", packet.to)
            } else {
                format!(
                    "{} is outside of the guest network: sent with an address of the node",
                    packet.to
                )
            };
            steps.push(TraceStep { stage: "forward", is_accepted: true, detail });
            return;
        };
        self.receive(receiver, packet, network, steps);
    }

    fn receive(
        &self,
        receiver: &TracedGuest<'_>,
        packet: &FirstPacket,
        network: Ipv4Net,
        steps: &mut Vec<TraceStep>,
    ) {
        let remote = self.remote(receiver.node);
        let node = JudgingNode { name: receiver.node, network, remote: &remote };
        let Ruling { is_accepted, detail } = self.policies.ingress(&node, packet, &receiver.name);
        let detail = format!("{}: {detail}", receiver.name);
        steps.push(TraceStep { stage: "ingress", is_accepted, detail });
        if !is_accepted {
            return;
        }
        let (is_accepted, detail) = match inbound_ports(receiver.instance) {
            InboundPolicy::All => (true, "its interface lists no ports: all are open".to_owned()),
            InboundPolicy::Only(open) => {
                let is_open = open.contains(&(packet.protocol, packet.port));
                let verb = if is_open { "lists" } else { "does not list" };
                (is_open, format!("its interface {verb} port {}/{}", packet.port, packet.protocol))
            }
        };
        steps.push(TraceStep { stage: "ports", is_accepted, detail });
    }
}

#[cfg(test)]
mod tests;
