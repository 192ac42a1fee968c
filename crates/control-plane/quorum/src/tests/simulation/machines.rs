//! Machines of the simulation: power, network, processes, the data directory, and the Node.

use super::etcd::SimData;
use super::{CALM, OwnedCandidate, QuorumSimulation};
use crate::plan::{JoinStep, WaitReason};
use crate::record::Phase;
use crate::voter_watch::VoterWatch;

/// A Node is not ready if it did not report for so long.
const LEASE: u64 = 6_000;

#[derive(Debug)]
pub(super) struct SimNode {
    pub(super) name: String,
    pub(super) is_witness: bool,
    pub(super) created: i64,
    /// When the machine joins the cluster.
    pub(super) joins_at: u64,
    // The machine.
    pub(super) off_until: u64,
    pub(super) cut_until: u64,
    /// Its learner does not catch up.
    pub(super) slow_until: u64,
    // Its server or agent.
    /// The process restarts, or waits for its next attempt.
    pub(super) busy_until: u64,
    pub(super) serves: bool,
    pub(super) next_check: u64,
    pub(super) step: Option<(u64, JoinStep)>,
    pub(super) waits: Option<WaitReason>,
    /// The Nodes that it has seen; nothing after a start.
    pub(super) known: Option<Vec<OwnedCandidate>>,
    pub(super) watch: VoterWatch,
    // Its data directory.
    pub(super) phase: Option<Phase>,
    pub(super) member: String,
    pub(super) data: Option<SimData>,
    /// Other servers, as `etcd.json` lists them.
    pub(super) others: Vec<String>,
    // Its etcd.
    pub(super) etcd_runs: bool,
    pub(super) etcd_answers_at: u64,
    pub(super) etcd_ran_at: u64,
    /// It applies nothing unless a majority needs it.
    pub(super) lags_until: u64,
    // Its Node.
    pub(super) exists: bool,
    pub(super) is_marked: bool,
    pub(super) is_ready: bool,
    pub(super) is_server: bool,
    pub(super) heard_at: u64,
    pub(super) ready_at: u64,
}

impl SimNode {
    pub(super) fn new(index: usize, is_witness: bool) -> Self {
        let name = if is_witness { format!("x{index}") } else { format!("n{index}") };
        Self {
            member: format!("{name}-{:08x}", 0),
            name,
            is_witness,
            created: i64::try_from(index).unwrap_or(0),
            joins_at: 0,
            off_until: 0,
            cut_until: 0,
            slow_until: 0,
            busy_until: 0,
            serves: false,
            next_check: 0,
            step: None,
            waits: None,
            known: None,
            watch: VoterWatch::default(),
            phase: (index > 0).then_some(Phase::Joining),
            data: None,
            others: Vec::new(),
            etcd_runs: false,
            etcd_answers_at: 0,
            etcd_ran_at: 0,
            lags_until: 0,
            exists: index == 0,
            is_marked: false,
            is_ready: false,
            is_server: index == 0,
            heard_at: 0,
            ready_at: 0,
        }
    }

    /// Whether the machine and its server or agent run.
    pub(super) fn is_up(&self, now: u64) -> bool {
        self.is_on(now) && now >= self.busy_until
    }

    pub(super) fn is_on(&self, now: u64) -> bool {
        now >= self.off_until && now >= self.joins_at
    }

    /// Whether it is part of the cluster for good.
    pub(super) fn is_alive(&self) -> bool {
        self.exists && self.off_until != u64::MAX
    }

    pub(super) fn etcd_answers(&self, now: u64) -> bool {
        self.etcd_runs && now >= self.etcd_answers_at
    }

    /// The process of the server or agent is killed, and started again.
    pub(super) fn restart(&mut self, until: u64) {
        self.busy_until = until;
        self.serves = false;
        self.step = None;
        self.known = None;
        self.waits = None;
        self.watch = VoterWatch::default();
    }

    pub(super) fn start_etcd(&mut self, answers_at: u64) {
        if !self.etcd_runs {
            self.etcd_runs = true;
            self.etcd_answers_at = answers_at;
        }
    }
}

impl QuorumSimulation {
    pub(super) fn is_linked(&self, a: usize, b: usize) -> bool {
        let is_open = |own: usize| self.now >= self.nodes[own].cut_until;
        a == b || (is_open(a) && is_open(b))
    }

    /// A server that a node can reach. Agents turn to another one where writes are not stored.
    pub(super) fn server_for(&self, index: usize) -> Option<usize> {
        let serves = |own: &usize| {
            let node = &self.nodes[*own];
            node.is_up(self.now) && node.serves && self.is_linked(index, *own)
        };
        let mut serving = (0..self.nodes.len()).filter(serves);
        let writable = serving.clone().find(|own| self.is_writable(*own));
        writable.or_else(|| serving.next())
    }

    /// Whether writes of a server are stored.
    pub(super) fn is_writable(&self, server: usize) -> bool {
        self.etcd.members.is_empty() || self.has_quorum(server)
    }

    /// Leases of nodes, and the agents that follow the Nodes.
    pub(super) fn step_machines(&mut self) {
        let (now, count) = (self.now, self.nodes.len());
        let mut is_writable = false;
        for index in 0..count {
            let server = self.server_for(index);
            let can_write = server.is_some_and(|server| self.is_writable(server));
            is_writable |= can_write;
            if !self.nodes[index].is_up(now) {
                continue;
            }
            // Changes arrive later.
            let is_late = self.nodes[index].known.is_some() && self.rng.chance(70);
            let candidates = server.filter(|_| !is_late).map(|_| self.candidates());
            let node = &mut self.nodes[index];
            if can_write && !node.exists && !node.is_marked && node.heard_at == 0 {
                node.exists = true;
            }
            if can_write && node.exists {
                node.heard_at = now;
                node.is_ready = true;
            }
            // A node that was removed has no rights any more, and remembers what it knew.
            if candidates.is_some() && node.exists {
                node.known = candidates;
            }
        }
        for node in &mut self.nodes {
            if is_writable && now >= node.heard_at + LEASE {
                node.is_ready = false;
            }
            if node.is_ready {
                node.ready_at = now;
            }
            if node.etcd_runs {
                node.etcd_ran_at = now;
            }
        }
    }

    /// A delay of an ordinary request; sometimes of a process that is suspended.
    pub(super) fn delay(&mut self) -> u64 {
        let longest = if self.now < CALM && self.rng.chance(10) { 12_000 } else { 1_000 };
        self.rng.below(longest)
    }
}
