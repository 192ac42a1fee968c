//! Faults of the simulation: a random subset of kinds for each seed, and a few of each.

use super::{CALM, QuorumSimulation, TROUBLE};
use crate::seeded_rng::SeededRng;

#[derive(Debug, Clone, Copy)]
pub(super) enum SimFault {
    PowerOff(usize),
    /// All machines at once.
    PowerOffAll,
    /// The machine does not come back.
    Destroy(usize),
    CutOff(usize),
    KillServer(usize),
    KillEtcd(usize),
    SlowLearner(usize),
    Remove(usize),
}

const KINDS: u64 = 8;

pub(super) fn schedule(rng: &mut SeededRng, nodes: usize) -> Vec<(u64, SimFault)> {
    let allowed: Vec<u64> = (0..KINDS).filter(|_| rng.chance(50)).collect();
    let mut faults = Vec::new();
    let mut at = rng.below(40_000);
    let victim = rng.index(nodes);
    let mut destroyed = 0;
    while at < TROUBLE && !allowed.is_empty() {
        let node = if rng.chance(40) { victim } else { rng.index(nodes) };
        let fault = match allowed[rng.index(allowed.len())] {
            0 => SimFault::PowerOff(node),
            1 => SimFault::PowerOffAll,
            2 if destroyed < 3 && at > 20_000 => {
                destroyed += 1;
                // Several may be lost at once, as with a rack.
                if destroyed < 3 && rng.chance(50) {
                    destroyed += 1;
                    faults.push((at, SimFault::Destroy(rng.index(nodes))));
                }
                SimFault::Destroy(node)
            }
            3 => SimFault::CutOff(node),
            4 => SimFault::KillServer(node),
            5 => SimFault::KillEtcd(node),
            6 => SimFault::SlowLearner(node),
            _ => SimFault::Remove(node),
        };
        faults.push((at, fault));
        let longest = if rng.chance(50) { 4_000 } else { 40_000 };
        at += rng.below(longest);
    }
    faults
}

impl QuorumSimulation {
    pub(super) fn begin_faults(&mut self) {
        while let Some((_, fault)) = self.faults.first().filter(|(at, _)| *at <= self.now) {
            let fault = *fault;
            self.faults.remove(0);
            let longest = if self.rng.chance(50) { 5_000 } else { 90_000 };
            let end = (self.now + 1_000 + self.rng.below(longest)).min(CALM);
            self.begin_fault(fault, end);
        }
    }

    fn begin_fault(&mut self, fault: SimFault, end: u64) {
        match fault {
            SimFault::PowerOff(node) => self.power_off(node, end),
            SimFault::PowerOffAll => {
                for node in 0..self.nodes.len() {
                    let later = end + self.rng.below(3_000);
                    self.power_off(node, later);
                }
            }
            SimFault::Destroy(node) => {
                // The SQLite file of the first node has no copy.
                if !self.etcd.members.is_empty() || node > 0 {
                    self.power_off(node, u64::MAX);
                }
            }
            SimFault::CutOff(node) => self.nodes[node].cut_until = end,
            SimFault::KillServer(node) => {
                let until = self.now + 1_000 + self.rng.below(4_000);
                self.nodes[node].restart(until);
            }
            SimFault::KillEtcd(node) => self.nodes[node].etcd_runs = false,
            SimFault::SlowLearner(node) => self.nodes[node].slow_until = end,
            SimFault::Remove(node) => self.remove_node(node),
        }
    }

    fn power_off(&mut self, index: usize, until: u64) {
        let node = &mut self.nodes[index];
        node.off_until = node.off_until.max(until);
        node.etcd_runs = false;
        node.restart(0);
    }
}
