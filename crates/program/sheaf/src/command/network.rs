//! `sheaf network`: networks of machines, thin over the API.

mod addresses;
mod forward;
mod links;
mod trace;
mod view;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::link::ClusterClient;
use super::table;
use crate::cli::{ClusterScope, NetworkCommand, NewNetworkArgs};
use view::NetworkView;

const GROUP: &str = "/apis/k8s.cni.cncf.io/v1";
const PLURAL: &str = "network-attachment-definitions";
const CLUSTER_NETWORKS: &str = "/apis/network.harvesterhci.io/v1beta1/clusternetworks";
const NODES: &str = "/api/v1/nodes";
const INSTANCES: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";

pub(super) fn run(command: &NetworkCommand) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        match command {
            NetworkCommand::List { place, all_namespaces: true } => list(place, None).await,
            NetworkCommand::List { place, .. } => list(place, Some(&place.namespace)).await,
            NetworkCommand::Show { place, name } => show(place, name).await,
            NetworkCommand::Links { place, node } => links::list(place, node.as_deref()).await,
            NetworkCommand::Addresses { place, all_namespaces, network } => {
                addresses::list(place, *all_namespaces, network.as_deref()).await
            }
            NetworkCommand::Forward(command) => forward::run(command).await,
            NetworkCommand::Create(wanted) => create(wanted).await,
            NetworkCommand::Trace(query) => trace::run(query).await,
        }
    })
}

fn path(namespace: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/{PLURAL}")
}

/// Nodes and machines, by which the use of networks is counted.
async fn users(cluster: &ClusterClient) -> Result<(Vec<Value>, Vec<Value>)> {
    Ok((cluster.items(NODES).await?, cluster.items(INSTANCES).await?))
}

async fn list(place: &ClusterScope, namespace: Option<&str>) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let path = namespace.map_or_else(|| format!("{GROUP}/{PLURAL}"), path);
    let networks = cluster.items(&path).await?;
    if networks.is_empty() {
        let place = namespace.map(|namespace| format!(" in namespace {namespace}"));
        return super::print(&format!(
            "No networks{}. Machines have the guest network; create another with: sheaf network \
             create NAME --cluster-network NETWORK --vlan ID\n",
            place.unwrap_or_default()
        ));
    }
    let (nodes, instances) = users(&cluster).await?;
    let mut rows = vec![view::HEADER.map(str::to_owned).to_vec()];
    for network in &networks {
        let network = NetworkView::new(network, &nodes, &instances);
        rows.push(network.row(namespace.is_none()));
    }
    super::print(&table::align(&rows))
}

async fn show(place: &ClusterScope, name: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let namespace = &place.namespace;
    let Some(network) = cluster.find(&format!("{}/{name}", path(namespace))).await? else {
        bail!(
            "there is no network {name} in namespace {namespace}; `sheaf network list -A` shows \
             those that exist"
        );
    };
    let (nodes, instances) = users(&cluster).await?;
    super::print(&NetworkView::new(&network, &nodes, &instances).description())
}

async fn create(wanted: &NewNetworkArgs) -> Result<()> {
    let definition = view::definition(wanted)?;
    let cluster = ClusterClient::to(&wanted.place).await?;
    let uplinks = &wanted.cluster_network;
    if cluster.find(&format!("{CLUSTER_NETWORKS}/{uplinks}")).await?.is_none() {
        bail!(
            "there is no cluster network {uplinks}; `kubectl get clusternetworks` shows those that \
             exist"
        );
    }
    cluster.post(&path(&wanted.place.namespace), &definition).await?;
    let name = &wanted.name;
    super::print(&format!(
        "network {name} created; a machine is on it with `multus: {{networkName: {}/{name}}}`\n",
        wanted.place.namespace
    ))
}
