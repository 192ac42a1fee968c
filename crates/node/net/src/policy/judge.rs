//! Which verdict the rules of policies have on the first packet of a connection. Pure, and the same
//! decisions as the table that `rules` writes; tests compare both.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::{AddressBlock, AllowRule, AllowedPorts, Ingress, Peers, Policies};
use crate::want::Protocol;

/// The first packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstPacket {
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    pub protocol: Protocol,
    pub port: u16,
}

/// The rules' decision about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyVerdict {
    Accept,
    Drop,
    /// The policies of the guest are not known: it is cut off.
    UnknownGuest,
}

impl Policies {
    /// The verdict on what a guest of this node sends.
    pub fn judge_egress(&self, packet: &FirstPacket) -> PolicyVerdict {
        if packet.from == packet.to && self.restricted.contains_key(&packet.from) {
            return PolicyVerdict::Accept;
        }
        if !self.guests.contains(&packet.from) {
            return PolicyVerdict::UnknownGuest;
        }
        let rules = self.restricted.get(&packet.from).and_then(|own| own.egress.as_deref());
        match rules {
            None => PolicyVerdict::Accept,
            Some(rules) => allowed(rules, packet.to, packet),
        }
    }

    /// The verdict on what a guest of this node is sent. `network` is that of guests, and `nodes`
    /// are the addresses of nodes in it.
    pub fn judge_ingress(
        &self,
        packet: &FirstPacket,
        network: Ipv4Net,
        nodes: &BTreeSet<Ipv4Addr>,
    ) -> PolicyVerdict {
        if packet.from == packet.to && self.restricted.contains_key(&packet.to) {
            return PolicyVerdict::Accept;
        }
        if !self.guests.contains(&packet.to) {
            return PolicyVerdict::UnknownGuest;
        }
        match self.restricted.get(&packet.to).map(|own| &own.ingress) {
            None | Some(Ingress::All) => PolicyVerdict::Accept,
            Some(Ingress::Only(rules)) => allowed(rules, packet.from, packet),
            Some(Ingress::IsolatedTo(guests)) => {
                let is_guest = network.contains(&packet.from) && !nodes.contains(&packet.from);
                if !is_guest || guests.contains(&packet.from) {
                    PolicyVerdict::Accept
                } else {
                    PolicyVerdict::Drop
                }
            }
        }
    }
}

fn allowed(rules: &[AllowRule], peer: Ipv4Addr, packet: &FirstPacket) -> PolicyVerdict {
    let fits = |rule: &AllowRule| rule.peers.has(peer) && rule.ports.has(packet);
    if rules.iter().any(fits) { PolicyVerdict::Accept } else { PolicyVerdict::Drop }
}

impl Peers {
    fn has(&self, peer: Ipv4Addr) -> bool {
        match self {
            Self::Any => true,
            Self::Only { addresses, blocks } => {
                addresses.contains(&peer) || blocks.iter().any(|block| block.has(peer))
            }
        }
    }
}

impl AddressBlock {
    fn has(&self, peer: Ipv4Addr) -> bool {
        self.cidr.contains(&peer) && !self.except.iter().any(|except| except.contains(&peer))
    }
}

impl AllowedPorts {
    fn has(&self, packet: &FirstPacket) -> bool {
        match self {
            Self::All => true,
            Self::Only(ranges) => ranges.iter().any(|range| {
                range.protocol == packet.protocol && range.range().contains(&packet.port)
            }),
        }
    }
}
