//! Runs a reconciler: change events enqueue keys, a few keys are reconciled at a time, and
//! failures are retried with increasing delays.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use base::{Chain, Stop, Workload};
use client::{CatalogKind, Fault, FeedChange, Meta, Update};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::queue::Queue;

/// How many keys of one reconciler are worked on at a time.
const WORKERS: usize = 4;

/// Something happened to an object, or may have.
#[derive(Debug, Clone)]
pub(crate) enum ObjectChange {
    Object {
        kind: Arc<CatalogKind>,
        namespace: Arc<str>,
        name: Arc<str>,
        state: ObjectState,
    },
    /// Changes of this kind may have been missed.
    Missed(Arc<CatalogKind>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectState {
    Live,
    /// Marked for deletion, and still there.
    Deleting,
    Gone,
}

impl ObjectChange {
    pub(crate) fn object(kind: &Arc<CatalogKind>, meta: &Meta, state: ObjectState) -> Self {
        Self::Object {
            kind: Arc::clone(kind),
            namespace: Arc::clone(&meta.namespace),
            name: Arc::clone(&meta.name),
            state,
        }
    }

    /// The change event of an update, for controllers that keep no objects.
    pub(crate) fn of(update: &Update) -> Option<Self> {
        let kind = &update.kind;
        match &update.change {
            FeedChange::Applied(meta) if meta.deleting => {
                Some(Self::object(kind, meta, ObjectState::Deleting))
            }
            FeedChange::Applied(meta) => Some(Self::object(kind, meta, ObjectState::Live)),
            FeedChange::Deleted(meta) => Some(Self::object(kind, meta, ObjectState::Gone)),
            FeedChange::Listed | FeedChange::Dropped => Some(Self::Missed(Arc::clone(kind))),
            FeedChange::Listing => None,
        }
    }
}

/// The result of reconciling one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    /// Nothing more until it is touched.
    Done,
    /// Reconcile again after this long, touched or not.
    Again(Duration),
    /// It did not work, the object says so, and it may work later: as after a failure, the
    /// delay grows each time.
    Retry,
}

/// Why a key could not be dealt with now.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}")]
pub(crate) struct ReconcileError {
    pub(crate) doing: &'static str,
    pub(crate) source: Fault,
}

/// Names what was being done when a request failed.
pub(crate) trait ErrorContext<T> {
    fn doing(self, doing: &'static str) -> Result<T, ReconcileError>;
}

impl<T> ErrorContext<T> for Result<T, kube::Error> {
    fn doing(self, doing: &'static str) -> Result<T, ReconcileError> {
        self.map_err(|source| ReconcileError { doing, source: Fault(source) })
    }
}

/// Which keys a touch concerns. Pure, but may remember what it has seen.
pub(crate) trait EventMapper {
    type Key: Ord + Clone + Debug + Send + Sync;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<Self::Key>;
}

/// Brings what one key names nearer to its desired state.
pub(crate) trait Reconciler {
    type Key;

    fn reconcile(
        &self,
        key: &Self::Key,
    ) -> impl Future<Output = Result<ReconcileResult, ReconcileError>> + Send;
}

/// Reconciles until `stop`, or until there are no further touches.
pub(crate) async fn run<K, I, R>(
    name: &'static str,
    mut interest: I,
    reconciler: R,
    mut touches: mpsc::Receiver<ObjectChange>,
    load: Arc<Workload>,
    mut stop: Stop,
) where
    K: Ord + Clone + Debug + Send + Sync,
    I: EventMapper<Key = K>,
    R: Reconciler<Key = K>,
{
    let mut queue = Queue::<K>::default();
    let mut running = FuturesUnordered::new();
    loop {
        let now = Instant::now();
        while running.len() < WORKERS
            && let Some((key, waited)) = queue.take(now)
        {
            load.waited.note(waited);
            let reconciler = &reconciler;
            running.push(async move {
                let result = reconciler.reconcile(&key).await;
                (key, result, now.elapsed())
            });
        }
        load.report(queue.counts());
        let idle = now + Duration::from_secs(3600);
        let due = if running.len() < WORKERS { queue.next_due().unwrap_or(idle) } else { idle };
        tokio::select! {
            touch = touches.recv() => match touch {
                Some(touch) => {
                    let now = Instant::now();
                    for key in interest.keys(&touch) {
                        queue.add(key, now);
                    }
                }
                None => return,
            },
            Some((key, result, took)) = running.next() => {
                load.worked.note(took);
                if !matches!(result, Ok(ReconcileResult::Done)) {
                    load.retried();
                }
                finish(name, &mut queue, &key, result);
            }
            () = tokio::time::sleep_until(due) => {}
            () = stop.requested() => return,
        }
    }
}

fn finish<K: Ord + Clone + Debug>(
    name: &'static str,
    queue: &mut Queue<K>,
    key: &K,
    result: Result<ReconcileResult, ReconcileError>,
) {
    let now = Instant::now();
    match result {
        Ok(ReconcileResult::Done) => queue.done(key, now),
        Ok(ReconcileResult::Again(delay)) => {
            queue.done(key, now);
            queue.add_at(key.clone(), now + delay);
        }
        Ok(ReconcileResult::Retry) => queue.failed(key, now),
        Err(failure) => {
            // Another client wrote or removed the object first: the next pass reads the result.
            if matches!(failure.source.code(), Some(404 | 409)) {
                debug!(controller = name, ?key, error = %Chain(&failure), "changed meanwhile");
            } else {
                warn!(controller = name, ?key, error = %Chain(&failure), "will retry");
            }
            queue.failed(key, now);
        }
    }
}
