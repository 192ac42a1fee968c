//! The nftables table that guards the tunnel. Pure.
//!
//! ```text
//!   prerouting   VXLAN frames of our network come from a known node and carry its Ethernet address;
//!                what comes out of the tunnel is from a guest that runs on the node that sent it
//!   forward      what comes out of the tunnel goes to a guest of this node or answers a peer that
//!                this node has let in; the MSS of TCP is clamped to packets that fit
//! ```
//!
//! VXLAN of others on the same port is left alone. Ports of other nodes that guests reach are
//! decided in `hosts`.

use sha2::{Digest, Sha256};

use super::{Overlay, PORT, VNI, device, table};
use crate::rules::{DIGEST_CHAIN, set};
use crate::service::hex;
use crate::want::Bridge;

/// A transaction for nftables, and the digest that shows whether it is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayRules {
    pub digest: String,
    pub text: String,
}

impl OverlayRules {
    pub(crate) fn new(bridge: &Bridge, overlay: &Overlay) -> Self {
        let body = body(bridge, overlay);
        let digest = hex(&Sha256::digest(body.as_bytes())[..12]);
        let removal = Self::removal(bridge).text;
        let table = table(&bridge.table);
        let text = format!(
            "{removal}table inet {table} {{\n\tchain {DIGEST_CHAIN}{digest} {{\n\t}}\n{body}}}\n"
        );
        Self { digest, text }
    }

    /// The transaction that leaves no table.
    pub(crate) fn removal(bridge: &Bridge) -> Self {
        let table = table(&bridge.table);
        let text = format!("add table inet {table}\ndelete table inet {table}\n");
        Self { digest: String::new(), text }
    }
}

fn body(bridge: &Bridge, overlay: &Overlay) -> String {
    let (bridge_name, device) = (&bridge.name, device(bridge));
    let mut sources: Vec<_> = overlay
        .peers
        .iter()
        .flat_map(|peer| {
            let guests = peer.guests.union(&peer.expected).chain([&peer.address]);
            guests.map(|address| format!("{} . {address}", peer.mac)).collect::<Vec<_>>()
        })
        .collect();
    sources.sort();
    let mut text = set("sources", "ether_addr . ipv4_addr", sources.into_iter());
    // Behind the UDP header: 8 bytes of VXLAN with the network's number at the fifth, 6 bytes of the
    // receiver's Ethernet address, 6 of the sender's.
    let frame = format!("udp dport {PORT} @th,96,24 {VNI}");
    let family = if overlay.underlay.is_ipv4() { "ip" } else { "ip6" };
    let other = if overlay.underlay.is_ipv4() { "ipv6" } else { "ipv4" };
    let sender = format!("{family} saddr . @th,176,48");
    let mut senders: Vec<_> = overlay
        .peers
        .iter()
        .map(|peer| format!("{} . 0x{}", peer.underlay, hex(&peer.mac.octets())))
        .collect();
    senders.sort();
    let elements = match senders.as_slice() {
        [] => String::new(),
        some => format!("\t\telements = {{ {} }}\n", some.join(", ")),
    };
    text += &format!(
        "\
\tset senders {{
\t\ttypeof {sender}
{elements}\t}}
\tchain prerouting {{
\t\ttype filter hook prerouting priority -310; policy accept;
\t\tmeta nfproto {other} {frame} drop
\t\t{frame} {sender} != @senders drop
\t\tiifname \"{device}\" meta protocol != ip drop
\t\tiifname \"{device}\" ether saddr . ip saddr != @sources drop
\t}}
\tchain forward {{
\t\ttype filter hook forward priority -30; policy accept;
\t\tiifname \"{device}\" oifname != {{ \"{bridge_name}\", \"{device}\" }} ct direction reply accept
\t\tiifname \"{device}\" oifname != \"{bridge_name}\" drop
\t\toifname \"{device}\" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu
\t}}
"
    );
    text
}
