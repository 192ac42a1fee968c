//! Ctrl-C and SIGTERM while a command waits: it says what goes on in the cluster, and ends with the
//! exit code of the signal.
//!
//! The server has no agent, and policies and finalizers hold up what its controllers would finish, so
//! that each command waits until it is interrupted.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{CLAIMS, MACHINES};
use crate::harness::{Http, Sheaf, assert_has, binary, poll};

/// A command that waits, and what it says when it is interrupted.
struct Interruption {
    line: &'static str,
    signal: Signal,
    messages: &'static [&'static str],
}

const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
const BUNDLES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles";

const INTERRUPTIONS: &[Interruption] = &[
    // First, while the nodes still count as alive.
    Interruption {
        line: "node maintenance one",
        signal: Signal::INT,
        messages: &[
            "interrupted: maintenance of node one goes on",
            "`sheaf node show one`",
            "`sheaf node maintenance one --off` cancels it",
        ],
    },
    Interruption {
        line: "image import debian http://127.0.0.1:1/debian.img",
        signal: Signal::INT,
        messages: &[
            "interrupted: the import of debian continues in the cluster",
            "`sheaf image list` shows its progress",
            "`sheaf image delete debian` stops it",
        ],
    },
    Interruption {
        line: "image upload fedora {disk}",
        signal: Signal::INT,
        messages: &["interrupted: the upload of fedora has stopped", "the same command resumes it"],
    },
    Interruption {
        line: "vm create web --image {disk} --storage-class never",
        signal: Signal::INT,
        messages: &["machine web was not created", "interrupted: the upload has stopped"],
    },
    Interruption {
        line: "volume create fresh --size 1Gi --class never",
        signal: Signal::TERM,
        messages: &[
            "interrupted: volume fresh is still being created",
            "sheaf volume delete fresh",
        ],
    },
    Interruption {
        line: "volume grow data 2Gi",
        signal: Signal::INT,
        messages: &["interrupted: data still grows in the cluster", "`sheaf volume list`"],
    },
    Interruption {
        line: "volume snapshot data first --class never",
        signal: Signal::INT,
        messages: &[
            "interrupted: snapshot first is still being taken",
            "`sheaf volume status data` shows it",
        ],
    },
    Interruption {
        line: "image delete held",
        signal: Signal::INT,
        messages: &[
            "interrupted: held is still being deleted in the cluster",
            "`sheaf image list`",
        ],
    },
    Interruption {
        line: "volume delete data",
        signal: Signal::TERM,
        messages: &[
            "interrupted: data is still being deleted in the cluster",
            "`sheaf volume list`",
        ],
    },
    Interruption {
        line: "support-bundle --output {bundle}",
        signal: Signal::INT,
        messages: &["interrupted: support bundle", "is removed, and nothing was saved"],
    },
];

/// Updates for which `expression` is false are refused.
fn hold_up(http: &Http, name: &str, group: &str, resources: &[&str], expression: &str) {
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [group], "apiVersions": ["*"],
                "resources": resources, "operations": ["UPDATE"]}]},
            "validations": [{"expression": expression}],
        },
    });
    http.post(&format!("{policies}/validatingadmissionpolicies"), &policy).ok();
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    http.post(&format!("{policies}/validatingadmissionpolicybindings"), &binding).ok();
}

fn node(http: &Http, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    http.post("/api/v1/nodes", &node).ok();
    let now = "2026-01-01T00:00:00Z";
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
        "reason": "AgentReady", "message": "", "lastHeartbeatTime": now,
        "lastTransitionTime": now}]}});
    http.merge(&format!("/api/v1/nodes/{name}/status"), &status).ok();
}

/// Storage whose driver never answers, with a bound claim that a finalizer keeps.
fn storage(http: &Http) {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "never"}, "provisioner": "example.com/never",
        "allowVolumeExpansion": true});
    http.post("/apis/storage.k8s.io/v1/storageclasses", &class).ok();
    let class = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": {"name": "never"}, "driver": "never.example.com",
        "deletionPolicy": "Delete"});
    http.post("/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses", &class).ok();
    let size = json!({"storage": "1Gi"});
    let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "data"}, "spec": {"capacity": size, "storageClassName": "never",
            "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "never.example.com", "volumeHandle": "data"}}});
    http.post("/api/v1/persistentvolumes", &volume).ok();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "finalizers": ["example.com/held"]},
        "spec": {"storageClassName": "never", "volumeName": "data",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": size}}});
    http.post(CLAIMS, &claim).ok();
    poll("the claim is bound", || {
        let claim = http.get(&format!("{CLAIMS}/data")).ok();
        if claim["status"]["phase"] == "Bound" { Ok(()) } else { Err(claim.to_string()) }
    });
}

/// Whether a process handles SIGINT and SIGTERM, which a command does once its request is made and
/// only the wait is left.
fn waits_for_signals(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let has = |signal: Signal| caught & (1 << (signal.as_raw() - 1)) != 0;
    has(Signal::INT) && has(Signal::TERM)
}

fn is_empty(http: &Http, path: &str) -> bool {
    http.get(path).ok()["items"].as_array().is_none_or(Vec::is_empty)
}

fn waiting(sheaf: &Sheaf, case: &Interruption, log: &Path) -> Child {
    let path = |name: &str| sheaf.scratch(name).display().to_string();
    let line = case.line.replace("{disk}", &path("disk.img"));
    let line = line.replace("{bundle}", &path("bundle.zip"));
    let mut command = Command::new(binary())
        .args(line.split_whitespace())
        .arg("--data-dir")
        .arg(sheaf.data())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(log).unwrap())
        .spawn()
        .unwrap();
    poll(&format!("sheaf {line} waits"), || {
        if let Some(status) = command.try_wait().unwrap() {
            panic!("sheaf {line} ended: {status}: {}", fs::read_to_string(log).unwrap());
        }
        let waits = waits_for_signals(command.id());
        if waits { Ok(()) } else { Err("it has no handlers of signals".to_owned()) }
    });
    command
}

#[test]
fn each_command_that_waits_says_what_goes_on_without_it() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    storage(&http);
    node(&http, "one");
    node(&http, "two");
    let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {"name": "held", "finalizers": ["example.com/held"]},
        "spec": {"displayName": "held", "sourceType": "upload"}});
    http.post(IMAGES, &image).ok();
    fs::write(sheaf.scratch("disk.img"), vec![0; 4 << 20]).unwrap();
    let begun = "!has(object.metadata.annotations) || \
                 !('harvesterhci.io/maintain-status' in object.metadata.annotations)";
    hold_up(&http, "no-maintenance", "", &["nodes"], begun);
    let bundles = ["supportbundles", "supportbundles/status"];
    hold_up(&http, "no-bundle", "harvesterhci.io", &bundles, "false");
    let log = sheaf.scratch("stderr");
    for case in INTERRUPTIONS {
        let command = waiting(&sheaf, case, &log);
        kill_process(Pid::from_child(&command), case.signal).unwrap();
        let Output { status, .. } = command.wait_with_output().unwrap();
        let text = fs::read_to_string(&log).unwrap();
        let code = if case.signal == Signal::INT { 130 } else { 143 };
        assert_eq!(status.code(), Some(code), "{}: {text}", case.line);
        for part in case.messages {
            assert_has(&text, part);
        }
    }
    let left = http.get(&format!("{CLAIMS}/data")).ok();
    assert_ne!(left["metadata"]["deletionTimestamp"], Value::Null, "it is still being deleted");
    let node = http.get("/api/v1/nodes/one").ok();
    assert_eq!(node["metadata"]["annotations"]["harvesterhci.io/drain-requested"], "true");
    poll("the machine without its image is deleted", || {
        if is_empty(&http, MACHINES) { Ok(()) } else { Err(http.get(MACHINES).text()) }
    });
    poll("the bundle that is not fetched is deleted", || {
        if is_empty(&http, BUNDLES) { Ok(()) } else { Err(http.get(BUNDLES).text()) }
    });
    assert!(!sheaf.scratch("bundle.zip").exists(), "nothing was saved");
}
