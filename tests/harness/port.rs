//! Ports for programs that cannot choose their own. They are below the range from which the kernel
//! takes ports for connections, and are reserved: neither another test nor a connection can take
//! one between its choice and its use, or while its program is restarted.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Below 32768 (`net.ipv4.ip_local_port_range`) and the node ports.
const RANGE: std::ops::Range<u16> = 20_000..30_000;

/// A TCP port of 127.0.0.1, for as long as this lives.
pub(crate) struct ReservedPort {
    number: u16,
    /// An abstract socket whose name contains the port. The kernel removes it with the process.
    _reservation: UnixListener,
}

impl ReservedPort {
    pub(crate) fn new() -> Self {
        // Processes begin at different places; the order is of no importance.
        let count = usize::from(RANGE.end - RANGE.start);
        let first = (std::process::id() as usize).wrapping_mul(97) % count;
        let mut ports = RANGE.cycle().skip(first).take(count);
        ports.find_map(Self::reserve).expect("one of ten thousand ports is free")
    }

    fn reserve(number: u16) -> Option<Self> {
        let name = SocketAddr::from_abstract_name(format!("sheaf-test-port-{number}")).unwrap();
        let reservation = UnixListener::bind_addr(&name).ok()?;
        // A program that is no test may listen there.
        TcpListener::bind(("127.0.0.1", number)).ok()?;
        Some(Self { number, _reservation: reservation })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[test]
fn a_reserved_port_is_given_once_and_not_to_connections() {
    let ports: Vec<_> = (0..30).map(|_| ReservedPort::new()).collect();
    let numbers: std::collections::BTreeSet<u16> = ports.iter().map(ReservedPort::number).collect();
    assert_eq!(numbers.len(), ports.len());
    let chosen = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let lowest: u16 = chosen.split_whitespace().next().unwrap().parse().unwrap();
    assert!(numbers.iter().all(|number| *number < lowest), "the kernel begins at {lowest}");
}
