//! The order in which requests are served. Pure: requests arrive and finish, and the scheduler
//! returns those that may begin; the caller keeps the requests themselves.
//!
//! Seats are shared twice. Priority levels share them by weight: the one that had least for
//! its weight is next, so nobody starves and nothing stays empty while somebody waits. Within
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

    /// Takes over new limits. Levels that are gone go on until nobody is in them.
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

    /// Somebody of `flow` asks for `width` seats of `level`.
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

    /// Somebody of `flow` queues for `width` seats of `level`, even if there are some.
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

    /// Somebody who had this seat and gave it back takes it again, whether there is one or not.
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

    /// The queue that had least of those in which somebody waits.
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
mod tests {
    use super::*;

    fn scheduler(capacity: u32, levels: &[(&str, u32, f64, Option<Queuing>)]) -> Scheduler<usize> {
        let mut scheduler = Scheduler::new(capacity);
        let limits = levels.iter().map(|(name, seats, weight, queuing)| {
            (Arc::from(*name), Limits { seats: *seats, weight: *weight, queuing: *queuing })
        });
        scheduler.configure(&limits.collect());
        scheduler
    }

    const QUEUES: Option<Queuing> = Some(Queuing { queues: 64, hand: 6, longest: 50 });

    /// Flows that keep `wants` requests open each, served for some rounds; says how often each
    /// was served. `cost` is how long a request of the flow takes.
    fn simulate(seed: u64, flows: &[(&str, u64, usize, f64)], rounds: usize) -> Vec<usize> {
        let levels = [("low", 100, 100.0, QUEUES), ("high", 100, 100.0, QUEUES)];
        let mut scheduler = scheduler(4, &levels);
        let mut served = vec![0; flows.len()];
        let mut running: Vec<(SeatGrant, usize)> = Vec::new();
        let mut random = seed | 1;
        for (index, (level, flow, wants, _)) in flows.iter().enumerate() {
            for _ in 0..*wants {
                if let Arrival::Begins(slot) = scheduler.arrive(level, *flow, 1, || index) {
                    running.push((slot, index));
                }
            }
        }
        for _ in 0..rounds {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let which = usize::try_from(random % running.len() as u64).unwrap();
            let (slot, index) = running.swap_remove(which);
            served[index] += 1;
            let (level, flow, _, cost) = flows[index];
            scheduler.finish(&slot, cost);
            running.extend(scheduler.dispatch().into_iter().map(|(index, slot)| (slot, index)));
            if let Arrival::Begins(slot) = scheduler.arrive(level, flow, 1, || index) {
                running.push((slot, index));
            }
            running.extend(scheduler.dispatch().into_iter().map(|(index, slot)| (slot, index)));
            assert!(scheduler.running() <= 4);
        }
        served
    }

    #[test]
    fn a_flood_leaves_the_others_their_share() {
        for seed in 1..40 {
            let flows = [("low", 11, 200, 0.003), ("low", 0x5555_1234_9876, 2, 0.003)];
            let served = simulate(seed * 7919, &flows, 4000);
            // The flood has six queues, the other one as many; two at a time is all it wants.
            assert!(served[1] * 4 >= served[0], "seed {seed}: {served:?}");
        }
    }

    #[test]
    fn levels_share_by_weight_and_by_time() {
        for seed in 1..20 {
            let flows = [("low", 1, 100, 0.003), ("high", 2, 100, 0.003)];
            let served = simulate(seed * 104_729, &flows, 4000);
            let ratio = served[0] as f64 / served[1] as f64;
            assert!((0.8..1.25).contains(&ratio), "seed {seed}: {served:?}");
            let flows = [("low", 1, 100, 0.030), ("high", 2, 100, 0.003)];
            let served = simulate(seed * 104_729, &flows, 4000);
            assert!(served[1] > served[0] * 5, "who takes longer comes less often: {served:?}");
        }
    }

    #[test]
    fn a_level_without_queues_sends_away_and_a_full_queue_too() {
        let mut it = scheduler(10, &[("reject", 2, 1.0, None)]);
        assert!(matches!(it.arrive("reject", 1, 1, || 0), Arrival::Begins(_)));
        let Arrival::Begins(slot) = it.arrive("reject", 1, 1, || 0) else { panic!() };
        assert_eq!(it.arrive("reject", 1, 1, || 0), Arrival::Refused("concurrency-limit"));
        it.finish(&slot, 0.001);
        assert!(matches!(it.arrive("reject", 1, 1, || 0), Arrival::Begins(_)));

        let short = Some(Queuing { queues: 1, hand: 1, longest: 1 });
        let mut it = scheduler(10, &[("short", 1, 1.0, short)]);
        let Arrival::Begins(slot) = it.arrive("short", 1, 1, || 0) else { panic!() };
        assert_eq!(it.arrive("short", 1, 1, || 1), Arrival::Waits);
        assert_eq!(it.arrive("short", 1, 1, || 2), Arrival::Refused("queue-full"));
        it.finish(&slot, 0.001);
        let begun = it.dispatch();
        assert_eq!(begun.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_wide_request_gets_its_turn() {
        let mut it = scheduler(4, &[("low", 100, 1.0, QUEUES)]);
        let slots: Vec<SeatGrant> = (0..3)
            .map(|_| match it.arrive("low", 1, 1, || 0) {
                Arrival::Begins(slot) => slot,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(it.arrive("low", 2, 10, || 7), Arrival::Waits, "it needs all there is");
        assert_eq!(it.arrive("low", 3, 1, || 8), Arrival::Waits, "nobody overtakes");
        for slot in &slots[..2] {
            it.finish(slot, 0.003);
            assert!(it.dispatch().is_empty());
        }
        it.finish(&slots[2], 0.003);
        let begun = it.dispatch();
        assert!(begun.iter().any(|(ticket, _)| *ticket == 7), "{begun:?}");
    }
}
