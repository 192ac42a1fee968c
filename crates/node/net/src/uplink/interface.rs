//! Interfaces of the host in VLANs of its bridges: how to get from those that are to those that are
//! wanted. Pure.
//!
//! A new interface has its address before an old one is removed, and an address that would lead
//! traffic of another interface away is refused: the node must stay reachable. Only interfaces that
//! are ours are changed.

use ipnet::IpNet;

use super::plan::{UplinkPlan, UplinkStep, plan};
use super::{HostInterface, ObservedKind, ObservedLink, ObservedLinks, Uplink, UplinkProblem};
use crate::name::LinkName;
use crate::vlan::VlanId;

/// Decides what would make `seen` what uplinks and interfaces say; does nothing itself.
///
/// The uplink of an interface must carry its VLAN: see [`with_vlans`].
pub fn plan_host(
    uplinks: &[Uplink],
    interfaces: &[HostInterface],
    seen: &ObservedLinks,
) -> UplinkPlan {
    let uplinks = with_vlans(uplinks, interfaces);
    let mut all = plan(&uplinks, seen);
    let mut usable: Vec<&HostInterface> = Vec::new();
    for interface in interfaces {
        let problem = problem(interface, &uplinks, seen);
        match problem.or_else(|| meets_another(interface, &usable)) {
            None => usable.push(interface),
            // It keeps what it has.
            Some(problem) => all.problems.push((interface.bridge.clone(), problem)),
        }
    }
    for interface in &usable {
        all.steps.extend(add(interface, seen));
    }
    for interface in &usable {
        all.steps.extend(remove_addresses(interface, seen));
    }
    all.steps.extend(remove_stale(&uplinks, interfaces, seen));
    all.problems.sort();
    all
}

/// The uplinks with the VLANs of the interfaces on them.
fn with_vlans(uplinks: &[Uplink], interfaces: &[HostInterface]) -> Vec<Uplink> {
    let mut uplinks = uplinks.to_vec();
    for uplink in &mut uplinks {
        let own = interfaces.iter().filter(|interface| interface.bridge == uplink.bridge);
        let tagged = own.map(|interface| interface.vlan).filter(|vlan| *vlan != VlanId::UNTAGGED);
        uplink.vlans.extend(tagged);
    }
    uplinks
}

fn is_vlan_of(link: &ObservedLink, interface: &HostInterface, seen: &ObservedLinks) -> bool {
    let bridge = seen.get(&interface.bridge).map(|bridge| bridge.index);
    link.kind == ObservedKind::Vlan { vlan: Some(interface.vlan) } && link.lower == bridge
}

/// Why an interface cannot be had.
fn problem(
    interface: &HostInterface,
    uplinks: &[Uplink],
    seen: &ObservedLinks,
) -> Option<UplinkProblem> {
    let HostInterface { link, bridge, .. } = interface;
    let is_wanted = uplinks.iter().any(|uplink| uplink.bridge == *bridge);
    let found = seen.get(bridge);
    // One of ours that is not wanted will be removed.
    if !is_wanted && found.is_none_or(ObservedLink::is_ours) {
        return Some(UplinkProblem::NoBridge { bridge: bridge.clone() });
    }
    match found.map(|found| &found.kind) {
        None | Some(ObservedKind::Bridge { .. }) => {}
        Some(_) => {
            let link = bridge.clone();
            return Some(UplinkProblem::WrongKind { link, kind: "bridge" });
        }
    }
    match seen.get(link) {
        Some(found) if !found.is_ours() => {
            return Some(UplinkProblem::Foreign { link: link.clone() });
        }
        Some(found) if !matches!(found.kind, ObservedKind::Vlan { .. }) => {
            return Some(UplinkProblem::WrongKind { link: link.clone(), kind: "vlan" });
        }
        _ => {}
    }
    interface.addresses.iter().find_map(|address| overlap(*address, link, seen))
}

/// An address of another link whose traffic the new one would take.
fn overlap(address: IpNet, own: &LinkName, seen: &ObservedLinks) -> Option<UplinkProblem> {
    let meets =
        |other: &IpNet| other.contains(&address.network()) || address.contains(&other.network());
    let others = seen.iter().filter(|(name, link)| *name != own && !link.is_loopback());
    let mut found = others.filter_map(|(name, link)| {
        link.addresses.iter().find(|other| meets(other)).map(|other| (name, *other))
    });
    found.next().map(|(link, other)| UplinkProblem::Overlap { address, other, link: link.clone() })
}

/// An address of another interface that is wanted, too; the first one has it.
fn meets_another(interface: &HostInterface, others: &[&HostInterface]) -> Option<UplinkProblem> {
    interface.addresses.iter().find_map(|address| {
        others.iter().find_map(|other| {
            let found = other.addresses.iter().find(|own| do_meet(**own, *address))?;
            let link = other.link.clone();
            Some(UplinkProblem::Overlap { address: *address, other: *found, link })
        })
    })
}

fn do_meet(one: IpNet, other: IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

/// The interface with its addresses; one in another VLAN or on another bridge is made anew.
fn add(interface: &HostInterface, seen: &ObservedLinks) -> Vec<UplinkStep> {
    let HostInterface { link, bridge, vlan, .. } = interface;
    let mut steps = Vec::new();
    let mut current = seen.get(link);
    if current.is_some_and(|found| !is_vlan_of(found, interface, seen)) {
        steps.push(UplinkStep::DeleteInterface { link: link.clone() });
        current = None;
    }
    let tagged = seen.get(bridge).and_then(|found| found.vlans.role(*vlan));
    if tagged.is_none() {
        steps.push(UplinkStep::AddSelfVlan { bridge: bridge.clone(), vlan: *vlan });
    }
    if current.is_none() {
        let (link, bridge) = (link.clone(), bridge.clone());
        steps.push(UplinkStep::CreateInterface { link, bridge, vlan: *vlan });
    }
    // Up before it has an address, so that a trial can ask whether another station has it.
    if !current.is_some_and(|found| found.is_up) {
        steps.push(UplinkStep::SetUp { link: link.clone() });
    }
    let has = |address: &IpNet| current.is_some_and(|found| found.addresses.contains(address));
    for address in interface.addresses.iter().filter(|address| !has(address)) {
        steps.push(UplinkStep::AddAddress { link: link.clone(), address: *address });
    }
    steps
}

fn remove_addresses(interface: &HostInterface, seen: &ObservedLinks) -> Vec<UplinkStep> {
    let HostInterface { link, addresses, .. } = interface;
    let Some(current) = seen.get(link).filter(|found| is_vlan_of(found, interface, seen)) else {
        return vec![];
    };
    // Addresses of single hosts are those of load balancers, which come and go by themselves.
    let is_subnet = |address: &&IpNet| address.prefix_len() < address.max_prefix_len();
    let excess = current.addresses.iter().filter(|address| !addresses.contains(address));
    let excess = excess.filter(is_subnet);
    excess
        .map(|address| UplinkStep::RemoveAddress { link: link.clone(), address: *address })
        .collect()
}

/// Interfaces of ours that are not wanted, then VLANs of bridges of ours without an interface.
fn remove_stale(
    uplinks: &[Uplink],
    interfaces: &[HostInterface],
    seen: &ObservedLinks,
) -> Vec<UplinkStep> {
    let is_wanted = |name: &LinkName| interfaces.iter().any(|own| own.link == *name);
    let is_own =
        |link: &ObservedLink| link.is_ours() && matches!(link.kind, ObservedKind::Vlan { .. });
    let stale = seen.iter().filter(|(name, link)| is_own(link) && !is_wanted(name));
    let mut steps: Vec<_> =
        stale.map(|(name, _)| UplinkStep::DeleteInterface { link: name.clone() }).collect();
    for bridge in uplinks.iter().map(|uplink| &uplink.bridge) {
        let Some(found) = seen.get(bridge).filter(|found| found.is_ours()) else { continue };
        let has_interface =
            |vlan: VlanId| interfaces.iter().any(|own| own.bridge == *bridge && own.vlan == vlan);
        let excess = found.vlans.iter().map(|(vlan, _)| vlan).filter(|vlan| !has_interface(*vlan));
        let remove = |vlan| UplinkStep::RemoveSelfVlan { bridge: bridge.clone(), vlan };
        steps.extend(excess.map(remove));
    }
    steps
}
