//! Reads all links of the node. Changes nothing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::Handle;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{
    AfSpecBridge, BondPortState, BridgeVlanInfoFlags, InfoBond, InfoBondPort, InfoBridge, InfoData,
    InfoKind, InfoPortData, InfoVlan, LinkAttribute, LinkExtentMask, LinkFlags, LinkInfo,
    LinkMessage, State,
};

use super::{BondMember, BondMode, LinkState, ObservedKind, ObservedLink, ObservedLinks};
use crate::mac::Mac;
use crate::name::LinkName;
use crate::observe::ObserveError;
use crate::vlan::{PortVlan, VlanId, VlanRole};

/// All links whose names we could use, with what they carry.
pub(crate) async fn observe(netlink: &Handle) -> Result<ObservedLinks, ObserveError> {
    let brief = vec![LinkExtentMask::SkipStats];
    let all = netlink.link().get().set_filter_mask(AddressFamily::Unspec, brief).execute();
    let messages: Vec<LinkMessage> = all.try_collect().await?;
    let mut links: ObservedLinks = messages.iter().filter_map(read_link).collect();
    let mut vlans = all_vlans(netlink).await?;
    let mut addresses = addresses(netlink).await?;
    for link in links.values_mut() {
        link.vlans = vlans.remove(&link.index).unwrap_or_default();
        link.addresses = addresses.remove(&link.index).unwrap_or_default();
    }
    Ok(links)
}

/// The VLANs of all ports of bridges, by the index of the port.
pub(crate) async fn port_vlans(netlink: &Handle) -> Result<BTreeMap<u32, PortVlan>, ObserveError> {
    read_all_vlans(netlink, VlanOwners::Ports).await
}

/// The VLANs of all ports of bridges and those that bridges have themselves, by the index of the link.
async fn all_vlans(netlink: &Handle) -> Result<BTreeMap<u32, PortVlan>, ObserveError> {
    read_all_vlans(netlink, VlanOwners::PortsAndBridges).await
}

/// Links whose VLANs are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum VlanOwners {
    Ports,
    PortsAndBridges,
}

async fn read_all_vlans(
    netlink: &Handle,
    owners: VlanOwners,
) -> Result<BTreeMap<u32, PortVlan>, ObserveError> {
    let mask = vec![LinkExtentMask::BrvlanCompressed];
    let ports = netlink.link().get().set_filter_mask(AddressFamily::Bridge, mask).execute();
    let messages: Vec<LinkMessage> = ports.try_collect().await?;
    let mut found: BTreeMap<u32, PortVlan> = BTreeMap::new();
    for message in &messages {
        let is_port = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::Controller(_));
        // A bridge has VLANs of its own, which are not those of a port.
        if owners == VlanOwners::PortsAndBridges || message.attributes.iter().any(is_port) {
            let vlans = found.entry(message.header.index).or_default();
            read_vlans(message, vlans);
        }
    }
    Ok(found)
}

fn read_vlans(message: &LinkMessage, vlans: &mut PortVlan) {
    let mut first = None;
    let specs = message.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::AfSpecBridge(specs) => Some(specs),
        _ => None,
    });
    for spec in specs.flatten() {
        let AfSpecBridge::VlanInfo(info) = spec else { continue };
        if info.flags.contains(BridgeVlanInfoFlags::RangeBegin) {
            first = Some(info.vid);
            continue;
        }
        let is_end = info.flags.contains(BridgeVlanInfoFlags::RangeEnd);
        let from = first.take().filter(|_| is_end).unwrap_or(info.vid);
        let has = |flag| info.flags.contains(flag);
        let role = match (has(BridgeVlanInfoFlags::Pvid), has(BridgeVlanInfoFlags::Untagged)) {
            (true, true) => VlanRole::Native,
            (false, true) => VlanRole::UntaggedOut,
            (true, false) => VlanRole::UntaggedIn,
            (false, false) => VlanRole::Tagged,
        };
        for number in from..=info.vid {
            if let Ok(vlan) = VlanId::try_from(u64::from(number)) {
                vlans.insert(vlan, role);
            }
        }
    }
}

/// Addresses that others can reach, by the index of their link.
async fn addresses(netlink: &Handle) -> Result<BTreeMap<u32, Vec<IpNet>>, ObserveError> {
    let messages: Vec<AddressMessage> = netlink.address().get().execute().try_collect().await?;
    let mut found: BTreeMap<u32, Vec<IpNet>> = BTreeMap::new();
    for message in messages {
        if matches!(message.header.scope, AddressScope::Link | AddressScope::Host) {
            continue;
        }
        let own = |attribute: &AddressAttribute| match attribute {
            AddressAttribute::Local(address) => Some(*address),
            _ => None,
        };
        let remote = |attribute: &AddressAttribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        };
        let local = message.attributes.iter().find_map(own);
        let address: Option<IpAddr> = local.or_else(|| message.attributes.iter().find_map(remote));
        if let Some(net) = address.and_then(|ip| IpNet::new(ip, message.header.prefix_len).ok()) {
            found.entry(message.header.index).or_default().push(net);
        }
    }
    Ok(found)
}

fn read_link(message: &LinkMessage) -> Option<(LinkName, ObservedLink)> {
    let flags = message.header.flags;
    let mut name = None;
    let mut link = ObservedLink {
        index: message.header.index,
        kind: ObservedKind::Nic,
        mac: None,
        mtu: 0,
        tx_queue_len: 0,
        is_up: flags.contains(LinkFlags::Up),
        has_carrier: flags.contains(LinkFlags::LowerUp),
        state: LinkState::Unknown,
        is_promiscuous: flags.contains(LinkFlags::Promisc),
        group: 0,
        master: None,
        lower: None,
        addresses: vec![],
        vlans: PortVlan::default(),
        member: None,
    };
    let (mut infos, mut is_elsewhere): (&[LinkInfo], bool) = (&[], false);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = text.parse().ok(),
            LinkAttribute::Address(bytes) => link.mac = Mac::try_from(bytes.as_slice()).ok(),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::TxQueueLen(length) => link.tx_queue_len = *length,
            LinkAttribute::OperState(State::Up) => link.state = LinkState::Up,
            LinkAttribute::OperState(State::Down) => link.state = LinkState::Down,
            LinkAttribute::Group(group) => link.group = *group,
            LinkAttribute::Controller(index) => link.master = Some(*index),
            LinkAttribute::Link(index) => link.lower = Some(*index),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::LinkInfo(list) => infos = list,
            _ => {}
        }
    }
    if flags.contains(LinkFlags::Loopback) {
        link.kind = ObservedKind::Other("loopback".to_owned());
    }
    read_infos(infos, &mut link);
    // A veth names its peer there, which is another end and not below it.
    let is_stacked = match &link.kind {
        ObservedKind::Vlan { .. } => true,
        ObservedKind::Other(kind) => {
            ["macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"].contains(&kind.as_str())
        }
        _ => false,
    };
    if !is_stacked || is_elsewhere {
        link.lower = None;
    }
    Some((name?, link))
}

fn read_infos(infos: &[LinkInfo], link: &mut ObservedLink) {
    let (mut mode, mut miimon) = (None, 0);
    let (mut filters_vlans, mut default_vlan) = (false, 1);
    let mut vlan = None;
    for info in infos {
        match info {
            LinkInfo::Data(InfoData::Bond(values)) => {
                for value in values {
                    match value {
                        InfoBond::Mode(number) => mode = BondMode::from_number((*number).into()),
                        InfoBond::MiiMon(value) => miimon = *value,
                        _ => {}
                    }
                }
            }
            LinkInfo::Data(InfoData::Bridge(values)) => {
                for value in values {
                    match value {
                        InfoBridge::VlanFiltering(on) => filters_vlans = *on,
                        InfoBridge::VlanDefaultPvid(number) => default_vlan = *number,
                        _ => {}
                    }
                }
            }
            LinkInfo::Data(InfoData::Vlan(values)) => {
                vlan = values.iter().find_map(|value| match value {
                    InfoVlan::Id(number) => VlanId::try_from(u64::from(*number)).ok(),
                    _ => None,
                });
            }
            LinkInfo::PortData(InfoPortData::BondPort(values)) => {
                link.member = Some(read_member(values));
            }
            _ => {}
        }
    }
    let kind = infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match kind {
        None => {}
        Some(InfoKind::Bond) => link.kind = ObservedKind::Bond { mode, miimon },
        Some(InfoKind::Bridge) => link.kind = ObservedKind::Bridge { filters_vlans, default_vlan },
        Some(InfoKind::Vlan) => link.kind = ObservedKind::Vlan { vlan },
        Some(other) => link.kind = ObservedKind::Other(other.to_string()),
    }
}

fn read_member(values: &[InfoBondPort]) -> BondMember {
    let mut member = BondMember { is_active: false, aggregator: None };
    for value in values {
        match value {
            InfoBondPort::BondPortState(state) => {
                member.is_active = *state == BondPortState::Active;
            }
            InfoBondPort::AdAggregatorId(id) => member.aggregator = Some(*id),
            _ => {}
        }
    }
    member
}
