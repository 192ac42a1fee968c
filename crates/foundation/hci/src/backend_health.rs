//! The machines behind a load balancer, and how the agents report whether they answer. Pure.
//!
//! The agent of the node that a machine runs on connects to its port and writes what it found into
//! an annotation of the VirtualMachineInstance, by the name of the load balancer:
//!
//! ```text
//!  sheaf.io/backend-health: {"web":{"port":8080,"healthy":true}}
//! ```

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cluster;
use crate::harvester::load_balancer::{LoadBalancer, LoadBalancerSpec};

/// Annotation of an instance.
pub const HEALTH: &str = "sheaf.io/backend-health";

/// The health of a machine, for one load balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendHealth {
    pub port: u16,
    pub healthy: bool,
}

/// The annotation of an instance, by the name of the load balancer; empty if it cannot be read.
pub fn reported(instance: &Value) -> BTreeMap<String, BackendHealth> {
    let text = instance["metadata"]["annotations"][HEALTH].as_str();
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A health check that is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveCheck {
    pub port: u16,
    pub successes: u32,
    pub failures: u32,
    pub period: Duration,
    pub timeout: Duration,
}

impl ActiveCheck {
    /// Nothing for a load balancer without a check.
    pub fn of(balancer: &LoadBalancer) -> Option<Self> {
        if balancer.spec.workload_type.as_deref() == Some("cluster") {
            return None;
        }
        let check = balancer.spec.health_check.as_ref()?;
        let port = u16::try_from(check.port?).ok().filter(|port| *port > 0)?;
        // Admission fills in what is missing; these are its figures.
        let count = |given: Option<i32>, default: u32| {
            given.and_then(|given| u32::try_from(given).ok()).filter(|n| *n > 0).unwrap_or(default)
        };
        let seconds = |given| Duration::from_secs(count(given, 1).into());
        Some(Self {
            port,
            successes: count(check.success_threshold, 2),
            failures: count(check.failure_threshold, 2),
            period: seconds(check.period_seconds),
            timeout: seconds(check.timeout_seconds),
        })
    }
}

/// Whether a load balancer leads to instances with these labels: one of the values of every key. An
/// empty selector selects none.
pub fn selects(spec: &LoadBalancerSpec, labels: &Value) -> bool {
    let selector = &spec.backend_server_selector;
    !selector.is_empty()
        && selector.iter().all(|(key, values)| {
            labels[key].as_str().is_some_and(|own| values.iter().any(|value| value == own))
        })
}

/// The address of an instance that connections go to: the first IPv4 one of its own interfaces.
///
/// On the guest network it is the one that the platform has assigned. On other networks the guest
/// reports it: one that is loopback, link-local, or reserved (of nodes, services, or
/// guests) is not used. Interfaces that only the guest knows do not count.
pub fn address(instance: &Value, is_reserved: impl Fn(Ipv4Addr) -> bool) -> Option<&str> {
    let networks = instance["spec"]["networks"].as_array().map_or(&[][..], Vec::as_slice);
    let interfaces = instance["status"]["interfaces"].as_array()?.iter();
    let mut addresses = interfaces.filter_map(|interface| {
        let network = networks.iter().find(|own| own["name"] == interface["name"])?;
        let text = interface["ipAddress"].as_str()?;
        Some((network["pod"].is_object(), text, text.parse::<Ipv4Addr>().ok()?))
    });
    let is_usable = |(is_assigned, _, address): &(bool, &str, Ipv4Addr)| {
        *is_assigned || !is_special(*address) && !is_reserved(*address)
    };
    addresses.find(is_usable).map(|(_, text, _)| text)
}

/// Addresses that guests may not report: those of nodes and of the API, and the networks of guests,
/// where addresses are assigned.
#[derive(Debug, Clone)]
pub struct ReservedAddresses(Vec<IpNet>);

impl ReservedAddresses {
    /// `leases` are those of the namespace of the virtual address.
    pub fn of(nodes: &[Value], leases: &[Value]) -> Self {
        let leases = leases.iter().filter(|own| own["metadata"]["name"] == cluster::VIP_LEASE);
        let addresses = leases.filter_map(cluster::virtual_address).map(IpNet::from);
        Self(nodes.iter().flat_map(cluster::node_ranges).chain(addresses).collect())
    }

    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.0.iter().any(|range| range.contains(&IpAddr::from(address)))
    }
}

/// Whether an address is that of no other host.
fn is_special(address: Ipv4Addr) -> bool {
    address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets()[0] == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn balancer(spec: Value) -> LoadBalancer {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_check_has_the_figures_of_its_load_balancer() {
        for (spec, expected) in [
            (json!({}), None),
            (json!({"healthCheck": {"port": 0, "periodSeconds": 3}}), None),
            (json!({"healthCheck": {"port": 80}, "workloadType": "cluster"}), None),
            (json!({"healthCheck": {"port": 80}}), Some((80, 2, 2, 1, 1))),
            (
                json!({"healthCheck": {"port": 80, "successThreshold": 1, "failureThreshold": 3,
                    "periodSeconds": 5, "timeoutSeconds": 4}}),
                Some((80, 1, 3, 5, 4)),
            ),
        ] {
            let check = ActiveCheck::of(&balancer(spec.clone())).map(|own| {
                let (period, timeout) = (own.period.as_secs(), own.timeout.as_secs());
                (own.port, own.successes, own.failures, period, timeout)
            });
            assert_eq!(check, expected, "{spec}");
        }
    }

    #[test]
    fn a_selector_wants_one_value_of_every_key() {
        let selector = json!({"backendServerSelector": {"app": ["web", "www"], "zone": ["a"]}});
        let own = balancer(selector);
        for (labels, expected) in [
            (json!({"app": "www", "zone": "a"}), true),
            (json!({"app": "www"}), false),
            (json!({"app": "db", "zone": "a"}), false),
        ] {
            assert_eq!(selects(&own.spec, &labels), expected, "{labels}");
        }
        assert!(!selects(&balancer(json!({})).spec, &json!({"app": "web"})));
    }

    #[test]
    fn a_guest_does_not_choose_the_host_that_connections_go_to() {
        let instance = |interfaces: Value| {
            json!({
                "spec": {"networks": [{"name": "lan", "multus": {"networkName": "lan"}},
                    {"name": "default", "pod": {}}]},
                "status": {"interfaces": interfaces},
            })
        };
        let lan = |address: &str| json!({"name": "lan", "ipAddress": address});
        let assigned = json!({"name": "default", "ipAddress": "10.52.0.7"});
        let is_reserved = |address: Ipv4Addr| {
            ["192.0.2.1", "10.52.0.7", "10.52.0.9", "10.53.0.1"]
                .iter()
                .any(|own| own.parse() == Ok(address))
        };
        for (interfaces, expected) in [
            (json!([lan("198.51.100.7"), assigned]), Some("198.51.100.7")),
            (json!([assigned, lan("198.51.100.7")]), Some("10.52.0.7")),
            (json!([lan("fd00::1"), assigned]), Some("10.52.0.7")),
            // A lie of the guest agent.
            (json!([lan("127.0.0.1"), assigned]), Some("10.52.0.7")),
            (json!([lan("127.0.0.1")]), None),
            (json!([lan("169.254.169.254")]), None),
            (json!([lan("0.0.0.0")]), None),
            (json!([lan("192.0.2.1")]), None),
            (json!([lan("10.52.0.9")]), None),
            (json!([lan("10.53.0.1")]), None),
            // An interface that the guest has made, under any name.
            (json!([{"interfaceName": "tun0", "ipAddress": "198.51.100.7"}]), None),
            (json!([{"name": "tun0", "ipAddress": "198.51.100.7"}]), None),
        ] {
            let instance = instance(interfaces.clone());
            assert_eq!(address(&instance, is_reserved), expected, "{interfaces}");
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let health =
            BTreeMap::from([("web".to_owned(), BackendHealth { port: 80, healthy: true })]);
        let text = serde_json::to_string(&health).unwrap();
        assert_eq!(text, r#"{"web":{"port":80,"healthy":true}}"#);
        let instance = |text: &str| json!({"metadata": {"annotations": {HEALTH: text}}});
        assert_eq!(reported(&instance(&text)), health);
        assert!(reported(&instance("no")).is_empty() && reported(&json!({})).is_empty());
    }
}
