//! Longhorn's nodes whose Kubernetes node is gone: their condition says so, and they may then be
//! deleted. The agent of an existing node writes its status.

use std::sync::Arc;

use base::clock;
use hci::longhorn::NAMESPACE;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::STORAGE_NODES;
use crate::condition::{self, Condition};
use crate::object::{is_merged, name};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::resource::{NODES, Objects, is_refused};

/// Nodes of both kinds have the same name.
#[derive(Debug, Default)]
pub(crate) struct Nodes;

impl EventMapper for Nodes {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        match touch {
            ObjectChange::Object { kind, name, state, .. }
                if NODES.is(kind) && *state == ObjectState::Gone
                    || STORAGE_NODES.is(kind) && *state == ObjectState::Live =>
            {
                vec![Arc::clone(name)]
            }
            _ => Vec::new(),
        }
    }
}

pub(crate) struct ConditionReconciler(Objects);

impl ConditionReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self(Objects(client))
    }
}

impl Reconciler for ConditionReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let found = self.0.get(STORAGE_NODES, NAMESPACE, name).await.doing("get the node")?;
        let Some(node) = found else { return Ok(ReconcileResult::Done) };
        let owner = self.0.get(NODES, "", name).await.doing("get the Kubernetes node")?;
        if owner.is_some() {
            return Ok(ReconcileResult::Done);
        }
        let patch = gone(&node, clock::now());
        if is_merged(&node, &patch) {
            return Ok(ReconcileResult::Done);
        }
        match self.0.merge_status(STORAGE_NODES, NAMESPACE, name, &patch).await {
            Err(failure) if is_refused(&failure, 404) => Ok(ReconcileResult::Done),
            written => written.map(|_| ReconcileResult::Done).doing("mark a node that is gone"),
        }
    }
}

fn gone(node: &Value, now: Timestamp) -> Value {
    let message =
        format!("Kubernetes node missing: node {} has been removed from the cluster", name(node));
    let wanted = Condition::new("Ready", "False").because("KubernetesNodeGone", message);
    let mut conditions = condition::of(node);
    condition::set(&mut conditions, &wanted, now);
    json!({"status": {"conditions": conditions}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[tokio::test]
    async fn a_storage_node_is_not_ready_once_its_kubernetes_node_is_gone() {
        let fake = Fake::new();
        fake.create("/namespaces", "", json!({"metadata": {"name": NAMESPACE}}));
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        fake.create("/nodes", "", json!({"metadata": {"name": "one"}}));
        let node = json!({"metadata": {"name": "one"}, "status": ready});
        fake.create("longhorn.io/nodes", NAMESPACE, node);
        let reconciler = ConditionReconciler::new(fake.client());
        let conditions = || fake.get("longhorn.io/nodes", NAMESPACE, "one").unwrap();
        reconciler.reconcile(&"one".into()).await.unwrap();
        assert!(condition::is(&conditions(), "Ready", "True"));
        fake.delete("/nodes", "", "one", "Background");
        reconciler.reconcile(&"one".into()).await.unwrap();
        let node = conditions();
        assert_eq!(node["status"]["conditions"][0]["reason"], "KubernetesNodeGone");
        assert!(condition::is(&node, "Ready", "False"));
    }
}
