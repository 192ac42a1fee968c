//! Group `metrics.k8s.io`: the current usage of nodes and machines, for `kubectl top` and for
//! dashboards. A machine is shown as the pod that represents it.
//!
//! Nodes count; a rate needs two counts. The last ones are kept, so that a client that polls gets
//! the mean since its last request, and only the first request has to wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, StatusCode, request};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::answer::{self, GatewayError, GatewayResult};
use crate::route::Row;
use crate::{Gateway, node, objects};

pub const METRICS_GROUP: &str = "metrics.k8s.io";
pub const METRICS_RESOURCES: &[Row] = &[
    Row { name: "nodes", namespaced: false, verbs: &["get", "list"] },
    Row { name: "pods", namespaced: true, verbs: &["get", "list"] },
];

/// How long the first question waits between its two counts.
const SHORTEST: Duration = Duration::from_secs(1);
/// Counts that are older say nothing about now.
const OLDEST: Duration = Duration::from_secs(300);
/// The container of a machine's pod.
const CONTAINER: &str = "compute";

/// The usage report of a node.
#[derive(Debug, Clone, Default, Deserialize)]
struct Report {
    node: Usage,
    machines: Vec<MachineUsage>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    cpu_nanoseconds: u64,
    memory_bytes: u64,
}

#[derive(Debug, Clone, Deserialize)]
struct MachineUsage {
    namespace: String,
    name: String,
    #[serde(flatten)]
    usage: Usage,
}

/// Counts of a node and when they were taken.
#[derive(Debug, Clone)]
struct Count {
    at: Instant,
    report: Report,
}

/// The last counts, by node; clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<String, Count>>>);

/// Two counts of a node.
struct Span {
    before: Count,
    after: Count,
}

impl Span {
    fn window(&self) -> Duration {
        self.after.at.duration_since(self.before.at)
    }

    /// `cpu` and `memory` of something that was counted twice.
    fn usage(&self, before: Usage, after: Usage) -> Value {
        let spent = after.cpu_nanoseconds.saturating_sub(before.cpu_nanoseconds);
        let window = self.window().as_nanos().max(1);
        let rate = u128::from(spent) * 1_000_000_000 / window;
        json!({"cpu": format!("{rate}n"), "memory": format!("{}Ki", after.memory_bytes / 1024)})
    }

    fn node(&self) -> Value {
        self.usage(self.before.report.node, self.after.report.node)
    }

    fn machine(&self, namespace: &str, name: &str) -> Option<Value> {
        let find = |count: &Count| {
            let machines = count.report.machines.iter();
            let mut named = machines.filter(|it| it.namespace == namespace && it.name == name);
            named.next().map(|machine| machine.usage)
        };
        let after = find(&self.after)?;
        // The counters of a machine that started in between begin at zero.
        Some(self.usage(find(&self.before).unwrap_or_default(), after))
    }
}

/// The requested metrics.
enum MetricsQuery<'a> {
    Nodes,
    Node(&'a str),
    Pods(&'a str),
    Pod(&'a str, &'a str),
}

fn wanted(path: &str) -> Option<MetricsQuery<'_>> {
    let rest = path.strip_prefix("/apis/metrics.k8s.io/v1beta1/")?;
    let parts: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
    Some(match parts.as_slice() {
        ["nodes"] => MetricsQuery::Nodes,
        ["nodes", name] => MetricsQuery::Node(name),
        ["pods"] => MetricsQuery::Pods(""),
        ["namespaces", namespace, "pods"] => MetricsQuery::Pods(namespace),
        ["namespaces", namespace, "pods", name] => MetricsQuery::Pod(namespace, name),
        _ => return None,
    })
}

/// Whether a path is of this group.
pub(crate) fn owns(path: &str) -> bool {
    path.starts_with("/apis/metrics.k8s.io/")
}

pub(crate) async fn answer(gateway: &Gateway, parts: &request::Parts) -> GatewayResult {
    let Some(wanted) = wanted(parts.uri.path()) else { return Err(GatewayError::no_such_path()) };
    let selector = selector(parts.uri.query().unwrap_or(""));
    let value = match wanted {
        MetricsQuery::Nodes => {
            let nodes = list(gateway, &format!("/api/v1/nodes{selector}")).await?;
            let mut items = Vec::new();
            for node in &nodes {
                // One that cannot be reached is not in the list.
                if let Ok(span) = span(gateway, name(node)).await {
                    items.push(node_metrics(node, &span));
                }
            }
            listed("NodeMetricsList", items)
        }
        MetricsQuery::Node(node) => {
            let found = objects::find(&gateway.client, &format!("/api/v1/nodes/{node}")).await?;
            let found = found.ok_or_else(|| missing("nodemetrics", node))?;
            node_metrics(&found, &span(gateway, node).await?)
        }
        MetricsQuery::Pods(namespace) => {
            let path = match namespace {
                "" => format!("/api/v1/pods{selector}"),
                namespace => format!("/api/v1/namespaces/{namespace}/pods{selector}"),
            };
            let pods = list(gateway, &path).await?;
            listed("PodMetricsList", pod_list(gateway, &pods).await)
        }
        MetricsQuery::Pod(namespace, pod) => {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
            let found = objects::find(&gateway.client, &path).await?;
            let found = found.ok_or_else(|| missing("podmetrics", pod))?;
            let metrics = pod_list(gateway, std::slice::from_ref(&found)).await.pop();
            metrics.ok_or_else(|| missing("podmetrics", pod))?
        }
    };
    Ok(answer::json(StatusCode::OK, &value))
}

fn missing(kind: &str, name: &str) -> GatewayError {
    GatewayError::with_message(
        StatusCode::NOT_FOUND,
        format!("{kind}.metrics.k8s.io {name:?} not found"),
    )
}

/// Selectors choose among nodes and pods as they do there.
fn selector(query: &str) -> String {
    let kept: Vec<&str> = query
        .split('&')
        .filter(|part| part.starts_with("labelSelector=") || part.starts_with("fieldSelector="))
        .collect();
    if kept.is_empty() { String::new() } else { format!("?{}", kept.join("&")) }
}

async fn list(gateway: &Gateway, path: &str) -> Result<Vec<Value>, GatewayError> {
    let mut list = objects::find(&gateway.client, path).await?.unwrap_or_default();
    Ok(match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    })
}

/// Of those pods that represent running machines.
async fn pod_list(gateway: &Gateway, pods: &[Value]) -> Vec<Value> {
    let mut spans: BTreeMap<&str, Option<Span>> = BTreeMap::new();
    let mut items = Vec::new();
    for pod in pods {
        let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let mut owners = owners.filter(|owner| owner["kind"] == "VirtualMachineInstance");
        let Some(machine) = owners.next().and_then(|owner| owner["name"].as_str()) else {
            continue;
        };
        let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
        if !spans.contains_key(node) {
            spans.insert(node, span(gateway, node).await.ok());
        }
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("");
        let Some(Some(span)) = spans.get(node) else { continue };
        let Some(usage) = span.machine(namespace, machine) else { continue };
        let mut metrics = metrics("PodMetrics", pod, span);
        metrics["containers"] = json!([{"name": CONTAINER, "usage": usage}]);
        items.push(metrics);
    }
    items
}

fn node_metrics(node: &Value, span: &Span) -> Value {
    let mut metrics = metrics("NodeMetrics", node, span);
    metrics["usage"] = span.node();
    metrics
}

fn metrics(kind: &str, of: &Value, span: &Span) -> Value {
    let now = base::clock::now_rfc3339();
    let mut metadata = json!({"name": name(of), "creationTimestamp": now});
    for field in ["namespace", "labels"] {
        if let Some(value) = of["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    json!({
        "kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": metadata,
        "timestamp": now, "window": format!("{:.3}s", span.window().as_secs_f64()),
    })
}

fn listed(kind: &str, items: Vec<Value>) -> Value {
    json!({
        "kind": kind, "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": items,
    })
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("")
}

/// Two counts of a node, the earlier one from the last time if there was one.
async fn span(gateway: &Gateway, node: &str) -> Result<Span, GatewayError> {
    let known = gateway.counts.0.lock().await.get(node).cloned();
    let recent = known.filter(|count| count.at.elapsed() < OLDEST);
    let before = match recent {
        Some(count) => count,
        None => count(gateway, node).await?,
    };
    if before.at.elapsed() < SHORTEST {
        tokio::time::sleep(SHORTEST.saturating_sub(before.at.elapsed())).await;
    }
    let after = count(gateway, node).await?;
    gateway.counts.0.lock().await.insert(node.to_owned(), after.clone());
    Ok(Span { before, after })
}

async fn count(gateway: &Gateway, node: &str) -> Result<Count, GatewayError> {
    let bytes =
        node::ask(gateway.requester(), node, Method::GET, "/v1/usage", Bytes::new()).await?;
    let report = serde_json::from_slice(&bytes).map_err(GatewayError::internal)?;
    Ok(Count { at: Instant::now(), report })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(at: Instant, node: u64, machine: Option<u64>) -> Count {
        let usage = |cpu_nanoseconds| Usage { cpu_nanoseconds, memory_bytes: 2048 };
        let machine = machine.map(|cpu| MachineUsage {
            namespace: "ns".to_owned(),
            name: "vm".to_owned(),
            usage: usage(cpu),
        });
        Count { at, report: Report { node: usage(node), machines: machine.into_iter().collect() } }
    }

    #[test]
    fn a_rate_is_what_was_spent_in_between() {
        let began = Instant::now();
        let span = Span {
            before: count(began, 1_000_000_000, None),
            after: count(began + Duration::from_secs(2), 4_000_000_000, Some(500_000_000)),
        };
        assert_eq!(span.node(), json!({"cpu": "1500000000n", "memory": "2Ki"}));
        let machine = span.machine("ns", "vm");
        assert_eq!(machine, Some(json!({"cpu": "250000000n", "memory": "2Ki"})));
        assert_eq!(span.machine("ns", "other"), None);
    }

    #[test]
    fn only_selectors_are_passed_on() {
        assert_eq!(selector("labelSelector=a%3Db&limit=5"), "?labelSelector=a%3Db");
        assert_eq!(selector("limit=5"), "");
    }
}
