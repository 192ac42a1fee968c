//! Evaluates ClusterNetworkPolicies for guests. Pure.
//!
//! Policies are ordered by tier, priority and name. A rule is resolved once and shared by all guests
//! that its policy selects, but for rules about connections to named ports of these guests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::core::SelectorExt as _;
use net::{
    AddressBlock, AllowedPorts, Peers, PortRange, RuleSource, Tier, TierAction, TierRule, Tiers,
};

use super::super::cluster_object::{ClusterPolicyRecord, GuestSelector, TierPeers, TierRuleRecord};
use super::{Cluster, Guests, SelectedGuest, is_namespace_selected};

/// The policies of the cluster with addresses of their peers, in the order of their evaluation.
pub(super) struct ClusterPolicyRules<'a> {
    policies: Vec<ResolvedPolicy<'a>>,
}

struct ResolvedPolicy<'a> {
    tier: Tier,
    subject: &'a GuestSelector,
    /// With named ports left out, which are those of the subject.
    ingress: Vec<(Arc<TierRule>, &'a TierRuleRecord)>,
    egress: Vec<Arc<TierRule>>,
}

impl<'a> ClusterPolicyRules<'a> {
    pub(super) fn new(cluster: &Cluster<'a>, guests: &Guests<'_>) -> Self {
        let resolver = Resolver { cluster, guests };
        let mut ordered: Vec<_> = cluster.cluster_policies.iter().collect();
        ordered.sort_by_key(|(key, policy)| (policy.tier, policy.priority, *key));
        let policies = ordered.into_iter().filter_map(|(key, policy)| {
            Some(ResolvedPolicy {
                tier: policy.tier,
                subject: policy.subject.as_ref()?,
                ingress: resolver.ingress(&key.name, policy),
                egress: resolver.egress(&key.name, policy),
            })
        });
        Self { policies: policies.collect() }
    }

    /// Rules about connections to a guest, and from it.
    pub(super) fn of(&self, cluster: &Cluster<'_>, guest: &SelectedGuest<'_>) -> (Tiers, Tiers) {
        let (mut ingress, mut egress) = (Tiers::default(), Tiers::default());
        for policy in self.policies.iter().filter(|own| selects(cluster, own.subject, guest)) {
            let own = policy.ingress.iter().map(|(rule, record)| for_subject(rule, record, guest));
            in_tier(&mut ingress, policy.tier).extend(own);
            in_tier(&mut egress, policy.tier).extend(policy.egress.iter().map(Arc::clone));
        }
        (ingress, egress)
    }
}

fn in_tier(tiers: &mut Tiers, tier: Tier) -> &mut Vec<Arc<TierRule>> {
    match tier {
        Tier::Admin => &mut tiers.admin,
        Tier::Baseline => &mut tiers.baseline,
    }
}

fn selects(cluster: &Cluster<'_>, selector: &GuestSelector, guest: &SelectedGuest<'_>) -> bool {
    is_namespace_selected(cluster, &selector.namespaces, guest.namespace)
        && selector.pods.matches(&guest.labels)
}

/// The rule with the named ports of the guest that it concerns.
fn for_subject(
    rule: &Arc<TierRule>,
    record: &TierRuleRecord,
    guest: &SelectedGuest<'_>,
) -> Arc<TierRule> {
    let named: BTreeSet<_> = record.names().flat_map(|name| ports_of(guest, name)).collect();
    match &rule.ports {
        AllowedPorts::Only(ranges) if !named.is_empty() => {
            let ports = AllowedPorts::Only(ranges.union(&named).copied().collect());
            Arc::new(TierRule { ports, ..TierRule::clone(rule) })
        }
        _ => Arc::clone(rule),
    }
}

/// Ports with a name, of every protocol that has one.
fn ports_of<'a>(
    guest: &'a SelectedGuest<'_>,
    name: &'a str,
) -> impl Iterator<Item = PortRange> + 'a {
    let own = guest.ports.iter().filter(move |own| own.name == name);
    own.map(|own| PortRange { protocol: own.protocol, first: own.port, last: own.port })
}

struct Resolver<'a, 'b> {
    cluster: &'b Cluster<'a>,
    guests: &'b Guests<'b>,
}

impl<'a> Resolver<'a, '_> {
    fn ingress(
        &self,
        name: &str,
        policy: &'a ClusterPolicyRecord,
    ) -> Vec<(Arc<TierRule>, &'a TierRuleRecord)> {
        let rules = policy.ingress.iter().enumerate();
        let rules = rules.map(|(index, record)| {
            let rule = TierRule {
                source: source(name, policy, index, record),
                action: record.action,
                peers: self.peers(&record.peers),
                ports: numbered(record),
            };
            (Arc::new(rule), record)
        });
        rules.collect()
    }

    /// Named ports are looked up at each peer: peers with the same ports share a rule.
    fn egress(&self, name: &str, policy: &'a ClusterPolicyRecord) -> Vec<Arc<TierRule>> {
        let mut rules = Vec::new();
        for (index, record) in policy.egress.iter().enumerate() {
            let source = source(name, policy, index, record);
            let peers = self.peers(&record.peers);
            for (addresses, ports) in self.named(&peers, record) {
                rules.push(TierRule {
                    source: source.clone(),
                    action: record.action,
                    peers: Peers::Only { addresses, blocks: vec![] },
                    ports: AllowedPorts::Only(ports),
                });
            }
            let action: TierAction = record.action;
            rules.push(TierRule { source, action, peers, ports: numbered(record) });
        }
        rules.into_iter().map(Arc::new).collect()
    }

    /// Peers that serve the named ports of a rule, with these ports.
    fn named(
        &self,
        peers: &Peers,
        record: &TierRuleRecord,
    ) -> Vec<(BTreeSet<Ipv4Addr>, BTreeSet<PortRange>)> {
        let mut by_ports: BTreeMap<BTreeSet<PortRange>, BTreeSet<Ipv4Addr>> = BTreeMap::new();
        let Peers::Only { addresses, .. } = peers else { return vec![] };
        for (address, guest) in self.guests.iter().filter(|(own, _)| addresses.contains(own)) {
            let ports: BTreeSet<_> =
                record.names().flat_map(|name| ports_of(guest, name)).collect();
            if !ports.is_empty() {
                by_ports.entry(ports).or_default().insert(*address);
            }
        }
        by_ports.into_iter().map(|(ports, addresses)| (addresses, ports)).collect()
    }

    fn peers(&self, peers: &TierPeers) -> Peers {
        let TierPeers::Only { guests, networks } = peers else { return Peers::Any };
        let selected = self.guests.iter().filter(|(_, guest)| {
            guests.iter().any(|selector| selects(self.cluster, selector, guest))
        });
        let block = |cidr: &ipnet::Ipv4Net| AddressBlock { cidr: *cidr, except: vec![] };
        Peers::Only {
            addresses: selected.map(|(address, _)| *address).collect(),
            blocks: networks.iter().map(block).collect(),
        }
    }
}

fn numbered(record: &TierRuleRecord) -> AllowedPorts {
    match record.ports {
        None => AllowedPorts::All,
        Some(_) => AllowedPorts::Only(record.ranges().collect()),
    }
}

fn source(
    policy: &str,
    record: &ClusterPolicyRecord,
    index: usize,
    rule: &TierRuleRecord,
) -> RuleSource {
    RuleSource {
        policy: policy.to_owned(),
        priority: record.priority,
        number: index + 1,
        name: rule.name.clone(),
    }
}

#[cfg(test)]
mod tests;
