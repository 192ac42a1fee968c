//! The nftables table of policies for interfaces on bridges, in the family `bridge`. Pure.
//!
//! ```text
//!   prerouting   a frame from a tap of ours: `from_*` of its interface; `egress_*` judges
//!   postrouting  a frame to a tap of ours: `to_*` of its interface; `ingress_*` judges
//! ```
//!
//! Connections are remembered in sets, since connection tracking of bridges is missing in many
//! kernels and does not tell VLANs apart that have the same addresses. Each restricted interface has
//! sets of its own: one guest that fills them harms no other. A packet that may begin a connection
//! is judged; one that is allowed puts its two ends into `flows`, where those that follow in either
//! direction find them. Packets without ports are found in `pairs` by protocol and addresses (ping), or
//! in `ends` by addresses (later fragments, errors of ICMP).
//!
//! The table is never deleted, because that would forget connections: a transaction empties it and
//! fills it again. The chains that exist tell which interfaces have sets.

mod flow;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{TapBlock, TapPeers, TapPolicies, TapRules};
use crate::name::LinkName;
use crate::policy::rules::destinations;
use crate::service::short_hash;
use flow::{Flow, SHARED_SETS, VERSIONS};

/// Begins the name of the chain that shows that an interface has sets.
const MARK: &str = "from_";

/// The interfaces of a node, by how they are judged.
pub(crate) struct TapTable<'a> {
    pub(crate) prefix: &'a LinkName,
    /// Taps of the guest network, which has a table of its own.
    pub(crate) elsewhere: BTreeSet<&'a LinkName>,
    pub(crate) policies: &'a TapPolicies,
}

/// The direction of a frame.
#[derive(Clone, Copy)]
enum Direction {
    FromGuest,
    ToGuest,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Self::FromGuest => "from",
            Self::ToGuest => "to",
        }
    }

    /// Begins the names of chains that judge.
    fn judge_prefix(self) -> &'static str {
        match self {
            Self::FromGuest => "egress",
            Self::ToGuest => "ingress",
        }
    }

    /// The address of the peer, after `ip` or `ip6`.
    fn peer(self) -> &'static str {
        match self {
            Self::FromGuest => "daddr",
            Self::ToGuest => "saddr",
        }
    }
}

impl TapTable<'_> {
    /// The text that the digest is made of.
    pub(crate) fn body(&self) -> String {
        format!("{}{}", self.sets("t"), self.chains())
    }

    /// The part of a transaction about this table. `seen` are its chains, if it exists.
    pub(crate) fn transaction(&self, table: &str, stamp: &str, seen: &BTreeSet<String>) -> String {
        let chains = self.chains();
        let mut text = format!("add table bridge {table}\n{}", self.sets(table));
        let _ = writeln!(text, "flush table bridge {table}");
        let wanted: BTreeSet<_> = chains.lines().filter_map(chain_name).collect();
        for chain in seen.iter().filter(|own| !wanted.contains(own.as_str()) && **own != stamp) {
            let _ = writeln!(text, "delete chain bridge {table} {chain}");
        }
        let kept: BTreeSet<_> = self.restricted().map(|(tap, _)| id(tap)).collect();
        let known = seen.iter().filter_map(|chain| chain.strip_prefix(MARK));
        for tap in known.filter(|tap| !kept.contains(*tap)) {
            for set in VERSIONS.iter().flat_map(|version| Flow::set_names(version, tap)) {
                let _ = writeln!(text, "delete set bridge {table} {set}");
            }
        }
        let _ = write!(text, "table bridge {table} {{\n\tchain {stamp} {{\n\t}}\n{chains}}}\n");
        text
    }

    fn restricted(&self) -> impl Iterator<Item = (&LinkName, &super::TapPolicy)> {
        self.policies.iter().filter(|(_, policy)| policy.is_restricted())
    }

    /// The sets that outlive changes of the rules.
    fn sets(&self, table: &str) -> String {
        let shared = SHARED_SETS.iter().filter(|_| self.restricted().next().is_some());
        let shared = shared.map(|(name, kind, elements)| {
            format!(
                "add set bridge {table} {name} {{ type {kind}; elements = {{ {elements} }}; }}\n"
            )
        });
        let taps = self.restricted().map(|(tap, _)| id(tap));
        let all = taps.flat_map(|tap| {
            VERSIONS.iter().map(move |version| Flow::definitions(version, &tap, table))
        });
        shared.chain(all).collect()
    }

    fn chains(&self) -> String {
        let judged = self.elsewhere.iter().copied().chain(self.policies.keys());
        let judged: BTreeSet<_> = judged.map(|tap| format!("\"{tap}\"")).collect();
        let mut text = String::new();
        let mut judges = BTreeMap::new();
        let mut own = String::new();
        for (tap, policy) in self.restricted() {
            for (direction, rules) in
                [(Direction::FromGuest, &policy.egress), (Direction::ToGuest, &policy.ingress)]
            {
                let judge = rules.as_ref().map(|rules| {
                    let lines = judging(rules, direction);
                    let name =
                        format!("{}_{}", direction.judge_prefix(), short_hash(&lines.join("\n")));
                    judges.insert(name.clone(), lines);
                    name
                });
                own += &direction_chains(&id(tap), direction, judge.as_deref());
            }
        }
        for (name, lines) in judges {
            let _ = write!(text, "\tchain {name} {{\n\t\t{}\n\t}}\n", lines.join("\n\t\t"));
        }
        text += &own;
        // Sets outlive an emptied table, so names in them would, too: these are in the rules.
        for (hook, field, direction) in [
            ("prerouting", "iifname", Direction::FromGuest),
            ("postrouting", "oifname", Direction::ToGuest),
        ] {
            let known = match judged.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                [] => String::new(),
                some => format!("{field} != {{ {} }} ", some.join(", ")),
            };
            let goto =
                |tap: &LinkName| format!("\"{tap}\" : goto {}_{}", direction.name(), id(tap));
            let gotos: Vec<_> = self.restricted().map(|(tap, _)| goto(tap)).collect();
            let gotos = match gotos.as_slice() {
                [] => String::new(),
                some => format!("\t\t{field} vmap {{ {} }}\n", some.join(", ")),
            };
            let _ = write!(
                text,
                "\tchain {hook} {{\n\
                 \t\ttype filter hook {hook} priority -250; policy accept;\n\
                 \t\t{field} \"{}*\" {known}drop\n\
                 {gotos}\t}}\n",
                self.prefix
            );
        }
        text
    }
}

/// A tap as a part of names.
fn id(tap: &LinkName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    tap.as_str().chars().map(plain).collect()
}

fn chain_name(line: &str) -> Option<&str> {
    line.strip_prefix("\tchain ")?.strip_suffix(" {")
}

/// The chains of an interface for frames of one direction.
fn direction_chains(tap: &str, direction: Direction, judge: Option<&str>) -> String {
    let name = direction.name();
    let mut text = String::new();
    let mut gotos = String::new();
    for version in VERSIONS {
        let (flow, digit) = (Flow::new(version, direction, tap), version.digit);
        let begin = format!("{name}{digit}_new_{tap}");
        let judge = judge.map_or_else(String::new, |judge| format!("\t\tjump {judge}\n"));
        let _ = write!(
            text,
            "\tchain {} {{\n{}\t}}\n\
             \tchain {begin} {{\n{judge}{}\t}}\n\
             \tchain {name}{digit}_{tap} {{\n{}{}\t\tgoto {begin}\n\t}}\n",
            flow.ends_chain(),
            lines(&flow.remember_ends()),
            lines(&flow.remember()),
            lines(&flow.known(&begin)),
            lines(&flow.always()),
        );
        let protocol = version.protocol;
        let _ = writeln!(gotos, "\t\tmeta protocol {protocol} goto {name}{digit}_{tap}");
    }
    let _ = write!(
        text,
        "\tchain {name}_{tap} {{\n\t\tmeta protocol arp accept\n{gotos}\t\tcounter drop\n\t}}\n"
    );
    text
}

fn lines(rules: &[String]) -> String {
    rules.iter().fold(String::new(), |text, rule| format!("{text}\t\t{rule}\n"))
}

/// One line for every combination of peers and ports that returns, and a last one that drops.
fn judging(all: &TapRules, direction: Direction) -> Vec<String> {
    let mut lines = Vec::new();
    for rule in all.rules.iter().collect::<BTreeSet<_>>() {
        let comment = comment([rule.policy.as_str()].into_iter());
        for peers in matches(&rule.peers, direction) {
            for ports in destinations(&rule.ports) {
                lines.push(format!("{peers}{ports}return comment \"{comment}\""));
            }
        }
    }
    let comment = comment(all.policies.iter().map(String::as_str));
    lines.push(format!("counter drop comment \"{comment}\""));
    lines
}

/// Policies as a comment of nftables, which may have 127 bytes and no quotes.
fn comment<'a>(policies: impl Iterator<Item = &'a str>) -> String {
    let all = policies.collect::<Vec<_>>().join(" ");
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-./ ".contains(*c);
    all.chars().filter(is_plain).take(120).collect()
}

/// Matches of peers, each with a space after it; none where there is no peer.
fn matches(peers: &TapPeers, direction: Direction) -> Vec<String> {
    let TapPeers::Only { addresses, blocks } = peers else { return vec![String::new()] };
    let side = direction.peer();
    let mut matches = Vec::new();
    for (field, is_of_version) in
        [("ip", IpAddr::is_ipv4 as fn(&IpAddr) -> bool), ("ip6", IpAddr::is_ipv6)]
    {
        let of_version = addresses.iter().filter(|own| is_of_version(own));
        let addresses: Vec<_> = of_version.map(ToString::to_string).collect();
        if !addresses.is_empty() {
            matches.push(format!("{field} {side} {{ {} }} ", addresses.join(", ")));
        }
    }
    matches.extend(blocks.iter().map(|TapBlock { cidr, except }| {
        // Overlapping intervals would be refused.
        let (field, except) = match cidr {
            IpNet::V4(_) => ("ip", texts(&Ipv4Net::aggregate(&of_v4(except)))),
            IpNet::V6(_) => ("ip6", texts(&Ipv6Net::aggregate(&of_v6(except)))),
        };
        let except = match except.as_slice() {
            [] => String::new(),
            some => format!("{field} {side} != {{ {} }} ", some.join(", ")),
        };
        format!("{field} {side} {} {except}", cidr.trunc())
    }));
    matches
}

fn of_v4(all: &[IpNet]) -> Vec<Ipv4Net> {
    let v4 = |net: &IpNet| match net {
        IpNet::V4(net) => Some(net.trunc()),
        IpNet::V6(_) => None,
    };
    all.iter().filter_map(v4).collect()
}

fn of_v6(all: &[IpNet]) -> Vec<Ipv6Net> {
    let v6 = |net: &IpNet| match net {
        IpNet::V6(net) => Some(net.trunc()),
        IpNet::V4(_) => None,
    };
    all.iter().filter_map(v6).collect()
}

fn texts(all: &[impl ToString]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}
