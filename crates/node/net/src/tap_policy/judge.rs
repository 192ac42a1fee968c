//! Which decision the rules of an interface make about the first packet of a connection. Pure, and the
//! same decision as that of the table that `rules` writes; tests compare both.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{TapBlock, TapPeers, TapPolicy, TapRules};
use crate::policy::AllowedPorts;
use crate::want::Protocol;

/// The first packet of a connection on a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgedPacket {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: Protocol,
    pub port: u16,
}

/// The verdict on a packet in one direction, with the policies behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapVerdict<'a> {
    /// No policy selects the interface for this direction: accepted.
    Unrestricted,
    /// A rule of this policy accepts the packet.
    Allowed(&'a str),
    /// No rule of these policies accepts the packet.
    Dropped(&'a BTreeSet<String>),
}

impl TapPolicy {
    /// The verdict on a packet from the guest.
    pub fn judge_egress(&self, packet: &BridgedPacket) -> TapVerdict<'_> {
        judge(self.egress.as_ref(), packet, packet.to)
    }

    /// The verdict on a packet to the guest.
    pub fn judge_ingress(&self, packet: &BridgedPacket) -> TapVerdict<'_> {
        judge(self.ingress.as_ref(), packet, packet.from)
    }
}

fn judge<'a>(rules: Option<&'a TapRules>, packet: &BridgedPacket, peer: IpAddr) -> TapVerdict<'a> {
    let Some(all) = rules else { return TapVerdict::Unrestricted };
    let fits = all.rules.iter().find(|rule| rule.peers.has(peer) && has(&rule.ports, packet));
    fits.map_or(TapVerdict::Dropped(&all.policies), |rule| TapVerdict::Allowed(&rule.policy))
}

impl TapPeers {
    fn has(&self, peer: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Only { addresses, blocks } => {
                addresses.contains(&peer) || blocks.iter().any(|block| block.has(peer))
            }
        }
    }
}

impl TapBlock {
    fn has(&self, peer: IpAddr) -> bool {
        self.cidr.contains(&peer) && !self.except.iter().any(|except| except.contains(&peer))
    }
}

fn has(ports: &AllowedPorts, packet: &BridgedPacket) -> bool {
    match ports {
        AllowedPorts::All => true,
        AllowedPorts::Only(ranges) => ranges.iter().any(|range| {
            range.protocol == packet.protocol && (range.first..=range.last).contains(&packet.port)
        }),
    }
}
