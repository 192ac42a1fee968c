//! etcd of the simulation: one committed list of members with its past, a leader, members that lag
//! behind, and requests that are lost or late.

use super::{KNOWLEDGE, QuorumSimulation, Sabotage};
use crate::node_of;
use crate::plan::MemberInfo;

const ELECTION: u64 = 5_000;

/// Content of a data directory.
#[derive(Debug, Clone)]
pub(super) struct SimData {
    pub(super) id: u64,
    /// How many lists of members it has applied.
    pub(super) applied: usize,
    /// Writes that it has.
    pub(super) index: u64,
    /// How often the cluster was recovered, as far as it knows.
    pub(super) generation: u64,
    pub(super) synced_at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MemberRequest {
    Add { url: String },
    Promote { id: u64 },
    Remove { id: u64 },
}

#[derive(Debug, Default)]
pub(super) struct SimEtcd {
    pub(super) members: Vec<MemberInfo>,
    pub(super) past: Vec<Vec<MemberInfo>>,
    pub(super) leader: Option<usize>,
    pub(super) index: u64,
    pub(super) generation: u64,
    no_leader_since: u64,
    last_id: u64,
    /// Requests whose answer was lost, and that may still be carried out.
    late: Vec<(u64, usize, MemberRequest)>,
}

impl SimEtcd {
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn member_of(&self, node: &str) -> Option<&MemberInfo> {
        self.members.iter().find(|own| node_of(&own.name) == node || own.peer_urls[0] == node)
    }

    pub(super) fn voters(&self) -> impl Iterator<Item = &MemberInfo> {
        self.members.iter().filter(|member| !member.is_learner)
    }

    pub(super) fn commit(&mut self, members: Vec<MemberInfo>) {
        self.members = members;
        self.past.push(self.members.clone());
    }
}

impl QuorumSimulation {
    /// The node that runs a member, if it does.
    pub(super) fn runner(&self, member: &MemberInfo) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let data = node.data.as_ref().filter(|data| data.generation == self.etcd.generation);
            node.etcd_runs && data.is_some_and(|data| data.id == member.id)
        })
    }

    /// Voters that a node reaches.
    fn reached(&self, index: usize) -> usize {
        let runners = self.etcd.voters().filter_map(|member| self.runner(member));
        runners.filter(|other| self.is_linked(index, *other)).count()
    }

    fn can_lead(&self, index: usize) -> bool {
        let data = self.nodes[index].data.as_ref();
        let is_voter = self.etcd.voters().any(|own| self.runner(own) == Some(index));
        let is_newest = data.is_some_and(|data| data.index == self.etcd.index);
        is_voter && is_newest && self.reached(index) * 2 > self.etcd.voters().count()
    }

    pub(super) fn has_quorum(&self, index: usize) -> bool {
        let Some(leader) = self.etcd.leader else { return false };
        let mut members = self.etcd.members.iter();
        let is_member = members.any(|own| !own.is_learner && self.runner(own) == Some(index));
        is_member && self.is_linked(index, leader) && self.nodes[index].etcd_answers(self.now)
    }

    pub(super) fn step_etcd(&mut self) {
        let old = self.etcd.leader;
        if !old.is_some_and(|leader| self.can_lead(leader)) {
            self.etcd.leader = None;
            if old.is_some() {
                self.etcd.no_leader_since = self.now;
            }
            if self.now >= self.etcd.no_leader_since + ELECTION {
                let able: Vec<usize> =
                    (0..self.nodes.len()).filter(|own| self.can_lead(*own)).collect();
                let chosen = self.rng.index(able.len().max(1));
                self.etcd.leader = able.get(chosen).copied();
            }
        }
        self.replicate();
        self.stop_removed();
        let due = |at: u64| at <= self.now;
        let late = std::mem::take(&mut self.etcd.late);
        let (ready, late): (Vec<_>, Vec<_>) = late.into_iter().partition(|(at, ..)| due(*at));
        self.etcd.late = late;
        for (_, via, request) in ready {
            let _ = self.execute(via, &request);
        }
    }

    /// A write, which a majority has at once, and the others later.
    fn replicate(&mut self) {
        let Some(leader) = self.etcd.leader else { return };
        let mut behind = Vec::new();
        let members = self.etcd.members.clone();
        let mut runners: Vec<(usize, bool)> = members
            .iter()
            .filter_map(|own| Some((self.runner(own)?, own.is_learner)))
            .filter(|(own, _)| self.is_linked(*own, leader))
            .collect();
        runners.sort_by_key(|(own, _)| *own != leader);
        let needed = self.etcd.voters().count() / 2 + 1;
        self.etcd.index += 1;
        let (mut count, now) = (0, self.now);
        for (index, is_learner) in runners {
            if now < super::CALM && self.rng.chance(4) {
                self.nodes[index].lags_until = now + self.rng.below(15_000);
            }
            let node = &mut self.nodes[index];
            let is_lagging = now < node.lags_until;
            let name = node.member.clone();
            let is_slow = now < node.slow_until;
            let Some(data) = &mut node.data else { continue };
            if is_learner && (is_slow || now < data.synced_at) {
                continue;
            }
            if !is_learner && (count < needed || !is_lagging) {
                count += 1;
                data.index = self.etcd.index;
                data.applied = self.etcd.past.len();
            } else if is_learner && !is_lagging {
                data.index = self.etcd.index;
                data.applied = self.etcd.past.len();
            }
            behind.push((data.id, name));
        }
        // A member that reaches the others publishes its name.
        for (id, name) in behind {
            let listed = self.etcd.members.iter().any(|own| own.id == id && own.name != name);
            if listed {
                let mut members = self.etcd.members.clone();
                for own in members.iter_mut().filter(|own| own.id == id) {
                    own.name.clone_from(&name);
                }
                self.etcd.commit(members);
            }
        }
    }

    /// A member that was removed ends when it reaches the others.
    fn stop_removed(&mut self) {
        let Some(leader) = self.etcd.leader else { return };
        for index in 0..self.nodes.len() {
            let is_linked = self.is_linked(index, leader);
            let node = &self.nodes[index];
            let Some(data) = &node.data else { continue };
            let is_member = data.generation == self.etcd.generation
                && self.etcd.members.iter().any(|own| own.id == data.id);
            if node.etcd_runs && !is_member && is_linked && self.rng.chance(30) {
                self.nodes[index].etcd_runs = false;
            }
        }
    }

    /// Sends a request through the member of a node; answers whether it was confirmed.
    pub(super) fn request(&mut self, via: usize, request: MemberRequest) -> bool {
        let is_calm = self.now >= super::CALM;
        match self.rng.below(100) {
            _ if is_calm => self.execute(via, &request).is_some(),
            0..=4 => false,
            5..=9 => {
                let _ = self.execute(via, &request);
                false
            }
            10..=19 => {
                let at = self.now + self.rng.below(7_000);
                self.etcd.late.push((at, via, request));
                false
            }
            _ => self.execute(via, &request).is_some(),
        }
    }

    /// Nothing if etcd refuses it.
    fn execute(&mut self, via: usize, request: &MemberRequest) -> Option<()> {
        let leader = self.etcd.leader.filter(|_| self.has_quorum(via))?;
        let mut members = self.etcd.members.clone();
        let voters: Vec<MemberInfo> = self.etcd.voters().cloned().collect();
        let connected = self.reached(leader);
        self.bring_up(leader);
        match request {
            MemberRequest::Add { url } => {
                let is_busy = members.iter().any(|own| own.is_learner || own.peer_urls[0] == *url);
                if is_busy || connected < voters.len() {
                    return None;
                }
                members.push(MemberInfo {
                    id: self.etcd.next_id(),
                    name: String::new(),
                    peer_urls: vec![url.clone()],
                    client_urls: Vec::new(),
                    is_learner: true,
                });
            }
            MemberRequest::Promote { id } => {
                let own = members.iter_mut().find(|own| own.id == *id && own.is_learner)?;
                let runner = self.runner(own).filter(|own| self.is_linked(*own, leader));
                let data = runner.and_then(|own| self.nodes[own].data.as_ref());
                let is_synced = data.is_some_and(|data| data.index + 3 >= self.etcd.index);
                if !is_synced {
                    return None;
                }
                own.is_learner = false;
                self.outcome.promoted += 1;
                self.check_promotion(*id);
            }
            MemberRequest::Remove { id } => {
                let own = members.iter().find(|own| own.id == *id).cloned()?;
                let is_active = self.runner(&own).is_some_and(|own| self.is_linked(own, leader));
                // As strictly as etcd, and no stricter.
                let is_safe = connected > (voters.len() - 1) / 2 + 1;
                let is_strict = self.sabotage != Sabotage::NoMajorityCheck;
                if !own.is_learner && is_active && is_strict && !is_safe {
                    return None;
                }
                if !own.is_learner {
                    self.check_removal(&own, &voters);
                }
                members.retain(|other| other.id != *id);
            }
        }
        self.etcd.commit(members);
        Some(())
    }

    /// A change of the members is in the log of a majority before it counts, after all writes of before.
    fn bring_up(&mut self, leader: usize) {
        let needed = self.etcd.voters().count() / 2 + 1;
        let runners = self.etcd.voters().filter_map(|own| self.runner(own));
        let mut reached: Vec<usize> = runners.filter(|own| self.is_linked(*own, leader)).collect();
        let index_of = |own: usize| self.nodes[own].data.as_ref().map_or(0, |data| data.index);
        reached.sort_by_key(|own| std::cmp::Reverse(index_of(*own)));
        for own in reached.into_iter().take(needed) {
            if let Some(data) = &mut self.nodes[own].data {
                data.index = self.etcd.index;
                data.applied = self.etcd.past.len();
            }
        }
    }

    fn check_removal(&mut self, removed: &MemberInfo, voters: &[MemberInfo]) {
        let rest: Vec<&MemberInfo> = voters.iter().filter(|own| own.id != removed.id).collect();
        let is_healthy = |member: &&&MemberInfo| {
            self.nodes.iter().any(|node| {
                let is_own = node.data.as_ref().is_some_and(|data| data.id == member.id);
                is_own && (node.etcd_runs || self.now <= node.etcd_ran_at + KNOWLEDGE)
            })
        };
        let healthy = rest.iter().filter(is_healthy).count();
        if healthy * 2 <= rest.len() {
            let text = format!("{healthy} of {} voters are healthy", rest.len());
            self.fail(format!("F11: without {}, {text}", removed.name));
        }
    }

    /// One more voter may make their number even only if another node can make it odd again.
    fn check_promotion(&mut self, id: u64) {
        let count = self.etcd.voters().count() + 1;
        let can_follow = |node: &super::SimNode| {
            let member = self.etcd.member_of(&node.name);
            member.is_none_or(|own| own.is_learner && own.id != id)
                && self.now <= node.ready_at + KNOWLEDGE
        };
        if count.is_multiple_of(2) && !self.nodes.iter().any(can_follow) {
            self.fail(format!("F11: {count} voters, and no node follows"));
        }
    }
}
