//! The RBAC policy in force. It is rebuilt from roles and bindings by the first authorization after
//! a change of them, and not before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use auth::RbacPolicy;
use parking_lot::Mutex;
use serde_json::Value;

use crate::api::Api;
use crate::schemas::refresh;

/// Where roles and bindings are stored.
pub(crate) const TABLES: [&str; 4] =
    ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];

#[derive(Debug)]
pub(crate) struct Rights {
    policy: ArcSwap<RbacPolicy>,
    /// Counts changes of roles and bindings.
    changes: AtomicU64,
    /// The count that `policy` was built at; moves only after the policy is in place.
    built: AtomicU64,
    building: Mutex<()>,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            policy: ArcSwap::from_pointee(RbacPolicy::build([])),
            // The empty policy is out of date from the start.
            changes: AtomicU64::new(1),
            built: AtomicU64::new(0),
            building: Mutex::new(()),
        }
    }
}

/// Called when a role or binding may have changed; costs nothing until the next question.
pub(crate) fn changed(api: &Api) {
    api.rights.changes.fetch_add(1, Ordering::AcqRel);
}

/// The policy with every change that was acknowledged before this call.
pub(crate) fn policy(api: &Api) -> Guard<Arc<RbacPolicy>> {
    let rights = &api.rights;
    let wanted = rights.changes.load(Ordering::Acquire);
    if rights.built.load(Ordering::Acquire) < wanted {
        let _one_at_a_time = rights.building.lock();
        if rights.built.load(Ordering::Acquire) < wanted {
            let now = rights.changes.load(Ordering::Acquire);
            let entries = TABLES.iter().flat_map(|table| refresh::entries(api, table));
            let objects: Vec<Value> = entries.map(|entry| entry.item.to_value()).collect();
            rights.policy.store(Arc::new(RbacPolicy::build(&objects)));
            rights.built.store(now, Ordering::Release);
        }
    }
    rights.policy.load()
}
