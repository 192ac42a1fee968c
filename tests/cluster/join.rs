//! A worker joins with a token, runs machines, comes back after a kill, and is removed.

use serde_json::{Value, json};

use super::lab::{Wire, as_node, refusal, token, until_status, with_other_pin};
use super::worker_keys::{the_worker_gets_no_other_certificate, the_worker_has_its_own_key_only};
use crate::harness::{Node, Socket, assert_has, poll};

const NODES: &str = "/api/v1/nodes";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const GUEST: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// A machine for one node, with a secret that the node has to read.
fn machine(name: &str, node: &str, disk: &str) -> String {
    format!(
        "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {{name: {name}}}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 5
      nodeSelector: {{kubernetes.io/hostname: {node}}}
      domain:
        memory: {{guest: 16Mi}}
        devices:
          disks:
          - {{name: root, disk: {{bus: virtio}}}}
          - {{name: seed, disk: {{bus: virtio}}}}
          interfaces: [{{name: default, masquerade: {{}}}}]
      networks: [{{name: default, pod: {{}}}}]
      volumes:
      - {{name: root, hostDisk: {{path: {disk}, type: Disk}}}}
      - {{name: seed, cloudInitNoCloud: {{secretRef: {{name: seed-{name}}}}}}}
"
    )
}

pub(super) fn until_ready(management: &Node, name: &str) -> Value {
    let http = management.sheaf.http();
    poll(&format!("node {name} is ready"), || {
        let node = http.get(&format!("{NODES}/{name}")).json();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = |own: &Value| own["type"] == "Ready" && own["status"] == "True";
        if conditions.iter().any(ready) { Ok(node) } else { Err(node.to_string()) }
    })
}

/// Waits for output on a guest's console, through the management node.
fn until_heard(management: &Node, name: &str, part: &str) {
    let path = format!("{GUEST}/{name}/console");
    let mut console =
        poll(&format!("the console of {name} opens"), || Socket::open(&management.sheaf, &path));
    console.until(part.as_bytes());
}

/// A node changes and reads what is on it, and nothing else.
fn the_worker_is_not_the_cluster(management: &Node, worker: &Node) {
    let (node, http) = (as_node(management, worker), management.sheaf.http());
    node.get(&format!("{NODES}/one")).ok();
    node.get(&format!("{SECRETS}/seed-a")).ok();
    for path in [
        format!("{SECRETS}/other"),
        SECRETS.to_owned(),
        "/api/v1/secrets".to_owned(),
        "/api/v1/namespaces/kube-system/configmaps".to_owned(),
    ] {
        let refused = node.get(&path);
        assert_eq!(refused.status, 403, "{path}: {}", refused.text());
    }
    let label = |key: &str| json!({"metadata": {"labels": {key: "x"}}});
    for (path, patch, part) in [
        (format!("{NODES}/one"), label("a"), "node \"two\" is not allowed to modify node \"one\""),
        (format!("{NODES}/two"), label("node-role.kubernetes.io/control-plane"), "the label"),
        (format!("{NODES}/two"), json!({"spec": {"unschedulable": true}}), "the spec of its Node"),
        (format!("{VMIS}/b"), json!({"status": {"phase": "Failed"}}), "not placed on it"),
        (format!("{VMIS}/a"), json!({"status": {"nodeName": "one"}}), "the placement"),
    ] {
        let refused = node.merge(&path, &patch);
        assert_has(refused.refused(403), part);
    }
    assert_eq!(node.delete(&format!("{VMIS}/a")).status, 403);
    assert_eq!(node.delete(&format!("{NODES}/two")).status, 403);
    let masters = json!({"metadata": {"name": "mine"}, "rules": []});
    let refused = node.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &masters);
    assert_eq!(refused.status, 403);
    http.get(&format!("{VMIS}/a")).ok();
    has_audit_lines(
        management,
        "system:node:two",
        &[
            ("get", "secrets", "other"),
            ("list", "secrets", ""),
            ("list", "configmaps", ""),
            ("patch", "nodes", "one"),
            ("patch", "nodes", "two"),
            ("patch", "virtualmachineinstances", "b"),
            ("delete", "virtualmachineinstances", "a"),
            ("delete", "nodes", "two"),
            ("create", "clusterroles", ""),
        ],
    );
}

/// Waits until refusals of a user are in the audit log: verb, resource and name.
fn has_audit_lines(management: &Node, user: &str, refusals: &[(&str, &str, &str)]) {
    let log = management.sheaf.data().join("audit/audit.log");
    for (verb, resource, name) in refusals {
        poll(&format!("the refusal of {verb} {resource} {name} is in the audit log"), || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut refused = events.filter(|event| {
                event["user"]["username"] == user && event["responseStatus"]["code"] == 403
            });
            let is_known = refused.any(|event| {
                let object = &event["objectRef"];
                event["verb"] == *verb
                    && object["resource"] == *resource
                    && object["name"].as_str().unwrap_or_default() == *name
            });
            if is_known { Ok(()) } else { Err(text) }
        });
    }
}

#[test]
fn a_worker_joins_runs_machines_comes_back_and_is_removed() {
    let wire = Wire::new("shfjoin", "10.199.41");
    let one = Node::management(&wire.here());
    let printed = one.sheaf.run("token create");
    let (url, text) = token(&printed);
    assert_has(one.sheaf.run("token list"), "valid");

    // A token of another cluster is refused before anything is asked of this one.
    let stranger = wire.outsider(&url, &with_other_pin(&text), "two");
    assert_has(refusal(&stranger), "is not of the cluster that the token is for");

    let mut two = wire.outsider(&url, &text, "two");
    two.sheaf.begin();
    let node = until_ready(&one, "two");
    assert_eq!(node["status"]["addresses"][0]["address"], wire.there());
    assert_eq!(node["metadata"]["labels"]["node-role.harvesterhci.io/worker"], "true");
    let listed = one.sheaf.run("node list");
    assert_has(&listed, "management");
    assert_has(&listed, "worker");
    until_status(&one, "2 of 2 ready");

    // The token is used up, and the name is taken.
    assert_has(one.sheaf.run("token list"), "used up");
    let late = wire.outsider(&url, &text, "three");
    assert_has(refusal(&late), "is used up: it was used by two");
    let (_, more) = token(&one.sheaf.run("token create"));
    let twin = wire.outsider(&url, &more, "two");
    assert_has(refusal(&twin), "another machine is the node");

    let http = one.sheaf.http();
    for name in ["seed-a", "seed-b", "other"] {
        let seed = json!({"metadata": {"name": name}, "stringData": {"userdata": "#cloud-config"}});
        http.post(SECRETS, &seed).ok();
    }
    for (name, node) in [("a", "two"), ("b", "one")] {
        let disk = one.disk(&format!("{name}.img"));
        one.kubectl().apply(&machine(name, node, &disk.display().to_string()));
        let vmi = one.until(&format!("{VMIS}/{name}"), "/status/phase", "Running");
        assert_eq!(vmi["status"]["nodeName"], node);
    }
    let running = two.processes();
    assert_eq!(running.len(), 1);
    until_heard(&one, "a", ".");
    until_heard(&one, "b", ".");
    the_worker_is_not_the_cluster(&one, &two);
    the_worker_has_its_own_key_only(&one, &two);
    the_worker_gets_no_other_certificate(&one, &two);

    // Killed, it finds its machine again; it needs neither flag nor token.
    two.sheaf.kill();
    assert_eq!(two.processes(), running);
    let arguments = ["--node-name", "two", "--guest-network", "user"];
    two.sheaf.set_arguments(arguments.map(str::to_owned).to_vec());
    two.sheaf.begin();
    until_heard(&one, "a", ".");
    assert_eq!(two.processes(), running);

    // Removed, it gets in nowhere.
    let refused = one.sheaf.command("node remove two");
    assert_has(String::from_utf8_lossy(&refused.stderr), "1 machine (default/a)");
    two.sheaf.provokes("");
    one.sheaf.run("node remove two --force");
    let gone = as_node(&one, &two).get(&format!("{NODES}/one"));
    assert_has(gone.refused(403), "node \"two\" is not part of the cluster");

    // Nor when another machine has its name.
    let successor = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "two",
        "annotations": {"sheaf.io/node-key": "0".repeat(64)}}});
    http.post(NODES, &successor).ok();
    let gone = as_node(&one, &two).get(&format!("{NODES}/two"));
    assert_has(gone.refused(401), "is of a former node \"two\": another machine has joined");
}
