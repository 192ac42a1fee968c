//! The objects that exist from the start, as data.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::api::Settings;

/// Objects that do not depend on where this server runs.
pub(crate) fn fixed(settings: &Settings) -> Vec<Value> {
    let priority = |name: &str, value: i64, description: &str| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "description": description,
        })
    };
    vec![
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": {"component": "apiserver", "provider": "kubernetes"},
            },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": settings.service_range.first().to_string(),
                "ports": [{
                    "name": "https", "port": 443, "protocol": "TCP",
                    "targetPort": settings.advertise.port(),
                }],
            },
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
            "metadata": {"name": "kubernetes"},
            "spec": {"cidrs": [settings.service_range.to_string()]},
        }),
        priority("system-node-critical", 2_000_001_000, "For what a node cannot do without."),
        priority(
            "system-cluster-critical",
            2_000_000_000,
            "For what the cluster cannot do without.",
        ),
        authentication(settings),
    ]
}

/// The data that aggregated servers need to trust the users that this one reports.
fn authentication(settings: &Settings) -> Value {
    let list = |items: &[String]| json!(items).to_string();
    let mut data = json!({});
    if !settings.ca_pem.is_empty() {
        data["client-ca-file"] = settings.ca_pem.clone().into();
    }
    if !settings.front_proxy_ca_pem.is_empty() {
        let proxy = &settings.front_proxy;
        data["requestheader-client-ca-file"] = settings.front_proxy_ca_pem.clone().into();
        data["requestheader-allowed-names"] = list(&proxy.allowed_names).into();
        data["requestheader-username-headers"] = list(&proxy.username).into();
        data["requestheader-uid-headers"] = list(&proxy.uid).into();
        data["requestheader-group-headers"] = list(&proxy.group).into();
        data["requestheader-extra-headers-prefix"] = list(&proxy.extra_prefix).into();
    }
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": data,
    })
}

/// Where the `kubernetes` service leads. A loopback address may not be an endpoint, so a
/// server that only listens there has none.
pub(crate) fn own_endpoints(advertise: SocketAddr) -> Vec<Value> {
    let ip = advertise.ip();
    if ip.is_loopback() || ip.is_unspecified() {
        return Vec::new();
    }
    let port = json!({"name": "https", "port": advertise.port(), "protocol": "TCP"});
    let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
    vec![
        json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
            "subsets": [{"addresses": [{"ip": ip.to_string()}], "ports": [port]}],
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}],
            "ports": [port],
        }),
    ]
}
