use serde_json::json;

use super::*;
use crate::form::schema;

fn deployment() -> Schema {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "values": text});
    schema(&json!({"type": "object", "properties": {
        "apiVersion": text, "kind": text,
        "metadata": {"type": "object", "properties": {
            "name": text, "uid": text, "resourceVersion": text, "labels": texts,
            "annotations": texts, "managedFields": {"type": "array", "items": {}},
        }},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "number"}, "paused": {"type": "boolean"},
        }},
        "status": {"type": "object", "properties": {"ready": {"type": "number"}}},
    }}))
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
}

fn request<'a>(manager: &'a str, schema: &'a Schema) -> MergeRequest<'a> {
    static NOTHING: Set = Set::new();
    MergeRequest {
        manager,
        subresource: "",
        api_version: "apps/v1",
        kind: "Deployment",
        now: "2026-01-02T03:04:05Z",
        schema,
        reset: &NOTHING,
        versions: &[],
        blank: None,
    }
}

fn create(manager: &str, spec: Value, schema: &Schema) -> Value {
    let mut new = object(spec);
    track_update(None, &mut new, &request(manager, schema));
    new["metadata"]["uid"] = "u".into();
    new
}

fn entries(object: &Value) -> Value {
    object["metadata"].get("managedFields").cloned().unwrap_or_default()
}

#[test]
fn a_creator_owns_what_it_sets() {
    let schema = deployment();
    let created = create("kubectl-create", json!({"replicas": 1}), &schema);
    let expected = json!([{
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {".": {}, "f:replicas": {}}},
        "manager": "kubectl-create",
        "operation": "Update",
        "time": "2026-01-02T03:04:05Z",
    }]);
    assert_eq!(entries(&created), expected);
}

#[test]
fn fields_that_built_in_kinds_always_have_have_no_owner() {
    let schema = deployment();
    let mut new = object(json!({"replicas": 1}));
    let blank = json!({"metadata": {}, "spec": {}, "status": {}});
    track_update(None, &mut new, &MergeRequest { blank: Some(&blank), ..request("one", &schema) });
    assert_eq!(entries(&new)[0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn conflicts_read_as_clients_know_them() {
    let schema = deployment();
    let live = create("kubectl-client-side-apply", json!({"replicas": 1}), &schema);
    let config = object(json!({"replicas": 2}));
    let failure = |live: &Value, config: &Value| match apply(
        Some(live),
        config,
        &request("me", &schema),
        false,
    ) {
        Err(ApplyError::Conflict(conflicts)) => conflicts,
        other => panic!("{other:?}"),
    };
    let conflicts = failure(&live, &config);
    assert_eq!(
        conflicts.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: \
         .spec.replicas"
    );
    assert_eq!(
        conflicts.0[0].message(),
        "conflict with \"kubectl-client-side-apply\" using apps/v1"
    );
    assert_eq!(conflicts.0[0].field(), ".spec.replicas");

    let other = MergeRequest { subresource: "scale", ..request("hpa", &schema) };
    let mut scaled = live.clone();
    scaled["spec"]["paused"] = true.into();
    track_update(Some(&live), &mut scaled, &other);
    let shared = object(json!({"replicas": 1}));
    let applied = apply(Some(&scaled), &shared, &request("argo", &schema), false);
    let conflicts =
        failure(&applied.unwrap().unwrap(), &object(json!({"replicas": 2, "paused": false})));
    assert_eq!(
        conflicts.to_string(),
        "Apply failed with 3 conflicts: conflicts with \"argo\":\n- .spec.replicas\n\
         conflicts with \"hpa\" with subresource \"scale\" using apps/v1:\n- .spec.paused\n\
         conflicts with \"kubectl-client-side-apply\" using apps/v1:\n- .spec.replicas"
    );
}

#[test]
fn configurations_of_another_kind_or_with_managers_are_refused() {
    let schema = deployment();
    let refused = |config: &Value| {
        apply(None, config, &request("me", &schema), false).unwrap_err().to_string()
    };
    let mut config = object(json!({}));
    config["kind"] = "Pod".into();
    config["apiVersion"] = "v1".into();
    assert_eq!(refused(&config), "invalid object type: /v1, Kind=Pod");
    let mut config = object(json!({}));
    config["metadata"]["managedFields"] = json!([]);
    assert_eq!(refused(&config), "metadata.managedFields must be nil");
    let config = object(json!({"replica": 1}));
    assert_eq!(
        refused(&config),
        "failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.replica: \
         field not declared in schema"
    );
}

#[test]
fn applying_the_same_again_changes_nothing() {
    let schema = deployment();
    let config = object(json!({"replicas": 2}));
    let me = request("me", &schema);
    let applied = apply(None, &config, &me, false).unwrap().unwrap();
    let later = MergeRequest { now: "2027-01-01T00:00:00Z", ..me };
    assert_eq!(apply(Some(&applied), &config, &later, false), Ok(None));
}

#[test]
fn fields_no_longer_applied_are_removed_unless_another_manager_owns_them() {
    let schema = deployment();
    let both = object(json!({"replicas": 2, "paused": true}));
    let applied = apply(None, &both, &request("me", &schema), false).unwrap().unwrap();
    let theirs = object(json!({"paused": true}));
    let applied = apply(Some(&applied), &theirs, &request("you", &schema), false);
    let nothing = object(json!({}));
    let left = apply(Some(&applied.unwrap().unwrap()), &nothing, &request("me", &schema), false);
    assert_eq!(left.unwrap().unwrap()["spec"], json!({"paused": true}));
}

#[test]
fn managers_of_versions_that_are_gone_are_forgotten() {
    let schema = deployment();
    let mut live = create("old", json!({"replicas": 1}), &schema);
    live["metadata"]["managedFields"][0]["apiVersion"] = "apps/v1beta1".into();
    let mut new = live.clone();
    new["spec"]["paused"] = true.into();
    let me = MergeRequest { versions: &["apps/v1"], ..request("me", &schema) };
    track_update(Some(&live), &mut new, &me);
    let managers: Vec<&Value> = new["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["manager"])
        .collect();
    assert_eq!(managers, ["me"]);
}

#[test]
fn times_alone_are_no_change() {
    let schema = deployment();
    let live = create("me", json!({"replicas": 1}), &schema);
    let mut later = live.clone();
    later["metadata"]["managedFields"][0]["time"] = "2027-01-01T00:00:00Z".into();
    assert!(equal_ignoring_timestamps(&live, &later));
    let mut other = later.clone();
    other["metadata"]["managedFields"][0]["manager"] = "you".into();
    assert!(!equal_ignoring_timestamps(&live, &other));
    later["spec"]["replicas"] = 2.into();
    assert!(!equal_ignoring_timestamps(&live, &later));
    let mut bare = live.clone();
    take_managed_fields(&mut bare);
    assert!(!equal_ignoring_timestamps(&live, &bare));
    assert!(equal_but_managed_fields(&live, &bare));
}

#[test]
fn an_object_that_does_not_fit_its_schema_keeps_its_managers() {
    let schema = schema(&json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {},
        "spec": {"type": "array", "keys": ["name"], "items": {"type": "object"}},
    }}));
    let live = create("me", json!([{"name": "a"}]), &schema);
    let mut new = live.clone();
    new["spec"] = json!([{"nameless": 1}]);
    track_update(Some(&live), &mut new, &request("you", &schema));
    assert_eq!(entries(&new), entries(&live));
}

#[test]
fn entries_that_cannot_be_read_say_why() {
    let entry = |change: Value| {
        let mut entry = json!({"manager": "x", "operation": "Update", "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": {}});
        for (name, value) in change.as_object().unwrap() {
            entry[name] = value.clone();
        }
        json!([entry])
    };
    let table = [
        (entry(json!({"operation": "Patch"})), "operation must be `Apply` or `Update`"),
        (entry(json!({"apiVersion": ""})), "apiVersion must not be empty"),
        (entry(json!({"fieldsType": ""})), "missing fieldsType in managed fields entry 0"),
        (entry(json!({"fieldsType": "V2"})), "invalid fieldsType \"V2\" in managed fields entry 0"),
        (
            entry(json!({"fieldsV1": {"foo": {}}})),
            "error decoding set: parsing key as path element: missing colon: foo",
        ),
        (json!({}), "expected a list of entries"),
    ];
    for (value, text) in table {
        assert_eq!(validate_managed_fields(&value).unwrap_err().to_string(), text);
    }
    assert_eq!(validate_managed_fields(&entry(json!({}))), Ok(()));
}
