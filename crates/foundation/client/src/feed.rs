//! One stream of what exists in the whole cluster: the metadata of every kind that can
//! be listed and watched.
//!
//! The kinds are followed as they come and go: a change of a CustomResourceDefinition or
//! an APIService triggers a read of discovery. The feed keeps no objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{Backoff, Chain};
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::catalog::{Catalog, CatalogKind, Verb, discover};
use crate::meta::Meta;
use crate::watch::follow;

/// How long a read of discovery waits for further changes of the kinds.
const SETTLE: Duration = Duration::from_millis(50);
/// A second read, for a server whose discovery lags behind its objects.
const SECOND_READ: Duration = Duration::from_secs(2);
const REFRESH: Duration = Duration::from_secs(300);

/// A change to the objects of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedChange {
    /// All objects follow; those that are not named before `Listed` are gone.
    Listing,
    Listed,
    /// Created or changed.
    Applied(Meta),
    Deleted(Meta),
    /// The kind is not served any more.
    Dropped,
}

#[derive(Debug, Clone)]
pub struct Update {
    pub kind: Arc<CatalogKind>,
    pub change: FeedChange,
}

/// Follows every kind until the receiver is dropped; dropping the future is a clean stop
/// too. `catalog` shows which kinds are served; it is filled before the first update.
pub async fn feed(
    client: Client,
    updates: mpsc::Sender<Update>,
    catalog: watch::Sender<Arc<Catalog>>,
) {
    let (followers, followed) = (JoinSet::new(), BTreeMap::new());
    Feed { client, updates, catalog, followers, followed }.run().await;
}

struct Feed {
    client: Client,
    updates: mpsc::Sender<Update>,
    catalog: watch::Sender<Arc<Catalog>>,
    followers: JoinSet<()>,
    followed: BTreeMap<Arc<CatalogKind>, AbortHandle>,
}

impl Feed {
    async fn run(mut self) {
        // Updates of CustomResourceDefinitions and APIServices pass through here first.
        let (tap, mut tapped) = mpsc::channel::<Update>(64);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let mut reads = vec![Instant::now()];
        loop {
            let next = reads.iter().min().copied().unwrap_or_else(Instant::now);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {
                    reads.retain(|at| *at > Instant::now());
                    match self.refresh(&tap).await {
                        Ok(true) => backoff.reset(),
                        Ok(false) => reads.push(Instant::now() + backoff.delay()),
                        Err(Closed) => return,
                    }
                    if reads.is_empty() {
                        reads.push(Instant::now() + REFRESH);
                    }
                }
                update = tapped.recv() => {
                    let Some(update) = update else { return };
                    if matches!(update.change, FeedChange::Applied(_) | FeedChange::Deleted(_)) {
                        let now = Instant::now();
                        reads = vec![now + SETTLE, now + SECOND_READ];
                    }
                    if self.updates.send(update).await.is_err() {
                        return;
                    }
                }
                () = self.updates.closed() => return,
            }
        }
    }

    /// False if the server did not say which kinds it serves.
    async fn refresh(&mut self, tap: &mpsc::Sender<Update>) -> Result<bool, Closed> {
        let catalog = match discover(&self.client).await {
            Ok(catalog) => Arc::new(catalog),
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot discover kinds");
                return Ok(false);
            }
        };
        self.catalog.send_replace(Arc::clone(&catalog));
        self.drop_missing(&catalog).await?;
        for kind in catalog.kinds() {
            if is_followed(kind) && !self.followed.contains_key(kind) {
                debug!(path = kind.path(""), "following kind");
                let sink = if defines_kinds(kind) { tap } else { &self.updates };
                let follower = follow(self.client.clone(), Arc::clone(kind), None, sink.clone());
                self.followed.insert(Arc::clone(kind), self.followers.spawn(follower));
            }
        }
        Ok(true)
    }

    async fn drop_missing(&mut self, catalog: &Catalog) -> Result<(), Closed> {
        let served = |kind: &CatalogKind| {
            catalog.kinds().iter().any(|own| **own == *kind)
                // A group that cannot answer just now has not lost its kinds.
                || catalog.stale.contains(&kind.api_version())
        };
        let missing: Vec<_> =
            self.followed.keys().filter(|kind| !served(kind)).map(Arc::clone).collect();
        for kind in missing {
            debug!(path = kind.path(""), "kind is not served any more");
            if let Some(follower) = self.followed.remove(&kind) {
                follower.abort();
            }
            // A kind that only changed (a version was added) keeps its objects.
            if catalog.resource(&kind.group, &kind.plural).is_none() {
                let update = Update { kind, change: FeedChange::Dropped };
                self.updates.send(update).await.map_err(|_| Closed)?;
            }
        }
        // Reap those that were aborted.
        while self.followers.try_join_next().is_some() {}
        Ok(())
    }
}

/// The receiver is dropped.
struct Closed;

/// Whether the feed shows the objects of this kind.
pub fn is_followed(kind: &CatalogKind) -> bool {
    // Events are many, short-lived and own nothing.
    let is_event = &*kind.plural == "events" && matches!(&*kind.group, "" | "events.k8s.io");
    !is_event && kind.can(Verb::Delete) && kind.can(Verb::List) && kind.can(Verb::Watch)
}

fn defines_kinds(kind: &CatalogKind) -> bool {
    kind.is("apiextensions.k8s.io", "customresourcedefinitions")
        || kind.is("apiregistration.k8s.io", "apiservices")
}
