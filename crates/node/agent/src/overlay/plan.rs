//! Which guests are on which other nodes. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use hci::guest_network::{AddressClaim, AddressHolder, NETWORK};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use net::{GuestOverlay, Overlay, OverlayPeer};

use super::{RemoteGuest, RemoteGuests};
use crate::known_objects::ObjectKey;

/// A node, in the part that matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeRecord {
    /// The network of its guests.
    network: Option<Ipv4Net>,
    /// Its address on the network between nodes.
    underlay: Option<IpAddr>,
}

impl NodeRecord {
    pub(super) fn read(object: Node) -> Option<Self> {
        let annotations = object.metadata.annotations.unwrap_or_default();
        let network = annotations.get(NETWORK).and_then(|text| text.parse::<Ipv4Net>().ok());
        let addresses = object.status.and_then(|status| status.addresses).unwrap_or_default();
        let mut internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
        let underlay = internal.find_map(|address| address.address.parse().ok());
        Some(Self { network: network.map(|network| network.trunc()), underlay })
    }
}

type Claims = BTreeMap<ObjectKey, AddressClaim>;

/// The peers that node `this` has to connect to, and the guests that it reaches then. Nothing
/// changes while the node has no address on the network yet.
pub(super) fn overlay(
    this: &str,
    network: Ipv4Net,
    nodes: &BTreeMap<ObjectKey, NodeRecord>,
    claims: &Claims,
) -> (GuestOverlay, RemoteGuests) {
    let own = nodes.iter().find(|(key, _)| key.name == this).and_then(|(_, own)| own.underlay);
    let Some(underlay) = own else { return (GuestOverlay::Unknown, RemoteGuests::new()) };
    let others = nodes.iter().filter(|(key, _)| key.name != this);
    let mut peers = Vec::new();
    let mut remote = RemoteGuests::new();
    for (key, node) in others {
        let is_same_network = node.network == Some(network);
        let reachable = node.underlay.filter(|other| other.is_ipv4() == underlay.is_ipv4());
        let address = node_address(&key.name, network, claims);
        let (true, Some(other), Some(address)) = (is_same_network, reachable, address) else {
            continue;
        };
        let guests = guests(&key.name, network, claims);
        peers.push(OverlayPeer {
            underlay: other,
            mac: Overlay::mac_of(&key.name),
            address,
            guests: guests.keys().copied().collect(),
            expected: expected(&key.name, claims),
        });
        remote.extend(guests);
    }
    if peers.is_empty() {
        return (GuestOverlay::Alone, remote);
    }
    let Some(address) = node_address(this, network, claims) else {
        return (GuestOverlay::Unknown, RemoteGuests::new());
    };
    let mac = Overlay::mac_of(this);
    (GuestOverlay::Connected(Overlay { underlay, mac, address, peers }), remote)
}

/// The address of a node on the guest network.
fn node_address(node: &str, network: Ipv4Net, claims: &Claims) -> Option<Ipv4Addr> {
    let is_own = |claim: &&AddressClaim| match &claim.holder {
        AddressHolder::Node { name } => name == node && network.contains(&claim.address),
        AddressHolder::Machine { .. } | AddressHolder::Instance { .. } => false,
    };
    claims.values().filter(is_own).map(|claim| claim.address).min()
}

/// The guests that run on a node.
fn guests(node: &str, network: Ipv4Net, claims: &Claims) -> RemoteGuests {
    let is_there = |claim: &&AddressClaim| {
        claim.node.as_deref() == Some(node) && network.contains(&claim.address)
    };
    let guest = |claim: &AddressClaim| match &claim.holder {
        AddressHolder::Machine { namespace, name }
        | AddressHolder::Instance { namespace, name } => {
            let guest = RemoteGuest {
                namespace: namespace.clone(),
                name: name.clone(),
                hostname: claim.hostname.clone().unwrap_or_else(|| name.clone()),
                subdomain: claim.subdomain.clone(),
            };
            Some((claim.address, guest))
        }
        AddressHolder::Node { .. } => None,
    };
    claims.values().filter(is_there).filter_map(guest).collect()
}

/// The guests that are migrating to a node.
fn expected(node: &str, claims: &Claims) -> BTreeSet<Ipv4Addr> {
    let coming = claims.values().filter(|claim| claim.target.as_deref() == Some(node));
    coming.map(|claim| claim.address).collect()
}

#[cfg(test)]
mod tests {
    use hci::guest_network::{LOCATION, TARGET, claim_object};
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { namespace: String::new(), name: name.to_owned() }
    }

    fn node(name: &str, network: &str, address: &str) -> (ObjectKey, NodeRecord) {
        let object = json!({
            "metadata": {"name": name, "annotations": {NETWORK: network}},
            "status": {"addresses": [{"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address}]},
        });
        (key(name), NodeRecord::read(serde_json::from_value(object).unwrap()).unwrap())
    }

    fn claim(last: u8, holder: AddressHolder, at: &str, to: &str) -> (ObjectKey, AddressClaim) {
        let mut object = claim_object([10, 52, 0, last].into(), &holder);
        object["metadata"]["annotations"] = json!({LOCATION: at, TARGET: to});
        (key(&format!("10.52.0.{last}")), AddressClaim::read(&object).unwrap())
    }

    fn of_node(last: u8, name: &str) -> (ObjectKey, AddressClaim) {
        claim(last, AddressHolder::Node { name: name.into() }, "", "")
    }

    fn of_guest(last: u8, name: &str, at: &str, to: &str) -> (ObjectKey, AddressClaim) {
        let (namespace, name) = ("ns".to_owned(), name.to_owned());
        claim(last, AddressHolder::Machine { namespace, name }, at, to)
    }

    fn say(overlay: &GuestOverlay) -> String {
        let GuestOverlay::Connected(overlay) = overlay else { return format!("{overlay:?}") };
        let peers = overlay.peers.iter().map(|peer| {
            format!("{} {} {:?} {:?}", peer.underlay, peer.address, peer.guests, peer.expected)
        });
        let own = format!("{} {}", overlay.underlay, overlay.address);
        [own].into_iter().chain(peers).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn peers_are_nodes_with_the_same_network_and_an_address_there() {
        let network: Ipv4Net = "10.52.0.0/24".parse().unwrap();
        let all = [
            node("n1", "10.52.0.0/24", "192.0.2.1"),
            node("n2", "10.52.0.0/24", "192.0.2.2"),
            node("other", "10.60.0.0/24", "192.0.2.3"),
            node("user", "", "192.0.2.4"),
            node("six", "10.52.0.0/24", "2001:db8::1"),
            node("new", "10.52.0.0/24", "192.0.2.5"),
        ];
        let claims = [
            of_node(201, "n1"),
            of_node(202, "n2"),
            of_node(206, "six"),
            of_guest(7, "here", "n1", "n2"),
            of_guest(8, "there", "n2", ""),
            of_guest(9, "stopped", "", ""),
            of_guest(10, "lost", "gone", ""),
        ];
        let overlay = |nodes: &[(ObjectKey, NodeRecord)], claims: &[(ObjectKey, AddressClaim)]| {
            let (nodes, claims) =
                (nodes.iter().cloned().collect(), claims.iter().cloned().collect());
            overlay("n1", network, &nodes, &claims)
        };
        let (wanted, remote) = overlay(&all, &claims);
        assert_eq!(
            say(&wanted),
            "192.0.2.1 10.52.0.201; 192.0.2.2 10.52.0.202 {10.52.0.8} {10.52.0.7}"
        );
        assert_eq!(remote.keys().copied().collect::<Vec<_>>(), [Ipv4Addr::new(10, 52, 0, 8)]);
        assert_eq!(overlay(&all[..1], &claims).0, GuestOverlay::Alone);
        assert_eq!(overlay(&all[1..], &claims).0, GuestOverlay::Unknown, "not registered yet");
        assert_eq!(overlay(&all, &claims[1..]).0, GuestOverlay::Unknown, "without an address yet");
        assert_eq!(overlay(&all, &[]).0, GuestOverlay::Alone);
    }
}
