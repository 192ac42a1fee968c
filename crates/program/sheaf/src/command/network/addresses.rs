//! `sheaf network addresses`: which machine or load balancer has which address on which network.

mod view;

use anyhow::{Context as _, Result, bail};
use hci::harvester::dhcp::{DhcpPool, MachineNetworkConfig};
use hci::harvester::load_balancer::LoadBalancer;
use serde::de::DeserializeOwned;
use virt::v1::VirtualMachineInstance;

use self::view::{Allocations, GUEST_NETWORK};
use crate::cli::ClusterScope;
use crate::command::link::ClusterClient;
use crate::command::table;

const POOLS: &str = "/apis/network.harvesterhci.io/v1alpha1/ippools";
const CONFIGS: &str = "/apis/network.harvesterhci.io/v1alpha1/virtualmachinenetworkconfigs";
const LOAD_BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers";

async fn read<T: DeserializeOwned>(cluster: &ClusterClient, path: &str) -> Result<Vec<T>> {
    let items = cluster.items(path).await?.into_iter();
    let items = items.map(serde_json::from_value).collect::<Result<_, _>>();
    items.with_context(|| format!("cannot read {path}"))
}

pub(super) async fn list(
    place: &ClusterScope,
    all_namespaces: bool,
    network: Option<&str>,
) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let network = match network {
        None => None,
        Some(GUEST_NETWORK) => Some(GUEST_NETWORK.to_owned()),
        Some(name) => Some(existing(&cluster, place, name).await?),
    };
    // Conflicts are with machines of any namespace.
    let allocations = Allocations {
        instances: read::<VirtualMachineInstance>(&cluster, super::INSTANCES).await?,
        pools: read::<DhcpPool>(&cluster, POOLS).await?,
        configs: read::<MachineNetworkConfig>(&cluster, CONFIGS).await?,
        load_balancers: read::<LoadBalancer>(&cluster, LOAD_BALANCERS).await?,
    };
    let namespace = (!all_namespaces).then_some(place.namespace.as_str());
    let rows = view::rows(&allocations.entries(), namespace, network.as_deref());
    if rows.len() == 1 {
        let place = namespace.map(|namespace| format!(" in namespace {namespace}"));
        return crate::command::print(&format!(
            "No addresses{}; `sheaf network addresses -A` lists those of all namespaces\n",
            place.unwrap_or_default()
        ));
    }
    crate::command::print(&table::align(&rows))
}

/// A network as NAMESPACE/NAME, if there is one of this name.
async fn existing(cluster: &ClusterClient, place: &ClusterScope, name: &str) -> Result<String> {
    let (namespace, name) = name.split_once('/').unwrap_or((&place.namespace, name));
    if name.is_empty()
        || cluster.find(&format!("{}/{name}", super::path(namespace))).await?.is_none()
    {
        bail!(
            "--network: there is no network {name} in namespace {namespace}; `sheaf network list \
             -A` shows those that exist, and the guest network is called {GUEST_NETWORK}"
        );
    }
    Ok(format!("{namespace}/{name}"))
}
