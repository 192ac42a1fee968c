//! Evaluates MultiNetworkPolicies for interfaces on bridges: selectors become addresses. Pure.
//!
//! A policy selects the interfaces of the machines in its namespace that are on one of its networks.
//! Its peers are the addresses that machines have on these networks: those that pools have given to
//! their interfaces, and those that their instances report. An address that is not known is not
//! allowed. An interface that no policy selects is not restricted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use kube::core::SelectorExt as _;
use net::{
    AllowedPorts, LinkName, PortRange, TapBlock, TapPeers, TapPolicies, TapPolicy, TapRule,
    TapRules,
};

use super::bridged_object::{InstanceRecord, InterfaceRecord, LeaseRecord, MultiPolicyRecord};
use super::object::{NamespaceRecord, PeerRecord, PortRecord, RuleRecord};
use crate::known_objects::ObjectKey;

/// Everything that policies of interfaces on bridges are evaluated from.
#[derive(Clone, Copy)]
pub(super) struct BridgedCluster<'a> {
    pub(super) policies: &'a BTreeMap<ObjectKey, MultiPolicyRecord>,
    pub(super) namespaces: &'a BTreeMap<ObjectKey, NamespaceRecord>,
    pub(super) instances: &'a BTreeMap<ObjectKey, InstanceRecord>,
    pub(super) pools: &'a BTreeMap<ObjectKey, LeaseRecord>,
}

/// An interface of a machine with its addresses.
pub(super) struct AddressedInterface<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) instance: &'a InstanceRecord,
    pub(super) interface: &'a InterfaceRecord,
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// A rule with its peers.
struct ResolvedRule<'a> {
    ports: Option<&'a [PortRecord]>,
    peers: TapPeers,
    /// The interfaces among the peers, whose ports have names.
    nics: Vec<&'a AddressedInterface<'a>>,
}

/// A policy with the peers of its rules.
struct ResolvedPolicy<'a> {
    key: &'a ObjectKey,
    record: &'a MultiPolicyRecord,
    ingress: Option<Vec<ResolvedRule<'a>>>,
    egress: Option<Vec<ResolvedRule<'a>>>,
}

/// The policies of the interfaces for which `tap` names a tap of this node.
pub(super) fn policies(
    cluster: &BridgedCluster<'_>,
    tap: impl Fn(&InstanceRecord, &InterfaceRecord) -> Option<LinkName>,
) -> TapPolicies {
    let nics = interfaces_with_addresses(cluster);
    let evaluation = Evaluation::new(*cluster, &nics);
    let own = nics
        .iter()
        .filter_map(|nic| Some((tap(nic.instance, nic.interface)?, evaluation.policy(nic))));
    own.collect()
}

/// The interfaces of all machines.
pub(super) fn interfaces_with_addresses<'a>(
    cluster: &BridgedCluster<'a>,
) -> Vec<AddressedInterface<'a>> {
    let mut leases: BTreeMap<(&str, &str), BTreeSet<IpAddr>> = BTreeMap::new();
    for pool in cluster.pools.values() {
        for (mac, addresses) in &pool.addresses {
            leases.entry((&pool.network, mac)).or_default().extend(addresses);
        }
    }
    let all = cluster.instances.iter().flat_map(|(key, instance)| {
        instance.interfaces.iter().map(move |interface| (key, instance, interface))
    });
    let nics = all.map(|(key, instance, interface)| {
        let mut addresses = interface.addresses.clone();
        let mac = interface.mac.as_deref().unwrap_or_default();
        addresses.extend(leases.get(&(interface.network.as_str(), mac)).into_iter().flatten());
        AddressedInterface { key, instance, interface, addresses }
    });
    nics.collect()
}

/// The policies of a cluster, resolved once for all interfaces.
pub(super) struct Evaluation<'a> {
    policies: Vec<ResolvedPolicy<'a>>,
}

impl<'a> Evaluation<'a> {
    pub(super) fn new(cluster: BridgedCluster<'a>, nics: &'a [AddressedInterface<'a>]) -> Self {
        let policies = cluster.policies.iter().map(|(key, record)| {
            let resolve = |rules: &'a Option<Vec<RuleRecord>>| {
                let rules = rules.as_ref()?.iter();
                let rules = rules.map(|rule| resolved(&cluster, nics, key, record, rule));
                Some(rules.collect())
            };
            let (ingress, egress) =
                (resolve(&record.policy.ingress), resolve(&record.policy.egress));
            ResolvedPolicy { key, record, ingress, egress }
        });
        Self { policies: policies.collect() }
    }

    pub(super) fn policy(&self, nic: &AddressedInterface<'_>) -> TapPolicy {
        let mut policy = TapPolicy::default();
        for own in self.policies.iter().filter(|own| own.selects(nic)) {
            let name = format!("{}/{}", own.key.namespace, own.key.name);
            if let Some(rules) = &own.ingress {
                let all = policy.ingress.get_or_insert_default();
                all.rules.extend(rules.iter().map(|rule| rule.of_subject(&name, nic)));
                all.policies.insert(name.clone());
            }
            if let Some(rules) = &own.egress {
                let all: &mut TapRules = policy.egress.get_or_insert_default();
                all.rules.extend(rules.iter().flat_map(|rule| rule.of_peers(&name)));
                all.policies.insert(name);
            }
        }
        policy
    }
}

impl ResolvedPolicy<'_> {
    fn selects(&self, nic: &AddressedInterface<'_>) -> bool {
        self.key.namespace == nic.key.namespace
            && self.record.networks.contains(&nic.interface.network)
            && self.record.policy.subjects.matches(&nic.instance.labels)
    }
}

impl ResolvedRule<'_> {
    /// About connections to a guest, which serves the named ports.
    fn of_subject(&self, policy: &str, subject: &AddressedInterface<'_>) -> TapRule {
        let ports = self.ports.map_or(AllowedPorts::All, |ports| {
            AllowedPorts::Only(ports.iter().filter_map(|port| number(port, subject)).collect())
        });
        TapRule { policy: policy.to_owned(), peers: self.peers.clone(), ports }
    }

    /// About connections from a guest. Named ports are looked up at each peer, and become rules of
    /// their own.
    fn of_peers(&self, policy: &str) -> Vec<TapRule> {
        let rule = |peers, ports| TapRule { policy: policy.to_owned(), peers, ports };
        let Some(ports) = self.ports else {
            return vec![rule(self.peers.clone(), AllowedPorts::All)];
        };
        let numbers = ports.iter().filter_map(|port| match port {
            PortRecord::Range(range) => Some(*range),
            PortRecord::Named { .. } => None,
        });
        let mut rules = vec![rule(self.peers.clone(), AllowedPorts::Only(numbers.collect()))];
        for port in ports.iter().filter(|port| matches!(port, PortRecord::Named { .. })) {
            rules.extend(self.nics.iter().filter_map(|nic| {
                let only = TapPeers::Only { addresses: nic.addresses.clone(), blocks: vec![] };
                Some(rule(only, AllowedPorts::Only([number(port, nic)?].into())))
            }));
        }
        rules
    }
}

/// A port as the machine that serves it has it.
fn number(port: &PortRecord, server: &AddressedInterface<'_>) -> Option<PortRange> {
    match port {
        PortRecord::Range(range) => Some(*range),
        PortRecord::Named { protocol, name } => {
            let mut named = server.interface.ports.iter();
            let own = named.find(|own| own.protocol == *protocol && own.name == *name)?;
            Some(PortRange { protocol: *protocol, first: own.port, last: own.port })
        }
    }
}

fn resolved<'a>(
    cluster: &BridgedCluster<'_>,
    nics: &'a [AddressedInterface<'a>],
    key: &ObjectKey,
    policy: &MultiPolicyRecord,
    rule: &'a RuleRecord,
) -> ResolvedRule<'a> {
    let on_networks = || nics.iter().filter(|nic| policy.networks.contains(&nic.interface.network));
    let ports = rule.ports.as_deref();
    let Some(peers) = &rule.peers else {
        return ResolvedRule { ports, peers: TapPeers::Any, nics: on_networks().collect() };
    };
    let (mut selected, mut blocks) = (Vec::new(), Vec::new());
    for peer in peers {
        match peer {
            PeerRecord::Nothing => {}
            PeerRecord::Block { cidr, except } => {
                let except: Vec<IpNet> = except.clone();
                blocks.push(TapBlock { cidr: *cidr, except });
            }
            PeerRecord::Pods { namespaces, pods } => {
                selected.extend(on_networks().filter(|nic| {
                    let namespace = nic.key.namespace.as_str();
                    let is_in = match namespaces {
                        None => namespace == key.namespace,
                        Some(selector) => {
                            let key =
                                ObjectKey { namespace: String::new(), name: namespace.to_owned() };
                            let known = cluster.namespaces.get(&key);
                            known.is_some_and(|own| selector.matches(&own.labels))
                        }
                    };
                    is_in && pods.matches(&nic.instance.labels)
                }));
            }
        }
    }
    let addresses = selected.iter().flat_map(|nic| nic.addresses.iter().copied()).collect();
    ResolvedRule { ports, peers: TapPeers::Only { addresses, blocks }, nics: selected }
}

#[cfg(test)]
mod tests;
