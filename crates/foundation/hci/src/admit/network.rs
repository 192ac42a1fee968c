//! Cluster networks, their uplinks and the networks of machines, with the texts of Harvester's
//! network webhook.

mod definition;
mod host;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{AdmissionResult, Refusal, Write, text};
use crate::harvester::network::{LinkMonitor, VlanConfig};
use crate::host_network::ChangePolicy;
use crate::link_monitor::{LinkRule, LinkRuleError};
use crate::network::{
    CLUSTER_NETWORK_KEY, DEFAULT_MTU, GROUP, MANAGEMENT, MATCHED_NODES_KEY, NAME_LIMIT,
    UPLINK_MTU_KEY, selects, uplink_mtu,
};

pub(super) use definition::{complete as complete_definition, validate as validate_definition};
pub(super) use host::validate as validate_host_config;

const CNI: &str = "k8s.cni.cncf.io";
const DEFINITIONS: &str = "network-attachment-definitions";
const CLUSTER_NETWORK_POINTER: &str = "/metadata/labels/network.harvesterhci.io~1clusternetwork";
const MTU_POINTER: &str = "/metadata/annotations/network.harvesterhci.io~1uplink-mtu";

/// A refusal that says what could not be done to what.
fn refuse(write: &Write<'_>, kind: &str, field: &'static str, why: &str) -> Refusal {
    let verb = match (write.object, write.old) {
        (None, _) => "delete",
        (_, None) => "create",
        _ => "update",
    };
    let id = match write.namespace {
        "" => write.name.to_owned(),
        namespace => format!("{namespace}/{}", write.name),
    };
    Refusal::invalid(field, format!("can't {verb} {kind} {id} because {why}"))
}

fn configs(write: &Write<'_>) -> Vec<VlanConfig> {
    let all = write.objects.list(GROUP, "vlanconfigs", "").into_iter();
    let all = all.filter_map(|object| serde_json::from_value::<VlanConfig>(object).ok());
    all.filter(|config| config.metadata.deletion_timestamp.is_none()).collect()
}

fn name_of(config: &VlanConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

/// Definitions of networks that are on a cluster network, as `NAMESPACE/NAME`.
fn definitions_on(write: &Write<'_>, cluster_network: &str) -> BTreeSet<String> {
    let all = write.objects.list(CNI, DEFINITIONS, "").into_iter();
    let own = all.filter(|object| text(object, CLUSTER_NETWORK_POINTER) == cluster_network);
    own.map(|object| {
        format!("{}/{}", text(&object, "/metadata/namespace"), text(&object, "/metadata/name"))
    })
    .collect()
}

/// Objects of `plural` whose machine is on one of `definitions`, and fits.
fn users(
    write: &Write<'_>,
    plural: &str,
    definitions: &BTreeSet<String>,
    fits: impl Fn(&Value) -> bool,
) -> Vec<String> {
    let networks =
        if plural == "virtualmachines" { "/spec/template/spec/networks" } else { "/spec/networks" };
    let all = write.objects.list("kubevirt.io", plural, "").into_iter().filter(fits);
    let uses = |object: &Value| {
        let namespace = text(object, "/metadata/namespace");
        let list = object.pointer(networks).and_then(Value::as_array).into_iter().flatten();
        list.map(|network| text(network, "/multus/networkName")).any(|name| {
            let id =
                if name.contains('/') { name.to_owned() } else { format!("{namespace}/{name}") };
            definitions.contains(&id)
        })
    };
    let found = all.filter(uses).map(|object| {
        format!("{}/{}", text(&object, "/metadata/namespace"), text(&object, "/metadata/name"))
    });
    found.collect()
}

fn check_mtu(mtu: i64) -> bool {
    mtu == 0 || (576..=9000).contains(&mtu)
}

/// The MTU of a cluster network.
fn network_mtu(object: &Value) -> i64 {
    let mtu = text(object, MTU_POINTER).parse().unwrap_or(0);
    if mtu == 0 { i64::from(DEFAULT_MTU) } else { mtu }
}

pub(super) fn validate_cluster_network(write: &Write<'_>) -> AdmissionResult {
    let refuse = |field, why: &str| Err(refuse(write, "cluster network", field, why));
    let Some(object) = write.object else {
        if write.name == MANAGEMENT {
            return refuse("", "it is not allowed");
        }
        let left = configs(write);
        let left = left.iter().filter(|config| config.spec.cluster_network == write.name);
        let left: Vec<_> = left.map(name_of).collect();
        if !left.is_empty() {
            let left = left.join(" ");
            return refuse(
                "",
                &format!("vlanconfig(s) [{left}] under this clusternetwork are still existing"),
            );
        }
        let left: Vec<_> = definitions_on(write, write.name).into_iter().collect();
        if !left.is_empty() {
            let left = left.join(", ");
            return refuse(
                "",
                &format!("nads(s) {left} under this clusternetwork are still existing"),
            );
        }
        return Ok(());
    };
    let name = write.name;
    let mtu = text(object, MTU_POINTER);
    match write.old {
        None if name.len() > NAME_LIMIT => refuse(
            "metadata.name",
            &format!("the length of the clusterNetwork name {name} is more than {NAME_LIMIT}"),
        ),
        None if !mtu.is_empty() && !write.trusted => {
            refuse("metadata.annotations", &format!("annotation {UPLINK_MTU_KEY} can't be added"))
        }
        Some(old) if mtu != text(old, MTU_POINTER) && !mtu.is_empty() => {
            validate_network_mtu(write, mtu)
        }
        _ => Ok(()),
    }
}

fn validate_network_mtu(write: &Write<'_>, mtu: &str) -> AdmissionResult {
    let refuse = |why: String| Err(refuse(write, "cluster network", "metadata.annotations", &why));
    let Ok(number) = mtu.parse::<i64>() else {
        return refuse(format!("value {mtu} is not an integer"));
    };
    if !check_mtu(number) {
        return refuse(format!("value {mtu} is not in range [0, 576..9000]"));
    }
    let number = if number == 0 { i64::from(DEFAULT_MTU) } else { number };
    let own = configs(write).into_iter().filter(|own| own.spec.cluster_network == write.name);
    match own.into_iter().find(|config| i64::from(uplink_mtu(config)) != number) {
        Some(other) => refuse(format!(
            "clusternetwork has MTU {number}, but the vlanconfigs {} has another MTU {}",
            name_of(&other),
            uplink_mtu(&other)
        )),
        None => Ok(()),
    }
}

/// Rules must be regular expressions; nodes evaluate them.
pub(super) fn validate_link_monitor(write: &Write<'_>) -> AdmissionResult {
    let Some(object) = write.object else { return Ok(()) };
    let read = serde_json::from_value::<LinkMonitor>(object.clone()).unwrap_or_default();
    match LinkRule::read(&read.spec) {
        Ok(_) => Ok(()),
        Err(LinkRuleError { field, source }) => {
            Err(refuse(write, "linkMonitor", field, &source.to_string()))
        }
    }
}

/// The names of the nodes that a VlanConfig is for.
fn matched_nodes(write: &Write<'_>, config: &VlanConfig) -> BTreeSet<String> {
    let nodes = write.objects.list("", "nodes", "").into_iter();
    let labels = |node: &Value| -> BTreeMap<String, String> {
        serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default()
    };
    let matched = nodes.filter(|node| selects(&config.spec.node_selector, &labels(node)));
    matched.map(|node| text(&node, "/metadata/name").to_owned()).collect()
}

pub(super) fn complete_config(write: &Write<'_>, object: &mut Value) {
    let Ok(config) = serde_json::from_value::<VlanConfig>(object.clone()) else { return };
    let changed = write
        .old
        .is_none_or(|old| text(old, "/spec/clusterNetwork") != config.spec.cluster_network);
    if changed {
        object["metadata"]["labels"][CLUSTER_NETWORK_KEY] = json!(config.spec.cluster_network);
    }
    let nodes = matched_nodes(write, &config);
    if !nodes.is_empty() {
        let nodes = json!(nodes).to_string();
        object["metadata"]["annotations"][MATCHED_NODES_KEY] = json!(nodes);
    }
}

pub(super) fn validate_config(write: &Write<'_>) -> AdmissionResult {
    let read = |object: &Value| serde_json::from_value::<VlanConfig>(object.clone()).ok();
    let (new, old) = (write.object.and_then(read), write.old.and_then(read));
    let refuse = |field, why: &str| Err(refuse(write, "vlanConfig", field, why));
    let is_management = |config: &VlanConfig| config.spec.cluster_network == MANAGEMENT;
    if !write.trusted && (new.as_ref().or(old.as_ref())).is_some_and(is_management) {
        let verb = match (&new, &old) {
            (None, _) => "delete",
            (_, None) => "create",
            _ => "update",
        };
        let why = format!("users can't {verb} vlanConfig for {MANAGEMENT} cluster network");
        return refuse("spec.clusterNetwork", &why);
    }
    if let Some(config) = &new {
        validate_uplink(write, config)?;
        let label = write.object.map(|own| text(own, CLUSTER_NETWORK_POINTER)).unwrap_or_default();
        if old.is_some() && label != config.spec.cluster_network {
            let why =
                format!("cluster network label {label} is invalid and must not be updated by user");
            return refuse("metadata.labels", &why);
        }
    }
    let Some(old) = &old else { return Ok(()) };
    let stays = match &new {
        Some(new) if new.spec.cluster_network == old.spec.cluster_network => {
            matched_nodes(write, new)
        }
        _ => BTreeSet::new(),
    };
    let lost: BTreeSet<_> = matched_nodes(write, old).difference(&stays).cloned().collect();
    let definitions = definitions_on(write, &old.spec.cluster_network);
    let is_there = |instance: &Value| lost.contains(text(instance, "/status/nodeName"));
    let blocking = users(write, "virtualmachineinstances", &definitions, is_there);
    if blocking.is_empty() {
        return Ok(());
    }
    let blocking = blocking.join(", ");
    refuse("", &format!("it is blocked by VM(s) {blocking} which must be stopped at first"))
}

/// Annotations that say how a change of hosts' networks is confirmed.
fn validate_policy(write: &Write<'_>, kind: &str) -> AdmissionResult {
    let annotations = write.object.map_or(&Value::Null, |own| &own["metadata"]["annotations"]);
    match ChangePolicy::read(annotations) {
        Ok(_) => Ok(()),
        Err(why) => Err(refuse(write, kind, "metadata.annotations", &why.to_string())),
    }
}

fn validate_uplink(write: &Write<'_>, config: &VlanConfig) -> AdmissionResult {
    validate_policy(write, "vlanConfig")?;
    let refuse = |field, why: &str| Err(refuse(write, "vlanConfig", field, why));
    let network = &config.spec.cluster_network;
    if write.objects.get(GROUP, "clusternetworks", "", network).is_none() {
        let why = format!(
            "it refers to a none-existing cluster network {network} or error \
             clusternetworks.{GROUP} \"{network}\" not found"
        );
        return refuse("spec.clusterNetwork", &why);
    }
    let attributes = config.spec.uplink.link_attributes.as_ref();
    let mtu = attributes.and_then(|own| own.mtu).unwrap_or(0);
    if !check_mtu(i64::from(mtu)) {
        let why = format!("the MTU {mtu} is out of range [0, 576..9000]");
        return refuse("spec.uplink.linkAttributes.mtu", &why);
    }
    let others = configs(write);
    let others: Vec<_> = others
        .iter()
        .filter(|other| name_of(other) != write.name && other.spec.cluster_network == *network)
        .collect();
    if let Some(other) = others.iter().find(|other| uplink_mtu(other) != uplink_mtu(config)) {
        let why = format!(
            "the vlanconfig {} MTU {} is different with another vlanconfig {} MTU {}, all \
             vlanconfigs on one clusternetwork need to have same MTU",
            write.name,
            uplink_mtu(config),
            name_of(other),
            uplink_mtu(other)
        );
        return refuse("spec.uplink.linkAttributes.mtu", &why);
    }
    let own = matched_nodes(write, config);
    let taken: BTreeSet<_> = others.iter().flat_map(|other| matched_nodes(write, other)).collect();
    let both: Vec<_> = own.intersection(&taken).map(String::as_str).collect();
    if both.is_empty() {
        return Ok(());
    }
    let both = both.join(" ");
    refuse(
        "spec.nodeSelector",
        &format!("it overlaps with other vlanconfigs matching node(s) [{both}]"),
    )
}

#[cfg(test)]
mod tests;
