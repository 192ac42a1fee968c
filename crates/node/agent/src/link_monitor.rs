//! Reports the links of this node in the LinkMonitors that select it, and again when the kernel
//! reports a change of a link. A LinkMonitor is written only where it differs, in the entry of this
//! node; those of other nodes are never touched.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Chain, Tasks};
use client::Fault;
use futures_util::{StreamExt as _, stream};
use hci::harvester::network::{LinkMonitor, LinkStatus};
use hci::link_monitor::LinkRule;
use hci::network::{GROUP, VERSION};
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use net::{LinkState, ObservedKind, ObservedLinks, Uplinks};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::api::{merge, present};
use crate::known_objects::{KnownObjects, ObjectKey};
use crate::retry::{Retries, sooner};

/// Between two attempts to reach the server.
const RETRY: Duration = Duration::from_secs(2);
/// Between two attempts to write the same report: the pause doubles while it is refused.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// After a write: links that change all the time are reported once a second.
const PAUSE: Duration = Duration::from_secs(1);
/// As many events as are taken together.
const BATCH: usize = 256;

/// A LinkMonitor, as far as it concerns this node.
struct MonitorRecord {
    rule: LinkRule,
    /// Links by node.
    reported: BTreeMap<String, Vec<LinkStatus>>,
}

/// An event of one of the watches; boxed, since they differ much in size.
enum MonitorEvent {
    Node(Box<Result<Event<Node>, watcher::Error>>),
    Monitor(Box<Result<Event<DynamicObject>, watcher::Error>>),
}

/// Runs until the tasks are stopped.
pub(crate) async fn run(client: Client, node: String, tasks: Tasks) {
    let links = match Uplinks::start(&tasks) {
        Ok(links) => links,
        Err(failure) => {
            warn!(error = %Chain(&failure), "links of this node are not reported");
            return;
        }
    };
    let mut stop = tasks.stop_signal();
    let own = watcher::Config::default().fields(&format!("metadata.name={node}"));
    let nodes = watcher(Api::<Node>::all(client.clone()), own);
    let nodes = nodes.map(|event| MonitorEvent::Node(Box::new(event)));
    let gvk = GroupVersionKind::gvk(GROUP, VERSION, "LinkMonitor");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "linkmonitors");
    let api = Api::<DynamicObject>::all_with(client, &resource);
    let monitors = watcher(api.clone(), watcher::Config::default());
    let monitors = monitors.map(|event| MonitorEvent::Monitor(Box::new(event)));
    let mut changes = std::pin::pin!(stream::select(nodes, monitors).ready_chunks(BATCH));
    let mut changed = links.changes();
    let mut reporter = LinkReporter::new(api, node);
    let mut wait = None;
    loop {
        tokio::select! {
            batch = changes.next() => {
                let Some(batch) = batch else { return };
                let mut failed = false;
                for change in batch {
                    failed |= reporter.take(change);
                }
                if failed {
                    tokio::select! {
                        () = tokio::time::sleep(RETRY) => {}
                        () = stop.requested() => return,
                    }
                }
            }
            outcome = changed.changed() => {
                if outcome.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            () = stop.requested() => return,
        }
        let observed = match links.observe().await {
            Ok(observed) => statuses(&observed),
            Err(failure) => {
                warn!(error = %Chain(&failure), "cannot read the links of this node");
                wait = None;
                continue;
            }
        };
        let outcome = reporter.report(&observed).await;
        wait = outcome.retry;
        if outcome.is_written {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.requested() => return,
            }
        }
    }
}

struct LinkReporter {
    api: Api<DynamicObject>,
    node: String,
    nodes: KnownObjects<BTreeMap<String, String>>,
    monitors: KnownObjects<MonitorRecord>,
    retries: Retries<ObjectKey, Value>,
}

/// The result of a round of reports.
#[derive(Debug, Default)]
struct ReportOutcome {
    is_written: bool,
    /// When to write again what was refused.
    retry: Option<Duration>,
}

impl LinkReporter {
    fn new(api: Api<DynamicObject>, node: String) -> Self {
        let (nodes, monitors) = (KnownObjects::default(), KnownObjects::default());
        Self { api, node, nodes, monitors, retries: Retries::new(FIRST_RETRY, LAST_RETRY) }
    }

    /// Notes a change; returns whether it was a failure.
    fn take(&mut self, change: MonitorEvent) -> bool {
        let outcome = match change {
            MonitorEvent::Node(event) => (*event).map(|event| {
                self.nodes.take(event, |node: Node| Some(node.metadata.labels.unwrap_or_default()));
            }),
            MonitorEvent::Monitor(event) => {
                (*event).map(|event| self.monitors.take(event, read_monitor))
            }
        };
        let Err(failure) = outcome else { return false };
        debug!(error = %Chain(&failure), "cannot watch link monitors");
        true
    }

    /// Writes what differs.
    async fn report(&mut self, observed: &[LinkStatus]) -> ReportOutcome {
        let mut outcome = ReportOutcome::default();
        let (Some(nodes), Some(monitors)) = (self.nodes.all(), self.monitors.all()) else {
            return outcome;
        };
        let Some(labels) = nodes.values().next() else { return outcome };
        self.retries.retain(|key| monitors.contains_key(key));
        for (key, monitor) in monitors {
            let Some(links) = change(monitor, &self.node, labels, observed) else { continue };
            if let Some(pause) = self.retries.pause(key, &links, Instant::now()) {
                outcome.retry = sooner(outcome.retry, Some(pause));
                continue;
            }
            let patch = json!({"status": {"linkStatus": {self.node.as_str(): links}}});
            // One that was deleted meanwhile needs no report.
            match present(merge(&self.api, &key.name, &patch).await) {
                Ok(_) => {
                    self.retries.succeed(key);
                    outcome.is_written = true;
                }
                Err(failure) => {
                    let failure = Fault(failure);
                    debug!(error = %Chain(&failure), "cannot report the links of this node");
                    let pause = self.retries.fail(key.clone(), links, Instant::now());
                    outcome.retry = sooner(outcome.retry, Some(pause));
                }
            }
        }
        outcome
    }
}

/// The entry of a node in a LinkMonitor, if it is to be another: null removes it.
fn change(
    monitor: &MonitorRecord,
    node: &str,
    labels: &BTreeMap<String, String>,
    links: &[LinkStatus],
) -> Option<Value> {
    let reported = monitor.reported.get(node);
    let wanted = monitor.rule.selects_node(labels).then(|| monitor.rule.matching(links));
    if reported == wanted.as_ref() {
        return None;
    }
    Some(wanted.map_or(Value::Null, |links| json!(links)))
}

fn read_monitor(object: DynamicObject) -> Option<MonitorRecord> {
    let read: LinkMonitor = serde_json::from_value(serde_json::to_value(object).ok()?).ok()?;
    let reported = read.status.unwrap_or_default().link_status;
    Some(MonitorRecord { rule: LinkRule::read(&read.spec).ok()?, reported })
}

/// The links of a node as LinkMonitors show them, without loopback.
fn statuses(links: &ObservedLinks) -> Vec<LinkStatus> {
    let is_loopback = |kind: &ObservedKind| *kind == ObservedKind::Other("loopback".to_owned());
    let all = links.iter().filter(|(_, link)| !is_loopback(&link.kind));
    all.map(|(name, link)| LinkStatus {
        name: name.to_string(),
        index: Some(link.index.into()),
        r#type: Some(link.kind_name().to_owned()),
        mac: link.mac.map(|mac| mac.to_string()),
        promiscuous: Some(link.is_promiscuous),
        state: Some(
            match link.state {
                LinkState::Up => "up",
                LinkState::Down => "down",
                LinkState::Unknown => "unknown",
            }
            .to_owned(),
        ),
        master_index: link.master.map(i64::from),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use net::{ObservedLink, PortVlan};

    use super::*;
    use crate::retry::tests::{MOST_ATTEMPTS, a_minute_of, refusing};

    fn observed() -> ObservedLinks {
        let link = |index, kind, state, master: Option<u32>| ObservedLink {
            index,
            kind,
            mac: Some(net::Mac::new([2, 0, 0, 0, 0, 1])),
            mtu: 1500,
            tx_queue_len: 1000,
            is_up: true,
            has_carrier: true,
            state,
            is_promiscuous: master.is_some(),
            group: 0,
            master,
            lower: None,
            addresses: vec![],
            vlans: PortVlan::default(),
            member: None,
        };
        let other = |kind: &str| ObservedKind::Other(kind.to_owned());
        [
            ("lo", link(1, other("loopback"), LinkState::Unknown, None)),
            ("eth1", link(3, ObservedKind::Nic, LinkState::Down, Some(9))),
            ("eth0", link(2, ObservedKind::Nic, LinkState::Up, None)),
            ("shf-a", link(4, other("tun"), LinkState::Unknown, None)),
        ]
        .into_iter()
        .map(|(name, link)| (name.parse().unwrap(), link))
        .collect()
    }

    fn monitor(selector: Value, reported: Value) -> MonitorRecord {
        let object = json!({
            "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "LinkMonitor",
            "metadata": {"name": "nic"},
            "spec": {"nodeSelector": selector, "targetLinkRule": {"typeRule": "device"}},
            "status": {"linkStatus": reported},
        });
        read_monitor(serde_json::from_value(object).unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_report_is_written_after_growing_pauses() {
        let (client, asked) = refusing(403);
        let gvk = GroupVersionKind::gvk(GROUP, VERSION, "LinkMonitor");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "linkmonitors");
        let api = Api::<DynamicObject>::all_with(client, &resource);
        let mut reporter = LinkReporter::new(api, "one".to_owned());
        let node = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
        reporter.take(MonitorEvent::Node(Box::new(Ok(Event::Apply(node)))));
        for name in ["a", "b"] {
            let monitor = json!({
                "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "LinkMonitor",
                "metadata": {"name": name}, "spec": {"targetLinkRule": {"typeRule": "device"}},
            });
            let monitor = serde_json::from_value(monitor).unwrap();
            reporter.take(MonitorEvent::Monitor(Box::new(Ok(Event::Apply(monitor)))));
        }
        let links = statuses(&observed());
        a_minute_of(async || reporter.report(&links).await.retry).await;
        let asked = asked.lock();
        for name in ["a", "b"] {
            let own = asked.iter().filter(|path| path.ends_with(&format!("/{name}"))).count();
            assert!((3..=MOST_ATTEMPTS).contains(&own), "{asked:?}");
        }
    }

    #[test]
    fn links_are_reported_as_harvester_does() {
        let links = statuses(&observed());
        assert!(links.iter().all(|link| link.name != "lo"));
        let entry = change(&monitor(json!({}), json!({})), "one", &BTreeMap::new(), &links);
        assert_eq!(
            entry,
            Some(json!([
                {"name": "eth0", "index": 2, "type": "device", "mac": "02:00:00:00:00:01",
                    "promiscuous": false, "state": "up"},
                {"name": "eth1", "index": 3, "type": "device", "mac": "02:00:00:00:00:01",
                    "promiscuous": true, "state": "down", "masterIndex": 9},
            ]))
        );
    }

    #[test]
    fn a_monitor_is_written_only_where_it_differs() {
        let links = statuses(&observed());
        let none = BTreeMap::new();
        let entry = change(&monitor(json!({}), json!({})), "one", &none, &links).unwrap();
        let same = monitor(json!({}), json!({"one": entry, "two": []}));
        assert_eq!(change(&same, "one", &none, &links), None);
        // A node that is not selected any more takes its entry away.
        let other = monitor(json!({"rack": "a"}), json!({"one": []}));
        assert_eq!(change(&other, "one", &none, &links), Some(Value::Null));
        assert_eq!(change(&monitor(json!({"rack": "a"}), json!({})), "one", &none, &links), None);
    }
}
