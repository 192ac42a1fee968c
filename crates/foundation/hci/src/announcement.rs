//! How the control plane and the agents agree on the node that announces an address. Pure.
//!
//! ```text
//!  Node   node.sheaf.io/subnets: 192.168.1.0/24    written by its agent: it could announce there
//!  Lease  harvester-system/announce-192.168.1.200, one per address
//!         sheaf.io/announce-on: n2                 the node that is to announce: by the controller
//!         spec.holderIdentity: n2                  set by the controller, cleared by the holder
//!         spec.renewTime                           written by the holder while it announces
//! ```
//!
//! A holder announces for [`VALID`] from the moment at which it sent a renewal that succeeded, and
//! the kernel removes the address then, whether or not the agent lives. The controller gives the
//! address to another node when the holder has cleared its name, or [`HANDOVER`] after it saw the
//! last renewal. That is later than the holder's own deadline, whatever the clocks of both say.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

/// Annotation of a node: the subnets of its interfaces.
pub const SUBNETS: &str = "node.sheaf.io/subnets";
/// Annotation of a lease: the node that is to announce the address; empty if none is.
pub const ANNOUNCE_ON: &str = "sheaf.io/announce-on";
/// Annotation of a lease: its address.
pub const ADDRESS: &str = "sheaf.io/address";
/// Annotation of an IPPool: `external` means that nodes do not announce its addresses, because
/// routers lead to them.
pub const ANNOUNCEMENT: &str = "sheaf.io/announcement";
/// Selects the leases of addresses.
pub const SELECTOR: &str = "sheaf.io/announcement=address";
/// Namespace of the leases; only the platform writes there.
pub const NAMESPACE: &str = "harvester-system";

/// How long a holder announces after a renewal.
pub const VALID: Duration = Duration::from_secs(6);
/// Interval of renewals.
pub const RENEW: Duration = Duration::from_secs(2);
/// How long a lease has to be unchanged before another node gets it. The kernel removes addresses
/// up to a second and a quarter late.
pub const HANDOVER: Duration = Duration::from_secs(9);

/// The name of the lease of an address.
pub fn lease_name(address: Ipv4Addr) -> String {
    format!("announce-{address}")
}

/// The lease of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnouncementLease {
    pub address: Ipv4Addr,
    /// The node that may announce.
    pub holder: String,
    /// The node that is to announce.
    pub wanted: String,
    /// When the holder last renewed it; empty if it never did.
    pub renewed: String,
    pub resource_version: String,
}

impl AnnouncementLease {
    /// Nothing for a lease of something else.
    pub fn read(lease: &Value) -> Option<Self> {
        let text =
            |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let note = |key: &str| {
            lease["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
        };
        let address: Ipv4Addr = note(ADDRESS).parse().ok()?;
        (text("/metadata/name") == lease_name(address)).then(|| Self {
            address,
            holder: text("/spec/holderIdentity").to_owned(),
            wanted: note(ANNOUNCE_ON),
            renewed: text("/spec/renewTime").to_owned(),
            resource_version: text("/metadata/resourceVersion").to_owned(),
        })
    }

    /// A new lease, with its first holder.
    pub fn object(address: Ipv4Addr, holder: &str, now: &str) -> Value {
        let (key, value) = SELECTOR.split_once('=').unwrap_or_default();
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": lease_name(address), "namespace": NAMESPACE, "labels": {key: value},
                "annotations": {ADDRESS: address.to_string(), ANNOUNCE_ON: holder},
            },
            "spec": {
                "holderIdentity": holder, "acquireTime": now, "leaseTransitions": 0,
                "leaseDurationSeconds": VALID.as_secs(),
            },
        })
    }
}

/// The subnets of a node, as its annotation lists them.
pub fn subnets(node: &Value) -> Vec<Ipv4Net> {
    let listed = node["metadata"]["annotations"][SUBNETS].as_str().unwrap_or_default();
    listed.split(',').filter_map(|subnet| subnet.parse().ok()).collect()
}

/// The annotation for these subnets.
pub fn subnets_text(subnets: &[Ipv4Net]) -> String {
    let mut subnets: Vec<Ipv4Net> = subnets.iter().map(Ipv4Net::trunc).collect();
    subnets.sort();
    subnets.dedup();
    let subnets: Vec<String> = subnets.iter().map(Ipv4Net::to_string).collect();
    subnets.join(",")
}

/// Whether a node, ready or not, has an interface in the subnet of the address.
pub fn is_local(nodes: &[Value], address: Ipv4Addr) -> bool {
    nodes.iter().any(|node| subnets(node).iter().any(|subnet| subnet.contains(&address)))
}

/// Nodes that can be given the address: those that are ready and have an interface in the subnet.
/// Nodes that are cordoned count only if there are no others.
pub fn candidates(nodes: &[Value], address: Ipv4Addr) -> Vec<&str> {
    let able = nodes.iter().filter(|node| {
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|own| own["type"] == "Ready" && own["status"] == "True");
        ready.next().is_some()
            && node["metadata"]["deletionTimestamp"].is_null()
            && subnets(node).iter().any(|subnet| subnet.contains(&address))
    });
    let (cordoned, open): (Vec<&Value>, Vec<&Value>) =
        able.partition(|node| node["spec"]["unschedulable"] == true);
    let chosen = if open.is_empty() { cordoned } else { open };
    chosen.into_iter().filter_map(|node| node["metadata"]["name"].as_str()).collect()
}

/// The node that is to announce an address: the present one while it can, else the one with the
/// fewest addresses (`load`). `failed` had it and did not announce it: it is the last choice.
pub fn choose<'a>(
    candidates: &[&'a str],
    present: &str,
    failed: Option<&str>,
    load: &BTreeMap<&str, usize>,
) -> Option<&'a str> {
    let kept = candidates.iter().find(|name| **name == present && Some(**name) != failed);
    let rank = |name: &'a str| (Some(name) == failed, load.get(name).copied(), name);
    let first = candidates.iter().copied().min_by_key(|name| rank(name));
    kept.copied().or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_an_address_while_it_can() {
        let load = BTreeMap::from([("a", 2), ("b", 1), ("c", 1)]);
        for (candidates, present, failed, expected) in [
            (&["a", "b", "c"][..], "", None, Some("b")),
            (&["a", "b", "c"], "a", None, Some("a")),
            (&["b", "c"], "a", None, Some("b")),
            (&["a", "b", "c"], "b", Some("b"), Some("c")),
            (&["b"], "b", Some("b"), Some("b")),
            (&["a", "new"], "", None, Some("new")),
            (&[], "a", None, None),
        ] {
            let chosen = choose(candidates, present, failed, &load);
            assert_eq!(chosen, expected, "{candidates:?} {present} {failed:?}");
        }
    }

    #[test]
    fn nodes_that_are_ready_and_have_the_subnet_can_announce() {
        let node = |name: &str, ready: &str, unschedulable: bool, subnets: &str| {
            json!({
                "metadata": {"name": name, "annotations": {SUBNETS: subnets}},
                "spec": {"unschedulable": unschedulable},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            })
        };
        let good = node("good", "True", false, "10.0.0.0/24");
        let two = node("two", "True", false, "10.1.0.0/24,10.0.0.0/29,10.0.0.8/29");
        let far = node("far", "True", false, "10.0.1.0/24");
        let bare = node("bare", "True", false, "");
        let cordoned = node("cordoned", "True", true, "10.0.0.0/24");
        let lost = node("lost", "Unknown", false, "10.0.0.0/24");
        let address = Ipv4Addr::new(10, 0, 0, 9);
        for (nodes, expected) in [
            (vec![good.clone(), two, far.clone()], vec!["good", "two"]),
            (vec![good, cordoned.clone(), lost.clone()], vec!["good"]),
            (vec![far.clone(), cordoned, bare.clone()], vec!["cordoned"]),
            (vec![far, lost, bare], vec![]),
        ] {
            assert_eq!(candidates(&nodes, address), expected);
        }
        let text = subnets_text(&["10.1.0.5/24".parse().unwrap(), "10.0.0.1/24".parse().unwrap()]);
        assert_eq!(text, "10.0.0.0/24,10.1.0.0/24");
    }

    #[test]
    fn a_lease_is_read_as_it_was_written() {
        let address = Ipv4Addr::new(10, 0, 0, 9);
        let mut object = AnnouncementLease::object(address, "n1", "2026-01-01T00:00:00.000000Z");
        let lease = AnnouncementLease::read(&object).unwrap();
        assert_eq!((lease.holder.as_str(), lease.wanted.as_str()), ("n1", "n1"));
        assert_eq!((lease.address, lease.renewed.as_str()), (address, ""));
        // A lease of another name says nothing about the address.
        object["metadata"]["name"] = "other".into();
        assert_eq!(AnnouncementLease::read(&object), None);
    }

    #[test]
    fn a_holder_has_stopped_before_another_begins() {
        let kernel = Duration::from_millis(1250);
        assert!(RENEW * 2 < VALID && VALID + kernel < HANDOVER);
    }
}
