//! Restrictions of interfaces on bridges, tried with real packets, with IPv4 and IPv6.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use net::{
    AllowedPorts, Attachment, BridgedPacket, DesiredNetwork, GuestPolicies, LinkName, Network,
    Policies, Port, PortRange, PortVlan, Protocol, SpoofGuard, TapBlock, TapPeers, TapPolicies,
    TapPolicy, TapRule, TapRules, TapVerdict,
};

use crate::tags::{CUSTOMER_TAG, OFFLOAD_HEADER, on_lan};
use crate::world::{Guest, World, bridge, in_both_worlds, in_world, port, run};

/// A card of a guest on a bridge of the host.
fn card(number: u8) -> Port {
    let guard = SpoofGuard { own_mac_only: true, no_servers: true, access_port: true };
    let name = "br-lan".parse().unwrap();
    Port {
        attachment: Attachment::Bridge { name, guard, vlans: PortVlan::untagged() },
        ..port(number)
    }
}

fn tap(number: u8) -> LinkName {
    card(number).tap
}

fn v4(number: u8) -> IpAddr {
    [192, 0, 2, number].into()
}

fn v6(number: u8) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number.into()).into()
}

/// Plugs a guest in, with an address of both versions.
fn plug(number: u8) -> Guest {
    let guest = Guest::plug(card(number));
    guest.inside.run(&format!("ip address add {}/24 dev eth0", v4(number)));
    guest.inside.run(&format!("ip -6 address add {}/64 dev eth0 nodad", v6(number)));
    guest
}

/// A bridge with these guests and a network whose policies are in force.
async fn lan(world: &World, cards: &[u8], taps: TapPolicies) -> (Network, Vec<Guest>) {
    run("ip link add br-lan type bridge");
    run("ip link set br-lan up");
    let network = world.network(cards.iter().copied().map(card).collect()).await;
    network.restrict(of_taps(taps)).await.unwrap();
    let guests = cards.iter().copied().map(plug).collect();
    (network, guests)
}

fn of_taps(taps: TapPolicies) -> Policies {
    Policies { taps, ..Policies::default() }
}

fn tcp(port: u16) -> AllowedPorts {
    AllowedPorts::Only([PortRange { protocol: Protocol::Tcp, first: port, last: port }].into())
}

/// Both addresses of guests.
fn guests(numbers: &[u8]) -> TapPeers {
    let addresses = numbers.iter().flat_map(|own| [v4(*own), v6(*own)]).collect();
    TapPeers::Only { addresses, blocks: vec![] }
}

fn allow(rules: &[(TapPeers, AllowedPorts)]) -> Option<TapRules> {
    let rule = |(peers, ports): &(TapPeers, AllowedPorts)| TapRule {
        policy: "n/p".to_owned(),
        peers: peers.clone(),
        ports: ports.clone(),
    };
    Some(TapRules { policies: ["n/p".to_owned()].into(), rules: rules.iter().map(rule).collect() })
}

/// Interfaces without restrictions, but for some.
fn policies(known: &[u8], restricted: &[(u8, TapPolicy)]) -> TapPolicies {
    let known = known.iter().map(|own| (tap(*own), TapPolicy::default()));
    known.chain(restricted.iter().map(|(own, policy)| (tap(*own), policy.clone()))).collect()
}

/// Listens at all addresses of a guest.
fn listen(guest: &Guest, port: u16) -> TcpListener {
    guest.inside.within(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap())
}

fn connects(guest: &Guest, to: IpAddr, port: u16) -> bool {
    guest.inside.connect(SocketAddr::from((to, port))).is_ok()
}

/// With a limit that is short: what is allowed is tried in other places.
fn cannot_connect(guest: &Guest, to: IpAddr, port: u16) -> bool {
    let to = SocketAddr::from((to, port));
    let limit = Duration::from_secs(2);
    guest.inside.within(|| TcpStream::connect_timeout(&to, limit).is_err())
}

fn cannot_ping(guest: &Guest, to: IpAddr) -> bool {
    !guest.inside.try_run(&format!("busybox ping -c 1 -W 1 {to}")).status.success()
}

fn pings(guest: &Guest, to: IpAddr, size: u16) -> bool {
    let ping = format!("busybox ping -c 1 -W 2 -s {size} {to}");
    (0..3).any(|_| guest.inside.try_run(&ping).status.success())
}

/// The error that a datagram to a closed port is answered with, if it arrives.
fn gets_an_error_from_a_closed_port(guest: &Guest, to: IpAddr) -> bool {
    guest.inside.within(|| {
        let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u8; 16].into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        socket.connect((to, 9)).unwrap();
        (0..3).any(|_| {
            let _ = socket.send(b"anybody");
            let refused = socket.recv(&mut [0; 9]).err().map(|error| error.kind());
            refused == Some(std::io::ErrorKind::ConnectionRefused)
        })
    })
}

#[test]
fn only_what_a_policy_allows_reaches_a_card_and_all_replies_do() {
    in_both_worlds(async |world: World| {
        let only = TapPolicy { ingress: allow(&[(guests(&[3]), tcp(80))]), egress: None };
        let taps = policies(&[3, 4], &[(2, only)]);
        let (network, all) = lan(&world, &[2, 3, 4], taps).await;
        let [web, friend, stranger] = &all[..] else { panic!("three guests") };
        let _servers = [(web, 80), (web, 81), (stranger, 80)].map(|(own, port)| listen(own, port));
        for (own, other, third) in [(v4(2), v4(3), v4(4)), (v6(2), v6(3), v6(4))] {
            assert!(connects(friend, own, 80));
            assert!(cannot_connect(friend, own, 81), "another port");
            assert!(cannot_connect(stranger, own, 80), "another guest");
            assert!(cannot_ping(stranger, own) && cannot_ping(friend, own), "another protocol");
            assert!(connects(web, third, 80), "the guest itself is free to connect");
            assert!(pings(web, third, 56), "and its pings are answered");
            assert!(pings(web, other, 4000), "in fragments, too");
            assert!(gets_an_error_from_a_closed_port(web, third), "by an error that is about it");
            assert!(cannot_ping(stranger, own), "which opens nothing for others");
        }
        network.restrict(of_taps(policies(&[2, 3, 4], &[]))).await.unwrap();
        assert!(connects(stranger, v4(2), 81), "the policy is gone");
    });
}

#[test]
fn a_card_sends_only_what_its_policy_allows_and_all_replies() {
    in_both_worlds(async |world: World| {
        let egress = allow(&[(guests(&[3]), tcp(80))]);
        let taps = policies(&[3, 4], &[(2, TapPolicy { ingress: None, egress })]);
        let (_network, all) = lan(&world, &[2, 3, 4], taps).await;
        let [build, server, stranger] = &all[..] else { panic!("three guests") };
        let _servers = [(server, 80), (server, 81), (stranger, 80), (build, 22)]
            .map(|(own, at)| listen(own, at));
        run("ip address add 192.0.2.1/24 dev br-lan");
        let _host = TcpListener::bind((std::net::Ipv4Addr::UNSPECIFIED, 80)).unwrap();
        for (own, allowed, other) in [(v4(2), v4(3), v4(4)), (v6(2), v6(3), v6(4))] {
            assert!(connects(build, allowed, 80));
            assert!(cannot_connect(build, allowed, 81), "another port");
            assert!(cannot_connect(build, other, 80), "another guest");
            assert!(cannot_ping(build, other), "another protocol");
            assert!(connects(stranger, own, 22), "others are free to connect");
            assert!(pings(stranger, own, 4000), "and their pings are answered");
        }
        assert!(cannot_connect(build, v4(1), 80), "the host is a station like any other");
        assert!(cannot_ping(build, v4(1)));
    });
}

#[test]
fn connections_outlive_new_rules_and_a_restart() {
    in_world(async |mut world: World| {
        let client = TapPolicy { ingress: allow(&[]), egress: allow(&[(guests(&[3]), tcp(80))]) };
        let taps = policies(&[3], &[(2, client.clone())]);
        let (network, all) = lan(&world, &[2, 3], taps).await;
        let server = listen(&all[1], 80);
        let mut sent = all[0].inside.connect(SocketAddr::from((v4(3), 80))).unwrap();
        let (mut received, _) = server.accept().unwrap();
        received.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        sent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut say = |text: &str| {
            let mut heard = vec![0; text.len()];
            sent.write_all(text.as_bytes()).unwrap();
            received.read_exact(&mut heard).unwrap();
            received.write_all(&heard).unwrap();
            sent.read_exact(&mut heard).unwrap();
            assert_eq!(heard, text.as_bytes());
        };
        say("under the first rules");
        let closed = TapPolicy { egress: allow(&[]), ..client };
        let taps = policies(&[3], &[(2, closed)]);
        network.restrict(of_taps(taps.clone())).await.unwrap();
        say("under rules that would not allow it");
        assert!(cannot_connect(&all[0], v4(3), 80), "a new one is not allowed");
        world.restart().await;
        let cards = vec![card(2), card(3)];
        let wanted = DesiredNetwork::new(bridge(), cards);
        let wanted = DesiredNetwork { policies: GuestPolicies::Unknown, ..wanted };
        let network = Network::start(wanted, &world.tasks).await.unwrap();
        say("after a restart that does not know the policies yet");
        assert!(cannot_connect(&all[0], v4(3), 80), "whose rules stay in force");
        network.restrict(of_taps(taps)).await.unwrap();
        say("after it knows them");
        network.restrict(of_taps(policies(&[2, 3], &[]))).await.unwrap();
        say("after the last policy");
        let rules = run("nft list table bridge sheaf_policies");
        assert!(!rules.contains("shf_2"), "nothing of the interface stays: {rules}");
    });
}

#[test]
fn a_card_whose_policies_are_not_known_is_cut_off_until_they_are() {
    in_world(async |world: World| {
        let (network, all) = lan(&world, &[2, 3], policies(&[3], &[])).await;
        let _server = listen(&all[1], 80);
        assert!(cannot_ping(&all[0], v4(3)));
        network.restrict(of_taps(policies(&[2, 3], &[]))).await.unwrap();
        assert!(connects(&all[0], v4(3), 80));
        network.attach(card(4)).await.unwrap();
        let third = plug(4);
        assert!(cannot_ping(&third, v4(3)), "a new one");
        network.remove().await.unwrap();
        assert!(!run("nft list ruleset").contains("sheaf"));
    });
}

#[test]
fn the_judge_decides_as_the_kernel() {
    in_world(async |world: World| {
        let block = TapBlock {
            cidr: "192.0.2.0/29".parse().unwrap(),
            except: vec!["192.0.2.3/32".parse().unwrap()],
        };
        let block = TapPeers::Only { addresses: [v6(3)].into(), blocks: vec![block] };
        let second = TapPolicy {
            ingress: allow(&[(block, AllowedPorts::All), (guests(&[3]), tcp(81))]),
            egress: allow(&[(TapPeers::Any, tcp(80))]),
        };
        let third = TapPolicy { ingress: None, egress: allow(&[(guests(&[2]), tcp(81))]) };
        let fourth = TapPolicy { ingress: allow(&[]), egress: None };
        let taps = policies(&[], &[(2, second), (3, third), (4, fourth)]);
        let (_network, all) = lan(&world, &[2, 3, 4], taps.clone()).await;
        let _servers: Vec<_> =
            all.iter().flat_map(|own| [80, 81].map(|port| listen(own, port))).collect();
        let is_open = |verdict| !matches!(verdict, TapVerdict::Dropped(_));
        for (index, sender) in [2_u8, 3, 4].into_iter().enumerate() {
            for receiver in [2, 3, 4].into_iter().filter(|receiver| *receiver != sender) {
                for (from, to) in [(v4(sender), v4(receiver)), (v6(sender), v6(receiver))] {
                    for port in [80, 81] {
                        let packet = BridgedPacket { from, to, protocol: Protocol::Tcp, port };
                        let expected = is_open(taps[&tap(sender)].judge_egress(&packet))
                            && is_open(taps[&tap(receiver)].judge_ingress(&packet));
                        let guest = &all[index];
                        let is_judged_well = if expected {
                            connects(guest, to, port)
                        } else {
                            cannot_connect(guest, to, port)
                        };
                        assert!(is_judged_well, "{packet:?} {expected}");
                    }
                }
            }
        }
    });
}

/// A frame of ARP that says nothing, and ends with a text.
fn arp(from: net::Mac, to: net::Mac, text: &str) -> Vec<u8> {
    let mut frame = OFFLOAD_HEADER.to_vec();
    frame.extend(to.octets().into_iter().chain(from.octets()));
    frame.extend([0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2]);
    frame.extend([0; 20]);
    frame.extend(text.as_bytes());
    frame
}

#[test]
fn frames_with_tags_do_not_pass_the_policy_of_a_trunk() {
    in_both_worlds(async |world: World| {
        run("ip link add br-lan type bridge");
        run("ip link set br-lan up");
        let network = world.network(vec![]).await;
        let guest = on_lan(&network, 7, SpoofGuard::default()).await;
        let witness = on_lan(&network, 8, SpoofGuard::default()).await;
        guest.wait_for_way_to(&witness);
        witness.wait_for_way_to(&guest);
        let closed = TapPolicy { ingress: allow(&[]), egress: allow(&[]) };
        network.restrict(of_taps(policies(&[8], &[(7, closed)]))).await.unwrap();
        for (from, to) in [(&guest, &witness), (&witness, &guest)] {
            from.send(to.mac, &[], 5000, "untagged");
            from.send(to.mac, &[(CUSTOMER_TAG, 100)], 5000, "tag");
            from.send(to.mac, &[(CUSTOMER_TAG, 1), (CUSTOMER_TAG, 100)], 5000, "two tags");
            from.send_frame(&arp(from.mac, to.mac, "who has"));
            assert_eq!(to.receives(&["untagged", "two tags", "tag", "who has"]), ["who has"]);
        }
    });
}
