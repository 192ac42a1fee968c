//! How long it takes to make ports and to change policies. Prints, and judges nothing.

use std::time::Instant;

use net::{AllowedPorts, Policies, TapPeers, TapPolicies, TapPolicy, TapRule, TapRules};

use crate::world::{World, in_world, port};

#[test]
#[ignore = "measures; run it alone, with --ignored --nocapture"]
fn time_to_make_ports() {
    in_world(async |world: World| {
        let start = Instant::now();
        let network = world.network(vec![]).await;
        println!("an empty network: {:?}", start.elapsed());
        let start = Instant::now();
        network.resync().await.unwrap();
        println!("a check that finds nothing to do: {:?}", start.elapsed());
        for number in 2..7 {
            let start = Instant::now();
            network.attach(port(number)).await.unwrap();
            println!("one more port: {:?}", start.elapsed());
        }
        let start = Instant::now();
        let all = (10..60).map(|number| network.attach(port(number)));
        for outcome in futures_util::future::join_all(all).await {
            outcome.unwrap();
        }
        println!("fifty ports at once: {:?}", start.elapsed());
        let start = Instant::now();
        for number in 60..110 {
            network.attach(port(number)).await.unwrap();
        }
        println!("fifty ports one by one: {:?}", start.elapsed());
        let start = Instant::now();
        network.detach(port(60).tap).await.unwrap();
        println!("one port less, of {}: {:?}", 104, start.elapsed());
        let start = Instant::now();
        network.remove().await.unwrap();
        println!("everything away: {:?}", start.elapsed());
    });
}

/// An interface that one address may reach, and that may send to all.
fn reached_from(address: std::net::IpAddr) -> TapPolicy {
    let peers = TapPeers::Only { addresses: [address].into(), blocks: vec![] };
    let rule = TapRule { policy: "n/p".to_owned(), peers, ports: AllowedPorts::All };
    let rules = TapRules { policies: ["n/p".to_owned()].into(), rules: vec![rule] };
    TapPolicy { ingress: Some(rules), egress: None }
}

#[test]
#[ignore = "measures; run it alone, with --ignored --nocapture"]
fn time_to_change_policies() {
    in_world(async |world: World| {
        let network = world.network(vec![]).await;
        for count in [50_u16, 500] {
            let address = |own: u16| std::net::Ipv4Addr::from(0xc612_0000 + u32::from(own)).into();
            let policy =
                |own: u16| (format!("shf-{own}").parse().unwrap(), reached_from(address(own)));
            let mut taps: TapPolicies = (0..count).map(policy).collect();
            for change in ["all interfaces", "one policy", "one policy again"] {
                let start = Instant::now();
                let policies = Policies { taps: taps.clone(), ..Policies::default() };
                network.restrict(policies).await.unwrap();
                println!("{count} restricted interfaces, {change}: {:?}", start.elapsed());
                let first = taps.first_entry().unwrap();
                let next = if change == "one policy" { 1001 } else { 1000 };
                *first.into_mut() = reached_from(address(next));
            }
        }
    });
}
