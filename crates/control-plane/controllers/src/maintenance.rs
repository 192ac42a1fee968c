//! Maintenance of nodes: cordons a node, has its machines leave or shuts them down, and reports
//! how far that is in the node's condition `MaintenanceMode`.
//!
//! Requests are Harvester's annotations of the Node. Machines leave by eviction, as with
//! `kubectl drain`, so that their eviction strategy decides and the migration controller queues
//! them. Storage is not touched: replicas of the node catch up when it is back.

mod plan;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::clock;
use hci::longhorn::NAMESPACE;
use hci::maintenance::{
    AffectedMachine, ClusterObjects, MaintenanceRefusal, MigrationBlocker, check_machines,
    check_node, survey,
};
use kube::Client;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use tracing::{info, warn};

use self::plan::{DrainPlan, MaintenancePhase, PowerChange};
use crate::condition::Condition;
use crate::event::{self, EventType, Regarding};
use crate::longhorn::{ENGINES, REPLICAS};
use crate::object::{self, annotation};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ObjectState, ReconcileError, ReconcileResult,
    Reconciler,
};
use crate::record::instance::{InstanceFields, InstanceStatus};
use crate::resource::{NODES, Objects, PODS, Resource, VMIS, VMS, VOLUMES, is_refused};
use crate::vmi::{TargetFinder, pod_name};

const SWITCHES: Resource = Resource::new("subresources.kubevirt.io", "v1", "virtualmachines");
const SOURCE: &str = "maintenance-controller";
/// How often a node is checked while machines leave it: a refused eviction brings no change.
const DRAIN_INTERVAL: Duration = Duration::from_secs(5);

/// Nodes, and those of them in maintenance when a machine changes. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct MaintainedNodes(Arc<Mutex<BTreeSet<Arc<str>>>>);

impl MaintainedNodes {
    fn set(&self, node: &str, is_maintained: bool) {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_maintained {
            nodes.insert(node.into());
        } else {
            nodes.remove(node);
        }
    }
}

impl EventMapper for MaintainedNodes {
    type Key = Arc<str>;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Arc<str>> {
        let ObjectChange::Object { kind, name, state, .. } = touch else { return Vec::new() };
        if NODES.is(kind) {
            if *state == ObjectState::Gone {
                self.set(name, false);
            }
            return vec![Arc::clone(name)];
        }
        if VMIS.is(kind) || VMS.is(kind) {
            let nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            return nodes.iter().cloned().collect();
        }
        Vec::new()
    }
}

pub(crate) struct MaintenanceReconciler {
    objects: Objects,
    nodes: MaintainedNodes,
    targets: TargetFinder,
}

impl Reconciler for MaintenanceReconciler {
    type Key = Arc<str>;

    async fn reconcile(&self, name: &Arc<str>) -> Result<ReconcileResult, ReconcileError> {
        let found = self.objects.get(NODES, "", name).await.doing("get the node")?;
        let Some(node) = found.filter(|node| !object::is_deleting(node)) else {
            self.nodes.set(name, false);
            return Ok(ReconcileResult::Done);
        };
        let phase = MaintenancePhase::of(&node);
        self.nodes.set(name, !matches!(phase, MaintenancePhase::Off | MaintenancePhase::Ended));
        match phase {
            MaintenancePhase::Off => Ok(ReconcileResult::Done),
            MaintenancePhase::Requested => self.begin(&node).await,
            MaintenancePhase::Running => self.drain(&node).await,
            MaintenancePhase::Completed => self.keep_empty(&node).await,
            MaintenancePhase::Ended => self.end(&node).await,
        }
    }
}

impl MaintenanceReconciler {
    pub(crate) fn new(client: Client, nodes: MaintainedNodes) -> Self {
        let targets = TargetFinder::new(client.clone());
        Self { objects: Objects(client), nodes, targets }
    }

    async fn survey(&self, node: &str) -> Result<Vec<AffectedMachine>, ReconcileError> {
        let list = |resource, namespace| self.objects.list(resource, namespace, "");
        let nodes = list(NODES, "").await.doing("list nodes")?;
        let instances = list(VMIS, "").await.doing("list instances")?;
        let machines = list(VMS, "").await.doing("list machines")?;
        let volumes = list(VOLUMES, "").await.doing("list volumes")?;
        let engines = list(ENGINES, NAMESPACE).await.doing("list engines")?;
        let replicas = list(REPLICAS, NAMESPACE).await.doing("list replicas")?;
        let objects = ClusterObjects {
            nodes: &nodes,
            instances: &instances,
            machines: &machines,
            volumes: &volumes,
            engines: &engines,
            replicas: &replicas,
        };
        Ok(survey(node, &objects))
    }

    /// Refuses the request, or cordons the node.
    async fn begin(&self, node: &Value) -> Result<ReconcileResult, ReconcileError> {
        if let Err(refusal) = self.check(node).await? {
            warn!(node = object::name(node), %refusal, "maintenance refused");
            self.report(node, &plan::refused(&refusal)).await?;
            self.record_event(node, EventType::Warning, "MaintenanceRefused", refusal.to_string())
                .await;
            self.patch(node, &plan::refuse()).await?;
            return Ok(ReconcileResult::Done);
        }
        info!(node = object::name(node), forced = plan::is_forced(node), "maintenance begins");
        let node = self.patch(node, &plan::begin()).await?;
        let message = "node is cordoned, its machines leave".to_owned();
        self.record_event(&node, EventType::Normal, "MaintenanceStarted", message).await;
        self.drain(&node).await
    }

    async fn check(&self, node: &Value) -> Result<Result<(), MaintenanceRefusal>, ReconcileError> {
        let name = object::name(node);
        let nodes = self.objects.list(NODES, "", "").await.doing("list nodes")?;
        if let Err(refusal) = check_node(name, &nodes) {
            return Ok(Err(refusal));
        }
        if plan::is_forced(node) {
            return Ok(Ok(()));
        }
        let mut machines = self.survey(name).await?;
        for machine in &mut machines {
            if machine.is_here && machine.obstacle.is_none() && !self.has_target(machine).await? {
                machine.obstacle = Some(MigrationBlocker::NoNode);
            }
        }
        Ok(check_machines(&machines))
    }

    /// Whether the scheduler would find another node.
    async fn has_target(&self, machine: &AffectedMachine) -> Result<bool, ReconcileError> {
        let vmi = self.objects.get(VMIS, &machine.namespace, &machine.name).await;
        let Some(vmi) = vmi.doing("get the instance")? else { return Ok(true) };
        Ok(self.targets.find(&vmi, &Default::default()).await?.is_ok())
    }

    async fn drain(&self, node: &Value) -> Result<ReconcileResult, ReconcileError> {
        let name = object::name(node);
        let machines = self.survey(name).await?;
        let work = DrainPlan::of(&machines, plan::is_forced(node));
        for machine in &work.evict {
            self.evict(name, machine).await?;
        }
        for machine in &work.shut_down {
            self.shut_down(name, machine).await?;
        }
        self.start_machines(name, MaintenancePhase::Running).await?;
        self.report(node, &work.condition(plan::since(node), clock::now())).await?;
        if !work.is_done() {
            return Ok(ReconcileResult::Again(DRAIN_INTERVAL));
        }
        info!(node = name, "maintenance: no machine is left on the node");
        let message = "no machine is left on the node".to_owned();
        self.record_event(node, EventType::Normal, "MaintenanceCompleted", message).await;
        self.patch(node, &plan::complete()).await?;
        Ok(ReconcileResult::Done)
    }

    /// Machines that are down by now may have to be started elsewhere.
    async fn keep_empty(&self, node: &Value) -> Result<ReconcileResult, ReconcileError> {
        self.start_machines(object::name(node), MaintenancePhase::Completed).await?;
        Ok(ReconcileResult::Done)
    }

    /// Machines that have not left stay, and those that were shut down for the time are started.
    async fn end(&self, node: &Value) -> Result<ReconcileResult, ReconcileError> {
        let name = object::name(node);
        let instances = self.objects.list(VMIS, "", "").await.doing("list instances")?;
        for vmi in instances.iter().filter(|vmi| status(vmi).evacuation_node_name == name) {
            let patch = json!({"metadata": object::version(vmi),
                "status": {"evacuationNodeName": null}});
            let (namespace, own) = (object::namespace(vmi), object::name(vmi));
            let written = self.objects.merge(VMIS, namespace, own, &patch).await;
            written.doing("unmark an instance")?;
        }
        self.start_machines(name, MaintenancePhase::Ended).await?;
        self.report(node, &plan::ended()).await?;
        self.record_event(
            node,
            EventType::Normal,
            "MaintenanceDisabled",
            "node is back in use".into(),
        )
        .await;
        Ok(ReconcileResult::Done)
    }

    /// Evicts the launcher pod of a machine, once.
    async fn evict(&self, node: &str, machine: &AffectedMachine) -> Result<(), ReconcileError> {
        let (namespace, name) = (&machine.namespace, &machine.name);
        let vmi = self.objects.get(VMIS, namespace, name).await.doing("get the instance")?;
        let Some(vmi) = vmi else { return Ok(()) };
        let status = status(&vmi);
        let is_marked = status.evacuation_node_name == node
            || annotation(&vmi, virt::eviction::SHUT_DOWN_BY).is_some();
        if is_marked || status.node_name != node {
            return Ok(());
        }
        let pod = pod_name(&vmi);
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": pod}});
        let body = serde_json::to_vec(&eviction).map_err(kube::Error::SerdeError);
        let body = body.doing("write an eviction")?;
        let request = Request::new(PODS.path(namespace))
            .create_subresource("eviction", &pod, &PostParams::default(), body)
            .map_err(kube::Error::BuildRequest)
            .doing("evict a machine")?;
        match self.objects.0.request_text(request).await {
            // 429: the guest is being migrated, or cannot be evicted now. No pod yet: again later.
            Err(refusal) if is_refused(&refusal, 429) || is_refused(&refusal, 404) => Ok(()),
            sent => sent.map(drop).doing("evict a machine"),
        }
    }

    async fn shut_down(&self, node: &str, machine: &AffectedMachine) -> Result<(), ReconcileError> {
        let (namespace, name) = (&*machine.namespace, &*machine.name);
        let found = self.objects.get(VMS, namespace, name).await.doing("get the machine")?;
        if let Some(found) = found {
            return self.switch(&found, plan::stop(&found, node)).await;
        }
        let vmi = self.objects.get(VMIS, namespace, name).await.doing("get the instance")?;
        let Some(vmi) = vmi.filter(|vmi| !object::is_deleting(vmi)) else { return Ok(()) };
        let deleted = self.objects.delete(VMIS, namespace, name, object::uid(&vmi)).await;
        deleted.doing("delete an instance")
    }

    /// Starts machines that were shut down for maintenance of the node.
    async fn start_machines(
        &self,
        node: &str,
        phase: MaintenancePhase,
    ) -> Result<(), ReconcileError> {
        let machines = self.objects.list(VMS, "", "").await.doing("list machines")?;
        for machine in machines.iter().filter(|own| plan::is_start_due(own, node, phase)) {
            self.switch(machine, plan::start(machine)).await?;
        }
        Ok(())
    }

    async fn switch(&self, machine: &Value, change: PowerChange) -> Result<(), ReconcileError> {
        let (namespace, name) = (object::namespace(machine), object::name(machine));
        let (patch, act) = match change {
            PowerChange::Nothing => return Ok(()),
            PowerChange::Patch(patch) => (patch, None),
            PowerChange::Act(act, patch) => (patch, Some(act)),
        };
        self.objects.merge(VMS, namespace, name, &patch).await.doing("write the machine")?;
        let Some(act) = act else { return Ok(()) };
        match self.objects.act(SWITCHES, namespace, name, act, &json!({})).await {
            // It is in that state already, or on its way.
            Err(refusal) if is_refused(&refusal, 409) => Ok(()),
            done => done.doing("switch the machine"),
        }
    }

    async fn patch(&self, node: &Value, patch: &Value) -> Result<Value, ReconcileError> {
        self.objects.merge(NODES, "", object::name(node), patch).await.doing("write the node")
    }

    async fn report(&self, node: &Value, wanted: &Condition) -> Result<(), ReconcileError> {
        // The version in hand may be older than what was written a moment ago.
        let name = object::name(node);
        let found = self.objects.get(NODES, "", name).await.doing("get the node")?;
        let patch = found.and_then(|node| plan::report(&node, wanted, clock::now()));
        let Some(patch) = patch else { return Ok(()) };
        let written = self.objects.merge_status(NODES, "", name, &patch).await;
        written.map(drop).doing("write the status of the node")
    }

    async fn record_event(&self, node: &Value, kind: EventType, reason: &str, message: String) {
        let regarding = Regarding {
            api_version: "v1",
            kind: "Node",
            namespace: "",
            name: object::name(node),
            uid: object::uid(node),
        };
        event::record(&self.objects.0, SOURCE, &regarding, kind, reason, message).await;
    }
}

fn status(vmi: &Value) -> InstanceStatus<'_> {
    object::read::<InstanceFields<'_>>(vmi).status
}
