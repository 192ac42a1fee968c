//! Services. Addresses and node ports are given out by the API server; here is only
//! what they may be.

pub(crate) mod rules;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::{Column, NameRule, Printer, Resource, Strategy, Subresource};
use crate::{json, labels, print, status};

pub(crate) const RESOURCE: Resource = Resource {
    short_names: &["svc"],
    categories: &["all"],
    table: "services/specs",
    subresources: &[Subresource::proxy("ServiceProxyOptions"), Subresource::STATUS],
    strategy: Strategy {
        name: NameRule::Label,
        default,
        prepare_create,
        prepare_update,
        validate: rules::validate,
        validate_update: rules::validate_update,
        validate_status: rules::validate_status,
        create_on_update: true,
        returns_deleted: true,
        ..Strategy::WITH_STATUS
    },
    printer: Printer { columns: COLUMNS, cells },
    fields: &[
        ("spec.clusterIP", |object| json::text(object, "/spec/clusterIP").to_owned()),
        ("spec.type", |object| json::text(object, "/spec/type").to_owned()),
    ],
    ..Resource::namespaced("", "v1", "services", "service", "Service")
};

/// How long a client sticks to its endpoint: three hours.
const AFFINITY_SECONDS: i64 = 10_800;

fn default(object: &mut Value) {
    let Some(spec) = json::object(object, "spec") else { return };
    json::fill_zero(spec, "sessionAffinity", "None");
    match json::text(spec, "/sessionAffinity") {
        "None" => {
            json::remove(spec, "sessionAffinityConfig");
        }
        "ClientIP" if !json::has(spec, "/sessionAffinityConfig/clientIP/timeoutSeconds") => {
            let config = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
            json::set(spec, "sessionAffinityConfig", config);
        }
        _ => {}
    }
    json::fill_zero(spec, "type", "ClusterIP");
    for port in json::items_mut(spec, "ports") {
        json::fill_zero(port, "protocol", "TCP");
        let number = json::int(port, "/port");
        json::fill_zero(port, "targetPort", number);
    }
    if is_external(spec) {
        json::fill_zero(spec, "externalTrafficPolicy", "Cluster");
    }
    if needs_cluster_ip(spec) {
        json::fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if json::text(spec, "/type") == "LoadBalancer" {
        json::fill(spec, "allocateLoadBalancerNodePorts", true);
        default_ingress(object);
    }
}

fn default_ingress(object: &mut Value) {
    if let Some(balancer) = object.pointer_mut("/status/loadBalancer") {
        for ingress in json::items_mut(balancer, "ingress") {
            if !json::text(ingress, "/ip").is_empty() {
                json::fill(ingress, "ipMode", "VIP");
            }
        }
    }
}

/// Whether the service can be reached from outside.
pub(crate) fn is_external(spec: &Value) -> bool {
    matches!(json::text(spec, "/type"), "LoadBalancer" | "NodePort")
        || json::text(spec, "/type") == "ClusterIP" && json::count(spec, "/externalIPs") > 0
}

fn needs_cluster_ip(spec: &Value) -> bool {
    matches!(json::text(spec, "/type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn needs_node_port(spec: &Value) -> bool {
    json::text(spec, "/type") == "NodePort"
        || json::text(spec, "/type") == "LoadBalancer"
            && json::at(spec, "/allocateLoadBalancerNodePorts") != Some(&Value::Bool(false))
}

/// Whether a port is needed at which nodes say whether they have endpoints.
pub(crate) fn needs_health_check(spec: &Value) -> bool {
    json::text(spec, "/type") == "LoadBalancer"
        && json::text(spec, "/externalTrafficPolicy") == "Local"
}

fn prepare_create(object: &mut Value) {
    json::set(object, "status", json!({"loadBalancer": {}}));
    let Some(spec) = json::object(object, "spec") else { return };
    let address = json::text(spec, "/clusterIP").to_owned();
    if !address.is_empty() && json::count(spec, "/clusterIPs") == 0 {
        json::set(spec, "clusterIPs", json!([address]));
    }
    complete_families(spec, &Value::Null);
}

fn prepare_update(new: &mut Value, old: &Value) {
    status::keep(new, old);
    let before = json::at(old, "/spec").cloned().unwrap_or_default();
    let Some(spec) = json::object(new, "spec") else { return };
    normalize_addresses(spec, &before);
    keep_allocated(spec, &before);
    drop_unneeded(spec, &before);
    complete_families(spec, &before);
    if json::text(spec, "/type") != "LoadBalancer"
        && let Some(status) = json::object(new, "status")
    {
        json::set(status, "loadBalancer", json!({}));
    }
}

/// Guesses what a client meant that knows only one of `clusterIP` and `clusterIPs`.
fn normalize_addresses(spec: &mut Value, before: &Value) {
    let (new, old) = (json::text(spec, "/clusterIP"), json::text(before, "/clusterIP"));
    let addresses = |spec: &Value| json::list(spec, "/clusterIPs").to_vec();
    let unchanged = addresses(spec) == addresses(before);
    if new == old {
        if addresses(spec).is_empty() {
            json::restore(spec, before, "clusterIPs");
        }
    } else if unchanged && new.is_empty() {
        json::remove(spec, "clusterIPs");
    } else if unchanged {
        let address = new.to_owned();
        json::set(spec, "clusterIPs", json!([address]));
    }
}

/// Addresses and ports that were allocated stay when the client leaves them out.
fn keep_allocated(spec: &mut Value, before: &Value) {
    if needs_cluster_ip(before) && needs_cluster_ip(spec) {
        if json::text(spec, "/clusterIP").is_empty() {
            json::restore(spec, before, "clusterIP");
        }
        if json::count(spec, "/clusterIPs") == 0 {
            json::restore(spec, before, "clusterIPs");
        }
    }
    if needs_node_port(before) && needs_node_port(spec) {
        let taken: Vec<i64> =
            json::list(spec, "/ports").iter().map(|port| json::int(port, "/nodePort")).collect();
        for port in json::items_mut(spec, "ports") {
            let name = json::text(port, "/name");
            let known = json::list(before, "/ports")
                .iter()
                .find(|old| json::text(old, "/name") == name)
                .map_or(0, |old| json::int(old, "/nodePort"));
            if known != 0 && !taken.contains(&known) {
                json::fill_zero(port, "nodePort", known);
            }
        }
    }
    if needs_health_check(before) && needs_health_check(spec) {
        let known = json::int(before, "/healthCheckNodePort");
        if known != 0 {
            json::fill_zero(spec, "healthCheckNodePort", known);
        }
    }
}

/// The families follow from the addresses, and from the policy, where the client leaves
/// them out. There is only IPv4 here, so one without an address gets that.
fn complete_families(spec: &mut Value, before: &Value) {
    if !needs_cluster_ip(spec) {
        return;
    }
    // Only its owner knows the targets of such a service, so they may be anywhere.
    let open = json::text(spec, "/clusterIP") == "None"
        && json::at(spec, "/selector").and_then(Value::as_object).is_none_or(|map| map.is_empty());
    let usual = if open { "RequireDualStack" } else { "SingleStack" };
    json::fill(spec, "ipFamilyPolicy", json::text_at(before, "/ipFamilyPolicy").unwrap_or(usual));
    let mut families = json::texts(spec, "/ipFamilies");
    let addresses = json::texts(spec, "/clusterIPs");
    let unnamed = addresses.iter().skip(families.len()).take_while(|address| **address != "None");
    families.extend(unnamed.map(|address| if address.contains(':') { "IPv6" } else { "IPv4" }));
    if families.is_empty() {
        families.push("IPv4");
    }
    if open && families.len() == 1 && json::text(spec, "/ipFamilyPolicy") != "SingleStack" {
        families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" });
    }
    let families = json!(families);
    json::set(spec, "ipFamilies", families);
}

/// After a change of type, fields that the server filled in and the client did not change are
/// removed.
fn drop_unneeded(spec: &mut Value, before: &Value) {
    let drop_unchanged = |spec: &mut Value, key: &str| {
        if spec.get(key) == before.get(key) {
            json::remove(spec, key);
        }
    };
    if needs_cluster_ip(before) && !needs_cluster_ip(spec) {
        if spec.get("clusterIPs") == before.get("clusterIPs") {
            json::remove(spec, "clusterIP");
            json::remove(spec, "clusterIPs");
        }
        drop_unchanged(spec, "ipFamilies");
        drop_unchanged(spec, "ipFamilyPolicy");
    }
    let node_ports = |spec: &Value| -> Vec<i64> {
        let ports = json::list(spec, "/ports").iter();
        ports.map(|port| json::int(port, "/nodePort")).filter(|port| *port != 0).collect()
    };
    if needs_node_port(before)
        && !needs_node_port(spec)
        && node_ports(spec).iter().all(|port| node_ports(before).contains(port))
    {
        for port in json::items_mut(spec, "ports") {
            json::remove(port, "nodePort");
        }
    }
    if needs_health_check(before) && !needs_health_check(spec) {
        drop_unchanged(spec, "healthCheckNodePort");
    }
    let balanced = |spec: &Value| json::text(spec, "/type") == "LoadBalancer";
    if balanced(before) && !balanced(spec) {
        drop_unchanged(spec, "allocateLoadBalancerNodePorts");
        drop_unchanged(spec, "loadBalancerClass");
    }
    if is_external(before) && !is_external(spec) {
        drop_unchanged(spec, "externalTrafficPolicy");
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Type", "How the service is reached"),
    Column::text("Cluster-IP", "Its address inside the cluster"),
    Column::text("External-IP", "Its addresses outside the cluster"),
    Column::text("Port(s)", "The ports it answers on"),
    Column::AGE,
    Column::text("Selector", "What answers for it").wide(),
];

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let address = json::texts(object, "/spec/clusterIPs").first().copied().unwrap_or("<none>");
    let ports: Vec<String> = json::list(object, "/spec/ports").iter().map(port).collect();
    vec![
        print::name(object),
        json::text(object, "/spec/type").into(),
        address.into(),
        external(object).into(),
        print::or(&ports.join(","), "<none>").into(),
        print::age(object, now),
        labels::format_map(json::at(object, "/spec/selector")).into(),
    ]
}

fn port(port: &Value) -> String {
    let (number, protocol) = (json::int(port, "/port"), json::text(port, "/protocol"));
    match json::int(port, "/nodePort") {
        0 => format!("{number}/{protocol}"),
        node => format!("{number}:{node}/{protocol}"),
    }
}

fn external(object: &Value) -> String {
    let addresses = json::texts(object, "/spec/externalIPs");
    match json::text(object, "/spec/type") {
        "ClusterIP" | "NodePort" => print::join_or(addresses, ",", "<none>"),
        "LoadBalancer" => {
            let balancer = print::load_balancer(object);
            let balancer = balancer.split(',').filter(|address| !address.is_empty());
            print::join_or(balancer.chain(addresses), ",", "<pending>")
        }
        "ExternalName" => json::text(object, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_follow_from_addresses_and_policy() {
        let given = json!({"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "PreferDualStack"});
        let cases = [
            (json!({}), json!(null), "SingleStack", json!(["IPv4"])),
            (json!({"clusterIPs": ["fd00::1"]}), json!(null), "SingleStack", json!(["IPv6"])),
            (
                json!({"clusterIP": "None"}),
                json!(null),
                "RequireDualStack",
                json!(["IPv4", "IPv6"]),
            ),
            (
                json!({"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}}),
                json!(null),
                "SingleStack",
                json!(["IPv4"]),
            ),
            (json!({}), given, "PreferDualStack", json!(["IPv4"])),
        ];
        for (mut spec, before, policy, families) in cases {
            spec["type"] = "ClusterIP".into();
            let (mut new, old) = (json!({"spec": spec}), json!({"spec": before}));
            if old["spec"].is_null() {
                prepare_create(&mut new);
            } else {
                default(&mut new);
                prepare_update(&mut new, &old);
            }
            assert_eq!(new["spec"]["ipFamilyPolicy"], policy, "{new}");
            assert_eq!(new["spec"]["ipFamilies"], families, "{new}");
        }
    }

    #[test]
    fn a_replacement_without_addresses_keeps_them() {
        let old = json!({"spec": {"type": "ClusterIP", "clusterIP": "10.0.0.9",
            "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80}]}});
        let mut new = json!({"spec": {"type": "ClusterIP", "ports": [{"port": 81}]}});
        prepare_update(&mut new, &old);
        let mut errors = Vec::new();
        rules::validate_update(&new, &old, &mut errors);
        assert_eq!(new["spec"]["clusterIP"], "10.0.0.9");
        let about_addresses = errors.iter().any(|error| error.to_string().contains("ip"));
        assert!(!about_addresses, "{errors:?}");
    }
}
