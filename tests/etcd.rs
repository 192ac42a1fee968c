//! Several members of etcd, certificates, and what happens to clients when members die.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Etcd, Http, Sheaf, assert_has, eventually};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn on(etcd: &Etcd) -> Sheaf {
    let mut sheaf = Sheaf::on(etcd);
    // All warnings of the server and its controllers are expected when members die.
    sheaf.provokes("\"level\":\"WARN\"");
    sheaf.provokes("\"level\":\"ERROR\"");
    sheaf
}

/// Writes until it is asked to stop, whatever the answers are; returns the acknowledged writes.
fn write(
    http: &Http,
    writer: usize,
    stop: &AtomicBool,
    done: &AtomicUsize,
) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("w{writer}-n{number}");
        let reply = http.post(SECRETS, &secret(&name));
        match reply.status {
            201 => {
                acknowledged.insert(name, version(&reply.json()));
                done.fetch_add(1, Ordering::Relaxed);
            }
            500 | 503 | 504 => assert!(!reply.refused(reply.status).is_empty(), "it says why"),
            _ => panic!("{}: {}", reply.status, reply.text()),
        }
    }
    acknowledged
}

#[test]
fn a_dead_leader_loses_nothing() {
    let mut etcd = Etcd::secure_cluster();
    let sheaf = on(&etcd);
    let http = sheaf.http();
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion=0"));
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let acknowledged: BTreeMap<String, u64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (http, stop, done) = (http.clone(), &stop, &done);
                scope.spawn(move || write(&http, writer, stop, done))
            })
            .collect();
        let progress = |what: &str| {
            let target = done.load(Ordering::Relaxed) + 20;
            eventually(what, || done.load(Ordering::Relaxed) > target);
        };
        progress("writes go on with three members");
        etcd.kill_leader();
        progress("writes go on with two members");
        etcd.begin();
        etcd.kill_leader();
        progress("writes go on with two others");
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    etcd.begin();
    http.post(SECRETS, &secret("last")).ok();
    let mut seen = BTreeMap::new();
    while !seen.contains_key("last") {
        let event = events.change();
        assert_eq!(event["type"], "ADDED", "{event}");
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(seen.insert(name, version(object)), None, "{object} came twice");
    }
    for (name, revision) in &acknowledged {
        assert_eq!(seen.get(name), Some(revision), "{name} was acknowledged");
    }
    let list = http.get(SECRETS).ok();
    assert_eq!(list["items"].as_array().unwrap().len(), seen.len());
}

#[test]
fn without_its_certificate_etcd_is_not_used() {
    let etcd = Etcd::secure_cluster();
    let arguments = etcd.arguments();
    let stranger: Vec<&str> = arguments[..2].iter().map(String::as_str).collect();
    let sheaf = Sheaf::prepared(&stranger);
    let status = sheaf.spawn().wait().unwrap();
    assert!(!status.success());
    assert_has(sheaf.log(), "cannot reach etcd");
}

#[test]
fn twenty_seconds_without_etcd_are_survived() {
    let mut etcd = Etcd::cluster();
    let sheaf = on(&etcd);
    let http = sheaf.http();
    let before = http.post(SECRETS, &secret("before")).ok();
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion={}", version(&before)));
    etcd.kill();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        let refused = http.post(SECRETS, &secret("during"));
        assert!(matches!(refused.status, 500 | 503 | 504), "{}", refused.text());
        assert_has(refused.refused(refused.status), "store");
        assert_eq!(http.get("/livez").status, 200, "it lives");
        let list = http.get(&format!("{SECRETS}?resourceVersion=0")).ok();
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    }
    assert_eq!(http.get("/readyz").status, 500);
    etcd.begin();
    eventually("it is ready again", || http.get("/readyz").status == 200);
    http.post(SECRETS, &secret("after")).ok();
    // The same watch goes on, or had to be made anew; it may not just miss something.
    let event = events.next();
    if event["type"] == "ERROR" {
        assert_eq!(event["object"]["code"], 410, "{event}");
    } else {
        assert_eq!(event["object"]["metadata"]["name"], "after", "{event}");
    }
}

#[test]
fn a_compacted_past_is_gone() {
    let etcd = Etcd::start();
    let mut sheaf = on(&etcd);
    let http = sheaf.http();
    let early = version(&http.post(SECRETS, &secret("early")).ok());
    http.post(SECRETS, &secret("late")).ok();
    sheaf.terminate();
    etcd.compact();
    sheaf.begin();
    let http = sheaf.http();
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion={early}"));
    let event = events.next();
    assert_eq!(event["type"], "ERROR", "{event}");
    assert_eq!(event["object"]["code"], 410, "{event}");
    assert_eq!(event["object"]["reason"], "Expired", "{event}");
    let exact = format!("{SECRETS}?resourceVersion={early}&resourceVersionMatch=Exact");
    assert_has(http.get(&exact).refused(410), "resourceVersion for the provided list is too old");
    // From a new list everything is there, and goes on.
    let list = http.get(SECRETS).ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion={}", version(&list)));
    http.post(SECRETS, &secret("later")).ok();
    assert_eq!(events.change()["object"]["metadata"]["name"], "later");
}

#[test]
fn a_server_that_stops_hands_its_lease_over() {
    const LEASE: &str =
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/sheaf-controllers";
    let etcd = Etcd::start();
    let mut first = Sheaf::on(&etcd);
    let holder = |http: &Http| {
        http.get(LEASE).json()["spec"]["holderIdentity"].as_str().unwrap_or("").to_owned()
    };
    let http = first.http();
    eventually("the first leads", || holder(&http).ends_with(&first.address()));
    let second = Sheaf::on(&etcd);
    let http = second.http();
    assert!(holder(&http).ends_with(&first.address()), "one of them leads");
    let address = first.address();
    first.terminate();
    assert!(!holder(&http).ends_with(&address), "it is given up, not left to expire");
    eventually("the second leads", || holder(&http).ends_with(&second.address()));
}
