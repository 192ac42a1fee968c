//! Pools of addresses on networks of machines, and the requests of machines for addresses.
//! Upstream's texts; errors that upstream answers with 500 are 422 here, so that clients do not
//! repeat a request that cannot succeed.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{AdmissionResult, Refusal, Write, text};
use crate::dhcp::{
    CONFIGS, GROUP, LEASE_SECONDS, LayoutError, POOL_NAMESPACE_KEY, POOLS, PoolLayout, complete,
    is_mac, is_same_network, mac_of, network_of, subnet_of,
};
use crate::harvester::dhcp::{DhcpPool, Ipv4Config, MachineNetworkConfig};
use crate::network::may_use;

const WEBHOOK: &str = "validator.harvester-system.harvester-vm-dhcp-controller-webhook";
const CNI: &str = "k8s.cni.cncf.io";
const DEFINITIONS: &str = "network-attachment-definitions";
const CONFIG_FIELD: &str = "spec.ipv4Config";

fn refuse(write: &Write<'_>, kind: &str, field: &'static str, why: &str) -> Refusal {
    let verb = match (write.object, write.old) {
        (None, _) => "delete",
        (_, None) => "create",
        _ => "update",
    };
    let Write { namespace, name, .. } = write;
    let message = format!("cannot {verb} {kind} {namespace}/{name} because {why}");
    Refusal::by(WEBHOOK, 422, field, message)
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(object.clone()).ok()
}

/// Whether only metadata or the status changes.
fn is_same_spec(write: &Write<'_>) -> bool {
    write.object.zip(write.old).is_some_and(|(new, old)| new["spec"] == old["spec"])
}

fn network_exists(write: &Write<'_>, network: &str) -> Result<(), String> {
    let (namespace, name) = network_of(network);
    match write.objects.get(CNI, DEFINITIONS, namespace, name) {
        Some(_) => Ok(()),
        None => Err(format!("{DEFINITIONS}.{CNI} {name:?} not found in namespace {namespace}")),
    }
}

/// Fills in the range and the address of the server of a new pool.
pub(super) fn complete_pool(write: &Write<'_>, object: &mut Value) -> AdmissionResult {
    let config = object.pointer("/spec/ipv4Config").and_then(read::<Ipv4Config>);
    let (Some(mut config), None) = (config, write.old) else { return Ok(()) };
    let refuse = |error: LayoutError| refuse(write, "IPPool", CONFIG_FIELD, &error.to_string());
    complete(&mut config).map_err(refuse)?;
    let written = &mut object["spec"]["ipv4Config"];
    written["serverIP"] = json!(config.server_ip);
    written["pool"]["start"] = json!(config.pool.start);
    written["pool"]["end"] = json!(config.pool.end);
    Ok(())
}

pub(super) fn validate_pool(write: &Write<'_>) -> AdmissionResult {
    if is_same_spec(write) {
        return Ok(());
    }
    let Some(object) = write.object else { return validate_pool_release(write) };
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let Some(pool) = read::<DhcpPool>(object) else { return Ok(()) };
    let fail = |field, why: String| Err(refuse(write, "IPPool", field, &why));
    let layout = match PoolLayout::parse(&pool.spec.ipv4_config) {
        Ok(layout) => layout,
        Err(error) => return fail(CONFIG_FIELD, error.to_string()),
    };
    if let Err(why) = network_is_free(write, &pool) {
        return fail("spec.networkName", why);
    }
    if let Err(why) = outside_of_services(write, &pool.spec.ipv4_config.cidr) {
        return fail("spec.ipv4Config.cidr", why);
    }
    let occupied = pool.status.iter().filter_map(|status| status.ipv4.as_ref());
    let occupied = occupied
        .flat_map(|status| &status.allocated)
        .any(|(address, mac)| address.parse() == Ok(layout.server) && mac != crate::dhcp::RESERVED);
    if occupied {
        return fail(CONFIG_FIELD, LayoutError::Occupied(layout.server).to_string());
    }
    options(&pool.spec.ipv4_config).map_err(|(field, why)| refuse(write, "IPPool", field, &why))
}

/// The network exists, and no other pool is for it.
fn network_is_free(write: &Write<'_>, pool: &DhcpPool) -> Result<(), String> {
    let network = &pool.spec.network_name;
    network_exists(write, network)?;
    let others = write.objects.list(GROUP, POOLS, "");
    let other = others.iter().find(|other| {
        let is_self = text(other, "/metadata/name") == write.name
            && text(other, "/metadata/namespace") == write.namespace;
        !is_self && is_same_network(text(other, "/spec/networkName"), network)
    });
    other.map_or(Ok(()), |other| {
        let (namespace, name) = (text(other, "/metadata/namespace"), text(other, "/metadata/name"));
        Err(format!("network {network} has the IPPool {namespace}/{name} already"))
    })
}

fn outside_of_services(write: &Write<'_>, cidr: &str) -> Result<(), String> {
    let Ok(own) = subnet_of(cidr) else { return Ok(()) };
    for services in write.objects.list("networking.k8s.io", "servicecidrs", "") {
        let blocks = services.pointer("/spec/cidrs").and_then(Value::as_array);
        let blocks = blocks.into_iter().flatten().filter_map(Value::as_str);
        for block in blocks.filter_map(|block| subnet_of(block).ok()) {
            if block.contains(&own) || own.contains(&block) {
                return Err(format!("cidr {cidr} overlaps cluster service cidr {block}"));
            }
        }
    }
    Ok(())
}

/// Options that are sent to machines must be sendable.
fn options(config: &Ipv4Config) -> Result<(), (&'static str, String)> {
    let is_name = |name: &str| {
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        name.len() <= 253 && name.trim_end_matches('.').split('.').all(is_label)
    };
    for server in &config.ntp {
        if server.parse::<Ipv4Addr>().is_err() {
            let why = format!(
                "ntp server {server:?} is not an IPv4 address, and names are not resolved for \
                 machines; use the server's address"
            );
            return Err(("spec.ipv4Config.ntp", why));
        }
    }
    for server in &config.dns {
        if server.parse::<Ipv4Addr>().is_err() {
            let why = format!("dns server {server:?} is not an IPv4 address");
            return Err(("spec.ipv4Config.dns", why));
        }
    }
    let domain = config.domain_name.as_ref().filter(|name| !name.is_empty());
    if let Some(name) = domain.into_iter().chain(&config.domain_search).find(|name| !is_name(name))
    {
        return Err(("spec.ipv4Config", format!("{name:?} is not a domain name")));
    }
    match config.lease_time {
        Some(seconds) if !(60..=i64::from(LEASE_SECONDS)).contains(&seconds) => {
            let why = format!("leaseTime {seconds} must be between 60 and {LEASE_SECONDS} seconds");
            Err(("spec.ipv4Config.leaseTime", why))
        }
        _ => Ok(()),
    }
}

/// A pool can go when no machine has or wants an address of it.
fn validate_pool_release(write: &Write<'_>) -> AdmissionResult {
    let network = write.old.map(|old| text(old, "/spec/networkName")).unwrap_or_default();
    let uses = |config: &Value| {
        ["/spec/networkConfigs", "/status/networkConfigs"].iter().any(|pointer| {
            let list = config.pointer(pointer).and_then(Value::as_array);
            let mut list = list.into_iter().flatten();
            list.any(|own| is_same_network(text(own, "/networkName"), network))
        })
    };
    let users = write.objects.list(GROUP, CONFIGS, "");
    let users = users.iter().filter(|config| uses(config)).map(|config| {
        format!("{}/{}", text(config, "/metadata/namespace"), text(config, "/metadata/name"))
    });
    let users: Vec<String> = users.collect();
    if users.is_empty() {
        return Ok(());
    }
    let why = format!(
        "it's still used by VirtualMachineNetworkConfig(s) {}, which must be removed at first",
        users.join(", ")
    );
    Err(refuse(write, "IPPool", "", &why))
}

pub(super) fn validate_config(write: &Write<'_>) -> AdmissionResult {
    let (Some(object), false) = (write.object, is_same_spec(write)) else { return Ok(()) };
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        return Ok(());
    }
    let Some(config) = read::<MachineNetworkConfig>(object) else { return Ok(()) };
    let fail = |why: String| {
        Err(refuse(write, "VirtualMachineNetworkConfig", "spec.networkConfigs", &why))
    };
    let pools = write.objects.list(GROUP, POOLS, "");
    let mut seen = BTreeSet::new();
    for own in &config.spec.network_configs {
        let network = &own.network_name;
        let (namespace, _) = network_of(network);
        if !is_mac(&own.mac_address) {
            return fail(format!("{:?} is not the MAC address of a network card", own.mac_address));
        }
        if !seen.insert((network_of(network), mac_of(&own.mac_address))) {
            return fail(format!("{} is given twice for network {network}", own.mac_address));
        }
        if !write.trusted && !may_use(write.namespace, namespace) {
            return fail(format!(
                "network {network} belongs to another namespace; use one of namespace {} or of a \
                 shared namespace",
                write.namespace
            ));
        }
        if let Err(why) = network_exists(write, network) {
            return fail(why);
        }
        let has_pool =
            pools.iter().any(|pool| is_same_network(text(pool, "/spec/networkName"), network));
        if !has_pool && !had(write, network) {
            return fail(format!(
                "{POOL_NAMESPACE_KEY} label not found: network {network} has no IPPool"
            ));
        }
    }
    Ok(())
}

/// Whether the configuration named the network before: it may stay when its pool is gone.
fn had(write: &Write<'_>, network: &str) -> bool {
    let old = write.old.and_then(|old| old.pointer("/spec/networkConfigs"));
    let mut old = old.and_then(Value::as_array).into_iter().flatten();
    old.any(|own| is_same_network(text(own, "/networkName"), network))
}

#[cfg(test)]
mod tests;
