//! Addresses of all pools, and what pools, configurations and networks say of them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use base::clock;
use hci::dhcp::allocation::{AddressRequest, Allocated, Allocation, Outcome, allocate};
use hci::dhcp::{
    EXCLUDED, POOL_NAME_KEY, POOL_NAMESPACE_KEY, PoolLayout, RESERVED, SERVER_KEY, SERVER_READY,
    network_of,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::machine::template;
use super::record::{ConfigEntry, ConfigFields, PoolFields, config_spec, pool_spec};
use crate::condition::{self, Condition};
use crate::key::ObjectKey;
use crate::object::{
    annotation, copied_map, is_deleting, is_merged, labels, name, namespace, read, version,
};
use crate::record::metadata::metadata;

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
        let ids = entries_of(state, pool_spec(pool).network_name);
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
        pools.map(|pool| (network_of(pool_spec(pool).network_name), pool)).collect();
    let wanted = |network: &Value| match pools.get(&(namespace(network), name(network))) {
        Some(pool) => json!({POOL_NAMESPACE_KEY: namespace(pool), POOL_NAME_KEY: name(pool)}),
        None => json!({POOL_NAMESPACE_KEY: null, POOL_NAME_KEY: null}),
    };
    let changes = state.networks.iter().filter(|network| !is_deleting(network));
    let changes = changes.filter_map(|network| {
        let (have, want) = (Value::Object(copied_map(labels(network))), wanted(network));
        (!is_merged(&have, &want)).then(|| DhcpChange::Network {
            key: ObjectKey::of(network),
            patch: json!({"metadata": {"labels": want}}),
        })
    });
    changes.collect()
}

/// The interfaces on a network, those first that a machine really has: of two with one MAC address
/// the first one gets the address.
fn entries_of(state: &DhcpState, network: &str) -> Vec<EntryId> {
    let machines: BTreeMap<ObjectKey, &Value> =
        state.machines.iter().map(|machine| (ObjectKey::of(machine), machine)).collect();
    let mut found = Vec::new();
    for (index, config) in state.configs.iter().enumerate() {
        let spec = config_spec(config);
        if is_deleting(config) || spec.paused {
            continue;
        }
        let owner = ObjectKey::new(namespace(config), spec.vm_name);
        let machine = machines.get(&owner).map(|own| template(own));
        let real = machine.map(|spec| hci::dhcp::interfaces(namespace(config), spec));
        for (at, entry) in spec.network_configs.iter().enumerate() {
            if !hci::dhcp::is_same_network(entry.network_name, network) {
                continue;
            }
            let mac = entry.mac();
            let is_real = real
                .iter()
                .flatten()
                .any(|(own, real)| *real == mac && hci::dhcp::is_same_network(own, network));
            let made = metadata(config).creation_timestamp;
            found.push(((!is_real, made, namespace(config), name(config)), (index, at)));
        }
    }
    found.sort();
    found.into_iter().map(|(_, id)| id).collect()
}

fn request(state: &DhcpState, (index, at): EntryId) -> AddressRequest {
    let ConfigFields { spec, status } = read(&state.configs[index]);
    let none = ConfigEntry::default();
    let entry = spec.network_configs.get(at).unwrap_or(&none);
    let mac = entry.mac();
    let previous = status.address(entry.network_name, &mac);
    let wanted = entry.ip_address.and_then(|own| own.parse().ok());
    AddressRequest { wanted, previous, mac }
}

/// The record of a pool without its marks.
fn recorded(pool: &PoolFields<'_>) -> Allocated {
    let all = pool.status.ipv4.allocated.iter();
    let all = all.filter_map(|(address, mac)| Some((address.parse().ok()?, *mac)));
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
    let fields: PoolFields<'_> = read(pool);
    let current = recorded(&fields);
    let requests: Vec<AddressRequest> = ids.iter().map(|id| request(state, *id)).collect();
    // A pool that does not work leaves all interfaces with what they have.
    let unchanged = |why: &str| {
        let held = |mac: &str| current.iter().find(|own| own.1 == mac).map(|own| *own.0);
        let result = |own: &AddressRequest| match held(&own.mac) {
            None => EntryResult { address: None, error: why.to_owned() },
            address => EntryResult { address, error: String::new() },
        };
        requests.iter().map(result).collect::<Vec<_>>()
    };
    if fields.spec.paused {
        let why = format!("ippool {own} was administratively disabled");
        let off = |kind| Condition::new(kind, "False").because("Paused", why.clone());
        let all = ["Registered", "CacheReady", "AgentReady"].map(off);
        let all = all.into_iter().chain([Condition::new("Stopped", "True")]).collect();
        return (json!({"conditions": conditions(pool, all, now)}), unchanged(&why));
    }
    let layout = match PoolLayout::parse(&fields.spec.ipv4_config) {
        Ok(layout) => layout,
        Err(error) => {
            let cache = Condition::new("CacheReady", "False").because("Invalid", error.to_string());
            let all = vec![registered(state, pool), cache, agent_ready(state), not_stopped()];
            let status = json!({"conditions": conditions(pool, all, now)});
            return (status, unchanged(&format!("ippool {own} is invalid: {error}")));
        }
    };
    let network = fields.spec.network_name;
    let Allocation { allocated, outcomes } = allocate(network, &layout, &current, &requests);
    let all = vec![
        registered(state, pool),
        Condition::new("CacheReady", "True"),
        agent_ready(state),
        not_stopped(),
    ];
    let status = json!({
        "ipv4": ipv4_status(&fields, &layout, &allocated),
        "conditions": conditions(pool, all, now),
    });
    let result = |own: Outcome| EntryResult {
        address: own.address,
        error: own.error.map(|error| error.to_string()).unwrap_or_default(),
    };
    (status, outcomes.into_iter().map(result).collect())
}

fn not_stopped() -> Condition {
    Condition::new("Stopped", "False")
}

/// A patch of `status.ipv4`: addresses that are no longer allocated are removed.
fn ipv4_status(pool: &PoolFields<'_>, layout: &PoolLayout, allocated: &Allocated) -> Value {
    let old = pool.status.ipv4.allocated.keys();
    let mut record: Map<String, Value> =
        old.map(|&address| (address.to_owned(), Value::Null)).collect();
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
    let wanted = pool_spec(pool).network_name;
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
    let ConfigFields { spec, status: before } = read(config);
    let paused = spec.paused;
    let mut statuses = Vec::new();
    let mut errors = BTreeSet::new();
    for (at, entry) in spec.network_configs.iter().enumerate() {
        let (network, mac) = (entry.network_name, entry.mac());
        let missing =
            || EntryResult { address: None, error: format!("network {network} has no IPPool") };
        let result = match paused {
            // It gets the same address again, unless another machine has it then.
            true => EntryResult { address: before.address(network, &mac), error: String::new() },
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
        let machine = ObjectKey::new(namespace(config), spec.vm_name);
        changes.push(DhcpChange::Warn { machine, message: error });
    }
    changes
}
