//! The labels of a Node that this agent sets. Pure.

use hci::cpu_manager::{self, CpuPolicy};
use serde_json::{Map, Value};

use super::accelerator;
use crate::config::{Config, NodeRole};
use crate::host::Virtualization;
use crate::node::facts::HostFacts;

/// Labels that only this agent sets, and may therefore remove.
pub(super) fn ours(key: &str) -> bool {
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
pub(super) fn first_labels(
    config: &Config,
    facts: &HostFacts,
    policy: CpuPolicy,
) -> Map<String, Value> {
    let mut labels = labels(config, facts, policy);
    labels.extend(config.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
    labels
}

pub(super) fn labels(config: &Config, facts: &HostFacts, policy: CpuPolicy) -> Map<String, Value> {
    let mut labels = Map::new();
    let mut set = |key: String, value: &str| labels.insert(key, value.into());
    for prefix in ["kubernetes.io", "beta.kubernetes.io"] {
        set(format!("{prefix}/os"), "linux");
        set(format!("{prefix}/arch"), virt::ARCHITECTURE);
    }
    set("kubernetes.io/hostname".into(), &config.node_name);
    // The roles of other nodes are set by the server that admitted them.
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
