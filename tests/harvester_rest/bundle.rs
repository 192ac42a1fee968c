//! Support bundles.

use serde_json::json;

use crate::harness::{Node, poll};

const BUNDLES: &str = "/v1/harvester/harvesterhci.io.supportbundles";

/// Whether the bytes of an archive have a file of this name.
fn has(archive: &[u8], name: &str) -> bool {
    archive.windows(name.len()).any(|part| part == name.as_bytes())
}

#[test]
fn a_bundle_has_objects_hardware_and_the_log_of_each_node() {
    let node = Node::start();
    let http = node.sheaf.http();
    let asked = json!({
        "type": "harvesterhci.io.supportbundle",
        "metadata": {"namespace": "harvester-system", "name": "b"},
        "spec": {"description": "slow disks", "issueURL": ""},
    });
    assert_eq!(http.post(BUNDLES, &asked).status, 201);
    let path = format!("{BUNDLES}/harvester-system/b");
    let name = poll("the bundle is ready", || {
        let bundle = http.get(&path).json();
        let name = bundle["status"]["filename"].as_str().map(str::to_owned);
        name.filter(|_| bundle["status"]["state"] == "ready").ok_or_else(|| bundle.to_string())
    });
    let reply = http.get("/v1/harvester/supportbundles/b/download");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let root = name.trim_end_matches(".zip");
    for part in [
        format!("{root}/metadata.yaml"),
        format!("{root}/yamls/cluster/v1/nodes.yaml"),
        format!("{root}/nodes/one.zip"),
        format!("{root}/logs/kube-system/kube-apiserver-one/kube-apiserver.log"),
    ] {
        assert!(has(&reply.body, &part), "{part} is missing");
    }
}
