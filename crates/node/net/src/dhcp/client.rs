//! A DHCPv4 client (RFC 2131) for one interface of the host. Pure: messages and the time in, messages and
//! leases out.
//!
//! ```text
//!  Rebooting ─────────────ack──────────────────────┐
//!     │ nak, silence                               ▼
//!  Selecting ──offer──► Requesting ──ack──► Bound ──half of the lease──► asks again
//!     ▲                     │ nak, silence    │ nak, or the lease has ended
//!     └─────────────────────┴─────────────────┘
//! ```
//!
//! Every message is a broadcast, renewals as well: they need no route, and pass relays. Only the address
//! is taken: routes and name servers of a VLAN of machines are not those of the host. An offer without a
//! subnet mask or a time is ignored.

use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::{DhcpOption, Flags, HType, Message, MessageType, Opcode, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable, Encoder};
use ipnet::Ipv4Net;

use crate::mac::Mac;

/// Between two attempts, doubled up to the last.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(64);
/// DHCPREQUEST messages for one offer or an earlier lease, before DHCPDISCOVER starts again.
const REQUESTS: u32 = 4;
/// A lease is not renewed more often than this.
const SHORTEST_RENEWAL: Duration = Duration::from_secs(30);
/// Shorter leases are taken for this time.
const SHORTEST_LEASE: u32 = 60;

/// An address of the host for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLease {
    pub address: Ipv4Net,
    pub server: Ipv4Addr,
    pub seconds: u32,
}

/// Progress of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ClientState {
    /// Asks for the address that it had before.
    Rebooting {
        address: Ipv4Addr,
    },
    Selecting,
    Requesting {
        address: Ipv4Addr,
        server: Ipv4Addr,
    },
    Bound {
        lease: HostLease,
        until: Duration,
    },
}

/// The change of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseNews {
    None,
    Bound(HostLease),
    /// There is none, or none any more.
    Lost,
}

/// The next actions of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientStep {
    /// The payload of a datagram to all DHCP servers.
    pub(super) send: Option<Vec<u8>>,
    pub(super) news: LeaseNews,
    /// When to call again, on the clock of the caller.
    pub(super) at: Duration,
}

/// The client of one interface.
#[derive(Debug)]
pub(super) struct DhcpClient {
    mac: Mac,
    transaction: u32,
    state: ClientState,
    attempts: u32,
}

impl DhcpClient {
    /// A client that asks for the address of an earlier start first.
    pub(super) fn new(mac: Mac, transaction: u32, earlier: Option<Ipv4Addr>) -> Self {
        let state = match earlier {
            Some(address) => ClientState::Rebooting { address },
            None => ClientState::Selecting,
        };
        Self { mac, transaction, state, attempts: 0 }
    }

    /// The time has come that the last step named, or the client has just begun.
    pub(super) fn on_time(&mut self, now: Duration) -> ClientStep {
        let mut news = LeaseNews::None;
        match self.state {
            ClientState::Bound { until, .. } if now >= until => {
                self.search();
                news = LeaseNews::Lost;
            }
            ClientState::Rebooting { .. } if self.attempts >= REQUESTS => {
                self.search();
                news = LeaseNews::Lost;
            }
            ClientState::Requesting { .. } if self.attempts >= REQUESTS => self.search(),
            _ => {}
        }
        self.attempts += 1;
        ClientStep { send: self.message(), news, at: now + self.pause(now) }
    }

    /// A datagram from a server; nothing if it does not concern this client now.
    pub(super) fn on_message(&mut self, now: Duration, payload: &[u8]) -> Option<ClientStep> {
        let message = Message::decode(&mut Decoder::new(payload)).ok()?;
        // The length is the sender's word: reading the address with a wrong one would panic.
        let is_own = (message.hlen(), message.htype()) == (6, HType::Eth)
            && message.opcode() == Opcode::BootReply
            && message.xid() == self.transaction
            && message.chaddr() == self.mac.octets();
        let kind = message.opts().msg_type().filter(|_| is_own)?;
        match (&self.state, kind) {
            (ClientState::Selecting, MessageType::Offer) => {
                let offer = read_lease(&message)?;
                let (address, server) = (offer.address.addr(), offer.server);
                self.enter(ClientState::Requesting { address, server });
                Some(self.on_time(now))
            }
            (ClientState::Selecting, _) => None,
            (state, MessageType::Ack) => {
                let lease = read_lease(&message)?;
                // Another address than the one that was asked for is another server's.
                if state.address() != Some(lease.address.addr()) {
                    return None;
                }
                let until = now + Duration::from_secs(lease.seconds.into());
                self.enter(ClientState::Bound { lease, until });
                let news = LeaseNews::Bound(lease);
                Some(ClientStep { send: None, news, at: now + renewal(until - now) })
            }
            (state, MessageType::Nak) => {
                let news = match state {
                    ClientState::Requesting { .. } => LeaseNews::None,
                    _ => LeaseNews::Lost,
                };
                self.search();
                Some(ClientStep { send: None, news, at: now + FIRST_RETRY })
            }
            _ => None,
        }
    }

    fn enter(&mut self, state: ClientState) {
        self.state = state;
        self.attempts = 0;
    }

    /// A new transaction: late answers to the earlier one are not for it.
    fn search(&mut self) {
        self.transaction = self.transaction.wrapping_add(1);
        self.enter(ClientState::Selecting);
    }

    /// How long to wait for an answer.
    fn pause(&self, now: Duration) -> Duration {
        match self.state {
            ClientState::Bound { until, .. } => renewal(until.saturating_sub(now)),
            _ => (FIRST_RETRY * (1 << self.attempts.saturating_sub(1).min(5))).min(LAST_RETRY),
        }
    }

    /// The message that the present state sends.
    fn message(&self) -> Option<Vec<u8>> {
        let none = Ipv4Addr::UNSPECIFIED;
        let current = match &self.state {
            ClientState::Bound { lease, .. } => lease.address.addr(),
            _ => none,
        };
        let mac = self.mac.octets();
        let mut message = Message::new_with_id(self.transaction, current, none, none, none, &mac);
        message.set_flags(Flags::default().set_broadcast());
        let options = message.opts_mut();
        let kind = match self.state {
            ClientState::Selecting => MessageType::Discover,
            _ => MessageType::Request,
        };
        options.insert(DhcpOption::MessageType(kind));
        options.insert(DhcpOption::ClientIdentifier([&[1], &mac[..]].concat()));
        let wanted = vec![OptionCode::SubnetMask, OptionCode::AddressLeaseTime];
        options.insert(DhcpOption::ParameterRequestList(wanted));
        match self.state {
            ClientState::Rebooting { address } => {
                options.insert(DhcpOption::RequestedIpAddress(address));
            }
            ClientState::Requesting { address, server } => {
                options.insert(DhcpOption::RequestedIpAddress(address));
                options.insert(DhcpOption::ServerIdentifier(server));
            }
            ClientState::Selecting | ClientState::Bound { .. } => {}
        }
        let mut payload = Vec::new();
        message.encode(&mut Encoder::new(&mut payload)).ok()?;
        Some(payload)
    }
}

impl ClientState {
    /// The address that is asked for.
    fn address(&self) -> Option<Ipv4Addr> {
        match self {
            Self::Selecting => None,
            Self::Rebooting { address } | Self::Requesting { address, .. } => Some(*address),
            Self::Bound { lease, .. } => Some(lease.address.addr()),
        }
    }
}

/// When to ask again, if a lease ends after `left`.
fn renewal(left: Duration) -> Duration {
    (left / 2).max(SHORTEST_RENEWAL).min(left.max(Duration::from_secs(1)))
}

fn read_lease(message: &Message) -> Option<HostLease> {
    let option = |code| message.opts().get(code);
    let Some(DhcpOption::SubnetMask(mask)) = option(OptionCode::SubnetMask) else { return None };
    let Some(DhcpOption::ServerIdentifier(server)) = option(OptionCode::ServerIdentifier) else {
        return None;
    };
    let Some(DhcpOption::AddressLeaseTime(seconds)) = option(OptionCode::AddressLeaseTime) else {
        return None;
    };
    let address = message.yiaddr();
    let is_usable = !(address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_link_local());
    let address = Ipv4Net::with_netmask(address, *mask).ok().filter(|_| is_usable)?;
    // A default route would lead all traffic of the host into the VLAN.
    let is_subnet = (8..=30).contains(&address.prefix_len());
    let seconds = (*seconds).max(SHORTEST_LEASE);
    is_subnet.then_some(HostLease { address, server: *server, seconds })
}

#[cfg(test)]
mod tests {
    use super::super::{DhcpOptions, DhcpReply, DhcpServer, DhcpVerdict, Lease, Leases, answer};
    use super::*;

    const MAC: Mac = Mac::new([2, 0, 0, 0, 0, 5]);
    const SECOND: Duration = Duration::from_secs(1);

    /// The answer of our own server.
    fn ask(payload: &[u8], address: [u8; 4]) -> Vec<u8> {
        let lease = Lease { mac: MAC, address: address.into(), options: DhcpOptions::default() };
        let server = DhcpServer {
            address: "198.51.100.1/24".parse().unwrap(),
            router: Some([198, 51, 100, 1].into()),
            dns: None,
            lease_seconds: 600,
        };
        match answer(payload, &server, &Leases::from([(MAC, lease)])) {
            DhcpVerdict::Send(DhcpReply { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    }

    fn bound(earlier: Option<Ipv4Addr>) -> DhcpClient {
        let mut client = DhcpClient::new(MAC, 7, earlier);
        let discover = client.on_time(SECOND).send.unwrap();
        let step = client.on_message(SECOND, &ask(&discover, [198, 51, 100, 9])).unwrap();
        if earlier.is_none() {
            let request = step.send.unwrap();
            client.on_message(SECOND, &ask(&request, [198, 51, 100, 9])).unwrap();
        }
        client
    }

    #[test]
    fn a_client_gets_an_address_and_renews_it() {
        let mut client = DhcpClient::new(MAC, 7, None);
        let step = client.on_time(SECOND);
        assert_eq!((step.at, step.news), (3 * SECOND, LeaseNews::None));
        let offer = ask(&step.send.unwrap(), [198, 51, 100, 9]);
        let request = client.on_message(2 * SECOND, &offer).unwrap().send.unwrap();
        assert_eq!(client.on_message(2 * SECOND, &offer), None, "a second offer is too late");
        let ack = ask(&request, [198, 51, 100, 9]);
        let step = client.on_message(2 * SECOND, &ack).unwrap();
        let LeaseNews::Bound(lease) = step.news else { panic!("{step:?}") };
        assert_eq!(lease.address.to_string(), "198.51.100.9/24");
        assert_eq!((lease.seconds, step.at), (600, 302 * SECOND));
        let renewal = client.on_time(302 * SECOND);
        assert_eq!(renewal.at, 452 * SECOND);
        let ack = ask(&renewal.send.unwrap(), [198, 51, 100, 9]);
        let step = client.on_message(303 * SECOND, &ack).unwrap();
        assert!(matches!(step.news, LeaseNews::Bound(_)));
        // No server answers any longer.
        assert_eq!(client.on_time(603 * SECOND).news, LeaseNews::None);
        let step = client.on_time(903 * SECOND);
        assert_eq!(step.news, LeaseNews::Lost);
        let discover = Message::decode(&mut Decoder::new(&step.send.unwrap())).unwrap();
        assert_eq!(discover.opts().msg_type(), Some(MessageType::Discover));
        assert_ne!(discover.xid(), 7, "late answers are not for it");
    }

    #[test]
    fn the_address_of_an_earlier_start_is_asked_for_first() {
        let client = bound(Some([198, 51, 100, 9].into()));
        assert!(matches!(client.state, ClientState::Bound { .. }));
        let mut client = DhcpClient::new(MAC, 7, Some([198, 51, 100, 9].into()));
        let mut now = SECOND;
        for _ in 0..REQUESTS {
            let step = client.on_time(now);
            assert_eq!(step.news, LeaseNews::None);
            now = step.at;
        }
        assert_eq!(client.on_time(now).news, LeaseNews::Lost, "no server knows it");
    }

    #[test]
    fn a_refusal_begins_a_new_search() {
        let mut client = bound(None);
        let request = client.on_time(400 * SECOND).send.unwrap();
        // The server has another address for it by now.
        let nak = ask(&request, [198, 51, 100, 77]);
        let message = Message::decode(&mut Decoder::new(&nak)).unwrap();
        assert_eq!(message.opts().msg_type(), Some(MessageType::Nak));
        let step = client.on_message(400 * SECOND, &nak).unwrap();
        assert_eq!((step.news, &client.state), (LeaseNews::Lost, &ClientState::Selecting));
    }

    #[test]
    fn answers_for_others_and_useless_ones_are_ignored() {
        let fresh = || DhcpClient::new(MAC, 7, None);
        let discover = fresh().on_time(SECOND).send.unwrap();
        let offer = ask(&discover, [198, 51, 100, 9]);
        let change = |edit: &dyn Fn(&mut Message)| {
            let mut message = Message::decode(&mut Decoder::new(&offer)).unwrap();
            edit(&mut message);
            let mut bytes = Vec::new();
            message.encode(&mut Encoder::new(&mut bytes)).unwrap();
            bytes
        };
        let cases: [(&str, Vec<u8>); 6] = [
            ("another transaction", change(&|own| _ = own.set_xid(8))),
            ("another client", change(&|own| _ = own.set_chaddr(&[2, 0, 0, 0, 0, 6]))),
            ("no mask", change(&|own| drop(own.opts_mut().remove(OptionCode::SubnetMask)))),
            ("no time", change(&|own| drop(own.opts_mut().remove(OptionCode::AddressLeaseTime)))),
            (
                "the whole world",
                change(&|own| {
                    let mask = DhcpOption::SubnetMask(Ipv4Addr::UNSPECIFIED);
                    drop(own.opts_mut().insert(mask));
                }),
            ),
            ("a request", discover.clone()),
        ];
        for (name, bytes) in cases {
            assert_eq!(fresh().on_message(SECOND, &bytes), None, "{name}");
        }
        for length in 0..offer.len().min(240) {
            assert_eq!(fresh().on_message(SECOND, &offer[..length]), None, "{length}");
        }
    }
}
