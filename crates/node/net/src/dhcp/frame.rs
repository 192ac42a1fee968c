//! Ethernet frames of DHCP and ARP on a guest's port. Pure.
//!
//! Frames come from a guest and are not believed: lengths are checked, and anything but a request
//! of the guest's own MAC address is left to others.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{DhcpReply, DhcpVerdict, answer};
use crate::dhcp::port::PortLease;
use crate::mac::Mac;

const ARP: u16 = 0x0806;
pub(super) const IPV4: u16 = 0x0800;
const ETHERNET: usize = 14;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const SERVER_PORT: u16 = 67;
const BROADCAST: [u8; 6] = [0xff; 6];
const UDP: u8 = 17;
/// Ethernet and IPv4, with addresses of 6 and 4 bytes.
const ARP_OF_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// Reaction to a frame of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FrameVerdict {
    /// Goes back to the guest.
    Send(Vec<u8>),
    /// The guest found another host using its address.
    Declined(Ipv4Addr),
    Ignore,
}

/// The MAC address of the server at this address: the same on all nodes, so that a guest that moves
/// renews its lease where it sent its requests before.
pub(super) fn server_mac(server: Ipv4Addr) -> Mac {
    Mac::derived(&format!("dhcp server {server}"))
}

fn bytes<const N: usize>(frame: &[u8], at: usize) -> Option<[u8; N]> {
    frame.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn number(frame: &[u8], at: usize) -> Option<u16> {
    bytes(frame, at).map(u16::from_be_bytes)
}

/// Answers a frame that came in on a guest's port.
pub(super) fn judge(frame: &[u8], own: &PortLease) -> FrameVerdict {
    if bytes(frame, 6) != Some(own.lease.mac.octets()) {
        return FrameVerdict::Ignore;
    }
    match number(frame, 12) {
        Some(ARP) => arp(frame, own).map_or(FrameVerdict::Ignore, FrameVerdict::Send),
        Some(IPV4) => {
            let payload = payload(frame, SERVER_PORT);
            payload.map_or(FrameVerdict::Ignore, |payload| dhcp(payload, own))
        }
        _ => FrameVerdict::Ignore,
    }
}

/// The payload of a datagram to a port.
pub(super) fn payload(frame: &[u8], port: u16) -> Option<&[u8]> {
    let packet = frame.get(ETHERNET..)?;
    let first = *packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    let is_fragment = number(packet, 6)? & 0x3fff != 0;
    if first >> 4 != 4 || header < IP_HEADER || *packet.get(9)? != UDP || is_fragment {
        return None;
    }
    let total = usize::from(number(packet, 2)?);
    let segment = packet.get(header..total)?;
    let length = usize::from(number(segment, 4)?);
    (number(segment, 2)? == port).then_some(())?;
    segment.get(UDP_HEADER..length)
}

fn dhcp(payload: &[u8], own: &PortLease) -> FrameVerdict {
    // A client identifies itself in the message: only the guest's own MAC address has a lease here.
    let leases = super::Leases::from([(own.lease.mac, own.lease.clone())]);
    match answer(payload, &own.server, &leases) {
        DhcpVerdict::Send(DhcpReply { message, to }) => {
            let from = own.server.address.addr();
            reply(from, own.lease.mac, to, &message)
                .map_or(FrameVerdict::Ignore, FrameVerdict::Send)
        }
        DhcpVerdict::Declined { address, .. } => FrameVerdict::Declined(address),
        DhcpVerdict::Ignore => FrameVerdict::Ignore,
    }
}

/// The sum of RFC 1071.
fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

/// A datagram of the server in a frame.
fn reply(from: Ipv4Addr, guest: Mac, to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let target = if to.ip().is_broadcast() { BROADCAST } else { guest.octets() };
    let sender = Station { mac: server_mac(from), address: SocketAddrV4::new(from, SERVER_PORT) };
    datagram(sender, target, to, payload)
}

/// The sender of a datagram.
#[derive(Clone, Copy)]
pub(super) struct Station {
    pub(super) mac: Mac,
    pub(super) address: SocketAddrV4,
}

/// A datagram to all stations in a frame. Nothing for one that is too long to exist.
pub(super) fn datagram_to_all(sender: Station, port: u16, payload: &[u8]) -> Option<Vec<u8>> {
    datagram(sender, BROADCAST, SocketAddrV4::new(Ipv4Addr::BROADCAST, port), payload)
}

/// A datagram in a frame. Nothing for one that is too long to exist.
fn datagram(sender: Station, target: [u8; 6], to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER + payload.len()).ok()?;
    let total = u16::try_from(IP_HEADER + usize::from(length)).ok()?;
    let mut header = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[12..16].copy_from_slice(&sender.address.ip().octets());
    header[16..20].copy_from_slice(&to.ip().octets());
    let sum = checksum(&[&header]);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut segment = [0; UDP_HEADER];
    segment[..2].copy_from_slice(&sender.address.port().to_be_bytes());
    segment[2..4].copy_from_slice(&to.port().to_be_bytes());
    segment[4..6].copy_from_slice(&length.to_be_bytes());
    let pseudo = [0, UDP];
    let sum = checksum(&[&header[12..20], &pseudo, &length.to_be_bytes(), &segment, payload]);
    // Zero would mean that there is none.
    segment[6..8].copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
    let station = sender.mac.octets();
    Some([&target, &station, &IPV4.to_be_bytes()[..], &header, &segment, payload].concat())
}

/// Answers a request for the address of the server, which only its guests can reach.
fn arp(frame: &[u8], own: &PortLease) -> Option<Vec<u8>> {
    let server = own.server.address.addr();
    let body = frame.get(ETHERNET..ETHERNET + 28)?;
    let is_request = bytes(body, 0) == Some(ARP_OF_IPV4) && number(body, 6) == Some(1);
    if !is_request || bytes(body, 24) != Some(server.octets()) {
        return None;
    }
    let (guest, sender) = (own.lease.mac.octets(), bytes::<4>(body, 14)?);
    let station = server_mac(server).octets();
    let head = [&guest[..], &station, &ARP.to_be_bytes(), &ARP_OF_IPV4, &[0, 2]].concat();
    Some([&head[..], &station, &server.octets(), &guest, &sender].concat())
}

#[cfg(test)]
mod tests {
    use dhcproto::v4::{DhcpOption, Message, MessageType, OptionCode};
    use dhcproto::{Decodable, Decoder, Encodable, Encoder};

    use super::*;
    use crate::dhcp::{DhcpOptions, DhcpServer, Lease};

    const GUEST: Mac = Mac::new([2, 0, 0, 0, 0, 5]);
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);

    fn own() -> PortLease {
        PortLease {
            lease: Lease {
                mac: GUEST,
                address: [10, 7, 0, 5].into(),
                options: DhcpOptions::default(),
            },
            server: DhcpServer {
                address: "10.7.0.2/24".parse().unwrap(),
                router: Some([10, 7, 0, 1].into()),
                dns: None,
                lease_seconds: 600,
            },
        }
    }

    fn request(chaddr: Mac) -> Vec<u8> {
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(7, none, none, none, none, &chaddr.octets());
        message.opts_mut().insert(DhcpOption::MessageType(MessageType::Discover));
        let mut payload = vec![];
        message.encode(&mut Encoder::new(&mut payload)).unwrap();
        let mut frame = reply(none, GUEST, SocketAddrV4::new(none, SERVER_PORT), &payload).unwrap();
        frame[6..12].copy_from_slice(&GUEST.octets());
        frame
    }

    #[test]
    fn a_request_is_answered_with_what_the_pool_says() {
        let FrameVerdict::Send(frame) = judge(&request(GUEST), &own()) else { panic!("no answer") };
        assert_eq!(bytes(&frame, 0), Some(GUEST.octets()));
        assert_eq!(bytes(&frame, 6), Some(server_mac(SERVER).octets()));
        assert_eq!(checksum(&[&frame[14..34]]), 0);
        let length = u16::try_from(frame.len() - 34).unwrap().to_be_bytes();
        assert_eq!(checksum(&[&frame[26..34], &[0, UDP], &length, &frame[34..]]), 0);
        let message = Message::decode(&mut Decoder::new(&frame[42..])).unwrap();
        assert_eq!(message.yiaddr(), Ipv4Addr::new(10, 7, 0, 5));
        let option = |code| message.opts().get(code).cloned();
        assert_eq!(
            option(OptionCode::ServerIdentifier),
            Some(DhcpOption::ServerIdentifier(SERVER))
        );
        let router = DhcpOption::Router(vec![[10, 7, 0, 1].into()]);
        assert_eq!(option(OptionCode::Router), Some(router));
        assert_eq!(option(OptionCode::DomainNameServer), None);
        assert_eq!(option(OptionCode::AddressLeaseTime), Some(DhcpOption::AddressLeaseTime(600)));
    }

    #[test]
    fn frames_of_others_and_broken_ones_are_ignored() {
        let other = Mac::new([2, 0, 0, 0, 0, 6]);
        let good = request(GUEST);
        let changed = |at: usize, byte: u8| {
            let mut frame = good.clone();
            frame[at] = byte;
            frame
        };
        for (name, frame) in [
            ("another sender", changed(11, 6)),
            ("another client", request(other)),
            ("IPv6", changed(12, 0x86)),
            ("TCP", changed(23, 6)),
            ("a fragment", changed(21, 1)),
            ("another port", changed(37, 68)),
            ("a header beyond the frame", changed(14, 0x4f)),
            ("a header too short", changed(14, 0x41)),
            ("a length beyond the frame", changed(16, 0xff)),
            ("a datagram shorter than its header", changed(39, 3)),
            ("nothing", vec![]),
        ] {
            assert_eq!(judge(&frame, &own()), FrameVerdict::Ignore, "{name}");
        }
        for length in 0..good.len() {
            assert_eq!(judge(&good[..length], &own()), FrameVerdict::Ignore, "{length}");
        }
    }

    #[test]
    fn the_server_answers_arp_for_its_own_address() {
        let guest = GUEST.octets();
        let ask = |target: [u8; 4]| {
            let head = [&BROADCAST[..], &guest, &ARP.to_be_bytes(), &ARP_OF_IPV4, &[0, 1]].concat();
            [&head[..], &guest, &[10, 7, 0, 5], &[0; 6], &target].concat()
        };
        let FrameVerdict::Send(frame) = judge(&ask(SERVER.octets()), &own()) else {
            panic!("no answer")
        };
        assert_eq!((frame.len(), number(&frame, 20)), (42, Some(2)));
        assert_eq!(bytes(&frame, 22), Some(server_mac(SERVER).octets()));
        assert_eq!(bytes(&frame, 38), Some([10, 7, 0, 5]));
        assert_eq!(judge(&ask([10, 7, 0, 1]), &own()), FrameVerdict::Ignore);
    }
}
