//! `sheaf node maintenance`: requests maintenance by the annotations of the node, and shows its
//! progress.

use anyhow::{Context as _, Result, bail};
use futures_util::TryStreamExt as _;
use hci::maintenance::{
    AffectedMachine, COMPLETED, CONDITION, ClusterObjects, DRAIN_REQUESTED, MAINTAIN_STATUS,
    MaintainStrategy, MaintenanceAction, check_machines, check_node, end, request, survey,
};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::Value;

use super::{LONGHORN, MACHINES, NODES, find};
use crate::cli::ClusterScope;
use crate::command::link::ClusterClient;
use crate::command::{interrupt, print, table};

const VMS: &str = "/apis/kubevirt.io/v1/virtualmachines";
const VOLUMES: &str = "/api/v1/persistentvolumes";

/// How machines leave the node.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrainOptions {
    /// Machines that cannot be migrated are shut down.
    pub(super) force: bool,
    /// Nothing is changed.
    pub(super) dry_run: bool,
    pub(super) wait: bool,
}

pub(super) async fn enable(place: &ClusterScope, name: &str, how: DrainOptions) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    find(&cluster, name).await?;
    let nodes = cluster.items(NODES).await?;
    let machines = concerned(&cluster, name, &nodes).await?;
    if how.dry_run {
        print(&plan(name, &machines, how.force))?;
    }
    check_node(name, &nodes)?;
    if !how.force
        && let Err(refusal) = check_machines(&machines)
    {
        bail!("{refusal}: sheaf node maintenance {name} --force");
    }
    if how.dry_run {
        return Ok(());
    }
    cluster.merge(&format!("{NODES}/{name}"), &request(how.force)).await?;
    if !how.wait {
        return print(&format!("maintenance of node {name} requested\n"));
    }
    let continues = format!(
        "maintenance of node {name} goes on. `sheaf node show {name}` shows how far it is, `sheaf \
         node maintenance {name} --off` cancels it"
    );
    interrupt::or_report(follow(&cluster, name), continues).await
}

pub(super) async fn disable(place: &ClusterScope, name: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let node = find(&cluster, name).await?;
    let notes = node.metadata.annotations.unwrap_or_default();
    if !notes.contains_key(DRAIN_REQUESTED) && !notes.contains_key(MAINTAIN_STATUS) {
        bail!("node {name} is not in maintenance; nothing was changed");
    }
    cluster.merge(&format!("{NODES}/{name}"), &end()).await?;
    print(&format!("node {name} is back in use\n"))
}

async fn concerned(
    cluster: &ClusterClient,
    name: &str,
    nodes: &[Value],
) -> Result<Vec<AffectedMachine>> {
    let instances = cluster.items(MACHINES).await?;
    let machines = cluster.items(VMS).await?;
    let volumes = cluster.items(VOLUMES).await?;
    let engines = cluster.items(&format!("{LONGHORN}/engines")).await?;
    let replicas = cluster.items(&format!("{LONGHORN}/replicas")).await?;
    let objects = ClusterObjects {
        nodes,
        instances: &instances,
        machines: &machines,
        volumes: &volumes,
        engines: &engines,
        replicas: &replicas,
    };
    Ok(survey(name, &objects))
}

/// The effect on each machine.
fn plan(node: &str, machines: &[AffectedMachine], is_forced: bool) -> String {
    if machines.is_empty() {
        return format!("no machine runs on node {node} or needs it\n");
    }
    let mut rows = vec![vec!["MACHINE".to_owned(), "ACTION".to_owned(), "REASON".to_owned()]];
    for machine in machines {
        let obstacle = machine.obstacle.as_ref().map_or("", |own| own.reason());
        let (action, reason) = match machine.fate(is_forced) {
            MaintenanceAction::Evict => ("migrate", ""),
            MaintenanceAction::ShutDown if is_by_label(machine) => ("shut down", "label"),
            MaintenanceAction::ShutDown => ("shut down", obstacle),
            MaintenanceAction::Blocked(_) => ("blocked", obstacle),
        };
        rows.push(vec![machine.id(), action.to_owned(), reason.to_owned()]);
    }
    table::align(&rows)
}

/// Whether the label of the machine asks for a shutdown.
fn is_by_label(machine: &AffectedMachine) -> bool {
    machine.is_here && machine.strategy != MaintainStrategy::Migrate
}

/// Prints each report of the node until it is empty or refuses.
async fn follow(cluster: &ClusterClient, name: &str) -> Result<()> {
    let nodes = Api::<Node>::all(cluster.client.clone());
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut changes = std::pin::pin!(watcher(nodes, config).default_backoff().applied_objects());
    let mut last = String::new();
    while let Some(node) = changes.try_next().await.context("cannot watch the node")? {
        let Some(report) = MaintenanceReport::of(&node) else { continue };
        if report.message != last {
            print(&format!("{}\n", report.message))?;
            last.clone_from(&report.message);
        }
        match report.reason.as_str() {
            "Completed" => return print(&format!("node {name} is in maintenance\n")),
            "Refused" => bail!("node {name} was not put into maintenance; nothing was changed"),
            "Disabled" => bail!("maintenance of node {name} was cancelled"),
            _ => {}
        }
    }
    Ok(())
}

/// A node's report of its maintenance.
#[derive(Debug, PartialEq, Eq)]
struct MaintenanceReport {
    reason: String,
    message: String,
}

impl MaintenanceReport {
    /// Nothing while the request waits: an older report concerns earlier maintenance.
    fn of(node: &Node) -> Option<Self> {
        let notes = node.metadata.annotations.as_ref();
        let has = |key: &str| notes.is_some_and(|notes| notes.contains_key(key));
        if has(DRAIN_REQUESTED) && !has(MAINTAIN_STATUS) {
            return None;
        }
        let conditions = node.status.as_ref()?.conditions.as_ref()?;
        let own = conditions.iter().find(|own| own.type_ == CONDITION)?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (reason, message) = (text(&own.reason), text(&own.message));
        // The annotations come a moment before the first report.
        let is_stale = has(MAINTAIN_STATUS) && own.status != "True";
        // The annotation that clients of Harvester read follows the last report.
        let status = notes.and_then(|notes| notes.get(MAINTAIN_STATUS));
        let is_early = reason == "Completed" && status.is_some_and(|status| status != COMPLETED);
        (!is_stale && !is_early).then_some(Self { reason, message })
    }
}

#[cfg(test)]
mod tests {
    use hci::maintenance::{MigrationBlocker, RUNNING};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_of_earlier_maintenance_is_not_shown() {
        let node = |notes: Value, status: &str, reason: &str| -> Node {
            let condition =
                json!({"type": CONDITION, "status": status, "reason": reason, "message": "m"});
            serde_json::from_value(json!({"metadata": {"annotations": notes},
                "status": {"conditions": [condition]}}))
            .unwrap()
        };
        let reason = |node: &Node| MaintenanceReport::of(node).map(|own| own.reason);
        let requested = || json!({DRAIN_REQUESTED: "true"});
        let running = || json!({DRAIN_REQUESTED: "true", MAINTAIN_STATUS: RUNNING});
        assert_eq!(reason(&node(requested(), "False", "Refused")), None);
        assert_eq!(reason(&node(running(), "False", "Disabled")), None);
        assert_eq!(reason(&node(running(), "True", "Draining")), Some("Draining".into()));
        assert_eq!(reason(&node(json!({}), "False", "Refused")), Some("Refused".into()));
        let completed = json!({MAINTAIN_STATUS: COMPLETED});
        assert_eq!(reason(&node(running(), "True", "Completed")), None);
        assert_eq!(reason(&node(completed, "True", "Completed")), Some("Completed".into()));
    }

    #[test]
    fn the_plan_names_each_machine() {
        let machine = |name: &str, strategy, obstacle| AffectedMachine {
            namespace: "default".into(),
            name: name.into(),
            is_here: true,
            strategy,
            obstacle,
        };
        let machines = [
            machine("web", MaintainStrategy::Migrate, None),
            machine("db", MaintainStrategy::Migrate, Some(MigrationBlocker::LastHealthyReplica)),
            machine("ci", MaintainStrategy::Shutdown, None),
        ];
        assert_eq!(
            plan("n2", &machines, false),
            "MACHINE       ACTION      REASON\n\
             default/web   migrate     -\n\
             default/db    blocked     LastHealthyReplica\n\
             default/ci    shut down   label\n"
        );
        assert_eq!(plan("n2", &[], false), "no machine runs on node n2 or needs it\n");
    }
}
