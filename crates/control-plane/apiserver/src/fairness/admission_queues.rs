//! Two ways to a seat. Pure.
//!
//! Light flows get a seat at once if there is one. A heavy flow, one that uses much while others
//! are active, always waits in the side queue, and a few of its requests at a time are admitted
//! once all others that are present have been served. Without that, its requests would be a queue
//! in front of ours: read and answered in the order in which they arrived, however many there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::schedule::{Arrival, Limits, Queuing, Scheduler, SeatGrant};

/// Where those wait aside who need no seat otherwise. No object has such a name.
pub(super) const EXEMPT: &str = "exempt/";

/// A seat, and the queue to which it is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Admission {
    slot: SeatGrant,
    queue: QueueId,
}

impl Admission {
    pub(super) fn is_aside(&self) -> bool {
        self.queue == QueueId::Side
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueId {
    Front,
    Side,
}

/// The decision about a request that arrives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum QueueAdmission {
    Begins(Admission),
    Waits,
    /// In the side queue. The first request of a heavy flow starts the task that drains it.
    Aside {
        first: bool,
    },
    Refused(&'static str),
}

/// The requests that are admitted from the side queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened<T> {
    Begin(Vec<(T, Admission)>),
    /// Those who came in before are still there.
    Full,
    /// The heavy flow is gone, and so is the task that admitted its requests.
    Empty,
}

#[derive(Debug)]
pub(super) struct AdmissionQueues<T> {
    front: Scheduler<T>,
    side: Scheduler<T>,
    /// Whether a task drains the side queue.
    draining: bool,
}

impl<T> AdmissionQueues<T> {
    /// So many seats, and so many for whom comes in at the side.
    pub(super) fn new(seats: u32, aside: u32) -> Self {
        Self { front: Scheduler::new(seats), side: Scheduler::new(aside), draining: false }
    }

    /// Takes over new limits; returns who begins now.
    pub(super) fn configure(&mut self, limits: &BTreeMap<Arc<str>, Limits>) -> Vec<(T, Admission)> {
        self.front.configure(limits);
        let mut limits = limits.clone();
        let queuing = Some(Queuing { queues: 64, hand: 6, longest: usize::MAX });
        let weight = limits.values().map(|level| level.weight).sum::<f64>().max(1.0);
        limits.insert(EXEMPT.into(), Limits { seats: u32::MAX, weight, queuing });
        self.side.configure(&limits);
        self.dispatch()
    }

    /// A request of `flow`, which is heavy or not, asks for `width` seats of `level`.
    pub(super) fn arrive(
        &mut self,
        level: &str,
        flow: u64,
        width: u32,
        heavy: bool,
        ticket: impl FnOnce() -> T,
    ) -> QueueAdmission {
        if heavy && self.side.has_queues(level) {
            return match self.side.wait(level, flow, width, ticket) {
                Arrival::Refused(reason) => QueueAdmission::Refused(reason),
                _ => QueueAdmission::Aside { first: !std::mem::replace(&mut self.draining, true) },
            };
        }
        match self.front.arrive(level, flow, width, ticket) {
            Arrival::Begins(slot) => {
                QueueAdmission::Begins(Admission { slot, queue: QueueId::Front })
            }
            Arrival::Waits => QueueAdmission::Waits,
            Arrival::Refused(reason) => QueueAdmission::Refused(reason),
        }
    }

    /// A request is over after `seconds`; returns the requests that begin now. None of the side
    /// queue does: that is drained from time to time.
    pub(super) fn finish(&mut self, seat: &Admission, seconds: f64) -> Vec<(T, Admission)> {
        match seat.queue {
            QueueId::Front => {
                self.front.finish(&seat.slot, seconds);
                self.dispatch()
            }
            QueueId::Side => {
                self.side.finish(&seat.slot, seconds);
                Vec::new()
            }
        }
    }

    /// A request that released this seat takes it again, whether there is one or not.
    pub(super) fn resume(&mut self, seat: &Admission) {
        match seat.queue {
            QueueId::Front => self.front.resume(&seat.slot),
            QueueId::Side => self.side.resume(&seat.slot),
        }
    }

    /// Gives free seats to those who wait in front.
    pub(super) fn dispatch(&mut self) -> Vec<(T, Admission)> {
        let begun = self.front.dispatch().into_iter();
        begun.map(|(ticket, slot)| (ticket, Admission { slot, queue: QueueId::Front })).collect()
    }

    /// Admits requests of the side queue.
    pub(super) fn open(&mut self) -> Opened<T> {
        let begun = self.side.dispatch();
        if begun.is_empty() {
            self.draining = self.side.waiting() > 0;
            return if self.draining { Opened::Full } else { Opened::Empty };
        }
        let begun = begun.into_iter();
        let admitted = |(ticket, slot)| (ticket, Admission { slot, queue: QueueId::Side });
        Opened::Begin(begun.map(admitted).collect())
    }

    pub(super) fn running(&self) -> u32 {
        self.front.running() + self.side.running()
    }

    /// Name, seats in use, seats it may have, and how many wait.
    pub(super) fn levels(&self) -> impl Iterator<Item = (&str, u32, u32, usize)> {
        self.front.levels().map(|(name, running, seats, waiting)| {
            let side = self.side.levels().find(|side| side.0 == name);
            let (more, aside) = side.map_or((0, 0), |side| (side.1, side.3));
            (name, running + more, seats, waiting + aside)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::Queuing;
    use super::*;

    fn queues(seats: u32, aside: u32) -> AdmissionQueues<&'static str> {
        let queuing = Some(Queuing { queues: 8, hand: 2, longest: 3 });
        let limits = |queuing| Limits { seats: 100, weight: 1.0, queuing };
        let mut queues = AdmissionQueues::new(seats, aside);
        let levels = [("queues".into(), limits(queuing)), ("rejects".into(), limits(None))];
        assert!(queues.configure(&levels.into()).is_empty());
        queues
    }

    fn names(opened: Opened<&'static str>) -> Vec<(&'static str, Admission)> {
        match opened {
            Opened::Begin(begun) => begun,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_heavy_flow_waits_while_others_pass() {
        let mut it = queues(4, 1);
        assert_eq!(it.arrive("queues", 1, 1, true, || "a"), QueueAdmission::Aside { first: true });
        assert_eq!(it.arrive("queues", 1, 1, true, || "b"), QueueAdmission::Aside { first: false });
        let QueueAdmission::Begins(quiet) = it.arrive("queues", 2, 1, false, || "quiet") else {
            panic!()
        };

        let begun = names(it.open());
        assert_eq!((begun.len(), it.running()), (1, 2));
        assert_eq!(it.open(), Opened::Full, "it has one seat");
        assert!(it.finish(&quiet, 0.001).is_empty());
        assert_eq!(it.open(), Opened::Full, "that was another's");
        assert!(
            it.finish(&begun[0].1, 0.001).is_empty(),
            "the side queue is drained only on request"
        );
        let last = names(it.open());
        assert!(it.finish(&last[0].1, 0.001).is_empty());
        assert_eq!(it.open(), Opened::Empty);
        assert_eq!(it.arrive("queues", 1, 1, true, || "c"), QueueAdmission::Aside { first: true });
        assert_eq!(
            it.levels().map(|level| level.3).sum::<usize>(),
            1,
            "waiting requests are counted"
        );
    }

    #[test]
    fn a_flow_too_heavy_is_refused_and_levels_without_queues_have_no_side_queue() {
        let mut it = queues(4, 1);
        let full = std::iter::from_fn(|| match it.arrive("queues", 1, 1, true, || "a") {
            QueueAdmission::Refused(reason) => Some(reason),
            _ => Some(""),
        });
        assert!(full.take(7).any(|reason| reason == "queue-full"), "two queues of three");
        assert!(matches!(it.arrive("rejects", 1, 1, true, || "a"), QueueAdmission::Begins(_)));
        for _ in 0..100 {
            let entry = it.arrive(EXEMPT, 1, 1, true, || "exempt");
            assert!(matches!(entry, QueueAdmission::Aside { .. }), "they are never refused");
        }
    }
}
