//! How a network comes, stays, and goes.

use std::time::Duration;

use net::{
    Attachment, Bridge, DesiredNetwork, Network, NetworkError, NetworkObstacle, Port, Queues,
    SpoofGuard, Unavailable,
};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::world::{GATEWAY, Guest, World, bridge, in_world, port, run};

fn links() -> Vec<String> {
    let text = run("ip -brief link show");
    text.lines().filter_map(|line| line.split([' ', '@']).next().map(str::to_owned)).collect()
}

fn index(link: &str) -> String {
    run(&format!("ip -oneline link show {link}")).split(':').next().unwrap().to_owned()
}

#[test]
fn removing_a_network_leaves_nothing_of_it() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2)]).await;
        network.attach(port(3)).await.unwrap();
        assert_eq!(links(), ["lo", "sheaf0", "shf-2", "shf-3"]);
        network.remove().await.unwrap();
        assert_eq!(links(), ["lo"]);
        assert_eq!(run("nft list ruleset"), "");
        // The one setting that is the whole host's, and documented to stay.
        assert_eq!(run("cat /proc/sys/net/ipv4/ip_forward").trim(), "1");
        network.remove().await.unwrap();
        network.attach(port(3)).await.unwrap();
        assert_eq!(links(), ["lo", "sheaf0", "shf-3"]);
    });
}

#[test]
fn a_detached_port_is_gone_and_may_come_back() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        network.detach(port(2).tap).await.unwrap();
        network.detach(port(2).tap).await.unwrap();
        assert_eq!(links(), ["lo", "sheaf0", "shf-3"]);
        assert!(!run("nft list ruleset").contains("shf-2"));
        assert!(!run("ip neigh show dev sheaf0").contains("10.52.0.2 "));
        network.attach(port(2)).await.unwrap();
        let guest = Guest::configured(port(2));
        assert!(guest.inside.reaches(GATEWAY));
    });
}

#[test]
fn a_restart_adopts_what_runs_and_removes_what_is_not_wanted() {
    in_world(async |mut world: World| {
        drop(world.network(vec![port(2), port(3), port(4)]).await);
        let guest = Guest::configured(port(2));
        // Handles would change with the rules, also where the rules are the same.
        let rules = || run("nft -a list table bridge sheaf") + &run("nft -a list table inet sheaf");
        let before = (index("sheaf0"), index("shf-2"), rules());
        world.restart().await;
        assert!(guest.inside.reaches(GATEWAY), "guests do not notice that we are away");
        drop(world.network(vec![port(2), port(3), port(4)]).await);
        assert_eq!(before, (index("sheaf0"), index("shf-2"), rules()));
        world.restart().await;
        drop(world.network(vec![port(2)]).await);
        assert_eq!(links(), ["lo", "sheaf0", "shf-2"]);
        assert_eq!((before.0, before.1), (index("sheaf0"), index("shf-2")));
        assert!(guest.inside.reaches(GATEWAY));
    });
}

#[test]
fn a_forgotten_guest_keeps_its_tap_until_it_ends() {
    in_world(async |mut world: World| {
        drop(world.network(vec![port(2), port(3)]).await);
        let guest = Guest::configured(port(2));
        world.restart().await;
        let network = world.network(vec![]).await;
        assert_eq!(links(), ["lo", "sheaf0", "shf-2"]);
        assert!(!guest.inside.pings(GATEWAY), "without a port there are no rights");
        network.attach(port(2)).await.unwrap();
        assert!(guest.inside.reaches(GATEWAY), "remembered");
        world.restart().await;
        let network = world.network(vec![]).await;
        drop(guest);
        network.resync().await.unwrap();
        assert_eq!(links(), ["lo", "sheaf0"]);
        // Asked to, we take it away from a guest that runs.
        network.attach(port(4)).await.unwrap();
        let _guest = Guest::configured(port(4));
        network.detach(port(4).tap).await.unwrap();
        assert_eq!(links(), ["lo", "sheaf0"]);
    });
}

/// Dropping the work at any await leaves what a killed process would leave.
#[test]
fn an_interrupted_start_is_finished_by_the_next_one() {
    in_world(async |mut world: World| {
        let want = |ports: Vec<Port>| DesiredNetwork::new(bridge(), ports);
        let many = || want((2..12).map(port).collect());
        for moment in 0..30 {
            let limit = Duration::from_millis(moment * 2);
            let start = Network::start(many(), &world.tasks);
            let done = tokio::time::timeout(limit, start).await;
            world.restart().await;
            if moment % 7 == 6 {
                let network = world.network(vec![]).await;
                let _ = tokio::time::timeout(limit / 2, network.remove()).await;
                world.restart().await;
            }
            drop(done);
        }
        let network = world.network(vec![port(2), port(20)]).await;
        assert_eq!(links(), ["lo", "sheaf0", "shf-2", "shf-20"]);
        assert!(Guest::configured(port(20)).inside.reaches(GATEWAY));
        network.remove().await.unwrap();
        assert_eq!(links(), ["lo"]);
        assert_eq!(run("nft list ruleset"), "");
    });
}

#[test]
fn a_tap_in_use_is_kept_and_an_idle_one_is_made_for_its_owner() {
    in_world(async |mut world: World| {
        drop(world.network(vec![port(2), port(3)]).await);
        let _guest = Guest::configured(port(2));
        let before = (index("shf-2"), index("shf-3"));
        world.restart().await;
        let other = |number| Port { owner: 4321, queues: Queues::Multi, ..port(number) };
        drop(world.network(vec![other(2), other(3)]).await);
        assert_eq!(index("shf-2"), before.0);
        assert_ne!(index("shf-3"), before.1);
        let details = |tap: &str| run(&format!("ip -details link show {tap}"));
        let (used, idle) = (details("shf-2"), details("shf-3"));
        assert!(used.contains("user 1234") && !used.contains("multi_queue"), "{used}");
        assert!(idle.contains("user 4321") && idle.contains("multi_queue"), "{idle}");
    });
}

#[test]
fn damage_done_by_others_is_put_right() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2)]).await;
        let guest = Guest::configured(port(2));
        for damage in [
            "nft flush ruleset",
            "nft delete table bridge sheaf",
            "nft delete table bridge sheaf_seen",
            "ip address flush dev sheaf0",
            "ip link set sheaf0 down",
            "ip link set shf-2 nomaster",
            "ip link set shf-2 down",
            "ip neigh flush all nud permanent",
            "ip link delete sheaf0",
        ] {
            run(damage);
            network.resync().await.unwrap();
            assert!(guest.inside.reaches(GATEWAY), "after {damage}");
            assert_eq!(run("nft list tables").lines().count(), 3, "after {damage}");
        }
        for (key, wrong) in [("ipv4/ip_forward", "0"), ("ipv4/conf/sheaf0/proxy_arp_pvlan", "0")] {
            let path = format!("/proc/sys/net/{key}");
            std::fs::write(&path, wrong).unwrap();
            network.resync().await.unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap().trim(), "1");
        }
    });
}

#[test]
fn links_and_tables_of_others_are_left_alone() {
    in_world(async |world: World| {
        run("nft add table inet other");
        run("ip tuntap add dev tap9 mode tap");
        run("ip link add br-lan type bridge");
        // Our prefix, but not a tap: it belongs to another program.
        run("ip link add shf-veth type veth peer name veth9");
        let network = world.network(vec![port(2)]).await;
        network.remove().await.unwrap();
        let left = links();
        for link in ["tap9", "br-lan", "shf-veth", "veth9"] {
            assert!(left.iter().any(|name| name == link), "{link} is gone: {left:?}");
        }
        assert_eq!(run("nft list tables").trim(), "table inet other");
    });
}

#[test]
fn a_bridge_of_another_program_is_not_taken() {
    in_world(async |world: World| {
        run("ip link add sheaf0 type bridge");
        run("ip address add 198.51.100.1/24 dev sheaf0");
        let want = DesiredNetwork::new(bridge(), vec![port(2)]);
        let refused = Network::start(want, &world.tasks).await.unwrap_err();
        assert!(matches!(refused, NetworkError::Conflict(_)), "{refused}");
        assert!(refused.to_string().contains("sheaf0 exists and was not made by us"));
        assert!(run("ip address show dev sheaf0").contains("198.51.100.1/24"));
        assert_eq!(links(), ["lo", "sheaf0"]);
    });
}

#[test]
fn two_networks_live_side_by_side() {
    in_world(async |world: World| {
        let first = world.network(vec![port(2)]).await;
        let second = Bridge {
            name: "other0".parse().unwrap(),
            tap_prefix: "oth-".parse().unwrap(),
            table: "other".to_owned(),
            ..Bridge::new("10.53.0.1/24".parse().unwrap())
        };
        let second = DesiredNetwork::new(second, vec![]);
        let second = Network::start(second, &world.tasks).await.unwrap();
        let guest = Guest::configured(port(2));
        first.resync().await.unwrap();
        second.remove().await.unwrap();
        assert!(guest.inside.reaches(GATEWAY));
        assert_eq!(links(), ["lo", "sheaf0", "shf-2"]);
    });
}

#[test]
fn a_port_that_cannot_be_had_does_not_hold_up_the_others() {
    in_world(async |world: World| {
        let network = world.network(vec![]).await;
        let attachment = Attachment::Bridge {
            name: "br-none".parse().unwrap(),
            guard: SpoofGuard::default(),
            vlans: net::PortVlan::untagged(),
        };
        let lost = Port { attachment, ..port(9) };
        run("ip link add shf-8 type veth peer name veth8");
        let (two, eight, nine) =
            tokio::join!(network.attach(port(2)), network.attach(port(8)), network.attach(lost));
        two.unwrap();
        assert_eq!(eight.unwrap_err().to_string(), "interface shf-8 exists and is not a tap");
        assert_eq!(
            nine.unwrap_err().to_string(),
            "bridge br-none that tap shf-9 is to be attached to does not exist on this node"
        );
        network.resync().await.unwrap();
        let twice = Port { tap: "shf-other".parse().unwrap(), ..port(2) };
        assert!(matches!(network.attach(twice).await, Err(NetworkError::Want(_))));
        assert!(Guest::configured(port(2)).inside.reaches(GATEWAY));
    });
}

#[test]
fn firewalls_of_others_that_block_are_named() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2)]).await;
        assert_eq!(network.obstacles(&[]).await.unwrap(), []);
        run("nft add table ip filter");
        run(
            "nft add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }",
        );
        let found = network.obstacles(&[]).await.unwrap();
        assert!(matches!(found.as_slice(), [NetworkObstacle::ForwardPolicy { .. }]), "{found:?}");
        run("nft add rule ip filter FORWARD iifname sheaf0 accept");
        assert_eq!(network.obstacles(&[]).await.unwrap(), []);
        run("ip link add veth8 type veth peer name veth9");
        run("ip address add 10.52.0.200/25 dev veth8");
        let found = network.obstacles(&[]).await.unwrap();
        assert!(matches!(found.as_slice(), [NetworkObstacle::Overlap { .. }]), "{found:?}");
    });
}

#[test]
fn traffic_is_counted_as_the_guest_sees_it() {
    in_world(async |world: World| {
        let network = world.network(vec![port(2), port(3)]).await;
        let guest = Guest::configured(port(2));
        guest.inside.run(&format!("busybox ping -c 1 -s 1000 {GATEWAY}"));
        let traffic = network.traffic().await.unwrap();
        let names: Vec<_> = traffic.iter().map(|(tap, _)| tap.as_str()).collect();
        assert_eq!(names, ["shf-2", "shf-3"]);
        assert!(traffic[0].1.sent_bytes > 1000 && traffic[0].1.received_bytes > 1000);
        assert_eq!(traffic[1].1.sent_packets, 0);
    });
}

#[test]
fn a_network_needs_a_capability_and_says_so() {
    in_world(async |_world: World| {
        net::available().await.unwrap();
        // Of this thread alone, which ends with the test.
        let mut held = capabilities(None).unwrap();
        held.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, held).unwrap();
        let refused = net::available().await.unwrap_err();
        assert!(matches!(refused, Unavailable::Capability), "{refused}");
    });
}
