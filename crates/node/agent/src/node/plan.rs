//! What the Node object of this host should say, and what must be written to make it so.
//!
//! Pure. Only what this agent owns is compared and written: taints, cordons, labels and
//! conditions of others stay. Nothing is written when nothing changed, so that an idle node
//! costs its lease and no more.

use base::clock::rfc3339;
use hci::cpu_manager::{self, CpuPolicy};
use hci::failover::STORAGE_PORT;
use hci::guest_network::NETWORK;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::facts::{HostFacts, Virtualization};
use crate::config::{Config, Network, NodeRole};
use crate::network::NetworkShortcoming;

/// What the host may keep for itself: the system and `sheaf`.
const RESERVED_MEMORY: u64 = 512 << 20;
/// Below this, new guests would push the host into swapping or worse.
const LEAST_MEMORY: u64 = 100 << 20;
/// How many guests one node is allowed; each has a launcher pod.
const PODS: &str = "1000";
/// When KubeVirt's part of the node last wrote the Node, for clients that look there.
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

/// What to write to `node`, as it is stored.
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

/// What differs, and `null` for what is ours and no longer wanted.
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

/// Labels that only this agent sets, and may therefore remove.
fn ours(key: &str) -> bool {
    const PREFIXES: &[&str] = &[
        "cpu-feature.node.kubevirt.io/",
        "cpu-model.node.kubevirt.io/",
        "cpu-vendor.node.kubevirt.io/",
        "host-model-cpu.node.kubevirt.io/",
        "node.sheaf.io/",
    ];
    PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

/// With those of the machine's configuration, which are the administrators' to change afterwards.
fn first_labels(config: &Config, facts: &HostFacts, policy: CpuPolicy) -> Map<String, Value> {
    let mut labels = labels(config, facts, policy);
    labels.extend(config.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    labels
}

fn labels(config: &Config, facts: &HostFacts, policy: CpuPolicy) -> Map<String, Value> {
    let mut labels = Map::new();
    let mut set = |key: String, value: &str| labels.insert(key, value.into());
    for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
        set(format!("{prefix}/os"), "linux");
        set(format!("{prefix}/arch"), virt::ARCHITECTURE);
    }
    set("kubernetes.io/hostname".into(), &config.node_name);
    // What others are is said by whoever let them in.
    match config.role {
        NodeRole::Management | NodeRole::ManagementPeer => {
            set("node-role.kubernetes.io/control-plane".into(), "true");
        }
        NodeRole::Worker => {}
        // It has nothing that machines could ask for.
        NodeRole::Witness => {
            set("kubevirt.io/schedulable".into(), "false");
            return labels;
        }
    }
    let able = !matches!(facts.findings.virtualization, Virtualization::Missing { .. });
    set("kubevirt.io/schedulable".into(), if able { "true" } else { "false" });
    // The agent pins processors for machines that ask for it, unless it is switched off.
    set(cpu_manager::LABEL.into(), policy.label());
    set("machine-type.node.kubevirt.io/q35".into(), "true");
    set("machine-type.node.kubevirt.io/pc".into(), "true");
    if let Some(accelerator) = accelerator(&facts.findings.virtualization) {
        set("node.sheaf.io/accelerator".into(), accelerator);
    }
    let vendor = facts.cpu.vendor.trim_start_matches("Genuine").trim_start_matches("Authentic");
    if !vendor.is_empty() {
        set(format!("cpu-vendor.node.kubevirt.io/{vendor}"), "true");
    }
    // A guest without KVM gets whatever QEMU emulates, whatever the host is.
    if matches!(facts.findings.virtualization, Virtualization::Kvm { .. }) {
        set("cpu-model.node.kubevirt.io/host-passthrough".into(), "true");
        for feature in facts.cpu.features.iter().filter(|feature| is_label_name(feature)) {
            set(format!("cpu-feature.node.kubevirt.io/{feature}"), "true");
        }
    }
    labels
}

fn is_label_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn annotations(config: &Config, facts: &HostFacts) -> Map<String, Value> {
    let mut annotations: Map<String, Value> =
        config.annotations.iter().map(|(key, text)| (key.clone(), text.as_str().into())).collect();
    if let Some(wire) = &config.wire.storage {
        annotations.insert(STORAGE_PORT.into(), wire.address.port().to_string().into());
    }
    // Known before the network is up, so that a restart takes it from nobody.
    if let (Network::Nat { cidr, .. }, None) = (&config.network, &facts.findings.network) {
        annotations.insert(NETWORK.into(), cidr.trunc().to_string().into());
        // Harvester's clients read the network of guests here, as RKE2 writes it.
        let arguments = json!(["server", "--cluster-cidr", cidr.trunc().to_string()]);
        annotations.insert("rke2.io/node-args".into(), arguments.to_string().into());
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

struct NodeFinding {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// Ours with what is found now, in the usual order, after those of others.
fn all_conditions(role: NodeRole, facts: &HostFacts, have: &[Value], now: Timestamp) -> Vec<Value> {
    let findings = findings(role, facts);
    let is_ours =
        |condition: &&Value| findings.iter().any(|finding| condition["type"] == finding.kind);
    let mut all: Vec<Value> = have.iter().filter(|each| !is_ours(each)).cloned().collect();
    for finding in &findings {
        let before = have.iter().find(|condition| condition["type"] == finding.kind);
        all.push(condition(finding, before, now));
    }
    all
}

fn condition(finding: &NodeFinding, before: Option<&Value>, now: Timestamp) -> Value {
    let same = |field: &str, value: &str| before.is_some_and(|before| before[field] == value);
    let unchanged = same("status", finding.status)
        && same("reason", finding.reason)
        && same("message", &finding.message);
    if unchanged && let Some(before) = before {
        return before.clone();
    }
    let now = Value::from(rfc3339(now));
    let since = before
        .filter(|_| same("status", finding.status))
        .map(|before| before["lastTransitionTime"].clone());
    json!({
        "type": finding.kind,
        "status": finding.status,
        "reason": finding.reason,
        "message": finding.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since.unwrap_or(now),
    })
}

fn findings(role: NodeRole, facts: &HostFacts) -> Vec<NodeFinding> {
    let pressure = |kind, is: bool, bad: (&'static str, &str), good: (&'static str, &str)| {
        let (reason, message) = if is { bad } else { good };
        let status = if is { "True" } else { "False" };
        NodeFinding { kind, status, reason, message: message.into() }
    };
    let (status, reason, message) = match &facts.findings.virtualization {
        _ if role == NodeRole::Witness => {
            ("False", "Witness", "a witness runs no machines".to_owned())
        }
        Virtualization::Kvm { qemu } => {
            ("True", "Kvm", format!("guests run under KVM, QEMU {qemu}"))
        }
        Virtualization::Emulated { qemu, why } => {
            ("True", "Emulated", format!("guests are emulated by QEMU {qemu}: {why}"))
        }
        Virtualization::Missing { what } => ("False", "QemuMissing", what.clone()),
        Virtualization::Unknown => ("Unknown", "NotTried", "not tried yet".into()),
    };
    vec![
        pressure(
            "MemoryPressure",
            facts.memory.available < LEAST_MEMORY,
            ("KubeletHasInsufficientMemory", "less than 100Mi of memory are available"),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        pressure(
            "DiskPressure",
            facts.disk.free < facts.disk.total / 20,
            ("KubeletHasDiskPressure", "less than 5% of the data directory's disk are free"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        pressure(
            "PIDPressure",
            false,
            ("KubeletHasInsufficientPID", ""),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
        NodeFinding { kind: "Virtualization", status, reason, message },
        network(role, facts.findings.network.as_ref()),
        NodeFinding {
            kind: "Ready",
            status: "True",
            reason: "KubeletReady",
            message: "the agent is running".into(),
        },
    ]
}

fn network(role: NodeRole, shortcoming: Option<&NetworkShortcoming>) -> NodeFinding {
    let (status, reason, message) = match shortcoming {
        _ if role == NodeRole::Witness => {
            ("False", "Witness", "a witness has no guest network".to_owned())
        }
        None => ("True", "Bridged", "guests have addresses on a network of this node".into()),
        Some(NetworkShortcoming::UserMode) => {
            ("False", "UserMode", "guests have user-mode networks, as asked".into())
        }
        Some(NetworkShortcoming::Unavailable(why)) => {
            ("False", "Unavailable", format!("machines on the guest network do not start: {why}"))
        }
    };
    NodeFinding { kind: "GuestNetwork", status, reason, message }
}

#[cfg(test)]
mod tests;
