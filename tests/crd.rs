//! Custom resources: a definition is served, checked and shown at once.

use serde_json::{Value, json};

use crate::harness::{Http, Reply, Sheaf, assert_has, eventually};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// A definition of widgets with this schema below `spec`, and more for its version.
fn definition(spec: Value, more: Value) -> Value {
    let mut version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        }},
    });
    for (key, value) in more.as_object().unwrap() {
        version[key] = value.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {
                "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList",
                "shortNames": ["wd"], "categories": ["all", "gadgets"],
            },
            "versions": [version],
        },
    })
}

fn start(spec: Value, more: Value) -> (Sheaf, Http) {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    http.post(DEFINITIONS, &definition(spec, more)).ok();
    (sheaf, http)
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn create(http: &Http, name: &str, spec: Value) -> Reply {
    http.post(WIDGETS, &widget(name, spec))
}

#[test]
fn a_definition_is_served_and_published_at_once() {
    let (_sheaf, http) = start(json!({"type": "object"}), json!({"subresources": {"status": {}}}));
    // No waiting: the answer to the creation is the promise.
    create(&http, "first", json!({})).ok();
    let resources = http.get("/apis/example.com/v1").ok();
    let named = |name: &str| {
        let resources = resources["resources"].as_array().unwrap().clone();
        resources.into_iter().find(|resource| resource["name"] == name)
    };
    let widgets = named("widgets").expect("widgets are in discovery");
    assert_eq!(widgets["shortNames"], json!(["wd"]));
    assert_eq!(widgets["categories"], json!(["all", "gadgets"]));
    assert_eq!(widgets["singularName"], "widget");
    assert!(named("widgets/status").is_some());
    let groups = http.get("/apis").ok();
    assert!(
        groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com")
    );
    let aggregated = http
        .with("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        .get("/apis");
    assert_eq!(
        aggregated.header("content-type"),
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    );
    assert_has(aggregated.text(), "\"example.com\"");
    let live = http.get(&format!("{DEFINITIONS}/widgets.example.com")).ok();
    for wanted in ["NamesAccepted", "Established"] {
        let conditions = live["status"]["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|condition| condition["type"] == wanted);
        assert_eq!(condition.expect("it is reported")["status"], "True", "{wanted}");
    }
    assert_eq!(live["status"]["storedVersions"], json!(["v1"]));
}

#[test]
fn the_openapi_documents_know_it() {
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer", "description": "How large."}}});
    let (sheaf, http) = start(spec, json!({}));
    let index = http.get("/openapi/v3").ok();
    let path = index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = http.get(path).ok();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.keys().any(|name| name.ends_with(".Widget")), "{:?}", schemas.keys());
    assert_has(http.get("/openapi/v2").text(), "How large.");
    assert_has(sheaf.kubectl().run("explain widget.spec.size"), "How large.");
}

#[test]
fn values_are_validated_in_upstreams_words() {
    let spec = json!({
        "type": "object", "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
            "mode": {"type": "string", "enum": ["Fast", "Slow"]},
            "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}}},
            },
            "either": {"x-kubernetes-int-or-string": true},
            "multiple": {"type": "number", "multipleOf": 0.5},
            "when": {"type": "string", "format": "date-time"},
            "one": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "boolean"}},
        },
    });
    let (_sheaf, http) = start(spec, json!({}));
    for (spec, message) in [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": 11}),
            "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        (
            json!({"size": "1"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 1, "name": "ABC"}),
            "spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]+$'",
        ),
        (
            json!({"size": 1, "name": "toolong"}),
            "spec.name: Too long: may not be more than 5 bytes",
        ),
        (json!({"size": 1, "name": "a"}), "spec.name in body should be at least 2 chars long"),
        (
            json!({"size": 1, "mode": "Odd"}),
            "spec.mode: Unsupported value: \"Odd\": supported values: \"Fast\", \"Slow\"",
        ),
        (
            json!({"size": 1, "tags": ["a", "b", "c"]}),
            "spec.tags: Too many: 3: must have at most 2 items",
        ),
        (json!({"size": 1, "tags": ["a", "a"]}), "spec.tags[1]: Duplicate value: \"a\""),
        (
            json!({"size": 1, "ports": [{"port": 1}, {"port": 1}]}),
            "spec.ports[1]: Duplicate value: {\"port\":1}",
        ),
        (json!({"size": 1, "either": 1.5}), "spec.either"),
        (json!({"size": 1, "multiple": 0.3}), "spec.multiple in body should be a multiple of 0.5"),
        (json!({"size": 1, "when": "yesterday"}), "spec.when in body must be of type date-time"),
        (
            json!({"size": 1, "one": {"a": true, "b": true}}),
            "spec.one: Too many: 2: must have at most 1 item",
        ),
    ] {
        let message_seen = create(&http, "bad", spec.clone()).refused(422);
        assert_has(&message_seen, "Widget.example.com \"bad\" is invalid");
        assert_has(&message_seen, message);
    }
    let many = create(&http, "bad", json!({"size": 0, "name": "ABC"}));
    assert_eq!(many.json()["details"]["causes"].as_array().unwrap().len(), 2);
    for either in [json!(1), json!("50%")] {
        let name = format!("good-{}", either.is_string());
        create(&http, &name, json!({"size": 1, "either": either, "when": "2026-01-01T00:00:00Z"}))
            .ok();
    }
}

#[test]
fn defaults_are_filled_in() {
    let spec = json!({
        "type": "object", "default": {}, "properties": {
            "size": {"type": "integer", "default": 3},
            "inner": {"type": "object", "properties": {"on": {"type": "boolean", "default": true}}},
            "maybe": {"type": "string", "nullable": true, "default": "x"},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string", "default": "b"}}}},
        },
    });
    let (_sheaf, http) = start(spec, json!({}));
    let bare =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "bare"}});
    assert_eq!(http.post(WIDGETS, &bare).ok()["spec"], json!({"maybe": "x", "size": 3}));
    let full =
        create(&http, "full", json!({"size": null, "inner": {}, "maybe": null, "list": [{}]})).ok();
    // A null that the schema does not allow gives way to the default; one that it does stays.
    assert_eq!(
        full["spec"],
        json!({"size": 3, "inner": {"on": true}, "maybe": null, "list": [{"a": "b"}]})
    );
}

#[test]
fn unknown_fields_are_pruned_reported_or_kept() {
    let spec = json!({
        "type": "object", "properties": {
            "known": {"type": "string"},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"strict": {"type": "object", "properties": {"a": {"type": "string"}}}}},
            "template": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        },
    });
    let (_sheaf, http) = start(spec, json!({}));
    let odd = json!({"known": "k", "odd": 1, "free": {"any": [1, {"x": 2}], "strict": {"a": "b", "c": "d"}}});
    let pruned = http.post(&format!("{WIDGETS}?fieldValidation=Warn"), &widget("a", odd.clone()));
    assert_eq!(
        pruned.ok()["spec"],
        json!({"known": "k", "free": {"any": [1, {"x": 2}], "strict": {"a": "b"}}})
    );
    assert_has(pruned.warnings().join("\n"), "unknown field \\\"spec.odd\\\"");
    let refused =
        http.post(&format!("{WIDGETS}?fieldValidation=Strict"), &widget("b", odd.clone()));
    let message = refused.refused(400);
    assert_has(&message, "strict decoding error");
    assert_has(&message, "unknown field \"spec.odd\"");
    let silent = http.post(&format!("{WIDGETS}?fieldValidation=Ignore"), &widget("c", odd));
    assert!(silent.ok()["spec"].get("odd").is_none());
    assert!(silent.warnings().is_empty());
    let embedded = json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"any": 1}}});
    create(&http, "d", embedded).ok();
    let incomplete = create(&http, "e", json!({"template": {"kind": "Pod"}}));
    assert_has(incomplete.refused(422), "spec.template.apiVersion: Required value");
}

#[test]
fn rules_in_cel_are_enforced() {
    let spec = json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "name": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "name cannot be changed"},
                {"rule": "!self.startsWith('x')", "messageExpression": "'bad name ' + self", "reason": "FieldValueForbidden"},
            ]},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min must not exceed max", "fieldPath": ".min"},
        ],
    });
    let (_sheaf, http) = start(spec, json!({}));
    let refused = create(&http, "a", json!({"min": 3, "max": 2})).refused(422);
    assert_has(refused, "spec.min: Invalid value: min must not exceed max");
    assert_has(
        create(&http, "a", json!({"name": "xavier"})).refused(422),
        "spec.name: Forbidden: bad name xavier",
    );
    create(&http, "a", json!({"min": 1, "max": 2, "name": "anna"})).ok();
    let path = format!("{WIDGETS}/a");
    let changed = http.merge(&path, &json!({"spec": {"name": "berta"}})).refused(422);
    assert_has(changed, "spec.name: Invalid value: \"berta\": name cannot be changed");
    http.merge(&path, &json!({"spec": {"max": 5}})).ok();
}

#[test]
fn an_old_object_may_stay_as_it_is_under_stricter_rules() {
    let loose = json!({"type": "object", "properties": {"size": {"type": "integer"}, "note": {"type": "string"}}});
    let (_sheaf, http) = start(loose.clone(), json!({}));
    create(&http, "old", json!({"size": 100})).ok();
    let mut strict = loose;
    strict["properties"]["size"]["maximum"] = json!(10);
    let mut live = http.get(&format!("{DEFINITIONS}/widgets.example.com")).ok();
    live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = strict;
    http.put(&format!("{DEFINITIONS}/widgets.example.com"), &live).ok();
    let path = format!("{WIDGETS}/old");
    http.merge(&path, &json!({"spec": {"note": "still fine"}})).ok();
    assert_has(
        http.merge(&path, &json!({"spec": {"size": 50}})).refused(422),
        "less than or equal to 10",
    );
    http.merge(&path, &json!({"spec": {"size": 5}})).ok();
    assert_has(create(&http, "new", json!({"size": 100})).refused(422), "less than or equal to 10");
}

#[test]
fn wrong_definitions_are_refused_with_reasons() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let refused = |spec: Value| http.post(DEFINITIONS, &definition(spec, json!({}))).refused(422);
    for (spec, message) in [
        (
            json!({"properties": {"a": {"type": "string"}}}),
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "nonsense"}}}),
            "properties[a].type: Unsupported value: \"nonsense\"",
        ),
        (
            json!({"type": "object", "default": {"b": 1}, "properties": {"b": {"type": "string"}}}),
            "default",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.missing > 1"}]}),
            "undefined field 'missing'",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "1 +"}]}),
            "compilation failed",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"}),
            "x-kubernetes-list-map-keys",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
            "pattern",
        ),
    ] {
        assert_has(refused(spec), message);
    }
    let mut misnamed = definition(json!({"type": "object"}), json!({}));
    misnamed["metadata"]["name"] = json!("wrong");
    assert_has(
        http.post(DEFINITIONS, &misnamed).refused(422),
        "must be spec.names.plural+\".\"+spec.group",
    );
    let mut twice = definition(json!({"type": "object"}), json!({}));
    let mut second = twice["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    twice["spec"]["versions"].as_array_mut().unwrap().push(second);
    assert_has(
        http.post(DEFINITIONS, &twice).refused(422),
        "must have exactly one version marked as storage version",
    );
    assert_eq!(http.get("/apis/example.com/v1").status, 404, "nothing of it is served");
}

#[test]
fn expensive_rules_are_refused_before_they_run() {
    let sheaf = Sheaf::start();
    let spec = json!({"type": "object", "properties": {"list": {
        "type": "array", "items": {"type": "array", "items": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x.all(a, y.all(b, a.contains(b)))))"}],
    }}});
    let refused = sheaf.http().post(DEFINITIONS, &definition(spec, json!({}))).refused(422);
    assert_has(refused, "exceeds budget");
}

#[test]
fn columns_short_names_and_categories_work_in_kubectl() {
    let columns = json!({"additionalPrinterColumns": [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "description": "How large"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "Note", "type": "string", "jsonPath": ".spec.note", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]});
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"}, "note": {"type": "string"}}});
    let (sheaf, http) = start(spec, columns);
    let mut ready = widget("a", json!({"size": 7, "note": "hidden"}));
    ready["status"] = json!({"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]});
    http.post(WIDGETS, &ready).ok();
    for kubectl in sheaf.every_kubectl() {
        let table = kubectl.run("get wd");
        let words: Vec<&str> = table.split_whitespace().collect();
        assert_eq!(words[..7], ["NAME", "SIZE", "READY", "AGE", "a", "7", "True"], "{table}");
        assert_has(kubectl.run("get widgets.v1.example.com -o wide"), "hidden");
        assert_has(kubectl.run("get gadgets"), "True");
        assert_has(kubectl.run("get all"), "widget.example.com/a");
    }
}

#[test]
fn fields_can_be_selected_by() {
    let spec = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
    let (_sheaf, http) = start(spec, json!({"selectableFields": [{"jsonPath": ".spec.colour"}]}));
    create(&http, "r", json!({"colour": "red"})).ok();
    create(&http, "b", json!({"colour": "blue"})).ok();
    let red = http.get(&format!("{WIDGETS}?fieldSelector=spec.colour=red")).ok();
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
    assert_eq!(red["items"][0]["metadata"]["name"], "r");
    assert_eq!(red["items"][0]["kind"], "Widget", "items of custom lists say what they are");
    http.get(&format!("{WIDGETS}?fieldSelector=spec.other=red")).refused(400);
    let mut events = http.watch(&format!("{WIDGETS}?fieldSelector=spec.colour=blue"));
    assert_eq!(events.next()["object"]["metadata"]["name"], "b");
}

#[test]
fn several_versions_show_the_same_objects() {
    let sheaf = Sheaf::start();
    let http = sheaf.http();
    let mut two = definition(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        json!({}),
    );
    let mut beta = two["spec"]["versions"][0].clone();
    beta["name"] = json!("v1beta1");
    beta["storage"] = json!(false);
    beta["deprecated"] = json!(true);
    two["spec"]["versions"].as_array_mut().unwrap().push(beta);
    http.post(DEFINITIONS, &two).ok();
    create(&http, "a", json!({"x": 1})).ok();
    let old = http.get("/apis/example.com/v1beta1/namespaces/default/widgets/a");
    assert_eq!(old.ok()["apiVersion"], "example.com/v1beta1");
    assert_eq!(old.json()["spec"]["x"], 1);
    assert_has(
        old.warnings().join(""),
        "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget",
    );
    let group = http.get("/apis/example.com").ok();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    // A stored version cannot be dropped.
    let mut live = http.get(&format!("{DEFINITIONS}/widgets.example.com")).ok();
    live["spec"]["versions"][0]["storage"] = json!(false);
    live["spec"]["versions"][1]["storage"] = json!(true);
    let live = http.put(&format!("{DEFINITIONS}/widgets.example.com"), &live).ok();
    assert_eq!(live["status"]["storedVersions"], json!(["v1", "v1beta1"]));
}

#[test]
fn status_and_scale_are_apart_from_the_rest() {
    let spec = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let more = json!({"subresources": {"status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }}});
    let (sheaf, http) = start(spec, more);
    let mut with_status = widget("a", json!({"replicas": 2}));
    with_status["status"] = json!({"replicas": 9});
    let created = http.post(WIDGETS, &with_status).ok();
    assert!(created.get("status").is_none(), "a status cannot be created: {created}");
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{WIDGETS}/a");
    let status = json!({"status": {"replicas": 1, "selector": "app=a"}, "spec": {"replicas": 50}});
    let after = http.merge(&format!("{path}/status"), &status).ok();
    assert_eq!(
        (&after["spec"]["replicas"], &after["metadata"]["generation"]),
        (&json!(2), &json!(1))
    );
    let scale = http.get(&format!("{path}/scale")).ok();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!(scale["status"], json!({"replicas": 1, "selector": "app=a"}));
    sheaf.kubectl().run("scale widget a --replicas=4");
    let after = http.get(&path).ok();
    assert_eq!(
        (&after["spec"]["replicas"], &after["metadata"]["generation"]),
        (&json!(4), &json!(2))
    );
}

#[test]
fn deleting_a_definition_deletes_its_objects_first() {
    let (_sheaf, http) = start(json!({"type": "object"}), json!({}));
    create(&http, "free", json!({})).ok();
    let mut held = widget("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    http.post(WIDGETS, &held).ok();
    let path = format!("{DEFINITIONS}/widgets.example.com");
    http.delete(&path).ok();
    eventually("the free one is gone", || http.get(&format!("{WIDGETS}/free")).status == 404);
    let terminating = http.get(&path).ok();
    assert!(terminating["metadata"]["deletionTimestamp"].is_string());
    assert_has(
        create(&http, "late", json!({})).refused(403),
        "create not allowed while custom resource definition is terminating",
    );
    http.merge(&format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).ok();
    eventually("the definition is gone", || http.get(&path).status == 404);
    eventually("the group is gone", || http.get("/apis/example.com/v1").status == 404);
    http.post(DEFINITIONS, &definition(json!({"type": "object"}), json!({}))).ok();
    let list = http.get(WIDGETS).ok();
    assert_eq!(list["items"], json!([]), "nothing of before comes back");
}

#[test]
fn names_belong_to_who_came_first() {
    let (_sheaf, http) = start(json!({"type": "object"}), json!({}));
    let mut other = definition(json!({"type": "object"}), json!({}));
    other["metadata"]["name"] = json!("gizmos.example.com");
    other["spec"]["names"] =
        json!({"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "shortNames": ["wd"]});
    http.post(DEFINITIONS, &other).ok();
    let live = http.get(&format!("{DEFINITIONS}/gizmos.example.com")).ok();
    let conditions = live["status"]["conditions"].as_array().unwrap();
    let names = conditions.iter().find(|condition| condition["type"] == "NamesAccepted").unwrap();
    assert_eq!(names["status"], "False");
    assert_has(names["message"].as_str().unwrap(), "\"wd\" is already in use");
}

#[test]
fn server_side_apply_merges_lists_by_their_keys() {
    let spec = json!({"type": "object", "properties": {
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
            "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}}},
        "atoms": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
    }});
    let (_sheaf, http) = start(spec, json!({}));
    let path = format!("{WIDGETS}/a");
    http.apply(
        &path,
        "red",
        &widget("a", json!({"ports": [{"port": 80, "name": "web"}], "atoms": ["x"]})),
    )
    .ok();
    let both = http
        .apply(&path, "green", &widget("a", json!({"ports": [{"port": 443, "name": "tls"}]})))
        .ok();
    assert_eq!(
        both["spec"]["ports"],
        json!([{"port": 80, "name": "web"}, {"port": 443, "name": "tls"}])
    );
    let conflict = http.apply(&path, "green", &widget("a", json!({"atoms": ["y"]})));
    let message = conflict.refused(409);
    assert_has(message, "conflict with \"red\": .spec.atoms");
    assert_eq!(conflict.json()["details"]["causes"][0]["reason"], "FieldManagerConflict");
    let forced = http
        .apply(&format!("{path}?force=true"), "green", &widget("a", json!({"atoms": ["y"]})))
        .ok();
    assert_eq!(
        forced["spec"]["ports"],
        json!([{"port": 80, "name": "web"}]),
        "what green no longer applies is gone"
    );
    let strategic = http.patch(&path, "application/strategic-merge-patch+json", "{}");
    assert_has(strategic.refused(415), "application/merge-patch+json");
}
