//! The next step of a node to become a member of etcd, and the choice of a member that may be
//! removed. Pure.
//!
//! ```text
//!   Add ─► Start ─► Promote ─► Done        each step can be repeated after a crash
//!    ▲       │         │
//!    │       │     Withdraw                others took the seats meanwhile
//!    └── RemoveStale, DiscardData          a directory without its member, or the reverse
//! ```

use crate::voters::{SeatRefusal, VoterCandidate, seat};

/// Digits that distinguish memberships of one node.
const SUFFIX: usize = 8;

/// One member as etcd lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberInfo {
    pub id: u64,
    /// Empty until its process has started once.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub client_urls: Vec<String>,
    pub is_learner: bool,
}

/// Status of one member, as it reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    pub id: u64,
    pub leader: u64,
    pub db_size: i64,
    pub version: String,
    /// etcd's revision of the newest change that it has applied.
    pub revision: i64,
    pub raft_index: u64,
}

/// Observed state of a node that becomes a member.
#[derive(Debug, Clone, Copy)]
pub struct JoinView<'a> {
    pub own_name: &'a str,
    pub own_peer_url: &'a str,
    /// As a member with a majority lists them; nothing if no member answers. A member that lags
    /// behind may not know this one yet, and the data of a voter would be discarded.
    pub members: Option<&'a [MemberInfo]>,
    /// Whether the data directory of etcd exists.
    pub has_data: bool,
    pub is_running: bool,
    /// Whether the own process answers its client port.
    pub answers: bool,
    /// All nodes that can vote, this one included.
    pub candidates: &'a [VoterCandidate<'a>],
}

impl JoinView<'_> {
    /// Whether this node is to vote, beside the voters of these members.
    fn seat(&self, members: &[MemberInfo]) -> Result<(), SeatRefusal> {
        let voters = members.iter().filter(|member| !member.is_learner);
        let voters: Vec<&str> = voters.map(|member| node_of(&member.name)).collect();
        seat(node_of(self.own_name), self.candidates, &voters)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinStep {
    Wait(WaitReason),
    /// Adds this node as a learner.
    Add,
    /// Starts the process with these members, as `(name, peer URL)`.
    Start {
        cluster: Vec<(String, String)>,
    },
    Promote {
        id: u64,
    },
    /// Removes the own learner: the seats are taken, or the number of voters would become even.
    Withdraw {
        id: u64,
    },
    /// The member belongs to a directory that is gone: a vote may be forgotten with it.
    RemoveStale {
        id: u64,
    },
    /// The directory belongs to a member that was removed.
    DiscardData,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    NoMemberAnswers,
    /// etcd takes one learner at a time.
    AnotherNodeJoins,
    /// There are enough voters; this node replaces one that is removed.
    StandBy,
    /// One more voter would make their number even.
    ThirdVoter,
    Starting,
}

impl WaitReason {
    pub fn text(self) -> &'static str {
        match self {
            Self::NoMemberAnswers => "no member of etcd answers",
            Self::AnotherNodeJoins => "another node is joining etcd",
            Self::StandBy => "etcd has enough voters; this node replaces one that is lost",
            Self::ThirdVoter => {
                "with this node the number of voters would be even; waiting for one more"
            }
            Self::Starting => "etcd is starting",
        }
    }
}

pub fn join_step(view: &JoinView<'_>) -> JoinStep {
    let Some(members) = view.members else {
        // Members without a majority do not answer, and this one may complete it: it may have been
        // promoted just before its machine stopped. Started with data, etcd reads its members there.
        return match view.has_data && !view.is_running {
            true => JoinStep::Start { cluster: initial_cluster(&[], view) },
            false => JoinStep::Wait(WaitReason::NoMemberAnswers),
        };
    };
    let has_url =
        |member: &&MemberInfo| member.peer_urls.iter().any(|url| url == view.own_peer_url);
    let Some(own) = members.iter().find(has_url) else {
        return if view.has_data || view.is_running {
            JoinStep::DiscardData
        } else if members.iter().any(|member| member.is_learner) {
            JoinStep::Wait(WaitReason::AnotherNodeJoins)
        } else {
            match view.seat(members) {
                Ok(()) => JoinStep::Add,
                Err(SeatRefusal::Enough) => JoinStep::Wait(WaitReason::StandBy),
                Err(SeatRefusal::Even) => JoinStep::Wait(WaitReason::ThirdVoter),
            }
        };
    };
    // A member that has run has a directory, and it is that of its name.
    let has_run = !own.name.is_empty();
    if has_run && (!view.has_data || own.name != view.own_name) {
        return JoinStep::RemoveStale { id: own.id };
    }
    match (view.is_running, view.answers, own.is_learner) {
        (false, _, _) => JoinStep::Start { cluster: initial_cluster(members, view) },
        (true, false, _) => JoinStep::Wait(WaitReason::Starting),
        (true, true, true) if view.seat(members).is_err() => JoinStep::Withdraw { id: own.id },
        (true, true, true) => JoinStep::Promote { id: own.id },
        (true, true, false) => JoinStep::Done,
    }
}

/// The members with their names, or this node alone if they are not known.
fn initial_cluster(members: &[MemberInfo], view: &JoinView<'_>) -> Vec<(String, String)> {
    if members.is_empty() {
        return vec![(view.own_name.to_owned(), view.own_peer_url.to_owned())];
    }
    let named = |member: &MemberInfo| {
        let is_own = member.peer_urls.iter().any(|url| url == view.own_peer_url);
        let name = if is_own { view.own_name.to_owned() } else { member.name.clone() };
        member.peer_urls.iter().map(move |url| (name.clone(), url.clone())).collect::<Vec<_>>()
    };
    members.iter().flat_map(named).collect()
}

/// The node that a member is on: members are called `NODE-XXXXXXXX`.
pub fn node_of(member: &str) -> &str {
    let (node, suffix) = member.rsplit_once('-').unwrap_or((member, ""));
    if suffix.len() == SUFFIX { node } else { member }
}

/// Why a member stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemovalRefusal {
    #[error("node {node} serves this request: run the command on another management node")]
    Own { node: String },
    #[error(
        "without node {node}, {healthy} of {voters} voters would be healthy, which is no majority: \
         bring another management node back first"
    )]
    Majority { node: String, healthy: usize, voters: usize },
}

/// The member of a node, if it may go; nothing if the node has none. `healthy` are the ids of
/// members that answer.
pub fn removable(
    members: &[MemberInfo],
    healthy: &[u64],
    node: &str,
    own: &str,
) -> Result<Option<u64>, RemovalRefusal> {
    let Some(member) = members.iter().find(|member| node_of(&member.name) == node) else {
        return Ok(None);
    };
    if node_of(own) == node {
        return Err(RemovalRefusal::Own { node: node.to_owned() });
    }
    let rest = members.iter().filter(|other| !other.is_learner && other.id != member.id);
    let rest: Vec<u64> = rest.map(|other| other.id).collect();
    let alive = rest.iter().filter(|id| healthy.contains(id)).count();
    if alive * 2 <= rest.len() {
        let node = node.to_owned();
        return Err(RemovalRefusal::Majority { node, healthy: alive, voters: rest.len() });
    }
    Ok(Some(member.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "https://10.0.0.2:2380";

    fn member(id: u64, name: &str, is_learner: bool) -> MemberInfo {
        MemberInfo {
            id,
            name: name.to_owned(),
            peer_urls: vec![format!("https://10.0.0.{id}:2380")],
            client_urls: vec![],
            is_learner,
        }
    }

    fn view(members: &[MemberInfo]) -> JoinView<'_> {
        JoinView {
            own_name: "n2-00000002",
            own_peer_url: OWN,
            members: Some(members),
            has_data: false,
            is_running: false,
            answers: false,
            candidates: &THREE,
        }
    }

    const fn candidate(node: &str) -> VoterCandidate<'_> {
        VoterCandidate {
            node,
            zone: None,
            is_witness: false,
            is_ready: true,
            is_server: false,
            created: 0,
        }
    }

    const THREE: [VoterCandidate<'static>; 3] = [candidate("n1"), candidate("n2"), candidate("n3")];

    #[test]
    fn a_node_becomes_a_voter_step_by_step() {
        let first = [member(1, "n1-00000001", false)];
        assert_eq!(join_step(&view(&first)), JoinStep::Add);
        let added = [member(1, "n1-00000001", false), member(2, "", true)];
        let cluster = vec![
            ("n1-00000001".to_owned(), "https://10.0.0.1:2380".to_owned()),
            ("n2-00000002".to_owned(), OWN.to_owned()),
        ];
        assert_eq!(join_step(&view(&added)), JoinStep::Start { cluster });
        let running = JoinView { is_running: true, has_data: true, ..view(&added) };
        assert_eq!(join_step(&running), JoinStep::Wait(WaitReason::Starting));
        let started = [member(1, "n1-00000001", false), member(2, "n2-00000002", true)];
        let answers = JoinView { answers: true, members: Some(&started), ..running };
        assert_eq!(join_step(&answers), JoinStep::Promote { id: 2 });
        // Its seat was taken, or the third node is not there any more.
        let full: Vec<MemberInfo> = [1, 3, 4]
            .map(|id| member(id, &format!("n{id}-0000000{id}"), false))
            .into_iter()
            .chain([member(2, "n2-00000002", true)])
            .collect();
        let late = JoinView { members: Some(&full), ..answers };
        assert_eq!(join_step(&late), JoinStep::Withdraw { id: 2 });
        let two = JoinView { candidates: &THREE[..2], ..answers };
        assert_eq!(join_step(&two), JoinStep::Withdraw { id: 2 });
        let voter = [member(1, "n1-00000001", false), member(2, "n2-00000002", false)];
        assert_eq!(join_step(&JoinView { members: Some(&voter), ..answers }), JoinStep::Done);
        // Promoted, and its machine stopped: without it, the others have no majority to answer with.
        let alone = JoinView { is_running: false, members: None, ..answers };
        let cluster = vec![("n2-00000002".to_owned(), OWN.to_owned())];
        assert_eq!(join_step(&alone), JoinStep::Start { cluster });
        // Promoted, and killed before it knew.
        let killed = JoinView { is_running: false, members: Some(&voter), ..answers };
        assert!(matches!(join_step(&killed), JoinStep::Start { .. }));
    }

    #[test]
    fn a_node_waits_for_its_turn() {
        let one = [member(1, "n1-00000001", false)];
        let busy = [member(1, "n1-00000001", false), member(3, "", true)];
        let three: Vec<MemberInfo> =
            [1, 3, 4].map(|id| member(id, &format!("n{id}-0000000{id}"), false)).into();
        for (members, candidates, reason) in [
            (None, &THREE[..], WaitReason::NoMemberAnswers),
            (Some(&three[..]), &THREE, WaitReason::StandBy),
            (Some(&one), &THREE[..2], WaitReason::ThirdVoter),
            (Some(&busy), &THREE, WaitReason::AnotherNodeJoins),
        ] {
            let view = JoinView { members, candidates, ..view(&[]) };
            assert_eq!(join_step(&view), JoinStep::Wait(reason));
        }
    }

    #[test]
    fn a_directory_and_a_member_that_do_not_belong_together_are_parted() {
        let none = [member(1, "n1-00000001", false)];
        for (has_data, is_running) in [(true, false), (false, true)] {
            let view = JoinView { has_data, is_running, ..view(&none) };
            assert_eq!(join_step(&view), JoinStep::DiscardData);
        }
        for (name, has_data) in [("n2-00000002", false), ("n2-99999999", true)] {
            for is_learner in [true, false] {
                let members = [member(1, "n1-00000001", false), member(2, name, is_learner)];
                let view = JoinView { has_data, ..view(&members) };
                assert_eq!(join_step(&view), JoinStep::RemoveStale { id: 2 }, "{name}");
            }
        }
    }

    #[test]
    fn a_member_goes_only_if_the_rest_is_a_healthy_majority() {
        let three: Vec<MemberInfo> =
            (1..=3).map(|id| member(id, &format!("n{id}-0000000{id}"), false)).collect();
        for (members, healthy, node, expected) in [
            (&three[..], &[1, 2, 3][..], "n3", Ok(Some(3))),
            (&three, &[1, 2], "n3", Ok(Some(3))),
            (&three, &[1, 2, 3], "w1", Ok(None)),
            (&three[..2], &[1, 2], "n2", Ok(Some(2))),
        ] {
            assert_eq!(removable(members, healthy, node, "n1-00000001"), expected, "{node}");
        }
        let refused = removable(&three, &[1, 3], "n3", "n1-00000001");
        assert!(matches!(refused, Err(RemovalRefusal::Majority { healthy: 1, voters: 2, .. })));
        let refused = removable(&three, &[1, 2, 3], "n1", "n1-00000001");
        assert!(matches!(refused, Err(RemovalRefusal::Own { .. })));
        // A learner does not count.
        let mut learner = three.clone();
        learner[2].is_learner = true;
        assert_eq!(removable(&learner, &[1, 2], "n3", "n1-00000001"), Ok(Some(3)));
    }

    #[test]
    fn the_name_of_a_member_contains_its_node() {
        for (name, node) in
            [("n1-0a1b2c3d", "n1"), ("rack-1-0a1b2c3d", "rack-1"), ("n1", "n1"), ("a-b", "a-b")]
        {
            assert_eq!(node_of(name), node);
        }
    }
}
