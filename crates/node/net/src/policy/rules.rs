//! The nftables table that enforces policies of the guest network, in one transaction with that of
//! interfaces on bridges (`tap_policy`). Pure.
//!
//! ```text
//!   forward   established connections pass; a guest without evaluated policies is cut off; the
//!             sender's egress chain returns or drops, the receiver's ingress chain accepts or drops
//!   egress_*  a chain for each tier: `egress_admin_*`, then that of the namespace's rules, or else
//!   ingress_* `egress_baseline_*`; a rule that passes goes to the next one, and so does the end
//! ```
//!
//! The table only drops. Its chain has a later priority than the filter of the guest network, whose
//! verdict `accept` does not end the evaluation here. Guests with equal restrictions share a chain.
//! Packets from a guest to a service come in at `lo` (see `service::reroute`), so the sender is
//! recognised by its address, which it cannot forge (see `rules`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use sha2::{Digest, Sha256};

use super::{
    AddressBlock, AllowRule, AllowedPorts, GuestPolicy, Ingress, Peers, Policies, PortRange, Tier,
    TierAction, TierRule, table,
};
use crate::rules::{DIGEST_CHAIN, set};
use crate::service::{hex, short_hash};
use crate::tap_policy::rules::TapTable;
use crate::want::{Bridge, Port, Protocol};

/// A transaction for nftables, and the digest that shows whether it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRules {
    pub digest: String,
    pub text: String,
}

/// Which end of a connection the peers of a rule are.
#[derive(Clone, Copy)]
enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn peer(self) -> &'static str {
        match self {
            Self::Ingress => "ip saddr",
            Self::Egress => "ip daddr",
        }
    }

    /// The verdict on what is allowed: the receiver's policies come after the sender's.
    fn allow(self) -> &'static str {
        match self {
            Self::Ingress => "accept",
            Self::Egress => "return",
        }
    }

    /// Begins the names of chains.
    fn prefix(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

impl PolicyRules {
    /// `nodes` are addresses of nodes on the guest network: packets from there are not from a
    /// guest, but from outside, through a node. `seen` are the chains of the table in the family
    /// `bridge`.
    pub(crate) fn new(
        bridge: &Bridge,
        ports: &[Port],
        policies: &Policies,
        nodes: &BTreeSet<Ipv4Addr>,
        seen: &BTreeSet<String>,
    ) -> Self {
        let body = body(bridge, policies, nodes);
        let of_guest_network = ports.iter().filter(|port| port.address().is_some());
        let taps = TapTable {
            prefix: &bridge.tap_prefix,
            elsewhere: of_guest_network.map(|port| &port.tap).collect(),
            policies: &policies.taps,
        }
        .ruleset();
        let hash = Sha256::digest(format!("{body}{}", taps.body()).as_bytes());
        let digest = hex(&hash[..12]);
        let table = table(&bridge.table);
        let stamp = format!("{DIGEST_CHAIN}{digest}");
        let taps = taps.transaction(&table, &stamp, seen);
        let text = format!(
            "add table inet {table}\n\
             delete table inet {table}\n\
             table inet {table} {{\n\
             \tchain {stamp} {{\n\t}}\n\
             {body}}}\n\
             {taps}"
        );
        Self { digest, text }
    }

    /// Whether both tables carry the digest.
    pub(crate) fn is_in_force(
        &self,
        guests: Option<&str>,
        taps: Option<&BTreeSet<String>>,
    ) -> bool {
        guests == Some(self.digest.as_str())
            && taps.is_some_and(|seen| seen.contains(&format!("{DIGEST_CHAIN}{}", self.digest)))
    }
}

fn body(bridge: &Bridge, policies: &Policies, nodes: &BTreeSet<Ipv4Addr>) -> String {
    let (name, network) = (&bridge.name, bridge.gateway.trunc());
    let mut chains = Chains { network, rules: BTreeMap::new() };
    let (mut ingress, mut egress) = (BTreeMap::new(), BTreeMap::new());
    for (policy, addresses) in by_policy(&policies.restricted) {
        if let Some(chain) = chains.ingress(policy) {
            ingress.extend(addresses.iter().map(|own| (*own, format!("{own} : goto {chain}"))));
        }
        if let Some(chain) = chains.egress(policy) {
            egress.extend(addresses.iter().map(|own| (*own, format!("{own} : jump {chain}"))));
        }
    }
    let mut text = set("guests", "ipv4_addr", policies.guests.iter().map(ToString::to_string));
    let itself = policies.restricted.keys().map(|address| format!("{address} . {address}"));
    text += &set("itself", "ipv4_addr . ipv4_addr", itself);
    text += &set("nodes", "ipv4_addr", nodes.iter().map(ToString::to_string));
    for (chain, rules) in &chains.rules {
        let _ = write!(text, "\tchain {chain} {{\n\t\t{}\n\t}}\n", rules.join("\n\t\t"));
    }
    for (map, elements) in [("ingress", ingress), ("egress", egress)] {
        let elements: Vec<_> = elements.into_values().collect();
        let elements = match elements.as_slice() {
            [] => String::new(),
            some => format!("\t\telements = {{ {} }}\n", some.join(", ")),
        };
        let _ = write!(text, "\tmap {map} {{\n\t\ttype ipv4_addr : verdict\n{elements}\t}}\n");
    }
    let _ = write!(
        text,
        "\
\tchain forward {{
\t\ttype filter hook forward priority -5; policy accept;
\t\tct state established,related accept
\t\tiifname {{ \"{name}\", \"lo\" }} ip saddr {network} ip saddr != @guests drop
\t\toifname \"{name}\" ip daddr {network} ip daddr != @guests drop
\t\tip saddr vmap @egress
\t\tip daddr vmap @ingress
\t}}
"
    );
    text
}

/// Guests by their restrictions: rules of many guests are written once.
fn by_policy(restricted: &BTreeMap<Ipv4Addr, GuestPolicy>) -> Vec<(&GuestPolicy, Vec<Ipv4Addr>)> {
    let mut groups: Vec<(&GuestPolicy, Vec<Ipv4Addr>)> = Vec::new();
    for (address, policy) in restricted {
        match groups.iter_mut().find(|(own, _)| *own == policy) {
            Some((_, addresses)) => addresses.push(*address),
            None => groups.push((policy, vec![*address])),
        }
    }
    groups
}

/// The chains of guests, named after what is in them.
struct Chains {
    network: Ipv4Net,
    rules: BTreeMap<String, Vec<String>>,
}

impl Chains {
    fn insert(&mut self, prefix: &str, rules: Vec<String>) -> String {
        let chain = format!("{prefix}_{}", short_hash(&rules.join("\n")));
        self.rules.insert(chain.clone(), rules);
        chain
    }

    /// The chain that is first to judge connections to a guest; none where all are allowed.
    fn ingress(&mut self, policy: &GuestPolicy) -> Option<String> {
        let (direction, tiers) = (Direction::Ingress, &policy.ingress_tiers);
        let rules = ingress_rules(&policy.ingress, self.network);
        let mut next = rules.map(|rules| self.insert(direction.prefix(), rules));
        if !matches!(policy.ingress, Ingress::Only(_)) {
            next = self.tier(Tier::Baseline, &tiers.baseline, next, direction);
        }
        self.tier(Tier::Admin, &tiers.admin, next, direction)
    }

    /// The same for connections from a guest.
    fn egress(&mut self, policy: &GuestPolicy) -> Option<String> {
        let (direction, tiers) = (Direction::Egress, &policy.egress_tiers);
        let next = match &policy.egress {
            Some(allowed) => Some(self.insert(direction.prefix(), allowing(allowed, direction))),
            None => self.tier(Tier::Baseline, &tiers.baseline, None, direction),
        };
        self.tier(Tier::Admin, &tiers.admin, next, direction)
    }

    /// The chain of a tier, which leads to `next`; `next` itself where the tier has no rules.
    fn tier(
        &mut self,
        tier: Tier,
        rules: &[Arc<TierRule>],
        next: Option<String>,
        direction: Direction,
    ) -> Option<String> {
        if rules.is_empty() {
            return next;
        }
        let onward =
            next.map_or_else(|| direction.allow().to_owned(), |next| format!("goto {next}"));
        let mut lines = Vec::new();
        for rule in rules {
            let verdict = match rule.action {
                TierAction::Accept => direction.allow(),
                TierAction::Deny => "drop",
                TierAction::Pass => &onward,
            };
            let comment = comment(tier, rule);
            for source in sources(&rule.peers, direction) {
                for ports in destinations(&rule.ports) {
                    lines.push(format!("{source}{ports}{verdict} comment \"{comment}\""));
                }
            }
        }
        lines.push(onward);
        let prefix = match tier {
            Tier::Admin => format!("{}_admin", direction.prefix()),
            Tier::Baseline => format!("{}_baseline", direction.prefix()),
        };
        Some(self.insert(&prefix, lines))
    }
}

/// Where a rule is written, as a comment of nftables, which may have 127 bytes and no quotes.
fn comment(tier: Tier, rule: &TierRule) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-.".contains(*c);
    let policy: String = rule.source.policy.chars().filter(is_plain).take(90).collect();
    format!("{tier} {policy} rule {}", rule.source.number)
}

/// The rules of a guest that is restricted.
fn ingress_rules(ingress: &Ingress, network: Ipv4Net) -> Option<Vec<String>> {
    match ingress {
        Ingress::All => None,
        Ingress::Only(allowed) => Some(allowing(allowed, Direction::Ingress)),
        Ingress::IsolatedTo(guests) => {
            let peers = Peers::Only { addresses: guests.clone(), blocks: vec![] };
            let mut rules: Vec<_> = sources(&peers, Direction::Ingress)
                .into_iter()
                .map(|source| format!("{source}accept"))
                .collect();
            rules.push(format!("ip saddr {network} ip saddr != @nodes drop"));
            rules.push("accept".to_owned());
            Some(rules)
        }
    }
}

/// One line for every combination of peers and ports, and a last one that drops the rest.
fn allowing(allowed: &[AllowRule], direction: Direction) -> Vec<String> {
    let allowed: BTreeSet<_> = allowed.iter().collect();
    let mut lines = vec![format!("ip saddr . ip daddr @itself {}", direction.allow())];
    for rule in allowed {
        for source in sources(&rule.peers, direction) {
            for ports in destinations(&rule.ports) {
                lines.push(format!("{source}{ports}{}", direction.allow()));
            }
        }
    }
    lines.push("drop".to_owned());
    lines
}

/// Matches of peers, each with a space after it; none where there is no peer.
fn sources(peers: &Peers, direction: Direction) -> Vec<String> {
    let field = direction.peer();
    let Peers::Only { addresses, blocks } = peers else { return vec![String::new()] };
    let mut matches = Vec::new();
    if !addresses.is_empty() {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        matches.push(format!("{field} {{ {} }} ", addresses.join(", ")));
    }
    matches.extend(blocks.iter().map(|AddressBlock { cidr, except }| {
        // Overlapping intervals would be refused.
        let except = Ipv4Net::aggregate(&except.iter().map(Ipv4Net::trunc).collect());
        let except: Vec<_> = except.iter().map(ToString::to_string).collect();
        let except = match except.as_slice() {
            [] => String::new(),
            some => format!("{field} != {{ {} }} ", some.join(", ")),
        };
        format!("{field} {} {except}", cidr.trunc())
    }));
    matches
}

/// Matches of ports, each with a space after it; none where no port is allowed.
pub(crate) fn destinations(ports: &AllowedPorts) -> Vec<String> {
    let AllowedPorts::Only(ranges) = ports else { return vec![String::new()] };
    let mut matches = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
        let ranges = merged(ranges.iter().filter(|range| range.protocol == protocol));
        if !ranges.is_empty() {
            matches.push(format!("{protocol} dport {{ {} }} ", ranges.join(", ")));
        }
    }
    matches
}

/// Ranges without overlaps, which would be refused.
fn merged<'a>(ranges: impl Iterator<Item = &'a PortRange>) -> Vec<String> {
    let mut merged: Vec<std::ops::RangeInclusive<u16>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.first <= last.end().saturating_add(1) => {
                *last = *last.start()..=(*last.end()).max(range.last);
            }
            _ => merged.push(range.range()),
        }
    }
    let text = |range: std::ops::RangeInclusive<u16>| match (range.start(), range.end()) {
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    merged.into_iter().map(text).collect()
}
