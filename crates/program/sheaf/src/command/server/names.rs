//! Under which names and addresses this server is known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use agent::{GuestNetwork, IpNet};
use anyhow::{Result, bail};
use auth::pki::ServingNames;

use crate::cli::{ServerArgs, node_name};

/// The address that is announced to clients: the given one, or the one listened on.
pub(in crate::command) fn advertised(listening: SocketAddr, given: Option<IpAddr>) -> SocketAddr {
    let ip = given.unwrap_or_else(|| match listening.ip() {
        // "All addresses" is nowhere to connect to; on this machine loopback always works.
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    });
    SocketAddr::new(ip, listening.port())
}

pub(in crate::command) fn url(advertise: SocketAddr) -> String {
    format!("https://{advertise}")
}

pub(in crate::command) fn serving(
    args: &ServerArgs,
    advertise: SocketAddr,
    service: IpAddr,
) -> ServingNames {
    let mut names = ServingNames { dns: Vec::new(), addresses: vec![advertise.ip(), service] };
    if !args.listen.ip().is_unspecified() {
        names.addresses.push(args.listen.ip());
    }
    names.dns.extend(hostname());
    for name in &args.tls_san {
        match name.parse() {
            Ok(address) => names.addresses.push(address),
            Err(_) => names.dns.push(name.clone()),
        }
    }
    names
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_ascii_lowercase();
    (!name.is_empty()).then_some(name)
}

/// Unique among the servers of a cluster, and the same after a restart on the same port.
pub(in crate::command) fn identity(listening: SocketAddr) -> String {
    format!("{}_{listening}", hostname().unwrap_or_else(|| "sheaf".to_owned()))
}

/// Unique among processes: a guest has no port of its own.
pub(in crate::command) fn guest_identity() -> String {
    let host = hostname().unwrap_or_else(|| "sheaf".to_owned());
    format!("{host}_{}", std::process::id())
}

/// The name of this server's node: the given one, or the host name.
pub(in crate::command) fn node(given: Option<&str>) -> Result<String> {
    let Some(name) = given.map(str::to_owned).or_else(hostname) else {
        bail!("cannot determine the host name; use --node-name");
    };
    if let Err(rule) = node_name(&name) {
        bail!("{name:?} is not a valid node name: {rule}; choose another with --node-name");
    }
    Ok(name)
}

/// The network of this node's guests.
pub(in crate::command) fn guest_network(
    args: &ServerArgs,
    advertise: SocketAddr,
) -> agent::Network {
    match args.guest_network {
        GuestNetwork::User => agent::Network::User,
        GuestNetwork::Nat(cidr) => agent::Network::Nat {
            bridge: args.guest_bridge.clone(),
            cidr,
            host_tcp: [advertise.port()].into(),
        },
    }
}

/// Refuses a network of the guests with addresses of services: neither could be reached.
pub(in crate::command) fn check_networks(args: &ServerArgs) -> Result<()> {
    let range = &args.service_cluster_ip_range;
    let services = range.parse::<IpNet>();
    if !args.no_agent && services.is_ok_and(|services| args.guest_network.overlaps(&services)) {
        bail!(
            "--guest-network and --service-cluster-ip-range {range} have addresses in common; \
             choose another network for one of them"
        );
    }
    Ok(())
}

/// Whether the environment names a proxy for requests to the outside.
pub(in crate::command) fn has_proxy() -> bool {
    let names = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
    names.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unspecified_address_is_not_announced() {
        let all: SocketAddr = "0.0.0.0:6443".parse().unwrap();
        assert_eq!(advertised(all, None).to_string(), "127.0.0.1:6443");
        let given = Some("10.0.0.5".parse().unwrap());
        assert_eq!(advertised(all, given).to_string(), "10.0.0.5:6443");
    }
}
