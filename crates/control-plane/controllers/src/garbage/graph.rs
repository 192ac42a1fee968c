//! The observed graph of owners and dependents: pure.
//!
//! Objects are known by uid; owners that were not observed yet are only keys of the
//! dependents index. Each change answers with the work that follows from it. The graph
//! may lag behind the server and kinds may be observed in any order, so that work is
//! always a reason to check, never a decision: those are in [`super::plan`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use client::{CatalogKind, Meta, Owner};

use super::names::StringInterner;

pub(crate) type Uid = Arc<str>;

/// Finalizer of an owner that waits until its blocking dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner that waits until its dependents no longer name it.
pub(crate) const ORPHAN: &str = "orphan";

/// How many absent owners are remembered: enough for one wave of dependents to ask the
/// server once and not each for itself.
const ABSENT_LIMIT: usize = 500;

/// Where an object is: enough to ask the server for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectLocation {
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

/// The objects to reconcile because of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GarbageWork {
    /// Decide whether this object may stay.
    Examine(Uid),
    /// The same for an owner that waits for its dependents, once those created shortly
    /// before have had time to be observed.
    Release(Uid),
    /// Take this owner out of its dependents' references, then release it.
    Orphan(Uid),
    /// Notify the user that `owner` cannot own this object from another namespace.
    Report { uid: Uid, place: ObjectLocation, owner: Owner },
}

#[derive(Debug)]
struct OwnerNode {
    resource: u16,
    /// The listing of its kind that last named it.
    listing: u32,
    namespace: Arc<str>,
    name: Arc<str>,
    owners: Box<[Owner]>,
    deleting: bool,
    /// Deleted in the foreground: waits for its dependents.
    foreground: bool,
}

/// One followed kind; compared by group and plural, because its version may change.
#[derive(Debug)]
struct FollowedKind {
    group: Box<str>,
    plural: Box<str>,
    version: Box<str>,
    api_version: Arc<str>,
    kind: Arc<str>,
    listing: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<Uid, OwnerNode>,
    /// Owner to dependents, also for owners not observed.
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    resources: Vec<FollowedKind>,
    absent: Absent,
    names: StringInterner,
}

/// The graph's knowledge of an owner reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerState {
    Solid,
    Foreground,
    Absent,
    /// Only the server can say.
    Unknown,
}

impl Graph {
    /// A list of all objects of `kind` begins.
    pub(crate) fn listing(&mut self, kind: &CatalogKind) {
        let resource = usize::from(self.resource(kind));
        self.resources[resource].listing += 1;
    }

    /// The list has ended: objects that were not in it are gone.
    pub(crate) fn listed(&mut self, kind: &CatalogKind) -> Vec<GarbageWork> {
        let resource = self.resource(kind);
        let listing = self.resources[usize::from(resource)].listing;
        let gone = |node: &OwnerNode| node.resource == resource && node.listing != listing;
        self.uids_where(gone).iter().flat_map(|uid| self.delete(uid)).collect()
    }

    /// The kind is not served any more. Whether its objects still exist is unknown: the
    /// server that has them may be away for a while.
    pub(crate) fn dropped(&mut self, kind: &CatalogKind) -> Vec<GarbageWork> {
        let resource = self.resource(kind);
        let uids = self.uids_where(|node| node.resource == resource);
        uids.iter().flat_map(|uid| self.forget(uid)).collect()
    }

    /// An object was created or changed.
    pub(crate) fn apply(&mut self, kind: &CatalogKind, meta: &Meta) -> Vec<GarbageWork> {
        let resource = self.resource(kind);
        let node = OwnerNode {
            resource,
            listing: self.resources[usize::from(resource)].listing,
            namespace: self.names.share(&meta.namespace),
            name: Arc::clone(&meta.name),
            owners: meta.owner_references.iter().map(|owner| self.names.owner(owner)).collect(),
            deleting: meta.deleting,
            foreground: meta.deleting && meta.has_finalizer(FOREGROUND),
        };
        let orphans = meta.deleting && meta.has_finalizer(ORPHAN);
        let uid = Arc::clone(&meta.uid);
        let mut work = Vec::new();
        let owners = node.owners.clone();
        let foreground = node.foreground;
        let old = self.nodes.insert(Arc::clone(&uid), node);
        self.relink(&uid, old.as_ref().map_or(&[], |old| &*old.owners), &owners, &mut work);
        if old.is_none() {
            self.doubt_dependents(&uid, &mut work);
        }
        if orphans {
            work.push(GarbageWork::Orphan(uid));
        } else if foreground {
            if !old.is_some_and(|old| old.foreground) {
                work.extend(self.dependents_of(&uid).cloned().map(GarbageWork::Examine));
            }
            work.push(GarbageWork::Release(uid));
        }
        work
    }

    /// An object is gone.
    pub(crate) fn delete(&mut self, uid: &Uid) -> Vec<GarbageWork> {
        if let Some(place) = self.place(uid)
            && self.dependents.contains_key(uid)
        {
            self.absent.add(uid, place);
        }
        self.forget(uid)
    }

    /// The server said that there is no owner `uid` at `place`.
    pub(crate) fn remember_absent(&mut self, uid: &Uid, place: ObjectLocation) {
        self.absent.add(uid, place);
    }

    pub(crate) fn place(&self, uid: &Uid) -> Option<ObjectLocation> {
        self.nodes.get(uid).map(|node| self.place_of(node))
    }

    /// Whether anything about the object is in doubt, so that it is worth asking the server.
    pub(crate) fn needs_check(&self, uid: &Uid) -> bool {
        let Some(node) = self.nodes.get(uid) else { return false };
        if node.deleting {
            return node.foreground;
        }
        node.owners.iter().any(|owner| self.known(owner, &node.namespace) != OwnerState::Solid)
    }

    pub(crate) fn is_foreground(&self, uid: &Uid) -> bool {
        self.nodes.get(uid).is_some_and(|node| node.foreground)
    }

    pub(crate) fn is_observed(&self, uid: &Uid) -> bool {
        self.nodes.contains_key(uid)
    }

    pub(crate) fn dependents_of(&self, uid: &Uid) -> impl Iterator<Item = &Uid> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Dependents that an owner deleted in the foreground has to wait for.
    pub(crate) fn blocking_dependents(&self, uid: &Uid) -> Vec<Uid> {
        let blocks = |dependent: &&Uid| {
            self.nodes.get(*dependent).is_some_and(|node| {
                node.owners.iter().any(|owner| owner.uid == *uid && owner.blocks())
            })
        };
        self.dependents_of(uid).filter(blocks).cloned().collect()
    }

    /// The state of `owner` as named by an object in `namespace`.
    pub(crate) fn known(&self, owner: &Owner, namespace: &str) -> OwnerState {
        if let Some(node) = self.nodes.get(&owner.uid)
            && self.matches(node, owner, namespace)
        {
            return if node.foreground { OwnerState::Foreground } else { OwnerState::Solid };
        }
        if self.absent.has(owner, namespace) { OwnerState::Absent } else { OwnerState::Unknown }
    }

    /// Moves `uid` from the dependents of its old owners to those of the new.
    fn relink(&mut self, uid: &Uid, old: &[Owner], new: &[Owner], work: &mut Vec<GarbageWork>) {
        for owner in old {
            let kept = new.iter().find(|new| new.uid == owner.uid);
            if kept.is_none() {
                self.unlink(&owner.uid, uid);
            }
            let unblocked = owner.blocks() && !kept.is_some_and(Owner::blocks);
            if unblocked && self.is_foreground(&owner.uid) {
                work.push(GarbageWork::Examine(Arc::clone(&owner.uid)));
            }
        }
        let Some(node) = self.nodes.get(uid) else { return };
        let namespace = Arc::clone(&node.namespace);
        let mut doubtful = false;
        for owner in new {
            let dependents = self.dependents.entry(Arc::clone(&owner.uid)).or_default();
            dependents.insert(Arc::clone(uid));
            if !old.contains(owner) {
                doubtful |= self.known(owner, &namespace) != OwnerState::Solid;
                work.extend(self.report(uid, owner));
            }
        }
        if doubtful {
            work.push(GarbageWork::Examine(Arc::clone(uid)));
        }
    }

    fn unlink(&mut self, owner: &Uid, dependent: &Uid) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// An owner that was known from references only is seen now: dependents whose references
    /// differ from it have to be examined.
    fn doubt_dependents(&self, uid: &Uid, work: &mut Vec<GarbageWork>) {
        for dependent in self.dependents_of(uid) {
            let Some(node) = self.nodes.get(dependent) else { continue };
            for owner in node.owners.iter().filter(|owner| owner.uid == *uid) {
                let known = self.known(owner, &node.namespace);
                if known != OwnerState::Solid {
                    work.push(GarbageWork::Examine(Arc::clone(dependent)));
                    work.extend(self.report(dependent, owner));
                }
            }
        }
    }

    /// A report if `owner` was seen in another namespace than the object that names it.
    fn report(&self, uid: &Uid, owner: &Owner) -> Option<GarbageWork> {
        let (node, seen) = (self.nodes.get(uid)?, self.nodes.get(&owner.uid)?);
        let misplaced = !seen.namespace.is_empty() && seen.namespace != node.namespace;
        misplaced.then(|| GarbageWork::Report {
            uid: Arc::clone(uid),
            place: self.place_of(node),
            owner: owner.clone(),
        })
    }

    /// Whether `owner`, named in `namespace`, means this node.
    fn matches(&self, node: &OwnerNode, owner: &Owner, namespace: &str) -> bool {
        let resource = &self.resources[usize::from(node.resource)];
        resource.kind == owner.kind
            && resource.api_version == owner.api_version
            && node.name == owner.name
            && (node.namespace.is_empty() || &*node.namespace == namespace)
    }

    fn place_of(&self, node: &OwnerNode) -> ObjectLocation {
        let resource = &self.resources[usize::from(node.resource)];
        ObjectLocation {
            api_version: Arc::clone(&resource.api_version),
            kind: Arc::clone(&resource.kind),
            namespace: Arc::clone(&node.namespace),
            name: Arc::clone(&node.name),
        }
    }

    /// Removes a node; returns the objects that have to be examined because of that.
    fn forget(&mut self, uid: &Uid) -> Vec<GarbageWork> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut work = Vec::new();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            if self.is_foreground(&owner.uid) {
                work.push(GarbageWork::Examine(Arc::clone(&owner.uid)));
            }
        }
        work.extend(self.dependents_of(uid).cloned().map(GarbageWork::Examine));
        work
    }

    fn uids_where(&self, wanted: impl Fn(&OwnerNode) -> bool) -> Vec<Uid> {
        let found = self.nodes.iter().filter(|(_, node)| wanted(node));
        found.map(|(uid, _)| Arc::clone(uid)).collect()
    }

    fn resource(&mut self, kind: &CatalogKind) -> u16 {
        let known = self
            .resources
            .iter()
            .position(|own| *own.group == *kind.group && *own.plural == *kind.plural);
        let index = known.unwrap_or_else(|| {
            self.resources.push(FollowedKind {
                group: kind.group.clone(),
                plural: kind.plural.clone(),
                version: "".into(),
                api_version: "".into(),
                kind: "".into(),
                listing: 0,
            });
            self.resources.len() - 1
        });
        let resource = &mut self.resources[index];
        if *resource.version != *kind.version || *resource.kind != *kind.kind {
            resource.version = kind.version.clone();
            resource.api_version = self.names.share(&kind.api_version());
            resource.kind = self.names.share(&kind.kind);
        }
        u16::try_from(index).expect("a server has fewer than 65536 kinds")
    }
}

/// Owners that the server reported as absent. A uid is never used again, so that these entries
/// stay true; the oldest are dropped first.
#[derive(Debug, Default)]
struct Absent {
    known: BTreeSet<(Uid, ObjectLocation)>,
    order: VecDeque<(Uid, ObjectLocation)>,
}

impl Absent {
    fn add(&mut self, uid: &Uid, place: ObjectLocation) {
        let entry = (Arc::clone(uid), place);
        if !self.known.insert(entry.clone()) {
            return;
        }
        self.order.push_back(entry);
        if self.order.len() > ABSENT_LIMIT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    fn has(&self, owner: &Owner, namespace: &str) -> bool {
        let mut entry = (Arc::clone(&owner.uid), place_of(owner, ""));
        self.known.contains(&entry) || {
            entry.1.namespace = namespace.into();
            self.known.contains(&entry)
        }
    }
}

/// Where `owner` would be if it lived in `namespace`.
pub(crate) fn place_of(owner: &Owner, namespace: &str) -> ObjectLocation {
    ObjectLocation {
        api_version: Arc::clone(&owner.api_version),
        kind: Arc::clone(&owner.kind),
        namespace: namespace.into(),
        name: Arc::clone(&owner.name),
    }
}
