//! Names of guests. Pure: a question and the known names in, an answer or "pass it on" out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use ipnet::{IpNet, Ipv4Net};

pub(crate) mod server;

/// Short, because guests come and go.
const TTL: u32 = 5;

/// The names that we answer for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    addresses: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    names: BTreeMap<Ipv4Addr, Name>,
    zones: BTreeSet<String>,
    networks: Vec<Ipv4Net>,
}

/// Why a name cannot be answered for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    #[error("{name:?} is not a domain name")]
    Name { name: String },
}

impl Names {
    /// Names below `zone` that are not known do not exist, and nobody else is asked about them.
    pub fn own_zone(&mut self, zone: &str) -> Result<(), NamesError> {
        self.zones.insert(key(&parse(zone)?));
        Ok(())
    }

    /// Addresses of `network` without a name have none, and nobody else is asked about them.
    pub fn own_network(&mut self, network: Ipv4Net) {
        self.networks.push(network);
    }

    /// Adds an address to a name. The first name of an address is what the address leads to.
    pub fn insert(&mut self, name: &str, address: Ipv4Addr) -> Result<(), NamesError> {
        let name = parse(name)?;
        self.addresses.entry(key(&name)).or_default().insert(address);
        self.names.entry(address).or_insert(name);
        Ok(())
    }

    /// Forgets everything about an address.
    pub fn remove(&mut self, address: Ipv4Addr) {
        self.names.remove(&address);
        self.addresses.retain(|_, addresses| {
            addresses.remove(&address);
            !addresses.is_empty()
        });
    }

    fn is_in_own_zone(&self, key: &str) -> bool {
        let inside = |zone: &String| {
            key.strip_suffix(zone.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.zones.iter().any(inside)
    }
}

fn parse(name: &str) -> Result<Name, NamesError> {
    let refused = || NamesError::Name { name: name.to_owned() };
    let mut parsed = Name::from_ascii(name).map_err(|_| refused())?;
    if parsed.iter().next().is_none() || !parsed.iter().all(|label| label.is_ascii()) {
        return Err(refused());
    }
    parsed.set_fqdn(true);
    Ok(parsed)
}

/// Names are equal without regard to case.
fn key(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

/// What to do with a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Answer(Vec<u8>),
    PassOn,
    Ignore,
}

/// Looks at one message from a guest.
pub(crate) fn answer(message: &[u8], names: &Names) -> Verdict {
    let Ok(request) = Message::from_vec(message) else { return Verdict::Ignore };
    if request.metadata.message_type != MessageType::Query {
        return Verdict::Ignore;
    }
    if request.metadata.op_code != OpCode::Query {
        return respond(&request, ResponseCode::NotImp, vec![]);
    }
    let [query] = request.queries.as_slice() else {
        return respond(&request, ResponseCode::FormErr, vec![]);
    };
    match look_up(query, names) {
        Found::Records(records) => respond(&request, ResponseCode::NoError, records),
        Found::Nothing => respond(&request, ResponseCode::NXDomain, vec![]),
        Found::NotOurs => Verdict::PassOn,
    }
}

/// An answer that says that we could not find out.
pub(crate) fn failure(message: &[u8]) -> Option<Vec<u8>> {
    let request = Message::from_vec(message).ok()?;
    match respond(&request, ResponseCode::ServFail, vec![]) {
        Verdict::Answer(answer) => Some(answer),
        _ => None,
    }
}

enum Found {
    /// The name exists; there may be no record of the wanted type.
    Records(Vec<Record>),
    Nothing,
    NotOurs,
}

fn look_up(query: &Query, names: &Names) -> Found {
    if query.query_class() != DNSClass::IN {
        return Found::NotOurs;
    }
    if query.query_type() == RecordType::PTR
        && let Ok(IpNet::V4(net)) = query.name().parse_arpa_name()
        && net.prefix_len() == 32
    {
        return reverse(query.name(), net.addr(), names);
    }
    let name = key(query.name());
    let Some(addresses) = names.addresses.get(&name) else {
        return if names.is_in_own_zone(&name) { Found::Nothing } else { Found::NotOurs };
    };
    let wants_addresses = matches!(query.query_type(), RecordType::A | RecordType::ANY);
    let record =
        |address: &Ipv4Addr| Record::from_rdata(query.name().clone(), TTL, RData::A(A(*address)));
    Found::Records(addresses.iter().filter(|_| wants_addresses).map(record).collect())
}

fn reverse(asked: &Name, address: Ipv4Addr, names: &Names) -> Found {
    match names.names.get(&address) {
        Some(name) => {
            let target = RData::PTR(PTR(name.clone()));
            Found::Records(vec![Record::from_rdata(asked.clone(), TTL, target)])
        }
        None if names.networks.iter().any(|network| network.contains(&address)) => Found::Nothing,
        None => Found::NotOurs,
    }
}

fn respond(request: &Message, code: ResponseCode, records: Vec<Record>) -> Verdict {
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.authoritative = code != ResponseCode::ServFail;
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.response_code = code;
    response.add_queries(request.queries.iter().cloned());
    response.add_answers(records);
    response.to_vec().map_or(Verdict::Ignore, Verdict::Answer)
}

#[cfg(test)]
mod tests;
