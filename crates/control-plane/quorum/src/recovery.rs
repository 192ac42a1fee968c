//! Whether a member of an etcd that has lost its majority may go on alone, and what that costs.
//! Pure.

use crate::plan::{MemberInfo, MemberStatus, node_of};

/// A member as its own data lists it, and what it answers; nothing if it does not.
#[derive(Debug, Clone)]
pub struct MemberAnswer {
    pub info: MemberInfo,
    pub status: Option<MemberStatus>,
}

/// Consequences of a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryPlan {
    /// etcd's revision of the newest change that is known here.
    pub revision: i64,
    /// Nodes that do not answer. Changes that only they have are lost.
    pub lost: Vec<String>,
    /// Nodes that answer and have nothing newer. They have to join again.
    pub dropped: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryRefusal {
    #[error(
        "etcd has a majority: nothing has to be recovered. Remove a node that is lost for good \
         with `sheaf node remove NAME`"
    )]
    HasMajority,
    #[error("the member of etcd on this node does not answer; see etcd.log in the data directory")]
    OwnMemberDown,
    #[error(
        "node {node} answers and has newer changes ({newer} log entries more): run this command \
         there"
    )]
    NewerElsewhere { node: String, newer: u64 },
}

/// `own` is the name of the member of this node.
pub fn recovery(
    own: &str,
    members: &[MemberAnswer],
    has_majority: bool,
) -> Result<RecoveryPlan, RecoveryRefusal> {
    if has_majority {
        return Err(RecoveryRefusal::HasMajority);
    }
    let (mine, others): (Vec<_>, Vec<_>) =
        members.iter().partition(|member| member.info.name == own);
    let mine = mine.first().and_then(|member| member.status.as_ref());
    let mine = mine.ok_or(RecoveryRefusal::OwnMemberDown)?;
    let (mut lost, mut dropped) = (Vec::new(), Vec::new());
    for member in others {
        let node = node_of(&member.info.name).to_owned();
        match &member.status {
            None => lost.push(node),
            Some(status) if status.raft_index > mine.raft_index => {
                let newer = status.raft_index - mine.raft_index;
                return Err(RecoveryRefusal::NewerElsewhere { node, newer });
            }
            Some(_) => dropped.push(node),
        }
    }
    Ok(RecoveryPlan { revision: mine.revision, lost, dropped })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, raft_index: Option<u64>) -> MemberAnswer {
        let info = MemberInfo {
            id: 1,
            name: format!("{name}-00000001"),
            peer_urls: vec![],
            client_urls: vec![],
            is_learner: false,
        };
        let status = raft_index.map(|raft_index| MemberStatus {
            id: 1,
            leader: 0,
            db_size: 1,
            version: "3.4.23".into(),
            revision: 40,
            raft_index,
        });
        MemberAnswer { info, status }
    }

    #[test]
    fn only_the_newest_member_without_a_majority_goes_on_alone() {
        let plan = |lost: &[&str], dropped: &[&str]| {
            let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
            Ok(RecoveryPlan { revision: 40, lost: names(lost), dropped: names(dropped) })
        };
        let newer = RecoveryRefusal::NewerElsewhere { node: "b".into(), newer: 3 };
        for (members, has_majority, expected) in [
            (vec![("a", Some(7)), ("b", None), ("c", None)], false, plan(&["b", "c"], &[])),
            (vec![("a", Some(7)), ("b", Some(7)), ("c", None)], false, plan(&["c"], &["b"])),
            (vec![("a", Some(7)), ("b", Some(10)), ("c", None)], false, Err(newer)),
            (vec![("a", Some(7)), ("b", None)], true, Err(RecoveryRefusal::HasMajority)),
            (vec![("a", None), ("b", None)], false, Err(RecoveryRefusal::OwnMemberDown)),
            (vec![("b", Some(7))], false, Err(RecoveryRefusal::OwnMemberDown)),
        ] {
            let text = format!("{members:?} {has_majority}");
            let members: Vec<_> =
                members.into_iter().map(|(name, index)| member(name, index)).collect();
            assert_eq!(recovery("a-00000001", &members, has_majority), expected, "{text}");
        }
    }
}
