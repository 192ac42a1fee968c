//! The network of a guest on a host where we may not make links: QEMU's own user-mode stack.
//!
//! A description only; the builder of QEMU's command line translates it.

use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::Ipv4Net;

use crate::want::Protocol;

/// The network that the guest sees, and which of its ports can be reached from the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserNet {
    pub network: Ipv4Net,
    /// The address that represents the node.
    pub gateway: Ipv4Addr,
    /// The address under which QEMU passes questions on to the node's name servers.
    pub dns: Ipv4Addr,
    /// The address that QEMU's DHCP server gives to the guest.
    pub guest: Ipv4Addr,
    pub hostname: Option<String>,
    pub search: Vec<String>,
    pub forwards: Vec<Forward>,
}

/// A port of the node that leads to one of the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    pub protocol: Protocol,
    /// On the loopback, unless the guest shall be seen from outside.
    pub from: SocketAddrV4,
    pub to: u16,
}

impl UserNet {
    /// The addresses of KubeVirt's masquerade binding, where the guest is 10.0.2.2.
    pub fn new(forwards: Vec<Forward>) -> Self {
        let network = Ipv4Net::new(Ipv4Addr::new(10, 0, 2, 0), 24).expect("24 is a prefix length");
        Self {
            network,
            gateway: Ipv4Addr::new(10, 0, 2, 1),
            dns: Ipv4Addr::new(10, 0, 2, 3),
            guest: Ipv4Addr::new(10, 0, 2, 2),
            hostname: None,
            search: vec![],
            forwards,
        }
    }
}
