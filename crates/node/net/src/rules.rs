//! The nftables rules of a wanted network, as the text that `nft -f` reads. Pure.
//!
//! Two tables are replaced in one transaction, so that there is no moment without rules.
//! Differences between guests are in sets; the rules themselves are always the same, and a packet
//! passes a handful of them however many guests there are. The text is stamped with its own
//! digest, as the name of an empty chain, so that the list of chains shows whether the rules are
//! in force.
//!
//! A third table remembers which addresses were seen on which tap. It is only ever added to, since
//! replacing it would forget them.
//!
//! An `accept` of ours cannot override a `drop` in a table of another program; see `obstacle`.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::service;
use crate::want::{Attachment, Bridge, DesiredNetwork, InboundPolicy, Port, SpoofGuard};
use crate::{hosts, overlay, policy};

/// The prefix of the name of the chain that carries the digest.
pub(crate) const DIGEST_CHAIN: &str = "digest_";

/// The set of taps and addresses in the table that remembers them. When its definition changes, so
/// must its name, because a set cannot be added twice in different ways.
pub(crate) const SEEN_SET: &str = "addresses";

/// A transaction for nftables and its digest, which shows whether it has been carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    pub digest: String,
    pub text: String,
}

impl Ruleset {
    pub(crate) fn new(want: &DesiredNetwork) -> Self {
        let guests = bridge_family(want);
        let host = inet_family(want);
        let memory = memory(&want.bridge);
        let hash = Sha256::digest(format!("{guests}{host}{memory}").as_bytes());
        let digest = hash.iter().take(12).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let table = &want.bridge.table;
        let mut text = memory;
        for (family, body) in [("bridge", guests), ("inet", host)] {
            // `add` first, because deleting what is not there would fail the transaction.
            let _ = write!(
                text,
                "add table {family} {table}\n\
                 delete table {family} {table}\n\
                 table {family} {table} {{\n\
                 \tchain {DIGEST_CHAIN}{digest} {{\n\t}}\n\
                 {body}}}\n"
            );
        }
        Self { digest, text }
    }

    /// The transaction that leaves nothing of ours.
    pub(crate) fn removal(bridge: &Bridge) -> String {
        let table = &bridge.table;
        let tables = [
            format!("bridge {}", memory_table(table)),
            format!("bridge {table}"),
            format!("inet {table}"),
            format!("inet {}", service::table(table)),
            format!("netdev {}", service::table(table)),
            format!("inet {}", hosts::table(table)),
            format!("inet {}", policy::table(table)),
            format!("bridge {}", policy::table(table)),
            format!("inet {}", overlay::table(table)),
        ];
        tables.map(|table| format!("add table {table}\ndelete table {table}\n")).concat()
    }
}

/// The table that remembers addresses, in the family `bridge`.
pub(crate) fn memory_table(table: &str) -> String {
    format!("{table}_seen")
}

/// Notes who speaks ARP on which tap, after forged senders have been dropped. A guest that invents
/// addresses can fill the set, but neither beyond its size nor for long.
fn memory(bridge: &Bridge) -> String {
    let table = memory_table(&bridge.table);
    let prefix = &bridge.tap_prefix;
    format!(
        "\
add table bridge {table}
add set bridge {table} {SEEN_SET} {{ type ifname . ipv4_addr; flags dynamic, timeout; timeout 30m; size 16384; }}
add chain bridge {table} prerouting {{ type filter hook prerouting priority -299; policy accept; }}
flush chain bridge {table} prerouting
add rule bridge {table} prerouting iifname \"{prefix}*\" arp saddr ip != 0.0.0.0 update @{SEEN_SET} {{ iifname . arp saddr ip }}
"
    )
}

/// A named set; an empty one matches nothing.
pub(crate) fn set(name: &str, kind: &str, elements: impl Iterator<Item = String>) -> String {
    let elements: Vec<_> = elements.collect();
    let elements = match elements.as_slice() {
        [] => String::new(),
        some => format!("\t\telements = {{ {} }}\n", some.join(", ")),
    };
    format!("\tset {name} {{\n\t\ttype {kind}\n{elements}\t}}\n")
}

/// The frames that guests may send. Connection tracking does not exist in this family on every
/// kernel; nothing here needs it.
fn bridge_family(want: &DesiredNetwork) -> String {
    let nat = || want.ports.iter().filter_map(|port| Some((port, port.address()?)));
    let foreign = |wish: fn(&SpoofGuard) -> bool| {
        want.ports.iter().filter(move |port| match &port.attachment {
            Attachment::Bridge { guard, .. } => wish(guard),
            Attachment::Nat { .. } => false,
        })
    };
    let own_mac = |port: &Port| format!("\"{}\" . {}", port.tap, port.mac);
    let tap = |port: &Port| format!("\"{}\"", port.tap);
    let mut text = String::new();
    text += &set("taps", "ifname", want.ports.iter().map(tap));
    text += &set("nat", "ifname", nat().map(|(port, _)| tap(port)));
    text += &set("own_mac_only", "ifname", foreign(|guard| guard.own_mac_only).map(tap));
    text += &set("no_servers", "ifname", foreign(|guard| guard.no_servers).map(tap));
    text += &set("access", "ifname", foreign(|guard| guard.access_port).map(tap));
    text += &set("macs", "ifname . ether_addr", want.ports.iter().map(own_mac));
    let own_address = |(port, address): (&Port, _)| format!("\"{}\" . {address}", port.tap);
    text += &set("addresses", "ifname . ipv4_addr", nat().map(own_address));
    // While a guest arrives from another node, this one answers ARP for its address: a guest that
    // announces itself then would detect that another host has it.
    let announcement =
        |(port, address): (&Port, _)| format!("\"{}\" . {address} . {address}", port.tap);
    let announcements = nat().map(announcement);
    text += &set("announcements", "ifname . ipv4_addr . ipv4_addr", announcements);
    let served = || {
        want.ports.iter().filter_map(|port| match port.attachment {
            Attachment::Bridge { .. } => Some((port, want.dhcp.get(&port.tap)?)),
            Attachment::Nat { .. } => None,
        })
    };
    text += &set("dhcp", "ifname", served().map(|(port, _)| tap(port)));
    let server = |(port, address): (&Port, _)| format!("\"{}\" . {address}", port.tap);
    text += &set("dhcp_servers", "ifname . ipv4_addr", served().map(server));
    text += BRIDGE_RULES;
    // Frames from a tap of ours that is not desired are dropped.
    let _ = write!(
        text,
        "\
\tchain prerouting {{
\t\ttype filter hook prerouting priority -300; policy accept;
\t\tiifname \"{}*\" iifname != @taps drop
\t\tiifname @nat goto from_nat
\t\tiifname @access jump from_access
\t\tiifname @own_mac_only iifname . ether saddr != @macs drop
\t\tiifname @no_servers jump from_foreign
\t\tiifname @dhcp jump from_served
\t}}
\tchain forward {{
\t\ttype filter hook forward priority -200; policy accept;
\t\toifname @access ether type {{ 8021q, 8021ad, 0x9100 }} counter drop
\t\toifname @dhcp ether type ip udp sport 67 udp dport 68 drop
\t}}
",
        want.bridge.tap_prefix
    );
    text
}

/// All of it runs before the bridge learns addresses, so that a forged one does not get into its
/// table.
///
/// A frame with a VLAN tag does not match `ether type ip`, and a receiver takes one with VLAN 0 for
/// untagged. Access ports therefore send no tags at all, and the other rules match `meta protocol`,
/// which reads behind a tag. A bridge without spanning tree forwards BPDUs, hence the last rule of
/// access ports. Requests that this node answers are those without a tag: others of a trunk are of
/// other networks.
const BRIDGE_RULES: &str = "\
\tchain from_nat {
\t\tiifname . ether saddr != @macs drop
\t\tether type arp goto from_nat_arp
\t\tether type != ip drop
\t\tudp sport 67 drop
\t\tip saddr 0.0.0.0 udp sport 68 udp dport 67 accept
\t\tiifname . ip saddr != @addresses drop
\t\taccept
\t}
\tchain from_nat_arp {
\t\tiifname . arp saddr ether != @macs drop
\t\tarp saddr ip 0.0.0.0 accept
\t\tiifname . arp saddr ip . arp daddr ip @announcements drop
\t\tiifname . arp saddr ip != @addresses drop
\t\taccept
\t}
\tchain from_access {
\t\tether type { 8021q, 8021ad, 0x9100 } counter drop
\t\tether daddr 01:80:c2:00:00:00-01:80:c2:00:00:0f counter drop
\t}
\tchain from_foreign {
\t\tmeta protocol ip udp sport 67 drop
\t\tmeta protocol ip6 udp sport 547 drop
\t\tmeta protocol ip6 icmpv6 type { nd-router-advert, nd-redirect } drop
\t}
\tchain from_served {
\t\tether type ip udp dport 67 drop
\t\tether type arp iifname . arp daddr ip @dhcp_servers drop
\t}
";

/// Destinations that guests may reach, sources that may reach guests, and NAT outwards.
fn inet_family(want: &DesiredNetwork) -> String {
    let bridge = &want.bridge;
    let name = &bridge.name;
    let tunnel = overlay::device(bridge);
    let gateway = bridge.gateway.addr();
    let network = bridge.gateway.trunc();
    let mut text = String::new();
    let addresses = |port: &Port| match &port.attachment {
        Attachment::Nat { address, inbound: InboundPolicy::All } => Some(address.to_string()),
        _ => None,
    };
    text += &set("open", "ipv4_addr", want.ports.iter().filter_map(addresses));
    text += &set(
        "open_ports",
        "ipv4_addr . inet_proto . inet_service",
        want.ports.iter().flat_map(open_ports),
    );
    text += &set("host_tcp", "inet_service", bridge.host_tcp.iter().map(u16::to_string));
    let kept = without_nat(bridge);
    let _ = write!(
        text,
        "\
\tchain input {{
\t\ttype filter hook input priority -10; policy accept;
\t\tiifname != {{ \"{name}\", \"lo\" }} ip daddr {gateway} meta l4proto {{ tcp, udp }} th dport 53 drop
\t\tiifname != {{ \"{name}\", \"{tunnel}\" }} accept
\t\tct state established,related accept
\t\tmeta l4proto {{ icmp, ipv6-icmp }} accept
\t\tudp dport 67 accept
\t\tip daddr {gateway} meta l4proto {{ tcp, udp }} th dport 53 accept
\t\ttcp dport @host_tcp accept
\t\tmeta l4proto tcp reject with tcp reset
\t\tdrop
\t}}
\tchain output {{
\t\ttype filter hook output priority -10; policy accept;
\t\toifname \"{name}\" icmp type redirect drop
\t}}
\tchain to_guest {{
\t\tct state established,related accept
\t\tmeta l4proto icmp accept
\t\tip daddr @open accept
\t\tip daddr . meta l4proto . th dport @open_ports accept
\t\tdrop
\t}}
\tchain forward {{
\t\ttype filter hook forward priority -10; policy accept;
\t\tip saddr {network} ip daddr 169.254.0.0/16 drop
\t\toifname \"{name}\" goto to_guest
\t}}
\tchain postrouting {{
\t\ttype nat hook postrouting priority 100; policy accept;
{kept}\t\tip saddr {network} oifname != {{ \"{name}\", \"{tunnel}\" }} masquerade
\t}}
"
    );
    text
}

/// The rule for networks that guests reach with their own addresses.
fn without_nat(bridge: &Bridge) -> String {
    let direct: Vec<_> = bridge.direct.iter().map(|net| net.trunc()).collect();
    // Overlapping intervals would be refused.
    let direct = ipnet::Ipv4Net::aggregate(&direct);
    if direct.is_empty() {
        return String::new();
    }
    let direct: Vec<_> = direct.iter().map(ToString::to_string).collect();
    let network = bridge.gateway.trunc();
    format!("\t\tip saddr {network} ip daddr {{ {} }} accept\n", direct.join(", "))
}

fn open_ports(port: &Port) -> Vec<String> {
    match &port.attachment {
        Attachment::Nat { address, inbound: InboundPolicy::Only(open) } => {
            let element = |(protocol, number)| format!("{address} . {protocol} . {number}");
            open.iter().copied().map(element).collect()
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests;
