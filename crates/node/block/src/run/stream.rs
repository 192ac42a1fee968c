//! A connected socket that never blocks: bytes go out when the turn ends, as many as fit.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use bytes::{Buf, Bytes, BytesMut};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType};

use super::poll::PollInterest;
use super::sys::receive;
use super::tls::Session;
use crate::grant::Peer;

/// Read at once when nothing is known about how much will come.
const CHUNK: usize = 128 << 10;

/// Pieces that are handed to the kernel in one call.
const MAX_PIECES: usize = 128;
const FEW_PIECES: usize = 8;

/// Where a socket is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Address {
    /// Whether it can only be reached on this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filled {
    /// There may be more.
    Some,
    /// There was no more, so that asking again can wait until the poll says so.
    Last,
    Nothing,
    End,
}

#[derive(Debug)]
pub(super) struct Stream {
    fd: OwnedFd,
    out: VecDeque<Bytes>,
    waiting: usize,
    /// Between the socket and us, where the wire is not our own.
    tls: Option<Box<Session>>,
    /// The other end is on another machine, or may be.
    is_remote: bool,
    /// The interest that the poll was last given.
    pub(super) interest: PollInterest,
}

impl Stream {
    pub(super) fn new(fd: OwnedFd) -> Self {
        let (out, interest) = (VecDeque::new(), PollInterest::READ);
        Self { fd, out, waiting: 0, tls: None, is_remote: false, interest }
    }

    pub(super) fn unix(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let stream = Self::new(socket.into());
        stream.widen();
        Ok(stream)
    }

    pub(super) fn tcp(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let is_remote = !socket.peer_addr()?.ip().to_canonical().is_loopback();
        let stream = Self { is_remote, ..Self::new(socket.into()) };
        stream.keep_alive();
        Ok(stream)
    }

    /// Begins to connect; for TCP it is done when the socket is writable.
    pub(super) fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let fd = socket(AddressFamily::UNIX)?;
                rustix::net::connect(&fd, &rustix::net::SocketAddrUnix::new(path)?)?;
                let stream = Self::new(fd);
                stream.widen();
                Ok(stream)
            }
            Address::Tcp(address) => {
                let fd = socket(match address {
                    SocketAddr::V4(_) => AddressFamily::INET,
                    SocketAddr::V6(_) => AddressFamily::INET6,
                })?;
                rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
                match rustix::net::connect(&fd, address) {
                    Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
                    Err(errno) => return Err(errno.into()),
                }
                let stream = Self::new(fd);
                stream.keep_alive();
                Ok(stream)
            }
        }
    }

    /// Speaks only through the session from now on.
    pub(super) fn secure(&mut self, session: Session) {
        self.tls = Some(Box::new(session));
    }

    /// The peer of a connection that was accepted.
    pub(super) fn peer(&self) -> Peer {
        match &self.tls {
            Some(session) => session.peer_node().map_or(Peer::Unknown, Peer::Node),
            None if self.is_remote => Peer::Unknown,
            None => Peer::Local,
        }
    }

    /// Room for a large request, so that it takes few wake-ups to get it across. Best effort.
    fn widen(&self) {
        const ROOM: usize = 1 << 20;
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&self.fd, ROOM);
    }

    /// A peer whose machine is gone says nothing; the kernel finds out. Best effort.
    fn keep_alive(&self) {
        use rustix::net::sockopt;
        let _ = sockopt::set_socket_keepalive(&self.fd, true);
        let _ = sockopt::set_tcp_keepidle(&self.fd, std::time::Duration::from_secs(5));
        let _ = sockopt::set_tcp_keepintvl(&self.fd, std::time::Duration::from_secs(2));
        let _ = sockopt::set_tcp_keepcnt(&self.fd, 3);
    }

    /// Why connecting failed, if it did.
    pub(super) fn connect_error(&self) -> io::Result<()> {
        match rustix::net::sockopt::socket_error(&self.fd)? {
            Ok(()) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Puts what has arrived at the end of `buffer`, which is made to hold `want` bytes more.
    pub(super) fn fill(&mut self, buffer: &mut BytesMut, want: usize) -> io::Result<Filled> {
        if let Some(session) = &mut self.tls {
            let filled = session.fill(self.fd.as_fd(), buffer)?;
            // The received bytes may be the ones that our side has waited for.
            self.flush()?;
            return Ok(filled);
        }
        if buffer.capacity() - buffer.len() < want.max(4096) {
            buffer.reserve(want.max(CHUNK));
        }
        match receive(self.fd.as_fd(), buffer) {
            Ok(0) => Ok(Filled::End),
            Ok(_) if buffer.len() < buffer.capacity() => Ok(Filled::Last),
            Ok(_) => Ok(Filled::Some),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Filled::Nothing),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.waiting += bytes.len();
            self.out.push_back(bytes);
        }
    }

    /// Bytes that were pushed and have not gone out.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether there is something that waits for the socket to have room.
    pub(super) fn wants_write(&self) -> bool {
        match &self.tls {
            Some(session) => session.wants_write(self.waiting),
            None => self.waiting > 0,
        }
    }

    /// Sends what fits.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            return session.flush(self.fd.as_fd(), &mut self.out, &mut self.waiting);
        }
        while !self.out.is_empty() {
            // A lone request is a piece or two; clearing room for many would be felt.
            let sent = match self.out.len() <= FEW_PIECES {
                true => self.send_pieces::<FEW_PIECES>(),
                false => self.send_pieces::<MAX_PIECES>(),
            };
            match sent {
                Ok(sent) => self.sent(sent),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn send_pieces<const MOST: usize>(&self) -> rustix::io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); MOST];
        let count = self.out.len().min(MOST);
        for (piece, bytes) in pieces.iter_mut().zip(&self.out) {
            *piece = IoSlice::new(bytes);
        }
        let mut ancillary = SendAncillaryBuffer::default();
        rustix::net::sendmsg(&self.fd, &pieces[..count], &mut ancillary, SendFlags::NOSIGNAL)
    }

    fn sent(&mut self, mut count: usize) {
        self.waiting -= count;
        while count > 0 {
            let Some(first) = self.out.front_mut() else { return };
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.out.pop_front();
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}
