//! Gratuitous ARP: a request for one's own address, from which all neighbours learn where it is.

use std::io;
use std::net::Ipv4Addr;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};

use crate::mac::Mac;
use crate::packet::LinkAddress;

pub(super) const BROADCAST: [u8; 6] = [0xff; 6];
/// The EtherType of ARP.
pub(super) const ARP: u16 = 0x0806;
/// Ethernet and ARP headers and the ARP body.
pub(super) const FRAME: usize = 42;

/// A request of `sender` for an address. In an announcement both are the same, and a probe has no
/// sender, as RFC 5227 has it.
pub(super) fn frame(mac: Mac, sender: Ipv4Addr, address: Ipv4Addr) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    let parts: [&[u8]; 8] = [
        &BROADCAST,
        &mac.octets(),
        &ARP.to_be_bytes(),
        // Ethernet and IPv4, with addresses of 6 and 4 bytes; a request.
        &[0, 1, 8, 0, 6, 4, 0, 1],
        &mac.octets(),
        &sender.octets(),
        &[0; 6],
        &address.octets(),
    ];
    let bytes = parts.concat();
    frame.copy_from_slice(&bytes);
    frame
}

/// Sends one announcement.
pub(super) fn send(index: u32, mac: Mac, address: Ipv4Addr) -> io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol it receives nothing.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    let to = LinkAddress::new(index, ARP, BROADCAST)?;
    sendto(&socket, &frame(mac, address, address), SendFlags::empty(), &to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_names_the_address_twice() {
        let mac = Mac::try_from([2, 0, 0, 0, 0, 1].as_slice()).unwrap();
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2,
            0, 0, 0, 0, 1, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0, 10, 0, 0, 9,
        ];
        let address = Ipv4Addr::new(10, 0, 0, 9);
        assert_eq!(frame(mac, address, address), expected);
    }
}
