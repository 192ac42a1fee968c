//! A server that refuses renewals and reports.

use super::*;
use crate::retry::tests::{MOST_ATTEMPTS, a_minute_of, refusing};

fn observed(subnet: &str) -> ObservedAnnouncements {
    ObservedAnnouncements {
        links: vec![AnnounceLink {
            name: "eth0".parse().unwrap(),
            index: 2,
            mac: "02:00:00:00:00:01".parse().unwrap(),
            subnets: vec![subnet.parse().unwrap()],
        }],
        announced: Default::default(),
        own: Default::default(),
    }
}

fn lease(wanted: &str) -> AnnouncementLease {
    AnnouncementLease {
        address: Ipv4Addr::new(10, 9, 8, 7),
        holder: "one".to_owned(),
        wanted: wanted.to_owned(),
        renewed: String::new(),
        resource_version: "1".to_owned(),
    }
}

#[tokio::test]
async fn refused_leases_and_reports_are_written_after_growing_pauses() {
    let tasks = Tasks::default();
    let (client, asked) = refusing(403);
    let announcer = Announcer::start(AddressUse::LoadBalancer, &tasks).unwrap();
    let mut reconciler = AnnounceReconciler::new(client, "one".to_owned(), announcer);
    let node = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
    reconciler.take(AnnounceChange::Node(Box::new(Ok(Event::Apply(node)))));
    let seen = observed("10.9.8.0/24");
    tokio::time::pause();
    for (step, lease) in [("renewed", lease("one")), ("given back", lease("two"))] {
        asked.lock().clear();
        a_minute_of(async || {
            reconciler.follow(std::slice::from_ref(&lease), &seen).await;
            Some(TICK)
        })
        .await;
        let asked = asked.lock();
        // Of 120 ticks.
        assert!((5..=18).contains(&asked.len()), "{step}: {asked:?}");
    }
    asked.lock().clear();
    a_minute_of(async || reconciler.report(&seen).await).await;
    let asked = asked.lock();
    assert!((3..=MOST_ATTEMPTS).contains(&asked.len()), "{asked:?}");
}
