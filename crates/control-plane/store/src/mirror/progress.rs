//! How far the mirror has come, for all tables together.

use std::time::Duration;

use tokio::sync::watch;

use crate::revision::Revision;

#[derive(Debug)]
pub(crate) struct RevisionProgress {
    /// Every write up to this revision is visible in its table.
    published: watch::Sender<Revision>,
    closed: watch::Sender<bool>,
}

impl RevisionProgress {
    pub(crate) fn new(published: Revision) -> Self {
        Self { published: watch::Sender::new(published), closed: watch::Sender::new(false) }
    }

    pub(crate) fn published(&self) -> Revision {
        *self.published.borrow()
    }

    pub(crate) fn advance(&self, to: Revision) {
        self.published.send_if_modified(|published| {
            assert!(to >= *published, "the published revision went back");
            std::mem::replace(published, to) != to
        });
    }

    pub(crate) async fn reached(&self, revision: Revision, limit: Duration) -> bool {
        let mut published = self.published.subscribe();
        let reached = published.wait_for(|published| *published >= revision);
        matches!(tokio::time::timeout(limit, reached).await, Ok(Ok(_)))
    }

    pub(crate) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Resolves when the store is closed. Cancel-safe.
    pub(crate) async fn closed(&self) {
        // An error means that the store is gone altogether.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }
}
