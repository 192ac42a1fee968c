//! A node's steps for the leases of addresses. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use hci::announcement::{AnnouncementLease, RENEW, VALID};
use net::{AnnounceLink, ObservedAnnouncements};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnnounceStep {
    /// Before anything else: the node may not announce any more.
    Withdraw { address: Ipv4Addr, index: u32 },
    /// Writes that the node announces, and announces.
    Renew { lease: AnnouncementLease, link: AnnounceLink },
    /// Lets another node announce.
    GiveBack { lease: AnnouncementLease },
}

/// Whole seconds that an address may live whose renewal was sent so long ago; nothing if it must not
/// be announced any more.
pub(super) fn lifetime(since_sent: Duration) -> Option<Duration> {
    let left = Duration::from_secs(VALID.saturating_sub(since_sent).as_secs());
    (!left.is_zero()).then_some(left)
}

/// The steps that the leases require; `since_renewal` says how long ago announced addresses were
/// renewed.
pub(super) fn steps<'a>(
    node: &str,
    leases: impl IntoIterator<Item = &'a AnnouncementLease>,
    seen: &ObservedAnnouncements,
    since_renewal: &BTreeMap<Ipv4Addr, Duration>,
) -> Vec<AnnounceStep> {
    let (mut steps, mut right) = (Vec::new(), BTreeMap::new());
    for lease in leases.into_iter().filter(|lease| lease.holder == node) {
        let link = seen.link_for(lease.address);
        match link.filter(|_| lease.wanted == node) {
            Some(link) => {
                right.insert(lease.address, link.index);
                let renewed = since_renewal.get(&lease.address);
                let is_there = seen.announced.contains(&(lease.address, link.index));
                if !is_there || renewed.is_none_or(|time| *time >= RENEW) {
                    steps.push(AnnounceStep::Renew { lease: lease.clone(), link: link.clone() });
                }
            }
            // An address of the node itself was never announced by it: its lease ends, and the
            // controller prefers other nodes.
            None if seen.own.contains(&lease.address) && lease.wanted == node => {}
            None => steps.push(AnnounceStep::GiveBack { lease: lease.clone() }),
        }
    }
    let is_wrong = |(address, index): &&(Ipv4Addr, u32)| right.get(address) != Some(index);
    let withdrawn = seen.announced.iter().filter(is_wrong);
    let withdrawn = withdrawn
        .map(|(address, index)| AnnounceStep::Withdraw { address: *address, index: *index });
    withdrawn.chain(steps).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn lease(holder: &str, wanted: &str) -> AnnouncementLease {
        AnnouncementLease {
            address: Ipv4Addr::new(10, 0, 0, 9),
            holder: holder.into(),
            wanted: wanted.into(),
            renewed: String::new(),
            resource_version: "1".into(),
        }
    }

    /// A node with one interface, and the address on some.
    fn seen(subnet: &str, announced: &[u32]) -> ObservedAnnouncements {
        let address = Ipv4Addr::new(10, 0, 0, 9);
        ObservedAnnouncements {
            links: vec![AnnounceLink {
                name: "eth0".parse().unwrap(),
                index: 2,
                mac: "02:00:00:00:00:01".parse().unwrap(),
                subnets: vec![subnet.parse().unwrap()],
            }],
            announced: announced.iter().map(|index| (address, *index)).collect(),
            own: BTreeSet::new(),
        }
    }

    #[test]
    fn a_node_announces_what_it_holds_and_withdraws_the_rest() {
        let address = Ipv4Addr::new(10, 0, 0, 9);
        let (none, fresh) = (BTreeMap::new(), BTreeMap::from([(address, Duration::ZERO)]));
        let due = BTreeMap::from([(address, RENEW)]);
        let near = "10.0.0.0/24";
        let mut own = seen(near, &[]);
        own.own.insert(address);
        for (what, lease, seen, since_renewal, expected) in [
            ("new", lease("a", "a"), seen(near, &[]), &none, "renew"),
            ("after a restart", lease("a", "a"), seen(near, &[2]), &none, "renew"),
            ("fresh", lease("a", "a"), seen(near, &[2]), &fresh, ""),
            ("due", lease("a", "a"), seen(near, &[2]), &due, "renew"),
            ("vanished", lease("a", "a"), seen(near, &[]), &fresh, "renew"),
            ("other interface", lease("a", "a"), seen(near, &[2, 3]), &fresh, "withdraw 3"),
            ("lost", lease("b", "b"), seen(near, &[2]), &fresh, "withdraw 2"),
            ("to go", lease("a", "b"), seen(near, &[2]), &fresh, "withdraw 2, give back"),
            (
                "no subnet",
                lease("a", "a"),
                seen("10.1.0.0/24", &[2]),
                &fresh,
                "withdraw 2, give back",
            ),
            ("its own", lease("a", "a"), own, &none, ""),
            ("of others", lease("b", "a"), seen(near, &[]), &none, ""),
        ] {
            let steps = steps("a", [&lease], &seen, since_renewal);
            let names: Vec<String> = steps
                .iter()
                .map(|step| match step {
                    AnnounceStep::Withdraw { index, .. } => format!("withdraw {index}"),
                    AnnounceStep::Renew { .. } => "renew".to_owned(),
                    AnnounceStep::GiveBack { .. } => "give back".to_owned(),
                })
                .collect();
            assert_eq!(names.join(", "), expected, "{what}");
        }
    }

    #[test]
    fn the_life_of_an_address_ends_with_its_lease() {
        for (millis, expected) in
            [(0, Some(6)), (1, Some(5)), (2500, Some(3)), (5001, None), (9000, None)]
        {
            let life = lifetime(Duration::from_millis(millis)).map(|life| life.as_secs());
            assert_eq!(life, expected, "{millis}");
        }
    }
}
