use expect_test::{Expect, expect};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<Object: DeserializeOwned + kube::Resource<DynamicType = ()>, Record>(
    objects: &[Value],
    read: fn(Object) -> Option<Record>,
) -> BTreeMap<ObjectKey, Record> {
    let objects = objects.iter().filter_map(|object| {
        let object: Object = serde_json::from_value(object.clone()).unwrap();
        let meta = object.meta().clone();
        let key = ObjectKey {
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
        };
        Some((key, read(object)?))
    });
    objects.collect()
}

fn pod(namespace: &str, name: &str, last: u8) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name,
            "labels": {"app": name, CREATED_BY: format!("uid-{name}")}},
        "spec": {"nodeName": "one", "containers": [{"name": "compute", "ports": [
            {"name": "http", "containerPort": 8000 + u32::from(last)},
            {"name": "dns", "containerPort": 53, "protocol": "UDP"}]}]},
        "status": {"phase": "Running", "podIP": format!("10.52.0.{last}")},
    })
}

/// Namespaces `a` (guests 2 and 3) and `b` (guest 4), both isolated, and `open` (guest 5).
fn evaluate(specs: &[Value], local: &LocalGuests) -> Policies {
    let namespace = |name: &str, annotations: Value| json!({"metadata": {"name": name, "annotations": annotations, "labels": {"team": name}}});
    let namespaces = [
        namespace("a", json!({})),
        namespace("b", json!({})),
        namespace("open", json!({super::super::object::ISOLATION: "none"})),
    ];
    let mut ended = pod("a", "ended", 9);
    ended["status"]["phase"] = json!("Succeeded");
    let mut elsewhere = pod("a", "elsewhere", 4);
    elsewhere["spec"]["nodeName"] = json!("two");
    let pods = [
        elsewhere,
        pod("a", "web", 2),
        pod("a", "db", 3),
        pod("b", "client", 4),
        pod("open", "any", 5),
        ended,
    ];
    let policies: Vec<_> = specs
        .iter()
        .enumerate()
        .map(|(index, spec)| {
            json!({"metadata": {"namespace": "a", "name": format!("p{index}")}, "spec": spec})
        })
        .collect();
    policies_of(&policies, &namespaces, &pods, local)
}

fn policies_of(
    policies: &[Value],
    namespaces: &[Value],
    pods: &[Value],
    local: &LocalGuests,
) -> Policies {
    super::policies(&Cluster {
        policies: &read(policies, PolicyRecord::read),
        cluster_policies: &BTreeMap::new(),
        namespaces: &read(namespaces, NamespaceRecord::read),
        pods: &read(pods, PodRecord::read),
        local,
        remote: &remote(),
        node: "one",
        network: "10.52.0.0/24".parse().unwrap(),
    })
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 52, 0, last)
}

/// Guest 20 of namespace `a` is on node `two`.
fn remote() -> RemoteGuests {
    let guest = crate::overlay::RemoteGuest {
        namespace: "a".into(),
        name: "far".into(),
        hostname: "far".into(),
        subdomain: None,
    };
    RemoteGuests::from([(address(20), guest)])
}

#[test]
fn guests_of_other_nodes_are_peers_and_their_own_node_judges_them() {
    let mut far = pod("a", "far", 20);
    far["spec"]["nodeName"] = json!("two");
    far["metadata"]["labels"][MACHINE] = json!("far");
    // Pods whose address belongs to another guest, or to none that is known.
    let mut forged = far.clone();
    forged["metadata"]["namespace"] = json!("b");
    forged["metadata"]["name"] = json!("forged");
    let mut unknown = far.clone();
    unknown["metadata"]["name"] = json!("unknown");
    unknown["status"]["podIP"] = json!("10.52.0.21");
    let namespaces = ["a", "b"].map(|name| json!({"metadata": {"name": name}}));
    let pods = [pod("a", "web", 2), far, forged, unknown];
    let policies = policies_of(&[], &namespaces, &pods, &LocalGuests::new());
    assert_eq!(policies.guests, BTreeSet::from([address(2)]));
    let own = BTreeSet::from([address(2), address(20)]);
    let expected = GuestPolicy { ingress: Ingress::IsolatedTo(own), ..GuestPolicy::default() };
    assert_eq!(policies.restricted, BTreeMap::from([(address(2), expected)]));
}

fn show(policies: &Policies) -> String {
    let addresses = |all: &BTreeSet<Ipv4Addr>| {
        let last: Vec<_> = all.iter().map(|address| format!(".{}", address.octets()[3])).collect();
        last.join(" ")
    };
    let rule = |rule: &AllowRule| {
        let peers = match &rule.peers {
            Peers::Any => "any".to_owned(),
            Peers::Only { addresses: own, blocks } => {
                let blocks = blocks.iter().map(|block| {
                    let except = block.except.iter().map(|each| format!(" but {each}"));
                    format!("{}{}", block.cidr, except.collect::<String>())
                });
                [addresses(own)].into_iter().chain(blocks).collect::<Vec<_>>().join(" ")
            }
        };
        let ports = match &rule.ports {
            AllowedPorts::All => "all".to_owned(),
            AllowedPorts::Only(ranges) => {
                let text = |range: &PortRange| {
                    format!("{} {}-{}", range.protocol, range.first, range.last)
                };
                ranges.iter().map(text).collect::<Vec<_>>().join(", ")
            }
        };
        format!("[{peers}: {ports}]")
    };
    let rules = |all: &[AllowRule]| all.iter().map(rule).collect::<String>();
    let mut text = format!("guests {}\n", addresses(&policies.guests));
    for (address, policy) in &policies.restricted {
        let ingress = match &policy.ingress {
            Ingress::All => "all".to_owned(),
            Ingress::IsolatedTo(own) => format!("outside and {}", addresses(own)),
            Ingress::Only(all) => format!("only {}", rules(all)),
        };
        let egress = policy.egress.as_ref();
        let egress = egress.map_or_else(|| "all".to_owned(), |all| format!("only {}", rules(all)));
        text += &format!(".{} from {ingress}, to {egress}\n", address.octets()[3]);
    }
    text
}

#[track_caller]
fn check(specs: &[Value], expected: Expect) {
    expected.assert_eq(&show(&evaluate(specs, &LocalGuests::new())));
}

#[test]
fn namespaces_are_isolated_from_each_other_unless_they_ask_not_to_be() {
    check(
        &[],
        expect![[r#"
            guests .2 .3 .4 .5
            .2 from outside and .2 .3, to all
            .3 from outside and .2 .3, to all
            .4 from outside and .4, to all
        "#]],
    );
}

#[test]
fn a_policy_without_rules_denies_everything_in_its_direction() {
    check(
        &[
            json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress", "Egress"]}),
        ],
        expect![[r#"
            guests .2 .3 .4 .5
            .2 from only , to only 
            .3 from outside and .2 .3, to all
            .4 from outside and .4, to all
        "#]],
    );
}

#[test]
fn an_empty_rule_allows_everything_and_policies_add_up() {
    let web = json!({"matchLabels": {"app": "web"}});
    check(
        &[
            json!({"podSelector": web, "policyTypes": ["Ingress"], "ingress": [{}]}),
            json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [
                {"from": [{"podSelector": web}], "ports": [{"port": 22}]}]}),
        ],
        expect![[r#"
            guests .2 .3 .4 .5
            .2 from only [any: all][.2: tcp 22-22], to all
            .3 from only [.2: tcp 22-22], to all
            .4 from outside and .4, to all
        "#]],
    );
}

#[test]
fn peers_are_pods_namespaces_and_blocks() {
    let from = json!([
        {"podSelector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}},
        {"namespaceSelector": {"matchLabels": {"team": "b"}}},
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "any"}}},
        {"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.128/25"]}},
        {"ipBlock": {"cidr": "2001:db8::/32"}},
    ]);
    check(
        &[json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"],
            "ingress": [{"from": from}]})],
        expect![[r#"
            guests .2 .3 .4 .5
            .2 from only [.3 .4 .5 192.0.2.0/24 but 192.0.2.128/25: all], to all
            .3 from outside and .2 .3, to all
            .4 from outside and .4, to all
        "#]],
    );
}

#[test]
fn a_peer_that_matches_nothing_allows_nothing() {
    check(
        &[json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": "2001:db8::/32"}}]}]})],
        expect![[r#"
            guests .2 .3 .4 .5
            .2 from only [: all], to all
            .3 from outside and .2 .3, to all
            .4 from outside and .4, to all
        "#]],
    );
}

#[test]
fn ports_are_ranges_protocols_and_names_of_the_server() {
    let ports = json!([{"port": 80, "endPort": 90}, {"protocol": "UDP"}, {"port": "http"},
        {"port": "dns", "protocol": "UDP"}, {"port": "unknown"}]);
    check(
        &[
            json!({"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": ports}],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "db"}}}],
                "ports": [{"port": "http"}, {"port": 443}]}]}),
        ],
        expect![[r#"
            guests .2 .3 .4 .5
            .2 from only [any: tcp 80-90, tcp 8002-8002, udp 1-65535, udp 53-53], to only [.3: tcp 443-443][.3: tcp 8003-8003]
            .3 from outside and .2 .3, to all
            .4 from outside and .4, to all
        "#]],
    );
}

#[test]
fn a_guest_that_was_just_connected_is_judged_by_its_own_labels_and_then_by_its_pod() {
    let guest = |uid: &str| LocalGuest {
        namespace: "a".to_owned(),
        uid: uid.to_owned(),
        labels: [("app".to_owned(), "db".to_owned())].into(),
    };
    // A new guest has an address that no pod shows; another one took over that of `client`; the
    // pod of a third has other labels by now.
    let local: LocalGuests = [(7, guest("new")), (4, guest("taken")), (2, guest("uid-web"))]
        .map(|(last, guest)| (Ipv4Addr::new(10, 52, 0, last), guest))
        .into();
    let db = json!({"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"]});
    expect![[r#"
        guests .2 .3 .4 .5 .7
        .2 from outside and .2 .3 .4 .7, to all
        .3 from only , to all
        .4 from only , to all
        .7 from only , to all
    "#]]
    .assert_eq(&show(&evaluate(&[db], &local)));
}

#[test]
fn a_namespace_that_is_not_known_is_isolated() {
    let policies = policies_of(&[], &[], &[pod("late", "x", 2)], &LocalGuests::new());
    expect![[r#"
        guests .2
        .2 from outside and .2, to all
    "#]]
    .assert_eq(&show(&policies));
}
