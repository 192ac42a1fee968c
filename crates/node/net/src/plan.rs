//! The steps from the observed network of a node to the desired one. Pure.
//!
//! The order makes it safe to stop after every step: rules are in force before a tap joins a bridge,
//! and a tap is removed before the rules that restrict it.

mod observed;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::hosts::HostRules;
use crate::mac::Mac;
use crate::name::LinkName;
use crate::overlay;
use crate::overlay::plan::OverlayAction;
use crate::policy::rules::PolicyRules;
use crate::policy::{GuestPolicies, Policies};
use crate::rules::Ruleset;
use crate::service::Service;
use crate::service::reroute::Reroute;
use crate::service::rules::ServiceRules;
use crate::tap::Queues;
use crate::vlan::PortVlan;
use crate::want::{Attachment, Bridge, DesiredNetwork, Port};

pub use self::observed::{LinkKind, NetworkInterface, ObservedNetwork};

/// Marks links of ours, as the link's group: "SHEA" in ASCII.
pub(crate) const GROUP: u32 = 0x5348_4541;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkAction {
    DeleteTap {
        tap: LinkName,
    },
    CreateBridge {
        name: LinkName,
        mac: Mac,
        mtu: u16,
    },
    ChangeBridge {
        name: LinkName,
        mac: Mac,
        mtu: u16,
    },
    RemoveAddress {
        address: Ipv4Net,
    },
    AddAddress {
        address: Ipv4Net,
    },
    SetSysctl {
        key: String,
        value: String,
    },
    CreateTap {
        tap: LinkName,
        owner: u32,
        queues: Queues,
    },
    ReplaceRules(Ruleset),
    ReplaceServices(ServiceRules),
    ReplaceHosts(HostRules),
    ReplacePolicies(PolicyRules),
    ReplaceReroute(Reroute),
    RemoveNeighbour {
        address: Ipv4Addr,
    },
    SetNeighbour {
        address: Ipv4Addr,
        mac: Mac,
    },
    /// Makes a tap a port, with these VLANs where the bridge keeps them apart.
    Attach {
        tap: LinkName,
        bridge: LinkName,
        mtu: u16,
        isolation: Isolation,
        vlans: Option<PortVlan>,
    },
    Overlay(OverlayAction),
}

impl NetworkAction {
    /// The tap of a step that changes nothing else.
    pub fn tap(&self) -> Option<&LinkName> {
        match self {
            Self::DeleteTap { tap } | Self::CreateTap { tap, .. } | Self::Attach { tap, .. } => {
                Some(tap)
            }
            _ => None,
        }
    }

    /// Whether a step changes services only, so that guests start without them when it fails.
    pub fn is_about_services(&self) -> bool {
        matches!(self, Self::ReplaceServices(_) | Self::ReplaceReroute(_))
    }
}

/// Whether a port may talk to other ports of its bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// To the bridge itself only.
    Isolated,
    Shared,
}

/// An obstacle that we must not remove.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error("interface {name} exists and was not made by us; choose another name for the bridge")]
    ForeignBridge { name: LinkName },
    #[error("interface {name} exists and is not a tap")]
    NotATap { name: LinkName },
    #[error("tap {tap} is not wanted, but a running guest uses it")]
    InUse { tap: LinkName },
    #[error("bridge {bridge} that tap {tap} is to be attached to does not exist on this node")]
    NoBridge { tap: LinkName, bridge: LinkName },
    #[error("interface {bridge} that tap {tap} is to be attached to is not a bridge")]
    NotABridge { tap: LinkName, bridge: LinkName },
    #[error("bridge {bridge} that tap {tap} is to be attached to does not filter VLANs")]
    Unfiltered { tap: LinkName, bridge: LinkName },
}

/// Decides the steps from `seen` to `want`. An empty plan means that both agree.
///
/// A port whose foreign bridge is missing is reported and left out; it does not block the others.
/// A tap that is not desired is removed when no process has it open: a running guest never loses its
/// network because its port is missing in `want`.
pub fn plan(want: &DesiredNetwork, seen: &ObservedNetwork) -> (Vec<NetworkAction>, Vec<Conflict>) {
    let mut conflicts = Vec::new();
    if let Some(link) = seen.links.get(&want.bridge.name)
        && (link.kind != LinkKind::Bridge || link.group != GROUP)
    {
        return (vec![], vec![Conflict::ForeignBridge { name: want.bridge.name.clone() }]);
    }
    let ports: Vec<_> = want
        .ports
        .iter()
        .filter(|port| match obstructed(port, seen) {
            None => true,
            Some(conflict) => {
                conflicts.push(conflict);
                false
            }
        })
        .collect();

    let (used, idle): (Vec<_>, Vec<_>) =
        unwanted_taps(want, seen).into_iter().partition(|(_, link)| link.is_open());
    conflicts.extend(used.into_iter().map(|(tap, _)| Conflict::InUse { tap: tap.clone() }));
    let mut actions: Vec<_> =
        idle.into_iter().map(|(tap, _)| NetworkAction::DeleteTap { tap: tap.clone() }).collect();
    actions.extend(bridge(&want.bridge, seen));
    actions.extend(ports.iter().filter_map(|port| create_tap(port, seen)).flatten());
    let rules = Ruleset::new(want);
    if seen.rules.as_ref() != Some(&rules.digest) {
        actions.push(NetworkAction::ReplaceRules(rules));
    }
    let hosts = HostRules::missing(&want.bridge, &want.hosts, seen.hosts.as_deref());
    actions.extend(hosts.map(NetworkAction::ReplaceHosts));
    actions.extend(policies(want, seen).map(NetworkAction::ReplacePolicies));
    if let Some(wanted) = &want.services {
        actions.extend(services(&want.bridge, &ports, wanted, seen));
    }
    actions.extend(neighbours(want, seen));
    actions.extend(ports.iter().filter_map(|port| attach(&want.bridge, port, seen)));
    let tunnel = overlay::plan::plan(&want.bridge, &want.overlay, &seen.overlay);
    actions.extend(tunnel.into_iter().map(NetworkAction::Overlay));
    (actions, conflicts)
}

/// The rules of policies, if they are not in force yet.
fn policies(want: &DesiredNetwork, seen: &ObservedNetwork) -> Option<PolicyRules> {
    let wanted = match (&want.policies, &seen.policies) {
        (GuestPolicies::Unenforced, _) | (GuestPolicies::Unknown, Some(_)) => return None,
        (GuestPolicies::Unknown, None) => &Policies::default(),
        (GuestPolicies::Known(policies), _) => policies,
    };
    let nodes = want.overlay.connected().map(overlay::Overlay::nodes).unwrap_or_default();
    let chains = seen.tap_chains.clone().unwrap_or_default();
    let rules = PolicyRules::new(&want.bridge, &want.ports, wanted, &nodes, &chains);
    let in_force = rules.is_in_force(seen.policies.as_deref(), seen.tap_chains.as_ref());
    (!in_force).then_some(rules)
}

/// The rules for services, and those for the taps of guests, which exist by now.
fn services(
    bridge: &Bridge,
    ports: &[&Port],
    wanted: &[Service],
    seen: &ObservedNetwork,
) -> Vec<NetworkAction> {
    let mut actions = Vec::new();
    let rules = ServiceRules::new(bridge, wanted, seen.service_chains.as_ref());
    if !rules.is_in_force(seen.service_chains.as_ref()) {
        actions.push(NetworkAction::ReplaceServices(rules));
    }
    let reroute = Reroute::new(bridge, ports, wanted);
    // A table forgets a tap that is deleted, also when one of the same name takes its place.
    let is_remade = ports.iter().any(|port| create_tap(port, seen).is_some());
    if is_remade || !reroute.is_in_force(seen.reroute.as_ref()) {
        actions.push(NetworkAction::ReplaceReroute(reroute));
    }
    actions
}

/// All taps that are removed with the network, also those in use.
pub(crate) fn taps_to_remove(want: &DesiredNetwork, seen: &ObservedNetwork) -> Vec<LinkName> {
    let none = DesiredNetwork::new(want.bridge.clone(), vec![]);
    unwanted_taps(&none, seen).into_iter().map(|(tap, _)| tap.clone()).collect()
}

/// The sysctls of a network: the key below `/proc/sys`, and the value.
pub(crate) fn sysctls(bridge: &Bridge) -> Vec<(String, &'static str)> {
    let name = &bridge.name;
    vec![
        ("net/ipv4/ip_forward".to_owned(), "1"),
        // A host may forward by default and yet create interfaces that do not.
        (format!("net/ipv4/conf/{name}/forwarding"), "1"),
        // The host answers ARP for guests whose isolated ports cannot reach each other.
        (format!("net/ipv4/conf/{name}/proxy_arp_pvlan"), "1"),
        // And for guests of other nodes, which are behind another interface.
        (format!("net/ipv4/conf/{name}/proxy_arp"), "1"),
        // Otherwise such an answer waits for up to 0.8 s.
        (format!("net/ipv4/neigh/{name}/proxy_delay"), "0"),
        // There is no IPv6 on this network, so the host shall not listen there.
        (format!("net/ipv6/conf/{name}/disable_ipv6"), "1"),
    ]
}

fn obstructed(port: &Port, seen: &ObservedNetwork) -> Option<Conflict> {
    let tap = || port.tap.clone();
    if let Some(link) = seen.links.get(&port.tap)
        && !matches!(link.kind, LinkKind::Tap { .. })
    {
        return Some(Conflict::NotATap { name: tap() });
    }
    let Attachment::Bridge { name, vlans, .. } = &port.attachment else { return None };
    match seen.links.get(name) {
        None => Some(Conflict::NoBridge { tap: tap(), bridge: name.clone() }),
        Some(link) if link.kind != LinkKind::Bridge => {
            Some(Conflict::NotABridge { tap: tap(), bridge: name.clone() })
        }
        // A guest of a VLAN must not be connected to the untagged network.
        Some(link) if !link.filters_vlans && *vlans != PortVlan::untagged() => {
            Some(Conflict::Unfiltered { tap: tap(), bridge: name.clone() })
        }
        Some(_) => None,
    }
}

/// Taps of ours without a port in `want`.
fn unwanted_taps<'a>(
    want: &DesiredNetwork,
    seen: &'a ObservedNetwork,
) -> Vec<(&'a LinkName, &'a NetworkInterface)> {
    let prefix = want.bridge.tap_prefix.as_str();
    let is_ours = |name: &LinkName, link: &NetworkInterface| {
        name.as_str().starts_with(prefix) && matches!(link.kind, LinkKind::Tap { .. })
    };
    let taps = seen.links.iter().filter(|(name, link)| is_ours(name, link));
    taps.filter(|(name, _)| want.ports.iter().all(|port| port.tap != **name)).collect()
}

fn bridge(bridge: &Bridge, seen: &ObservedNetwork) -> Vec<NetworkAction> {
    let (name, mac, mtu) = (bridge.name.clone(), bridge.mac(), bridge.mtu);
    let mut actions = Vec::new();
    match seen.links.get(&name) {
        None => actions.push(NetworkAction::CreateBridge { name, mac, mtu }),
        Some(link) if link.mac != Some(mac) || link.mtu != u32::from(mtu) || !link.is_up => {
            actions.push(NetworkAction::ChangeBridge { name, mac, mtu });
        }
        Some(_) => {}
    }
    let outdated = seen.addresses.iter().filter(|address| **address != bridge.gateway);
    actions.extend(outdated.map(|address| NetworkAction::RemoveAddress { address: *address }));
    if !seen.addresses.contains(&bridge.gateway) {
        actions.push(NetworkAction::AddAddress { address: bridge.gateway });
    }
    let exists = seen.links.contains_key(&bridge.name);
    for (key, value) in sysctls(bridge) {
        match seen.sysctls.get(&key) {
            Some(current) if current == value => {}
            // A kernel without IPv6 has no switch for it.
            None if exists && key.starts_with("net/ipv6/") => {}
            _ => actions.push(NetworkAction::SetSysctl { key, value: value.to_owned() }),
        }
    }
    actions
}

/// An existing tap is adopted. One with the wrong owner is created again, unless a guest uses it:
/// the owner does not matter to a process that has it open.
fn create_tap(port: &Port, seen: &ObservedNetwork) -> Option<Vec<NetworkAction>> {
    let (tap, owner, queues) = (port.tap.clone(), port.owner, port.queues);
    let create = NetworkAction::CreateTap { tap: tap.clone(), owner, queues };
    match seen.links.get(&port.tap).map(|link| &link.kind) {
        Some(LinkKind::Tap { is_open: true, .. }) => None,
        Some(LinkKind::Tap { owner: Some(has), queues: with, .. })
            if *has == owner && *with == queues =>
        {
            None
        }
        Some(_) => Some(vec![NetworkAction::DeleteTap { tap }, create]),
        None => Some(vec![create]),
    }
}

/// Neighbours are permanent, so that a DHCP answer reaches a guest that has no address yet, and
/// that no forged ARP answer turns the host's traffic away.
fn neighbours(want: &DesiredNetwork, seen: &ObservedNetwork) -> Vec<NetworkAction> {
    let wanted: BTreeMap<_, _> =
        want.ports.iter().filter_map(|port| Some((port.address()?, port.mac))).collect();
    let outdated = seen.neighbours.keys().filter(|address| !wanted.contains_key(*address));
    let missing =
        wanted.iter().filter(|(address, mac)| seen.neighbours.get(*address) != Some(*mac));
    let remove = outdated.map(|address| NetworkAction::RemoveNeighbour { address: *address });
    let set =
        missing.map(|(address, mac)| NetworkAction::SetNeighbour { address: *address, mac: *mac });
    remove.chain(set).collect()
}

fn attach(ours: &Bridge, port: &Port, seen: &ObservedNetwork) -> Option<NetworkAction> {
    let (bridge, isolation, vlans) = match &port.attachment {
        Attachment::Nat { .. } => (&ours.name, Isolation::Isolated, None),
        Attachment::Bridge { name, vlans, .. } => (name, Isolation::Shared, Some(vlans)),
    };
    let target = seen.links.get(bridge);
    let vlans = vlans.filter(|_| target.is_some_and(|bridge| bridge.filters_vlans));
    // A frame of the bridge must fit through its ports, ours and those of others alike.
    let mtu = match (&port.attachment, target) {
        (Attachment::Bridge { .. }, Some(link)) => u16::try_from(link.mtu).unwrap_or(u16::MAX),
        _ => ours.mtu,
    };
    let is_attached = seen.links.get(&port.tap).is_some_and(|link| {
        let is_isolated = match link.kind {
            LinkKind::Tap { is_isolated, .. } => is_isolated,
            _ => false,
        };
        link.is_up
            && link.group == GROUP
            && link.mtu == u32::from(mtu)
            && target.is_some_and(|target| link.master == Some(target.index))
            && is_isolated == (isolation == Isolation::Isolated)
            && vlans.is_none_or(|vlans| link.vlans == *vlans)
    });
    let is_recreated = create_tap(port, seen).is_some();
    (!is_attached || is_recreated).then(|| NetworkAction::Attach {
        tap: port.tap.clone(),
        bridge: bridge.clone(),
        mtu,
        isolation,
        vlans: vlans.cloned(),
    })
}

#[cfg(test)]
mod tests;
