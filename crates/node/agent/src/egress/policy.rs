//! Which addresses imports may connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

/// Why an address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}; an administrator of the node can allow it with --import-allow")]
pub(crate) struct Denied {
    address: IpAddr,
    what: &'static str,
}

/// Ranges that are allowed although they are special, and ranges that are denied.
#[derive(Debug, Clone, Default)]
pub(crate) struct EgressPolicy {
    allowed: Arc<[IpNet]>,
    denied: Arc<[IpNet]>,
}

impl EgressPolicy {
    pub(super) fn new(allowed: Vec<IpNet>, denied: Vec<IpNet>) -> Self {
        Self { allowed: allowed.into(), denied: denied.into() }
    }

    pub(super) fn check(&self, address: IpAddr) -> Result<(), Denied> {
        let address = embedded(address);
        if self.allowed.iter().any(|range| range.contains(&address)) {
            return Ok(());
        }
        let cluster = self.denied.iter().any(|range| range.contains(&address));
        let what = special(address)
            .or_else(|| cluster.then_some("an address of the cluster"))
            .or_else(|| super::is_own(address).then_some("an address of this node"));
        what.map_or(Ok(()), |what| Err(Denied { address, what }))
    }
}

/// The address that a host of a URL is, if it is no name.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    plain.parse().ok()
}

/// The IPv4 address in an IPv6 address that leads to it.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(outer) = address else { return address };
    let segments = outer.segments();
    let last = || {
        let [a, b] = segments[6].to_be_bytes();
        let [c, d] = segments[7].to_be_bytes();
        IpAddr::from(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Mapped, and the prefix of NAT64.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => last(),
        // 6to4
        [0x2002, high, low, ..] => {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => address,
    }
}

/// The description of a special address.
fn special(address: IpAddr) -> Option<&'static str> {
    let (loopback, link_local) = ("a loopback address", "a link-local address");
    if address.is_loopback() {
        return Some(loopback);
    }
    if address.is_unspecified() {
        return Some("the unspecified address");
    }
    if address.is_multicast() {
        return Some("a multicast address");
    }
    match address {
        IpAddr::V4(address) if address.is_link_local() => Some(link_local),
        IpAddr::V4(address) if address.is_broadcast() => Some("the broadcast address"),
        IpAddr::V4(address) if address.octets()[0] == 0 => Some("an address of this network"),
        IpAddr::V6(address) if is_link_local(address) => Some(link_local),
        _ => None,
    }
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_node_and_cluster_are_denied_unless_allowed() {
        let ranges = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let policy = EgressPolicy::new(
            ranges(&["127.0.0.2/32", "10.96.7.0/24"]),
            ranges(&["10.96.0.0/12", "192.0.2.1/32"]),
        );
        for (address, expected) in [
            ("198.51.100.7", ""),
            ("2001:db8::7", ""),
            ("127.0.0.1", "a loopback address"),
            ("127.0.0.2", ""),
            ("127.9.9.9", "a loopback address"),
            ("::1", "a loopback address"),
            ("::ffff:127.0.0.1", "a loopback address"),
            ("64:ff9b::7f00:1", "a loopback address"),
            ("2002:7f00:1::", "a loopback address"),
            ("0.0.0.0", "the unspecified address"),
            ("::", "the unspecified address"),
            ("0.0.0.1", "an address of this network"),
            ("169.254.169.254", "a link-local address"),
            ("::ffff:169.254.169.254", "a link-local address"),
            ("fe80::1", "a link-local address"),
            ("224.0.0.1", "a multicast address"),
            ("255.255.255.255", "the broadcast address"),
            ("10.96.0.1", "an address of the cluster"),
            ("10.96.7.1", ""),
            ("192.0.2.1", "an address of the cluster"),
        ] {
            let judged = policy.check(address.parse().unwrap());
            assert_eq!(judged.map_or_else(|denied| denied.what, |()| ""), expected, "{address}");
        }
    }

    #[test]
    fn addresses_are_told_from_names() {
        let is_literal = |host: &str| literal(host).is_some();
        assert!(is_literal("127.0.0.1") && is_literal("[::1]") && is_literal("::1"));
        assert!(!is_literal("localhost") && !is_literal("127.0.0.1.example.com"));
    }
}
