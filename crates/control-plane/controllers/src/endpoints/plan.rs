//! The addresses behind a service, in their new and their old form: pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::condition;
use crate::object::{self, controlled_by, copied_map, is_deleting, name, namespace, read, uid};
use crate::record::service::{
    PodFields, ServiceFields, ServicePort, ServiceSpec, protocol_or_default,
};

pub(crate) const SERVICE: &str = "kubernetes.io/service-name";
pub(crate) const SLICES_OF: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const SLICES_BY: &str = "endpointslice-controller.k8s.io";
pub(crate) const ENDPOINTS_OF: &str = "endpoints.kubernetes.io/managed-by";
pub(crate) const ENDPOINTS_BY: &str = "endpoint-controller";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// As many addresses as a slice may have.
const SLICE: usize = 1000;

/// The labels of the pods behind a service; nothing if its endpoints are managed elsewhere.
pub(crate) fn selector(service: &Value) -> Option<String> {
    let spec = spec_of(service);
    if spec.selector.is_empty() || spec.kind == "ExternalName" {
        return None;
    }
    let pairs = spec.selector.iter().map(|(key, value)| format!("{key}={value}"));
    Some(pairs.collect::<Vec<_>>().join(","))
}

fn spec_of(service: &Value) -> ServiceSpec<'_> {
    read::<ServiceFields<'_>>(service).spec
}

/// One pod as a service sees it.
struct Backend<'a> {
    pod: &'a Value,
    fields: PodFields<'a>,
    ready: bool,
    ports: Vec<Value>,
}

/// Pods that answer or may answer soon.
fn backends<'a>(service: &ServiceSpec<'_>, pods: &'a [Value]) -> Vec<Backend<'a>> {
    let backend = |pod: &'a Value| {
        let fields: PodFields<'_> = read(pod);
        let has_ended = matches!(fields.status.phase, "Succeeded" | "Failed");
        (!has_ended && !is_deleting(pod)).then(|| Backend {
            pod,
            ready: service.publish_not_ready_addresses || condition::is(pod, "Ready", "True"),
            ports: ports(service, &fields),
            fields,
        })
    };
    pods.iter().filter_map(backend).collect()
}

/// The ports of a service as this pod answers them; a name is looked up in the pod.
fn ports(service: &ServiceSpec<'_>, pod: &PodFields<'_>) -> Vec<Value> {
    let named = |wanted: &str, protocol: &str| {
        let mut all = pod.spec.containers.iter().flat_map(|container| &container.ports);
        let found =
            all.find(|own| own.name == wanted && protocol_or_default(own.protocol) == protocol)?;
        found.container_port
    };
    let port = |own: &ServicePort<'_>| {
        let protocol = protocol_or_default(own.protocol);
        let number = match own.target_port.as_ref().map(|own| &own.0) {
            Some(Value::String(wanted)) => named(wanted, protocol)?,
            Some(target) if target.as_i64().is_some_and(|target| target > 0) => target.as_i64()?,
            _ => own.port?,
        };
        let mut port = json!({"name": own.name, "protocol": protocol, "port": number});
        if let Some(protocol) = own.app_protocol {
            port["appProtocol"] = protocol.into();
        }
        Some(port)
    };
    service.ports.iter().filter_map(port).collect()
}

fn addresses<'a>(pod: &PodFields<'a>) -> Vec<&'a str> {
    let mut all: Vec<&str> = pod.status.pod_ips.iter().map(|own| own.ip).collect();
    if all.is_empty() {
        all.push(pod.status.pod_ip);
    }
    all.retain(|address| !address.is_empty());
    all
}

fn family(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
}

fn target(pod: &Value) -> Value {
    json!({"kind": "Pod", "namespace": namespace(pod), "name": name(pod), "uid": uid(pod)})
}

/// The name by which the pod is found below a headless service.
fn hostname<'a>(service: &Value, pod: &PodFields<'a>) -> Option<&'a str> {
    let here = pod.spec.subdomain == name(service);
    (here && !pod.spec.hostname.is_empty()).then_some(pod.spec.hostname)
}

/// Ports and the endpoints that answer them, by their addresses.
type Group<'a> = (Vec<Value>, Vec<(&'a str, Value)>);

/// Ports and the addresses that answer them, those that are ready first.
type OldGroup<'a> = (Vec<Value>, [Vec<(&'a str, Value)>; 2]);

/// All slices that the service should have.
pub(crate) fn slices(service: &Value, pods: &[Value]) -> Vec<Value> {
    let mut groups: BTreeMap<(&str, String), Group<'_>> = BTreeMap::new();
    let spec = spec_of(service);
    for wanted in &spec.ip_families {
        // A service without backends has an empty slice, so that one can be watched.
        let wanted = if *wanted == "IPv6" { "IPv6" } else { "IPv4" };
        let ports = if pods.is_empty() { ports(&spec, &read(&Value::Null)) } else { Vec::new() };
        if pods.is_empty() {
            groups.entry((wanted, json!(ports).to_string())).or_insert((ports, Vec::new()));
        }
    }
    for backend in backends(&spec, pods) {
        for address in addresses(&backend.fields) {
            let family = family(address);
            if !spec.ip_families.is_empty() && !spec.ip_families.contains(&family) {
                continue;
            }
            let mut endpoint = json!({"addresses": [address],
                "conditions": {"ready": backend.ready, "serving": backend.ready,
                    "terminating": false},
                "nodeName": backend.fields.spec.node_name, "targetRef": target(backend.pod)});
            if let Some(hostname) = hostname(service, &backend.fields) {
                endpoint["hostname"] = json!(hostname);
            }
            let key = (family, json!(backend.ports).to_string());
            groups
                .entry(key)
                .or_insert_with(|| (backend.ports.clone(), Vec::new()))
                .1
                .push((address, endpoint));
        }
    }
    let mut slices = Vec::new();
    for ((family, _), (ports, mut endpoints)) in groups {
        endpoints.sort_by_key(|(address, _)| *address);
        let endpoints: Vec<Value> = endpoints.into_iter().map(|(_, own)| own).collect();
        let parts: Vec<&[Value]> =
            if endpoints.is_empty() { vec![&[]] } else { endpoints.chunks(SLICE).collect() };
        for part in parts {
            slices.push(slice(service, family, slices.len(), &ports, part));
        }
    }
    slices
}

fn slice(
    service: &Value,
    family: &str,
    index: usize,
    ports: &[Value],
    endpoints: &[Value],
) -> Value {
    let mut labels = labels(service);
    labels.insert(SERVICE.into(), json!(name(service)));
    labels.insert(SLICES_OF.into(), json!(SLICES_BY));
    let name = match index {
        0 => format!("{}-{}", name(service), family.to_lowercase()),
        index => format!("{}-{}-{index}", name(service), family.to_lowercase()),
    };
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"name": name, "labels": labels,
            "ownerReferences": [controlled_by(service, "v1", "Service")]},
        "endpoints": endpoints, "ports": ports})
}

fn labels(service: &Value) -> Map<String, Value> {
    let mut labels = copied_map(object::labels(service));
    if spec_of(service).cluster_ip == "None" {
        labels.insert(HEADLESS.into(), json!(""));
    }
    labels
}

/// The same in the old form, which knows one family only.
pub(crate) fn endpoints(service: &Value, pods: &[Value]) -> Value {
    let mut labels = labels(service);
    labels.insert(ENDPOINTS_OF.into(), json!(ENDPOINTS_BY));
    let spec = spec_of(service);
    let wanted = spec.ip_families.first().copied().unwrap_or("IPv4");
    let mut groups: BTreeMap<String, OldGroup<'_>> = BTreeMap::new();
    for backend in backends(&spec, pods) {
        let Some(ip) = addresses(&backend.fields).into_iter().find(|own| family(own) == wanted)
        else {
            continue;
        };
        let mut address = json!({"ip": ip, "nodeName": backend.fields.spec.node_name,
            "targetRef": target(backend.pod)});
        if let Some(hostname) = hostname(service, &backend.fields) {
            address["hostname"] = json!(hostname);
        }
        let group = groups
            .entry(json!(backend.ports).to_string())
            .or_insert_with(|| (backend.ports.clone(), Default::default()));
        group.1[usize::from(!backend.ready)].push((ip, address));
    }
    let subset = |(ports, [ready, unready]): OldGroup<'_>| {
        let mut subset = json!({});
        for (field, mut list) in [("addresses", ready), ("notReadyAddresses", unready)] {
            list.sort_by_key(|(ip, _)| *ip);
            if !list.is_empty() {
                subset[field] = list.into_iter().map(|(_, own)| own).collect();
            }
        }
        if !ports.is_empty() {
            let ports = ports.into_iter().map(unnamed);
            subset["ports"] = ports.collect();
        }
        subset
    };
    let subsets: Vec<Value> = groups.into_values().map(subset).collect();
    json!({"apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": name(service), "labels": labels}, "subsets": subsets})
}

/// In the old form a port without a name has none.
fn unnamed(mut port: Value) -> Value {
    if port["name"] == ""
        && let Some(port) = port.as_object_mut()
    {
        port.remove("name");
    }
    port
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::list;

    fn service(changes: Value) -> Value {
        let mut spec = json!({"selector": {"app": "a"}, "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "targetPort": 8080}]});
        for (field, value) in changes.as_object().unwrap() {
            spec[field] = value.clone();
        }
        json!({"metadata": {"name": "web", "namespace": "n", "uid": "s", "labels": {"x": "y"}},
            "spec": spec})
    }

    fn pod(name: &str, ip: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        json!({"metadata": {"name": name, "namespace": "n", "uid": name},
            "spec": {"nodeName": "one", "containers": [{"ports": [
                {"name": "http", "containerPort": 8000, "protocol": "TCP"}]}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": ready}]}})
    }

    #[test]
    fn only_services_with_a_selector_are_managed() {
        assert_eq!(selector(&service(json!({}))).as_deref(), Some("app=a"));
        assert_eq!(selector(&service(json!({"selector": {}}))), None);
        assert_eq!(selector(&service(json!({"type": "ExternalName"}))), None);
    }

    #[test]
    fn ready_pods_answer() {
        let pods = [pod("b", "10.0.0.2", true), pod("a", "10.0.0.1", false)];
        let found = slices(&service(json!({})), &pods);
        assert_eq!(found.len(), 1);
        let slice = &found[0];
        assert_eq!((name(slice), &slice["addressType"]), ("web-ipv4", &json!("IPv4")));
        assert_eq!(slice["ports"], json!([{"name": "", "protocol": "TCP", "port": 8080}]));
        let ready: Vec<&Value> =
            list(slice, "/endpoints").iter().map(|own| &own["conditions"]["ready"]).collect();
        assert_eq!(ready, [&json!(false), &json!(true)], "in the order of addresses");
        assert_eq!(slice["metadata"]["labels"][SERVICE], "web");
        let old = endpoints(&service(json!({})), &pods);
        assert_eq!(old["subsets"][0]["addresses"][0]["ip"], "10.0.0.2");
        assert_eq!(old["subsets"][0]["notReadyAddresses"][0]["ip"], "10.0.0.1");
        assert_eq!(old["subsets"][0]["ports"], json!([{"protocol": "TCP", "port": 8080}]));
    }

    #[test]
    fn some_services_do_not_wait_for_readiness() {
        let service = service(json!({"publishNotReadyAddresses": true}));
        let found = slices(&service, &[pod("a", "10.0.0.1", false)]);
        assert_eq!(found[0]["endpoints"][0]["conditions"]["ready"], true);
    }

    #[test]
    fn pods_that_have_ended_do_not_answer() {
        let mut over = pod("a", "10.0.0.1", true);
        over["status"]["phase"] = json!("Succeeded");
        let early = pod("b", "", true);
        assert!(slices(&service(json!({})), &[over.clone(), early.clone()]).is_empty());
        assert_eq!(endpoints(&service(json!({})), &[over, early])["subsets"], json!([]));
    }

    #[test]
    fn ports_are_found_by_name() {
        let service = service(json!({"ports": [{"name": "w", "port": 80, "targetPort": "http"}]}));
        let found = slices(&service, &[pod("a", "10.0.0.1", true)]);
        assert_eq!(found[0]["ports"], json!([{"name": "w", "protocol": "TCP", "port": 8000}]));
    }

    #[test]
    fn each_family_has_slices_of_its_own() {
        let mut both = pod("a", "10.0.0.1", true);
        both["status"]["podIPs"] = json!([{"ip": "10.0.0.1"}, {"ip": "fd::1"}]);
        let dual = service(json!({"ipFamilies": ["IPv4", "IPv6"]}));
        let names: Vec<String> =
            slices(&dual, &[both.clone()]).iter().map(|own| name(own).to_owned()).collect();
        assert_eq!(names, ["web-ipv4", "web-ipv6-1"]);
        assert_eq!(slices(&service(json!({})), &[both]).len(), 1);
    }

    #[test]
    fn a_headless_service_gives_its_pods_names() {
        let mut named = pod("a", "10.0.0.1", true);
        named["spec"]["hostname"] = json!("db");
        named["spec"]["subdomain"] = json!("web");
        let found = slices(&service(json!({"clusterIP": "None"})), &[named]);
        assert_eq!(found[0]["endpoints"][0]["hostname"], "db");
        assert_eq!(found[0]["metadata"]["labels"][HEADLESS], "");
    }

    #[test]
    fn a_service_without_backends_has_an_empty_slice() {
        let found = slices(&service(json!({})), &[]);
        assert_eq!((found.len(), &found[0]["endpoints"]), (1, &json!([])));
    }
}
