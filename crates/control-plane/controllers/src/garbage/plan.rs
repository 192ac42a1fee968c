//! The next step for an object, given the graph and the server's answers: pure.
//!
//! The rules are those of Kubernetes. An object with at least one owner that exists and
//! does not wait for its dependents stays, and loses the references to all others. One
//! whose owners are all absent goes; one whose owners wait for it goes too, in the
//! foreground if it has dependents itself.

use client::{Meta, Owner};

use super::graph::{FOREGROUND, Graph, ORPHAN, ObjectLocation, OwnerState, Uid};

/// The server's answer about an owner that the graph does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerLookup {
    Present,
    /// Present, and deleted in the foreground.
    Foreground,
    Absent,
    /// A cluster-scoped object names an owner that lives in a namespace: there is no place
    /// to search for it, and no retry will help.
    Impossible,
}

/// The treatment of the dependents of an object that is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletionPropagation {
    Background,
    Foreground,
    Orphan,
}

/// One write, valid only for the version of the object that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GarbageAction {
    Delete(DeletionPropagation),
    SetOwners(Vec<Owner>),
    SetFinalizers(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GarbageVerdict {
    /// Nothing to do until something changes.
    Settled,
    /// Check again later: an owner exists that was not observed, and its deletion might
    /// never be.
    Poll,
    /// The object itself is gone.
    Gone,
    /// These dependents have to go first.
    Examine(Vec<Uid>),
    Act(GarbageAction),
}

/// The owners that only the server knows about.
pub(crate) fn unknown_owners(graph: &Graph, latest: &Meta) -> Vec<Owner> {
    latest
        .owner_references
        .iter()
        .filter(|owner| graph.known(owner, &latest.namespace) == OwnerState::Unknown)
        .cloned()
        .collect()
}

/// Decides about the object `uid`, of which the server has the version `latest`;
/// `answers` are what it said about [`unknown_owners`].
pub(crate) fn decide(
    graph: &Graph,
    uid: &Uid,
    latest: Option<&Meta>,
    answers: &[(Owner, OwnerLookup)],
) -> GarbageVerdict {
    let Some(latest) = latest.filter(|latest| latest.uid == *uid) else {
        return GarbageVerdict::Gone;
    };
    if latest.deleting && latest.has_finalizer(FOREGROUND) {
        return release(graph, latest);
    }
    if latest.deleting || latest.owner_references.is_empty() {
        return GarbageVerdict::Settled;
    }
    let owners = match classify(graph, latest, answers) {
        Ok(owners) => owners,
        Err(verdict) => return verdict,
    };
    if !owners.solid.is_empty() {
        return match owners.solid.len() == latest.owner_references.len() {
            true if owners.unobserved => GarbageVerdict::Poll,
            true => GarbageVerdict::Settled,
            // A waiting owner has to go as well, or it would wait for this object forever.
            false => GarbageVerdict::Act(GarbageAction::SetOwners(owners.solid)),
        };
    }
    if owners.waiting && graph.dependents_of(uid).next().is_some() {
        return delete_in_foreground(graph, uid, latest);
    }
    GarbageVerdict::Act(GarbageAction::Delete(policy(latest)))
}

/// The references of `dependent` without `owner`; nothing if it is not among them.
pub(crate) fn without_owner(dependent: &Meta, owner: &Uid) -> Option<GarbageAction> {
    let named = |reference: &Owner| reference.uid == *owner;
    dependent.owner_references.iter().any(named).then(|| {
        let kept = dependent.owner_references.iter().filter(|reference| !named(reference));
        GarbageAction::SetOwners(kept.cloned().collect())
    })
}

/// The finalizers of an object without `finalizer`; nothing if it is not among them.
pub(crate) fn without_finalizer(latest: &Meta, finalizer: &str) -> Option<GarbageAction> {
    latest.has_finalizer(finalizer).then(|| {
        let kept = latest.finalizers.iter().filter(|own| *own != finalizer);
        GarbageAction::SetFinalizers(kept.cloned().collect())
    })
}

/// Where to search for an owner of an object in `namespace`, or why there is no such place.
pub(crate) fn owner_namespace(namespaced: bool, namespace: &str) -> Result<&str, OwnerLookup> {
    match (namespaced, namespace) {
        (false, _) => Ok(""),
        (true, "") => Err(OwnerLookup::Impossible),
        (true, namespace) => Ok(namespace),
    }
}

/// The result of a lookup of `owner`.
pub(crate) fn answer(owner: &Owner, found: Option<&Meta>) -> OwnerLookup {
    match found {
        Some(meta) if meta.uid == owner.uid => {
            if meta.deleting && meta.has_finalizer(FOREGROUND) {
                OwnerLookup::Foreground
            } else {
                OwnerLookup::Present
            }
        }
        _ => OwnerLookup::Absent,
    }
}

/// The text of the event about an owner in another namespace.
pub(crate) fn misplaced_owner(place: &ObjectLocation, owner: &Owner) -> String {
    format!(
        "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace \"{}\"",
        owner.api_version, owner.kind, place.namespace, owner.name, owner.uid, place.namespace
    )
}

struct Owners {
    solid: Vec<Owner>,
    /// Whether one of the solid owners is known from the server only.
    unobserved: bool,
    /// Whether an owner waits for its dependents.
    waiting: bool,
}

fn classify(
    graph: &Graph,
    latest: &Meta,
    answers: &[(Owner, OwnerLookup)],
) -> Result<Owners, GarbageVerdict> {
    let mut owners = Owners { solid: Vec::new(), unobserved: false, waiting: false };
    for owner in &latest.owner_references {
        let answer = match graph.known(owner, &latest.namespace) {
            OwnerState::Solid => OwnerLookup::Present,
            OwnerState::Foreground => OwnerLookup::Foreground,
            OwnerState::Absent => OwnerLookup::Absent,
            OwnerState::Unknown => match answers.iter().find(|(asked, _)| asked == owner) {
                Some((_, answer)) => *answer,
                // Known when the server was asked about the others, and not any more.
                None => return Err(GarbageVerdict::Poll),
            },
        };
        match answer {
            OwnerLookup::Present => {
                owners.unobserved |= !graph.is_observed(&owner.uid);
                owners.solid.push(owner.clone());
            }
            OwnerLookup::Foreground => owners.waiting = true,
            OwnerLookup::Absent => {}
            OwnerLookup::Impossible => return Err(GarbageVerdict::Settled),
        }
    }
    Ok(owners)
}

/// An object that waits for its dependents: release it, or delete them.
fn release(graph: &Graph, latest: &Meta) -> GarbageVerdict {
    let blocking = graph.blocking_dependents(&latest.uid);
    if blocking.is_empty() {
        return without_finalizer(latest, FOREGROUND)
            .map_or(GarbageVerdict::Settled, GarbageVerdict::Act);
    }
    // Dependents that themselves wait are on their way.
    let idle = blocking.into_iter().filter(|dependent| !graph.is_foreground(dependent));
    GarbageVerdict::Examine(idle.collect())
}

/// If a dependent waits as well there may be a circle, in which each would wait for the
/// other: this object then stops blocking its owners first.
fn delete_in_foreground(graph: &Graph, uid: &Uid, latest: &Meta) -> GarbageVerdict {
    let circle = graph.dependents_of(uid).any(|dependent| graph.is_foreground(dependent));
    if circle && latest.owner_references.iter().any(Owner::blocks) {
        let owners = latest.owner_references.iter().cloned();
        let unblocked = |owner: Owner| Owner { block_owner_deletion: Some(false), ..owner };
        return GarbageVerdict::Act(GarbageAction::SetOwners(owners.map(unblocked).collect()));
    }
    GarbageVerdict::Act(GarbageAction::Delete(DeletionPropagation::Foreground))
}

/// Finalizers that are there already say what was wanted for the dependents.
fn policy(latest: &Meta) -> DeletionPropagation {
    if latest.has_finalizer(ORPHAN) {
        DeletionPropagation::Orphan
    } else if latest.has_finalizer(FOREGROUND) {
        DeletionPropagation::Foreground
    } else {
        DeletionPropagation::Background
    }
}
