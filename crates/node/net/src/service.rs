//! Virtual addresses of services, in the caller's words: which address and port leads to which
//! endpoints, and under which policy. Knows nothing of Kubernetes; `rules` turns this into nftables.

pub(crate) mod reroute;
pub(crate) mod rules;

use std::net::Ipv4Addr;

use sha2::{Digest, Sha256};

use crate::want::Protocol;

/// The name of the nftables tables of services, in the families `inet` and `netdev`.
pub(crate) fn table(table: &str) -> String {
    format!("{table}_services")
}

/// One port of one service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Distinguishes it from all others and is shown to operators in the rules:
    /// `namespace/name:port`.
    pub id: String,
    /// The address that the service has inside the cluster.
    pub address: Ipv4Addr,
    /// Addresses outside the cluster at which this node answers for the service, at `port`.
    pub external_addresses: Vec<Ipv4Addr>,
    pub protocol: Protocol,
    pub port: u16,
    /// The port at which every node answers for the service.
    pub node_port: Option<u16>,
    /// For how many seconds after its last new connection a client stays with an endpoint.
    pub affinity: Option<u32>,
    /// Which endpoints serve connections to `address`.
    pub internal: EndpointScope,
    /// Which endpoints serve connections to `node_port` and `external_addresses` that come from
    /// outside.
    pub external: EndpointScope,
    /// Those that are ready.
    pub endpoints: Vec<Endpoint>,
}

/// One process that answers for a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: Ipv4Addr,
    pub port: u16,
    pub location: Location,
}

/// Where an endpoint runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A guest of this node's NAT network, or the node itself.
    ThisNode,
    Elsewhere,
}

/// Which endpoints may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum EndpointScope {
    #[default]
    Cluster,
    /// Those on this node only; connections are dropped when it has none.
    Local,
}

impl Service {
    fn endpoints_in(&self, scope: EndpointScope) -> Vec<&Endpoint> {
        let is_in = |endpoint: &&Endpoint| {
            scope == EndpointScope::Cluster || endpoint.location == Location::ThisNode
        };
        self.endpoints.iter().filter(is_in).collect()
    }

    /// A part of the names of its chains, the same as long as `id` is.
    fn key(&self) -> String {
        short_hash(&self.id)
    }

    fn endpoint_key(&self, endpoint: &Endpoint) -> String {
        short_hash(&format!("{} {}:{}", self.id, endpoint.address, endpoint.port))
    }

    /// `id` as a comment of nftables, which may have 127 bytes and no quotes.
    fn comment(&self) -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_./:".contains(*c);
        self.id.chars().filter(is_plain).take(120).collect()
    }
}

pub(crate) fn short_hash(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..6])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
