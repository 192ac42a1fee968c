//! Addresses that this node announces for a while: they are on an interface with a lifetime, after
//! which the kernel removes them, and neighbours learn of them by gratuitous ARP.
//!
//! Such an address carries the label of its [`AddressUse`] and has a prefix of 32 bits. No other is
//! ever changed: an address that the node has for itself is refused. Which node may announce is not
//! decided here.

mod arp;
pub(crate) mod probe;

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use base::{Stop, Tasks};
use futures_util::{StreamExt, TryStreamExt};
use ipnet::{IpNet, Ipv4Net};
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, CacheInfo};
use rtnetlink::{AddressMessageBuilder, Handle, MulticastGroup};
use tokio::sync::watch;

use crate::apply::absent_is_fine;
use crate::mac::Mac;
use crate::name::LinkName;
use crate::observe::ObserveError;
use crate::plan::GROUP;
use crate::uplink::{ObservedKind, ObservedLink, ObservedLinks, observe};

/// The use of announced addresses. The announcer of one use does not see the addresses of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressUse {
    LoadBalancer,
    /// The virtual address of the cluster.
    Cluster,
}

impl AddressUse {
    /// Marks the addresses that are announced. Not every kernel keeps the protocol of an address.
    fn label(self) -> &'static str {
        match self {
            Self::LoadBalancer => "sheaf:lb",
            Self::Cluster => "sheaf:vip",
        }
    }
}

/// Begins the labels of all announced addresses.
pub(crate) const ANNOUNCED: &str = "sheaf:";

/// An interface on which addresses can be announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnnounceLink {
    pub name: LinkName,
    pub index: u32,
    pub mac: Mac,
    /// Subnets of the node's own addresses.
    pub subnets: Vec<Ipv4Net>,
}

/// The links on which a node could announce addresses, and the addresses that it announces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedAnnouncements {
    pub links: Vec<AnnounceLink>,
    /// Announced addresses, with the index of their interface.
    pub announced: BTreeSet<(Ipv4Addr, u32)>,
    /// Addresses that the node has for itself.
    pub own: BTreeSet<Ipv4Addr>,
}

impl ObservedAnnouncements {
    /// The interface for an address: the one with the smallest subnet that contains it.
    pub fn link_for(&self, address: Ipv4Addr) -> Option<&AnnounceLink> {
        if self.own.contains(&address) {
            return None;
        }
        let length = |link: &&AnnounceLink| {
            let holding = link.subnets.iter().filter(|subnet| subnet.contains(&address));
            holding.map(Ipv4Net::prefix_len).max()
        };
        self.links.iter().filter(|link| length(link).is_some()).max_by_key(length)
    }

    /// All subnets in which an address could be announced.
    pub fn subnets(&self) -> Vec<Ipv4Net> {
        self.links.iter().flat_map(|link| link.subnets.iter().copied()).collect()
    }
}

/// Why an address is not announced, or not withdrawn.
#[derive(Debug, thiserror::Error)]
pub enum AnnounceError {
    #[error("cannot put {address} onto interface {link}")]
    Add { address: Ipv4Addr, link: LinkName, source: rtnetlink::Error },
    #[error("cannot remove {address} from the interface with index {index}")]
    Remove { address: Ipv4Addr, index: u32, source: rtnetlink::Error },
    #[error("cannot send ARP on interface {link}")]
    Arp { link: LinkName, source: io::Error },
}

/// Announces addresses on the interfaces of this node.
#[derive(Debug, Clone)]
pub struct Announcer {
    purpose: AddressUse,
    netlink: Handle,
    changes: watch::Receiver<u64>,
}

impl Announcer {
    /// Opens what is needed; changes nothing yet.
    pub fn start(purpose: AddressUse, tasks: &Tasks) -> io::Result<Self> {
        let (connection, netlink, _) = rtnetlink::new_connection()?;
        tasks.spawn("announcement netlink", until_stopped(connection, tasks.stop_signal()));
        let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr];
        let (events, _, mut messages) = rtnetlink::new_multicast_connection(&groups)?;
        tasks.spawn("address events", until_stopped(events, tasks.stop_signal()));
        let (changed, changes) = watch::channel(0);
        let count = async move {
            while messages.next().await.is_some() {
                changed.send_modify(|count| *count += 1);
            }
        };
        tasks.spawn("address changes", until_stopped(count, tasks.stop_signal()));
        Ok(Self { purpose, netlink, changes })
    }

    /// Changes whenever the kernel reports a change of any link or IPv4 address.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    pub async fn observe(&self) -> Result<ObservedAnnouncements, ObserveError> {
        let links = observe(&self.netlink).await?;
        let addresses: Vec<AddressMessage> =
            self.netlink.address().get().execute().try_collect().await?;
        let label = self.purpose.label();
        let announced = addresses.iter().filter_map(|own| announced(own, label)).collect();
        Ok(read(&links, announced))
    }

    /// Puts an address onto an interface, or prolongs its life there.
    pub async fn hold(
        &self,
        address: Ipv4Addr,
        link: &AnnounceLink,
        lifetime: Duration,
    ) -> Result<(), AnnounceError> {
        let mut request = self.netlink.address().add(link.index, address.into(), 32).replace();
        let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX - 1);
        let mut life = CacheInfo::default();
        life.ifa_valid = seconds;
        life.ifa_preferred = seconds;
        let attributes = &mut request.message_mut().attributes;
        attributes.push(AddressAttribute::CacheInfo(life));
        attributes.push(AddressAttribute::Label(self.purpose.label().to_owned()));
        let added = request.execute().await;
        added.map_err(|source| AnnounceError::Add { address, link: link.name.clone(), source })
    }

    /// Takes an address away; one that is not there is fine.
    pub async fn withdraw(&self, address: Ipv4Addr, index: u32) -> Result<(), AnnounceError> {
        let message = AddressMessageBuilder::<Ipv4Addr>::new().index(index).address(address, 32);
        let mut message = message.build();
        message.attributes.push(AddressAttribute::Label(self.purpose.label().to_owned()));
        let removed = self.netlink.address().del(message).execute().await;
        absent_is_fine(removed).map_err(|source| AnnounceError::Remove { address, index, source })
    }

    /// Announces to all neighbours on an interface that the address is here.
    pub fn send_gratuitous_arp(
        &self,
        address: Ipv4Addr,
        link: &AnnounceLink,
    ) -> Result<(), AnnounceError> {
        let sent = arp::send(link.index, link.mac, address);
        sent.map_err(|source| AnnounceError::Arp { link: link.name.clone(), source })
    }

    /// The station on the wire of an interface that has the address, if one other than this node
    /// does. Takes less than a second.
    pub async fn probe(
        &self,
        address: Ipv4Addr,
        link: &AnnounceLink,
    ) -> Result<Option<Mac>, AnnounceError> {
        let asked = probe::probe(link.index, link.mac, address).await;
        asked.map_err(|source| AnnounceError::Arp { link: link.name.clone(), source })
    }
}

/// The address of a message with this label, which says that it is announced, with the index of its interface.
fn announced(message: &AddressMessage, label: &str) -> Option<(Ipv4Addr, u32)> {
    let mut is_ours = false;
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Label(own) => is_ours = own == label,
            AddressAttribute::Local(std::net::IpAddr::V4(own)) => address = Some(*own),
            _ => {}
        }
    }
    let is_host = message.header.family == AddressFamily::Inet && message.header.prefix_len == 32;
    address.filter(|_| is_ours && is_host).map(|address| (address, message.header.index))
}

/// Interfaces with an address of the node, a MAC address and a carrier; none of the guests' networks.
fn read(links: &ObservedLinks, announced: BTreeSet<(Ipv4Addr, u32)>) -> ObservedAnnouncements {
    let mut found = ObservedAnnouncements { announced, ..ObservedAnnouncements::default() };
    for (name, link) in links {
        let own = own_addresses(link, &found.announced);
        found.own.extend(own.iter().map(Ipv4Net::addr));
        let is_loopback = link.kind == ObservedKind::Other("loopback".to_owned());
        let is_usable = link.is_up && link.has_carrier && link.group != GROUP && !is_loopback;
        let subnets: Vec<Ipv4Net> =
            own.iter().filter(|own| own.prefix_len() < 31).map(Ipv4Net::trunc).collect();
        if let Some(mac) = link.mac.filter(|_| is_usable)
            && !subnets.is_empty()
        {
            found.links.push(AnnounceLink { name: name.clone(), index: link.index, mac, subnets });
        }
    }
    found
}

fn own_addresses(link: &ObservedLink, announced: &BTreeSet<(Ipv4Addr, u32)>) -> Vec<Ipv4Net> {
    let ipv4 = |address: &IpNet| match address {
        IpNet::V4(address) => Some(*address),
        IpNet::V6(_) => None,
    };
    let all = link.addresses.iter().filter_map(ipv4);
    all.filter(|own| !announced.contains(&(own.addr(), link.index))).collect()
}

async fn until_stopped(work: impl Future<Output = ()>, mut stop: Stop) {
    tokio::select! {
        () = work => {}
        () = stop.requested() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::uplink::LinkState;
    use crate::vlan::PortVlan;

    fn link(index: u32, group: u32, addresses: &[&str]) -> ObservedLink {
        ObservedLink {
            index,
            kind: ObservedKind::Nic,
            mac: Mac::try_from([2, 0, 0, 0, 0, 1].as_slice()).ok(),
            mtu: 1500,
            tx_queue_len: 1000,
            is_up: true,
            has_carrier: true,
            state: LinkState::Up,
            is_promiscuous: false,
            group,
            master: None,
            lower: None,
            addresses: addresses.iter().map(|own| own.parse().unwrap()).collect(),
            vlans: PortVlan::default(),
            member: None,
        }
    }

    #[test]
    fn an_address_goes_to_the_interface_whose_subnet_holds_it() {
        let name = |text: &str| text.parse::<LinkName>().unwrap();
        let mut down = link(6, 0, &["10.4.0.1/24"]);
        down.has_carrier = false;
        let links = ObservedLinks::from([
            (name("eth0"), link(2, 0, &["10.0.0.5/16", "10.0.7.9/32"])),
            (name("eth1"), link(3, 0, &["10.0.1.5/24", "fd00::1/64"])),
            (name("sheaf0"), link(4, GROUP, &["10.52.0.1/24"])),
            (name("ptp"), link(5, 0, &["10.3.0.1/32"])),
            (name("down"), down),
        ]);
        let announced = BTreeSet::from([(Ipv4Addr::new(10, 0, 7, 9), 2)]);
        let seen = read(&links, announced);
        for (address, expected) in [
            ("10.0.2.1", Some("eth0")),
            ("10.0.1.7", Some("eth1")),
            // Announced already.
            ("10.0.7.9", Some("eth0")),
            // The node's own.
            ("10.0.1.5", None),
            ("10.52.0.9", None),
            ("10.3.0.2", None),
            ("10.4.0.9", None),
            ("10.9.0.1", None),
        ] {
            let found = seen.link_for(address.parse().unwrap());
            assert_eq!(found.map(|link| link.name.as_str()), expected, "{address}");
        }
        assert_eq!(seen.subnets().len(), 2);
    }
}
