//! Giving instances of virtual machines a place: waiting for their storage, choosing a
//! node, handing over to it, and ending what a lost node left behind.
//!
//! After the hand-over the node's agent writes the status; here only the pod that represents
//! the instance is kept in step.

mod claims;
mod event_mapper;
mod failover;
mod hand_over;
mod launcher;
mod ledger;
mod limits;
mod lost_node;
mod node;
mod placement;
mod plan;
mod pod;
pub(crate) mod requests;
mod storage;
mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use base::clock;
use kube::Client;
use serde_json::Value;
use tokio::time::Instant;
use virt::reason::InstanceFailure;
use virt::{ClusterConfig, OverheadRatio};

pub(crate) use self::event_mapper::{VmiKey, WaitingInstances};
use self::ledger::CapacityLedger;
use self::node::NodeState;
use self::placement::SchedulingError;
use self::plan::VmiStage;
use self::storage::{ClaimsSummary, Need, Wait};
use crate::event::{self, EventType, Regarding};
use crate::key::ObjectKey;
use crate::object::{self, is_merged, text};
use crate::reconcile::{ErrorContext, ReconcileError, ReconcileResult, Reconciler};
use crate::resource::{CLAIMS, KUBEVIRTS, NODES, Objects, VMIS, VMS};

pub(crate) use self::launcher::{pod_name, pod_name_after};
pub(crate) use self::plan::VM_FINALIZER;
pub(crate) use self::storage::any_claim_name;
pub(crate) use self::target::TargetFinder;

const SOURCE: &str = "virtualmachine-controller";

pub(crate) struct VmiReconciler {
    objects: Objects,
    waiting: WaitingInstances,
    ledger: CapacityLedger,
    /// Since when nodes are missing that instances are placed on.
    absent: Mutex<BTreeMap<String, Instant>>,
}

impl Reconciler for VmiReconciler {
    type Key = VmiKey;

    async fn reconcile(&self, work: &VmiKey) -> Result<ReconcileResult, ReconcileError> {
        match work {
            VmiKey::Instance(key) => self.instance(key).await,
            VmiKey::Pod(key) => self.deleted_pod(key).await,
            VmiKey::Node(name) => self.node(name).await,
            VmiKey::Recount => {
                let vmis = self.objects.list(VMIS, "", "").await.doing("list instances")?;
                self.ledger.keep_only(&vmis);
                Ok(ReconcileResult::Done)
            }
        }
    }
}

impl VmiReconciler {
    pub(crate) fn new(client: Client, waiting: WaitingInstances) -> Self {
        let absent = Mutex::default();
        Self { objects: Objects(client), waiting, ledger: CapacityLedger::default(), absent }
    }

    async fn instance(&self, key: &ObjectKey) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(VMIS, &key.namespace, &key.name).await;
        let Some(vmi) = found.doing("get the instance")? else {
            self.ledger.remove(key);
            self.waiting.forget(key);
            return Ok(ReconcileResult::Done);
        };
        let stage = plan::stage(&vmi);
        if stage != VmiStage::Unplaced {
            self.ledger.note(&vmi);
            self.waiting.remove_scheduled(key);
        }
        if matches!(stage, VmiStage::Abandoned | VmiStage::Over) {
            self.waiting.forget(key);
        }
        match stage {
            VmiStage::Unplaced => self.place(key, &vmi).await,
            VmiStage::Abandoned => {
                let patch = plan::failed(&vmi, None, clock::now());
                let vmi = self.write(&vmi, &patch).await?;
                self.release(&vmi, NodeState::Known).await
            }
            VmiStage::Placed => self.watch_over(&vmi).await,
            VmiStage::Over => self.conclude(&vmi).await,
        }
    }

    /// Chooses a node, and hands over if there is one.
    async fn place(&self, key: &ObjectKey, vmi: &Value) -> Result<ReconcileResult, ReconcileError> {
        let names = storage::claim_names(&vmi["spec"]);
        let keys: BTreeSet<ObjectKey> =
            names.iter().map(|name| ObjectKey::new(&key.namespace, name)).collect();
        self.waiting.storage.set(key, keys);
        let needs = self.needs(vmi, &names).await?;
        let storage = storage::check_claims(&needs);
        if let Some(failed) = &storage.failed {
            let patch = plan::failed(vmi, Some(InstanceFailure::DataVolume), clock::now());
            self.write(vmi, &patch).await?;
            let message = format!("DataVolume {failed} failed to import disk image");
            self.update_status(vmi, EventType::Warning, "FailedDataVolumeImport", message).await;
            return Ok(ReconcileResult::Done);
        }
        if let Some(wait) = &storage.wait {
            return self.wait(key, vmi, &needs, &storage, wait).await;
        }
        self.waiting.wait_for_resources(key);
        let nodes = self.nodes().await?;
        let vmi = &requests::with_ratio(vmi, self.overhead_ratio().await?);
        match self.ledger.take(vmi, &storage.reach, &nodes) {
            Ok(node) => {
                self.waiting.remove_scheduled(key);
                let result = self.hand_over(vmi, &node, &needs).await;
                match result {
                    Ok(ReconcileResult::Done) => self.ledger.confirm(key),
                    _ => self.ledger.remove(key),
                }
                result
            }
            // Room that another instance holds only until its pod is accepted may be given back.
            Err(_) if self.ledger.has_unconfirmed(key) => Ok(ReconcileResult::Retry),
            Err(error) => self.unschedulable(vmi, &error).await,
        }
    }

    /// Reports what is waited for; a claim that waits for its consumer is assigned the node.
    async fn wait(
        &self,
        key: &ObjectKey,
        vmi: &Value,
        needs: &[Need],
        storage: &ClaimsSummary,
        wait: &Wait,
    ) -> Result<ReconcileResult, ReconcileError> {
        if !storage.unassigned.is_empty() && !matches!(wait, Wait::Missing(_)) {
            self.waiting.wait_for_resources(key);
            let nodes = self.nodes().await?;
            let sized = requests::with_ratio(vmi, self.overhead_ratio().await?);
            let node = match self.ledger.choose(&sized, &storage.reach, &nodes) {
                Ok(node) => node,
                Err(error) => return self.unschedulable(vmi, &error).await,
            };
            self.waiting.remove_scheduled(key);
            for claim in &storage.unassigned {
                let patch = storage::assignment(&node);
                let written = self.objects.merge(CLAIMS, &key.namespace, claim, &patch).await;
                written.doing("name the node of a claim")?;
            }
        }
        let patch = plan::waiting(vmi, needs, wait, clock::now());
        if !is_merged(vmi, &patch) {
            self.write(vmi, &patch).await?;
            if let Wait::Missing(claim) = wait {
                let message = plan::missing_message(vmi, claim);
                self.update_status(vmi, EventType::Normal, "FailedPvcNotFound", message).await;
            }
        }
        Ok(ReconcileResult::Done)
    }

    async fn unschedulable(
        &self,
        vmi: &Value,
        error: &SchedulingError,
    ) -> Result<ReconcileResult, ReconcileError> {
        let reason = error.to_string();
        let patch = plan::unschedulable(vmi, &reason, clock::now());
        if !is_merged(vmi, &patch) {
            self.write(vmi, &patch).await?;
            self.update_status(vmi, EventType::Warning, "FailedScheduling", reason).await;
        }
        Ok(ReconcileResult::Done)
    }

    /// Keeps the pod in step, and ends the instance if its node is certain to be lost.
    async fn watch_over(&self, vmi: &Value) -> Result<ReconcileResult, ReconcileError> {
        let name = text(vmi, "/status/nodeName");
        let node = self.objects.get(NODES, "", name).await.doing("get the node")?;
        match self.check_node(name, node.as_ref()) {
            NodeState::Known => {}
            NodeState::Absent(left) => return Ok(ReconcileResult::Again(left)),
            NodeState::DeclaredLost => return self.fail_over(vmi, name).await,
            NodeState::Lost => return self.give_up(vmi, name).await,
        }
        if let Some(patch) = plan::back_with_its_node(vmi) {
            self.write(vmi, &patch).await?;
        }
        self.reflect(vmi, node.as_ref()).await?;
        self.plug(vmi, name).await?;
        Ok(ReconcileResult::Done)
    }

    /// Claims that are to be plugged in are made where the machine is.
    async fn plug(&self, vmi: &Value, node: &str) -> Result<(), ReconcileError> {
        let names = storage::pluggable_names(vmi);
        let namespace = object::namespace(vmi);
        let keys = names.iter().map(|name| ObjectKey::new(namespace, name)).collect();
        self.waiting.storage.set(&ObjectKey::of(vmi), keys);
        let needs = self.needs(vmi, &names).await?;
        for claim in storage::check_claims(&needs).unassigned {
            let patch = storage::assignment(node);
            let written = self.objects.merge(CLAIMS, namespace, &claim, &patch).await;
            written.doing("name the node of a claim")?;
        }
        Ok(())
    }

    async fn conclude(&self, vmi: &Value) -> Result<ReconcileResult, ReconcileError> {
        let name = text(vmi, "/status/nodeName");
        let mut state = NodeState::Known;
        let mut node = None;
        if !name.is_empty() {
            node = self.objects.get(NODES, "", name).await.doing("get the node")?;
            state = self.check_node(name, node.as_ref());
        }
        self.reflect(vmi, node.as_ref()).await?;
        let next = self.release(vmi, state).await?;
        match state {
            NodeState::Absent(left) if object::is_deleting(vmi) => Ok(ReconcileResult::Again(left)),
            _ => Ok(next),
        }
    }

    /// Drops finalizers that no party is left to remove.
    async fn release(
        &self,
        vmi: &Value,
        state: NodeState,
    ) -> Result<ReconcileResult, ReconcileError> {
        let has_owner = match plan::owner(vmi) {
            Some(uid) => {
                let name = object::name(vmi);
                let found = self.objects.get(VMS, object::namespace(vmi), name).await;
                let found = found.doing("get the virtual machine")?;
                found.is_some_and(|vm| object::uid(&vm) == uid)
            }
            None => false,
        };
        if let Some(patch) = plan::released(vmi, has_owner, state.is_lost()) {
            self.write(vmi, &patch).await?;
        }
        Ok(ReconcileResult::Done)
    }

    /// All nodes; what has a place already is known afterwards.
    async fn nodes(&self) -> Result<Vec<Value>, ReconcileError> {
        if !self.ledger.is_filled() {
            let vmis = self.objects.list(VMIS, "", "").await.doing("list instances")?;
            self.ledger.fill(&vmis);
        }
        self.objects.list(NODES, "", "").await.doing("list nodes")
    }

    /// The ratio that instances are placed with now.
    async fn overhead_ratio(&self) -> Result<OverheadRatio, ReconcileError> {
        let all = self.objects.list(KUBEVIRTS, "", "").await.doing("get the configuration")?;
        let kubevirt = all.first().unwrap_or(&Value::Null);
        Ok(ClusterConfig::new(kubevirt, virt::ARCHITECTURE).overhead_ratio())
    }

    async fn write(&self, vmi: &Value, patch: &Value) -> Result<Value, ReconcileError> {
        let (namespace, name) = (object::namespace(vmi), object::name(vmi));
        self.objects.merge(VMIS, namespace, name, patch).await.doing("write the instance")
    }

    async fn update_status(&self, vmi: &Value, tone: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "kubevirt.io/v1",
            kind: "VirtualMachineInstance",
            namespace: object::namespace(vmi),
            name: object::name(vmi),
            uid: object::uid(vmi),
        };
        event::record(&self.objects.0, SOURCE, &regarding, tone, reason, message).await;
    }
}

#[cfg(test)]
mod tests;
pub(crate) mod what_if;
