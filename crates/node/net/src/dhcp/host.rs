//! DHCP clients on interfaces of the host: one packet socket and one task each. [`super::client`]
//! decides; nothing is put onto an interface here.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::AsFd;
use std::time::Duration;

use base::{Chain, Stop, Tasks, clock};
use rustix::net::{RecvFlags, SendFlags, bind, netdevice, recv, sendto};
use socket2::{Domain, SockFilter, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info};

use super::client::{ClientStep, DhcpClient, HostLease, LeaseNews};
use super::frame::{self, Station};
use super::port::code;
use crate::mac::Mac;
use crate::name::LinkName;
use crate::packet::LinkAddress;

/// Between two attempts to open an interface.
const OPEN_RETRY_DELAY: Duration = Duration::from_secs(2);
/// As long as an answer can be.
const LONGEST: usize = 4096;
const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;

/// An interface that wants an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpInterface {
    pub mac: Mac,
    /// The address that it had at an earlier start.
    pub earlier: Option<Ipv4Addr>,
}

/// Leases by interface; nothing instead of one where it was lost, or where no server has it.
pub type HostLeases = BTreeMap<LinkName, Option<HostLease>>;

/// The clients of this host.
#[derive(Debug)]
pub struct HostDhcp {
    tasks: Tasks,
    /// A client ends with its sender.
    clients: BTreeMap<LinkName, (Mac, watch::Sender<()>)>,
    leases: watch::Sender<HostLeases>,
}

impl HostDhcp {
    /// Asks on no interface yet.
    pub fn new(tasks: &Tasks) -> Self {
        let (leases, _) = watch::channel(HostLeases::new());
        Self { tasks: tasks.clone(), clients: BTreeMap::new(), leases }
    }

    /// The leases as they change.
    pub fn leases(&self) -> watch::Receiver<HostLeases> {
        self.leases.subscribe()
    }

    /// Asks on these interfaces, and no others.
    pub fn replace(&mut self, wanted: &BTreeMap<LinkName, DhcpInterface>) {
        let is_wanted = |link: &LinkName, mac: Mac| {
            wanted.get(link).is_some_and(|interface| interface.mac == mac)
        };
        self.clients.retain(|link, (mac, client)| is_wanted(link, *mac) && !client.is_closed());
        let clients = &self.clients;
        self.leases.send_if_modified(|leases| {
            let before = leases.len();
            leases.retain(|link, _| clients.contains_key(link));
            leases.len() != before
        });
        for (link, interface) in wanted {
            if self.clients.contains_key(link) {
                continue;
            }
            let (sender, alive) = watch::channel(());
            self.clients.insert(link.clone(), (interface.mac, sender));
            let client = InterfaceClient {
                link: link.clone(),
                interface: interface.clone(),
                leases: self.leases.clone(),
                start: Instant::now(),
            };
            self.tasks.spawn("host dhcp", client.run(alive, self.tasks.stop_signal()));
        }
    }
}

struct InterfaceClient {
    link: LinkName,
    interface: DhcpInterface,
    leases: watch::Sender<HostLeases>,
    start: Instant,
}

impl InterfaceClient {
    async fn run(self, mut alive: watch::Receiver<()>, mut stop: Stop) {
        let gone = async { while alive.changed().await.is_ok() {} };
        tokio::select! {
            () = self.serve() => {}
            () = gone => {}
            () = stop.requested() => {}
        }
    }

    async fn serve(&self) {
        let mac = self.interface.mac;
        // Distinguishes answers; it protects from no attacker.
        let transaction = clock::now().subsec_nanosecond().unsigned_abs();
        let mut client = DhcpClient::new(mac, transaction, self.interface.earlier);
        loop {
            let outcome = match open(&self.link) {
                Ok((socket, index)) => self.ask(&mut client, &socket, index).await,
                Err(failure) => failure,
            };
            debug!(link = %self.link, error = %Chain(&outcome), "cannot ask for an address");
            tokio::time::sleep(OPEN_RETRY_DELAY).await;
        }
    }

    /// Ends when the interface fails.
    async fn ask(&self, client: &mut DhcpClient, socket: &UdpSocket, index: u32) -> io::Error {
        let mut step = client.on_time(self.start.elapsed());
        let mut bytes = vec![0; LONGEST];
        loop {
            if let Err(failure) = self.take(&step, socket, index) {
                return failure;
            }
            let at = self.start + step.at;
            let received = async {
                let receive = || Ok(recv(socket.as_fd(), &mut bytes[..], RecvFlags::empty())?.0);
                socket.async_io(Interest::READABLE, receive).await
            };
            step = tokio::select! {
                length = received => match length {
                    Ok(length) => {
                        let payload = frame::payload(&bytes[..length.min(LONGEST)], CLIENT_PORT);
                        let now = self.start.elapsed();
                        match payload.and_then(|payload| client.on_message(now, payload)) {
                            Some(step) => step,
                            None => ClientStep { send: None, news: LeaseNews::None, at: step.at },
                        }
                    }
                    Err(failure) => return failure,
                },
                () = tokio::time::sleep_until(at) => client.on_time(self.start.elapsed()),
            };
        }
    }

    fn take(&self, step: &ClientStep, socket: &UdpSocket, index: u32) -> io::Result<()> {
        let news = match step.news {
            LeaseNews::None => None,
            LeaseNews::Bound(lease) => Some(Some(lease)),
            LeaseNews::Lost => Some(None),
        };
        if let Some(lease) = news {
            self.leases.send_if_modified(|leases| {
                let is_new = leases.get(&self.link) != Some(&lease);
                leases.insert(self.link.clone(), lease);
                if is_new {
                    let address = lease.map(|own| own.address.to_string()).unwrap_or_default();
                    info!(link = %self.link, %address, "DHCP lease of an interface has changed");
                }
                is_new
            });
        }
        let Some(payload) = &step.send else { return Ok(()) };
        let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT);
        let sender = Station { mac: self.interface.mac, address };
        let Some(frame) = frame::datagram_to_all(sender, SERVER_PORT, payload) else {
            return Ok(());
        };
        let station = LinkAddress::new(index, frame::IPV4, [0xff; 6])?;
        sendto(socket.as_fd(), &frame, SendFlags::empty(), &station)?;
        Ok(())
    }
}

/// A socket that receives answers to DHCP clients on an interface.
fn open(link: &LinkName) -> io::Result<(UdpSocket, u32)> {
    // Without a protocol it receives nothing until it is bound.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let index = netdevice::name_to_index(&socket, link.as_str())?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(FILTER)?;
    bind(&socket, &LinkAddress::new(index, frame::IPV4, [0; 6])?)?;
    // Only for its registration with the runtime: frames go through the descriptor itself.
    Ok((UdpSocket::from_std(socket.into())?, index))
}

/// Other traffic of the interface is not copied to us.
const FILTER: &[SockFilter] = &[
    SockFilter::new(code::LOAD_BYTE, 0, 0, 23),
    SockFilter::new(code::JUMP_EQUAL, 0, 6, 17),
    SockFilter::new(code::LOAD_HALF, 0, 0, 20),
    SockFilter::new(code::JUMP_ANY_BIT, 4, 0, 0x1fff),
    SockFilter::new(code::LOAD_HEADER_LENGTH, 0, 0, 14),
    SockFilter::new(code::LOAD_HALF_INDEXED, 0, 0, 16),
    SockFilter::new(code::JUMP_EQUAL, 0, 1, 68),
    SockFilter::new(code::RETURN, 0, 0, u32::MAX),
    SockFilter::new(code::RETURN, 0, 0, 0),
];
