//! The columns of `kubectl get pods`.

use jiff::Timestamp;
use serde_json::Value;

use crate::resource::Column;
use crate::{duration, json, print};

pub(super) const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Ready", "How many containers are ready, of how many"),
    Column::text("Status", "What the pod is doing"),
    Column::text("Restarts", "How often its containers were restarted"),
    Column::AGE,
    Column::text("IP", "Address of the pod").wide(),
    Column::text("Node", "Where it runs").wide(),
    Column::text("Nominated Node", "Where it may run once others are gone").wide(),
    Column::text("Readiness Gates", "Other conditions that must hold").wide(),
];

pub(super) fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(object);
    vec![
        print::name(object),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts(summary.restarts, summary.last_restart, now).into(),
        print::age(object, now),
        print::or(json::text(object, "/status/podIPs/0/ip"), "<none>").into(),
        print::or(json::text(object, "/spec/nodeName"), "<none>").into(),
        print::or(json::text(object, "/status/nominatedNodeName"), "<none>").into(),
        gates(object).into(),
    ]
}

/// A summary of the statuses of a pod's containers.
struct Summary<'a> {
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: &'a str,
    reason: String,
}

impl<'a> Summary<'a> {
    fn of(object: &'a Value) -> Self {
        let mut summary = Self {
            ready: 0,
            total: json::count(object, "/spec/containers"),
            restarts: 0,
            last_restart: "",
            reason: print::or(
                json::text(object, "/status/reason"),
                json::text(object, "/status/phase"),
            ),
        };
        if condition_reason(object, "PodScheduled") == "SchedulingGated" {
            summary.reason = "SchedulingGated".to_owned();
        }
        let (sidecar_restarts, sidecar_last, initializing) = summary.add_init(object);
        if !initializing || print::condition(object, "Initialized") == Some("True") {
            summary.restarts = sidecar_restarts;
            summary.last_restart = sidecar_last;
            summary.add_containers(object);
        }
        summary.judge_deletion(object);
        summary
    }

    /// Goes through init containers up to the one that is not done; returns what
    /// restartable ones add to the restarts, and whether one is not done.
    fn add_init(&mut self, object: &'a Value) -> (i64, &'a str, bool) {
        let specs = json::list(object, "/spec/initContainers");
        let is_sidecar = |name: &str| {
            specs.iter().any(|spec| {
                json::text(spec, "/name") == name && json::text(spec, "/restartPolicy") == "Always"
            })
        };
        self.total +=
            specs.iter().filter(|spec| json::text(spec, "/restartPolicy") == "Always").count();
        let (mut restarts, mut last) = (0, "");
        for (index, status) in
            json::list(object, "/status/initContainerStatuses").iter().enumerate()
        {
            self.add_restarts(status);
            let sidecar = is_sidecar(json::text(status, "/name"));
            if sidecar {
                restarts += json::int(status, "/restartCount");
                last = last.max(last_termination(status));
            }
            if json::int_at(status, "/state/terminated/exitCode") == Some(0) {
                continue;
            }
            if sidecar && json::flag(status, "/started") {
                self.ready += usize::from(json::flag(status, "/ready"));
                continue;
            }
            let waiting = json::text(status, "/state/waiting/reason");
            self.reason = if let Some(ended) = json::at(status, "/state/terminated") {
                format!("Init:{}", termination(ended))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            return (restarts, last, true);
        }
        (restarts, last, false)
    }

    fn add_containers(&mut self, object: &'a Value) {
        let (mut running, mut failure) = (false, String::new());
        for status in json::list(object, "/status/containerStatuses").iter().rev() {
            self.add_restarts(status);
            let waiting = json::text(status, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(ended) = json::at(status, "/state/terminated") {
                self.reason = termination(ended);
                if json::int(ended, "/exitCode") != 0 {
                    failure.clone_from(&self.reason);
                }
            } else if json::flag(status, "/ready") && json::has(status, "/state/running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && print::condition(object, "Ready") == Some("True") {
                "Running".clone_into(&mut self.reason);
            } else if !failure.is_empty() {
                self.reason = failure;
            } else if running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }

    fn add_restarts(&mut self, status: &'a Value) {
        self.restarts += json::int(status, "/restartCount");
        // Times in one format and zone sort like text.
        self.last_restart = self.last_restart.max(last_termination(status));
    }

    fn judge_deletion(&mut self, object: &Value) {
        if !json::has(object, "/metadata/deletionTimestamp") {
            return;
        }
        let phase = json::text(object, "/status/phase");
        if json::text(object, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut self.reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut self.reason);
        }
    }
}

fn last_termination(status: &Value) -> &str {
    json::text(status, "/lastState/terminated/finishedAt")
}

fn termination(ended: &Value) -> String {
    match (json::text(ended, "/reason"), json::int(ended, "/signal")) {
        ("", 0) => format!("ExitCode:{}", json::int(ended, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn condition_reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    json::list(object, "/status/conditions")
        .iter()
        .find(|condition| json::text(condition, "/type") == kind)
        .map_or("", |condition| json::text(condition, "/reason"))
}

fn restarts(count: i64, last: &str, now: Timestamp) -> String {
    match (count, last) {
        (0, _) | (_, "") => count.to_string(),
        _ => format!("{count} ({} ago)", duration::age(last, now)),
    }
}

fn gates(object: &Value) -> String {
    let gates = json::list(object, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates
        .iter()
        .filter(|gate| print::condition(object, json::text(gate, "/conditionType")) == Some("True"))
        .count();
    format!("{open}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_summed_up_as_upstream_does() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let show = |object: Value| {
            let cells = cells(&object, now);
            let shown = cells[1..4].iter().map(|cell| cell.as_str().unwrap().to_owned());
            shown.collect::<Vec<_>>().join(" ")
        };
        let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(
            show(json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T00:50:00Z"}}},
                {"name": "b", "ready": true, "state": {"running": {}}},
            ]}})),
            "2/2 Running 2 (10m ago)"
        );
        assert_eq!(
            show(json!({"spec": spec, "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ]}})),
            "0/2 CrashLoopBackOff 0"
        );
        assert_eq!(
            show(json!({
                "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]},
                "status": {"phase": "Pending", "initContainerStatuses": [
                    {"name": "i", "state": {"running": {}}},
                ]},
            })),
            "0/1 Init:0/1 0"
        );
        assert_eq!(
            show(json!({
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
                "spec": spec, "status": {"phase": "Running"},
            })),
            "0/2 Terminating 0"
        );
    }
}
