//! Snapshots of machines: whose guest a node keeps still, and whose memory a guest resumes from.

use serde_json::{Value, json};

use super::{controller, tenant};
use crate::harness::{Http, Sheaf, assert_has};

const TEAM_SNAPSHOTS: &str =
    "/apis/snapshot.kubevirt.io/v1beta1/namespaces/team/virtualmachinesnapshots";
const TEAM_CONTENTS: &str =
    "/apis/snapshot.kubevirt.io/v1beta1/namespaces/team/virtualmachinesnapshotcontents";
const TEAM_DISK_SNAPSHOTS: &str =
    "/apis/snapshot.storage.k8s.io/v1/namespaces/team/volumesnapshots";
const TEAM_MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/team/virtualmachines";
const TEAM_INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/team/virtualmachineinstances";
const ONLY_CONTROLLERS: &str = "may only be set by the controllers of the cluster";
const INSTANT: &str = "5f0c9d3a-1b2c-4d5e-8f90-112233445566";

/// The guest of another namespace, with its memory.
fn together(instant: &str) -> Value {
    let group = json!({"instant": instant, "count": 1, "namespace": "victim", "machine": "db",
        "memory": true});
    json!({"sheaf.io/together": group.to_string()})
}

/// The content of a snapshot, with a claim of the tenant's.
fn content(name: &str, annotations: Value) -> Value {
    let claim = json!({"metadata": {"name": "own", "namespace": "team"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshotContent",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "virtualMachineSnapshotName": "s",
            "source": {"virtualMachine": {"metadata": {"name": "ghost"}, "spec": machine()["spec"]}},
            "volumeBackups": [{"volumeName": "d", "volumeSnapshotName": "d",
                "persistentVolumeClaim": claim}],
        },
    })
}

fn machine() -> Value {
    let domain = json!({"memory": {"guest": "64Mi"}, "devices": {}});
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": domain}}},
    })
}

/// A snapshot of a machine that does not exist waits, and its content has a name that is known.
fn waiting_snapshot(mallory: &Http) -> String {
    let source = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "ghost"});
    let snapshot = json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
        "metadata": {"name": "s"}, "spec": {"source": source},
    });
    let made = mallory.post(TEAM_SNAPSHOTS, &snapshot).ok();
    format!("vmsnapshot-content-{}", made["metadata"]["uid"].as_str().unwrap())
}

#[test]
fn a_forged_content_reaches_no_guest_and_no_file() {
    let sheaf = Sheaf::start();
    let (admin, mallory) = (sheaf.http(), tenant(&sheaf));
    let name = waiting_snapshot(&mallory);
    for instant in ["/etc/cron.d/x", "../../../etc/cron.d/x", INSTANT] {
        let field = format!("metadata.annotations[sheaf.io/together] {ONLY_CONTROLLERS}");
        for name in [&name, "other"] {
            let forged = content(name, together(instant));
            assert_has(mallory.post(TEAM_CONTENTS, &forged).refused(403), &field);
        }
        // An administrator has no other way to name a guest than the snapshot of a machine.
        let disk = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": "d", "annotations": together(instant)},
            "spec": {"source": {"persistentVolumeClaimName": "own"}},
        });
        assert_has(admin.post(TEAM_DISK_SNAPSHOTS, &disk).refused(403), &field);
    }
    let plain = content(&name, json!({}));
    let refused = mallory.post(TEAM_CONTENTS, &plain).refused(403);
    assert_has(refused, "the content of VirtualMachineSnapshot s may only be created by");
    mallory.post(TEAM_CONTENTS, &content("other", json!({}))).ok();
    let path = format!("{TEAM_CONTENTS}/other");
    let patch = json!({"metadata": {"annotations": together(INSTANT)}});
    assert_has(mallory.merge(&path, &patch).refused(403), ONLY_CONTROLLERS);
}

#[test]
fn a_guest_resumes_from_no_memory_that_its_owner_names() {
    let sheaf = Sheaf::start();
    let mallory = tenant(&sheaf);
    let resume = || json!({"sheaf.io/resume-from": INSTANT});
    let mut forged = machine();
    forged["metadata"]["annotations"] = resume();
    let field = format!("metadata.annotations[sheaf.io/resume-from] {ONLY_CONTROLLERS}");
    assert_has(mallory.post(TEAM_MACHINES, &forged).refused(403), &field);
    let mut forged = machine();
    forged["spec"]["template"]["metadata"] = json!({"annotations": resume()});
    let refused = mallory.post(TEAM_MACHINES, &forged).refused(403);
    assert_has(refused, &format!("spec.template.{field}"));
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "vm", "annotations": resume()},
        "spec": machine()["spec"]["template"]["spec"],
    });
    assert_has(mallory.post(TEAM_INSTANCES, &instance).refused(403), &field);

    mallory.post(TEAM_MACHINES, &machine()).ok();
    let path = format!("{TEAM_MACHINES}/vm");
    let patch = json!({"metadata": {"annotations": resume()}});
    assert_has(mallory.merge(&path, &patch).refused(403), &field);
    // A restore sets it. Clients put whole objects back, and may take it off.
    controller(&sheaf).merge(&path, &patch).ok();
    let mut read = mallory.get(&path).ok();
    read["metadata"]["labels"] = json!({"changed": "yes"});
    let mut read = mallory.put(&path, &read).ok();
    assert_eq!(read["metadata"]["annotations"]["sheaf.io/resume-from"], INSTANT);
    read["metadata"]["annotations"]["sheaf.io/resume-from"] = "other".into();
    assert_has(mallory.put(&path, &read).refused(403), &field);
    let removal = json!({"metadata": {"annotations": {"sheaf.io/resume-from": null}}});
    mallory.merge(&path, &removal).ok();
}
