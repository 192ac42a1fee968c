//! Restrictions of guests, tried with real packets.

use std::collections::BTreeSet;
use std::sync::Arc;

use net::{
    AddressBlock, AllowRule, AllowedPorts, DesiredNetwork, Endpoint, EndpointScope, FirstPacket,
    GuestPolicies, GuestPolicy, Ingress, Location, Network, Peers, Policies, PortRange, Protocol,
    RuleSource, Service, TierAction, TierRule, Tiers,
};

use crate::world::{Guest, World, address, bridge, in_both_worlds, in_world, port};

fn tcp(port: u16) -> AllowedPorts {
    let range = PortRange { protocol: Protocol::Tcp, first: port, last: port };
    AllowedPorts::Only([range].into())
}

fn guests(numbers: &[u8]) -> Peers {
    let addresses: BTreeSet<_> = numbers.iter().copied().map(address).collect();
    Peers::Only { addresses, blocks: vec![] }
}

fn policies(known: &[u8], restricted: impl IntoIterator<Item = (u8, GuestPolicy)>) -> Policies {
    Policies {
        guests: known.iter().copied().map(address).collect(),
        restricted: restricted.into_iter().map(|(last, policy)| (address(last), policy)).collect(),
        ..Policies::default()
    }
}

#[test]
fn only_what_a_policy_allows_reaches_a_guest() {
    in_both_worlds(async |world: World| {
        let outside = world.outside();
        let network = world.network(vec![port(2), port(3), port(4)]).await;
        let [web, friend, stranger] = [2, 3, 4].map(|number| Guest::configured(port(number)));
        let _servers = [80, 81].map(|port| web.inside.listen(port));
        let from_friend = AllowRule { peers: guests(&[3]), ports: tcp(80) };
        let block = AddressBlock { cidr: "192.0.2.0/24".parse().unwrap(), except: vec![] };
        let from_outside = AllowRule {
            peers: Peers::Only { addresses: BTreeSet::new(), blocks: vec![block] },
            ports: tcp(81),
        };
        let ingress = Ingress::Only(vec![from_friend, from_outside]);
        let only = GuestPolicy { ingress, ..GuestPolicy::default() };
        network.restrict(policies(&[2, 3, 4], [(2, only)])).await.unwrap();
        assert!(friend.inside.connects(address(2), 80));
        assert!(!friend.inside.connects(address(2), 81), "another port");
        assert!(!stranger.inside.connects(address(2), 80), "another guest");
        assert!(!stranger.inside.pings(address(2)), "another protocol");
        assert!(outside.connects(address(2), 81), "an address of the block");
        assert!(!outside.connects(address(2), 80), "another port from the block");
        assert!(web.inside.pings(address(4)), "the guest itself is free to connect");
        network.restrict(policies(&[2, 3, 4], [])).await.unwrap();
        assert!(stranger.inside.connects(address(2), 80), "the policy is gone");
    });
}

#[test]
fn a_guest_reaches_only_what_its_policy_allows_also_through_a_service() {
    in_world(async |world: World| {
        let outside = world.outside();
        let network = world.network(vec![port(2), port(3)]).await;
        let [client, server] = [2, 3].map(|number| Guest::configured(port(number)));
        let _servers = [80, 81].map(|port| (server.inside.listen(port), outside.listen(port)));
        let service = |port: u16| Service {
            id: format!("default/web:{port}"),
            address: [10, 53, 0, 9].into(),
            external_addresses: vec![],
            protocol: Protocol::Tcp,
            port,
            node_port: None,
            affinity: None,
            internal: EndpointScope::Cluster,
            external: EndpointScope::Cluster,
            endpoints: vec![Endpoint { address: address(3), port, location: Location::ThisNode }],
        };
        network.serve(vec![service(80), service(81)]).await.unwrap();
        let allowed = AllowRule { peers: guests(&[3]), ports: tcp(80) };
        let policy = GuestPolicy { egress: Some(vec![allowed]), ..GuestPolicy::default() };
        network.restrict(policies(&[2, 3], [(2, policy)])).await.unwrap();
        let service = [10, 53, 0, 9].into();
        assert!(client.inside.connects(address(3), 80));
        assert!(client.inside.connects(service, 80), "an allowed endpoint of a service");
        assert!(!client.inside.connects(address(3), 81));
        assert!(!client.inside.connects(service, 81), "another endpoint of a service");
        assert!(!client.inside.connects(crate::world::OUTSIDE, 80), "the outside");
        assert!(server.inside.connects(crate::world::OUTSIDE, 80), "another guest is free");
    });
}

#[test]
fn guests_of_another_namespace_are_kept_out_and_the_outside_is_not() {
    in_world(async |world: World| {
        let outside = world.outside();
        let network = world.network(vec![port(2), port(3), port(4)]).await;
        let [web, same, other] = [2, 3, 4].map(|number| Guest::configured(port(number)));
        let _server = web.inside.listen(80);
        let isolated = |own: &[u8]| GuestPolicy {
            ingress: Ingress::IsolatedTo(own.iter().copied().map(address).collect()),
            ..GuestPolicy::default()
        };
        let restricted = [(2, isolated(&[2, 3])), (3, isolated(&[2, 3])), (4, isolated(&[4]))];
        network.restrict(policies(&[2, 3, 4], restricted)).await.unwrap();
        assert!(same.inside.connects(address(2), 80));
        assert!(!other.inside.connects(address(2), 80));
        assert!(!web.inside.pings(address(4)));
        assert!(outside.connects(address(2), 80));
    });
}

#[test]
fn a_guest_whose_policies_are_not_known_is_cut_off_until_they_are() {
    in_world(async |world: World| {
        let outside = world.outside();
        let _server = outside.listen(80);
        let policies_unknown = GuestPolicies::Unknown;
        let wanted = DesiredNetwork::new(bridge(), vec![port(2), port(3)]);
        let wanted = DesiredNetwork { policies: policies_unknown, ..wanted };
        let network = Network::start(wanted.clone(), &world.tasks).await.unwrap();
        let [one, two] = [2, 3].map(|number| Guest::configured(port(number)));
        let _guest_server = two.inside.listen(80);
        assert!(!one.inside.connects(crate::world::OUTSIDE, 80));
        assert!(!outside.connects(address(3), 80));
        network.restrict(policies(&[2], [])).await.unwrap();
        assert!(one.inside.connects(crate::world::OUTSIDE, 80));
        assert!(!one.inside.connects(address(3), 80), "the other one is not known yet");
        network.restrict(policies(&[2, 3], [])).await.unwrap();
        assert!(one.inside.connects(address(3), 80));
        // A restart leaves the rules in force.
        let network = Network::start(wanted, &world.tasks).await.unwrap();
        assert!(one.inside.connects(address(3), 80));
        drop(network);
    });
}

#[test]
fn link_local_addresses_are_out_of_reach() {
    in_world(async |world: World| {
        let outside = world.outside();
        outside.run("ip address add 169.254.169.254/32 dev eth0");
        crate::world::run("ip route add 169.254.169.254/32 via 192.0.2.2");
        let _server = outside.listen(80);
        let _network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        assert!(guest.inside.connects(crate::world::OUTSIDE, 80));
        assert!(!guest.inside.connects([169, 254, 169, 254].into(), 80));
    });
}

/// Every guest connects to every other one, as the judge says or not at all.
fn compare(wanted: &Policies, machines: &[Guest; 3]) {
    let all = bridge().gateway.trunc();
    for (from, guest) in [2, 3, 4].into_iter().zip(machines) {
        for (to, port) in [(2, 80), (2, 81), (3, 80), (3, 81), (4, 80), (4, 81)] {
            if from == to {
                continue;
            }
            let (sender, receiver) = (address(from), address(to));
            let packet = FirstPacket { from: sender, to: receiver, protocol: Protocol::Tcp, port };
            let (egress, ingress) = (
                wanted.judge_egress(&packet),
                wanted.judge_ingress(&packet, all, &BTreeSet::new()),
            );
            let connects = guest.inside.connects(receiver, port);
            assert_eq!(
                connects,
                egress.is_accepted && ingress.is_accepted,
                "{from} to {to}:{port}: {egress:?}, {ingress:?}"
            );
        }
    }
}

#[test]
fn verdicts_on_paper_are_those_of_the_kernel() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2), port(3), port(4)]).await;
        let machines = [2, 3, 4].map(|number| Guest::configured(port(number)));
        let servers = machines.iter().flat_map(|own| [80, 81].map(|port| own.inside.listen(port)));
        let _servers: Vec<_> = servers.collect();
        let from_three = AllowRule { peers: guests(&[3]), ports: tcp(80) };
        let to_any = AllowRule { peers: Peers::Any, ports: tcp(80) };
        let ingress = Ingress::Only(vec![from_three]);
        let closed = GuestPolicy { ingress, ..GuestPolicy::default() };
        let isolated = GuestPolicy {
            ingress: Ingress::IsolatedTo([address(3), address(4)].into()),
            egress: Some(vec![to_any]),
            ..GuestPolicy::default()
        };
        let wanted = policies(&[2, 3, 4], [(2, closed), (3, isolated)]);
        network.restrict(wanted.clone()).await.unwrap();
        compare(&wanted, &machines);
    });
}

fn tier_rule(
    action: TierAction,
    number: usize,
    peers: Peers,
    ports: AllowedPorts,
) -> Arc<TierRule> {
    let source = RuleSource { policy: "p".into(), priority: 0, number, name: None };
    Arc::new(TierRule { source, action, peers, ports })
}

#[test]
fn tiers_on_paper_are_those_of_the_kernel() {
    use TierAction::{Accept, Deny, Pass};
    in_world(async |world: World| {
        let network = world.network(vec![port(2), port(3), port(4)]).await;
        let machines = [2, 3, 4].map(|number| Guest::configured(port(number)));
        let servers = machines.iter().flat_map(|own| [80, 81].map(|port| own.inside.listen(port)));
        let _servers: Vec<_> = servers.collect();
        let from = |last: u8| AllowRule { peers: guests(&[last]), ports: AllowedPorts::All };
        // 3 may reach 2 at 80 because of the admin tier, at 81 the namespace decides; 4 is denied.
        let selected = GuestPolicy {
            ingress: Ingress::Only(vec![from(4)]),
            ingress_tiers: Tiers {
                admin: vec![
                    tier_rule(Accept, 1, guests(&[3]), tcp(80)),
                    tier_rule(Pass, 2, guests(&[4]), tcp(81)),
                    tier_rule(Deny, 3, guests(&[4]), AllowedPorts::All),
                ],
                baseline: vec![tier_rule(Accept, 1, Peers::Any, AllowedPorts::All)],
            },
            ..GuestPolicy::default()
        };
        // The baseline opens an isolated guest at 80, and closes it for its own namespace at 81.
        let isolated = GuestPolicy {
            ingress: Ingress::IsolatedTo([address(3), address(4)].into()),
            ingress_tiers: Tiers {
                admin: vec![],
                baseline: vec![
                    tier_rule(Accept, 1, guests(&[2]), tcp(80)),
                    tier_rule(Deny, 2, guests(&[4]), tcp(81)),
                ],
            },
            egress_tiers: Tiers {
                admin: vec![tier_rule(Pass, 1, guests(&[4]), tcp(80))],
                baseline: vec![tier_rule(Deny, 1, guests(&[4]), AllowedPorts::All)],
            },
            ..GuestPolicy::default()
        };
        // Its namespace allows everything to 2, the admin tier does not, and the baseline is not read.
        let sender = GuestPolicy {
            egress: Some(vec![from(2), from(3)]),
            egress_tiers: Tiers {
                admin: vec![tier_rule(Deny, 1, guests(&[2]), tcp(80))],
                baseline: vec![tier_rule(Deny, 1, Peers::Any, AllowedPorts::All)],
            },
            ..GuestPolicy::default()
        };
        let wanted = policies(&[2, 3, 4], [(2, selected), (3, isolated), (4, sender)]);
        network.restrict(wanted.clone()).await.unwrap();
        compare(&wanted, &machines);
        assert!(machines[1].inside.connects(address(2), 80));
        assert!(machines[2].inside.connects(address(2), 81));
        assert!(!machines[2].inside.connects(address(2), 80));
        assert!(!machines[1].inside.pings(address(4)), "rules without ports are for ICMP, too");
    });
}
