use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn texts(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn create(object: &Value, scope: Scope, expect: Expect) {
    let mut errors = Vec::new();
    validate_metadata_create(object, scope, NameRule::Subdomain, &mut errors);
    expect.assert_eq(&texts(&errors));
}

fn update(new: &Value, old: &Value, expect: Expect) {
    let mut errors = Vec::new();
    validate_metadata_update(new, old, &mut errors);
    expect.assert_eq(&texts(&errors));
}

#[test]
fn a_new_object_needs_a_name_and_a_namespace() {
    create(
        &json!({}),
        Scope::Namespaced,
        expect![[r#"
        metadata.name: Required value: name or generateName is required
        metadata.namespace: Required value"#]],
    );
    create(
        &json!({"metadata": {"name": "a", "namespace": "b"}}),
        Scope::Cluster,
        expect!["metadata.namespace: Forbidden: not allowed on this type"],
    );
    create(
        &json!({"metadata": {"name": "a-x", "generateName": "a-"}}),
        Scope::Cluster,
        expect![""],
    );
}

#[test]
fn labels_annotations_owners_and_finalizers_are_judged() {
    let object = json!({"metadata": {
        "name": "a",
        "labels": {"a": "b c"},
        "annotations": {"Upper.example.com/Key": "fine", "no spaces": ""},
        "finalizers": ["orphan", "foregroundDeletion", "a b"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "A", "name": "x", "uid": "1", "controller": true},
            {"apiVersion": "v1", "kind": "B", "name": "y", "uid": "2", "controller": true},
            {"apiVersion": "a/b/c"},
        ],
        "managedFields": [{"operation": "Guess", "fieldsType": "Other"}],
    }});
    create(
        &object,
        Scope::Cluster,
        expect![[r#"
            metadata.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            metadata.annotations: Invalid value: "no spaces": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","controller":true,"kind":"A","name":"x","uid":"1"},{"apiVersion":"v1","controller":true,"kind":"B","name":"y","uid":"2"},{"apiVersion":"a/b/c"}]: Only one reference can have Controller set to true. Found "true" in references for A/x and B/y
            metadata.ownerReferences[2].apiVersion: Invalid value: "a/b/c": must be <group>/<version> or <version>
            metadata.ownerReferences.kind: Invalid value: "": must not be empty
            metadata.ownerReferences.name: Invalid value: "": must not be empty
            metadata.ownerReferences.uid: Invalid value: "": must not be empty
            metadata.managedFields[0].operation: Unsupported value: "Guess": supported values: "Apply", "Update"
            metadata.managedFields[0].fieldsType: Invalid value: "Other": must be `FieldsV1`
            metadata.finalizers: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
            metadata.finalizers: Invalid value: ["orphan","foregroundDeletion","a b"]: finalizer orphan and foregroundDeletion cannot be both set"#]],
    );
}

#[test]
fn annotations_have_a_common_limit() {
    let object = json!({"metadata": {"name": "a", "annotations": {"k": "v".repeat(262_144)}}});
    create(
        &object,
        Scope::Cluster,
        expect!["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
}

#[test]
fn fields_of_the_server_cannot_be_changed() {
    let old = json!({"metadata": {
        "name": "a", "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3,
        "deletionTimestamp": "2026-01-02T00:00:00Z", "finalizers": ["x/y"],
    }});
    update(&json!({"metadata": {"name": "a", "finalizers": ["x/y"]}}), &old, expect![""]);
    let new = json!({"metadata": {
        "name": "b", "uid": "2", "generation": 2, "finalizers": ["x/y", "x/z"],
    }});
    update(
        &new,
        &old,
        expect![[r#"
        metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"x/z"}
        metadata.generation: Invalid value: 2: must not be decremented
        metadata.name: Invalid value: "b": field is immutable
        metadata.uid: Invalid value: "2": field is immutable"#]],
    );
}
