//! Which connections the policies of a cluster allow to and from guests of the NAT network.
//!
//! Knows nothing of Kubernetes; the agent resolves selectors into addresses. `rules` turns this into
//! nftables. In each direction the rules of administrators come first (tier Admin), then those of
//! namespaces, then, where these do not decide, other rules of administrators (tier Baseline), and at
//! last the isolation of the namespace.

pub(crate) mod judge;
pub(crate) mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::Ipv4Net;

use crate::tap_policy::TapPolicies;
use crate::want::Protocol;

/// The name of the nftables tables of policies: in the family `inet` for the guest network, and in
/// the family `bridge` for interfaces on bridges.
pub(crate) fn table(table: &str) -> String {
    format!("{table}_policies")
}

/// Which policies are enforced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GuestPolicies {
    /// None, and rules that exist are left alone.
    #[default]
    Unenforced,
    /// Those in force stay so until they are known; where there are none, guests are cut off.
    Unknown,
    Known(Policies),
}

/// The policies of all guests and interfaces that this node may see packets of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policies {
    /// Addresses of guests for which policies have been evaluated. A guest that is missing here
    /// neither sends nor receives: its policies are not known yet.
    pub guests: BTreeSet<Ipv4Addr>,
    /// Guests whose connections are restricted.
    pub restricted: BTreeMap<Ipv4Addr, GuestPolicy>,
    /// Interfaces on bridges.
    pub taps: TapPolicies,
}

/// The restrictions of one guest. Answers on established connections always pass, and so does what
/// the node itself sends, DHCP and DNS.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestPolicy {
    pub ingress: Ingress,
    /// Allowed connections from the guest; none where everything is allowed.
    pub egress: Option<Vec<AllowRule>>,
    /// Rules of administrators about connections to the guest.
    pub ingress_tiers: Tiers,
    /// Rules of administrators about connections from the guest.
    pub egress_tiers: Tiers,
}

/// Rules of administrators around those of namespaces. The first one that fits decides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tiers {
    pub admin: Vec<Arc<TierRule>>,
    /// Not reached where rules of the namespace decide.
    pub baseline: Vec<Arc<TierRule>>,
}

/// The tiers in which administrators write rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Admin,
    Baseline,
}

impl fmt::Display for Tier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Admin => "Admin",
            Self::Baseline => "Baseline",
        })
    }
}

/// A rule of an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierRule {
    pub source: RuleSource,
    pub action: TierAction,
    pub peers: Peers,
    pub ports: AllowedPorts,
}

/// Where a rule of an administrator is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSource {
    pub policy: String,
    pub priority: u16,
    /// Position in the list of its direction, from 1.
    pub number: usize,
    pub name: Option<String>,
}

/// The effect of a rule on a connection that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierAction {
    Accept,
    Deny,
    /// The next tier decides.
    Pass,
}

/// Which new connections may reach a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Ingress {
    #[default]
    All,
    /// Those that a rule allows.
    Only(Vec<AllowRule>),
    /// All but those of other guests than these.
    IsolatedTo(BTreeSet<Ipv4Addr>),
}

/// Connections with one of `peers` at one of `ports` are allowed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowRule {
    pub peers: Peers,
    pub ports: AllowedPorts,
}

/// The other ends of connections.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peers {
    Any,
    Only { addresses: BTreeSet<Ipv4Addr>, blocks: Vec<AddressBlock> },
}

/// A range of addresses with exceptions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressBlock {
    pub cidr: Ipv4Net,
    pub except: Vec<Ipv4Net>,
}

/// Ports at the server's end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum AllowedPorts {
    /// Every port of every protocol, and protocols without ports.
    All,
    Only(BTreeSet<PortRange>),
}

/// Consecutive ports of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortRange {
    pub protocol: Protocol,
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    fn range(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }
}

#[cfg(test)]
mod tests;
