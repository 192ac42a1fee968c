//! Copies of replicated claims: into another namespace, to a client, and below an overlay.

use serde_json::{Value, json};

use super::lab::{CLAIMS, DATA_VOLUMES, Lab, VMIS, VMS, data_volume, machine};
use crate::harness::{Reply, assert_has, poll};
use crate::volume::web::{Fault, Web};

const OTHER: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/other/datavolumes";

fn exports(namespace: &str) -> String {
    format!("/apis/export.kubevirt.io/v1/namespaces/{namespace}/virtualmachineexports")
}

/// The response to a client of the export of a claim for one of its links.
pub(super) fn download(lab: &Lab, namespace: &str, claim: &str, format: usize) -> Reply {
    let source = json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": claim});
    download_from(lab, namespace, claim, &source, format)
}

/// The same of the first volume of any source.
fn download_from(lab: &Lab, namespace: &str, name: &str, source: &Value, format: usize) -> Reply {
    let http = lab.node.sheaf.http();
    let path = format!("{}/{name}", exports(namespace));
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("secret-{name}")}, "stringData": {"token": "abc"}});
    let made = http.post(&format!("/api/v1/namespaces/{namespace}/secrets"), &secret);
    assert!(matches!(made.status, 201 | 409), "{}", made.text());
    let export = json!({"apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport",
        "metadata": {"name": name},
        "spec": {"tokenSecretRef": format!("secret-{name}"), "source": source}});
    let made = http.post(&exports(namespace), &export);
    assert!(matches!(made.status, 201 | 409), "{}", made.text());
    lab.node.until(&path, "/status/phase", "Ready");
    let external = http.get(&path).ok()["status"]["links"]["external"].clone();
    assert_has(external["cert"].as_str().unwrap(), "BEGIN CERTIFICATE");
    let url = external["volumes"][0]["formats"][format]["url"].as_str().unwrap().to_owned();
    let (_, rest) = url.split_once("/api/").unwrap();
    let client = lab.node.sheaf.anonymous();
    let get = |token: &str| {
        let request = http::Request::get(format!("/api/{rest}"));
        client.send(request.header("x-kubevirt-export-token", token), Vec::new())
    };
    assert_eq!(get("abd").status, 401);
    get("abc")
}

fn condition(object: &Value, kind: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.iter().find(|own| own["type"] == kind).map(Value::to_string).unwrap_or_default()
}

#[test]
fn a_replicated_claim_is_copied_exported_and_read_below_an_overlay() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    http.post("/api/v1/namespaces", &json!({"metadata": {"name": "other"}})).ok();
    // The copy is asked for before there is anything to copy.
    let from = json!({"pvc": {"namespace": "default", "name": "root"}});
    http.post(OTHER, &data_volume("copy", &from)).ok();
    poll("the copy says what it waits for", || {
        let message = condition(&http.get(&format!("{OTHER}/copy")).ok(), "Running");
        if message.contains("The source pvc root doesn't exist") { Ok(()) } else { Err(message) }
    });
    let web = Web::start();
    web.put("pulse.qcow2", lab.pulse_qcow2(), Fault::None);
    let url = json!({"http": {"url": web.url("pulse.qcow2")}});
    http.post(DATA_VOLUMES, &data_volume("root", &url)).ok();
    lab.node.until(&format!("{OTHER}/copy"), "/status/phase", "Succeeded");

    let raw = download(&lab, "default", "root", 0);
    assert_eq!(raw.status, 200, "{}", raw.text());
    assert_eq!(raw.body.len(), 16 << 20);
    assert!(raw.body.iter().any(|byte| *byte != 0));
    let copy = download(&lab, "other", "copy", 0);
    assert!(copy.body == raw.body, "the copy differs");
    let packed = download(&lab, "default", "root", 1);
    assert_eq!(packed.body[..2], [0x1f, 0x8b], "it is compressed");
    assert!(packed.body.len() < raw.body.len() / 2);

    let yaml = machine("a", "root", "Always").replace(
        "persistentVolumeClaim: {claimName: root}",
        "ephemeral: {persistentVolumeClaim: {claimName: root}}",
    );
    assert_has(&yaml, "ephemeral");
    lab.node.kubectl().apply(&yaml);
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    lab.node.until_said("boot 1");
    let beside = download(&lab, "default", "root", 0);
    assert!(beside.body == raw.body, "the machine only reads the claim");
    http.delete(&format!("{VMS}/a")).ok();
    lab.node.until_empty();
    let after = download(&lab, "default", "root", 0);
    assert!(after.body == raw.body, "what the guest wrote has reached the claim");
    for path in [
        format!("{}/root", exports("default")),
        format!("{}/copy", exports("other")),
        format!("{DATA_VOLUMES}/root"),
        format!("{OTHER}/copy"),
    ] {
        http.delete(&path).ok();
    }
    poll("the claims go", || {
        let left = http.get(CLAIMS).ok()["items"].as_array().map_or(0, Vec::len);
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    });
    lab.until_nothing_is_left();
}

#[test]
fn a_stopped_machine_and_its_snapshot_are_exported() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let web = Web::start();
    web.put("pulse.qcow2", lab.pulse_qcow2(), Fault::None);
    let url = json!({"http": {"url": web.url("pulse.qcow2")}});
    http.post(DATA_VOLUMES, &data_volume("root", &url)).ok();
    lab.node.until(&format!("{DATA_VOLUMES}/root"), "/status/phase", "Succeeded");
    lab.node.kubectl().apply(&machine("a", "root", "Halted"));
    let snapshots = "/apis/snapshot.kubevirt.io/v1beta1/namespaces/default/virtualmachinesnapshots";
    let vm = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"});
    let snapshot = json!({"apiVersion": "snapshot.kubevirt.io/v1beta1",
        "kind": "VirtualMachineSnapshot", "metadata": {"name": "s"}, "spec": {"source": vm}});
    http.post(snapshots, &snapshot).ok();
    lab.node.until(&format!("{snapshots}/s"), "/status/phase", "Succeeded");

    let claim = download(&lab, "default", "root", 0);
    assert_eq!(claim.body.len(), 16 << 20);
    let whole = download_from(&lab, "default", "machine", &vm, 0);
    assert_eq!(whole.status, 200, "{}", whole.text());
    assert!(whole.body == claim.body, "the machine's export differs from its claim");
    let taken = json!({"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot",
        "name": "s"});
    let then = download_from(&lab, "default", "snapshot", &taken, 0);
    assert_eq!(then.status, 200, "{}", then.text());
    assert!(then.body == claim.body, "the snapshot's export differs from the claim");

    for path in [
        format!("{}/root", exports("default")),
        format!("{}/machine", exports("default")),
        format!("{}/snapshot", exports("default")),
        format!("{snapshots}/s"),
        format!("{VMS}/a"),
        format!("{DATA_VOLUMES}/root"),
    ] {
        http.delete(&path).ok();
    }
    poll("the claims go", || {
        let left = http.get(CLAIMS).ok()["items"].as_array().map_or(0, Vec::len);
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    });
    lab.until_nothing_is_left();
}
