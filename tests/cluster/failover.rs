//! A worker dies, is cut off, or loses its agent, while a guest writes to a replicated volume.

use std::time::Instant;

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::lab::{Switch, token};
use crate::harness::{Node, assemble, assert_has, eventually, poll};
use crate::volumes_node::lab::{Lab, VMIS, longhorn};

const NODES: &str = "/api/v1/nodes";

/// A guest that may run on the workers, on the first of them if possible.
const MACHINE: &str = "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: a}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 5
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: kubernetes.io/hostname, operator: In, values: [two, three]}
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 9
            preference:
              matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [two]}]
      domain:
        memory: {guest: 16Mi}
        devices:
          disks: [{name: root, disk: {bus: virtio}}]
          interfaces: [{name: default, masquerade: {}}]
      networks: [{name: default, pod: {}}]
      volumes: [{name: root, persistentVolumeClaim: {claimName: root}}]
";

/// One management node and two workers, and a guest that counts on its disk.
struct Cluster {
    lab: Lab,
    two: Node,
    three: Node,
    volume: String,
    /// Goes last.
    switch: Switch,
}

impl Cluster {
    fn start() -> Self {
        let switch = Switch::new("shfail", "10.199.42", 2);
        let lab = Lab::on(Node::management(&switch.here()));
        let mut workers = Vec::new();
        for (port, name) in [(1, "two"), (2, "three")] {
            let (url, text) = token(&lab.node.sheaf.run("token create"));
            let mut worker = switch.outsider(port, &url, &text, name);
            // A node that is killed or cut off logs warnings about everything.
            worker.sheaf.provokes("");
            worker.sheaf.begin();
            workers.push(worker);
        }
        let (three, two) = (workers.pop().unwrap(), workers.pop().unwrap());
        let mut cluster = Self { lab, two, three, volume: String::new(), switch };
        for part in
            ["node does not renew", "declared lost", "volume is degraded", "cannot", "retry"]
        {
            cluster.lab.node.sheaf.provokes(part);
        }
        for name in ["two", "three"] {
            cluster.until_ready(name, "True");
            cluster.lab.use_disk_of(name);
        }
        cluster
    }

    /// Puts the guest onto a volume with three copies, and starts it.
    fn boot(&mut self) {
        let image = self.lab.node.sheaf.scratch("count.img");
        let mut content = assemble("count");
        content.resize(1 << 20, 0);
        std::fs::write(&image, content).unwrap();
        self.volume = self.lab.claim("root", "16Mi");
        self.lab.write_image(&self.volume, &image);
        self.lab.node.kubectl().apply(MACHINE);
        self.until_runs_on("two");
        self.until_healthy();
    }

    fn until_ready(&self, name: &str, status: &str) -> Value {
        let http = self.lab.node.sheaf.http();
        poll(&format!("Ready of node {name} is {status}"), || {
            let node = http.get(&format!("{NODES}/{name}")).json();
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.into_iter().find(|own| own["type"] == "Ready");
            match ready {
                Some(ready) if ready["status"] == status => Ok(ready),
                _ => Err(node.to_string()),
            }
        })
    }

    /// Waits until a node may take machines again.
    fn until_back(&self, name: &str) {
        self.until_ready(name, "True");
        let http = self.lab.node.sheaf.http();
        poll(&format!("node {name} has no taints"), || {
            let node = http.get(&format!("{NODES}/{name}")).json();
            let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            if taints.is_empty() { Ok(()) } else { Err(node.to_string()) }
        });
    }

    fn until_runs_on(&self, name: &str) -> Value {
        let http = self.lab.node.sheaf.http();
        poll(&format!("the guest runs on {name}"), || {
            let vmi = http.get(&format!("{VMIS}/a")).json();
            let runs = vmi["status"]["phase"] == "Running" && vmi["status"]["nodeName"] == name;
            if runs { Ok(vmi) } else { Err(vmi.to_string()) }
        })
    }

    /// Waits until every node has a copy with everything.
    fn until_healthy(&self) {
        let path = format!("{}/{}", longhorn("volumes"), self.volume);
        self.lab.node.until(&path, "/status/robustness", "healthy");
    }
}

/// The counts that a guest has said, by the letter before them.
fn counts(node: &Node, letter: char) -> Vec<u64> {
    let said = node.said();
    let words = said.split_whitespace().filter_map(|word| word.strip_prefix(letter));
    words.filter_map(|word| u64::from_str_radix(word, 16).ok()).collect()
}

/// Waits until the guest on a node has written more.
fn until_writes(node: &Node) -> u64 {
    let before = counts(node, 'w').last().copied().unwrap_or_default();
    poll("the guest writes", || match counts(node, 'w').last() {
        Some(count) if *count > before => Ok(*count),
        other => Err(format!("{before} {other:?}")),
    })
}

/// Checks that the first count that the guest of a node read is no less than the last one
/// acknowledged.
fn check_nothing_is_lost(node: &Node, acknowledged: u64) {
    let found = poll("the guest has read its disk", || {
        counts(node, 's').first().copied().ok_or_else(|| node.said())
    });
    assert!(found >= acknowledged, "{acknowledged} was acknowledged, and {found} was found");
}

fn kill_everything(node: &mut Node) {
    node.sheaf.kill();
    if let Some(storage) = node.storage() {
        kill_process(storage, Signal::KILL).unwrap();
    }
    for process in node.processes() {
        kill_process(process, Signal::KILL).unwrap();
    }
}

fn restart(node: &mut Node, name: &str) {
    let arguments = ["--node-name", name, "--guest-network", "user"];
    node.sheaf.set_arguments(arguments.map(str::to_owned).to_vec());
    node.sheaf.begin();
}

/// The effect of the loss of a node is predicted, for users who may see everything.
fn predicts_the_loss(cluster: &Cluster) {
    let sheaf = &cluster.lab.node.sheaf;
    let output = sheaf.run("node what-if two");
    for part in ["default/a   starts on three", "default/root   2 of 3        degraded"] {
        assert_has(&output, part);
    }
    let path = "/sheaf/v1/what-if/nodes/two";
    let loss = sheaf.http().get(path).ok();
    assert_eq!(loss["machines"][0]["node"], "three", "{loss}");
    assert_has(sheaf.http().get("/sheaf/v1/what-if/nodes/nine").refused(404), "nine");
    let jane = sheaf.http().with("impersonate-user", "jane");
    assert_has(jane.get(path).refused(403), "cannot list");
}

#[test]
fn a_guest_survives_the_loss_of_its_node_and_never_runs_twice() {
    let mut cluster = Cluster::start();
    cluster.boot();
    until_writes(&cluster.two);

    predicts_the_loss(&cluster);

    // Everything on its node dies: it starts on another with all that was acknowledged.
    let written = until_writes(&cluster.two);
    kill_everything(&mut cluster.two);
    let (died, written) =
        (Instant::now(), counts(&cluster.two, 'w').last().map_or(written, |it| *it));
    eventually("QEMU starts elsewhere", || !cluster.three.processes().is_empty());
    eprintln!("QEMU started elsewhere after {:.1} s", died.elapsed().as_secs_f64());
    cluster.until_runs_on("three");
    check_nothing_is_lost(&cluster.three, written);
    let events = cluster.lab.node.kubectl().run("get events -A");
    assert_has(&events, "NodeLost");
    restart(&mut cluster.two, "two");
    cluster.until_back("two");
    cluster.two.until_empty();
    cluster.until_healthy();

    // Its node is cut off: it is paused there before it starts on the other, and is killed when
    // the node is back.
    until_writes(&cluster.three);
    let old = cluster.three.processes();
    cluster.switch.set_cable(2, false);
    let cut = Instant::now();
    eventually("QEMU starts elsewhere", || !cluster.two.processes().is_empty());
    let still = counts(&cluster.three, 'w');
    eprintln!("QEMU started elsewhere after {:.1} s", cut.elapsed().as_secs_f64());
    cluster.until_runs_on("two");
    until_writes(&cluster.two);
    assert_eq!(counts(&cluster.three, 'w'), still, "both guests execute");
    assert_eq!(cluster.three.processes(), old, "it is paused, not killed");
    check_nothing_is_lost(&cluster.two, *still.last().unwrap());
    cluster.switch.set_cable(2, true);
    cluster.three.until_empty();
    cluster.until_back("three");
    cluster.until_healthy();

    // Only its agent dies: it runs on where it is. No agent records its output meanwhile.
    let before = cluster.until_runs_on("two");
    let (process, written) = (cluster.two.processes(), until_writes(&cluster.two));
    cluster.two.sheaf.kill();
    let ready = cluster.until_ready("two", "Unknown");
    assert_eq!(ready["reason"], "AgentDown", "{ready}");
    restart(&mut cluster.two, "two");
    cluster.until_back("two");
    let after = cluster.until_runs_on("two");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(cluster.two.processes(), process);
    assert!(until_writes(&cluster.two) > written + 1, "it was paused");
    assert_eq!(counts(&cluster.two, 's').len(), 1, "it has booted once");
}
