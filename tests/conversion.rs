//! Conversion webhooks: one object in several versions, and the effects of a bad webhook.

use serde_json::{Value, json};

use crate::harness::{Asked, Hook, Http, Said, Sheaf, assert_has};

const V1: &str = "/apis/convert.example.com/v1/namespaces/default/things";
const V2: &str = "/apis/convert.example.com/v2/namespaces/default/things";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.convert.example.com";

/// `host: "h:1"` in v1 is `host: "h", port: "1"` in v2.
fn converted(object: &Value, desired: &str) -> Value {
    let mut object = object.clone();
    let from = object["apiVersion"].as_str().unwrap_or("").to_owned();
    object["apiVersion"] = desired.into();
    if from != desired {
        let host = object["host"].as_str().unwrap_or("").to_owned();
        if desired.ends_with("v2") {
            let (host, port) = host.split_once(':').unwrap_or((&host, "0"));
            (object["host"], object["port"]) = (host.into(), port.into());
        } else {
            let port = object["port"].as_str().unwrap_or("0");
            object["host"] = format!("{host}:{port}").into();
            object.as_object_mut().unwrap().remove("port");
        }
    }
    object
}

fn answer(asked: &Asked) -> Value {
    let request = &asked.body["request"];
    let desired = request["desiredAPIVersion"].as_str().unwrap_or("");
    let objects = request["objects"].as_array().cloned().unwrap_or_default();
    let list: Vec<Value> = objects.iter().map(|object| converted(object, desired)).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {
            "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": list,
        },
    })
}

fn install(http: &Http, hook: &Hook) {
    let text = json!({"type": "string"});
    let schema = |properties: Value| json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.convert.example.com"},
        "spec": {
            "group": "convert.example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema(json!({"host": text})),
                 "selectableFields": [{"jsonPath": ".host"}]},
                {"name": "v2", "served": true, "storage": false,
                 "schema": schema(json!({"host": text, "port": text})),
                 "selectableFields": [{"jsonPath": ".host"}, {"jsonPath": ".port"}]},
            ],
            "conversion": {"strategy": "Webhook", "webhook": {
                "clientConfig": {"url": hook.url("/convert"), "caBundle": hook.bundle()},
                "conversionReviewVersions": ["v1"],
            }},
        },
    });
    http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).ok();
}

fn thing(version: &str, name: &str) -> Value {
    let mut thing = json!({
        "apiVersion": format!("convert.example.com/{version}"), "kind": "Thing",
        "metadata": {"name": name}, "host": "h:1",
    });
    if version == "v2" {
        (thing["host"], thing["port"]) = ("h".into(), "1".into());
    }
    thing
}

#[test]
fn an_object_is_read_and_written_in_every_version() {
    let hook = Hook::start(|asked| Said::Json(answer(asked)));
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    install(&http, &hook);
    http.post(V1, &thing("v1", "a")).ok();
    assert!(hook.asked().is_empty());
    let read = http.get(&format!("{V2}/a")).ok();
    assert_eq!((&read["host"], &read["port"]), (&json!("h"), &json!("1")));
    assert_eq!(read["apiVersion"], "convert.example.com/v2");
    let made = http.post(V2, &thing("v2", "b")).ok();
    assert_eq!(
        (&made["apiVersion"], &made["port"]),
        (&json!("convert.example.com/v2"), &json!("1"))
    );
    assert_eq!(http.get(&format!("{V1}/b")).ok()["host"], "h:1");
    let patched = http.merge(&format!("{V2}/a"), &json!({"port": "7"})).ok();
    assert_eq!((&patched["host"], &patched["port"]), (&json!("h"), &json!("7")));
    assert_eq!(http.get(&format!("{V1}/a")).ok()["host"], "h:7");
    let list = http.get(V2).ok();
    let ports: Vec<&str> =
        list["items"].as_array().unwrap().iter().filter_map(|it| it["port"].as_str()).collect();
    assert_eq!(ports, ["7", "1"]);
    // A list is one question.
    let last = hook.asked().pop().unwrap();
    assert_eq!(last.body["request"]["objects"].as_array().map(Vec::len), Some(2));
    let mut replaced = http.get(&format!("{V2}/b")).ok();
    replaced["port"] = "9".into();
    http.put(&format!("{V2}/b"), &replaced).ok();
    assert_eq!(http.get(&format!("{V1}/b")).ok()["host"], "h:9");
    http.delete(&format!("{V2}/b")).ok();
}

#[test]
fn a_watch_shows_the_version_that_is_watched() {
    let hook = Hook::start(|asked| Said::Json(answer(asked)));
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    install(&http, &hook);
    http.post(V1, &thing("v1", "a")).ok();
    let mut events = http.watch(V2);
    let first = events.change();
    assert_eq!((&first["type"], &first["object"]["port"]), (&json!("ADDED"), &json!("1")));
    http.merge(&format!("{V1}/a"), &json!({"host": "h:2"})).ok();
    let second = events.change();
    assert_eq!((&second["type"], &second["object"]["port"]), (&json!("MODIFIED"), &json!("2")));
    http.delete(&format!("{V1}/a")).ok();
    let third = events.change();
    assert_eq!((&third["type"], &third["object"]["port"]), (&json!("DELETED"), &json!("2")));
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[test]
fn selectors_evaluate_the_requested_version() {
    // The webhook also labels objects in v2 with their host.
    let hook = Hook::start(|asked| {
        let mut answer = answer(asked);
        for object in answer["response"]["convertedObjects"].as_array_mut().unwrap() {
            if object["apiVersion"] == "convert.example.com/v2" {
                object["metadata"]["labels"] = json!({"host": object["host"]});
            }
        }
        Said::Json(answer)
    });
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    install(&http, &hook);
    for (name, host) in [("a", "host1:80"), ("b", "host2:80"), ("c", "host1:8080")] {
        let mut thing = thing("v1", name);
        thing["host"] = host.into();
        http.post(V1, &thing).ok();
    }
    for (path, selector, expected) in [
        (V1, "fieldSelector=host=host1:80", vec!["a"]),
        (V1, "fieldSelector=host=host1", vec![]),
        (V2, "fieldSelector=host=host1", vec!["a", "c"]),
        (V2, "fieldSelector=host=host1,port=8080", vec!["c"]),
        (V2, "fieldSelector=host!=host1", vec!["b"]),
        (V2, "fieldSelector=metadata.name=a,port=80", vec!["a"]),
        (V2, "fieldSelector=metadata.name=a,port=8080", vec![]),
        (V2, "labelSelector=host=host1", vec!["a", "c"]),
        (V2, "fieldSelector=port=80&limit=1", vec!["a"]),
    ] {
        let list = http.get(&format!("{path}?{selector}")).ok();
        assert_eq!(names(&list), expected, "{path} {selector}");
    }
    http.get(&format!("{V1}?fieldSelector=port=80")).refused(400);
    let table = sheaf.kubectl().run("get things.v2.convert.example.com --field-selector=port=8080");
    assert!(table.contains("c ") && !table.contains("a "), "{table}");
    let deleted = sheaf
        .kubectl()
        .run("delete things.v2.convert.example.com --field-selector=host!=host1 -o name");
    assert_eq!(deleted.trim(), "thing.convert.example.com/b");
    http.delete(&format!("{V2}?fieldSelector=port=80")).ok();
    assert_eq!(names(&http.get(V1).ok()), ["c"]);
}

#[test]
fn a_watch_with_a_selector_follows_objects_in_and_out_of_the_watched_version() {
    let hook = Hook::start(|asked| Said::Json(answer(asked)));
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    install(&http, &hook);
    http.post(V1, &thing("v1", "a")).ok();
    http.post(V1, &thing("v1", "b")).ok();
    http.merge(&format!("{V1}/b"), &json!({"host": "h:2"})).ok();
    let mut events = http.watch(&format!("{V2}?fieldSelector=port=1"));
    let mut expect = |kind: &str, name: &str, port: &str| {
        let event = events.change();
        let object = &event["object"];
        let seen = [&event["type"], &object["metadata"]["name"], &object["port"]];
        assert_eq!(seen, [kind, name, port], "{event}");
        assert_eq!(object["apiVersion"], "convert.example.com/v2");
    };
    expect("ADDED", "a", "1");
    http.merge(&format!("{V1}/b"), &json!({"host": "h:1"})).ok();
    expect("ADDED", "b", "1");
    http.merge(&format!("{V1}/b"), &json!({"host": "other:1"})).ok();
    expect("MODIFIED", "b", "1");
    http.merge(&format!("{V1}/b"), &json!({"host": "other:3"})).ok();
    // The object as it was when it still matched.
    expect("DELETED", "b", "1");
    http.merge(&format!("{V1}/b"), &json!({"host": "other:4"})).ok();
    http.delete(&format!("{V1}/a")).ok();
    expect("DELETED", "a", "1");
}

#[test]
fn the_stored_version_can_change() {
    let hook = Hook::start(|asked| Said::Json(answer(asked)));
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    install(&http, &hook);
    http.post(V1, &thing("v1", "a")).ok();
    let mut definition = http.get(DEFINITION).ok();
    definition["spec"]["versions"][0]["storage"] = false.into();
    definition["spec"]["versions"][1]["storage"] = true.into();
    http.put(DEFINITION, &definition).ok();
    assert_eq!(http.get(&format!("{V2}/a")).ok()["port"], "1");
    assert_eq!(http.get(&format!("{V1}/a")).ok()["host"], "h:1");
    http.merge(&format!("{V1}/a"), &json!({"host": "h:3"})).ok();
    assert_eq!(http.get(&format!("{V2}/a")).ok()["port"], "3");
    assert_eq!(http.get(DEFINITION).ok()["status"]["storedVersions"], json!(["v1", "v2"]));
}

#[test]
fn a_bad_webhook_is_named_and_harms_only_other_versions() {
    let hook = Hook::start(|asked| {
        let mut answer = answer(asked);
        let name = asked.body["request"]["objects"][0]["metadata"]["name"].as_str().unwrap_or("");
        match name {
            "garbage" => return Said::Raw(200, b"{{{".to_vec()),
            "refused" => {
                answer["response"]["result"] = json!({"status": "Failure", "message": "not today"});
            }
            "uid" => answer["response"]["uid"] = "mine".into(),
            "fewer" => answer["response"]["convertedObjects"] = json!([]),
            "version" => {
                answer["response"]["convertedObjects"][0]["apiVersion"] =
                    "convert.example.com/v1".into();
            }
            "renamed" => answer["response"]["convertedObjects"][0]["metadata"]["name"] = "x".into(),
            _ => {}
        }
        Said::Json(answer)
    });
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    install(&http, &hook);
    let prefix = "conversion webhook for convert.example.com/v1, Kind=Thing";
    for (name, text) in [
        ("garbage", "failed: couldn't get version/kind; json parse error: "),
        ("refused", "failed: not today"),
        ("uid", "failed: expected response.uid=\""),
        ("fewer", "returned 0 objects, expected 1"),
        (
            "version",
            "returned invalid converted object at index 0: invalid groupVersion (expected convert.example.com/v2, received convert.example.com/v1)",
        ),
        (
            "renamed",
            "returned invalid converted object at index 0: must have the same name: renamed != x",
        ),
    ] {
        http.post(V1, &thing("v1", name)).ok();
        assert_has(http.get(&format!("{V2}/{name}")).refused(500), &format!("{prefix} {text}"));
        // In its own version it can be read and deleted.
        http.get(&format!("{V1}/{name}")).ok();
        http.delete(&format!("{V1}/{name}")).ok();
    }
    drop(hook);
    http.post(V1, &thing("v1", "down")).ok();
    assert_has(http.get(&format!("{V2}/down")).refused(500), "connect: connection refused");
    http.post(V2, &thing("v2", "new")).refused(500);
    assert_eq!(http.get(&format!("{V1}/new")).status, 404);
}
