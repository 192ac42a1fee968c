//! A command on its way out, with the file descriptors that travel with it.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::unix::OwnedWriteHalf;

/// QEMU takes one descriptor per command.
const MOST_FDS: usize = 1;

#[derive(Debug)]
pub(super) struct OutgoingQueue {
    pub(super) line: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

impl OutgoingQueue {
    pub(super) async fn send(&self, socket: &OwnedWriteHalf) -> io::Result<()> {
        if self.fds.len() > MOST_FDS {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let socket = socket.as_ref();
        let mut sent = 0;
        while sent < self.line.len() {
            // Descriptors go with the first byte, and only once.
            let fds = if sent == 0 { self.fds.as_slice() } else { &[] };
            let rest = &self.line[sent..];
            sent += socket
                .async_io(Interest::WRITABLE, || send_once(socket.as_fd(), rest, fds))
                .await?;
        }
        Ok(())
    }
}

fn send_once(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[OwnedFd]) -> io::Result<usize> {
    let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(sent)
}
