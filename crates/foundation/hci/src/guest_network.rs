//! How the control plane and the agents agree on the addresses of the guest network. Pure.
//!
//! ```text
//!  Node       node.sheaf.io/guest-network: 10.52.0.0/24   its guests are on this network
//!  IPAddress  10.52.0.7, parentRef: who holds it          written by the controller only
//!             sheaf.io/node: n2                           where the guest runs now
//!             sheaf.io/target-node: n3                    where it is migrating to
//! ```
//!
//! An address is given once in the cluster, since an object of its name can be created only once. A
//! machine holds its address while it exists; nodes hold one each, by which guests of other nodes see them.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

/// Annotation of a node: the network of its guests.
pub const NETWORK: &str = "node.sheaf.io/guest-network";
/// Annotation of an address: the node that its guest runs on.
pub const LOCATION: &str = "sheaf.io/node";
/// Annotation of an address: the node that its guest is migrating to.
pub const TARGET: &str = "sheaf.io/target-node";
/// Annotation of an address: the host name of its guest.
pub const HOSTNAME: &str = "sheaf.io/hostname";
/// Annotation of an address: the subdomain of its guest.
pub const SUBDOMAIN: &str = "sheaf.io/subdomain";
/// Selects the addresses of guest networks among those of services.
pub const SELECTOR: &str = "ipaddress.kubernetes.io/managed-by=guest-network.sheaf.io";
/// Label of an address with a digest of its holder.
pub const HOLDER: &str = "sheaf.io/holder";

const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "guest-network.sheaf.io");

/// Holder of an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressHolder {
    /// A VirtualMachine, running or not.
    Machine {
        namespace: String,
        name: String,
    },
    /// A VirtualMachineInstance of its own.
    Instance {
        namespace: String,
        name: String,
    },
    Node {
        name: String,
    },
}

/// An address and its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressClaim {
    pub address: Ipv4Addr,
    pub holder: AddressHolder,
    pub node: Option<String>,
    pub target: Option<String>,
    pub hostname: Option<String>,
    pub subdomain: Option<String>,
}

impl AddressHolder {
    fn parts(&self) -> (&'static str, &'static str, &str, &str) {
        match self {
            Self::Machine { namespace, name } => {
                ("kubevirt.io", "virtualmachines", namespace, name)
            }
            Self::Instance { namespace, name } => {
                ("kubevirt.io", "virtualmachineinstances", namespace, name)
            }
            Self::Node { name } => ("", "nodes", "", name),
        }
    }

    /// Where the search for a free address begins, and a label's value.
    fn digest(&self) -> u64 {
        let (group, resource, namespace, name) = self.parts();
        let text = format!("{group}/{resource}/{namespace}/{name}");
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Selects the addresses of this holder, and of others only by chance.
    pub fn selector(&self) -> String {
        format!("{HOLDER}={:016x}", self.digest())
    }
}

impl AddressClaim {
    /// A claim as the API has it; nothing if it is not one of a guest network.
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = &object["metadata"];
        if metadata["labels"][MANAGED_BY.0] != MANAGED_BY.1 {
            return None;
        }
        let parent = &object["spec"]["parentRef"];
        let text = |key: &str| parent[key].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let holder = match (text("group").as_str(), text("resource").as_str()) {
            ("kubevirt.io", "virtualmachines") => AddressHolder::Machine { namespace, name },
            ("kubevirt.io", "virtualmachineinstances") => {
                AddressHolder::Instance { namespace, name }
            }
            ("", "nodes") => AddressHolder::Node { name },
            _ => return None,
        };
        let note = |key: &str| {
            let value = metadata["annotations"][key].as_str()?;
            (!value.is_empty()).then(|| value.to_owned())
        };
        Some(Self {
            address: metadata["name"].as_str()?.parse().ok()?,
            holder,
            node: note(LOCATION),
            target: note(TARGET),
            hostname: note(HOSTNAME),
            subdomain: note(SUBDOMAIN),
        })
    }
}

/// The object that gives `address` to `holder`.
pub fn claim_object(address: Ipv4Addr, holder: &AddressHolder) -> Value {
    let (group, resource, namespace, name) = holder.parts();
    let digest = format!("{:016x}", holder.digest());
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": address.to_string(), "labels": {
            "ipaddress.kubernetes.io/ip-family": "IPv4", MANAGED_BY.0: MANAGED_BY.1,
            HOLDER: digest}},
        "spec": {"parentRef": {"group": group, "resource": resource, "namespace": namespace,
            "name": name}},
    })
}

/// The network of a node's guests, if they are on one.
pub fn network_of(node: &Value) -> Option<Ipv4Net> {
    let network: Ipv4Net = node["metadata"]["annotations"][NETWORK].as_str()?.parse().ok()?;
    ((1..=29).contains(&network.prefix_len())).then(|| network.trunc())
}

/// Whether guests and nodes of `network` may have `address`: neither the network's own, nor the
/// gateway, which every node has, nor the broadcast address.
pub fn is_assignable(network: Ipv4Net, address: Ipv4Addr) -> bool {
    let first = u32::from(network.network());
    network.contains(&address)
        && address != network.broadcast()
        && u32::from(address).checked_sub(first).is_some_and(|offset| offset > 1)
}

/// An address of `network` for `holder` that is not in use; none when all are. Where the search
/// begins is decided by the holder, so that an address is rarely given to another holder soon.
pub fn choose(
    network: Ipv4Net,
    holder: &AddressHolder,
    in_use: &BTreeSet<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let first = u32::from(network.network());
    let size = u32::from(network.broadcast()) - first;
    let start = u32::try_from(holder.digest() % u64::from(size)).unwrap_or(0);
    let offsets = (start..size).chain(0..start);
    offsets
        .map(|offset| Ipv4Addr::from(first + offset))
        .find(|address| is_assignable(network, *address) && !in_use.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> AddressHolder {
        AddressHolder::Machine { namespace: "default".into(), name: name.into() }
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let node = AddressHolder::Node { name: "n1".into() };
        let instance = AddressHolder::Instance { namespace: "a".into(), name: "b".into() };
        for holder in [machine("web"), instance, node] {
            let mut object = claim_object([10, 52, 0, 7].into(), &holder);
            let claim = AddressClaim::read(&object).unwrap();
            assert_eq!((claim.address, &claim.holder), ([10, 52, 0, 7].into(), &holder));
            assert_eq!(claim.node, None);
            object["metadata"]["annotations"] = json!({LOCATION: "n2", TARGET: "n3"});
            let claim = AddressClaim::read(&object).unwrap();
            assert_eq!(claim.node.as_deref(), Some("n2"));
            assert_eq!(claim.target.as_deref(), Some("n3"));
            let label = &object["metadata"]["labels"][HOLDER];
            assert_eq!(holder.selector(), format!("{HOLDER}={}", label.as_str().unwrap()));
        }
        let service = json!({"metadata": {"name": "10.53.0.1"},
            "spec": {"parentRef": {"resource": "services", "name": "kubernetes"}}});
        assert_eq!(AddressClaim::read(&service), None);
    }

    #[test]
    fn every_address_is_given_once_and_then_none() {
        for (network, room) in [("10.0.0.0/29", 5), ("10.0.0.0/24", 253), ("10.52.0.0/22", 1021)] {
            let network: Ipv4Net = network.parse().unwrap();
            let mut taken = BTreeSet::new();
            while let Some(address) = choose(network, &machine("same"), &taken) {
                assert!(taken.insert(address), "{address} twice");
                assert!(is_assignable(network, address));
            }
            assert_eq!(taken.len(), room, "{network}");
        }
    }

    #[test]
    fn the_network_of_a_node_is_what_its_annotation_says() {
        let node = |text: &str| json!({"metadata": {"annotations": {NETWORK: text}}});
        assert_eq!(network_of(&json!({})), None);
        for (text, expected) in [
            ("10.52.0.1/24", Some("10.52.0.0/24")),
            ("10.52.0.0/30", None),
            ("0.0.0.0/0", None),
            ("fd00::/64", None),
        ] {
            assert_eq!(network_of(&node(text)), expected.map(|text| text.parse().unwrap()));
        }
    }
}
