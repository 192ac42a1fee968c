//! Two management nodes and a witness: the objects move into etcd, and any one of the three may die.

use std::path::Path;
use std::process::Command;

use http::Request;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::join::until_ready;
use super::lab::{Switch, as_node, refusal, said, token, until_status};
use crate::harness::{Http, Node, assert_has, poll};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const VIP: &str = "10.199.50.100";
const CERTIFICATE: &str = "/sheaf/v1/etcd/witness-certificate";

/// Everything of a machine dies at once.
fn kill(node: &mut Node) {
    let etcd = node.etcd();
    node.sheaf.end();
    if let Some(etcd) = etcd {
        kill_process(etcd, Signal::KILL).unwrap();
    }
}

fn until_written(node: &Node, name: &str) {
    poll(&format!("{name} is written"), || {
        let body = json!({"metadata": {"name": name}}).to_string();
        let request = Request::post(CONFIG_MAPS).header("content-type", "application/json");
        let made = node.sheaf.http().try_send(request, body)?;
        if [201, 409].contains(&made.status) { Ok(()) } else { Err(made.text()) }
    });
}

/// Whether the address is on the interface of the machine at a port.
fn has_virtual_address(switch: &Switch, port: u8) -> bool {
    let words = ["-n", &switch.space(port), "address", "show", "dev", "eth0"];
    let output = Command::new("ip").args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains(&format!("{VIP}/32"))
}

fn until_virtual_address_serves(kubeconfig: &Path) {
    poll("the virtual address serves", || {
        let http = Http::from_kubeconfig(kubeconfig);
        let found = http.try_send(Request::get(format!("{CONFIG_MAPS}/sqlite")), "")?;
        if found.status == 200 { Ok(()) } else { Err(found.text()) }
    });
}

/// The rights of the witness's certificate, and the limits of them.
fn the_witness_has_no_rights(one: &Node, witness: &Node) {
    let http = as_node(one, witness);
    for (path, status) in [
        ("/api/v1/nodes", 200),
        ("/api/v1/namespaces/default/secrets", 403),
        ("/apis/kubevirt.io/v1/virtualmachineinstances", 403),
        ("/apis/longhorn.io/v1beta2/volumes", 403),
        ("/api/v1/persistentvolumes", 403),
        ("/api/v1/pods", 403),
    ] {
        assert_eq!(http.get(path).status, status, "{path}");
    }
    let refused = http.post("/sheaf/v1/management-keys", &json!({}));
    assert_has(refused.refused(403), "only management nodes get the keys");
    let pki = witness.sheaf.data().join("pki");
    for file in ["ca.pem", "etcd-ca.pem", "service-account.pem"] {
        assert!(!pki.join(file).exists(), "the witness has {file}");
    }
    assert!(!witness.sheaf.data().join("encryption.keys").exists());
    // No other node gets a certificate of etcd.
    let body = json!({"request": "x", "address": "10.199.50.9"});
    let refused = one.sheaf.http().post(CERTIFICATE, &body);
    assert_has(refused.refused(403), "only the witness");
}

#[test]
fn two_management_nodes_and_a_witness_outlive_any_one_of_them() {
    let switch = Switch::new("shfwit", "10.199.50", 4);
    let listen = format!("{}:6443", switch.address(1));
    let arguments = ["--listen", &listen, "--node-name", "one", "--vip", VIP];
    let mut one = Node::outsider(&switch.space(1), &arguments);
    one.sheaf.provokes("");
    one.sheaf.begin();
    until_written(&one, "sqlite");
    until_status(&one, "address    10.199.50.100, on one");
    // People get the virtual address, which is in the certificate.
    let people = one.sheaf.scratch("people.kubeconfig");
    std::fs::write(&people, one.sheaf.run("kubeconfig")).unwrap();
    until_virtual_address_serves(&people);

    // Two tokens before either is used: the second witness is refused where it joins.
    let (url, first) = token(&one.sheaf.run("token create --role witness"));
    let (_, second) = token(&one.sheaf.run("token create --role witness"));
    let wrong = switch.outsider(3, &url, &first, "three");
    assert_has(refusal(&wrong), "run `sheaf witness` with it");
    let mut three = switch.witness(3, &url, &first, "three");
    three.sheaf.provokes("");
    three.sheaf.begin();
    let node = until_ready(&one, "three");
    let taint = json!([{"key": "node-role.kubernetes.io/etcd", "value": "true",
        "effect": "NoExecute"}]);
    assert_eq!(node["spec"]["taints"], taint);
    assert_eq!(node["metadata"]["labels"]["node-role.harvesterhci.io/witness"], "true");
    assert_eq!(node["metadata"]["labels"]["kubevirt.io/schedulable"], "false");
    let four = switch.witness(4, &url, &second, "four");
    assert_has(refusal(&four), "the cluster has a witness, the node \"three\"");
    let refused = one.sheaf.refused("token create --role witness");
    assert_has(refused, "the cluster has a witness, the node three");
    assert_has(one.sheaf.run("node list"), "witness");
    until_status(&one, "SQLite");

    // With the second management node, the objects move.
    let (url, text) = token(&one.sheaf.run("token create --role management"));
    let mut two = switch.outsider(2, &url, &text, "two");
    two.sheaf.provokes("");
    two.sheaf.begin();
    until_status(&one, "etcd, 3 voters, 3 of 3 members healthy");
    until_status(&one, "witness    three");
    poll("the second node serves", || {
        if !two.sheaf.kubeconfig().exists() {
            return Err("it is no server yet".to_owned());
        }
        let found = two.sheaf.http().try_send(Request::get(format!("{CONFIG_MAPS}/sqlite")), "")?;
        if found.status == 200 { Ok(()) } else { Err(found.text()) }
    });
    the_witness_has_no_rights(&one, &three);
    let longhorn = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/nodes";
    let stores = one.sheaf.http().get(longhorn).json();
    let names: Vec<&Value> =
        stores["items"].as_array().unwrap().iter().map(|own| &own["metadata"]["name"]).collect();
    assert!(!names.contains(&&json!("three")), "{names:?}");

    // Maintenance of a management node does not wait for machines to go to the witness, and that of
    // the witness is refused.
    assert_has(one.sheaf.refused("node maintenance three"), "the node is a witness");

    // A management node dies: the other goes on with the witness, and gets the virtual address. The
    // kernel of the first has removed it by itself.
    until_status(&one, "address    10.199.50.100, on one");
    kill(&mut one);
    until_written(&two, "without-one");
    until_status(&two, "address    10.199.50.100, on two");
    poll("the address is on the second node", || {
        if has_virtual_address(&switch, 2) { Ok(()) } else { Err(two.sheaf.log()) }
    });
    assert!(!has_virtual_address(&switch, 1), "the address is on two nodes");
    until_virtual_address_serves(&people);
    // The process of the witness is restarted meanwhile; its etcd goes on.
    let etcd = three.etcd();
    three.sheaf.end();
    until_written(&two, "without-the-process");
    three.sheaf.begin();
    assert_eq!(three.etcd(), etcd);
    one.sheaf.begin();
    until_status(&one, "3 of 3 members healthy");

    // The witness dies and comes back; nothing but its data directory is needed.
    kill(&mut three);
    until_written(&one, "without-the-witness");
    three.sheaf.set_arguments(vec!["witness".to_owned()]);
    three.sheaf.begin();
    until_status(&one, "3 of 3 members healthy");

    assert_has(one.sheaf.run("node remove three"), "2 voters are left in etcd");
    poll("the removed witness ends", || {
        if three.sheaf.is_running() { Err(three.sheaf.log()) } else { Ok(()) }
    });
    assert_has(three.sheaf.log(), "this witness was removed from the cluster");
}

/// A witness that is lost gives its seat to a management node on standby, and is on standby itself
/// when it is back.
#[test]
fn a_voter_that_is_lost_is_replaced() {
    let switch = Switch::new("shfrepl", "10.199.51", 4);
    let listen = format!("{}:6443", switch.address(1));
    let arguments = ["--listen", &listen, "--node-name", "one", "--replace-voter-after", "4s"];
    let mut one = Node::outsider(&switch.space(1), &arguments);
    one.sheaf.provokes("");
    one.sheaf.begin();
    let join = |port: u8, name: &str| {
        let (url, text) = token(&one.sheaf.run("token create --role management"));
        let arguments = ["--join", &url, "--token", &text, "--node-name", name];
        let patience = ["--replace-voter-after", "4s"];
        let mut node = Node::outsider(&switch.space(port), &[&arguments[..], &patience].concat());
        node.sheaf.provokes("");
        node.sheaf.begin();
        node
    };
    let (url, text) = token(&one.sheaf.run("token create --role witness"));
    let mut three = switch.witness(3, &url, &text, "three");
    three.sheaf.provokes("");
    three.sheaf.begin();
    let _two = join(2, "two");
    until_status(&one, "etcd, 3 voters, 3 of 3 members healthy");
    let four = join(4, "four");
    until_ready(&one, "four");
    assert_has(one.sheaf.run("node list"), "management (waiting)");

    kill(&mut three);
    poll("the node on standby serves", || {
        let status = said(&one, "cluster status");
        let is_whole = status.contains("3 voters, 3 of 3 members healthy");
        if is_whole && status.contains("member     four") { Ok(()) } else { Err(status) }
    });
    poll("its server answers", || {
        if !four.sheaf.kubeconfig().exists() {
            return Err(four.sheaf.log());
        }
        let found = four.sheaf.http().try_send(Request::get(CONFIG_MAPS), "")?;
        if found.status == 200 { Ok(()) } else { Err(found.text()) }
    });

    three.sheaf.begin();
    poll("the former voter is on standby", || {
        let log = three.sheaf.log();
        if log.contains("etcd has enough voters") { Ok(()) } else { Err(log) }
    });
    until_ready(&one, "three");
    assert!(!one.sheaf.run("cluster status").contains("member     three"));
}
