use net::{FirstPacket, Protocol};
use serde_json::{Value, json};

use super::super::super::LocalGuests;
use super::super::super::object::{NamedPort, NamespaceRecord, PodRecord};
use super::super::policies;
use super::*;
use crate::known_objects::ObjectKey;
use crate::overlay::RemoteGuests;

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 52, 0, last)
}

fn pod(name: &str, last: u8) -> PodRecord {
    let port = |protocol, port| NamedPort { protocol, name: "http".into(), port };
    PodRecord {
        labels: [("app".to_owned(), name.to_owned())].into(),
        node: Some("one".into()),
        address: Some(address(last)),
        ports: vec![port(Protocol::Tcp, 8000 + u16::from(last)), port(Protocol::Udp, 53)],
    }
}

/// Guests web and db of namespace `a`, which has label team=a, and client of `b`.
fn evaluate(specs: &[(&str, Value)]) -> net::Policies {
    let cluster_policies = specs.iter().map(|(name, spec)| {
        (key("", name), ClusterPolicyRecord::read_json(json!({"spec": spec})).unwrap())
    });
    let namespace = |name: &str| {
        let labels = [("team".to_owned(), name.to_owned())].into();
        (key("", name), NamespaceRecord { labels, is_isolated: false })
    };
    let pods = [("a", "web", 2), ("a", "db", 3), ("b", "client", 4)];
    policies(&Cluster {
        policies: &BTreeMap::new(),
        cluster_policies: &cluster_policies.collect(),
        namespaces: &["a", "b"].map(namespace).into(),
        pods: &pods.map(|(own, name, last)| (key(own, name), pod(name, last))).into(),
        local: &LocalGuests::new(),
        remote: &RemoteGuests::new(),
        node: "one",
        network: "10.52.0.0/24".parse().unwrap(),
    })
}

fn team(name: &str) -> Value {
    json!({"namespaces": {"matchLabels": {"team": name}}})
}

/// The rules of a guest, each as its policy, number, peers and ports.
fn show(rules: &[Arc<TierRule>]) -> Vec<String> {
    let rules = rules.iter().map(|rule| {
        let RuleSource { policy, number, .. } = &rule.source;
        let peers = match &rule.peers {
            Peers::Any => "any".to_owned(),
            Peers::Only { addresses, blocks } => {
                let own = addresses.iter().map(|own| format!(".{}", own.octets()[3]));
                let blocks = blocks.iter().map(|own| own.cidr.to_string());
                own.chain(blocks).collect::<Vec<_>>().join(" ")
            }
        };
        let ports = match &rule.ports {
            AllowedPorts::All => "all".to_owned(),
            AllowedPorts::Only(ranges) => {
                let text = |own: &PortRange| format!("{} {}-{}", own.protocol, own.first, own.last);
                ranges.iter().map(text).collect::<Vec<_>>().join(", ")
            }
        };
        format!("{policy}/{number} {:?} {peers}: {ports}", rule.action)
    });
    rules.collect()
}

#[test]
fn policies_are_ordered_by_priority_and_then_by_name() {
    let policy = |priority: i32, tier: &str| {
        json!({"tier": tier, "priority": priority,
        "subject": {"namespaces": {}}, "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}]})
    };
    let all = evaluate(&[
        ("z", policy(1, "Admin")),
        ("b", policy(5, "Admin")),
        ("a", policy(5, "Admin")),
        ("base", policy(0, "Baseline")),
    ]);
    let tiers = &all.restricted[&address(2)].ingress_tiers;
    let all_denied = "Deny .2 .3 .4: all";
    assert_eq!(show(&tiers.admin), ["z", "a", "b"].map(|name| format!("{name}/1 {all_denied}")));
    assert_eq!(show(&tiers.baseline), [format!("base/1 {all_denied}")]);
    let others = &all.restricted[&address(4)].ingress_tiers;
    assert!(Arc::ptr_eq(&tiers.admin[0], &others.admin[0]), "rules are shared");
}

#[test]
fn subjects_and_peers_are_selected_by_both_labels() {
    let web = json!({"pods": {"namespaceSelector": {"matchLabels": {"team": "a"}},
        "podSelector": {"matchLabels": {"app": "web"}}}});
    let elsewhere = json!({"pods": {"podSelector": {"matchLabels": {"app": "client"}}}});
    let all = evaluate(&[(
        "p",
        json!({"tier": "Admin", "priority": 0, "subject": web,
        "ingress": [{"action": "Accept", "from": [elsewhere]}, {"action": "Pass", "from": [team("a")]}],
        "egress": [{"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}, team("b")]}]}),
    )]);
    let own = &all.restricted[&address(2)];
    assert_eq!(show(&own.ingress_tiers.admin), ["p/1 Accept .4: all", "p/2 Pass .2 .3: all"]);
    assert_eq!(show(&own.egress_tiers.admin), ["p/1 Deny .4 192.0.2.0/24: all"]);
    assert!(!all.restricted.contains_key(&address(3)), "it is not selected");
}

#[test]
fn named_ports_are_those_of_the_receiver() {
    let named =
        json!([{"destinationNamedPort": "http"}, {"tcp": {"destinationPort": {"number": 22}}}]);
    let unknown = json!([{"destinationNamedPort": "other"}]);
    let all = evaluate(&[(
        "p",
        json!({"tier": "Baseline", "priority": 0, "subject": team("a"),
        "ingress": [{"action": "Accept", "from": [team("b")], "protocols": named}],
        "egress": [{"action": "Deny", "to": [team("a")], "protocols": named},
            {"action": "Deny", "to": [team("a")], "protocols": unknown}]}),
    )]);
    let tiers = |last| &all.restricted[&address(last)];
    assert_eq!(
        show(&tiers(2).ingress_tiers.baseline),
        ["p/1 Accept .4: tcp 22-22, tcp 8002-8002, udp 53-53"]
    );
    assert_eq!(
        show(&tiers(3).ingress_tiers.baseline),
        ["p/1 Accept .4: tcp 22-22, tcp 8003-8003, udp 53-53"]
    );
    assert_eq!(
        show(&tiers(3).egress_tiers.baseline),
        [
            "p/1 Deny .2: tcp 8002-8002, udp 53-53",
            "p/1 Deny .3: tcp 8003-8003, udp 53-53",
            "p/1 Deny .2 .3: tcp 22-22",
            "p/2 Deny .2 .3: ",
        ]
    );
    let packet =
        FirstPacket { from: address(3), to: address(2), protocol: Protocol::Tcp, port: 8002 };
    assert!(!all.judge_egress(&packet).is_accepted);
    assert!(all.judge_egress(&FirstPacket { port: 8003, ..packet }).is_accepted);
}
