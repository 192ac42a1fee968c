//! A guest moves with what was plugged into it while it ran, and with the state of its TPM.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Wire, token};
use super::migrate::{
    CLAIMS, MIGRATIONS, VMIS, counter, counting_volume, migrate, until_on, until_over,
};
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

/// Slow, and soon out of time.
const POLICY: &str = "
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: late}
spec:
  selectors:
    namespaceSelector: {kubernetes.io/metadata.name: default}
    virtualMachineInstanceSelector: {}
  bandwidthPerMigration: 100Ki
  completionTimeoutPerGiB: 1
  allowPostCopy: true
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
    let wire = Wire::new("shfmigdev", "10.199.52");
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
    eventually("the source is gone", || two.processes().is_empty());
    one.kubectl().apply(POLICY);
    pauses_where_post_copy_is_refused(&one);
    eventually("the source is gone", || one.processes().is_empty());
    goes_on_in_post_copy(&one, &mut two);
    for node in [&mut one, &mut two] {
        for part in [
            "cannot remove control group",
            "no post-copy",
            "cannot restore the stream of a post-copy yet",
            "cannot hand over a guest in post-copy yet",
        ] {
            node.sheaf.provokes(part);
        }
    }
}

/// The target may not use userfaultfd: an event reports it, and the guest is paused instead.
fn pauses_where_post_copy_is_refused(one: &Node) {
    let _host = Userfaultfd::set("0");
    migrate(one, "refused", &json!({}));
    until_over(one, "refused", "Succeeded");
    until_on(one, "two");
    let http = one.sheaf.http();
    let vmi = http.get(&format!("{VMIS}/a")).ok();
    assert_eq!(vmi["status"]["migrationState"]["mode"], "Paused", "{vmi}");
    poll("an event says why", || {
        let events = http.get("/api/v1/namespaces/default/events").ok();
        let all = events["items"].as_array().cloned().unwrap_or_default();
        let event = all.iter().find(|event| event["reason"] == "PostCopyNotPossible");
        let message = event.and_then(|event| event["message"].as_str()).unwrap_or_default();
        if message.contains("userfaultfd") { Ok(()) } else { Err(events.to_string()) }
    });
}

/// The guest goes on at the target before all of its memory is there, and the agent of the source,
/// through which the rest goes, is killed on the way.
fn goes_on_in_post_copy(one: &Node, two: &mut Node) {
    let _host = Userfaultfd::set("1");
    let http = one.sheaf.http();
    let before = counter(one);
    migrate(one, "late", &json!({}));
    until_on(one, "one");
    let vmi = http.get(&format!("{VMIS}/a")).ok();
    let state = &vmi["status"]["migrationState"];
    assert_eq!(state["mode"], "PostCopy", "{state}");
    assert!(state["completed"].is_null(), "memory is still at the source: {state}");
    two.sheaf.kill();
    two.sheaf.begin();
    // An abort comes too late: the guest cannot go back.
    http.delete(&format!("{MIGRATIONS}/late")).ok();
    poll("all memory has arrived", || {
        let vmi = http.get(&format!("{VMIS}/a")).ok();
        let state = &vmi["status"]["migrationState"];
        assert!(state["failed"].is_null(), "{state}");
        let is_over = state["completed"] == true;
        if is_over { Ok(()) } else { Err(state.to_string()) }
    });
    let vmi = http.get(&format!("{VMIS}/a")).ok();
    assert_eq!(vmi["status"]["nodeName"], "one");
    assert!(counter(one) > before, "it was started again");
    eventually("the source is gone", || two.processes().is_empty());
    assert_eq!(one.processes().len(), 1);
}

/// Whether processes without rights may use userfaultfd on this host, as long as this exists.
struct Userfaultfd {
    before: String,
}

impl Userfaultfd {
    const PATH: &str = "/proc/sys/vm/unprivileged_userfaultfd";

    fn set(value: &str) -> Self {
        let before = fs::read_to_string(Self::PATH).unwrap();
        fs::write(Self::PATH, value).expect("this test changes a setting of the host: run as root");
        Self { before }
    }
}

impl Drop for Userfaultfd {
    fn drop(&mut self) {
        let _ = fs::write(Self::PATH, &self.before);
    }
}
