//! `sheaf node promote` and `sheaf node demote`.

use anyhow::{Result, bail};
use hci::cluster::{MANAGEMENT_ROLE, WORKER_ROLE};
use serde_json::json;

use super::{NODES, TWO_VOTERS, find, store, view};
use crate::cli::ClusterScope;
use crate::command::link::ClusterClient;
use crate::command::management::view::{MEMBERS_PATH, StoreView};

pub(super) async fn promote(place: &ClusterScope, name: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let node = find(&cluster, name).await?;
    if view::is_witness(&node) {
        bail!("node {name} is a witness: remove it, and join the machine as a management node");
    }
    if view::is_management(&node) || view::is_candidate(&node) {
        bail!("node {name} is a management node already");
    }
    let labels = json!({MANAGEMENT_ROLE: "true", WORKER_ROLE: null});
    cluster.merge(&format!("{NODES}/{name}"), &json!({"metadata": {"labels": labels}})).await?;
    let next = match store(&cluster).await? {
        Some(StoreView::Etcd { .. }) => "it votes in etcd as soon as there is a seat for it",
        _ => "objects move into etcd when three nodes can vote",
    };
    crate::command::print(&format!(
        "node {name} becomes a management node: it takes the keys of the cluster over, and {next}; \
         `sheaf node list` shows it\n"
    ))
}

pub(super) async fn demote(place: &ClusterScope, name: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    find(&cluster, name).await?;
    let before = store(&cluster).await?;
    cluster.post(&format!("{MEMBERS_PATH}{name}"), &json!({})).await?;
    crate::command::print(&format!(
        "node {name} is a worker: it leaves etcd and restarts without an API server; it has had the \
         keys of the cluster\n"
    ))?;
    match before.map(|store| store.voters_without(name)) {
        Some(2) => crate::command::print(TWO_VOTERS),
        Some(1) => crate::command::print(
            "1 voter is left in etcd; `sheaf cluster reduce` moves its objects back into SQLite\n",
        ),
        _ => Ok(()),
    }
}
