//! Whole machines are captured while they run, and put back with their data.

use serde_json::{Value, json};

use super::lab::{self, CLAIMS, Lab, VMIS, VMS};
use crate::harness::eventually;

const BACKUPS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
const RESTORES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";

fn reference(name: &str) -> Value {
    json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name})
}

/// The guest of one sector with a second disk.
fn two_disks() -> String {
    lab::machine("a", "root", "Always")
        .replace(
            "disks: [{name: root, disk: {bus: virtio}}]",
            "disks: [{name: root, disk: {bus: virtio}}, {name: data, disk: {bus: virtio}}]",
        )
        .replace(
            "claimName: root}}]",
            "claimName: root}}, {name: data, persistentVolumeClaim: {claimName: data}}]",
        )
}

fn claims_of(lab: &Lab, machine: &str) -> Vec<String> {
    let vm = lab.node.sheaf.http().get(&format!("{VMS}/{machine}")).ok();
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let claim = |own: &Value| own["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
    volumes.iter().filter_map(claim).collect()
}

fn write(lab: &Lab, volume: &str, commands: &[&str]) {
    lab.want(volume, Some("one"));
    lab.until_served(volume);
    lab.io(volume, commands);
    lab.want(volume, None);
    lab.until_state(volume, "detached");
}

#[test]
fn a_machine_that_runs_is_captured_and_its_old_data_come_back() {
    let lab = Lab::start();
    let http = lab.node.sheaf.http();
    let root = lab.claim("root", "64Mi");
    let data = lab.claim("data", "64Mi");
    lab.write_pulse(&root);
    write(&lab, &data, &["write -P 1 0 4M", "flush"]);
    lab.node.kubectl().apply(&two_disks());
    lab.node.until(&format!("{VMIS}/a"), "/status/phase", "Running");

    let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "monday"}, "spec": {"source": reference("a"), "type": "snapshot"}});
    http.post(BACKUPS, &backup).ok();
    let path = format!("{BACKUPS}/monday");
    eventually("it is taken", || http.get(&path).ok()["status"]["readyToUse"] == true);
    eventually("the guest goes on", || {
        let vmi = http.get(&format!("{VMIS}/a")).ok();
        let conditions = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
        !conditions.iter().any(|own| own["type"] == "Paused" && own["status"] == "True")
    });

    http.merge(&format!("{VMS}/a"), &json!({"spec": {"runStrategy": "Halted"}})).ok();
    eventually("it is stopped", || http.get(&format!("{VMIS}/a")).status == 404);
    lab.until_state(&data, "detached");
    write(&lab, &data, &["write -P 2 0 4M", "flush"]);

    for (name, target, changes) in [
        ("back", "a", json!({"deletionPolicy": "retain", "haltAfterRestore": true})),
        ("copy", "b", json!({"newVM": true})),
    ] {
        let mut spec = json!({"target": reference(target), "virtualMachineBackupName": "monday",
            "virtualMachineBackupNamespace": "default"});
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let restore = json!({"apiVersion": "harvesterhci.io/v1beta1",
            "kind": "VirtualMachineRestore", "metadata": {"name": name}, "spec": spec});
        http.post(RESTORES, &restore).ok();
        let path = format!("{RESTORES}/{name}");
        eventually(&format!("{name} is done"), || {
            http.get(&path).ok()["status"]["complete"] == true
        });
    }
    let old = claims_of(&lab, "a");
    assert!(old.iter().all(|own| own.starts_with("restore-")), "{old:?}");
    let volume = lab.until_bound(&old[1]);
    write(&lab, &volume, &["read -P 1 0 4M"]);
    write(&lab, &data, &["read -P 2 0 4M"]);
    lab.node.until(&format!("{VMIS}/b"), "/status/phase", "Running");

    let mut claims: Vec<String> = vec!["root".into(), "data".into()];
    claims.extend(old);
    claims.extend(claims_of(&lab, "b"));
    for machine in ["a", "b"] {
        http.delete(&format!("{VMS}/{machine}")).ok();
        eventually("it is gone", || http.get(&format!("{VMS}/{machine}")).status == 404);
    }
    http.delete(&path).ok();
    for claim in claims {
        http.delete(&format!("{CLAIMS}/{claim}")).ok();
    }
    lab.until_nothing_is_left();
}
