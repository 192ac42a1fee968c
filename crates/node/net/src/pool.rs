//! Which address a newcomer gets. Pure: the caller knows which are taken and remembers the choice.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use sha2::{Digest, Sha256};

/// The addresses of a network that may be given away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    first: u32,
    size: u32,
    reserved: BTreeSet<Ipv4Addr>,
}

impl Pool {
    /// All host addresses of `network` but the `reserved` ones, the gateway for instance.
    pub fn new(network: Ipv4Net, reserved: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        let network = network.trunc();
        // Prefixes beyond 30 bits have neither a network nor a broadcast address.
        let edges = u32::from(network.prefix_len() < 31);
        let first = u32::from(network.network()) + edges;
        let last = u32::from(network.broadcast()) - edges;
        let size = (last - first).saturating_add(1);
        Self { first, size, reserved: reserved.into_iter().collect() }
    }

    /// An address for `key` that is not in use; none when all are.
    ///
    /// Where to begin is decided by the key, so that a machine that comes back tends to get the
    /// address it had, and one that is gone does not hand its own to the next.
    pub fn choose(&self, key: &str, in_use: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let hash = Sha256::digest(key.as_bytes());
        let start = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % self.size;
        self.from(start, in_use)
    }

    /// The lowest address that is not in use; none when all are.
    pub fn lowest(&self, in_use: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        self.from(0, in_use)
    }

    fn from(&self, start: u32, in_use: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
        let rest = (start..self.size).chain(0..start);
        rest.map(|offset| Ipv4Addr::from(self.first + offset))
            .find(|address| !in_use.contains(address) && !self.reserved.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(network: &str) -> Pool {
        let network: Ipv4Net = network.parse().unwrap();
        Pool::new(network, [network.addr()])
    }

    #[test]
    fn every_address_is_given_once_and_then_none() {
        for (network, room) in [("10.0.0.1/29", 5), ("10.0.0.1/24", 253), ("10.0.0.0/31", 1)] {
            let pool = pool(network);
            let mut taken = BTreeSet::new();
            while let Some(address) = pool.choose("same", &taken) {
                assert!(taken.insert(address), "{address} twice");
            }
            assert_eq!(taken.len(), room, "{network}");
            assert!(!taken.contains(&Ipv4Addr::new(10, 0, 0, 1)) || network.ends_with("31"));
            assert!(pool.lowest(&taken).is_none());
        }
    }

    #[test]
    fn a_key_gets_the_same_address_again() {
        let pool = pool("10.52.3.1/24");
        let first = pool.choose("default/web", &BTreeSet::new()).unwrap();
        let others = BTreeSet::from([pool.choose("default/db", &BTreeSet::new()).unwrap()]);
        assert_eq!(pool.choose("default/web", &others), Some(first));
        assert_ne!(pool.choose("default/web", &BTreeSet::from([first])), Some(first));
    }

    #[test]
    fn the_lowest_comes_first_where_order_is_wanted() {
        let pool = pool("10.52.3.1/24");
        let taken = BTreeSet::from([Ipv4Addr::new(10, 52, 3, 2)]);
        assert_eq!(pool.lowest(&taken), Some(Ipv4Addr::new(10, 52, 3, 3)));
    }
}
