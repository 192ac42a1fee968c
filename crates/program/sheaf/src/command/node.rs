//! `sheaf node` and `sheaf cluster`: the nodes of a cluster, thin over the API.

mod maintenance;
mod reduce;
mod role;
mod view;
mod what_if;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Map, Value, json};

use self::view::NodeLoad;
use super::link::ClusterClient;
use super::management::recover;
use super::management::view::{MEMBERS_PATH, STORE_PATH, StoreView};
use super::{interrupt, table};
use crate::cli::{ClusterCommand, ClusterScope, NodeCommand};

const NODES: &str = "/api/v1/nodes";
/// Path of the predicted effects of losing a node; the name of the node follows.
pub(super) const WHAT_IF_NODES: &str = "/sheaf/v1/what-if/nodes/";
const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";
/// The lease of the virtual address of the cluster.
const VIP: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/sheaf-vip";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

pub(super) fn run(command: &NodeCommand) -> Result<()> {
    in_runtime(async {
        match command {
            NodeCommand::List { place } => list(place).await,
            NodeCommand::Show { place, name } => show(place, name).await,
            NodeCommand::Label { place, name, labels } => label(place, name, labels).await,
            NodeCommand::Maintenance { place, name, off: true, .. } => {
                maintenance::disable(place, name).await
            }
            NodeCommand::Maintenance { place, name, force, dry_run, no_wait, .. } => {
                let how =
                    maintenance::DrainOptions { force: *force, dry_run: *dry_run, wait: !*no_wait };
                maintenance::enable(place, name, how).await
            }
            NodeCommand::WhatIf { place, name } => what_if::show(place, name).await,
            NodeCommand::Promote { place, name } => role::promote(place, name).await,
            NodeCommand::Demote { place, name } => role::demote(place, name).await,
            NodeCommand::Remove { place, name, force } => remove(place, name, *force).await,
        }
    })
}

pub(super) fn run_cluster(command: &ClusterCommand) -> Result<()> {
    let place = match command {
        ClusterCommand::Status { place } => place,
        ClusterCommand::Reduce { place, yes } => return in_runtime(reduce::run(place, *yes)),
        ClusterCommand::Recover { data, give_up, yes } => {
            return in_runtime(recover::run(data, give_up, *yes));
        }
    };
    in_runtime(async {
        let cluster = ClusterClient::to(place).await?;
        let nodes = nodes(&cluster).await?;
        let loads = Loads::read(&cluster).await?;
        let volumes = cluster.items(&format!("{LONGHORN}/volumes")).await?;
        let store = store(&cluster).await?.map_or_else(String::new, |store| store.describe());
        let text = view::status(&nodes, &loads.machines, &volumes);
        let lease = cluster.find(VIP).await?;
        let address = lease.as_ref().and_then(view::virtual_address).unwrap_or_default();
        super::print(&format!("{text}{address}{store}"))
    })
}

pub(super) fn in_runtime(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(work)
}

/// Where the objects are; nothing if the server is not one of ours.
async fn store(cluster: &ClusterClient) -> Result<Option<StoreView>> {
    let reply = cluster.find(STORE_PATH).await?;
    reply.map(serde_json::from_value).transpose().context("cannot read the state of the store")
}

async fn nodes(cluster: &ClusterClient) -> Result<Vec<Node>> {
    let items = cluster.items(NODES).await?;
    let typed = items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>();
    typed.context("cannot read the nodes")
}

/// The machines and replicas placed on nodes.
struct Loads {
    machines: Vec<Value>,
    replicas: Vec<Value>,
}

impl Loads {
    async fn read(cluster: &ClusterClient) -> Result<Self> {
        let machines = cluster.items(MACHINES).await?;
        let replicas = cluster.items(&format!("{LONGHORN}/replicas")).await?;
        Ok(Self { machines, replicas })
    }

    fn of(&self, node: &str) -> NodeLoad {
        NodeLoad::of(node, &self.machines, &self.replicas)
    }
}

async fn list(place: &ClusterScope) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let loads = Loads::read(&cluster).await?;
    let mut rows = vec![view::HEADER.map(str::to_owned).to_vec()];
    for node in nodes(&cluster).await? {
        let name = node.metadata.name.clone().unwrap_or_default();
        rows.push(view::row(&node, &loads.of(&name)));
    }
    super::print(&table::align(&rows))
}

async fn find(cluster: &ClusterClient, name: &str) -> Result<Node> {
    let found = cluster.find(&format!("{NODES}/{name}")).await?;
    let Some(found) = found else {
        bail!("there is no node {name}; `sheaf node list` shows those that exist");
    };
    serde_json::from_value(found).context("cannot read the node")
}

async fn show(place: &ClusterScope, name: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let node = find(&cluster, name).await?;
    super::print(&view::description(&node, &Loads::read(&cluster).await?.of(name)))
}

async fn label(place: &ClusterScope, name: &str, labels: &[String]) -> Result<()> {
    let patch = json!({"metadata": {"labels": changes(labels)?}});
    let cluster = ClusterClient::to(place).await?;
    find(&cluster, name).await?;
    cluster.merge(&format!("{NODES}/{name}"), &patch).await?;
    super::print(&format!("node {name} labelled\n"))
}

/// `KEY=VALUE` sets a label and `KEY-` removes one.
fn changes(labels: &[String]) -> Result<Map<String, Value>> {
    let mut changes = Map::new();
    for label in labels {
        let (key, value) = match (label.split_once('='), label.strip_suffix('-')) {
            (Some((key, value)), _) => (key, Value::from(value)),
            (None, Some(key)) => (key, Value::Null),
            (None, None) => bail!("{label:?} is neither KEY=VALUE nor KEY-"),
        };
        if key.is_empty() {
            bail!("{label:?} has no key");
        }
        changes.insert(key.to_owned(), value);
    }
    Ok(changes)
}

async fn remove(place: &ClusterScope, name: &str, force: bool) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let node = find(&cluster, name).await?;
    let store = store(&cluster).await?;
    let is_only = !matches!(store, Some(StoreView::Etcd { .. }));
    if view::is_management(&node) && is_only {
        bail!("node {name} is the only management node: the cluster ends with it");
    }
    let load = Loads::read(&cluster).await?.of(name);
    if !load.is_empty() && !force {
        bail!(
            "node {name} has {load}: move or delete them first, or remove it nevertheless with \
             --force; nothing was changed"
        );
    }
    let may_vote = view::is_candidate(&node) || view::is_witness(&node);
    let is_member = view::is_management(&node) || may_vote && !is_only;
    let continues = format!(
        "node {name} may be removed in part: `sheaf node list` shows whether it is still there; if \
         it is not, `kubectl delete nodes.longhorn.io -n longhorn-system {name}` removes the rest"
    );
    interrupt::or_report(delete_node(&cluster, name, is_member), continues).await?;
    if store.is_some_and(|store| store.voters_without(name) == 2) {
        super::print(TWO_VOTERS)?;
    }
    super::print(&format!(
        "node {name} removed; stop Sheaf on that machine. To let it in again, remove its data \
         directory and create a token: sheaf token create\n"
    ))
}

/// After a change that leaves etcd without a tolerance.
const TWO_VOTERS: &str = "2 voters are left in etcd: the API stops with either of them; add a \
     management node or a witness, sheaf token create --role management or --role witness, or leave \
     one management node: sheaf cluster reduce\n";

/// Deletes a node and what belongs to it.
async fn delete_node(cluster: &ClusterClient, name: &str, is_member: bool) -> Result<()> {
    if is_member {
        // Before its Node: a member that votes must not be forgotten.
        cluster.delete(&format!("{MEMBERS_PATH}{name}")).await?;
    }
    cluster.delete(&format!("{NODES}/{name}")).await?;
    for path in [format!("{LEASES}/{name}"), format!("{LONGHORN}/nodes/{name}")] {
        if cluster.find(&path).await?.is_some()
            && let Err(error) = cluster.delete(&path).await
        {
            super::print(&format!("{path} stays: {error:#}\n"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_set_and_removed() {
        let words = |list: &[&str]| list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let changed = changes(&words(&["a=b", "c=", "d-"])).unwrap();
        assert_eq!(Value::Object(changed), json!({"a": "b", "c": "", "d": null}));
        for bad in ["a", "=b", "-", ""] {
            assert!(changes(&words(&[bad])).is_err(), "{bad:?}");
        }
    }
}
