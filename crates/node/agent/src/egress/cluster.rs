//! The addresses of the nodes of the cluster, of their guest networks and of the API, which imports
//! do not reach, and guests neither but for the API: followed by the Node objects and the lease of
//! the virtual address.

use std::collections::{BTreeMap, BTreeSet};

use base::{Chain, Stop};
use futures_util::{Stream, StreamExt as _, stream};
use hci::cluster::{API_URL, VIP_LEASE, VIP_NAMESPACE, node_ranges, virtual_address};
use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use net::ClusterHosts;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use tracing::warn;

/// Ranges of the cluster; nothing before its nodes were listed.
pub(crate) type ClusterRanges = Option<NodeRanges>;

/// Addresses of nodes, their guest networks and the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeRanges {
    pub(crate) ranges: Vec<IpNet>,
    /// Ports of the API on nodes.
    pub(crate) api_ports: BTreeSet<u16>,
}

/// A change of a Node or of another object whose addresses count, by the key of the object.
enum AddressEvent {
    Begin,
    Apply(String, NodeRanges),
    Delete(String),
    Listed,
}

/// Ranges by node, and of the virtual address.
#[derive(Debug, Default)]
struct ClusterAddresses {
    ranges: BTreeMap<String, NodeRanges>,
    /// Of a list that has begun.
    listing: BTreeMap<String, NodeRanges>,
    is_listed: bool,
}

impl ClusterAddresses {
    fn apply(&mut self, event: AddressEvent) {
        match event {
            AddressEvent::Begin => self.listing.clear(),
            // An address that has gone is refused until the list is complete.
            AddressEvent::Apply(key, ranges) => {
                self.listing.insert(key.clone(), ranges.clone());
                self.ranges.insert(key, ranges);
            }
            AddressEvent::Delete(key) => {
                self.ranges.remove(&key);
                self.listing.remove(&key);
            }
            AddressEvent::Listed => {
                self.ranges = self.listing.clone();
                self.is_listed = true;
            }
        }
    }

    fn known(&self) -> ClusterRanges {
        self.is_listed
            .then(|| self.ranges.values().cloned().fold(NodeRanges::default(), NodeRanges::with))
    }
}

impl NodeRanges {
    pub(crate) fn with(mut self, other: Self) -> Self {
        self.ranges.extend(other.ranges);
        self.api_ports.extend(other.api_ports);
        self
    }

    /// The addresses of a node, the network of its guests and the port of its API.
    pub(crate) fn of_node(node: &Value) -> Self {
        let api = node["metadata"]["annotations"][API_URL].as_str();
        let api = api.and_then(|url| reqwest::Url::parse(url).ok());
        let api_ports = api.and_then(|url| url.port_or_known_default()).into_iter().collect();
        Self { ranges: node_ranges(node), api_ports }
    }

    /// The virtual address of the API.
    pub(crate) fn of_lease(lease: &Value) -> Self {
        let ranges = virtual_address(lease).map(IpNet::from).into_iter().collect();
        Self { ranges, ..Self::default() }
    }

    /// Hosts of the cluster as guests of `network` see them.
    pub(crate) fn hosts(&self, network: Ipv4Net) -> ClusterHosts {
        let outside = |range: &IpNet| match range {
            IpNet::V4(range) => (!network.contains(range)).then(|| range.trunc()),
            IpNet::V6(_) => None,
        };
        ClusterHosts {
            addresses: self.ranges.iter().filter_map(outside).collect(),
            api_ports: self.api_ports.clone(),
        }
    }
}

fn events<K: kube::Resource + Serialize>(
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    ranges: fn(&Value) -> NodeRanges,
) -> impl Stream<Item = watcher::Result<AddressEvent>> {
    events.map(move |event| {
        Ok(match event? {
            Event::Init => AddressEvent::Begin,
            Event::InitApply(object) | Event::Apply(object) => {
                let object_value = serde_json::to_value(&object).unwrap_or_default();
                AddressEvent::Apply(object.name_any(), ranges(&object_value))
            }
            Event::Delete(object) => AddressEvent::Delete(object.name_any()),
            Event::InitDone => AddressEvent::Listed,
        })
    })
}

/// Follows the addresses until `stop`.
pub(super) async fn follow(client: Client, known: watch::Sender<ClusterRanges>, mut stop: Stop) {
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let lease = watcher::Config::default().fields(&format!("metadata.name={VIP_LEASE}"));
    let leases = watcher(Api::<Lease>::namespaced(client, VIP_NAMESPACE), lease);
    let nodes = events(nodes.default_backoff(), NodeRanges::of_node).map(|event| (0, event));
    let leases = events(leases.default_backoff(), NodeRanges::of_lease).map(|event| (1, event));
    let mut events = std::pin::pin!(stream::select(nodes, leases));
    let mut addresses = [ClusterAddresses::default(), ClusterAddresses::default()];
    loop {
        let event = tokio::select! {
            () = stop.requested() => return,
            event = events.next() => event,
        };
        match event {
            None => return,
            Some((_, Err(error))) => {
                warn!(error = %Chain(&error), "cannot watch the addresses of the cluster");
            }
            Some((which, Ok(event))) => {
                addresses[which].apply(event);
                let [nodes, leases] = &addresses;
                let ranges = nodes.known().zip(leases.known());
                let ranges = ranges.map(|(nodes, leases)| nodes.with(leases));
                known.send_if_modified(|now| {
                    let is_new = *now != ranges;
                    *now = ranges;
                    is_new
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hci::announcement::ADDRESS;
    use hci::cluster::HOST_ADDRESSES;
    use hci::guest_network::NETWORK;
    use serde_json::json;

    use super::*;

    fn texts(ranges: &[IpNet]) -> Vec<String> {
        ranges.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_node_has_addresses_and_a_guest_network() {
        let node = json!({
            "metadata": {"name": "n2", "annotations": {
                NETWORK: "10.52.2.1/24",
                HOST_ADDRESSES: "10.0.9.2,192.168.7.2,nonsense,0.0.0.0/0",
                API_URL: "https://192.168.7.2:6443",
            }},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "192.168.7.2"},
                {"type": "Hostname", "address": "n2"},
                {"type": "InternalIP", "address": "fd00::2"},
            ]},
        });
        let ranges = NodeRanges::of_node(&node);
        let expected = ["192.168.7.2/32", "fd00::2/128", "10.0.9.2/32", "10.52.2.0/24"];
        assert_eq!(texts(&ranges.ranges), expected);
        let hosts = |network: &str| {
            let hosts = ranges.hosts(network.parse().unwrap());
            let addresses = hosts.addresses.iter().map(ToString::to_string);
            (addresses.collect::<Vec<_>>().join(" "), hosts.api_ports)
        };
        let api = BTreeSet::from([6443]);
        let same = "10.0.9.2/32 192.168.7.2/32".to_owned();
        assert_eq!(hosts("10.52.2.0/24"), (same, api.clone()));
        let other = "10.0.9.2/32 10.52.2.0/24 192.168.7.2/32".to_owned();
        assert_eq!(hosts("10.52.0.0/24"), (other, api), "guests of a network of their own");
        let lease = json!({"metadata": {"annotations": {ADDRESS: "192.168.7.9"}}});
        assert_eq!(texts(&NodeRanges::of_lease(&lease).ranges), ["192.168.7.9/32"]);
        assert_eq!(NodeRanges::of_lease(&json!({})), NodeRanges::default());
    }

    #[test]
    fn nothing_is_known_before_the_first_list_and_a_new_list_replaces_it() {
        let range = |text: &str| NodeRanges {
            ranges: vec![text.parse::<IpNet>().unwrap()],
            ..NodeRanges::default()
        };
        let mut seen = ClusterAddresses::default();
        seen.apply(AddressEvent::Begin);
        seen.apply(AddressEvent::Apply("a".into(), range("192.0.2.1/32")));
        assert_eq!(seen.known(), None);
        seen.apply(AddressEvent::Listed);
        assert_eq!(seen.known(), Some(range("192.0.2.1/32")));
        seen.apply(AddressEvent::Apply("b".into(), range("192.0.2.2/32")));
        assert_eq!(seen.known().unwrap().ranges.len(), 2);
        seen.apply(AddressEvent::Delete("a".into()));
        assert_eq!(seen.known(), Some(range("192.0.2.2/32")));
        // The watch began anew; b went meanwhile.
        seen.apply(AddressEvent::Begin);
        seen.apply(AddressEvent::Apply("c".into(), range("192.0.2.3/32")));
        assert_eq!(seen.known().unwrap().ranges.len(), 2, "known ones until the list is complete");
        seen.apply(AddressEvent::Listed);
        assert_eq!(seen.known(), Some(range("192.0.2.3/32")));
    }
}
