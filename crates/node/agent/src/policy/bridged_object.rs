//! MultiNetworkPolicies, machine instances and address pools, reduced to what the evaluation of
//! policies for interfaces on bridges needs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use hci::dhcp::{mac_of, network_of};
use hci::multi_network_policy::{POLICY_FOR, networks};
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::NetworkPolicySpec;
use kube::api::DynamicObject;
use serde_json::Value;
use virt::v1::Interface;

use super::object::{Labels, NamedPort, PolicyRecord, protocol};

/// A MultiNetworkPolicy.
#[derive(Debug, Clone)]
pub(super) struct MultiPolicyRecord {
    /// NetworkAttachmentDefinitions, as NAMESPACE/NAME.
    pub(super) networks: BTreeSet<String>,
    pub(super) policy: PolicyRecord,
}

impl MultiPolicyRecord {
    pub(super) fn read(object: DynamicObject) -> Option<Self> {
        let annotations = object.metadata.annotations.unwrap_or_default();
        let namespace = object.metadata.namespace.unwrap_or_default();
        Self::new(annotations.get(POLICY_FOR)?, &namespace, object.data.get("spec")?.clone())
    }

    pub(super) fn read_json(object: &Value) -> Option<Self> {
        let policy_for = object["metadata"]["annotations"][POLICY_FOR].as_str()?;
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        Self::new(policy_for, namespace, object["spec"].clone())
    }

    /// Nothing for a policy that names no network, as upstream; admission refuses it.
    fn new(policy_for: &str, namespace: &str, spec: Value) -> Option<Self> {
        let networks = networks(policy_for, namespace).ok()?;
        let spec: NetworkPolicySpec = serde_json::from_value(spec).ok()?;
        Some(Self { networks, policy: PolicyRecord::of_spec(spec) })
    }
}

/// A machine instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InstanceRecord {
    pub(super) uid: String,
    pub(super) labels: Labels,
    /// Where it runs, and where it migrates to.
    pub(super) nodes: BTreeSet<String>,
    pub(super) interfaces: Vec<InterfaceRecord>,
}

/// An interface on a network beside the guest network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InterfaceRecord {
    pub(super) name: String,
    /// NetworkAttachmentDefinition: NAMESPACE/NAME.
    pub(super) network: String,
    pub(super) mac: Option<String>,
    /// Those that the instance reports.
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) ports: Vec<NamedPort>,
}

impl InstanceRecord {
    pub(super) fn read(object: DynamicObject) -> Option<Self> {
        Self::read_json(&serde_json::to_value(object).ok()?)
    }

    /// Nothing for an instance that has ended, or that has no such interface.
    pub(super) fn read_json(object: &Value) -> Option<Self> {
        let (metadata, status) = (&object["metadata"], &object["status"]);
        let has_ended = ["Succeeded", "Failed"].map(Value::from).contains(&status["phase"]);
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let networks = object["spec"]["networks"].as_array().into_iter().flatten();
        let networks: BTreeMap<&str, String> = networks
            .filter_map(|network| {
                let definition = network["multus"]["networkName"].as_str()?;
                let (namespace, name) =
                    definition.split_once('/').unwrap_or((namespace, definition));
                Some((network["name"].as_str()?, format!("{namespace}/{name}")))
            })
            .collect();
        let interfaces = object.pointer("/spec/domain/devices/interfaces")?.as_array()?;
        let interfaces: Vec<_> = interfaces
            .iter()
            .filter_map(|own| serde_json::from_value::<Interface>(own.clone()).ok())
            .filter_map(|own| {
                let network = networks.get(own.name.as_str())?.clone();
                Some(InterfaceRecord::new(&own, network, status))
            })
            .collect();
        if has_ended || interfaces.is_empty() {
            return None;
        }
        let migration = &status["migrationState"];
        let nodes = [&status["nodeName"], &migration["targetNode"]];
        let labels = serde_json::from_value(metadata["labels"].clone()).unwrap_or_default();
        Some(Self {
            uid: metadata["uid"].as_str()?.to_owned(),
            labels,
            nodes: nodes.into_iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            interfaces,
        })
    }
}

impl InterfaceRecord {
    fn new(own: &Interface, network: String, status: &Value) -> Self {
        let reported = status["interfaces"].as_array().into_iter().flatten();
        let reported: Vec<_> =
            reported.filter(|each| each["name"].as_str() == Some(&own.name)).collect();
        let macs = reported.iter().filter_map(|each| each["mac"].as_str());
        let mac = macs.chain(own.mac_address.as_deref()).find(|mac| !mac.is_empty()).map(mac_of);
        let texts = reported.iter().flat_map(|each| {
            let all = each["ipAddresses"].as_array().into_iter().flatten();
            all.chain([&each["ipAddress"]]).filter_map(Value::as_str)
        });
        // The guest agent reports addresses with the length of their prefix in some versions.
        let texts = texts.map(|text| text.split_once('/').map_or(text, |(address, _)| address));
        let ports = own.ports.iter().filter_map(|port| {
            Some(NamedPort {
                protocol: protocol(port.protocol.as_deref())?,
                name: port.name.clone().filter(|name| !name.is_empty())?,
                port: u16::try_from(port.port).ok()?,
            })
        });
        Self {
            name: own.name.clone(),
            network,
            mac,
            addresses: texts.filter_map(|text| text.parse().ok()).collect(),
            ports: ports.collect(),
        }
    }
}

/// The addresses that a pool has given to interfaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// NetworkAttachmentDefinition: NAMESPACE/NAME.
    pub(super) network: String,
    pub(super) subnet: Option<IpNet>,
    /// By MAC address.
    pub(super) addresses: BTreeMap<String, BTreeSet<IpAddr>>,
}

impl LeaseRecord {
    pub(super) fn read(object: DynamicObject) -> Option<Self> {
        Self::read_json(&object.data)
    }

    pub(super) fn read_json(object: &Value) -> Option<Self> {
        let (namespace, name) = network_of(object["spec"]["networkName"].as_str()?);
        let mut addresses: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        let allocated = object.pointer("/status/ipv4/allocated").and_then(Value::as_object);
        for (address, mac) in allocated.into_iter().flatten() {
            if let (Ok(address), Some(mac)) = (address.parse(), mac.as_str()) {
                addresses.entry(mac_of(mac)).or_default().insert(address);
            }
        }
        let subnet = object.pointer("/spec/ipv4Config/cidr").and_then(Value::as_str);
        let subnet = subnet.and_then(|subnet| subnet.parse().ok());
        Some(Self { network: format!("{namespace}/{name}"), subnet, addresses })
    }
}
