//! Hosts of the cluster as guests reach them, tried with real packets.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use net::{
    ClusterHosts, DesiredNetwork, Endpoint, EndpointScope, FirstPacket, HostGuard, HostVerdict,
    Location, Network, Protocol, Service,
};

use crate::world::{Guest, OUTSIDE, World, bridge, in_both_worlds, in_world, port};

/// A second address of the host outside: the virtual address of the API, or one of another network.
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 53, 0, 9);
const PORTS: [u16; 4] = [22, 6443, 30_080, 32_768];

fn hosts(addresses: &[Ipv4Addr]) -> ClusterHosts {
    ClusterHosts {
        addresses: addresses.iter().copied().map(Into::into).collect(),
        api_ports: [6443].into(),
    }
}

/// A service with endpoints at the ports of the host outside, as a tenant could write it.
fn service(port: u16) -> Service {
    Service {
        id: format!("default/forged:{port}"),
        address: SERVICE,
        external_addresses: vec![],
        protocol: Protocol::Tcp,
        port,
        node_port: None,
        affinity: None,
        internal: EndpointScope::Cluster,
        external: EndpointScope::Cluster,
        endpoints: vec![Endpoint { address: OUTSIDE, port, location: Location::Elsewhere }],
    }
}

#[test]
fn of_hosts_guests_reach_the_api_and_node_ports_without_any_overlay() {
    in_both_worlds(async |world: World| {
        let outside = world.outside();
        outside.run(&format!("ip address add {SECOND}/24 dev eth0"));
        let _servers = PORTS.map(|port| outside.listen(port));
        let network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        assert!(guest.inside.connects(OUTSIDE, 22), "until it is known as a host");

        let known = hosts(&[OUTSIDE]);
        network.guard_hosts(known.clone()).await.unwrap();
        for (to, port) in PORTS.map(|port| (OUTSIDE, port)).into_iter().chain([(SECOND, 22)]) {
            let from = guest.address();
            let packet = FirstPacket { from, to, protocol: Protocol::Tcp, port };
            let verdict = known.judge(bridge().gateway.trunc(), &packet);
            let expected = verdict != HostVerdict::Refused;
            assert_eq!(guest.inside.connects(to, port), expected, "{to}:{port}, {verdict:?}");
        }
        assert!(guest.inside.reaches(OUTSIDE), "ping");
        assert!(outside.reaches(guest.address()), "what the host begins is answered");

        // A host gets another address.
        network.guard_hosts(hosts(&[SECOND])).await.unwrap();
        assert!(!guest.inside.connects(SECOND, 22));
        assert!(guest.inside.connects(SECOND, 6443));
        assert!(guest.inside.connects(OUTSIDE, 22), "no host any more");
    });
}

#[test]
fn no_endpoint_of_a_service_leads_to_another_port_of_a_host() {
    in_world(async |world: World| {
        let outside = world.outside();
        let _servers = [22, 6443].map(|port| outside.listen(port));
        let network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        network.serve(vec![service(22), service(6443)]).await.unwrap();
        assert!(guest.inside.connects(SERVICE, 22), "until it is known as a host");
        network.guard_hosts(hosts(&[OUTSIDE])).await.unwrap();
        assert!(!guest.inside.connects(SERVICE, 22));
        assert!(guest.inside.connects(SERVICE, 6443), "the API");
    });
}

#[test]
fn connections_to_a_host_end_when_it_becomes_known() {
    in_world(async |world: World| {
        let outside = world.outside();
        let server = outside.listen(22);
        let network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        let mut client = guest.inside.within(|| TcpStream::connect((OUTSIDE, 22)).unwrap());
        let (mut served, _) = server.accept().unwrap();
        client.set_read_timeout(Some(crate::world::LIMIT)).unwrap();
        client.write_all(b"hi").unwrap();
        served.read_exact(&mut [0; 2]).unwrap();
        network.guard_hosts(hosts(&[OUTSIDE])).await.unwrap();
        client.write_all(b"hi").unwrap();
        let ended = client.read(&mut [0; 2]).unwrap_err();
        assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn nothing_outside_is_reached_before_hosts_are_known_and_a_restart_keeps_them() {
    in_world(async |world: World| {
        let outside = world.outside();
        let _servers = [22, 6443].map(|port| outside.listen(port));
        let unknown = || DesiredNetwork {
            hosts: HostGuard::Unknown,
            ..DesiredNetwork::new(bridge(), vec![port(2)])
        };
        // An earlier version knew no hosts.
        let _before = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        let server = outside.listen(80);
        let mut client = guest.inside.within(|| TcpStream::connect((OUTSIDE, 80)).unwrap());
        let (mut served, _) = server.accept().unwrap();
        let network = Network::start(unknown(), &world.tasks).await.unwrap();
        assert!(!guest.inside.connects(OUTSIDE, 22));
        client.write_all(b"hi").unwrap();
        served.read_exact(&mut [0; 2]).unwrap();
        network.guard_hosts(hosts(&[SECOND])).await.unwrap();
        assert!(guest.inside.connects(OUTSIDE, 22));
        let network = Network::start(unknown(), &world.tasks).await.unwrap();
        assert!(guest.inside.connects(OUTSIDE, 22), "the rules are those of before");
        network.remove().await.unwrap();
        assert!(!crate::world::run("nft list tables").contains("hosts"));
    });
}
