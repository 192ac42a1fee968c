//! Maintenance of a node: whether it may begin, and what becomes of each machine. Pure; shared by
//! the controller that carries it out and by the REST API and the command line, which ask first.
//!
//! Annotations and texts are Harvester's.

mod survey;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::cluster::{CONTROL_PLANE, is_witness};
use crate::failover::LOST;

pub use survey::{ClusterObjects, survey};

/// Annotation of a Node that requests maintenance: `true`.
pub const DRAIN_REQUESTED: &str = "harvesterhci.io/drain-requested";
/// Annotation of a Node: `true` has maintenance shut down the machines that cannot be migrated.
pub const DRAIN_FORCED: &str = "harvesterhci.io/drain-forced";
/// Annotation of a Node with the progress of its maintenance: [`RUNNING`] or [`COMPLETED`].
pub const MAINTAIN_STATUS: &str = "harvesterhci.io/maintain-status";
pub const RUNNING: &str = "running";
pub const COMPLETED: &str = "completed";
/// Label of a machine that selects a [`MaintainStrategy`].
pub const STRATEGY: &str = "harvesterhci.io/maintain-mode-strategy";
/// Annotation of a machine that maintenance shut down and that is to be started again: its node.
pub const STRATEGY_NODE: &str = "harvesterhci.io/maintain-mode-strategy-node-name";
/// Condition of a node that is or was in maintenance.
pub const CONDITION: &str = "MaintenanceMode";

const LAST_COPY: &str = "LastHealthyReplica";
const NO_NODE: &str = "NodeSchedulingRequirementsNotMet";

/// The action that a machine asks for by the label [`STRATEGY`] when its node is maintained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaintainStrategy {
    Migrate,
    Shutdown,
    /// It is started on another node as soon as it is down.
    ShutdownAndRestartAfterEnable,
    /// It is started when maintenance ends.
    ShutdownAndRestartAfterDisable,
}

impl MaintainStrategy {
    /// Reads the label; machines without it migrate.
    pub fn of(machine: &Value) -> Self {
        match machine["metadata"]["labels"][STRATEGY].as_str() {
            Some("Shutdown") => Self::Shutdown,
            Some("ShutdownAndRestartAfterEnable") => Self::ShutdownAndRestartAfterEnable,
            Some("ShutdownAndRestartAfterDisable") => Self::ShutdownAndRestartAfterDisable,
            _ => Self::Migrate,
        }
    }

    pub fn is_restarted(self) -> bool {
        matches!(self, Self::ShutdownAndRestartAfterEnable | Self::ShutdownAndRestartAfterDisable)
    }
}

/// Why a machine cannot leave by migration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MigrationBlocker {
    /// It is not live-migratable, for this reason of its condition.
    NotMigratable(String),
    /// The only up-to-date copy of one of its volumes is on the node.
    LastHealthyReplica,
    /// No other node has the labels that it asks for, or room.
    NoNode,
}

impl MigrationBlocker {
    pub fn reason(&self) -> &str {
        match self {
            Self::NotMigratable(reason) => reason,
            Self::LastHealthyReplica => LAST_COPY,
            Self::NoNode => NO_NODE,
        }
    }
}

/// A machine that maintenance of a node concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffectedMachine {
    pub namespace: String,
    pub name: String,
    /// Whether it runs on the node; otherwise only its data is there.
    pub is_here: bool,
    pub strategy: MaintainStrategy,
    pub obstacle: Option<MigrationBlocker>,
}

/// The action that maintenance takes on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaintenanceAction {
    /// It is evicted: migrated, or shut down if its eviction strategy says so.
    Evict,
    ShutDown,
    Blocked(MigrationBlocker),
}

impl AffectedMachine {
    pub fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub fn fate(&self, is_forced: bool) -> MaintenanceAction {
        match (&self.obstacle, self.strategy) {
            (_, strategy) if self.is_here && strategy != MaintainStrategy::Migrate => {
                MaintenanceAction::ShutDown
            }
            (None, _) => MaintenanceAction::Evict,
            (Some(_), _) if is_forced => MaintenanceAction::ShutDown,
            (Some(obstacle), _) => MaintenanceAction::Blocked(obstacle.clone()),
        }
    }
}

/// Why a node cannot be put into maintenance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MaintenanceRefusal {
    #[error(
        "draining of this node is not possible: single controlplane cluster, cannot place \
         controlplane in maintenance mode"
    )]
    SingleControlPlane,
    #[error(
        "draining of this node is not possible: another controlplane is already in maintenance \
         mode, cannot place current node in maintenance mode"
    )]
    OtherControlPlane,
    #[error(
        "the node is a witness, which runs no machines: there is nothing to move away. Stop Sheaf \
         on it whenever all management nodes are up"
    )]
    Witness,
    #[error("can't enable maintenance mode or cordon on the last available node")]
    LastNode,
    #[error(
        "enabling maintenance mode is impossible. Non-migratable VMs found: {}. Use 'force drain' \
         to perform a collective shutdown",
        described(.0)
    )]
    Blocked(Vec<(String, MigrationBlocker)>),
}

fn described(blocked: &[(String, MigrationBlocker)]) -> String {
    let one = |(machine, obstacle): &(String, MigrationBlocker)| {
        format!("{machine} cannot be migrated due to {}", obstacle.reason())
    };
    blocked.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Whether the cluster can spare a node.
pub fn check_node(node: &str, nodes: &[Value]) -> Result<(), MaintenanceRefusal> {
    let is_own = |own: &&Value| own["metadata"]["name"] == node;
    let manages = |own: &&Value| own["metadata"]["labels"].get(CONTROL_PLANE).is_some();
    if nodes.iter().filter(is_own).any(is_witness) {
        return Err(MaintenanceRefusal::Witness);
    }
    if nodes.iter().filter(manages).any(|own| is_own(&own)) {
        let all = nodes.iter().filter(manages).count();
        if all == 1 {
            return Err(MaintenanceRefusal::SingleControlPlane);
        }
        let others = nodes.iter().filter(manages).filter(|own| !is_own(own));
        let left = others.filter(|own| is_available(own)).count();
        // A witness votes with those that are left.
        let mut witnesses = nodes.iter().filter(|own| is_witness(own)).take(1);
        let voters = all + witnesses.clone().count();
        let left = left + usize::from(witnesses.any(is_ready));
        if left < voters / 2 + 1 {
            return Err(MaintenanceRefusal::OtherControlPlane);
        }
    }
    let mut others = nodes.iter().filter(|own| !is_own(own));
    if others.any(is_available) { Ok(()) } else { Err(MaintenanceRefusal::LastNode) }
}

/// Whether machines can be started on a node.
pub fn is_available(node: &Value) -> bool {
    let annotations = &node["metadata"]["annotations"];
    is_ready(node)
        && !is_witness(node)
        && node["spec"]["unschedulable"] != true
        && !annotations[LOST].is_string()
        && !annotations[MAINTAIN_STATUS].is_string()
}

fn is_ready(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|own| own["type"] == "Ready" && own["status"] == "True")
}

/// Refuses maintenance that would not end by itself.
pub fn check_machines(machines: &[AffectedMachine]) -> Result<(), MaintenanceRefusal> {
    let blocked = |machine: &AffectedMachine| match machine.fate(false) {
        MaintenanceAction::Blocked(obstacle) => Some((machine.id(), obstacle)),
        MaintenanceAction::Evict | MaintenanceAction::ShutDown => None,
    };
    let blocked: Vec<_> = machines.iter().filter_map(blocked).collect();
    if blocked.is_empty() { Ok(()) } else { Err(MaintenanceRefusal::Blocked(blocked)) }
}

/// Machines that maintenance would have to shut down, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnhealthyMachines {
    pub message: String,
    pub vms: Vec<String>,
}

/// The answer to Harvester's action `listUnhealthyVM`.
pub fn unhealthy(machines: &[AffectedMachine]) -> Vec<UnhealthyMachines> {
    let mut groups = BTreeMap::<&str, Vec<String>>::new();
    for machine in machines {
        if let Some(obstacle) = &machine.obstacle {
            groups.entry(obstacle.reason()).or_default().push(machine.id());
        }
    }
    let group = |(reason, vms): (&str, Vec<String>)| UnhealthyMachines {
        message: format!("The following VMs cannot be migrated due to {reason} condition"),
        vms,
    };
    groups.into_iter().map(group).collect()
}

/// Preview of the maintenance of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MaintenancePreview {
    /// Why the node itself cannot be put into maintenance, forced or not.
    pub refusal: Option<String>,
    pub machines: Vec<PreviewedMachine>,
}

/// The action on one machine, without and with force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PreviewedMachine {
    pub namespace: String,
    pub name: String,
    /// `Migrate`, `ShutDown` or `Blocked`.
    pub action: &'static str,
    /// The action if maintenance is forced.
    pub forced: &'static str,
    /// Why it cannot be migrated; `Label` if its label asks for a shutdown.
    pub reason: Option<String>,
}

impl PreviewedMachine {
    fn of(machine: &AffectedMachine) -> Self {
        let word = |action| match action {
            MaintenanceAction::Evict => "Migrate",
            MaintenanceAction::ShutDown => "ShutDown",
            MaintenanceAction::Blocked(_) => "Blocked",
        };
        let by_label = machine.fate(false) == MaintenanceAction::ShutDown;
        let obstacle = machine.obstacle.as_ref().map(|own| own.reason().to_owned());
        Self {
            namespace: machine.namespace.clone(),
            name: machine.name.clone(),
            action: word(machine.fate(false)),
            forced: word(machine.fate(true)),
            reason: if by_label { Some("Label".to_owned()) } else { obstacle },
        }
    }
}

pub fn preview(node: &str, objects: &ClusterObjects<'_>) -> MaintenancePreview {
    let machines = survey(node, objects);
    MaintenancePreview {
        refusal: check_node(node, objects.nodes).err().map(|refusal| refusal.to_string()),
        machines: machines.iter().map(PreviewedMachine::of).collect(),
    }
}

/// The patch of a Node that requests maintenance.
pub fn request(is_forced: bool) -> Value {
    let mut annotations = json!({DRAIN_REQUESTED: "true"});
    if is_forced {
        annotations[DRAIN_FORCED] = "true".into();
    }
    json!({"metadata": {"annotations": annotations}})
}

/// The patch of a Node that ends maintenance and uncordons it.
pub fn end() -> Value {
    let annotations = json!({DRAIN_REQUESTED: null, DRAIN_FORCED: null, MAINTAIN_STATUS: null});
    json!({"metadata": {"annotations": annotations}, "spec": {"unschedulable": null}})
}

#[cfg(test)]
mod tests;
