//! The order in which requests are served. Pure: requests arrive and finish, and the scheduler
//! returns those that may begin; the caller keeps the requests themselves.
//!
//! Seats are shared twice. Priority levels share them by weight: the one that had least for
//! its weight is next, so no level starves and no seat stays free while a request waits. Within
//! a level, each flow is dealt a hand of queues and waits in the shortest; the queue that had
//! least is next, so a flood fills its own few queues and leaves the others alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::shuffle_shard::hand_of;

/// The assumed cost of a request until it is known, in seconds.
const GUESS: f64 = 0.003;

/// The limits of a priority level.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limits {
    /// Seats at once.
    pub(super) seats: u32,
    /// Its part of what there is.
    pub(super) weight: f64,
    /// `None` rejects a request that finds no seat.
    pub(super) queuing: Option<Queuing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queuing {
    pub(super) queues: usize,
    pub(super) hand: usize,
    pub(super) longest: usize,
}

/// A seat that was given; handed back at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeatGrant {
    level: Arc<str>,
    queue: usize,
    width: u32,
}

/// The decision about a request that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Begins(SeatGrant),
    Waits,
    /// Every queue of its hand is full, or its level has none.
    Refused(&'static str),
}

#[derive(Debug)]
pub(super) struct Scheduler<T> {
    capacity: u32,
    running: u32,
    waiting: usize,
    /// The virtual time of the levels; an idle level does not save up a share.
    now: f64,
    levels: BTreeMap<Arc<str>, LevelQueues<T>>,
}

#[derive(Debug)]
struct LevelQueues<T> {
    limits: Limits,
    running: u32,
    waiting: usize,
    /// Seat seconds it had, by weight.
    had: f64,
    now: f64,
    queues: Vec<Queue<T>>,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<(T, u32)>,
    running: u32,
    /// Seat seconds it had.
    had: f64,
}

impl<T> Queue<T> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), running: 0, had: 0.0 }
    }
}

impl<T> Scheduler<T> {
    pub(super) fn new(capacity: u32) -> Self {
        let levels = BTreeMap::new();
        Self { capacity: capacity.max(1), running: 0, waiting: 0, now: 0.0, levels }
    }

    /// Takes over new limits. Levels that are removed go on until they are empty.
    pub(super) fn configure(&mut self, limits: &BTreeMap<Arc<str>, Limits>) {
        self.levels.retain(|name, level| {
            limits.contains_key(name) || level.running > 0 || level.waiting > 0
        });
        for (name, limits) in limits {
            let wanted = limits.queuing.map_or(1, |queuing| queuing.queues.max(1));
            let now = self.now;
            let level = self.levels.entry(Arc::clone(name)).or_insert_with(|| LevelQueues {
                limits: limits.clone(),
                running: 0,
                waiting: 0,
                had: now,
                now: 0.0,
                queues: Vec::new(),
            });
            level.limits = limits.clone();
            // Queues that are in use stay; they are few and cost little.
            if level.queues.len() < wanted || (level.running == 0 && level.waiting == 0) {
                level.queues.resize_with(wanted, Queue::new);
            }
        }
    }

    /// A request of `flow` asks for `width` seats of `level`.
    pub(super) fn arrive(
        &mut self,
        level: &str,
        flow: u64,
        width: u32,
        ticket: impl FnOnce() -> T,
    ) -> Arrival {
        let capacity = self.capacity;
        let (idle, free) = (self.waiting == 0, capacity.saturating_sub(self.running));
        let Some((name, state)) = self.levels.get_key_value(level) else {
            return Arrival::Refused("its priority level is not known");
        };
        let name = Arc::clone(name);
        let width = width.clamp(1, capacity.min(state.limits.seats).max(1));
        let allowed = state.running + width <= state.limits.seats;
        // Without queues it has its seats or it has none.
        let queues = state.limits.queuing.is_some();
        if allowed && ((idle && width <= free) || !queues) {
            let queue = state.deal(flow);
            self.begin(&name, queue, width);
            return Arrival::Begins(SeatGrant { level: name, queue, width });
        }
        if queues {
            self.wait(level, flow, width, ticket)
        } else {
            Arrival::Refused("concurrency-limit")
        }
    }

    /// A request of `flow` queues for `width` seats of `level`, even if there are some.
    pub(super) fn wait(
        &mut self,
        level: &str,
        flow: u64,
        width: u32,
        ticket: impl FnOnce() -> T,
    ) -> Arrival {
        let (now, capacity) = (self.now, self.capacity);
        let Some(state) = self.levels.get_mut(level) else {
            return Arrival::Refused("its priority level is not known");
        };
        let width = width.clamp(1, capacity.min(state.limits.seats).max(1));
        let queue = state.deal(flow);
        let longest = state.limits.queuing.map_or(0, |queuing| queuing.longest);
        if state.queues[queue].waiting.len() >= longest {
            return Arrival::Refused("queue-full");
        }
        state.wake(now);
        let level_now = state.now;
        let entry = &mut state.queues[queue];
        if entry.waiting.is_empty() && entry.running == 0 {
            entry.had = entry.had.max(level_now);
        }
        entry.waiting.push_back((ticket(), width));
        state.waiting += 1;
        self.waiting += 1;
        Arrival::Waits
    }

    /// Whether who finds no seat in `level` may wait for one.
    pub(super) fn has_queues(&self, level: &str) -> bool {
        self.levels.get(level).is_some_and(|level| level.limits.queuing.is_some())
    }

    /// A request is over after `seconds`; its seats are free.
    pub(super) fn finish(&mut self, slot: &SeatGrant, seconds: f64) {
        self.running = self.running.saturating_sub(slot.width);
        if let Some(level) = self.levels.get_mut(&slot.level) {
            level.running = level.running.saturating_sub(slot.width);
            let owed = (seconds - GUESS) * f64::from(slot.width);
            level.had += owed / level.limits.weight;
            if let Some(queue) = level.queues.get_mut(slot.queue) {
                queue.running = queue.running.saturating_sub(slot.width);
                queue.had += owed;
            }
        }
    }

    /// A request that released this seat takes it again, whether there is one or not.
    pub(super) fn resume(&mut self, slot: &SeatGrant) {
        self.begin(&slot.level, slot.queue, slot.width);
    }

    /// Gives free seats to those who wait.
    pub(super) fn dispatch(&mut self) -> Vec<(T, SeatGrant)> {
        let mut begun = Vec::new();
        while self.waiting > 0 {
            let next = self.levels.iter().filter(|(_, level)| level.may_begin());
            let next = next.min_by(|(_, a), (_, b)| a.had.total_cmp(&b.had));
            let Some((name, level)) = next else { break };
            let (name, queue) = (Arc::clone(name), level.next());
            let width = level.queues[queue].waiting.front().map_or(1, |(_, width)| *width);
            // A wide request that is next blocks others until it fits, or it would never begin.
            if self.running > 0 && self.running + width > self.capacity {
                break;
            }
            let level = self.levels.get_mut(&name).expect("it was found above");
            let Some((ticket, width)) = level.queues[queue].waiting.pop_front() else { break };
            level.waiting -= 1;
            self.waiting -= 1;
            self.begin(&name, queue, width);
            begun.push((ticket, SeatGrant { level: name, queue, width }));
        }
        begun
    }

    fn begin(&mut self, name: &Arc<str>, queue: usize, width: u32) {
        self.running += width;
        let now = self.now;
        let Some(level) = self.levels.get_mut(name) else { return };
        level.wake(now);
        self.now = self.now.max(level.had);
        level.running += width;
        level.had += GUESS * f64::from(width) / level.limits.weight;
        let level_now = level.now;
        // The level may have fewer queues by the time a request takes its seat again.
        let Some(queue) = level.queues.get_mut(queue) else { return };
        if queue.running == 0 && queue.waiting.is_empty() {
            queue.had = queue.had.max(level_now);
        }
        level.now = level.now.max(queue.had);
        queue.running += width;
        queue.had += GUESS * f64::from(width);
    }

    pub(super) fn running(&self) -> u32 {
        self.running
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Name, seats in use, seats it may have, and how many wait.
    pub(super) fn levels(&self) -> impl Iterator<Item = (&str, u32, u32, usize)> {
        self.levels
            .iter()
            .map(|(name, level)| (&**name, level.running, level.limits.seats, level.waiting))
    }
}

impl<T> LevelQueues<T> {
    /// An idle level begins where the others are.
    fn wake(&mut self, now: f64) {
        if self.running == 0 && self.waiting == 0 {
            self.had = self.had.max(now);
        }
    }

    fn may_begin(&self) -> bool {
        if self.waiting == 0 {
            return false;
        }
        let width = self.queues[self.next()].waiting.front().map_or(1, |(_, width)| *width);
        self.running == 0 || self.running + width <= self.limits.seats
    }

    /// The queue that had least of those with a waiting request.
    fn next(&self) -> usize {
        let waiting = self.queues.iter().enumerate().filter(|(_, queue)| !queue.waiting.is_empty());
        waiting.min_by(|(_, a), (_, b)| a.had.total_cmp(&b.had)).map_or(0, |(index, _)| index)
    }

    /// The shortest queue of a flow's hand.
    fn deal(&self, flow: u64) -> usize {
        let hand = self.limits.queuing.map_or(1, |queuing| queuing.hand);
        let cards = hand_of(flow, self.queues.len(), hand);
        let length = |index: &usize| {
            let queue = &self.queues[*index];
            (queue.waiting.len(), queue.running)
        };
        cards.into_iter().min_by_key(length).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
