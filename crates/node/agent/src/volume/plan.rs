//! The actions for the volumes of this node. Pure.
//!
//! A volume is made for a claim, filled, grown, and removed; each of these is one action,
//! and one volume has at most one action under way:
//!
//!   claim announced ──Provision──► directory, disk, PV ──(bound)──Fill──► ready
//!                                                       request larger ──Grow──► ready
//!   PV released or deleted ──Remove──► files gone ──► PV gone
//!   PV moved to another node ──Leave──► files gone
//!
//! Files are never removed because an object is missing, with one exception: a directory
//! that still carries its mark of being made or copied was never in use.

use std::collections::{BTreeMap, BTreeSet};

use super::object::{Claim, FillProgress, LocalVolume, VolumePlace};
use super::source::FillSource;

/// The observed state.
#[derive(Debug, Default)]
pub(super) struct VolumeWorld<'a> {
    pub(super) node: &'a str,
    /// By uid.
    pub(super) claims: BTreeMap<&'a str, &'a Claim>,
    /// Those of this node, and those that come or have left, by name.
    pub(super) volumes: BTreeMap<&'a str, &'a LocalVolume>,
    /// Replicated volumes that this node fills, by their own names.
    pub(super) filled_here: BTreeSet<String>,
    /// Directories on disk, by the name of their volume.
    pub(super) found: BTreeMap<&'a str, FoundVolume>,
    /// Running actions, and those that wait after a failure, by the name of their volume.
    pub(super) under_way: BTreeMap<&'a str, LongAction>,
}

/// A directory of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundVolume {
    pub(super) mark: Option<DirectoryMark>,
    /// The length of its disk, if there is one.
    pub(super) size: Option<u64>,
}

/// Why a directory is not that of a volume of this node, or not yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryMark {
    /// Its volume may not exist yet.
    New,
    /// Its data comes from the node of its volume, with a guest.
    Copy,
}

/// The kinds of actions that take time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LongAction {
    Filling,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VolumeAction {
    /// Make a volume for the claim with this uid.
    Provision {
        claim: String,
    },
    /// Take the mark off the directory of a volume that exists.
    Settle {
        volume: String,
    },
    Fill {
        volume: String,
        claim: String,
        source: FillSource,
    },
    /// Make disk, volume and claim say this size.
    Grow {
        volume: String,
        claim: String,
        size: u64,
    },
    /// Remove files and then the volume.
    Remove {
        volume: String,
    },
    /// Let a deleted volume go and keep its files.
    Release {
        volume: String,
    },
    /// Remove the files of a volume that has moved to another node.
    Leave {
        volume: String,
    },
    /// Remove a directory that never was the one of a volume.
    Discard {
        volume: String,
    },
    /// Stop what is under way.
    Cancel {
        volume: String,
    },
}

/// Decides what would bring the volumes nearer to what the claims want.
pub(super) fn plan(world: &VolumeWorld<'_>) -> Vec<VolumeAction> {
    let mut actions = Vec::new();
    for claim in world.claims.values() {
        actions.extend(for_claim(world, claim));
    }
    for volume in world.volumes.values() {
        actions.extend(for_volume(world, volume));
    }
    for (name, found) in &world.found {
        if found.mark.is_some() && is_idle(world, name) && !world.volumes.contains_key(name) {
            let owner = name.strip_prefix("pvc-").unwrap_or_default();
            let is_wanted = world.claims.get(owner).is_some_and(|claim| wants(world, claim));
            if !is_wanted {
                actions.push(VolumeAction::Discard { volume: (*name).into() });
            }
        }
    }
    actions
}

/// Whether a claim waits for this node to make a volume.
fn wants(world: &VolumeWorld<'_>, claim: &Claim) -> bool {
    claim.wanted_on.as_deref() == Some(world.node) && claim.volume.is_none() && !claim.is_deleting
}

fn is_idle(world: &VolumeWorld<'_>, volume: &str) -> bool {
    !world.under_way.contains_key(volume)
}

fn for_claim(world: &VolumeWorld<'_>, claim: &Claim) -> Option<VolumeAction> {
    let volume = claim.volume_name();
    let missing = !world.volumes.contains_key(volume.as_str());
    (wants(world, claim) && missing && is_idle(world, &volume))
        .then(|| VolumeAction::Provision { claim: claim.uid.clone() })
}

fn for_volume(world: &VolumeWorld<'_>, volume: &LocalVolume) -> Option<VolumeAction> {
    let name = volume.name.clone();
    match volume.place {
        VolumePlace::Here => {}
        // The migration of its machine ends first.
        VolumePlace::Arriving => return None,
        VolumePlace::Left => {
            let is_found = world.found.contains_key(name.as_str()) && is_idle(world, &name);
            return is_found.then_some(VolumeAction::Leave { volume: name });
        }
    }
    let claim = world.claims.get(volume.owner.as_str()).copied();
    let claim = claim.filter(|claim| claim.volume.as_deref() == Some(&volume.name));
    let doing = world.under_way.get(name.as_str());
    if doing == Some(&LongAction::Filling) && claim.is_none_or(|claim| claim.is_deleting) {
        return Some(VolumeAction::Cancel { volume: name });
    }
    if !is_idle(world, &name) {
        return None;
    }
    if let Some(handle) = &volume.replicated {
        let claim = claim.filter(|_| world.filled_here.contains(handle))?;
        return fill(volume, claim);
    }
    if volume.is_deleting || volume.phase == "Released" {
        return end(volume, claim);
    }
    let found = world.found.get(name.as_str())?;
    if found.mark.is_some() {
        return Some(VolumeAction::Settle { volume: name });
    }
    let claim = claim.filter(|claim| claim.is_bound && !claim.is_deleting)?;
    fill(volume, claim).or_else(|| grow(volume, claim, *found))
}

fn fill(volume: &LocalVolume, claim: &Claim) -> Option<VolumeAction> {
    if !claim.is_bound || claim.is_deleting {
        return None;
    }
    match (&claim.source, claim.progress) {
        // An upload begins when it comes.
        (Some(FillSource::Upload), FillProgress::Ready) => None,
        (Some(source), FillProgress::Open | FillProgress::Ready) => Some(VolumeAction::Fill {
            volume: volume.name.clone(),
            claim: claim.uid.clone(),
            source: source.clone(),
        }),
        _ => None,
    }
}

/// A volume without a claim, or that is to go.
fn end(volume: &LocalVolume, claim: Option<&Claim>) -> Option<VolumeAction> {
    let name = volume.name.clone();
    // The deletion of a claimed volume waits for the claim.
    if claim.is_some() {
        return None;
    }
    if volume.is_dropped {
        return Some(VolumeAction::Remove { volume: name });
    }
    (volume.is_deleting && volume.holds_finalizer).then_some(VolumeAction::Release { volume: name })
}

fn grow(volume: &LocalVolume, claim: &Claim, found: FoundVolume) -> Option<VolumeAction> {
    let size = claim.size;
    let disk = found.size?;
    let short = disk < size || volume.capacity < claim_bytes(claim);
    let reported = claim.capacity.is_none_or(|capacity| capacity >= claim_bytes(claim));
    (short || !reported).then(|| VolumeAction::Grow {
        volume: volume.name.clone(),
        claim: claim.uid.clone(),
        size,
    })
}

/// The size that the claim requests, which may be less than whole pages.
fn claim_bytes(claim: &Claim) -> u64 {
    let text = virt::api::atom::Quantity::from(claim.request.as_str());
    text.units().and_then(|units| u64::try_from(units).ok()).unwrap_or(claim.size)
}

#[cfg(test)]
mod tests;
