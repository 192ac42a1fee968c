//! Groups that another server answers for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::{Asked, Hook, Http, Said, Sheaf, assert_has, poll};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const GROUP: &str = "/apis/far.example.com/v1";

/// A small API server: one kind, its discovery and its documents.
fn far(asked: &Asked) -> Said {
    let path = asked.path.split('?').next().unwrap_or("");
    Said::Json(match path {
        "/apis/far.example.com/v1" => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "far.example.com/v1",
            "resources": [{"name": "stars", "singularName": "star", "namespaced": true,
                "kind": "Star", "verbs": ["get", "list"], "shortNames": ["st"]}],
        }),
        "/openapi/v3" => json!({"paths": {"apis/far.example.com/v1":
            {"serverRelativeURL": "/openapi/v3/apis/far.example.com/v1?hash=1"}}}),
        "/openapi/v3/apis/far.example.com/v1" => json!({"openapi": "3.0.0", "far": true}),
        "/openapi/v2" => json!({
            "swagger": "2.0", "paths": {"/apis/far.example.com/v1/stars": {}, "/version/": {}},
            "definitions": {"com.example.far.v1.Star": {"type": "object"}},
        }),
        "/apis/far.example.com/v1/namespaces/default/stars" => json!({
            "kind": "StarList", "apiVersion": "far.example.com/v1", "metadata": {},
            "items": [{"metadata": {"name": "sirius", "namespace": "default"}}],
        }),
        _ => return Said::Raw(404, b"{}".to_vec()),
    })
}

fn register(http: &Http, hook: &Hook, service: &str) {
    let object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.far.example.com"},
        "spec": {
            "group": "far.example.com", "version": "v1", "groupPriorityMinimum": 1000,
            "versionPriority": 10, "caBundle": hook.bundle(),
            "service": {"namespace": "default", "name": service, "port": hook.port()},
        },
    });
    http.post(SERVICES, &object).ok();
}

/// Leads to the server; addresses of this machine itself cannot be endpoints, names can.
fn service(http: &Http) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    http.post("/api/v1/namespaces/default/services", &service).ok();
}

fn condition(http: &Http, status: &str) -> Value {
    poll("the condition is reported", || {
        let service = http.get(&format!("{SERVICES}/v1.far.example.com")).ok();
        let condition = service["status"]["conditions"][0].clone();
        if condition["status"] == status { Ok(condition) } else { Err(service.to_string()) }
    })
}

#[test]
fn requests_are_passed_on_for_whoever_sent_them() {
    let hook = Hook::start(far);
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    service(&http);
    register(&http, &hook, "hook");
    let available = condition(&http, "True");
    assert_eq!(
        (&available["reason"], &available["message"]),
        (&json!("Passed"), &json!("all checks passed"))
    );
    let stars = http.get(&format!("{GROUP}/namespaces/default/stars?labelSelector=a%3Db")).ok();
    assert_eq!(stars["items"][0]["metadata"]["name"], "sirius");
    // It is also asked now and then how it is.
    let passed = || {
        let asked = hook.asked().into_iter();
        asked.filter(|asked| asked.path.contains("/stars")).collect::<Vec<_>>()
    };
    let asked = passed().remove(0);
    assert_eq!(asked.path, "/apis/far.example.com/v1/namespaces/default/stars?labelSelector=a%3Db");
    assert_eq!(asked.headers["x-remote-user"], "system:admin");
    let groups: Vec<_> = asked.headers.get_all("x-remote-group").iter().collect();
    assert!(groups.iter().any(|group| *group == "system:masters"), "{groups:?}");
    // The request of an unauthorized user does not reach the remote server.
    sheaf.anonymous().get(&format!("{GROUP}/namespaces/default/stars")).refused(403);
    assert_eq!(passed().len(), 1);
    let list = sheaf.kubectl().run("get stars -o name");
    assert_has(list, "sirius");
}

#[test]
fn discovery_and_documents_are_one() {
    let hook = Hook::start(far);
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    service(&http);
    register(&http, &hook, "hook");
    condition(&http, "True");
    let groups = http.get("/apis").ok();
    let named = |groups: &Value| {
        let list = groups["groups"].as_array().cloned().unwrap_or_default();
        list.into_iter().find(|group| group["name"] == "far.example.com")
    };
    assert_eq!(named(&groups).unwrap()["preferredVersion"]["version"], "v1");
    assert_eq!(http.get("/apis/far.example.com").ok()["kind"], "APIGroup");
    assert_eq!(http.get(GROUP).ok()["resources"][0]["name"], "stars");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let nested = http.with("accept", accept).get("/apis").ok();
    let items = nested["items"].as_array().unwrap();
    let far = items.iter().find(|item| item["metadata"]["name"] == "far.example.com").unwrap();
    assert_eq!(far["versions"][0]["freshness"], "Current");
    assert_eq!(far["versions"][0]["resources"][0]["resource"], "stars");
    let index = http.get("/openapi/v3").ok();
    let url = index["paths"]["apis/far.example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    assert_eq!(http.get(url).ok()["far"], true);
    let whole = http.with("accept", "application/json").get("/openapi/v2").ok();
    assert!(whole["paths"].get("/apis/far.example.com/v1/stars").is_some());
    assert!(whole["definitions"].get("com.example.far.v1.Star").is_some());
    assert!(whole["paths"].get("/api/v1/namespaces/{namespace}/configmaps").is_some());
}

#[test]
fn a_server_that_is_down_takes_only_its_group_along() {
    let up = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&up);
    let hook = Hook::start(move |asked| {
        if shared.load(Ordering::SeqCst) { far(asked) } else { Said::Raw(500, b"broken".to_vec()) }
    });
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    register(&http, &hook, "hook");
    let missing = condition(&http, "False");
    assert_eq!(missing["reason"], "ServiceNotFound");
    assert_eq!(missing["message"], "service/hook in \"default\" is not present");
    let stars = format!("{GROUP}/namespaces/default/stars");
    assert_has(
        http.get(&stars).refused(503),
        "the server is currently unable to handle the request",
    );
    service(&http);
    condition(&http, "True");
    http.get(&stars).ok();
    up.store(false, Ordering::SeqCst);
    // A change makes the server check at once.
    let path = format!("{SERVICES}/v1.far.example.com");
    http.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).ok();
    let broken = condition(&http, "False");
    assert_eq!(broken["reason"], "FailedDiscoveryCheck");
    assert_has(broken["message"].as_str().unwrap(), "bad status from https://hook.default.svc:");
    http.get(&stars).refused(503);
    // Everything else goes on.
    http.get("/api/v1/namespaces").ok();
    http.get("/apis").ok();
    http.get("/openapi/v3").ok();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let nested = http.with("accept", accept).get("/apis").ok();
    let items = nested["items"].as_array().unwrap();
    let far = items.iter().find(|item| item["metadata"]["name"] == "far.example.com").unwrap();
    assert_eq!(far["versions"][0]["freshness"], "Stale");
    up.store(true, Ordering::SeqCst);
    condition(&http, "True");
    http.get(&stars).ok();
    http.delete(&path).ok();
    assert_eq!(http.get(&stars).status, 404);
}
