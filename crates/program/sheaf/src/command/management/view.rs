//! The API server's report of its store: `GET /sheaf/v1/etcd`, which `sheaf cluster status` shows.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::command::table;

pub(in crate::command) const STORE_PATH: &str = "/sheaf/v1/etcd";
/// A member is removed by DELETE of this and the name of its node.
/// A POST to it makes a worker of the node.
pub(in crate::command) const MEMBERS_PATH: &str = "/sheaf/v1/etcd/members/";
/// A POST begins the return of the objects to SQLite.
pub(in crate::command) const RETURN_PATH: &str = "/sheaf/v1/etcd/return";

/// Where the objects of the cluster are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "store", rename_all = "kebab-case")]
pub(in crate::command) enum StoreView {
    /// One file on the only management node.
    Sqlite,
    /// An etcd that others operate.
    ExternalEtcd,
    /// An etcd whose members are management nodes.
    #[serde(rename_all = "camelCase")]
    Etcd {
        /// The node that reports this.
        #[serde(default)]
        node: String,
        members: Vec<MemberView>,
        /// Why the last return to SQLite failed.
        #[serde(default)]
        return_failure: Option<String>,
    },
}

/// A request for the return to SQLite.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::command) struct ReturnRequest {
    /// The node that the request is meant for: it stays the only management node.
    pub(in crate::command) keep: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::command) struct MemberView {
    pub(in crate::command) node: String,
    pub(in crate::command) url: String,
    pub(in crate::command) is_learner: bool,
    pub(in crate::command) is_leader: bool,
    /// Nothing if it does not answer.
    pub(in crate::command) db_size: Option<i64>,
    pub(in crate::command) version: Option<String>,
}

impl StoreView {
    /// How many vote when the member of this node does not; none without etcd.
    pub(in crate::command) fn voters_without(&self, node: &str) -> usize {
        let Self::Etcd { members, .. } = self else { return 0 };
        members.iter().filter(|member| !member.is_learner && member.node != node).count()
    }

    /// The lines of `sheaf cluster status`.
    pub(in crate::command) fn describe(&self) -> String {
        let members = match self {
            Self::Sqlite => return "store      SQLite, on one management node\n".to_owned(),
            Self::ExternalEtcd => return "store      etcd, not managed by Sheaf\n".to_owned(),
            Self::Etcd { members, .. } => members,
        };
        let voters = members.iter().filter(|member| !member.is_learner).count();
        let healthy = members.iter().filter(|member| member.db_size.is_some()).count();
        let mut text = format!(
            "store      etcd, {voters} voters, {healthy} of {} members healthy\n",
            members.len()
        );
        for member in members {
            let role = match (member.is_leader, member.is_learner) {
                (true, _) => "leader",
                (false, true) => "learner",
                (false, false) => "voter",
            };
            let state = match (member.db_size, &member.version) {
                (Some(size), Some(version)) => {
                    format!("healthy, {}, etcd {version}", table::size(size))
                }
                _ => "does not answer".to_owned(),
            };
            let _ = writeln!(text, "member     {} {role}, {state}, {}", member.node, member.url);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_shown_with_their_role_and_health() {
        let member = |node: &str, is_leader, is_learner, db_size| MemberView {
            node: node.into(),
            url: "https://10.0.0.1:2379".into(),
            is_learner,
            is_leader,
            db_size,
            version: db_size.map(|_| "3.4.23".to_owned()),
        };
        let members = vec![
            member("n1", true, false, Some(2 << 20)),
            member("n2", false, false, None),
            member("n3", false, true, Some(1 << 20)),
        ];
        let view = StoreView::Etcd { node: "n1".into(), members, return_failure: None };
        assert_eq!((view.voters_without("n2"), view.voters_without("w1")), (1, 2));
        let text = view.describe();
        for part in [
            "2 voters, 2 of 3 members healthy",
            "n1 leader, healthy, 2 MiB, etcd 3.4.23",
            "n2 voter, does not answer",
            "n3 learner, healthy",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(StoreView::Sqlite.describe().contains("SQLite"));
    }
}
