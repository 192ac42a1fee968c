//! Management nodes become workers and the reverse, and the last one goes back to SQLite, also if it is
//! killed on the way.

use http::Request;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Switch, said, token, until_status};
use crate::harness::{Http, Node, assert_has, poll};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RETURN: &str = "/sheaf/v1/etcd/return";

fn write(http: &Http, name: &str) -> u64 {
    revision(&http.post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).ok())
}

fn revision(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn join(switch: &Switch, port: u8, first: &Node, name: &str) -> Node {
    let (url, text) = token(&first.sheaf.run("token create --role management"));
    let mut node = switch.outsider(port, &url, &text, name);
    node.sheaf.provokes("");
    node.sheaf.begin();
    node
}

/// Waits until a node is listed in a role.
fn until_role(node: &Node, name: &str, role: &str) {
    poll(&format!("{name} is a {role}"), || {
        let list = said(node, "node list");
        let mut lines = list.lines();
        let is_it = |line: &str| {
            let mut words = line.split("  ").map(str::trim).filter(|word| !word.is_empty());
            words.next() == Some(name) && words.next() == Some(role)
        };
        if lines.any(is_it) { Ok(()) } else { Err(list) }
    });
}

fn until_serves(node: &Node, names: &[&str]) {
    poll("the server has all objects", || {
        if !node.sheaf.kubeconfig().exists() {
            return Err("it is no server yet".to_owned());
        }
        for name in names {
            let request = Request::get(format!("{CONFIG_MAPS}/{name}"));
            let answer = node.sheaf.http().try_send(request, "")?;
            if answer.status != 200 {
                return Err(answer.text());
            }
        }
        Ok(())
    });
}

fn phase(node: &Node) -> String {
    let text = std::fs::read(node.sheaf.data().join("etcd.json")).unwrap_or_default();
    let record: Value = serde_json::from_slice(&text).unwrap_or_default();
    record["phase"].as_str().unwrap_or_default().to_owned()
}

/// Kills the server as soon as its return to SQLite has come as far, and starts it again. etcd goes
/// on, as after a crash of the server alone, or dies with it.
fn kill_when(node: &mut Node, step: &str, with_etcd: bool, is_reached: impl Fn(&Node) -> bool) {
    poll(step, || if is_reached(node) { Ok(()) } else { Err(node.sheaf.log()) });
    let etcd = node.etcd().filter(|_| with_etcd);
    node.sheaf.end();
    if let Some(etcd) = etcd {
        kill_process(etcd, Signal::KILL).unwrap();
    }
    node.sheaf.start_without_waiting();
}

#[test]
fn three_management_nodes_become_one_with_sqlite_and_three_again() {
    let switch = Switch::new("shfone", "10.199.61", 3);
    let mut one = switch.management(1, "one");
    one.sheaf.provokes("");
    one.sheaf.begin();
    write(&one.sheaf.http(), "sqlite");
    let two = join(&switch, 2, &one, "two");
    until_ready(&one, "two");
    let three = join(&switch, 3, &one, "three");
    for node in [&one, &two, &three] {
        until_serves(node, &["sqlite"]);
    }
    until_status(&one, "etcd, 3 voters, 3 of 3 members healthy");

    // A worker and a management node again.
    assert_has(one.sheaf.refused("node demote one"), "serves this request");
    assert_has(one.sheaf.refused("node promote two"), "is a management node already");
    let output = one.sheaf.run("node demote three");
    assert_has(&output, "node three is a worker");
    assert_has(&output, "2 voters are left in etcd");
    until_role(&one, "three", "worker");
    until_status(&one, "2 voters, 2 of 2 members healthy");
    assert_has(one.sheaf.refused("node demote three"), "is a worker already");
    let refused = one.sheaf.http().post(RETURN, &json!({"keep": "one"}));
    assert_has(refused.refused(409), "two is a management node, too");
    one.sheaf.run("node promote three");
    until_status(&one, "etcd, 3 voters, 3 of 3 members healthy");
    until_serves(&three, &["sqlite"]);

    killed_on_the_way(&mut one);

    // Back into etcd, and all at once.
    let file = write(&one.sheaf.http(), "file");
    one.sheaf.run("node promote two");
    one.sheaf.run("node promote three");
    until_status(&one, "etcd, 3 voters, 3 of 3 members healthy");
    until_serves(&two, &["sqlite", "etcd", "file"]);
    let again = write(&one.sheaf.http(), "etcd-again");
    assert!(again > file, "{again} > {file}");
    assert_has(one.sheaf.refused("cluster reduce"), "use --yes");
    let output = one.sheaf.run("cluster reduce --yes");
    assert_has(&output, "one stays the only management node");
    assert_has(&output, "the objects are in SQLite on one");
    until_serves(&one, &["sqlite", "etcd", "file", "etcd-again"]);
    let last = write(&one.sheaf.http(), "last");
    assert!(last > again, "{last} > {again}");
    for name in ["two", "three"] {
        until_role(&one, name, "worker");
        until_ready(&one, name);
    }
    assert_has(one.sheaf.run("cluster reduce"), "in SQLite already");
}

fn killed_on_the_way(one: &mut Node) {
    for name in ["two", "three"] {
        until_done(one, &format!("node demote {name}"));
        until_role(one, name, "worker");
    }
    let before = write(&one.sheaf.http(), "etcd");
    let refused = one.sheaf.http().post(RETURN, &json!({"keep": "two"}));
    assert_has(refused.refused(409), "this is the management node one");
    one.sheaf.http().post(RETURN, &json!({"keep": "one"}));
    kill_when(one, "the return is noted", true, |one| phase(one) == "returning");
    let has_file = |one: &Node| {
        let file = |name: &str| one.sheaf.data().join(name).exists();
        file("state.db.partial") || file("state.db")
    };
    kill_when(one, "the file is begun", false, has_file);
    kill_when(one, "the file counts", false, |one| phase(one) == "returned");
    until_status(one, "SQLite");
    until_serves(one, &["sqlite", "etcd"]);
    let objects = one.sheaf.http().get(&format!("{CONFIG_MAPS}/etcd")).ok();
    assert_eq!(revision(&objects), before, "objects keep their revisions");
    let after = write(&one.sheaf.http(), "after");
    assert!(after > before, "{after} > {before}");
    // A watch from before continues or ends with 410; it never begins with a gap.
    let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion={before}&timeoutSeconds=5");
    let reply = one.sheaf.http().get(&watch);
    let first: Value = serde_json::from_str(reply.text().lines().next().unwrap()).unwrap();
    let is_gone = reply.status == 410 || first["object"]["code"] == 410;
    assert!(is_gone || first["object"]["metadata"]["name"] == "after", "{first}");
    assert!(one.etcd().is_none(), "etcd has ended");
}

/// Repeats a command while etcd refuses it after another change of its members.
fn until_done(node: &Node, line: &str) {
    poll(line, || {
        let output = node.sheaf.command(line);
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(complaint) }
    });
}
