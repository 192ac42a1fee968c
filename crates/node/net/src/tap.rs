//! Taps through `/dev/net/tun`: making one that stays, and opening one for a QEMU.
//!
//! Where the device may be opened by root only, a QEMU of another user is given the open tap
//! instead of its name.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::name::LinkName;

pub(crate) const DEVICE: &str = "/dev/net/tun";

/// How many queues a tap may have. It is fixed when the tap is made, and whoever opens it must
/// say the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queues {
    Single,
    Multi,
}

/// Makes a tap that outlives us, for `owner`.
pub(crate) fn create(name: &LinkName, owner: u32, queues: Queues) -> io::Result<()> {
    let tap = open(name, queues)?;
    sys::set_owner(tap.as_fd(), owner)?;
    sys::persist(tap.as_fd())
}

/// Opens an existing tap `count` times, once for each queue: descriptors for QEMU's `fd=` and
/// `fds=`. Blocks for as long as one system call does.
pub fn open_tap(name: &LinkName, queues: Queues, count: usize) -> io::Result<Vec<OwnedFd>> {
    // Opening a name that does not exist would make a tap that leads nowhere.
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    netdevice::name_to_index(socket, name.as_str())?;
    (0..count).map(|_| open(name, queues).map(OwnedFd::from)).collect()
}

fn open(name: &LinkName, queues: Queues) -> io::Result<File> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    sys::set_interface(device.as_fd(), name, queues)?;
    Ok(device)
}

#[expect(unsafe_code, reason = "taps are made by ioctl, which the compiler cannot check")]
mod sys {
    use std::io;
    use std::os::fd::BorrowedFd;

    use rustix::ioctl::{IntegerSetter, Opcode, Setter, ioctl, opcode};

    use super::Queues;
    use crate::name::LinkName;

    const SET_INTERFACE: Opcode = opcode::write::<i32>(b'T', 202);
    const SET_PERSIST: Opcode = opcode::write::<i32>(b'T', 203);
    const SET_OWNER: Opcode = opcode::write::<i32>(b'T', 204);

    const TAP: u16 = 0x0002;
    const NO_PACKET_INFO: u16 = 0x1000;
    const OFFLOAD_HEADER: u16 = 0x4000;
    const MULTI_QUEUE: u16 = 0x0100;

    /// `struct ifreq`: a name of 16 bytes, then a union of at most 24 that begins with the flags.
    #[repr(C, align(8))]
    struct InterfaceRequest {
        name: [u8; 16],
        flags: u16,
        rest: [u8; 22],
    }

    pub(super) fn set_interface(
        device: BorrowedFd<'_>,
        name: &LinkName,
        queues: Queues,
    ) -> io::Result<()> {
        let mut request = InterfaceRequest { name: [0; 16], flags: 0, rest: [0; 22] };
        request.name[..name.as_str().len()].copy_from_slice(name.as_str().as_bytes());
        request.flags = TAP | NO_PACKET_INFO | OFFLOAD_HEADER;
        if queues == Queues::Multi {
            request.flags |= MULTI_QUEUE;
        }
        // SAFETY: TUNSETIFF takes a pointer to a `struct ifreq`, which `Request` is, and the kernel
        // writes back no more than its 40 bytes, into the copy that the setter owns.
        unsafe { ioctl(device, Setter::<SET_INTERFACE, InterfaceRequest>::new(request)) }?;
        Ok(())
    }

    pub(super) fn set_owner(tap: BorrowedFd<'_>, owner: u32) -> io::Result<()> {
        // SAFETY: TUNSETOWNER takes the user's id in place of a pointer.
        unsafe { ioctl(tap, IntegerSetter::<SET_OWNER>::new_usize(owner as usize)) }?;
        Ok(())
    }

    pub(super) fn persist(tap: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: TUNSETPERSIST takes 0 or 1 in place of a pointer.
        unsafe { ioctl(tap, IntegerSetter::<SET_PERSIST>::new_usize(1)) }?;
        Ok(())
    }
}
