//! Replicated volumes without an agent: the work of the controllers on claims, tickets and
//! snapshots. Where a node would act, [`stand_in`] does.

mod machine;
mod stand_in;

use serde_json::{Value, json};

use self::stand_in::Nodes;
use crate::harness::{Http, Sheaf, assert_has, eventually};

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PERSISTENT: &str = "/api/v1/persistentvolumes";
const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";

fn longhorn(kind: &str) -> String {
    format!("{LONGHORN}/{kind}")
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteMany"],
            "volumeMode": "Block", "resources": {"requests": {"storage": size}}}})
}

fn class(name: &str, changes: &Value) -> Value {
    let mut class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": name}, "provisioner": "driver.longhorn.io",
        "allowVolumeExpansion": true});
    for (key, value) in changes.as_object().unwrap() {
        class[key] = value.clone();
    }
    class
}

/// Waits until the claim is bound and answers its volume's name.
#[track_caller]
fn until_bound(http: &Http, name: &str) -> String {
    let path = format!("{CLAIMS}/{name}");
    eventually(&format!("{name} is bound"), || http.get(&path).ok()["status"]["phase"] == "Bound");
    http.get(&path).ok()["spec"]["volumeName"].as_str().unwrap().to_owned()
}

fn state(http: &Http, volume: &str) -> (String, String) {
    let status = http.get(&format!("{}/{volume}", longhorn("volumes"))).ok()["status"].clone();
    let part = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    (part("state"), part("robustness"))
}

fn items(http: &Http, path: &str) -> usize {
    http.get(path).ok()["items"].as_array().unwrap().len()
}

fn ticket(http: &Http, volume: &str, node: Option<&str>) {
    let ticket = node.map(|node| json!({"id": "t", "type": "csi-attacher", "nodeID": node}));
    let patch = json!({"spec": {"attachmentTickets": {"t": ticket}}});
    let path = format!("{}/{volume}", longhorn("volumeattachments"));
    // It comes with the volume, but after it.
    eventually("it can be asked for", || {
        let reply = http.merge(&path, &patch);
        reply.status != 404 && reply.ok().is_object()
    });
}

#[test]
fn a_claim_of_a_fresh_cluster_is_bound_attached_and_removed_without_a_trace() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    http.post(CLAIMS, &claim("data", "harvester-longhorn", "1Gi")).ok();
    let volume = until_bound(&http, "data");
    let persistent = http.get(&format!("{PERSISTENT}/{volume}")).ok();
    assert_eq!(persistent["spec"]["csi"]["volumeHandle"], volume.as_str());
    assert_eq!(persistent["spec"]["capacity"]["storage"], "1Gi");
    assert!(persistent["spec"]["nodeAffinity"].is_null());
    eventually("it is detached", || state(&http, &volume).0 == "detached");
    assert_eq!(items(&http, &longhorn("replicas")), 1, "one node holds one copy");

    ticket(&http, &volume, Some("one"));
    let healthy = ("attached".to_owned(), "healthy".to_owned());
    eventually("it is attached", || state(&http, &volume) == healthy);
    let path = format!("{}/{volume}", longhorn("volumeattachments"));
    eventually("the ticket is satisfied", || {
        http.get(&path).ok()["status"]["attachmentTicketStatuses"]["t"]["satisfied"] == true
    });
    let own = http.get(&format!("{}/{volume}", longhorn("volumes"))).ok();
    assert_eq!(own["status"]["kubernetesStatus"]["pvcName"], "data");
    assert_eq!(own["spec"]["migratable"], true);
    let table = sheaf.kubectl().run("get lhv -n longhorn-system");
    for part in ["DATA ENGINE", "ROBUSTNESS", &volume, "attached", "healthy", "one"] {
        assert_has(&table, part);
    }
    ticket(&http, &volume, None);
    eventually("it is detached again", || state(&http, &volume).0 == "detached");

    http.delete(&format!("{CLAIMS}/data")).ok();
    let kinds = ["volumes", "engines", "replicas", "volumeattachments"];
    eventually("nothing is left", || {
        items(&http, PERSISTENT) == 0 && kinds.iter().all(|kind| items(&http, &longhorn(kind)) == 0)
    });
    nodes.stop();
}

#[test]
fn nodes_of_longhorn_stay_and_jobs_need_a_schedule() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    let path = format!("{}/one", longhorn("nodes"));
    let node = http.get(&path).ok();
    let reply = http.delete(&path);
    assert!((400..500).contains(&reply.status), "{}", reply.text());
    assert_eq!(http.get(&path).ok()["metadata"]["uid"], node["metadata"]["uid"]);
    let job = |cron: &str| {
        json!({"apiVersion": "longhorn.io/v1beta2", "kind": "RecurringJob",
            "metadata": {"name": "nightly"},
            "spec": {"cron": cron, "task": "snapshot", "retain": 1, "groups": ["default"]}})
    };
    let jobs = longhorn("recurringjobs");
    let reply = http.post(&jobs, &job("not a cron"));
    assert!((400..500).contains(&reply.status), "{}", reply.text());
    assert_has(reply.text(), "cron");
    assert_eq!(items(&http, &jobs), 0);
    http.post(&jobs, &job("0 3 * * *")).ok();
    let reply = http.merge(&format!("{jobs}/nightly"), &json!({"spec": {"cron": "not a cron"}}));
    assert!((400..500).contains(&reply.status), "{}", reply.text());
    nodes.stop();
}

#[test]
fn classes_that_cannot_be_served_are_reported_with_the_bad_parameter() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let parameters = json!({"parameters": {"staleReplicaTimeout": "soon"}});
    http.post(CLASSES, &class("odd", &parameters)).ok();
    http.post(CLAIMS, &claim("data", "odd", "1Gi")).ok();
    let events = "/api/v1/namespaces/default/events";
    eventually("an event reports it", || {
        let all = http.get(events).ok();
        all["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "ProvisioningFailed"
                && event["message"].as_str().unwrap().contains(
                    "parameter staleReplicaTimeout \"soon\" is invalid: it must be a whole number",
                )
        })
    });
    assert_eq!(items(&http, PERSISTENT), 0);
    assert_eq!(items(&http, &longhorn("volumes")), 0);
    // A class that comes later is found.
    http.post(CLAIMS, &claim("early", "later", "1Gi")).ok();
    http.post(CLASSES, &class("later", &json!({}))).ok();
    until_bound(&http, "early");
}

#[test]
fn claims_wait_for_their_consumer_and_what_is_retained_stays() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    let mode = json!({"volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Retain"});
    http.post(CLASSES, &class("kept", &mode)).ok();
    http.post(CLAIMS, &claim("data", "kept", "1Gi")).ok();
    http.post(CLAIMS, &claim("other", "harvester-longhorn", "1Gi")).ok();
    until_bound(&http, "other");
    assert_eq!(http.get(&format!("{CLAIMS}/data")).ok()["status"]["phase"], "Pending");
    let chosen =
        json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "one"}}});
    http.merge(&format!("{CLAIMS}/data"), &chosen).ok();
    let volume = until_bound(&http, "data");
    http.delete(&format!("{CLAIMS}/data")).ok();
    let path = format!("{PERSISTENT}/{volume}");
    eventually("it is released", || http.get(&path).ok()["status"]["phase"] == "Released");
    http.delete(&path).ok();
    eventually("the persistent volume goes", || http.get(&path).status == 404);
    assert_eq!(http.get(&format!("{}/{volume}", longhorn("volumes"))).status, 200);
    http.delete(&format!("{}/{volume}", longhorn("volumes"))).ok();
    eventually("the volume goes", || {
        http.get(&format!("{}/{volume}", longhorn("volumes"))).status == 404
    });
    nodes.stop();
}

#[test]
fn a_claim_grows_with_its_volume() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    http.post(CLAIMS, &claim("data", "harvester-longhorn", "1Gi")).ok();
    let volume = until_bound(&http, "data");
    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    let path = format!("{CLAIMS}/data");
    http.merge(&path, &larger).ok();
    eventually("the claim is larger", || {
        http.get(&path).ok()["status"]["capacity"]["storage"] == "2Gi"
    });
    let persistent = http.get(&format!("{PERSISTENT}/{volume}")).ok();
    assert_eq!(persistent["spec"]["capacity"]["storage"], "2Gi");
    eventually("it rests again", || state(&http, &volume).0 == "detached");
    let request = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    http.merge(&path, &request("1Gi")).refused(422);

    // More than its disks may promise is refused, and does not keep the volume from growing later.
    http.merge(&path, &request("10Ti")).ok();
    eventually("the refusal is reported", || {
        let events = http.get("/api/v1/namespaces/default/events").ok();
        events["items"].as_array().unwrap().iter().any(|event| {
            event["reason"] == "VolumeResizeFailed"
                && event["message"].as_str().is_some_and(|text| text.contains("may promise"))
        })
    });
    http.merge(&path, &request("3Gi")).ok();
    eventually("it has grown after all", || {
        http.get(&path).ok()["status"]["capacity"]["storage"] == "3Gi"
    });
    nodes.stop();
}

#[test]
fn volumes_without_claims_work_and_copies_follow_the_nodes() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one", "two"]);
    let volume = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Volume",
        "metadata": {"name": "own"}, "spec": {"size": "1073741824", "numberOfReplicas": 3}});
    http.post(&longhorn("volumes"), &volume).ok();
    eventually("it is made", || state(&http, "own").0 == "detached");
    ticket(&http, "own", Some("two"));
    let healthy = ("attached".to_owned(), "healthy".to_owned());
    eventually("it is attached", || state(&http, "own") == healthy);
    assert_eq!(items(&http, &longhorn("replicas")), 2);
    nodes.join("three");
    eventually("the third node gets a copy", || items(&http, &longhorn("replicas")) == 3);
    eventually("it is healthy again", || state(&http, "own") == healthy);
    http.delete(&format!("{}/own", longhorn("volumes"))).ok();
    eventually("nothing is left", || {
        ["volumes", "engines", "replicas"].iter().all(|kind| items(&http, &longhorn(kind)) == 0)
    });
    nodes.stop();
}

const VOLUME_SNAPSHOTS: &str =
    "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";

fn snapshot(name: &str, claim: &str, class: &str) -> Value {
    json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": name}, "spec": {"volumeSnapshotClassName": class,
            "source": {"persistentVolumeClaimName": claim}}})
}

#[test]
fn a_snapshot_is_taken_of_a_volume_at_rest_restored_and_removed() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    http.post(CLAIMS, &claim("data", "harvester-longhorn", "1Gi")).ok();
    let volume = until_bound(&http, "data");
    http.post(VOLUME_SNAPSHOTS, &snapshot("first", "data", "longhorn-snapshot")).ok();
    let path = format!("{VOLUME_SNAPSHOTS}/first");
    eventually("the snapshot is ready", || http.get(&path).ok()["status"]["readyToUse"] == true);
    assert_eq!(http.get(&path).ok()["status"]["restoreSize"], "1Gi");
    eventually("the volume rests again", || state(&http, &volume).0 == "detached");

    let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
        "name": "first"});
    let mut restored = claim("restored", "harvester-longhorn", "1Gi");
    restored["spec"]["dataSource"] = source.clone();
    http.post(CLAIMS, &restored).ok();
    let copy = until_bound(&http, "restored");
    let own = http.get(&format!("{}/{copy}", longhorn("volumes"))).ok();
    assert_has(own["spec"]["dataSource"].as_str().unwrap(), &format!("snap://{volume}/snapshot-"));
    eventually("the copy is complete", || {
        let own = http.get(&format!("{}/{copy}", longhorn("volumes"))).ok();
        own["status"]["cloneStatus"]["state"] == "completed"
    });
    let replicas = http.get(&longhorn("replicas")).ok();
    let made = replicas["items"].as_array().unwrap();
    let linked = made.iter().find(|own| own["spec"]["volumeName"] == copy.as_str()).unwrap();
    let from = linked["spec"]["linkedCloneSrcReplicaName"].as_str().unwrap();
    assert!(from.starts_with(&format!("{volume}-r-")), "{from}");

    let mut small = claim("small", "harvester-longhorn", "512Mi");
    small["spec"]["dataSource"] = source;
    http.post(CLAIMS, &small).ok();
    eventually("a claim that is too small gets an event", || {
        let all = http.get("/api/v1/namespaces/default/events").ok();
        all["items"].as_array().unwrap().iter().any(|event| {
            event["message"].as_str().unwrap().contains(
                "requested volume size 536870912 is less than the size 1073741824 for the source",
            )
        })
    });
    http.delete(&format!("{CLAIMS}/small")).ok();

    http.delete(&path).ok();
    eventually("all of the snapshot goes", || {
        http.get(&path).status == 404
            && items(&http, CONTENTS) == 0
            && items(&http, &longhorn("snapshots")) == 0
    });
    eventually("the volume rests again", || state(&http, &volume).0 == "detached");
    nodes.stop();
}

#[test]
fn a_claim_is_cloned_and_its_passing_snapshot_does_not_stay() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    http.post(CLAIMS, &claim("data", "harvester-longhorn", "1Gi")).ok();
    let volume = until_bound(&http, "data");
    ticket(&http, &volume, Some("one"));
    eventually("it is attached", || state(&http, &volume).0 == "attached");
    let mut copy = claim("copy", "harvester-longhorn", "2Gi");
    copy["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "data"});
    http.post(CLAIMS, &copy).ok();
    until_bound(&http, "copy");
    eventually("no snapshot is left", || items(&http, &longhorn("snapshots")) == 0);
    assert_eq!(state(&http, &volume).0, "attached", "who uses the source is not disturbed");
    nodes.stop();
}

#[test]
fn snapshots_that_cannot_be_taken_say_why() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    http.post(CLAIMS, &claim("data", "harvester-longhorn", "1Gi")).ok();
    until_bound(&http, "data");
    for (name, of, class, expected) in [
        ("a", "none", "longhorn-snapshot", "failed to get PVC none: it is not found"),
        ("b", "data", "none", "snapshot class none is not found"),
        ("c", "data", "longhorn", "parameter type \"bak\" of the snapshot class is not supported"),
    ] {
        http.post(VOLUME_SNAPSHOTS, &snapshot(name, of, class)).ok();
        let path = format!("{VOLUME_SNAPSHOTS}/{name}");
        eventually(&format!("{name} says why"), || {
            let found = http.get(&path).ok();
            found["status"]["error"]["message"].as_str().unwrap_or_default().contains(expected)
        });
        http.delete(&path).ok();
        eventually(&format!("{name} goes"), || http.get(&path).status == 404);
    }
    // One of Longhorn's own.
    let own = json!({"apiVersion": "longhorn.io/v1beta2", "kind": "Snapshot",
        "metadata": {"name": "lost"}, "spec": {"volume": "none", "createSnapshot": true}});
    http.post(&longhorn("snapshots"), &own).ok();
    let path = format!("{}/lost", longhorn("snapshots"));
    eventually("it says why", || {
        http.get(&path).ok()["status"]["error"] == "volume none is not found"
    });
    nodes.stop();
}

#[test]
fn people_make_grow_copy_and_delete_volumes_by_name() {
    let sheaf = Sheaf::start();
    let nodes = Nodes::start(&sheaf, &["one"]);
    let run = |line: &str| sheaf.run(&format!("volume {line}"));
    let fails = |line: &str| {
        let output = sheaf.command(&format!("volume {line}"));
        assert!(!output.status.success(), "{line} succeeds");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let class = "--class harvester-longhorn";
    assert_has(run(&format!("create data --size 1GiB {class}")), "data (1 GiB) is ready");
    assert_has(run("grow data 2Gi"), "data has 2 GiB");
    assert_has(fails("grow data 1Gi"), "data has 2 GiB: volumes cannot shrink");
    assert_has(run("snapshot data first"), "first (1 GiB) is taken");
    assert_has(run(&format!("create old --from-snapshot first {class}")), "old (1 GiB) is ready");
    assert_has(run("clone data copy"), "copy (2 GiB) is ready");
    let list = run("list");
    for part in ["NAME", "USED BY", "data", "old", "copy", "2 GiB", "detached"] {
        assert_has(&list, part);
    }
    // It was attached to be copied.
    eventually("it is released", || run("status data").contains("data: 2 GiB, detached"));
    let status = run("status data");
    for part in ["data: 2 GiB", "Copies (1 of up to 3):", "Snapshots:", "first"] {
        assert_has(&status, part);
    }
    assert_has(fails("status none"), "there is no volume none in namespace default");
    assert_has(fails("create x"), "--size");
    assert_has(fails("create x --size 1Gi --class none"), "there is no storage class none");
    assert_has(fails("snapshot data again --class none"), "snapshot class none is not found");
    eventually("the refused snapshot is not left", || items(&sheaf.http(), VOLUME_SNAPSHOTS) == 1);
    assert_has(fails("grow data 10Ti"), "may promise");
    assert_has(fails("grow data 1Gi"), "data has 2 GiB: volumes cannot shrink");
    assert_has(run("grow data 3Gi"), "data has 3 GiB");
    for name in ["copy", "old", "data"] {
        assert_has(run(&format!("delete {name}")), "is deleted");
    }
    assert_eq!(items(&sheaf.http(), PERSISTENT), 0);
    nodes.stop();
}
