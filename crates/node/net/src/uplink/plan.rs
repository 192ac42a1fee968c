//! How to get from the links that are to the uplinks that are wanted. Pure.
//!
//! Every step may be the last one: a port loses VLANs before it gets others, a bridge filters
//! before a port joins it, and a bond gets its new cards before it gives up the old ones. Cards move
//! one at a time, and only from a bond of ours that does not want them any more. A bond whose wanted
//! cards are all unusable keeps those that it has.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::cards::{Cards, MemberPhase, Stale, needs_other_mode, unique};
use super::{BondMode, ObservedKind, ObservedLinks, Uplink, UplinkProblem};
use crate::mac::Mac;
use crate::name::LinkName;
use crate::vlan::{PortVlan, VlanId, VlanRole};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UplinkStep {
    RemoveVlan {
        port: LinkName,
        vlan: VlanId,
    },
    /// Creates a bridge that filters VLANs and gives its ports none.
    CreateBridge {
        bridge: LinkName,
        mtu: u16,
    },
    /// Makes a bridge filter VLANs and give its ports none.
    FilterVlans {
        bridge: LinkName,
    },
    CreateBond {
        bond: LinkName,
        mode: BondMode,
        miimon: u32,
        mtu: u16,
        mac: Option<Mac>,
    },
    /// Possible only while the bond has no cards.
    SetMode {
        bond: LinkName,
        mode: BondMode,
        miimon: u32,
    },
    SetMiimon {
        bond: LinkName,
        miimon: u32,
    },
    SetMac {
        link: LinkName,
        mac: Mac,
    },
    SetTxQueueLen {
        link: LinkName,
        length: u32,
    },
    SetMtu {
        link: LinkName,
        mtu: u16,
    },
    SetUp {
        link: LinkName,
    },
    /// Refused when the card has a master by then.
    AddMember {
        bond: LinkName,
        nic: LinkName,
    },
    /// The card stays up.
    RemoveMember {
        bond: LinkName,
        nic: LinkName,
    },
    JoinBridge {
        bond: LinkName,
        bridge: LinkName,
    },
    AddVlan {
        port: LinkName,
        vlan: VlanId,
        role: VlanRole,
    },
    /// Puts the host itself into a VLAN of a bridge.
    AddSelfVlan {
        bridge: LinkName,
        vlan: VlanId,
    },
    RemoveSelfVlan {
        bridge: LinkName,
        vlan: VlanId,
    },
    /// Creates an interface of the host for one VLAN of a bridge; it is down and has no address.
    CreateInterface {
        link: LinkName,
        bridge: LinkName,
        vlan: VlanId,
    },
    AddAddress {
        link: LinkName,
        address: IpNet,
    },
    RemoveAddress {
        link: LinkName,
        address: IpNet,
    },
    DeleteInterface {
        link: LinkName,
    },
    DeleteBond {
        bond: LinkName,
    },
    DeleteBridge {
        bridge: LinkName,
    },
}

/// The steps, in order, and the obstacles, by bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UplinkPlan {
    pub steps: Vec<UplinkStep>,
    pub problems: Vec<(LinkName, UplinkProblem)>,
}

/// Decides what would make `seen` what `want` says; does nothing itself.
pub fn plan(want: &[Uplink], seen: &ObservedLinks) -> UplinkPlan {
    let mut problems = Vec::new();
    let mut usable: Vec<&Uplink> = Vec::new();
    for uplink in want {
        match name_conflict(uplink, seen) {
            Some(problem) => problems.push((uplink.bridge.clone(), problem)),
            None => usable.push(uplink),
        }
    }
    usable.sort_by(|a, b| a.bridge.cmp(&b.bridge));
    let wanted: BTreeSet<_> =
        want.iter().flat_map(|uplink| [&uplink.bridge, &uplink.bond]).collect();
    let stale = Stale::new(&wanted, seen, &mut problems);
    let cards = Cards::new(&usable, seen, &stale);
    problems.extend(cards.problems());
    let mut steps = Vec::new();
    for uplink in &usable {
        steps.extend(remove_vlans(uplink, seen));
    }
    for uplink in &usable {
        steps.extend(bridge(uplink, seen));
        steps.extend(bond(uplink, seen));
    }
    for uplink in &usable {
        steps.extend(cards.steps(uplink, MemberPhase::Add));
    }
    for uplink in &usable {
        steps.extend(cards.steps(uplink, MemberPhase::Release));
    }
    steps.extend(stale.steps());
    for uplink in &usable {
        steps.extend(change_mode(uplink, seen));
        steps.extend(cards.steps(uplink, MemberPhase::AddReleased));
        steps.extend(connect(uplink, seen));
    }
    problems.sort();
    UplinkPlan { steps, problems }
}

/// A link that has a name of the uplink and is not ours to change.
pub(super) fn name_conflict(uplink: &Uplink, seen: &ObservedLinks) -> Option<UplinkProblem> {
    let is_bridge = |kind: &ObservedKind| matches!(kind, ObservedKind::Bridge { .. });
    let is_bond = |kind: &ObservedKind| matches!(kind, ObservedKind::Bond { .. });
    let conflict = |link: &LinkName, kind: &'static str, fits: fn(&ObservedKind) -> bool| {
        let found = seen.get(link)?;
        if !fits(&found.kind) {
            return Some(UplinkProblem::WrongKind { link: link.clone(), kind });
        }
        (!found.is_ours()).then(|| UplinkProblem::Foreign { link: link.clone() })
    };
    conflict(&uplink.bridge, "bridge", is_bridge)
        .or_else(|| conflict(&uplink.bond, "bond", is_bond))
}

/// The VLANs of the bond, once it is a port of its bridge.
fn port_vlans<'a>(uplink: &Uplink, seen: &'a ObservedLinks) -> Option<&'a PortVlan> {
    let (bond, bridge) = (seen.get(&uplink.bond)?, seen.get(&uplink.bridge)?);
    (bond.master == Some(bridge.index)).then_some(&bond.vlans)
}

fn remove_vlans(uplink: &Uplink, seen: &ObservedLinks) -> Vec<UplinkStep> {
    let Some(vlans) = port_vlans(uplink, seen) else { return vec![] };
    let port = &uplink.bond;
    let remove = |vlan| UplinkStep::RemoveVlan { port: port.clone(), vlan };
    vlans.excess(&uplink.port_vlans()).map(remove).collect()
}

fn bridge(uplink: &Uplink, seen: &ObservedLinks) -> Vec<UplinkStep> {
    let (bridge, mtu) = (uplink.bridge.clone(), uplink.mtu);
    let Some(link) = seen.get(&bridge) else {
        return vec![UplinkStep::CreateBridge { bridge, mtu }];
    };
    let fails_closed = ObservedKind::Bridge { filters_vlans: true, default_vlan: 0 };
    let mut steps = Vec::new();
    if link.kind != fails_closed {
        steps.push(UplinkStep::FilterVlans { bridge: bridge.clone() });
    }
    // A bridge sends no frame that a port cannot carry: it shrinks first and grows last.
    if link.mtu > u32::from(mtu) {
        steps.push(UplinkStep::SetMtu { link: bridge, mtu });
    }
    steps
}

fn bond(uplink: &Uplink, seen: &ObservedLinks) -> Vec<UplinkStep> {
    let Uplink { mode, miimon, mtu, mac, .. } = *uplink;
    let bond = || uplink.bond.clone();
    let Some(link) = seen.get(&uplink.bond) else {
        let mut steps = vec![UplinkStep::CreateBond { bond: bond(), mode, miimon, mtu, mac }];
        let length = |length| UplinkStep::SetTxQueueLen { link: bond(), length };
        steps.extend(uplink.tx_queue_len.map(length));
        return steps;
    };
    let mut steps = Vec::new();
    if let ObservedKind::Bond { miimon: current, .. } = &link.kind
        && *current != miimon
        && !needs_other_mode(uplink, seen)
    {
        steps.push(UplinkStep::SetMiimon { bond: bond(), miimon });
    }
    if let Some(mac) = mac.filter(|mac| link.mac != Some(*mac)) {
        steps.push(UplinkStep::SetMac { link: bond(), mac });
    }
    if let Some(length) = uplink.tx_queue_len.filter(|length| link.tx_queue_len != *length) {
        steps.push(UplinkStep::SetTxQueueLen { link: bond(), length });
    }
    if link.mtu != u32::from(mtu) {
        steps.push(UplinkStep::SetMtu { link: bond(), mtu });
    }
    steps
}

fn change_mode(uplink: &Uplink, seen: &ObservedLinks) -> Option<UplinkStep> {
    let (bond, mode, miimon) = (uplink.bond.clone(), uplink.mode, uplink.miimon);
    needs_other_mode(uplink, seen).then_some(UplinkStep::SetMode { bond, mode, miimon })
}

/// The bond becomes a port, gets its VLANs, and both carry frames.
fn connect(uplink: &Uplink, seen: &ObservedLinks) -> Vec<UplinkStep> {
    let (bond, bridge) = (&uplink.bond, &uplink.bridge);
    let mut steps = Vec::new();
    let existing = port_vlans(uplink, seen);
    if existing.is_none() {
        let (bond, bridge) = (bond.clone(), bridge.clone());
        steps.push(UplinkStep::JoinBridge { bond, bridge });
    }
    // The kernel takes the VLAN that ports got by default away with the default.
    let default_vlan = match seen.get(bridge).map(|link| &link.kind) {
        Some(ObservedKind::Bridge { default_vlan, .. }) => *default_vlan,
        _ => 0,
    };
    let has = |vlan: VlanId, role| {
        default_vlan != vlan.number()
            && existing.is_some_and(|vlans| vlans.role(vlan) == Some(role))
    };
    for (vlan, role) in uplink.port_vlans().iter().filter(|(vlan, role)| !has(*vlan, *role)) {
        steps.push(UplinkStep::AddVlan { port: bond.clone(), vlan, role });
    }
    for link in [bond, bridge] {
        if !seen.get(link).is_some_and(|link| link.is_up) {
            steps.push(UplinkStep::SetUp { link: link.clone() });
        }
    }
    let own = seen.get(bond).map(|bond| bond.index);
    let is_down = |nic: &&LinkName| {
        seen.get(*nic).is_some_and(|card| own.is_some() && card.master == own && !card.is_up)
    };
    if !needs_other_mode(uplink, seen) {
        let down = unique(&uplink.nics).filter(is_down);
        steps.extend(down.map(|nic| UplinkStep::SetUp { link: nic.clone() }));
    }
    if seen.get(bridge).is_some_and(|link| link.mtu < u32::from(uplink.mtu)) {
        steps.push(UplinkStep::SetMtu { link: bridge.clone(), mtu: uplink.mtu });
    }
    steps
}
