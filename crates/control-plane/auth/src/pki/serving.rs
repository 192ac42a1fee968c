//! The names and addresses under which clients reach this server.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Further names of the serving certificate, besides those that it always has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// Host names, such as that of this machine or of a load balancer.
    pub dns: Vec<String>,
    /// Addresses that are listened on or forwarded here, and the first service address.
    pub addresses: Vec<IpAddr>,
}

/// Names by which clients inside a cluster know its API.
const WELL_KNOWN: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

impl ServingNames {
    /// Everything the certificate carries. Addresses that mean "any" are left out,
    /// and so are names that a certificate cannot hold.
    pub fn all(&self) -> BTreeSet<String> {
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let addresses = loopback.iter().chain(&self.addresses);
        let addresses = addresses.map(IpAddr::to_canonical);
        let addresses = addresses.filter(|address| !address.is_unspecified());
        let dns = self.dns.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        let dns = dns.filter(|name| is_dns_name(name));
        let known = WELL_KNOWN.iter().map(|name| (*name).to_owned());
        known.chain(dns).chain(addresses.map(|address| address.to_string())).collect()
    }
}

fn is_dns_name(name: &str) -> bool {
    crate::user::is_dns_subdomain(name.strip_prefix("*.").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_join_the_well_known_ones_without_repetition() {
        let names = ServingNames {
            dns: vec![
                "Node1.Example.com.".into(),
                "localhost".into(),
                "not a name".into(),
                "*.lb".into(),
            ],
            addresses: vec![
                "10.43.0.1".parse().unwrap(),
                "0.0.0.0".parse().unwrap(),
                "::".parse().unwrap(),
                "::ffff:192.0.2.1".parse().unwrap(),
            ],
        };
        let expected = [
            "*.lb",
            "10.43.0.1",
            "127.0.0.1",
            "192.0.2.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
            "node1.example.com",
        ];
        assert_eq!(names.all().into_iter().collect::<Vec<_>>(), expected);
    }
}
