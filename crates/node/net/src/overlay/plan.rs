//! How to get from the tunnel that is to the one that is wanted. Pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::rules::OverlayRules;
use super::{GuestOverlay, Overlay, mtu};
use crate::mac::Mac;
use crate::plan::{GROUP, LinkKind, NetworkInterface};
use crate::want::Bridge;

/// The observed state of the tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenOverlay {
    pub device: Option<NetworkInterface>,
    pub addresses: Vec<Ipv4Addr>,
    /// Permanent neighbours on the device.
    pub neighbours: BTreeMap<Ipv4Addr, Mac>,
    /// Where frames for an Ethernet address are sent.
    pub forwarding: BTreeMap<Mac, IpAddr>,
    /// Our routes over the device, with their gateways.
    pub routes: BTreeMap<Ipv4Addr, Option<Ipv4Addr>>,
    /// The digest of the rules in force.
    pub rules: Option<String>,
    /// The MTU of the link that has the underlay address.
    pub underlay_mtu: Option<u32>,
}

/// One step about the tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OverlayAction {
    ReplaceRules(OverlayRules),
    DeleteDevice,
    CreateDevice { underlay: IpAddr, mac: Mac, mtu: u32 },
    ChangeDevice { mac: Mac, mtu: u32 },
    RemoveAddress { address: Ipv4Addr },
    AddAddress { address: Ipv4Addr },
    RemoveRoute { address: Ipv4Addr },
    RemoveNeighbour { address: Ipv4Addr },
    RemoveForwarding { mac: Mac, underlay: IpAddr },
    SetForwarding { mac: Mac, underlay: IpAddr },
    SetNeighbour { address: Ipv4Addr, mac: Mac },
    SetRoute { address: Ipv4Addr, gateway: Option<Ipv4Addr> },
}

/// Decides what would make `seen` what `want` says; rules are in force before the device is there.
pub(crate) fn plan(bridge: &Bridge, want: &GuestOverlay, seen: &SeenOverlay) -> Vec<OverlayAction> {
    let overlay = match want {
        GuestOverlay::Unknown => return vec![],
        GuestOverlay::Alone => {
            let mut actions = Vec::new();
            if seen.device.is_some() {
                actions.push(OverlayAction::DeleteDevice);
            }
            if seen.rules.is_some() {
                actions.push(OverlayAction::ReplaceRules(OverlayRules::removal(bridge)));
            }
            return actions;
        }
        GuestOverlay::Connected(overlay) => overlay,
    };
    let mut actions = Vec::new();
    let rules = OverlayRules::new(bridge, overlay);
    if seen.rules.as_ref() != Some(&rules.digest) {
        actions.push(OverlayAction::ReplaceRules(rules));
    }
    let is_made = make_device(overlay, seen, &mut actions);
    // A new device has nothing.
    let bare = SeenOverlay::default();
    let seen = if is_made { &bare } else { seen };
    addresses(overlay, seen, &mut actions);
    entries(overlay, seen, &mut actions);
    actions
}

/// Makes the device where it is missing or another one; returns whether it does.
fn make_device(overlay: &Overlay, seen: &SeenOverlay, actions: &mut Vec<OverlayAction>) -> bool {
    let (underlay, mac) = (overlay.underlay, overlay.mac);
    let mtu = mtu(underlay, seen.underlay_mtu.unwrap_or(1500));
    let create = OverlayAction::CreateDevice { underlay, mac, mtu };
    match &seen.device {
        Some(link) if link.kind == (LinkKind::Tunnel { underlay: Some(underlay) }) => {
            let is_same = link.mac == Some(mac) && link.mtu == mtu && link.is_up;
            if !is_same || link.group != GROUP {
                actions.push(OverlayAction::ChangeDevice { mac, mtu });
            }
            false
        }
        Some(_) => {
            actions.extend([OverlayAction::DeleteDevice, create]);
            true
        }
        None => {
            actions.push(create);
            true
        }
    }
}

fn addresses(overlay: &Overlay, seen: &SeenOverlay, actions: &mut Vec<OverlayAction>) {
    let outdated = seen.addresses.iter().filter(|address| **address != overlay.address);
    actions.extend(outdated.map(|address| OverlayAction::RemoveAddress { address: *address }));
    if !seen.addresses.contains(&overlay.address) {
        actions.push(OverlayAction::AddAddress { address: overlay.address });
    }
}

/// Forwarding entries for a peer, its neighbour entry, and routes to it and its guests. Outdated
/// entries are removed first; a route that changes is replaced in one step.
fn entries(overlay: &Overlay, seen: &SeenOverlay, actions: &mut Vec<OverlayAction>) {
    let peers = || overlay.peers.iter();
    let forwarding: BTreeMap<_, _> = peers().map(|peer| (peer.mac, peer.underlay)).collect();
    let neighbours: BTreeMap<_, _> = peers().map(|peer| (peer.address, peer.mac)).collect();
    let mut routes: BTreeMap<_, _> = peers()
        .flat_map(|peer| peer.guests.iter().map(|guest| (*guest, Some(peer.address))))
        .collect();
    routes.extend(peers().map(|peer| (peer.address, None)));

    let gone = seen.routes.keys().filter(|address| !routes.contains_key(*address));
    actions.extend(gone.map(|address| OverlayAction::RemoveRoute { address: *address }));
    let gone = seen.neighbours.keys().filter(|address| !neighbours.contains_key(*address));
    actions.extend(gone.map(|address| OverlayAction::RemoveNeighbour { address: *address }));
    let gone = seen.forwarding.iter().filter(|(mac, at)| forwarding.get(*mac) != Some(*at));
    actions
        .extend(gone.map(|(mac, at)| OverlayAction::RemoveForwarding { mac: *mac, underlay: *at }));

    let missing = forwarding.iter().filter(|(mac, at)| seen.forwarding.get(*mac) != Some(*at));
    actions
        .extend(missing.map(|(mac, at)| OverlayAction::SetForwarding { mac: *mac, underlay: *at }));
    let missing = neighbours.iter().filter(|(to, mac)| seen.neighbours.get(*to) != Some(*mac));
    actions
        .extend(missing.map(|(to, mac)| OverlayAction::SetNeighbour { address: *to, mac: *mac }));
    // Those to peers first, since the others lead over them.
    let mut missing: Vec<_> =
        routes.iter().filter(|(to, over)| seen.routes.get(*to) != Some(*over)).collect();
    missing.sort_by_key(|(_, over)| over.is_some());
    actions.extend(
        missing.iter().map(|(to, over)| OverlayAction::SetRoute { address: **to, gateway: **over }),
    );
}
