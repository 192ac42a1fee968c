//! Reaching a port of a guest from the node.
//!
//! A guest on the node's network has an address that the node can dial. One in a user-mode
//! network is reached through a port that its QEMU opens on the loopback for this one
//! connection and closes again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::Chain;
use qemu::qmp::QmpError;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tracing::debug;

use super::attachment::NetworkLocation;
use super::live::LiveMachine;

/// For the guest to accept a connection; it may be busy booting.
const DIAL: Duration = Duration::from_secs(10);

/// Why a port of a guest cannot be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("no network interfaces are present")]
    NoInterface,
    #[error(
        "the guest has no address that the node assigned: connect to its address on the bridge"
    )]
    NotAssigned,
    #[error("dialing VMI failed: dial {address}")]
    Dial { address: SocketAddr, source: std::io::Error },
    #[error("dialing VMI failed: dial {address}: it did not answer in time")]
    TimedOut { address: SocketAddr },
    #[error("cannot open a port of the node")]
    Port(#[source] std::io::Error),
    #[error("QEMU cannot forward a port: {said}")]
    Forward { said: String },
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Connects to a TCP port of the guest.
pub(crate) async fn tcp(live: &LiveMachine, port: u16) -> Result<TcpStream, DialError> {
    let (address, opening) = reach(live, port, Protocol::Tcp).await?;
    let dialed = tokio::time::timeout(DIAL, TcpStream::connect(address)).await;
    if let Some(opening) = opening {
        opening.close().await;
    }
    let stream = match dialed {
        Ok(dialed) => dialed.map_err(|source| DialError::Dial { address, source })?,
        Err(_) => return Err(DialError::TimedOut { address }),
    };
    // Keystrokes must not wait for one another.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// A socket for datagrams to a UDP port of the guest; the opening is closed when it is done.
pub(crate) async fn udp(
    live: &LiveMachine,
    port: u16,
) -> Result<(UdpSocket, Option<OpenPort>), DialError> {
    let (address, opening) = reach(live, port, Protocol::Udp).await?;
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await.map_err(DialError::Port)?;
    socket.connect(address).await.map_err(|source| DialError::Dial { address, source })?;
    Ok((socket, opening))
}

/// Where to dial, and what was opened for it.
async fn reach(
    live: &LiveMachine,
    port: u16,
    protocol: Protocol,
) -> Result<(SocketAddr, Option<OpenPort>), DialError> {
    for attachment in live.attachments() {
        match &attachment.place {
            NetworkLocation::Nat { address, .. } => {
                return Ok((SocketAddr::new((*address).into(), port), None));
            }
            NetworkLocation::User => {
                let interface = &attachment.interface;
                let (address, opening) = open(live, interface, port, protocol).await?;
                return Ok((address, Some(opening)));
            }
            NetworkLocation::Bridge { .. } => {}
        }
    }
    if live.attachments().is_empty() {
        return Err(DialError::NoInterface);
    }
    // Addresses that a guest reports itself are not dialed: they could be any of the node's.
    Err(DialError::NotAssigned)
}

/// A port that QEMU listens on for us.
#[derive(Debug)]
pub(crate) struct OpenPort {
    live: LiveMachine,
    rule: String,
}

async fn open(
    live: &LiveMachine,
    interface: &str,
    port: u16,
    protocol: Protocol,
) -> Result<(SocketAddr, OpenPort), DialError> {
    let own = free_port().await.map_err(DialError::Port)?;
    let netdev = format!("host-ua-{interface}");
    let rule = format!("{netdev} {}:127.0.0.1:{own}", protocol.name());
    let said = command(live, &format!("hostfwd_add {rule}-:{port}")).await?;
    if !said.is_empty() {
        return Err(DialError::Forward { said });
    }
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), own);
    Ok((address, OpenPort { live: live.clone(), rule }))
}

impl OpenPort {
    /// No further connections; those that exist stay.
    pub(crate) async fn close(self) {
        if let Err(failure) = command(&self.live, &format!("hostfwd_remove {}", self.rule)).await {
            debug!(error = %Chain(&failure), "cannot close a forwarded port");
        }
    }
}

async fn command(live: &LiveMachine, line: &str) -> Result<String, QmpError> {
    let qmp = live.running.qmp().await?;
    let said: String = qmp.execute("human-monitor-command", json!({"command-line": line})).await?;
    Ok(said.trim().to_owned())
}

/// A port that is free at this moment.
async fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    Ok(listener.local_addr()?.port())
}
