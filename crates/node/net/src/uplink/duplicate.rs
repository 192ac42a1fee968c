//! Whether another station has an address that an interface of the host will get next: ARP probes
//! (RFC 5227) for IPv4 before it is added, the kernel's own detection (RFC 4862) for IPv6 afterwards.
//!
//! Only trials probe. A confirmed address is restored without a probe: a node must get back the
//! address that it is reached by.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use ipnet::IpNet;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use rtnetlink::{Handle, MulticastGroup};

use super::apply::UplinkError;
use crate::announce::probe::probe;
use crate::apply::{ApplyError, index};
use crate::name::LinkName;
use crate::observe;

/// How long the kernel may take to find out whether an IPv6 address is unique.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Refuses an IPv4 address that another station has. Takes less than a second.
pub(super) async fn probe_address(
    netlink: &Handle,
    link: &LinkName,
    address: IpNet,
) -> Result<(), UplinkError> {
    let IpAddr::V4(own) = address.addr() else { return Ok(()) };
    let of_link = |source| UplinkError::Link { link: link.clone(), source };
    let found = observe::link(netlink, link).await.map_err(|source| of_link(source.into()))?;
    let vanished = || of_link(ApplyError::Vanished { link: link.clone() });
    let found = found.ok_or_else(vanished)?;
    // A link without a MAC address cannot probe.
    let Some(mac) = found.mac else { return Ok(()) };
    let asked = probe(found.index, mac, own).await;
    match asked.map_err(|source| UplinkError::Probe { link: link.clone(), source })? {
        None => Ok(()),
        Some(mac) => Err(UplinkError::InUse { link: link.clone(), address, mac }),
    }
}

/// The kernel's result for an address.
#[derive(Debug, PartialEq, Eq)]
enum Detection {
    Unique,
    Duplicate,
    Running,
}

fn detection(message: &AddressMessage, index: u32, address: IpAddr) -> Option<Detection> {
    let is_own = message.attributes.iter().any(|attribute| {
        matches!(attribute, AddressAttribute::Address(own) | AddressAttribute::Local(own) if *own == address)
    });
    if message.header.index != index || !is_own {
        return None;
    }
    let flags = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Flags(flags) => Some(*flags),
        _ => None,
    });
    let flags = flags.unwrap_or(AddressFlags::empty());
    Some(if flags.contains(AddressFlags::Dadfailed) {
        Detection::Duplicate
    } else if flags.contains(AddressFlags::Tentative) {
        Detection::Running
    } else {
        Detection::Unique
    })
}

/// Waits until the kernel knows whether an IPv6 address that was just added is unique.
pub(super) async fn wait_unique(
    netlink: &Handle,
    link: &LinkName,
    address: IpNet,
) -> Result<(), UplinkError> {
    let IpAddr::V6(_) = address.addr() else { return Ok(()) };
    let of_link = |source| UplinkError::Link { link: link.clone(), source };
    let own = index(netlink, link).await.map_err(of_link)?;
    let groups = [MulticastGroup::Ipv6Ifaddr];
    let failed = |source| UplinkError::Probe { link: link.clone(), source };
    let (connection, _, mut events) =
        rtnetlink::new_multicast_connection(&groups).map_err(failed)?;
    let decided = async {
        let now: Vec<AddressMessage> = netlink.address().get().execute().try_collect().await?;
        let known = now.iter().find_map(|message| detection(message, own, address.addr()));
        if let Some(known) = known.filter(|known| *known != Detection::Running) {
            return Ok(known);
        }
        while let Some((message, _)) = events.next().await {
            let NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(message)) =
                message.payload
            else {
                continue;
            };
            match detection(&message, own, address.addr()) {
                None | Some(Detection::Running) => {}
                Some(known) => return Ok(known),
            }
        }
        Ok(Detection::Running)
    };
    let decided = async {
        tokio::select! {
            () = connection => Ok(Detection::Running),
            decided = decided => decided,
        }
    };
    let link = link.clone();
    match tokio::time::timeout(DETECTION_TIMEOUT, decided).await {
        Ok(Ok(Detection::Unique)) => Ok(()),
        Ok(Ok(Detection::Duplicate)) => Err(UplinkError::Duplicate { link, address }),
        Ok(Ok(Detection::Running)) | Err(_) => Err(UplinkError::Unchecked { link, address }),
        Ok(Err(source)) => {
            let source = ApplyError::Address { address: address.addr(), source };
            Err(UplinkError::Link { link, source })
        }
    }
}
