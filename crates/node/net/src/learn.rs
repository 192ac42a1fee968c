//! The kernel's information about guests, obtained without asking them: traffic of taps, and
//! addresses that were seen on a bridge.

use std::net::Ipv4Addr;

use futures_util::TryStreamExt;
use rtnetlink::Handle;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::packet_route::neighbour::NeighbourState;

use crate::mac::Mac;
use crate::name::LinkName;
use crate::observe::{self, ObserveError};

/// Traffic through a tap since its creation, as the guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub received_bytes: u64,
    pub received_packets: u64,
    pub received_dropped: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub sent_dropped: u64,
}

/// A station that the host has exchanged packets with over a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    pub address: Ipv4Addr,
    pub mac: Mac,
}

/// The traffic of all links whose name begins with `prefix`, by name.
pub(crate) async fn traffic(
    netlink: &Handle,
    prefix: &LinkName,
) -> Result<Vec<(LinkName, Traffic)>, ObserveError> {
    let messages: Vec<_> = netlink.link().get().execute().try_collect().await?;
    let mut found: Vec<_> = messages.iter().filter_map(read).collect();
    found.retain(|(name, _)| name.as_str().starts_with(prefix.as_str()));
    found.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// Stations that answered on `bridge`, as far as the kernel remembers.
pub(crate) async fn neighbours(
    netlink: &Handle,
    bridge: &LinkName,
) -> Result<Vec<Neighbour>, ObserveError> {
    let Some(link) = observe::link(netlink, bridge).await? else { return Ok(vec![]) };
    let all = observe::neighbours_of(netlink, link.index).await?;
    let known = all.into_iter().filter(|(_, _, state)| {
        !matches!(state, NeighbourState::Failed | NeighbourState::Incomplete)
    });
    Ok(known.map(|(address, mac, _)| Neighbour { address, mac }).collect())
}

/// The host sends what the guest receives.
fn read(message: &LinkMessage) -> Option<(LinkName, Traffic)> {
    let (mut name, mut traffic) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = text.parse().ok(),
            LinkAttribute::Stats64(stats) => {
                traffic = Some(Traffic {
                    received_bytes: stats.tx_bytes,
                    received_packets: stats.tx_packets,
                    received_dropped: stats.tx_dropped,
                    sent_bytes: stats.rx_bytes,
                    sent_packets: stats.rx_packets,
                    sent_dropped: stats.rx_dropped,
                });
            }
            _ => {}
        }
    }
    Some((name?, traffic?))
}
