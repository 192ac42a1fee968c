//! Which connections policies allow to and from interfaces of guests on bridges: VLANs, and bridges of
//! the host.
//!
//! Knows nothing of Kubernetes; the agent resolves selectors into addresses. `rules` turns this into
//! nftables, `judge` makes the same decision in Rust. Unlike the guest network, such a network may
//! have IPv6, and the same addresses may exist in two of them: everything is by tap.

pub(crate) mod judge;
pub(crate) mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use crate::name::LinkName;
use crate::policy::AllowedPorts;

/// Interfaces on bridges whose policies have been evaluated. One that is missing here neither sends
/// nor receives.
pub type TapPolicies = BTreeMap<LinkName, TapPolicy>;

/// The restrictions of one interface. Replies on known connections, ARP, neighbour discovery and DHCP
/// always pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TapPolicy {
    /// Connections to the guest; none where all are allowed.
    pub ingress: Option<TapRules>,
    /// Connections from the guest; likewise.
    pub egress: Option<TapRules>,
}

/// All that is allowed in one direction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TapRules {
    /// The policies that restrict the direction, as NAMESPACE/NAME.
    pub policies: BTreeSet<String>,
    pub rules: Vec<TapRule>,
}

/// Connections with one of `peers` at one of `ports` are allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TapRule {
    /// The policy that has the rule.
    pub policy: String,
    pub peers: TapPeers,
    pub ports: AllowedPorts,
}

/// The other ends of connections.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TapPeers {
    Any,
    Only { addresses: BTreeSet<IpAddr>, blocks: Vec<TapBlock> },
}

/// A range of addresses with exceptions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TapBlock {
    pub cidr: IpNet,
    pub except: Vec<IpNet>,
}

impl TapPolicy {
    fn is_restricted(&self) -> bool {
        self.ingress.is_some() || self.egress.is_some()
    }
}

#[cfg(test)]
mod tests;
