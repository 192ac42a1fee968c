//! Addresses of all pools, and what pools, configurations and networks say of them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use base::clock;
use hci::dhcp::allocation::{AddressRequest, Allocated, Allocation, Outcome, allocate};
use hci::dhcp::{
    EXCLUDED, POOL_NAME_KEY, POOL_NAMESPACE_KEY, PoolLayout, RESERVED, SERVER_KEY, SERVER_READY,
    network_of,
};
use hci::harvester::dhcp::Ipv4Config;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::config_entries;
use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{
    annotation, copied_map, entries, is_deleting, is_merged, is_true, labels, list, name,
    namespace, text, version,
};

#[derive(Debug, Default)]
pub(super) struct DhcpState {
    pub(super) pools: Vec<Value>,
    pub(super) configs: Vec<Value>,
    pub(super) machines: Vec<Value>,
    /// NetworkAttachmentDefinitions.
    pub(super) networks: Vec<Value>,
    pub(super) nodes: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum DhcpChange {
    /// Labels of a NetworkAttachmentDefinition.
    Network { key: ObjectKey, patch: Value },
    /// The status of a pool.
    Pool { key: ObjectKey, patch: Value },
    /// The status of a configuration.
    Config { key: ObjectKey, patch: Value },
    /// An event about a machine without an address.
    Warn { machine: ObjectKey, message: String },
}

/// An interface of a configuration: the index of the configuration, and of its entry.
type EntryId = (usize, usize);

/// Address of an interface, or the reason why it has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct EntryResult {
    address: Option<Ipv4Addr>,
    error: String,
}

/// Pools are written before configurations: an address in a configuration is recorded in its pool.
pub(super) fn plan(state: &DhcpState, now: Timestamp) -> Vec<DhcpChange> {
    let mut changes = network_labels(state);
    let mut results: BTreeMap<EntryId, EntryResult> = BTreeMap::new();
    for pool in state.pools.iter().filter(|pool| !is_deleting(pool)) {
        let ids = entries_of(state, text(pool, "/spec/networkName"));
        let (status, found) = pool_status(state, pool, &ids, now);
        changes.extend(pool_change(pool, status, now));
        results.extend(ids.into_iter().zip(found));
    }
    for (index, config) in state.configs.iter().enumerate() {
        changes.extend(config_changes(config, index, &results, now));
    }
    changes
}

/// Networks say which pool is theirs, as upstream's clients expect.
fn network_labels(state: &DhcpState) -> Vec<DhcpChange> {
    let pools = state.pools.iter().filter(|pool| !is_deleting(pool));
    let pools: BTreeMap<(&str, &str), &Value> =
        pools.map(|pool| (network_of(text(pool, "/spec/networkName")), pool)).collect();
    let wanted = |network: &Value| match pools.get(&(namespace(network), name(network))) {
        Some(pool) => json!({POOL_NAMESPACE_KEY: namespace(pool), POOL_NAME_KEY: name(pool)}),
        None => json!({POOL_NAMESPACE_KEY: null, POOL_NAME_KEY: null}),
    };
    let changes = state.networks.iter().filter(|network| !is_deleting(network));
    let changes =
        changes.map(|network| (network, json!({"metadata": {"labels": wanted(network)}})));
    let is_change = |(network, patch): &(&Value, Value)| {
        let labels = Value::Object(copied_map(labels(network)));
        !is_merged(&labels, &patch["metadata"]["labels"])
    };
    let changes = changes.filter(is_change);
    changes
        .map(|(network, patch)| DhcpChange::Network { key: ObjectKey::of(network), patch })
        .collect()
}

/// The interfaces on a network, those first that a machine really has: of two with one MAC address
/// the first one gets the address.
fn entries_of(state: &DhcpState, network: &str) -> Vec<EntryId> {
    let machines: BTreeMap<ObjectKey, &Value> =
        state.machines.iter().map(|machine| (ObjectKey::of(machine), machine)).collect();
    let mut found = Vec::new();
    for (index, config) in state.configs.iter().enumerate() {
        if is_deleting(config) || is_true(config, "/spec/paused") {
            continue;
        }
        let owner = ObjectKey::new(namespace(config), text(config, "/spec/vmName"));
        let spec = machines.get(&owner).map(|own| &own["spec"]["template"]["spec"]);
        let real = spec.map(|spec| hci::dhcp::interfaces(namespace(config), spec));
        for (at, (entry, mac, _)) in config_entries(config).enumerate() {
            if !hci::dhcp::is_same_network(entry, network) {
                continue;
            }
            let is_real = real
                .iter()
                .flatten()
                .any(|(own, real)| *real == mac && hci::dhcp::is_same_network(own, network));
            let made = text(config, "/metadata/creationTimestamp");
            found.push(((!is_real, made, namespace(config), name(config)), (index, at)));
        }
    }
    found.sort();
    found.into_iter().map(|(_, id)| id).collect()
}

fn request(state: &DhcpState, (index, at): EntryId) -> AddressRequest {
    let config = &state.configs[index];
    let entry = config_entries(config).nth(at);
    let (network, mac, entry) = entry.unwrap_or(("", String::new(), &Value::Null));
    let previous = list(config, "/status/networkConfigs").iter().find(|own| {
        hci::dhcp::mac_of(text(own, "/macAddress")) == mac
            && hci::dhcp::is_same_network(text(own, "/networkName"), network)
    });
    let previous = previous.and_then(|own| text(own, "/allocatedIPAddress").parse().ok());
    AddressRequest { wanted: text(entry, "/ipAddress").parse().ok(), previous, mac }
}

/// The record of a pool without its marks.
fn recorded(pool: &Value) -> Allocated {
    let all = entries(pool, "/status/ipv4/allocated");
    let all = all.filter_map(|(address, mac)| Some((address.parse().ok()?, mac.as_str()?)));
    all.filter(|(_, mac)| ![RESERVED, EXCLUDED].contains(mac))
        .map(|(address, mac)| (address, hci::dhcp::mac_of(mac)))
        .collect()
}

/// The status of a pool without its timestamps, and the address of each interface.
fn pool_status(
    state: &DhcpState,
    pool: &Value,
    ids: &[EntryId],
    now: Timestamp,
) -> (Value, Vec<EntryResult>) {
    let own = format!("{}/{}", namespace(pool), name(pool));
    let current = recorded(pool);
    let requests: Vec<AddressRequest> = ids.iter().map(|id| request(state, *id)).collect();
    // A pool that does not work leaves everybody with what they have.
    let unchanged = |why: &str| {
        let held = |mac: &str| current.iter().find(|own| own.1 == mac).map(|own| *own.0);
        let result = |own: &AddressRequest| match held(&own.mac) {
            None => EntryResult { address: None, error: why.to_owned() },
            address => EntryResult { address, error: String::new() },
        };
        requests.iter().map(result).collect::<Vec<_>>()
    };
    if is_true(pool, "/spec/paused") {
        let why = format!("ippool {own} was administratively disabled");
        let off = |kind| Condition::new(kind, "False").because("Paused", why.clone());
        let all = ["Registered", "CacheReady", "AgentReady"].map(off);
        let all = all.into_iter().chain([Condition::new("Stopped", "True")]).collect();
        return (json!({"conditions": conditions(pool, all, now)}), unchanged(&why));
    }
    let config: Ipv4Config =
        serde_json::from_value(pool["spec"]["ipv4Config"].clone()).unwrap_or_default();
    let layout = match PoolLayout::parse(&config) {
        Ok(layout) => layout,
        Err(error) => {
            let cache = Condition::new("CacheReady", "False").because("Invalid", error.to_string());
            let all = vec![registered(state, pool), cache, agent_ready(state), not_stopped()];
            let status = json!({"conditions": conditions(pool, all, now)});
            return (status, unchanged(&format!("ippool {own} is invalid: {error}")));
        }
    };
    let network = text(pool, "/spec/networkName");
    let Allocation { allocated, outcomes } = allocate(network, &layout, &current, &requests);
    let all = vec![
        registered(state, pool),
        Condition::new("CacheReady", "True"),
        agent_ready(state),
        not_stopped(),
    ];
    let status = json!({
        "ipv4": ipv4_status(pool, &layout, &allocated),
        "conditions": conditions(pool, all, now),
    });
    let told = |own: Outcome| EntryResult {
        address: own.address,
        error: own.error.map(|error| error.to_string()).unwrap_or_default(),
    };
    (status, outcomes.into_iter().map(told).collect())
}

fn not_stopped() -> Condition {
    Condition::new("Stopped", "False")
}

/// A patch of `status.ipv4`: addresses that are no longer allocated are removed.
fn ipv4_status(pool: &Value, layout: &PoolLayout, allocated: &Allocated) -> Value {
    let old = entries(pool, "/status/ipv4/allocated").map(|(address, _)| address.clone());
    let mut record: Map<String, Value> = old.map(|address| (address, Value::Null)).collect();
    for (address, mark) in layout.marked() {
        record.insert(address.to_string(), json!(mark));
    }
    for (address, mac) in allocated {
        record.insert(address.to_string(), json!(mac));
    }
    let used = allocated.len() as u64;
    json!({"allocated": record, "used": used, "available": layout.capacity().saturating_sub(used)})
}

fn registered(state: &DhcpState, pool: &Value) -> Condition {
    let wanted = text(pool, "/spec/networkName");
    let mut ids = state.networks.iter().map(|network| (namespace(network), name(network)));
    if ids.any(|id| id == network_of(wanted)) {
        return Condition::new("Registered", "True");
    }
    let why = format!("there is no NetworkAttachmentDefinition {wanted}");
    Condition::new("Registered", "False").because("NetworkNotFound", why)
}

/// Agents say on their nodes that they answer requests.
fn agent_ready(state: &DhcpState) -> Condition {
    let serves = |node: &Value| {
        annotation(node, SERVER_KEY) == Some(SERVER_READY) && condition::is(node, "Ready", "True")
    };
    if state.nodes.iter().any(serves) {
        return Condition::new("AgentReady", "True");
    }
    let why = "no node answers DHCP requests of machines: addresses are allocated, but machines \
               do not get them by DHCP";
    Condition::new("AgentReady", "False").because("NoServer", why)
}

fn conditions(object: &Value, wanted: Vec<Condition>, now: Timestamp) -> Vec<Value> {
    let mut conditions = condition::of(object);
    for own in wanted {
        condition::set(&mut conditions, &own, now);
    }
    conditions
}

/// A write is refused if the object has changed since it was read.
fn status_patch(object: &Value, status: &Value) -> Option<Value> {
    if is_merged(object, &json!({"status": status})) {
        return None;
    }
    Some(json!({"metadata": version(object), "status": status}))
}

fn pool_change(pool: &Value, status: Value, now: Timestamp) -> Option<DhcpChange> {
    let mut patch = status_patch(pool, &status)?;
    patch["status"]["lastUpdate"] = json!(clock::rfc3339(now));
    Some(DhcpChange::Pool { key: ObjectKey::of(pool), patch })
}

/// The status of a configuration, and an event if an interface has no address.
fn config_changes(
    config: &Value,
    index: usize,
    results: &BTreeMap<EntryId, EntryResult>,
    now: Timestamp,
) -> Vec<DhcpChange> {
    if is_deleting(config) {
        return Vec::new();
    }
    let paused = is_true(config, "/spec/paused");
    let mut statuses = Vec::new();
    let mut errors = BTreeSet::new();
    for (at, (network, mac, _)) in config_entries(config).enumerate() {
        let missing =
            || EntryResult { address: None, error: format!("network {network} has no IPPool") };
        let result = match paused {
            // It gets the same address again, unless somebody else has it then.
            true => EntryResult { address: held(config, network, &mac), error: String::new() },
            false => results.get(&(index, at)).cloned().unwrap_or_else(missing),
        };
        let state = if result.address.is_some() && !paused { "Allocated" } else { "Pending" };
        let mut status = json!({"networkName": network, "macAddress": mac, "state": state});
        if let Some(address) = result.address {
            status["allocatedIPAddress"] = json!(address.to_string());
        }
        statuses.push(status);
        if !result.error.is_empty() {
            errors.insert(format!("{mac} on network {network}: {}", result.error));
        }
    }
    let own = format!("{}/{}", namespace(config), name(config));
    let error = errors.into_iter().collect::<Vec<_>>().join("; ");
    let allocated = match (paused, error.as_str(), statuses.is_empty()) {
        (true, ..) => Condition::new("Allocated", "False")
            .because("Paused", format!("vmnetcfg {own} was administratively disabled")),
        (_, "", true) => Condition::new("Allocated", "False")
            .because("NoNetworkConfigs", format!("no network configs found for vmnetcfg {own}")),
        (_, "", false) => Condition::new("Allocated", "True"),
        (_, error, _) => Condition::new("Allocated", "False").because("NotAllocated", error),
    };
    let disabled = Condition::new("Disabled", if paused { "True" } else { "False" });
    let wanted = vec![allocated, disabled, Condition::new("InSynced", "True")];
    let status = json!({"networkConfigs": statuses, "conditions": conditions(config, wanted, now)});
    let Some(patch) = status_patch(config, &status) else { return Vec::new() };
    let mut changes = vec![DhcpChange::Config { key: ObjectKey::of(config), patch }];
    if !error.is_empty() {
        let machine = ObjectKey::new(namespace(config), text(config, "/spec/vmName"));
        changes.push(DhcpChange::Warn { machine, message: error });
    }
    changes
}

/// The address that a configuration shows for an interface.
fn held(config: &Value, network: &str, mac: &str) -> Option<Ipv4Addr> {
    let own = list(config, "/status/networkConfigs").iter().find(|own| {
        hci::dhcp::mac_of(text(own, "/macAddress")) == mac
            && hci::dhcp::is_same_network(text(own, "/networkName"), network)
    });
    own.and_then(|own| text(own, "/allocatedIPAddress").parse().ok())
}
