//! Policies of interfaces on bridges, evaluated from a snapshot of objects. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use net::{BridgedPacket, TapPolicy, TapVerdict};
use serde_json::Value;

use super::bridged::{BridgedCluster, Evaluation, interfaces_with_addresses};
use super::bridged_object::{InstanceRecord, LeaseRecord, MultiPolicyRecord};
use super::object::NamespaceRecord;
use super::snapshot::Ruling;
use crate::known_objects::{ObjectKey, read_all};

/// Objects as the API shows them.
pub(crate) struct BridgedSources<'a> {
    pub(crate) policies: &'a [Value],
    pub(crate) namespaces: &'a [Value],
    pub(crate) instances: &'a [Value],
    pub(crate) pools: &'a [Value],
}

/// An interface of a machine on a network beside the guest network, with its policies.
#[derive(Debug)]
pub(crate) struct BridgedInterface {
    /// The machine, as NAMESPACE/NAME.
    pub(crate) machine: String,
    pub(crate) interface: String,
    /// NetworkAttachmentDefinition: NAMESPACE/NAME.
    pub(crate) network: String,
    pub(crate) addresses: BTreeSet<IpAddr>,
    /// Those of the pools of the network.
    pub(crate) subnets: Vec<IpNet>,
    policy: TapPolicy,
}

/// All interfaces on networks beside the guest network.
pub(crate) fn bridged_interfaces(sources: &BridgedSources<'_>) -> Vec<BridgedInterface> {
    let policies: BTreeMap<_, _> = records(sources.policies, MultiPolicyRecord::read_json);
    let namespaces = read_all(sources.namespaces, NamespaceRecord::read);
    let instances = records(sources.instances, InstanceRecord::read_json);
    let pools = records(sources.pools, LeaseRecord::read_json);
    let cluster = BridgedCluster {
        policies: &policies,
        namespaces: &namespaces,
        instances: &instances,
        pools: &pools,
    };
    let nics = interfaces_with_addresses(&cluster);
    let evaluation = Evaluation::new(cluster, &nics);
    let all = nics.iter().map(|nic| {
        let network = nic.interface.network.clone();
        let of_network = pools.values().filter(|pool| pool.network == network);
        BridgedInterface {
            machine: format!("{}/{}", nic.key.namespace, nic.key.name),
            interface: nic.interface.name.clone(),
            subnets: of_network.filter_map(|pool| pool.subnet).collect(),
            addresses: nic.addresses.clone(),
            policy: evaluation.policy(nic),
            network,
        }
    });
    all.collect()
}

impl BridgedInterface {
    /// The decision about a packet that the machine sends.
    pub(crate) fn egress(&self, packet: &BridgedPacket) -> Ruling {
        ruling(self.policy.judge_egress(packet), "what it sends")
    }

    /// The decision about a packet that the machine is sent.
    pub(crate) fn ingress(&self, packet: &BridgedPacket) -> Ruling {
        ruling(self.policy.judge_ingress(packet), "who reaches it")
    }
}

fn ruling(verdict: TapVerdict<'_>, free: &str) -> Ruling {
    let (is_accepted, detail) = match verdict {
        TapVerdict::Unrestricted => (true, format!("no MultiNetworkPolicy restricts {free}")),
        TapVerdict::Allowed(policy) => (true, format!("allowed by MultiNetworkPolicy {policy}")),
        TapVerdict::Dropped(policies) => {
            let all: Vec<&str> = policies.iter().map(String::as_str).collect();
            let all = all.join(", ");
            (false, format!("MultiNetworkPolicy {all} selects it, and no rule allows this"))
        }
    };
    Ruling { is_accepted, detail }
}

fn records<Record>(
    objects: &[Value],
    read: fn(&Value) -> Option<Record>,
) -> BTreeMap<ObjectKey, Record> {
    let text = |object: &Value, field: &str| {
        object["metadata"][field].as_str().unwrap_or_default().to_owned()
    };
    let records = objects.iter().filter_map(|object| {
        let key = ObjectKey { namespace: text(object, "namespace"), name: text(object, "name") };
        Some((key, read(object)?))
    });
    records.collect()
}
