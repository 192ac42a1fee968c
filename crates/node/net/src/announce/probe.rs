//! ARP probes: whether another station on a wire has an address, as RFC 5227 asks before an address
//! is taken.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::arp::{ARP, BROADCAST, FRAME, frame};
use crate::mac::Mac;
use crate::packet::LinkAddress;

/// How often is asked, and how long an answer may take each time.
const PROBES: usize = 3;
const ANSWER_TIME: Duration = Duration::from_millis(250);
/// Where the addresses of the sender are in a frame.
const SENDER_MAC: std::ops::Range<usize> = 22..28;
const SENDER_ADDRESS: std::ops::Range<usize> = 28..32;

/// The station that has the address, if one other than `mac` says so.
pub(crate) async fn probe(index: u32, mac: Mac, address: Ipv4Addr) -> io::Result<Option<Mac>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // Without a protocol it receives nothing until it is bound.
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    bind(&socket, &LinkAddress::new(index, ARP, [0; 6])?)?;
    // Only for its registration with the runtime: frames go through the descriptor itself.
    let socket = UdpSocket::from_std(std::net::UdpSocket::from(socket))?;
    for _ in 0..PROBES {
        let to = LinkAddress::new(index, ARP, BROADCAST)?;
        // The sender has no address yet.
        let request = frame(mac, Ipv4Addr::UNSPECIFIED, address);
        sendto(&socket, &request, SendFlags::empty(), &to)?;
        let received = async {
            loop {
                let mut bytes = [0; 128];
                let receive = || Ok(recv(&socket, &mut bytes[..], RecvFlags::empty())?.0);
                let length = socket.async_io(Interest::READABLE, receive).await?;
                if let Some(other) = holder(&bytes[..length.min(bytes.len())], mac, address) {
                    return io::Result::Ok(other);
                }
            }
        };
        if let Ok(answer) = tokio::time::timeout(ANSWER_TIME, received).await {
            return answer.map(Some);
        }
    }
    Ok(None)
}

/// The sender of a frame, if it is another station that says that it has the address.
fn holder(frame: &[u8], own: Mac, address: Ipv4Addr) -> Option<Mac> {
    let is_arp = frame.len() >= FRAME && frame[12..14] == ARP.to_be_bytes();
    if !is_arp || frame[SENDER_ADDRESS] != address.octets() {
        return None;
    }
    Mac::try_from(&frame[SENDER_MAC]).ok().filter(|mac| *mac != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_with_the_address_is_known_by_what_it_sends() {
        let mac = |last: u8| Mac::try_from([2, 0, 0, 0, 0, last].as_slice()).unwrap();
        let address = Ipv4Addr::new(10, 0, 0, 9);
        let other = Ipv4Addr::new(10, 0, 0, 8);
        for (frame, expected) in [
            (frame(mac(2), address, address), Some(mac(2))),
            (frame(mac(2), address, other), Some(mac(2))),
            (frame(mac(2), other, address), None),
            // Another host probes, and the own announcement is received.
            (frame(mac(2), Ipv4Addr::UNSPECIFIED, address), None),
            (frame(mac(1), address, address), None),
        ] {
            assert_eq!(holder(&frame, mac(1), address), expected);
        }
        assert_eq!(holder(&frame(mac(2), address, address)[..41], mac(1), address), None);
    }
}
