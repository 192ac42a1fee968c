//! Objects as resources: get, list, create, update, delete.

use http::Request;
use serde_json::json;

use super::{PASSWORD, client_of, refused, server};
use crate::harness::{assert_has, poll};

const CLAIMS: &str = "/v1/harvester/persistentvolumeclaims/default";

#[test]
fn a_volume_is_created_read_changed_and_deleted() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let volume = json!({
        "type": "persistentvolumeclaim",
        "metadata": {"namespace": "default", "name": "data", "annotations": {"a": "b"}},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let created = http.post(CLAIMS, &volume);
    assert_eq!(created.status, 201, "{}", created.text());
    let created = created.json();
    assert_eq!(
        (&created["id"], &created["type"]),
        (&json!("default/data"), &json!("persistentvolumeclaim"))
    );
    assert_eq!(created["metadata"]["state"]["error"], false);
    assert!(created["metadata"]["fields"].is_array(), "{created}");
    assert_has(
        created["links"]["remove"].as_str().unwrap(),
        "/v1/harvester/persistentvolumeclaims/default/data",
    );
    refused(&http.post(CLAIMS, &volume), 409, "AlreadyExists");

    // Read, changed and sent back whole.
    let (mut read, changed) = poll("no controller writes the claim in between", || {
        let mut read = http.get(&format!("{CLAIMS}/data")).ok();
        read["metadata"]["annotations"]["a"] = "c".into();
        let reply = http.put(&format!("{CLAIMS}/data"), &read);
        if reply.status == 409 { Err(reply.text()) } else { Ok((read, reply.ok())) }
    });
    assert_eq!(changed["metadata"]["annotations"]["a"], "c");
    refused(&http.put(&format!("{CLAIMS}/data"), &read), 409, "Conflict");
    read["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let error = refused(&http.put(&format!("{CLAIMS}/data"), &read), 422, "MissingRequired");
    assert_has(error["message"].as_str().unwrap(), "metadata.resourceVersion is required");

    let list = http.get(&format!("{CLAIMS}/?filter=metadata.name=data")).ok();
    assert_eq!((&list["type"], &list["count"]), (&json!("collection"), &json!(1)));
    assert!(list["revision"].is_string(), "{list}");
    assert_eq!(list["data"][0]["id"], "default/data");

    let deleted = http.delete(&format!("{CLAIMS}/data"));
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    let deleted = deleted.json();
    assert_eq!(deleted["type"], "persistentvolumeclaim");
    assert_eq!(deleted["metadata"]["state"]["name"], "removing");
}

#[test]
fn namespaces_secrets_and_yaml() {
    let sheaf = server();
    let http = client_of(&sheaf, "admin", PASSWORD);
    let namespace = json!({
        "type": "namespace", "disableOpenApiValidation": "false",
        "metadata": {"name": "team", "annotations": null, "labels": null},
    });
    let created = http.post("/v1/harvester/namespaces", &namespace);
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(created.json()["metadata"]["labels"]["kubernetes.io/metadata.name"], "team");

    let secret = json!({
        "type": "secret", "metadata": {"name": "key", "namespace": "team"}, "data": {"a": "Yg=="},
    });
    let secret = http.post("/v1/harvester/secrets", &secret).ok();
    assert_eq!((&secret["type"], &secret["_type"]), (&json!("secret"), &json!("Opaque")));
    assert_eq!(secret["id"], "team/key");

    let yaml = "metadata:\n  name: settings\n  namespace: team\ndata:\n  mode: fast\n";
    let request =
        Request::post("/v1/harvester/configmaps/team").header("content-type", "application/yaml");
    let reply = http.send(request, yaml);
    assert_eq!(reply.status, 201, "{}", reply.text());
    let request = Request::get("/v1/configmaps/team/settings").header("accept", "application/yaml");
    let reply = http.send(request, "");
    assert_eq!(reply.header("content-type"), "application/yaml");
    assert_has(reply.text(), "mode: fast");

    let deleted = http.delete("/v1/harvester/namespaces/team");
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(deleted.json()["status"]["phase"], "Terminating");
}

#[test]
fn the_rights_of_the_caller_decide() {
    let sheaf = server();
    let admin = sheaf.http();
    let create = format!("user create jane --password {PASSWORD}");
    assert_has(sheaf.run(&create), "user jane created");
    let jane = client_of(&sheaf, "jane", PASSWORD);
    refused(&jane.get("/v1/secrets"), 403, "Forbidden");
    refused(&jane.get("/v1/nodes"), 403, "Forbidden");
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    });
    admin.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).ok();
    let map = json!({"metadata": {"name": "mine"}, "data": {"a": "b"}});
    admin.post("/v1/configmaps/default", &map).ok();
    // All namespaces are those in which they may list.
    poll("the binding is in force", || {
        let reply = jane.get("/v1/configmaps");
        let list = reply.json();
        let mut maps = list["data"].as_array().into_iter().flatten();
        let is_listed = reply.status == 200 && maps.any(|map| map["id"] == "default/mine");
        if is_listed { Ok(()) } else { Err(list.to_string()) }
    });
    let shown = jane.get("/v1/configmaps/default/mine").ok();
    assert_eq!(shown["links"].get("update"), None, "{shown}");
    refused(&jane.delete("/v1/configmaps/default/mine"), 403, "Forbidden");
    refused(&jane.get("/v1/secrets/default/none"), 403, "Forbidden");
    refused(&sheaf.anonymous().get("/v1/nodes"), 401, "Unauthorized");
    refused(&admin.get("/v1/no.such.things"), 404, "NotFound");
    refused(&admin.get("/v1/configmaps/default/none"), 404, "NotFound");
    refused(
        &admin.post("/v1/configmaps/default/mine?action=fly", &json!({})),
        422,
        "InvalidAction",
    );
    let broken = Request::post("/v1/configmaps/default").header("content-type", "application/json");
    refused(&admin.send(broken, "{"), 422, "InvalidBodyContent");
}

#[test]
fn schemas_and_counts_are_listed() {
    let sheaf = server();
    let http = sheaf.http();
    let schemas = http.get("/v1/schemas").ok();
    let schemas = schemas["data"].as_array().unwrap();
    let machine =
        schemas.iter().find(|schema| schema["id"] == "kubevirt.io.virtualmachine").unwrap();
    assert_eq!(machine["attributes"]["resource"], "virtualmachines");
    assert_eq!(machine["collectionMethods"], json!(["GET", "POST"]));
    let counts = http.get("/v1/counts").ok();
    let namespaces = &counts["data"][0]["counts"]["namespace"]["summary"]["count"];
    assert!(namespaces.as_u64().unwrap() > 2, "{namespaces}");
    // Custom resources are also created under their own name.
    let pair = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": {"name": "k"},
        "spec": {"publicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ2iJdSfLmx0gBTPZ0bTvHZ1Yd2cVvcdeNGu7tFh3m8B a@b"},
    });
    let path = "/apis/harvesterhci.io/v1beta1/namespaces/default/keypairs/k";
    assert_eq!(http.post(path, &pair).status, 201);
}
