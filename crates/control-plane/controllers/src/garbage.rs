//! The garbage collector: removes objects whose owners are gone.
//!
//! One task owns the graph. It asks the server, decides with [`plan`] and writes, a few
//! objects at a time; every write names the uid and version that was read, so that
//! a stale decision is refused by the server and made again.

mod graph;
mod names;
mod plan;
mod server;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop};
use client::{Catalog, CatalogKind, FeedChange, Meta, Owner, Update};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, warn};

use self::graph::{GarbageWork, Graph, ObjectLocation, Uid};
use self::plan::{GarbageVerdict, OwnerLookup};
use self::server::{CollectError, OwnerQuery, Server};
use crate::queue::Queue;

/// How many objects are worked on at a time.
const WORKERS: usize = 16;
/// How long an owner that waits for its dependents is left alone at first.
const SETTLE: Duration = Duration::from_millis(100);
/// Kinds that cannot be listed hold up the collector no longer than this at its start.
const SYNC_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum GarbageTask {
    Examine(Uid),
    Orphan(Uid),
}

/// The result of one request or several.
enum RequestOutcome {
    Read { uid: Uid, latest: Result<Option<Meta>, CollectError> },
    Asked { uid: Uid, latest: Meta, answers: Result<Vec<OwnerQuery>, CollectError> },
    Written { task: GarbageTask, result: Result<(), CollectError> },
    Reported,
}

/// Collects until `stop`, or until there are no further updates.
pub(crate) async fn run(
    client: Client,
    catalog: watch::Receiver<Arc<Catalog>>,
    mut updates: mpsc::Receiver<Update>,
    mut stop: Stop,
) {
    let server = Server { client, catalog };
    let mut collector = GarbageCollector {
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

struct GarbageCollector {
    server: Server,
    graph: Graph,
    queue: Queue<GarbageTask>,
    running: FuturesUnordered<BoxFuture<'static, RequestOutcome>>,
    /// Kinds whose objects are all in the graph; only of interest until the start.
    listed: BTreeSet<Arc<CatalogKind>>,
    /// Set once every kind is in the graph.
    started: bool,
}

impl GarbageCollector {
    /// Starts what there is to do and says when to check again.
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
                Some((GarbageTask::Examine(uid), _)) => self.examine(uid),
                Some((GarbageTask::Orphan(uid), _)) => self.orphan(uid),
                None => break,
            }
        }
        // With all workers busy, the next pass begins when one ends.
        let idle = now + Duration::from_secs(3600);
        if self.running.len() < WORKERS { self.queue.next_due().unwrap_or(idle) } else { idle }
    }

    fn observe(&mut self, update: &Update) {
        let kind = &update.kind;
        let work = match &update.change {
            FeedChange::Listing => {
                self.graph.listing(kind);
                Vec::new()
            }
            FeedChange::Listed => {
                if !self.started {
                    self.listed.insert(Arc::clone(kind));
                }
                self.graph.listed(kind)
            }
            FeedChange::Applied(meta) => self.graph.apply(kind, meta),
            FeedChange::Deleted(meta) => self.graph.delete(&meta.uid),
            FeedChange::Dropped => self.graph.dropped(kind),
        };
        self.enqueue(work);
    }

    fn enqueue(&mut self, work: Vec<GarbageWork>) {
        let now = Instant::now();
        let settled = now + SETTLE;
        for work in work {
            match work {
                GarbageWork::Examine(uid) => self.queue.add(GarbageTask::Examine(uid), now),
                GarbageWork::Release(uid) => self.queue.add_at(GarbageTask::Examine(uid), settled),
                GarbageWork::Orphan(uid) => self.queue.add_at(GarbageTask::Orphan(uid), settled),
                GarbageWork::Report { uid, place, owner } => {
                    let server = self.server.clone();
                    self.running.push(Box::pin(async move {
                        server.report(&uid, &place, &owner).await;
                        RequestOutcome::Reported
                    }));
                }
            }
        }
    }

    fn examine(&mut self, uid: Uid) {
        let place = self.graph.place(&uid).filter(|_| self.graph.needs_check(&uid));
        let Some(place) = place else {
            return self.queue.done(&GarbageTask::Examine(uid), Instant::now());
        };
        let server = self.server.clone();
        self.running.push(Box::pin(async move {
            let latest = server.get(&place).await;
            RequestOutcome::Read { uid, latest }
        }));
    }

    fn orphan(&mut self, uid: Uid) {
        let Some(place) = self.graph.place(&uid) else {
            return self.queue.done(&GarbageTask::Orphan(uid), Instant::now());
        };
        let dependents: Vec<ObjectLocation> =
            self.graph.dependents_of(&uid).filter_map(|uid| self.graph.place(uid)).collect();
        let server = self.server.clone();
        self.running.push(Box::pin(async move {
            let result = server.orphan(&uid, &place, &dependents).await;
            RequestOutcome::Written { task: GarbageTask::Orphan(uid), result }
        }));
    }

    fn finish(&mut self, outcome: RequestOutcome) {
        match outcome {
            RequestOutcome::Reported => {}
            RequestOutcome::Written { task, result } => {
                // The object is different now, and its new state may need more.
                if let (GarbageTask::Examine(_), Ok(())) = (&task, &result) {
                    self.queue.add(task.clone(), Instant::now());
                }
                self.settle(&task, result);
            }
            RequestOutcome::Read { uid, latest: Ok(Some(latest)) } => {
                let unknown = plan::unknown_owners(&self.graph, &latest);
                if unknown.is_empty() || latest.uid != uid {
                    return self.conclude(uid, Some(latest), &[]);
                }
                let server = self.server.clone();
                self.running.push(Box::pin(async move {
                    let answers = server.ask(&latest, unknown).await;
                    RequestOutcome::Asked { uid, latest, answers }
                }));
            }
            RequestOutcome::Read { uid, latest: Ok(None) } => self.conclude(uid, None, &[]),
            RequestOutcome::Asked { uid, latest, answers: Ok(asked) } => {
                let mut answers = Vec::with_capacity(asked.len());
                for OwnerQuery { owner, place, answer } in asked {
                    if answer == OwnerLookup::Absent {
                        self.graph.remember_absent(&owner.uid, place);
                    }
                    answers.push((owner, answer));
                }
                self.conclude(uid, Some(latest), &answers);
            }
            RequestOutcome::Read { uid, latest: Err(failure) }
            | RequestOutcome::Asked { uid, answers: Err(failure), .. } => {
                self.settle(&GarbageTask::Examine(uid), Err(failure));
            }
        }
    }

    fn conclude(&mut self, uid: Uid, latest: Option<Meta>, answers: &[(Owner, OwnerLookup)]) {
        let task = GarbageTask::Examine(Arc::clone(&uid));
        match (plan::decide(&self.graph, &uid, latest.as_ref(), answers), latest) {
            (GarbageVerdict::Act(action), Some(latest)) => {
                let (server, place) = (self.server.clone(), self.graph.place(&uid));
                let Some(place) = place else { return self.queue.done(&task, Instant::now()) };
                debug!(kind = %place.kind, namespace = %place.namespace, name = %place.name,
                    ?action, "collecting");
                self.running.push(Box::pin(async move {
                    let result = server.write(&place, &latest, &action).await;
                    RequestOutcome::Written { task, result }
                }));
            }
            (GarbageVerdict::Poll, _) => self.queue.failed(&task, Instant::now()),
            (GarbageVerdict::Examine(uids), _) => {
                self.queue.done(&task, Instant::now());
                self.enqueue(uids.into_iter().map(GarbageWork::Examine).collect());
            }
            (GarbageVerdict::Gone, _) => {
                self.queue.done(&task, Instant::now());
                let work = self.graph.delete(&uid);
                self.enqueue(work);
            }
            (GarbageVerdict::Settled | GarbageVerdict::Act(_), _) => {
                self.queue.done(&task, Instant::now())
            }
        }
    }

    fn settle(&mut self, task: &GarbageTask, result: Result<(), CollectError>) {
        let Err(failure) = result else { return self.queue.done(task, Instant::now()) };
        // A conflict is the normal answer to a stale decision, and an owner of an unknown kind
        // the user's affair.
        if failure.is_expected() {
            debug!(error = %Chain(&failure), "cannot collect yet");
        } else {
            warn!(error = %Chain(&failure), "cannot collect, will retry");
        }
        self.queue.failed(task, Instant::now());
    }
}
