//! How an interface remembers connections: the sets, and the rules that fill and read them. Pure.

use super::Direction;

/// A connection that only one packet has been seen of, or that has been ended.
const SHORT: &str = "2m";
/// Of other protocols than TCP.
const DATAGRAMS: &str = "3m";
/// An established connection of TCP: longer than the two hours after which systems ask an idle peer
/// whether it is still there.
const ESTABLISHED: &str = "3h";

/// As many connections as an interface remembers, and as many pairs of addresses.
const FLOWS: u32 = 32_768;
const PAIRS: u32 = 8_192;

/// An IP version, as the rules write it. Addresses are raw fields as well, because those of the packet
/// that an error of ICMP quotes have no other names, and both are compared.
pub(super) struct Version {
    pub(super) digit: char,
    /// In the frame: `meta protocol`.
    pub(super) protocol: &'static str,
    ip: &'static str,
    address: &'static str,
    source: &'static str,
    target: &'static str,
    /// Source and target of the packet that an error quotes.
    quoted: [&'static str; 2],
    icmp: &'static str,
    errors: &'static str,
    later_fragment: &'static str,
    /// Matches of packets that always pass, from and to the guest.
    from: &'static [&'static str],
    to: &'static [&'static str],
}

pub(super) const VERSIONS: &[Version] = &[
    Version {
        digit: '4',
        protocol: "ip",
        ip: "ip",
        address: "ipv4_addr",
        source: "@nh,96,32",
        target: "@nh,128,32",
        quoted: ["@th,160,32", "@th,192,32"],
        icmp: "meta protocol ip meta l4proto icmp icmp",
        errors: "@errors4",
        later_fragment: "ip frag-off & 0x1fff != 0",
        from: &["udp sport 68 udp dport 67"],
        to: &["udp sport 67 udp dport 68"],
    },
    Version {
        digit: '6',
        protocol: "ip6",
        ip: "ip6",
        address: "ipv6_addr",
        source: "@nh,64,128",
        target: "@nh,192,128",
        quoted: ["@th,128,128", "@th,256,128"],
        icmp: "meta protocol ip6 meta l4proto ipv6-icmp icmpv6",
        errors: "@errors6",
        later_fragment: "frag frag-off != 0",
        from: &[NEIGHBOURS, "udp sport 546 udp dport 547"],
        to: &[NEIGHBOURS, "udp sport 547 udp dport 546"],
    },
];

/// Neighbours, routers, and the groups that switches send their questions to. A guest that must not
/// advertise itself as a router has been stopped before.
const NEIGHBOURS: &str = "meta protocol ip6 meta l4proto ipv6-icmp icmpv6 type @neighbours";

/// Sets that the rules of all interfaces share. A set without a name for each of them would cost the
/// kernel minutes where there are hundreds: it compares the names of all sets of a table.
pub(super) const SHARED_SETS: &[(&str, &str, &str)] = &[
    ("ported", "inet_proto", "tcp, udp, sctp"),
    ("ported_or_icmp", "inet_proto", "tcp, udp, sctp, icmp, ipv6-icmp"),
    ("errors4", "icmp_type", "destination-unreachable, time-exceeded, parameter-problem"),
    (
        "errors6",
        "icmpv6_type",
        "destination-unreachable, packet-too-big, time-exceeded, parameter-problem",
    ),
    ("neighbours", "icmpv6_type", "130, 131, 132, 133, 134, 135, 136, 143"),
];

/// The connections of an interface, for frames of one direction.
pub(super) struct Flow<'a> {
    version: &'a Version,
    direction: Direction,
    tap: &'a str,
}

impl<'a> Flow<'a> {
    pub(super) fn new(version: &'a Version, direction: Direction, tap: &'a str) -> Self {
        Self { version, direction, tap }
    }

    /// The sets of an interface for one version: connections, those that end, pairs of addresses by
    /// protocol, and pairs of addresses.
    pub(super) fn set_names(version: &Version, tap: &str) -> [String; 4] {
        let digit = version.digit;
        ["flows", "ending", "pairs", "ends"].map(|name| format!("{name}{digit}_{tap}"))
    }

    /// When a definition changes, so must the name: a set cannot be added twice in different ways.
    pub(super) fn definitions(version: &Version, tap: &str, table: &str) -> String {
        let Version { address, source, target, .. } = version;
        let flow = format!("type inet_proto . {address} . inet_service . {address} . inet_service");
        let pair = format!("type inet_proto . {address} . {address}");
        let ends = format!("typeof {source} . {target}");
        let kinds = [(&flow, FLOWS), (&flow, FLOWS), (&pair, PAIRS), (&ends, PAIRS)];
        let all = Self::set_names(version, tap).into_iter().zip(kinds);
        all.fold(String::new(), |text, (name, (kind, size))| {
            format!(
                "{text}add set bridge {table} {name} {{ {kind}; flags dynamic, timeout; \
                 timeout {DATAGRAMS}; size {size}; }}\n"
            )
        })
    }

    /// Protocol, address and port of the peer, address and port of the guest.
    fn key(&self) -> String {
        let ip = self.version.ip;
        match self.direction {
            Direction::FromGuest => {
                format!("meta l4proto . {ip} daddr . th dport . {ip} saddr . th sport")
            }
            Direction::ToGuest => {
                format!("meta l4proto . {ip} saddr . th sport . {ip} daddr . th dport")
            }
        }
    }

    /// Protocol and addresses, the peer's first.
    fn pair(&self) -> String {
        let ip = self.version.ip;
        match self.direction {
            Direction::FromGuest => format!("meta l4proto . {ip} daddr . {ip} saddr"),
            Direction::ToGuest => format!("meta l4proto . {ip} saddr . {ip} daddr"),
        }
    }

    /// The addresses, the peer's first.
    fn ends(&self) -> String {
        let Version { source, target, .. } = self.version;
        match self.direction {
            Direction::FromGuest => format!("{target} . {source}"),
            Direction::ToGuest => format!("{source} . {target}"),
        }
    }

    /// The same of the packet that an error is about, which went the other direction.
    fn quoted(&self) -> String {
        let [source, target] = self.version.quoted;
        match self.direction {
            Direction::FromGuest => format!("{source} . {target}"),
            Direction::ToGuest => format!("{target} . {source}"),
        }
    }

    /// Accepts packets of known connections. Those that may begin one go to the chain `begin`.
    pub(super) fn known(&self, begin: &str) -> Vec<String> {
        let [flows, ending, pairs, known_ends] = Self::set_names(self.version, self.tap);
        let (key, pair, ends, quoted) = (self.key(), self.pair(), self.ends(), self.quoted());
        let Version { icmp, errors, later_fragment, .. } = self.version;
        let accept = format!("goto {}", self.ends_chain());
        let accept_pair = format!("{pair} @{pairs} update @{pairs} {{ {pair} }} {accept}");
        vec![
            format!("tcp flags & (syn | ack) == syn goto {begin}"),
            format!(
                "tcp flags & (fin | rst) != 0 {key} @{flows} update @{ending} {{ {key} timeout \
                 {SHORT} }} delete @{flows} {{ {key} }} {accept}"
            ),
            format!(
                "meta l4proto tcp {key} @{flows} update @{flows} {{ {key} timeout {ESTABLISHED} }} \
                 {accept}"
            ),
            format!("{key} @{flows} update @{flows} {{ {key} timeout {DATAGRAMS} }} {accept}"),
            format!("{key} @{ending} update @{ending} {{ {key} timeout {SHORT} }} {accept}"),
            format!("{later_fragment} {ends} @{known_ends} accept"),
            format!("{icmp} type {errors} {quoted} @{known_ends} accept"),
            format!("{icmp} type echo-reply {accept_pair}"),
            format!("meta l4proto != @ported_or_icmp {accept_pair}"),
        ]
    }

    /// Accepts what every interface needs.
    pub(super) fn always(&self) -> Vec<String> {
        let all = match self.direction {
            Direction::FromGuest => self.version.from,
            Direction::ToGuest => self.version.to,
        };
        all.iter().map(|rule| format!("{rule} accept")).collect()
    }

    /// Remembers a packet that is allowed. It passes also where a set is full; replies then do not.
    pub(super) fn remember(&self) -> Vec<String> {
        let [flows, _, pairs, _] = Self::set_names(self.version, self.tap);
        let (key, pair, accept) = (self.key(), self.pair(), self.ends_chain());
        vec![
            format!(
                "meta l4proto @ported update @{flows} {{ {key} timeout {SHORT} }} \
                 goto {accept}"
            ),
            format!("meta l4proto != @ported update @{pairs} {{ {pair} }}"),
            format!("goto {accept}"),
        ]
    }

    /// The chain that remembers the addresses and accepts. An update of a full set ends its rule, but
    /// not the chain.
    pub(super) fn ends_chain(&self) -> String {
        format!("{}{}_ends_{}", self.direction.name(), self.version.digit, self.tap)
    }

    pub(super) fn remember_ends(&self) -> Vec<String> {
        let [_, _, _, known_ends] = Self::set_names(self.version, self.tap);
        vec![format!("update @{known_ends} {{ {} }}", self.ends()), "accept".to_owned()]
    }
}
