//! API priority and fairness: a flood of one flow does not delay the others. Requests are
//! classified by FlowSchemas, and wait for seats in the queues of their priority level.
//!
//! Seats are few. Reading takes nothing but processors, so more readers at once than there
//! are processors to serve them only slow each other down, in a queue that is not ours;
//! writers mostly wait for the disk and share its syncs, so more of them are let in. How many
//! a level may have at most follows from upstream's figures and its shares.
//!
//! A heavy flow, one that sends many requests while other flows are active, waits even if there
//! are seats. It waits in a side queue and is admitted after all other requests that are present.
//! A read is served before the next connection is read, so it would never wait for a seat.
//!
//! A request that waits for another server, a webhook, gives its seat to others meanwhile.
//!
//! Exempt requests take no seat; they wait only if their flow is heavy, and without a time limit.
//! Requests from inside this process are not counted.

mod admission_queues;
pub(crate) mod dangling;
mod meter;
mod objects;
mod pool;
mod rules;
mod schedule;
mod seat;
mod seated;
mod shuffle_shard;
mod ticket;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use auth::User;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::api::Api;
use crate::http::respond::HttpReply;
use crate::http::route::ResourcePath;
use crate::schemas::refresh;
use crate::status::{ApiError, ApiResult};

use admission_queues::{EXEMPT, QueueAdmission};
pub(crate) use objects::all as first_objects;
use pool::{Pool, drain_side_queue};
use rules::{FlowAttributes, FlowRules, RequestKind, Schema};
pub(crate) use seat::{Seat, with_seat, without_seat};
pub(crate) use seated::seated;
pub(crate) use ticket::RequestTicket;

pub(crate) const SCHEMAS: &str = "flowschemas";
pub(crate) const LEVELS: &str = "prioritylevelconfigurations";
pub(crate) const TABLES: [&str; 2] = [SCHEMAS, LEVELS];

/// A request that waits longer than this is rejected, as upstream does.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(15);
/// A list of so many objects takes one seat more; and at most so many.
const OBJECTS_PER_SEAT: usize = 100;
const WIDEST: u32 = 10;
/// The processor time of a write, in seconds; the rest of its time it waits for the disk.
const WRITE: f64 = 0.0005;

/// How many requests upstream would serve at once.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    pub reading: u32,
    pub writing: u32,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { reading: 400, writing: 200 }
    }
}

#[derive(Debug)]
pub(crate) struct Fairness {
    rules: ArcSwap<FlowRules>,
    in_flight: InFlight,
    reading: Arc<Pool>,
    writing: Arc<Pool>,
    /// Held while objects are read and taken over, so that older ones never come last.
    updating: Mutex<()>,
}

/// Where a request belongs.
#[derive(Debug, Clone)]
pub(crate) struct FlowAssignment {
    schema: Arc<Schema>,
    flow: u64,
}

impl FlowAssignment {
    /// Marks an answer with where its request belonged.
    pub(crate) fn mark(&self, reply: &mut HttpReply) {
        let headers = reply.headers_mut();
        headers.insert("x-kubernetes-pf-flowschema-uid", self.schema.uid.clone());
        headers.insert("x-kubernetes-pf-prioritylevel-uid", self.schema.level_uid.clone());
    }
}

impl Fairness {
    pub(crate) fn new(in_flight: InFlight) -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let processors = u32::try_from(processors).unwrap_or(2);
        let meters = Arc::default();
        let reading = [8 * processors, processors, in_flight.reading];
        let writing = [16 * processors, 4 * processors, in_flight.writing];
        let fairness = Self {
            rules: ArcSwap::from_pointee(FlowRules::default()),
            in_flight,
            reading: Pool::new(reading, f64::INFINITY, &meters),
            writing: Pool::new(writing, WRITE, &meters),
            updating: Mutex::new(()),
        };
        let objects = objects::all();
        let of =
            |kind: &str| objects.iter().filter(|object| object["kind"] == kind).cloned().collect();
        fairness.configure(of("FlowSchema"), of("PriorityLevelConfiguration"));
        fairness
    }

    fn configure(&self, schemas: Vec<Value>, levels: Vec<Value>) {
        let rules = FlowRules::read(&schemas, &levels);
        for (pool, total) in
            [(&self.reading, self.in_flight.reading), (&self.writing, self.in_flight.writing)]
        {
            let begun = pool.queues.lock().configure(&rules.limits(total));
            pool.begin(begun);
        }
        self.rules.store(Arc::new(rules));
    }

    /// The flow of a request for a resource.
    fn assign(&self, user: &User, verb: &str, target: &ResourcePath<'_>) -> Option<FlowAssignment> {
        let what = RequestKind::Resource {
            group: target.group,
            resource: target.resource,
            subresource: target.subresource,
            namespace: target.namespace,
        };
        self.classify(&FlowAttributes { user, verb, what })
    }

    /// The same for a path outside of the resources.
    fn assign_path(&self, user: &User, verb: &str, path: &str) -> Option<FlowAssignment> {
        self.classify(&FlowAttributes { user, verb, what: RequestKind::Path(path) })
    }

    fn classify(&self, asked: &FlowAttributes<'_>) -> Option<FlowAssignment> {
        let (schema, flow) = self.rules.load().classify(asked)?;
        Some(FlowAssignment { schema, flow })
    }

    /// Waits for a seat; an exempt request needs one only if its flow is heavy.
    pub(crate) async fn enter(
        &self,
        place: Option<&FlowAssignment>,
        writes: bool,
        width: u32,
    ) -> ApiResult<Option<Seat>> {
        let Some(place) = place else { return Ok(None) };
        let pool = if writes { &self.writing } else { &self.reading };
        let (exempt, flow) = (place.schema.exempt, place.flow);
        let heavy = pool.meters.lock().ask(flow, Instant::now());
        if exempt && !heavy {
            return Ok(Some(Seat::new(pool, None, flow)));
        }
        let level = if exempt { EXEMPT } else { &*place.schema.level };
        let (sender, receiver) = oneshot::channel();
        let entry = pool.queues.lock().arrive(level, flow, width, heavy, || sender);
        match entry {
            QueueAdmission::Begins(admission) => {
                return Ok(Some(Seat::new(pool, Some(admission), flow)));
            }
            // Those before us may be too wide for the seats that are free.
            QueueAdmission::Waits => pool.dispatch(),
            QueueAdmission::Aside { first: true } => {
                drop(tokio::spawn(drain_side_queue(Arc::clone(pool))))
            }
            // The ticket of a refused request is dropped, so the wait below ends at once.
            QueueAdmission::Aside { first: false } | QueueAdmission::Refused(_) => {}
        }
        let admitted = match exempt {
            true => receiver.await.ok(),
            false => tokio::time::timeout(QUEUE_TIMEOUT, receiver).await.ok().and_then(Result::ok),
        };
        if let Some(admission) = admitted {
            return Ok(Some(Seat::new(pool, Some(admission), flow)));
        }
        pool.refused.fetch_add(1, Ordering::Relaxed);
        Err(ApiError::too_many_requests("Too many requests, please try again later."))
    }

    /// Seats in use by those who read and those who write.
    pub(crate) fn in_flight(&self) -> [(&'static str, u32); 2] {
        let running = |pool: &Pool| pool.queues.lock().running();
        [("readOnly", running(&self.reading)), ("mutating", running(&self.writing))]
    }

    pub(crate) fn refused(&self) -> u64 {
        [&self.reading, &self.writing].iter().map(|pool| pool.refused.load(Ordering::Relaxed)).sum()
    }

    /// For each level: seats in use, seats it may have, and how many wait.
    pub(crate) fn levels(&self) -> Vec<(String, u32, u32, usize)> {
        let mut all: std::collections::BTreeMap<String, (u32, u32, usize)> = Default::default();
        for pool in [&self.reading, &self.writing] {
            for (name, running, seats, waiting) in pool.queues.lock().levels() {
                let sum = all.entry(name.to_owned()).or_default();
                *sum = (sum.0 + running, sum.1 + seats, sum.2 + waiting);
            }
        }
        all.into_iter()
            .map(|(name, (running, seats, waiting))| (name, running, seats, waiting))
            .collect()
    }
}

/// Takes over what the objects say now.
pub(crate) fn refresh(api: &Api) {
    let _one_at_a_time = api.fairness.updating.lock();
    let read = |table: &str| -> Vec<Value> {
        refresh::entries(api, table).iter().map(|entry| entry.item.to_value()).collect()
    };
    let (schemas, mut levels) = (read(SCHEMAS), read(LEVELS));
    if schemas.is_empty() && levels.is_empty() {
        return;
    }
    // A user may have removed them; every request needs a level all the same.
    for object in objects::all() {
        let wanted = object["kind"] == "PriorityLevelConfiguration"
            && matches!(object["metadata"]["name"].as_str(), Some("exempt" | "catch-all"));
        let there =
            levels.iter().any(|level| level["metadata"]["name"] == object["metadata"]["name"]);
        if wanted && !there {
            levels.push(object);
        }
    }
    api.fairness.configure(schemas, levels);
}

/// The number of seats of a list: its cost grows with the number of objects.
pub(crate) fn width(objects: usize) -> u32 {
    let more = u32::try_from(objects / OBJECTS_PER_SEAT).unwrap_or(u32::MAX);
    more.saturating_add(1).min(WIDEST)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_closed_request_leaves_its_turn_to_others() {
        let fairness = Fairness::new(InFlight { reading: 1, writing: 1 });
        let user = User::new("jane", ["system:authenticated"]);
        let place = fairness.assign_path(&user, "get", "/api").unwrap();
        let first = fairness.enter(Some(&place), false, 1).await.unwrap();
        assert!(first.is_some());
        {
            let gone = fairness.enter(Some(&place), false, 1);
            tokio::pin!(gone);
            let waited = tokio::time::timeout(Duration::from_millis(10), gone.as_mut()).await;
            assert!(waited.is_err(), "there is one seat only");
        }
        let next = fairness.enter(Some(&place), false, 1);
        tokio::pin!(next);
        assert!(tokio::time::timeout(Duration::from_millis(10), next.as_mut()).await.is_err());
        drop(first);
        assert!(next.await.unwrap().is_some());
        assert_eq!(fairness.in_flight()[0], ("readOnly", 0));
    }

    #[tokio::test]
    async fn a_heavy_flow_lets_others_pass_and_closed_requests_take_no_seat() {
        for groups in [["a", "a"], ["a", "system:masters"], ["system:masters", "a"]] {
            heavy_flow(groups).await;
        }
    }

    /// A user of one group is a heavy flow to a user of another.
    async fn heavy_flow([noisy, quiet]: [&str; 2]) {
        let fairness = Fairness::new(InFlight::default());
        let place = |name: &str, group: &str| {
            let user = User::new(name, ["system:authenticated", group]);
            fairness.assign_path(&user, "get", "/api").unwrap()
        };
        let (noisy, quiet) = (place("noisy", noisy), place("quiet", quiet));
        drop(fairness.enter(Some(&noisy), false, 1).await.unwrap());
        fairness.reading.meters.lock().charge(noisy.flow, 1.0, Instant::now());
        drop(fairness.enter(Some(&noisy), false, 1).now_or_never().unwrap());

        drop(fairness.enter(Some(&quiet), false, 1).now_or_never().unwrap());
        let mut heavy: Vec<_> =
            (0..5).map(|_| Box::pin(fairness.enter(Some(&noisy), false, 1))).collect();
        for waiting in &mut heavy {
            assert!(futures_util::poll!(waiting.as_mut()).is_pending(), "there is a seat for it");
        }
        let passing = fairness.enter(Some(&quiet), false, 1).now_or_never();
        assert!(passing.unwrap().unwrap().is_some(), "no request waits for a heavy flow");
        heavy.truncate(3);
        for waiting in heavy {
            assert!(waiting.await.unwrap().is_some());
        }
        // Writing belongs to the same heavy flow.
        let mut writing = std::pin::pin!(fairness.enter(Some(&noisy), true, 1));
        assert!(futures_util::poll!(writing.as_mut()).is_pending());
        assert!(writing.await.unwrap().is_some());
        tokio::task::yield_now().await;
        assert_eq!(fairness.in_flight(), [("readOnly", 0), ("mutating", 0)]);
        assert!(fairness.levels().iter().all(|(_, _, _, waiting)| *waiting == 0));
    }

    #[test]
    fn large_lists_are_wide() {
        for (objects, expected) in [(0, 1), (99, 1), (100, 2), (950, 10), (1_000_000, 10)] {
            assert_eq!(width(objects), expected, "{objects}");
        }
    }
}
