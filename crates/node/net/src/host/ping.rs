//! ICMP echo requests, through an interface of choice. Needs the right to open raw sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::health::PingTarget;

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Type, code, checksum, identifier, sequence and eight bytes that recognise the answer.
const LENGTH: usize = 16;

/// Whether the address answers within the time.
pub async fn ping(target: &PingTarget, token: u64, timeout: Duration) -> io::Result<bool> {
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
    if let Some(link) = &target.link {
        socket.bind_device(Some(link.as_str().as_bytes()))?;
    }
    socket.set_nonblocking(true)?;
    // Only for its asynchronous calls: datagrams of a raw socket are sent and received alike.
    let socket = UdpSocket::from_std(socket.into())?;
    let to = SocketAddr::V4(SocketAddrV4::new(target.address, 0));
    let answered = tokio::time::timeout(timeout, async {
        socket.send_to(&request(token), to).await?;
        let mut buffer = [0; 128];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).await?;
            if from.ip() == to.ip() && is_answer(&buffer[..length], token) {
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

fn is_unreachable(failure: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
    [HostUnreachable, NetworkDown, NetworkUnreachable].contains(&failure.kind())
}

fn request(token: u64) -> [u8; LENGTH] {
    let mut packet = [0; LENGTH];
    packet[0] = ECHO_REQUEST;
    packet[8..].copy_from_slice(&token.to_be_bytes());
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

/// Whether a packet with its IPv4 header answers the request with this token.
fn is_answer(packet: &[u8], token: u64) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let Some(body) = packet.get(header..header + LENGTH) else { return false };
    body[0] == ECHO_REPLY && body[8..] == token.to_be_bytes()
}

/// The gateways of the host's default routes; none where routes cannot be read.
pub fn default_gateways() -> Vec<PingTarget> {
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let target = |(address, link): (Ipv4Addr, String)| {
        Some(PingTarget { address, link: Some(link.parse().ok()?) })
    };
    gateways(&routes).into_iter().filter_map(target).collect()
}

/// The gateways of default routes, with the names of their interfaces.
fn gateways(routes: &str) -> Vec<(Ipv4Addr, String)> {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [link, destination, gateway, ..] = fields.as_slice() else { return None };
        let (destination, gateway) =
            (u32::from_str_radix(destination, 16).ok()?, u32::from_str_radix(gateway, 16).ok()?);
        let address = Ipv4Addr::from(gateway.swap_bytes());
        (destination == 0 && gateway != 0).then(|| (address, (*link).to_owned()))
    };
    routes.lines().skip(1).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_checksum_and_answers_a_token() {
        let packet = request(0x0102_0304_0506_0708);
        assert_eq!(checksum(&packet), 0, "the sum of a packet with its checksum is all ones");
        let mut answer = vec![0x45; 20];
        answer.extend(packet);
        assert!(!is_answer(&answer, 0x0102_0304_0506_0708), "a request is no answer");
        answer[20] = ECHO_REPLY;
        assert!(is_answer(&answer, 0x0102_0304_0506_0708));
        assert!(!is_answer(&answer, 7) && !is_answer(&[], 7) && !is_answer(&[0x45; 21], 7));
    }

    #[test]
    fn default_routes_name_their_gateways() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n\
            eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n\
            eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
        assert_eq!(gateways(routes), [(Ipv4Addr::new(192, 0, 2, 1), "eth0".to_owned())]);
        assert_eq!(gateways(""), []);
    }
}
