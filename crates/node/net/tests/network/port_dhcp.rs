//! DHCP on bridges that carry machines' networks, asked by real clients.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};

use net::{
    Attachment, DhcpOptions, DhcpServer, Lease, LinkName, Network, Port, PortDhcp, PortLease,
    PortVlan, SpoofGuard,
};

use crate::services::{Client, assert_received};
use crate::world::{Guest, LIMIT, Namespace, World, eventually, in_world, port, run};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

fn lan_port(number: u8) -> Port {
    let guard = SpoofGuard { own_mac_only: true, no_servers: true, access_port: true };
    let (name, vlans) = ("br-lan".parse().unwrap(), PortVlan::untagged());
    Port { attachment: Attachment::Bridge { name, guard, vlans }, ..port(number) }
}

/// A bridge with guests, and a station on the wire behind it.
async fn lan(world: &World, ports: Vec<Port>) -> (Network, Namespace) {
    run("ip link add br-lan type bridge");
    run("ip link set br-lan up");
    let wire = Namespace::new("wire");
    run(&format!("ip link add lan0 type veth peer name eth0 netns {}", wire.name));
    run("ip link set lan0 master br-lan");
    run("ip link set lan0 up");
    wire.run("ip address add 10.7.0.9/24 dev eth0");
    wire.run("ip link set eth0 up");
    (world.network(ports).await, wire)
}

fn lease(number: u8, seconds: u32) -> PortLease {
    let options = DhcpOptions {
        dns: vec![[192, 0, 2, 53].into()],
        domain: Some("lan.example".into()),
        search: vec!["a.example".into()],
        ntp: vec![[192, 0, 2, 123].into()],
        ..DhcpOptions::default()
    };
    PortLease {
        lease: Lease { mac: port(number).mac, address: [10, 7, 0, number].into(), options },
        server: DhcpServer {
            address: "10.7.0.2/24".parse().unwrap(),
            router: Some([10, 7, 0, 9].into()),
            dns: None,
            lease_seconds: seconds,
        },
    }
}

async fn serve(network: &Network, dhcp: &PortDhcp, leases: &[(u8, PortLease)]) {
    let taps = || leases.iter().map(|(number, lease)| (port(*number).tap, lease.clone()));
    let servers: BTreeMap<LinkName, Ipv4Addr> = taps().map(|(tap, _)| (tap, SERVER)).collect();
    network.answer_dhcp(servers).await.unwrap();
    dhcp.replace(taps().collect()).unwrap();
}

/// Whether a command in a namespace succeeds; the servers run on while it does.
async fn succeeds(inside: &Namespace, command: &str) -> bool {
    let command = format!("netns exec {} {command}", inside.name);
    let running = tokio::process::Command::new("ip")
        .args(command.split_whitespace())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(LIMIT, running).await.unwrap().unwrap().status.success()
}

fn listen(inside: &Namespace, port: u16) -> UdpSocket {
    let socket = inside.within(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
    socket.set_nonblocking(true).unwrap();
    socket
}

fn has_received(socket: &UdpSocket) -> bool {
    socket.recv_from(&mut [0; 2048]).is_ok()
}

#[test]
fn a_guest_gets_the_address_of_its_pool_from_its_own_node() {
    in_world(async |world: World| {
        let (network, wire) = lan(&world, vec![lan_port(5), lan_port(6)]).await;
        let dhcp = PortDhcp::new(&world.tasks);
        serve(&network, &dhcp, &[(5, lease(5, 600))]).await;
        let on_wire = listen(&wire, 67);
        let guest = Guest::plug(lan_port(5));
        let client = Client::new();
        let received = client.ask(&guest, "-O domain -O search -O ntpsrv").await;
        assert_received(
            &received,
            &[
                "event=bound",
                "ip=10.7.0.5",
                "mask=24",
                "router=10.7.0.9",
                "serverid=10.7.0.2",
                "lease=600",
                "dns=192.0.2.53",
                "domain=lan.example",
                "search=a.example",
                "ntpsrv=192.0.2.123",
            ],
        );
        assert!(guest.inside.reaches([10, 7, 0, 9].into()), "the wire");
        assert!(!has_received(&on_wire), "the request left the node");
        // A client that renews asks for the server's address.
        assert!(succeeds(&guest.inside, "busybox arping -f -c 3 -w 10 -I eth0 10.7.0.2").await);
        // No other station receives frames of the server.
        assert!(!succeeds(&wire, "busybox arping -f -c 1 -w 1 -I eth0 10.7.0.2").await);

        // Guests without a lease are not answered, and may ask others.
        let other = Guest::plug(lan_port(6));
        assert_eq!(client.ask(&other, "").await, None);
        assert!(has_received(&on_wire), "a request that is not answered here");

        // Leases change while guests run, and end.
        serve(&network, &dhcp, &[(5, lease(5, 1200)), (6, lease(6, 600))]).await;
        assert_received(&client.ask(&guest, "").await, &["ip=10.7.0.5", "lease=1200"]);
        assert_received(&client.ask(&other, "").await, &["ip=10.7.0.6", "lease=600"]);
        serve(&network, &dhcp, &[]).await;
        assert_eq!(client.ask(&guest, "").await, None);
    });
}

#[test]
fn answers_of_other_servers_do_not_reach_a_served_guest() {
    in_world(async |world: World| {
        let (network, wire) = lan(&world, vec![lan_port(5), lan_port(6)]).await;
        let dhcp = PortDhcp::new(&world.tasks);
        serve(&network, &dhcp, &[(5, lease(5, 600))]).await;
        let (guest, rogue) = (Guest::plug(lan_port(5)), Guest::plug(lan_port(6)));
        guest.inside.run("ip address add 10.7.0.5/24 dev eth0");
        rogue.inside.run("ip address add 10.7.0.6/24 dev eth0");
        let (answers, others) = (listen(&guest.inside, 68), listen(&guest.inside, 1068));
        for (from, who) in [(&wire, "the wire"), (&rogue.inside, "another guest")] {
            let server = listen(from, 67);
            eventually(who, || {
                server.send_to(b"offer", ("10.7.0.5", 68)).unwrap();
                server.send_to(b"other", ("10.7.0.5", 1068)).unwrap();
                // Rules of the rogue guest's own port drop all that it sends from port 67.
                who == "another guest" || has_received(&others)
            })
            .await;
            assert!(!has_received(&answers), "{who} answered");
        }
    });
}

#[test]
fn a_tap_that_is_made_anew_is_served_again() {
    in_world(async |world: World| {
        let (network, _wire) = lan(&world, vec![lan_port(5)]).await;
        let dhcp = PortDhcp::new(&world.tasks);
        serve(&network, &dhcp, &[(5, lease(5, 600))]).await;
        let client = Client::new();
        let guest = Guest::plug(lan_port(5));
        assert_received(&client.ask(&guest, "").await, &["ip=10.7.0.5"]);
        drop(guest);
        network.detach(port(5).tap).await.unwrap();
        network.attach(lan_port(5)).await.unwrap();
        let guest = Guest::plug(lan_port(5));
        for _ in 0..10 {
            // The server checks for the tap twice a second.
            if let received @ Some(_) = client.ask(&guest, "").await {
                return assert_received(&received, &["ip=10.7.0.5"]);
            }
        }
        panic!("the new tap is not served");
    });
}
