//! Carrying out one step of a plan for uplinks. Makes no choices; each step may be repeated.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use rtnetlink::packet_route::link::{BridgeVlanInfoFlags, LinkMessage};
use rtnetlink::{
    AddressMessageBuilder, Handle, LinkBond, LinkBridge, LinkBridgeVlan, LinkMessageBuilder,
    LinkUnspec, LinkVlan,
};

use super::plan::UplinkStep;
use super::{BondMode, UPLINK_GROUP};
use crate::apply::{ApplyError, absent_is_fine, delete_link, index, set_sysctl};
use crate::mac::Mac;
use crate::name::LinkName;
use crate::observe;
use crate::vlan::{VlanId, VlanRole};

/// Why a step failed, with the texts of Harvester.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    #[error("add bond {bond} failed")]
    Bond { bond: LinkName, source: ApplyError },
    #[error("ensure bridge {bridge} failed")]
    Bridge { bridge: LinkName, source: ApplyError },
    #[error("add slave {nic} to bond {bond} failed")]
    AddMember { bond: LinkName, nic: LinkName, source: ApplyError },
    #[error("delete slave {nic} of bond {bond} failed")]
    RemoveMember { bond: LinkName, nic: LinkName, source: ApplyError },
    #[error("{nic} has been enslaved by the link with index {master}")]
    Enslaved { nic: LinkName, master: u32 },
    #[error("cannot change VLAN {vlan} of {port}")]
    Vlan { port: LinkName, vlan: VlanId, source: ApplyError },
    #[error("cannot change {link}")]
    Link { link: LinkName, source: ApplyError },
    #[error("{address} of {link} is already used by the station with MAC address {mac}")]
    InUse { link: LinkName, address: IpNet, mac: Mac },
    #[error("{address} of {link} is already used by another station")]
    Duplicate { link: LinkName, address: IpNet },
    #[error("{address} of {link} cannot be checked for duplicates: no carrier")]
    Unchecked { link: LinkName, address: IpNet },
    #[error("cannot ask on {link} for other stations with its address")]
    Probe { link: LinkName, source: io::Error },
}

/// Does what `step` says.
#[expect(clippy::too_many_lines, reason = "a table: one arm for each step")]
pub(super) async fn apply(netlink: &Handle, step: &UplinkStep) -> Result<(), UplinkError> {
    let of_bond = |bond: &LinkName| {
        let bond = bond.clone();
        |source| UplinkError::Bond { bond, source }
    };
    let of_bridge = |bridge: &LinkName| {
        let bridge = bridge.clone();
        |source| UplinkError::Bridge { bridge, source }
    };
    let of_link = |link: &LinkName| {
        let link = link.clone();
        |source| UplinkError::Link { link, source }
    };
    match step {
        UplinkStep::CreateBridge { bridge, mtu } => {
            create_bridge(netlink, bridge, *mtu).await.map_err(of_bridge(bridge))
        }
        UplinkStep::FilterVlans { bridge } => {
            let message = fails_closed(LinkMessageBuilder::<LinkBridge>::new(bridge.as_str()));
            change(netlink, bridge, message.build()).await.map_err(of_bridge(bridge))
        }
        UplinkStep::CreateBond { bond, mode, miimon, mtu, mac } => {
            let mut message = bond_message(bond, *mode, *miimon).mtu(u32::from(*mtu));
            message = message.link_group(UPLINK_GROUP);
            if let Some(mac) = mac {
                message = message.address(mac.octets().to_vec());
            }
            create(netlink, bond, message.build()).await.map_err(of_bond(bond))
        }
        UplinkStep::SetMode { bond, mode, miimon } => {
            set_mode(netlink, bond, *mode, *miimon).await.map_err(of_bond(bond))
        }
        UplinkStep::SetMiimon { bond, miimon } => {
            let message = LinkBond::new(bond.as_str()).miimon(*miimon);
            change(netlink, bond, message.build()).await.map_err(of_bond(bond))
        }
        UplinkStep::SetMac { link, mac } => {
            set(netlink, link, |new| new.address(mac.octets().to_vec()))
                .await
                .map_err(of_link(link))
        }
        UplinkStep::SetTxQueueLen { link, length } => {
            set(netlink, link, |new| new.txqueuelen(*length)).await.map_err(of_link(link))
        }
        UplinkStep::SetMtu { link, mtu } => {
            set(netlink, link, |new| new.mtu(u32::from(*mtu))).await.map_err(of_link(link))
        }
        UplinkStep::SetUp { link } => {
            set(netlink, link, LinkMessageBuilder::up).await.map_err(of_link(link))
        }
        UplinkStep::AddMember { bond, nic } => add_member(netlink, bond, nic).await,
        UplinkStep::RemoveMember { bond, nic } => {
            let removed = remove_member(netlink, nic).await;
            let (bond, nic) = (bond.clone(), nic.clone());
            removed.map_err(|source| UplinkError::RemoveMember { bond, nic, source })
        }
        UplinkStep::JoinBridge { bond, bridge } => {
            join_bridge(netlink, bond, bridge).await.map_err(of_bridge(bridge))
        }
        UplinkStep::AddVlan { port, vlan, role } => {
            let failed = |source| UplinkError::Vlan { port: port.clone(), vlan: *vlan, source };
            add_vlan(netlink, port, *vlan, *role).await.map_err(failed)
        }
        UplinkStep::RemoveVlan { port, vlan } => {
            let failed = |source| UplinkError::Vlan { port: port.clone(), vlan: *vlan, source };
            remove_vlan(netlink, port, *vlan).await.map_err(failed)
        }
        UplinkStep::AddSelfVlan { bridge, vlan } => {
            let failed = |source| UplinkError::Vlan { port: bridge.clone(), vlan: *vlan, source };
            add_self_vlan(netlink, bridge, *vlan).await.map_err(failed)
        }
        UplinkStep::RemoveSelfVlan { bridge, vlan } => {
            let failed = |source| UplinkError::Vlan { port: bridge.clone(), vlan: *vlan, source };
            remove_self_vlan(netlink, bridge, *vlan).await.map_err(failed)
        }
        UplinkStep::CreateInterface { link, bridge, vlan } => {
            create_interface(netlink, link, bridge, *vlan).await.map_err(of_link(link))
        }
        UplinkStep::AddAddress { link, address } => {
            add_address(netlink, link, *address).await.map_err(of_link(link))
        }
        UplinkStep::RemoveAddress { link, address } => {
            remove_address(netlink, link, *address).await.map_err(of_link(link))
        }
        UplinkStep::DeleteInterface { link } => {
            delete_link(netlink, link).await.map_err(of_link(link))
        }
        UplinkStep::DeleteBond { bond } => delete_bond(netlink, bond).await.map_err(of_bond(bond)),
        UplinkStep::DeleteBridge { bridge } => {
            delete_link(netlink, bridge).await.map_err(of_bridge(bridge))
        }
    }
}

fn fails_closed(message: LinkMessageBuilder<LinkBridge>) -> LinkMessageBuilder<LinkBridge> {
    message.vlan_default_pvid(0).vlan_filtering(true)
}

/// All of it in one message, so that there is no moment without the filter or the mark.
async fn create_bridge(netlink: &Handle, bridge: &LinkName, mtu: u16) -> Result<(), ApplyError> {
    let message = fails_closed(LinkMessageBuilder::<LinkBridge>::new(bridge.as_str()))
        .mcast_snooping(false)
        .mtu(u32::from(mtu))
        .link_group(UPLINK_GROUP);
    create(netlink, bridge, message.build()).await
}

async fn create(netlink: &Handle, name: &LinkName, message: LinkMessage) -> Result<(), ApplyError> {
    let created = netlink.link().add(message).execute().await;
    created.map_err(|source| ApplyError::Link { link: name.clone(), source })?;
    // The node itself takes no part in the networks of guests.
    set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1")
}

fn bond_message(bond: &LinkName, mode: BondMode, miimon: u32) -> LinkMessageBuilder<LinkBond> {
    LinkBond::new(bond.as_str()).mode(mode.number().into()).miimon(miimon)
}

/// The kernel takes another mode only while the bond is down, and it has no cards then.
async fn set_mode(
    netlink: &Handle,
    bond: &LinkName,
    mode: BondMode,
    miimon: u32,
) -> Result<(), ApplyError> {
    set(netlink, bond, LinkMessageBuilder::down).await?;
    change(netlink, bond, bond_message(bond, mode, miimon).build()).await?;
    set(netlink, bond, LinkMessageBuilder::up).await
}

/// The kernel would take the card from another bond without an error, hence the check before. It
/// joins while it is down, and the bond takes it up; when it cannot join, it is as it was.
async fn add_member(netlink: &Handle, bond: &LinkName, nic: &LinkName) -> Result<(), UplinkError> {
    let failed = |source: ApplyError| {
        let (bond, nic) = (bond.clone(), nic.clone());
        UplinkError::AddMember { bond, nic, source }
    };
    let card = observe::link(netlink, nic).await.map_err(|why| failed(why.into()))?;
    let card = card.ok_or_else(|| failed(ApplyError::Vanished { link: nic.clone() }))?;
    let own = index(netlink, bond).await.map_err(failed)?;
    match card.master {
        None => {}
        Some(master) if master == own => return Ok(()),
        Some(master) => return Err(UplinkError::Enslaved { nic: nic.clone(), master }),
    }
    set(netlink, nic, LinkMessageBuilder::down).await.map_err(failed)?;
    let joined = set(netlink, nic, |new| new.controller(own)).await;
    let is_up = set(netlink, nic, LinkMessageBuilder::up).await;
    joined.and(is_up).map_err(failed)
}

async fn remove_member(netlink: &Handle, nic: &LinkName) -> Result<(), ApplyError> {
    set(netlink, nic, LinkMessageBuilder::nocontroller).await?;
    set(netlink, nic, LinkMessageBuilder::up).await
}

async fn join_bridge(
    netlink: &Handle,
    bond: &LinkName,
    bridge: &LinkName,
) -> Result<(), ApplyError> {
    let bridge = index(netlink, bridge).await?;
    set(netlink, bond, |new| new.controller(bridge)).await
}

/// The cards of the bond stay up.
async fn delete_bond(netlink: &Handle, bond: &LinkName) -> Result<(), ApplyError> {
    let Some(own) = observe::link(netlink, bond).await? else { return Ok(()) };
    let links = super::observe::observe(netlink).await?;
    let members = links.into_iter().filter(|(_, link)| link.master == Some(own.index));
    for (nic, _) in members {
        remove_member(netlink, &nic).await?;
    }
    delete_link(netlink, bond).await
}

/// Makes a port carry a VLAN.
pub(crate) async fn add_vlan(
    netlink: &Handle,
    port: &LinkName,
    vlan: VlanId,
    role: VlanRole,
) -> Result<(), ApplyError> {
    let flags = match role {
        VlanRole::Tagged => BridgeVlanInfoFlags::empty(),
        VlanRole::Native => BridgeVlanInfoFlags::Pvid | BridgeVlanInfoFlags::Untagged,
        VlanRole::UntaggedOut => BridgeVlanInfoFlags::Untagged,
        VlanRole::UntaggedIn => BridgeVlanInfoFlags::Pvid,
    };
    let message = LinkBridgeVlan::new(index(netlink, port).await?).vlan(vlan.number(), flags);
    let added = netlink.link().set(message.build()).execute().await;
    added.map_err(|source| ApplyError::Link { link: port.clone(), source })
}

/// Makes a port not carry a VLAN.
pub(crate) async fn remove_vlan(
    netlink: &Handle,
    port: &LinkName,
    vlan: VlanId,
) -> Result<(), ApplyError> {
    let message = LinkBridgeVlan::new(index(netlink, port).await?)
        .vlan(vlan.number(), BridgeVlanInfoFlags::empty());
    absent_is_fine(netlink.link().del_with_message(message.build()).execute().await)
        .map_err(|source| ApplyError::Link { link: port.clone(), source })
}

/// The host receives the frames of the VLAN, tagged.
async fn add_self_vlan(
    netlink: &Handle,
    bridge: &LinkName,
    vlan: VlanId,
) -> Result<(), ApplyError> {
    let message = LinkBridgeVlan::new(index(netlink, bridge).await?)
        .bridge_self()
        .vlan(vlan.number(), BridgeVlanInfoFlags::empty());
    let added = netlink.link().set(message.build()).execute().await;
    added.map_err(|source| ApplyError::Link { link: bridge.clone(), source })
}

async fn remove_self_vlan(
    netlink: &Handle,
    bridge: &LinkName,
    vlan: VlanId,
) -> Result<(), ApplyError> {
    let message = LinkBridgeVlan::new(index(netlink, bridge).await?)
        .bridge_self()
        .vlan(vlan.number(), BridgeVlanInfoFlags::empty());
    absent_is_fine(netlink.link().del_with_message(message.build()).execute().await)
        .map_err(|source| ApplyError::Link { link: bridge.clone(), source })
}

/// Marked as ours in the same message.
async fn create_interface(
    netlink: &Handle,
    link: &LinkName,
    bridge: &LinkName,
    vlan: VlanId,
) -> Result<(), ApplyError> {
    let lower = index(netlink, bridge).await?;
    let message = LinkVlan::new(link.as_str(), lower, vlan.number()).link_group(UPLINK_GROUP);
    let created = netlink.link().add(message.build()).execute().await;
    created.map_err(|source| ApplyError::Link { link: link.clone(), source })?;
    // Routers in a VLAN of guests must not become those of the node.
    set_sysctl(&format!("net/ipv6/conf/{link}/accept_ra"), "0")?;
    // Without it the kernel removes all addresses of a subnet with the first one.
    set_sysctl(&format!("net/ipv4/conf/{link}/promote_secondaries"), "1")
}

async fn add_address(netlink: &Handle, link: &LinkName, address: IpNet) -> Result<(), ApplyError> {
    let index = index(netlink, link).await?;
    let request = netlink.address().add(index, address.addr(), address.prefix_len()).replace();
    let added = request.execute().await;
    added.map_err(|source| ApplyError::Address { address: address.addr(), source })
}

async fn remove_address(
    netlink: &Handle,
    link: &LinkName,
    address: IpNet,
) -> Result<(), ApplyError> {
    let index = index(netlink, link).await?;
    let message = match address {
        IpNet::V4(own) => AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(own.addr(), own.prefix_len())
            .build(),
        IpNet::V6(own) => AddressMessageBuilder::<Ipv6Addr>::new()
            .index(index)
            .address(own.addr(), own.prefix_len())
            .build(),
    };
    absent_is_fine(netlink.address().del(message).execute().await)
        .map_err(|source| ApplyError::Address { address: address.addr(), source })
}

/// Changes what every link has.
async fn set(
    netlink: &Handle,
    link: &LinkName,
    change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
) -> Result<(), ApplyError> {
    let message = change(LinkUnspec::new_with_index(index(netlink, link).await?)).build();
    let done = netlink.link().set(message).execute().await;
    done.map_err(|source| ApplyError::Link { link: link.clone(), source })
}

/// Changes what links of one kind have.
async fn change(netlink: &Handle, link: &LinkName, message: LinkMessage) -> Result<(), ApplyError> {
    let done = netlink.link().change(message).execute().await;
    done.map_err(|source| ApplyError::Link { link: link.clone(), source })
}
