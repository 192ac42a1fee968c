//! DHCP on networks of machines: the content of an IPPool, and names that clients compute. Pure.
//!
//! ```text
//!  IPPool                        one per NetworkAttachmentDefinition; status.ipv4.allocated is the
//!                                record of all addresses, which controllers write and nodes answer from
//!  VirtualMachineNetworkConfig   one per machine: the addresses that it wants, and has
//!  Node                          sheaf.io/dhcp-server, written by its agent while it answers requests
//! ```

pub mod allocation;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

use crate::harvester::dhcp::Ipv4Config;

pub const GROUP: &str = crate::network::GROUP;
pub const VERSION: &str = "v1alpha1";
pub const POOLS: &str = "ippools";
pub const CONFIGS: &str = "virtualmachinenetworkconfigs";

/// Labels of a NetworkAttachmentDefinition: the pool of its addresses.
pub const POOL_NAMESPACE_KEY: &str = "network.harvesterhci.io/ippool-namespace";
pub const POOL_NAME_KEY: &str = "network.harvesterhci.io/ippool-name";
/// Label of a VirtualMachineNetworkConfig: the name of its machine.
pub const VM_NAME_KEY: &str = "harvesterhci.io/vmName";
/// Annotation of a node that answers requests of its guests on networks with a pool.
pub const SERVER_KEY: &str = "sheaf.io/dhcp-server";
pub const SERVER_READY: &str = "ready";

/// In place of a MAC address: the server and the router.
pub const RESERVED: &str = "RESERVED";
/// In place of a MAC address: an address that is not assigned.
pub const EXCLUDED: &str = "EXCLUDED";

/// Longest time that a lease may have, and its default: a year.
pub const LEASE_SECONDS: u32 = 31_536_000;

/// Namespace and name of a NetworkAttachmentDefinition that an IPPool or a
/// VirtualMachineNetworkConfig names.
pub fn network_of(name: &str) -> (&str, &str) {
    name.rsplit_once('/')
        .filter(|(namespace, _)| !namespace.is_empty())
        .unwrap_or(("default", name))
}

/// Whether both names mean the same network.
pub fn is_same_network(one: &str, other: &str) -> bool {
    network_of(one) == network_of(other)
}

/// A MAC address as it is compared: lower case, with colons.
pub fn mac_of(text: &str) -> String {
    text.to_ascii_lowercase().replace('-', ":")
}

/// Whether the text is the MAC address of one network card.
pub fn is_mac(text: &str) -> bool {
    let text = mac_of(text);
    let parts: Vec<&str> = text.split(':').collect();
    let is_octet =
        |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let first = parts.first().and_then(|first| u8::from_str_radix(first, 16).ok());
    let is_unicast = first.is_some_and(|first| first & 1 == 0);
    parts.len() == 6 && is_unicast && parts.iter().all(is_octet)
}

/// Interfaces of a machine or instance on networks of NetworkAttachmentDefinitions: `NAMESPACE/NAME`
/// and MAC address. `spec` is that of the instance.
pub fn interfaces(namespace: &str, spec: &Value) -> Vec<(String, String)> {
    let list =
        |pointer: &str| spec.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    for interface in list("/domain/devices/interfaces") {
        let mac = mac_of(&text(interface, "macAddress"));
        let network = list("/networks").find(|network| network["name"] == interface["name"]);
        let name = network.map(|network| text(&network["multus"], "networkName"));
        let is_leaving = text(interface, "state") == "absent";
        match name.filter(|name| !name.is_empty() && is_mac(&mac) && !is_leaving) {
            Some(name) if name.contains('/') => found.push((name, mac)),
            Some(name) => found.push((format!("{namespace}/{name}"), mac)),
            None => {}
        }
    }
    found
}

/// The addresses of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLayout {
    pub subnet: Ipv4Net,
    pub server: Ipv4Addr,
    pub router: Option<Ipv4Addr>,
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
    pub excluded: BTreeSet<Ipv4Addr>,
}

/// Why the addresses of a pool make no sense, in upstream's words where it has them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error("invalid CIDR address: {0}, a valid example is 192.168.1.0/24")]
    Subnet(String),
    #[error("{part} ip {text:?} is not an IPv4 address")]
    Syntax { part: &'static str, text: String },
    #[error("{part} ip {address} is not within subnet")]
    Outside { part: &'static str, address: Ipv4Addr },
    #[error("{part} ip {address} is the same as network ip")]
    Network { part: &'static str, address: Ipv4Addr },
    #[error("{part} ip {address} is the same as broadcast ip")]
    Broadcast { part: &'static str, address: Ipv4Addr },
    #[error("invalid pool range")]
    Range,
    #[error("server ip {0} is the same as router ip")]
    SameAsRouter(Ipv4Addr),
    #[error("server ip {0} is already occupied")]
    Occupied(Ipv4Addr),
    #[error("fail to assign ip for dhcp server")]
    NoServer,
}

/// The subnet of a pool.
pub fn subnet_of(cidr: &str) -> Result<Ipv4Net, LayoutError> {
    let subnet: Ipv4Net = cidr.parse().map_err(|_| LayoutError::Subnet(cidr.to_owned()))?;
    Ok(subnet.trunc())
}

/// The address of a host of the subnet.
fn host(subnet: Ipv4Net, part: &'static str, text: &str) -> Result<Ipv4Addr, LayoutError> {
    let syntax = |_| LayoutError::Syntax { part, text: text.to_owned() };
    let address: Ipv4Addr = text.parse().map_err(syntax)?;
    if !subnet.contains(&address) {
        return Err(LayoutError::Outside { part, address });
    }
    if address == subnet.network() {
        return Err(LayoutError::Network { part, address });
    }
    if address == subnet.broadcast() {
        return Err(LayoutError::Broadcast { part, address });
    }
    Ok(address)
}

impl PoolLayout {
    pub fn parse(config: &Ipv4Config) -> Result<Self, LayoutError> {
        let subnet = subnet_of(&config.cidr)?;
        let first = host(subnet, "start", &config.pool.start)?;
        let last = host(subnet, "end", &config.pool.end)?;
        if first > last {
            return Err(LayoutError::Range);
        }
        let router = config.router.as_deref().filter(|router| !router.is_empty());
        let router = router.map(|router| host(subnet, "router", router)).transpose()?;
        let server = host(subnet, "server", &config.server_ip)?;
        if router == Some(server) {
            return Err(LayoutError::SameAsRouter(server));
        }
        let excluded = config.pool.exclude.iter().map(|text| host(subnet, "exclude", text));
        let excluded: BTreeSet<Ipv4Addr> = excluded.collect::<Result<_, _>>()?;
        if excluded.contains(&server) {
            return Err(LayoutError::Occupied(server));
        }
        Ok(Self { subnet, server, router, first, last, excluded })
    }

    /// Whether an address is in the range of the pool.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// Whether a machine can have an address.
    pub fn is_assignable(&self, address: Ipv4Addr) -> bool {
        self.contains(address) && self.mark(address).is_none()
    }

    /// The mark in place of a MAC address, for addresses that are not assigned.
    pub fn mark(&self, address: Ipv4Addr) -> Option<&'static str> {
        match address {
            own if own == self.server || Some(own) == self.router => Some(RESERVED),
            own if self.excluded.contains(&own) => Some(EXCLUDED),
            _ => None,
        }
    }

    /// Addresses that are not assigned: the server and the router if they are in the range, and all
    /// that are excluded.
    pub fn marked(&self) -> impl Iterator<Item = (Ipv4Addr, &'static str)> {
        let own = [Some(self.server), self.router].into_iter().flatten();
        let own = own.filter(|address| self.contains(*address));
        let all = own.chain(self.excluded.iter().copied());
        all.filter_map(|address| Some((address, self.mark(address)?)))
    }

    /// How many addresses machines can have.
    pub fn capacity(&self) -> u64 {
        let all = u64::from(u32::from(self.last)) - u64::from(u32::from(self.first)) + 1;
        let marked: BTreeSet<Ipv4Addr> =
            self.marked().map(|own| own.0).filter(|own| self.contains(*own)).collect();
        all.saturating_sub(marked.len() as u64)
    }
}

/// Fills in the range and the address of the server, as upstream does for new pools.
pub fn complete(config: &mut Ipv4Config) -> Result<(), LayoutError> {
    let subnet = subnet_of(&config.cidr)?;
    let (network, broadcast) = (u32::from(subnet.network()), u32::from(subnet.broadcast()));
    if config.pool.start.is_empty() {
        config.pool.start = Ipv4Addr::from(network.saturating_add(1)).to_string();
    }
    if config.pool.end.is_empty() {
        config.pool.end = Ipv4Addr::from(broadcast.saturating_sub(1)).to_string();
    }
    if !config.server_ip.is_empty() {
        return Ok(());
    }
    let taken = config.pool.exclude.iter().chain(&config.router);
    let taken: BTreeSet<Ipv4Addr> = taken.filter_map(|text| text.parse().ok()).collect();
    let mut hosts = (network.saturating_add(1)..broadcast).map(Ipv4Addr::from);
    let server = hosts.find(|address| !taken.contains(address)).ok_or(LayoutError::NoServer)?;
    config.server_ip = server.to_string();
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(change: Value) -> Ipv4Config {
        let mut object = json!({"cidr": "10.0.0.0/29", "serverIP": "10.0.0.2", "router": "10.0.0.1",
            "pool": {"start": "10.0.0.1", "end": "10.0.0.6", "exclude": ["10.0.0.4"]}});
        for (key, value) in change.as_object().unwrap() {
            match value.as_object() {
                Some(inner) => {
                    for (name, value) in inner {
                        object[key][name] = value.clone();
                    }
                }
                None => object[key] = value.clone(),
            }
        }
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn layouts_that_make_no_sense_are_refused_with_the_reason() {
        for (change, expected) in [
            (json!({}), ""),
            (json!({"cidr": "x"}), "invalid CIDR address: x, a valid example is 192.168.1.0/24"),
            (json!({"pool": {"start": "10.0.1.1"}}), "start ip 10.0.1.1 is not within subnet"),
            (json!({"pool": {"start": "10.0.0.0"}}), "start ip 10.0.0.0 is the same as network ip"),
            (json!({"pool": {"end": "10.0.0.7"}}), "end ip 10.0.0.7 is the same as broadcast ip"),
            (json!({"pool": {"start": "10.0.0.6", "end": "10.0.0.3"}}), "invalid pool range"),
            (json!({"serverIP": "10.0.0.9"}), "server ip 10.0.0.9 is not within subnet"),
            (json!({"serverIP": "10.0.0.1"}), "server ip 10.0.0.1 is the same as router ip"),
            (json!({"serverIP": "10.0.0.4"}), "server ip 10.0.0.4 is already occupied"),
            (json!({"serverIP": "ten"}), "server ip \"ten\" is not an IPv4 address"),
            (json!({"router": "10.0.0.7"}), "router ip 10.0.0.7 is the same as broadcast ip"),
            (
                json!({"pool": {"exclude": ["10.0.0.0"]}}),
                "exclude ip 10.0.0.0 is the same as network ip",
            ),
        ] {
            let refused = PoolLayout::parse(&config(change.clone())).err();
            let message = refused.map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(message, expected, "{change}");
        }
    }

    #[test]
    fn marked_addresses_do_not_count() {
        let layout = PoolLayout::parse(&config(json!({}))).unwrap();
        let marked: Vec<_> = layout.marked().map(|(own, mark)| (own.to_string(), mark)).collect();
        let expected = [("10.0.0.2", RESERVED), ("10.0.0.1", RESERVED), ("10.0.0.4", EXCLUDED)];
        assert_eq!(marked, expected.map(|(own, mark)| (own.to_owned(), mark)));
        assert_eq!(layout.capacity(), 3);
    }

    #[test]
    fn new_pools_are_completed() {
        for (change, expected) in [
            (json!({}), ["10.0.0.1", "10.0.0.6", "10.0.0.2"]),
            (json!({"serverIP": ""}), ["10.0.0.1", "10.0.0.6", "10.0.0.2"]),
            (
                json!({"serverIP": "", "pool": {"exclude": ["10.0.0.2"], "start": "", "end": ""}}),
                ["10.0.0.1", "10.0.0.6", "10.0.0.3"],
            ),
        ] {
            let mut config = config(change);
            complete(&mut config).unwrap();
            assert_eq!([&*config.pool.start, &*config.pool.end, &*config.server_ip], expected);
        }
        let mut tiny: Ipv4Config = serde_json::from_value(json!({"cidr": "10.0.0.0/31"})).unwrap();
        assert_eq!(complete(&mut tiny), Err(LayoutError::NoServer));
    }

    #[test]
    fn interfaces_on_definitions_with_a_mac_address_count() {
        let spec = json!({
            "domain": {"devices": {"interfaces": [
                {"name": "nat", "macAddress": "02:00:00:00:00:01"},
                {"name": "lan", "macAddress": "02-00-00-00-00-0A"},
                {"name": "far", "macAddress": "02:00:00:00:00:03"},
                {"name": "gone", "macAddress": "02:00:00:00:00:04", "state": "absent"},
                {"name": "none"},
            ]}},
            "networks": [{"name": "nat", "pod": {}}, {"name": "lan", "multus": {"networkName": "lan"}},
                {"name": "far", "multus": {"networkName": "other/lan"}},
                {"name": "gone", "multus": {"networkName": "lan"}},
                {"name": "none", "multus": {"networkName": "lan"}}],
        });
        let expected = [("n/lan", "02:00:00:00:00:0a"), ("other/lan", "02:00:00:00:00:03")];
        assert_eq!(
            interfaces("n", &spec),
            expected.map(|(network, mac)| (network.to_owned(), mac.to_owned()))
        );
    }

    #[test]
    fn mac_addresses_of_cards() {
        for (text, expected) in [
            ("02:00:00:00:00:01", true),
            ("02-00-00-00-00-0A", true),
            ("03:00:00:00:00:01", false),
            ("02:00:00:00:00", false),
            ("02:00:00:00:00:001", false),
            ("+2:00:00:00:00:01", false),
            ("", false),
        ] {
            assert_eq!(is_mac(text), expected, "{text}");
        }
    }
}
