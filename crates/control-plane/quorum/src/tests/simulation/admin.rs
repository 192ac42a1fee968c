//! The administrator of the simulation: removes nodes, and recovers a majority that is lost for good.

use super::etcd::MemberRequest;
use super::faults::SimFault;
use super::{QuorumSimulation, Sabotage};
use crate::plan::{MemberInfo, MemberStatus, removable};
use crate::record::{Phase, PhaseEvent, next_phase};
use crate::recovery::{MemberAnswer, RecoveryRefusal, recovery};

impl QuorumSimulation {
    /// `sheaf node remove`, of any server.
    pub(super) fn remove_node(&mut self, index: usize) {
        let serves = |own: &usize| {
            *own != index && self.nodes[*own].is_up(self.now) && self.nodes[*own].serves
        };
        let servers: Vec<usize> =
            (0..self.nodes.len()).filter(serves).filter(|own| self.has_quorum(*own)).collect();
        let chosen = self.rng.index(servers.len().max(1));
        let Some(&server) = servers.get(chosen) else {
            // It is asked itself, and refuses.
            if self.nodes[index].serves && self.has_quorum(index) {
                self.stay(index);
            }
            return;
        };
        let (members, healthy) = self.states(server);
        let (name, own) = (self.nodes[index].name.clone(), self.nodes[server].member.clone());
        match removable(&members, &healthy, &name, &own) {
            Err(_) => return self.stay(index),
            Ok(None) => {}
            Ok(Some(id)) => {
                self.nodes[index].is_marked = true;
                if !self.request(server, MemberRequest::Remove { id }) {
                    // The command fails, and is given again.
                    let again = self.now + 5_000 + self.rng.below(20_000);
                    self.faults.insert(0, (again, SimFault::Remove(index)));
                    self.faults.sort_by_key(|(at, _)| *at);
                    return;
                }
            }
        }
        self.outcome.removed += 1;
        self.nodes[index].is_marked = true;
        self.nodes[index].exists = false;
        self.nodes[index].is_ready = false;
        self.nodes[index].is_server = false;
    }

    /// A removal is refused: the mark of an attempt before that was not completed is taken back.
    fn stay(&mut self, index: usize) {
        self.outcome.refused += 1;
        self.nodes[index].is_marked = false;
    }

    /// `sheaf cluster recover` on one node after the other, if the majority is lost for good.
    pub(super) fn recover(&mut self) {
        let voters: Vec<MemberInfo> = self.etcd.voters().cloned().collect();
        let holder = |member: &MemberInfo| {
            self.nodes.iter().position(|node| {
                let data = node.data.as_ref();
                let is_own = data.is_some_and(|data| {
                    data.id == member.id && data.generation == self.etcd.generation
                });
                is_own && node.off_until != u64::MAX
            })
        };
        let holders: Vec<usize> = voters.iter().filter_map(holder).collect();
        if voters.is_empty() || self.etcd.leader.is_some() || holders.len() * 2 > voters.len() {
            return;
        }
        // The command needs a node that can serve the API, and votes as its own data lists it. One that
        // was promoted just before its machine stopped does not know it otherwise.
        let can_recover = |own: &usize| !self.nodes[*own].is_witness && self.votes(*own);
        let (mut able, unable): (Vec<usize>, Vec<usize>) =
            holders.iter().copied().partition(can_recover);
        if able.is_empty() {
            self.is_lost = true;
            return;
        }
        if self.sabotage == Sabotage::NoRecoveryOfPromoted {
            able.retain(|own| self.nodes[*own].phase == Some(Phase::Voter));
        }
        // Newer data that no server can go on with is given up by name.
        let unable: Vec<String> = unable.iter().map(|own| self.nodes[*own].name.clone()).collect();
        let given_up: &[&[String]] = match self.sabotage {
            Sabotage::NothingGivenUp => &[&[]],
            _ => &[&[], &unable],
        };
        for given_up in given_up {
            for index in able.iter().copied() {
                if self.recover_on(index, &holders, given_up) {
                    return;
                }
            }
        }
    }

    /// The members that a node lists, and those that they list in turn: data that lags behind does not
    /// know members that came later.
    fn all_known(&self, index: usize, holders: &[usize]) -> Vec<MemberInfo> {
        let mut members = self.applied_members(index);
        let is_other = |own: &&usize| self.nodes[index].others.contains(&self.nodes[**own].name);
        let mut ask: Vec<usize> = holders.iter().filter(is_other).copied().collect();
        if self.sabotage == Sabotage::OwnListOnly {
            return members;
        }
        let mut asked = vec![index];
        loop {
            let is_listed = |own: &usize| {
                members.iter().any(|member| member.peer_urls[0] == self.nodes[*own].name)
            };
            ask.extend(holders.iter().filter(|own| is_listed(own)));
            ask.retain(|own| !asked.contains(own));
            let Some(next) = ask.pop() else { return members };
            asked.push(next);
            for member in self.applied_members(next) {
                if members.iter().all(|own| own.id != member.id) {
                    members.push(member);
                }
            }
        }
    }

    /// Whether a node votes, as its own data lists it.
    fn votes(&self, index: usize) -> bool {
        let name = &self.nodes[index].name;
        let listed = self.applied_members(index);
        listed.iter().any(|own| !own.is_learner && own.peer_urls[0] == *name)
    }

    fn recover_on(&mut self, index: usize, holders: &[usize], given_up: &[String]) -> bool {
        let status = |own: &MemberInfo| {
            let holders = holders.iter().filter_map(|own| self.nodes[*own].data.as_ref());
            let data = holders.into_iter().find(|data| data.id == own.id)?;
            Some(MemberStatus {
                id: own.id,
                leader: 0,
                db_size: 1,
                version: String::new(),
                revision: data.index.cast_signed(),
                raft_index: data.index,
            })
        };
        let (members, own) = (self.all_known(index, holders), self.nodes[index].member.clone());
        let answer = |info: MemberInfo| MemberAnswer { status: status(&info), info };
        let answers: Vec<MemberAnswer> = members.iter().cloned().map(answer).collect();
        match recovery(&own, &answers, false, given_up) {
            Err(RecoveryRefusal::NewerElsewhere { .. })
                if self.sabotage == Sabotage::NoNewestCheck => {}
            Err(_) => return false,
            Ok(_) => {}
        }
        let index_of = |own: &usize| self.nodes[*own].data.as_ref().map_or(0, |data| data.index);
        let counted = holders.iter().filter(|own| !given_up.contains(&self.nodes[**own].name));
        let newest = counted.map(index_of).max();
        if Some(index_of(&index)) < newest {
            self.fail(format!("{own} goes on alone, and another member has newer data"));
        }
        self.outcome.recovered += 1;
        self.etcd.generation += 1;
        let generation = self.etcd.generation;
        let alone = members.into_iter().filter(|member| member.name == own).collect();
        self.etcd.commit(alone);
        let applied = self.etcd.past.len();
        if self.nodes[index].phase == Some(Phase::Joining) {
            let phase = next_phase(self.nodes[index].phase.as_ref(), PhaseEvent::Promoted);
            self.nodes[index].phase = phase.ok();
        }
        self.nodes[index].others.clear();
        self.nodes[index].restart(self.now + 1_000);
        if let Some(data) = &mut self.nodes[index].data {
            data.generation = generation;
            data.applied = applied;
            self.etcd.index = data.index;
        }
        self.nodes[index].start_etcd(self.now);
        for node in self.nodes.iter_mut().filter(|own| own.off_until == u64::MAX) {
            node.exists = false;
        }
        true
    }
}
