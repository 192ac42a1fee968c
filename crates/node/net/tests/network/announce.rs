//! Addresses that are announced for a while: neighbours follow them, and the kernel ends them.

use std::net::Ipv4Addr;
use std::time::Duration;

use net::{AddressUse, Announcer};

use crate::world::{HOST_OUTSIDE, OUTSIDE, World, eventually, in_world, run};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);

fn has_address() -> bool {
    run("ip address show dev up0").contains(&format!("{ADDRESS}/32"))
}

#[test]
fn neighbours_follow_an_address_that_is_announced() {
    in_world(async |world: World| {
        let outside = world.outside();
        let announcer = Announcer::start(AddressUse::LoadBalancer, &world.tasks).unwrap();
        let mut seen = announcer.observe().await.unwrap();
        for _ in 0..1000 {
            if seen.link_for(ADDRESS).is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                seen = announcer.observe().await.unwrap();
            }
        }
        let link = seen.link_for(ADDRESS).expect("the wire has a carrier").clone();
        assert_eq!(link.name.as_str(), "up0");
        assert_eq!(seen.link_for(HOST_OUTSIDE), None, "the node's own address");
        assert_eq!(seen.link_for(Ipv4Addr::new(198, 51, 100, 7)), None, "no such subnet");

        // The neighbour believes that another node has the address.
        let other = "02:00:00:00:00:99";
        outside.run(&format!("ip neighbour replace {ADDRESS} lladdr {other} dev eth0 nud stale"));
        announcer.hold(ADDRESS, &link, Duration::from_secs(30)).await.unwrap();
        announcer.send_gratuitous_arp(ADDRESS, &link).unwrap();
        let mac = link.mac.to_string();
        eventually("the neighbour knows the new node", || {
            outside.run(&format!("ip neighbour show {ADDRESS}")).contains(&mac)
        })
        .await;
        assert!(outside.reaches(ADDRESS));
        let seen = announcer.observe().await.unwrap();
        assert!(seen.announced.contains(&(ADDRESS, link.index)));
        assert_eq!(seen.link_for(ADDRESS).map(|own| own.index), Some(link.index));
        // The node still speaks with its own address.
        assert!(run(&format!("ip route get {OUTSIDE}")).contains(&format!("src {HOST_OUTSIDE}")));

        announcer.withdraw(ADDRESS, link.index).await.unwrap();
        assert!(!has_address());
        announcer.withdraw(ADDRESS, link.index).await.unwrap();
    });
}

#[test]
fn an_address_that_is_not_prolonged_vanishes() {
    in_world(async |world: World| {
        let _outside = world.outside();
        let announcer = Announcer::start(AddressUse::LoadBalancer, &world.tasks).unwrap();
        let mut link = None;
        while link.is_none() {
            link = announcer.observe().await.unwrap().link_for(ADDRESS).cloned();
        }
        let link = link.unwrap();
        announcer.hold(ADDRESS, &link, Duration::from_secs(1)).await.unwrap();
        announcer.hold(ADDRESS, &link, Duration::from_secs(10)).await.unwrap();
        assert!(has_address());
        eventually("the kernel removes it", || !has_address()).await;
        // One that another program has set is not removed.
        run(&format!("ip address add {ADDRESS}/32 dev up0"));
        announcer.withdraw(ADDRESS, link.index).await.unwrap();
        assert!(has_address());
        assert_eq!(announcer.observe().await.unwrap().link_for(ADDRESS), None);
    });
}
