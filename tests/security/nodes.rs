//! A worker with its own certificate, which writes to objects that it may report on.

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, poll};

const LONGHORN: &str = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system";

/// The worker `evil`, which runs nothing.
fn worker(sheaf: &Sheaf) -> Http {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evil"}});
    sheaf.http().post("/api/v1/nodes", &node).ok();
    sheaf
        .http()
        .with("impersonate-user", "system:node:evil")
        .with("impersonate-group", "system:nodes")
}

/// The garbage collector deletes what belongs to an owner that does not exist.
#[test]
fn a_worker_does_not_let_the_garbage_collector_delete_for_it() {
    let sheaf = Sheaf::start();
    let (admin, evil) = (sheaf.http(), worker(&sheaf));
    let image = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "BackingImage", "metadata": {"name": "debian"},
        "spec": {"sourceType": "upload"},
    });
    let snapshot = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "Snapshot", "metadata": {"name": "kept"},
        "spec": {"volume": "data"},
    });
    let attachment = json!({
        "apiVersion": "longhorn.io/v1beta2", "kind": "VolumeAttachment",
        "metadata": {"name": "data"}, "spec": {"volume": "data", "attachmentTickets": {}},
    });
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone",
        "uid": "00000000-0000-0000-0000-000000000001"}]);
    let owned = json!({"metadata": {"ownerReferences": owner}});
    for (plural, object, refusal) in [
        ("backingimages", image, "is not allowed to modify the ownerReferences of backingimages"),
        ("snapshots", snapshot, "which is not placed on it"),
        ("volumeattachments", attachment, "is not allowed to modify the ownerReferences of"),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap();
        admin.post(&format!("{LONGHORN}/{plural}"), &object).ok();
        let path = format!("{LONGHORN}/{plural}/{name}");
        let reply = evil.merge(&path, &owned);
        assert_has(reply.refused(403), refusal);
        let hold = json!({"metadata": {"finalizers": ["evil.example/hold"]}});
        evil.merge(&path, &hold).refused(403);
        let kept: Value = admin.get(&path).ok();
        assert!(kept["metadata"]["ownerReferences"].is_null(), "{kept}");
        let (id, log) = (reply.header("audit-id").to_owned(), sheaf.data().join("audit/audit.log"));
        poll("the refusal is in the audit log", || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let is_known = text.lines().any(|line| line.contains(&id) && line.contains("403"));
            if is_known { Ok(()) } else { Err(text) }
        });
    }
}

/// With the passphrase, the blocks of an encrypted volume on the worker's own disk are readable.
#[test]
fn a_worker_with_a_replica_does_not_read_the_passphrase_of_its_volume() {
    let sheaf = Sheaf::start();
    let (admin, evil) = (sheaf.http(), worker(&sheaf));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "passphrase"},
        "stringData": {"CRYPTO_KEY_VALUE": "hush"},
    });
    admin.post("/api/v1/namespaces/default/secrets", &secret).ok();
    let reference = json!({"namespace": "default", "name": "passphrase"});
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "encrypted"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "driver.longhorn.io", "volumeHandle": "encrypted",
                "nodePublishSecretRef": reference, "nodeStageSecretRef": reference},
        },
    });
    admin.post("/api/v1/persistentvolumes", &volume).ok();
    let part = |kind: &str, name: &str| {
        json!({
            "apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": {"name": name},
            "spec": {"volumeName": "encrypted", "nodeID": "evil"},
        })
    };
    let path = "/api/v1/namespaces/default/secrets/passphrase";
    admin.post(&format!("{LONGHORN}/replicas"), &part("Replica", "encrypted-r")).ok();
    assert_has(evil.get(path).refused(403), "no relationship found between node and this object");
    // It is opened where the engine is.
    admin.post(&format!("{LONGHORN}/engines"), &part("Engine", "encrypted-e")).ok();
    evil.get(path).ok();
}
