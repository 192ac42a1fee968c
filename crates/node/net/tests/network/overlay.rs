//! Guests of two nodes on one network, tried with real packets.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use base::Tasks;
use ipnet::Ipv4Net;
use net::{
    ClusterHosts, DesiredNetwork, Endpoint, EndpointScope, GuestOverlay, GuestPolicy, Ingress,
    Location, Network, Overlay, OverlayPeer, Policies, Port, Protocol, Service,
};
use tokio::sync::oneshot;

use crate::world::{Guest, HOST_OUTSIDE, Namespace, World, address, bridge, in_world, port, run};

const UNDERLAY: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 1), Ipv4Addr::new(198, 51, 100, 2)];
/// The last octets of the nodes' addresses on the guest network.
const NODES: [u8; 2] = [201, 202];

/// A second host on a wire to this one, with a thread of its own.
struct SecondNode {
    network: Network,
    ends: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    namespace: Namespace,
}

impl SecondNode {
    async fn start(ports: Vec<Port>) -> Self {
        let namespace = Namespace::new("host2");
        run(&format!("ip link add wire0 type veth peer name wire0 netns {}", namespace.name));
        run(&format!("ip address add {}/24 dev wire0", UNDERLAY[0]));
        run("ip link set wire0 up");
        namespace.run(&format!("ip address add {}/24 dev wire0", UNDERLAY[1]));
        namespace.run("ip link set wire0 up");
        let (started, network) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let inside = std::fs::File::open(format!("/run/netns/{}", namespace.name)).unwrap();
        let thread = std::thread::spawn(move || {
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&inside),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )
            .unwrap();
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let tasks = Tasks::default();
                let wanted = DesiredNetwork::new(bridge(), ports);
                let _ = started.send(Network::start(wanted, &tasks).await.unwrap());
                let _: Result<(), _> = stopped.await;
                tasks.stop(Duration::from_secs(2)).await;
            });
        });
        let network = network.await.unwrap();
        Self { network, ends: Some((stop, thread)), namespace }
    }
}

impl Drop for SecondNode {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.ends.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

fn mac(node: usize) -> net::Mac {
    Overlay::mac_of(&format!("n{node}"))
}

/// Node `this` with a single peer, the other node, where these guests are.
fn seen_from(this: usize, guests: &[u8]) -> Overlay {
    let other = 1 - this;
    Overlay {
        underlay: UNDERLAY[this].into(),
        mac: mac(this),
        address: address(NODES[this]),
        peers: vec![OverlayPeer {
            underlay: UNDERLAY[other].into(),
            mac: mac(other),
            address: address(NODES[other]),
            guests: guests.iter().copied().map(address).collect(),
            expected: BTreeSet::new(),
        }],
    }
}

async fn connect(network: &Network, overlay: Overlay) {
    network.connect(GuestOverlay::Connected(overlay)).await.unwrap();
}

#[test]
fn guests_of_two_nodes_reach_each_other_and_cannot_be_forged() {
    in_world(async |world: World| {
        let first = world.network(vec![port(2)]).await;
        let second = SecondNode::start(vec![port(3)]).await;
        let here = Guest::configured(port(2));
        let there = second.namespace.within(|| Guest::configured(port(3)));
        let _server = there.inside.listen(80);
        assert!(!here.inside.pings(address(3)), "each node has a network of its own");

        connect(&first, seen_from(0, &[3])).await;
        connect(&second.network, seen_from(1, &[2])).await;
        assert!(here.inside.reaches(address(3)));
        assert!(there.inside.reaches(address(2)));
        assert!(here.inside.connects(address(3), 80));
        assert!(
            run("busybox ping -c 1 -W 30 10.52.0.3").contains("1 packets received"),
            "the node"
        );
        let larger = "busybox ping -c 3 -W 30 -s 2000 10.52.0.3";
        assert!(here.inside.try_run(larger).status.success(), "fragments pass");

        // Of another node, guests reach what they reach of their own.
        let _open = second.namespace.listen(6443);
        let _closed = second.namespace.listen(22);
        let other = UNDERLAY[1];
        let known = ClusterHosts {
            addresses: UNDERLAY.map(Ipv4Net::from).into(),
            api_ports: BTreeSet::from([6443]),
        };
        first.guard_hosts(known).await.unwrap();
        assert!(here.inside.connects(other, 6443), "the API");
        assert!(!here.inside.connects(other, 22), "another port of the node");
        assert!(here.inside.pings(other));

        // Addresses that do not live on the node that sends them.
        second.namespace.run("ip address add 10.52.0.77/32 dev lo");
        let forged = "busybox ping -c 1 -W 1 -I 10.52.0.77 10.52.0.2";
        assert!(!second.namespace.try_run(forged).status.success());
        let mut elsewhere = seen_from(0, &[3]);
        elsewhere.peers[0].underlay = IpAddr::from([198, 51, 100, 7]);
        connect(&first, elsewhere).await;
        assert!(!there.inside.pings(address(2)), "frames of an unknown node");
        let mut unknown = seen_from(0, &[3]);
        unknown.peers[0].mac = mac(7);
        connect(&first, unknown).await;
        assert!(!there.inside.pings(address(2)), "frames with the address of another node");
        connect(&first, seen_from(0, &[])).await;
        assert!(!there.inside.pings(address(2)), "a guest that is not there");
        connect(&first, seen_from(0, &[3])).await;
        assert!(there.inside.reaches(address(2)));

        first.connect(GuestOverlay::Alone).await.unwrap();
        assert!(!run("ip link").contains("vxlan"), "a node alone has no tunnel");
        assert!(!run("nft list tables").contains("overlay"));
    });
}

fn node_port() -> Service {
    Service {
        id: "default/web:80".to_owned(),
        address: [10, 53, 0, 9].into(),
        external_addresses: vec![],
        protocol: Protocol::Tcp,
        port: 80,
        node_port: Some(30_080),
        affinity: None,
        internal: EndpointScope::Cluster,
        external: EndpointScope::Cluster,
        endpoints: vec![Endpoint { address: address(3), port: 80, location: Location::Elsewhere }],
    }
}

#[test]
fn services_and_policies_know_guests_of_other_nodes() {
    in_world(async |world: World| {
        let outside = world.outside();
        let first = world.network(vec![port(2)]).await;
        let second = SecondNode::start(vec![port(3)]).await;
        let here = Guest::configured(port(2));
        let there = second.namespace.within(|| Guest::configured(port(3)));
        let _server = there.inside.listen(80);
        connect(&first, seen_from(0, &[3])).await;
        connect(&second.network, seen_from(1, &[2])).await;
        first.serve(vec![node_port()]).await.unwrap();
        assert!(here.inside.connects([10, 53, 0, 9].into(), 80), "by the address of the service");
        assert!(outside.connects(HOST_OUTSIDE, 30_080), "from outside, through the first node");

        let restrict = |ingress| {
            let policy = GuestPolicy { ingress, ..GuestPolicy::default() };
            let restricted = [(address(3), policy)].into();
            let guests = [address(3)].into();
            second.network.restrict(Policies { guests, restricted, ..Policies::default() })
        };
        restrict(Ingress::IsolatedTo(BTreeSet::new())).await.unwrap();
        assert!(!here.inside.pings(address(3)), "a guest of another namespace");
        assert!(outside.connects(HOST_OUTSIDE, 30_080), "isolation is between guests");
        restrict(Ingress::IsolatedTo([address(2)].into())).await.unwrap();
        assert!(here.inside.connects(address(3), 80), "a guest of its namespace");
        restrict(Ingress::Only(vec![])).await.unwrap();
        assert!(!here.inside.pings(address(3)));
        assert!(!here.inside.connects([10, 53, 0, 9].into(), 80), "also through a service");
        assert!(!outside.connects(HOST_OUTSIDE, 30_080));
    });
}

#[test]
fn a_connection_survives_the_move_of_its_guest() {
    in_world(async |world: World| {
        let first = world.network(vec![port(2)]).await;
        let second = SecondNode::start(vec![port(3)]).await;
        let here = Guest::configured(port(2));
        let mut moving = second.namespace.within(|| Guest::configured(port(3)));
        let server = moving.inside.listen(80);
        connect(&first, seen_from(0, &[3])).await;
        connect(&second.network, seen_from(1, &[2])).await;
        let to = (address(3), 80);
        let mut client = here.inside.within(|| TcpStream::connect(to).unwrap());
        let (mut served, _) = server.accept().unwrap();
        for end in [&client, &served] {
            end.set_read_timeout(Some(crate::world::LIMIT)).unwrap();
        }
        let mut talk = |word: &[u8; 4]| {
            let mut echoed = [0; 4];
            client.write_all(word).unwrap();
            served.read_exact(&mut echoed).unwrap();
            assert_eq!(echoed, *word);
            served.write_all(word).unwrap();
            client.read_exact(&mut echoed).unwrap();
            assert_eq!(echoed, *word);
        };
        talk(b"one ");

        // To this node: the tap is there before the guest, which other nodes see at its old place.
        first.attach(port(3)).await.unwrap();
        talk(b"two ");
        moving.unplug();
        moving.replug();
        second.network.detach(port(3).tap).await.unwrap();
        connect(&first, seen_from(0, &[])).await;
        connect(&second.network, seen_from(1, &[2, 3])).await;
        talk(b"here");

        // And back.
        second.network.attach(port(3)).await.unwrap();
        moving.unplug();
        second.namespace.within(|| moving.replug());
        first.detach(port(3).tap).await.unwrap();
        connect(&second.network, seen_from(1, &[2])).await;
        connect(&first, seen_from(0, &[3])).await;
        talk(b"back");
        assert!(here.inside.reaches(address(3)));
    });
}
