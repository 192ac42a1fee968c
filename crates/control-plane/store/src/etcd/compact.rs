//! Dropping old history, in etcd and in the mirror.
//!
//! etcd keeps every version until a client compacts up to a revision. The stores that share a
//! cluster do this once per period between them: the first that advances the record under the
//! compaction key has the turn, and compacts to the revision that the previous turn stored. The
//! record holds both:
//!
//! ```text
//!   "{done} {next}"   done: what this turn compacts to; reading there stays possible
//!                     next: the revision of this turn, for the one after it
//! ```

use std::sync::Arc;

use base::{Chain, Stop};
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use tokio::time::MissedTickBehavior;
use tracing::{debug, warn};

use super::Offset;
use super::link::{EtcdLink, LinkError};
use crate::config::Retention;
use crate::mirror::Mirror;
use crate::shape::Shape;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompactionPlan {
    pub(super) done: i64,
    pub(super) next: i64,
}

impl CompactionPlan {
    pub(super) fn parse(record: &[u8]) -> Option<Self> {
        let (done, next) = std::str::from_utf8(record).ok()?.split_once(' ')?;
        Some(Self { done: done.parse().ok()?, next: next.parse().ok()? })
    }

    fn record(self) -> String {
        format!("{} {}", self.done, self.next)
    }

    /// The turn after this one, at revision `now`.
    fn advanced(self, now: i64) -> Self {
        Self { done: self.next, next: now }
    }
}

pub(super) struct EtcdMaintenance<S: Shape> {
    link: EtcdLink,
    offset: Offset,
    mirror: Arc<Mirror<S>>,
    retention: Retention,
    /// The version of the record when it was last read. A turn needs it
    /// unchanged for a whole period, so the history kept is never shorter than one.
    version: Option<i64>,
}

impl<S: Shape> EtcdMaintenance<S> {
    pub(super) fn new(
        link: &EtcdLink,
        offset: Offset,
        mirror: &Arc<Mirror<S>>,
        retention: Retention,
    ) -> Self {
        let (link, mirror) = (link.clone(), Arc::clone(mirror));
        Self { link, offset, mirror, retention, version: None }
    }

    pub(super) async fn run(mut self, mut stop: Stop) {
        let mut turn = tokio::time::interval(self.retention.age.max(self.retention.pace()));
        let mut trim = tokio::time::interval(self.retention.pace());
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        trim.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.requested() => return,
                () = self.mirror.closed() => return,
                _ = trim.tick() => self.mirror.trim(),
                _ = turn.tick() => {
                    if let Err(error) = self.turn().await {
                        warn!(error = %Chain(&error), "cannot compact etcd");
                    }
                }
            }
        }
    }

    async fn turn(&mut self) -> Result<(), LinkError> {
        let key = self.link.keys.compaction();
        let stored = self.link.read(key.clone()).await?;
        let unchanged = self.version.replace(stored.version) == Some(stored.version);
        if !unchanged {
            return Ok(());
        }
        let plan = stored.value.as_deref().and_then(CompactionPlan::parse);
        let plan = plan.unwrap_or(CompactionPlan { done: 0, next: 0 }).advanced(stored.now);
        let mine = Compare::version(key.clone(), CompareOp::Equal, stored.version);
        let txn = Txn::new().when([mine]).and_then([TxnOp::put(key, plan.record(), None)]);
        if !self.link.txn(txn).await?.succeeded() {
            return Ok(());
        }
        self.version = Some(stored.version + 1);
        if plan.done == 0 {
            return Ok(());
        }
        match self.link.compact(plan.done).await {
            // Another server, perhaps etcd itself, has compacted further already.
            Err(error) if error.is_compacted() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                debug!(revision = %self.offset.revision(plan.done), "compacted etcd");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_compacts_to_what_the_last_one_wrote_down() {
        let first = CompactionPlan { done: 0, next: 0 }.advanced(40);
        assert_eq!(first, CompactionPlan { done: 0, next: 40 });
        let second = first.advanced(90);
        assert_eq!(second, CompactionPlan { done: 40, next: 90 });
        assert_eq!(CompactionPlan::parse(second.record().as_bytes()), Some(second));
        assert_eq!(CompactionPlan::parse(b"nonsense"), None);
    }
}
