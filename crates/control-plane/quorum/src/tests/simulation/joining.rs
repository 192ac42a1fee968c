//! A node of the simulation that becomes a member, as `sheaf` carries it out.

use super::etcd::{MemberRequest, SimData};
use super::{OwnedCandidate, QuorumSimulation, Sabotage};
use crate::plan::{JoinStep, JoinView, MemberInfo, join_step};
use crate::record::{PhaseEvent, next_phase};

impl QuorumSimulation {
    pub(super) fn step_joining(&mut self, index: usize) {
        if let Some((at, step)) = self.nodes[index].step.clone() {
            if self.now >= at {
                self.nodes[index].step = None;
                self.carry_out(index, &step);
            }
            return;
        }
        if self.now < self.nodes[index].next_check {
            return;
        }
        self.nodes[index].next_check = self.now + 500 + self.rng.below(3_000);
        // Before the Nodes are known, data is the only thing to go by.
        let known = self.nodes[index].known.clone();
        let is_known = known.is_some();
        let mut step = self.join_step(index, &known.unwrap_or_default());
        match step {
            JoinStep::Start { .. } if self.sabotage != Sabotage::NoStartWithoutList => {}
            JoinStep::Start { .. } if is_known && self.other_member(index).is_some() => {}
            JoinStep::Withdraw { id } if self.sabotage == Sabotage::NoSeatCheck => {
                step = JoinStep::Promote { id };
            }
            // The only server may be lost just after the promotion: the own member knows of it.
            JoinStep::Done if self.sabotage != Sabotage::DoneNeedsServer => {}
            _ if !is_known => return,
            JoinStep::Start { .. } => return,
            _ => {}
        }
        self.nodes[index].waits = match step {
            JoinStep::Wait(reason) => Some(reason),
            _ => None,
        };
        let at = self.now + self.delay();
        self.nodes[index].step = Some((at, step));
    }

    fn join_step(&mut self, index: usize, known: &[OwnedCandidate]) -> JoinStep {
        let name = self.nodes[index].name.clone();
        let others = known.iter().filter(|own| own.is_server && own.node != name);
        self.nodes[index].others = others.map(|own| own.node.clone()).collect();
        let members = self.confirmed_members(index);
        let candidates = OwnedCandidate::voters(known);
        let node = &self.nodes[index];
        join_step(&JoinView {
            own_name: &node.member,
            own_peer_url: &node.name,
            members: members.as_deref(),
            has_data: node.data.is_some(),
            is_running: node.etcd_runs,
            answers: node.etcd_answers(self.now),
            candidates: &candidates,
        })
    }

    /// A member on another node through which requests are answered.
    pub(super) fn other_member(&self, index: usize) -> Option<usize> {
        let others = &self.nodes[index].others;
        let answers = |own: &usize| {
            let node = &self.nodes[*own];
            *own != index
                && others.contains(&node.name)
                && self.is_linked(index, *own)
                && self.has_quorum(*own)
        };
        // Another one each time.
        let count = self.nodes.len();
        let first = usize::try_from(self.now / super::STEP).unwrap_or(0);
        (0..count).map(|own| (own + first) % count).find(answers)
    }

    /// The members, as one of the others or the own one lists them after a read that needs a
    /// majority.
    fn confirmed_members(&self, index: usize) -> Option<Vec<MemberInfo>> {
        let own = Some(index).filter(|own| self.has_quorum(*own));
        let other = self.other_member(index).or(own)?;
        if self.sabotage == Sabotage::StaleLists {
            return Some(self.states(other).0);
        }
        Some(self.etcd.members.clone())
    }

    fn carry_out(&mut self, index: usize, step: &JoinStep) {
        let request = |request| Some(request);
        // A server has to confirm that the node is part of the cluster.
        let node = &self.nodes[index];
        let is_admitted = self.server_for(index).is_some() && node.exists && !node.is_marked;
        let needs_node = matches!(step, JoinStep::Add | JoinStep::Promote { .. });
        if needs_node && !is_admitted && self.sabotage != Sabotage::NoNodeCheck {
            return;
        }
        // Its memory of the others may be from before the last server went away.
        let is_current =
            needs_node && ![Sabotage::OldNodes, Sabotage::NoSeatCheck].contains(&self.sabotage);
        if is_current && is_admitted && self.join_step(index, &self.candidates()) != *step {
            return;
        }
        let url = self.nodes[index].name.clone();
        let asked = match step {
            JoinStep::Wait(_) => None,
            JoinStep::Add => request(MemberRequest::Add { url }),
            JoinStep::Start { .. } => {
                self.start_member(index);
                None
            }
            JoinStep::Promote { id } => request(MemberRequest::Promote { id: *id }),
            JoinStep::Withdraw { id } => {
                self.outcome.withdrawn += 1;
                request(MemberRequest::Remove { id: *id })
            }
            JoinStep::RemoveStale { id } => {
                self.nodes[index].etcd_runs = false;
                request(MemberRequest::Remove { id: *id })
            }
            JoinStep::DiscardData => {
                self.discard(index);
                None
            }
            JoinStep::Done => {
                let phase = next_phase(self.nodes[index].phase.as_ref(), PhaseEvent::Promoted);
                self.nodes[index].phase = phase.ok();
                self.nodes[index].restart(self.now + 1_000);
                None
            }
        };
        if let (Some(asked), Some(via)) = (asked, self.other_member(index)) {
            let _ = self.request(via, asked);
        }
    }

    /// etcd starts with the data of its node, or takes the place of the learner with its URL.
    fn start_member(&mut self, index: usize) {
        let (answers_at, synced_at) =
            (self.now + self.rng.below(3_000), self.now + self.rng.below(6_000));
        let own = self.etcd.members.iter().find(|own| own.peer_urls[0] == self.nodes[index].name);
        let own = own.map(|own| own.id);
        let (generation, node) = (self.etcd.generation, &mut self.nodes[index]);
        match (&node.data, own) {
            (Some(_), _) => {}
            (None, Some(id)) => {
                let data = SimData { id, applied: 0, index: 0, generation, synced_at };
                node.data = Some(data);
            }
            // It is no member: etcd ends at once.
            (None, None) => return,
        }
        node.start_etcd(answers_at);
    }

    /// Data of a former member is set aside; the process may be killed before it has noted its new
    /// name.
    pub(super) fn discard(&mut self, index: usize) {
        let node = &self.nodes[index];
        let id = node.data.as_ref().map(|data| (data.id, data.generation));
        let is_voter = |own: &MemberInfo| Some((own.id, self.etcd.generation)) == id;
        if self.etcd.voters().any(is_voter) {
            let text = format!("F11: {} discards the data of a voter", self.nodes[index].name);
            self.fail(text);
        }
        self.outcome.discarded += 1;
        self.nodes[index].etcd_runs = false;
        self.nodes[index].data = None;
        if self.now < super::CALM && self.rng.chance(10) {
            self.nodes[index].restart(self.now + 2_000);
            return;
        }
        self.rename(index);
    }

    pub(super) fn rename(&mut self, index: usize) {
        let suffix = self.rng.below(u64::from(u32::MAX));
        let node = &mut self.nodes[index];
        node.member = format!("{}-{suffix:08x}", node.name);
    }
}
