//! Allowed and forbidden connections.

use std::net::{Ipv4Addr, UdpSocket};

use net::{Attachment, DesiredNetwork, Mac, Network, Port, PortVlan, Protocol, SpoofGuard};

use crate::world::{
    GATEWAY, Guest, HOST_OUTSIDE, Namespace, OUTSIDE, World, address, bridge, closed_but,
    eventually, in_both_worlds, in_world, port, run,
};

#[test]
fn guests_reach_each_other_the_host_and_the_outside() {
    in_both_worlds(async |world: World| {
        let outside = world.outside();
        let _network = world.network(vec![port(2), port(3)]).await;
        let (one, two) = (Guest::configured(port(2)), Guest::configured(port(3)));
        assert!(one.inside.reaches(GATEWAY), "the gateway");
        assert!(one.inside.reaches(two.address()), "another guest");
        assert!(one.inside.reaches(OUTSIDE), "the outside");
        assert!(outside.reaches(two.address()), "from outside to a guest");
        // Although frames do not pass between their ports: the host is in between.
        let neighbour = one.inside.run(&format!("ip neigh show {}", two.address()));
        assert!(neighbour.contains(&bridge().mac().to_string()), "{neighbour}");
    });
}

#[test]
fn packets_that_leave_are_masqueraded_unless_the_way_back_is_known() {
    in_world(async |world: World| {
        let outside = world.outside();
        let peer_of = |network: &Network, guest: &Guest| {
            let _ = network;
            let listener = outside.listen(8080);
            assert!(guest.inside.connects(OUTSIDE, 8080));
            listener.accept().unwrap().1.ip()
        };
        let network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        assert_eq!(peer_of(&network, &guest), HOST_OUTSIDE);
        let mut direct = bridge();
        direct.direct = vec!["192.0.2.0/24".parse().unwrap()];
        let want = DesiredNetwork::new(direct, vec![port(2)]);
        let network = Network::start(want, &world.tasks).await.unwrap();
        assert_eq!(peer_of(&network, &guest), guest.address());
    });
}

#[test]
fn a_guest_accepts_connections_on_its_open_ports_only() {
    in_both_worlds(async |world: World| {
        let outside = world.outside();
        let shut = || closed_but(3, &[(Protocol::Tcp, 80)]);
        let network = world.network(vec![port(2), shut()]).await;
        let (open, shut_guest) = (Guest::configured(port(2)), Guest::configured(shut()));
        let _servers =
            [80, 81].map(|port| (shut_guest.inside.listen(port), open.inside.listen(port)));
        for (from, who) in [(&open.inside, "a guest"), (&outside, "the outside")] {
            assert!(from.connects(address(3), 80), "{who} to the open port");
            assert!(!from.connects(address(3), 81), "{who} to a closed port");
            assert!(from.reaches(address(3)), "{who} may ping");
        }
        assert!(outside.connects(address(2), 81), "everything is open on the other");
        assert!(shut_guest.inside.connects(address(2), 81), "answers find their way back");
        // Changing one's mind takes effect at once, and leaves others alone.
        network.attach(closed_but(3, &[(Protocol::Tcp, 81)])).await.unwrap();
        assert!(outside.connects(address(3), 81));
        assert!(!outside.connects(address(3), 80));
    });
}

#[test]
fn the_host_offers_guests_the_api_and_nothing_else() {
    in_world(async |world: World| {
        let _outside = world.outside();
        let _network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        let any = Ipv4Addr::UNSPECIFIED;
        let _servers = [22, 6443].map(|port| std::net::TcpListener::bind((any, port)).unwrap());
        for host in [GATEWAY, HOST_OUTSIDE] {
            assert!(guest.inside.connects(host, 6443), "the API at {host}");
            assert!(!guest.inside.connects(host, 22), "another service at {host}");
        }
    });
}

#[test]
fn forged_senders_are_dropped() {
    in_world(async |world: World| {
        let _network = world.network(vec![port(2), port(3)]).await;
        let guest = Guest::configured(port(2));
        let other: Ipv4Addr = [10, 52, 0, 99].into();
        guest.inside.run(&format!("ip address add {other}/24 dev eth0"));
        guest.inside.run(&format!("ip address add {}/24 dev eth0", address(3)));
        assert!(guest.inside.reaches(GATEWAY), "as itself");

        // Packets are checked on arrival at the host, since answers might be lost for other
        // reasons. The port is one that guests may send to.
        let host = UdpSocket::bind((GATEWAY, 67)).unwrap();
        host.set_nonblocking(true).unwrap();
        let gateway = format!("{GATEWAY} lladdr {} dev eth0 nud permanent", bridge().mac());
        guest.inside.run(&format!("ip neigh replace {gateway}"));
        let send = |from: Ipv4Addr, text: &str| {
            guest.inside.within(|| {
                let socket = UdpSocket::bind((from, 0)).unwrap();
                socket.send_to(text.as_bytes(), (GATEWAY, 67)).unwrap();
            });
        };
        send(address(2), "itself");
        send(other, "a free address");
        send(address(3), "the address of another guest");
        guest.inside.run(&format!("ip link set eth0 address {}", port(3).mac));
        guest.inside.run(&format!("ip neigh replace {gateway}"));
        send(address(2), "the card of another guest");
        send(address(3), "another guest in full");
        guest.inside.run(&format!("ip link set eth0 address {}", port(2).mac));
        guest.inside.run(&format!("ip neigh replace {gateway}"));
        send(address(2), "the end");

        let mut received = Vec::new();
        eventually("the last message", || {
            let mut message = [0; 64];
            while let Ok(length) = host.recv(&mut message) {
                received.push(String::from_utf8_lossy(&message[..length]).into_owned());
            }
            received.last().is_some_and(|last| last == "the end")
        })
        .await;
        assert_eq!(received, ["itself", "the end"]);
    });
}

#[test]
fn forged_arp_is_dropped() {
    in_world(async |world: World| {
        let _network = world.network(vec![port(2), port(3)]).await;
        let guest = Guest::configured(port(2));
        let answered = |source: Ipv4Addr| {
            let command = format!("busybox arping -c 2 -w 3 -I eth0 -s {source} {GATEWAY}");
            guest.inside.try_run(&command).status.success()
        };
        assert!(answered(address(2)), "as itself");
        for source in [address(3), [10, 52, 0, 99].into()] {
            guest.inside.run(&format!("ip address add {source}/24 dev eth0"));
            assert!(!answered(source), "{source}");
        }
        assert!(answered(address(2)), "as itself again");
    });
}

#[test]
fn a_guest_does_not_receive_the_broadcasts_of_another() {
    in_both_worlds(async |world: World| {
        let _network = world.network(vec![port(2), port(3)]).await;
        let (one, two) = (Guest::configured(port(2)), Guest::configured(port(3)));
        let listener = two.inside.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:9999").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        });
        one.inside.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_broadcast(true).unwrap();
            socket.send_to(b"all", "10.52.0.255:9999").unwrap();
            // A direct message, sent later, does arrive: the wire keeps the order.
            socket.send_to(b"you", (address(3), 9999)).unwrap();
        });
        let mut message = [0; 32];
        let mut received = None;
        eventually("the direct message", || {
            received = listener.recv(&mut message).ok();
            received.is_some()
        })
        .await;
        assert_eq!(&message[..received.unwrap()], b"you");
    });
}

/// A host's own bridge, with a station behind a port of it.
fn lan() -> Namespace {
    let station = Namespace::new("lan");
    run("ip link add br-lan type bridge");
    run("ip link set br-lan up");
    run(&format!("ip link add lan0 type veth peer name eth0 netns {}", station.name));
    run("ip link set lan0 master br-lan up");
    station.run("ip address add 198.51.100.1/24 dev eth0");
    station.run("ip link set eth0 up");
    station
}

#[test]
fn a_port_on_a_bridge_of_the_host_is_guarded_as_asked() {
    in_world(async |world: World| {
        let station = lan();
        let network = world.network(vec![]).await;
        let on_lan = |guard| Port {
            attachment: Attachment::Bridge {
                name: "br-lan".parse().unwrap(),
                guard,
                vlans: PortVlan::untagged(),
            },
            ..port(7)
        };
        network.attach(on_lan(SpoofGuard::default())).await.unwrap();
        let guest = Guest::plug(on_lan(SpoofGuard::default()));
        guest.inside.run("ip address add 198.51.100.7/24 dev eth0");
        assert!(guest.inside.reaches([198, 51, 100, 1].into()), "any address is fine there");
        let rename = |mac: Mac| guest.inside.run(&format!("ip link set eth0 address {mac}"));
        rename(Mac::new([2, 0, 0, 0, 0, 99]));
        assert!(guest.inside.reaches([198, 51, 100, 1].into()), "and any Ethernet address");
        let strict = SpoofGuard { own_mac_only: true, no_servers: true, access_port: true };
        network.attach(on_lan(strict)).await.unwrap();
        assert!(!guest.inside.pings([198, 51, 100, 1].into()), "until its own is asked for");
        rename(guest.port.mac);
        assert!(guest.inside.reaches([198, 51, 100, 1].into()));
        drop(station);
    });
}

#[test]
fn guests_on_a_bridge_of_the_host_are_found_by_what_they_announce() {
    in_world(async |world: World| {
        let station = lan();
        let attachment = Attachment::Bridge {
            name: "br-lan".parse().unwrap(),
            guard: SpoofGuard::default(),
            vlans: PortVlan::untagged(),
        };
        let on_lan = Port { attachment, ..port(7) };
        let network = world.network(vec![on_lan.clone()]).await;
        let guest = Guest::plug(on_lan.clone());
        guest.inside.run("ip address add 198.51.100.7/24 dev eth0");
        // The host has no address there and takes no part.
        assert!(guest.inside.reaches([198, 51, 100, 1].into()));
        let expected = vec![(on_lan.tap.clone(), Ipv4Addr::from([198, 51, 100, 7]))];
        assert_eq!(network.seen_addresses().await.unwrap(), expected);
        network.attach(port(2)).await.unwrap();
        assert_eq!(network.seen_addresses().await.unwrap(), expected, "after other changes");
        // With an address it also has neighbours of its own.
        run("ip address add 198.51.100.254/24 dev br-lan");
        assert!(guest.inside.reaches([198, 51, 100, 254].into()));
        let found = network.neighbours(&"br-lan".parse().unwrap()).await.unwrap();
        let neighbour = found.iter().find(|neighbour| neighbour.mac == guest.port.mac);
        assert_eq!(neighbour.map(|guest| guest.address), Some([198, 51, 100, 7].into()));
        drop(station);
    });
}
