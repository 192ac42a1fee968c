//! NetworkPolicies, Namespaces and Pods, reduced to what the evaluation of policies needs.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::Selector;
use net::{PortRange, Protocol};

/// Says on a namespace whether guests of other namespaces may reach its guests where no
/// NetworkPolicy decides: `none` lets them.
pub(super) const ISOLATION: &str = "sheaf.io/network-isolation";

pub(super) type Labels = BTreeMap<String, String>;

/// A NetworkPolicy. Rules are present for the directions that the policy concerns.
#[derive(Debug, Clone)]
pub(super) struct PolicyRecord {
    pub(super) subjects: Selector,
    pub(super) ingress: Option<Vec<RuleRecord>>,
    pub(super) egress: Option<Vec<RuleRecord>>,
}

/// A rule. Absent lists mean all, empty ones for nothing.
#[derive(Debug, Clone)]
pub(super) struct RuleRecord {
    pub(super) peers: Option<Vec<PeerRecord>>,
    pub(super) ports: Option<Vec<PortRecord>>,
}

impl RuleRecord {
    fn new(peers: Option<Vec<NetworkPolicyPeer>>, ports: Option<Vec<NetworkPolicyPort>>) -> Self {
        let peers = peers.filter(|peers| !peers.is_empty());
        let ports = ports.filter(|ports| !ports.is_empty());
        Self {
            peers: peers.map(|peers| peers.into_iter().map(peer).collect()),
            ports: ports.map(|ports| ports.iter().filter_map(port).collect()),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum PeerRecord {
    Block {
        cidr: IpNet,
        except: Vec<IpNet>,
    },
    /// Pods by labels: in the policy's namespace, or in those that are selected.
    Pods {
        namespaces: Option<Selector>,
        pods: Selector,
    },
    /// A block or a selector that cannot be evaluated.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PortRecord {
    Range(PortRange),
    /// Looked up at the server's end.
    Named {
        protocol: Protocol,
        name: String,
    },
}

impl PolicyRecord {
    pub(super) fn read(object: NetworkPolicy) -> Option<Self> {
        Some(Self::of_spec(object.spec.unwrap_or_default()))
    }

    /// From the `spec` that MultiNetworkPolicies have, too.
    pub(super) fn of_spec(spec: NetworkPolicySpec) -> Self {
        let types = spec.policy_types.unwrap_or_default();
        let is_about = |direction: &str| types.iter().any(|each| each == direction);
        // The server sets the types; a policy without concerns what upstream says.
        let ingress = types.is_empty() || is_about("Ingress");
        let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
        let egress = is_about("Egress") || (types.is_empty() && has_egress);
        let incoming = spec.ingress.into_iter().flatten();
        let incoming = incoming.map(|rule| RuleRecord::new(rule.from, rule.ports));
        let outgoing = spec.egress.into_iter().flatten();
        let outgoing = outgoing.map(|rule| RuleRecord::new(rule.to, rule.ports));
        Self {
            // A selector that cannot be evaluated must not leave guests open.
            subjects: selector(spec.pod_selector.unwrap_or_default()).unwrap_or_default(),
            ingress: ingress.then(|| incoming.collect()),
            egress: egress.then(|| outgoing.collect()),
        }
    }
}

fn selector(selector: LabelSelector) -> Option<Selector> {
    Selector::try_from(selector).ok()
}

fn peer(peer: NetworkPolicyPeer) -> PeerRecord {
    if let Some(block) = peer.ip_block {
        return address_block(&block).unwrap_or(PeerRecord::Nothing);
    }
    let namespaces = peer.namespace_selector.map(selector);
    match (namespaces, selector(peer.pod_selector.unwrap_or_default())) {
        (Some(None), _) | (_, None) => PeerRecord::Nothing,
        (namespaces, Some(pods)) => PeerRecord::Pods { namespaces: namespaces.flatten(), pods },
    }
}

fn address_block(block: &IPBlock) -> Option<PeerRecord> {
    let cidr = block.cidr.parse().ok()?;
    let except = block.except.iter().flatten().filter_map(|each| each.parse().ok()).collect();
    Some(PeerRecord::Block { cidr, except })
}

fn port(port: &NetworkPolicyPort) -> Option<PortRecord> {
    let protocol = protocol(port.protocol.as_deref())?;
    let (first, last) = match &port.port {
        None => (1, u16::MAX),
        Some(IntOrString::String(name)) => {
            return Some(PortRecord::Named { protocol, name: name.clone() });
        }
        Some(IntOrString::Int(number)) => {
            let first = u16::try_from(*number).ok()?;
            (first, port.end_port.map_or(Some(first), |end| u16::try_from(end).ok())?)
        }
    };
    Some(PortRecord::Range(PortRange { protocol, first, last }))
}

pub(super) fn protocol(name: Option<&str>) -> Option<Protocol> {
    match name {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamespaceRecord {
    pub(super) labels: Labels,
    pub(super) is_isolated: bool,
}

impl NamespaceRecord {
    pub(super) fn read(object: Namespace) -> Option<Self> {
        let annotations = object.metadata.annotations.unwrap_or_default();
        let is_isolated = annotations.get(ISOLATION).map(String::as_str) != Some("none");
        Some(Self { labels: object.metadata.labels.unwrap_or_default(), is_isolated })
    }
}

/// A pod with an address of its own: the launcher of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodRecord {
    pub(super) labels: Labels,
    pub(super) node: Option<String>,
    pub(super) address: Option<Ipv4Addr>,
    pub(super) ports: Vec<NamedPort>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPort {
    pub(super) protocol: Protocol,
    pub(super) name: String,
    pub(super) port: u16,
}

impl PodRecord {
    /// Nothing for pods that have ended or share the node's address.
    pub(super) fn read(object: Pod) -> Option<Self> {
        let spec = object.spec.unwrap_or_default();
        let status = object.status.unwrap_or_default();
        let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        if has_ended || spec.host_network == Some(true) {
            return None;
        }
        let addresses = status.pod_ips.into_iter().flatten().map(|each| each.ip);
        let mut addresses = addresses.chain(status.pod_ip);
        let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
        let ports = ports.filter_map(|port| {
            Some(NamedPort {
                protocol: protocol(port.protocol.as_deref())?,
                name: port.name.clone()?,
                port: u16::try_from(port.container_port).ok()?,
            })
        });
        Some(Self {
            labels: object.metadata.labels.unwrap_or_default(),
            node: spec.node_name,
            address: addresses.find_map(|address| address.parse().ok()),
            ports: ports.collect(),
        })
    }
}
