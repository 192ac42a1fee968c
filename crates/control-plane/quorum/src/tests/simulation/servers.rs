//! Servers of the simulation: the first node with its move from SQLite, and voters with the
//! supervision of their process and of all voters.

use std::time::Duration;

use super::etcd::{MemberRequest, SimData};
use super::{OwnedCandidate, QuorumSimulation, REPLACE_AFTER, Sabotage};
use crate::plan::MemberInfo;
use crate::record::{Phase, PhaseEvent, next_phase};
use crate::voter_watch::{VoterStep, VoterView};

const CHECK_INTERVAL: u64 = 15_000;
/// After a move that failed.
const RETRY: u64 = 20_000;

impl QuorumSimulation {
    /// The first node: objects are in SQLite until two others can vote.
    pub(super) fn step_first(&mut self, index: usize) {
        let phase = self.nodes[index].phase.clone();
        if phase == Some(Phase::Moving) {
            return self.move_store(index);
        }
        self.nodes[index].serves = true;
        let candidates = self.candidates();
        let others = candidates.iter().filter(|own| own.is_ready && own.node != "n0");
        if others.count() < 2 || self.now < self.nodes[index].next_check {
            return;
        }
        let moving = next_phase(phase.as_ref(), PhaseEvent::MoveWanted);
        self.nodes[index].phase = moving.ok();
        let until = self.now + 1_000 + self.rng.below(6_000);
        self.nodes[index].restart(until);
    }

    /// A start in phase `Moving`. A kill before its end leaves the phase as it is.
    fn move_store(&mut self, index: usize) {
        let is_failed = self.now < super::CALM && self.rng.chance(15);
        let event = match is_failed {
            true => PhaseEvent::CopyFailed { at: jiff::Timestamp::UNIX_EPOCH, reason: "x".into() },
            false => PhaseEvent::Copied,
        };
        self.nodes[index].phase = next_phase(self.nodes[index].phase.as_ref(), event).ok();
        if is_failed {
            self.nodes[index].next_check = self.now + RETRY;
            return;
        }
        self.outcome.moved += 1;
        let id = self.etcd.next_id();
        let node = &mut self.nodes[index];
        let info = MemberInfo {
            id,
            name: node.member.clone(),
            peer_urls: vec![node.name.clone()],
            client_urls: Vec::new(),
            is_learner: false,
        };
        node.data = Some(SimData { id, applied: 1, index: 0, generation: 0, synced_at: 0 });
        node.start_etcd(self.now);
        self.etcd.commit(vec![info]);
    }

    pub(super) fn step_voter(&mut self, index: usize) {
        let now = self.now;
        let known = self.nodes[index].known.clone();
        if let Some(known) = &known {
            let name = &self.nodes[index].name;
            let others = known.iter().filter(|own| own.is_server && own.node != *name);
            self.nodes[index].others = others.map(|own| own.node.clone()).collect();
        }
        if !self.nodes[index].etcd_runs {
            self.supervise(index);
        }
        let has_quorum = self.has_quorum(index);
        if self.nodes[index].is_witness {
            return;
        }
        if has_quorum {
            self.nodes[index].serves = true;
            self.nodes[index].is_server |= self.nodes[index].exists;
        }
        if !self.nodes[index].serves || now < self.nodes[index].next_check {
            return;
        }
        self.nodes[index].next_check = now + CHECK_INTERVAL;
        if let Some(known) = known.filter(|_| has_quorum) {
            self.keep_voters(index, &known);
        }
    }

    /// The process of etcd has ended: starts it again, unless this node is not a member any more.
    fn supervise(&mut self, index: usize) {
        let own = self.nodes[index].member.clone();
        let others = self.other_member(index).is_some();
        let is_removed = others && self.etcd.members.iter().all(|member| member.name != own);
        let server = self.server_for(index);
        match (is_removed, server) {
            (true, Some(_)) if !self.nodes[index].exists || self.nodes[index].is_marked => {
                self.nodes[index].off_until = u64::MAX;
            }
            (true, Some(_)) => {
                self.outcome.standbys += 1;
                self.discard(index);
                self.rename(index);
                self.nodes[index].phase = Some(Phase::Joining);
                self.nodes[index].restart(self.now + 1_000);
            }
            _ if self.nodes[index].data.is_some() => {
                let answers_at = self.now + self.rng.below(3_000);
                self.nodes[index].start_etcd(answers_at);
            }
            _ => {}
        }
    }

    /// The list of a member after a read that needs a majority, and the ids of members that answer.
    pub(super) fn states(&self, index: usize) -> (Vec<MemberInfo>, Vec<u64>) {
        let listed = match self.sabotage {
            Sabotage::StaleLists => self.applied_members(index),
            _ => self.etcd.members.clone(),
        };
        if self.sabotage == Sabotage::NoMajorityCheck {
            let all = listed.iter().map(|member| member.id).collect();
            return (listed, all);
        }
        let answers = |member: &&MemberInfo| {
            self.runner(member).is_some_and(|own| {
                self.is_linked(index, own) && self.nodes[own].etcd_answers(self.now)
            })
        };
        let healthy = listed.iter().filter(answers).map(|member| member.id).collect();
        (listed, healthy)
    }

    /// The members as the own one lists them, which may lag behind.
    pub(super) fn applied_members(&self, index: usize) -> Vec<MemberInfo> {
        let applied = self.nodes[index].data.as_ref().map_or(0, |data| data.applied);
        self.etcd.past.get(applied.saturating_sub(1)).cloned().unwrap_or_default()
    }

    fn keep_voters(&mut self, index: usize, known: &[OwnedCandidate]) {
        let (members, healthy) = self.states(index);
        let candidates = OwnedCandidate::voters(known);
        let mut watch = std::mem::take(&mut self.nodes[index].watch);
        let id = |own: usize| self.nodes[own].data.as_ref().map_or(0, |data| data.id);
        let live = self.nodes.iter().filter(|own| own.exists);
        let nodes: Vec<&str> = live.map(|own| own.name.as_str()).collect();
        let view = VoterView {
            nodes: &nodes,
            own: id(index),
            leader: self.etcd.leader.map_or(0, id),
            members: &members,
            healthy: &healthy,
            candidates: &candidates,
            now: Duration::from_millis(self.now),
            replace_after: REPLACE_AFTER,
        };
        let step = watch.step(&view);
        self.nodes[index].watch = watch;
        match step {
            VoterStep::Leave => return,
            VoterStep::Replace { id, .. } if self.sabotage != Sabotage::NoReplacement => {
                self.outcome.replaced += 1;
                let _ = self.request(index, MemberRequest::Remove { id });
                return;
            }
            VoterStep::RemoveLearner { id } if self.sabotage != Sabotage::NoLearnerDeadline => {
                self.outcome.learners_removed += 1;
                let _ = self.request(index, MemberRequest::Remove { id });
                return;
            }
            VoterStep::RemoveForeign { id, .. } if self.sabotage != Sabotage::NoNodeCheck => {
                self.outcome.foreign_removed += 1;
                let _ = self.request(index, MemberRequest::Remove { id });
                return;
            }
            VoterStep::RemoveForeign { .. }
            | VoterStep::RemoveLearner { .. }
            | VoterStep::Replace { .. }
            | VoterStep::Nothing => {}
        }
        // Nodes that say that they serve, and have no member.
        if members.iter().all(|member| !member.name.is_empty()) {
            let is_member =
                |name: &str| members.iter().any(|own| crate::node_of(&own.name) == name);
            for node in self.nodes.iter_mut().filter(|own| !is_member(&own.name)) {
                node.is_server = false;
            }
        }
    }
}
