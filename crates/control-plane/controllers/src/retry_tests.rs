//! What every controller writes while the API server refuses something to it: the back-off has
//! to hold, whatever is refused and whatever the controllers write about it.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{Tasks, Workloads};
use serde_json::{Value, json};

use crate::fake::Fake;
use crate::tests::{duties, stop};
use crate::{Config, Leadership, start};

/// A delay that doubles from 5 ms reaches a minute with the 14th attempt. Three controllers write
/// a claim, so this is three times that, and less than one write per second.
const MOST_WRITES: usize = 45;

/// One object for each controller to work on.
fn populate(fake: &Fake) {
    let machines = "kubevirt.io";
    let spec = |strategy: &str| {
        json!({"runStrategy": strategy, "template": {"spec": {"domain": {"memory":
            {"guest": "1Gi"}, "devices": {}}}}})
    };
    fake.create("/namespaces", "", json!({"metadata": {"name": "n"}}));
    fake.create("/namespaces", "", json!({"metadata": {"name": "longhorn-system"}}));
    fake.create(
        "/nodes",
        "",
        json!({"metadata": {"name": "one"}, "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    fake.create(
        "kubevirt.io/virtualmachines",
        "n",
        json!({"metadata": {"name": "vm", "generation": 1}, "spec": spec("Always")}),
    );
    let set = json!({"metadata": {"name": "set"}, "spec": {"replicas": 1, "selector":
        {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"domain": {"memory": {"guest": "1Gi"}}}}}});
    fake.create("kubevirt.io/virtualmachineinstancereplicasets", "n", set);
    let pool = json!({"metadata": {"name": "pool"}, "spec": {"replicas": 1, "selector":
        {"matchLabels": {"c": "d"}}, "virtualMachineTemplate": {"metadata":
        {"labels": {"c": "d"}}, "spec": spec("Always")}}});
    fake.create("pool.kubevirt.io/virtualmachinepools", "n", pool);
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"storageClassName": "local",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Pending"}})
    };
    fake.create("/persistentvolumeclaims", "n", claim("claim"));
    let class = json!({"metadata": {"name": "local"}, "provisioner": "driver.longhorn.io"});
    fake.create("storage.k8s.io/storageclasses", "", class);
    let volume = json!({"metadata": {"name": "filled"}, "spec": {"source": {"blank": {}},
        "pvc": claim("x")["spec"]}});
    fake.create("cdi.kubevirt.io/datavolumes", "n", volume);
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}});
    fake.create("/resourcequotas", "n", quota);
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"a": "b"},
        "ports": [{"port": 80}]}});
    fake.create("/services", "n", service);
    let snapshot = json!({"metadata": {"name": "snap"}, "spec": {"source":
        {"apiGroup": machines, "kind": "VirtualMachine", "name": "vm"}}});
    fake.create("snapshot.kubevirt.io/virtualmachinesnapshots", "n", snapshot);
    let restore = json!({"metadata": {"name": "restore"}, "spec": {"virtualMachineSnapshotName":
        "snap", "target": {"apiGroup": machines, "kind": "VirtualMachine", "name": "vm"}}});
    fake.create("snapshot.kubevirt.io/virtualmachinerestores", "n", restore);
    let image = json!({"metadata": {"name": "image"}, "spec": {"displayName": "i",
        "sourceType": "download", "url": "http://127.0.0.1/x"}});
    fake.create("harvesterhci.io/virtualmachineimages", "n", image);
}

/// What was written in a simulated minute, and what the queues did.
struct SimulatedMinute {
    writes: Vec<(String, String, String, usize)>,
    loads: Workloads,
}

async fn minute(refused: Option<(&str, u16)>) -> SimulatedMinute {
    let (fake, tasks, loads) = (Fake::new(), Tasks::default(), Workloads::default());
    populate(&fake);
    if let Some((resource, code)) = refused {
        fake.refuse(resource, code);
    }
    let config = Config {
        leadership: Leadership::Sole,
        duties: duties(),
        uploads: None,
        loads: loads.clone(),
    };
    start(fake.client(), config, &tasks);
    // The clock of the test stands still while anybody is busy.
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop(&tasks).await;
    SimulatedMinute { writes: fake.writes(), loads }
}

fn written(minute: &SimulatedMinute) -> BTreeSet<String> {
    minute.writes.iter().map(|(_, resource, ..)| resource.clone()).collect()
}

fn retries(minute: &SimulatedMinute, queue: &'static str) -> u64 {
    minute.loads.of(queue).counts()[2]
}

#[tokio::test(start_paused = true)]
async fn no_controller_writes_faster_than_its_back_off_allows() {
    let free = minute(None).await;
    let resources = written(&free);
    for resource in ["/pods", "/events", "kubevirt.io/virtualmachineinstances"] {
        assert!(resources.contains(resource), "{resources:?}");
    }
    let mut failures: Vec<Value> = Vec::new();
    for resource in &resources {
        for code in [403, 500] {
            let minute = minute(Some((resource, code))).await;
            let busy = minute.writes.iter().filter(|(.., count)| *count > MOST_WRITES);
            failures.extend(busy.map(|(method, own, name, count)| {
                json!([format!("{resource} answers {code}"), method, own, name, count])
            }));
        }
    }
    assert!(failures.is_empty(), "written too often in a minute: {failures:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_refused_pod_is_retried_with_a_back_off_and_told_once() {
    let minute = minute(Some(("/pods", 403))).await;
    let count = |method: &str, resource: &str, name: &str| {
        let found = minute.writes.iter().find(|(own, kind, object, _)| {
            (own.as_str(), kind.as_str()) == (method, resource) && object.starts_with(name)
        });
        found.map_or(0, |(.., count)| *count)
    };
    let attempts = count("POST", "/pods", "virt-launcher-vm-");
    assert!((8..=20).contains(&attempts), "{attempts} attempts to create the pod");
    assert_eq!(count("POST", "/events", "vm: FailedCreate"), 1);
    let writes = count("PATCH", "kubevirt.io/virtualmachineinstances", "vm");
    assert!(writes <= 6, "{writes} writes of the instance");
    let retried = retries(&minute, "vmi");
    assert!(retried >= 8, "workqueue_retries_total is {retried}");
}
