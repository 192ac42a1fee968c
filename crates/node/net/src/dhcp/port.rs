//! DHCP on ports that lead to bridges: one packet socket on the tap of each guest.
//!
//! A bridge of an uplink carries many VLANs and has no address in them, so that there is no
//! interface on which a server could listen for the guests of one of them. A tap has one guest.
//! The socket sees its frames before the bridge does, and what it sends goes to the guest alone;
//! rules keep the requests from the wire, and answers of others from the guest.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base::{Chain, Stop, Tasks};
use rustix::net::{RecvFlags, SendFlags, bind, netdevice, recv, sendto};
use socket2::{Domain, SockFilter, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::frame::{self, FrameVerdict};
use super::{DhcpServer, Lease, OptionError};
use crate::name::LinkName;
use crate::packet::{ALL_PROTOCOLS, LinkAddress};

/// Between two attempts to open a tap that is not there.
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(500);
/// As long as a request can be, on links of any MTU that guests send them with.
const LONGEST: usize = 4096;

/// The lease of the one guest of a port, and who gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortLease {
    pub lease: Lease,
    pub server: DhcpServer,
}

/// Answers requests on ports, until the tasks are stopped.
#[derive(Debug)]
pub struct PortDhcp {
    tasks: Tasks,
    ports: Mutex<BTreeMap<LinkName, watch::Sender<PortLease>>>,
}

impl PortDhcp {
    /// Answers on no port yet.
    pub fn new(tasks: &Tasks) -> Self {
        Self { tasks: tasks.clone(), ports: Mutex::default() }
    }

    /// Answers on these ports, and no others.
    pub fn replace(&self, wanted: BTreeMap<LinkName, PortLease>) -> Result<(), OptionError> {
        for own in wanted.values() {
            own.lease.options.check()?;
        }
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        // A server ends with the sender of its lease.
        ports.retain(|tap, _| wanted.contains_key(tap));
        for (tap, lease) in wanted {
            if let Some(known) = ports.get(&tap).filter(|known| !known.is_closed()) {
                known.send_if_modified(|own| std::mem::replace(own, lease.clone()) != lease);
                continue;
            }
            let (sender, lease) = watch::channel(lease);
            ports.insert(tap.clone(), sender);
            let server = PortServer { tap, lease };
            self.tasks.spawn("port dhcp", server.run(self.tasks.stop_signal()));
        }
        Ok(())
    }
}

struct PortServer {
    tap: LinkName,
    lease: watch::Receiver<PortLease>,
}

impl PortServer {
    async fn run(mut self, mut stop: Stop) {
        tokio::select! {
            () = self.serve() => {}
            () = stop.requested() => {}
        }
    }

    /// Ends when the port is not wanted any more.
    async fn serve(&mut self) {
        let mut is_failing = false;
        while self.lease.has_changed().is_ok() {
            match open(&self.tap) {
                Ok((socket, index)) => {
                    is_failing = false;
                    let Err(failure) = self.answer(&socket, index).await else { return };
                    debug!(tap = %self.tap, error = %Chain(&failure), "a tap is gone");
                }
                Err(failure) if !is_failing => {
                    is_failing = true;
                    warn!(tap = %self.tap, error = %Chain(&failure), "cannot answer DHCP on a tap");
                }
                Err(_) => {}
            }
            let gone = async { while self.lease.changed().await.is_ok() {} };
            tokio::select! {
                () = gone => return,
                () = tokio::time::sleep(OPEN_RETRY_DELAY) => {}
            }
        }
    }

    /// Answers until the tap fails, or the port is not wanted any more.
    async fn answer(&mut self, socket: &UdpSocket, index: u32) -> io::Result<()> {
        let mut bytes = vec![0; LONGEST];
        loop {
            let ready = tokio::select! {
                // A tap that is deleted is an error and nothing to read.
                ready = socket.ready(Interest::READABLE | Interest::ERROR) => ready?,
                changed = self.lease.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return Ok(()),
                },
            };
            // Operations are tried for one interest at a time.
            let interest = if ready.is_error() { Interest::ERROR } else { Interest::READABLE };
            let received = socket
                .try_io(interest, || Ok(recv(socket.as_fd(), &mut bytes[..], RecvFlags::empty())?));
            let (length, _) = match received {
                Err(failure) if failure.kind() == io::ErrorKind::WouldBlock => continue,
                received => received?,
            };
            let verdict = frame::judge(&bytes[..length.min(LONGEST)], &self.lease.borrow());
            match verdict {
                FrameVerdict::Send(frame) => self.send(socket, index, &frame),
                FrameVerdict::Declined(address) => {
                    warn!(tap = %self.tap, %address, "guest declined its DHCP address: another host uses it");
                }
                FrameVerdict::Ignore => {}
            }
        }
    }

    fn send(&self, socket: &UdpSocket, index: u32, frame: &[u8]) {
        let mut station = [0; 6];
        station.copy_from_slice(&frame[..6]);
        let sent = LinkAddress::new(index, frame::IPV4, station)
            .and_then(|to| Ok(sendto(socket.as_fd(), frame, SendFlags::empty(), &to)?));
        if let Err(failure) = sent {
            // The guest asks again.
            debug!(tap = %self.tap, error = %Chain(&failure), "cannot send a DHCP answer");
        }
    }
}

/// A socket that receives requests to DHCP servers, and ARP, of the guest of a tap.
fn open(tap: &LinkName) -> io::Result<(UdpSocket, u32)> {
    // Without a protocol it receives nothing until it is bound.
    let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
    let index = netdevice::name_to_index(&socket, tap.as_str())?;
    socket.set_nonblocking(true)?;
    socket.attach_filter(FILTER)?;
    bind(&socket, &LinkAddress::new(index, ALL_PROTOCOLS, [0; 6])?)?;
    // Only for its registration with the runtime: frames go through the descriptor itself.
    Ok((UdpSocket::from_std(socket.into())?, index))
}

/// Instructions of classic BPF.
pub(super) mod code {
    pub(in crate::dhcp) const LOAD_WORD: u16 = 0x20;
    pub(in crate::dhcp) const LOAD_HALF: u16 = 0x28;
    pub(in crate::dhcp) const LOAD_BYTE: u16 = 0x30;
    pub(in crate::dhcp) const LOAD_HALF_INDEXED: u16 = 0x48;
    pub(in crate::dhcp) const LOAD_HEADER_LENGTH: u16 = 0xb1;
    pub(in crate::dhcp) const JUMP_EQUAL: u16 = 0x15;
    pub(in crate::dhcp) const JUMP_ANY_BIT: u16 = 0x45;
    pub(in crate::dhcp) const RETURN: u16 = 0x06;
}

/// Where the kernel keeps what is known of a frame beside its bytes.
const AUXILIARY: u32 = 0xffff_f000;
const PACKET_TYPE: u32 = AUXILIARY + 4;
const HAS_VLAN_TAG: u32 = AUXILIARY + 48;
const OUTGOING: u32 = 4;
/// EtherTypes.
const ARP: u32 = 0x0806;
const IPV4: u32 = 0x0800;

/// A guest's other frames are not copied to us, which would cost its throughput. Frames with a VLAN tag
/// are of other networks: the kernel has taken the tag off before we see them.
const FILTER: &[SockFilter] = &[
    SockFilter::new(code::LOAD_WORD, 0, 0, PACKET_TYPE),
    SockFilter::new(code::JUMP_EQUAL, 13, 0, OUTGOING),
    SockFilter::new(code::LOAD_WORD, 0, 0, HAS_VLAN_TAG),
    SockFilter::new(code::JUMP_EQUAL, 0, 11, 0),
    SockFilter::new(code::LOAD_HALF, 0, 0, 12),
    SockFilter::new(code::JUMP_EQUAL, 8, 0, ARP),
    SockFilter::new(code::JUMP_EQUAL, 0, 8, IPV4),
    SockFilter::new(code::LOAD_BYTE, 0, 0, 23),
    SockFilter::new(code::JUMP_EQUAL, 0, 6, 17),
    SockFilter::new(code::LOAD_HALF, 0, 0, 20),
    SockFilter::new(code::JUMP_ANY_BIT, 4, 0, 0x1fff),
    SockFilter::new(code::LOAD_HEADER_LENGTH, 0, 0, 14),
    SockFilter::new(code::LOAD_HALF_INDEXED, 0, 0, 16),
    SockFilter::new(code::JUMP_EQUAL, 0, 1, 67),
    SockFilter::new(code::RETURN, 0, 0, u32::MAX),
    SockFilter::new(code::RETURN, 0, 0, 0),
];
