//! Guests on a bridge of the host that announce themselves as IPv6 routers or DHCPv6 servers.

use net::{Mac, SpoofGuard};

use crate::tags::{CUSTOMER_TAG, Cable, OFFLOAD_HEADER, on_lan};
use crate::world::{World, in_both_worlds, run};

const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const ECHO: u8 = 128;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// A packet to all nodes of the link, as a frame with tags that ends with a text.
fn packet(
    from: Mac,
    to: Mac,
    tags: &[(u16, u16)],
    next: u8,
    payload: &[u8],
    text: &str,
) -> Vec<u8> {
    let mut frame = OFFLOAD_HEADER.to_vec();
    frame.extend(to.octets());
    frame.extend(from.octets());
    for (kind, vlan) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(vlan.to_be_bytes());
    }
    let length = u16::try_from(payload.len() + text.len()).unwrap();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([next, 255]);
    frame.extend("fe80::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
    frame.extend("ff02::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    frame.extend(payload);
    frame.extend(text.as_bytes());
    frame
}

impl Cable {
    fn send_icmp(&self, to: Mac, tags: &[(u16, u16)], kind: u8, text: &str) {
        self.send_frame(&packet(self.mac, to, tags, ICMPV6, &icmp(kind), text));
    }
}

fn icmp(kind: u8) -> [u8; 16] {
    let mut head = [0; 16];
    head[0] = kind;
    head
}

#[test]
fn a_guest_on_a_bridge_announces_no_router_and_answers_no_dhcpv6() {
    in_both_worlds(async |world: World| {
        run("ip link add br-lan type bridge");
        run("ip link set br-lan up");
        let network = world.network(vec![]).await;
        let access = SpoofGuard { own_mac_only: true, no_servers: true, access_port: true };
        let guest = on_lan(&network, 7, access).await;
        let trunk = on_lan(&network, 8, SpoofGuard { access_port: false, ..access }).await;
        let receiver = on_lan(&network, 9, SpoofGuard::default()).await;
        guest.wait_for_way_to(&receiver);
        trunk.wait_for_way_to(&receiver);

        let to = receiver.mac;
        guest.send_icmp(to, &[], ROUTER_ADVERTISEMENT, "a router");
        guest.send_icmp(to, &[(CUSTOMER_TAG, 0)], ROUTER_ADVERTISEMENT, "a router with priority");
        guest.send_icmp(to, &[], REDIRECT, "a redirect");
        // Behind an extension header, eight bytes of padding.
        let mut hidden = vec![ICMPV6, 0, 1, 4, 0, 0, 0, 0];
        hidden.extend(icmp(ROUTER_ADVERTISEMENT));
        let frame = packet(guest.mac, to, &[], HOP_BY_HOP, &hidden, "a router behind options");
        guest.send_frame(&frame);
        let mut reply = [547_u16, 546].map(u16::to_be_bytes).concat();
        reply.extend([0, 8, 0, 0]);
        guest.send_frame(&packet(guest.mac, to, &[], UDP, &reply, "an answer of DHCPv6"));
        trunk.send_icmp(to, &[(CUSTOMER_TAG, 100)], ROUTER_ADVERTISEMENT, "a router of a trunk");
        // Every station sends these.
        guest.send_icmp(to, &[], NEIGHBOUR_ADVERTISEMENT, "a neighbour");
        guest.send_icmp(to, &[], ECHO, "an echo");
        guest.send(to, &[], 5000, "end");
        let sent = [
            "a router",
            "a router with priority",
            "a redirect",
            "a router behind options",
            "an answer of DHCPv6",
            "a router of a trunk",
            "a neighbour",
            "an echo",
            "end",
        ];
        assert_eq!(receiver.receives(&sent), ["a neighbour", "an echo", "end"]);

        // The definition of the network may allow it.
        let router = on_lan(&network, 10, SpoofGuard { no_servers: false, ..access }).await;
        router.wait_for_way_to(&receiver);
        router.send_icmp(to, &[], ROUTER_ADVERTISEMENT, "a router that may");
        router.send(to, &[], 5000, "end");
        assert_eq!(receiver.receives(&["a router that may", "end"]), ["a router that may", "end"]);
    });
}
