//! DHCPv4 answers. Pure: a request and the leases in, the answer and where to send it out. The client for
//! interfaces of the host is in [`client`].
//!
//! Leases are given by the caller and fixed: an Ethernet address has an address or it is ignored.
//! So no state is kept between requests, and a restart loses nothing. Of a client's statements
//! only its Ethernet address is trusted, which the rules of the port verify.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use dhcproto::v4::{
    DhcpOption, Flags, HType, Message, MessageType, Opcode, OptionCode, UnknownOption,
};
use dhcproto::{Decodable, Decoder, Encodable, Encoder};
use hickory_proto::rr::Name;
use ipnet::Ipv4Net;

use crate::mac::Mac;

pub(crate) mod client;
mod frame;
pub(crate) mod host;
pub(crate) mod port;
pub(crate) mod server;

const CLIENT_PORT: u16 = 68;
/// Long, so that a guest keeps its address while we are away for an upgrade.
const LEASE_SECONDS: u32 = 86_400;
/// BOOTP's message size, which some firmware insists on.
const SMALLEST_ANSWER: usize = 300;
const PRIVATE_CODES: std::ops::RangeInclusive<u8> = 224..=254;

/// The server as guests see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpServer {
    /// Its address, with the length of the prefix that guests share.
    pub address: Ipv4Net,
    pub router: Option<Ipv4Addr>,
    /// The name server of guests whose lease names none.
    pub dns: Option<Ipv4Addr>,
    pub lease_seconds: u32,
}

impl DhcpServer {
    /// A host that is router and name server of its guests.
    pub(crate) fn gateway(address: Ipv4Net) -> Self {
        let own = Some(address.addr());
        Self { address, router: own, dns: own, lease_seconds: LEASE_SECONDS }
    }
}

/// All leases, by the guest's Ethernet address.
pub(crate) type Leases = BTreeMap<Mac, Lease>;

/// The address of a guest and the options that it gets with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub mac: Mac,
    pub address: Ipv4Addr,
    pub options: DhcpOptions,
}

/// DHCP options of a guest besides its address and the router.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DhcpOptions {
    /// That of the server when empty.
    pub dns: Vec<Ipv4Addr>,
    pub mtu: Option<u16>,
    pub hostname: Option<String>,
    pub domain: Option<String>,
    pub search: Vec<String>,
    pub ntp: Vec<Ipv4Addr>,
    pub tftp_server: Option<String>,
    pub bootfile: Option<String>,
    pub private: Vec<PrivateOption>,
}

/// An option that means something only to those who agreed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateOption {
    pub code: u8,
    pub value: String,
}

/// Why options cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("private option {code} must be between {} and {}", PRIVATE_CODES.start(), PRIVATE_CODES.end())]
    PrivateCode { code: u8 },
    #[error("private option {code} is given twice")]
    PrivateTwice { code: u8 },
    #[error("{field} must have 1 to {limit} bytes")]
    Length { field: &'static str, limit: usize },
    #[error("{field} {name:?} is not a domain name")]
    Name { field: &'static str, name: String },
}

impl DhcpOptions {
    pub fn check(&self) -> Result<(), OptionError> {
        let limited = |field, text: &Option<String>, limit: usize| match text {
            Some(text) if text.is_empty() || text.len() > limit => {
                Err(OptionError::Length { field, limit })
            }
            _ => Ok(()),
        };
        limited("hostname", &self.hostname, 255)?;
        limited("domain", &self.domain, 255)?;
        limited("tftp server name", &self.tftp_server, 255)?;
        // It must also fit the fixed field, with its closing zero.
        limited("boot file name", &self.bootfile, 127)?;
        for name in &self.search {
            if Name::from_ascii(name).is_err() {
                return Err(OptionError::Name { field: "search domain", name: name.clone() });
            }
        }
        for (index, PrivateOption { code, value }) in self.private.iter().enumerate() {
            if !PRIVATE_CODES.contains(code) {
                return Err(OptionError::PrivateCode { code: *code });
            }
            if self.private[..index].iter().any(|other| other.code == *code) {
                return Err(OptionError::PrivateTwice { code: *code });
            }
            limited("the value of a private option", &Some(value.clone()), 255)?;
        }
        Ok(())
    }
}

/// A message and who it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DhcpReply {
    pub(crate) message: Vec<u8>,
    pub(crate) to: SocketAddrV4,
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DhcpVerdict {
    Send(DhcpReply),
    /// The guest found another host using its address.
    Declined {
        mac: Mac,
        address: Ipv4Addr,
    },
    Ignore,
}

/// Answers one datagram.
pub(crate) fn answer(datagram: &[u8], server: &DhcpServer, leases: &Leases) -> DhcpVerdict {
    let Ok(request) = Message::decode(&mut Decoder::new(datagram)) else {
        return DhcpVerdict::Ignore;
    };
    // The length is the sender's word: reading the address with a wrong one would panic.
    if request.hlen() != 6 || request.htype() != HType::Eth {
        return DhcpVerdict::Ignore;
    }
    let Ok(mac) = Mac::try_from(request.chaddr()) else { return DhcpVerdict::Ignore };
    let is_ours = request.opcode() == Opcode::BootRequest && request.giaddr().is_unspecified();
    let (Some(lease), true) = (leases.get(&mac), is_ours) else { return DhcpVerdict::Ignore };
    match request.opts().msg_type() {
        Some(MessageType::Discover) => reply(&request, lease, server, MessageType::Offer),
        Some(MessageType::Request) => match requested(&request, server) {
            Requested::OfOthers => DhcpVerdict::Ignore,
            Requested::Address(address) if address == lease.address => {
                reply(&request, lease, server, MessageType::Ack)
            }
            // Its former address is not its own any more: it must request a new one now.
            Requested::Address(_) => reply(&request, lease, server, MessageType::Nak),
        },
        Some(MessageType::Inform) if request.ciaddr() == lease.address => {
            reply(&request, lease, server, MessageType::Ack)
        }
        Some(MessageType::Decline) => DhcpVerdict::Declined { mac, address: lease.address },
        _ => DhcpVerdict::Ignore,
    }
}

/// The lease that a client wants to have confirmed.
enum Requested {
    Address(Ipv4Addr),
    /// It chose another server's offer.
    OfOthers,
}

/// RFC 2131, 4.3.2: a client that selects or reboots names the address in an option, one that
/// renews or rebinds has it already.
fn requested(request: &Message, own: &DhcpServer) -> Requested {
    if let Some(DhcpOption::ServerIdentifier(server)) =
        request.opts().get(OptionCode::ServerIdentifier)
        && *server != own.address.addr()
    {
        return Requested::OfOthers;
    }
    match request.opts().get(OptionCode::RequestedIpAddress) {
        Some(DhcpOption::RequestedIpAddress(address)) => Requested::Address(*address),
        _ => Requested::Address(request.ciaddr()),
    }
}

fn reply(request: &Message, lease: &Lease, server: &DhcpServer, kind: MessageType) -> DhcpVerdict {
    let is_inform = request.opts().msg_type() == Some(MessageType::Inform);
    let is_nak = kind == MessageType::Nak;
    let yours = if is_nak || is_inform { Ipv4Addr::UNSPECIFIED } else { lease.address };
    let client = if is_nak { Ipv4Addr::UNSPECIFIED } else { request.ciaddr() };
    let mut answer = Message::new_with_id(
        request.xid(),
        client,
        yours,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::UNSPECIFIED,
        request.chaddr(),
    );
    answer.set_opcode(Opcode::BootReply).set_flags(request.flags());
    let options = answer.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(server.address.addr()));
    // RFC 6842: the client identifier is echoed in the answer.
    if let Some(id) = request.opts().get(OptionCode::ClientIdentifier) {
        options.insert(id.clone());
    }
    if !is_nak {
        if !is_inform {
            options.insert(DhcpOption::AddressLeaseTime(server.lease_seconds));
        }
        describe(&mut answer, lease, server);
    }
    let to = destination(request, yours, is_nak);
    match encode(&answer) {
        Some(message) => DhcpVerdict::Send(DhcpReply { message, to }),
        None => DhcpVerdict::Ignore,
    }
}

/// RFC 2131, 4.1. A client without an address can be reached by it all the same, because the host
/// knows its Ethernet address beforehand; only those that cannot take that ask for a broadcast.
fn destination(request: &Message, yours: Ipv4Addr, is_nak: bool) -> SocketAddrV4 {
    let wants_broadcast = Flags::broadcast(&request.flags());
    let address = match request.ciaddr() {
        _ if is_nak => Ipv4Addr::BROADCAST,
        client if !client.is_unspecified() => client,
        _ if wants_broadcast => Ipv4Addr::BROADCAST,
        _ => yours,
    };
    SocketAddrV4::new(address, CLIENT_PORT)
}

fn describe(answer: &mut Message, lease: &Lease, own: &DhcpServer) {
    let Lease { options: wish, .. } = lease;
    let dns = match wish.dns.as_slice() {
        [] => own.dns.into_iter().collect(),
        some => some.to_vec(),
    };
    if let Some(file) = &wish.bootfile {
        answer.set_fname_str(file);
    }
    if let Some(server) = wish.tftp_server.as_ref().and_then(|name| name.parse::<Ipv4Addr>().ok()) {
        answer.set_siaddr(server);
    }
    let search: Vec<_> =
        wish.search.iter().filter_map(|name| Name::from_ascii(name).ok()).collect();
    let some = |list: &[Ipv4Addr]| (!list.is_empty()).then(|| list.to_vec());
    let bytes = |text: &String| text.clone().into_bytes();
    let all = [
        Some(DhcpOption::SubnetMask(own.address.netmask())),
        Some(DhcpOption::BroadcastAddr(own.address.broadcast())),
        own.router.map(|router| DhcpOption::Router(vec![router])),
        some(&dns).map(DhcpOption::DomainNameServer),
        wish.mtu.map(DhcpOption::InterfaceMtu),
        wish.hostname.clone().map(DhcpOption::Hostname),
        wish.domain.clone().map(DhcpOption::DomainName),
        (!search.is_empty()).then_some(DhcpOption::DomainSearch(search)),
        some(&wish.ntp).map(DhcpOption::NtpServers),
        wish.tftp_server.as_ref().map(bytes).map(DhcpOption::TFTPServerName),
        wish.bootfile.as_ref().map(bytes).map(DhcpOption::BootfileName),
    ];
    let options = answer.opts_mut();
    for option in all.into_iter().flatten() {
        options.insert(option);
    }
    for PrivateOption { code, value } in &wish.private {
        let option = UnknownOption::new(OptionCode::from(*code), bytes(value));
        options.insert(DhcpOption::Unknown(option));
    }
}

fn encode(message: &Message) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(SMALLEST_ANSWER);
    message.encode(&mut Encoder::new(&mut bytes)).ok()?;
    if bytes.len() < SMALLEST_ANSWER {
        bytes.resize(SMALLEST_ANSWER, 0);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
