//! Revisions: the only sequence of numbers for all writes of the store.

#[cfg(test)]
mod tests;

use std::fmt;

/// How far a store that continues from older data is ahead of it if the clock is not.
const LEAP: u64 = 1_000_000_000;
/// No store takes so many writes in a second.
const WRITES_PER_SECOND: u64 = 1_000_000;

/// A point in the history of all tables.
///
/// Each successful write has its own revision, later writes have higher ones, and
/// none is ever given twice: not after a restart, a compaction or a restore.
/// Revision 0 is the empty store before its first write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(u64);

impl Revision {
    pub const ZERO: Self = Self(0);

    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Where a store goes on whose newest known revision is this one, while clients may have seen
    /// later ones: after the restore of a backup, or the loss of members of etcd that had more.
    /// Those must never be given again with another meaning.
    ///
    /// Seconds of the clock go on faster than any store writes, so that a backup that is restored
    /// twice leaps to different revisions. The distance is for a clock that was set back.
    pub(crate) fn leapt(self, unix_seconds: i64) -> Self {
        let seconds = u64::try_from(unix_seconds).unwrap_or(0);
        let clock = seconds.saturating_mul(WRITES_PER_SECOND);
        Self(if clock > self.0 { clock } else { self.0 + LEAP })
    }

    /// The form in which both engines keep it; they have no unsigned integers.
    pub(crate) const fn to_i64(self) -> i64 {
        self.0.cast_signed()
    }

    /// A negative number can only come from damaged data and becomes a revision so
    /// high that the consistency checks of the loader refuse it.
    pub(crate) const fn from_i64(number: i64) -> Self {
        Self(number.cast_unsigned())
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}
