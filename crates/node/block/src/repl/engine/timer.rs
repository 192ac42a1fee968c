//! Work that the passage of time causes: connecting, heartbeats, timeouts, throttling.

use std::time::Duration;

use super::member::{Link, Role};
use super::notice::{MemberFault, Notice};
use super::{Engine, Phase};
use crate::repl::sabotage::skips;
use crate::repl::slots::Slots;

/// A guest that was silent for so long is idle: heartbeats become rare.
const IDLE: Duration = Duration::from_secs(10);

/// A member that is silent for so long while others answer leaves, however slow the others are: a
/// guest waits for it, and it comes back by copying what it missed.
const SUSPICION_LIMIT: Duration = Duration::from_millis(1500);

impl Engine {
    pub(super) fn tick(&mut self) {
        let idle = self.phase == Phase::Active
            && self.now >= self.last_guest + IDLE
            && self.ops.is_empty()
            && self.syncs.is_empty()
            && self.members.iter().all(|member| member.fault.is_none());
        let period = if idle { self.config.heartbeat } else { self.config.heartbeat / 4 };
        if self.now > self.next_tick + self.config.suspect_after / 4 {
            // This process did not run for a while: no member is at fault for that time.
            self.resumed = self.now;
        }
        self.next_tick = self.now + period;
        self.throttle.tick(self.now);
        for slot in 0..self.members.len() {
            let rarely = match Some(self.members[slot].id) == self.local {
                true => 10,
                // Each of its answers proves that no engine has taken the volume.
                false => 2,
            };
            let heartbeat = self.config.heartbeat * if idle { rarely } else { 1 };
            self.tick_link(slot, heartbeat);
        }
        self.tick_proof();
        if matches!(self.phase, Phase::Active | Phase::Settling { .. } | Phase::Closing(_)) {
            self.tick_members();
            self.tick_ops();
        }
        if self.phase == Phase::Active {
            self.tick_slow();
            let regions = &self.flush.regions;
            self.flush.due |= regions.len() > self.config.max_dirty
                || regions.has_idle(self.now, self.config.settle_after);
        }
        self.tick_control();
    }

    /// Whether everybody on other nodes has lately proven that no other engine was promised anything.
    /// A member that the record does not name any more need not.
    fn tick_proof(&mut self) {
        if self.phase != Phase::Active {
            return;
        }
        let (now, limit) = (self.now, self.config.proof_limit);
        let is_late = |slot: usize| {
            let member = &self.members[slot];
            Some(member.id) != self.local && !member.has_lease(now, limit)
        };
        let unproven = self.required().iter().any(is_late);
        if self.unproven != unproven {
            self.unproven = unproven;
            self.notice(Notice::Proof { is_fresh: !unproven });
        }
    }

    fn tick_control(&mut self) {
        let waits = matches!(
            self.phase,
            Phase::Standby | Phase::Claiming | Phase::Confirming | Phase::Opening { .. }
        );
        if waits {
            self.retry_control();
        }
    }

    fn tick_link(&mut self, slot: usize, heartbeat: Duration) {
        let patience = self.config.member_timeout;
        match self.members[slot].link {
            Link::Down { retry } if retry <= self.now && self.should_connect(slot) => {
                self.connect(slot);
            }
            Link::Connecting { since }
            | Link::Greeting { since, .. }
            | Link::Opening { since, .. }
                if self.now >= since + patience =>
            {
                self.link_lost(slot);
            }
            Link::Up => {
                let suspect = self.suspicion(slot).unwrap_or(patience / 2);
                let silent = self.members[slot]
                    .ping
                    .is_some_and(|(_, at)| self.now >= at.max(self.resumed) + suspect);
                if silent {
                    if suspect < patience / 2 {
                        self.member_fault(slot, MemberFault::TimedOut);
                    }
                    self.link_lost(slot);
                } else if self.now >= self.members[slot].last_ping + heartbeat {
                    self.ping(slot);
                }
            }
            _ => {}
        }
    }

    fn should_connect(&self, slot: usize) -> bool {
        let member = &self.members[slot];
        match (self.phase, &member.role) {
            (Phase::Standby, _) => {
                let record = self.control.record();
                member.stale.is_none()
                    && record.is_some_and(|record| record.isr.contains(&member.id))
            }
            (Phase::Opening { .. }, Role::Candidate) => member.stale.is_none(),
            (Phase::Opening { .. }, Role::Outside) => {
                member.wanted && !skips!(self.sabotage, TrustStale)
            }
            (Phase::Settling { .. } | Phase::Active | Phase::Closing(_), Role::InSync) => {
                member.fault.is_none_or(super::member::Member::is_curable)
            }
            (Phase::Active, Role::Outside) => {
                member.wanted
                    && self.config.rebuild
                    && member.retry_learning <= self.now
                    && (self.unreconciled.is_empty() || self.may_be_last_resort(slot))
                    && self.barrier.is_none()
            }
            _ => false,
        }
    }

    /// Members that have been away for too long.
    fn tick_members(&mut self) {
        for slot in 0..self.members.len() {
            let member = &self.members[slot];
            let limit = match member.closed {
                true => self.config.reconnect_timeout,
                false => self.config.member_timeout,
            };
            if member.away.is_some_and(|since| self.now >= since.max(self.resumed) + limit) {
                self.member_fault(slot, MemberFault::Away);
            } else if let Some(since) = member.away {
                self.next_tick = self.next_tick.min(since.max(self.resumed) + limit);
            }
        }
    }

    /// How long a member may be silent while others answer, given how long they take. None if
    /// there is no member to compare it with.
    fn suspicion(&self, slot: usize) -> Option<Duration> {
        if !matches!(self.members[slot].role, Role::InSync) {
            return None;
        }
        let others = self.readable().without(Slots::one(slot));
        let slowest = others.iter().map(|other| self.members[other].latency.average()).max()?;
        let relative = (slowest * 8).min(SUSPICION_LIMIT);
        Some(self.config.suspect_after.max(relative).min(self.config.member_timeout / 2))
    }

    /// Calls that have not been answered for too long.
    fn tick_ops(&mut self) {
        let mut late = Slots::NONE;
        let patience = self.config.member_timeout;
        let suspicion: Vec<Duration> =
            (0..self.members.len()).map(|it| self.suspicion(it).unwrap_or(patience)).collect();
        for op in self.ops.values() {
            for (slot, (member, suspicion)) in self.members.iter().zip(&suspicion).enumerate() {
                let asked = op.started().max(member.up_since).max(self.resumed);
                let limit = if op.was_answered_by_another() { *suspicion } else { patience };
                let overdue = self.now >= asked + limit;
                if overdue && op.waits_for(slot) && member.is_up() {
                    late.add(slot);
                }
            }
        }
        for slot in late.iter() {
            let learns = matches!(self.members[slot].role, Role::Learner(_) | Role::Joining { .. });
            let others = self.readable().without(Slots::one(slot)).without(late);
            // The last one is waited for, however long it takes.
            if learns || !others.is_empty() {
                self.member_fault(slot, MemberFault::TimedOut);
                self.link_lost(slot);
            }
        }
    }

    /// Members that hold up all others.
    fn tick_slow(&mut self) {
        let members: Vec<usize> = self.readable().iter().collect();
        for slot in &members {
            let mut peers: Vec<Duration> = members
                .iter()
                .filter(|peer| *peer != slot)
                .map(|peer| self.members[*peer].latency.average())
                .collect();
            peers.sort_unstable();
            let Some(median) = peers.get(peers.len() / 2) else { return };
            let limit = self.config.slow_floor.max(*median * 8);
            let latency = self.members[*slot].latency.average();
            if latency <= limit {
                self.members[*slot].latency.slow_since = None;
                continue;
            }
            let replica = self.members[*slot].id;
            match self.members[*slot].latency.slow_since {
                None => {
                    self.members[*slot].latency.slow_since = Some(self.now);
                    self.notice(Notice::Slow { replica, latency });
                }
                Some(since) => {
                    let over = |limit| self.now >= since + limit;
                    if self.config.slow_limit.is_some_and(over) && members.len() > 1 {
                        self.members[*slot].latency = super::pace::Latency::default();
                        return self.member_fault(*slot, MemberFault::Slow);
                    }
                }
            }
        }
    }
}
