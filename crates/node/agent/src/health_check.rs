//! Health checks of load balancers: connects to the machines of this node that are behind one, and
//! reports what it found in an annotation of the machine (`hci::backend_health`).
//!
//! Connections go to the address that the load balancer leads to, from the node that the machine
//! runs on. An address that a guest reports is not checked if it is one of the cluster. A report is
//! written when it differs from what the machine's object says; one that was refused is written
//! again after a pause that grows.

mod plan;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use base::{Chain, Stop};
use client::Fault;
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, stream};
use hci::backend_health::{BackendHealth, HEALTH};
use hci::harvester::load_balancer::LoadBalancer;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::api::{merge, vmis, vmis_in};
use crate::egress::EgressPolicy;
use crate::known_objects::{KnownObjects, ObjectKey};
use crate::retry::{Retries, sooner};
use plan::{CheckKey, CheckState, CheckTarget, CheckedInstance};

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(1);
/// Between two attempts to write the same report: the pause doubles while it is refused.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// As many events as are taken together.
const BATCH: usize = 256;

/// An event of one of the watches; boxed, since they differ much in size.
enum WatchEvent {
    Balancer(Box<Result<Event<DynamicObject>, watcher::Error>>),
    Instance(Box<Result<Event<DynamicObject>, watcher::Error>>),
}

/// A target with the number of its state: an attempt of an older state does not count.
#[derive(Debug, Clone)]
struct NumberedTarget {
    key: CheckKey,
    target: CheckTarget,
    number: u64,
}

/// One attempt that has ended.
struct Attempt {
    of: NumberedTarget,
    answered: bool,
}

/// Runs until `stop`.
pub(crate) async fn run(client: Client, node: String, mut outside: EgressPolicy, mut stop: Stop) {
    let group = hci::address_pool::GROUP;
    let kind = GroupVersionKind::gvk(group, "v1beta1", "LoadBalancer");
    let kind = ApiResource::from_gvk_with_plural(&kind, "loadbalancers");
    let balancers = Api::<DynamicObject>::all_with(client.clone(), &kind);
    let balancers = watcher(balancers, watcher::Config::default());
    let balancers = balancers.map(|event| WatchEvent::Balancer(Box::new(event)));
    let own = watcher::Config::default().labels(&format!("kubevirt.io/nodeName={node}"));
    let instances = watcher(vmis(&client), own);
    let instances = instances.map(|event| WatchEvent::Instance(Box::new(event)));
    let mut changes = std::pin::pin!(stream::select(balancers, instances).ready_chunks(BATCH));
    let mut checker = HealthChecker::new(client, outside.clone());
    let mut attempts = FuturesUnordered::new();
    let mut wait = None;
    loop {
        tokio::select! {
            batch = changes.next() => {
                let Some(batch) = batch else { return };
                let mut failed = false;
                for change in batch {
                    failed |= checker.take(change);
                }
                if failed {
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = stop.requested() => return,
                    }
                }
                for new in checker.follow() {
                    attempts.push(attempt(Duration::ZERO, new));
                }
            }
            () = outside.cluster_changed() => {
                for new in checker.follow() {
                    attempts.push(attempt(Duration::ZERO, new));
                }
            }
            Some(ended) = attempts.next() => {
                if let Some(again) = checker.count(ended) {
                    attempts.push(attempt(again.target.check.period, again));
                }
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            () = stop.requested() => return,
        }
        wait = checker.report().await;
    }
}

async fn attempt(delay: Duration, of: NumberedTarget) -> Attempt {
    tokio::time::sleep(delay).await;
    let connecting = TcpStream::connect(of.target.socket());
    let answered = tokio::time::timeout(of.target.check.timeout, connecting).await;
    Attempt { of, answered: answered.is_ok_and(|connected| connected.is_ok()) }
}

struct HealthChecker {
    client: Client,
    /// Addresses that guests may report.
    outside: EgressPolicy,
    balancers: KnownObjects<LoadBalancer>,
    instances: KnownObjects<CheckedInstance>,
    states: BTreeMap<CheckKey, CheckState>,
    /// How many states there have been.
    count: u64,
    reports: Retries<ObjectKey, BTreeMap<String, BackendHealth>>,
    is_failing: bool,
}

impl HealthChecker {
    fn new(client: Client, outside: EgressPolicy) -> Self {
        Self {
            client,
            outside,
            balancers: KnownObjects::default(),
            instances: KnownObjects::default(),
            states: BTreeMap::new(),
            count: 0,
            reports: Retries::new(FIRST_RETRY, LAST_RETRY),
            is_failing: false,
        }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: WatchEvent) -> bool {
        let outcome = match change {
            WatchEvent::Balancer(event) => {
                (*event).map(|event| self.balancers.take(event, read_balancer))
            }
            WatchEvent::Instance(event) => {
                (*event).map(|event| self.instances.take(event, read_instance))
            }
        };
        let Err(failure) = outcome else { return false };
        debug!(error = %Chain(&failure), "cannot watch load balancers");
        true
    }

    /// Follows what is to be checked; returns what has not been tried yet.
    fn follow(&mut self) -> Vec<NumberedTarget> {
        let (Some(balancers), Some(instances)) = (self.balancers.all(), self.instances.all())
        else {
            return Vec::new();
        };
        let is_reserved = |address: Ipv4Addr| self.outside.check(address.into()).is_err();
        let targets = plan::targets(balancers, instances, is_reserved);
        self.states.retain(|key, state| targets.get(key) == Some(&state.target));
        let mut new = Vec::new();
        for (key, target) in targets {
            if !self.states.contains_key(&key) {
                let instance =
                    ObjectKey { namespace: key.namespace.clone(), name: key.instance.clone() };
                let known = instances.get(&instance);
                let known = known.and_then(|known| known.reported.get(&key.balancer).copied());
                self.count += 1;
                let number = self.count;
                self.states.insert(key.clone(), CheckState::new(target, known, number));
                new.push(NumberedTarget { key, target, number });
            }
        }
        new
    }

    /// Notes the outcome of an attempt; returns what is to be tried again.
    fn count(&mut self, ended: Attempt) -> Option<NumberedTarget> {
        let Attempt { of, answered } = ended;
        let state = self.states.get_mut(&of.key).filter(|state| state.number == of.number)?;
        state.count(answered);
        Some(of)
    }

    /// Writes what differs from what machines' objects say; returns when to try again.
    async fn report(&mut self) -> Option<Duration> {
        let (Some(_), Some(instances)) = (self.balancers.all(), self.instances.all()) else {
            return None;
        };
        self.reports.retain(|key| instances.contains_key(key));
        let wanted = instances.iter().filter_map(|(key, known)| {
            let wanted = plan::report(&self.states, key);
            (wanted != known.reported).then(|| (key.clone(), wanted))
        });
        let mut wait = None;
        for (key, wanted) in wanted.collect::<Vec<_>>() {
            if let Some(pause) = self.reports.pause(&key, &wanted, Instant::now()) {
                wait = sooner(wait, Some(pause));
                continue;
            }
            let text = (!wanted.is_empty()).then(|| json!(wanted).to_string());
            let patch = json!({"metadata": {"annotations": {HEALTH: text}}});
            let written = merge(&vmis_in(&self.client, &key.namespace), &key.name, &patch).await;
            match written {
                Ok(instance) => {
                    info!(namespace = key.namespace, name = key.name, health = ?wanted,
                        "machine behind a load balancer has changed its health");
                    self.is_failing = false;
                    self.reports.succeed(&key);
                    self.instances.take(Event::Apply(instance), read_instance);
                }
                Err(failure) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        let failure = Fault(failure);
                        warn!(error = %Chain(&failure), "cannot report the health of a machine");
                    }
                    let pause = self.reports.fail(key, wanted, Instant::now());
                    wait = sooner(wait, Some(pause));
                }
            }
        }
        wait
    }
}

fn read_balancer(object: DynamicObject) -> Option<LoadBalancer> {
    serde_json::from_value(serde_json::to_value(object).ok()?).ok()
}

fn read_instance(object: DynamicObject) -> Option<CheckedInstance> {
    Some(CheckedInstance::read(&serde_json::to_value(object).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::tests::{MOST_ATTEMPTS, a_minute_of, refusing};

    #[tokio::test(start_paused = true)]
    async fn a_refused_report_is_written_after_growing_pauses() {
        let (client, asked) = refusing(403);
        let mut checker = HealthChecker::new(client, EgressPolicy::default());
        checker.take(WatchEvent::Balancer(Box::new(Ok(Event::InitDone))));
        // Its annotation is of a load balancer that is gone, and has to be removed.
        let stale = json!({"gone": {"port": 80, "healthy": true}}).to_string();
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "vm", "namespace": "default", "annotations": {HEALTH: stale}},
        });
        let instance = serde_json::from_value(instance).unwrap();
        checker.take(WatchEvent::Instance(Box::new(Ok(Event::InitApply(instance)))));
        checker.take(WatchEvent::Instance(Box::new(Ok(Event::InitDone))));
        a_minute_of(async || checker.report().await).await;
        let asked = asked.lock();
        assert!((3..=MOST_ATTEMPTS).contains(&asked.len()), "{asked:?}");
        assert!(asked[0].starts_with("PATCH "), "{asked:?}");
    }
}
