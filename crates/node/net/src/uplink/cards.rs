//! The cards that a bond adds and removes, and links of ours that are not needed any more. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::UplinkStep;
use super::{ObservedKind, ObservedLink, ObservedLinks, Uplink, UplinkProblem};
use crate::name::LinkName;

/// Links of ours that no uplink wants.
pub(super) struct Stale<'a> {
    bridges: Vec<&'a LinkName>,
    bonds: Vec<(&'a LinkName, u32)>,
}

impl<'a> Stale<'a> {
    /// A bridge that guests use stays, and so does its bond: no guest loses a network by mistake.
    pub(super) fn new(
        wanted: &BTreeSet<&LinkName>,
        seen: &'a ObservedLinks,
        problems: &mut Vec<(LinkName, UplinkProblem)>,
    ) -> Self {
        let stale: Vec<_> =
            seen.iter().filter(|(name, link)| link.is_ours() && !wanted.contains(name)).collect();
        let is_bond = |link: &ObservedLink| matches!(link.kind, ObservedKind::Bond { .. });
        let (mut bridges, mut kept) = (Vec::new(), BTreeSet::new());
        for (name, bridge) in &stale {
            if !matches!(bridge.kind, ObservedKind::Bridge { .. }) {
                continue;
            }
            let mut ports = seen.iter().filter(|(_, port)| port.master == Some(bridge.index));
            match ports.find(|(_, port)| !(port.is_ours() && is_bond(port))) {
                None => bridges.push(*name),
                Some((port, _)) => {
                    kept.insert(bridge.index);
                    let (bridge, port) = ((*name).clone(), port.clone());
                    problems.push((bridge.clone(), UplinkProblem::InUse { bridge, port }));
                }
            }
        }
        let is_kept = |bond: &ObservedLink| bond.master.is_some_and(|index| kept.contains(&index));
        let bonds = stale.iter().filter(|(_, link)| is_bond(link) && !is_kept(link));
        let bonds = bonds.map(|(name, link)| (*name, link.index)).collect();
        Self { bridges, bonds }
    }

    fn removes_bond(&self, index: u32) -> bool {
        self.bonds.iter().any(|(_, of)| *of == index)
    }

    pub(super) fn steps(&self) -> Vec<UplinkStep> {
        let bonds = self.bonds.iter().map(|(bond, _)| (*bond).clone());
        let bridges = self.bridges.iter().map(|bridge| (*bridge).clone());
        let bonds = bonds.map(|bond| UplinkStep::DeleteBond { bond });
        bonds.chain(bridges.map(|bridge| UplinkStep::DeleteBridge { bridge })).collect()
    }
}

/// When a card changes its bond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberPhase {
    Add,
    Release,
    AddReleased,
}

/// Which card changes its bond, and when.
pub(super) struct Cards<'a> {
    usable: &'a [&'a Uplink],
    seen: &'a ObservedLinks,
    stale: &'a Stale<'a>,
    owners: BTreeMap<&'a LinkName, &'a LinkName>,
}

impl<'a> Cards<'a> {
    pub(super) fn new(
        usable: &'a [&'a Uplink],
        seen: &'a ObservedLinks,
        stale: &'a Stale<'a>,
    ) -> Self {
        Self { usable, seen, stale, owners: owners(usable, seen) }
    }

    fn is_owned(&self, uplink: &Uplink, nic: &LinkName) -> bool {
        self.owners.get(nic) == Some(&&uplink.bridge)
    }

    /// Whether the bond with this index gives a card of its own up.
    fn releases(&self, bond: u32, nic: &LinkName) -> bool {
        let has_bond =
            |uplink: &&&Uplink| self.seen.get(&uplink.bond).is_some_and(|own| own.index == bond);
        match self.usable.iter().find(has_bond) {
            Some(uplink) => !self.is_owned(uplink, nic) && !holds(uplink, self.seen),
            None => self.stale.removes_bond(bond),
        }
    }

    /// When `nic` joins the bond of `uplink`; never, if it is in it already.
    fn addition(
        &self,
        uplink: &Uplink,
        nic: &LinkName,
    ) -> Result<Option<MemberPhase>, UplinkProblem> {
        if self.seen.contains_key(nic) && !self.is_owned(uplink, nic) {
            let other = self.owners.get(nic).map_or(&uplink.bridge, |owner| *owner).clone();
            return Err(UplinkProblem::Shared { nic: nic.clone(), other });
        }
        let own = self.seen.get(&uplink.bond).map(|bond| bond.index);
        let is_emptied = needs_other_mode(uplink, self.seen);
        match usable_card(nic, self.seen)?.master {
            None if is_emptied => Ok(Some(MemberPhase::AddReleased)),
            None => Ok(Some(MemberPhase::Add)),
            master if master == own => Ok(is_emptied.then_some(MemberPhase::AddReleased)),
            Some(bond) if self.releases(bond, nic) => Ok(Some(MemberPhase::AddReleased)),
            Some(master) => Err(UplinkProblem::Enslaved { nic: nic.clone(), master }),
        }
    }

    pub(super) fn problems(&self) -> Vec<(LinkName, UplinkProblem)> {
        let of = |uplink: &&'a Uplink| {
            let bridge = uplink.bridge.clone();
            let failed = unique(&uplink.nics).filter_map(|nic| self.addition(uplink, nic).err());
            failed.map(|problem| (bridge.clone(), problem)).collect::<Vec<_>>()
        };
        self.usable.iter().flat_map(of).collect()
    }

    pub(super) fn steps(&self, uplink: &Uplink, phase: MemberPhase) -> Vec<UplinkStep> {
        let bond = || uplink.bond.clone();
        if phase == MemberPhase::Release {
            let released = self.released(uplink).into_iter();
            return released.map(|nic| UplinkStep::RemoveMember { bond: bond(), nic }).collect();
        }
        let is_due = |nic: &&LinkName| self.addition(uplink, nic) == Ok(Some(phase));
        let due = unique(&uplink.nics).filter(is_due);
        due.map(|nic| UplinkStep::AddMember { bond: bond(), nic: nic.clone() }).collect()
    }

    /// The cards that the bond gives up, last the one that frames leave through.
    fn released(&self, uplink: &Uplink) -> Vec<LinkName> {
        let Some(own) = self.seen.get(&uplink.bond).map(|bond| bond.index) else { return vec![] };
        let is_emptied = needs_other_mode(uplink, self.seen);
        let members = self.seen.iter().filter(|(_, link)| link.master == Some(own));
        let mut released: Vec<_> =
            members.filter(|(nic, _)| is_emptied || self.releases(own, nic)).collect();
        released.sort_by_key(|(_, link)| link.member.is_some_and(|member| member.is_active));
        released.into_iter().map(|(nic, _)| nic.clone()).collect()
    }
}

pub(super) fn unique(nics: &[LinkName]) -> impl Iterator<Item = &LinkName> {
    nics.iter().enumerate().filter(|(at, nic)| !nics[..*at].contains(nic)).map(|(_, nic)| nic)
}

/// The uplink that gets a card that several want: the one that has it, or else the first.
fn owners<'a>(
    usable: &[&'a Uplink],
    seen: &'a ObservedLinks,
) -> BTreeMap<&'a LinkName, &'a LinkName> {
    let mut owners = BTreeMap::new();
    for uplink in usable {
        let own = seen.get(&uplink.bond).map(|bond| bond.index);
        for nic in &uplink.nics {
            let has_it = own.is_some() && seen.get(nic).is_some_and(|card| card.master == own);
            if has_it || !owners.contains_key(nic) {
                owners.insert(nic, &uplink.bridge);
            }
        }
    }
    owners
}

/// A card that exists and that the host does not use itself.
fn usable_card<'a>(
    nic: &LinkName,
    seen: &'a ObservedLinks,
) -> Result<&'a ObservedLink, UplinkProblem> {
    let nic = nic.clone();
    let Some(card) = seen.get(&nic) else { return Err(UplinkProblem::Missing { nic }) };
    if !card.is_card() {
        let kind = card.kind_name().to_owned();
        return Err(UplinkProblem::NotANic { nic, kind });
    }
    let is_ours = |index| seen.values().any(|link| link.index == index && link.is_ours());
    match (card.master, card.addresses.first()) {
        (Some(master), _) if is_ours(master) => return Ok(card),
        (Some(master), _) => return Err(UplinkProblem::Enslaved { nic, master }),
        (None, Some(address)) => return Err(UplinkProblem::HasAddress { nic, address: *address }),
        (None, None) => {}
    }
    match seen.iter().find(|(_, link)| link.lower == Some(card.index)) {
        Some((upper, _)) => Err(UplinkProblem::HasUpper { nic, upper: upper.clone() }),
        None => Ok(card),
    }
}

/// Whether a bond keeps cards that are not wanted any more, because none that is wanted can be had.
fn holds(uplink: &Uplink, seen: &ObservedLinks) -> bool {
    !uplink.nics.is_empty() && uplink.nics.iter().all(|nic| usable_card(nic, seen).is_err())
}

/// Whether the bond has to change its mode, for which it gives up all cards for a moment. Cards that
/// it would not get back are not given up.
pub(super) fn needs_other_mode(uplink: &Uplink, seen: &ObservedLinks) -> bool {
    let Some(bond) = seen.get(&uplink.bond) else { return false };
    let ObservedKind::Bond { mode, .. } = &bond.kind else { return false };
    let has_cards = || seen.values().any(|link| link.master == Some(bond.index));
    *mode != Some(uplink.mode) && !(holds(uplink, seen) && has_cards())
}
