//! The incoming migrations of a node, each accessible only for its source node: every node can read
//! the UID of a migration.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

/// Request queues by the UID of their migration; clones share them.
pub(super) struct MigrationSessions<R>(Arc<Mutex<BTreeMap<String, MigrationSession<R>>>>);

struct MigrationSession<R> {
    /// The source of the migration.
    peer: String,
    requests: mpsc::Sender<R>,
}

impl<R> Clone for MigrationSessions<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R> Default for MigrationSessions<R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<R> MigrationSessions<R> {
    pub(super) fn insert(&self, peer: &str, migration: &str, requests: mpsc::Sender<R>) {
        let session = MigrationSession { peer: peer.to_owned(), requests };
        self.0.lock().insert(migration.to_owned(), session);
    }

    pub(super) fn remove(&self, migration: &str) {
        self.0.lock().remove(migration);
    }

    /// The queue of a migration that comes from `peer`.
    pub(super) fn find(&self, peer: &str, migration: &str) -> Option<mpsc::Sender<R>> {
        let sessions = self.0.lock();
        let session = sessions.get(migration).filter(|session| session.peer == peer);
        session.map(|session| session.requests.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_is_reached_by_its_source_alone() {
        let sessions = MigrationSessions::<()>::default();
        let (requests, _received) = mpsc::channel(1);
        sessions.insert("source", "uid", requests);
        assert!(sessions.find("source", "uid").is_some());
        assert!(sessions.find("other", "uid").is_none(), "another node knows the UID");
        assert!(sessions.find("", "uid").is_none());
        assert!(sessions.find("source", "other").is_none());
        sessions.remove("uid");
        assert!(sessions.find("source", "uid").is_none());
    }
}
