//! `sheaf network`: its arguments.

mod forward;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use clap::{Args, Subcommand, ValueEnum};

use super::ClusterScope;
use super::value::{namespace_name, node_name, object_name};

pub(crate) use forward::{ForwardCommand, ForwardPort, NewForwardArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum NetworkCommand {
    /// List networks of machines with their VLAN, cluster network, MTU and use.
    List {
        #[command(flatten)]
        place: ClusterScope,
        /// List the networks of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Show a network: where it exists, and the machines on it with their addresses.
    Show {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the network.
        #[arg(value_parser = object_name)]
        name: String,
    },
    /// List the network cards, bonds and bridges of the nodes with their state.
    ///
    /// Shows what the LinkMonitors of the cluster report: network cards, and the bond and bridge of
    /// each cluster network.
    Links {
        #[command(flatten)]
        place: ClusterScope,
        /// Only links of this node.
        #[arg(long, value_name = "NODE", value_parser = node_name)]
        node: Option<String>,
    },
    /// List the addresses of machines and load balancers: who has which, and conflicts.
    Addresses {
        #[command(flatten)]
        place: ClusterScope,
        /// List the addresses of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
        /// Only addresses of this network: NAME or NAMESPACE/NAME, or `guest` for the guest network.
        #[arg(long, value_name = "NETWORK", value_parser = network_name)]
        network: Option<String>,
    },
    /// Forward ports of the nodes to machines: list, create, delete.
    #[command(subcommand)]
    Forward(ForwardCommand),
    /// Create a network of machines on the uplinks of a cluster network.
    #[command(after_help = "Examples:\n  \
        sheaf network create office --cluster-network lan --vlan 100\n  \
        sheaf network create routers --cluster-network lan --trunk 100-110,5\n  \
        sheaf network create plain --cluster-network lan --type untagged")]
    Create(NewNetworkArgs),
    /// Show which rule would accept or drop the first packet of a connection from a machine.
    ///
    /// Reads NetworkPolicies, ClusterNetworkPolicies, MultiNetworkPolicies, namespaces, services and machines, and
    /// evaluates them as nodes do.
    /// Nothing is sent. Exits with an error if no way is open.
    #[command(after_help = "Examples:\n  \
        sheaf network trace web --to 10.52.0.17:5432\n  \
        sheaf network trace web --to db.tenant:5432         a service, or else a machine\n  \
        sheaf network trace web --to 192.0.2.9:53 --protocol udp\n  \
        sheaf network trace web --to [fd00::7]:80           over a network that has IPv6")]
    Trace(TraceArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    /// Name of the machine that connects.
    #[arg(value_parser = object_name)]
    pub(crate) name: String,
    /// Destination: an address (IPv6 in brackets), or the name of a service or machine (NAME or NAME.NAMESPACE),
    /// and a port.
    #[arg(long, value_name = "HOST:PORT", value_parser = destination)]
    pub(crate) to: Destination,
    /// Protocol of the connection.
    #[arg(long, value_enum, default_value_t = ProtocolArg::Tcp)]
    pub(crate) protocol: ProtocolArg,
}

/// Where a traced connection leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) host: DestinationHost,
    pub(crate) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DestinationHost {
    Address(IpAddr),
    /// Of a service or machine; without a namespace it is that of the command.
    Named {
        name: String,
        namespace: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolArg {
    Tcp,
    Udp,
    Sctp,
}

impl ProtocolArg {
    /// The name that Kubernetes has for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

fn destination(text: &str) -> Result<Destination, String> {
    let wrong = || "expected HOST:PORT, for example 10.52.0.17:80 or web.default:80".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let port = port.ok_or("the port is a number from 1 to 65535")?;
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = match v6 {
        Some(v6) => v6.parse::<Ipv6Addr>().map(IpAddr::V6),
        None => host.parse::<Ipv4Addr>().map(IpAddr::V4),
    };
    let host = match address {
        Ok(address) => DestinationHost::Address(address),
        Err(_) => {
            let (name, namespace) = match host.split_once('.') {
                Some((name, rest)) => {
                    (name, Some(rest.strip_suffix(".svc.cluster.local").unwrap_or(rest)))
                }
                None => (host, None),
            };
            let name = namespace_name(name).map_err(|_| wrong())?;
            let namespace = namespace.map(namespace_name).transpose().map_err(|_| wrong())?;
            DestinationHost::Named { name, namespace }
        }
    };
    Ok(Destination { host, port })
}

#[derive(Debug, Clone, Args)]
pub(crate) struct NewNetworkArgs {
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    /// Name of the network.
    #[arg(value_parser = object_name)]
    pub(crate) name: String,
    /// Cluster network whose uplinks carry it.
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) cluster_network: String,
    /// Type of the network; by default it follows from --vlan or --trunk.
    #[arg(long, value_enum)]
    pub(crate) r#type: Option<NetworkTypeArg>,
    /// VLAN that machines are in: 1 to 4094.
    #[arg(long, value_name = "ID", value_parser = vlan, conflicts_with = "trunk")]
    pub(crate) vlan: Option<u16>,
    /// VLANs that machines tag their frames with: 100-110,5.
    #[arg(long, value_name = "IDS", value_parser = vlan_range, value_delimiter = ',')]
    pub(crate) trunk: Vec<RangeInclusive<u16>>,
}

/// The networks that can be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkTypeArg {
    /// Machines send untagged frames, which are tagged with one VLAN on the wire.
    Vlan,
    /// Machines tag their frames themselves.
    Trunk,
    /// Frames are untagged on the wire, too.
    Untagged,
}

/// The name of a network, with or without its namespace.
fn network_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) => {
            Ok(format!("{}/{}", namespace_name(namespace)?, object_name(name)?))
        }
        None => object_name(text),
    }
}

fn vlan(text: &str) -> Result<u16, String> {
    let number = text.parse::<u16>().ok().filter(|number| (1..=4094).contains(number));
    number.ok_or_else(|| "a VLAN is a number from 1 to 4094".to_owned())
}

fn vlan_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (vlan(first)?, vlan(last)?);
    if first > last {
        return Err(format!("{first}-{last} is no range: the first VLAN is greater than the last"));
    }
    Ok(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_an_address_or_a_name_with_a_port() {
        let named = |name: &str, namespace: Option<&str>| DestinationHost::Named {
            name: name.into(),
            namespace: namespace.map(str::to_owned),
        };
        let address = DestinationHost::Address([10, 0, 0, 1].into());
        for (text, expected) in [
            ("10.0.0.1:80", Some((address, 80))),
            ("web:80", Some((named("web", None), 80))),
            ("web.tenant:8080", Some((named("web", Some("tenant")), 8080))),
            ("web.tenant.svc.cluster.local:80", Some((named("web", Some("tenant")), 80))),
            ("[fd00::7]:80", Some((DestinationHost::Address("fd00::7".parse().unwrap()), 80))),
            ("fd00::7:80", None),
            ("[web]:80", None),
            ("web", None),
            ("web:0", None),
            ("web:99999", None),
            (":80", None),
            ("we_b:80", None),
            ("a.b.c:80", None),
        ] {
            let parsed = destination(text).ok().map(|own| (own.host, own.port));
            assert_eq!(parsed, expected, "{text}");
        }
    }

    #[test]
    fn vlans_are_numbers_or_ranges() {
        for (text, expected) in [
            ("5", Ok(5..=5)),
            ("100-110", Ok(100..=110)),
            ("4094", Ok(4094..=4094)),
            ("0", Err("a VLAN is a number from 1 to 4094")),
            ("4095", Err("a VLAN is a number from 1 to 4094")),
            ("1-", Err("a VLAN is a number from 1 to 4094")),
            ("9-2", Err("9-2 is no range: the first VLAN is greater than the last")),
        ] {
            assert_eq!(vlan_range(text), expected.map_err(str::to_owned), "{text}");
        }
    }
}
