//! Nodes of the simulation: power, processes, leases, and their observations of each other.

use std::collections::BTreeMap;

use hci::failover::{PortState, Sighting, Suspicion};

use super::{FailoverSimulation, Sabotage};

const RENEW: u64 = 1000;
const PROBE: u64 = 1000;

/// Connections that can be cut apart from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    Api,
    Agent,
    Storage,
}

pub(super) const SERVICES: [Service; 3] = [Service::Api, Service::Agent, Service::Storage];

#[derive(Debug, Default)]
pub(super) struct SimNode {
    pub(super) off_until: u64,
    /// The whole host is suspended, guests included.
    pub(super) suspended_until: u64,
    /// The agent does nothing; its sockets accept connections.
    pub(super) agent_frozen_until: u64,
    /// When its lease was renewed last.
    pub(super) renewed: u64,
    next_renewal: u64,
    /// Time since then in which the API took writes.
    pub(super) usable_since_renewal: u64,
    /// Since when another node with a way to the API can reach it.
    pub(super) reached_since: Option<u64>,
    pub(super) is_lost: bool,
    pub(super) has_rejoined: bool,
    observations: BTreeMap<usize, Observation>,
}

#[derive(Debug, Default)]
struct Observation {
    token: String,
    unreached_since: Option<u64>,
    next: u64,
    seen: Option<Sighting>,
}

impl SimNode {
    pub(super) fn is_on(&self, now: u64) -> bool {
        now >= self.off_until
    }

    /// Its processes and guests get time.
    pub(super) fn is_live(&self, now: u64) -> bool {
        self.is_on(now) && now >= self.suspended_until
    }

    pub(super) fn agent_runs(&self, now: u64) -> bool {
        self.is_live(now) && now >= self.agent_frozen_until
    }
}

/// The answers to a question, as they are in the Node objects of the observers.
pub(super) fn sightings(
    nodes: &[SimNode],
    asked: &Suspicion,
    suspect: usize,
) -> Vec<Option<Sighting>> {
    let of = |observer: &String| {
        let observer: usize = observer.parse().ok()?;
        let seen = nodes.get(observer)?.observations.get(&suspect)?.seen.clone()?;
        (seen.token == asked.token).then_some(seen)
    };
    asked.observers.iter().map(of).collect()
}

impl FailoverSimulation {
    pub(super) fn is_open(&self, from: usize, to: usize, service: Service) -> bool {
        let end = |a, b| self.cuts.get(&(a, b, service)).copied().unwrap_or(0);
        from == to || (self.now >= end(from, to) && self.now >= end(to, from))
    }

    /// Whether a node can write to the API.
    pub(super) fn reaches_api(&self, node: usize) -> bool {
        self.nodes[node].agent_runs(self.now)
            && self.store_is_writable()
            && self.is_open(node, 0, Service::Api)
    }

    /// Whether a node that can report it reaches another.
    fn reaches(&self, observer: usize, suspect: usize) -> bool {
        observer != suspect
            && self.reaches_api(observer)
            && self.nodes[suspect].is_live(self.now)
            && (self.is_open(observer, suspect, Service::Agent)
                || self.is_open(observer, suspect, Service::Storage))
    }

    pub(super) fn step_nodes(&mut self) {
        for index in 0..self.nodes.len() {
            let can_write = self.reaches_api(index);
            let is_reached = (0..self.nodes.len()).any(|other| self.reaches(other, index));
            let since = self.nodes[index].reached_since.unwrap_or(self.now);
            self.nodes[index].reached_since = is_reached.then_some(since);
            let (now, usable) = (self.now, self.store_is_writable());
            let node = &mut self.nodes[index];
            if usable {
                node.usable_since_renewal += super::STEP;
            }
            if can_write && now >= node.next_renewal {
                node.next_renewal = now + RENEW;
                node.renewed = now;
                node.usable_since_renewal = 0;
            }
            if !node.agent_runs(now) {
                // A process that starts again has observed nothing yet.
                if !node.is_on(now) {
                    node.observations.clear();
                }
                continue;
            }
            self.observe(index);
            if self.nodes[index].is_lost && can_write {
                let is_over = |vm: &super::SimVm| !vm.has_old_guest(index);
                self.nodes[index].has_rejoined = self.vms.iter().all(is_over);
            }
        }
    }

    /// The observer of one node: probes the suspects that it is asked about, every second.
    fn observe(&mut self, observer: usize) {
        if !self.is_open(observer, 0, Service::Api) || self.now < self.server_frozen_until {
            return;
        }
        let name = observer.to_string();
        let asked: BTreeMap<usize, String> = self
            .questions
            .iter()
            .filter(|(_, asked)| asked.observers.contains(&name))
            .map(|(suspect, asked)| (*suspect, asked.token.clone()))
            .collect();
        self.nodes[observer].observations.retain(|suspect, _| asked.contains_key(suspect));
        for (suspect, token) in asked {
            let port = |service| match self.nodes[suspect].is_live(self.now) {
                true if self.is_open(observer, suspect, service) => PortState::Open,
                _ => PortState::Silent,
            };
            let (agent, storage) = (port(Service::Agent), port(Service::Storage));
            let (now, can_write) = (self.now, self.store_is_writable());
            let sabotage = self.sabotage;
            let known = self.nodes[observer].observations.entry(suspect).or_default();
            if known.token == token && now < known.next {
                continue;
            }
            known.token.clone_from(&token);
            known.next = now + PROBE;
            let is_reached = agent == PortState::Open || storage == PortState::Open;
            known.unreached_since = match is_reached {
                true => None,
                false => Some(known.unreached_since.unwrap_or(now)),
            };
            let unreached = known.unreached_since.map_or(0, |since| (now - since) / 1000);
            let (agent, storage, unreached) = match sabotage {
                Sabotage::NoObservers => (PortState::Silent, PortState::Silent, None),
                Sabotage::NoUnreachedTime => (agent, storage, None),
                _ => (agent, storage, Some(unreached)),
            };
            if can_write {
                known.seen = Some(Sighting { token, agent, storage, unreached });
            }
        }
    }
}
