use net::{EndpointScope, Protocol};
use serde_json::{Value, json};

use super::*;

fn node() -> ServiceNode {
    ServiceNode {
        name: "one".into(),
        addresses: vec![[192, 0, 2, 1].into()],
        guests: "10.52.0.0/24".parse().unwrap(),
    }
}

fn named(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    ObjectKey { namespace: text("namespace"), name: text("name") }
}

fn read_services(specs: &[(&str, Value)]) -> BTreeMap<ObjectKey, ServiceRecord> {
    let read = |(name, spec): &(&str, Value)| {
        let object = json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec});
        let record = ServiceRecord::read(serde_json::from_value(object.clone()).unwrap())?;
        Some((named(&object), record))
    };
    specs.iter().filter_map(read).collect()
}

fn read_slices(slices: &[(&str, Value, Value)]) -> BTreeMap<ObjectKey, SliceRecord> {
    let read = |(index, (service, ports, endpoints)): (usize, &(&str, Value, Value))| {
        let object = json!({
            "metadata": {"namespace": "ns", "name": format!("{service}-{index}"),
                "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
        });
        let record = SliceRecord::read(serde_json::from_value(object.clone()).unwrap())?;
        Some((named(&object), record))
    };
    slices.iter().enumerate().filter_map(read).collect()
}

fn endpoint(address: &str, node: &str, ready: bool) -> Value {
    json!({"addresses": [address], "nodeName": node,
        "conditions": {"ready": ready, "serving": ready}})
}

fn compile(spec: Value, slices: &[(&str, Value, Value)]) -> Vec<Service> {
    services(&read_services(&[("web", spec)]), &read_slices(slices), &node(), &remote())
}

/// Guest 200 is on another node.
fn remote() -> RemoteGuests {
    let guest = crate::overlay::RemoteGuest {
        namespace: "ns".into(),
        name: "far".into(),
        hostname: "far".into(),
        subdomain: None,
    };
    RemoteGuests::from([(Ipv4Addr::new(10, 52, 0, 200), guest)])
}

#[test]
fn guests_of_other_nodes_are_endpoints_if_they_are_on_the_same_network() {
    let endpoints =
        json!([endpoint("10.52.0.200", "two", true), endpoint("10.52.0.201", "two", true)]);
    let compiled = compile(web(), &[("web", port_8080(), endpoints)]);
    let far =
        Endpoint { address: [10, 52, 0, 200].into(), port: 8080, location: Location::Elsewhere };
    assert_eq!(compiled[0].endpoints, [far]);
}

fn web() -> Value {
    json!({"clusterIP": "10.43.0.9", "ports": [{"port": 80, "targetPort": 8080}]})
}

fn port_8080() -> Value {
    json!([{"name": "", "port": 8080, "protocol": "TCP"}])
}

#[test]
fn a_service_has_the_ready_endpoints_of_all_its_slices() {
    let slices = [
        ("web", port_8080(), json!([endpoint("10.52.0.2", "one", true)])),
        ("other", port_8080(), json!([endpoint("10.52.0.7", "one", true)])),
        (
            "web",
            port_8080(),
            json!([endpoint("10.52.0.3", "one", false), endpoint("10.53.0.4", "two", true)]),
        ),
    ];
    let found = compile(web(), &slices);
    let here =
        Endpoint { address: [10, 52, 0, 2].into(), port: 8080, location: Location::ThisNode };
    let there =
        Endpoint { address: [10, 53, 0, 4].into(), port: 8080, location: Location::Elsewhere };
    let want = Service {
        id: "ns/web:80/tcp".into(),
        address: [10, 43, 0, 9].into(),
        external_addresses: vec![],
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
        affinity: None,
        internal: EndpointScope::Cluster,
        external: EndpointScope::Cluster,
        endpoints: vec![here, there],
    };
    assert_eq!(found, [want]);
}

#[test]
fn the_options_of_a_service_reach_the_network() {
    let spec = json!({"clusterIP": "10.43.0.9", "sessionAffinity": "ClientIP",
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
        "internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local",
        "externalIPs": ["192.0.2.7", "fd00::7", "127.0.0.1"],
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053},
            {"name": "sctp", "port": 9, "protocol": "SCTP"}]});
    let found = compile(spec, &[]);
    assert_eq!(found.len(), 2);
    let first = &found[0];
    assert_eq!((first.protocol, first.node_port), (Protocol::Udp, Some(30053)));
    assert_eq!((first.affinity, first.internal), (Some(60), EndpointScope::Local));
    assert_eq!(first.external, EndpointScope::Local);
    assert_eq!(first.external_addresses, [Ipv4Addr::new(192, 0, 2, 7)], "IPv4, not the loopback");
    assert_eq!((found[1].id.as_str(), found[1].protocol), ("ns/web:sctp/sctp", Protocol::Sctp));
    assert!(found.iter().all(|service| service.endpoints.is_empty()));
}

#[test]
fn endpoints_that_cannot_or_must_not_be_reached_are_left_out() {
    let endpoints = json!([
        // On the network of the same numbers, of another node.
        endpoint("10.52.0.5", "two", true),
        {"addresses": ["127.0.0.1"], "conditions": {}},
        {"addresses": ["169.254.169.254"], "conditions": {}},
        {"addresses": ["fd00::1"], "conditions": {}},
        {"addresses": ["192.0.2.1"], "conditions": {}},
    ]);
    let found = compile(web(), &[("web", port_8080(), endpoints)]);
    let only =
        Endpoint { address: [192, 0, 2, 1].into(), port: 8080, location: Location::ThisNode };
    assert_eq!(found[0].endpoints, [only], "the node itself, from no condition at all");
}

#[test]
fn endpoints_that_end_serve_until_others_are_ready() {
    let ending = json!({"addresses": ["10.52.0.2"], "nodeName": "one",
        "conditions": {"ready": false, "serving": true, "terminating": true}});
    let ready = endpoint("10.52.0.3", "one", true);
    let count = |endpoints: Value| {
        let found = compile(web(), &[("web", port_8080(), endpoints)]);
        found[0].endpoints.iter().map(|each| each.address.octets()[3]).collect::<Vec<_>>()
    };
    assert_eq!(count(json!([ending])), [2]);
    assert_eq!(count(json!([ending, ready])), [3]);
}

#[test]
fn services_without_an_address_are_names_only() {
    for spec in [
        json!({"clusterIP": "None", "ports": [{"port": 80}]}),
        json!({"type": "ExternalName", "externalName": "db.example.org"}),
        json!({"clusterIP": "fd00::9", "ports": [{"port": 80}]}),
        json!({"ports": [{"port": 80}]}),
    ] {
        assert_eq!(compile(spec, &[]), []);
    }
}

#[test]
fn names_follow_from_services_and_endpoints() {
    let services = read_services(&[
        ("web", json!({"clusterIP": "10.43.0.9", "ports": [{"name": "http", "port": 80}]})),
        ("db", json!({"clusterIP": "None", "ports": [{"name": "sql", "port": 5432}]})),
        ("ext", json!({"type": "ExternalName", "externalName": "db.example.org"})),
    ]);
    let mut named = endpoint("10.52.0.2", "one", true);
    named["hostname"] = json!("db-0");
    let endpoints =
        json!([named, endpoint("10.52.0.3", "one", true), endpoint("10.52.0.4", "one", false)]);
    let ports = json!([{"name": "sql", "port": 15432, "protocol": "TCP"}]);
    let found = records(&services, &read_slices(&[("db", ports, endpoints)]));
    let mut want = ServiceRecords::default();
    let web = "web.ns.svc.cluster.local";
    want.insert_address(web, [10, 43, 0, 9].into()).unwrap();
    want.insert_pointer([10, 43, 0, 9].into(), web).unwrap();
    want.insert_port("_http._tcp.web.ns.svc.cluster.local", 80, web).unwrap();
    let below = [(2, "db-0.db.ns.svc.cluster.local"), (3, "10-52-0-3.db.ns.svc.cluster.local")];
    for (last, name) in below {
        let address = [10, 52, 0, last].into();
        want.insert_address("db.ns.svc.cluster.local", address).unwrap();
        want.insert_address(name, address).unwrap();
        want.insert_pointer(address, name).unwrap();
        want.insert_port("_sql._tcp.db.ns.svc.cluster.local", 15432, name).unwrap();
    }
    want.insert_alias("ext.ns.svc.cluster.local", "db.example.org").unwrap();
    assert_eq!(found, want);
}
