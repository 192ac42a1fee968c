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
    /// Nodes whose newer changes are given up, with the number of log entries. They cannot go on
    /// themselves, and have to join again.
    pub given_up: Vec<(String, u64)>,
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
    #[error("this node does not vote in etcd yet: run this command on a node that does")]
    Learner,
    #[error(
        "node {node} answers and has newer changes ({newer} log entries more): run this command \
         there; if it cannot go on, as a witness or a node that does not vote yet, lose these changes \
         with --give-up {node}"
    )]
    NewerElsewhere { node: String, newer: u64 },
}

/// `own` is the name of the member of this node, `accepted` are nodes whose newer changes may be lost.
pub fn recovery(
    own: &str,
    members: &[MemberAnswer],
    has_majority: bool,
    accepted: &[String],
) -> Result<RecoveryPlan, RecoveryRefusal> {
    if has_majority {
        return Err(RecoveryRefusal::HasMajority);
    }
    let (mine, others): (Vec<_>, Vec<_>) =
        members.iter().partition(|member| member.info.name == own);
    // Its data may be of any age, and etcd 3.4 keeps it a learner.
    if mine.first().is_some_and(|member| member.info.is_learner) {
        return Err(RecoveryRefusal::Learner);
    }
    let mine = mine.first().and_then(|member| member.status.as_ref());
    let mine = mine.ok_or(RecoveryRefusal::OwnMemberDown)?;
    let (mut lost, mut dropped, mut given_up) = (Vec::new(), Vec::new(), Vec::new());
    for member in others {
        let node = name(&member.info);
        match &member.status {
            None => lost.push(node),
            Some(status) if status.raft_index > mine.raft_index => {
                let newer = status.raft_index - mine.raft_index;
                if accepted.contains(&node) {
                    given_up.push((node, newer));
                    continue;
                }
                return Err(RecoveryRefusal::NewerElsewhere { node, newer });
            }
            Some(_) => dropped.push(node),
        }
    }
    Ok(RecoveryPlan { revision: mine.revision, lost, dropped, given_up })
}

/// The node of a member; the address of one whose name has not arrived here.
fn name(member: &MemberInfo) -> String {
    match (member.name.is_empty(), member.peer_urls.first()) {
        (true, Some(url)) => url.clone(),
        _ => node_of(&member.name).to_owned(),
    }
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
            let (lost, dropped, given_up) = (names(lost), names(dropped), Vec::new());
            Ok(RecoveryPlan { revision: 40, lost, dropped, given_up })
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
            assert_eq!(recovery("a-00000001", &members, has_majority, &[]), expected, "{text}");
        }
    }

    #[test]
    fn a_learner_does_not_go_on_alone() {
        let mut members = vec![member("a", Some(7)), member("b", None)];
        members[0].info.is_learner = true;
        assert_eq!(recovery("a-00000001", &members, false, &[]), Err(RecoveryRefusal::Learner));
    }

    #[test]
    fn newer_changes_are_lost_only_by_the_name_of_their_node() {
        let mut members = vec![member("a", Some(7)), member("x", Some(9)), member("c", Some(8))];
        members[2].info.name.clear();
        members[2].info.peer_urls.push("https://10.0.0.3:2380".to_owned());
        let names = |names: &[&str]| names.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        let url = "https://10.0.0.3:2380";
        for (accepted, expected) in [
            (names(&[]), Err(("x", 2))),
            (names(&["b", url]), Err(("x", 2))),
            (names(&["x"]), Err((url, 1))),
            (names(&[url, "x"]), Ok(vec![("x".to_owned(), 2), (url.to_owned(), 1)])),
        ] {
            let found = recovery("a-00000001", &members, false, &accepted);
            let expected = expected.map_err(|(node, newer)| RecoveryRefusal::NewerElsewhere {
                node: node.to_owned(),
                newer,
            });
            assert_eq!(found.map(|plan| plan.given_up), expected, "{accepted:?}");
        }
    }
}
