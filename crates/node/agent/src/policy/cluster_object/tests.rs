use serde_json::json;

use super::*;

fn read(rule: Value) -> TierRuleRecord {
    let object = json!({"metadata": {"name": "p"}, "spec": {"tier": "Admin", "priority": 1,
        "subject": {"namespaces": {}}, "egress": [rule]}});
    ClusterPolicyRecord::read_json(object).unwrap().egress.remove(0)
}

#[test]
fn unknown_rules_fail_closed() {
    let all = json!({"namespaces": {}});
    let odd = json!({"namespaces": {"matchExpressions": [{"key": "a", "operator": "Like"}]}});
    for (what, peers, protocols) in [
        ("a peer of a later version", json!([all, {"services": {}}]), json!([])),
        ("a peer of the experimental channel", json!([{"nodes": {}}]), json!([])),
        ("an operator", json!([odd]), json!([])),
        ("two kinds of peers", json!([{"namespaces": {}, "pods": {"podSelector": {}}}]), json!([])),
        ("a network", json!([{"networks": ["10.0.0.0"]}]), json!([])),
        ("a protocol", json!([all]), json!([{"icmp": {}}])),
        ("a port", json!([all]), json!([{"tcp": {"destinationPort": {}}}])),
    ] {
        let rule =
            |action: &str| read(json!({"action": action, "to": peers, "protocols": protocols}));
        let accept = rule("Accept");
        assert_eq!(accept.action, TierAction::Accept, "{what}");
        assert!(
            matches!(&accept.peers, TierPeers::Only { guests, networks }
            if guests.is_empty() && networks.is_empty()),
            "{what}: {accept:?}"
        );
        for action in ["Deny", "Pass"] {
            let rule = rule(action);
            assert_eq!(rule.action, TierAction::Deny, "{what}");
            assert!(matches!(rule.peers, TierPeers::Any) && rule.ports.is_none(), "{what}");
        }
    }
}

#[test]
fn ports_are_numbers_ranges_and_names() {
    let rule = read(
        json!({"action": "Accept", "to": [{"networks": ["192.0.2.0/24", "2001:db8::/32"]}],
        "protocols": [{"tcp": {"destinationPort": {"number": 80}}}, {"destinationNamedPort": "http"},
            {"udp": {"destinationPort": {"range": {"start": 5000, "end": 5010}}}}, {"sctp": {}}]}),
    );
    let ranges: Vec<_> = rule
        .ranges()
        .map(|range| format!("{} {}-{}", range.protocol, range.first, range.last))
        .collect();
    assert_eq!(ranges, ["tcp 80-80", "udp 5000-5010", "sctp 1-65535"]);
    assert_eq!(rule.names().collect::<Vec<_>>(), ["http"]);
    let TierPeers::Only { networks, .. } = rule.peers else { panic!("{rule:?}") };
    assert_eq!(networks, ["192.0.2.0/24".parse().unwrap()], "no guest has IPv6");
}

#[test]
fn a_subject_that_cannot_be_evaluated_selects_nothing() {
    let subject = json!({"namespaces": {"matchExpressions": [{"key": "a", "operator": "Like"}]}});
    let object = json!({"spec": {"tier": "Baseline", "priority": 9, "subject": subject}});
    let record = ClusterPolicyRecord::read_json(object).unwrap();
    assert!(record.subject.is_none());
    assert_eq!((record.tier, record.priority), (Tier::Baseline, 9));
}
