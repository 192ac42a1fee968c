//! Reads the state of the network: links, addresses, neighbours, sysctls, rules. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use futures_util::TryStreamExt;
use ipnet::Ipv4Net;
use rtnetlink::Handle;
use rtnetlink::packet_core::Nla;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{
    InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoVxlan, LinkAttribute,
    LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};

use crate::announce::ANNOUNCED;
use crate::mac::Mac;
use crate::name::LinkName;
use crate::nft::{self, NftError};
use crate::overlay;
use crate::plan::{LinkKind, NetworkInterface, ObservedNetwork, sysctls};
use crate::tap::Queues;
use crate::uplink;
use crate::vlan::PortVlan;
use crate::want::{Attachment, DesiredNetwork};

/// Attributes of a tap in a link's message; the packet crate leaves them raw.
const TUN_OWNER: u16 = 1;
const TUN_MULTI_QUEUE: u16 = 7;

/// Why the state of the network cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("cannot open a netlink socket")]
    Open { source: io::Error },
    #[error("cannot list the links, addresses and neighbours of this node")]
    Netlink { source: rtnetlink::Error },
    #[error("cannot read the kernel's setting {key}")]
    Sysctl { key: String, source: io::Error },
    #[error("cannot list the firewall's chains")]
    Rules { source: NftError },
}

impl From<rtnetlink::Error> for ObserveError {
    fn from(source: rtnetlink::Error) -> Self {
        Self::Netlink { source }
    }
}

/// Everything that a plan for `want` reads.
pub(crate) async fn observe(
    netlink: &Handle,
    want: &DesiredNetwork,
) -> Result<ObservedNetwork, ObserveError> {
    let bridge = &want.bridge;
    let rules = nft::tables(&bridge.table);
    let links = async {
        let links: BTreeMap<_, _> = links(netlink).await?.into_iter().collect();
        Ok::<_, ObserveError>(links)
    };
    let (rules, links) = tokio::join!(rules, links);
    let (rules, mut links) = (rules.map_err(|source| ObserveError::Rules { source })?, links?);
    let (mut own, mut permanent) = (vec![], BTreeMap::new());
    if let Some(link) = links.get(&bridge.name) {
        let all = addresses(netlink).await?;
        let ours = all.into_iter().filter(|(index, _)| *index == link.index);
        own = ours.map(|(_, address)| address).collect();
        for (address, mac, state) in neighbours_of(netlink, link.index).await? {
            if state == NeighbourState::Permanent {
                permanent.insert(address, mac);
            }
        }
    }
    let foreign = |name: &LinkName| {
        want.ports.iter().any(|port| match &port.attachment {
            Attachment::Bridge { name: wanted, .. } => wanted == name,
            Attachment::Nat { .. } => false,
        })
    };
    let prefix = bridge.tap_prefix.as_str();
    links.retain(|name, _| {
        *name == bridge.name || name.as_str().starts_with(prefix) || foreign(name)
    });
    if links.values().any(|link| link.filters_vlans) {
        let mut vlans = uplink::port_vlans(netlink).await?;
        for link in links.values_mut() {
            link.vlans = vlans.remove(&link.index).unwrap_or_default();
        }
    }
    let device = links.get(&overlay::device(bridge));
    let underlay = want.overlay.connected().map(|wanted| wanted.underlay);
    let mut tunnel = overlay::link::observe(netlink, device, underlay).await?;
    tunnel.rules = rules.overlay;
    let mut settings = BTreeMap::new();
    for (key, _) in sysctls(bridge) {
        if let Some(value) = read_sysctl(&key)? {
            settings.insert(key, value);
        }
    }
    Ok(ObservedNetwork {
        links,
        addresses: own,
        neighbours: permanent,
        rules: rules.digest,
        service_chains: rules.service_chains,
        reroute: rules.reroute,
        hosts: rules.hosts,
        policies: rules.policies,
        tap_chains: rules.tap_chains,
        sysctls: settings,
        overlay: tunnel,
    })
}

/// The value of a setting below `/proc/sys`; none when the kernel does not have it.
pub(crate) fn read_sysctl(key: &str) -> Result<Option<String>, ObserveError> {
    match std::fs::read_to_string(format!("/proc/sys/{key}")) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ObserveError::Sysctl { key: key.to_owned(), source }),
    }
}

/// All links of the node whose names we could use.
async fn links(netlink: &Handle) -> Result<Vec<(LinkName, NetworkInterface)>, ObserveError> {
    // Counters are most of a message, and nothing here reads them.
    let brief = vec![LinkExtentMask::SkipStats];
    let all = netlink.link().get().set_filter_mask(AddressFamily::Unspec, brief).execute();
    let messages: Vec<_> = all.try_collect().await?;
    Ok(messages.iter().filter_map(read_link).collect())
}

/// The link called `name`.
pub(crate) async fn link(
    netlink: &Handle,
    name: &LinkName,
) -> Result<Option<NetworkInterface>, ObserveError> {
    Ok(message(netlink, name).await?.as_ref().and_then(read_link).map(|(_, link)| link))
}

/// The raw message about the link called `name`.
pub(crate) async fn message(
    netlink: &Handle,
    name: &LinkName,
) -> Result<Option<LinkMessage>, ObserveError> {
    let mut found = std::pin::pin!(netlink.link().get().match_name(name.to_string()).execute());
    match found.try_next().await {
        Ok(message) => Ok(message),
        Err(error) if is_missing(&error) => Ok(None),
        Err(source) => Err(source.into()),
    }
}

/// Whether a failure says that the thing does not exist.
pub(crate) fn is_missing(error: &rtnetlink::Error) -> bool {
    use rustix::io::Errno;
    let absent = [Errno::NODEV, Errno::NOENT, Errno::ADDRNOTAVAIL, Errno::NXIO];
    match error {
        rtnetlink::Error::NetlinkError(answer) => {
            absent.iter().any(|errno| answer.raw_code() == -errno.raw_os_error())
        }
        _ => false,
    }
}

fn read_link(message: &LinkMessage) -> Option<(LinkName, NetworkInterface)> {
    let mut name = None;
    let mut link = NetworkInterface {
        index: message.header.index,
        kind: LinkKind::Other,
        mac: None,
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        group: 0,
        master: None,
        filters_vlans: false,
        vlans: PortVlan::default(),
    };
    let mut infos: &[LinkInfo] = &[];
    let mut has_carrier = false;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = text.parse().ok(),
            LinkAttribute::Address(bytes) => link.mac = Mac::try_from(bytes.as_slice()).ok(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Group(group) => link.group = *group,
            LinkAttribute::Controller(index) => link.master = Some(*index),
            LinkAttribute::Carrier(carrier) => has_carrier = *carrier == 1,
            LinkAttribute::LinkInfo(list) => infos = list,
            _ => {}
        }
    }
    link.kind = read_kind(infos, has_carrier);
    link.filters_vlans = infos.iter().any(|info| match info {
        LinkInfo::Data(InfoData::Bridge(values)) => {
            values.contains(&InfoBridge::VlanFiltering(true))
        }
        _ => false,
    });
    Some((name?, link))
}

fn read_kind(infos: &[LinkInfo], has_carrier: bool) -> LinkKind {
    let (mut owner, mut queues, mut is_isolated) = (None, Queues::Single, false);
    let (mut kind, mut underlay) = (None, None);
    for info in infos {
        match info {
            LinkInfo::Kind(found) => kind = Some(found),
            LinkInfo::Data(InfoData::Tun(attributes)) => {
                for attribute in attributes {
                    let mut value = vec![0; attribute.value_len()];
                    attribute.emit_value(&mut value);
                    match (attribute.kind(), value.as_slice()) {
                        (TUN_OWNER, &[a, b, c, d]) => {
                            owner = Some(u32::from_ne_bytes([a, b, c, d]));
                        }
                        (TUN_MULTI_QUEUE, &[1]) => queues = Queues::Multi,
                        _ => {}
                    }
                }
            }
            LinkInfo::Data(InfoData::Vxlan(attributes)) => {
                underlay = attributes.iter().find_map(|attribute| match attribute {
                    InfoVxlan::Local(address) => Some(IpAddr::V4(*address)),
                    InfoVxlan::Local6(address) => Some(IpAddr::V6(*address)),
                    _ => None,
                });
            }
            LinkInfo::PortData(InfoPortData::BridgePort(attributes)) => {
                is_isolated = attributes.contains(&InfoBridgePort::Isolated(true));
            }
            _ => {}
        }
    }
    match kind {
        Some(InfoKind::Bridge) => LinkKind::Bridge,
        Some(InfoKind::Tun) => LinkKind::Tap { owner, queues, is_open: has_carrier, is_isolated },
        Some(InfoKind::Vxlan) => LinkKind::Tunnel { underlay },
        _ => LinkKind::Other,
    }
}

/// The IPv4 addresses of the node, with the index of their link.
pub(crate) async fn addresses(netlink: &Handle) -> Result<Vec<(u32, Ipv4Net)>, ObserveError> {
    let messages: Vec<_> = netlink.address().get().execute().try_collect().await?;
    let read = |message: &AddressMessage| {
        let local = message.attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Local(IpAddr::V4(address)) => Some(*address),
            _ => None,
        })?;
        Some((message.header.index, Ipv4Net::new(local, message.header.prefix_len).ok()?))
    };
    Ok(messages.iter().filter_map(read).collect())
}

/// The IPv4 addresses of this host, but not those in `network`, which belong to guests, and not those
/// that it announces for services and for the API.
pub async fn host_addresses(network: Option<Ipv4Net>) -> Result<BTreeSet<Ipv4Addr>, ObserveError> {
    let netlink = rtnetlink::new_connection();
    let (connection, netlink, _) = netlink.map_err(|source| ObserveError::Open { source })?;
    let messages: Vec<AddressMessage> = tokio::select! {
        listed = netlink.address().get().execute().try_collect() => listed?,
        () = connection => {
            let source = io::ErrorKind::ConnectionAborted.into();
            return Err(ObserveError::Open { source });
        }
    };
    let is_own = |own: &Ipv4Addr| {
        let of_guests = network.is_some_and(|network| network.contains(own));
        !own.is_loopback() && !own.is_link_local() && !of_guests
    };
    Ok(messages.iter().filter_map(lasting_address).filter(is_own).collect())
}

/// The address of a message, unless it is announced for a while.
fn lasting_address(message: &AddressMessage) -> Option<Ipv4Addr> {
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(IpAddr::V4(own)) => address = Some(*own),
            AddressAttribute::Label(label) if label.starts_with(ANNOUNCED) => return None,
            _ => {}
        }
    }
    address
}

/// The MTU of the link that has `address`.
pub(crate) async fn mtu_of_address(
    netlink: &Handle,
    address: IpAddr,
) -> Result<Option<u32>, ObserveError> {
    let messages: Vec<AddressMessage> = netlink.address().get().execute().try_collect().await?;
    let has = |message: &&AddressMessage| {
        message.attributes.iter().any(|attribute| match attribute {
            AddressAttribute::Local(own) | AddressAttribute::Address(own) => *own == address,
            _ => false,
        })
    };
    let Some(index) = messages.iter().find(has).map(|message| message.header.index) else {
        return Ok(None);
    };
    let links = links(netlink).await?;
    Ok(links.into_iter().find(|(_, link)| link.index == index).map(|(_, link)| link.mtu))
}

/// IPv4 neighbours on the link with this index, with what the kernel thinks of them.
pub(crate) async fn neighbours_of(
    netlink: &Handle,
    index: u32,
) -> Result<Vec<(Ipv4Addr, Mac, NeighbourState)>, ObserveError> {
    let all = netlink.neighbours().get().set_address_family(AddressFamily::Inet).execute();
    let messages: Vec<NeighbourMessage> = all.try_collect().await?;
    let ours = messages.iter().filter(|message| message.header.ifindex == index);
    Ok(ours.filter_map(read_neighbour).collect())
}

fn read_neighbour(message: &NeighbourMessage) -> Option<(Ipv4Addr, Mac, NeighbourState)> {
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => address = Some(*ip),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = Mac::try_from(bytes.as_slice()).ok();
            }
            _ => {}
        }
    }
    Some((address?, mac?, message.header.state))
}
