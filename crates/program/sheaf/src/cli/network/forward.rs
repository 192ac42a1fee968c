//! `sheaf network forward`: its arguments.

use std::fmt;
use std::net::Ipv4Addr;

use clap::{Args, Subcommand};

use super::ProtocolArg;
use crate::cli::ClusterScope;
use crate::cli::value::{object_name, service_name};

#[derive(Debug, Subcommand)]
pub(crate) enum ForwardCommand {
    /// List port forwards with the machine that each leads to, and whether it is ready.
    List {
        #[command(flatten)]
        place: ClusterScope,
        /// List the port forwards of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// Forward ports of addresses of nodes to a machine.
    ///
    /// Creates a Service that selects the machine, with the addresses as its externalIPs. Every
    /// node carries it out. The user needs the right to create services/externalips.
    #[command(after_help = "Examples:\n  \
        sheaf network forward create ssh --to web --port 2222:22\n  \
        sheaf network forward create dns --to ns1 --port 53/udp --port 53/tcp --address 192.0.2.10")]
    Create(NewForwardArgs),
    /// Delete a port forward; the machine is not changed.
    Delete {
        #[command(flatten)]
        place: ClusterScope,
        /// Name of the port forward.
        #[arg(value_parser = object_name)]
        name: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct NewForwardArgs {
    #[command(flatten)]
    pub(crate) place: ClusterScope,
    /// Name of the port forward, and of its Service.
    #[arg(value_parser = service_name)]
    pub(crate) name: String,
    /// Machine that receives the connections.
    #[arg(long, value_name = "MACHINE", value_parser = object_name)]
    pub(crate) to: String,
    /// Port of the addresses, port of the machine if it is another one, and protocol (default: tcp).
    #[arg(long, value_name = "PORT[:PORT][/PROTOCOL]", value_parser = forward_port, required = true)]
    pub(crate) port: Vec<ForwardPort>,
    /// Address that clients connect to; by default the addresses of the nodes that exist now.
    #[arg(long, value_name = "IP", value_parser = listen_address)]
    pub(crate) address: Vec<Ipv4Addr>,
}

/// A port that is forwarded to a port of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForwardPort {
    pub(crate) listen: u16,
    pub(crate) target: u16,
    pub(crate) protocol: ProtocolArg,
}

impl fmt::Display for ForwardPort {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target == self.listen {
            true => write!(out, "{}", self.listen)?,
            false => write!(out, "{}:{}", self.listen, self.target)?,
        }
        write!(out, "/{}", self.protocol.name().to_lowercase())
    }
}

fn forward_port(text: &str) -> Result<ForwardPort, String> {
    let port = |text: &str| {
        let number = text.parse::<u16>().ok().filter(|port| *port > 0);
        number.ok_or("a port is a number from 1 to 65535, for example 8080:80/tcp")
    };
    let (ports, protocol) = match text.split_once('/') {
        Some((ports, "tcp")) => (ports, ProtocolArg::Tcp),
        Some((ports, "udp")) => (ports, ProtocolArg::Udp),
        Some((ports, "sctp")) => (ports, ProtocolArg::Sctp),
        Some(_) => return Err("the protocol is tcp, udp or sctp".to_owned()),
        None => (text, ProtocolArg::Tcp),
    };
    let (listen, target) = ports.split_once(':').unwrap_or((ports, ports));
    Ok(ForwardPort { listen: port(listen)?, target: port(target)?, protocol })
}

fn listen_address(text: &str) -> Result<Ipv4Addr, String> {
    let address: Ipv4Addr = text.parse().map_err(|_| "expected an IPv4 address".to_owned())?;
    let is_special = address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_link_local();
    match is_special {
        true => {
            Err("expected an address that clients reach, not a loopback, link-local, multicast \
                     or broadcast address"
                .to_owned())
        }
        false => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_a_target_and_a_protocol_if_they_differ() {
        for (text, expected) in [
            ("80", Ok("80/tcp")),
            ("2222:22", Ok("2222:22/tcp")),
            ("53/udp", Ok("53/udp")),
            ("5353:53/udp", Ok("5353:53/udp")),
            ("80/TCP", Err("the protocol is")),
            ("0", Err("from 1 to 65535")),
            ("70000:22", Err("from 1 to 65535")),
            ("22:", Err("from 1 to 65535")),
            ("", Err("from 1 to 65535")),
            ("1:2:3", Err("from 1 to 65535")),
        ] {
            match (forward_port(text), expected) {
                (Ok(port), Ok(expected)) => assert_eq!(port.to_string(), expected),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, expected) => panic!("{text}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn clients_cannot_connect_to_special_addresses() {
        assert!(listen_address("192.0.2.10").is_ok());
        for text in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.1.1", "fd00::1", "web"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }
}
