//! The nftables table of policies for interfaces on bridges, in the family `bridge`. Pure.
//!
//! ```text
//!   prerouting   a frame from a tap of ours: `from_*` of its interface; `judge_from` leads to the
//!                chain `egress_*` that judges
//!   postrouting  a frame to a tap of ours: `to_*` of its interface; `judge_to`, `ingress_*`
//! ```
//!
//! Connections are remembered in sets, since connection tracking of bridges is missing in many
//! kernels and does not tell VLANs apart that have the same addresses. Each restricted interface has
//! sets of its own: one guest that fills them harms no other. A packet that may begin a connection
//! is judged; one that is allowed puts its two ends into `flows`, where those that follow in either
//! direction find them. Packets without ports are found in `pairs` by protocol and addresses (ping), or
//! in `ends` by addresses (later fragments, errors of ICMP).
//!
//! The table is never deleted, because that would forget connections. Names tell what is in chains:
//! those that judge are named by a hash of their rules, and those of an interface depend on nothing
//! but its name. So a transaction writes what is missing, deletes what is not wanted any more, and
//! replaces the few chains that lead from interfaces to the others. Where `layout_*` shows that another
//! version wrote the table, it is emptied and filled again.

mod flow;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{TapBlock, TapPeers, TapPolicies, TapPolicy, TapRules};
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
    const ALL: [Self; 2] = [Self::FromGuest, Self::ToGuest];

    fn hook(self) -> &'static str {
        match self {
            Self::FromGuest => "prerouting",
            Self::ToGuest => "postrouting",
        }
    }

    /// The field with the name of the tap.
    fn field(self) -> &'static str {
        match self {
            Self::FromGuest => "iifname",
            Self::ToGuest => "oifname",
        }
    }

    fn rules(self, policy: &TapPolicy) -> Option<&TapRules> {
        match self {
            Self::FromGuest => policy.egress.as_ref(),
            Self::ToGuest => policy.ingress.as_ref(),
        }
    }

    /// The chain that finds the one that judges an interface.
    fn judge_chain(self) -> String {
        format!("judge_{}", self.name())
    }

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

/// A chain of the table.
struct Chain {
    name: String,
    /// Its lines, each with a line break.
    body: String,
    /// Whether one of this name may have had another body; else the name tells.
    varies: bool,
}

impl Chain {
    fn fixed(name: String, body: String) -> Self {
        Self { name, body, varies: false }
    }

    fn varying(name: String, body: String) -> Self {
        Self { name, body, varies: true }
    }

    fn text(&self) -> String {
        format!("\tchain {} {{\n{}\t}}\n", self.name, self.body)
    }
}

/// A table whose chains are made: its digest and a transaction need them both.
pub(crate) struct TapRuleset<'a> {
    table: TapTable<'a>,
    chains: Vec<Chain>,
}

impl TapRuleset<'_> {
    /// The text that the digest is made of.
    pub(crate) fn body(&self) -> String {
        let chains: String = self.chains.iter().map(Chain::text).collect();
        format!("{}{chains}", self.table.sets("t", &BTreeSet::new()))
    }

    /// The part of a transaction about this table. `seen` are its chains, if it exists.
    pub(crate) fn transaction(&self, table: &str, stamp: &str, seen: &BTreeSet<String>) -> String {
        let layout = layout();
        // Chains of another layout may have the same names.
        let none = BTreeSet::new();
        let kept = if seen.contains(&layout) { seen } else { &none };
        let marks = [stamp.to_owned(), layout].map(|name| Chain::fixed(name, String::new()));
        let chains = || self.chains.iter().chain(&marks);
        let wanted: BTreeSet<&str> = chains().map(|chain| chain.name.as_str()).collect();
        let unwanted = || seen.iter().filter(|own| !wanted.contains(own.as_str()));

        let mut text = format!("add table bridge {table}\n{}", self.table.sets(table, kept));
        if kept.is_empty() {
            let _ = writeln!(text, "flush table bridge {table}");
        } else {
            let varying = chains().filter(|chain| chain.varies && kept.contains(&chain.name));
            for chain in varying.map(|chain| &chain.name).chain(unwanted()) {
                let _ = writeln!(text, "flush chain bridge {table} {chain}");
            }
        }
        for chain in unwanted() {
            let _ = writeln!(text, "delete chain bridge {table} {chain}");
        }
        let restricted: BTreeSet<_> = self.table.restricted().map(|(tap, _)| id(tap)).collect();
        let known = seen.iter().filter_map(|chain| chain.strip_prefix(MARK));
        for tap in known.filter(|tap| !restricted.contains(*tap)) {
            for set in VERSIONS.iter().flat_map(|version| Flow::set_names(version, tap)) {
                let _ = writeln!(text, "delete set bridge {table} {set}");
            }
        }
        let _ = writeln!(text, "table bridge {table} {{");
        text.extend(
            chains().filter(|own| own.varies || !kept.contains(&own.name)).map(Chain::text),
        );
        text += "}\n";
        text
    }
}

impl<'a> TapTable<'a> {
    pub(crate) fn ruleset(self) -> TapRuleset<'a> {
        TapRuleset { chains: self.chains(), table: self }
    }

    fn restricted(&self) -> impl Iterator<Item = (&LinkName, &TapPolicy)> {
        self.policies.iter().filter(|(_, policy)| policy.is_restricted())
    }

    /// The sets that outlive changes of the rules, but those of interfaces that have theirs: these
    /// have a chain among `kept`.
    fn sets(&self, table: &str, kept: &BTreeSet<String>) -> String {
        let taps = self.restricted().map(|(tap, _)| id(tap));
        let new: Vec<_> = taps.filter(|tap| !kept.contains(&format!("{MARK}{tap}"))).collect();
        let shared = SHARED_SETS.iter().filter(|_| !new.is_empty());
        let shared = shared.map(|(name, kind, elements)| {
            format!(
                "add set bridge {table} {name} {{ type {kind}; elements = {{ {elements} }}; }}\n"
            )
        });
        let all = new.iter().flat_map(|tap| {
            VERSIONS.iter().map(move |version| Flow::definitions(version, tap, table))
        });
        shared.chain(all).collect()
    }

    fn chains(&self) -> Vec<Chain> {
        let mut judges: BTreeMap<String, String> = BTreeMap::new();
        let (mut own, mut last) = (Vec::new(), Vec::new());
        let elsewhere = self.elsewhere.iter().copied();
        let judged: BTreeSet<_> =
            elsewhere.chain(self.policies.keys()).map(|tap| format!("\"{tap}\"")).collect();
        // Sets outlive an emptied table, so names in them would, too: these are in the rules.
        let known: Vec<_> = judged.into_iter().collect();
        for direction in Direction::ALL {
            let (hook, field, name) = (direction.hook(), direction.field(), direction.name());
            let known = match known.as_slice() {
                [] => String::new(),
                some => format!("{field} != {{ {} }} ", some.join(", ")),
            };
            let (mut gotos, mut jumps) = (Vec::new(), Vec::new());
            for (tap, policy) in self.restricted() {
                gotos.push(format!("\"{tap}\" : goto {name}_{}", id(tap)));
                own.extend(tap_chains(&id(tap), direction));
                if let Some(rules) = direction.rules(policy) {
                    let body = lines(&judging(rules, direction));
                    let judge = format!("{}_{}", direction.judge_prefix(), short_hash(&body));
                    jumps.push(format!("\"{tap}\" : jump {judge}"));
                    judges.insert(judge, body);
                }
            }
            let map = |entries: &[String]| match entries {
                [] => String::new(),
                some => format!("\t\t{field} vmap {{ {} }}\n", some.join(", ")),
            };
            last.push(Chain::varying(direction.judge_chain(), map(&jumps)));
            let body = format!(
                "\t\ttype filter hook {hook} priority -250; policy accept;\n\
                 \t\t{field} \"{}*\" {known}drop\n\
                 {}",
                self.prefix,
                map(&gotos),
            );
            last.push(Chain::varying(hook.to_owned(), body));
        }
        let judges = judges.into_iter().map(|(name, body)| Chain::fixed(name, body));
        judges.chain(own).chain(last).collect()
    }
}

/// The name of a chain that shows how the chains and sets of an interface are made: they are written
/// once, and not compared.
fn layout() -> String {
    let chains = Direction::ALL.into_iter().flat_map(|direction| tap_chains("t", direction));
    let chains: String = chains.map(|chain| chain.text()).collect();
    let sets = VERSIONS.iter().map(|version| Flow::definitions(version, "t", "t"));
    format!("layout_{}", short_hash(&format!("{chains}{}", sets.collect::<String>())))
}

/// A tap as a part of names.
fn id(tap: &LinkName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    tap.as_str().chars().map(plain).collect()
}

/// The chains of an interface for frames of one direction. They do not depend on its policies.
fn tap_chains(tap: &str, direction: Direction) -> Vec<Chain> {
    let (name, judge) = (direction.name(), direction.judge_chain());
    let (mut chains, mut gotos) = (Vec::new(), String::new());
    for version in VERSIONS {
        let (flow, digit) = (Flow::new(version, direction, tap), version.digit);
        let begin = format!("{name}{digit}_new_{tap}");
        let known =
            format!("{}{}\t\tgoto {begin}\n", lines(&flow.known(&begin)), lines(&flow.always()));
        let new = format!("\t\tjump {judge}\n{}", lines(&flow.remember()));
        chains.push(Chain::fixed(flow.ends_chain(), lines(&flow.remember_ends())));
        chains.push(Chain::fixed(begin, new));
        chains.push(Chain::fixed(format!("{name}{digit}_{tap}"), known));
        let protocol = version.protocol;
        let _ = writeln!(gotos, "\t\tmeta protocol {protocol} goto {name}{digit}_{tap}");
    }
    let body = format!("\t\tmeta protocol arp accept\n{gotos}\t\tcounter drop\n");
    chains.push(Chain::fixed(format!("{name}_{tap}"), body));
    chains
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
