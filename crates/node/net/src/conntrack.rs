//! Connection tracking entries of UDP services whose endpoint is gone.
//!
//! The kernel translates an address once per flow, and a UDP client that keeps sending from one
//! port never starts a new flow. Its entry is therefore deleted when the endpoint that it leads to
//! does not serve the service any more; the next datagram is balanced again. TCP needs none of
//! this: its clients connect anew.
//!
//! The messages are those of `nfnetlink_conntrack`: the table is read as one dump, and entries are
//! deleted by their original tuple and identity.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

use crate::service::Service;
use crate::want::Protocol;

/// The kernel answers at once; this bounds a defect.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// As large as the kernel makes one part of a dump.
const BUFFER: usize = 64 * 1024;
const HEADER: usize = 16;
/// `struct nfgenmsg`.
const FAMILY_HEADER: usize = 4;

// include/uapi/linux/netfilter/nfnetlink.h, nfnetlink_conntrack.h and netlink.h
const CT_GET: u16 = 0x0101;
const CT_DELETE: u16 = 0x0102;
const DUMP: u16 = 0x0301;
const ACKNOWLEDGE: u16 = 0x0005;
const ERROR: u16 = 2;
const DONE: u16 = 3;
const AF_INET: u8 = 2;
const IPPROTO_UDP: u8 = 17;
const TYPE_MASK: u16 = 0x3fff;
const TUPLE_ORIG: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
const IP_V4_SRC: u16 = 1;
const IP_V4_DST: u16 = 2;
const PROTO_NUM: u16 = 1;
const PROTO_SRC_PORT: u16 = 2;
const PROTO_DST_PORT: u16 = 3;

/// An address and a port.
type SocketKey = (Ipv4Addr, u16);

/// A tracked UDP flow over IPv4.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Flow {
    /// Where the client sends to.
    wanted: SocketKey,
    /// The endpoint that answers it.
    server: SocketKey,
    /// The attributes that name the entry, as the kernel wrote them.
    name: Vec<u8>,
}

/// Deletes the entries of flows to UDP ports of `before` and `services` whose endpoint is not one of
/// `services`, and says how many.
pub(crate) async fn delete_stale(before: &[Service], services: &[Service]) -> io::Result<usize> {
    let ports = UdpPorts::new(before, services);
    if ports.is_empty() {
        return Ok(0);
    }
    let run = move || {
        let socket = Socket::open()?;
        let flows = socket.flows()?;
        let stale = flows.iter().filter(|flow| ports.is_stale(flow));
        stale.map(|flow| socket.delete(flow)).sum()
    };
    tokio::task::spawn_blocking(run).await.map_err(io::Error::other)?
}

/// The endpoints of each UDP port. Endpoints are the current ones, also for services that were
/// deleted.
#[derive(Debug, Default)]
struct UdpPorts {
    addresses: BTreeMap<SocketKey, Vec<SocketKey>>,
    node_ports: BTreeMap<u16, Vec<SocketKey>>,
}

impl UdpPorts {
    fn new(before: &[Service], services: &[Service]) -> Self {
        let mut all = Self::default();
        let is_udp = |service: &&Service| service.protocol == Protocol::Udp;
        for service in before.iter().filter(is_udp) {
            all.add(service, &[]);
        }
        for service in services.iter().filter(is_udp) {
            let endpoints = service.endpoints.iter().map(|own| (own.address, own.port));
            all.add(service, &endpoints.collect::<Vec<_>>());
        }
        all
    }

    fn add(&mut self, service: &Service, endpoints: &[SocketKey]) {
        let own = std::iter::once(&service.address).chain(&service.external_addresses);
        for address in own {
            self.addresses.entry((*address, service.port)).or_default().extend(endpoints);
        }
        if let Some(port) = service.node_port {
            self.node_ports.entry(port).or_default().extend(endpoints);
        }
    }

    fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// A flow to a node port is ours only if its address was translated: the same port of another
    /// host is none of ours.
    fn is_stale(&self, flow: &Flow) -> bool {
        if let Some(endpoints) = self.addresses.get(&flow.wanted) {
            return !endpoints.contains(&flow.server);
        }
        let endpoints = self.node_ports.get(&flow.wanted.1);
        flow.server != flow.wanted
            && endpoints.is_some_and(|endpoints| !endpoints.contains(&flow.server))
    }
}

struct Socket(rustix::fd::OwnedFd);

impl Socket {
    fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::NETFILTER),
        )?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self(socket))
    }

    fn flows(&self) -> io::Result<Vec<Flow>> {
        self.send(&request(CT_GET, DUMP, &[]))?;
        let mut flows = Vec::new();
        self.answers(|kind, body| match kind {
            DONE => Some(Ok(())),
            ERROR => Some(status(body)),
            _ => {
                flows.extend(flow(body));
                None
            }
        })?;
        Ok(flows)
    }

    /// Deletes an entry; says how many that were.
    fn delete(&self, flow: &Flow) -> io::Result<usize> {
        self.send(&request(CT_DELETE, ACKNOWLEDGE, &flow.name))?;
        let answer = self.answers(|kind, body| (kind == ERROR).then(|| status(body)));
        match answer {
            // It has ended by itself.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            answer => answer.map(|()| 1),
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, message, SendFlags::empty())?;
        Ok(())
    }

    /// Reads messages until one of them is the last.
    fn answers(
        &self,
        mut take: impl FnMut(u16, &[u8]) -> Option<io::Result<()>>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let (length, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = buffer.get(..length).unwrap_or_default();
            while let Some((kind, body, next)) = message(rest) {
                if let Some(last) = take(kind, body) {
                    return last;
                }
                rest = next;
            }
        }
    }
}

/// A request about IPv4 entries.
fn request(kind: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + FAMILY_HEADER + attributes.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::new();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([AF_INET, 0, 0, 0]);
    bytes.extend(attributes);
    bytes
}

/// The type and body of the first message, and what follows it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::try_from(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEADER..length)?;
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// The status in a message of type [`ERROR`]; an acknowledgement has the code 0.
fn status(body: &[u8]) -> io::Result<()> {
    let code = body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

/// The attributes in `bytes`: type, value, and all bytes of each.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8], &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & TYPE_MASK;
        let value = bytes.get(4..length)?;
        let padded = length.next_multiple_of(4).min(bytes.len());
        let (whole, rest) = bytes.split_at(padded);
        bytes = rest;
        Some((kind, value, whole))
    })
}

fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, ..)| *kind == wanted).map(|(_, value, _)| value)
}

/// The flow of an entry, if it is one of UDP.
fn flow(body: &[u8]) -> Option<Flow> {
    let body = body.get(FAMILY_HEADER..)?;
    let orig = attribute(body, TUPLE_ORIG)?;
    let reply = attribute(body, TUPLE_REPLY)?;
    if *attribute(attribute(orig, TUPLE_PROTO)?, PROTO_NUM)?.first()? != IPPROTO_UDP {
        return None;
    }
    let named = attributes(body).filter(|(kind, ..)| [TUPLE_ORIG, ID, ZONE].contains(kind));
    Some(Flow {
        wanted: end(orig, IP_V4_DST, PROTO_DST_PORT)?,
        server: end(reply, IP_V4_SRC, PROTO_SRC_PORT)?,
        name: named.flat_map(|(_, _, whole)| whole.iter().copied()).collect(),
    })
}

fn end(tuple: &[u8], address: u16, port: u16) -> Option<SocketKey> {
    let octets: [u8; 4] = attribute(attribute(tuple, TUPLE_IP)?, address)?.try_into().ok()?;
    let port: [u8; 2] = attribute(attribute(tuple, TUPLE_PROTO)?, port)?.try_into().ok()?;
    Some((octets.into(), u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::{Endpoint, EndpointScope, Location};

    fn service(endpoints: &[u8]) -> Service {
        let endpoint = |last: &u8| Endpoint {
            address: [10, 52, 0, *last].into(),
            port: 53,
            location: Location::ThisNode,
        };
        Service {
            id: "default/dns".to_owned(),
            address: [10, 53, 0, 9].into(),
            external_addresses: vec![[192, 0, 2, 7].into()],
            protocol: Protocol::Udp,
            port: 53,
            node_port: Some(30053),
            affinity: None,
            internal: EndpointScope::Cluster,
            external: EndpointScope::Cluster,
            endpoints: endpoints.iter().map(endpoint).collect(),
        }
    }

    #[test]
    fn flows_to_endpoints_that_are_gone_are_stale() {
        let (before, after) = ([service(&[2, 3])], [service(&[3, 4])]);
        let (cluster, external) = ([10, 53, 0, 9], [192, 0, 2, 7]);
        let (node, other) = ([192, 0, 2, 1], [198, 51, 100, 1]);
        let (gone, stays) = ([10, 52, 0, 2], [10, 52, 0, 3]);
        for (wanted, server, services, expected) in [
            ((cluster, 53), (gone, 53), &after[..], true),
            ((cluster, 53), (stays, 53), &after[..], false),
            ((cluster, 53), (stays, 54), &after[..], true),
            ((cluster, 54), (gone, 53), &after[..], false),
            ((external, 53), (gone, 53), &after[..], true),
            ((external, 53), (stays, 53), &after[..], false),
            ((node, 30053), (gone, 53), &after[..], true),
            ((node, 30053), (stays, 53), &after[..], false),
            ((other, 30053), (other, 30053), &after[..], false), // not translated
            ((other, 53), (other, 53), &after[..], false),
            ((cluster, 53), (stays, 53), &[][..], true), // the service is gone
        ] {
            let flow = Flow {
                wanted: (wanted.0.into(), wanted.1),
                server: (server.0.into(), server.1),
                name: vec![],
            };
            let found = UdpPorts::new(&before, services).is_stale(&flow);
            assert_eq!(found, expected, "{flow:?}");
        }
        let tcp = Service { protocol: Protocol::Tcp, ..service(&[2]) };
        assert!(UdpPorts::new(&[], &[tcp]).is_empty());
    }

    fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn tuple(kind: u16, from: ([u8; 4], u16), to: ([u8; 4], u16), protocol: u8) -> Vec<u8> {
        let nested = 0x8000;
        let ip = [attribute_bytes(1, &from.0), attribute_bytes(2, &to.0)].concat();
        let proto = [
            attribute_bytes(1, &[protocol]),
            attribute_bytes(2, &from.1.to_be_bytes()),
            attribute_bytes(3, &to.1.to_be_bytes()),
        ]
        .concat();
        let both = [attribute_bytes(1 | nested, &ip), attribute_bytes(2 | nested, &proto)].concat();
        attribute_bytes(kind | nested, &both)
    }

    #[test]
    fn a_flow_is_read_from_its_entry() {
        let (client, wanted, server) =
            (([10, 52, 0, 2], 999), ([10, 53, 0, 9], 53), ([10, 52, 0, 3], 5353));
        let entry = |protocol: u8| {
            [
                vec![AF_INET, 0, 0, 0],
                tuple(TUPLE_ORIG, client, wanted, protocol),
                tuple(TUPLE_REPLY, server, client, protocol),
                attribute_bytes(3, &[0; 4]),
                attribute_bytes(ID, &[1, 2, 3, 4]),
            ]
            .concat()
        };
        let found = flow(&entry(IPPROTO_UDP)).unwrap();
        assert_eq!(found.wanted, ([10, 53, 0, 9].into(), 53));
        assert_eq!(found.server, ([10, 52, 0, 3].into(), 5353));
        let name =
            [tuple(TUPLE_ORIG, client, wanted, IPPROTO_UDP), attribute_bytes(ID, &[1, 2, 3, 4])];
        assert_eq!(found.name, name.concat());
        assert_eq!(flow(&entry(6)), None, "TCP");
        let whole = entry(IPPROTO_UDP);
        for end in 0..whole.len() {
            let _ = flow(&whole[..end]); // what is cut off does no harm
        }
    }

    #[test]
    fn messages_are_read_one_after_the_other() {
        let bytes = [request(CT_GET, 2, &[]), request(DONE, 2, &[])].concat();
        let (kind, body, rest) = message(&bytes).unwrap();
        assert_eq!((kind, body), (CT_GET, &[AF_INET, 0, 0, 0][..]));
        let (kind, _, rest) = message(rest).unwrap();
        assert_eq!((kind, rest.len()), (DONE, 0));
        assert!(message(rest).is_none() && message(&bytes[..10]).is_none());
        assert!(status(&0_i32.to_ne_bytes()).is_ok());
        assert_eq!(status(&(-2_i32).to_ne_bytes()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
