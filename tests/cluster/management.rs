//! Three management nodes: the move into etcd, the API from each of them, and the loss of any one.

use std::process::Command;

use http::{Request, request};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Switch, as_node, refusal, token, until_status};
use crate::harness::{Http, Node, assert_has, binary, output_of, poll};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const KEYS: &str = "/sheaf/v1/management-keys";
const SLICE: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";

/// A leader may be elected in between, and the answer to a write be lost.
fn write(http: &Http, name: &str) -> u64 {
    let body = json!({"metadata": {"name": name}}).to_string();
    let written = poll("an object is written", || {
        let made = http.try_send(post(), body.clone())?;
        match made.status {
            201 => Ok(made),
            409 => http.try_send(get(name), ""),
            _ => Err(made.text()),
        }
    });
    revision(&written.ok())
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn get(name: &str) -> request::Builder {
    Request::get(format!("{CONFIG_MAPS}/{name}"))
}

fn post() -> request::Builder {
    Request::post(CONFIG_MAPS).header("content-type", "application/json")
}

/// Waits until the server of a node answers with everything that was written.
fn until_serves(node: &Node, names: &[&str]) {
    poll("the server has all objects", || {
        let kubeconfig = node.sheaf.kubeconfig();
        if !kubeconfig.exists() {
            return Err("it is no server yet".to_owned());
        }
        for name in names {
            let answer = node.sheaf.http().try_send(get(name), "")?;
            if answer.status != 200 {
                return Err(answer.text());
            }
        }
        Ok(())
    });
}

/// Everything of a machine dies at once.
fn kill(node: &mut Node) {
    let etcd = node.etcd();
    node.sheaf.end();
    if let Some(etcd) = etcd {
        kill_process(etcd, Signal::KILL).unwrap();
    }
}

fn join(switch: &Switch, port: u8, first: &Node, name: &str) -> Node {
    let (url, text) = token(&first.sheaf.run("token create --role management"));
    let mut node = switch.outsider(port, &url, &text, name);
    // A node that is killed, or waits for others, logs warnings.
    node.sheaf.provokes("");
    node.sheaf.begin();
    node
}

fn endpoints(http: &Http) -> Vec<String> {
    let slice = http.get(SLICE).json();
    let all = slice["endpoints"].as_array().cloned().unwrap_or_default();
    let mut all: Vec<String> =
        all.iter().filter_map(|own| Some(own["addresses"][0].as_str()?.to_owned())).collect();
    all.sort();
    all
}

/// Nodes and leases that the endpoints depend on.
fn evidence(node: &Node) -> String {
    let http = node.sheaf.http();
    let nodes = http.get("/api/v1/nodes").json();
    let facts = nodes["items"].as_array().into_iter().flatten().map(|node| {
        let ready = node["status"]["conditions"].as_array().into_iter().flatten();
        let ready = ready.filter(|own| own["type"] == "Ready").map(|own| own["status"].clone());
        json!([
            node["metadata"]["name"],
            node["metadata"]["labels"]["node-role.kubernetes.io/control-plane"],
            node["metadata"]["annotations"]["sheaf.io/api-url"],
            ready.collect::<Vec<_>>(),
        ])
    });
    let facts: Vec<Value> = facts.collect();
    let leases = http.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases").json();
    json!([facts, leases["items"]]).to_string()
}

#[test]
fn three_management_nodes_outlive_any_one_of_them() {
    let switch = Switch::new("shfmgmt", "10.199.45", 4);
    let mut one = switch.management(1, "one");
    one.sheaf.provokes("");
    one.sheaf.begin();
    let http = one.sheaf.http();
    let before = write(&http, "sqlite");

    // A worker gets no keys, whatever it asks with.
    let (url, text) = token(&one.sheaf.run("token create"));
    let mut wrong = switch.outsider(4, &url, &text, "four");
    let role = ["--join", &url, "--token", &text, "--node-name", "four", "--role", "management"];
    wrong.sheaf.set_arguments(role.map(str::to_owned).to_vec());
    assert_has(refusal(&wrong), "the token is for a worker node");
    let mut four = switch.outsider(4, &url, &text, "four");
    four.sheaf.provokes("");
    four.sheaf.begin();
    until_ready(&one, "four");
    let refused = as_node(&one, &four).post(KEYS, &json!({}));
    assert_has(refused.refused(403), "only management nodes get the keys");
    let bearer = auth::token::join::JoinToken::parse(&text).unwrap().bearer();
    let refused = one.sheaf.bearer(&bearer).post(KEYS, &json!({}));
    assert_has(refused.refused(403), "only management nodes get the keys");
    assert_eq!(http.post(KEYS, &json!({})).status, 403, "not even an administrator");

    // The second waits; with the third, the objects move.
    let two = join(&switch, 2, &one, "two");
    until_ready(&one, "two");
    assert_has(one.sheaf.run("node list"), "management (waiting)");
    until_status(&one, "SQLite");
    let three = join(&switch, 3, &one, "three");
    let mut nodes = [one, two, three];
    for node in &nodes {
        until_serves(node, &["sqlite"]);
    }
    let after = write(&nodes[1].sheaf.http(), "etcd");
    assert!(after > before, "{after} > {before}");
    until_serves(&nodes[2], &["sqlite", "etcd"]);
    until_status(&nodes[0], "etcd, 3 voters, 3 of 3 members healthy");
    let all = [1, 2, 3].map(|port| switch.address(port));
    poll("all servers are endpoints", || {
        let found = endpoints(&nodes[0].sheaf.http());
        if found == all { Ok(()) } else { Err(format!("{found:?}\n{}", evidence(&nodes[0]))) }
    });

    let backup = nodes[1].sheaf.scratch("backup.db");
    let output = nodes[1].sheaf.run(&format!("store backup --to {}", backup.display()));
    assert_has(&output, "backed up to");
    let restored = nodes[1].sheaf.scratch("restored");
    let restore = ["store", "restore", "--from"].map(std::ffi::OsString::from);
    let restored_by = output_of(
        Command::new(binary()).args(restore).arg(&backup).arg("--data-dir").arg(&restored),
    );
    assert!(restored_by.status.success(), "{}", String::from_utf8_lossy(&restored_by.stderr));

    any_one_dies_and_comes_back(&mut nodes);

    // A node goes for good.
    // etcd removes none while another one was connected for less than five seconds.
    poll("node three is removed", || {
        let output = nodes[0].sheaf.command("node remove three");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(complaint) }
    });
    until_status(&nodes[0], "2 voters, 2 of 2 members healthy");
    until_ended(&mut nodes[2], "was removed from the cluster");
    the_last_one_goes_on_alone(&mut nodes);
}

/// The others go on meanwhile.
fn any_one_dies_and_comes_back(nodes: &mut [Node; 3]) {
    for dead in 0..3 {
        let other = (dead + 1) % 3;
        kill(&mut nodes[dead]);
        let name = format!("without-{dead}");
        poll("the others take writes", || {
            let body = json!({"metadata": {"name": name}}).to_string();
            let made = nodes[other].sheaf.http().try_send(post(), body)?;
            if [201, 409].contains(&made.status) { Ok(()) } else { Err(made.text()) }
        });
        // The command finds a server that answers.
        until_status(&nodes[dead], "2 of 3 members healthy");
        nodes[dead].sheaf.begin();
        until_serves(&nodes[dead], &["sqlite", "etcd", &name]);
        // Only a whole cluster outlives the next one.
        until_status(&nodes[dead], "3 of 3 members healthy");
    }
}

fn until_ended(node: &mut Node, reason: &str) {
    poll("the removed node ends", || {
        if node.sheaf.is_running() { Err(node.sheaf.log()) } else { Ok(()) }
    });
    assert_has(node.sheaf.log(), reason);
}

/// The majority is lost, and one node recovers; the other comes back without its vote.
fn the_last_one_goes_on_alone(nodes: &mut [Node; 3]) {
    let recover = |node: &Node, flags: &str| {
        let output = node.sheaf.command_there(&format!("cluster recover {flags}"));
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let (is_done, said) = recover(&nodes[0], "--yes");
    assert!(!is_done && said.contains("stop Sheaf on this node first"), "{said}");
    nodes[0].sheaf.end();
    let (is_done, said) = recover(&nodes[0], "--yes");
    assert!(!is_done && said.contains("etcd has a majority"), "{said}");

    kill(&mut nodes[1]);
    let (is_done, said) = recover(&nodes[0], "");
    assert!(!is_done && said.contains("use --yes"), "{said}");
    assert_has(&said, "does not answer         two");
    let (is_done, said) = recover(&nodes[0], "--yes");
    assert!(is_done && said.contains("one is the only member of etcd now"), "{said}");
    nodes[0].sheaf.begin();
    until_serves(&nodes[0], &["sqlite", "etcd", "without-0", "without-1", "without-2"]);
    write(&nodes[0].sheaf.http(), "alone");
    until_status(&nodes[0], "1 voters, 1 of 1 members healthy");

    // The other learns that it does not vote any more: it keeps its old data aside, and waits.
    nodes[1].sheaf.start_without_waiting();
    poll("the node is on standby", || {
        let log = nodes[1].sheaf.log();
        if log.contains("waiting to become a voter") { Ok(()) } else { Err(log) }
    });
    until_ready(&nodes[0], "two");
    until_status(&nodes[0], "1 voters, 1 of 1 members healthy");
    let kept = std::fs::read_dir(nodes[1].sheaf.data()).unwrap().flatten();
    let names = kept.map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.filter(|name| name.starts_with("etcd.removed-")).count(), 1);
    nodes[1].sheaf.end();
    nodes[0].sheaf.run("node remove two --force");
}
