//! How much history the file keeps.
//!
//! The file needs history only to fill the mirror's log after a restart. History that is older
//! than the retention, or beyond a bound on its bytes, is removed in small steps between commits.
//! Pure: the writer reports changes and their time, and requests the revision up to which history
//! may be removed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::Retention;
use crate::revision::Revision;

/// How many tables' worth of retained bytes the whole file may hold. The mirror
/// bounds each table; a file in which more than a few are that busy at once gives up
/// the older part.
const BUSY_TABLES: usize = 4;
/// Writes this close together share a mark.
const GRAIN: Duration = Duration::from_secs(1);
/// The same for writes of this many bytes altogether.
const GRAIN_BYTES: usize = 1 << 20;

pub(super) struct Compactor {
    age: Duration,
    bytes: usize,
    marks: VecDeque<WriteRun>,
    held: usize,
    target: Revision,
    done: Revision,
}

/// A run of consecutive writes.
struct WriteRun {
    last: Revision,
    since: Instant,
    bytes: usize,
}

impl Compactor {
    /// `held` are the bytes of history up to `current` found in the file.
    pub(super) fn new(retention: &Retention, current: Revision, held: usize) -> Self {
        let mut compactor = Self {
            age: retention.age,
            bytes: retention.bytes.saturating_mul(BUSY_TABLES),
            marks: VecDeque::new(),
            held: 0,
            target: Revision::ZERO,
            done: Revision::ZERO,
        };
        compactor.note(current, held, Instant::now());
        compactor
    }

    /// History has grown by `bytes`, up to revision `last`.
    pub(super) fn note(&mut self, last: Revision, bytes: usize, now: Instant) {
        self.held += bytes;
        match self.marks.back_mut() {
            Some(mark) if now - mark.since < GRAIN && mark.bytes < GRAIN_BYTES => {
                mark.last = last;
                mark.bytes += bytes;
            }
            _ => self.marks.push_back(WriteRun { last, since: now, bytes }),
        }
    }

    /// Notices what has become too old or too much.
    pub(super) fn tick(&mut self, now: Instant) {
        while let Some(mark) = self.marks.front()
            && (now - mark.since > self.age + GRAIN || self.held > self.bytes)
        {
            self.target = mark.last;
            self.held -= mark.bytes;
            self.marks.pop_front();
        }
    }

    /// Gives up all history: the space is needed for something better.
    pub(super) fn starve(&mut self) {
        if let Some(mark) = self.marks.back() {
            self.target = mark.last;
        }
        self.marks.clear();
        self.held = 0;
    }

    /// Up to where history should go, if some of it should.
    pub(super) fn due(&self) -> Option<Revision> {
        (self.target > self.done).then_some(self.target)
    }

    /// Everything up to `to` is gone.
    pub(super) fn finished(&mut self, to: Revision) {
        self.done = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn compactor(start: Revision) -> Compactor {
        let retention = Retention { age: 60 * SECOND, bytes: 1000, ..Retention::default() };
        Compactor::new(&retention, start, 0)
    }

    #[test]
    fn history_goes_when_it_is_old() {
        let (mut compactor, start) = (compactor(Revision::new(5)), Instant::now());
        compactor.note(Revision::new(6), 10, start + 30 * SECOND);
        compactor.tick(start + 50 * SECOND);
        assert_eq!(compactor.due(), None);
        compactor.tick(start + 63 * SECOND);
        assert_eq!(compactor.due(), Some(Revision::new(5)));
        compactor.finished(Revision::new(5));
        assert_eq!(compactor.due(), None);
        compactor.tick(start + 95 * SECOND);
        assert_eq!(compactor.due(), Some(Revision::new(6)));
    }

    #[test]
    fn history_goes_early_when_it_is_big() {
        let (mut compactor, start) = (compactor(Revision::new(0)), Instant::now());
        for second in 1..=5 {
            compactor.note(Revision::new(u64::from(second)), 1500, start + second * SECOND);
        }
        compactor.tick(start + 6 * SECOND);
        assert_eq!(compactor.due(), Some(Revision::new(3)));
    }

    #[test]
    fn all_history_goes_when_space_is_needed() {
        let mut compactor = compactor(Revision::new(1));
        compactor.note(Revision::new(9), 10, Instant::now());
        compactor.starve();
        assert_eq!(compactor.due(), Some(Revision::new(9)));
    }
}
