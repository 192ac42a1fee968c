//! Port forwards as Services: which Service is one, what a new one is, and when it is refused. Pure.
//!
//! A port forward is a Service with externalIPs whose selector is one machine by its name, whoever
//! created it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use hci::cluster::WITNESS_ROLE;
use hci::failover::STORAGE_PORT;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Service, ServicePort};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};
use virt::v1::VirtualMachineInstanceSpec;

use crate::cli::{ForwardPort, NewForwardArgs};

/// The label of each launcher pod with the name of its machine.
const MACHINE: &str = "vm.kubevirt.io/name";
/// The label of a slice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// As many characters as the value of a label may have; launcher pods have the name cut to it.
const LONGEST_LABEL: usize = 63;
/// The condition of a node that says whether it has a guest network.
const GUEST_NETWORK: &str = "GuestNetwork";
const SSH: u16 = 22;
const ETCD: [u16; 2] = [2379, 2380];

/// A Service that is a port forward.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PortForward {
    namespace: String,
    name: String,
    addresses: Vec<String>,
    ports: Vec<String>,
    machine: String,
}

/// The objects that decide about a new port forward.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Node>,
    pub(super) services: Vec<Service>,
    /// The endpoints of the API server.
    pub(super) api: Option<EndpointSlice>,
}

/// A new port forward.
#[derive(Debug)]
pub(super) struct NewForward {
    pub(super) service: Value,
    /// Notes for the user beside the success.
    pub(super) notes: Vec<String>,
}

/// Why a port forward is not created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForwardRefusal {
    #[error(
        "--to: machine {0} has no interface on the guest network, and port forwards lead to \
         addresses of the guest network"
    )]
    NotOnGuestNetwork(String),
    #[error(
        "--address: no node with a guest network has an IPv4 address; name one that clients use"
    )]
    NoAddress,
    #[error(
        "--port: {port} is the port of {purpose} on {address}; forward another port, for example \
         {example}"
    )]
    Reserved { port: u16, address: Ipv4Addr, purpose: &'static str, example: String },
    #[error("--port: {port} of {address} is forwarded by service {service} already")]
    Taken { port: String, address: Ipv4Addr, service: String },
    #[error("--port: {0} is given twice")]
    Twice(String),
}

impl PortForward {
    pub(super) fn read(service: &Service) -> Option<Self> {
        let spec = service.spec.as_ref()?;
        let selector = spec.selector.as_ref().filter(|selector| selector.len() == 1)?;
        let addresses = spec.external_ips.clone().filter(|own| !own.is_empty())?;
        Some(Self {
            namespace: service.metadata.namespace.clone()?,
            name: service.metadata.name.clone()?,
            addresses,
            ports: spec.ports.iter().flatten().map(shown).collect(),
            machine: selector.get(MACHINE)?.clone(),
        })
    }

    /// The addresses of the machine that connections lead to now, or why they are refused.
    fn state(&self, slices: &[EndpointSlice], machines: &BTreeSet<(String, String)>) -> String {
        let is_own = |slice: &&EndpointSlice| {
            let labels = slice.metadata.labels.as_ref();
            slice.metadata.namespace.as_ref() == Some(&self.namespace)
                && labels.and_then(|own| own.get(SERVICE_NAME)) == Some(&self.name)
        };
        let endpoints =
            slices.iter().filter(is_own).flat_map(|slice| slice.endpoints.iter().flatten());
        let ready = endpoints.filter(|own| {
            own.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
        });
        let addresses: Vec<&str> =
            ready.flat_map(|own| &own.addresses).map(String::as_str).collect();
        let exists = machines.iter().any(|(namespace, name)| {
            *namespace == self.namespace && label_value(name) == self.machine
        });
        match (addresses.is_empty(), exists) {
            (false, _) => format!("to {}", addresses.join(",")),
            (true, true) => "machine is not ready".to_owned(),
            (true, false) => "no such machine".to_owned(),
        }
    }
}

/// A port of a service, in the words of `--port`.
fn shown(port: &ServicePort) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_lowercase();
    match &port.target_port {
        Some(IntOrString::Int(target)) if *target != port.port => {
            format!("{}:{target}/{protocol}", port.port)
        }
        Some(IntOrString::String(name)) => format!("{}:{name}/{protocol}", port.port),
        _ => format!("{}/{protocol}", port.port),
    }
}

fn label_value(name: &str) -> &str {
    name.get(..LONGEST_LABEL).unwrap_or(name)
}

/// The table of `sheaf network forward list`.
pub(super) fn rows(
    forwards: &[PortForward],
    slices: &[EndpointSlice],
    machines: &BTreeSet<(String, String)>,
    with_namespace: bool,
) -> Vec<Vec<String>> {
    let mut rows =
        vec![["NAME", "ADDRESSES", "PORTS", "MACHINE", "STATE"].map(str::to_owned).to_vec()];
    for forward in forwards {
        let name = match with_namespace {
            true => format!("{}/{}", forward.namespace, forward.name),
            false => forward.name.clone(),
        };
        rows.push(vec![
            name,
            forward.addresses.join(","),
            forward.ports.join(","),
            forward.machine.clone(),
            forward.state(slices, machines),
        ]);
    }
    rows
}

/// The Service of a new port forward to a machine.
pub(super) fn plan(
    wanted: &NewForwardArgs,
    machine: &VirtualMachineInstanceSpec,
    cluster: &Cluster,
) -> Result<NewForward, ForwardRefusal> {
    if !is_on_guest_network(machine) {
        return Err(ForwardRefusal::NotOnGuestNetwork(wanted.to.clone()));
    }
    let hosts: BTreeSet<IpAddr> = cluster.nodes.iter().flat_map(host_addresses).collect();
    let addresses = match wanted.address.as_slice() {
        [] => default_addresses(&cluster.nodes),
        given => given.to_vec(),
    };
    if addresses.is_empty() {
        return Err(ForwardRefusal::NoAddress);
    }
    let is_host = |address: Ipv4Addr| hosts.contains(&IpAddr::from(address));
    let reserved = reserved_ports(cluster);
    let mut seen = BTreeSet::new();
    for port in &wanted.port {
        if !seen.insert((port.listen, port.protocol.name())) {
            return Err(ForwardRefusal::Twice(port.listen.to_string()));
        }
        for address in &addresses {
            if is_host(*address) {
                check_reserved(&reserved, port, *address)?;
            }
            check_taken(&cluster.services, port, *address)?;
        }
    }
    let notes = addresses.iter().filter(|address| !is_host(**address)).map(|address| {
        format!("note: no node has the address {address}; packets to it must be routed to a node")
    });
    Ok(NewForward { notes: notes.collect(), service: service(wanted, &addresses) })
}

fn is_on_guest_network(machine: &VirtualMachineInstanceSpec) -> bool {
    match machine.networks.as_slice() {
        [] => machine.domain.devices.autoattach_pod_interface.unwrap_or(true),
        networks => networks.iter().any(|network| network.pod.is_some()),
    }
}

/// The addresses of a node's host, without its guest network.
fn host_addresses(node: &Node) -> Vec<IpAddr> {
    let object = serde_json::to_value(node).unwrap_or_default();
    let ranges = hci::cluster::node_ranges(&object).into_iter();
    let single = ranges.filter(|range| range.prefix_len() == range.max_prefix_len());
    single.map(|range| range.addr()).collect()
}

/// Whether a node has a guest network, and carries out Services therefore.
fn serves(node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let is_witness = labels.is_some_and(|own| own.get(WITNESS_ROLE).is_some_and(|it| it == "true"));
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let has_none = |own: &NodeCondition| own.type_ == GUEST_NETWORK && own.status == "False";
    !is_witness && !conditions.into_iter().any(has_none)
}

/// An IPv4 address of each node that carries out Services, the first of type InternalIP.
fn default_addresses(nodes: &[Node]) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    for node in nodes.iter().filter(|node| serves(node)) {
        let all = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let mut internal = all.filter(|own| own.type_ == "InternalIP");
        let address = internal.find_map(|own| own.address.parse::<Ipv4Addr>().ok());
        found.extend(address.filter(|own| !own.is_loopback()));
    }
    found
}

/// TCP ports that hosts need themselves.
fn reserved_ports(cluster: &Cluster) -> Vec<(u16, &'static str)> {
    let mut ports = vec![(SSH, "the SSH server")];
    ports.extend(ETCD.map(|port| (port, "etcd")));
    let api = cluster.api.iter().flat_map(|slice| slice.ports.iter().flatten());
    let api = api.filter_map(|port| u16::try_from(port.port?).ok());
    ports.extend(api.map(|port| (port, "the API server")));
    for node in &cluster.nodes {
        let status = node.status.as_ref();
        let endpoints = status.and_then(|status| status.daemon_endpoints.as_ref());
        let agent = endpoints.and_then(|all| all.kubelet_endpoint.as_ref());
        let agent = agent.and_then(|own| u16::try_from(own.port).ok());
        ports.extend(agent.map(|port| (port, "the node's agent")));
        let storage = node.metadata.annotations.iter().find_map(|own| own.get(STORAGE_PORT));
        let storage = storage.and_then(|port| port.parse().ok());
        ports.extend(storage.map(|port| (port, "the storage process")));
    }
    ports
}

fn check_reserved(
    reserved: &[(u16, &'static str)],
    port: &ForwardPort,
    address: Ipv4Addr,
) -> Result<(), ForwardRefusal> {
    let is_it =
        |(number, _): &&(u16, &str)| *number == port.listen && port.protocol.name() == "TCP";
    match reserved.iter().find(is_it) {
        None => Ok(()),
        Some((number, purpose)) => Err(ForwardRefusal::Reserved {
            port: *number,
            address,
            purpose,
            example: ForwardPort { listen: 20_000 + port.listen % 10_000, ..*port }.to_string(),
        }),
    }
}

fn check_taken(
    services: &[Service],
    port: &ForwardPort,
    address: Ipv4Addr,
) -> Result<(), ForwardRefusal> {
    let text = address.to_string();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let has_address = spec.external_ips.iter().flatten().any(|own| *own == text);
        let has_port = spec.ports.iter().flatten().any(|own| {
            own.port == i32::from(port.listen)
                && own.protocol.as_deref().unwrap_or("TCP") == port.protocol.name()
        });
        if has_address && has_port {
            let name = |part: &Option<String>| part.clone().unwrap_or_default();
            let metadata = &service.metadata;
            return Err(ForwardRefusal::Taken {
                port: port.listen.to_string(),
                address,
                service: format!("{}/{}", name(&metadata.namespace), name(&metadata.name)),
            });
        }
    }
    Ok(())
}

fn service(wanted: &NewForwardArgs, addresses: &[Ipv4Addr]) -> Value {
    let ports = wanted.port.iter().map(|port| {
        let protocol = port.protocol.name();
        json!({"name": format!("{}-{}", protocol.to_lowercase(), port.listen),
            "port": port.listen, "targetPort": port.target, "protocol": protocol})
    });
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": wanted.name, "namespace": wanted.place.namespace},
        "spec": {
            "type": "ClusterIP", "externalIPs": addresses,
            "selector": {MACHINE: label_value(&wanted.to)},
            "ports": ports.collect::<Vec<_>>(),
        },
    })
}

#[cfg(test)]
mod tests;
