//! A node that a running instance can migrate to: any but its own that the scheduler would choose.

use kube::Client;
use serde_json::{Value, json};
use virt::api::atom::Map;

use super::ledger::CapacityLedger;
use super::{VmiReconciler, WaitingInstances, storage};
use crate::object::{self, text};
use crate::reconcile::{ErrorContext, ReconcileError};
use crate::resource::{NODES, VMIS};

/// Looks for targets of migrations.
pub(crate) struct TargetFinder(VmiReconciler);

impl TargetFinder {
    pub(crate) fn new(client: Client) -> Self {
        Self(VmiReconciler::new(client, WaitingInstances::default()))
    }

    /// The best node, or in the scheduler's words why there is none.
    pub(crate) async fn find(
        &self,
        vmi: &Value,
        added_selector: &Map<String>,
    ) -> Result<Result<String, String>, ReconcileError> {
        let objects = &self.0.objects;
        let names = storage::claim_names(&vmi["spec"]);
        let needs = self.0.needs(vmi, &names).await?;
        let reach = storage::check_claims(&needs).reach;
        let ledger = CapacityLedger::default();
        ledger.fill(&objects.list(VMIS, "", "").await.doing("list instances")?);
        let mut nodes = objects.list(NODES, "", "").await.doing("list nodes")?;
        let source = text(vmi, "/status/nodeName");
        nodes.retain(|node| object::name(node) != source);
        Ok(ledger.look(&narrowed(vmi, added_selector), &reach, &nodes))
    }
}

/// The instance with the labels that its new node must have besides its own.
fn narrowed(vmi: &Value, added: &Map<String>) -> Value {
    let mut vmi = vmi.clone();
    for (key, value) in added.iter() {
        vmi["spec"]["nodeSelector"][key] = json!(value);
    }
    vmi
}
