//! Imports that would have the node connect to itself, its neighbours or the cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, poll};
use crate::volume::web::{Fault, Web};

const DATA_VOLUMES: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";

/// A node whose imports may connect to one address of the loopback.
fn node() -> Sheaf {
    let mut sheaf = Sheaf::prepared(&[
        "--node-name",
        "one",
        "--guest-network",
        "user",
        "--import-allow",
        "127.0.0.1/32",
    ]);
    sheaf.provokes("claim cannot be filled");
    let above = sheaf.data().parent().unwrap().to_owned();
    fs::set_permissions(above, fs::Permissions::from_mode(0o711)).unwrap();
    sheaf.begin();
    sheaf
}

fn import(http: &Http, name: &str, source: &Value) {
    let dv = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
        "metadata": {"name": name},
        "spec": {"source": source, "storage": {
            "storageClassName": "local-immediate", "resources": {"requests": {"storage": "1Mi"}},
        }},
    });
    http.post(DATA_VOLUMES, &dv).ok();
}

#[track_caller]
fn until(http: &Http, name: &str, phase: &str) -> String {
    let mut conditions = String::new();
    poll(&format!("the import {name} is {phase}"), || {
        let status = http.get(&format!("{DATA_VOLUMES}/{name}")).ok()["status"].clone();
        conditions = status["conditions"].to_string();
        if status["phase"] == phase { Ok(()) } else { Err(status.to_string()) }
    });
    conditions
}

#[test]
fn an_import_does_not_reach_the_node_or_the_cluster() {
    let sheaf = node();
    let http = sheaf.http();
    let web = Web::start();
    web.put("image", vec![7; 4096], Fault::None);
    let port = web.url("").trim_end_matches('/').rsplit_once(':').unwrap().1.to_owned();
    for (name, source, expected) in [
        (
            "loopback",
            json!({"http": {"url": format!("http://127.0.0.2:{port}/image")}}),
            "127.0.0.2 is a loopback address",
        ),
        (
            "mapped",
            json!({"http": {"url": format!("http://[::ffff:127.0.0.2]:{port}/image")}}),
            "is a loopback address",
        ),
        (
            "metadata",
            json!({"http": {"url": "http://169.254.169.254/latest"}}),
            "169.254.169.254 is a link-local address",
        ),
        (
            "service",
            json!({"http": {"url": "https://10.53.0.1/api"}}),
            "10.53.0.1 is an address of the cluster",
        ),
        (
            "anywhere",
            json!({"http": {"url": format!("http://0.0.0.0:{port}/image")}}),
            "is the unspecified address",
        ),
        // The server that is allowed redirects to one that is not.
        (
            "redirected",
            json!({"http": {"url": web.url(&format!("moved//127.0.0.2:{port}/image"))}}),
            "127.0.0.2 is a loopback address",
        ),
        (
            "registry",
            json!({"registry": {"url": format!("docker://127.0.0.2:{port}/image")}}),
            "127.0.0.2 is a loopback address",
        ),
    ] {
        import(&http, name, &source);
        let message = until(&http, name, "Failed");
        assert_has(&message, expected);
        assert_has(&message, "--import-allow");
    }
    assert!(web.asked().is_empty(), "nothing was fetched");
    import(&http, "allowed", &json!({"http": {"url": web.url("moved/image")}}));
    until(&http, "allowed", "Succeeded");
}
