//! Networks of a node: bridges, taps, addresses, NAT, DHCP and DNS for guests.
//!
//! Knows nothing of Kubernetes; the agent translates objects into its types. The desired state is
//! [`DesiredNetwork`], the observed state is [`ObservedNetwork`], and [`plan`] computes the steps
//! from one to the other; the rest carries them out. Everything made here is recognised by its
//! name, and nothing else is ever removed:
//!
//! ```text
//!   links     the bridge, taps that begin with the prefix, and the prefix with `vxlan`
//!   nftables  two tables of one name, in the families `bridge` and `inet`, a third of that
//!             name with `_seen`, two with `_services`, in the families `inet` and `netdev`, two
//!             with `_policies`, in `inet` and `bridge`, and two with `_hosts` and `_overlay`, in
//!             the family `inet`
//!   addresses of load balancers, with the label `sheaf:lb`
//!   sysctls   net.ipv4.ip_forward stays on when the network is removed; the others belong to
//!             the bridge and go with it
//! ```
//!
//! Guests of the NAT network do not see each other's frames: their ports are isolated, and the
//! host answers ARP for all of them. Traffic between two guests is therefore routed like any other,
//! which lets one stateful filter judge it on every host, whether or not `br_netfilter` is loaded.
//! Guests of other nodes are routed to in the same way, through a tunnel: see [`Overlay`].

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test is one scenario or one table"))]

mod announce;
mod apply;
mod available;
mod conntrack;
mod dhcp;
mod dns;
mod host;
mod hosts;
mod learn;
mod mac;
mod name;
mod network;
mod nft;
mod observe;
mod obstacle;
mod overlay;
mod packet;
mod plan;
mod policy;
mod pool;
mod resolv;
mod rules;
mod service;
mod tap;
mod tap_policy;
mod uplink;
mod user;
mod vlan;
mod want;

pub use announce::{AddressUse, AnnounceError, AnnounceLink, Announcer, ObservedAnnouncements};
pub use apply::ApplyError;
pub use available::{Unavailable, available};
pub use dhcp::client::HostLease;
pub use dhcp::host::{DhcpInterface, HostDhcp, HostLeases};
pub use dhcp::port::{PortDhcp, PortLease};
pub use dhcp::server::{Dhcp, DhcpError};
pub use dhcp::{DhcpOptions, DhcpServer, Lease, OptionError, PrivateOption};
pub use dns::records::ServiceRecords;
pub use dns::server::{Dns, DnsError};
pub use dns::{DnsNames, NamesError};
pub use host::health::{HealthFailure, HealthRound, PingTarget, PingTargets};
pub use host::ping::{default_gateways, ping};
pub use host::record::{RecordError, RecordFile, boot_id};
pub use host::trial::{
    Confirmation, HostChange, HostRecord, HostUnit, NewTrial, RejectedUnit, Trial, TrialChecks,
    TrialError, TrialEvent, TrialState, host_parts,
};
pub use host::watchdog::{WatchdogError, restore, run as run_watchdog};
pub use hosts::{ClusterHosts, HostGuard, HostRules, HostVerdict};
pub use learn::{Neighbour, Traffic};
pub use mac::{Mac, MacError};
pub use name::{LinkName, LinkNameError};
pub use network::{Network, NetworkError};
pub use nft::NftError;
pub use observe::{ObserveError, host_addresses};
pub use obstacle::{Firewall, ForeignChain, NetworkObstacle};
pub use overlay::plan::{OverlayAction, SeenOverlay};
pub use overlay::rules::OverlayRules;
pub use overlay::{GuestOverlay, Overlay, OverlayPeer};
pub use plan::{Conflict, LinkKind, NetworkAction, NetworkInterface, ObservedNetwork, plan};
pub use policy::judge::{Decider, FirstPacket, Judgement};
pub use policy::rules::PolicyRules;
pub use policy::{
    AddressBlock, AllowRule, AllowedPorts, GuestPolicies, GuestPolicy, Ingress, Peers, Policies,
    PortRange, RuleSource, Tier, TierAction, TierRule, Tiers,
};
pub use pool::Pool;
pub use resolv::{UpstreamError, Upstreams};
pub use service::reroute::{Reroute, SeenReroute};
pub use service::rules::ServiceRules;
pub use service::{Endpoint, EndpointScope, Location, Service};
pub use tap::{Queues, open_tap};
pub use tap_policy::judge::{BridgedPacket, TapVerdict};
pub use tap_policy::{TapBlock, TapPeers, TapPolicies, TapPolicy, TapRule, TapRules};
pub use uplink::{
    AddressOrigin, BondMember, BondMode, BondModeError, HostInterface, LinkState, ObservedKind,
    ObservedLink, ObservedLinks, Uplink, UplinkError, UplinkPlan, UplinkProblem, UplinkReport,
    UplinkStep, Uplinks, plan_host, plan_uplinks,
};
pub use user::{Forward, UserNet};
pub use vlan::{PortVlan, VlanId, VlanIdError, VlanRole};
pub use want::{
    Attachment, Bridge, DesiredNetwork, InboundPolicy, Port, Protocol, SpoofGuard, WantError,
};
