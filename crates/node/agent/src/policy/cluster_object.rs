//! ClusterNetworkPolicies, reduced to what their evaluation needs.
//!
//! A rule with a peer or protocol that is not understood fails closed, as upstream asks: Accept fits
//! nothing, Deny and Pass deny everything.

use hci::cluster_network_policy::{
    ClusterNetworkPolicy, NamespacedPods, PolicyEgressPeer, PolicyIngressPeer, PolicyPort,
    PolicyPorts, PolicyProtocol,
};
use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::api::DynamicObject;
use kube::core::Selector;
use net::{PortRange, Protocol, Tier, TierAction};
use serde::Serialize;
use serde_json::Value;

/// A ClusterNetworkPolicy.
#[derive(Debug, Clone)]
pub(super) struct ClusterPolicyRecord {
    pub(super) tier: Tier,
    pub(super) priority: u16,
    /// None for a selector that cannot be evaluated, which admission refuses.
    pub(super) subject: Option<GuestSelector>,
    pub(super) ingress: Vec<TierRuleRecord>,
    pub(super) egress: Vec<TierRuleRecord>,
}

/// Guests by labels of their namespaces and their own.
#[derive(Debug, Clone)]
pub(super) struct GuestSelector {
    pub(super) namespaces: Selector,
    pub(super) pods: Selector,
}

/// A rule. Absent ports mean all.
#[derive(Debug, Clone)]
pub(super) struct TierRuleRecord {
    pub(super) name: Option<String>,
    pub(super) action: TierAction,
    pub(super) peers: TierPeers,
    pub(super) ports: Option<Vec<TierPort>>,
}

#[derive(Debug, Clone)]
pub(super) enum TierPeers {
    Any,
    Only { guests: Vec<GuestSelector>, networks: Vec<Ipv4Net> },
}

#[derive(Debug, Clone)]
pub(super) enum TierPort {
    Range(PortRange),
    /// Of any protocol; looked up at the server's end.
    Named(String),
}

impl ClusterPolicyRecord {
    pub(super) fn read(object: DynamicObject) -> Option<Self> {
        Self::read_json(object.data)
    }

    /// From an object with a spec.
    pub(super) fn read_json(object: Value) -> Option<Self> {
        let spec = serde_json::from_value::<ClusterNetworkPolicy>(object).ok()?.spec;
        let ingress = spec.ingress.into_iter().map(|rule| {
            let peers = rule.from.iter().map(ingress_peer).collect();
            TierRuleRecord::new(rule.name, &rule.action, peers, &rule.protocols)
        });
        let egress = spec.egress.into_iter().map(|rule| {
            let peers = rule.to.iter().map(egress_peer).collect();
            TierRuleRecord::new(rule.name, &rule.action, peers, &rule.protocols)
        });
        Some(Self {
            tier: if spec.tier == "Baseline" { Tier::Baseline } else { Tier::Admin },
            priority: u16::try_from(spec.priority).unwrap_or_default(),
            subject: guests(spec.subject.namespaces.as_ref(), spec.subject.pods.as_ref()),
            ingress: ingress.collect(),
            egress: egress.collect(),
        })
    }
}

impl TierRuleRecord {
    /// Peers and ports are none where one of them is not understood.
    fn new(
        name: Option<String>,
        action: &str,
        peers: Option<Vec<TierPeer>>,
        protocols: &[PolicyProtocol],
    ) -> Self {
        let action = match action {
            "Accept" => TierAction::Accept,
            "Pass" => TierAction::Pass,
            _ => TierAction::Deny,
        };
        let ports: Option<Vec<TierPort>> = protocols.iter().map(port).collect();
        let (Some(peers), Some(ports)) = (peers, ports) else {
            let no_peers = TierPeers::Only { guests: vec![], networks: vec![] };
            let (action, peers) = match action {
                TierAction::Accept => (action, no_peers),
                TierAction::Deny | TierAction::Pass => (TierAction::Deny, TierPeers::Any),
            };
            return Self { name, action, peers, ports: None };
        };
        let (mut guests, mut networks) = (Vec::new(), Vec::new());
        for peer in peers {
            match peer {
                TierPeer::Guests(selector) => guests.push(selector),
                TierPeer::Networks(all) => networks.extend(all),
            }
        }
        let peers = TierPeers::Only { guests, networks };
        Self { name, action, peers, ports: Some(ports).filter(|ports| !ports.is_empty()) }
    }

    /// Ports that do not depend on a server.
    pub(super) fn ranges(&self) -> impl Iterator<Item = PortRange> + '_ {
        self.ports.iter().flatten().filter_map(|port| match port {
            TierPort::Range(range) => Some(*range),
            TierPort::Named(_) => None,
        })
    }

    /// Names of ports.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> + '_ {
        self.ports.iter().flatten().filter_map(|port| match port {
            TierPort::Range(_) => None,
            TierPort::Named(name) => Some(name.as_str()),
        })
    }
}

enum TierPeer {
    Guests(GuestSelector),
    Networks(Vec<Ipv4Net>),
}

fn ingress_peer(peer: &PolicyIngressPeer) -> Option<TierPeer> {
    guests(peer.namespaces.as_ref(), peer.pods.as_ref()).map(TierPeer::Guests)
}

fn egress_peer(peer: &PolicyEgressPeer) -> Option<TierPeer> {
    if peer.networks.is_empty() {
        return guests(peer.namespaces.as_ref(), peer.pods.as_ref()).map(TierPeer::Guests);
    }
    let networks: Option<Vec<IpNet>> = peer.networks.iter().map(|own| own.parse().ok()).collect();
    // The guest network has no IPv6.
    let v4 = |network: IpNet| match network {
        IpNet::V4(network) => Some(network),
        IpNet::V6(_) => None,
    };
    Some(TierPeer::Networks(networks?.into_iter().filter_map(v4).collect()))
}

fn guests(
    namespaces: Option<&impl Serialize>,
    pods: Option<&NamespacedPods>,
) -> Option<GuestSelector> {
    match (namespaces, pods) {
        (Some(namespaces), None) => {
            Some(GuestSelector { namespaces: selector(namespaces)?, pods: Selector::default() })
        }
        (None, Some(pods)) => {
            let namespaces = pods.namespace_selector.as_ref().map(selector);
            Some(GuestSelector {
                namespaces: namespaces.unwrap_or_else(|| Some(Selector::default()))?,
                pods: selector(&pods.pod_selector)?,
            })
        }
        _ => None,
    }
}

fn selector(selector: &impl Serialize) -> Option<Selector> {
    let selector = serde_json::to_value(selector).ok()?;
    let selector: meta::LabelSelector = serde_json::from_value(selector).ok()?;
    Selector::try_from(selector).ok()
}

fn port(entry: &PolicyProtocol) -> Option<TierPort> {
    let PolicyProtocol { tcp, udp, sctp, destination_named_port } = entry;
    let of = |protocol, ports: &PolicyPorts| range(protocol, ports).map(TierPort::Range);
    match (tcp, udp, sctp, destination_named_port) {
        (Some(ports), None, None, None) => of(Protocol::Tcp, ports),
        (None, Some(ports), None, None) => of(Protocol::Udp, ports),
        (None, None, Some(ports), None) => of(Protocol::Sctp, ports),
        (None, None, None, Some(name)) => Some(TierPort::Named(name.clone())),
        _ => None,
    }
}

fn range(protocol: Protocol, ports: &PolicyPorts) -> Option<PortRange> {
    let (first, last) = match &ports.destination_port {
        None => (1, i32::from(u16::MAX)),
        Some(PolicyPort { number: Some(number), range: None }) => (*number, *number),
        Some(PolicyPort { number: None, range: Some(range) }) => (range.start, range.end),
        Some(_) => return None,
    };
    Some(PortRange { protocol, first: u16::try_from(first).ok()?, last: u16::try_from(last).ok()? })
}

#[cfg(test)]
mod tests;
