//! Flushes, one at a time for all who wait, and the regions that they settle.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use super::event::{GuestId, GuestReply, Time};
use super::ops::Owner;
use crate::ids::FlushMark;
use crate::repl::sabotage::skips;
use crate::repl::span::{Pieces, Span};
use crate::wire::{Refusal, Request};

#[derive(Debug, Default)]
pub(super) struct Flush {
    /// Guest requests that the next flush completes.
    pub(super) queued: Vec<GuestId>,
    running: Option<Running>,
    /// A flush is due although no request waits for one.
    pub(super) due: bool,
    pub(super) regions: Regions,
    /// The number of the newest flush that was sent. A flush without new writes keeps the number
    /// of the previous one.
    pub(super) number: u64,
    /// The newest flush that every member has answered.
    pub(super) complete: u64,
}

#[derive(Debug)]
struct Running {
    guests: Vec<GuestId>,
    settling: Vec<u32>,
    number: u64,
}

impl Flush {
    pub(super) fn take_all(&mut self) -> Vec<GuestId> {
        let running = self.running.take().map(|running| running.guests).unwrap_or_default();
        self.queued.drain(..).chain(running).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none() && self.queued.is_empty()
    }
}

/// The regions that are in the dirty-region log of some in-sync replica.
///
/// A region is covered when every member has answered every change in it and has then carried out
/// a flush. It may leave the logs with the next flush, which reports the first one as complete: a
/// member that has not carried out that one is known to be stale. It is left in for a while all
/// the same: entering the log costs a write to disk.
#[derive(Debug, Default)]
pub(super) struct Regions {
    used: BTreeMap<u32, Use>,
    /// Something changed since the newest flush was sent.
    changed: bool,
}

#[derive(Debug, Default)]
struct Use {
    under_way: u32,
    last: Time,
    /// Began or ended a change since the newest flush was sent.
    touched: bool,
    /// A flush that is complete came after the last change.
    covered: bool,
}

impl Use {
    fn touch(&mut self) {
        self.touched = true;
        self.covered = false;
    }
}

impl Regions {
    pub(super) fn begin(&mut self, region: u64, span: Span, now: Time) {
        for index in indices(region, span) {
            let used = self.used.entry(index).or_default();
            used.under_way += 1;
            used.last = now;
            used.touch();
        }
        self.changed = true;
    }

    pub(super) fn end(&mut self, region: u64, span: Span) {
        for index in indices(region, span) {
            if let Some(used) = self.used.get_mut(&index) {
                used.under_way -= 1;
                used.touch();
            }
        }
        self.changed = true;
    }

    /// The region is in a log for some other reason than a change of the guest.
    pub(super) fn note(&mut self, region: u64, span: Span, now: Time) {
        for index in indices(region, span) {
            let used = self.used.entry(index).or_default();
            used.last = used.last.max(now);
            used.touch();
        }
        self.changed = true;
    }

    /// The volume was changed as a whole.
    pub(super) fn note_all(&mut self) {
        self.changed = true;
    }

    /// Whether something changed since this was last asked.
    fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// The regions, as a set.
    pub(super) fn pieces(&self, region: u64) -> Pieces {
        let mut all = Pieces::none(region);
        for index in self.used.keys() {
            all.insert(Span::new(u64::from(*index) * region, region));
        }
        all
    }

    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    pub(super) fn has_idle(&self, now: Time, after: Duration) -> bool {
        self.used.values().any(|used| used.under_way == 0 && used.last + after <= now)
    }

    /// The regions that a flush sent now can settle.
    fn settle(&mut self, now: Time, after: Duration, max: usize, not: &Pieces) -> Vec<u32> {
        let mut quiet: Vec<(Time, u32)> = Vec::new();
        for (index, used) in &mut self.used {
            used.touched = false;
            if used.under_way == 0 && used.covered && !not.contains(u64::from(*index)) {
                quiet.push((used.last, *index));
            }
        }
        let surplus = self.used.len().saturating_sub(max / 2);
        let over = self.used.len() > max;
        quiet.sort_unstable();
        let idle = |(at, (last, _)): &(usize, &(Time, u32))| {
            *last + after <= now || (over && *at < surplus)
        };
        quiet.iter().enumerate().filter(idle).map(|(_, (_, index))| *index).collect()
    }

    /// The flush that was sent last is complete; `regions` have left the logs with it.
    fn flushed(&mut self, regions: &[u32]) {
        for index in regions {
            if self.used.get(index).is_some_and(|used| used.under_way == 0 && !used.touched) {
                self.used.remove(index);
            }
        }
        for used in self.used.values_mut() {
            used.covered = used.under_way == 0 && !used.touched;
        }
    }
}

fn indices(region: u64, span: Span) -> impl Iterator<Item = u32> {
    let range = span.start / region..span.end.div_ceil(region);
    range.map(|index| u32::try_from(index).expect("volumes have less than 2^32 regions"))
}

impl Engine {
    pub(super) fn drive_flush(&mut self) {
        if skips!(self.sabotage, NoFlush) {
            for guest in std::mem::take(&mut self.flush.queued) {
                self.reply(guest, Ok(GuestReply::Done));
            }
        }
        if self.flush.running.is_none() && (self.flush.due || !self.flush.queued.is_empty()) {
            let after = self.config.settle_after;
            self.begin_flush(after, Owner::Flush);
        }
    }

    /// Sends a flush for everybody who waits. A change that is answered from now on is covered
    /// by the next one only.
    pub(super) fn begin_flush(&mut self, settle_after: Duration, owner: Owner) {
        let (now, max) = (self.now, self.config.max_dirty);
        let mut not = self.disputes.unrecorded_regions(self.region);
        not.extend(&self.unreconciled);
        let settle = self.flush.regions.settle(now, settle_after, max, &not);
        let guests = std::mem::take(&mut self.flush.queued);
        self.flush.due = false;
        let request = self.next_flush(settle.clone());
        let number = self.flush.number;
        self.flush.running = Some(Running { guests, settling: settle, number });
        self.issue_all(request, owner);
    }

    /// A flush with a number of its own, if there is anything new for it to make durable.
    pub(super) fn next_flush(&mut self, settle: Vec<u32>) -> Request {
        if self.flush.regions.take_changed() || self.flush.number == 0 {
            self.flush.number += 1;
        }
        self.numbered_flush(settle)
    }

    /// A flush with the number of the newest one.
    pub(super) fn numbered_flush(&self, settle: Vec<u32>) -> Request {
        Request::Flush { settle, number: self.flush.number, complete: self.flush.complete }
    }

    /// The newest flush that every member has carried out.
    pub(super) fn complete_mark(&self) -> FlushMark {
        match self.flush.complete {
            0 => FlushMark::default(),
            number => FlushMark { generation: self.generation, number },
        }
    }

    pub(super) fn flushed(&mut self, result: Result<(), Refusal>) {
        let Some(running) = self.flush.running.take() else { return };
        if result.is_ok() {
            self.flush.complete = self.flush.complete.max(running.number);
            self.flush.regions.flushed(&running.settling);
            // Still too many: regions that are covered now can leave with the next one.
            self.flush.due |= self.flush.regions.len() > self.config.max_dirty;
        }
        let result = result.map(|()| GuestReply::Done).map_err(Self::guest_error);
        for guest in running.guests {
            self.reply(guest, result.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_settles_when_it_was_quiet_from_the_flush_to_its_answer() {
        let second = Duration::from_secs(1);
        let mut regions = Regions::default();
        regions.begin(100, Span::new(0, 250), second);
        assert!(regions.settle(9 * second, second, 9, &Pieces::none(100)).is_empty());
        regions.end(100, Span::new(0, 250));
        let settle =
            |regions: &mut Regions| regions.settle(9 * second, second, 9, &Pieces::none(100));
        assert!(settle(&mut regions).is_empty(), "no complete flush covers them");
        regions.flushed(&[]);
        assert_eq!(settle(&mut regions), [0, 1, 2]);
        regions.begin(100, Span::new(100, 10), 9 * second);
        regions.end(100, Span::new(100, 10));
        regions.flushed(&[0, 1, 2]);
        assert_eq!(regions.used.keys().copied().collect::<Vec<_>>(), [1]);
        assert!(settle(&mut regions).is_empty(), "it was written since the flush was sent");
    }

    #[test]
    fn too_many_regions_settle_oldest_first() {
        let mut regions = Regions::default();
        for index in 0..10u64 {
            let at = Duration::from_secs(10 - index);
            regions.note(100, Span::new(index * 100, 1), at);
        }
        let now = Duration::from_secs(11);
        regions.settle(now, Duration::from_secs(60), 8, &Pieces::none(100));
        regions.flushed(&[]);
        let quiet = regions.settle(now, Duration::from_secs(60), 8, &Pieces::none(100));
        assert_eq!(quiet, [9, 8, 7, 6, 5, 4]);
    }
}
