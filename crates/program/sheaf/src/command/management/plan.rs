//! When the objects of a single node move into etcd, and which nodes report where etcd and API
//! servers are. Pure.

use hci::cluster::{API_URL, CONTROL_PLANE, ETCD_URL, MANAGEMENT_ROLE, WITNESS_ROLE, WORKER_ROLE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use quorum::{ManagementNode, MemberInfo, Phase, VoterCandidate, node_of};

use super::standby::REMOVAL;

/// Where a node is, as administrators label it.
const ZONE: &str = "topology.kubernetes.io/zone";
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

pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|own| own.type_ == "Ready" && own.status == "True")
}

/// The nodes that can vote: those that run the control plane, are to, or are witnesses. One that does
/// not serve gets no seat if its removal was begun, or if it is a worker now.
pub(super) fn voter_candidates(nodes: &[Node]) -> Vec<VoterCandidate<'_>> {
    let can_vote = |node: &&Node| {
        let roles = [CONTROL_PLANE, MANAGEMENT_ROLE, WITNESS_ROLE];
        let is_marked = annotation(node, REMOVAL).is_some() || has_label(node, WORKER_ROLE);
        let is_leaving = node.metadata.deletion_timestamp.is_some()
            || is_marked && !has_label(node, CONTROL_PLANE);
        !is_leaving && roles.iter().any(|role| has_label(node, role))
    };
    nodes.iter().filter(can_vote).map(voter_candidate).collect()
}

fn voter_candidate(node: &Node) -> VoterCandidate<'_> {
    let labels = node.metadata.labels.as_ref();
    let created = node.metadata.creation_timestamp.as_ref();
    VoterCandidate {
        node: name(node),
        zone: labels.and_then(|labels| labels.get(ZONE)).map(String::as_str),
        is_witness: has_label(node, WITNESS_ROLE),
        is_ready: is_ready(node),
        is_server: has_label(node, CONTROL_PLANE),
        created: created.map_or(i64::MAX, |time| time.0.as_second()),
    }
}

/// The nodes that are more than workers.
pub(in crate::command) fn management_nodes(nodes: &[Node]) -> Vec<ManagementNode<'_>> {
    let roles = [CONTROL_PLANE, MANAGEMENT_ROLE, WITNESS_ROLE];
    let manages = |node: &&Node| roles.iter().any(|role| has_label(node, role));
    let manager =
        |node| ManagementNode { node: name(node), is_witness: has_label(node, WITNESS_ROLE) };
    nodes.iter().filter(manages).map(manager).collect()
}

fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Nodes that say that they serve the API with a member of etcd, and have none: their seats were
/// given to others.
pub(super) fn former_servers<'a>(nodes: &'a [Node], members: &[MemberInfo]) -> Vec<&'a str> {
    // A member that has not started yet has no name.
    if members.iter().any(|member| member.name.is_empty()) {
        return Vec::new();
    }
    let is_member = |node: &Node| {
        members.iter().any(|own| Some(node_of(&own.name)) == node.metadata.name.as_deref())
    };
    let former = nodes.iter().filter(|node| {
        has_label(node, CONTROL_PLANE) && annotation(node, ETCD_URL).is_some() && !is_member(node)
    });
    former.filter_map(|node| node.metadata.name.as_deref()).collect()
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
    fn servers_nodes_that_are_to_be_and_witnesses_can_vote() {
        let mut nodes = [
            node("n1", CONTROL_PLANE, "True"),
            node("n2", MANAGEMENT_ROLE, "Unknown"),
            node("x1", WITNESS_ROLE, "True"),
            node("w1", "worker", "True"),
            node("n9", MANAGEMENT_ROLE, "True"),
        ];
        // Its removal was begun.
        let annotations = nodes[4].metadata.annotations.get_or_insert_default();
        annotations.insert(REMOVAL.to_owned(), "member".to_owned());
        let labels = nodes[0].metadata.labels.get_or_insert_default();
        labels.insert(ZONE.to_owned(), "a".to_owned());
        let found = voter_candidates(&nodes);
        let facts: Vec<_> =
            found.iter().map(|own| (own.node, own.zone, own.is_witness, own.is_ready)).collect();
        let expected =
            [("n1", Some("a"), false, true), ("n2", None, false, false), ("x1", None, true, true)];
        assert_eq!(facts, expected);
    }

    #[test]
    fn a_server_without_a_seat_is_found_by_its_node() {
        let member = |name: &str| MemberInfo {
            id: 1,
            name: name.to_owned(),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: false,
        };
        let nodes = [
            node("n1", CONTROL_PLANE, "True"),
            node("n2", CONTROL_PLANE, "Unknown"),
            node("n3", MANAGEMENT_ROLE, "True"),
        ];
        let (one, two) = (member("n1-00000001"), member("n2-00000002"));
        for (members, expected) in [
            (vec![one.clone(), two.clone()], &[][..]),
            (vec![one.clone()], &["n2"]),
            // A node is joining.
            (vec![one, member("")], &[]),
        ] {
            assert_eq!(former_servers(&nodes, &members), expected, "{}", members.len());
        }
    }

    #[test]
    fn only_nodes_of_the_control_plane_report_where_servers_are() {
        let nodes = [
            node("n1", CONTROL_PLANE, "Unknown"),
            node("n2", CONTROL_PLANE, "True"),
            node("w1", "worker", "True"),
        ];
        assert_eq!(api_urls(&nodes), ["api-n2", "api-n1"]);
        assert_eq!(etcd_urls(&nodes, "n1"), ["etcd-n2"]);
    }
}
