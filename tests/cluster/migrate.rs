//! A guest moves to another node and back while it counts on a replicated volume.

use std::process::Command;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Wire, token};
use crate::harness::{Node, Socket, assemble, assert_has, eventually, poll};

pub(super) const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub(super) const MIGRATIONS: &str =
    "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancemigrations";
const GUEST: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances";
pub(super) const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
pub(super) const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";

/// A machine that boots from the claim `root`, first on the management node.
pub(super) const MACHINE: &str = "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: a}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 1
      evictionStrategy: LiveMigrate
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference:
              matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [one]}]
      domain:
        memory: {guest: 16Mi}
        devices:
          disks:
          - {name: root, disk: {bus: virtio}}
          - {name: seed, disk: {bus: virtio}}
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes:
      - {name: root, persistentVolumeClaim: {claimName: root}}
      - {name: seed, cloudInitNoCloud: {userData: '#cloud-config'}}
";

/// A volume with the guest that counts; its name.
pub(super) fn counting_volume(one: &Node) -> String {
    let http = one.sheaf.http();
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "root"}, "spec": {
        "storageClassName": "harvester-longhorn", "accessModes": ["ReadWriteMany"],
        "volumeMode": "Block", "resources": {"requests": {"storage": "16Mi"}}}});
    http.post(CLAIMS, &claim).ok();
    let claim = one.until(&format!("{CLAIMS}/root"), "/status/phase", "Bound");
    let volume = claim["spec"]["volumeName"].as_str().unwrap().to_owned();
    let want = |node: Option<&str>| {
        let ticket = node.map(|node| json!({"id": "t", "type": "csi-attacher", "nodeID": node}));
        let patch = json!({"spec": {"attachmentTickets": {"t": ticket}}});
        poll("the volume can be asked for", || {
            let reply = http.merge(&format!("{LONGHORN}/volumeattachments/{volume}"), &patch);
            if reply.status == 404 { Err(reply.text()) } else { Ok(reply.ok()) }
        });
    };
    want(Some("one"));
    let engine = format!("{LONGHORN}/engines/{volume}-e-0");
    one.until(&engine, "/status/currentState", "running");
    let image = one.sheaf.scratch("count.img");
    let mut bytes = assemble("migrate");
    bytes.resize(1 << 20, 0);
    std::fs::write(&image, bytes).unwrap();
    let endpoint = http.get(&engine).ok()["status"]["endpoint"].as_str().unwrap().to_owned();
    let uri = format!("nbd+unix:///?socket={}", endpoint.trim_start_matches("unix://"));
    let copied = Command::new("qemu-img")
        .args(["convert", "-n", "-f", "raw", "-O", "raw"])
        .arg(&image)
        .arg(uri)
        .status();
    assert!(copied.expect("qemu-img is installed").success());
    want(None);
    one.until(&format!("{LONGHORN}/volumes/{volume}"), "/status/state", "detached");
    volume
}

/// The guest's counter, as it says it next on its console.
pub(super) fn counter(one: &Node) -> u32 {
    let path = format!("{GUEST}/a/console");
    let mut console = poll("the console opens", || Socket::open(&one.sheaf, &path));
    let mut said = Vec::new();
    loop {
        said.extend(console.until(b"\n"));
        let text = String::from_utf8_lossy(&said).into_owned();
        assert!(!text.contains("BAD") && !text.contains("failed"), "{text}");
        let mut lines: Vec<&str> = text.lines().collect();
        // The first line may be the end of one.
        lines.retain(|line| line.len() == 8);
        if let Some(number) = lines.last().and_then(|line| u32::from_str_radix(line, 16).ok()) {
            return number;
        }
    }
}

pub(super) fn migrate(one: &Node, name: &str, selector: &Value) {
    one.sheaf.http().post(MIGRATIONS, &migration(name, selector)).ok();
}

fn migration(name: &str, selector: &Value) -> Value {
    json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": name}, "spec": {"vmiName": "a", "addedNodeSelector": selector}})
}

pub(super) fn until_over(one: &Node, name: &str, phase: &str) -> Value {
    let path = format!("{MIGRATIONS}/{name}");
    poll(&format!("{name} is {phase}"), || {
        let found = one.sheaf.http().get(&path).json();
        let now = found["status"]["phase"].as_str().unwrap_or_default();
        match now {
            _ if now == phase => Ok(found),
            "Succeeded" | "Failed" => panic!("{name} is {now}: {found}"),
            _ => Err(found.to_string()),
        }
    })
}

pub(super) fn until_on(one: &Node, node: &str) {
    one.until(&format!("{VMIS}/a"), "/status/nodeName", node);
}

#[test]
fn a_guest_moves_there_and_back_and_survives_what_goes_wrong() {
    let wire = Wire::new("shfmig", "10.199.43");
    let mut one = Node::management(&wire.here());
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut two = wire.outsider(&url, &text, "two");
    two.sheaf.begin();
    until_ready(&one, "two");
    let volume = counting_volume(&one);
    one.kubectl().apply(MACHINE);
    let http = one.sheaf.http();
    let vmi = one.until(&format!("{VMIS}/a"), "/status/phase", "Running");
    assert_eq!(vmi["status"]["nodeName"], "one");
    let uid = vmi["metadata"]["uid"].clone();
    poll("it can be migrated", || {
        let vmi = http.get(&format!("{VMIS}/a")).ok();
        let conditions = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let yes = |own: &Value| own["type"] == "LiveMigratable" && own["status"] == "True";
        if conditions.iter().any(yes) { Ok(()) } else { Err(vmi["status"].to_string()) }
    });
    let first = counter(&one);

    // There: the same run goes on, on the other node.
    migrate(&one, "there", &json!({}));
    let over = until_over(&one, "there", "Succeeded");
    let phases = over["status"]["phaseTransitionTimestamps"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().filter_map(|own| own["phase"].as_str()).collect();
    assert_eq!(
        names,
        [
            "Pending",
            "Scheduling",
            "Scheduled",
            "PreparingTarget",
            "TargetReady",
            "Running",
            "Succeeded"
        ]
    );
    until_on(&one, "two");
    let second = counter(&one);
    assert!(second > first, "{first} {second}: it was started again");
    eventually("the source is gone", || one.processes().is_empty());
    assert_eq!(two.processes().len(), 1);
    let vmi = http.get(&format!("{VMIS}/a")).ok();
    assert_eq!(vmi["metadata"]["uid"], uid);
    one.until(&format!("{LONGHORN}/engines/{volume}-e-0"), "/spec/nodeID", "two");

    // The only other node is the target; one that no node fits waits, and can be cancelled.
    migrate(&one, "nowhere", &json!({"kubernetes.io/hostname": "three"}));
    let refused = http.post(MIGRATIONS, &migration("second", &json!({})));
    assert_has(refused.text(), "in-flight migration detected");
    http.delete(&format!("{MIGRATIONS}/nowhere")).ok();
    eventually("it is cancelled", || http.get(&format!("{MIGRATIONS}/nowhere")).status == 404);

    // The QEMU of the target is killed: the guest goes on where it is.
    let slow =
        json!({"spec": {"configuration": {"migrations": {"bandwidthPerMigration": "200Ki"}}}});
    http.merge("/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt", &slow).ok();
    migrate(&one, "killed", &json!({}));
    eventually("the target is there", || one.processes().len() == 1);
    one.until(&format!("{MIGRATIONS}/killed"), "/status/phase", "Running");
    for process in one.processes() {
        kill_process(process, Signal::KILL).unwrap();
    }
    until_over(&one, "killed", "Failed");
    until_on(&one, "two");
    let third = counter(&one);
    assert!(third > second, "{second} {third}: it was started again");

    // Cancelled on its way.
    migrate(&one, "cancelled", &json!({}));
    one.until(&format!("{MIGRATIONS}/cancelled"), "/status/phase", "Running");
    let marks = http.get(&format!("{VMIS}/a")).ok()["metadata"]["annotations"].clone();
    assert_eq!(marks["harvesterhci.io/migrationState"], "Migrating", "{marks}");
    assert_eq!(marks["harvesterhci.io/migrationTargetNodeName"], "one", "{marks}");
    http.delete(&format!("{MIGRATIONS}/cancelled")).ok();
    eventually("it is cancelled", || http.get(&format!("{MIGRATIONS}/cancelled")).status == 404);
    let vmi = http.get(&format!("{VMIS}/a")).ok();
    assert_eq!(vmi["status"]["migrationState"]["abortStatus"], "Succeeded");
    assert!(counter(&one) > third);
    eventually("the marks of the migration are gone", || {
        let vmi = http.get(&format!("{VMIS}/a")).ok();
        vmi["metadata"]["annotations"]["harvesterhci.io/migrationState"].is_null()
    });
    let fast = json!({"spec": {"configuration": {"migrations": {"bandwidthPerMigration": null}}}});
    http.merge("/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt", &fast).ok();

    // Back, because its node is in maintenance: the guest is evicted, which migrates it.
    let planned = one.sheaf.run("node maintenance two --dry-run");
    assert_has(&planned, "default/a   migrate");
    let output = one.sheaf.run("node maintenance two");
    assert_has(&output, "migrating default/a");
    assert_has(&output, "node two is in maintenance");
    until_on(&one, "one");
    let node = http.get("/api/v1/nodes/two").ok();
    assert_eq!(node["spec"]["unschedulable"], true);
    assert_eq!(node["metadata"]["annotations"]["harvesterhci.io/maintain-status"], "completed");
    let fourth = counter(&one);
    assert!(fourth > third, "{third} {fourth}: it was started again");
    eventually("the source is gone", || two.processes().is_empty());
    assert_eq!(one.processes().len(), 1);
    let refused = one.sheaf.command("node maintenance one");
    assert_has(String::from_utf8_lossy(&refused.stderr), "single controlplane cluster");
    assert_has(one.sheaf.run("node maintenance two --off"), "back in use");
    poll("maintenance is over", || {
        let node = http.get("/api/v1/nodes/two").ok();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let over = |own: &Value| own["type"] == "MaintenanceMode" && own["status"] == "False";
        let is_back = conditions.iter().any(over) && node["spec"]["unschedulable"].is_null();
        if is_back { Ok(()) } else { Err(node.to_string()) }
    });
    moves_by_a_policy(&one);
    assert!(counter(&one) > fourth, "it was started again");
    for node in [&mut one, &mut two] {
        // Both nodes are one host here, and share the control group of the machine.
        for part in ["migration failed", "cannot remove control group"] {
            node.sheaf.provokes(part);
        }
    }
}

/// A policy has it sent slowly, and stopped when its time is over so that the rest can be sent.
fn moves_by_a_policy(one: &Node) {
    one.kubectl().apply(
        "
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata: {name: slow}
spec:
  selectors:
    namespaceSelector: {kubernetes.io/metadata.name: default}
    virtualMachineInstanceSelector: {}
  bandwidthPerMigration: 200Ki
  completionTimeoutPerGiB: 1
  allowWorkloadDisruption: true
",
    );
    migrate(one, "slow", &json!({}));
    until_over(one, "slow", "Succeeded");
    until_on(one, "two");
    let vmi = one.sheaf.http().get(&format!("{VMIS}/a")).ok();
    let state = &vmi["status"]["migrationState"];
    assert_eq!(state["migrationPolicyName"], "slow", "{state}");
    assert_eq!(state["migrationConfiguration"]["completionTimeoutPerGiB"], 1, "{state}");
    assert_eq!(state["mode"], "Paused", "{state}");
}
