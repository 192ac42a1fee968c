//! Nodes that say they did what is wanted of their engines, replicas and snapshots.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::longhorn;
use crate::harness::{Http, Sheaf};

/// Between two readings of the desired state.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Nodes {
    http: Http,
    over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Nodes {
    pub(super) fn start(sheaf: &Sheaf, names: &[&str]) -> Self {
        let http = sheaf.http();
        let over = Arc::new(AtomicBool::new(false));
        let (own, stop) = (sheaf.http(), Arc::clone(&over));
        let thread = thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                obey(&own);
                thread::sleep(PAUSE);
            }
        });
        let nodes = Self { http, over, thread: Mutex::new(Some(thread)) };
        for name in names {
            nodes.join(name);
        }
        nodes
    }

    /// A node with one disk of 100 GiB.
    pub(super) fn join(&self, name: &str) {
        const GI: i64 = 1 << 30;
        let disk = json!({"path": "/d", "diskType": "filesystem", "allowScheduling": true,
            "storageReserved": 0});
        let node = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Node",
            "metadata": {"name": name},
            "spec": {"name": name, "allowScheduling": true, "disks": {"default": disk}}});
        self.register(name);
        self.http.post(&longhorn("nodes"), &node).ok();
        let fine = json!([{"type": "Ready", "status": "True"},
            {"type": "Schedulable", "status": "True"}]);
        let disk = json!({"conditions": fine, "diskUUID": format!("disk-{name}"),
            "diskPath": "/d", "storageMaximum": 100 * GI, "storageAvailable": 90 * GI});
        let status = json!({"status": {"conditions": fine, "diskStatus": {"default": disk}}});
        self.http.merge(&format!("{}/{name}/status", longhorn("nodes")), &status).ok();
    }

    /// The Kubernetes node, with a lease that outlasts the test. A storage node without one counts
    /// as removed.
    fn register(&self, name: &str) {
        self.http.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).ok();
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        self.http.merge(&format!("/api/v1/nodes/{name}/status"), &ready).ok();
        let lease = json!({"metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 3600}});
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        self.http.post(leases, &lease).ok();
    }

    /// Ends the nodes; one that panicked is seen.
    pub(super) fn stop(self) {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().unwrap().take();
        thread.unwrap().join().expect("a node failed");
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn list(http: &Http, kind: &str) -> Vec<Value> {
    // The server may be gone before the nodes are notified.
    let request = http::Request::get(longhorn(kind));
    let Ok(reply) = http.try_send(request, "") else { return Vec::new() };
    reply.json()["items"].as_array().cloned().unwrap_or_default()
}

fn obey(http: &Http) {
    for kind in ["engines", "replicas"] {
        for own in list(http, kind) {
            let path = format!("{}/{}", longhorn(kind), own["metadata"]["name"].as_str().unwrap());
            if own["spec"]["nodeID"].as_str().unwrap_or_default().is_empty() {
                continue;
            }
            if !own["metadata"]["deletionTimestamp"].is_null() {
                drop(http.merge(&path, &json!({"metadata": {"finalizers": null}})));
                continue;
            }
            let status = status(kind, &own);
            let done =
                status.as_object().unwrap().iter().all(|(key, value)| own["status"][key] == *value);
            if !done {
                drop(http.merge(&format!("{path}/status"), &json!({"status": status})));
            }
        }
    }
    let engines = list(http, "engines");
    for own in list(http, "snapshots") {
        let path =
            format!("{}/{}", longhorn("snapshots"), own["metadata"]["name"].as_str().unwrap());
        let runs = engines.iter().any(|engine| {
            engine["spec"]["volumeName"] == own["spec"]["volume"]
                && engine["status"]["currentState"] == "running"
        });
        if !runs {
            continue;
        }
        if !own["metadata"]["deletionTimestamp"].is_null() {
            drop(http.merge(&path, &json!({"metadata": {"finalizers": null}})));
        } else if own["status"]["readyToUse"] != true {
            let status = json!({"readyToUse": true, "creationTime": "2026-01-02T03:04:05Z",
                "size": 4096, "restoreSize": 1_i64 << 30});
            drop(http.merge(&format!("{path}/status"), &json!({"status": status})));
        }
    }
}

fn status(kind: &str, own: &Value) -> Value {
    let state = &own["spec"]["desireState"];
    let mut status = json!({"currentState": state});
    if kind == "engines" && state == "running" {
        let listed = own["spec"]["replicaAddressMap"].as_object().cloned().unwrap_or_default();
        let modes: Map<String, Value> =
            listed.into_iter().map(|(name, _)| (name, json!("RW"))).collect();
        status["replicaModeMap"] = modes.into();
        status["currentSize"] = own["spec"]["volumeSize"].clone();
    }
    status
}
