//! Policies evaluated from a snapshot of objects, for one node at a time. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ipnet::Ipv4Net;
use net::{Decider, FirstPacket, Judgement, Policies, RuleSource, Tier};
use serde_json::Value;

use super::LocalGuests;
use super::cluster_object::ClusterPolicyRecord;
use super::object::{NamespaceRecord, PodRecord, PolicyRecord};
use super::plan::{self, Cluster};
use crate::known_objects::{ObjectKey, read_all};
use crate::overlay::RemoteGuests;

/// Objects as the API shows them.
pub(crate) struct PolicySources<'a> {
    pub(crate) policies: &'a [Value],
    pub(crate) cluster_policies: &'a [Value],
    pub(crate) namespaces: &'a [Value],
    pub(crate) pods: &'a [Value],
}

/// Objects that policies are evaluated from.
pub(crate) struct PolicySnapshot {
    policies: BTreeMap<ObjectKey, PolicyRecord>,
    cluster_policies: BTreeMap<ObjectKey, ClusterPolicyRecord>,
    namespaces: BTreeMap<ObjectKey, NamespaceRecord>,
    pods: BTreeMap<ObjectKey, PodRecord>,
}

/// A node whose guests are judged.
pub(crate) struct JudgingNode<'a> {
    pub(crate) name: &'a str,
    pub(crate) network: Ipv4Net,
    /// Guests of other nodes.
    pub(crate) remote: &'a RemoteGuests,
}

/// A decision, and what it follows from.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ruling {
    pub(crate) is_accepted: bool,
    pub(crate) detail: String,
}

/// NetworkPolicies that concern a guest in one direction, and those of them that allow a packet.
#[derive(Debug, Default)]
struct DecidingPolicies {
    about: Vec<String>,
    allowing: Vec<String>,
}

impl PolicySnapshot {
    pub(crate) fn new(sources: &PolicySources<'_>) -> Self {
        let cluster_policies = sources.cluster_policies.iter().filter_map(|object| {
            let name = object["metadata"]["name"].as_str()?.to_owned();
            let key = ObjectKey { namespace: String::new(), name };
            Some((key, ClusterPolicyRecord::read_json(object.clone())?))
        });
        Self {
            policies: read_all(sources.policies, PolicyRecord::read),
            cluster_policies: cluster_policies.collect(),
            namespaces: read_all(sources.namespaces, NamespaceRecord::read),
            pods: read_all(sources.pods, PodRecord::read),
        }
    }

    fn evaluate(
        &self,
        node: &JudgingNode<'_>,
        policies: &BTreeMap<ObjectKey, PolicyRecord>,
        cluster_policies: &BTreeMap<ObjectKey, ClusterPolicyRecord>,
    ) -> Policies {
        plan::policies(&Cluster {
            policies,
            cluster_policies,
            namespaces: &self.namespaces,
            pods: &self.pods,
            local: &LocalGuests::new(),
            remote: node.remote,
            node: node.name,
            network: node.network,
        })
    }

    /// The verdict of the policies on packets that a guest of a node sends, as its agent enforces them.
    pub(crate) fn egress(&self, node: &JudgingNode<'_>, packet: &FirstPacket) -> Ruling {
        let all = self.evaluate(node, &self.policies, &self.cluster_policies);
        let judgement = all.judge_egress(packet);
        let deciding = || self.deciding(node, |own| own.judge_egress(packet));
        ruling(&judgement, "egress", "no policy restricts what it sends", "", deciding)
    }

    /// The decision about what a guest of a node is sent. `name` is that of the guest.
    pub(crate) fn ingress(
        &self,
        node: &JudgingNode<'_>,
        packet: &FirstPacket,
        name: &str,
    ) -> Ruling {
        let all = self.evaluate(node, &self.policies, &self.cluster_policies);
        let nodes = BTreeSet::new();
        let judgement = all.judge_ingress(packet, node.network, &nodes);
        let deciding =
            || self.deciding(node, |own| own.judge_ingress(packet, node.network, &nodes));
        let isolated = format!(
            "no policy selects {name}, and its namespace is isolated: only guests of the same \
             namespace and what is outside reach it"
        );
        ruling(&judgement, "ingress", "no policy restricts who reaches it", &isolated, deciding)
    }

    /// Each NetworkPolicy by itself: rules of several are one list in force.
    fn deciding(
        &self,
        node: &JudgingNode<'_>,
        judge: impl for<'a> Fn(&'a Policies) -> Judgement<'a>,
    ) -> DecidingPolicies {
        let mut found = DecidingPolicies::default();
        for (key, policy) in &self.policies {
            let alone = BTreeMap::from([(key.clone(), policy.clone())]);
            let evaluated = self.evaluate(node, &alone, &BTreeMap::new());
            let judgement = judge(&evaluated);
            if judgement.decider == Decider::Namespace {
                let name = format!("{}/{}", key.namespace, key.name);
                if judgement.is_accepted {
                    found.allowing.push(name.clone());
                }
                found.about.push(name);
            }
        }
        found
    }
}

/// The decision in words, with the names of the policies that made it. `free` and `isolated` are what
/// is said where no policy decides.
fn ruling(
    judgement: &Judgement<'_>,
    direction: &str,
    free: &str,
    isolated: &str,
    deciding: impl Fn() -> DecidingPolicies,
) -> Ruling {
    let is_accepted = judgement.is_accepted;
    let mut detail = match judgement.decider {
        Decider::UnknownGuest => "its policies are not known: it is cut off".to_owned(),
        Decider::Tier(tier, source) => {
            let verb = if is_accepted { "allowed" } else { "denied" };
            format!("{verb} by {}", place(tier, source, direction))
        }
        Decider::Namespace => {
            let DecidingPolicies { about, allowing } = deciding();
            if is_accepted {
                format!("allowed by NetworkPolicy {}", allowing.join(", "))
            } else {
                let about = about.join(", ");
                format!("NetworkPolicy {about} selects it, and no rule allows this")
            }
        }
        Decider::Isolation if !is_accepted => isolated.to_owned(),
        Decider::Isolation | Decider::Nothing => free.to_owned(),
    };
    for (tier, source) in &judgement.passed {
        let _ = write!(detail, "; left to the next tier by {}", place(*tier, source, direction));
    }
    Ruling { is_accepted, detail }
}

/// Where a rule of an administrator is written.
fn place(tier: Tier, source: &RuleSource, direction: &str) -> String {
    let RuleSource { policy, priority, number, name } = source;
    let name = name.as_deref().filter(|name| !name.is_empty());
    let name = name.map_or_else(String::new, |name| format!(" {name:?}"));
    format!(
        "ClusterNetworkPolicy {policy}, {direction} rule {number}{name} (tier {tier}, priority \
         {priority})"
    )
}
