//! Services with real packets: the endpoint that each client reaches, its source address, and
//! refused clients.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use net::{Endpoint, EndpointScope, Location, Protocol, Service};

use crate::world::{
    GATEWAY, Guest, HOST_OUTSIDE, LIMIT, Namespace, OUTSIDE, World, address, in_both_worlds,
    in_world, port, run,
};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 9);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 10);
const NODE_PORT: u16 = 30080;
/// With two endpoints at random, all of these go to one of them once in 2^30 times.
const TRIES: usize = 31;

fn service(address: Ipv4Addr, endpoints: &[Ipv4Addr]) -> Service {
    let here = |address: &Ipv4Addr| Endpoint {
        address: *address,
        port: 8080,
        location: Location::ThisNode,
    };
    Service {
        id: format!("default/{}", address.octets()[3]),
        address,
        external_addresses: vec![],
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
        affinity: None,
        internal: EndpointScope::Cluster,
        external: EndpointScope::Cluster,
        endpoints: endpoints.iter().map(here).collect(),
    }
}

/// Connects and returns which of the listeners accepted, and the source address.
fn connect(to: (Ipv4Addr, u16), listeners: &[TcpListener]) -> Result<(usize, IpAddr), ErrorKind> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from(to), Duration::from_secs(3));
    let stream = stream.map_err(|error| error.kind())?;
    let mut ready: Vec<_> =
        listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_ne!(poll(&mut ready, Some(&limit)).unwrap(), 0, "no listener accepted {stream:?}");
    let index = ready.iter().position(|each| !each.revents().is_empty()).unwrap();
    let (_, peer) = listeners[index].accept().unwrap();
    Ok((index, peer.ip()))
}

fn connect_from(
    from: &Namespace,
    to: (Ipv4Addr, u16),
    listeners: &[TcpListener],
) -> Result<(usize, IpAddr), ErrorKind> {
    from.within(|| connect(to, listeners))
}

#[test]
fn guests_the_node_and_outsiders_reach_the_endpoints_of_a_service() {
    in_both_worlds(async |world: World| {
        let network = world.network(vec![port(2), port(3), port(4)]).await;
        let guests: Vec<_> = [2, 3, 4].map(|number| Guest::configured(port(number))).into();
        let outside = world.outside();
        run(&format!("ip route add default via {OUTSIDE}"));
        let listeners: Vec<_> = guests[1..].iter().map(|guest| guest.inside.listen(8080)).collect();
        let balanced =
            Service { node_port: Some(NODE_PORT), ..service(ADDRESS, &[address(3), address(4)]) };
        network.serve(vec![balanced, service(OTHER, &[address(3)])]).await.unwrap();

        let from_guest = |to| connect_from(&guests[0].inside, to, &listeners).unwrap();
        let answers: Vec<_> = (0..TRIES).map(|_| from_guest((ADDRESS, 80))).collect();
        assert!(answers.iter().all(|(_, seen)| *seen == IpAddr::from(address(2))), "{answers:?}");
        for index in [0, 1] {
            assert!(answers.iter().any(|(who, _)| *who == index), "{index} of {answers:?}");
        }
        // A guest that is its own endpoint sees the gateway, through which its answers pass.
        let itself = connect_from(&guests[1].inside, (OTHER, 80), &listeners);
        assert_eq!(itself, Ok((0, GATEWAY.into())));
        for node in [GATEWAY, HOST_OUTSIDE] {
            assert_eq!(from_guest((node, NODE_PORT)).1, IpAddr::from(address(2)));
        }
        assert!(connect((ADDRESS, 80), &listeners).is_ok(), "the node itself");
        assert!(connect((HOST_OUTSIDE, NODE_PORT), &listeners).is_ok(), "the node itself");
        let outsider = connect_from(&outside, (HOST_OUTSIDE, NODE_PORT), &listeners).unwrap();
        assert_eq!(outsider.1, IpAddr::from(OUTSIDE), "endpoints see the client's address");
    });
}

#[test]
fn connections_without_an_endpoint_are_refused() {
    in_both_worlds(async |world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        let guests = [2, 3].map(|number| Guest::configured(port(number)));
        let outside = world.outside();
        run(&format!("ip route add default via {OUTSIDE}"));
        let elsewhere = Endpoint { location: Location::Elsewhere, ..far() };
        let local = Service {
            internal: EndpointScope::Local,
            external: EndpointScope::Local,
            node_port: Some(NODE_PORT + 1),
            endpoints: vec![elsewhere],
            ..service(OTHER, &[])
        };
        let none = Service { node_port: Some(NODE_PORT), ..service(ADDRESS, &[]) };
        network.serve(vec![none, local]).await.unwrap();
        let guest = &guests[0].inside;
        let refused = Err(ErrorKind::ConnectionRefused);
        assert_eq!(connect_from(guest, (ADDRESS, 80), &[]), refused);
        assert_eq!(connect_from(guest, (ADDRESS, 81), &[]), refused, "a port it does not have");
        assert_eq!(connect((ADDRESS, 80), &[]), refused, "the node itself");
        assert_eq!(connect_from(guest, (GATEWAY, NODE_PORT), &[]), refused);
        assert_eq!(connect_from(&outside, (HOST_OUTSIDE, NODE_PORT), &[]), refused);
        let silent = Err(ErrorKind::TimedOut);
        assert_eq!(connect_from(&outside, (HOST_OUTSIDE, NODE_PORT + 1), &[]), silent);
        let refused = guest.within(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            socket.connect((ADDRESS, 80)).unwrap();
            socket.send(b"hello").unwrap();
            socket.recv(&mut [0; 8]).unwrap_err().kind()
        });
        assert_eq!(refused, ErrorKind::ConnectionRefused);
    });
}

fn far() -> Endpoint {
    Endpoint { address: OUTSIDE, port: 8080, location: Location::Elsewhere }
}

#[test]
fn datagrams_find_their_endpoint_and_the_way_back() {
    in_both_worlds(async |world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        let guests = [2, 3].map(|number| Guest::configured(port(number)));
        let udp = Service { protocol: Protocol::Udp, ..service(ADDRESS, &[address(3)]) };
        network.serve(vec![udp]).await.unwrap();
        let server = guests[1].inside.within(|| UdpSocket::bind("0.0.0.0:8080").unwrap());
        let client = guests[0].inside.within(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        client.connect((ADDRESS, 80)).unwrap();
        for socket in [&server, &client] {
            socket.set_read_timeout(Some(LIMIT)).unwrap();
        }
        let mut buffer = [0; 8];
        client.send(b"ask").unwrap();
        let (length, peer) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], peer.ip()), (&b"ask"[..], address(2).into()));
        server.send_to(b"answer", peer).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"answer");
    });
}

#[test]
fn a_flow_of_datagrams_moves_on_when_its_endpoint_goes() {
    in_both_worlds(async |world: World| {
        let network = world.network(vec![port(2), port(3), port(4)]).await;
        let guests = [2, 3, 4].map(|number| Guest::configured(port(number)));
        let udp = |last: u8| {
            let served = service(ADDRESS, &[address(last)]);
            vec![Service { protocol: Protocol::Udp, node_port: Some(NODE_PORT), ..served }]
        };
        let bind = |guest: &Guest, port: u16| {
            let socket = guest.inside.within(|| UdpSocket::bind(("0.0.0.0", port)).unwrap());
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            socket
        };
        let servers = [bind(&guests[1], 8080), bind(&guests[2], 8080)];
        let clients =
            [(bind(&guests[0], 0), (ADDRESS, 80)), (bind(&guests[0], 0), (GATEWAY, NODE_PORT))];
        for (server, last) in [(&servers[0], 3), (&servers[1], 4)] {
            network.serve(udp(last)).await.unwrap();
            for (client, to) in &clients {
                client.send_to(b"ask", to).unwrap();
                let (length, _) = server.recv_from(&mut [0; 8]).unwrap();
                assert_eq!(length, 3, "{to:?} at {last}");
            }
        }
    });
}

#[test]
fn external_addresses_lead_to_endpoints_and_keep_their_other_ports() {
    in_both_worlds(async |world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        let guests = [2, 3].map(|number| Guest::configured(port(number)));
        let outside = world.outside();
        run(&format!("ip route add default via {OUTSIDE}"));
        let foreign = Ipv4Addr::new(198, 51, 100, 7);
        outside.run(&format!("ip route add {foreign} via {HOST_OUTSIDE}"));
        let external = Service {
            external_addresses: vec![HOST_OUTSIDE, foreign],
            ..service(ADDRESS, &[address(3)])
        };
        network.serve(vec![external]).await.unwrap();
        let listeners =
            [guests[1].inside.listen(8080), TcpListener::bind((HOST_OUTSIDE, 81)).unwrap()];
        for to in [HOST_OUTSIDE, foreign] {
            let outsider = connect_from(&outside, (to, 80), &listeners);
            assert_eq!(outsider, Ok((0, OUTSIDE.into())), "{to}");
            let guest = connect_from(&guests[0].inside, (to, 80), &listeners);
            assert_eq!(guest, Ok((0, address(2).into())), "{to}");
            assert_eq!(connect((to, 80), &listeners).map(|(index, _)| index), Ok(0), "{to}");
        }
        let other = connect_from(&outside, (HOST_OUTSIDE, 81), &listeners);
        assert_eq!(other, Ok((1, OUTSIDE.into())), "a port of the node's own");
        let none = Service { external_addresses: vec![foreign], ..service(ADDRESS, &[]) };
        network.serve(vec![none]).await.unwrap();
        let refused = connect_from(&outside, (foreign, 80), &listeners);
        assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
    });
}

#[test]
fn clients_stay_with_their_endpoint_when_others_come_and_go() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2), port(3), port(4), port(5)]).await;
        let guests = [2, 3, 4, 5].map(|number| Guest::configured(port(number)));
        let listeners: Vec<_> = guests[1..].iter().map(|guest| guest.inside.listen(8080)).collect();
        let sticky = |endpoints: &[Ipv4Addr]| {
            vec![Service { affinity: Some(600), ..service(ADDRESS, endpoints) }]
        };
        let ask = || connect_from(&guests[0].inside, (ADDRESS, 80), &listeners).unwrap().0;
        network.serve(sticky(&[address(3), address(4)])).await.unwrap();
        let first = ask();
        assert!((0..TRIES).all(|_| ask() == first));
        network.serve(sticky(&[address(3), address(4), address(5)])).await.unwrap();
        assert!((0..TRIES).all(|_| ask() == first), "one more");
        let last = [address(3), address(4)][first];
        network.serve(sticky(&[address(5), last])).await.unwrap();
        assert!((0..TRIES).all(|_| ask() == first), "another one is gone");
        network.serve(sticky(&[address(5)])).await.unwrap();
        assert_eq!(ask(), 2, "its own one is gone");
        assert!(!run("nft list table inet sheaf_services").contains(&last.to_string()));
    });
}

#[test]
fn services_survive_a_restart_and_a_flush_and_go_with_the_network() {
    in_world(async |mut world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        let guests = [2, 3].map(|number| Guest::configured(port(number)));
        let listeners = [guests[1].inside.listen(8080)];
        let services = || vec![service(ADDRESS, &[address(3)])];
        network.serve(services()).await.unwrap();
        let ask = || connect_from(&guests[0].inside, (ADDRESS, 80), &listeners).is_ok();
        // Handles would change with the rules, also where the rules are the same.
        let rules = || run("nft -a list table inet sheaf_services");
        let before = rules();
        world.restart().await;
        let network = world.network(vec![port(2), port(3)]).await;
        assert_eq!(before, rules());
        assert!(ask(), "while services are not known yet");
        network.serve(services()).await.unwrap();
        assert_eq!(before, rules());
        run("nft flush ruleset");
        network.resync().await.unwrap();
        assert!(ask(), "flushed");
        network.attach(port(4)).await.unwrap();
        network.detach(port(4).tap).await.unwrap();
        assert!(ask(), "another guest came and went");
        network.remove().await.unwrap();
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn services_open_nothing_that_is_closed() {
    in_both_worlds(async |world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        let guests = [2, 3].map(|number| Guest::configured(port(number)));
        let api = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 6443)).unwrap();
        let ssh = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 22)).unwrap();
        let on_node = |last, port| Service {
            endpoints: vec![Endpoint { address: GATEWAY, port, location: Location::ThisNode }],
            ..service(Ipv4Addr::new(10, 43, 0, last), &[])
        };
        network.serve(vec![on_node(1, 6443), on_node(2, 22)]).await.unwrap();
        let listeners = [api, ssh];
        let guest = &guests[0].inside;
        let to = |last| (Ipv4Addr::new(10, 43, 0, last), 80);
        assert_eq!(connect_from(guest, to(1), &listeners), Ok((0, address(2).into())));
        let refused = Err(ErrorKind::ConnectionRefused);
        assert_eq!(connect_from(guest, to(2), &listeners), refused, "not open to guests");
        // The address of another host is no way to a service.
        guest.run(&format!("ip address add {}/32 dev lo", address(3)));
        guest.run(&format!("ip route add 10.43.0.0/16 via {GATEWAY} src {}", address(3)));
        assert_eq!(connect_from(guest, to(1), &listeners), Err(ErrorKind::TimedOut));
    });
}
