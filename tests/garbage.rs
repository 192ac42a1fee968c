//! Owners and namespaces: which objects are deleted together, and in which order.

use serde_json::{Value, json};

use crate::harness::{Http, Sheaf, assert_has, eventually};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A config map that belongs to others.
fn owned(name: &str, owners: &[(&str, &Value)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(owner, uid)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": true})
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

fn create(http: &Http, map: &Value) -> Value {
    http.post(MAPS, map).ok()["metadata"]["uid"].clone()
}

fn exists(http: &Http, name: &str) -> bool {
    http.get(&format!("{MAPS}/{name}")).status == 200
}

fn delete(http: &Http, name: &str, policy: &str) {
    http.delete_with(&format!("{MAPS}/{name}"), &json!({"propagationPolicy": policy})).ok();
}

/// An owner, its child, and the child's child.
fn family() -> (Sheaf, Http) {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let owner = create(&http, &owned("owner", &[]));
    let child = create(&http, &owned("child", &[("owner", &owner)]));
    create(&http, &owned("grandchild", &[("child", &child)]));
    (sheaf, http)
}

#[test]
fn children_follow_in_the_background() {
    let (_sheaf, http) = family();
    delete(&http, "owner", "Background");
    assert!(!exists(&http, "owner"), "the owner goes at once");
    eventually("the family is gone", || !exists(&http, "child") && !exists(&http, "grandchild"));
}

#[test]
fn children_go_first_in_the_foreground() {
    let (_sheaf, http) = family();
    let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    http.merge(&format!("{MAPS}/child"), &hold).ok();
    delete(&http, "owner", "Foreground");
    let owner = http.get(&format!("{MAPS}/owner")).ok();
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    eventually("the child is being deleted", || {
        http.get(&format!("{MAPS}/child")).ok()["metadata"]["deletionTimestamp"].is_string()
    });
    assert!(exists(&http, "owner"), "it waits for its child");
    http.merge(&format!("{MAPS}/child"), &json!({"metadata": {"finalizers": null}})).ok();
    eventually("all are gone", || {
        !exists(&http, "owner") && !exists(&http, "child") && !exists(&http, "grandchild")
    });
}

#[test]
fn orphans_stay() {
    let (_sheaf, http) = family();
    delete(&http, "owner", "Orphan");
    eventually("the owner is gone", || !exists(&http, "owner"));
    let child = http.get(&format!("{MAPS}/child")).ok();
    assert!(child["metadata"].get("ownerReferences").is_none());
    assert!(exists(&http, "grandchild"));
}

/// Kinds from before there was garbage collection keep what they own, unless the request says
/// otherwise.
#[test]
fn controllers_and_jobs_orphan_by_default() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
    });
    let mut always = template.clone();
    always["spec"]["restartPolicy"] = "Always".into();
    let cases = [
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "v1",
            "ReplicationController",
            &always,
        ),
        ("/apis/batch/v1/namespaces/default/jobs", "batch/v1", "Job", &template),
    ];
    for (path, version, kind, template) in cases {
        for (options, stays) in
            [(json!({}), true), (json!({"propagationPolicy": "Background"}), false)]
        {
            let name = if stays { "default" } else { "background" };
            let owner = json!({
                "apiVersion": version, "kind": kind, "metadata": {"name": name},
                "spec": {"template": template},
            });
            let owner = http.post(path, &owner).ok();
            let child = format!("{}-{name}", kind.to_lowercase());
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": child, "ownerReferences": [{
                    "apiVersion": version, "kind": kind, "name": name, "uid": owner["metadata"]["uid"],
                }]},
            });
            create(&http, &map);
            let deleted = http.delete_with(&format!("{path}/{name}"), &options);
            deleted.ok();
            let warned =
                deleted.warnings().join("").contains("child pods are preserved by default");
            assert_eq!(warned, stays && kind == "Job", "{kind} {options}");
            eventually("the owner is gone", || http.get(&format!("{path}/{name}")).status == 404);
            if stays {
                let child = http.get(&format!("{MAPS}/{child}")).ok();
                assert!(child["metadata"].get("ownerReferences").is_none(), "{child}");
            } else {
                eventually("the child is gone", || !exists(&http, &child));
            }
        }
    }
}

#[test]
fn an_object_lives_as_long_as_one_of_its_owners() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let [first, second] = ["first", "second"].map(|name| create(&http, &owned(name, &[])));
    create(&http, &owned("shared", &[("first", &first), ("second", &second)]));
    delete(&http, "first", "Background");
    eventually("the reference to the first is dropped", || {
        let shared = http.get(&format!("{MAPS}/shared")).ok();
        shared["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == 1)
    });
    delete(&http, "second", "Background");
    eventually("it has no owner", || !exists(&http, "shared"));
}

#[test]
fn a_child_without_an_owner_is_garbage() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    create(&http, &owned("stray", &[("never", &json!("00000000-0000-0000-0000-000000000000"))]));
    eventually("it is collected", || !exists(&http, "stray"));
}

#[test]
fn preconditions_protect() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    create(&http, &owned("a", &[]));
    let wrong = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    assert_has(
        http.delete_with(&format!("{MAPS}/a"), &wrong).refused(409),
        "does not match the UID in record",
    );
    let old = json!({"preconditions": {"resourceVersion": "1"}});
    assert_has(
        http.delete_with(&format!("{MAPS}/a"), &old).refused(409),
        "does not match the ResourceVersion in record",
    );
    assert!(exists(&http, "a"));
}

#[test]
fn a_namespace_is_emptied_before_it_goes() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let kubectl = sheaf.kubectl();
    kubectl.run("create namespace busy");
    kubectl.apply(
        "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.example.com}, \
         spec: {group: example.com, scope: Namespaced, names: {plural: things, kind: Thing}, versions: [{name: v1, \
         served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}",
    );
    let things = "/apis/example.com/v1/namespaces/busy/things";
    http.post(
        things,
        &json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}),
    )
    .ok();
    let held = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]},
    });
    http.post("/api/v1/namespaces/busy/configmaps", &held).ok();
    http.delete("/api/v1/namespaces/busy").ok();
    eventually("the free object is gone", || http.get(&format!("{things}/t")).status == 404);
    let refused = http.post(
        "/api/v1/namespaces/busy/secrets",
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"},
        }),
    );
    assert_has(refused.refused(403), "because it is being terminated");
    eventually("it says what it waits for", || {
        let live = http.get("/api/v1/namespaces/busy").ok();
        let conditions = live["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let finalizers = |condition: &Value| condition["type"] == "NamespaceFinalizersRemaining";
        live["status"]["phase"] == "Terminating"
            && conditions
                .iter()
                .any(|condition| finalizers(condition) && condition["status"] == "True")
    });
    let path = "/api/v1/namespaces/busy/configmaps/held";
    http.merge(path, &json!({"metadata": {"finalizers": null}})).ok();
    eventually("the namespace is gone", || http.get("/api/v1/namespaces/busy").status == 404);
    let lost = http.post("/api/v1/namespaces/busy/configmaps", &held).refused(404);
    assert_has(lost, "namespaces \"busy\" not found");
}

#[test]
fn the_first_namespaces_cannot_be_deleted() {
    let sheaf = Sheaf::start();
    for name in ["default", "kube-system", "kube-public"] {
        let refused = sheaf.http().delete(&format!("/api/v1/namespaces/{name}")).refused(403);
        assert_has(refused, "this namespace may not be deleted");
    }
}

#[test]
fn every_namespace_gets_an_account_and_the_root_certificate() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    sheaf.kubectl().run("create namespace fresh");
    eventually("they are there", || {
        http.get("/api/v1/namespaces/fresh/serviceaccounts/default").status == 200
            && http.get("/api/v1/namespaces/fresh/configmaps/kube-root-ca.crt").status == 200
    });
    http.delete("/api/v1/namespaces/fresh/serviceaccounts/default").ok();
    eventually("the account is made again", || {
        http.get("/api/v1/namespaces/fresh/serviceaccounts/default").status == 200
    });
    let bad = json!({"data": {"ca.crt": "forged"}});
    http.merge("/api/v1/namespaces/fresh/configmaps/kube-root-ca.crt", &bad).ok();
    eventually("the certificate is put right", || {
        let live = http.get("/api/v1/namespaces/fresh/configmaps/kube-root-ca.crt").ok();
        live["data"]["ca.crt"].as_str().is_some_and(|text| text.contains("BEGIN CERTIFICATE"))
    });
}
