//! Disks and nodes that are to be emptied: their replicas are marked, and `volume` builds
//! copies elsewhere before it releases them.

use std::sync::Arc;

use hci::longhorn::NAMESPACE;
use kube::Client;
use serde_json::{Value, json};

use super::record::{ReplicaFields, StorageNodeFields};
use super::{REPLICAS, STORAGE_NODES};
use crate::object::{self, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::Objects;

/// Every node with disks that changes.
#[derive(Debug, Default)]
pub(crate) struct Nodes;

impl EventMapper for Nodes {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, state: ObjectState::Live, .. }
                if STORAGE_NODES.is(kind) =>
            {
                vec![Arc::clone(name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct EvictionReconciler(Objects);

impl EvictionReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for EvictionReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(STORAGE_NODES, NAMESPACE, name).await.doing("get the node")?;
        let Some(node) = found else { return Ok(ReconcileResult::Done) };
        let labels = format!("longhornnode={name}");
        let replicas = self.0.list(REPLICAS, NAMESPACE, &labels).await;
        for (replica, leaves) in wrong(&node, &replicas.doing("list the replicas of a node")?) {
            let patch = json!({"spec": {"evictionRequested": leaves}});
            let written = self.0.merge(REPLICAS, NAMESPACE, replica, &patch).await;
            written.doing("mark a replica")?;
        }
        Ok(ReconcileResult::Done)
    }
}

/// Replicas that are marked otherwise than their node and disk say, with what is right.
fn wrong<'a>(node: &Value, replicas: &'a [Value]) -> Vec<(&'a str, bool)> {
    let StorageNodeFields { spec, status } = read(node);
    let emptied: Vec<&str> = status
        .disk_status
        .iter()
        .filter(|(disk, _)| spec.disks.get(*disk).is_some_and(|own| own.eviction_requested))
        .map(|(_, status)| status.uuid)
        .collect();
    let wrong = |own: &'a Value| {
        let replica = read::<ReplicaFields<'_>>(own).spec;
        let leaves = spec.eviction_requested || emptied.contains(&replica.disk_id);
        (replica.eviction_requested != leaves).then(|| (object::name(own), leaves))
    };
    replicas.iter().filter_map(wrong).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_leave_with_their_disk_or_their_node_and_stay_if_that_is_taken_back() {
        let node = |all: bool, disk: bool| {
            json!({
                "spec": {"evictionRequested": all, "disks": {"a": {"evictionRequested": disk}}},
                "status": {"diskStatus": {"a": {"diskUUID": "da"}, "b": {"diskUUID": "db"}}},
            })
        };
        let replica = |name: &str, disk: &str, leaves: bool| {
            json!({"metadata": {"name": name},
                "spec": {"diskID": disk, "evictionRequested": leaves}})
        };
        let replicas = [replica("r1", "da", false), replica("r2", "db", true)];
        assert_eq!(wrong(&node(false, true), &replicas), [("r1", true), ("r2", false)]);
        assert_eq!(wrong(&node(true, false), &replicas), [("r1", true)]);
        assert_eq!(wrong(&node(false, false), &replicas), [("r2", false)]);
    }
}
