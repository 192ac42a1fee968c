//! Whether the node of an instance is certain to be lost.

use std::sync::PoisonError;
use std::time::Duration;

use hci::failover::{LOST, OUT_OF_SERVICE};
use serde_json::Value;
use tokio::time::Instant;

use super::VmiReconciler;
use crate::object::{list, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::resource::NODES;

/// How long a node may be absent before it is certain that it does not come back: an agent
/// that lives registers its node again within seconds.
const ABSENCE: Duration = Duration::from_secs(40);

/// The state of the node of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    Known,
    /// Gone for less than is certain.
    Absent(Duration),
    /// No observer reaches it; its guests may run on.
    DeclaredLost,
    /// It runs nothing any more.
    Lost,
}

impl NodeState {
    /// No agent is left that would clean up.
    pub(super) fn is_lost(self) -> bool {
        matches!(self, Self::DeclaredLost | Self::Lost)
    }
}

/// Whether the controller of nodes has declared a node lost.
pub(super) fn is_declared_lost(node: &Value) -> bool {
    has_taint(node, LOST)
}

fn has_taint(node: &Value, key: &str) -> bool {
    list(node, "/spec/taints").iter().any(|taint| text(taint, "/key") == key)
}

impl VmiReconciler {
    /// A node that has changed or gone.
    pub(super) async fn node(&self, name: &str) -> Result<ReconcileResult, ReconcileError> {
        let tenants = self.ledger.on_node(name);
        if tenants.is_empty() {
            return Ok(ReconcileResult::Done);
        }
        let node = self.objects.get(NODES, "", name).await.doing("get the node")?;
        match self.check_node(name, node.as_ref()) {
            NodeState::Known => Ok(ReconcileResult::Done),
            NodeState::Absent(left) => Ok(ReconcileResult::Again(left)),
            NodeState::DeclaredLost | NodeState::Lost => {
                for key in tenants {
                    self.instance(&key).await?;
                }
                Ok(ReconcileResult::Done)
            }
        }
    }

    pub(super) fn check_node(&self, name: &str, node: Option<&Value>) -> NodeState {
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        match node {
            Some(node) => {
                absent.remove(name);
                // Its administrator says that it runs nothing any more.
                if has_taint(node, OUT_OF_SERVICE) {
                    NodeState::Lost
                } else if is_declared_lost(node) {
                    NodeState::DeclaredLost
                } else {
                    NodeState::Known
                }
            }
            None => {
                let since = *absent.entry(name.to_owned()).or_insert_with(Instant::now);
                match ABSENCE.checked_sub(since.elapsed()) {
                    Some(left) if !left.is_zero() => NodeState::Absent(left),
                    _ => NodeState::Lost,
                }
            }
        }
    }
}
