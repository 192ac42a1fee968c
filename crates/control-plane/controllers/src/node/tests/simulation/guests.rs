//! Machines of the simulation: their volumes with generations and in-sync sets, the engines that
//! serve them, the guard that pauses a guest whose volume may have been taken over, and the start
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use super::nodes::{Service, SimNode};
use super::{FENCE_TIME, FailoverSimulation, Sabotage};
use crate::seeded_rng::SeededRng;

/// A member that does not answer for so long is removed from the in-sync set, if the record can be
/// written.
const MEMBER_TIMEOUT: u64 = 2_500;
/// Without an answer of a member for so long, the guest is paused.
const PROOF_TIME: u64 = 5_000;
/// Between two checks of the guard, and the time that QEMU takes.
const GUARD_TIME: u64 = 1_000;
/// An engine that did not get a promise of every member waits until the reads of the old one end.
const READ_LEASE: u64 = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestState {
    /// The engine claims the volume at this time.
    Starting(u64),
    /// The engine has its promises, and serves from this time on.
    Opening(u64),
    Executing,
    Paused,
    Ended,
}

/// One QEMU process with its engine.
#[derive(Debug)]
pub(super) struct Run {
    node: usize,
    generation: u64,
    state: GuestState,
    /// The in-sync set, as the engine knows it.
    members: BTreeSet<usize>,
    /// When each member answered last.
    proofs: BTreeMap<usize, u64>,
    pause_at: Option<u64>,
    stop_at: Option<u64>,
    /// The guard did not run, so that the guest could not be paused.
    unguarded_until: u64,
}

#[derive(Debug)]
pub(super) struct SimVm {
    /// The node of its instance.
    node: usize,
    copies: BTreeSet<usize>,
    // The record of its volume.
    in_sync: BTreeSet<usize>,
    generation: u64,
    /// By replica.
    promised: BTreeMap<usize, u64>,
    runs: Vec<Run>,
    /// How long two guests have executed at once.
    overlap: u64,
}

impl Run {
    fn new(node: usize, at: u64) -> Self {
        Self {
            node,
            generation: 0,
            state: GuestState::Starting(at),
            members: BTreeSet::new(),
            proofs: BTreeMap::new(),
            pause_at: None,
            stop_at: None,
            unguarded_until: 0,
        }
    }

    /// Whether a member on another node has not answered lately.
    fn is_unproven(&self, now: u64, limit: u64) -> bool {
        let others = self.members.iter().filter(|member| **member != self.node);
        others.into_iter().any(|it| now - self.proofs.get(it).copied().unwrap_or(0) >= limit)
    }
}

impl SimVm {
    pub(super) fn new(node: usize, nodes: usize, rng: &mut SeededRng) -> Self {
        let mut copies = BTreeSet::from([node]);
        for _ in 0..rng.below(3) {
            copies.insert(usize::try_from(rng.below(nodes as u64)).unwrap_or(0));
        }
        Self {
            node,
            in_sync: copies.clone(),
            copies,
            generation: 0,
            promised: BTreeMap::new(),
            runs: vec![Run::new(node, 0)],
            overlap: 0,
        }
    }

    /// The guests whose processors run.
    pub(super) fn executing(&self, nodes: &[SimNode], now: u64) -> impl Iterator<Item = &Run> {
        self.runs
            .iter()
            .filter(move |run| run.state == GuestState::Executing && nodes[run.node].is_live(now))
    }

    /// Whether a guest of a finished instance is still on a node.
    pub(super) fn has_old_guest(&self, node: usize) -> bool {
        self.node != node
            && self.runs.iter().any(|run| run.node == node && run.state != GuestState::Ended)
    }
}

impl FailoverSimulation {
    /// Starts the machines of a lost node where a copy of their volume is in sync.
    pub(super) fn take_over(&mut self, lost: usize) {
        let facts = self.facts();
        for index in 0..self.vms.len() {
            if self.vms[index].node != lost {
                continue;
            }
            let can_run = |node: &&usize| **node != lost && self.memory.can_observe(&facts[**node]);
            let Some(target) = self.vms[index].in_sync.iter().find(can_run).copied() else {
                continue;
            };
            let at = self.now + 200 + self.rng.below(1000);
            self.outcome.taken_over += 1;
            self.vms[index].node = target;
            self.vms[index].runs.push(Run::new(target, at));
        }
    }

    pub(super) fn step_guests(&mut self) {
        for index in 0..self.vms.len() {
            let mut vm =
                std::mem::replace(&mut self.vms[index], SimVm::new(0, 1, &mut SeededRng::new(1)));
            let mut runs = std::mem::take(&mut vm.runs);
            runs.iter_mut().for_each(|run| self.step_run(&mut vm, run));
            runs.retain(|run| run.state != GuestState::Ended);
            // The instance is over: its machine is started again where the node is reachable.
            if runs.iter().all(|run| run.node != vm.node) && self.reaches_api(vm.node) {
                runs.push(Run::new(vm.node, self.now + 500));
            }
            vm.runs = runs;
            self.vms[index] = vm;
        }
    }

    fn step_run(&mut self, vm: &mut SimVm, run: &mut Run) {
        if !self.nodes[run.node].is_on(self.now) {
            run.state = GuestState::Ended;
            return;
        }
        if !self.nodes[run.node].is_live(self.now) {
            // A host that wakes up runs its guests until the guard has had time, too.
            run.unguarded_until = self.now + GUARD_TIME + 2 * super::STEP;
            return;
        }
        // Its instance is over, and its agent sees that.
        if run.node != vm.node && self.reaches_api(run.node) {
            run.stop_at.get_or_insert(self.now + 500);
        }
        match run.state {
            GuestState::Starting(at) if self.now >= at => self.claim(vm, run),
            GuestState::Opening(at) if self.now >= at => run.state = GuestState::Executing,
            GuestState::Executing | GuestState::Paused => {
                self.receive_answers(vm, run);
                self.change_members(vm, run);
                self.guard(run);
            }
            _ => {}
        }
        if run.stop_at.is_some_and(|at| self.now >= at) {
            run.state = GuestState::Ended;
        }
    }

    /// The engine takes the next generation, and asks the in-sync members for promises.
    fn claim(&mut self, vm: &mut SimVm, run: &mut Run) {
        if !self.reaches_api(run.node) || run.node != vm.node {
            return;
        }
        let reached: BTreeSet<usize> =
            vm.in_sync.iter().copied().filter(|it| self.is_member_up(run.node, *it)).collect();
        if reached.is_empty() {
            return;
        }
        vm.generation += 1;
        run.generation = vm.generation;
        let is_complete = reached == vm.in_sync;
        vm.in_sync.clone_from(&reached);
        for member in &reached {
            vm.promised.insert(*member, run.generation);
            run.proofs.insert(*member, self.now);
        }
        run.members = reached;
        let wait = if is_complete { 0 } else { READ_LEASE };
        run.state = GuestState::Opening(self.now + wait);
    }

    fn is_member_up(&self, node: usize, member: usize) -> bool {
        self.nodes[member].is_live(self.now) && self.is_open(node, member, Service::Storage)
    }

    /// Members answer the engine, and refuse an old generation.
    fn receive_answers(&mut self, vm: &SimVm, run: &mut Run) {
        for member in run.members.clone() {
            if !self.is_member_up(run.node, member) {
                continue;
            }
            if vm.promised.get(&member).is_some_and(|promised| *promised > run.generation) {
                if run.stop_at.is_none() {
                    self.outcome.fenced += 1;
                }
                run.stop_at.get_or_insert(self.now + self.rng.below(GUARD_TIME));
            } else {
                run.proofs.insert(member, self.now);
            }
        }
    }

    /// Silent members leave the set by a write of the record, and others are rebuilt.
    fn change_members(&mut self, vm: &mut SimVm, run: &mut Run) {
        if !self.reaches_api(run.node) || vm.generation != run.generation {
            return;
        }
        let late = |it: &usize| {
            *it != run.node && self.now - run.proofs.get(it).copied().unwrap_or(0) >= MEMBER_TIMEOUT
        };
        let late: Vec<usize> = run.members.iter().copied().filter(late).collect();
        for member in late {
            if vm.in_sync.len() > 1 {
                vm.in_sync.remove(&member);
                run.members.remove(&member);
            }
        }
        for copy in vm.copies.clone() {
            if !run.members.contains(&copy) && self.is_member_up(run.node, copy) {
                vm.in_sync.insert(copy);
                vm.promised.insert(copy, run.generation);
                run.members.insert(copy);
                run.proofs.insert(copy, self.now);
            }
        }
    }

    fn guard(&mut self, run: &mut Run) {
        if !self.nodes[run.node].agent_runs(self.now) || self.sabotage == Sabotage::NoGuard {
            run.unguarded_until = self.now + GUARD_TIME + 2 * super::STEP;
            if self.sabotage == Sabotage::NoGuard {
                run.unguarded_until = 0;
            }
            return;
        }
        match (run.is_unproven(self.now, PROOF_TIME), run.state) {
            (true, GuestState::Executing) => {
                let at = *run.pause_at.get_or_insert(self.now + self.rng.below(GUARD_TIME));
                if self.now >= at {
                    self.outcome.paused += 1;
                    run.state = GuestState::Paused;
                }
            }
            (false, GuestState::Paused) if run.stop_at.is_none() => {
                run.pause_at = None;
                run.state = GuestState::Executing;
            }
            (false, _) => run.pause_at = None,
            _ => {}
        }
    }

    pub(super) fn check(&mut self) {
        for index in 0..self.vms.len() {
            let now = self.now;
            let vm = &self.vms[index];
            let mut failure = None;
            if vm.in_sync.is_empty() {
                failure = Some("F15: no member is left".to_owned());
            }
            let served = |run: &&Run| !matches!(run.state, GuestState::Starting(_));
            let mut generations = BTreeSet::new();
            if !vm.runs.iter().filter(served).all(|run| generations.insert(run.generation)) {
                failure = Some("F1: two engines have one generation".to_owned());
            }
            let executing: Vec<&Run> = vm.executing(&self.nodes, now).collect();
            let old = executing.iter().min_by_key(|run| run.generation);
            let is_guarded = old.is_some_and(|run| now >= run.unguarded_until);
            let overlap = match executing.len() > 1 && is_guarded {
                true => vm.overlap + super::STEP,
                false => 0,
            };
            // A replica that refuses an old generation has stopped its engine.
            let is_cut_off =
                old.is_some_and(|run| run.stop_at.is_none() && run.is_unproven(now, 1_000));
            if overlap > super::STEP && is_cut_off {
                failure =
                    Some(format!("F9: a guest runs although it was started elsewhere: {vm:?}"));
            } else if overlap > FENCE_TIME {
                failure = Some(format!("F6: two guests run: {vm:?}"));
            }
            self.vms[index].overlap = overlap;
            if let Some(failure) = failure {
                self.fail(format!("machine {index}: {failure}"));
            }
        }
    }
}
