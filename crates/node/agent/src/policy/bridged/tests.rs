use hci::multi_network_policy::POLICY_FOR;
use kube::core::Selector;
use net::{BridgedPacket, Protocol, TapVerdict};
use serde_json::{Value, json};

use super::super::bridged_object::InstanceRecord;
use super::super::object::Labels;
use super::*;

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn instance(namespace: &str, name: &str, number: u8, networks: &[&str]) -> (ObjectKey, Value) {
    let index = |network: &&str| networks.iter().position(|own| own == network).unwrap();
    let each = |make: &dyn Fn(usize, &str) -> Value| -> Vec<Value> {
        networks.iter().map(|network| make(index(network), network)).collect()
    };
    let object = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-{name}"),
            "labels": {"app": name}},
        "spec": {
            "domain": {"devices": {"interfaces": each(&|at, _| json!({"name": format!("net{at}"),
                "bridge": {}, "ports": [{"name": "http", "port": 8000 + u32::from(number)}]}))}},
            "networks": each(&|at, network| json!({"name": format!("net{at}"),
                "multus": {"networkName": network}})),
        },
        "status": {"phase": "Running", "nodeName": "one",
            "interfaces": each(&|at, _| json!({"name": format!("net{at}"),
                "mac": format!("02:00:00:00:0{at}:0{number}"),
                "ipAddresses": [format!("192.0.{at}.{number}"), format!("fd0{at}::{number}/64")]}))},
    });
    (key(namespace, name), object)
}

fn pool(network: &str, address: &str, mac: &str) -> Value {
    json!({"spec": {"networkName": network, "ipv4Config": {"cidr": "198.51.100.0/24"}},
        "status": {"ipv4": {"allocated": {address: mac, "198.51.100.1": "RESERVED"}}}})
}

fn policy(policy_for: &str, spec: &Value) -> Value {
    json!({"metadata": {"namespace": "n", "name": "p",
        "annotations": {POLICY_FOR: policy_for}}, "spec": spec})
}

/// The policies of all interfaces, by the machine and the interface. Machines 2 (web) and 3 (db) are
/// in namespace `n`, 4 (client) in `m`; web and client also on the network `n/back`.
fn evaluate(policies: &[Value]) -> BTreeMap<String, TapPolicy> {
    let instances = [
        instance("n", "web", 2, &["default/lan", "back"]),
        instance("n", "db", 3, &["default/lan"]),
        instance("m", "client", 4, &["default/lan", "n/back"]),
        instance("n", "elsewhere", 5, &["default/other"]),
    ];
    let instances = instances
        .into_iter()
        .map(|(key, object)| (key, InstanceRecord::read_json(&object).unwrap()))
        .collect();
    let namespaces = ["n", "m"].map(|name| {
        let labels = Labels::from([("team".to_owned(), name.to_owned())]);
        (key("", name), NamespaceRecord { labels, is_isolated: true })
    });
    let pools = [pool("lan", "198.51.100.3", "02:00:00:00:00:03")];
    let pools =
        pools.iter().map(|pool| (key("default", "p"), LeaseRecord::read_json(pool).unwrap()));
    let policies = policies.iter().enumerate().map(|(index, object)| {
        (key("n", &format!("p{index}")), MultiPolicyRecord::read_json(object).unwrap())
    });
    let cluster = BridgedCluster {
        policies: &policies.collect(),
        namespaces: &namespaces.into(),
        instances: &instances,
        pools: &pools.collect(),
    };
    let all = interfaces_with_addresses(&cluster);
    let evaluation = Evaluation::new(cluster, &all);
    let name = |nic: &AddressedInterface<'_>| format!("{} {}", nic.key.name, nic.interface.name);
    all.iter().map(|nic| (name(nic), evaluation.policy(nic))).collect()
}

fn accepts(verdict: TapVerdict<'_>) -> bool {
    !matches!(verdict, TapVerdict::Dropped(_))
}

fn packet(from: &str, to: &str, port: u16) -> BridgedPacket {
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    BridgedPacket { from, to, protocol: Protocol::Tcp, port }
}

#[test]
fn a_policy_selects_interfaces_on_its_networks_in_its_namespace() {
    let closed = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    for (policy_for, expected) in [
        ("default/lan", "db net0 web net0"),
        ("back", "web net1"),
        ("n/back, default/lan", "db net0 web net0 web net1"),
        ("lan", ""),
        ("default/missing", ""),
    ] {
        let all = evaluate(&[policy(policy_for, &closed)]);
        let restricted = all.iter().filter(|(_, own)| **own != TapPolicy::default());
        let restricted: Vec<_> = restricted.map(|(name, _)| name.as_str()).collect();
        assert_eq!(restricted.join(" "), expected, "{policy_for}");
    }
    let web = json!({"podSelector": {"matchLabels": {"app": "web"}}});
    let all = evaluate(&[policy("default/lan", &web)]);
    assert_eq!(all["web net0"].egress, None, "a policy without types is about ingress");
    assert!(all["web net0"].ingress.is_some());
    assert_eq!(all["db net0"], TapPolicy::default());
}

#[test]
fn peers_are_the_addresses_of_machines_on_the_networks_of_the_policy() {
    let from = |peers: Value| {
        let spec = json!({"podSelector": {"matchLabels": {"app": "web"}},
            "ingress": [{"from": peers}]});
        evaluate(&[policy("default/lan", &spec)]).remove("web net0").unwrap()
    };
    let (lan, leased, lan_v6) = ("192.0.0.3", "198.51.100.3", "fd00::3");
    let (client, client_back) = ("192.0.0.4", "192.0.1.4");
    let block = json!([{"ipBlock": {"cidr": "192.0.0.0/29", "except": ["192.0.0.3/32"]}}]);
    for (what, peers, accepted) in [
        (
            "labels",
            json!([{"podSelector": {"matchLabels": {"app": "db"}}}]),
            vec![lan, leased, lan_v6],
        ),
        ("all of the namespace", json!([{"podSelector": {}}]), vec![lan, leased, lan_v6]),
        (
            "a namespace",
            json!([{"namespaceSelector": {"matchLabels": {"team": "m"}}}]),
            vec![client],
        ),
        ("addresses", block, vec![client, "192.0.0.5"]),
        ("none", json!([{"podSelector": {"matchLabels": {"app": "x"}}}]), vec![]),
        (
            "another network",
            json!([{"podSelector": {"matchLabels": {"app": "elsewhere"}}}]),
            vec![],
        ),
    ] {
        let policy = from(peers);
        let all = [lan, leased, lan_v6, client, client_back, "192.0.0.5"];
        let found = all.iter().copied();
        let found =
            found.filter(|peer| accepts(policy.judge_ingress(&packet(peer, "192.0.0.2", 80))));
        assert_eq!(found.collect::<Vec<_>>(), accepted, "{what}");
    }
}

#[test]
fn named_ports_are_those_of_the_machine_that_serves_them() {
    let spec = json!({"podSelector": {"matchLabels": {"app": "web"}},
        "ingress": [{"ports": [{"port": "http"}]}],
        "egress": [{"to": [{"podSelector": {}}], "ports": [{"port": "http"}, {"port": 443}]}]});
    let all = evaluate(&[policy("default/lan", &spec)]);
    let web = &all["web net0"];
    for (port, expected) in [(8002, true), (8003, false), (80, false)] {
        let packet = packet("192.0.0.3", "192.0.0.2", port);
        assert_eq!(accepts(web.judge_ingress(&packet)), expected, "{port}");
    }
    for (to, port, expected) in [
        ("192.0.0.3", 8003, true),
        ("192.0.0.3", 443, true),
        ("192.0.0.3", 8002, false),
        ("192.0.0.4", 8004, false),
    ] {
        let packet = packet("192.0.0.2", to, port);
        assert_eq!(accepts(web.judge_egress(&packet)), expected, "{to} {port}");
    }
}

#[test]
fn several_policies_add_up_and_are_named() {
    let allow = |port: u16| json!({"podSelector": {}, "ingress": [{"ports": [{"port": port}]}]});
    let all = evaluate(&[policy("default/lan", &allow(80)), policy("default/lan", &allow(81))]);
    let web = &all["web net0"];
    let judged = |port| format!("{:?}", web.judge_ingress(&packet("192.0.2.9", "192.0.0.2", port)));
    assert_eq!(judged(80), r#"Allowed("n/p0")"#);
    assert_eq!(judged(81), r#"Allowed("n/p1")"#);
    assert_eq!(judged(82), r#"Dropped({"n/p0", "n/p1"})"#);
}

#[test]
fn taps_of_this_node_are_chosen_by_the_caller_also_without_policies() {
    let (key, object) = instance("n", "web", 2, &["default/lan", "back"]);
    let instances = [(key, InstanceRecord::read_json(&object).unwrap())].into();
    let cluster = BridgedCluster {
        policies: &BTreeMap::new(),
        namespaces: &BTreeMap::new(),
        instances: &instances,
        pools: &BTreeMap::new(),
    };
    let taps = policies(&cluster, |instance, interface| {
        (interface.name == "net1").then(|| format!("t-{}", instance.uid).parse().unwrap())
    });
    assert_eq!(taps, [("t-uid-web".parse().unwrap(), TapPolicy::default())].into());
}

#[test]
fn instances_without_such_interfaces_and_ended_ones_are_left_out() {
    let (_, running) = instance("n", "web", 2, &["default/lan"]);
    let mut ended = running.clone();
    ended["status"]["phase"] = json!("Failed");
    let mut on_guest_network = running.clone();
    on_guest_network["spec"]["networks"][0] = json!({"name": "net0", "pod": {}});
    let mut migrating = running.clone();
    migrating["status"]["migrationState"] = json!({"targetNode": "two"});
    let nodes = |object: &Value| {
        InstanceRecord::read_json(object).map(|own| own.nodes.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(nodes(&ended), None);
    assert_eq!(nodes(&on_guest_network), None);
    assert_eq!(nodes(&running), Some(vec!["one".to_owned()]));
    assert_eq!(nodes(&migrating), Some(vec!["one".to_owned(), "two".to_owned()]));
    assert!(Selector::default().matches(&InstanceRecord::read_json(&running).unwrap().labels));
}
