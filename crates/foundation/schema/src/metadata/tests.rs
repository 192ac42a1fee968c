use serde_json::json;

use super::*;

fn coerce(value: &mut Value, malformed: Malformed) -> Result<Vec<String>, String> {
    let schema = crate::parse(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"template": {
            "type": "object",
            "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        }}},
    }}))
    .unwrap();
    coerce_metadata(value, &schema, ObjectLevel::Root, malformed).map_err(|error| error.to_string())
}

#[test]
fn unknown_and_empty_fields_go() {
    let mut value = json!({
        "apiVersion": "a/v1", "kind": "A",
        "metadata": {
            "name": "x", "generateName": null, "unknownField": 1, "creationTimestamp": null,
            "labels": {}, "annotations": {"a": null}, "generation": 0,
            "deletionGracePeriodSeconds": 0,
            "ownerReferences": [{"name": "o", "foo": 1, "controller": true}],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}, "time": "2024-01-01T00:00:00Z"}],
        },
        "spec": {"template": {"metadata": {"namespace": "ns", "bar": {}}, "kept": 1}},
    });
    let unknown = coerce(&mut value, Malformed::Refuse).unwrap();
    assert_eq!(
        unknown,
        ["metadata.ownerReferences[0].foo", "metadata.unknownField", "spec.template.metadata.bar",]
    );
    assert_eq!(
        value,
        json!({
            "apiVersion": "a/v1", "kind": "A",
            "metadata": {
                "name": "x", "annotations": {"a": ""}, "deletionGracePeriodSeconds": 0,
                "ownerReferences": [{"name": "o", "controller": true}],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}, "time": "2024-01-01T00:00:00Z"}],
            },
            "spec": {"template": {"metadata": {"namespace": "ns"}, "kept": 1}},
        })
    );
}

#[test]
fn null_metadata_is_empty_metadata() {
    let mut value = json!({"metadata": null});
    assert_eq!(coerce(&mut value, Malformed::Refuse).unwrap(), [""; 0]);
    assert_eq!(value, json!({"metadata": {}}));
}

#[test]
fn wrong_types_are_refused_or_dropped() {
    let check = |metadata: Value, text: &str| {
        let mut value = json!({"metadata": metadata});
        assert_eq!(coerce(&mut value, Malformed::Refuse).unwrap_err(), text);
    };
    check(
        json!({"annotations": 11}),
        r#"metadata: Invalid value: {"annotations":11}: json: cannot unmarshal number into Go struct field ObjectMeta.annotations of type map[string]string"#,
    );
    check(
        json!({"labels": {"a": 1}}),
        r#"metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#,
    );
    check(
        json!("x"),
        r#"metadata: Invalid value: "x": json: cannot unmarshal string into Go value of type v1.ObjectMeta"#,
    );
    let mut value = json!({
        "apiVersion": 1, "kind": "K",
        "metadata": {"name": "x", "annotations": 11, "labels": {"a": "b"}, "finalizers": [1],
            "generation": "1", "deletionTimestamp": "yesterday", "foo": 1},
    });
    assert_eq!(coerce(&mut value, Malformed::Drop).unwrap(), ["metadata.foo"]);
    assert_eq!(value, json!({"kind": "K", "metadata": {"name": "x", "labels": {"a": "b"}}}));
    let mut value = json!({"apiVersion": 1});
    assert_eq!(
        coerce(&mut value, Malformed::Refuse).unwrap_err(),
        "apiVersion: Invalid value: 1: must be a string"
    );
}
