//! Byte ranges that are locked, and the operations that hold them.
//!
//! Changes exclude everything that overlaps them. That is what lets replicas carry out calls in
//! any order and still end alike, and what keeps a read from seeing a change on one replica that
//! the next read, from another, does not see. Reads share.

use std::collections::BTreeMap;

use crate::repl::span::Span;

/// Names the holder: the number of the operation or task.
pub(super) type Holder = u64;

#[derive(Debug, Default)]
pub(super) struct Locks {
    /// Ranges under change, by their start. They never overlap.
    changing: BTreeMap<u64, (u64, Holder)>,
    reading: BTreeMap<Holder, Span>,
    /// Ranges that tasks wait for. Guests keep off, or a busy block would never be copied.
    reserved: BTreeMap<Holder, Span>,
    /// Everything may start at once. Only to show that this would be noticed.
    pub(super) lawless: bool,
}

impl Locks {
    fn is_changing(&self, span: Span) -> bool {
        if self.lawless {
            return false;
        }
        let before = self.changing.range(..span.end).next_back();
        before.is_some_and(|(_, (end, _))| *end > span.start)
    }

    fn is_reading(&self, span: Span) -> bool {
        !self.lawless && self.reading.values().any(|reading| reading.overlaps(span))
    }

    fn is_reserved(&self, span: Span) -> bool {
        !self.lawless && self.reserved.values().any(|reserved| reserved.overlaps(span))
    }

    /// Whether a guest may read `span` now.
    pub(super) fn may_read(&self, span: Span) -> bool {
        !self.is_changing(span) && !self.is_reserved(span)
    }

    /// Whether a guest may change `span` now.
    pub(super) fn may_change(&self, span: Span) -> bool {
        self.may_read(span) && !self.is_reading(span)
    }

    pub(super) fn read(&mut self, holder: Holder, span: Span) {
        self.reading.insert(holder, span);
    }

    pub(super) fn read_done(&mut self, holder: Holder) {
        self.reading.remove(&holder);
    }

    /// Locks `span` for a change that was found allowed.
    pub(super) fn change(&mut self, holder: Holder, span: Span) {
        debug_assert!(!self.is_changing(span), "two changes of one range");
        self.changing.insert(span.start, (span.end, holder));
    }

    /// Locks `span` for a task, or reserves it until it can be had.
    pub(super) fn try_change(&mut self, holder: Holder, span: Span) -> bool {
        if self.is_changing(span) || self.is_reading(span) {
            self.reserved.insert(holder, span);
            return false;
        }
        self.reserved.remove(&holder);
        self.change(holder, span);
        true
    }

    pub(super) fn change_done(&mut self, holder: Holder, span: Span) {
        if self.changing.get(&span.start).is_some_and(|(_, held_by)| *held_by == holder) {
            self.changing.remove(&span.start);
        }
    }

    /// The task no longer wants what it reserved.
    pub(super) fn forget(&mut self, holder: Holder) {
        self.reserved.remove(&holder);
    }

    pub(super) fn nothing_changes(&self) -> bool {
        self.changing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_exclude_and_reads_share() {
        let mut locks = Locks::default();
        let span = |start, end| Span { start, end };
        locks.change(1, span(10, 20));
        for (start, end, free) in
            [(0, 10, true), (0, 11, false), (12, 13, false), (19, 40, false), (20, 30, true)]
        {
            assert_eq!(locks.may_read(span(start, end)), free, "{start}..{end}");
            assert_eq!(locks.may_change(span(start, end)), free, "{start}..{end}");
        }
        locks.read(2, span(30, 40));
        assert!(locks.may_read(span(35, 36)) && !locks.may_change(span(35, 36)));
        assert!(!locks.try_change(3, span(15, 35)));
        // Reserved: newcomers wait, so that the task gets its turn.
        assert!(!locks.may_read(span(22, 23)));
        locks.change_done(1, span(10, 20));
        assert!(!locks.try_change(3, span(15, 35)));
        locks.read_done(2);
        assert!(locks.try_change(3, span(15, 35)));
        assert!(locks.may_change(span(35, 36)));
        locks.change_done(3, span(15, 35));
        assert!(locks.nothing_changes());
    }
}
