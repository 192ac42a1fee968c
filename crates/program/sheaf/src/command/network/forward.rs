//! `sheaf network forward`: Services that lead ports of nodes to one machine. `plan` decides about
//! the objects and the table.

mod plan;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::de::DeserializeOwned;
use serde_json::Value;
use virt::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec};

use self::plan::{Cluster, PortForward};
use crate::cli::{ClusterScope, ForwardCommand, NewForwardArgs};
use crate::command::link::ClusterClient;
use crate::command::table;

const SERVICES: &str = "/api/v1/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
const MACHINES: &str = "/apis/kubevirt.io/v1/virtualmachines";
/// The endpoints of the API server, whose port is not forwarded.
const API_SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

pub(super) async fn run(command: &ForwardCommand) -> Result<()> {
    match command {
        ForwardCommand::List { place, all_namespaces } => list(place, *all_namespaces).await,
        ForwardCommand::Create(wanted) => create(wanted).await,
        ForwardCommand::Delete { place, name } => delete(place, name).await,
    }
}

/// The path of a list in all namespaces, or in one of them.
fn path(all: &str, namespace: Option<&str>) -> String {
    match (namespace, all.rsplit_once('/')) {
        (Some(namespace), Some((group, plural))) => {
            format!("{group}/namespaces/{namespace}/{plural}")
        }
        _ => all.to_owned(),
    }
}

async fn read<T: DeserializeOwned>(cluster: &ClusterClient, path: &str) -> Result<Vec<T>> {
    let items = cluster.items(path).await?.into_iter();
    let items = items.map(serde_json::from_value).collect::<Result<_, _>>();
    items.with_context(|| format!("cannot read {path}"))
}

async fn list(place: &ClusterScope, all_namespaces: bool) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let namespace = (!all_namespaces).then_some(place.namespace.as_str());
    let services: Vec<Service> = read(&cluster, &path(SERVICES, namespace)).await?;
    let forwards: Vec<PortForward> = services.iter().filter_map(PortForward::read).collect();
    if forwards.is_empty() {
        let place = namespace.map(|namespace| format!(" in namespace {namespace}"));
        return crate::command::print(&format!(
            "No port forwards{}. Create one with: sheaf network forward create NAME --to MACHINE \
             --port 2222:22\n",
            place.unwrap_or_default()
        ));
    }
    let slices: Vec<EndpointSlice> = read(&cluster, &path(SLICES, namespace)).await?;
    let machines: Vec<VirtualMachine> = read(&cluster, &path(MACHINES, namespace)).await?;
    let mut instances: Vec<VirtualMachineInstance> =
        read(&cluster, &path(super::INSTANCES, namespace)).await?;
    let names = machines.into_iter().map(|own| own.metadata);
    let names = names.chain(instances.drain(..).map(|own| own.metadata));
    let machines = names.filter_map(|own| Some((own.namespace?, own.name?))).collect();
    crate::command::print(&table::align(&plan::rows(&forwards, &slices, &machines, all_namespaces)))
}

/// The spec of a machine's guest, running or not.
async fn machine(cluster: &ClusterClient, name: &str) -> Result<VirtualMachineInstanceSpec> {
    let parse = |object: Value| -> Result<VirtualMachineInstanceSpec> {
        Ok(match object["kind"].as_str() {
            Some("VirtualMachine") => {
                let machine: VirtualMachine = serde_json::from_value(object)?;
                machine.spec.template.spec.unwrap_or_default()
            }
            _ => serde_json::from_value::<VirtualMachineInstance>(object)?.spec,
        })
    };
    let instance = cluster.objects(&format!("virtualmachineinstances/{name}"));
    for path in [cluster.machine(name), instance] {
        if let Some(object) = cluster.find(&path).await? {
            return parse(object).with_context(|| format!("cannot read machine {name}"));
        }
    }
    bail!("--to: there is no machine {name} in namespace {}", cluster.namespace)
}

async fn create(wanted: &NewForwardArgs) -> Result<()> {
    let cluster = ClusterClient::to(&wanted.place).await?;
    let spec = machine(&cluster, &wanted.to).await?;
    let api: Option<Value> = cluster.find(API_SLICE).await?;
    let api = api.map(serde_json::from_value).transpose().context("cannot read the endpoints")?;
    let state = Cluster {
        nodes: read::<Node>(&cluster, super::NODES).await?,
        services: read::<Service>(&cluster, SERVICES).await?,
        api,
    };
    let plan = plan::plan(wanted, &spec, &state)?;
    cluster.post(&cluster.core("services"), &plan.service).await?;
    let mut text = format!("port forward {} created\n", wanted.name);
    for line in plan.notes {
        text.push_str(&line);
        text.push('\n');
    }
    crate::command::print(&text)
}

async fn delete(place: &ClusterScope, name: &str) -> Result<()> {
    let cluster = ClusterClient::to(place).await?;
    let path = cluster.core(&format!("services/{name}"));
    let namespace = &place.namespace;
    let Some(service) = cluster.find(&path).await? else {
        bail!(
            "there is no port forward {name} in namespace {namespace}; `sheaf network forward list \
             -A` shows those that exist"
        );
    };
    let service: Service = serde_json::from_value(service).context("cannot read the service")?;
    if PortForward::read(&service).is_none() {
        bail!(
            "service {name} in namespace {namespace} is not a port forward to one machine; delete \
             it with: kubectl delete service {name} -n {namespace}"
        );
    }
    cluster.delete(&path).await?;
    crate::command::print(&format!("port forward {name} deleted\n"))
}
