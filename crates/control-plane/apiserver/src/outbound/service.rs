//! Resolves a service to the address of one of its endpoints, for webhooks and aggregated servers.
//!
//! The node may have no rules for service addresses (`--guest-network user`, no agent), so a
//! request is sent to a ready endpoint of the service's EndpointSlices, or of its Endpoints.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use store::Range;

use crate::api::Api;
use crate::verbs::object;

const SERVICES: &str = "services/specs";
const ENDPOINTS: &str = "services/endpoints";
const SLICES: &str = "endpointslices";
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Why a service cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("service {0:?} not found")]
    NoService(String),
    #[error("no service port {port} found for service {service:?}")]
    NoPort { port: i64, service: String },
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    #[error("unsupported service type {0:?}")]
    Type(String),
}

/// `host:port` of one endpoint of a service; another one each time.
pub(crate) fn resolve(
    api: &Api,
    namespace: &str,
    name: &str,
    port: i64,
) -> Result<String, ResolveError> {
    let Some(entry) = api.store.get(SERVICES, &object::key(namespace, name)) else {
        return Err(ResolveError::NoService(name.to_owned()));
    };
    let service = entry.item.to_value();
    match service["spec"]["type"].as_str().unwrap_or("ClusterIP") {
        "ExternalName" => {
            let host = service["spec"]["externalName"].as_str().unwrap_or("");
            return Ok(format!("{host}:{port}"));
        }
        "ClusterIP" | "NodePort" | "LoadBalancer" => {}
        other => return Err(ResolveError::Type(other.to_owned())),
    }
    let ports = service["spec"]["ports"].as_array();
    let Some(wanted) = ports.into_iter().flatten().find(|known| known["port"] == port) else {
        return Err(ResolveError::NoPort { port, service: name.to_owned() });
    };
    let port_name = wanted["name"].as_str().unwrap_or("");
    let mut addresses = in_slices(&slices(api, namespace, name), port_name);
    if addresses.is_empty()
        && let Some(entry) = api.store.get(ENDPOINTS, &object::key(namespace, name))
    {
        addresses = in_endpoints(&entry.item.to_value(), port_name);
    }
    match addresses.len() {
        0 => Err(ResolveError::NoEndpoints(name.to_owned())),
        count => {
            static TURN: AtomicUsize = AtomicUsize::new(0);
            Ok(addresses.swap_remove(TURN.fetch_add(1, Ordering::Relaxed) % count))
        }
    }
}

fn slices(api: &Api, namespace: &str, service: &str) -> Vec<Value> {
    let prefix = format!("{namespace}/");
    let page = api.store.list(SLICES, Range { prefix: &prefix, ..Range::default() });
    let entries = page.map(|page| page.entries).unwrap_or_default();
    entries
        .iter()
        .filter(|entry| entry.item.label(SERVICE_NAME) == Some(service))
        .map(|entry| entry.item.to_value())
        .collect()
}

fn in_slices(slices: &[Value], port_name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for slice in slices {
        let Some(port) = port_of(&slice["ports"], port_name) else { continue };
        for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
            // Unknown counts as ready.
            if endpoint["conditions"]["ready"] == false {
                continue;
            }
            let addresses = endpoint["addresses"].as_array().into_iter().flatten();
            found.extend(addresses.filter_map(|address| place(address, port)));
        }
    }
    found
}

fn in_endpoints(endpoints: &Value, port_name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        let Some(port) = port_of(&subset["ports"], port_name) else { continue };
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        found.extend(addresses.filter_map(|address| place(&address["ip"], port)));
    }
    found
}

/// The port of that name; ports of a service with one port may be nameless.
fn port_of(ports: &Value, name: &str) -> Option<u16> {
    let ports = ports.as_array()?;
    let port = ports.iter().find(|port| port["name"].as_str().unwrap_or("") == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

fn place(address: &Value, port: u16) -> Option<String> {
    let address = address.as_str()?;
    match address.parse() {
        Ok(ip) => Some(SocketAddr::new(ip, port).to_string()),
        Err(_) => Some(format!("{address}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_ready_endpoints_of_the_right_port_are_used() {
        let slices = [json!({
            "ports": [{"name": "https", "port": 9443}, {"name": "other", "port": 1}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false}},
                {"addresses": ["fd00::1"]},
            ],
        })];
        assert_eq!(in_slices(&slices, "https"), ["10.0.0.1:9443", "[fd00::1]:9443"]);
        assert!(in_slices(&slices, "absent").is_empty());
        let endpoints = json!({"subsets": [{
            "addresses": [{"ip": "10.0.0.3"}], "ports": [{"port": 443}],
        }]});
        assert_eq!(in_endpoints(&endpoints, ""), ["10.0.0.3:443"]);
    }
}
