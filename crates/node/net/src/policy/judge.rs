//! Which decision the rules of policies make about the first packet of a connection, and which rule
//! makes it. Pure, and the same decisions as the table that `rules` writes; tests compare both.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;

use super::{
    AddressBlock, AllowRule, AllowedPorts, Ingress, Peers, Policies, RuleSource, Tier, TierAction,
    TierRule,
};
use crate::want::Protocol;

/// The first packet of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstPacket {
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    pub protocol: Protocol,
    pub port: u16,
}

/// The decision about a packet in one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement<'a> {
    pub is_accepted: bool,
    pub decider: Decider<'a>,
    /// Rules that fit before, and left the decision to the next tier.
    pub passed: Vec<(Tier, &'a RuleSource)>,
}

/// Origin of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decider<'a> {
    /// The policies of the guest are not known: it is cut off.
    UnknownGuest,
    /// A rule of an administrator.
    Tier(Tier, &'a RuleSource),
    /// The rules of the guest's namespace.
    Namespace,
    /// The isolation of the guest's namespace.
    Isolation,
    /// Nothing restricts the guest.
    Nothing,
}

/// A decision that is being made.
struct Judge<'a> {
    packet: FirstPacket,
    peer: Ipv4Addr,
    passed: Vec<(Tier, &'a RuleSource)>,
}

impl<'a> Judge<'a> {
    fn new(packet: &FirstPacket, peer: Ipv4Addr) -> Self {
        Self { packet: *packet, peer, passed: vec![] }
    }

    fn decide(self, is_accepted: bool, decider: Decider<'a>) -> Judgement<'a> {
        Judgement { is_accepted, decider, passed: self.passed }
    }

    /// Whether a rule of a tier decides, and how.
    fn tier(&mut self, tier: Tier, rules: &'a [Arc<TierRule>]) -> Option<(bool, Decider<'a>)> {
        let fits = |rule: &&Arc<TierRule>| self.fits(&rule.peers, &rule.ports);
        let rule = rules.iter().find(fits)?;
        match rule.action {
            TierAction::Accept => Some((true, Decider::Tier(tier, &rule.source))),
            TierAction::Deny => Some((false, Decider::Tier(tier, &rule.source))),
            TierAction::Pass => {
                self.passed.push((tier, &rule.source));
                None
            }
        }
    }

    fn fits(&self, peers: &Peers, ports: &AllowedPorts) -> bool {
        peers.has(self.peer) && ports.has(&self.packet)
    }

    /// Whether the rules of a namespace allow the packet. A guest that reaches itself through a
    /// service is not restricted by them.
    fn is_allowed(&self, rules: &[AllowRule]) -> bool {
        self.packet.from == self.packet.to
            || rules.iter().any(|rule| self.fits(&rule.peers, &rule.ports))
    }
}

impl Policies {
    /// The decision about what a guest of this node sends.
    pub fn judge_egress(&self, packet: &FirstPacket) -> Judgement<'_> {
        let mut judge = Judge::new(packet, packet.to);
        if !self.guests.contains(&packet.from) {
            return judge.decide(false, Decider::UnknownGuest);
        }
        let Some(own) = self.restricted.get(&packet.from) else {
            return judge.decide(true, Decider::Nothing);
        };
        if let Some((is_accepted, decider)) = judge.tier(Tier::Admin, &own.egress_tiers.admin) {
            return judge.decide(is_accepted, decider);
        }
        if let Some(rules) = &own.egress {
            let is_accepted = judge.is_allowed(rules);
            return judge.decide(is_accepted, Decider::Namespace);
        }
        match judge.tier(Tier::Baseline, &own.egress_tiers.baseline) {
            Some((is_accepted, decider)) => judge.decide(is_accepted, decider),
            None => judge.decide(true, Decider::Nothing),
        }
    }

    /// The decision about what a guest of this node is sent. `network` is that of guests, and
    /// `nodes` are the addresses of nodes in it.
    pub fn judge_ingress(
        &self,
        packet: &FirstPacket,
        network: Ipv4Net,
        nodes: &BTreeSet<Ipv4Addr>,
    ) -> Judgement<'_> {
        let mut judge = Judge::new(packet, packet.from);
        if !self.guests.contains(&packet.to) {
            return judge.decide(false, Decider::UnknownGuest);
        }
        let Some(own) = self.restricted.get(&packet.to) else {
            return judge.decide(true, Decider::Nothing);
        };
        if let Some((is_accepted, decider)) = judge.tier(Tier::Admin, &own.ingress_tiers.admin) {
            return judge.decide(is_accepted, decider);
        }
        if let Ingress::Only(rules) = &own.ingress {
            let is_accepted = judge.is_allowed(rules);
            return judge.decide(is_accepted, Decider::Namespace);
        }
        let baseline = judge.tier(Tier::Baseline, &own.ingress_tiers.baseline);
        if let Some((is_accepted, decider)) = baseline {
            return judge.decide(is_accepted, decider);
        }
        let Ingress::IsolatedTo(guests) = &own.ingress else {
            return judge.decide(true, Decider::Nothing);
        };
        let is_guest = network.contains(&packet.from) && !nodes.contains(&packet.from);
        judge.decide(!is_guest || guests.contains(&packet.from), Decider::Isolation)
    }
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
