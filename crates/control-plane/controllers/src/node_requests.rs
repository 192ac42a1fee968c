//! The sum of requests of the pods of each node, as annotations of the Node: Rancher writes them,
//! and its and Harvester's clients show free capacity by them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base::clock;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use types::Quantity;

use crate::object::{annotation, name, read};
use crate::reconcile::{
    ErrorContext, EventMapper, ObjectChange, ReconcileError, ReconcileResult, Reconciler,
};
use crate::record::fields;
use crate::record::quantity::WrittenQuantity;
use crate::resource::{NODES, Objects, PODS, is_refused};

const REQUESTS: &str = "management.cattle.io/pod-requests";
const LIMITS: &str = "management.cattle.io/pod-limits";
/// Pods of a large cluster are not counted more often than this.
const INTERVAL: Duration = Duration::from_secs(2);

/// All nodes at once: a change of a pod does not show where the pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AllNodes;

/// Pods and nodes.
#[derive(Debug, Default)]
pub(crate) struct PodMapper;

impl EventMapper for PodMapper {
    type Key = AllNodes;

    fn keys(&mut self, touch: &ObjectChange) -> Vec<AllNodes> {
        let (ObjectChange::Object { kind, .. } | ObjectChange::Missed(kind)) = touch;
        if PODS.is(kind) || NODES.is(kind) { vec![AllNodes] } else { Vec::new() }
    }
}

pub(crate) struct NodeRequestsReconciler {
    objects: Objects,
    /// When the pods were counted last.
    counted: Mutex<Option<Timestamp>>,
}

impl NodeRequestsReconciler {
    pub(crate) fn new(client: Client) -> Self {
        Self { objects: Objects(client), counted: Mutex::new(None) }
    }

    /// How long to wait before the pods are counted again; nothing if it is done now.
    fn wait(&self, now: Timestamp) -> Option<Duration> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = counted.map(|at| now.duration_since(at).unsigned_abs());
        match passed {
            Some(passed) if passed < INTERVAL => Some(INTERVAL.saturating_sub(passed)),
            _ => {
                *counted = Some(now);
                None
            }
        }
    }
}

impl Reconciler for NodeRequestsReconciler {
    type Key = AllNodes;

    async fn reconcile(&self, _: &AllNodes) -> Result<ReconcileResult, ReconcileError> {
        if let Some(wait) = self.wait(clock::now()) {
            return Ok(ReconcileResult::Again(wait));
        }
        let nodes = self.objects.list(NODES, "", "").await.doing("list the nodes")?;
        let pods = self.objects.list(PODS, "", "").await.doing("list the pods")?;
        for (node, patch) in patches(&nodes, &pods) {
            match self.objects.merge(NODES, "", &node, &patch).await {
                Err(failure) if is_refused(&failure, 404) => {}
                written => drop(written.doing("write the requests of a node")?),
            }
        }
        Ok(ReconcileResult::Done)
    }
}

/// Sums of one node.
#[derive(Debug, Default)]
struct Sums {
    requests: BTreeMap<&'static str, Quantity>,
    limits: BTreeMap<&'static str, Quantity>,
    pods: i64,
}

fields! {
    struct PodFields<'a> {
        spec: PodSpec<'a>,
        status: PodStatus<'a>,
    }

    struct PodSpec<'a> {
        node_name: &'a str,
        containers: Vec<ContainerFields>,
    }

    struct ContainerFields {
        resources: ContainerResources,
    }

    struct ContainerResources {
        requests: ComputeAmounts,
        limits: ComputeAmounts,
    }

    struct ComputeAmounts {
        cpu: WrittenQuantity,
        memory: WrittenQuantity,
    }

    struct PodStatus<'a> {
        phase: &'a str,
    }
}

/// The patches of nodes whose annotations differ from what their pods ask for.
fn patches(nodes: &[Value], pods: &[Value]) -> Vec<(String, Value)> {
    let mut sums: BTreeMap<&str, Sums> = BTreeMap::new();
    for pod in pods {
        let PodFields { spec, status } = read(pod);
        let has_ended = matches!(status.phase, "Succeeded" | "Failed");
        if has_ended || spec.node_name.is_empty() {
            continue;
        }
        let own = sums.entry(spec.node_name).or_default();
        own.pods += 1;
        for container in &spec.containers {
            add(&mut own.requests, &container.resources.requests);
            add(&mut own.limits, &container.resources.limits);
        }
    }
    let none = Sums::default();
    let wanted = nodes.iter().filter_map(|node| {
        let own = sums.get(name(node)).unwrap_or(&none);
        let (requests, limits) = (printed(&own.requests, own.pods), printed(&own.limits, 0));
        let is_same = annotation(node, REQUESTS) == Some(requests.as_str())
            && annotation(node, LIMITS) == Some(limits.as_str());
        let patch = json!({"metadata": {"annotations": {REQUESTS: requests, LIMITS: limits}}});
        (!is_same).then(|| (name(node).to_owned(), patch))
    });
    wanted.collect()
}

fn add(sums: &mut BTreeMap<&'static str, Quantity>, own: &ComputeAmounts) {
    for (resource, amount) in [("cpu", &own.cpu), ("memory", &own.memory)] {
        if let Some(amount) = amount.amount() {
            *sums.entry(resource).or_insert_with(|| Quantity::from_units(0)) += &amount;
        }
    }
}

/// The form that Rancher writes: zero values are included, pods only if there are any.
fn printed(sums: &BTreeMap<&'static str, Quantity>, pods: i64) -> String {
    let amount =
        |resource: &str| sums.get(resource).map_or_else(|| "0".to_owned(), Quantity::to_string);
    let mut all = json!({"cpu": amount("cpu"), "memory": amount("memory")});
    if pods > 0 {
        all["pods"] = json!(pods.to_string());
    }
    all.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, phase: &str, cpu: &str, memory: &str) -> Value {
        let resources =
            json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}});
        json!({"spec": {"nodeName": node, "containers": [{"resources": resources}]},
            "status": {"phase": phase}})
    }

    #[test]
    fn a_node_reports_what_its_pods_request() {
        let nodes = [json!({"metadata": {"name": "one"}}), json!({"metadata": {"name": "two"}})];
        let pods = [
            pod("one", "Running", "100m", "1Gi"),
            pod("one", "Pending", "1", "512Mi"),
            pod("one", "Succeeded", "4", "4Gi"),
            pod("", "Pending", "4", "4Gi"),
        ];
        let found = patches(&nodes, &pods);
        let annotation = |index: usize, key: &str| {
            let (_, patch): &(String, Value) = &found[index];
            patch["metadata"]["annotations"][key].as_str().unwrap().to_owned()
        };
        assert_eq!(annotation(0, REQUESTS), r#"{"cpu":"1100m","memory":"1536Mi","pods":"2"}"#);
        assert_eq!(annotation(0, LIMITS), r#"{"cpu":"0","memory":"1536Mi"}"#);
        assert_eq!(annotation(1, REQUESTS), r#"{"cpu":"0","memory":"0"}"#);
        // Nothing is written twice.
        let known: Vec<Value> = nodes
            .iter()
            .zip(&found)
            .map(|(node, (_, patch))| {
                let mut node = node.clone();
                node["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
                node
            })
            .collect();
        assert_eq!(patches(&known, &pods), Vec::new());
    }
}
