//! A guest moves with what was plugged into it while it ran, and with the state of its TPM.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Wire, token};
use super::migrate::{CLAIMS, VMIS, counter, counting_volume, migrate, until_on, until_over};
use crate::harness::{Node, eventually, poll};

const MACHINES: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines";

/// A machine that boots from the claim `root`, with a TPM that outlives its runs.
const MACHINE: &str = "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: a}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 1
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference:
              matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [one]}]
      domain:
        memory: {guest: 16Mi}
        devices:
          tpm: {persistent: true}
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, persistentVolumeClaim: {claimName: root}}]
";

/// Where a node keeps the state of the TPM.
fn seeds(node: &Node) -> PathBuf {
    node.sheaf.data().join("agent/state/default.a/tpm/tpm2-00.permall")
}

/// The command line of the one guest of a node.
fn command_line(node: &Node) -> String {
    let all = node.processes();
    assert_eq!(all.len(), 1, "one guest");
    let path = format!("/proc/{}/cmdline", all[0].as_raw_nonzero());
    fs::read_to_string(path).unwrap().replace('\0', " ")
}

/// The device of the hot-plugged disk on the command line of a guest.
fn plugged_device(line: &str) -> Value {
    let words = line.split("-device ").filter_map(|rest| {
        let device = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next()?.ok()?;
        (device["id"] == "ua-data").then_some(device)
    });
    words.last().unwrap_or_default()
}

fn volume_phase(one: &Node) -> String {
    let vmi = one.sheaf.http().get(&format!("{VMIS}/a")).ok();
    let all = vmi["status"]["volumeStatus"].as_array().cloned().unwrap_or_default();
    let data = all.iter().find(|volume| volume["name"] == "data");
    data.map(|data| data["phase"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

#[test]
fn a_guest_moves_with_its_hot_plugged_disk_and_its_tpm() {
    let wire = Wire::new("shfmigdev", "10.199.47");
    let mut one = Node::management(&wire.here());
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut two = wire.outsider(&url, &text, "two");
    two.sheaf.begin();
    until_ready(&one, "two");
    counting_volume(&one);
    let http = one.sheaf.http();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
        "storageClassName": "harvester-longhorn", "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block", "resources": {"requests": {"storage": "16Mi"}}}});
    http.post(CLAIMS, &claim).ok();
    one.kubectl().apply(MACHINE);
    one.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    until_on(&one, "one");
    let first = counter(&one);
    let plugged = json!({"name": "data", "disk": {"disk": {"bus": "scsi"}, "serial": "hot-1"},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "data"}}});
    assert_eq!(http.put(&format!("{MACHINES}/a/addvolume"), &plugged).status, 202);
    eventually("the disk is plugged in", || volume_phase(&one) == "Ready");
    let before = fs::read(seeds(&one)).expect("the firmware has initialized the TPM");

    migrate(&one, "there", &json!({}));
    until_over(&one, "there", "Succeeded");
    until_on(&one, "two");
    let second = counter(&one);
    assert!(second > first, "{first} {second}: it was started again");
    let device = plugged_device(&command_line(&two));
    assert_eq!(device["serial"], "hot-1", "{device}");
    assert_eq!((&device["bus"], &device["lun"]), (&json!("scsi0.0"), &json!(0)), "{device}");
    assert!(fs::read(seeds(&two)).unwrap() == before, "the TPM is the same");
    eventually("nothing of the TPM stays behind", || !seeds(&one).exists());

    // And back, with what the other node has made of it.
    eventually("the source is gone", || one.processes().is_empty());
    migrate(&one, "back", &json!({}));
    until_over(&one, "back", "Succeeded");
    until_on(&one, "one");
    assert!(counter(&one) > second, "it was started again");
    assert_eq!(plugged_device(&command_line(&one)), device);
    assert!(fs::read(seeds(&one)).unwrap() == before, "the TPM is the same");
    let path = format!("{MACHINES}/a/removevolume");
    assert_eq!(http.put(&path, &json!({"name": "data"})).status, 202);
    poll("the disk is gone", || match volume_phase(&one) {
        phase if phase.is_empty() => Ok(()),
        phase => Err(phase),
    });
    for node in [&mut one, &mut two] {
        node.sheaf.provokes("cannot remove control group");
    }
}
