//! Admission webhooks: which are called, which changes they may make, and the result when they are
//! down, slow or wrong.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Asked, Hook, Http, Said, Sheaf, assert_has, poll};

const CONFIG_MAPS: &str = "/api/v1/namespaces/judged/configmaps";
const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

fn review(asked: &Asked, response: Value) -> Said {
    let mut response = response;
    response["uid"] = asked.body["request"]["uid"].clone();
    Said::Json(json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response,
    }))
}

fn allow(asked: &Asked) -> Said {
    review(asked, json!({"allowed": true}))
}

fn patch(asked: &Asked, patch: &Value) -> Said {
    let patch = STANDARD.encode(patch.to_string());
    review(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": patch}))
}

/// A namespace of the test's own, in which no controller writes any longer.
fn judged(sheaf: &Sheaf) -> Http {
    let http = sheaf.http();
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "judged"}});
    http.post("/api/v1/namespaces", &namespace).ok();
    for path in ["configmaps/kube-root-ca.crt", "serviceaccounts/default"] {
        poll("the namespace is furnished", || {
            let reply = http.get(&format!("/api/v1/namespaces/judged/{path}"));
            if reply.status == 200 { Ok(()) } else { Err(reply.text()) }
        });
    }
    http
}

/// A configuration with one webhook for config maps.
fn configuration(kind: &str, name: &str, hook: &Hook, change: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"),
        "clientConfig": {"url": hook.url("/review"), "caBundle": hook.bundle()},
        "rules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "operations": ["*"],
        }],
        // Other writes of the server are not part of this test.
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "judged"}},
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
    });
    for (field, value) in change.as_object().unwrap() {
        webhook[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "webhooks": [webhook],
    })
}

fn validating(http: &Http, name: &str, hook: &Hook, change: Value) {
    let object = configuration("ValidatingWebhookConfiguration", name, hook, change);
    http.post(&format!("{HOOKS}/validatingwebhookconfigurations"), &object).ok();
}

fn mutating(http: &Http, name: &str, hook: &Hook, change: Value) {
    let object = configuration("MutatingWebhookConfiguration", name, hook, change);
    http.post(&format!("{HOOKS}/mutatingwebhookconfigurations"), &object).ok();
}

#[test]
fn a_webhook_refuses_every_way_of_writing() {
    let hook = Hook::start(|asked| {
        let name = asked.body["request"]["oldObject"]["metadata"]["name"].as_str();
        if name == Some("kept") || asked.body["request"]["name"] == "bad" {
            let status = json!({"code": 418, "reason": "Teapot", "message": "not in this pot"});
            return review(asked, json!({"allowed": false, "status": status, "warnings": ["hm"]}));
        }
        allow(asked)
    });
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    http.post(CONFIG_MAPS, &config_map("kept")).ok();
    validating(&http, "judge", &hook, json!({}));
    let text = "admission webhook \"judge.example.com\" denied the request: not in this pot";
    let reply = http.post(CONFIG_MAPS, &config_map("bad"));
    assert_eq!(reply.refused(418), text);
    assert_eq!(reply.json()["reason"], "Teapot");
    assert_eq!(
        http.apply(&format!("{CONFIG_MAPS}/bad"), "me", &config_map("bad")).refused(418),
        text
    );
    let kept = &format!("{CONFIG_MAPS}/kept");
    assert_eq!(http.put(kept, &config_map("kept")).refused(418), text);
    assert_eq!(http.merge(kept, &json!({"data": {"c": "d"}})).refused(418), text);
    assert_eq!(http.apply(kept, "me", &config_map("kept")).refused(418), text);
    assert_eq!(http.delete(kept).refused(418), text);
    assert_eq!(http.delete(CONFIG_MAPS).refused(418), text);
    assert_eq!(
        http.post(&format!("{CONFIG_MAPS}?dryRun=All"), &config_map("bad")).refused(418),
        text
    );
    http.get(kept).ok();
    let asked = hook.asked();
    let operations: Vec<&str> =
        asked.iter().filter_map(|asked| asked.body["request"]["operation"].as_str()).collect();
    for operation in ["CREATE", "UPDATE", "DELETE"] {
        assert!(operations.contains(&operation), "{operations:?}");
    }
    assert!(asked.iter().all(|asked| asked.path == "/review?timeout=30s"), "{asked:?}");
    // Connections are used again; only a collection is deleted by several at once.
    assert!(hook.connections() <= 2, "{}", hook.connections());
    // The user who configured it can remove it.
    http.delete(&format!("{HOOKS}/validatingwebhookconfigurations/judge")).ok();
    http.delete(kept).ok();
}

#[test]
fn a_review_says_what_is_asked_for() {
    let hook =
        Hook::start(|asked| review(asked, json!({"allowed": true, "warnings": ["mind the gap"]})));
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    validating(&http, "judge", &hook, json!({}));
    let made = http.post(&format!("{CONFIG_MAPS}?fieldManager=me"), &config_map("a"));
    assert_eq!(made.warnings(), ["299 - \"mind the gap\""]);
    http.merge(&format!("{CONFIG_MAPS}/a?dryRun=All"), &json!({"data": {"a": "c"}})).ok();
    let options =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"});
    http.delete_with(&format!("{CONFIG_MAPS}/a"), &options).ok();
    let asked = hook.asked();
    let [create, update, delete] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(create.headers["content-type"], "application/json");
    let request = &create.body["request"];
    assert_eq!(create.body["kind"], "AdmissionReview");
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    assert_eq!((&request["kind"], &request["requestKind"]), (&kind, &kind));
    assert_eq!((&request["resource"], &request["requestResource"]), (&resource, &resource));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("a"), &json!("judged")));
    assert_eq!(request["object"]["data"], json!({"a": "b"}));
    assert_eq!((&request["oldObject"], &request["dryRun"]), (&Value::Null, &json!(false)));
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert_eq!(request["options"]["fieldManager"], "me");
    assert!(
        request["userInfo"]["username"].is_string() && request["userInfo"]["groups"].is_array()
    );
    let request = &update.body["request"];
    assert_eq!((&request["operation"], &request["dryRun"]), (&json!("UPDATE"), &json!(true)));
    assert_eq!(request["oldObject"]["data"], json!({"a": "b"}));
    assert_eq!(request["object"]["data"], json!({"a": "c"}));
    assert_eq!(request["options"]["dryRun"], json!(["All"]));
    let request = &delete.body["request"];
    assert_eq!(
        (&request["object"], &request["oldObject"]["data"]["a"]),
        (&Value::Null, &json!("b"))
    );
    assert_eq!(request["options"]["propagationPolicy"], "Foreground");
}

#[test]
fn webhooks_change_objects_in_turn_and_see_what_others_changed() {
    let first = Hook::start(|asked| {
        let seen = asked.body["request"]["object"]["data"]["second"].as_str().is_some();
        let count = asked.body["request"]["object"]["data"]["first"].as_str().map_or(1, |_| 2);
        let patches = json!([
            {"op": "add", "path": "/data/first", "value": format!("{count}")},
            {"op": "add", "path": "/data/saw-second", "value": format!("{seen}")},
        ]);
        patch(asked, &patches)
    });
    let second = Hook::start(|asked| {
        patch(asked, &json!([{"op": "add", "path": "/data/second", "value": "1"}]))
    });
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    mutating(&http, "a", &first, json!({"reinvocationPolicy": "IfNeeded"}));
    mutating(&http, "b", &second, json!({}));
    let made = http.post(CONFIG_MAPS, &config_map("x")).ok();
    let data = json!({"a": "b", "first": "2", "saw-second": "true", "second": "1"});
    assert_eq!(made["data"], data);
    assert_eq!((first.asked().len(), second.asked().len()), (2, 1));
    // No manager owns what a webhook adds.
    let managed = made["metadata"]["managedFields"].to_string();
    assert!(managed.contains("f:a") && !managed.contains("f:first"), "{managed}");
    // The name is made last, and uid and time are the server's.
    second.take_asked();
    let mut generated = config_map("");
    generated["metadata"] = json!({"generateName": "gen-"});
    let made = http.post(CONFIG_MAPS, &generated).ok();
    assert!(made["metadata"]["name"].as_str().unwrap().starts_with("gen-"));
    let request = second.take_asked().remove(0).body["request"].take();
    assert_eq!(request.get("name"), None);
    assert_eq!(request["object"]["metadata"].get("uid"), None);
}

#[test]
fn selectors_conditions_and_equivalents_decide_who_is_asked() {
    let hook = Hook::start(allow);
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let labelled = |name: &str| {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"judge": "me"});
        object
    };
    validating(
        &http,
        "labelled",
        &hook,
        json!({"objectSelector": {"matchLabels": {"judge": "me"}}}),
    );
    http.post(CONFIG_MAPS, &config_map("plain")).ok();
    assert!(hook.take_asked().is_empty());
    http.post(CONFIG_MAPS, &labelled("marked")).ok();
    // Losing the label is seen as well.
    http.put(&format!("{CONFIG_MAPS}/marked"), &config_map("marked")).ok();
    assert_eq!(hook.take_asked().len(), 2);
    let elsewhere = "/api/v1/namespaces/kube-system/configmaps";
    http.post(elsewhere, &labelled("marked")).ok();
    assert!(hook.take_asked().is_empty());
    http.delete(&format!("{HOOKS}/validatingwebhookconfigurations/labelled")).ok();

    let conditions = json!([
        {"name": "named", "expression": "object != null && object.metadata.name.startsWith('c')"},
        {"name": "rights", "expression":
            "authorizer.group('').resource('configmaps').namespace('judged').check('create').allowed()"},
    ]);
    validating(&http, "conditional", &hook, json!({"matchConditions": conditions}));
    http.post(CONFIG_MAPS, &config_map("other")).ok();
    assert!(hook.take_asked().is_empty());
    http.post(CONFIG_MAPS, &config_map("chosen")).ok();
    assert_eq!(hook.take_asked().len(), 1);
    let broken = json!([{"name": "broken", "expression": "object.spec.absent == 1"}]);
    let object = configuration(
        "ValidatingWebhookConfiguration",
        "conditional",
        &hook,
        json!({"matchConditions": broken}),
    );
    let path = format!("{HOOKS}/validatingwebhookconfigurations/conditional");
    http.delete(&path).ok();
    http.post(&format!("{HOOKS}/validatingwebhookconfigurations"), &object).ok();
    assert_has(
        http.post(CONFIG_MAPS, &config_map("undecided")).refused(403),
        "configmaps \"undecided\" is forbidden: expression 'object.spec.absent == 1' resulted in error: no such key: spec",
    );
    http.delete(&path).ok();
    let syntax = json!([{"name": "syntax", "expression": "object."}]);
    let object = configuration(
        "ValidatingWebhookConfiguration",
        "syntax",
        &hook,
        json!({"matchConditions": syntax}),
    );
    let refused =
        http.post(&format!("{HOOKS}/validatingwebhookconfigurations"), &object).refused(422);
    assert_has(
        refused,
        "webhooks[0].matchConditions[0].expression: Invalid value: \"object.\": compilation failed: ",
    );

    let scalers = json!([{
        "apiGroups": ["autoscaling"], "apiVersions": ["v2"], "operations": ["*"],
        "resources": ["horizontalpodautoscalers"],
    }]);
    validating(&http, "equivalent", &hook, json!({"rules": scalers}));
    let scaler = json!({
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"}, "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 70,
        },
    });
    http.post("/apis/autoscaling/v1/namespaces/judged/horizontalpodautoscalers", &scaler).ok();
    let request = &hook.take_asked()[0].body["request"];
    assert_eq!(request["kind"]["version"], "v2");
    assert_eq!(request["requestKind"]["version"], "v1");
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v2");
    assert!(request["object"]["spec"]["metrics"].is_array(), "{request}");
}

#[test]
fn a_webhook_that_fails_is_handled_by_its_policy() {
    let hook = Hook::start(|asked| {
        let name = asked.body["request"]["name"].as_str().unwrap_or("");
        match name {
            "garbage" => Said::Raw(200, b"<html>oops</html>".to_vec()),
            "teapot" => Said::Raw(500, b"boom".to_vec()),
            "missing" => Said::Raw(404, b"nope".to_vec()),
            "empty" => Said::Json(json!({})),
            "uid" => Said::Json(json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": "mine", "allowed": true},
            })),
            "kind" => Said::Json(json!({
                "apiVersion": "v1", "kind": "Pod",
                "response": {"uid": asked.body["request"]["uid"], "allowed": true},
            })),
            "huge" => Said::Raw(200, vec![b'x'; 20 << 20]),
            "slow" => Said::Nothing,
            "silent" => review(asked, json!({"allowed": false})),
            _ => allow(asked),
        }
    });
    let mut sheaf = Sheaf::start();
    sheaf.provokes("ignoring failed webhook");
    let http = judged(&sheaf);
    // Long enough for the huge answer on a busy machine.
    validating(&http, "closed", &hook, json!({"timeoutSeconds": 15}));
    let url = hook.url("/review?timeout=15s");
    for (name, text) in [
        ("garbage", "failed to call webhook: couldn't get version/kind; json parse error: ".to_owned()),
        ("teapot", "failed to call webhook: an error on the server (\"boom\") has prevented the request from succeeding".to_owned()),
        ("missing", "failed to call webhook: the server could not find the requested resource".to_owned()),
        ("empty", "received invalid webhook response: webhook response was absent".to_owned()),
        ("uid", "received invalid webhook response: expected response.uid=\"".to_owned()),
        ("kind", "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got v1, Kind=Pod".to_owned()),
        ("huge", format!("failed to call webhook: Post \"{url}\": the answer is larger than ")),
        ("slow", format!("failed to call webhook: Post \"{url}\": context deadline exceeded")),
    ] {
        let message = http.post(CONFIG_MAPS, &config_map(name)).refused(500);
        let prefix = "Internal error occurred: failed calling webhook \"closed.example.com\": ";
        assert_has(message, &format!("{prefix}{text}"));
    }
    assert_eq!(
        http.post(CONFIG_MAPS, &config_map("silent")).refused(400),
        "admission webhook \"closed.example.com\" denied the request without explanation"
    );
    http.post(CONFIG_MAPS, &config_map("fine")).ok();
    http.delete(&format!("{HOOKS}/validatingwebhookconfigurations/closed")).ok();

    validating(&http, "open", &hook, json!({"timeoutSeconds": 1, "failurePolicy": "Ignore"}));
    for name in ["garbage", "teapot", "uid", "huge", "slow"] {
        http.post(CONFIG_MAPS, &config_map(name)).ok();
    }
    // A refusal is no failure.
    http.post(CONFIG_MAPS, &config_map("silent")).refused(400);
    drop(hook);
    http.post(CONFIG_MAPS, &config_map("down")).ok();
    http.delete(&format!("{HOOKS}/validatingwebhookconfigurations/open")).ok();
}

#[test]
fn a_webhook_that_is_down_or_not_trusted_is_named() {
    let hook = Hook::start(allow);
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let client = json!({"url": "https://127.0.0.1:1/down", "caBundle": hook.bundle()});
    validating(&http, "down", &hook, json!({"clientConfig": client}));
    let message = http.post(CONFIG_MAPS, &config_map("x")).refused(500);
    assert_eq!(
        message,
        "Internal error occurred: failed calling webhook \"down.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/down?timeout=30s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    http.delete(&format!("{HOOKS}/validatingwebhookconfigurations/down")).ok();
    let other = Hook::start(allow);
    let client = json!({"url": hook.url("/"), "caBundle": other.bundle()});
    validating(&http, "stranger", &hook, json!({"clientConfig": client}));
    let message = http.post(CONFIG_MAPS, &config_map("x")).refused(500);
    assert_has(
        message,
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    );
    assert!(hook.asked().is_empty());
}

#[test]
fn bad_patches_are_refused_and_change_nothing() {
    let hook = Hook::start(|asked| {
        let big = "x".repeat(2 << 20);
        match asked.body["request"]["name"].as_str().unwrap_or("") {
            "no-patch" => {
                let text = STANDARD.encode("not a patch");
                review(asked, json!({"allowed": true, "patchType": "JSONPatch", "patch": text}))
            }
            "nowhere" => patch(asked, &json!([{"op": "remove", "path": "/data/absent"}])),
            "renamed" => patch(asked, &json!([{"op": "replace", "path": "/kind", "value": "Pod"}])),
            "moved" => {
                let path = "/metadata/namespace";
                patch(asked, &json!([{"op": "replace", "path": path, "value": "kube-system"}]))
            }
            "malformed" => patch(asked, &json!([{"op": "add", "path": "/data", "value": [1]}])),
            "many" => {
                let one = json!({"op": "test", "path": "/kind", "value": "ConfigMap"});
                patch(asked, &Value::Array(vec![one; 20_000]))
            }
            "large" => patch(asked, &json!([{"op": "add", "path": "/data/big", "value": big}])),
            "typed" => {
                let text = STANDARD.encode("[{}]");
                review(asked, json!({"allowed": true, "patchType": "Other", "patch": text}))
            }
            "deleted" if asked.body["request"]["operation"] == "DELETE" => {
                patch(asked, &json!([{"op": "add", "path": "/data/x", "value": "y"}]))
            }
            _ => allow(asked),
        }
    });
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    mutating(&http, "change", &hook, json!({}));
    for (name, code, part) in [
        ("no-patch", 500, "received undecodable patch in webhook response"),
        ("nowhere", 500, "Internal error occurred: "),
        ("renamed", 500, "Internal error occurred: the changed object is a \"Pod\""),
        ("moved", 400, "the namespace of the provided object does not match"),
        ("malformed", 500, "Internal error occurred: "),
        ("many", 500, "Internal error occurred: "),
        ("large", 422, "Too long"),
        ("typed", 500, "unsupported patch type \"Other\""),
    ] {
        let reply = http.post(CONFIG_MAPS, &config_map(name));
        assert_has(reply.refused(code), part);
        assert_eq!(http.get(&format!("{CONFIG_MAPS}/{name}")).status, 404);
    }
    http.post(CONFIG_MAPS, &config_map("deleted")).ok();
    assert_has(
        http.delete(&format!("{CONFIG_MAPS}/deleted")).refused(500),
        "admission webhook \"change.example.com\" attempted to modify the object, which is not supported for this operation",
    );
    http.get(&format!("{CONFIG_MAPS}/deleted")).ok();
}

#[test]
fn a_service_leads_to_its_endpoints() {
    let hook = Hook::start(allow);
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let reference = json!({"namespace": "default", "name": "hook", "path": "/deep/path"});
    let client = json!({"service": reference, "caBundle": hook.bundle()});
    validating(&http, "served", &hook, json!({"clientConfig": client}));
    let refused = http.post(CONFIG_MAPS, &config_map("early")).refused(500);
    assert_has(
        refused,
        "Post \"https://hook.default.svc:443/deep/path?timeout=30s\": service \"hook\" not found",
    );
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"ports": [{"name": "https", "port": 443}]},
    });
    http.post("/api/v1/namespaces/default/services", &service).ok();
    let refused = http.post(CONFIG_MAPS, &config_map("early")).refused(500);
    assert_has(refused, "no endpoints available for service \"hook\"");
    // Addresses of this machine itself cannot be endpoints, but names can.
    http.delete("/api/v1/namespaces/default/services/hook").ok();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    http.post("/api/v1/namespaces/default/services", &service).ok();
    http.delete(&format!("{HOOKS}/validatingwebhookconfigurations/served")).ok();
    let reference = json!({
        "namespace": "default", "name": "hook", "path": "/deep/path", "port": hook.port(),
    });
    let client = json!({"service": reference, "caBundle": hook.bundle()});
    validating(&http, "served", &hook, json!({"clientConfig": client}));
    http.post(CONFIG_MAPS, &config_map("x")).ok();
    assert_eq!(hook.asked()[0].path, "/deep/path?timeout=30s");
}

#[test]
fn subresources_and_other_kinds_are_shown_as_they_are_sent() {
    let hook = Hook::start(|asked| match asked.body["request"]["subResource"].as_str() {
        Some("scale") if asked.body["request"]["object"]["spec"]["replicas"] == 7 => {
            review(asked, json!({"allowed": false, "status": {"message": "too many"}}))
        }
        _ => allow(asked),
    });
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    let rules = json!([{
        "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"],
        "resources": ["deployments/*", "serviceaccounts/token", "pods/eviction"],
    }]);
    validating(&http, "below", &hook, json!({"rules": rules}));
    let template = json!({
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let deployments = "/apis/apps/v1/namespaces/judged/deployments";
    http.post(deployments, &deployment).ok();
    hook.take_asked();
    let scale = format!("{deployments}/d/scale");
    http.merge(&scale, &json!({"spec": {"replicas": 3}})).ok();
    let request = hook.take_asked().remove(0).body["request"].take();
    let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
    assert_eq!((&request["kind"], &request["subResource"]), (&kind, &json!("scale")));
    assert_eq!(request["oldObject"]["spec"]["replicas"], 1);
    assert_has(http.merge(&scale, &json!({"spec": {"replicas": 7}})).refused(400), "too many");
    assert_eq!(http.get(&scale).ok()["spec"]["replicas"], 3);
    hook.take_asked();
    http.merge(&format!("{deployments}/d/status"), &json!({"status": {"replicas": 3}})).ok();
    assert_eq!(hook.take_asked()[0].body["request"]["subResource"], "status");
    let token =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    http.post("/api/v1/namespaces/judged/serviceaccounts/default/token", &token).ok();
    let request = hook.take_asked().remove(0).body["request"].take();
    assert_eq!(request["kind"]["kind"], "TokenRequest");
    assert_eq!(
        (&request["resource"]["resource"], &request["operation"]),
        (&json!("serviceaccounts"), &json!("CREATE"))
    );
}

#[test]
fn many_webhooks_are_asked_at_once() {
    // Each answers only when all three are being asked.
    let barrier = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let hooks: Vec<Hook> = (0..3)
        .map(|_| {
            let barrier = barrier.clone();
            Hook::start(move |asked| {
                barrier.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let until = std::time::Instant::now() + Duration::from_secs(25);
                while barrier.load(std::sync::atomic::Ordering::SeqCst) < 3 {
                    if std::time::Instant::now() > until {
                        return Said::Raw(500, b"alone".to_vec());
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                allow(asked)
            })
        })
        .collect();
    let sheaf = Sheaf::start();
    let http = judged(&sheaf);
    for (index, hook) in hooks.iter().enumerate() {
        validating(&http, &format!("h{index}"), hook, json!({"timeoutSeconds": 30}));
    }
    http.post(CONFIG_MAPS, &config_map("x")).ok();
}
