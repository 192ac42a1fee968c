//! Which address each node has on a network of its own, and what is missing. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use hci::cluster::{HOST_ADDRESSES, WITNESS_ROLE};
use hci::network::host_interface_of;
use hci::node_network::{NetworkSetting, NetworkSettingError, NetworkUplink, NodeNetwork};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::record::{ConfigFields, NodeEntry};
use crate::condition::{self, Condition};
use crate::object::{annotation, is_deleting, is_merged, label, name, read};
use crate::record::condition::of_type;
use crate::record::setting;

/// No more nodes or addresses than this are named in a message.
const MOST_NAMED: usize = 5;
const HOST_NAME: &str = "kubernetes.io/hostname";

/// The objects that a network is decided from.
#[derive(Debug)]
pub(super) struct NetworkState {
    pub(super) network: NodeNetwork,
    pub(super) setting: Value,
    /// The HostNetworkConfig that has the name of the setting.
    pub(super) config: Option<Value>,
    pub(super) nodes: Vec<Value>,
    /// Addresses that are in use; only read where some are to be given up.
    pub(super) used: BTreeSet<Ipv4Addr>,
}

/// The changes that a network needs now.
#[derive(Debug, Default)]
pub(super) struct NetworkPlan {
    pub(super) config: Option<ConfigChange>,
    /// Patches of Nodes, by name.
    pub(super) nodes: Vec<(String, Value)>,
    /// The patch of the setting.
    pub(super) setting: Option<Value>,
}

#[derive(Debug)]
pub(super) enum ConfigChange {
    Create(Value),
    Patch { name: String, patch: Value },
    Delete(Value),
}

/// Whether a setting has a value, or had one.
pub(super) fn was_used(setting: &Value) -> bool {
    !setting::value(setting).is_empty() || !condition::of(setting).is_empty()
}

impl NetworkState {
    fn wanted(&self) -> Result<Option<NetworkSetting>, NetworkSettingError> {
        NetworkSetting::parse(setting::value(&self.setting))
    }

    /// Whether addresses are to be given up: those of a network that is off, or elsewhere by now.
    pub(super) fn is_withdrawing(&self) -> bool {
        match self.wanted() {
            Ok(None) => true,
            Ok(Some(wanted)) => self.config.as_ref().is_some_and(|own| !fits(own, &wanted)),
            Err(_) => false,
        }
    }

    /// Nodes that store or run something.
    fn members(&self) -> impl Iterator<Item = &Value> {
        let is_member = |node: &&Value| !is_deleting(node) && label(node, WITNESS_ROLE).is_none();
        self.nodes.iter().filter(is_member)
    }
}

pub(super) fn plan(state: &NetworkState, now: Timestamp) -> NetworkPlan {
    let (mut plan, condition) = match state.wanted() {
        Err(error) => {
            let invalid =
                Condition::new("configured", "False").because("Invalid", error.to_string());
            (NetworkPlan::default(), invalid)
        }
        Ok(None) => withdraw(state),
        Ok(Some(_)) if state.is_withdrawing() => withdraw(state),
        Ok(Some(wanted)) => provide(state, &wanted),
    };
    let mut conditions = condition::of(&state.setting);
    condition::set(&mut conditions, &condition, now);
    let patch = json!({"status": {"conditions": conditions}});
    plan.setting = (!is_merged(&state.setting, &patch)).then_some(patch);
    plan
}

fn in_progress(message: String) -> Condition {
    Condition::new("configured", "False").because("In Progress", message)
}

/// An interface cannot move: one that is elsewhere has to go first.
fn fits(config: &Value, wanted: &NetworkSetting) -> bool {
    let spec = read::<ConfigFields<'_>>(config).spec;
    let uplink = wanted.uplink.as_ref();
    let same_link = uplink.is_some_and(|own| {
        spec.cluster_network == own.cluster_network && spec.vlan_id == i64::from(own.vlan)
    });
    same_link && spec.ips.values().all(|text| address(text).is_some_and(|own| wanted.contains(own)))
}

/// The address of `address/length`.
fn address(text: &str) -> Option<Ipv4Addr> {
    text.split('/').next()?.parse().ok()
}

/// Addresses are not announced any more; the interfaces go when none of them is in use.
fn withdraw(state: &NetworkState) -> (NetworkPlan, Condition) {
    let mut plan = NetworkPlan { nodes: annotations(state, |_| None), ..NetworkPlan::default() };
    let off = Condition::new("configured", "False");
    let Some(config) = state.config.as_ref() else { return (plan, off) };
    let own = read::<ConfigFields<'_>>(config).spec.ips;
    let own = own.values().filter_map(|text| address(text));
    let used: Vec<String> =
        own.filter(|address| state.used.contains(address)).map(|own| own.to_string()).collect();
    if !used.is_empty() {
        let used = listed(&used, ", ");
        return (plan, in_progress(format!("addresses are still in use: {used}")));
    }
    if plan.nodes.is_empty() && !is_deleting(config) {
        plan.config = Some(ConfigChange::Delete(config.clone()));
    }
    (plan, in_progress("interfaces are being removed".to_owned()))
}

/// The address of a node, and whether its host has it.
struct Assigned<'a> {
    node: &'a str,
    /// On an interface that is not ours.
    own: Option<Ipv4Addr>,
    /// On the interface of the HostNetworkConfig.
    planned: Option<Ipv4Addr>,
    is_present: bool,
}

fn provide(state: &NetworkState, wanted: &NetworkSetting) -> (NetworkPlan, Condition) {
    let config = state.config.as_ref().map(read::<ConfigFields<'_>>).unwrap_or_default();
    let mut all = known(state, wanted, &config);
    let mut problems = assign(&mut all, wanted);
    for node in all.iter().filter(|own| own.own.is_none()) {
        problems.extend(missing(node, wanted, config.status.node_status.get(node.node)));
    }
    let usable: BTreeMap<&str, Ipv4Addr> = all
        .iter()
        .filter_map(|own| Some((own.node, own.own.or(own.planned.filter(|_| own.is_present))?)))
        .collect();
    let is_complete = usable.len() == all.len();
    let nodes = annotations(state, |node| {
        let address = *usable.get(name(node))?;
        let is_known = annotation(node, state.network.annotation()).is_some();
        // Nodes with an address there could not reach those without.
        (is_complete || is_known).then_some(address)
    });
    let condition = if is_complete && nodes.is_empty() {
        Condition::new("configured", "True").because("Completed", "")
    } else {
        in_progress(listed(&problems, "; "))
    };
    let uplink = wanted.uplink.as_ref();
    let config = uplink.and_then(|uplink| wanted_config(state, wanted, uplink, &all));
    (NetworkPlan { config, nodes, setting: None }, condition)
}

/// The addresses that nodes have or are to have already.
fn known<'a>(
    state: &'a NetworkState,
    wanted: &NetworkSetting,
    config: &ConfigFields<'a>,
) -> Vec<Assigned<'a>> {
    let planned = |node: &str| config.spec.ips.get(node).and_then(|text| address(text));
    let all_planned: BTreeSet<Ipv4Addr> =
        config.spec.ips.values().filter_map(|text| address(text)).collect();
    let of = |node: &'a Value| {
        let host = annotation(node, HOST_ADDRESSES).unwrap_or_default();
        let host: Vec<Ipv4Addr> = host.split(',').filter_map(|text| text.parse().ok()).collect();
        let mut own: Vec<Ipv4Addr> =
            host.iter().copied().filter(|address| wanted.contains(*address)).collect();
        own.sort_unstable();
        own.retain(|address| !all_planned.contains(address));
        let planned = planned(name(node));
        let is_present = planned.is_some_and(|address| host.contains(&address));
        Assigned { node: name(node), own: own.first().copied(), planned, is_present }
    };
    state.members().map(of).collect()
}

/// Gives the nodes without an address the lowest free ones; says which get none.
fn assign(all: &mut [Assigned<'_>], wanted: &NetworkSetting) -> Vec<String> {
    let mut taken: BTreeSet<Ipv4Addr> =
        all.iter().flat_map(|own| [own.own, own.planned]).flatten().collect();
    let mut problems = Vec::new();
    for node in all.iter_mut().filter(|own| own.own.is_none() && own.planned.is_none()) {
        let range = wanted.range;
        if wanted.uplink.is_none() {
            problems.push(format!(
                "{}: its host has no address in {range}, and the setting names no clusterNetwork \
                 to create an interface on",
                node.node
            ));
            continue;
        }
        match wanted.hosts().find(|address| !taken.contains(address)) {
            Some(free) => {
                taken.insert(free);
                node.planned = Some(free);
            }
            None => problems.push(format!("{}: no address of {range} is free", node.node)),
        }
    }
    problems
}

/// The reason why a node does not have its planned address.
fn missing(
    node: &Assigned<'_>,
    wanted: &NetworkSetting,
    entry: Option<&NodeEntry<'_>>,
) -> Option<String> {
    let (address, uplink) = (node.planned?, wanted.uplink.as_ref()?);
    if node.is_present {
        return None;
    }
    let link = host_interface_of(&uplink.cluster_network, uplink.vlan);
    let why = entry
        .and_then(|entry| of_type(&entry.conditions, "ready"))
        .filter(|ready| ready.status != "True" && !ready.message.is_empty())
        .map(|ready| format!(" ({})", ready.message));
    Some(format!(
        "{}: waiting for its address {address} on {link}{}",
        node.node,
        why.unwrap_or_default()
    ))
}

/// Patches of the nodes that do not announce the address that they should.
fn annotations(
    state: &NetworkState,
    wanted: impl Fn(&Value) -> Option<Ipv4Addr>,
) -> Vec<(String, Value)> {
    let key = state.network.annotation();
    let patch = |node: &Value| {
        let wanted = wanted(node).map(|address| address.to_string());
        (annotation(node, key) != wanted.as_deref())
            .then(|| (name(node).to_owned(), json!({"metadata": {"annotations": {key: wanted}}})))
    };
    state.nodes.iter().filter_map(patch).collect()
}

/// The change of the HostNetworkConfig, which is for the nodes that need an interface.
fn wanted_config(
    state: &NetworkState,
    wanted: &NetworkSetting,
    uplink: &NetworkUplink,
    all: &[Assigned<'_>],
) -> Option<ConfigChange> {
    let length = wanted.range.prefix_len();
    let nodes = all.iter().filter(|own| own.own.is_none());
    let mut ips: Map<String, Value> = nodes
        .filter_map(|own| Some((own.node.to_owned(), format!("{}/{length}", own.planned?).into())))
        .collect();
    let names: Vec<String> = ips.keys().cloned().collect();
    let setting = state.network.setting();
    let selector =
        json!({"matchExpressions": [{"key": HOST_NAME, "operator": "In", "values": names}]});
    let Some(config) = state.config.as_ref() else {
        let spec = json!({"description": format!("Created for the setting {setting}"),
            "clusterNetwork": uplink.cluster_network, "vlanID": uplink.vlan, "mode": "static",
            "ips": ips, "nodeSelector": selector});
        let api_version = format!("{}/{}", hci::network::GROUP, hci::network::VERSION);
        let config = json!({"apiVersion": api_version, "kind": "HostNetworkConfig",
            "metadata": {"name": setting}, "spec": spec});
        return (!names.is_empty()).then_some(ConfigChange::Create(config));
    };
    if is_deleting(config) {
        return None;
    }
    if names.is_empty() {
        return Some(ConfigChange::Delete(config.clone()));
    }
    for gone in read::<ConfigFields<'_>>(config).spec.ips.into_keys() {
        ips.entry(gone.to_owned()).or_insert(Value::Null);
    }
    let patch = json!({"spec": {"ips": ips, "nodeSelector": selector}});
    let change = || ConfigChange::Patch { name: setting.to_owned(), patch: patch.clone() };
    (!is_merged(config, &patch)).then(change)
}

/// The first of several texts.
fn listed(texts: &[String], separator: &str) -> String {
    let mut text = texts[..texts.len().min(MOST_NAMED)].join(separator);
    if texts.len() > MOST_NAMED {
        text += &format!("{separator}and {} more", texts.len() - MOST_NAMED);
    }
    text
}

#[cfg(test)]
mod tests;
