//! Instances of a node that was declared lost: ended, so that they are started elsewhere, or left
//! with their node.

use std::collections::BTreeSet;
use std::time::Duration;

use base::clock;
use hci::longhorn::{NAMESPACE, VOLUME_LABEL};
use serde_json::Value;
use virt::reason::InstanceFailure;

use super::VmiReconciler;
use super::failover::{self, DiskCopies, FailoverDecision, FailoverInput};
use super::node::{NodeState, is_declared_lost};
use super::plan;
use super::storage::need_names;
use crate::condition;
use crate::event::EventType;
use crate::longhorn::{ENGINES, REPLICAS, engine_name};
use crate::object::{self, is_deleting, name, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult};
use crate::resource::{CLAIMS, NODES, VMS};

/// How often an instance that stays is checked: its copies may come back.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

impl VmiReconciler {
    /// Decides about an instance whose node was declared lost.
    pub(super) async fn fail_over(
        &self,
        vmi: &Value,
        node: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        if is_deleting(vmi) {
            return self.give_up(vmi, node).await;
        }
        match self.failover_decision(vmi, node).await? {
            FailoverDecision::Restart => self.give_up(vmi, node).await,
            FailoverDecision::Stay(reason, message) => {
                if let Some(patch) = plan::stays(vmi, node, reason, &message, clock::now()) {
                    self.write(vmi, &patch).await?;
                    let message = format!("not started elsewhere: {message}");
                    self.update_status(vmi, EventType::Warning, reason.as_str(), message).await;
                }
                Ok(ReconcileResult::Again(RECHECK_INTERVAL))
            }
        }
    }

    /// Ends an instance whose node is lost.
    pub(super) async fn give_up(
        &self,
        vmi: &Value,
        node: &str,
    ) -> Result<ReconcileResult, ReconcileError> {
        let patch = plan::failed(vmi, Some(InstanceFailure::NodeLost), clock::now());
        let vmi = self.write(vmi, &patch).await?;
        let message = format!("node {node} is lost and the guest with it");
        self.update_status(&vmi, EventType::Warning, "NodeLost", message).await;
        self.release(&vmi, NodeState::Lost).await
    }

    async fn failover_decision(
        &self,
        vmi: &Value,
        node: &str,
    ) -> Result<FailoverDecision, ReconcileError> {
        let machine = match plan::owner(vmi) {
            Some(_) => {
                let found = self.objects.get(VMS, object::namespace(vmi), name(vmi)).await;
                found.doing("get the virtual machine")?
            }
            None => None,
        };
        let mut disks: Vec<DiskCopies> = failover::host_disks(vmi)
            .map(|name| DiskCopies::Local { name: name.to_owned() })
            .collect();
        for claim in need_names(&vmi["spec"]) {
            disks.push(self.disk_copies(object::namespace(vmi), claim).await?);
        }
        let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
        let is_alive = |own: &&Value| condition::is(own, "Ready", "True") && !is_declared_lost(own);
        let alive = nodes.iter().filter(is_alive).map(|own| name(own).to_owned()).collect();
        Ok(failover::decide(&FailoverInput {
            vmi,
            machine: machine.as_ref(),
            disks: &disks,
            alive: &alive,
            node,
        }))
    }

    /// Where the data of a claim is.
    async fn disk_copies(&self, space: &str, claim: &str) -> Result<DiskCopies, ReconcileError> {
        let disk = claim.to_owned();
        let claim = self.objects.get(CLAIMS, space, claim).await.doing("get a claim")?;
        let volume = self.objects.volume_of(claim.as_ref()).await.doing("get a volume")?;
        let handle = volume
            .as_ref()
            .filter(|own| text(own, "/spec/csi/driver") == hci::DRIVER)
            .map(|own| text(own, "/spec/csi/volumeHandle"));
        match handle {
            Some(handle) => {
                let nodes = self.up_to_date_nodes(handle).await?;
                Ok(DiskCopies::Replicated { name: disk, nodes })
            }
            None => Ok(DiskCopies::Local { name: disk }),
        }
    }

    /// The nodes that have every acknowledged write of a replicated volume.
    pub(super) async fn up_to_date_nodes(
        &self,
        volume: &str,
    ) -> Result<BTreeSet<String>, ReconcileError> {
        let engine = self.objects.get(ENGINES, NAMESPACE, &engine_name(volume)).await;
        let engine = engine.doing("get the engine of a volume")?;
        let label = format!("{VOLUME_LABEL}={volume}");
        let replicas = self.objects.list(REPLICAS, NAMESPACE, &label).await;
        let replicas = replicas.doing("list the replicas of a volume")?;
        Ok(failover::nodes_in_sync(engine.as_ref(), &replicas))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plugged_disks_count_and_memory_dumps_do_not() {
        let spec = json!({"volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "a", "hotpluggable": true}},
            {"name": "b", "dataVolume": {"name": "b"}},
            {"name": "m", "memoryDump": {"claimName": "m"}},
        ]});
        assert_eq!(need_names(&spec), ["a", "b"]);
    }
}
