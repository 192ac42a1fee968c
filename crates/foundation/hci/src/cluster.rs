//! Names that the nodes of a cluster agree on: how the control plane marks a node that joined.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde_json::Value;

/// Pin of the public key that a node joined with; no other machine can take its name.
pub const NODE_KEY: &str = "sheaf.io/node-key";
/// ID of the join token that a node came with.
pub const JOIN_TOKEN: &str = "sheaf.io/join-token";
/// Marks a node that runs machines and stores volumes and nothing else.
pub const WORKER_ROLE: &str = "node-role.harvesterhci.io/worker";
/// Marks a node that joined to run the control plane, too. Only the control plane sets it, and it
/// hands the keys of the cluster to nodes that have it.
pub const MANAGEMENT_ROLE: &str = "node-role.harvesterhci.io/management";
/// Marks a node that votes in etcd and does nothing else. Only the control plane sets it, and there
/// is one such node at most.
pub const WITNESS_ROLE: &str = "node-role.harvesterhci.io/witness";
/// Label and taint of a witness, as Harvester has them: nothing runs there.
pub const ETCD_ROLE: &str = "node-role.kubernetes.io/etcd";
/// Set by a node that runs the control plane.
pub const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
/// URL of the API server of a node, and of its etcd.
pub const API_URL: &str = "sheaf.io/api-url";
pub const ETCD_URL: &str = "sheaf.io/etcd-url";
/// IPv4 addresses of the host of a node, on all its networks, separated by commas.
pub const HOST_ADDRESSES: &str = "sheaf.io/host-addresses";
/// Set by a management node whose server signs grants for requests to the endpoints of agents.
pub const AGENT_GRANTS: &str = "sheaf.io/agent-grants";
/// The lease of the virtual address of the cluster: its holder has the address.
pub const VIP_LEASE: &str = "sheaf-vip";
pub const VIP_NAMESPACE: &str = "kube-system";
/// Every node of Harvester has it.
pub const MANAGED: &str = "harvesterhci.io/managed";

/// As many addresses as a node may report in [`HOST_ADDRESSES`].
const MAX_HOST_ADDRESSES: usize = 64;

/// The addresses of a node and the network of its guests.
pub fn node_ranges(node: &Value) -> Vec<IpNet> {
    let note = |key: &str| node["metadata"]["annotations"][key].as_str().unwrap_or_default();
    let addresses = node["status"]["addresses"].as_array().map_or(&[][..], Vec::as_slice);
    let addresses = addresses.iter().filter_map(|own| own["address"].as_str()?.parse().ok());
    let reported = note(HOST_ADDRESSES).split(',').take(MAX_HOST_ADDRESSES);
    let reported = reported.filter_map(|own| own.parse::<Ipv4Addr>().ok().map(IpAddr::from));
    let mut ranges = Vec::new();
    for range in addresses.chain(reported).map(IpNet::from) {
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    let network = note(crate::guest_network::NETWORK).parse::<IpNet>().ok();
    ranges.extend(network.map(|own| own.trunc()));
    ranges
}

/// The virtual address of the API, from its lease.
pub fn virtual_address(lease: &Value) -> Option<IpAddr> {
    lease["metadata"]["annotations"][crate::announcement::ADDRESS].as_str()?.parse().ok()
}

/// Whether a node votes in etcd and does nothing else: neither machines nor data are placed there.
pub fn is_witness(node: &Value) -> bool {
    node["metadata"]["labels"][WITNESS_ROLE] == "true"
}

/// The bootstrap token that a user name represents.
pub fn bootstrap_token_id(user: &str) -> Option<&str> {
    user.strip_prefix("system:bootstrap:").filter(|id| !id.is_empty())
}

/// The node that a user name represents.
pub fn node_of_user(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|node| !node.is_empty())
}

/// Whether a node may be called so: a DNS subdomain that is also the value of a label.
pub fn is_node_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|byte| is_plain(byte) || byte == b'-')
            && label.bytes().next().is_some_and(is_plain)
            && label.bytes().last().is_some_and(is_plain)
    };
    name.len() <= 63 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_witness_is_known_by_its_label() {
        for (labels, expected) in [
            (json!({WITNESS_ROLE: "true"}), true),
            (json!({WITNESS_ROLE: "false"}), false),
            (json!({MANAGEMENT_ROLE: "true", ETCD_ROLE: "true"}), false),
            (json!(null), false),
        ] {
            assert_eq!(is_witness(&json!({"metadata": {"labels": labels}})), expected, "{labels}");
        }
    }

    #[test]
    fn names_of_nodes_fit_labels_and_certificates() {
        for good in ["n2", "rack-1.n2", "0"] {
            assert!(is_node_name(good), "{good}");
        }
        for bad in ["", "N2", "a..b", "-a", "a-", "a/b", "*", &"a".repeat(64)] {
            assert!(!is_node_name(bad), "{bad}");
        }
        assert_eq!(bootstrap_token_id("system:bootstrap:abcdef"), Some("abcdef"));
        assert_eq!(bootstrap_token_id("system:node:a"), None);
        assert_eq!(node_of_user("system:node:"), None);
    }
}
