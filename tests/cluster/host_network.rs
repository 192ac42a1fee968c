//! Changes of hosts' networks are tried on one node at a time, and kept or rolled back.
//!
//! VLANs and bonds need a kernel that has them: `make net-test` runs the long test in a QEMU machine
//! with Debian's. Nodes are network namespaces there as everywhere.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Switch, token};
use crate::harness::{Events, Http, Node, assert_has, poll_slowly as poll};

const NETWORKS: &str = "/apis/network.harvesterhci.io/v1beta1";
const HOSTS: &str = "/apis/network.harvesterhci.io/v1beta1/hostnetworkconfigs";
const NODES: &str = "/api/v1/nodes";
const TRIAL: &str = "sheaf.io/network-trial";
/// The port of the switch that each node is at.
const TWO: (u8, &str) = (2, "two");
const THREE: (u8, &str) = (3, "three");

fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "network.harvesterhci.io/v1beta1", "kind": kind,
        "metadata": {"name": name, "annotations": {"sheaf.io/network-deadline": "40"}},
        "spec": spec})
}

/// An uplink of one node.
fn uplink(node: &str, card: &str) -> Value {
    let spec = json!({"clusterNetwork": "lan", "uplink": {"nics": [card]},
        "nodeSelector": {"kubernetes.io/hostname": node}});
    object("VlanConfig", &format!("lan-{node}"), spec)
}

fn create_network(http: &Http) {
    let network = json!({"apiVersion": "network.harvesterhci.io/v1beta1",
        "kind": "ClusterNetwork", "metadata": {"name": "lan"}});
    http.post(&format!("{NETWORKS}/clusternetworks"), &network).ok();
}

/// Status, reason and message of what became of the last change.
fn applied(conditions: &Value) -> (String, String) {
    let mut all = conditions.as_array().into_iter().flatten();
    let found = all.find(|own| own["type"] == "networkApplied").cloned().unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

fn uplink_state(http: &Http, node: &str) -> (String, String) {
    let all = http.get(&format!("{NETWORKS}/vlanstatuses")).ok();
    let mut all = all["items"].as_array().into_iter().flatten();
    let own = all.find(|own| own["status"]["node"] == node).cloned().unwrap_or_default();
    applied(&own["status"]["conditions"])
}

/// The entry of a node in the HostNetworkConfig.
fn entry(http: &Http, node: &str) -> Value {
    http.get(&format!("{HOSTS}/storage")).ok()["status"]["nodeStatus"][node].clone()
}

/// Waits until the present generation has a reason at a node; answers with the message.
fn until(http: &Http, node: &str, reason: &str) -> String {
    poll(&format!("the interface of {node} is {reason}"), || {
        let object = http.get(&format!("{HOSTS}/storage")).ok();
        let own = &object["status"]["nodeStatus"][node];
        let is_new = own["observedGeneration"] == object["metadata"]["generation"];
        let (found, message) = applied(&own["conditions"]);
        if is_new && found == reason { Ok(message) } else { Err(own.to_string()) }
    })
}

fn in_space(switch: &Switch, port: u8, line: &str) -> String {
    let space = switch.space(port);
    let words = ["netns", "exec", &space].into_iter().chain(line.split(' '));
    let output = Command::new("ip").args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn addresses(switch: &Switch, port: u8) -> String {
    in_space(switch, port, "ip -4 -o address show dev lan-br.100")
}

fn pings(switch: &Switch, from: u8, to: &str) -> bool {
    in_space(switch, from, &format!("busybox ping -c 1 -W 2 {to}")).contains("1 packets received")
}

/// The most nodes that had a change on trial at the same time, until the test is over.
fn most_at_once(mut events: Events, is_over: &AtomicBool) -> usize {
    let mut on_trial = BTreeSet::new();
    let mut most = 0;
    loop {
        let Some(event) = events.next_within(Duration::from_secs(2)) else {
            if is_over.load(Ordering::Relaxed) {
                return most;
            }
            continue;
        };
        let node = &event["object"]["metadata"];
        let name = node["name"].as_str().unwrap_or_default().to_owned();
        if node["annotations"][TRIAL].is_string() {
            on_trial.insert(name);
        } else {
            on_trial.remove(&name);
        }
        most = most.max(on_trial.len());
    }
}

fn addresses_of(two: &str, three: &str) -> Value {
    json!({"two": two, "three": three})
}

#[test]
fn a_change_that_a_kernel_refuses_is_rolled_back_with_the_reason() {
    let switch = Switch::new("shfhnr", "10.199.49", 1);
    switch.add_trunk(1, "eth1");
    let mut one = switch.networked_management(1, "one");
    one.sheaf.begin();
    until_ready(&one, "one");
    assert_has(one.sheaf.run("host network show one"), "Node one has none");
    let http = one.sheaf.http();
    create_network(&http);
    http.post(&format!("{NETWORKS}/vlanconfigs"), &uplink("one", "eth1")).ok();
    let (reason, message) = poll("the change is over", || {
        let (reason, message) = uplink_state(&http, "one");
        let is_over = ["RolledBack", "Confirmed"].contains(&reason.as_str());
        if is_over { Ok((reason, message)) } else { Err(format!("{reason} {message}")) }
    });
    let shown = one.sheaf.run("host network show one");
    assert_has(&shown, "No change is on trial");
    assert_has(&shown, &reason);
    if fs::exists("/proc/net/bonding").unwrap() {
        assert_eq!(reason, "Confirmed", "{message}");
        return;
    }
    assert_has(&message, "ensure bridge lan-br failed, error: ");
    let record = fs::read_to_string(one.sheaf.data().join("agent/host-network.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!((&record["trial"], &record["confirmed"]), (&Value::Null, &json!({})));
    assert!(!in_space(&switch, 1, "ip -o link").contains("lan-br"), "the bridge is gone again");
    // Nothing is built on it, and the turn was given back.
    let spec = json!({"clusterNetwork": "lan", "vlanID": 100, "mode": "static",
        "ips": {"one": "198.51.100.1/24"}});
    let refused = http.post(HOSTS, &object("HostNetworkConfig", "storage", spec)).text();
    assert_has(refused, "status is not Ready");
    poll("the turn is given back", || {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/sheaf-host-network";
        let lease = http.get(lease).ok();
        if lease["spec"]["holderIdentity"] == "" { Ok(()) } else { Err(lease.to_string()) }
    });
}

#[test]
#[ignore = "needs a kernel with 8021q and bonding: make net-test"]
fn a_change_is_kept_where_the_node_is_seen_and_rolled_back_where_not() {
    let switch = Switch::new("shfhnet", "10.199.48", 3);
    switch.add_trunk(1, "eth1");
    let mut one = switch.used_management(1, "one");
    one.sheaf.begin();
    // An emulated machine takes its time.
    until_ready(&one, "one");
    let mut workers = [TWO, THREE].map(|(port, name)| {
        switch.add_trunk(port, "eth1");
        switch.add_loose_cable(port, "eth2");
        let (url, text) = token(&one.sheaf.run("token create"));
        let mut worker = switch.networked_outsider(port, &url, &text, name);
        worker.sheaf.begin();
        worker
    });
    let http = one.sheaf.http();
    for (_, name) in [TWO, THREE] {
        until_ready(&one, name);
    }
    let version = http.get(NODES).ok()["metadata"]["resourceVersion"].clone();
    let version = version.as_str().unwrap().to_owned();
    let watch = http.watch(&format!("{NODES}?watch=true&resourceVersion={version}"));
    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let is_over = is_over.clone();
        move || most_at_once(watch, &is_over)
    });
    create_network(&http);
    for (_, name) in [TWO, THREE] {
        http.post(&format!("{NETWORKS}/vlanconfigs"), &uplink(name, "eth1")).ok();
    }
    for (_, name) in [TWO, THREE] {
        poll(&format!("the uplink of {name} is confirmed"), || {
            let (reason, message) = uplink_state(&http, name);
            if reason == "Confirmed" { Ok(()) } else { Err(format!("{reason} {message}")) }
        });
    }
    confirmed_by_itself(&switch, &http);
    refused_address(&switch, &http);
    wrong_cable(&switch, &http);
    leased(&switch, &http, &one);
    confirmed_by_a_person(&one, &http);
    killed_during_a_trial(&switch, &http, &mut workers[0]);
    is_over.store(true, Ordering::Relaxed);
    assert_eq!(watcher.join().unwrap(), 1, "one node changes its network at a time");
}

/// Both nodes get an interface, and another subnet later, without an administrator.
fn confirmed_by_itself(switch: &Switch, http: &Http) {
    let selector = json!({"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["two", "three"]}]});
    let spec = json!({"clusterNetwork": "lan", "vlanID": 100, "mode": "static",
        "ips": addresses_of("198.51.100.2/24", "198.51.100.3/24"), "nodeSelector": selector});
    http.post(HOSTS, &object("HostNetworkConfig", "storage", spec)).ok();
    for (port, name) in [TWO, THREE] {
        until(http, name, "Confirmed");
        assert_has(addresses(switch, port), &format!("198.51.100.{port}/24"));
    }
    assert!(pings(switch, 2, "198.51.100.3"), "nodes reach each other in the VLAN");
    edit(http, &addresses_of("203.0.113.2/24", "203.0.113.3/24"));
    for (port, name) in [TWO, THREE] {
        until(http, name, "Confirmed");
        let shown = addresses(switch, port);
        assert_has(&shown, &format!("203.0.113.{port}/24"));
        assert!(!shown.contains("198.51.100."), "{shown}");
        assert_eq!(entry(http, name)["address"], format!("203.0.113.{port}/24"));
    }
}

/// An address from a server in another VLAN.
fn leased(switch: &Switch, http: &Http, one: &Node) {
    let conf = one.sheaf.scratch("udhcpd.conf");
    let leases = one.sheaf.scratch("udhcpd.leases");
    fs::write(&leases, "").unwrap();
    let text = format!(
        "start 192.0.2.10\nend 192.0.2.20\ninterface eth1.200\nlease_file {}\n\
         pidfile /dev/null\noption subnet 255.255.255.0\noption lease 600\n",
        leases.display()
    );
    fs::write(&conf, text).unwrap();
    for line in [
        "ip link add link eth1 name eth1.200 type vlan id 200",
        "ip address add 192.0.2.1/24 dev eth1.200",
        "ip link set eth1.200 up",
    ] {
        in_space(switch, 1, line);
    }
    let mut server = Command::new("ip")
        .args(["netns", "exec", &switch.space(1), "busybox", "udhcpd", "-f"])
        .arg(&conf)
        .spawn()
        .unwrap();
    let spec = json!({"clusterNetwork": "lan", "vlanID": 200, "mode": "dhcp",
        "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": "three"}}});
    http.post(HOSTS, &object("HostNetworkConfig", "leased", spec)).ok();
    poll("an address comes by DHCP", || {
        let object = http.get(&format!("{HOSTS}/leased")).ok();
        let own = &object["status"]["nodeStatus"]["three"];
        let address = own["address"].as_str().unwrap_or_default();
        let is_kept = applied(&own["conditions"]).0 == "Confirmed";
        if is_kept && address.starts_with("192.0.2.1") { Ok(()) } else { Err(own.to_string()) }
    });
    assert!(pings(switch, 3, "192.0.2.1"));
    server.kill().unwrap();
    server.wait().unwrap();
}

fn edit(http: &Http, ips: &Value) {
    http.merge(&format!("{HOSTS}/storage"), &json!({"spec": {"ips": ips}})).ok();
}

/// Another station in the VLAN has the address.
fn refused_address(switch: &Switch, http: &Http) {
    for line in [
        "ip link set eth1 up",
        "ip link add link eth1 name eth1.100 type vlan id 100",
        "ip address add 203.0.113.77/24 dev eth1.100",
        "ip link set eth1.100 up",
    ] {
        in_space(switch, 1, line);
    }
    edit(http, &addresses_of("203.0.113.77/24", "203.0.113.3/24"));
    let message = until(http, "two", "RolledBack");
    assert_has(message, "203.0.113.77/24 of lan-br.100 is already used by the station with MAC");
    let shown = addresses(switch, 2);
    assert!(shown.contains("203.0.113.2/24") && !shown.contains(".77/"), "{shown}");
    assert_eq!(entry(http, "two")["address"], "203.0.113.2/24");
    // The other node has nothing to change, and says so.
    until(http, "three", "Confirmed");
    edit(http, &addresses_of("203.0.113.2/24", "203.0.113.3/24"));
    until(http, "two", "Confirmed");
}

/// The uplink moves to a card whose cable leads nowhere.
fn wrong_cable(switch: &Switch, http: &Http) {
    let path = format!("{NETWORKS}/vlanconfigs/lan-two");
    let nics = |card: &str| json!({"spec": {"uplink": {"nics": [card]}}});
    http.merge(&path, &nics("eth2")).ok();
    let message = poll("the uplink is rolled back", || match uplink_state(http, "two") {
        (reason, message) if reason == "RolledBack" => Ok(message),
        (reason, message) => Err(format!("{reason} {message}")),
    });
    assert_has(message, "none of the other nodes answers on lan-br.100, of 203.0.113.3");
    assert!(pings(switch, 2, "203.0.113.3"), "the earlier uplink is in place again");
    http.merge(&path, &nics("eth1")).ok();
    until(http, "two", "Confirmed");
}

fn confirmed_by_a_person(one: &Node, http: &Http) {
    let mut tried = http.get(&format!("{HOSTS}/storage")).ok();
    tried["spec"]["ips"] = addresses_of("203.0.113.22/24", "203.0.113.3/24");
    let file = one.sheaf.scratch("host.yaml");
    let object = json!({"apiVersion": tried["apiVersion"], "kind": tried["kind"],
        "metadata": {"name": "storage"}, "spec": tried["spec"]});
    fs::write(&file, object.to_string()).unwrap();
    let line = format!("host network try --deadline 60 -f {}", file.display());
    assert_has(one.sheaf.run(&line), "host network confirm");
    until(http, "two", "AwaitingConfirmation");
    assert_has(one.sheaf.run("host network show two"), "unless it is confirmed");
    assert_has(one.sheaf.run("host network confirm two"), "is to be kept");
    until(http, "two", "Confirmed");
    assert_eq!(entry(http, "two")["address"], "203.0.113.22/24");
    assert_has(one.sheaf.refused("host network confirm two"), "is on trial");
}

/// The watchdog rolls back what a server cannot any more.
fn killed_during_a_trial(switch: &Switch, http: &Http, two: &mut Node) {
    // Without a confirmation by now.
    edit(http, &addresses_of("203.0.113.99/24", "203.0.113.3/24"));
    until(http, "two", "AwaitingConfirmation");
    assert_has(addresses(switch, 2), "203.0.113.99/24");
    two.sheaf.kill();
    poll("the watchdog rolls the change back", || {
        let shown = addresses(switch, 2);
        let is_back = shown.contains("203.0.113.22/24") && !shown.contains("203.0.113.99/24");
        if is_back { Ok(()) } else { Err(shown) }
    });
    two.sheaf.begin();
    let message = until(http, "two", "RolledBack");
    assert_has(message, "not confirmed before its deadline");
    assert_eq!(entry(http, "two")["address"], "203.0.113.22/24");
}
