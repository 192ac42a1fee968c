//! Names of guests and services. Pure: a question and the known names in, an answer or "pass it on" out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME, PTR};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use ipnet::{IpNet, Ipv4Net};

pub(crate) mod records;
pub(crate) mod server;

use records::ServiceRecords;

/// Short, because guests come and go.
const TTL: u32 = 5;

/// The names that we answer for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsNames {
    addresses: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    names: BTreeMap<Ipv4Addr, Name>,
    zones: BTreeSet<String>,
    networks: Vec<Ipv4Net>,
    records: ServiceRecords,
    /// Names of guests on other nodes.
    remote: ServiceRecords,
}

/// Why a name cannot be answered for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    #[error("{name:?} is not a domain name")]
    Name { name: String },
}

impl DnsNames {
    /// Names below `zone` that are not known do not exist, and no upstream is asked about them.
    pub fn own_zone(&mut self, zone: &str) -> Result<(), NamesError> {
        self.zones.insert(key(&parse(zone)?));
        Ok(())
    }

    /// Addresses of `network` without a name have none, and no upstream is asked about them.
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

    /// Forgets all records of services and takes these.
    pub fn replace_records(&mut self, records: ServiceRecords) {
        self.records = records;
    }

    /// Forgets all guests of other nodes and takes these.
    pub fn replace_remote(&mut self, remote: ServiceRecords) {
        self.remote = remote;
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

/// The decision about a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DnsVerdict {
    Answer(Vec<u8>),
    PassOn,
    /// The name is another one for `target`, which `question` asks about.
    Alias {
        target: Name,
        question: Vec<u8>,
    },
    Ignore,
}

/// Handles one message from a guest. An answer over UDP may have as many bytes as the question
/// says; a larger one is truncated and marked so, and the guest asks again over TCP.
pub(crate) fn answer(message: &[u8], names: &DnsNames, transport: Transport) -> DnsVerdict {
    let Ok(request) = Message::from_vec(message) else { return DnsVerdict::Ignore };
    if request.metadata.message_type != MessageType::Query {
        return DnsVerdict::Ignore;
    }
    if request.metadata.op_code != OpCode::Query {
        return respond(&request, ResponseCode::NotImp, vec![], vec![]);
    }
    let [query] = request.queries.as_slice() else {
        return respond(&request, ResponseCode::FormErr, vec![], vec![]);
    };
    let limit = match transport {
        Transport::Udp => usize::from(request.max_payload()).max(SMALLEST_LIMIT),
        Transport::Tcp => usize::from(u16::MAX),
    };
    let glue = |records: &[Record]| names.records.glue(records);
    let verdict = match look_up(query, names) {
        DnsLookup::Records(records) => {
            let glue = glue(&records);
            respond(&request, ResponseCode::NoError, records, glue)
        }
        DnsLookup::Nothing => respond(&request, ResponseCode::NXDomain, vec![], vec![]),
        DnsLookup::NotOurs => DnsVerdict::PassOn,
        DnsLookup::Alias(target) => ask_about(&request, query, target),
    };
    match verdict {
        DnsVerdict::Answer(bytes) if bytes.len() > limit => truncated(&request),
        verdict => verdict,
    }
}

/// How a question came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

/// The size that every client accepts over UDP.
const SMALLEST_LIMIT: usize = 512;

fn truncated(request: &Message) -> DnsVerdict {
    let mut response = response_to(request, ResponseCode::NoError);
    response.metadata.truncation = true;
    response.to_vec().map_or(DnsVerdict::Ignore, DnsVerdict::Answer)
}

fn ask_about(request: &Message, query: &Query, target: Name) -> DnsVerdict {
    let mut message = Message::query();
    message.metadata.id = request.metadata.id;
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(target.clone(), query.query_type()));
    match message.to_vec() {
        Ok(question) => DnsVerdict::Alias { target, question },
        Err(_) => DnsVerdict::Ignore,
    }
}

/// The answer to `message`, whose name is another one for `target`, from what was answered about
/// `target`.
pub(crate) fn with_alias(message: &[u8], target: &Name, answered: &[u8]) -> Option<Vec<u8>> {
    let request = Message::from_vec(message).ok()?;
    let answered = Message::from_vec(answered).ok()?;
    let asked = request.queries.first()?.name().clone();
    let alias = Record::from_rdata(asked, TTL, RData::CNAME(CNAME(target.clone())));
    let mut response = response_to(&request, answered.metadata.response_code);
    response.add_answers([alias].into_iter().chain(answered.answers));
    response.to_vec().ok()
}

/// An answer that says that we could not find out.
pub(crate) fn failure(message: &[u8]) -> Option<Vec<u8>> {
    let request = Message::from_vec(message).ok()?;
    match respond(&request, ResponseCode::ServFail, vec![], vec![]) {
        DnsVerdict::Answer(answer) => Some(answer),
        _ => None,
    }
}

enum DnsLookup {
    /// The name exists; there may be no record of the wanted type.
    Records(Vec<Record>),
    Nothing,
    NotOurs,
    Alias(Name),
}

fn look_up(query: &Query, names: &DnsNames) -> DnsLookup {
    if query.query_class() != DNSClass::IN {
        return DnsLookup::NotOurs;
    }
    if query.query_type() == RecordType::PTR
        && let Ok(IpNet::V4(net)) = query.name().parse_arpa_name()
        && net.prefix_len() == 32
    {
        return reverse(query.name(), net.addr(), names);
    }
    let name = key(query.name());
    if let Some(target) = names.records.alias(&name) {
        return DnsLookup::Alias(target.clone());
    }
    if let Some(ports) = names.records.ports(&name, query.name(), query.query_type()) {
        return DnsLookup::Records(ports);
    }
    let (guests, services) = (names.addresses.get(&name), names.records.addresses(&name));
    let remote = names.remote.addresses(&name);
    if guests.is_none() && services.is_none() && remote.is_none() {
        return if names.is_in_own_zone(&name) { DnsLookup::Nothing } else { DnsLookup::NotOurs };
    }
    let addresses: BTreeSet<_> =
        guests.into_iter().chain(services).chain(remote).flatten().collect();
    let wants_addresses = matches!(query.query_type(), RecordType::A | RecordType::ANY);
    let record =
        |address: &Ipv4Addr| Record::from_rdata(query.name().clone(), TTL, RData::A(A(*address)));
    DnsLookup::Records(addresses.into_iter().filter(|_| wants_addresses).map(record).collect())
}

fn reverse(asked: &Name, address: Ipv4Addr, names: &DnsNames) -> DnsLookup {
    let guest = names.names.get(&address).or_else(|| names.remote.pointer(address));
    match guest.or_else(|| names.records.pointer(address)) {
        Some(name) => {
            let target = RData::PTR(PTR(name.clone()));
            DnsLookup::Records(vec![Record::from_rdata(asked.clone(), TTL, target)])
        }
        None if names.networks.iter().any(|network| network.contains(&address)) => {
            DnsLookup::Nothing
        }
        None => DnsLookup::NotOurs,
    }
}

fn respond(
    request: &Message,
    code: ResponseCode,
    records: Vec<Record>,
    glue: Vec<Record>,
) -> DnsVerdict {
    let mut response = response_to(request, code);
    response.add_answers(records);
    response.additionals.extend(glue);
    response.to_vec().map_or(DnsVerdict::Ignore, DnsVerdict::Answer)
}

fn response_to(request: &Message, code: ResponseCode) -> Message {
    let mut response = Message::response(request.metadata.id, request.metadata.op_code);
    response.metadata.authoritative = code != ResponseCode::ServFail;
    response.metadata.recursion_desired = request.metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.response_code = code;
    response.add_queries(request.queries.iter().cloned());
    response
}

#[cfg(test)]
mod tests;
