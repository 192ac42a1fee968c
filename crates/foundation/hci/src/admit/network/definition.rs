//! NetworkAttachmentDefinitions. Those on bridges of cluster networks have Harvester's rules; those on
//! other bridges of a host belong to its administrator, and only their VLANs are checked.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{network_mtu, refuse, users};
use crate::admit::{AdmissionResult, Write, text};
use crate::network::{
    CLUSTER_NETWORK_KEY, DEFAULT_MTU, GROUP, NetworkConfig, NetworkType, READY_KEY, TYPE_KEY,
    VLAN_KEY, network_of,
};

const CONFIG: &str = "spec.config";
/// The longest name of an interface.
const NAME_LIMIT: usize = 15;

/// Fills in the labels that Harvester's clients list networks by, and the MTU.
pub(in crate::admit) fn complete(write: &Write<'_>, object: &mut Value) {
    let Ok(config) = NetworkConfig::read(object) else { return };
    let (Some(kind), Some(network)) = (config.network_type(), network_of(&config.bridge)) else {
        return;
    };
    if kind == NetworkType::Overlay {
        return;
    }
    let Some(owner) = write.objects.get(GROUP, "clusternetworks", "", network) else { return };
    let mtu = network_mtu(&owner);
    let own = if config.mtu == 0 { i64::from(DEFAULT_MTU) } else { config.mtu };
    if write.old.is_none() && (own != mtu || config.mtu == 0) {
        let changed = with_mtu(text(object, "/spec/config"), mtu);
        object["spec"]["config"] = json!(changed);
    }
    let labels = &mut object["metadata"]["labels"];
    if labels[CLUSTER_NETWORK_KEY].as_str().is_none_or(str::is_empty) {
        labels[CLUSTER_NETWORK_KEY] = json!(network);
    }
    labels[TYPE_KEY] = json!(kind.label());
    if kind == NetworkType::Vlan {
        labels[VLAN_KEY] = json!(config.vlan.to_string());
    } else if let Some(labels) = labels.as_object_mut() {
        labels.remove(VLAN_KEY);
    }
    let is_ready = is_ready(write, network, &owner);
    object["metadata"]["labels"][READY_KEY] = json!(is_ready.to_string());
}

/// A network is ready when its object says so, or when a node has reported it a moment ago.
fn is_ready(write: &Write<'_>, network: &str, owner: &Value) -> bool {
    let mut reports = write.objects.list(GROUP, "vlanstatuses", "").into_iter();
    if reports.any(|report| text(&report, "/status/clusterNetwork") == network) {
        return true;
    }
    let conditions = owner["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "ready");
    ready.any(|condition| condition["status"] == "True")
}

/// The text with another MTU; the rest stays as it was written.
fn with_mtu(text: &str, mtu: i64) -> String {
    let key = "\"mtu\"";
    if let Some((before, after)) = text.split_once(key)
        && let Some((colon, value)) = after.split_once(':')
    {
        let skipped = value.len() - value.trim_start().len();
        let is_digit = |each: char| each.is_ascii_digit() || each == '-';
        let rest = value.trim_start().trim_start_matches(is_digit);
        return format!("{before}{key}{colon}:{}{mtu}{rest}", &value[..skipped]);
    }
    match text.trim_end().strip_suffix('}').map(str::trim_end) {
        Some(body) if body.ends_with('{') => format!("{body}{key}:{mtu}}}"),
        Some(body) => format!("{body},{key}:{mtu}}}"),
        None => text.to_owned(),
    }
}

pub(in crate::admit) fn validate(write: &Write<'_>) -> AdmissionResult {
    let refuse = |field, why: &str| Err(refuse(write, "nad", field, why));
    let id = format!("{}/{}", write.namespace, write.name);
    let running = || {
        users(write, "virtualmachineinstances", &BTreeSet::from([id.clone()]), |_| true).join(", ")
    };
    let in_use = "which must be stopped at first";
    let Some(object) = write.object else {
        let used = running();
        if !used.is_empty() {
            return refuse("", &format!("it's still used by VM(s) {used} {in_use}"));
        }
        let named = users(write, "virtualmachines", &BTreeSet::from([id]), |_| true).join(", ");
        if named.is_empty() {
            return Ok(());
        }
        let why = "which must remove the related networks and interfaces";
        return refuse("", &format!("it's still used by VM(s) {named} {why}"));
    };
    let written = text(object, "/spec/config");
    if write.old.is_some_and(|old| text(old, "/spec/config") == written) {
        return Ok(());
    }
    let config = match NetworkConfig::read(object) {
        Ok(config) => config,
        // Multus also takes definitions whose configuration is a file of the node.
        Err(_) if written.is_empty() => return Ok(()),
        Err(why) => {
            return refuse(CONFIG, &format!("failed to unmarshal nad {id} config {written} {why}"));
        }
    };
    if matches!(config.network_type(), None | Some(NetworkType::Overlay)) {
        return Ok(());
    }
    if let Err(why) = config.vlans() {
        // Upstream's webhook answers with an internal error, and its clients expect that one.
        let refusal = super::refuse(write, "nad", CONFIG, &why.to_string());
        return Err(refusal.internal());
    }
    validate_bridge(write, object, &config)?;
    if let Some(old) = write.old.and_then(|old| NetworkConfig::read(old).ok()) {
        let from = old.r#type.as_str();
        if from != config.r#type {
            let why = format!(
                "nad cannot be updated from network type {from} to network type {}",
                config.r#type
            );
            return refuse(CONFIG, &why);
        }
        if old.bridge != config.bridge {
            let why = format!(
                "nad bridge name can't be changed from {} to {}",
                old.bridge, config.bridge
            );
            return refuse(CONFIG, &why);
        }
        let used = running();
        if !used.is_empty() {
            return refuse("", &format!("it's still used by VM(s) {used} {in_use}"));
        }
    }
    Ok(())
}

fn validate_bridge(write: &Write<'_>, object: &Value, config: &NetworkConfig) -> AdmissionResult {
    let refuse = |field, why: &str| Err(refuse(write, "nad", field, why));
    let bridge = &config.bridge;
    if bridge.len() > NAME_LIMIT {
        let why = format!("the length of bridge name {bridge} can't be more than {NAME_LIMIT}");
        return refuse(CONFIG, &why);
    }
    let label = text(object, super::CLUSTER_NETWORK_POINTER);
    let Some(network) = network_of(bridge) else {
        if label.is_empty() {
            return Ok(());
        }
        return refuse(CONFIG, &format!("the bridge name {bridge} does not include suffix -br"));
    };
    if !label.is_empty() && label != network {
        let why = format!("the nad label {label} does not match bridge name {network}");
        return refuse("metadata.labels", &why);
    }
    let Some(owner) = write.objects.get(GROUP, "clusternetworks", "", network) else {
        let why = format!(
            "nad refers to a none-existing cluster network {network} or error \
             clusternetworks.{GROUP} \"{network}\" not found"
        );
        return refuse(CONFIG, &why);
    };
    let own = if config.mtu == 0 { i64::from(DEFAULT_MTU) } else { config.mtu };
    let mtu = network_mtu(&owner);
    if own != mtu && !write.trusted {
        let why = format!("nad MTU {own} does not match cluster network MTU {mtu}");
        return refuse(CONFIG, &why);
    }
    Ok(())
}
