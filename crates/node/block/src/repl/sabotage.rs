//! Ways to be wrong on purpose, so that tests can show that they would notice.
//!
//! Outside of the crate's own tests there is only one: not at all.

/// A rule that an engine or a session leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sabotage {
    #[default]
    None,
    /// Requests that overlap are under way at the same time.
    #[cfg(test)]
    NoLocks,
    /// After a crash every replica counts as it is.
    #[cfg(test)]
    NoReconcile,
    /// The first answer is good enough.
    #[cfg(test)]
    EarlyAck,
    /// Replicas listen to old engines too.
    #[cfg(test)]
    NoPromise,
    /// A promise does not wait for the writes of the old engine.
    #[cfg(test)]
    NoDrain,
    /// Requests that wait for a lost member are acknowledged before the record says that it is
    /// lost.
    #[cfg(test)]
    EarlyShrink,
    /// A flush is acknowledged without asking any replica.
    #[cfg(test)]
    NoFlush,
    /// A replica that returns gets what it missed, but keeps what only it has.
    #[cfg(test)]
    ForgetOwnDirt,
    /// A replica that the record names is in sync, whatever the evidence says.
    #[cfg(test)]
    TrustStale,
    /// A scrub does not check snapshots.
    #[cfg(test)]
    HeadScrub,
}

impl Sabotage {
    /// Whether this is the rule that is left out. Always false in what is shipped.
    #[cfg(test)]
    pub(crate) fn is(self, rule: Self) -> bool {
        self == rule
    }
}

/// `skips!(self.sabotage, NoLocks)`: whether the rule is left out; `false` unless testing.
macro_rules! skips {
    ($sabotage:expr, $rule:ident) => {{
        #[cfg(test)]
        let skipped = $sabotage.is($crate::repl::sabotage::Sabotage::$rule);
        #[cfg(not(test))]
        let skipped = {
            let _ = &$sabotage;
            false
        };
        skipped
    }};
}
pub(crate) use skips;
