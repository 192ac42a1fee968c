//! Checks that a test leaves out, to show that the tests of damage notice it. Elsewhere none is.

/// The checks that find damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// An index adds up to its root.
    Root,
    /// A map holds the page that the index names.
    Index,
    /// Super block and log are of the same time.
    Ages,
    /// The pages of a map without an index add up to the layer's count of blocks.
    Counts,
    /// A block that was flushed before a kill is what its recorded checksum says.
    Sums,
    /// The metadata on disk of a replica in use is what its memory says.
    Live,
}

#[cfg(test)]
thread_local! {
    static LEFT_OUT: std::cell::Cell<Option<Check>> = const { std::cell::Cell::new(None) };
}

/// Leaves a check out in this thread.
#[cfg(test)]
pub(crate) fn leave_out(check: Option<Check>) {
    LEFT_OUT.set(check);
}

#[cfg(test)]
pub(crate) fn is_left_out(check: Check) -> bool {
    LEFT_OUT.get() == Some(check)
}

#[cfg(all(feature = "sim", not(test)))]
static LEFT_OUT: std::sync::OnceLock<Check> = std::sync::OnceLock::new();

/// Leaves [`Check::Sums`] out in this process, which is one of a test, for good.
#[cfg(all(feature = "sim", not(test)))]
pub fn leave_out_sums() {
    let _ = LEFT_OUT.set(Check::Sums);
}

#[cfg(all(feature = "sim", not(test)))]
pub(crate) fn is_left_out(check: Check) -> bool {
    LEFT_OUT.get() == Some(&check)
}

#[cfg(not(any(test, feature = "sim")))]
pub(crate) const fn is_left_out(_: Check) -> bool {
    false
}
