//! Which lease is given on which tap. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use hci::dhcp::{LEASE_SECONDS, PoolLayout, is_same_network};
use hci::harvester::dhcp::DhcpPool;
use ipnet::Ipv4Net;
use net::{DhcpOptions, DhcpServer, Lease, LinkName, Mac, PortLease};
use serde_json::Value;

/// Interfaces of guests on bridges, by tap.
pub(crate) type BridgedInterfaces = BTreeMap<LinkName, BridgedInterface>;

/// An interface of a guest that leads to a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BridgedInterface {
    /// NetworkAttachmentDefinition: NAMESPACE/NAME.
    pub(crate) network: String,
    pub(crate) mac: Mac,
    /// Options that do not depend on a pool.
    pub(crate) options: DhcpOptions,
}

/// A pool, in the part that matters to guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolRecord {
    network: String,
    server: DhcpServer,
    options: DhcpOptions,
    addresses: BTreeMap<Mac, Ipv4Addr>,
}

impl PoolRecord {
    /// Nothing for a pool that is paused or makes no sense: its requests are not answered.
    pub(super) fn read(object: &Value) -> Option<Self> {
        let pool: DhcpPool = serde_json::from_value(object.clone()).ok()?;
        let config = &pool.spec.ipv4_config;
        let layout = PoolLayout::parse(config).ok()?;
        if pool.spec.paused == Some(true) {
            return None;
        }
        let addresses = |list: &[String]| list.iter().filter_map(|own| own.parse().ok()).collect();
        let options = DhcpOptions {
            dns: addresses(&config.dns),
            ntp: addresses(&config.ntp),
            domain: config.domain_name.clone().filter(|name| !name.is_empty()),
            search: config.domain_search.clone(),
            ..DhcpOptions::default()
        };
        options.check().ok()?;
        let seconds = config.lease_time.and_then(|seconds| u32::try_from(seconds).ok());
        let server = DhcpServer {
            address: Ipv4Net::new(layout.server, layout.subnet.prefix_len()).ok()?,
            router: layout.router,
            dns: None,
            lease_seconds: seconds.filter(|seconds| *seconds > 0).unwrap_or(LEASE_SECONDS),
        };
        let allocated = pool.status.unwrap_or_default().ipv4.unwrap_or_default().allocated;
        // Marks are no MAC addresses.
        let allocated = allocated.iter().filter_map(|(address, mac)| {
            Some((mac.parse::<Mac>().ok()?, address.parse::<Ipv4Addr>().ok()?))
        });
        let addresses = allocated.filter(|(_, own)| layout.is_assignable(*own)).collect();
        Some(Self { network: pool.spec.network_name, server, options, addresses })
    }
}

/// Leases of all guests that a pool has an address for.
pub(super) fn leases<'a>(
    pools: impl Iterator<Item = &'a PoolRecord>,
    interfaces: &BridgedInterfaces,
) -> BTreeMap<LinkName, PortLease> {
    let pools: Vec<&PoolRecord> = pools.collect();
    let mut leases = BTreeMap::new();
    for (tap, own) in interfaces {
        let of_network = pools.iter().filter(|pool| is_same_network(&pool.network, &own.network));
        let found = of_network.filter_map(|pool| Some((pool, *pool.addresses.get(&own.mac)?)));
        let Some((pool, address)) = found.min_by_key(|(_, address)| *address) else { continue };
        let PoolRecord { server, options, .. } = pool;
        let ntp = if options.ntp.is_empty() { &own.options.ntp } else { &options.ntp };
        let options = DhcpOptions {
            dns: options.dns.clone(),
            domain: options.domain.clone(),
            search: options.search.clone(),
            ntp: ntp.clone(),
            ..own.options.clone()
        };
        let lease = Lease { mac: own.mac, address, options };
        leases.insert(tap.clone(), PortLease { lease, server: server.clone() });
    }
    leases
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pool(change: &[(&str, Value)]) -> Value {
        let mut object = json!({
            "metadata": {"namespace": "default", "name": "p"},
            "spec": {"networkName": "default/lan", "ipv4Config": {"cidr": "10.0.0.0/24",
                "serverIP": "10.0.0.2", "router": "10.0.0.1", "dns": ["192.0.2.53"],
                "domainName": "lan.example", "domainSearch": ["a.example"], "leaseTime": 600,
                "pool": {"start": "10.0.0.1", "end": "10.0.0.20", "exclude": ["10.0.0.9"]}}},
            "status": {"ipv4": {"used": 1, "available": 1, "allocated": {
                "10.0.0.2": "RESERVED", "10.0.0.9": "EXCLUDED", "10.0.0.5": "02:00:00:00:00:01"}}},
        });
        for (pointer, value) in change {
            *object.pointer_mut(pointer).unwrap() = value.clone();
        }
        object
    }

    fn interfaces() -> BridgedInterfaces {
        let own = |network: &str, last: u8| BridgedInterface {
            network: network.to_owned(),
            mac: Mac::new([2, 0, 0, 0, 0, last]),
            options: DhcpOptions {
                hostname: Some("vm".into()),
                ntp: vec![[192, 0, 2, 123].into()],
                ..DhcpOptions::default()
            },
        };
        let all = [("shf-1", "default/lan", 1), ("shf-2", "default/lan", 2), ("shf-3", "n/lan", 1)];
        all.map(|(tap, network, last)| (tap.parse().unwrap(), own(network, last))).into()
    }

    fn served(change: &[(&str, Value)]) -> Vec<(String, String)> {
        let pool = PoolRecord::read(&pool(change));
        let leases = leases(pool.iter(), &interfaces());
        let all = leases.iter().map(|(tap, own)| (tap.to_string(), own.lease.address.to_string()));
        all.collect()
    }

    #[test]
    fn guests_that_the_pool_of_their_network_knows_are_served() {
        let one = vec![("shf-1".to_owned(), "10.0.0.5".to_owned())];
        let bad = json!({"10.0.0.9": "02:00:00:00:00:01", "10.9.0.1": "02:00:00:00:00:02"});
        for (change, expected) in [
            (vec![], one.clone()),
            // Without a namespace it is that of all.
            (vec![("/spec/networkName", json!("lan"))], one),
            (
                vec![("/spec/networkName", json!("n/lan"))],
                vec![("shf-3".into(), "10.0.0.5".into())],
            ),
            (vec![("/spec/networkName", json!("n/other"))], vec![]),
            // An address that the record should not have is not given out.
            (vec![("/status/ipv4/allocated", bad)], vec![]),
            (vec![("/spec/ipv4Config/serverIP", json!("10.9.9.9"))], vec![]),
            (vec![("/status", Value::Null)], vec![]),
        ] {
            assert_eq!(served(&change), expected, "{change:?}");
        }
        let mut paused = pool(&[]);
        paused["spec"]["paused"] = json!(true);
        assert_eq!(PoolRecord::read(&paused), None);
    }

    #[test]
    fn a_guest_gets_the_options_of_its_pool() {
        let pool = PoolRecord::read(&pool(&[])).unwrap();
        let leases = leases([&pool].into_iter(), &interfaces());
        let PortLease { lease, server } = &leases[&"shf-1".parse().unwrap()];
        assert_eq!(server.address, "10.0.0.2/24".parse().unwrap());
        assert_eq!((server.router, server.lease_seconds), (Some([10, 0, 0, 1].into()), 600));
        let expected = DhcpOptions {
            dns: vec![[192, 0, 2, 53].into()],
            domain: Some("lan.example".into()),
            search: vec!["a.example".into()],
            hostname: Some("vm".into()),
            ntp: vec![[192, 0, 2, 123].into()],
            ..DhcpOptions::default()
        };
        assert_eq!(lease.options, expected);
    }
}
