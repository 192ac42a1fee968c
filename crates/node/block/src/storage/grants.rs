//! Which nodes the replicas of this process are for, as its supervisor says.
//!
//! Grants are in the state, so that a process that was started again refuses and admits the same
//! nodes before its supervisor has found it. They are checked from the first time on that a
//! supervisor says it knows them, and not any more when one takes over that does not: an older
//! program, after an upgrade was taken back, would never grant anything.

use std::collections::BTreeMap;

use super::protocol::WaitingEngine;
use super::serve::Refused;
use super::{Inner, Shared};
use crate::grant::ReplicaGrant;
use crate::ids::ReplicaId;
use crate::run::chain;

impl Shared {
    /// Replaces the grants of some replicas. One that is not here any more needs none.
    pub(super) fn grant_replicas(
        &self,
        grants: BTreeMap<ReplicaId, ReplicaGrant>,
    ) -> Result<(), Refused> {
        let mut inner = self.inner();
        let before = inner.state.replica_grants.clone();
        inner.state.replica_grants.check();
        for (replica, grant) in grants {
            if inner.state.replicas.contains_key(&replica) {
                inner.state.replica_grants.set(replica, grant);
            }
        }
        if inner.state.replica_grants == before {
            return Ok(());
        }
        // First for engines, which may wait: after a crash the supervisor says it again.
        self.apply_grants(&inner);
        Ok(self.save(&inner)?)
    }

    /// A supervisor has come, that knows grants or does not.
    pub(super) fn supervised(&self, knows_grants: bool) {
        let mut inner = self.inner();
        if inner.state.replica_grants.is_checked() == knows_grants {
            return;
        }
        if knows_grants {
            inner.state.replica_grants.check();
        } else {
            tracing::warn!("the supervisor knows no grants: replicas answer every node");
            inner.state.replica_grants.uncheck();
        }
        self.apply_grants(&inner);
        if let Err(error) = self.save(&inner) {
            tracing::error!(error = %chain(&error), "cannot save the state");
        }
    }

    /// Has the data path check what the state says.
    pub(super) fn apply_grants(&self, inner: &Inner) {
        let grants = inner.state.replica_grants.clone();
        self.handle.with(move |shard| shard.set_grants(grants));
    }

    /// Engines that wait for a grant, and how often one was refused.
    pub(super) fn refusals(&self) -> (Vec<WaitingEngine>, u64) {
        let seen = self.handle.with(|shard| (shard.waiting_engines(), shard.refused_engines()));
        let (waiting, refused) = seen.unwrap_or_default();
        let waiting = waiting.into_iter().map(|(replica, node)| WaitingEngine { replica, node });
        (waiting.collect(), refused)
    }
}
