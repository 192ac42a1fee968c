//! The tunnel device and its entries in the kernel: reading them, and carrying out one step.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope,
};
use rtnetlink::{Handle, LinkUnspec, LinkVxlan, RouteMessageBuilder};

use super::plan::{OverlayAction, SeenOverlay};
use super::{PORT, ROUTES, VNI};
use crate::apply::{self, ApplyError, absent_is_fine, index, set_sysctl};
use crate::mac::Mac;
use crate::name::LinkName;
use crate::observe::{self, ObserveError};
use crate::plan::{GROUP, NetworkInterface};

/// The observed state of the tunnel `name`.
pub(crate) async fn observe(
    netlink: &Handle,
    device: Option<&NetworkInterface>,
    underlay: Option<IpAddr>,
) -> Result<SeenOverlay, ObserveError> {
    let mut seen = SeenOverlay::default();
    if let Some(underlay) = underlay {
        seen.underlay_mtu = observe::mtu_of_address(netlink, underlay).await?;
    }
    let Some(link) = device else { return Ok(seen) };
    seen.device = Some(link.clone());
    let all = observe::addresses(netlink).await?;
    let own = all.into_iter().filter(|(index, _)| *index == link.index);
    seen.addresses = own.map(|(_, address)| address.addr()).collect();
    for (address, mac, state) in observe::neighbours_of(netlink, link.index).await? {
        if state == NeighbourState::Permanent {
            seen.neighbours.insert(address, mac);
        }
    }
    seen.forwarding = forwarding(netlink, link.index).await?;
    seen.routes = routes(netlink, link.index).await?;
    Ok(seen)
}

async fn forwarding(netlink: &Handle, index: u32) -> Result<BTreeMap<Mac, IpAddr>, ObserveError> {
    let all = netlink.neighbours().get().set_address_family(AddressFamily::Bridge).execute();
    let messages: Vec<NeighbourMessage> = all.try_collect().await?;
    let ours = messages.iter().filter(|message| message.header.ifindex == index);
    Ok(ours.filter_map(read_forwarding).collect())
}

fn read_forwarding(message: &NeighbourMessage) -> Option<(Mac, IpAddr)> {
    let (mut mac, mut to) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                mac = Mac::try_from(bytes.as_slice()).ok();
            }
            NeighbourAttribute::Destination(address) => to = read_address(address),
            _ => {}
        }
    }
    Some((mac?, to?))
}

fn read_address(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(address) => Some((*address).into()),
        NeighbourAddress::Inet6(address) => Some((*address).into()),
        NeighbourAddress::Other(bytes) => {
            let short = <[u8; 4]>::try_from(bytes.as_slice()).map(|it| Ipv4Addr::from(it).into());
            let long =
                || <[u8; 16]>::try_from(bytes.as_slice()).map(|it| Ipv6Addr::from(it).into());
            short.or_else(|_| long()).ok()
        }
        _ => None,
    }
}

async fn routes(
    netlink: &Handle,
    index: u32,
) -> Result<BTreeMap<Ipv4Addr, Option<Ipv4Addr>>, ObserveError> {
    let all = netlink.route().get(RouteMessageBuilder::<Ipv4Addr>::new().build()).execute();
    let messages: Vec<RouteMessage> = all.try_collect().await?;
    Ok(messages.iter().filter_map(|message| read_route(message, index)).collect())
}

fn read_route(message: &RouteMessage, index: u32) -> Option<(Ipv4Addr, Option<Ipv4Addr>)> {
    let (mut to, mut over, mut is_ours) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => to = Some(*address),
            RouteAttribute::Gateway(RouteAddress::Inet(address)) => over = Some(*address),
            RouteAttribute::Oif(oif) => is_ours = *oif == index,
            _ => {}
        }
    }
    let is_ours = is_ours && message.header.protocol == RouteProtocol::Other(ROUTES);
    Some((to.filter(|_| is_ours)?, over))
}

/// Does what `action` says with the device `name`.
pub(crate) async fn apply(
    netlink: &Handle,
    name: &LinkName,
    action: &OverlayAction,
) -> Result<(), ApplyError> {
    let failed = |source| ApplyError::Link { link: name.clone(), source };
    match action {
        OverlayAction::ReplaceRules(rules) => apply::replace_rules(&rules.text).await,
        OverlayAction::DeleteDevice => apply::delete_link(netlink, name).await,
        OverlayAction::CreateDevice { underlay, mac, mtu } => {
            create(netlink, name, *underlay, *mac, *mtu).await
        }
        OverlayAction::ChangeDevice { mac, mtu } => {
            let change = LinkUnspec::new_with_index(index(netlink, name).await?)
                .address(mac.octets().to_vec())
                .link_group(GROUP)
                .mtu(*mtu)
                .up();
            netlink.link().set(change.build()).execute().await.map_err(failed)
        }
        OverlayAction::RemoveAddress { address } => {
            let host = ipnet::Ipv4Net::from(*address);
            let message = apply::address_message(index(netlink, name).await?, host);
            absent_is_fine(netlink.address().del(message).execute().await).map_err(failed)
        }
        OverlayAction::AddAddress { address } => {
            let index = index(netlink, name).await?;
            let request = netlink.address().add(index, (*address).into(), 32).replace();
            request.execute().await.map_err(failed)
        }
        OverlayAction::SetForwarding { mac, underlay } => {
            let index = index(netlink, name).await?;
            let request = netlink.neighbours().add_bridge(index, &mac.octets());
            let request = request.destination(*underlay).flags(NeighbourFlags::Own).replace();
            request.execute().await.map_err(failed)
        }
        OverlayAction::RemoveForwarding { mac, underlay } => {
            let mut message = NeighbourMessage::default();
            message.header.family = AddressFamily::Bridge;
            message.header.ifindex = index(netlink, name).await?;
            message.header.flags = NeighbourFlags::Own;
            message.attributes = vec![
                NeighbourAttribute::LinkLayerAddress(mac.octets().to_vec()),
                NeighbourAttribute::Destination((*underlay).into()),
            ];
            absent_is_fine(netlink.neighbours().del(message).execute().await).map_err(failed)
        }
        OverlayAction::SetNeighbour { address, mac } => {
            apply::set_neighbour(netlink, name, *address, *mac).await
        }
        OverlayAction::RemoveNeighbour { address } => {
            apply::remove_neighbour(netlink, name, *address).await
        }
        OverlayAction::SetRoute { address, gateway } => {
            let message = route(index(netlink, name).await?, *address, *gateway);
            netlink.route().add(message).replace().execute().await.map_err(failed)
        }
        OverlayAction::RemoveRoute { address } => {
            let mut message = route(index(netlink, name).await?, *address, None);
            message.header.scope = RouteScope::NoWhere;
            absent_is_fine(netlink.route().del(message).execute().await).map_err(failed)
        }
    }
}

async fn create(
    netlink: &Handle,
    name: &LinkName,
    underlay: IpAddr,
    mac: Mac,
    mtu: u32,
) -> Result<(), ApplyError> {
    let device = LinkVxlan::new(name.as_str(), VNI)
        .port(PORT)
        // The forwarding entries are written here, and never learnt from frames.
        .learning(false)
        .address(mac.octets().to_vec())
        .mtu(mtu)
        .link_group(GROUP);
    let device = match underlay {
        IpAddr::V4(address) => device.local(address),
        IpAddr::V6(address) => device.local6(address),
    };
    let made = netlink.link().add(device.build()).execute().await;
    made.map_err(|source| ApplyError::Link { link: name.clone(), source })?;
    // Guests have no IPv6, and a host may create interfaces that do not forward.
    set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1")?;
    set_sysctl(&format!("net/ipv4/conf/{name}/forwarding"), "1")?;
    let up = LinkUnspec::new_with_index(index(netlink, name).await?).up().build();
    let done = netlink.link().set(up).execute().await;
    done.map_err(|source| ApplyError::Link { link: name.clone(), source })
}

/// Frames for the gateway of a route go to its neighbour entry, although no network of the device
/// has it.
fn route(device: u32, address: Ipv4Addr, gateway: Option<Ipv4Addr>) -> RouteMessage {
    let message = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(address, 32)
        .output_interface(device)
        .protocol(RouteProtocol::Other(ROUTES));
    match gateway {
        Some(gateway) => message.gateway(gateway).onlink().build(),
        None => message.scope(RouteScope::Link).build(),
    }
}
