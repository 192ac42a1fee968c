//! Notifies QEMU that the configuration of a device has changed, over the back-end channel of
//! vhost-user.
//!
//! QEMU sends the socket of this channel as a descriptor in a message. The library that handles
//! messages cannot send this notification, so the message is read with `MSG_PEEK` before: the
//! library still receives it, and we get a descriptor of our own.
//!
//! ```text
//! message: request (u32) · flags (u32), 1 is the version · length of the body (u32) · body
//! ```

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};

/// `VHOST_USER_SET_BACKEND_REQ_FD`.
const SET_BACKEND_REQ_FD: u32 = 21;

/// `VHOST_USER_BACKEND_CONFIG_CHANGE_MSG`.
const CONFIG_CHANGED: u32 = 2;

const VERSION: u32 = 1;
const HEADER: usize = 12;

/// Says that a device is not as it was.
#[derive(Debug)]
pub(crate) struct Notice(OwnedFd);

impl Notice {
    /// Waits for the next message and takes the socket out of it, if it is the one that has it.
    pub(super) fn peek(stream: &UnixStream) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER];
        let (count, _) = rustix::net::recv(stream, &mut header, RecvFlags::PEEK)?;
        let request = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        if count < HEADER || request != SET_BACKEND_REQ_FD {
            return Ok(None);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let pieces = &mut [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::PEEK | RecvFlags::CMSG_CLOEXEC;
        recvmsg(stream, pieces, &mut ancillary, flags)?;
        let found = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        Ok(found.map(Self))
    }

    /// QEMU reads the configuration again and notifies its guest. Never waits: a QEMU that does not
    /// listen will read it when it does.
    pub(crate) fn config_changed(&self) {
        let mut message = [0; HEADER];
        message[..4].copy_from_slice(&CONFIG_CHANGED.to_le_bytes());
        message[4..8].copy_from_slice(&VERSION.to_le_bytes());
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if let Err(error) = send(&self.0, &message, flags) {
            tracing::warn!(%error, "cannot notify guest of disk expansion");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read as _};
    use std::os::fd::AsFd as _;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};

    use super::*;

    fn say(stream: &UnixStream, request: u32, with: Option<&UnixStream>) {
        let mut message = [0; HEADER];
        message[..4].copy_from_slice(&request.to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = with.iter().map(|it| it.as_fd()).collect();
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
        }
        sendmsg(stream, &[IoSlice::new(&message)], &mut ancillary, SendFlags::empty()).unwrap();
    }

    #[test]
    fn the_socket_is_taken_and_the_message_left() {
        let (qemu, ours) = UnixStream::pair().unwrap();
        let (mut receiver, sender) = UnixStream::pair().unwrap();
        say(&qemu, SET_BACKEND_REQ_FD, Some(&sender));
        drop(sender);
        let notice = Notice::peek(&ours).unwrap().expect("there is one in the message");
        notice.config_changed();
        drop(notice);
        let mut received = [0; HEADER];
        receiver.read_exact(&mut received).unwrap();
        assert_eq!(received, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let mut left = [0; HEADER];
        (&ours).read_exact(&mut left).unwrap();
        assert_eq!(left[0], 21, "the conversation goes on with it");
    }

    #[test]
    fn other_messages_have_none() {
        let (qemu, ours) = UnixStream::pair().unwrap();
        say(&qemu, 1, None);
        assert!(Notice::peek(&ours).unwrap().is_none());
    }
}
