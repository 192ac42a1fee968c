//! Policies evaluated from a snapshot of objects, for one node at a time. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::Ipv4Net;
use net::{FirstPacket, Ingress, Policies, PolicyVerdict};
use serde_json::Value;

use super::LocalGuests;
use super::object::{NamespaceRecord, PodRecord, PolicyRecord};
use super::plan::{self, Cluster};
use crate::known_objects::{ObjectKey, read_all};
use crate::overlay::RemoteGuests;

/// Objects that policies are evaluated from.
pub(crate) struct PolicySnapshot {
    policies: BTreeMap<ObjectKey, PolicyRecord>,
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

/// Policies that are about a guest in one direction, and those of them that allow a packet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DecidingPolicies {
    pub(crate) about: Vec<String>,
    pub(crate) allowing: Vec<String>,
}

impl PolicySnapshot {
    pub(crate) fn new(policies: &[Value], namespaces: &[Value], pods: &[Value]) -> Self {
        Self {
            policies: read_all(policies, PolicyRecord::read),
            namespaces: read_all(namespaces, NamespaceRecord::read),
            pods: read_all(pods, PodRecord::read),
        }
    }

    fn evaluate(
        &self,
        node: &JudgingNode<'_>,
        policies: &BTreeMap<ObjectKey, PolicyRecord>,
    ) -> Policies {
        plan::policies(&Cluster {
            policies,
            namespaces: &self.namespaces,
            pods: &self.pods,
            local: &LocalGuests::new(),
            remote: node.remote,
            node: node.name,
            network: node.network,
        })
    }

    /// The restrictions that the agent of a node enforces.
    pub(crate) fn of_node(&self, node: &JudgingNode<'_>) -> Policies {
        self.evaluate(node, &self.policies)
    }

    /// Policies that decide about what a guest sends.
    pub(crate) fn egress(&self, node: &JudgingNode<'_>, packet: &FirstPacket) -> DecidingPolicies {
        self.deciding(node, |own| {
            let is_about = own.restricted.get(&packet.from).is_some_and(|own| own.egress.is_some());
            is_about.then(|| own.judge_egress(packet))
        })
    }

    /// Policies that decide about what a guest is sent.
    pub(crate) fn ingress(&self, node: &JudgingNode<'_>, packet: &FirstPacket) -> DecidingPolicies {
        self.deciding(node, |own| {
            let restricted = own.restricted.get(&packet.to);
            let is_about = restricted.is_some_and(|own| matches!(own.ingress, Ingress::Only(_)));
            is_about.then(|| own.judge_ingress(packet, node.network, &BTreeSet::new()))
        })
    }

    /// Each policy by itself: rules of several are one list in force.
    fn deciding(
        &self,
        node: &JudgingNode<'_>,
        verdict: impl Fn(&Policies) -> Option<PolicyVerdict>,
    ) -> DecidingPolicies {
        let mut found = DecidingPolicies::default();
        for (key, policy) in &self.policies {
            let alone = BTreeMap::from([(key.clone(), policy.clone())]);
            if let Some(verdict) = verdict(&self.evaluate(node, &alone)) {
                let name = format!("{}/{}", key.namespace, key.name);
                if verdict == PolicyVerdict::Accept {
                    found.allowing.push(name.clone());
                }
                found.about.push(name);
            }
        }
        found
    }
}
