//! Which addresses imports may connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use tokio::sync::watch;

use super::cluster::{ClusterRanges, NodeRanges};

/// Why an address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {what}; an administrator of the node can allow it with --import-allow")]
pub(crate) struct Denied {
    address: IpAddr,
    what: &'static str,
}

/// Ranges that are allowed although they are special, and ranges that are denied.
#[derive(Debug, Clone)]
pub(crate) struct EgressPolicy {
    allowed: Arc<[IpNet]>,
    denied: Arc<[IpNet]>,
    /// Of the nodes of the cluster, denied as well.
    cluster: watch::Receiver<ClusterRanges>,
}

impl Default for EgressPolicy {
    fn default() -> Self {
        Self::new(Vec::new(), Vec::new())
    }
}

impl EgressPolicy {
    pub(super) fn new(allowed: Vec<IpNet>, denied: Vec<IpNet>) -> Self {
        let cluster = watch::channel(Some(NodeRanges::default())).1;
        Self { allowed: allowed.into(), denied: denied.into(), cluster }
    }

    /// The same with the ranges of a cluster whose nodes come and go.
    pub(super) fn following(self, cluster: watch::Receiver<ClusterRanges>) -> Self {
        Self { cluster, ..self }
    }

    /// The same without ranges that are allowed for imports.
    pub(super) fn strict(&self) -> Self {
        Self { allowed: Vec::new().into(), ..self.clone() }
    }

    /// Becomes ready whenever the nodes of the cluster have changed; never at the end of the process.
    pub(crate) async fn cluster_changed(&mut self) {
        if self.cluster.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the nodes of the cluster are known.
    pub(super) async fn cluster_is_known(&self) {
        let mut cluster = self.cluster.clone();
        if cluster.wait_for(Option::is_some).await.is_err() {
            // The end of the process; nothing will be known any more.
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn check(&self, address: IpAddr) -> Result<(), Denied> {
        let address = embedded(address);
        if self.allowed.iter().any(|range| range.contains(&address)) {
            return Ok(());
        }
        let is_in = |ranges: &[IpNet]| ranges.iter().any(|range| range.contains(&address));
        let of_node = match &*self.cluster.borrow() {
            Some(known) => is_in(&known.ranges).then_some("an address of a node of the cluster"),
            None => Some("not known to be outside of the cluster yet"),
        };
        let what = special(address)
            .or_else(|| is_in(&self.denied).then_some("an address of the cluster"))
            .or(of_node)
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

    #[tokio::test]
    async fn addresses_of_nodes_are_denied_as_they_come_and_go() {
        let range = |text: &str| text.parse::<IpNet>().unwrap();
        let (nodes, ranges) = watch::channel(None);
        let allowed = vec![range("198.51.100.9/32")];
        let policy = EgressPolicy::new(allowed, Vec::new()).following(ranges);
        let judge = |address: &str| {
            policy.check(address.parse().unwrap()).map_or_else(|denied| denied.what, |()| "")
        };
        let unknown = "not known to be outside of the cluster yet";
        assert_eq!((judge("198.51.100.2"), judge("198.51.100.9")), (unknown, ""));
        let known = vec![range("198.51.100.2/32"), range("10.52.2.0/24")];
        nodes.send_replace(Some(NodeRanges { ranges: known, ..NodeRanges::default() }));
        policy.cluster_is_known().await;
        let denied = "an address of a node of the cluster";
        for (address, expected) in [
            ("198.51.100.2", denied),
            ("::ffff:198.51.100.2", denied),
            ("10.52.2.7", denied),
            ("198.51.100.3", ""),
            ("198.51.100.9", ""),
        ] {
            assert_eq!(judge(address), expected, "{address}");
        }
        nodes.send_replace(Some(NodeRanges::default()));
        assert_eq!(judge("198.51.100.2"), "");
    }

    #[test]
    fn addresses_are_distinguished_from_names() {
        let is_literal = |host: &str| literal(host).is_some();
        assert!(is_literal("127.0.0.1") && is_literal("[::1]") && is_literal("::1"));
        assert!(!is_literal("localhost") && !is_literal("127.0.0.1.example.com"));
    }
}
