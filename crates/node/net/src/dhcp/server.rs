//! The DHCP server's socket, on one bridge only.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, Tasks};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::{DhcpReply, DhcpServer, DhcpVerdict, Lease, Leases, OptionError, answer};
use crate::mac::Mac;
use crate::name::LinkName;
use crate::network::Network;

const SERVER_PORT: u16 = 67;
/// Between two attempts to bind to a bridge that is being made anew.
const BIND_RETRY_DELAY: Duration = Duration::from_millis(500);

/// A handle to the running server: changes to its leases hold from the next request on.
#[derive(Debug, Clone)]
pub struct Dhcp {
    leases: Arc<watch::Sender<Leases>>,
}

/// Why there is no DHCP server.
#[derive(Debug, thiserror::Error)]
pub enum DhcpError {
    #[error(
        "cannot listen for DHCP on {bridge}; does another DHCP server hold port {SERVER_PORT}?"
    )]
    Listen { bridge: LinkName, source: io::Error },
}

impl Dhcp {
    /// Listens on the bridge of `network`, until the tasks are stopped.
    pub fn start(network: &Network, tasks: &Tasks) -> Result<Self, DhcpError> {
        let bridge = network.bridge();
        let socket = listen(&bridge.name)
            .map_err(|source| DhcpError::Listen { bridge: bridge.name.clone(), source })?;
        let (leases, seen) = watch::channel(Leases::new());
        let server = Server {
            bridge: bridge.name.clone(),
            server: DhcpServer::gateway(bridge.gateway),
            leases: seen,
            made: network.bridges_made(),
        };
        tasks.spawn("dhcp", server.run(socket, tasks.stop_signal()));
        Ok(Self { leases: Arc::new(leases) })
    }

    /// Forgets all leases and takes these.
    pub fn replace(&self, leases: Vec<Lease>) -> Result<(), OptionError> {
        for lease in &leases {
            lease.options.check()?;
        }
        let leases = leases.into_iter().map(|lease| (lease.mac, lease)).collect();
        self.leases.send_replace(leases);
        Ok(())
    }

    /// Adds a lease, in place of one for the same Ethernet address.
    pub fn insert(&self, lease: Lease) -> Result<(), OptionError> {
        lease.options.check()?;
        self.leases.send_modify(|leases| {
            leases.insert(lease.mac, lease);
        });
        Ok(())
    }

    pub fn remove(&self, mac: Mac) {
        self.leases.send_modify(|leases| {
            leases.remove(&mac);
        });
    }
}

struct Server {
    bridge: LinkName,
    server: DhcpServer,
    leases: watch::Receiver<Leases>,
    made: watch::Receiver<u64>,
}

impl Server {
    async fn run(mut self, mut socket: UdpSocket, mut stop: Stop) {
        let mut datagram = vec![0; 2048];
        // The bridge that the socket belongs to exists already.
        self.made.mark_unchanged();
        loop {
            tokio::select! {
                received = socket.recv_from(&mut datagram) => match received {
                    Ok((length, _)) => self.serve(&socket, &datagram[..length]).await,
                    Err(error) => {
                        warn!(error = %Chain(&error), "cannot receive DHCP requests");
                        socket = self.listen_again().await;
                    }
                },
                Ok(()) = self.made.changed() => socket = self.listen_again().await,
                () = stop.requested() => return,
            }
        }
    }

    async fn serve(&self, socket: &UdpSocket, datagram: &[u8]) {
        let verdict = answer(datagram, &self.server, &self.leases.borrow());
        match verdict {
            DhcpVerdict::Send(DhcpReply { message, to }) => {
                if let Err(error) = socket.send_to(&message, to).await {
                    debug!(to = %to, error = %Chain(&error), "cannot send a DHCP answer");
                    // The host may not know the guest's Ethernet address yet.
                    let all = SocketAddrV4::new(Ipv4Addr::BROADCAST, to.port());
                    let _ = socket.send_to(&message, all).await;
                }
            }
            DhcpVerdict::Declined { mac, address } => {
                warn!(%mac, %address, "guest declined its DHCP address: another host uses it");
            }
            DhcpVerdict::Ignore => {}
        }
    }

    /// A socket stays bound to the interface it was made for, which may be gone.
    async fn listen_again(&self) -> UdpSocket {
        loop {
            match listen(&self.bridge) {
                Ok(socket) => return socket,
                Err(error) => {
                    warn!(bridge = %self.bridge, error = %Chain(&error), "cannot listen for DHCP");
                    tokio::time::sleep(BIND_RETRY_DELAY).await;
                }
            }
        }
    }
}

fn listen(bridge: &LinkName) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Other servers may serve other interfaces; the device keeps us apart.
    socket.set_reuse_address(true)?;
    socket.set_broadcast(true)?;
    socket.bind_device(Some(bridge.as_str().as_bytes()))?;
    socket.set_nonblocking(true)?;
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT);
    socket.bind(&SocketAddr::from(address).into())?;
    UdpSocket::from_std(socket.into())
}
