//! Service data for the network and the name server of a node. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use net::{Endpoint, Location, Service, ServiceRecords};

use super::object::{
    EndpointRecord, PortRecord, ServiceRecord, ServiceType, SlicePort, SliceRecord,
};
use crate::guest_name::ZONE;
use crate::known_objects::ObjectKey;
use crate::overlay::RemoteGuests;

/// The node that services are made reachable on.
#[derive(Debug, Clone)]
pub(crate) struct ServiceNode {
    pub(crate) name: String,
    /// The node's own addresses.
    pub(crate) addresses: Vec<Ipv4Addr>,
    /// The network of its guests.
    pub(crate) guests: Ipv4Net,
}

impl ServiceNode {
    fn location(&self, endpoint: &EndpointRecord) -> Location {
        let is_here = endpoint.node.as_deref() == Some(self.name.as_str())
            || endpoint.node.is_none()
                && (self.addresses.contains(&endpoint.address)
                    || self.guests.contains(&endpoint.address));
        if is_here { Location::ThisNode } else { Location::Elsewhere }
    }

    /// A guest of another node that is not on the same network may have an address that one of this
    /// node's guests has, too.
    fn can_reach(&self, endpoint: &EndpointRecord, remote: &RemoteGuests) -> bool {
        self.location(endpoint) == Location::ThisNode
            || !self.guests.contains(&endpoint.address)
            || remote.contains_key(&endpoint.address)
    }
}

/// The slices of each service.
fn by_service(
    slices: &BTreeMap<ObjectKey, SliceRecord>,
) -> BTreeMap<(&str, &str), Vec<&SliceRecord>> {
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (key, slice) in slices {
        all.entry((key.namespace.as_str(), slice.service.as_str())).or_default().push(slice);
    }
    all
}

/// Those who answer at a port: the ready ones, or else those that still serve while they end.
fn backends<'a>(
    slices: &'a [&'a SliceRecord],
    port: &PortRecord,
) -> Vec<(&'a EndpointRecord, &'a SlicePort)> {
    let matching = |own: &&SlicePort| own.name == port.name && own.protocol == port.protocol;
    let all: Vec<_> = slices
        .iter()
        .filter_map(|slice| Some((slice, slice.ports.iter().find(matching)?)))
        .flat_map(|(slice, port)| slice.endpoints.iter().map(move |endpoint| (endpoint, port)))
        .collect();
    let ready: Vec<_> = all.iter().copied().filter(|(endpoint, _)| endpoint.is_ready).collect();
    if !ready.is_empty() {
        return ready;
    }
    all.into_iter().filter(|(endpoint, _)| endpoint.is_serving).collect()
}

/// Every port of every service that has an address of its own.
pub(super) fn services(
    services: &BTreeMap<ObjectKey, ServiceRecord>,
    slices: &BTreeMap<ObjectKey, SliceRecord>,
    node: &ServiceNode,
    remote: &RemoteGuests,
) -> Vec<Service> {
    let slices = by_service(slices);
    let mut all = Vec::new();
    for (ObjectKey { namespace, name }, service) in services {
        let ServiceType::Address(address) = service.sort else { continue };
        let own = slices.get(&(namespace.as_str(), name.as_str()));
        let own = own.map(Vec::as_slice).unwrap_or_default();
        for port in &service.ports {
            let endpoint = |(endpoint, port): &(&EndpointRecord, &SlicePort)| Endpoint {
                address: endpoint.address,
                port: port.port,
                location: node.location(endpoint),
            };
            let backends = backends(own, port);
            let can_reach =
                |(endpoint, _): &&(&EndpointRecord, &SlicePort)| node.can_reach(endpoint, remote);
            let reachable = backends.iter().filter(can_reach);
            let endpoints: BTreeSet<_> = reachable.map(endpoint).collect();
            let label =
                if port.name.is_empty() { port.port.to_string() } else { port.name.clone() };
            all.push(Service {
                id: format!("{namespace}/{name}:{label}/{}", port.protocol),
                address,
                external_addresses: service.external_addresses.clone(),
                protocol: port.protocol,
                port: port.port,
                node_port: port.node_port,
                affinity: service.affinity,
                internal: service.internal,
                external: service.external,
                endpoints: endpoints.into_iter().collect(),
            });
        }
    }
    all
}

/// The names of all services: `name.namespace.svc.cluster.local` and what is below.
pub(super) fn records(
    services: &BTreeMap<ObjectKey, ServiceRecord>,
    slices: &BTreeMap<ObjectKey, SliceRecord>,
) -> ServiceRecords {
    let slices = by_service(slices);
    let mut records = ServiceRecords::default();
    for (ObjectKey { namespace, name }, service) in services {
        let full = format!("{name}.{namespace}.svc.{ZONE}");
        let own = slices.get(&(namespace.as_str(), name.as_str()));
        let own = own.map(Vec::as_slice).unwrap_or_default();
        // A name that is none was refused by the API; the others do not suffer from it.
        let _ = match &service.sort {
            ServiceType::Address(address) => with_address(&mut records, &full, *address, service),
            ServiceType::Headless => headless(&mut records, &full, service, own),
            ServiceType::External(target) => records.insert_alias(&full, target),
        };
    }
    records
}

fn with_address(
    records: &mut ServiceRecords,
    full: &str,
    address: Ipv4Addr,
    service: &ServiceRecord,
) -> Result<(), net::NamesError> {
    records.insert_address(full, address)?;
    records.insert_pointer(address, full)?;
    for port in service.ports.iter().filter(|port| !port.name.is_empty()) {
        let name = format!("_{}._{}.{full}", port.name, port.protocol);
        records.insert_port(&name, port.port, full)?;
    }
    Ok(())
}

/// Endpoints are found below the name, by their host names or else by their addresses.
fn headless(
    records: &mut ServiceRecords,
    full: &str,
    service: &ServiceRecord,
    slices: &[&SliceRecord],
) -> Result<(), net::NamesError> {
    let below = |endpoint: &EndpointRecord| match &endpoint.hostname {
        Some(hostname) => format!("{hostname}.{full}"),
        None => format!("{}.{full}", endpoint.address.to_string().replace('.', "-")),
    };
    let all = slices.iter().flat_map(|slice| &slice.endpoints);
    for endpoint in all.filter(|endpoint| endpoint.is_ready) {
        let own = below(endpoint);
        for name in [full, &own] {
            records.insert_address(name, endpoint.address)?;
        }
        records.insert_pointer(endpoint.address, &own)?;
    }
    for port in service.ports.iter().filter(|port| !port.name.is_empty()) {
        let name = format!("_{}._{}.{full}", port.name, port.protocol);
        for (endpoint, target) in backends(slices, port) {
            records.insert_port(&name, target.port, &below(endpoint))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
