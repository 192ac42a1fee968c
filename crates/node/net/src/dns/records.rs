//! Names of services, which are replaced as a whole when services change. Names of guests, which
//! come and go one by one, are in [`super::Names`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use hickory_proto::rr::rdata::{A, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};

use super::{NamesError, TTL, key, parse};

/// The weight that the ports of one name share.
const WEIGHT: usize = 100;

/// DNS data of services.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRecords {
    addresses: BTreeMap<String, BTreeSet<Ipv4Addr>>,
    pointers: BTreeMap<Ipv4Addr, Name>,
    /// Ports, and the names of those who answer there.
    ports: BTreeMap<String, Vec<(u16, Name)>>,
    aliases: BTreeMap<String, Name>,
}

impl ServiceRecords {
    /// Adds an address to a name.
    pub fn insert_address(&mut self, name: &str, address: Ipv4Addr) -> Result<(), NamesError> {
        self.addresses.entry(key(&parse(name)?)).or_default().insert(address);
        Ok(())
    }

    /// Says what the name of an address is; the first one stays.
    pub fn insert_pointer(&mut self, address: Ipv4Addr, name: &str) -> Result<(), NamesError> {
        let name = parse(name)?;
        self.pointers.entry(address).or_insert(name);
        Ok(())
    }

    /// Adds a port to a name like `_http._tcp.web.example`, at which `target` answers.
    pub fn insert_port(&mut self, name: &str, port: u16, target: &str) -> Result<(), NamesError> {
        let (name, target) = (key(&parse(name)?), parse(target)?);
        let known = self.ports.entry(name).or_default();
        if !known.contains(&(port, target.clone())) {
            known.push((port, target));
        }
        Ok(())
    }

    /// Makes a name another one for `target`.
    pub fn insert_alias(&mut self, name: &str, target: &str) -> Result<(), NamesError> {
        self.aliases.insert(key(&parse(name)?), parse(target)?);
        Ok(())
    }

    pub(super) fn pointer(&self, address: Ipv4Addr) -> Option<&Name> {
        self.pointers.get(&address)
    }

    pub(super) fn alias(&self, name: &str) -> Option<&Name> {
        self.aliases.get(name)
    }

    /// The addresses of a name; none when the name is not known.
    pub(super) fn addresses(&self, name: &str) -> Option<&BTreeSet<Ipv4Addr>> {
        self.addresses.get(name)
    }

    /// The records of a name beside its addresses; none when the name is not known.
    pub(super) fn ports(
        &self,
        name: &str,
        asked: &Name,
        wanted: RecordType,
    ) -> Option<Vec<Record>> {
        let ports = self.ports.get(name)?;
        if !matches!(wanted, RecordType::SRV | RecordType::ANY) {
            return Some(vec![]);
        }
        let weight = u16::try_from(WEIGHT / ports.len().max(1)).unwrap_or_default().max(1);
        let record = |(port, target): &(u16, Name)| {
            let data = RData::SRV(SRV::new(0, weight, *port, target.clone()));
            Record::from_rdata(asked.clone(), TTL, data)
        };
        Some(ports.iter().map(record).collect())
    }

    /// The addresses of those named in `records`, which spares clients a second question.
    pub(super) fn glue(&self, records: &[Record]) -> Vec<Record> {
        let targets: BTreeSet<&Name> = records
            .iter()
            .filter_map(|record| match &record.data {
                RData::SRV(data) => Some(&data.target),
                _ => None,
            })
            .collect();
        let address = |target: &Name| {
            let addresses = self.addresses(&key(target)).into_iter().flatten();
            let record =
                |address: &Ipv4Addr| Record::from_rdata(target.clone(), TTL, RData::A(A(*address)));
            addresses.map(record).collect::<Vec<_>>()
        };
        targets.into_iter().flat_map(address).collect()
    }
}
