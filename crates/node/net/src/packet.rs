//! Packet sockets: addresses of interfaces, for sockets that carry whole Ethernet frames.

use std::io;

use rustix::net::AddressFamily;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

/// All EtherTypes: the only choice that sees frames before a bridge takes them from its port.
pub(crate) const ALL_PROTOCOLS: u16 = 0x0003;

/// An Ethernet address on an interface: `struct sockaddr_ll` of packet(7).
#[repr(C)]
pub(crate) struct LinkAddress {
    family: u16,
    protocol: u16,
    index: i32,
    hardware: u16,
    packet: u8,
    length: u8,
    address: [u8; 8],
}

#[expect(unsafe_code, reason = "no crate in use has a type for addresses of interfaces")]
// SAFETY: the structure has the layout of sockaddr_ll, is passed with its own size, and lives as
// long as the call.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let length = u32::try_from(size_of::<Self>()).unwrap_or_default();
        f(std::ptr::from_ref(self).cast(), length)
    }
}

impl LinkAddress {
    /// A station on the interface with this index; for a socket to bind to, the interface only.
    pub(crate) fn new(index: u32, protocol: u16, station: [u8; 6]) -> io::Result<Self> {
        let mut address = [0; 8];
        address[..6].copy_from_slice(&station);
        Ok(Self {
            family: AddressFamily::PACKET.as_raw(),
            protocol: protocol.to_be(),
            index: i32::try_from(index).map_err(io::Error::other)?,
            hardware: 0,
            packet: 0,
            length: 6,
            address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_size_that_the_kernel_expects() {
        assert_eq!(size_of::<LinkAddress>(), 20);
    }
}
