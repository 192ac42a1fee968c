//! Sockets that others connect to.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::stream::{Address, Stream};

/// A socket that others connect to. One in the file system is removed with it.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    path: Option<PathBuf>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    /// Takes the place of a socket that no process listens on any more.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let socket = match UnixListener::bind(path) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path) => {
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)?
                    }
                    other => other?,
                };
                socket.set_nonblocking(true)?;
                Ok(Self { socket: Socket::Unix(socket), path: Some(path.clone()) })
            }
            Address::Tcp(address) => {
                let socket = TcpListener::bind(address)?;
                socket.set_nonblocking(true)?;
                Ok(Self { socket: Socket::Tcp(socket), path: None })
            }
        }
    }

    /// The address that was bound, with the port that the kernel chose.
    pub fn address(&self) -> io::Result<Address> {
        match (&self.socket, &self.path) {
            (Socket::Tcp(socket), _) => Ok(Address::Tcp(socket.local_addr()?)),
            (Socket::Unix(_), path) => Ok(Address::Unix(path.clone().unwrap_or_default())),
        }
    }

    /// The next that has connected, as it comes.
    pub(super) fn accept_unix(&self) -> io::Result<Option<UnixStream>> {
        let Socket::Unix(socket) = &self.socket else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        match socket.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                Ok(Some(stream))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether others reach it over a network.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.socket, Socket::Tcp(_))
    }

    /// The next that has connected, if there is one.
    pub(super) fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match &self.socket {
            Socket::Unix(socket) => socket.accept().and_then(|(stream, _)| Stream::unix(stream)),
            Socket::Tcp(socket) => socket.accept().and_then(|(stream, _)| Stream::tcp(stream)),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a socket is there that no process listens on.
fn is_dead(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    let socket = std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket());
    let answer = std::os::unix::net::UnixStream::connect(path);
    socket && answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
