//! The steps for the virtual address of the cluster by the node that holds its lease. Pure.

use std::net::Ipv4Addr;

use net::{AnnounceLink, ObservedAnnouncements};

/// So many gratuitous ARPs are sent when the address has come to this node.
const FIRST_ANNOUNCEMENTS: u32 = 5;
/// And then once in so many times that it is prolonged: switches forget.
const ANNOUNCE_EVERY: u32 = 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum AddressStep<'a> {
    /// It is not here yet, and goes onto this interface.
    Take(&'a AnnounceLink),
    Prolong(&'a AnnounceLink),
    Obstacle(AddressObstacle),
}

/// Why the address cannot be on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressObstacle {
    NoInterface,
    OwnAddress,
    Taken,
}

impl AddressObstacle {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NoInterface => "no interface of this node has an address in its subnet",
            Self::OwnAddress => "it is an address of this node itself: choose another for --vip",
            Self::Taken => "another machine on the network has it",
        }
    }
}

pub(super) fn step(address: Ipv4Addr, seen: &ObservedAnnouncements) -> AddressStep<'_> {
    if seen.own.contains(&address) {
        return AddressStep::Obstacle(AddressObstacle::OwnAddress);
    }
    match seen.link_for(address) {
        None => AddressStep::Obstacle(AddressObstacle::NoInterface),
        Some(link) if seen.announced.contains(&(address, link.index)) => AddressStep::Prolong(link),
        Some(link) => AddressStep::Take(link),
    }
}

/// Whether a gratuitous ARP is sent when the address is prolonged for the `ticks`-th time.
pub(super) fn is_announced(ticks: u32) -> bool {
    ticks < FIRST_ANNOUNCEMENTS || ticks.is_multiple_of(ANNOUNCE_EVERY)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_address_goes_where_its_subnet_is() {
        let link = AnnounceLink {
            name: "eth0".parse().unwrap(),
            index: 2,
            mac: net::Mac::try_from([2, 0, 0, 0, 0, 1].as_slice()).unwrap(),
            subnets: vec!["10.0.0.0/24".parse().unwrap()],
        };
        let address = |last: u8| Ipv4Addr::new(10, 0, 0, last);
        let seen = ObservedAnnouncements {
            links: vec![link.clone()],
            announced: BTreeSet::from([(address(9), 2)]),
            own: BTreeSet::from([address(1)]),
        };
        for (wanted, expected) in [
            (address(9), AddressStep::Prolong(&link)),
            (address(8), AddressStep::Take(&link)),
            (address(1), AddressStep::Obstacle(AddressObstacle::OwnAddress)),
            (Ipv4Addr::new(10, 0, 1, 9), AddressStep::Obstacle(AddressObstacle::NoInterface)),
        ] {
            assert_eq!(step(wanted, &seen), expected, "{wanted}");
        }
    }

    #[test]
    fn the_address_is_announced_at_first_and_then_periodically() {
        let announced: Vec<u32> = (0..45).filter(|ticks| is_announced(*ticks)).collect();
        assert_eq!(announced, [0, 1, 2, 3, 4, 20, 40]);
    }
}
