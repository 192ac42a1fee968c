//! Traces of connections in a small cluster.

use serde_json::json;

use super::*;

fn instance(namespace: &str, name: &str, node: &str, last: u8, ports: &Value) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}")},
        "spec": {"domain": {"devices": {"interfaces":
            [{"name": "default", "masquerade": {}, "ports": ports}]}}},
        "status": {"phase": "Running", "nodeName": node,
            "interfaces": [{"name": "default", "ipAddress": format!("10.52.0.{last}")}]},
    })
}

fn pod(namespace: &str, name: &str, node: &str, last: u8) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": format!("launcher-{name}"), "labels": {
            "app": name, "vm.kubevirt.io/name": name, "kubevirt.io/created-by": format!("uid-{name}")}},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "podIP": format!("10.52.0.{last}")},
    })
}

/// Guests a and b of namespace `n` on two nodes, and c of namespace `m`.
fn cluster(policies: &[Value]) -> TraceObjects {
    let node = |name: &str, last: u8| {
        json!({
            "metadata": {"name": name, "annotations": {
                GUEST_NETWORK: "10.52.0.0/24",
                "sheaf.io/host-addresses": format!("203.0.113.{last}"),
                "sheaf.io/api-url": format!("https://198.51.100.{last}:6443"),
            }},
            "status": {"addresses":
                [{"type": "InternalIP", "address": format!("198.51.100.{last}")}]},
        })
    };
    let guests = [("n", "a", "one", 2), ("n", "b", "two", 3), ("m", "c", "one", 4)];
    let web = json!([{"port": 80}]);
    let policies = policies.iter().enumerate().map(|(index, spec)| {
        json!({"metadata": {"namespace": "n", "name": format!("p{index}")}, "spec": spec})
    });
    TraceObjects {
        policies: policies.collect(),
        cluster_policies: vec![],
        multi_policies: vec![],
        pools: vec![],
        namespaces: ["n", "m"].map(|name| json!({"metadata": {"name": name}})).into(),
        pods: guests.map(|(namespace, name, node, last)| pod(namespace, name, node, last)).into(),
        instances: guests
            .map(|(namespace, name, node, last)| instance(namespace, name, node, last, &web))
            .into(),
        services: vec![json!({"metadata": {"namespace": "n", "name": "web"}, "spec":
            {"clusterIP": "10.53.0.9", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]}})],
        slices: vec![json!({"metadata": {"namespace": "n", "name": "web-1", "labels":
            {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.52.0.3"], "nodeName": "two"}]})],
        nodes: vec![node("one", 1), node("two", 2)],
        leases: vec![json!({"metadata": {"name": "sheaf-vip", "namespace": "kube-system",
            "annotations": {"sheaf.io/address": "198.51.100.9"}}})],
    }
}

/// The last step of the only way.
fn last(objects: &TraceObjects, machine: &str, to: &str, port: u16) -> (String, bool, String) {
    let (namespace, machine) = machine.split_once('/').unwrap();
    let to = to.parse().unwrap();
    let query = TraceQuery { namespace, machine, to, port, protocol: TraceProtocol::Tcp };
    let mut paths = trace(objects, &query).unwrap();
    assert_eq!(paths.len(), 1);
    let step = paths.remove(0).steps.pop().unwrap();
    (step.stage.to_owned(), step.is_accepted, step.detail)
}

#[test]
fn the_step_that_decides_is_named() {
    let free = cluster(&[]);
    let closed = cluster(&[json!({"podSelector": {"matchLabels": {"app": "b"}},
        "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector":
            {"matchLabels": {"app": "x"}}}]}]})]);
    let no_egress = cluster(&[json!({"podSelector": {"matchLabels": {"app": "a"}},
        "policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "ports": [{"port": 443}]}]})]);
    for (what, objects, from, to, port, expected) in [
        ("same namespace", &free, "n/a", "10.52.0.3", 80, ("ports", true, "lists port 80/tcp")),
        ("port", &free, "n/a", "10.52.0.3", 81, ("ports", false, "does not list port 81/tcp")),
        ("isolation", &free, "m/c", "10.52.0.3", 80, ("ingress", false, "namespace is isolated")),
        ("service", &free, "n/a", "10.53.0.9", 8080, ("ports", true, "lists port 80/tcp")),
        (
            "outside",
            &free,
            "n/a",
            "192.0.2.9",
            443,
            ("forward", true, "outside of the guest network"),
        ),
        ("metadata", &free, "n/a", "169.254.169.254", 80, ("source", false, "169.254.0.0/16")),
        (
            "policy",
            &closed,
            "n/a",
            "10.52.0.3",
            80,
            ("ingress", false, "NetworkPolicy n/p0 selects it"),
        ),
        ("through a service", &closed, "n/a", "10.53.0.9", 8080, ("ingress", false, "n/p0")),
        (
            "egress",
            &no_egress,
            "n/a",
            "10.52.0.3",
            80,
            ("egress", false, "NetworkPolicy n/p0 selects it"),
        ),
        ("block", &no_egress, "n/a", "192.0.2.9", 443, ("forward", true, "outside")),
    ] {
        let (stage, is_accepted, detail) = last(objects, from, to, port);
        assert_eq!((stage.as_str(), is_accepted), (expected.0, expected.1), "{what}: {detail}");
        assert!(detail.contains(expected.2), "{what}: {detail}");
    }
    let steps = |objects: &TraceObjects| {
        let to = Ipv4Addr::new(192, 0, 2, 9).into();
        let query = TraceQuery {
            namespace: "n",
            machine: "a",
            to,
            port: 443,
            protocol: TraceProtocol::Tcp,
        };
        trace(objects, &query).unwrap().remove(0).steps
    };
    assert_eq!(steps(&no_egress)[1].detail, "allowed by NetworkPolicy n/p0");
}

#[test]
fn hosts_of_the_cluster_offer_the_api_and_ports_of_services_only() {
    let mut objects = cluster(&[json!({"podSelector": {}, "policyTypes": ["Egress"],
        "egress": [{"to": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}]})]);
    objects.services[0]["spec"]["ports"][0]["nodePort"] = json!(30_080);
    objects.slices.push(json!({"metadata": {"namespace": "n", "name": "forged", "labels":
        {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": 22, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["198.51.100.2"]}]}));
    let refused = (false, "ports of services and ping there, and nothing else: inet sheaf_hosts");
    for (what, to, port, (is_accepted, expected)) in [
        ("another node", "198.51.100.2", 22, refused),
        ("its other network", "203.0.113.2", 22, refused),
        ("the virtual address", "198.51.100.9", 22, refused),
        ("the API", "198.51.100.2", 6443, (true, "outside of the guest network")),
        ("a node port", "198.51.100.2", 30_080, (true, "outside of the guest network")),
        ("its own node", "198.51.100.1", 22, (false, "inet sheaf, chain input")),
        ("no node port", "203.0.113.1", 30_081, (false, "inet sheaf, chain input")),
        ("the API of its own node, whatever policies say", "203.0.113.1", 6443, (true, "the API")),
    ] {
        let (_, accepted, detail) = last(&objects, "n/a", to, port);
        assert_eq!(accepted, is_accepted, "{what}: {detail}");
        assert!(detail.contains(expected), "{what}: {detail}");
    }
    for to in ["10.53.0.9:8080", "198.51.100.1:30080"] {
        let (to, port) = to.split_once(':').unwrap();
        let query = TraceQuery {
            namespace: "n",
            machine: "a",
            to: to.parse().unwrap(),
            port: port.parse().unwrap(),
            protocol: TraceProtocol::Tcp,
        };
        let paths = trace(&objects, &query).unwrap();
        let forged = paths.iter().find(|path| path.to == "198.51.100.2:22").unwrap();
        assert_eq!(forged.steps.last().unwrap().stage, "host", "an endpoint on a host, by {to}");
        assert!(!forged.is_accepted());
    }
}

#[test]
fn a_machine_that_does_not_run_has_no_way() {
    let mut objects = cluster(&[]);
    objects.instances[0]["status"]["phase"] = json!("Scheduled");
    let to = Ipv4Addr::new(10, 52, 0, 3).into();
    let query =
        TraceQuery { namespace: "n", machine: "a", to, port: 80, protocol: TraceProtocol::Tcp };
    assert_eq!(trace(&objects, &query), Err(TraceError::NotRunning("n/a".into())));
    let query = TraceQuery { machine: "b", ..query };
    objects.nodes.clear();
    let no_way = TraceError::NoWay { machine: "n/b".into(), to: query.to };
    assert_eq!(trace(&objects, &query), Err(no_way));
}

#[test]
fn the_tier_and_the_rule_of_an_administrator_are_named() {
    let closed = json!({"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Ingress"]});
    let all_namespaces = json!([{"namespaces": {}}]);
    let tcp = |port: u16| json!([{"tcp": {"destinationPort": {"number": port}}}]);
    let policy = |name: &str, spec: Value| json!({"metadata": {"name": name}, "spec": spec});
    let mut objects = cluster(&[closed]);
    objects.cluster_policies = vec![
        policy(
            "guard",
            json!({"tier": "Admin", "priority": 10, "subject": {"namespaces": {}},
            "ingress": [
                {"action": "Accept", "name": "web", "from": all_namespaces, "protocols": tcp(80)},
                {"action": "Pass", "from": all_namespaces, "protocols": tcp(81)},
                {"action": "Deny", "from": all_namespaces, "protocols": tcp(82)}]}),
        ),
        policy(
            "floor",
            json!({"tier": "Baseline", "priority": 0, "subject": {"namespaces": {}},
            "ingress": [{"action": "Deny", "from": all_namespaces}],
            "egress": [{"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}]}]}),
        ),
    ];
    let allowed = "n/b: allowed by ClusterNetworkPolicy guard, ingress rule 1 \"web\" (tier Admin, \
                   priority 10)";
    let path = |from: &str, to: &str, port| {
        let (namespace, machine) = from.split_once('/').unwrap();
        let to = to.parse().unwrap();
        let query = TraceQuery { namespace, machine, to, port, protocol: TraceProtocol::Tcp };
        trace(&objects, &query).unwrap().remove(0).steps
    };
    assert_eq!(path("m/c", "10.52.0.3", 80)[2].detail, allowed);
    for (from, to, port, expected) in [
        (
            "n/a",
            "10.52.0.3",
            81,
            "n/b: NetworkPolicy n/p0 selects it, and no rule allows this; left to the next tier by \
             ClusterNetworkPolicy guard, ingress rule 2 (tier Admin, priority 10)",
        ),
        (
            "n/a",
            "10.52.0.3",
            82,
            "n/b: denied by ClusterNetworkPolicy guard, ingress rule 3 (tier Admin, priority 10)",
        ),
        (
            "n/b",
            "10.52.0.2",
            22,
            "n/a: denied by ClusterNetworkPolicy floor, ingress rule 1 (tier Baseline, priority 0)",
        ),
        (
            "n/a",
            "192.0.2.9",
            443,
            "denied by ClusterNetworkPolicy floor, egress rule 1 (tier Baseline, priority 0)",
        ),
    ] {
        let step = path(from, to, port).pop().unwrap();
        assert!(!step.is_accepted, "{step:?}");
        assert_eq!(step.detail, expected);
    }
}
