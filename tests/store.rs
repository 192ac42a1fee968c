//! Backups, restores and the move from one node to a cluster, with the server's own commands.

use serde_json::{Value, json};

use crate::harness::{Etcd, Http, Sheaf, assert_has};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn create(http: &Http, name: &str) -> u64 {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    version(&http.post(MAPS, &map).ok())
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn exists(http: &Http, name: &str) -> bool {
    http.get(&format!("{MAPS}/{name}")).status == 200
}

#[test]
fn a_backup_is_taken_while_the_server_runs_and_restored_elsewhere() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    create(&http, "before");
    create(&http, "beside");
    let page = http.get(&format!("{MAPS}?limit=1")).ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let backup = sheaf.scratch("backup.db");
    sheaf.run(&format!("store backup --to {}", backup.display()));
    let last_seen = create(&http, "after");
    let again = sheaf.command(&format!("store backup --to {}", backup.display()));
    assert!(!again.status.success(), "an existing file is not overwritten");

    let mut other = Sheaf::prepared(&[]);
    other.run(&format!("store restore --from {}", backup.display()));
    // Secrets in it are encrypted, and the key is in no backup.
    let keys = |of: &Sheaf| of.data().join("encryption.keys");
    std::fs::copy(keys(&sheaf), keys(&other)).unwrap();
    other.begin();
    let http = other.http();
    assert!(exists(&http, "before") && !exists(&http, "after"));
    let next = create(&http, "next");
    assert!(next > last_seen, "revisions that clients have seen do not come again: {next}");
    // A watch from a revision that the backup does not have must start over.
    let mut events = http.watch(&format!("{MAPS}?resourceVersion={last_seen}"));
    let gone = events.next();
    assert_eq!((&gone["type"], &gone["object"]["code"]), (&json!("ERROR"), &json!(410)), "{gone}");
    // So must a list that was interrupted, which may continue with the current state.
    let gone = http.get(&format!("{MAPS}?limit=1&continue={token}"));
    assert_has(gone.refused(410), "The provided continue parameter is too old");
    let inconsistent = gone.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = http.get(&format!("{MAPS}?continue={inconsistent}")).ok();
    assert!(!rest["items"].as_array().unwrap().is_empty(), "{rest}");
}

#[test]
fn a_restore_overwrites_nothing() {
    let mut sheaf = Sheaf::start();
    let backup = sheaf.scratch("backup.db");
    sheaf.run(&format!("store backup --to {}", backup.display()));
    let line = format!("store restore --from {}", backup.display());
    let running = sheaf.command(&line);
    assert!(!running.status.success());
    assert_has(String::from_utf8_lossy(&running.stderr), "in use");
    sheaf.terminate();
    let present = sheaf.command(&line);
    assert!(!present.status.success());
    assert_has(String::from_utf8_lossy(&present.stderr), "exist");
}

#[test]
fn one_node_becomes_a_cluster() {
    let etcd = Etcd::start();
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    for number in 0..20 {
        create(&http, &format!("n{number}"));
    }
    let before = http.get(MAPS).ok();
    let uid = http.get("/api/v1/namespaces/default").ok()["metadata"]["uid"].clone();
    let line = format!("store copy --etcd-endpoints {}", etcd.endpoints());
    let running = sheaf.command(&line);
    assert!(!running.status.success(), "not while the server runs");
    sheaf.terminate();
    sheaf.run(&line);
    let twice = sheaf.command(&line);
    assert!(!twice.status.success(), "not into an etcd that has something");

    sheaf.set_arguments(etcd.arguments());
    sheaf.begin();
    let http = sheaf.http();
    let after = http.get(MAPS).ok();
    let names = |list: &Value| {
        let items = list["items"].as_array().unwrap().iter();
        let names = items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned());
        // Not what a controller may have added meanwhile.
        names.filter(|name| name.starts_with('n')).collect::<Vec<_>>()
    };
    assert_eq!(names(&after), names(&before));
    assert!(version(&after) > version(&before), "{after}");
    assert_eq!(http.get("/api/v1/namespaces/default").ok()["metadata"]["uid"], uid);
    create(&http, "later");
}

#[test]
fn two_servers_share_an_etcd() {
    let etcd = Etcd::start();
    let first = Sheaf::on(&etcd);
    // Tokens and certificates are those of the cluster, so the second has the first one's.
    let mut second = Sheaf::prepared(&[]);
    second.set_arguments(etcd.arguments());
    copy(&first.data().join("pki"), &second.data().join("pki"));
    second.begin();
    let (a, b) = (first.http(), second.http());
    let start = version(&b.get(MAPS).ok());
    let mut events = b.watch(&format!("{MAPS}?resourceVersion={start}&labelSelector=%21none"));
    create(&a, "shared");
    // Read your writes, through the other door.
    assert!(exists(&b, "shared"));
    loop {
        let event = events.change();
        if event["object"]["metadata"]["name"] == "shared" {
            break;
        }
    }
    // Each has a lease that says so.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
                  ?labelSelector=apiserver.kubernetes.io%2Fidentity";
    crate::harness::eventually("both are known", || {
        a.get(leases).ok()["items"].as_array().unwrap().len() == 2
    });
    // A definition made at one is served at the other at once.
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": true, "storage": true,
                               "schema": {"openAPIV3Schema": {"type": "object"}}}]},
    });
    a.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).ok();
    crate::harness::eventually("the other serves it", || {
        b.get("/apis/example.com/v1/namespaces/default/things").status == 200
    });
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
