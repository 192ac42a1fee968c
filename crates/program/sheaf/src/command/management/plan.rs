//! When the objects of a single node move into etcd, and which nodes tell where etcd and API
//! servers are. Pure.

use hci::cluster::{API_URL, CONTROL_PLANE, ETCD_URL, MANAGEMENT_ROLE, WITNESS_ROLE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use quorum::Phase;

/// Two voters would stop with either of them; the first node moves when there is a third.
const OTHERS_NEEDED: usize = 2;
/// How long after a move that failed the next is tried.
const RETRY_DELAY: SignedDuration = SignedDuration::from_mins(10);

/// Whether the node `own`, whose objects are in SQLite, is to move them now.
pub(super) fn is_move_due(
    own: &str,
    nodes: &[Node],
    phase: Option<&Phase>,
    now: Timestamp,
) -> bool {
    let ready = |role: &str| {
        let is_other = |node: &&Node| node.metadata.name.as_deref() != Some(own);
        let others = nodes.iter().filter(is_other);
        others.filter(|node| has_label(node, role) && is_ready(node)).count()
    };
    // A second witness does not vote.
    let voters = ready(MANAGEMENT_ROLE) + ready(WITNESS_ROLE).min(1);
    let has_rested = match phase {
        Some(Phase::Refused { at, .. }) => now.duration_since(*at) >= RETRY_DELAY,
        _ => true,
    };
    voters >= OTHERS_NEEDED && has_rested
}

pub(super) fn has_label(node: &Node, label: &str) -> bool {
    node.metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(label))
        .is_some_and(|it| it == "true")
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|own| own.type_ == "Ready" && own.status == "True")
}

fn annotation<'a>(node: &'a Node, key: &str) -> Option<&'a String> {
    node.metadata.annotations.as_ref()?.get(key)
}

/// Client URLs of the members of etcd on nodes other than `own`.
pub(super) fn etcd_urls(nodes: &[Node], own: &str) -> Vec<String> {
    let others = nodes.iter().filter(|node| node.metadata.name.as_deref() != Some(own));
    let servers = others.filter(|node| has_label(node, CONTROL_PLANE));
    servers.filter_map(|node| annotation(node, ETCD_URL).cloned()).collect()
}

/// URLs of the API servers, those of nodes that are ready first.
pub(in crate::command) fn api_urls(nodes: &[Node]) -> Vec<String> {
    let mut servers: Vec<&Node> =
        nodes.iter().filter(|node| has_label(node, CONTROL_PLANE)).collect();
    servers.sort_by_key(|node| !is_ready(node));
    servers.into_iter().filter_map(|node| annotation(node, API_URL).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, label: &str, ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "labels": {label: "true"},
                "annotations": {API_URL: format!("api-{name}"), ETCD_URL: format!("etcd-{name}")},
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn the_move_waits_for_two_other_management_nodes() {
        let now: Timestamp = "2026-06-01T12:00:00Z".parse().unwrap();
        let (two, three) =
            (node("n2", MANAGEMENT_ROLE, "True"), node("n3", MANAGEMENT_ROLE, "True"));
        let witness = |name: &str, ready: &str| node(name, WITNESS_ROLE, ready);
        let refused = |time: &str| Phase::Refused { at: time.parse().unwrap(), reason: "x".into() };
        for (nodes, phase, expected) in [
            (vec![two.clone()], None, false),
            (vec![two.clone(), three.clone()], None, true),
            (vec![two.clone(), node("n3", MANAGEMENT_ROLE, "Unknown")], None, false),
            (vec![two.clone(), node("n3", "worker", "True")], None, false),
            (vec![two.clone(), witness("x1", "True")], None, true),
            (vec![two.clone(), witness("x1", "Unknown")], None, false),
            (vec![witness("x1", "True"), witness("x2", "True")], None, false),
            (vec![two.clone(), node("n1", MANAGEMENT_ROLE, "True")], None, false),
            (vec![two.clone(), three.clone()], Some(refused("2026-06-01T11:55:00Z")), false),
            (vec![two, three], Some(refused("2026-06-01T11:50:00Z")), true),
        ] {
            let due = is_move_due("n1", &nodes, phase.as_ref(), now);
            assert_eq!(due, expected, "{} {phase:?}", nodes.len());
        }
    }

    #[test]
    fn only_nodes_of_the_control_plane_tell_where_servers_are() {
        let nodes = [
            node("n1", CONTROL_PLANE, "Unknown"),
            node("n2", CONTROL_PLANE, "True"),
            node("w1", "worker", "True"),
        ];
        assert_eq!(api_urls(&nodes), ["api-n2", "api-n1"]);
        assert_eq!(etcd_urls(&nodes, "n1"), ["etcd-n2"]);
    }
}
