//! Uplinks: how VLANs of guests leave the node, over bonds of its network cards.
//!
//! ```text
//!   card ─┐
//!   card ─┴─ bond ── bridge ── taps of guests
//! ```
//!
//! The bridge filters VLANs and a port that joins it carries none until it is given one, so that a
//! crash between two steps leaves a guest without a network and never in another network. The
//! desired state is [`Uplink`], the observed state [`ObservedLink`], and [`plan::plan`] decides
//! the steps. Links made here carry the group that marks ours; others are never changed, and a
//! card that other software uses is never taken.

mod apply;
mod cards;
mod duplicate;
mod interface;
mod observe;
pub(crate) mod plan;
mod service;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::mac::Mac;
use crate::name::LinkName;
use crate::vlan::{PortVlan, VlanId};

pub use apply::UplinkError;
pub(crate) use apply::{add_vlan, remove_vlan};
pub use interface::plan_host;
pub(crate) use observe::{observe, port_vlans};
pub use plan::{UplinkPlan, UplinkStep, plan as plan_uplinks};
pub use service::{UplinkReport, Uplinks};

/// Marks the bridges and bonds of uplinks, as the link's group: "SHEB" in ASCII.
pub(crate) const UPLINK_GROUP: u32 = 0x5348_4542;

/// One bridge with the bond that connects it to the network outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uplink {
    pub bridge: LinkName,
    pub bond: LinkName,
    /// The cards of the bond, in the order of preference.
    pub nics: Vec<LinkName>,
    pub mode: BondMode,
    /// How often the bond checks the carrier of its cards, in milliseconds.
    pub miimon: u32,
    pub mtu: u16,
    /// The address of the bond; without one, that of its first card.
    pub mac: Option<Mac>,
    pub tx_queue_len: Option<u32>,
    /// The VLANs that pass, beside the untagged network.
    pub vlans: BTreeSet<VlanId>,
}

impl Uplink {
    /// The VLANs of the bond as a port of its bridge.
    pub fn port_vlans(&self) -> PortVlan {
        PortVlan::trunk(self.vlans.iter().copied())
    }
}

/// An interface of the host itself in a VLAN of a bridge, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInterface {
    pub link: LinkName,
    /// The bridge that it is made on; another one than ours must exist already.
    pub bridge: LinkName,
    pub vlan: VlanId,
    #[serde(default)]
    pub origin: AddressOrigin,
    pub addresses: Vec<IpNet>,
}

/// Origin of the addresses of an interface.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressOrigin {
    /// They are part of what is wanted.
    #[default]
    Static,
    /// A DHCP server gives them; they come and go without a trial.
    Dhcp,
}

/// How a bond uses its cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BondMode {
    BalanceRoundRobin,
    ActiveBackup,
    BalanceXor,
    Broadcast,
    Lacp,
    BalanceTransmit,
    BalanceAdaptive,
}

/// The modes with the kernel's names and numbers.
const BOND_MODES: [(BondMode, &str, u8); 7] = [
    (BondMode::BalanceRoundRobin, "balance-rr", 0),
    (BondMode::ActiveBackup, "active-backup", 1),
    (BondMode::BalanceXor, "balance-xor", 2),
    (BondMode::Broadcast, "broadcast", 3),
    (BondMode::Lacp, "802.3ad", 4),
    (BondMode::BalanceTransmit, "balance-tlb", 5),
    (BondMode::BalanceAdaptive, "balance-alb", 6),
];

impl BondMode {
    pub(crate) fn number(self) -> u8 {
        BOND_MODES.iter().find(|(mode, ..)| *mode == self).map_or(1, |(.., number)| *number)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        BOND_MODES.iter().find(|(.., of)| *of == number).map(|(mode, ..)| *mode)
    }
}

impl fmt::Display for BondMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            BOND_MODES.iter().find(|(mode, ..)| mode == self).map_or("", |(_, name, _)| name),
        )
    }
}

/// A text that names no mode of bonds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "bond mode {name:?} must be one of balance-rr, active-backup, balance-xor, broadcast, 802.3ad, balance-tlb, balance-alb"
)]
pub struct BondModeError {
    pub name: String,
}

impl FromStr for BondMode {
    type Err = BondModeError;

    fn from_str(name: &str) -> Result<Self, BondModeError> {
        let found = BOND_MODES.iter().find(|(_, of, _)| *of == name);
        found.map(|(mode, ..)| *mode).ok_or_else(|| BondModeError { name: name.to_owned() })
    }
}

/// All links of the node, by name.
pub type ObservedLinks = BTreeMap<LinkName, ObservedLink>;

/// Observed state of one link of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLink {
    pub index: u32,
    pub kind: ObservedKind,
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub tx_queue_len: u32,
    pub is_up: bool,
    /// Whether the kernel considers the link able to carry frames.
    pub has_carrier: bool,
    /// Operational state, as the driver reports it.
    pub state: LinkState,
    pub is_promiscuous: bool,
    pub group: u32,
    /// The bond or bridge that the link belongs to.
    pub master: Option<u32>,
    /// The link that this one is made on, as a VLAN interface is.
    pub lower: Option<u32>,
    /// The host's addresses, without those that every link has.
    pub addresses: Vec<IpNet>,
    /// The VLANs of a port of a bridge; of a bridge, those that the host itself is in.
    pub vlans: PortVlan,
    /// State of a card in its bond.
    pub member: Option<BondMember>,
}

/// Operational state of a link (RFC 2863).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    Up,
    Down,
    /// The driver does not report it, or it is in between.
    Unknown,
}

/// Kinds of links, with their settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedKind {
    /// A network card.
    Nic,
    Bond {
        mode: Option<BondMode>,
        miimon: u32,
    },
    Bridge {
        filters_vlans: bool,
        default_vlan: u16,
    },
    /// An interface for one VLAN of the link below.
    Vlan {
        vlan: Option<VlanId>,
    },
    /// Another sort, by the kernel's name.
    Other(String),
}

/// A card in a bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BondMember {
    /// Whether frames leave through it.
    pub is_active: bool,
    /// The group of cards that the switch accepted it into, with LACP.
    pub aggregator: Option<u16>,
}

impl ObservedLink {
    pub(crate) fn is_ours(&self) -> bool {
        self.group == UPLINK_GROUP
    }

    pub(crate) fn is_loopback(&self) -> bool {
        self.kind == ObservedKind::Other("loopback".to_owned())
    }

    /// Whether it is a network card, or a cable that represents one.
    pub(crate) fn is_card(&self) -> bool {
        match &self.kind {
            ObservedKind::Nic => true,
            ObservedKind::Other(kind) => kind == "veth",
            _ => false,
        }
    }

    /// The kind as the kernel names it; that of a card is `device`.
    pub fn kind_name(&self) -> &str {
        match &self.kind {
            ObservedKind::Nic => "device",
            ObservedKind::Bond { .. } => "bond",
            ObservedKind::Bridge { .. } => "bridge",
            ObservedKind::Vlan { .. } => "vlan",
            ObservedKind::Other(name) => name,
        }
    }
}

/// Problem of an uplink. The texts of the first two, and of an interface that
/// is no bridge, are Harvester's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum UplinkProblem {
    #[error("get link {nic} failed, error: Link not found")]
    Missing { nic: LinkName },
    #[error("{nic} has been enslaved by the link with index {master}")]
    Enslaved { nic: LinkName, master: u32 },
    #[error("{nic} has the address {address} and is used by this node itself")]
    HasAddress { nic: LinkName, address: IpNet },
    #[error("{nic} is used by the interface {upper} of this node")]
    HasUpper { nic: LinkName, upper: LinkName },
    #[error("{nic} is already wanted for bridge {other}; an interface belongs to one uplink only")]
    Shared { nic: LinkName, other: LinkName },
    #[error("{nic} is a {kind}; only network cards can be members of a bond")]
    NotANic { nic: LinkName, kind: String },
    #[error("{link} already exists but is not a {kind}")]
    WrongKind { link: LinkName, kind: &'static str },
    #[error("{link} already exists and was not made by Sheaf; rename or remove it")]
    Foreign { link: LinkName },
    #[error("bridge {bridge} is not wanted any more, but {port} is attached to it")]
    InUse { bridge: LinkName, port: LinkName },
    #[error("{address} overlaps {other} of {link}, through which this node may be reached")]
    Overlap { address: IpNet, other: IpNet, link: LinkName },
    #[error("get link {bridge} failed, error: Link not found")]
    NoBridge { bridge: LinkName },
}
