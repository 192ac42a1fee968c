//! ICMP echo requests over IPv4 and IPv6, through an interface of choice. Needs the right to open raw
//! sockets.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use rustix::net::netdevice::name_to_index;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::health::PingTarget;

/// Which ICMP a message is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IcmpVersion {
    V4,
    V6,
}

impl IcmpVersion {
    fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The types of a request and its answer.
    fn echo(self) -> (u8, u8) {
        match self {
            Self::V4 => (8, 0),
            Self::V6 => (128, 129),
        }
    }
}

/// Type, code, checksum, identifier, sequence and eight bytes that recognise the answer.
const LENGTH: usize = 16;

/// Whether the address answers within the time.
pub async fn ping(target: &PingTarget, token: u64, timeout: Duration) -> io::Result<bool> {
    let version = IcmpVersion::of(target.address);
    let (domain, protocol) = match version {
        IcmpVersion::V4 => (Domain::IPV4, Protocol::ICMPV4),
        IcmpVersion::V6 => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    if let Some(link) = &target.link {
        socket.bind_device(Some(link.as_str().as_bytes()))?;
    }
    socket.set_nonblocking(true)?;
    // Only for its asynchronous calls: datagrams of a raw socket are sent and received alike.
    let socket = UdpSocket::from_std(socket.into())?;
    let to = destination(&socket, target)?;
    let answered = tokio::time::timeout(timeout, async {
        socket.send_to(&request(token, version), to).await?;
        let mut buffer = [0; 128];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            if from.ip() == to.ip() && is_answer(&buffer[..length], token, version) {
                return Ok(());
            }
        }
    });
    match answered.await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(failure)) if is_unreachable(&failure) => Ok(false),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Ok(false),
    }
}

/// Link-local addresses are those of one interface.
fn destination(socket: &UdpSocket, target: &PingTarget) -> io::Result<SocketAddr> {
    match (target.address, &target.link) {
        (IpAddr::V6(address), Some(link)) if address.is_unicast_link_local() => {
            let scope = name_to_index(socket, link.as_str())?;
            Ok(SocketAddr::V6(SocketAddrV6::new(address, 0, 0, scope)))
        }
        (address, _) => Ok(SocketAddr::new(address, 0)),
    }
}

fn is_unreachable(failure: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
    [HostUnreachable, NetworkDown, NetworkUnreachable].contains(&failure.kind())
}

fn request(token: u64, version: IcmpVersion) -> [u8; LENGTH] {
    let mut packet = [0; LENGTH];
    packet[0] = version.echo().0;
    packet[8..].copy_from_slice(&token.to_be_bytes());
    // The kernel computes that of ICMPv6 itself, over the addresses as well.
    let sum = checksum(&packet);
    packet[2..4].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The checksum of RFC 1071.
fn checksum(packet: &[u8; LENGTH]) -> u16 {
    let words =
        packet.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

/// Whether a packet answers the request with this token; IPv4 packets come with their header.
fn is_answer(packet: &[u8], token: u64, version: IcmpVersion) -> bool {
    let header = match version {
        IcmpVersion::V4 => packet.first().map_or(0, |first| usize::from(first & 15) * 4),
        IcmpVersion::V6 => 0,
    };
    let Some(body) = packet.get(header..header + LENGTH) else { return false };
    body[0] == version.echo().1 && body[8..] == token.to_be_bytes()
}

/// The gateways of the host's default routes; none where routes cannot be read.
pub fn default_gateways() -> Vec<PingTarget> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let target = |(address, link): (IpAddr, String)| {
        Some(PingTarget { address, link: Some(link.parse().ok()?) })
    };
    let mut all = gateways(&read("/proc/net/route"));
    all.extend(gateways_ipv6(&read("/proc/net/ipv6_route")));
    all.into_iter().filter_map(target).collect()
}

/// The gateways of default routes, with the names of their interfaces.
fn gateways(routes: &str) -> Vec<(IpAddr, String)> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [link, destination, gateway, ..] = fields.as_slice() else { return None };
        let (destination, gateway) =
            (u32::from_str_radix(destination, 16).ok()?, u32::from_str_radix(gateway, 16).ok()?);
        let address = Ipv4Addr::from(gateway.swap_bytes());
        (destination == 0 && gateway != 0).then(|| (address.into(), (*link).to_owned()))
    };
    routes.lines().skip(1).filter_map(read).collect()
}

/// The same for IPv6, where the kernel writes a line per route and no title.
fn gateways_ipv6(routes: &str) -> Vec<(IpAddr, String)> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, length, _, _, gateway, .., link] = fields.as_slice() else {
            return None;
        };
        let number = |text: &str| u128::from_str_radix(text, 16).ok();
        let is_default = number(destination)? == 0 && number(length)? == 0;
        let gateway = Ipv6Addr::from(number(gateway)?);
        let is_gateway = is_default && !gateway.is_unspecified();
        is_gateway.then(|| (gateway.into(), (*link).to_owned()))
    };
    routes.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_checksum_and_answers_a_token() {
        let token = 0x0102_0304_0506_0708;
        let packet = request(token, IcmpVersion::V4);
        assert_eq!(checksum(&packet), 0, "the sum of a packet with its checksum is all ones");
        let mut answer = vec![0x45; 20];
        answer.extend(packet);
        assert!(!is_answer(&answer, token, IcmpVersion::V4), "a request is no answer");
        answer[20] = IcmpVersion::V4.echo().1;
        assert!(is_answer(&answer, token, IcmpVersion::V4));
        assert!(!is_answer(&answer, 7, IcmpVersion::V4));
        assert!(!is_answer(&[], 7, IcmpVersion::V4) && !is_answer(&[0x45; 21], 7, IcmpVersion::V4));
        let mut answer = request(token, IcmpVersion::V6);
        assert!(!is_answer(&answer, token, IcmpVersion::V6), "a request is no answer");
        answer[0] = IcmpVersion::V6.echo().1;
        assert!(
            is_answer(&answer, token, IcmpVersion::V6) && !is_answer(&answer, 7, IcmpVersion::V6)
        );
    }

    #[test]
    fn default_routes_name_their_gateways() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n\
            eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        assert_eq!(gateways(routes), [([192, 0, 2, 1].into(), "eth0".to_owned())]);
        assert_eq!(gateways(""), []);
        let zero = "0".repeat(32);
        let gateway = "fe800000000000000000000000000001";
        let routes = format!(
            "{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00000003     eth0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n\
             20010db8{} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     eth0\n",
            "0".repeat(24)
        );
        let expected: IpAddr = "fe80::1".parse().unwrap();
        assert_eq!(gateways_ipv6(&routes), [(expected, "eth0".to_owned())]);
    }
}
