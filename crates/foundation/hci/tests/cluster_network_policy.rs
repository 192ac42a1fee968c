//! The rules of ClusterNetworkPolicies that are in their schema, with upstream's texts.

use serde_json::{Value, json};

fn refusals(spec: Value) -> Vec<String> {
    let definition = hci::definitions()
        .find(|own| own["metadata"]["name"] == "clusternetworkpolicies.policy.networking.k8s.io")
        .expect("the kind is defined");
    let raw = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let schema = schema::Compiled::new(schema::parse(raw).expect("a structural schema"));
    let object = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy", "metadata": {"name": "p"}, "spec": spec});
    schema.validate(&object, None).iter().map(ToString::to_string).collect()
}

fn policy(changes: Value) -> Value {
    let mut spec = json!({"tier": "Admin", "priority": 0, "subject": {"namespaces": {}}});
    for (key, value) in changes.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
fn policies_as_upstream_allows_them() {
    let all = json!({"namespaces": {}});
    for changes in [
        json!({}),
        json!({"priority": 1000, "tier": "Baseline"}),
        json!({"subject": {"pods": {"podSelector": {}}}}),
        json!({"ingress": [{"action": "Pass", "from": [all],
            "protocols": [{"tcp": {"destinationPort": {"number": 80}}}, {"destinationNamedPort": "x"}]}]}),
        json!({"egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8", "fd00::/8"]}],
            "protocols": [{"udp": {"destinationPort": {"range": {"start": 1, "end": 2}}}}]}]}),
    ] {
        assert_eq!(refusals(policy(changes.clone())), Vec::<String>::new(), "{changes}");
    }
}

#[test]
fn policies_that_upstream_refuses() {
    let all = json!({"namespaces": {}});
    let ingress = |rule: Value| json!({"ingress": [rule]});
    let egress = |rule: Value| json!({"egress": [rule]});
    let range = json!({"tcp": {"destinationPort": {"range": {"start": 2, "end": 2}}}});
    let many = vec![json!({"action": "Deny", "from": [all]}); 26];
    for (changes, expected) in [
        (json!({"tier": "NetworkPolicy"}), "spec.tier: Unsupported value: \"NetworkPolicy\""),
        (json!({"priority": 1001}), "spec.priority: Invalid value: 1001"),
        (json!({"priority": -1}), "spec.priority: Invalid value: -1"),
        (json!({"subject": {}}), "spec.subject: Invalid value: 0"),
        (
            json!({"subject": {"namespaces": {}, "pods": {"podSelector": {}}}}),
            "spec.subject: Too many: 2: must have at most 1 item",
        ),
        (json!({"subject": {"pods": {}}}), "spec.subject.pods.podSelector: Required value"),
        (json!({"ingress": many}), "spec.ingress: Too many: 26: must have at most 25 items"),
        (
            ingress(json!({"action": "Allow", "from": [all]})),
            "spec.ingress[0].action: Unsupported value: \"Allow\"",
        ),
        (ingress(json!({"action": "Deny"})), "spec.ingress[0].from: Required value"),
        (
            ingress(json!({"action": "Deny", "from": []})),
            "spec.ingress[0].from: Invalid value: 0: spec.ingress[0].from in body should have at \
             least 1 items",
        ),
        (
            ingress(json!({"action": "Deny", "from": [all], "name": "x".repeat(101)})),
            "spec.ingress[0].name: Too long: may not be more than 100 bytes",
        ),
        (
            egress(json!({"action": "Deny", "to": [{"networks": ["10.0.0.0"]}]})),
            "Invalid CIDR format provided",
        ),
        (
            egress(json!({"action": "Deny", "to": [all], "protocols": [range]})),
            "Start port must be less than End port",
        ),
        (
            egress(json!({"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}],
                "protocols": [{"destinationNamedPort": "http"}]})),
            "networks/nodes/domainNames peer cannot be set with namedPorts since there are no \
             namedPorts for networks/nodes/domainNames",
        ),
        (
            egress(json!({"action": "Deny", "to": [{"nodes": {}}]})),
            "nodes is not supported: name the addresses of the nodes in networks",
        ),
        (
            egress(json!({"action": "Accept", "to": [{"domainNames": ["example.org"]}]})),
            "domainNames is not supported: name addresses in networks",
        ),
    ] {
        let refused = refusals(policy(changes.clone()));
        assert!(refused.iter().any(|text| text.contains(expected)), "{changes}: {refused:?}");
    }
}
