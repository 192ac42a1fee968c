//! Keys and certificates that root on a worker has, and those that it does not get.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use serde_json::{Value, json};

use super::lab::as_node;
use crate::certificates::{REQUESTS, request_for};
use crate::harness::{Node, assert_has, poll};

const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Larger files are disks.
const MOST: u64 = 1 << 20;

/// The files below a directory that are no disks, with their contents.
fn small_files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        // The process may remove files meanwhile.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path()));
        } else if metadata.is_file() && metadata.len() <= MOST {
            let text = fs::read(&path).unwrap_or_default();
            found.push((path, String::from_utf8_lossy(&text).into_owned()));
        }
    }
    found
}

/// A line of each private key in PEM files, the second one: the first is the same for many keys.
fn private_keys(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for (path, text) in small_files(dir) {
        let mut lines = text.lines();
        while lines.any(|line| line.starts_with("-----BEGIN") && line.contains("PRIVATE KEY")) {
            found.push((path.clone(), lines.nth(1).unwrap().to_owned()));
        }
    }
    found
}

pub(super) fn the_worker_has_its_own_key_only(management: &Node, worker: &Node) {
    let data = worker.sheaf.data();
    let names = fs::read_dir(data.join("pki")).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [".lock", "ca.crt", "node-serving.crt", "node.crt", "node.key"]);
    let keys = private_keys(&management.sheaf.data().join("pki"));
    for name in ["ca.pem", "front-proxy-ca.pem", "service-account.pem"] {
        assert!(keys.iter().any(|(path, _)| path.ends_with(name)), "{name} has no key: {keys:?}");
    }
    // Nor are they anywhere else on its disk.
    let files = small_files(&data);
    assert!(files.iter().any(|(path, _)| path.ends_with("node.key")));
    for (path, text) in files {
        let key = keys.iter().find(|(_, key)| text.contains(key));
        assert!(key.is_none(), "{} has a key of the cluster: {key:?}", path.display());
        assert!(!path.ends_with("encryption.keys"), "{}", path.display());
    }
}

pub(super) fn the_worker_gets_no_other_certificate(management: &Node, worker: &Node) {
    let (node, admin) = (as_node(management, worker), management.sheaf.http());
    let client = ["digital signature", "client auth"];
    let serving = ["digital signature", "server auth"];
    let key = KeyPair::generate().unwrap();
    let mut others = Vec::new();
    for (name, signer, usages) in [
        ("system:node:one", NODE_CLIENT, client),
        ("system:node:three", NODE_CLIENT, client),
        ("system:node:one", NODE_SERVING, serving),
        ("system:admin", CLIENT, client),
    ] {
        let asked = request_for(&key, name, "system:nodes", signer, &usages);
        let made = node.post(REQUESTS, &asked).ok();
        assert_eq!(made["spec"]["username"], "system:node:two", "{made}");
        others.push(format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap()));
    }
    let masters = request_for(&key, "two", "system:masters", CLIENT, &client);
    assert_has(node.post(REQUESTS, &masters).refused(403), "system:masters group is not allowed");
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "Test", "message": "test"}]}});
    for path in &others {
        node.merge(&format!("{path}/approval"), &approval).refused(403);
    }

    // Its own name with its own key is renewed, and by then the others were considered.
    let own = fs::read_to_string(worker.sheaf.data().join("pki/node.key")).unwrap();
    let own = KeyPair::from_pem(&own).unwrap();
    let asked = request_for(&own, "system:node:two", "system:nodes", NODE_CLIENT, &client);
    let made = node.post(REQUESTS, &asked).ok();
    let own = format!("{REQUESTS}/{}", made["metadata"]["name"].as_str().unwrap());
    poll("the node's own request is signed", || {
        let found = admin.get(&own).json();
        if found["status"]["certificate"].is_string() { Ok(()) } else { Err(found.to_string()) }
    });
    for path in others {
        let found = admin.get(&path).ok();
        let conditions = found["status"]["conditions"].as_array().map_or(0, Vec::len);
        assert_eq!((conditions, &found["status"]["certificate"]), (0, &Value::Null), "{found}");
    }
}
