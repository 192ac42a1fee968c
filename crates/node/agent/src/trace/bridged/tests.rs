//! Traces over networks beside the guest network.

use serde_json::{Value, json};

use super::super::{TraceError, TraceObjects, TraceProtocol, TraceQuery, trace};

fn instance(name: &str, last: u8) -> Value {
    json!({
        "metadata": {"namespace": "n", "name": name, "uid": name, "labels": {"app": name}},
        "spec": {"domain": {"devices": {"interfaces": [{"name": "lan", "bridge": {}}]}},
            "networks": [{"name": "lan", "multus": {"networkName": "default/lan"}}]},
        "status": {"phase": "Running", "nodeName": "one", "interfaces": [{"name": "lan",
            "ipAddresses": [format!("192.0.2.{last}"), format!("fd00::{last}")]}]},
    })
}

/// Machines `a` and `b` on a network where `b` accepts what port 80 is for, from `a`.
fn cluster() -> TraceObjects {
    let spec = json!({"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "a"}}}],
            "ports": [{"port": 80}]}]});
    let mut silent = instance("silent", 9);
    silent["status"]["interfaces"] = json!([]);
    TraceObjects {
        instances: vec![instance("a", 2), instance("b", 3), instance("c", 4), silent],
        multi_policies: vec![json!({"metadata": {"namespace": "n", "name": "web",
            "annotations": {"k8s.v1.cni.cncf.io/policy-for": "default/lan"}}, "spec": spec})],
        ..TraceObjects::default()
    }
}

#[test]
fn the_policy_that_drops_is_named() {
    let objects = cluster();
    let no_rule = "MultiNetworkPolicy n/web selects it, and no rule allows this";
    for (machine, to, port, is_accepted, expected) in [
        ("a", "192.0.2.3", 80, true, "n/b: allowed by MultiNetworkPolicy n/web".to_owned()),
        ("a", "fd00::3", 80, true, "n/b: allowed by MultiNetworkPolicy n/web".to_owned()),
        ("a", "192.0.2.3", 81, false, format!("n/b: {no_rule}")),
        ("c", "192.0.2.3", 80, false, format!("n/b: {no_rule}")),
        ("silent", "192.0.2.3", 80, false, format!("n/b: {no_rule}")),
        ("b", "192.0.2.2", 80, false, no_rule.to_owned()),
        ("a", "192.0.2.4", 80, true, "n/c: no MultiNetworkPolicy restricts who reaches it".into()),
        (
            "a",
            "198.51.100.1",
            9,
            true,
            "no machine of the cluster is known to have 198.51.100.1".into(),
        ),
    ] {
        let (namespace, to) = ("n", to.parse().unwrap());
        let query = TraceQuery { namespace, machine, to, port, protocol: TraceProtocol::Tcp };
        let mut paths = trace(&objects, &query).unwrap();
        assert_eq!(paths.len(), 1);
        let path = paths.remove(0);
        let last = path.steps.last().unwrap();
        assert_eq!(
            (last.is_accepted, last.detail.as_str()),
            (is_accepted, expected.as_str()),
            "{query:?}"
        );
    }
}

#[test]
fn the_first_step_names_interface_and_network() {
    let query = TraceQuery {
        namespace: "n",
        machine: "a",
        to: "fd00::3".parse().unwrap(),
        port: 80,
        protocol: TraceProtocol::Tcp,
    };
    let path = trace(&cluster(), &query).unwrap().remove(0);
    assert_eq!(path.to, "[fd00::3]:80");
    assert_eq!(path.steps[0].detail, "fd00::2 of n/a, interface lan on network default/lan");
    assert_eq!(path.steps[1].detail, "no MultiNetworkPolicy restricts what it sends");
    let mut alone = cluster();
    alone.instances[0]["spec"]["networks"] = json!([]);
    let no_way = TraceError::NoWay { machine: "n/a".into(), to: query.to };
    assert_eq!(trace(&alone, &query), Err(no_way));
}
