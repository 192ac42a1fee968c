//! The desired content of this host's Node object, and the writes that are needed for it.
//!
//! Pure. Only what this agent owns is compared and written: taints, cordons, labels and
//! conditions of others stay. Nothing is written when nothing changed, so that an idle node
//! costs only its lease.

mod condition;
mod label;

use base::clock::rfc3339;
use hci::cluster::HOST_ADDRESSES;
use hci::cpu_manager::{self, CpuPolicy};
use hci::failover::STORAGE_PORT;
use hci::guest_network::NETWORK;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use self::condition::all_conditions;
use self::label::{first_labels, labels, ours};
use super::facts::HostFacts;
use crate::config::{Config, Network, NodeRole};
use crate::host::Virtualization;

/// Memory reserved for the host: the system and `sheaf`.
const RESERVED_MEMORY: u64 = 512 << 20;
/// How many guests one node is allowed; each has a launcher pod.
const PODS: &str = "1000";
/// When KubeVirt's part of the node last wrote the Node, for clients that read it there.
const HEARTBEAT: &str = "kubevirt.io/heartbeat";
/// An older one is renewed with the next write. It causes none: that the node is alive is said
/// by its lease.
const HEARTBEAT_PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// The merge patches that bring a Node up to date; `None` where nothing differs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct NodePatches {
    pub(crate) metadata: Option<Value>,
    pub(crate) status: Option<Value>,
}

/// A node that does not exist yet.
pub(crate) fn birth(config: &Config, facts: &HostFacts, now: Timestamp) -> Value {
    let mut annotations = annotations(config, facts);
    annotations.insert(HEARTBEAT.into(), rfc3339(now).into());
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": config.node_name,
            "labels": first_labels(config, facts, CpuPolicy::Static),
            "annotations": annotations,
        },
        "status": status(config, facts, &[], now),
    })
}

/// The patches for `node`, as it is stored.
pub(crate) fn patches(
    config: &Config,
    facts: &HostFacts,
    node: &Value,
    now: Timestamp,
) -> NodePatches {
    let mut metadata = Map::new();
    // The Node of a machine that joins is made by the control plane.
    let is_first = node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or("").is_empty();
    let policy = CpuPolicy::of(node);
    let labels = match is_first {
        true => first_labels(config, facts, policy),
        false => labels(config, facts, policy),
    };
    let mut annotations = annotations(config, facts);
    annotations.extend(
        cpu_manager::completed(node).map(|text| (cpu_manager::STATUS.to_owned(), text.into())),
    );
    for (field, want) in [("labels", labels), ("annotations", annotations)] {
        let changed = map_change(&node["metadata"][field], &want, ours);
        if !changed.is_empty() {
            metadata.insert(field.into(), Value::Object(changed));
        }
    }
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let want = status(config, facts, &conditions, now);
    let mut changes = Map::new();
    for (field, want) in want.as_object().into_iter().flatten() {
        let have = &node["status"][field];
        match want {
            Value::Object(map) => {
                let changed = map_change(have, map, |_| false);
                if !changed.is_empty() {
                    changes.insert(field.clone(), Value::Object(changed));
                }
            }
            want if want != have => {
                changes.insert(field.clone(), want.clone());
            }
            _ => {}
        }
    }
    let mut patches = NodePatches {
        metadata: (!metadata.is_empty()).then(|| json!({ "metadata": metadata })),
        status: (!changes.is_empty()).then(|| json!({ "status": changes })),
    };
    let beat = &node["metadata"]["annotations"][HEARTBEAT];
    if beat.is_null() {
        patches.metadata.get_or_insert_with(|| json!({}));
    }
    if is_due(beat, now)
        && let Some(patch) = patches.metadata.as_mut().or(patches.status.as_mut())
    {
        patch["metadata"]["annotations"][HEARTBEAT] = rfc3339(now).into();
    }
    patches
}

/// Whether the time of the last write may be renewed.
fn is_due(beat: &Value, now: Timestamp) -> bool {
    let written = beat.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    written.is_none_or(|written| now.duration_since(written).abs() >= HEARTBEAT_PERIOD)
}

/// The differing values, and `null` for those that are ours and no longer wanted.
fn map_change(
    have: &Value,
    want: &Map<String, Value>,
    ours: fn(&str) -> bool,
) -> Map<String, Value> {
    let mut changed = Map::new();
    for (key, value) in want {
        if have.get(key) != Some(value) {
            changed.insert(key.clone(), value.clone());
        }
    }
    for key in have.as_object().into_iter().flat_map(Map::keys) {
        if ours(key) && !want.contains_key(key) {
            changed.insert(key.clone(), Value::Null);
        }
    }
    changed
}

fn annotations(config: &Config, facts: &HostFacts) -> Map<String, Value> {
    let mut annotations: Map<String, Value> =
        config.annotations.iter().map(|(key, text)| (key.clone(), text.as_str().into())).collect();
    if let Some(wire) = &config.wire.storage {
        annotations.insert(STORAGE_PORT.into(), wire.address.port().to_string().into());
    }
    // Known before the network is up, so that it stays known during a restart.
    if let (Network::Nat { cidr, .. }, None) = (&config.network, &facts.findings.network) {
        annotations.insert(NETWORK.into(), cidr.trunc().to_string().into());
        // Harvester's clients read the network of guests here, as RKE2 writes it.
        let arguments = json!(["server", "--cluster-cidr", cidr.trunc().to_string()]);
        annotations.insert("rke2.io/node-args".into(), arguments.to_string().into());
    }
    // One that is missing stays: without it, guests of other nodes would reach the host.
    if let Some(addresses) = &facts.addresses {
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        annotations.insert(HOST_ADDRESSES.into(), texts.join(",").into());
    }
    if !facts.cpu.model.is_empty() {
        annotations.insert("node.sheaf.io/cpu-model".into(), facts.cpu.model.clone().into());
    }
    if let Virtualization::Kvm { qemu } | Virtualization::Emulated { qemu, .. } =
        &facts.findings.virtualization
    {
        annotations.insert("node.sheaf.io/qemu-version".into(), qemu.clone().into());
    }
    annotations
}

fn accelerator(virtualization: &Virtualization) -> Option<&'static str> {
    match virtualization {
        Virtualization::Kvm { .. } => Some("kvm"),
        Virtualization::Emulated { .. } => Some("tcg"),
        Virtualization::Missing { .. } | Virtualization::Unknown => None,
    }
}

fn status(config: &Config, facts: &HostFacts, conditions: &[Value], now: Timestamp) -> Value {
    let mut addresses: Vec<Value> = config
        .addresses
        .iter()
        .map(|address| json!({"type": "InternalIP", "address": address.to_string()}))
        .collect();
    addresses.push(json!({"type": "Hostname", "address": config.node_name}));
    let port = config.wire.endpoint.as_ref().map_or(0, |wire| wire.address.port());
    let mut status = json!({
        "addresses": addresses,
        "capacity": resources(config.role, facts, facts.memory.total),
        "allocatable": resources(config.role, facts, allocatable_memory(facts.memory.total)),
        "conditions": all_conditions(config.role, facts, conditions, now),
        "nodeInfo": {
            "architecture": virt::ARCHITECTURE,
            "bootID": facts.boot_id,
            "containerRuntimeVersion": format!("sheaf://{}", config.version),
            "kernelVersion": facts.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": config.kubernetes_version,
            "machineID": facts.machine_id,
            "operatingSystem": "linux",
            "osImage": facts.os_image,
            "systemUUID": facts.system_uuid,
        },
    });
    if port != 0 {
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
    }
    status
}

/// A host too small for the reserve keeps a quarter.
fn allocatable_memory(total: u64) -> u64 {
    total - RESERVED_MEMORY.min(total / 4)
}

fn resources(role: NodeRole, facts: &HostFacts, memory: u64) -> Value {
    let mut resources = json!({
        "cpu": facts.cpu.count.to_string(),
        "memory": format!("{}Ki", memory / 1024),
        "ephemeral-storage": format!("{}Ki", facts.disk.total / 1024),
        "pods": if role == NodeRole::Witness { "0" } else { PODS },
    });
    for (page, reserved) in &facts.memory.huge_pages {
        let size = match page >> 10 {
            kibibytes if kibibytes % (1 << 20) == 0 => format!("{}Gi", kibibytes >> 20),
            kibibytes if kibibytes % (1 << 10) == 0 => format!("{}Mi", kibibytes >> 10),
            kibibytes => format!("{kibibytes}Ki"),
        };
        let amount = if *reserved == 0 { "0".into() } else { format!("{}Mi", reserved >> 20) };
        resources[format!("hugepages-{size}")] = amount.into();
    }
    if matches!(facts.findings.virtualization, Virtualization::Kvm { .. }) {
        resources["devices.kubevirt.io/kvm"] = "1k".into();
    }
    resources
}

#[cfg(test)]
mod tests;
