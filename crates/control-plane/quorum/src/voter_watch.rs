//! Supervision of the voters: which member does it, how long each member has been silent, and
//! which member is removed. Pure.
//!
//! Silence is counted by the clock of the process that supervises and from the moment that it
//! does: another one begins anew, and clocks of other machines are not compared.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::plan::{MemberInfo, node_of, removable};
use crate::voters::{VoterCandidate, seat};

/// The members as the supervisor sees them.
#[derive(Debug, Clone, Copy)]
pub struct VoterView<'a> {
    /// The member of the node that asks.
    pub own: u64,
    pub leader: u64,
    pub members: &'a [MemberInfo],
    /// Ids of the members that answer.
    pub healthy: &'a [u64],
    pub candidates: &'a [VoterCandidate<'a>],
    /// All nodes of the cluster.
    pub nodes: &'a [&'a str],
    /// Since any moment that stays the same for a process.
    pub now: Duration,
    /// How long a voter may be silent, and a learner be one.
    pub replace_after: Duration,
}

/// The next step of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VoterStep {
    /// Another member supervises.
    Leave,
    Nothing,
    /// Removes a lost voter, so that a standby node takes its seat.
    Replace {
        id: u64,
        node: String,
    },
    /// Removes a voter whose node was removed from the cluster.
    RemoveForeign {
        id: u64,
        node: String,
    },
    /// Removes a learner that is not promoted in time: etcd takes one at a time, so that no other
    /// node can join, and no lost voter is replaced.
    RemoveLearner {
        id: u64,
    },
}

impl VoterView<'_> {
    /// Whether the own member supervises the voters: the leader of etcd does, or, if that is a
    /// witness or not ready, the first member of a server that is.
    fn is_supervisor(&self) -> bool {
        let serves = |member: &&MemberInfo| {
            let mut nodes = self.candidates.iter();
            nodes.any(|own| own.node == node_of(&member.name) && own.is_server && own.is_ready)
        };
        let servers: Vec<u64> = self.members.iter().filter(serves).map(|own| own.id).collect();
        match servers.contains(&self.leader) {
            true => self.own == self.leader,
            false => servers.into_iter().min() == Some(self.own),
        }
    }

    fn removable(&self, node: &str) -> Option<u64> {
        let own = self.members.iter().find(|member| member.id == self.own)?;
        removable(self.members, self.healthy, node, &own.name).ok().flatten()
    }

    fn is_silent(&self, member: &MemberInfo) -> bool {
        let node = node_of(&member.name);
        let is_ready = self.candidates.iter().any(|own| own.node == node && own.is_ready);
        !self.healthy.contains(&member.id) && !is_ready
    }
}

/// Memory of a supervisor: since when neither the etcd of a member nor the agent of its node
/// answers, since when a member is a learner, and since when its node is not part of the cluster.
#[derive(Debug, Default)]
pub struct VoterWatch {
    silent: BTreeMap<u64, Duration>,
    learners: BTreeMap<u64, Duration>,
    foreign: BTreeMap<u64, Duration>,
}

impl VoterWatch {
    pub fn step(&mut self, view: &VoterView<'_>) -> VoterStep {
        if !view.is_supervisor() {
            *self = Self::default();
            return VoterStep::Leave;
        }
        let since = |known: &BTreeMap<u64, Duration>, is_kept: &dyn Fn(&MemberInfo) -> bool| {
            let kept = view.members.iter().filter(|member| is_kept(member));
            kept.map(|own| (own.id, known.get(&own.id).copied().unwrap_or(view.now))).collect()
        };
        self.silent = since(&self.silent, &|member| view.is_silent(member));
        self.learners = since(&self.learners, &|member| member.is_learner);
        let is_foreign =
            |own: &MemberInfo| !own.name.is_empty() && !view.nodes.contains(&node_of(&own.name));
        self.foreign = since(&self.foreign, &is_foreign);
        let late = self.learners.iter().find(|(_, since)| view.now - **since >= view.replace_after);
        match late {
            Some((id, _)) => VoterStep::RemoveLearner { id: *id },
            None => {
                let step = self.foreign_voter(view).or_else(|| self.lost_voter(view));
                step.unwrap_or(VoterStep::Nothing)
            }
        }
    }

    /// A voter of a node that was removed: it joined again with what it remembered of the cluster.
    fn foreign_voter(&self, view: &VoterView<'_>) -> Option<VoterStep> {
        let is_due = |own: &&MemberInfo| {
            self.foreign.get(&own.id).is_some_and(|since| view.now - *since >= view.replace_after)
        };
        let node = node_of(&view.members.iter().find(is_due)?.name);
        let id = view.removable(node)?;
        Some(VoterStep::RemoveForeign { id, node: node.to_owned() })
    }

    /// The voter whose seat another node gets: it has been silent for long, a standby node
    /// is ready, and the voters that remain have a healthy majority. One of an even number goes in
    /// any case: the rest survives more failures without it, and etcd adds no member beside it.
    fn lost_voter(&self, view: &VoterView<'_>) -> Option<VoterStep> {
        // A learner is a change that is under way.
        if view.members.iter().any(|member| member.is_learner) {
            return None;
        }
        let lost = view.members.iter().filter_map(|member| {
            let silence = view.now.saturating_sub(*self.silent.get(&member.id)?);
            (silence >= view.replace_after).then_some((silence, node_of(&member.name)))
        });
        let (_, node) = lost.max()?;
        let voters: Vec<&str> = view.members.iter().map(|own| node_of(&own.name)).collect();
        let left: Vec<&str> = voters.iter().copied().filter(|own| *own != node).collect();
        let is_standby = |own: &VoterCandidate<'_>| {
            !voters.contains(&own.node) && seat(own.node, view.candidates, &left).is_ok()
        };
        if !voters.len().is_multiple_of(2) && !view.candidates.iter().any(is_standby) {
            return None;
        }
        let id = view.removable(node)?;
        Some(VoterStep::Replace { id, node: node.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n1` is ready, `n1!` is not; `x1` is a witness.
    fn candidates(text: &str) -> Vec<VoterCandidate<'_>> {
        let one = |(index, word): (usize, &'_ str)| {
            let node = word.trim_end_matches('!');
            (i64::try_from(index).unwrap(), word.len() == node.len())
        };
        let facts: Vec<_> = text.split_whitespace().enumerate().map(one).collect();
        let words = text.split_whitespace().zip(facts);
        let candidate = |(word, (created, is_ready)): (_, _)| VoterCandidate {
            node: str::trim_end_matches(word, '!'),
            zone: None,
            is_witness: word.starts_with('x'),
            is_ready,
            is_server: word.starts_with('n'),
            created,
        };
        words.map(candidate).collect()
    }

    fn members(names: &[&str]) -> Vec<MemberInfo> {
        let one = |(index, name): (usize, &&str)| MemberInfo {
            id: u64::try_from(index).unwrap() + 1,
            name: format!("{name}-0000000{index}"),
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            is_learner: false,
        };
        names.iter().enumerate().map(one).collect()
    }

    fn view<'a>(
        members: &'a [MemberInfo],
        healthy: &'a [u64],
        candidates: &'a [VoterCandidate<'a>],
        seconds: u64,
    ) -> VoterView<'a> {
        let leader = healthy.first().copied().unwrap_or(1);
        let (now, replace_after) = (Duration::from_secs(seconds), Duration::from_secs(600));
        let nodes = &["n1", "n2", "n3", "n4", "n5", "n6", "n7", "x1"];
        VoterView { own: leader, leader, members, healthy, candidates, nodes, now, replace_after }
    }

    #[test]
    fn a_lost_voter_is_replaced_by_a_standby_node() {
        let three = ["n1", "n2", "n3"];
        for (nodes, voters, healthy, seconds, expected) in [
            ("n1 n2 n3! n4", &three[..], &[1, 2][..], 600, Some("n3")),
            ("n1 n2 n3! n4", &three, &[1, 2], 599, None),
            ("n1 n2 n3! x1", &three, &[1, 2], 600, Some("n3")),
            // Its etcd answers, whatever its agent does.
            ("n1 n2 n3! n4", &three, &[1, 2, 3], 600, None),
            // Its agent reports.
            ("n1 n2 n3 n4", &three, &[1, 2], 600, None),
            // No node is there to replace it.
            ("n1 n2 n3!", &three, &[1, 2], 600, None),
            ("n1 n2 n3! n4!", &three, &[1, 2], 600, None),
            // The rest would have no majority.
            ("n1 n2! n3! n4", &three, &[1], 900, None),
            // Of four, one that is lost goes, whether or not another takes its place.
            ("n1 n2 n3! n4", &["n1", "n2", "n3", "n4"], &[1, 2, 4], 600, Some("n3")),
            // Its Node was deleted.
            ("n1 n2 n4", &three, &[1, 2], 600, Some("n3")),
        ] {
            let (members, all) = (members(voters), candidates(nodes));
            let mut watch = VoterWatch::default();
            let first = watch.step(&view(&members, healthy, &all, 0));
            assert_eq!(first, VoterStep::Nothing, "{nodes}");
            let found = match watch.step(&view(&members, healthy, &all, seconds)) {
                VoterStep::Replace { node, .. } => Some(node),
                _ => None,
            };
            assert_eq!(found.as_deref(), expected, "{nodes} {healthy:?} {seconds}");
        }
    }

    #[test]
    fn the_voter_that_has_been_silent_for_longest_is_replaced_first() {
        let five = members(&["n1", "n2", "n3", "n4", "n5"]);
        let mut watch = VoterWatch::default();
        let all = candidates("n1 n2 n3 n4! n5 n6 n7");
        watch.step(&view(&five, &[1, 2, 3, 5], &all, 0));
        let all = candidates("n1 n2 n3! n4! n5 n6 n7");
        watch.step(&view(&five, &[1, 2, 5], &all, 100));
        let found = watch.step(&view(&five, &[1, 2, 5], &all, 800));
        assert_eq!(found, VoterStep::Replace { id: 4, node: "n4".into() });
    }

    #[test]
    fn a_learner_that_is_not_promoted_in_time_is_removed() {
        let mut joining = members(&["n1", "n2", "n3"]);
        joining[2].is_learner = true;
        // Added, and never started: it has no name.
        let mut unnamed = joining.clone();
        unnamed[2].name.clear();
        let all = candidates("n1 n2 n3");
        for (members, healthy) in [(&joining, &[1, 2, 3][..]), (&unnamed, &[1, 2])] {
            let mut watch = VoterWatch::default();
            for (seconds, expected) in [
                (0, VoterStep::Nothing),
                (599, VoterStep::Nothing),
                (600, VoterStep::RemoveLearner { id: 3 }),
            ] {
                assert_eq!(watch.step(&view(members, healthy, &all, seconds)), expected);
            }
        }
        // Another learner has its own time.
        let mut watch = VoterWatch::default();
        watch.step(&view(&joining, &[1, 2, 3], &all, 0));
        joining[2].id = 4;
        assert_eq!(watch.step(&view(&joining, &[1, 2], &all, 600)), VoterStep::Nothing);
    }

    #[test]
    fn a_voter_whose_node_was_removed_is_removed() {
        let (members, all) = (members(&["n1", "n2", "n3", "n4"]), candidates("n1 n2 n3"));
        for (healthy, expected) in [
            (&[1, 2, 3, 4][..], VoterStep::RemoveForeign { id: 4, node: "n4".into() }),
            // The rest would have no majority.
            (&[1, 4], VoterStep::Nothing),
        ] {
            let mut watch = VoterWatch::default();
            let nodes = ["n1", "n2", "n3", "w1"];
            let at =
                |seconds| VoterView { nodes: &nodes, ..view(&members, healthy, &all, seconds) };
            assert_eq!(watch.step(&at(0)), VoterStep::Nothing);
            assert_eq!(watch.step(&at(599)), VoterStep::Nothing);
            assert_eq!(watch.step(&at(600)), expected);
        }
    }

    #[test]
    fn a_member_that_was_heard_again_begins_anew() {
        let three = members(&["n1", "n2", "n3"]);
        let mut watch = VoterWatch::default();
        let (away, back) = (candidates("n1 n2 n3! n4"), candidates("n1 n2 n3 n4"));
        watch.step(&view(&three, &[1, 2], &away, 0));
        watch.step(&view(&three, &[1, 2], &back, 300));
        watch.step(&view(&three, &[1, 2], &away, 400));
        assert_eq!(watch.step(&view(&three, &[1, 2], &away, 999)), VoterStep::Nothing);
        let found = watch.step(&view(&three, &[1, 2], &away, 1000));
        assert_eq!(found, VoterStep::Replace { id: 3, node: "n3".into() });
    }

    #[test]
    fn the_leader_supervises_or_the_first_server_that_is_ready() {
        let members = members(&["x1", "n2", "n3"]);
        let all = candidates("x1 n2 n3");
        for (leader, expected) in [(3, 3), (2, 2), (1, 2), (0, 2)] {
            let is_supervisor = |own: &u64| {
                let view = view(&members, &[1, 2, 3], &all, 0);
                VoterView { own: *own, leader, ..view }.is_supervisor()
            };
            let found: Vec<u64> = (1..=3).filter(is_supervisor).collect();
            assert_eq!(found, [expected], "{leader}");
        }
        let mut watch = VoterWatch::default();
        let other = VoterView { own: 3, leader: 2, ..view(&members, &[1, 2, 3], &all, 0) };
        assert_eq!(watch.step(&other), VoterStep::Leave);
    }
}
