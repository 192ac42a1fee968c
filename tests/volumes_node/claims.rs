//! Claims as CDI's and Longhorn's users make them: with volumes of their own, from sources, with
//! recurring snapshots.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use super::copies::download;
use super::lab::{CLAIMS, Lab, longhorn};
use crate::harness::{Http, assert_has, poll};
use crate::volume::registry::Registry;
use crate::volume::web::{Fault, Web};

const CDI: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default";
const LAST_RUN: &str = "sheaf.io/last-schedule-time";

/// 8 MiB that do not repeat.
fn content() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..1 << 20).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).collect()
}

fn events(http: &Http, claim: &str) -> Vec<Value> {
    let all = http.get("/api/v1/namespaces/default/events").ok();
    let all = all["items"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|own| own["involvedObject"]["name"] == claim).collect()
}

#[test]
fn a_claim_binds_to_the_volume_that_an_administrator_made() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let image = lab.node.sheaf.scratch("static.img");
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    for (name, class) in [("plain", ""), ("classed", "manual"), ("known", "harvester-longhorn")] {
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "16Mi"}, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
                "hostPath": {"path": image},
            },
        });
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "16Mi"}}},
        });
        if name == "known" {
            claim["spec"]["volumeName"] = json!(name);
            volume["spec"]["claimRef"] = json!({"namespace": "default", "name": name});
        }
        http.post("/api/v1/persistentvolumes", &volume).ok();
        http.post(CLAIMS, &claim).ok();
        assert_eq!(lab.until_bound(name), name);
    }
    let all = http.get("/api/v1/persistentvolumes").ok();
    assert_eq!(all["items"].as_array().unwrap().len(), 3, "a volume was provisioned as well");
    assert_eq!(http.get(&longhorn("volumes")).ok()["items"], json!([]));

    let unknown = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "unknown"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "absent",
            "resources": {"requests": {"storage": "16Mi"}}},
    });
    http.post(CLAIMS, &unknown).ok();
    let message = poll("the unknown class is reported", || {
        let events = events(&http, "unknown");
        match events.iter().find(|event| event["reason"] == "ProvisioningFailed") {
            Some(event) => Ok(event["message"].as_str().unwrap().to_owned()),
            None => Err(json!(events).to_string()),
        }
    });
    assert_has(message, "storageclass.storage.k8s.io \"absent\" not found");
    let classes = http.get("/apis/storage.k8s.io/v1/storageclasses").ok();
    for class in classes["items"].as_array().unwrap() {
        let name = class["metadata"]["name"].as_str().unwrap();
        poll(&format!("StorageProfile {name} is complete"), || {
            let path = format!("/apis/cdi.kubevirt.io/v1beta1/storageprofiles/{name}");
            let profile = http.get(&path).json();
            let set = &profile["status"]["claimPropertySets"][0]["accessModes"][0];
            if set.is_string() { Ok(()) } else { Err(profile.to_string()) }
        });
    }
}

/// A claim that is filled from one of CDI's sources.
fn populated(name: &str, class: &str, kind: &str, source: &str) -> Value {
    let mode = if class.starts_with("local") { "Filesystem" } else { "Block" };
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": class,
            "resources": {"requests": {"storage": "16Mi"}},
            "dataSourceRef": {"apiGroup": "cdi.kubevirt.io", "kind": kind, "name": source}}})
}

fn source(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": kind, "metadata": {"name": name},
        "spec": spec})
}

#[test]
fn claims_are_populated_from_sources_and_exported_as_they_are() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let (web, content) = (Web::start(), content());
    web.put("disk.img", content.clone(), Fault::None);
    let url = json!({"source": {"http": {"url": web.url("disk.img")}}});
    // A claim comes before its source, and another before the claim that it is a clone of.
    let clone = json!({"source": {"kind": "PersistentVolumeClaim", "name": "imported"}});
    let (replicated, local) = ("harvester-longhorn", "local-immediate");
    for (name, class, kind, from) in [
        ("cloned", replicated, "VolumeCloneSource", "clone"),
        ("imported", replicated, "VolumeImportSource", "import"),
        ("local", local, "VolumeImportSource", "import"),
        ("uploaded", local, "VolumeUploadSource", "upload"),
    ] {
        http.post(CLAIMS, &populated(name, class, kind, from)).ok();
    }
    for (plural, own) in [
        ("volumeclonesources", source("VolumeCloneSource", "clone", clone)),
        ("volumeimportsources", source("VolumeImportSource", "import", url)),
        ("volumeuploadsources", source("VolumeUploadSource", "upload", json!({}))),
    ] {
        http.post(&format!("{CDI}/{plural}"), &own).ok();
    }
    upload(&lab, "uploaded", &content);
    for name in ["imported", "cloned", "local", "uploaded"] {
        lab.until_bound(name);
        let raw = download(&lab, "default", name, 0);
        assert_eq!(raw.body.len(), 16 << 20, "{name}");
        assert!(raw.body[..content.len()] == content[..], "{name} differs from its source");
        assert!(raw.body[content.len()..].iter().all(|byte| *byte == 0), "{name}");
    }
}

fn upload(lab: &Lab, claim: &str, content: &[u8]) {
    let tokens = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/default/uploadtokenrequests";
    let request = json!({"apiVersion": "upload.cdi.kubevirt.io/v1beta1",
        "kind": "UploadTokenRequest", "metadata": {"name": "t"}, "spec": {"pvcName": claim}});
    poll("the upload is accepted", || {
        let token = lab.node.sheaf.http().post(tokens, &request).json();
        let Some(token) = token["status"]["token"].as_str() else { return Err(token.to_string()) };
        let client = lab.node.sheaf.bearer(token);
        // A refusal can come before the whole content was sent.
        let reply = client.try_send(Request::post("/v1beta1/upload"), content.to_vec())?;
        if reply.status == 200 { Ok(()) } else { Err(reply.text()) }
    });
}

#[test]
fn recurring_jobs_take_and_remove_snapshots() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let volume = lab.claim("data", "16Mi");
    lab.want(&volume, Some("one"));
    lab.until_served(&volume);
    // Jobs leave volumes out that are not attached.
    lab.until_state(&volume, "attached");
    // A run is due since the last one is long ago.
    let job = |name: &str, task: &str| {
        json!({"apiVersion": "longhorn.io/v1beta2", "kind": "RecurringJob",
            "metadata": {"name": name, "annotations": {LAST_RUN: "2020-01-01T00:00:00Z"}},
            "spec": {"cron": "0 0 1 1 *", "task": task, "retain": 1, "groups": ["default"]}})
    };
    let jobs = longhorn("recurringjobs");
    let snapshots = || {
        let all = http.get(&longhorn("snapshots")).ok();
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let of = |label: &str| {
            let mut own = all.iter().filter(|own| own["spec"]["labels"]["RecurringJob"] == label);
            own.find(|own| own["status"]["readyToUse"] == true)
                .map(|own| own["metadata"]["name"].as_str().unwrap().to_owned())
        };
        (of("daily"), all.len())
    };
    http.post(&jobs, &job("daily", "snapshot")).ok();
    let first = poll("a snapshot is taken", || snapshots().0.ok_or_else(|| "none".to_owned()));
    let until_counted = |name: &str| {
        poll("the run is counted", || {
            let job = http.get(&format!("{jobs}/{name}")).ok();
            if job["status"]["executionCount"] == 1 { Ok(()) } else { Err(job.to_string()) }
        });
    };
    until_counted("daily");
    let again = json!({"metadata": {"annotations": {LAST_RUN: "2021-06-01T00:00:00Z"}}});
    // Creation times, by which the older snapshot is found, have a resolution of one second.
    thread::sleep(Duration::from_secs(1));
    // The name of a snapshot follows from the time of its run: another year is another run.
    let other = json!({"metadata": again["metadata"], "spec": {"cron": "0 0 2 1 *"}});
    http.merge(&format!("{jobs}/daily"), &other).ok();
    poll("the second snapshot replaces the first", || match snapshots() {
        (Some(name), 1) if name != first => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // Snapshots of a person or a job stay, and nothing else is left to clean up.
    http.post(&jobs, &job("cleanup", "snapshot-cleanup")).ok();
    until_counted("cleanup");
    assert_eq!(snapshots().1, 1, "the snapshot of the other job stays");
    // Without a guest there is no file system that could discard anything, which the job says.
    http.post(&jobs, &job("trim", "filesystem-trim")).ok();
    until_counted("trim");
    poll("the trim is reported", || {
        let all = http.get("/api/v1/namespaces/longhorn-system/events").ok();
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let of_trim = |own: &&Value| own["involvedObject"]["name"] == "trim";
        let own = all.iter().find(of_trim).ok_or_else(|| "no event".to_owned())?;
        let expected = format!("volume {volume}: no running virtual machine uses it");
        let is_it = own["reason"] == "FailedFilesystemTrim" && own["message"] == expected;
        if is_it { Ok(()) } else { Err(own.to_string()) }
    });
    http.post(&jobs, &job("delete", "snapshot-delete")).ok();
    until_counted("delete");
    http.merge(&format!("{jobs}/delete"), &json!({"spec": {"retain": 0}})).ok();
    http.merge(&format!("{jobs}/delete"), &again).ok();
    poll("all snapshots are deleted", || match snapshots() {
        (None, 0) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[test]
fn an_import_cron_imports_what_its_registry_has() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let registry = Registry::start(&lab.node.sheaf.scratch("registry"));
    let tree = lab.node.sheaf.scratch("tree");
    fs::create_dir_all(tree.join("disk")).unwrap();
    fs::write(tree.join("disk/disk.img"), content()).unwrap();
    let layer = lab.node.sheaf.scratch("layer.tar.gz");
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&layer).arg("-C").arg(&tree).arg("disk");
    assert!(tar.status().unwrap().success());
    let image = registry.push("team/disk", &fs::read(&layer).unwrap());
    let cron = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataImportCron",
        "metadata": {"name": "nightly"},
        "spec": {"managedDataSource": "golden", "schedule": "0 3 * * *", "importsToKeep": 1,
            "template": {"spec": {
                "source": {"registry": {"url": format!("docker://{image}")}},
                "storage": {"storageClassName": "harvester-longhorn",
                    "resources": {"requests": {"storage": "16Mi"}}}}}}});
    http.post(&format!("{CDI}/dataimportcrons"), &cron).ok();
    let golden = poll("the source is ready", || {
        let source = http.get(&format!("{CDI}/datasources/golden")).json();
        let conditions = source["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |own: &Value| own["type"] == "Ready" && own["status"] == "True";
        if conditions.iter().any(is) { Ok(source) } else { Err(source.to_string()) }
    });
    let claim = golden["spec"]["source"]["pvc"]["name"].as_str().unwrap().to_owned();
    assert!(claim.starts_with("golden-"), "{claim}");
    let raw = download(&lab, "default", &claim, 0);
    assert!(raw.body[..8 << 20] == content()[..], "the import differs");
    // A data volume of the source is a copy of it.
    let copy = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": "copy"}, "spec": {
            "sourceRef": {"kind": "DataSource", "name": "golden"},
            "storage": {"storageClassName": "harvester-longhorn",
                "resources": {"requests": {"storage": "16Mi"}}}}});
    http.post(&format!("{CDI}/datavolumes"), &copy).ok();
    lab.node.until(&format!("{CDI}/datavolumes/copy"), "/status/phase", "Succeeded");
    assert!(download(&lab, "default", "copy", 0).body == raw.body, "the copy differs");
}
