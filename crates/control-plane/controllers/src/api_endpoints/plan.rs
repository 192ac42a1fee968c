//! The endpoints of the service `kubernetes`. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use hci::cluster::{API_URL, CONTROL_PLANE};
use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "default";
pub(super) const NAME: &str = "kubernetes";

/// The API servers of management nodes that are ready. None if no node reports where its server is,
/// as in a cluster with one, and none if no node is ready: then clients may as well try them all.
pub(super) fn servers(nodes: &[Value]) -> BTreeSet<SocketAddr> {
    let is_server = |node: &&Value| {
        let labels = &node["metadata"]["labels"];
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().find(|own| own["type"] == "Ready");
        labels[CONTROL_PLANE] == "true" && ready.is_some_and(|ready| ready["status"] == "True")
    };
    let address = |node: &Value| -> Option<SocketAddr> {
        node["metadata"]["annotations"][API_URL].as_str()?.strip_prefix("https://")?.parse().ok()
    };
    nodes.iter().filter(is_server).filter_map(address).collect()
}

fn port(number: u16) -> Value {
    json!({"name": "https", "port": number, "protocol": "TCP"})
}

pub(super) fn endpoints(servers: &BTreeSet<SocketAddr>) -> Value {
    let mut by_port: BTreeMap<u16, Vec<IpAddr>> = BTreeMap::new();
    for server in servers {
        by_port.entry(server.port()).or_default().push(server.ip());
    }
    let subset = |(number, addresses): (u16, Vec<IpAddr>)| {
        let addresses: Vec<Value> =
            addresses.iter().map(|address| json!({"ip": address.to_string()})).collect();
        json!({"addresses": addresses, "ports": [port(number)]})
    };
    let subsets: Vec<Value> = by_port.into_iter().map(subset).collect();
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE,
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": subsets,
    })
}

/// A slice has one port and one family: those of the first server.
pub(super) fn slice(servers: &BTreeSet<SocketAddr>) -> Value {
    let first = servers.first();
    let is_alike = |server: &&SocketAddr| {
        first.is_some_and(|first| {
            first.port() == server.port() && first.is_ipv4() == server.is_ipv4()
        })
    };
    let endpoint = |server: &SocketAddr| json!({"addresses": [server.ip().to_string()], "conditions": {"ready": true}});
    let endpoints: Vec<Value> = servers.iter().filter(is_alike).map(endpoint).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": NAME, "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": NAME},
        },
        "addressType": if first.is_none_or(SocketAddr::is_ipv4) { "IPv4" } else { "IPv6" },
        "endpoints": endpoints,
        "ports": first.map(|first| vec![port(first.port())]).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(url: Option<&str>, label: &str, ready: &str) -> Value {
        json!({
            "metadata": {"labels": {label: "true"}, "annotations": {API_URL: url}},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    }

    #[test]
    fn management_nodes_that_are_ready_are_endpoints() {
        let nodes = [
            node(Some("https://10.0.0.2:6443"), CONTROL_PLANE, "True"),
            node(Some("https://10.0.0.1:6443"), CONTROL_PLANE, "True"),
            node(Some("https://10.0.0.3:6443"), CONTROL_PLANE, "Unknown"),
            node(None, CONTROL_PLANE, "True"),
            // A worker that claims to be a server.
            node(Some("https://10.0.0.9:6443"), "worker", "True"),
        ];
        let servers = servers(&nodes);
        let made = endpoints(&servers);
        let addresses = json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]);
        assert_eq!(made["subsets"][0]["addresses"], addresses);
        assert_eq!(made["subsets"].as_array().unwrap().len(), 1);
        let made = slice(&servers);
        assert_eq!(made["endpoints"].as_array().unwrap().len(), 2);
        assert_eq!(made["ports"][0]["port"], 6443);
    }

    #[test]
    fn a_cluster_of_one_is_left_to_its_server() {
        assert!(servers(&[node(None, CONTROL_PLANE, "True")]).is_empty());
    }
}
