//! The garbage collector: removes objects whose owners are gone.
//!
//! One task owns the graph. It asks the server, decides with [`plan`] and writes, a few
//! objects at a time; every write names the uid and version that was looked at, so that
//! a stale decision is refused by the server and made again.

mod graph;
mod plan;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use client::{Catalog, Change, Kind, Meta, Owner, Update, objects};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kube::Client;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, warn};

use self::graph::{Graph, ORPHAN, Place, Uid, Work, place_of};
use self::plan::{Action, Answer, Policy, Verdict};
use crate::event;
use crate::queue::Queue;

/// How many objects are worked on at a time.
const WORKERS: usize = 8;
/// How long an owner that waits for its dependents is left alone at first.
const SETTLE: Duration = Duration::from_millis(100);
/// Kinds that cannot be listed hold up the collector no longer than this at its start.
const SYNC_LIMIT: Duration = Duration::from_secs(10);

/// Why an object could not be dealt with now.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("no kind {kind} in {api_version} is served")]
    UnknownKind { api_version: Arc<str>, kind: Arc<str> },
    #[error("cannot {doing} {kind} {namespace}/{name}")]
    Request {
        doing: &'static str,
        kind: Arc<str>,
        namespace: Arc<str>,
        name: Arc<str>,
        source: kube::Error,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    Examine(Uid),
    Orphan(Uid),
}

/// What a request, or a few, came to.
enum Outcome {
    Looked { uid: Uid, latest: Result<Option<Meta>, CollectError> },
    Asked { uid: Uid, latest: Meta, answers: Result<Vec<Asked>, CollectError> },
    Written { task: Task, result: Result<(), CollectError> },
    Reported,
}

/// An owner the server was asked about: where it was looked for and what was found.
struct Asked {
    owner: Owner,
    place: Place,
    answer: Answer,
}

/// Collects until `stop`, or until there are no more updates.
pub(crate) async fn run(
    client: Client,
    catalog: watch::Receiver<Arc<Catalog>>,
    mut updates: mpsc::Receiver<Update>,
    mut stop: Stop,
) {
    let server = Server { client, catalog };
    let mut collector = Collector {
        server,
        graph: Graph::default(),
        queue: Queue::default(),
        running: FuturesUnordered::new(),
        listed: BTreeSet::new(),
        started: false,
    };
    let give_up = Instant::now() + SYNC_LIMIT;
    loop {
        let due = collector.start_work(give_up);
        tokio::select! {
            update = updates.recv() => match update {
                Some(update) => collector.observe(&update),
                None => return,
            },
            Some(outcome) = collector.running.next() => collector.finish(outcome),
            () = tokio::time::sleep_until(due) => {}
            () = stop.requested() => return,
        }
    }
}

struct Collector {
    server: Server,
    graph: Graph,
    queue: Queue<Task>,
    running: FuturesUnordered<BoxFuture<'static, Outcome>>,
    /// Kinds whose objects are all in the graph; only of interest until the start.
    listed: BTreeSet<Arc<Kind>>,
    /// Set once every kind is in the graph.
    started: bool,
}

impl Collector {
    /// Starts what there is to do and says when to look again.
    fn start_work(&mut self, give_up: Instant) -> Instant {
        let now = Instant::now();
        if !self.started {
            let catalog = self.server.catalog.borrow();
            let mut followed = catalog.kinds().iter().filter(|kind| client::is_followed(kind));
            let complete =
                !catalog.kinds().is_empty() && followed.all(|kind| self.listed.contains(kind));
            drop(catalog);
            if !complete && now < give_up {
                return give_up;
            }
            self.started = true;
            self.listed = BTreeSet::new();
        }
        while self.running.len() < WORKERS {
            match self.queue.take(now) {
                Some(Task::Examine(uid)) => self.examine(uid),
                Some(Task::Orphan(uid)) => self.orphan(uid),
                None => break,
            }
        }
        // With all workers busy, the end of one is what wakes us.
        let idle = now + Duration::from_secs(3600);
        if self.running.len() < WORKERS { self.queue.next_due().unwrap_or(idle) } else { idle }
    }

    fn observe(&mut self, update: &Update) {
        let kind = &update.kind;
        let work = match &update.change {
            Change::Listing => {
                self.graph.listing(kind);
                Vec::new()
            }
            Change::Listed => {
                if !self.started {
                    self.listed.insert(Arc::clone(kind));
                }
                self.graph.listed(kind)
            }
            Change::Applied(meta) => self.graph.apply(kind, meta),
            Change::Deleted(meta) => self.graph.delete(&meta.uid),
            Change::Dropped => self.graph.dropped(kind),
        };
        self.enqueue(work);
    }

    fn enqueue(&mut self, work: Vec<Work>) {
        let settled = Instant::now() + SETTLE;
        for work in work {
            match work {
                Work::Examine(uid) => self.queue.add(Task::Examine(uid)),
                Work::Release(uid) => self.queue.add_at(Task::Examine(uid), settled),
                Work::Orphan(uid) => self.queue.add_at(Task::Orphan(uid), settled),
                Work::Report { uid, place, owner } => {
                    let server = self.server.clone();
                    self.running.push(Box::pin(async move {
                        server.report(&uid, &place, &owner).await;
                        Outcome::Reported
                    }));
                }
            }
        }
    }

    fn examine(&mut self, uid: Uid) {
        let place = self.graph.place(&uid).filter(|_| self.graph.needs_look(&uid));
        let Some(place) = place else { return self.queue.done(&Task::Examine(uid)) };
        let server = self.server.clone();
        self.running.push(Box::pin(async move {
            let latest = server.get(&place).await;
            Outcome::Looked { uid, latest }
        }));
    }

    fn orphan(&mut self, uid: Uid) {
        let Some(place) = self.graph.place(&uid) else {
            return self.queue.done(&Task::Orphan(uid));
        };
        let dependents: Vec<Place> =
            self.graph.dependents_of(&uid).filter_map(|uid| self.graph.place(uid)).collect();
        let server = self.server.clone();
        self.running.push(Box::pin(async move {
            let result = server.orphan(&uid, &place, &dependents).await;
            Outcome::Written { task: Task::Orphan(uid), result }
        }));
    }

    fn finish(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Reported => {}
            Outcome::Written { task, result } => {
                // The object looks different now, and its new state may need more.
                if let (Task::Examine(_), Ok(())) = (&task, &result) {
                    self.queue.add(task.clone());
                }
                self.settle(&task, result);
            }
            Outcome::Looked { uid, latest: Ok(Some(latest)) } => {
                let unknown = plan::unknown_owners(&self.graph, &latest);
                if unknown.is_empty() || latest.uid != uid {
                    return self.conclude(uid, Some(latest), &[]);
                }
                let server = self.server.clone();
                self.running.push(Box::pin(async move {
                    let answers = server.ask(&latest, unknown).await;
                    Outcome::Asked { uid, latest, answers }
                }));
            }
            Outcome::Looked { uid, latest: Ok(None) } => self.conclude(uid, None, &[]),
            Outcome::Asked { uid, latest, answers: Ok(asked) } => {
                let mut answers = Vec::with_capacity(asked.len());
                for Asked { owner, place, answer } in asked {
                    if answer == Answer::Absent {
                        self.graph.remember_absent(&owner.uid, place);
                    }
                    answers.push((owner, answer));
                }
                self.conclude(uid, Some(latest), &answers);
            }
            Outcome::Looked { uid, latest: Err(failure) }
            | Outcome::Asked { uid, answers: Err(failure), .. } => {
                self.settle(&Task::Examine(uid), Err(failure));
            }
        }
    }

    fn conclude(&mut self, uid: Uid, latest: Option<Meta>, answers: &[(Owner, Answer)]) {
        let task = Task::Examine(Arc::clone(&uid));
        match (plan::decide(&self.graph, &uid, latest.as_ref(), answers), latest) {
            (Verdict::Act(action), Some(latest)) => {
                let (server, place) = (self.server.clone(), self.graph.place(&uid));
                let Some(place) = place else { return self.queue.done(&task) };
                debug!(kind = %place.kind, namespace = %place.namespace, name = %place.name,
                    ?action, "collecting");
                self.running.push(Box::pin(async move {
                    let result = server.write(&place, &latest, &action).await;
                    Outcome::Written { task, result }
                }));
            }
            (Verdict::Poll, _) => self.queue.failed(&task, Instant::now()),
            (Verdict::Examine(uids), _) => {
                self.queue.done(&task);
                self.enqueue(uids.into_iter().map(Work::Examine).collect());
            }
            (Verdict::Gone, _) => {
                self.queue.done(&task);
                let work = self.graph.delete(&uid);
                self.enqueue(work);
            }
            (Verdict::Settled | Verdict::Act(_), _) => self.queue.done(&task),
        }
    }

    fn settle(&mut self, task: &Task, result: Result<(), CollectError>) {
        let Err(failure) = result else { return self.queue.done(task) };
        // A conflict is the normal answer to a stale decision.
        if failure.is_conflict() {
            debug!(error = %Chain(&failure), "object changed meanwhile");
        } else {
            warn!(error = %Chain(&failure), "cannot collect, will retry");
        }
        self.queue.failed(task, Instant::now());
    }
}

impl CollectError {
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source: kube::Error::Api(status), .. } if status.code == 409)
    }

    fn request(doing: &'static str, place: &Place, source: kube::Error) -> Self {
        Self::Request {
            doing,
            kind: Arc::clone(&place.kind),
            namespace: Arc::clone(&place.namespace),
            name: Arc::clone(&place.name),
            source,
        }
    }
}

/// The requests of the collector.
#[derive(Clone)]
struct Server {
    client: Client,
    catalog: watch::Receiver<Arc<Catalog>>,
}

impl Server {
    fn kind(&self, api_version: &Arc<str>, kind: &Arc<str>) -> Result<Arc<Kind>, CollectError> {
        let found = self.catalog.borrow().find(api_version, kind).map(Arc::clone);
        found.ok_or_else(|| CollectError::UnknownKind {
            api_version: Arc::clone(api_version),
            kind: Arc::clone(kind),
        })
    }

    async fn get(&self, place: &Place) -> Result<Option<Meta>, CollectError> {
        let kind = self.kind(&place.api_version, &place.kind)?;
        objects::get(&self.client, &kind, &place.namespace, &place.name)
            .await
            .map_err(|source| CollectError::request("get", place, source))
    }

    async fn ask(&self, latest: &Meta, owners: Vec<Owner>) -> Result<Vec<Asked>, CollectError> {
        let mut asked = Vec::with_capacity(owners.len());
        for owner in owners {
            let kind = self.kind(&owner.api_version, &owner.kind)?;
            let (place, answer) = match plan::owner_namespace(kind.namespaced, &latest.namespace) {
                Err(answer) => (place_of(&owner, ""), answer),
                Ok(namespace) => {
                    let place = place_of(&owner, namespace);
                    let found = self.get(&place).await?;
                    let answer = plan::answer(&owner, found.as_ref());
                    (place, answer)
                }
            };
            asked.push(Asked { owner, place, answer });
        }
        Ok(asked)
    }

    async fn write(
        &self,
        place: &Place,
        latest: &Meta,
        action: &Action,
    ) -> Result<(), CollectError> {
        let kind = self.kind(&place.api_version, &place.kind)?;
        let (namespace, name) = (&*place.namespace, &*place.name);
        let (uid, version) = (&*latest.uid, &*latest.resource_version);
        let result = match action {
            Action::Delete(policy) => {
                let params = DeleteParams {
                    propagation_policy: Some(match policy {
                        Policy::Background => PropagationPolicy::Background,
                        Policy::Foreground => PropagationPolicy::Foreground,
                        Policy::Orphan => PropagationPolicy::Orphan,
                    }),
                    preconditions: Some(Preconditions {
                        uid: Some(uid.to_owned()),
                        resource_version: Some(version.to_owned()),
                    }),
                    ..DeleteParams::default()
                };
                objects::delete(&self.client, &kind, namespace, name, &params).await
            }
            Action::SetOwners(owners) => {
                let patch = json!({"metadata": {"uid": uid, "resourceVersion": version,
                    "ownerReferences": owners}});
                objects::merge(&self.client, &kind, namespace, name, &patch).await
            }
            Action::SetFinalizers(finalizers) => {
                let patch = json!({"metadata": {"uid": uid, "resourceVersion": version,
                    "finalizers": finalizers}});
                objects::merge(&self.client, &kind, namespace, name, &patch).await
            }
        };
        result.map_err(|source| CollectError::request("change", place, source))
    }

    /// Takes the owner out of its dependents, then its finalizer off.
    async fn orphan(
        &self,
        uid: &Uid,
        place: &Place,
        dependents: &[Place],
    ) -> Result<(), CollectError> {
        for dependent in dependents {
            let Some(latest) = self.get(dependent).await? else { continue };
            if let Some(action) = plan::without_owner(&latest, uid) {
                self.write(dependent, &latest, &action).await?;
            }
        }
        let Some(latest) = self.get(place).await?.filter(|latest| latest.uid == *uid) else {
            return Ok(());
        };
        match plan::without_finalizer(&latest, ORPHAN) {
            Some(action) => self.write(place, &latest, &action).await,
            None => Ok(()),
        }
    }

    async fn report(&self, uid: &Uid, place: &Place, owner: &Owner) {
        let about = event::About {
            api_version: &place.api_version,
            kind: &place.kind,
            namespace: &place.namespace,
            name: &place.name,
            uid,
        };
        let message = plan::misplaced_owner(place, owner);
        let source = "garbage-collector-controller";
        event::warn(&self.client, source, &about, "OwnerRefInvalidNamespace", message).await;
    }
}
