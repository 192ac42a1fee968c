//! The graph and its decisions in a small world with a clockless server: objects are created and
//! deleted at random, events of different kinds overtake each other, lists replace events,
//! decisions are outdated before they are written. In all cases, the collector never deletes an
//! object that has an owner, and in the end no object without one is left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use client::{CatalogKind, FeedChange, Meta, Owner};

use super::graph::{FOREGROUND, GarbageWork, Graph, ORPHAN, Uid};
use super::plan::{self, DeletionPropagation, GarbageAction, GarbageVerdict, OwnerLookup};
use super::tests::kinds;
use crate::seeded_rng::SeededRng;

const NAMESPACES: [&str; 2] = ["x", "y"];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SimulatedTask {
    Examine(Uid),
    Orphan(Uid),
}

struct SimulatedCluster {
    dice: SeededRng,
    kinds: Vec<Arc<CatalogKind>>,
    /// The truth, by uid, with the index of its kind.
    objects: BTreeMap<Uid, (usize, Meta)>,
    /// Events on their way, by kind.
    events: Vec<VecDeque<FeedChange>>,
    version: u64,
    graph: Graph,
    tasks: BTreeSet<SimulatedTask>,
    /// Read, not yet decided.
    stale: Vec<(Uid, Option<Meta>)>,
    polls: BTreeSet<Uid>,
    /// Orphaned by their only owner: nothing but a user may remove them.
    safe: BTreeSet<Uid>,
}

impl SimulatedCluster {
    fn new(seed: u64) -> Self {
        let kinds = kinds().kinds().to_vec();
        let events = kinds.iter().map(|_| VecDeque::new()).collect();
        Self {
            dice: SeededRng::new(seed),
            kinds,
            objects: BTreeMap::new(),
            events,
            version: 0,
            graph: Graph::default(),
            tasks: BTreeSet::new(),
            stale: Vec::new(),
            polls: BTreeSet::new(),
            safe: BTreeSet::new(),
        }
    }

    fn step(&mut self) {
        match self.dice.index(14) {
            0 | 1 => self.create(),
            2 => self.user_deletes(),
            3..=5 => self.relist(),
            6..=9 => self.deliver(),
            10 | 11 => self.read(),
            _ => self.conclude(),
        }
    }

    fn create(&mut self) {
        self.version += 1;
        let kind = self.dice.index(self.kinds.len());
        let namespaced = self.kinds[kind].namespaced;
        let namespace = if namespaced { NAMESPACES[self.dice.index(2)] } else { "" };
        let uid: Uid = format!("u{}", self.version).into();
        let mut owners = Vec::new();
        for _ in 0..self.dice.index(3) {
            owners.extend(self.some_owner(namespace));
        }
        owners.dedup_by(|a, b| a.uid == b.uid);
        let meta = Meta {
            name: Arc::clone(&uid),
            namespace: namespace.into(),
            uid,
            owner_references: owners,
            ..Meta::default()
        };
        self.store(kind, meta);
    }

    /// Any object, also one that cannot own from where it is; or none that ever was.
    fn some_owner(&mut self, namespace: &str) -> Option<Owner> {
        let block = self.dice.index(2) == 0;
        let owner = |kind: &CatalogKind, name: &Uid, uid: &Uid| Owner {
            api_version: "v1".into(),
            kind: (*kind.kind).into(),
            name: Arc::clone(name),
            uid: Arc::clone(uid),
            controller: None,
            block_owner_deletion: Some(block),
        };
        if self.dice.index(10) == 0 || self.objects.is_empty() {
            let pods = self.kinds.iter().find(|kind| &*kind.kind == "Pod")?;
            // A namespaced owner of a cluster-scoped object is left alone for ever.
            return (!namespace.is_empty()).then(|| owner(pods, &"no".into(), &"no".into()));
        }
        let nth = self.dice.index(self.objects.len());
        let (kind, meta) = self.objects.values().nth(nth)?;
        let namespaced = self.kinds[*kind].namespaced;
        let possible = !(namespace.is_empty() && namespaced);
        possible.then(|| owner(&self.kinds[*kind], &meta.name, &meta.uid))
    }

    fn user_deletes(&mut self) {
        let policy = [
            DeletionPropagation::Background,
            DeletionPropagation::Foreground,
            DeletionPropagation::Orphan,
        ][self.dice.index(3)];
        if policy == DeletionPropagation::Orphan {
            // Dependents created at the same moment may be missed, here as elsewhere.
            while self.events.iter().any(|events| !events.is_empty()) {
                self.deliver();
            }
        }
        let alive: Vec<Uid> = self
            .objects
            .values()
            .filter(|(_, meta)| !meta.deleting)
            .map(|(_, meta)| Arc::clone(&meta.uid))
            .collect();
        if alive.is_empty() {
            return;
        }
        let uid = &alive[self.dice.index(alive.len())];
        self.safe.remove(uid);
        if policy == DeletionPropagation::Orphan {
            let only = |meta: &Meta| {
                !meta.deleting
                    && meta.owner_references.len() == 1
                    && meta.owner_references[0].uid == *uid
                    && self.is_solid(meta, &meta.owner_references[0])
            };
            let orphans: Vec<Uid> = self
                .objects
                .values()
                .filter(|(_, meta)| only(meta))
                .map(|(_, meta)| Arc::clone(&meta.uid))
                .collect();
            self.safe.extend(orphans);
        }
        self.delete(uid, policy);
    }

    fn delete(&mut self, uid: &Uid, policy: DeletionPropagation) {
        let Some((kind, mut meta)) = self.objects.get(uid).cloned() else { return };
        meta.finalizers.retain(|finalizer| finalizer != FOREGROUND && finalizer != ORPHAN);
        match policy {
            DeletionPropagation::Background => {}
            DeletionPropagation::Foreground => meta.finalizers.push(FOREGROUND.into()),
            DeletionPropagation::Orphan => meta.finalizers.push(ORPHAN.into()),
        }
        meta.deleting = true;
        self.store(kind, meta);
    }

    /// Stores an object as the server does: it is removed with its last finalizer.
    fn store(&mut self, kind: usize, mut meta: Meta) {
        self.version += 1;
        meta.resource_version = self.version.to_string();
        if meta.deleting && meta.finalizers.is_empty() {
            self.objects.remove(&meta.uid);
            self.events[kind].push_back(FeedChange::Deleted(meta));
        } else {
            self.objects.insert(Arc::clone(&meta.uid), (kind, meta.clone()));
            self.events[kind].push_back(FeedChange::Applied(meta));
        }
    }

    /// The events of a kind are lost; a list replaces them.
    fn relist(&mut self) {
        let kind = self.dice.index(self.kinds.len());
        let objects = self.objects.values().filter(|(own, _)| *own == kind);
        let applied = objects.map(|(_, meta)| FeedChange::Applied(meta.clone()));
        let list = [FeedChange::Listing].into_iter().chain(applied).chain([FeedChange::Listed]);
        self.events[kind] = list.collect();
    }

    fn deliver(&mut self) {
        let index = self.dice.index(self.kinds.len());
        let kind = Arc::clone(&self.kinds[index]);
        let work = match self.events[index].pop_front() {
            None => return,
            Some(FeedChange::Listing) => {
                self.graph.listing(&kind);
                vec![]
            }
            Some(FeedChange::Listed) => self.graph.listed(&kind),
            Some(FeedChange::Applied(meta)) => self.graph.apply(&kind, &meta),
            Some(FeedChange::Deleted(meta)) => self.graph.delete(&meta.uid),
            Some(FeedChange::Dropped) => self.graph.dropped(&kind),
        };
        self.enqueue(work);
    }

    fn enqueue(&mut self, work: Vec<GarbageWork>) {
        for work in work {
            match work {
                GarbageWork::Examine(uid) | GarbageWork::Release(uid) => {
                    self.tasks.insert(SimulatedTask::Examine(uid))
                }
                GarbageWork::Orphan(uid) => self.tasks.insert(SimulatedTask::Orphan(uid)),
                GarbageWork::Report { .. } => false,
            };
        }
    }

    /// First half of a task: see what the server has.
    fn read(&mut self) {
        if self.tasks.is_empty() {
            return;
        }
        let nth = self.dice.index(self.tasks.len());
        let task = self.tasks.iter().nth(nth).cloned().unwrap();
        self.tasks.remove(&task);
        match task {
            SimulatedTask::Examine(uid) if self.graph.needs_check(&uid) => {
                let latest = self.objects.get(&uid).map(|(_, meta)| meta.clone());
                self.stale.push((uid, latest));
            }
            SimulatedTask::Examine(_) => {}
            SimulatedTask::Orphan(uid) => self.orphan(&uid),
        }
    }

    /// Second half: decide on what was seen then, and write if it is still so.
    fn conclude(&mut self) {
        if self.stale.is_empty() {
            return;
        }
        let (uid, latest) = self.stale.swap_remove(self.dice.index(self.stale.len()));
        let answers = latest.as_ref().map_or_else(Vec::new, |latest| self.ask(latest));
        match plan::decide(&self.graph, &uid, latest.as_ref(), &answers) {
            GarbageVerdict::Settled => {}
            GarbageVerdict::Poll => {
                self.polls.insert(uid);
            }
            GarbageVerdict::Gone => {
                let work = self.graph.delete(&uid);
                self.enqueue(work);
            }
            GarbageVerdict::Examine(uids) => {
                self.enqueue(uids.into_iter().map(GarbageWork::Examine).collect())
            }
            GarbageVerdict::Act(action) => self.write(&latest.unwrap(), action),
        }
    }

    fn ask(&mut self, latest: &Meta) -> Vec<(Owner, OwnerLookup)> {
        let unknown = plan::unknown_owners(&self.graph, latest);
        let mut answers = Vec::new();
        for owner in unknown {
            let namespaced = &*owner.kind != "Node";
            let namespace = plan::owner_namespace(namespaced, &latest.namespace);
            let namespace = namespace.expect("no impossible owners are made");
            let found = self
                .objects
                .values()
                .map(|(_, meta)| meta)
                .find(|meta| meta.name == owner.name && &*meta.namespace == namespace);
            let answer = plan::answer(&owner, found);
            if answer == OwnerLookup::Absent {
                let place = super::graph::place_of(&owner, namespace);
                self.graph.remember_absent(&owner.uid, place);
            }
            answers.push((owner, answer));
        }
        answers
    }

    fn write(&mut self, observed: &Meta, action: GarbageAction) {
        let again = SimulatedTask::Examine(Arc::clone(&observed.uid));
        self.tasks.insert(again);
        let Some((kind, current)) = self.objects.get(&observed.uid).cloned() else { return };
        if current.resource_version != observed.resource_version {
            return;
        }
        match action {
            GarbageAction::Delete(policy) => {
                let held =
                    current.owner_references.iter().any(|owner| self.is_solid(&current, owner));
                assert!(!held, "{current:?} was deleted although an owner holds it");
                self.delete(&current.uid, policy);
            }
            GarbageAction::SetOwners(owner_references) => {
                for lost in &current.owner_references {
                    let kept = owner_references.iter().any(|owner| owner.uid == lost.uid);
                    assert!(kept || !self.is_solid(&current, lost), "{lost:?} was cut off");
                }
                self.store(kind, Meta { owner_references, ..current });
            }
            GarbageAction::SetFinalizers(finalizers) => {
                self.store(kind, Meta { finalizers, ..current })
            }
        }
    }

    fn orphan(&mut self, uid: &Uid) {
        let dependents: Vec<Uid> = self.graph.dependents_of(uid).cloned().collect();
        for dependent in dependents {
            let Some((kind, meta)) = self.objects.get(&dependent).cloned() else { continue };
            if let Some(GarbageAction::SetOwners(owner_references)) =
                plan::without_owner(&meta, uid)
            {
                self.store(kind, Meta { owner_references, ..meta });
            }
        }
        let Some((kind, meta)) = self.objects.get(uid).cloned() else { return };
        if let Some(GarbageAction::SetFinalizers(finalizers)) =
            plan::without_finalizer(&meta, ORPHAN)
        {
            self.store(kind, Meta { finalizers, ..meta });
        }
    }

    /// Whether `owner` truly exists, may own `meta` and does not wait for it.
    fn is_solid(&self, meta: &Meta, owner: &Owner) -> bool {
        self.objects.get(&owner.uid).is_some_and(|(kind, own)| {
            let reachable = own.namespace.is_empty() || own.namespace == meta.namespace;
            let waits = own.deleting && own.finalizers.iter().any(|own| own == FOREGROUND);
            *self.kinds[*kind].kind == *owner.kind && reachable && !waits
        })
    }

    /// Nothing new happens; everything on its way arrives.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            let idle = self.events.iter().all(VecDeque::is_empty)
                && self.tasks.is_empty()
                && self.stale.is_empty();
            if idle {
                if self.polls.is_empty() {
                    return;
                }
                let polls = std::mem::take(&mut self.polls);
                self.tasks.extend(polls.into_iter().map(SimulatedTask::Examine));
            }
            match self.dice.index(3) {
                0 => self.deliver(),
                1 => self.read(),
                _ => self.conclude(),
            }
        }
        panic!("the collector never comes to rest");
    }

    fn check(&self) {
        for (_, meta) in self.objects.values() {
            assert!(!meta.deleting, "{meta:?} is stuck");
            for owner in &meta.owner_references {
                assert!(self.is_solid(meta, owner), "{meta:?} still names an absent owner");
            }
        }
        for uid in &self.safe {
            assert!(self.objects.contains_key(uid), "{uid} was orphaned and then collected");
        }
    }
}

#[test]
fn every_world_comes_to_rest_with_nothing_held_lost_and_nothing_else_left() {
    for seed in 1..=1000 {
        println!("seed {seed}");
        let mut world = SimulatedCluster::new(seed);
        for _ in 0..50 + seed % 250 {
            world.step();
        }
        world.drain();
        world.check();
        assert!(world.version > 0);
    }
}
