//! Carrying out one step of a plan. Makes no choices; each step may be repeated.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::packet_route::link::InfoBridgePort;
use rtnetlink::packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use rtnetlink::packet_route::{AddressFamily, address::AddressMessage};
use rtnetlink::{AddressMessageBuilder, Handle, LinkBridge, LinkBridgePort, LinkUnspec};

use crate::mac::Mac;
use crate::name::LinkName;
use crate::nft::{self, NftError};
use crate::observe::{self, ObserveError, is_missing};
use crate::overlay;
use crate::plan::{GROUP, Isolation, NetworkAction};
use crate::tap;
use crate::uplink;
use crate::vlan::PortVlan;
use crate::want::Bridge;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("cannot change interface {link}")]
    Link { link: LinkName, source: rtnetlink::Error },
    #[error("interface {link} has vanished")]
    Vanished { link: LinkName },
    #[error("cannot create tap {tap}")]
    Tap { tap: LinkName, source: io::Error },
    #[error("cannot change address {address}")]
    Address { address: IpAddr, source: rtnetlink::Error },
    #[error("cannot set the kernel's {key} to {value}")]
    Sysctl { key: String, value: String, source: io::Error },
    #[error("cannot replace the firewall's rules")]
    Rules { source: NftError },
    #[error("cannot read the network configuration")]
    Observe { source: ObserveError },
}

impl From<ObserveError> for ApplyError {
    fn from(source: ObserveError) -> Self {
        Self::Observe { source }
    }
}

/// Does what `action` says with `ours`.
pub(crate) async fn apply(
    netlink: &Handle,
    ours: &Bridge,
    action: &NetworkAction,
) -> Result<(), ApplyError> {
    let bridge = &ours.name;
    match action {
        NetworkAction::DeleteTap { tap } => delete_link(netlink, tap).await,
        NetworkAction::CreateBridge { name, mac, mtu } => {
            create_bridge(netlink, name, *mac, *mtu).await
        }
        NetworkAction::ChangeBridge { name, mac, mtu } => {
            let index = index(netlink, name).await?;
            let message = LinkUnspec::new_with_index(index)
                .address(mac.octets().to_vec())
                .mtu(u32::from(*mtu))
                .up();
            set_link(netlink, name, message.build()).await
        }
        NetworkAction::RemoveAddress { address } => {
            let message = address_message(index(netlink, bridge).await?, *address);
            absent_is_fine(netlink.address().del(message).execute().await)
                .map_err(|source| ApplyError::Address { address: address.addr().into(), source })
        }
        NetworkAction::AddAddress { address } => {
            let index = index(netlink, bridge).await?;
            let ip = IpAddr::from(address.addr());
            let request = netlink.address().add(index, ip, address.prefix_len()).replace();
            let added = request.execute().await;
            added.map_err(|source| ApplyError::Address { address: ip, source })
        }
        NetworkAction::SetSysctl { key, value } => set_sysctl(key, value),
        NetworkAction::CreateTap { tap, owner, queues } => tap::create(tap, *owner, *queues)
            .map_err(|source| ApplyError::Tap { tap: tap.clone(), source }),
        NetworkAction::ReplaceRules(rules) => replace_rules(&rules.text).await,
        NetworkAction::ReplaceServices(rules) => replace_rules(&rules.text).await,
        NetworkAction::ReplaceHosts(rules) => replace_rules(&rules.text).await,
        NetworkAction::ReplacePolicies(rules) => replace_rules(&rules.text).await,
        NetworkAction::ReplaceReroute(rules) => replace_rules(&rules.text).await,
        NetworkAction::RemoveNeighbour { address } => {
            remove_neighbour(netlink, bridge, *address).await
        }
        NetworkAction::SetNeighbour { address, mac } => {
            set_neighbour(netlink, bridge, *address, *mac).await
        }
        NetworkAction::Attach { tap, bridge, mtu, isolation, vlans } => {
            attach(netlink, tap, bridge, *mtu, *isolation, vlans.as_ref()).await
        }
        NetworkAction::Overlay(action) => {
            overlay::link::apply(netlink, &overlay::device(ours), action).await
        }
    }
}

pub(crate) async fn replace_rules(text: &str) -> Result<(), ApplyError> {
    nft::transact(text).await.map_err(|source| ApplyError::Rules { source })
}

/// Removes a link; one that is not there is fine.
pub(crate) async fn delete_link(netlink: &Handle, name: &LinkName) -> Result<(), ApplyError> {
    let Some(link) = observe::link(netlink, name).await? else { return Ok(()) };
    absent_is_fine(netlink.link().del(link.index).execute().await)
        .map_err(|source| ApplyError::Link { link: name.clone(), source })
}

async fn create_bridge(
    netlink: &Handle,
    name: &LinkName,
    mac: Mac,
    mtu: u16,
) -> Result<(), ApplyError> {
    let message = LinkBridge::new(name.as_str())
        .address(mac.octets().to_vec())
        .mtu(u32::from(mtu))
        // Marked in the same step, so that a crash leaves no bridge that we do not know as ours.
        .link_group(GROUP)
        .up()
        .build();
    let created = netlink.link().add(message).execute().await;
    created.map_err(|source| ApplyError::Link { link: name.clone(), source })
}

/// The tap joins while it is down, and its frames flow once it is isolated and has its VLANs. Before
/// it changes its bridge it is taken down, since a bridge may give its ports a VLAN by default.
async fn attach(
    netlink: &Handle,
    tap: &LinkName,
    bridge: &LinkName,
    mtu: u16,
    isolation: Isolation,
    vlans: Option<&PortVlan>,
) -> Result<(), ApplyError> {
    let bridge = index(netlink, bridge).await?;
    let found = observe::link(netlink, tap).await?;
    let found = found.ok_or_else(|| ApplyError::Vanished { link: tap.clone() })?;
    let index = found.index;
    if vlans.is_some() && found.is_up && found.master != Some(bridge) {
        set_link(netlink, tap, LinkUnspec::new_with_index(index).down().build()).await?;
    }
    // Otherwise the host itself would speak IPv6 to the guest through the tap.
    set_sysctl(&format!("net/ipv6/conf/{tap}/disable_ipv6"), "1")?;
    let join = LinkUnspec::new_with_index(index)
        .mtu(u32::from(mtu))
        .link_group(GROUP)
        .controller(bridge)
        .build();
    set_link(netlink, tap, join).await?;
    if let Some(vlans) = vlans {
        set_vlans(netlink, tap, index, vlans).await?;
    }
    let isolated = InfoBridgePort::Isolated(isolation == Isolation::Isolated);
    let open = LinkBridgePort::new(index).append_info_data(isolated).up().build();
    let opened = netlink.link().set_port(open).execute().await;
    opened.map_err(|source| ApplyError::Link { link: tap.clone(), source })
}

/// Gives a port these VLANs and no others; those that are not wanted go first.
async fn set_vlans(
    netlink: &Handle,
    port: &LinkName,
    index: u32,
    wanted: &PortVlan,
) -> Result<(), ApplyError> {
    let has = uplink::port_vlans(netlink).await?.remove(&index).unwrap_or_default();
    for vlan in has.excess(wanted) {
        uplink::remove_vlan(netlink, port, vlan).await?;
    }
    for (vlan, role) in wanted.iter().filter(|(vlan, role)| has.role(*vlan) != Some(*role)) {
        uplink::add_vlan(netlink, port, vlan, role).await?;
    }
    Ok(())
}

async fn set_link(
    netlink: &Handle,
    name: &LinkName,
    message: rtnetlink::packet_route::link::LinkMessage,
) -> Result<(), ApplyError> {
    let done = netlink.link().set(message).execute().await;
    done.map_err(|source| ApplyError::Link { link: name.clone(), source })
}

pub(crate) async fn set_neighbour(
    netlink: &Handle,
    link: &LinkName,
    address: Ipv4Addr,
    mac: Mac,
) -> Result<(), ApplyError> {
    let index = index(netlink, link).await?;
    let request = netlink.neighbours().add(index, IpAddr::V4(address));
    let request = request.link_layer_address(&mac.octets()).replace();
    let added = request.execute().await;
    added.map_err(|source| ApplyError::Address { address: address.into(), source })
}

pub(crate) async fn remove_neighbour(
    netlink: &Handle,
    bridge: &LinkName,
    address: Ipv4Addr,
) -> Result<(), ApplyError> {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = index(netlink, bridge).await?;
    message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(address)));
    absent_is_fine(netlink.neighbours().del(message).execute().await)
        .map_err(|source| ApplyError::Address { address: address.into(), source })
}

pub(crate) fn set_sysctl(key: &str, value: &str) -> Result<(), ApplyError> {
    match std::fs::write(format!("/proc/sys/{key}"), value) {
        // A kernel without IPv6 has no switch for it.
        Err(error) if error.kind() == io::ErrorKind::NotFound && key.starts_with("net/ipv6/") => {
            Ok(())
        }
        other => other.map_err(|source| ApplyError::Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
            source,
        }),
    }
}

pub(crate) fn address_message(index: u32, address: ipnet::Ipv4Net) -> AddressMessage {
    AddressMessageBuilder::<Ipv4Addr>::new()
        .index(index)
        .address(address.addr(), address.prefix_len())
        .build()
}

pub(crate) async fn index(netlink: &Handle, name: &LinkName) -> Result<u32, ApplyError> {
    let link = observe::link(netlink, name).await?;
    link.map(|link| link.index).ok_or_else(|| ApplyError::Vanished { link: name.clone() })
}

/// Removing an absent object succeeds.
pub(crate) fn absent_is_fine(
    outcome: Result<(), rtnetlink::Error>,
) -> Result<(), rtnetlink::Error> {
    match outcome {
        Err(error) if is_missing(&error) => Ok(()),
        other => other,
    }
}
