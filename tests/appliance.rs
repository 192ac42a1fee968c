//! Harvester's objects beside machines: keys, templates, and the claims that machines bring
//! along.

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, eventually};

const GROUP: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default";
const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me@home";

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": kind,
        "metadata": {"name": name}, "spec": spec})
}

fn at(plural: &str, name: &str) -> String {
    format!("{GROUP}/{plural}/{name}")
}

#[test]
fn a_key_pair_shows_its_fingerprint() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let pairs = format!("{GROUP}/keypairs");
    let refused = http.post(&pairs, &object("KeyPair", "bad", &json!({"publicKey": "hello"})));
    assert_eq!(refused.status, 422);
    assert_has(refused.text(), "key is not in valid OpenSSH public key format");
    http.post(&pairs, &object("KeyPair", "me", &json!({"publicKey": KEY}))).ok();
    eventually("the fingerprint is there", || {
        let pair = http.get(&at("keypairs", "me")).ok();
        pair["status"]["fingerPrint"].as_str().is_some_and(|print| print.len() == 47)
    });
    let shown = sheaf.kubectl().run("get kp me");
    assert_has(&shown, "FINGER_PRINT");
}

fn limits() -> Value {
    json!({"spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {
        "devices": {}, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}}}}})
}

fn number(http: &Http, version: &str) -> Option<i64> {
    http.get(&at("virtualmachinetemplateversions", version)).ok()["status"]["version"].as_i64()
}

#[test]
fn versions_of_a_template_are_numbered_and_the_first_is_the_default() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let versions = format!("{GROUP}/virtualmachinetemplateversions");
    let orphan =
        object("VirtualMachineTemplateVersion", "x", &json!({"templateId": "default/linux"}));
    let refused = http.post(&versions, &orphan);
    assert_eq!(refused.status, 422);
    assert_has(refused.text(), "template default/linux is not found");

    let template = object("VirtualMachineTemplate", "linux", &json!({"description": "plain"}));
    http.post(&format!("{GROUP}/virtualmachinetemplates"), &template).ok();
    for (index, name) in ["linux-a", "linux-b"].into_iter().enumerate() {
        let spec = json!({"templateId": "default/linux", "vm": limits()});
        http.post(&versions, &object("VirtualMachineTemplateVersion", name, &spec)).ok();
        let expected = i64::try_from(index).unwrap() + 1;
        eventually("it has its number", || number(&http, name) == Some(expected));
    }
    eventually("the template knows its versions", || {
        let template = http.get(&at("virtualmachinetemplates", "linux")).ok();
        template["spec"]["defaultVersionId"] == "default/linux-a"
            && template["status"] == json!({"defaultVersion": 1, "latestVersion": 2})
    });
    let kept = http.delete(&at("virtualmachinetemplateversions", "linux-a"));
    assert_eq!(kept.status, 400);
    assert_has(kept.text(), "Cannot delete the default templateVersion");
    http.delete(&at("virtualmachinetemplates", "linux")).ok();
    eventually("its versions are gone with it", || {
        http.get(&at("virtualmachinetemplateversions", "linux-b")).status == 404
    });
}

#[test]
fn a_fresh_cluster_has_templates_and_settings() {
    let sheaf = Sheaf::start();
    let kubectl = sheaf.kubectl();
    eventually("the templates have their versions", || {
        let shown = kubectl.run("get vmtemplate -n harvester-public -o wide");
        shown.lines().filter(|line| line.contains("-template ")).count() == 4
            && !shown.contains("<none>")
    });
    let shown = kubectl.run("get lhs -n longhorn-system default-replica-count");
    assert_has(&shown, r#"{"v1":"3","v2":"3"}"#);
    let http = sheaf.http();
    let setting = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/settings/auto-salvage";
    let refused = http.merge(setting, &json!({"value": "maybe"}));
    assert_eq!(refused.status, 400);
    assert_has(refused.text(), "it must be true or false");
}

fn machine(claims: &Value) -> Value {
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "web", "annotations": {
            "harvesterhci.io/volumeClaimTemplates": claims.to_string()}},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"memory": {"guest": "128Mi"}, "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "web-root"}}]}}}})
}

fn claim(size: &str) -> Value {
    json!([{"metadata": {"name": "web-root"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "local-immediate", "resources": {"requests": {"storage": size}}}}])
}

#[test]
fn a_machine_brings_its_claims_along() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let bad = http.post(VMS, &machine(&json!([{"metadata": {}}])));
    assert_eq!(bad.status, 422);
    assert_has(bad.text(), "the volumeClaimTemplates annotaion is invalid");
    http.post(VMS, &machine(&claim("1Gi"))).ok();
    let path = format!("{CLAIMS}/web-root");
    eventually("the claim is there", || http.get(&path).status == 200);
    let owners = &http.get(&path).ok()["metadata"]["ownerReferences"];
    assert!(owners.is_null(), "data must outlive the machine: {owners}");

    let smaller = machine(&claim("512Mi"));
    let refused = http.merge(&format!("{VMS}/web"), &json!({"metadata": smaller["metadata"]}));
    assert_eq!(refused.status, 422);
    assert_has(refused.text(), "web-root PVC requests storage can't be less than previous value");

    let used = http.delete(&path);
    assert_eq!(used.status, 409);
    assert_has(used.text(), "which is currently attached to VM: default/web");

    let removed = json!({"metadata": {"annotations": {
        "harvesterhci.io/removedPersistentVolumeClaims": "web-root"}}});
    http.merge(&format!("{VMS}/web"), &removed).ok();
    eventually("its deletion will take the claim along", || {
        let vm = http.get(&format!("{VMS}/web")).ok();
        vm["metadata"]["finalizers"].to_string().contains("remove-pvcs")
    });
    http.delete(&format!("{VMS}/web")).ok();
    eventually("both are gone", || {
        http.get(&format!("{VMS}/web")).status == 404 && http.get(&path).status == 404
    });
}
