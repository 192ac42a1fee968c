//! Services and EndpointSlices, reduced to what the network of a node needs of them.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use net::{EndpointScope, Protocol};

/// The label of a slice that names its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// How long a client stays with an endpoint unless the service says otherwise.
const AFFINITY_SECONDS: u32 = 10_800;

/// A service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceRecord {
    pub(super) sort: ServiceType,
    pub(super) ports: Vec<PortRecord>,
    /// `spec.externalIPs`, in IPv4.
    pub(super) external_addresses: Vec<Ipv4Addr>,
    pub(super) affinity: Option<u32>,
    pub(super) internal: EndpointScope,
    pub(super) external: EndpointScope,
}

/// How a service is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServiceType {
    /// At an address of its own.
    Address(Ipv4Addr),
    /// At the addresses of its endpoints.
    Headless,
    /// Under another name.
    External(String),
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PortRecord {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
    pub(super) node_port: Option<u16>,
}

impl ServiceRecord {
    /// Nothing for what cannot be reached over IPv4.
    pub(super) fn read(object: Service) -> Option<Self> {
        let spec = object.spec?;
        let sort = match (spec.type_.as_deref(), spec.cluster_ip.as_deref()) {
            (Some("ExternalName"), _) => ServiceType::External(spec.external_name.clone()?),
            (_, Some("None")) => ServiceType::Headless,
            (_, address) => ServiceType::Address(ipv4(&spec, address?)?),
        };
        let affinity = (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| {
            let config = spec.session_affinity_config.as_ref();
            let seconds = config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
            seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(AFFINITY_SECONDS)
        });
        let external = spec.external_ips.iter().flatten();
        Some(Self {
            sort,
            affinity,
            external_addresses: external.filter_map(|address| usable(address)).collect(),
            internal: scope(spec.internal_traffic_policy.as_deref()),
            external: scope(spec.external_traffic_policy.as_deref()),
            ports: spec.ports.unwrap_or_default().iter().filter_map(port).collect(),
        })
    }
}

/// The IPv4 address of a service that may have one of each family.
fn ipv4(spec: &ServiceSpec, first: &str) -> Option<Ipv4Addr> {
    let all = spec.cluster_ips.iter().flatten().map(String::as_str);
    [first].into_iter().chain(all).find_map(|address| address.parse().ok())
}

fn scope(policy: Option<&str>) -> EndpointScope {
    if policy == Some("Local") { EndpointScope::Local } else { EndpointScope::Cluster }
}

fn port(port: &ServicePort) -> Option<PortRecord> {
    Some(PortRecord {
        name: port.name.clone().unwrap_or_default(),
        protocol: protocol(port.protocol.as_deref())?,
        port: u16::try_from(port.port).ok()?,
        node_port: port
            .node_port
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0),
    })
}

fn protocol(name: Option<&str>) -> Option<Protocol> {
    match name {
        None | Some("" | "TCP") => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

/// A part of the endpoints of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SliceRecord {
    pub(super) service: String,
    pub(super) ports: Vec<SlicePort>,
    pub(super) endpoints: Vec<EndpointRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlicePort {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) port: u16,
}

/// An endpoint that answers for a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointRecord {
    pub(super) address: Ipv4Addr,
    pub(super) is_ready: bool,
    /// It still answers, though it may end soon.
    pub(super) is_serving: bool,
    pub(super) node: Option<String>,
    pub(super) hostname: Option<String>,
}

impl SliceRecord {
    /// Nothing for what belongs to no service or is not IPv4.
    pub(super) fn read(object: EndpointSlice) -> Option<Self> {
        if object.address_type != "IPv4" {
            return None;
        }
        let service = object.metadata.labels?.remove(SERVICE_NAME)?;
        let port = |port: &EndpointPort| {
            Some(SlicePort {
                name: port.name.clone().unwrap_or_default(),
                protocol: protocol(port.protocol.as_deref())?,
                port: u16::try_from(port.port?).ok()?,
            })
        };
        let ports = object.ports.unwrap_or_default().iter().filter_map(port).collect();
        let endpoints = object.endpoints.unwrap_or_default().into_iter().filter_map(|endpoint| {
            let conditions = endpoint.conditions.unwrap_or_default();
            let is_ready = conditions.ready.unwrap_or(true);
            Some(EndpointRecord {
                // The others, if any, are of the same endpoint.
                address: usable(endpoint.addresses.first()?)?,
                is_ready,
                is_serving: conditions.serving.unwrap_or(is_ready),
                node: endpoint.node_name.filter(|name| !name.is_empty()),
                hostname: endpoint.hostname.filter(|name| !name.is_empty()),
            })
        });
        Some(Self { service, ports, endpoints: endpoints.collect() })
    }
}

/// An address that packets of guests may be sent to: none of the node's own loopback or link.
fn usable(text: &str) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = text.parse().ok()?;
    let is_special = address.is_loopback()
        || address.is_unspecified()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast();
    (!is_special).then_some(address)
}
