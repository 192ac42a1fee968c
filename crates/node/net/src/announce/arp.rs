//! Gratuitous ARP: a request for one's own address, from which all neighbours learn where it is.

use std::io;
use std::net::Ipv4Addr;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};

use crate::mac::Mac;
use crate::packet::LinkAddress;

const BROADCAST: [u8; 6] = [0xff; 6];
/// The EtherType of ARP.
const ARP: u16 = 0x0806;
/// Ethernet and ARP headers and the ARP body.
const FRAME: usize = 42;

/// The frame: sender and target of the request are the same address, as RFC 5227 has it.
fn frame(mac: Mac, address: Ipv4Addr) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    let parts: [&[u8]; 8] = [
        &BROADCAST,
        &mac.octets(),
        &ARP.to_be_bytes(),
        // Ethernet and IPv4, with addresses of 6 and 4 bytes; a request.
        &[0, 1, 8, 0, 6, 4, 0, 1],
        &mac.octets(),
        &address.octets(),
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
    sendto(&socket, &frame(mac, address), SendFlags::empty(), &to)?;
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
        assert_eq!(frame(mac, Ipv4Addr::new(10, 0, 0, 9)), expected);
    }
}
