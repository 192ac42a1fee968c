//! Whether the last management node may take its objects back into SQLite, and in which order the
//! others stop being one. Pure.

use crate::plan::{MemberInfo, node_of};

/// A node that is no ordinary worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManagementNode<'a> {
    pub node: &'a str,
    pub is_witness: bool,
}

/// A node that votes in etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoterState<'a> {
    pub node: &'a str,
    /// Its member answers.
    pub is_healthy: bool,
}

/// Why the objects stay in etcd, or the others management nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReductionRefusal {
    #[error("the cluster still has the witness {node}: remove it first, sheaf node remove {node}")]
    Witness { node: String },
    #[error(
        "etcd would have no majority on the way: {node} does not answer, and {healthy} would be left \
         that do; bring it back first"
    )]
    NoMajority { node: String, healthy: usize },
    #[error(
        "{node} is a management node, too: objects in SQLite are on one node only; make it a worker \
         first, sheaf node demote {node}"
    )]
    OtherManagement { node: String },
    #[error("etcd has another member, {member}: wait until it is removed, or remove its node")]
    OtherMember { member: String },
    #[error("the member of etcd on this node does not vote")]
    NotVoting,
}

/// The nodes that stop being management nodes before `own` is alone, in this order: those that do not
/// vote, then those that do not answer, so that those that answer stay a majority.
pub fn reduction<'a>(
    own: &str,
    voters: &[VoterState<'_>],
    nodes: &[ManagementNode<'a>],
) -> Result<Vec<&'a str>, ReductionRefusal> {
    if let Some(witness) = nodes.iter().find(|node| node.is_witness) {
        return Err(ReductionRefusal::Witness { node: witness.node.to_owned() });
    }
    let voter = |node: &str| voters.iter().find(|voter| voter.node == node);
    let mut others: Vec<&str> =
        nodes.iter().map(|node| node.node).filter(|node| *node != own).collect();
    others.sort_by_key(|node| {
        (voter(node).is_some(), voter(node).is_some_and(|own| own.is_healthy), *node)
    });
    let mut left: Vec<&VoterState<'_>> = voters.iter().collect();
    for node in &others {
        left.retain(|voter| voter.node != *node);
        let healthy = left.iter().filter(|voter| voter.is_healthy).count();
        if healthy * 2 <= left.len() {
            let away = left.iter().find(|voter| !voter.is_healthy);
            let node = away.map_or(*node, |voter| voter.node).to_owned();
            return Err(ReductionRefusal::NoMajority { node, healthy });
        }
    }
    Ok(others)
}

/// Fails unless `own` is the only member of etcd and the only node that is or can become one.
pub fn may_return(
    own: &str,
    members: &[MemberInfo],
    nodes: &[ManagementNode<'_>],
) -> Result<(), ReductionRefusal> {
    if let Some(other) = nodes.iter().find(|node| node.node != own) {
        let node = other.node.to_owned();
        return Err(match other.is_witness {
            true => ReductionRefusal::Witness { node },
            false => ReductionRefusal::OtherManagement { node },
        });
    }
    if let Some(other) = members.iter().find(|member| node_of(&member.name) != own) {
        let named = if other.name.is_empty() { other.peer_urls.first() } else { Some(&other.name) };
        let member = named.cloned().unwrap_or_else(|| format!("{:x}", other.id));
        return Err(ReductionRefusal::OtherMember { member });
    }
    match members {
        [own] if !own.is_learner => Ok(()),
        _ => Err(ReductionRefusal::NotVoting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n2` votes, `n2?` is a learner; ids count from 1.
    fn members(text: &str) -> Vec<MemberInfo> {
        let one = |(id, word): (u64, &str)| MemberInfo {
            id,
            name: format!("{}-0000000{id}", word.trim_end_matches('?')),
            peer_urls: vec![format!("https://10.0.0.{id}:2380")],
            client_urls: vec![],
            is_learner: word.ends_with('?'),
        };
        (1..).zip(text.split_whitespace()).map(one).collect()
    }

    fn nodes(text: &'static str) -> Vec<ManagementNode<'static>> {
        let one = |node: &'static str| ManagementNode { node, is_witness: node.starts_with('x') };
        text.split_whitespace().map(one).collect()
    }

    #[test]
    fn others_are_demoted_while_a_majority_answers() {
        for (voters, all, expected) in [
            ("n1 n2 n3", "n1 n2 n3", Ok("n2 n3")),
            ("n1 n2 n3", "n1 n2 n3 n4", Ok("n4 n2 n3")),
            // One that is away goes before those that the majority needs.
            ("n1 n2 n3!", "n1 n2 n3", Ok("n3 n2")),
            ("n1 n2 n3 n4! n5!", "n1 n2 n3 n4 n5", Ok("n4 n5 n2 n3")),
            ("n1", "n1 n2", Ok("n2")),
            ("n1", "n1", Ok("")),
            ("n1 x2 n3", "n1 x2 n3", Err("still has the witness x2")),
            ("n1 n2! n3! n4 n5", "n1 n3 n4 n5", Err("n2 does not answer, and 1 would be left")),
            // Without its own member it cannot go on.
            ("n1! n2 n3", "n1 n2 n3", Err("n1 does not answer")),
        ] {
            let one = |word: &'static str| VoterState {
                node: word.trim_end_matches('!'),
                is_healthy: !word.ends_with('!'),
            };
            let states: Vec<VoterState<'_>> = voters.split_whitespace().map(one).collect();
            match (reduction("n1", &states, &nodes(all)), expected) {
                (Ok(order), Ok(expected)) => assert_eq!(order.join(" "), expected, "{voters}"),
                (Err(refusal), Err(part)) if refusal.to_string().contains(part) => {}
                (found, _) => panic!("{voters}, {all}: {found:?}"),
            }
        }
    }

    #[test]
    fn objects_return_to_sqlite_only_on_the_last_management_node() {
        for (listed, all, refused) in [
            ("n1", "n1", None),
            ("n1", "n1 n2", Some("n2 is a management node, too")),
            ("n1", "n1 x2", Some("still has the witness x2")),
            ("n1 n2", "n1", Some("another member, n2-00000002")),
            ("n1 n2?", "n1", Some("another member, n2-00000002")),
            ("n1?", "n1", Some("does not vote")),
            ("", "n1", Some("does not vote")),
        ] {
            let found = may_return("n1", &members(listed), &nodes(all)).err();
            let found = found.map(|refusal| refusal.to_string());
            match (refused, found) {
                (None, None) => {}
                (Some(part), Some(text)) if text.contains(part) => {}
                (_, found) => panic!("{listed}, {all}: {found:?}"),
            }
        }
        let mut unnamed = members("n1 n2?");
        unnamed[1].name.clear();
        let refused = may_return("n1", &unnamed, &nodes("n1")).unwrap_err().to_string();
        assert!(refused.contains("https://10.0.0.2:2380"), "{refused}");
    }
}
