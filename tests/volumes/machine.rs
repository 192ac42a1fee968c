//! Snapshots of whole machines and going back to them, in KubeVirt's and Harvester's words.

use serde_json::{Value, json};

use super::stand_in::Nodes;
use super::{CLAIMS, VOLUME_SNAPSHOTS, claim, items, longhorn, until_bound};
use crate::harness::{Http, Sheaf, assert_has, eventually};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const SNAPSHOTS: &str =
    "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots";
const RESTORES: &str =
    "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinerestores";
const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const HARVESTER_RESTORES: &str =
    "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";

/// A stopped machine, with two disks of its own and one that cannot be captured.
fn machine(http: &Http) {
    for name in ["root", "data"] {
        http.post(CLAIMS, &claim(name, "harvester-longhorn", "1Gi")).ok();
        until_bound(http, name);
    }
    let disk = |name: &str| json!({"name": name, "disk": {"bus": "virtio"}});
    let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let vm = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "web", "labels": {"tier": "front"}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"memory": {"guest": "256Mi"}, "devices": {
                "disks": [disk("root"), disk("data"), disk("scratch")]}},
            "volumes": [volume("root"), volume("data"),
                {"name": "scratch", "emptyDisk": {"capacity": "1Gi"}}]}}}});
    http.post(VMS, &vm).ok();
}

fn used(http: &Http, name: &str) -> Vec<String> {
    let vm = http.get(&format!("{VMS}/{name}")).ok();
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let claim = |own: &Value| own["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
    volumes.iter().filter_map(claim).collect()
}

fn reference(name: &str) -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name})
}

#[test]
fn a_machine_is_captured_changed_and_put_back() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    machine(&http);
    let snapshot = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineSnapshot", "metadata": {"name": "before"},
        "spec": {"source": reference("web")}});
    http.post(SNAPSHOTS, &snapshot).ok();
    let path = format!("{SNAPSHOTS}/before");
    eventually("it is captured", || http.get(&path).ok()["status"]["readyToUse"] == true);
    let found = http.get(&path).ok();
    assert_eq!(found["status"]["phase"], "Succeeded");
    assert_eq!(found["status"]["snapshotVolumes"]["includedVolumes"], json!(["root", "data"]));
    assert_eq!(items(&http, VOLUME_SNAPSHOTS), 2);

    http.merge(
        &format!("{VMS}/web"),
        &json!({"spec": {"template": {"spec": {"hostname": "later"}}}}),
    )
    .ok();
    let restore = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineRestore", "metadata": {"name": "back"},
        "spec": {"target": reference("web"), "virtualMachineSnapshotName": "before"}});
    let uid = http.post(RESTORES, &restore).ok()["metadata"]["uid"].as_str().unwrap().to_owned();
    let path = format!("{RESTORES}/back");
    eventually("it is put back", || http.get(&path).ok()["status"]["complete"] == true);
    let expected = ["root", "data"].map(|name| format!("restore-{uid}-{name}"));
    assert_eq!(used(&http, "web"), expected);
    let vm = http.get(&format!("{VMS}/web")).ok();
    assert!(vm["spec"]["template"]["spec"].get("hostname").is_none(), "{vm}");

    http.delete(&format!("{SNAPSHOTS}/before")).ok();
    eventually("the snapshots of its disks go with it", || {
        items(&http, VOLUME_SNAPSHOTS) == 0 && items(&http, &longhorn("snapshots")) == 0
    });
    nodes.stop();
}

#[test]
fn harvesters_snapshots_become_new_machines_or_replace_their_own() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    machine(&http);
    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "monday"}, "spec": {"source": reference("web"), "type": "snapshot"}});
    http.post(BACKUPS, &backup).ok();
    let path = format!("{BACKUPS}/monday");
    eventually("it is taken", || http.get(&path).ok()["status"]["readyToUse"] == true);
    let found = http.get(&path).ok();
    assert_eq!(found["status"]["volumeBackups"].as_array().unwrap().len(), 2);
    assert_eq!(found["status"]["source"]["metadata"]["name"], "web");
    let table = sheaf.kubectl().run("get vmbackup monday");
    assert_has(&table, "READY_TO_USE");

    let restore = |name: &str, target: &str, spec: Value| {
        let mut restore = json!({"apiVersion": "harvesterhci.io/v1beta1",
            "kind": "VirtualMachineRestore", "metadata": {"name": name},
            "spec": {"target": reference(target), "virtualMachineBackupName": "monday",
                "virtualMachineBackupNamespace": "default", "haltAfterRestore": true}});
        for (key, value) in spec.as_object().unwrap() {
            restore["spec"][key] = value.clone();
        }
        http.post(HARVESTER_RESTORES, &restore)
    };
    restore("copy", "web-2", json!({"newVM": true})).ok();
    restore("again", "web", json!({"deletionPolicy": "retain"})).ok();
    for name in ["copy", "again"] {
        let path = format!("{HARVESTER_RESTORES}/{name}");
        eventually(&format!("{name} is done"), || {
            http.get(&path).ok()["status"]["complete"] == true
        });
    }
    let copy = http.get(&format!("{VMS}/web-2")).ok();
    assert_eq!(copy["metadata"]["labels"]["tier"], "front");
    assert_eq!(copy["spec"]["runStrategy"], "Halted");
    let (old, new) = (used(&http, "web"), used(&http, "web-2"));
    assert!(old.iter().all(|own| !new.contains(own)) && old.len() == 2, "{old:?} {new:?}");
    for own in ["root", "data"] {
        assert_eq!(http.get(&format!("{CLAIMS}/{own}")).status, 200, "{own} is retained");
    }
    let taken = restore("wrong", "web", json!({"newVM": true})).refused(422);
    assert_has(&taken, "VM web is already exists");
    nodes.stop();
}

#[test]
fn a_schedule_makes_snapshots_and_keeps_the_newest() {
    const SCHEDULES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/schedulevmbackups";
    const LAST_RUN: &str = "sheaf.io/last-schedule-time";
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let nodes = Nodes::start(&sheaf, &["one"]);
    machine(&http);
    let schedule = |cron: &str| {
        json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "ScheduleVMBackup",
            // A run is due since the last one is long ago.
            "metadata": {"name": "yearly", "annotations": {LAST_RUN: "2020-01-01T00:00:00Z"}},
            "spec": {"cron": cron, "retain": 3, "maxFailure": 2,
                "vmbackup": {"source": reference("web"), "type": "snapshot"}}})
    };
    let often = http.post(SCHEDULES, &schedule("*/5 * * * *")).refused(422);
    assert_has(&often, "schedule granularity 5m0s less than 1h0m0s");
    let made = http.post(SCHEDULES, &schedule("0 0 1 1 *")).ok();
    let uid = made["metadata"]["uid"].as_str().unwrap().to_owned();
    let path = format!("{SCHEDULES}/yearly");
    let ready = || {
        let all = http.get(BACKUPS).ok()["items"].as_array().cloned().unwrap_or_default();
        let ready = all.iter().filter(|own| own["status"]["readyToUse"] == true);
        let names = ready.map(|own| own["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    eventually("the run that was missed is made once", || ready().len() == 1);
    let first = ready()[0].clone();
    assert!(first.starts_with(&format!("svmb-{uid}-")) && first.ends_with("0101.0000"), "{first}");
    eventually("it is reported", || {
        let found = http.get(&path).ok();
        found["status"]["vmbackupInfo"][0]
            == json!({"name": first, "readyToUse": true,
            "volumeBackupInfo": found["status"]["vmbackupInfo"][0]["volumeBackupInfo"]})
            && found["metadata"]["annotations"][LAST_RUN] != "2020-01-01T00:00:00Z"
    });
    assert_has(sheaf.kubectl().run("get svmbackup yearly"), "0 0 1 1 *");

    // Other days are other runs; the oldest goes when there are too many.
    for day in 2..=4 {
        let again = json!({"metadata": {"annotations": {LAST_RUN: "2020-01-01T00:00:00Z"}},
            "spec": {"cron": format!("0 0 {day} 1 *")}});
        http.merge(&path, &again).ok();
        let end = format!("010{day}.0000");
        eventually("it is made", || ready().iter().any(|name| name.ends_with(&end)));
    }
    eventually("three are kept", || ready().len() == 3 && !ready().contains(&first));

    http.merge(&path, &json!({"spec": {"suspend": true}})).ok();
    eventually("it is suspended", || http.get(&path).ok()["status"]["suspended"] == true);
    let found = http.get(&path).ok();
    assert_eq!(found["status"]["conditions"][0]["reason"], "Proactive Schedule Suspend");
    http.merge(&path, &json!({"spec": {"suspend": false}})).ok();
    eventually("it goes on", || http.get(&path).ok()["status"]["suspended"] == false);
    http.delete(&path).ok();
    eventually("it is gone", || http.get(&path).status == 404);
    assert_eq!(ready().len(), 3, "what it made stays");
    nodes.stop();
}
