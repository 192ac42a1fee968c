//! Faults of the simulation: a few at a time, since most defects need two or three.

use super::nodes::{SERVICES, Service};
use super::{CALM, FailoverSimulation, TROUBLE};
use crate::node::memory::NodeMemory;
use crate::seeded_rng::SeededRng;

#[derive(Debug, Clone, Copy)]
pub(super) enum SimFault {
    PowerOff(usize),
    Suspend(usize),
    FreezeAgent(usize),
    /// All services between a node and all others.
    CutOff(usize),
    /// One service between a node and all others.
    CutService(usize, Service),
    /// One service between two nodes, in one direction.
    CutLink(usize, usize, Service),
    StallStore,
    FreezeServer,
    RestartController,
}

pub(super) fn schedule(rng: &mut SeededRng, nodes: usize) -> Vec<(u64, SimFault)> {
    let nodes = nodes as u64;
    let pick = |value: u64| usize::try_from(value).unwrap_or(1);
    let mut faults = Vec::new();
    let mut at = 5_000 + rng.below(5_000);
    // A victim is likely to be hit again: a second fault during a failover.
    let victim = pick(1 + rng.below(nodes - 1));
    for _ in 0..1 + rng.below(5) {
        let node = if rng.chance(60) { victim } else { pick(1 + rng.below(nodes - 1)) };
        let service = SERVICES[pick(rng.below(3))];
        let fault = match rng.below(12) {
            0 | 1 => SimFault::PowerOff(node),
            2 => SimFault::Suspend(node),
            3 => SimFault::FreezeAgent(node),
            4 => SimFault::CutOff(node),
            5..=7 => SimFault::CutService(node, service),
            8 => SimFault::CutLink(node, pick(rng.below(nodes)), service),
            9 => SimFault::StallStore,
            10 => SimFault::FreezeServer,
            _ => SimFault::RestartController,
        };
        faults.push((at, fault));
        let longest = if rng.chance(70) { 9_000 } else { 25_000 };
        at += rng.below(longest);
        if at > TROUBLE {
            break;
        }
    }
    faults
}

impl FailoverSimulation {
    pub(super) fn begin_faults(&mut self) {
        while let Some((_, fault)) = self.faults.first().filter(|(at, _)| *at <= self.now) {
            let fault = *fault;
            self.faults.remove(0);
            let longest = if self.rng.chance(33) { 3_000 } else { 30_000 };
            let length = 500 + self.rng.below(longest);
            self.begin_fault(fault, (self.now + length).min(CALM));
        }
    }

    fn begin_fault(&mut self, fault: SimFault, end: u64) {
        match fault {
            SimFault::PowerOff(node) => {
                self.nodes[node].off_until = end;
                self.nodes[node].suspended_until = 0;
                self.nodes[node].agent_frozen_until = 0;
            }
            SimFault::Suspend(node) => self.nodes[node].suspended_until = end,
            SimFault::FreezeAgent(node) => self.nodes[node].agent_frozen_until = end,
            SimFault::CutOff(node) => {
                SERVICES.into_iter().for_each(|service| self.cut_all(node, service, end));
            }
            SimFault::CutService(node, service) => self.cut_all(node, service, end),
            SimFault::CutLink(from, to, service) => {
                self.cuts.insert((from, to, service), end);
            }
            SimFault::StallStore => self.store_stalled_until = end,
            SimFault::FreezeServer => self.server_frozen_until = end,
            SimFault::RestartController => self.memory = NodeMemory::default(),
        }
    }

    fn cut_all(&mut self, node: usize, service: Service, end: u64) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.cuts.insert((node, other, service), end);
        }
    }
}
