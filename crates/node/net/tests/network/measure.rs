//! How long it takes to make ports. Prints, and judges nothing.

use std::time::Instant;

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
