//! Crashes, lost stores and full disks: nothing acknowledged is lost, and it recovers by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use http::Request;
use serde_json::{Value, json};

use crate::harness::{Etcd, Http, Sheaf, assert_has, eventually};

/// Secrets, because no controller makes one behind a test's back.
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const WRITERS: usize = 4;

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// The acknowledged writes: the revision of every name.
type Acknowledged = BTreeMap<String, u64>;

/// Writes until the server is gone; answers what it acknowledged.
fn write(http: &Http, round: usize, writer: usize, stop: &AtomicBool) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("r{round}-w{writer}-n{number}");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let request = Request::post(SECRETS).header("content-type", "application/json");
        match http.try_send(request, secret.to_string()) {
            Ok(reply) if reply.status == 201 => {
                acknowledged.insert(name, version(&reply.json()));
            }
            _ => break,
        }
    }
    acknowledged
}

/// Writes with several clients and kills the server in the middle.
fn round(sheaf: &mut Sheaf, round: usize) -> Acknowledged {
    let http = sheaf.http();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (http, stop) = (http.clone(), &stop);
                scope.spawn(move || write(&http, round, writer, stop))
            })
            .collect();
        // Each round dies after another number of writes.
        let first = format!("{SECRETS}/r{round}-w0-n{}", round % 7);
        eventually("some writes are done", || http.get(&first).status == 200);
        sheaf.kill();
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    })
}

/// Kills a server many times while it writes, with a watcher that reconnects.
fn survives(mut sheaf: Sheaf, rounds: usize) {
    let mut acknowledged = Acknowledged::new();
    let mut seen = BTreeMap::<String, u64>::new();
    let mut resume = version(&sheaf.http().get(SECRETS).ok());
    for number in 0..rounds {
        let new = round(&mut sheaf, number);
        let highest_before = acknowledged.values().copied().max().unwrap_or(0);
        for (name, revision) in &new {
            assert!(*revision > highest_before, "{name}: revision {revision} was given before");
        }
        acknowledged.extend(new);
        sheaf.begin();
        let http = sheaf.http();
        let list = http.get(SECRETS).ok();
        let stored: BTreeMap<String, u64> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| (item["metadata"]["name"].as_str().unwrap().to_owned(), version(item)))
            .collect();
        for (name, revision) in &acknowledged {
            assert_eq!(stored.get(name), Some(revision), "{name} was acknowledged");
        }
        let revisions: BTreeSet<u64> = stored.values().copied().collect();
        assert_eq!(revisions.len(), stored.len(), "no revision was given twice");
        resume = catch_up(&http, resume, stored.len(), &mut seen);
        assert_eq!(seen, stored, "the watcher has seen each once");
    }
    assert!(acknowledged.len() >= rounds, "{}", acknowledged.len());
}

/// Goes on watching from where the last watch ended until everything stored was seen.
fn catch_up(http: &Http, from: u64, stored: usize, seen: &mut BTreeMap<String, u64>) -> u64 {
    let mut events = http.watch(&format!("{SECRETS}?resourceVersion={from}"));
    let mut at = from;
    while seen.len() < stored {
        let event = events.next();
        assert_eq!(event["type"], "ADDED", "{event}");
        at = version(&event["object"]);
        let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(seen.insert(name.clone(), at), None, "{name} came twice");
    }
    at
}

#[test]
fn nothing_acknowledged_is_lost_on_sqlite() {
    survives(Sheaf::start(), 12);
}

#[test]
fn nothing_acknowledged_is_lost_on_etcd() {
    let etcd = Etcd::start();
    survives(Sheaf::on(&etcd), 5);
}

#[test]
#[ignore = "takes minutes: make long-test"]
fn a_hundred_crashes_lose_nothing_on_sqlite() {
    survives(Sheaf::start(), 100);
}

#[test]
#[ignore = "takes minutes: make long-test"]
fn a_hundred_crashes_lose_nothing_on_etcd() {
    let etcd = Etcd::start();
    survives(Sheaf::on(&etcd), 100);
}

#[test]
fn without_etcd_it_says_so_and_comes_back() {
    let mut etcd = Etcd::start();
    let mut sheaf = Sheaf::on(&etcd);
    // All warnings of the server and its controllers are expected from now on.
    sheaf.provokes("\"level\":\"WARN\"");
    sheaf.provokes("\"level\":\"ERROR\"");
    let http = sheaf.http();
    let secret =
        |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
    http.post(SECRETS, &secret("before")).ok();
    etcd.kill();
    let refused = http.post(SECRETS, &secret("during"));
    assert!(matches!(refused.status, 500 | 503 | 504), "{}", refused.text());
    assert!(!refused.refused(refused.status).is_empty());
    // Objects in memory can still be read by clients that do not require the latest state.
    let any = http.get(&format!("{SECRETS}?resourceVersion=0")).ok();
    assert_eq!(any["items"].as_array().unwrap().len(), 1);
    assert_eq!(http.get("/livez").status, 200, "it lives");
    eventually("it says that it is not ready", || http.get("/readyz").status == 500);
    etcd.begin();
    eventually("it is ready again", || http.get("/readyz").status == 200);
    eventually("it writes again", || http.post(SECRETS, &secret("after")).status == 201);
    http.get(&format!("{SECRETS}/before")).ok();
}

#[test]
fn a_data_directory_has_one_server() {
    let sheaf = Sheaf::start();
    let second = Command::new(env!("CARGO_BIN_EXE_sheaf"))
        .args(["server", "--listen", "127.0.0.1:0", "--no-agent", "--data-dir"])
        .arg(sheaf.data())
        .output()
        .unwrap();
    assert!(!second.status.success());
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_has(&complaint, "is in use by another process");
    assert_has(&complaint, &sheaf.pid().as_raw_nonzero().to_string());
    sheaf.http().get("/readyz").text();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let sheaf = Sheaf::start();
    let other = Sheaf::prepared(&[]);
    let second = Command::new(env!("CARGO_BIN_EXE_sheaf"))
        .args(["server", "--no-agent", "--listen", &sheaf.address(), "--data-dir"])
        .arg(other.data())
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert_has(String::from_utf8_lossy(&second.stderr), &sheaf.address());
}

#[test]
fn it_stops_soon_with_clients_on_it() {
    let mut sheaf = Sheaf::start();
    let http = sheaf.http();
    let _watches: Vec<_> = (0..20).map(|_| http.watch(SECRETS)).collect();
    let stop = AtomicBool::new(false);
    let took = thread::scope(|scope| {
        for writer in 0..2 {
            let (http, stop) = (http.clone(), &stop);
            scope.spawn(move || write(&http, 0, writer, stop));
        }
        eventually("writes go on", || http.get(&format!("{SECRETS}/r0-w0-n5")).status == 200);
        let took = sheaf.terminate();
        stop.store(true, Ordering::Relaxed);
        took
    });
    // Two seconds on an idle machine.
    assert!(took < Duration::from_secs(120), "{took:?}");
    sheaf.begin();
    sheaf.http().get(&format!("{SECRETS}/r0-w0-n5")).ok();
}

#[test]
fn certificates_and_tokens_survive_a_restart() {
    let mut sheaf = Sheaf::start();
    let before = std::fs::read(sheaf.data().join("pki/ca.pem")).unwrap();
    let token = sheaf.run("token create --user robot");
    sheaf.terminate();
    sheaf.begin();
    assert_eq!(std::fs::read(sheaf.data().join("pki/ca.pem")).unwrap(), before);
    assert_eq!(sheaf.bearer(token.trim()).get("/version").status, 200);
}

/// A small disk of its own. Mounting needs root, or sudo that asks nothing, as set-up does.
struct SmallDisk(std::path::PathBuf);

const AS_ROOT: [&[&str]; 2] = [&[], &["sudo", "-n"]];

impl SmallDisk {
    fn mount(at: &std::path::Path) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let options = format!("size=24m,mode=0777 tmpfs {}", at.display());
        let mounted = as_root(&format!("mount -t tmpfs -o {options}"));
        assert!(mounted, "this test mounts a small disk: run it as root or with passwordless sudo");
        Self(at.to_owned())
    }
}

/// Whether the command succeeded, directly or through sudo.
fn as_root(command: &str) -> bool {
    AS_ROOT.iter().any(|prefix| {
        let mut words = prefix.iter().copied().chain(command.split(' '));
        let program = words.next().expect("a command has a first word");
        Command::new(program).args(words).output().is_ok_and(|output| output.status.success())
    })
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        as_root(&format!("umount -l {}", self.0.display()));
    }
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let mut sheaf = Sheaf::prepared(&[]);
    let _disk = SmallDisk::mount(&sheaf.data());
    sheaf.provokes("\"level\":\"WARN\"");
    sheaf.provokes("\"level\":\"ERROR\"");
    sheaf.begin();
    let http = sheaf.http();
    let secret = |name: &str, size: usize| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"x": "y".repeat(size)}});
    http.post(SECRETS, &secret("early", 10)).ok();
    let ballast = sheaf.data().join("ballast");
    let mut filling = Vec::new();
    // Fill the disk with something that can be removed again.
    let _ = std::fs::write(&ballast, vec![0_u8; 64 << 20]);
    let refused = (0..200).find_map(|number| {
        let reply = http.post(SECRETS, &secret(&format!("n{number}"), 300_000));
        if reply.status == 201 {
            filling.push(number);
            return None;
        }
        Some(reply)
    });
    let refused = refused.expect("the disk is full");
    assert!(matches!(refused.status, 500 | 503 | 507), "{}", refused.text());
    assert_has(refused.refused(refused.status), "full");
    http.get(&format!("{SECRETS}/early")).ok();
    assert_eq!(http.get(SECRETS).ok()["items"].as_array().unwrap().len(), filling.len() + 1);
    std::fs::remove_file(&ballast).unwrap();
    eventually("there is room again", || http.post(SECRETS, &secret("late", 10)).status == 201);
    sheaf.kill();
    sheaf.begin();
    let http = sheaf.http();
    assert_eq!(http.get(SECRETS).ok()["items"].as_array().unwrap().len(), filling.len() + 2);
}
