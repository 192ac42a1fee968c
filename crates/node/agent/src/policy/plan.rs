//! Evaluates NetworkPolicies and ClusterNetworkPolicies for guests: selectors become addresses. Pure.
//!
//! A guest that a policy selects for a direction may be reached, or reach others, only as one of
//! its policies allows. A guest that none selects for ingress accepts what comes from its own
//! namespace and from outside the guest network, unless its namespace asks for no isolation.

mod tier;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::{IpNet, Ipv4Net};
use kube::core::{Selector, SelectorExt as _};
use net::{
    AddressBlock, AllowRule, AllowedPorts, GuestPolicy, Ingress, Peers, Policies, PortRange,
};

use super::LocalGuests;
use super::cluster_object::ClusterPolicyRecord;
use super::object::{
    Labels, NamedPort, NamespaceRecord, PeerRecord, PodRecord, PolicyRecord, PortRecord, RuleRecord,
};
use crate::known_objects::ObjectKey;
use crate::overlay::RemoteGuests;
use tier::ClusterPolicyRules;

/// The label of a launcher pod with the uid of its VirtualMachineInstance.
const CREATED_BY: &str = "kubevirt.io/created-by";

/// The label of a launcher pod with the name of its VirtualMachineInstance.
const MACHINE: &str = "vm.kubevirt.io/name";

/// A guest that this node connects, before its pod shows an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalGuest {
    pub(crate) namespace: String,
    pub(crate) uid: String,
    /// Those of the VirtualMachineInstance.
    pub(crate) labels: BTreeMap<String, String>,
}

/// Everything that policies are evaluated from.
pub(super) struct Cluster<'a> {
    pub(super) policies: &'a BTreeMap<ObjectKey, PolicyRecord>,
    pub(super) cluster_policies: &'a BTreeMap<ObjectKey, ClusterPolicyRecord>,
    pub(super) namespaces: &'a BTreeMap<ObjectKey, NamespaceRecord>,
    pub(super) pods: &'a BTreeMap<ObjectKey, PodRecord>,
    pub(super) local: &'a LocalGuests,
    /// Guests of other nodes that have an address of the same network. Other addresses of pods
    /// elsewhere mean nothing here.
    pub(super) remote: &'a RemoteGuests,
    /// The node whose guests are judged.
    pub(super) node: &'a str,
    /// The network of its guests.
    pub(super) network: Ipv4Net,
}

/// A guest with its address.
struct SelectedGuest<'a> {
    namespace: &'a str,
    labels: Labels,
    ports: &'a [NamedPort],
    /// Whether this node judges its connections.
    is_local: bool,
}

type Guests<'a> = BTreeMap<Ipv4Addr, SelectedGuest<'a>>;

pub(super) fn policies(cluster: &Cluster<'_>) -> Policies {
    let guests = guests(cluster);
    let tiers = ClusterPolicyRules::new(cluster, &guests);
    let evaluation = Evaluation { cluster, guests: &guests, tiers: &tiers };
    let local = || guests.iter().filter(|(_, guest)| guest.is_local);
    let restricted = local().filter_map(|(address, guest)| {
        let policy = evaluation.policy(guest);
        (policy != GuestPolicy::default()).then_some((*address, policy))
    });
    let guests = local().map(|(address, _)| *address);
    Policies { guests: guests.collect(), restricted: restricted.collect(), ..Policies::default() }
}

/// Guests by address. This node's own attachments are newer than the addresses in pods.
fn guests<'a>(cluster: &Cluster<'a>) -> Guests<'a> {
    let mut guests = Guests::new();
    let mut launchers = BTreeMap::new();
    let here = |pod: &PodRecord| pod.node.as_deref() == Some(cluster.node);
    for (key, pod) in cluster.pods.iter().filter(|(_, pod)| !here(pod)) {
        if let Some(address) = pod.address.filter(|address| is_remote(cluster, key, pod, *address))
        {
            let (namespace, labels, ports) = (&*key.namespace, pod.labels.clone(), &*pod.ports);
            guests.insert(address, SelectedGuest { namespace, labels, ports, is_local: false });
        }
    }
    for (key, pod) in cluster.pods.iter().filter(|(_, pod)| here(pod)) {
        if let Some(uid) = pod.labels.get(CREATED_BY) {
            launchers.insert((key.namespace.as_str(), uid.as_str()), pod);
        }
        let address = pod.address.filter(|address| cluster.network.contains(address));
        if let Some(address) = address {
            let (namespace, labels, ports) = (&*key.namespace, pod.labels.clone(), &*pod.ports);
            guests.insert(address, SelectedGuest { namespace, labels, ports, is_local: true });
        }
    }
    for (address, local) in cluster.local {
        let launcher = launchers.get(&(local.namespace.as_str(), local.uid.as_str()));
        let labels = launcher.map_or_else(|| local.labels.clone(), |pod| pod.labels.clone());
        let ports = launcher.map_or(&[][..], |pod| &pod.ports);
        let namespace = local.namespace.as_str();
        guests.insert(*address, SelectedGuest { namespace, labels, ports, is_local: true });
    }
    guests
}

/// Whether a pod of another node represents the guest that holds `address`.
fn is_remote(cluster: &Cluster<'_>, key: &ObjectKey, pod: &PodRecord, address: Ipv4Addr) -> bool {
    cluster.remote.get(&address).is_some_and(|guest| {
        // Label values are shorter than names.
        let name = guest.name.get(..63).unwrap_or(&guest.name);
        guest.namespace == key.namespace && pod.labels.get(MACHINE).is_some_and(|own| own == name)
    })
}

struct Evaluation<'a> {
    cluster: &'a Cluster<'a>,
    guests: &'a Guests<'a>,
    tiers: &'a ClusterPolicyRules<'a>,
}

impl Evaluation<'_> {
    fn policy(&self, guest: &SelectedGuest<'_>) -> GuestPolicy {
        let (mut ingress, mut egress) = (None::<Vec<AllowRule>>, None::<Vec<AllowRule>>);
        for (key, policy) in self.cluster.policies {
            if key.namespace != guest.namespace || !policy.subjects.matches(&guest.labels) {
                continue;
            }
            if let Some(rules) = &policy.ingress {
                let rules = rules.iter().map(|rule| self.ingress_rule(rule, guest));
                ingress.get_or_insert_default().extend(rules);
            }
            if let Some(rules) = &policy.egress {
                let rules = rules.iter().flat_map(|rule| self.egress_rules(rule, guest.namespace));
                egress.get_or_insert_default().extend(rules);
            }
        }
        let namespace = namespace(self.cluster, guest.namespace);
        let ingress = match ingress {
            Some(rules) => Ingress::Only(rules),
            // A namespace that is not known yet is closed, as a new one is.
            None if namespace.is_none_or(|namespace| namespace.is_isolated) => {
                Ingress::IsolatedTo(self.of_namespace(guest.namespace))
            }
            None => Ingress::All,
        };
        let (ingress_tiers, egress_tiers) = self.tiers.of(self.cluster, guest);
        GuestPolicy { ingress, egress, ingress_tiers, egress_tiers }
    }

    fn of_namespace(&self, namespace: &str) -> BTreeSet<Ipv4Addr> {
        let own = self.guests.iter().filter(|(_, guest)| guest.namespace == namespace);
        own.map(|(address, _)| *address).collect()
    }

    fn ingress_rule(&self, rule: &RuleRecord, subject: &SelectedGuest<'_>) -> AllowRule {
        let ports = rule.ports.as_ref().map_or(AllowedPorts::All, |ports| {
            AllowedPorts::Only(ports.iter().filter_map(|port| resolve(port, subject)).collect())
        });
        AllowRule { peers: self.peers(rule, subject.namespace), ports }
    }

    /// Named ports are looked up at each peer, and become rules of their own.
    fn egress_rules(&self, rule: &RuleRecord, namespace: &str) -> Vec<AllowRule> {
        let peers = self.peers(rule, namespace);
        let Some(ports) = &rule.ports else {
            return vec![AllowRule { peers, ports: AllowedPorts::All }];
        };
        let numbered = ports.iter().filter_map(|port| match port {
            PortRecord::Range(range) => Some(*range),
            PortRecord::Named { .. } => None,
        });
        let numbered = AllowedPorts::Only(numbered.collect());
        let named = ports.iter().filter(|port| matches!(port, PortRecord::Named { .. }));
        let named = named.flat_map(|port| {
            let among = |address: &Ipv4Addr| match &peers {
                Peers::Any => true,
                Peers::Only { addresses, .. } => addresses.contains(address),
            };
            let guests = self.guests.iter().filter(move |(address, _)| among(address));
            guests.filter_map(|(address, guest)| {
                let peers = Peers::Only { addresses: [*address].into(), blocks: vec![] };
                let ports = AllowedPorts::Only([resolve(port, guest)?].into());
                Some(AllowRule { peers, ports })
            })
        });
        let mut rules: Vec<_> = named.collect();
        rules.insert(0, AllowRule { peers, ports: numbered });
        rules
    }

    fn peers(&self, rule: &RuleRecord, namespace: &str) -> Peers {
        let Some(peers) = &rule.peers else { return Peers::Any };
        let (mut addresses, mut blocks) = (BTreeSet::new(), Vec::new());
        for peer in peers {
            match peer {
                PeerRecord::Nothing => {}
                PeerRecord::Block { cidr, except } => blocks.extend(v4_block(cidr, except)),
                PeerRecord::Pods { namespaces, pods } => {
                    let selected = self.guests.iter().filter(|(_, guest)| {
                        let is_in = match namespaces {
                            None => guest.namespace == namespace,
                            Some(selector) => {
                                is_namespace_selected(self.cluster, selector, guest.namespace)
                            }
                        };
                        is_in && pods.matches(&guest.labels)
                    });
                    addresses.extend(selected.map(|(address, _)| *address));
                }
            }
        }
        Peers::Only { addresses, blocks }
    }
}

/// A block as far as it is on a network of IPv4.
fn v4_block(cidr: &IpNet, except: &[IpNet]) -> Option<AddressBlock> {
    let v4 = |net: &IpNet| match net {
        IpNet::V4(net) => Some(*net),
        IpNet::V6(_) => None,
    };
    Some(AddressBlock { cidr: v4(cidr)?, except: except.iter().filter_map(v4).collect() })
}

fn is_namespace_selected(cluster: &Cluster<'_>, selector: &Selector, name: &str) -> bool {
    namespace(cluster, name).is_some_and(|namespace| selector.matches(&namespace.labels))
}

fn namespace<'a>(cluster: &Cluster<'a>, name: &str) -> Option<&'a NamespaceRecord> {
    let key = ObjectKey { namespace: String::new(), name: name.to_owned() };
    cluster.namespaces.get(&key)
}

/// A port as a guest that serves it has it.
fn resolve(port: &PortRecord, server: &SelectedGuest<'_>) -> Option<PortRange> {
    match port {
        PortRecord::Range(range) => Some(*range),
        PortRecord::Named { protocol, name } => {
            let found =
                server.ports.iter().find(|own| own.protocol == *protocol && own.name == *name);
            found.map(|own| PortRange { protocol: *protocol, first: own.port, last: own.port })
        }
    }
}

#[cfg(test)]
mod tests;
