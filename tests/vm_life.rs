//! Virtual machines that run: a real QEMU with a guest of one sector, from kubectl to the
//! process and back, and through the death of each process involved.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::harness::{Node, Small, assemble, eventually};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

fn machine(name: &str, strategy: &str, disk: &Path) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: {name}}}
spec:
  runStrategy: {strategy}
  template:
    spec:
      terminationGracePeriodSeconds: 20
      domain:
        memory: {{guest: 16Mi}}
        devices:
          disks: [{{name: root, disk: {{bus: virtio}}}}]
          interfaces: [{{name: default, masquerade: {{}}}}]
      networks: [{{name: default, pod: {{}}}}]
      volumes:
      - name: root
        hostDisk: {{path: {}, type: Disk}}
",
        disk.display()
    )
}

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

fn running(node: &Node, name: &str) -> serde_json::Value {
    node.until(&at(VMIS, name), "/status/phase", "Running")
}

#[test]
fn a_machine_is_started_and_stopped_and_keeps_its_disk() {
    let node = Node::start();
    let kubectl = node.kubectl();
    kubectl.apply(&machine("a", "Always", &node.disk("a.img")));
    let vmi = running(&node, "a");
    node.until_said("boot 1");
    assert_eq!(vmi["status"]["nodeName"], "one");
    assert_eq!(vmi["status"]["volumeStatus"][0]["target"], "vda");
    assert_eq!(vmi["status"]["interfaces"][0]["name"], "default");
    let phases: Vec<_> = vmi["status"]["phaseTransitionTimestamps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| each["phase"].as_str().unwrap())
        .collect();
    assert!(phases.ends_with(&["Scheduling", "Scheduled", "Running"]), "{phases:?}");
    node.until(&at(VMS, "a"), "/status/printableStatus", "Running");

    kubectl.run(r#"patch vm a --type merge -p {"spec":{"runStrategy":"Halted"}}"#);
    node.until(&at(VMS, "a"), "/status/printableStatus", "Stopped");
    node.until_empty();

    kubectl.run(r#"patch vm a --type merge -p {"spec":{"runStrategy":"Always"}}"#);
    running(&node, "a");
    node.until_said("boot 2");
    kubectl.run("delete vm a");
    node.until_empty();
}

#[test]
fn the_log_of_a_launcher_pod_is_the_console_and_exec_names_what_to_use() {
    let node = Node::start();
    let kubectl = node.kubectl();
    kubectl.apply(&machine("a", "Always", &node.disk("a.img")));
    running(&node, "a");
    node.until_said("boot 1");
    let pod = kubectl.run("get pods -o name");
    let pod = pod.trim();
    for flags in ["", "-c compute --tail=5"] {
        let log = kubectl.run(&format!("logs {pod} {flags}"));
        assert!(log.contains("boot 1"), "{flags}: {log:?}");
    }
    assert_eq!(kubectl.run(&format!("logs {pod} --tail=0")), "");
    // As KubeVirt calls the container that prints the console.
    let log = format!("/api/v1/namespaces/default/{}/log", pod.replace("pod/", "pods/"));
    let http = node.sheaf.http();
    let own = http.get(&format!("{log}?container=guest-console-log"));
    assert!(own.text().contains("boot 1"), "{}", own.text());
    let exec = log.replace("/log", "/exec?command=ls");
    let refused = http.get(&exec).refused(503);
    assert!(refused.contains("virtctl console a -n default"), "{refused}");
    let other = http.get(&format!("{log}?container=nginx")).refused(400);
    assert!(other.contains("container nginx is not valid"), "{other}");
    for (command, expected) in [
        (format!("logs {pod} --previous"), "no log of a previous guest"),
        (format!("attach {pod}"), "virtctl ssh USER@vm/a -n default"),
        (format!("port-forward {pod} 17100:22"), "virtctl port-forward vm/a"),
    ] {
        let refused = kubectl.fails(&command);
        assert!(refused.contains(expected), "{command}: {refused}");
    }
    let viewer = "--as jane --as-group system:authenticated";
    let refused = kubectl.fails(&format!("logs {pod} {viewer}"));
    assert!(refused.contains("forbidden"), "{refused}");
}

#[test]
fn a_machine_that_is_shutting_down_may_be_stopped_again() {
    let node = Node::start();
    // A guest that does not notice the power button.
    let disk = node.sheaf.scratch("a.img");
    let mut sector = assemble("count");
    sector.resize(1 << 20, 0);
    std::fs::write(&disk, sector).unwrap();
    node.kubectl().apply(&machine("a", "Always", &disk));
    running(&node, "a");
    assert_eq!(node.sheaf.run("vm stop a"), "a is shutting down\n");
    let again = node.sheaf.run("vm stop a");
    assert!(again.starts_with("a is shutting down already; it is killed 20 s after"), "{again}");
    assert_eq!(node.sheaf.run("vm stop a --force"), "a is killed\n");
    node.until_empty();
    node.until(&at(VMS, "a"), "/status/printableStatus", "Stopped");
    assert!(node.sheaf.refused("vm stop a").contains("VM is not running"));
}

#[test]
fn a_guest_that_is_reset_boots_anew_and_stays_the_same_instance() {
    let node = Node::start();
    node.kubectl().apply(&machine("a", "Always", &node.disk("a.img")));
    let vmi = running(&node, "a");
    node.until_said("boot 1");
    let processes = node.processes();
    let reset =
        "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/a/reset";
    let reply = node.sheaf.http().put(reset, &serde_json::json!({}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    node.until_said("boot 2");
    assert_eq!(running(&node, "a")["metadata"]["uid"], vmi["metadata"]["uid"]);
    assert_eq!(node.processes(), processes);
    node.kubectl().run("delete vm a");
    node.until_empty();
    let gone = node.sheaf.http().put(reset, &serde_json::json!({}));
    assert_eq!(gone.status, 404, "{}", gone.text());
}

#[test]
fn a_guest_outlives_the_server_and_is_found_again() {
    let mut node = Node::start();
    node.kubectl().apply(&machine("a", "Always", &node.disk("a.img")));
    running(&node, "a");
    node.until_said("boot 1");
    let before = node.processes();
    assert_eq!(before.len(), 1);

    node.sheaf.kill();
    assert_eq!(node.processes(), before);
    node.sheaf.begin();

    // Its console is read again, so the machine is managed again.
    let output = node.said().len();
    eventually("the console is read", || node.said().len() > output);
    running(&node, "a");
    assert_eq!(node.processes(), before);
    assert_eq!(node.said().matches("boot").count(), 1);

    node.kubectl().run("delete vm a");
    node.until_empty();
}

#[test]
fn a_guest_that_is_killed_fails_and_is_started_again() {
    let node = Node::start();
    node.kubectl().apply(&machine("a", "Always", &node.disk("a.img")));
    let first = running(&node, "a");
    let uid = first["metadata"]["uid"].as_str().unwrap().to_owned();
    node.until_said("boot 1");
    kill_process(node.processes()[0], Signal::KILL).unwrap();
    eventually("another run has begun", || {
        let vmi = node.sheaf.http().get(&at(VMIS, "a")).json();
        vmi["metadata"]["uid"] != uid.as_str() && vmi["status"]["phase"] == "Running"
    });
    node.until_said("boot 2");
    assert_eq!(node.processes().len(), 1);
}

#[test]
fn a_guest_that_powers_off_has_succeeded() {
    let node = Node::start();
    node.kubectl().apply(&machine("a", "Once", &node.disk("a.img")));
    running(&node, "a");
    node.until_said("boot 1");
    // Through the console: the guest shows what it said, and takes an `x` for the end.
    let mut console = node.console("a");
    let mut shown = Vec::new();
    while !String::from_utf8_lossy(&shown).contains("boot 1") {
        let mut piece = [0; 256];
        let length = console.read(&mut piece).unwrap();
        assert!(length > 0, "the console ended after {:?}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&piece[..length]);
    }
    console.write_all(b"x").unwrap();
    node.until(&at(VMIS, "a"), "/status/phase", "Succeeded");
    node.until_empty();
    node.until(&at(VMS, "a"), "/status/printableStatus", "Stopped");
}

#[test]
fn a_machine_waits_for_what_is_missing_and_says_for_what() {
    let mut node = Node::start();
    node.sheaf.provokes("guest cannot be started yet");
    let kubectl = node.kubectl();
    kubectl.apply(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: a}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {guest: 16Mi}
    devices: {disks: [{name: seed, disk: {bus: virtio}}]}
  volumes: [{name: seed, cloudInitNoCloud: {secretRef: {name: later}}}]
",
    );
    eventually("the condition names the secret", || {
        let vmi = node.sheaf.http().get(&at(VMIS, "a")).json();
        let conditions = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|each| {
            each["type"] == "Synchronized"
                && each["status"] == "False"
                && each["message"].as_str().is_some_and(|text| text.contains("secret later"))
        })
    });
    assert!(node.processes().is_empty());
    kubectl.run("create secret generic later --from-literal=userdata=#!hello");
    let vmi = running(&node, "a");
    let conditions = vmi["status"]["conditions"].as_array().unwrap();
    assert!(!conditions.iter().any(|each| each["type"] == "Synchronized"), "{conditions:?}");
    kubectl.run("delete vmi a");
    node.until_empty();
}

#[test]
fn a_killed_server_leaves_one_guest_or_none() {
    let mut node = Node::start();
    let kubectl = node.kubectl();
    kubectl.apply(&machine("a", "Halted", &node.disk("a.img")));
    for round in 0..6 {
        let strategy = if round % 2 == 0 { "Always" } else { "Halted" };
        let patch = format!(r#"{{"spec":{{"runStrategy":"{strategy}"}}}}"#);
        node.kubectl().run(&format!("patch vm a --type merge -p {patch}"));
        // At any point of its work.
        std::thread::sleep(Duration::from_millis(60 * round));
        node.sheaf.kill();
        assert!(node.processes().len() <= 1);
        node.sheaf.begin();
        let wanted = if round % 2 == 0 { "Running" } else { "Stopped" };
        node.until(&at(VMS, "a"), "/status/printableStatus", wanted);
        let expected = usize::from(round % 2 == 0);
        eventually("there are as many guests as there should be", || {
            node.processes().len() == expected && node.folders().len() == expected
        });
    }
}

#[test]
fn a_full_disk_pauses_the_guest_until_there_is_room() {
    let mut node = Node::start();
    node.sheaf.provokes("guest is paused by a failed request of a disk");
    let small = Small::mount(node.sheaf.scratch("small"));
    let disk = small.path.join("fill.img");
    std::fs::write(&disk, assemble("fill")).unwrap();
    std::fs::File::options().write(true).open(&disk).unwrap().set_len(17 << 20).unwrap();
    node.kubectl().apply(&format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: a}}
spec:
  terminationGracePeriodSeconds: 0
  domain:
    memory: {{guest: 16Mi}}
    devices: {{disks: [{{name: root, disk: {{bus: virtio}}}}]}}
  volumes: [{{name: root, hostDisk: {{path: {}, type: Disk}}}}]
",
        disk.display()
    ));
    let paused = || {
        let vmi = node.sheaf.http().get(&at(VMIS, "a")).json();
        let conditions = vmi["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|each| each["reason"] == "PausedIOError")
    };
    eventually("the guest is paused", paused);
    small.grow();
    node.until_said("full");
    eventually("the guest is no longer paused", || !paused());
    node.kubectl().run("delete vmi a");
    node.until_empty();
}
