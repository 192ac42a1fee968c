//! Allocation of the addresses of pools to load balancers.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use hci::address_pool::{self, PoolRange, PoolRequirement};
use hci::harvester::load_balancer::{AllocatedAddress, IpPool, LoadBalancer};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{BalancerChange, ManagedKind};
use crate::condition::{self, Condition};
use crate::object::{annotation, is_merged, label, name, namespace, read, version};
use crate::record::fields;

const NETWORK: &str = "loadbalancer.harvesterhci.io/network";
const PROJECT: &str = "loadbalancer.harvesterhci.io/project";
const CLUSTER: &str = "loadbalancer.harvesterhci.io/cluster";

/// A pool while addresses of it are given out and taken back.
pub(super) struct OpenPool<'a> {
    object: &'a Value,
    pool: IpPool,
    ranges: Vec<PoolRange>,
}

/// Result of an allocation.
pub(super) enum Allocation {
    Address(AllocatedAddress),
    /// The message of the condition.
    None(String),
}

fn holder(balancer: &Value) -> String {
    format!("{}/{}", namespace(balancer), name(balancer))
}

impl<'a> OpenPool<'a> {
    /// Nothing if its ranges cannot be read.
    pub(super) fn new(object: &'a Value) -> Option<Self> {
        let pool: IpPool = serde_json::from_value(object.clone()).ok()?;
        let ranges = address_pool::ranges(&pool.spec).ok()?;
        Some(Self { object, pool, ranges })
    }
}

fields! {
    struct BalancerFields<'a> {
        status: BalancerStatus<'a>,
    }

    struct BalancerStatus<'a> {
        allocated_address: HeldAddress<'a>,
    }

    struct PoolFields<'a> {
        status: PoolStatus<'a>,
    }

    /// Addresses, with the load balancer that has or had each.
    struct PoolStatus<'a> {
        allocated: BTreeMap<&'a str, &'a str>,
        allocated_history: BTreeMap<&'a str, &'a str>,
    }

    struct HeldAddress<'a> {
        ip_pool: &'a str,
        ip: &'a str,
    }
}

/// Takes back the addresses of load balancers that are gone, or that have another one.
pub(super) fn release(open: &mut OpenPool<'_>, live: &[&Value]) {
    let own = open.pool.metadata.name.clone().unwrap_or_default();
    let is_used = |address: &str, user: &str| {
        let user = live.iter().find(|balancer| holder(balancer) == user);
        user.is_some_and(|balancer| {
            let held = read::<BalancerFields<'_>>(balancer).status.allocated_address;
            // Before its first status it holds what the pool says.
            held.ip.is_empty() || (held.ip_pool == own && held.ip == address)
        })
    };
    let status = open.pool.status.get_or_insert_default();
    let (kept, freed): (BTreeMap<String, String>, BTreeMap<String, String>) =
        std::mem::take(&mut status.allocated)
            .into_iter()
            .partition(|(address, user)| is_used(address, user));
    status.allocated = kept;
    status.allocated_history.extend(freed);
    let ranges = &open.ranges;
    status.allocated_history.retain(|address, _| {
        address
            .parse()
            .is_ok_and(|address: Ipv4Addr| ranges.iter().any(|own| own.contains(address)))
    });
}

pub(super) fn allocate(
    pools: &mut [OpenPool<'_>],
    balancer: &Value,
    typed: &LoadBalancer,
) -> Allocation {
    if typed.spec.ipam.as_deref() == Some("dhcp") {
        return Allocation::None("addresses by DHCP are not supported; use ipam: pool".into());
    }
    let user = holder(balancer);
    let held = pools.iter().find_map(|open| {
        let status = open.pool.status.as_ref()?;
        let (address, _) = status.allocated.iter().find(|(_, own)| **own == user)?;
        Some(described(open, address.parse().ok()?))
    });
    if let Some(held) = held {
        return Allocation::Address(held);
    }
    let wished = typed.spec.ip_pool.as_deref().filter(|pool| !pool.is_empty());
    let requirement = requirement(balancer);
    let chosen = match wished {
        Some(wished) => wished.to_owned(),
        None => {
            let known: Vec<IpPool> = pools.iter().map(|open| open.pool.clone()).collect();
            let of_cluster = typed.spec.workload_type.as_deref() == Some("cluster");
            let chosen = address_pool::choose(&known, &requirement, of_cluster);
            let Some(name) = chosen.and_then(|pool| pool.metadata.name.clone()) else {
                let message = format!("no matched IPPool with requirement {requirement}");
                return Allocation::None(message);
            };
            name
        }
    };
    let open = pools.iter_mut().find(|open| open.pool.metadata.name.as_deref() == Some(&*chosen));
    let Some(open) = open else {
        return Allocation::None(format!("fail to get allocator {chosen}"));
    };
    let namespace = namespace(balancer);
    if wished.is_some() && !address_pool::may_name(&open.pool.spec, namespace, &requirement.project)
    {
        let message = format!("IPPool {chosen} is not for namespace {namespace}; see its selector");
        return Allocation::None(message);
    }
    let Some(address) = address_pool::next_address(&open.ranges, &open.pool, &user) else {
        let message = format!("fail to get ip from pool {chosen}, error: no available IP");
        return Allocation::None(message);
    };
    let status = open.pool.status.get_or_insert_default();
    status.allocated_history.remove(&address.to_string());
    status.allocated.insert(address.to_string(), user);
    status.last_allocated = Some(address.to_string());
    Allocation::Address(described(open, address))
}

fn requirement(balancer: &Value) -> PoolRequirement {
    let own = |key: &str| annotation(balancer, key).unwrap_or_default().to_owned();
    let label = label(balancer, "cloudprovider.harvesterhci.io/cluster").unwrap_or_default();
    let cluster = annotation(balancer, CLUSTER).unwrap_or(label).to_owned();
    PoolRequirement {
        network: own(NETWORK),
        project: own(PROJECT),
        namespace: namespace(balancer).to_owned(),
        cluster,
    }
}

fn described(open: &OpenPool<'_>, address: Ipv4Addr) -> AllocatedAddress {
    let range = open.ranges.iter().find(|range| range.contains(address));
    AllocatedAddress {
        ip_pool: open.pool.metadata.name.clone(),
        ip: Some(address.to_string()),
        mask: range.map(|range| range.subnet.netmask().to_string()),
        gateway: range.and_then(|range| range.gateway).map(|gateway| gateway.to_string()),
    }
}

pub(super) fn pool_status(open: &OpenPool<'_>, now: Timestamp) -> Option<BalancerChange> {
    let status = open.pool.status.clone().unwrap_or_default();
    let total = address_pool::total(&open.ranges);
    let used = i64::try_from(status.allocated.len()).unwrap_or(i64::MAX);
    let mut conditions = condition::of(open.object);
    condition::set(&mut conditions, &Condition::new("Ready", "True"), now);
    let before = read::<PoolFields<'_>>(open.object).status;
    let wanted = json!({
        "total": total, "available": total - used,
        "lastAllocated": status.last_allocated.unwrap_or_default(),
        "allocated": replaced(&before.allocated, &status.allocated),
        "allocatedHistory":
            replaced(&before.allocated_history, &status.allocated_history),
        "conditions": conditions,
    });
    let patch = json!({"status": wanted});
    if is_merged(open.object, &patch) {
        return None;
    }
    let patch = json!({"metadata": version(open.object), "status": wanted});
    let name = name(open.object).to_owned();
    Some(BalancerChange::Patch { kind: ManagedKind::Pool, namespace: String::new(), name, patch })
}

/// A map as a merge patch makes it: keys that are gone are null.
fn replaced(old: &BTreeMap<&str, &str>, wanted: &BTreeMap<String, String>) -> Value {
    let mut patch: serde_json::Map<String, Value> =
        old.keys().map(|&key| (key.to_owned(), Value::Null)).collect();
    patch.extend(wanted.iter().map(|(key, value)| (key.clone(), json!(value))));
    Value::Object(patch)
}
