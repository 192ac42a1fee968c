//! Services, and the pods behind them.

use std::collections::BTreeMap;

use virt::api::atom::IntOrString;

fields! {
    pub(crate) struct ServiceFields<'a> {
        spec: ServiceSpec<'a>,
        status: ServiceStatus<'a>,
    }

    pub(crate) struct ServiceSpec<'a> {
        kind as "type": &'a str,
        cluster_ip as "clusterIP": &'a str,
        load_balancer_ip as "loadBalancerIP": &'a str,
        ip_families: Vec<&'a str>,
        publish_not_ready_addresses: bool,
        selector: BTreeMap<&'a str, &'a str>,
        ports: Vec<ServicePort<'a>>,
    }

    pub(crate) struct ServicePort<'a> {
        name: &'a str,
        protocol: &'a str,
        app_protocol: Option<&'a str>,
        port: Option<i64>,
        target_port: Option<IntOrString>,
    }

    pub(crate) struct ServiceStatus<'a> {
        load_balancer: IngressList<'a>,
    }

    pub(crate) struct IngressList<'a> {
        ingress: Vec<IngressAddress<'a>>,
    }

    pub(crate) struct IngressAddress<'a> {
        ip: &'a str,
    }

    pub(crate) struct PodFields<'a> {
        spec: PodSpec<'a>,
        status: PodStatus<'a>,
    }

    pub(crate) struct PodSpec<'a> {
        node_name: &'a str,
        hostname: &'a str,
        subdomain: &'a str,
        containers: Vec<ContainerPorts<'a>>,
    }

    pub(crate) struct ContainerPorts<'a> {
        ports: Vec<ContainerPort<'a>>,
    }

    pub(crate) struct ContainerPort<'a> {
        name: &'a str,
        protocol: &'a str,
        container_port: Option<i64>,
    }

    pub(crate) struct PodStatus<'a> {
        phase: &'a str,
        pod_ip as "podIP": &'a str,
        pod_ips as "podIPs": Vec<PodAddress<'a>>,
    }

    pub(crate) struct PodAddress<'a> {
        ip: &'a str,
    }
}

impl<'a> ServiceStatus<'a> {
    /// The first address that the service shows; empty if it shows none.
    pub(crate) fn address(&self) -> &'a str {
        self.load_balancer.ingress.first().map_or("", |own| own.ip)
    }
}

/// A protocol, which is TCP where none is given.
pub(crate) fn protocol_or_default(protocol: &str) -> &str {
    if protocol.is_empty() { "TCP" } else { protocol }
}
