use serde_json::json;

use super::*;

fn check(schema: Value, mut value: Value, level: ObjectLevel, kept: Value, dropped: &[&str]) {
    let schema = crate::parse(&schema).unwrap();
    assert_eq!(prune(&mut value, &schema, level), dropped);
    assert_eq!(value, kept);
}

fn field(schema: Value, value: Value, kept: Value, dropped: &[&str]) {
    check(schema, value, ObjectLevel::Field, kept, dropped);
}

#[test]
fn scalars_survive_any_schema() {
    field(json!({}), json!(4), json!(4), &[]);
    field(json!({}), json!(null), json!(null), &[]);
    field(json!({"items": {}}), json!([1, 2]), json!([1, 2]), &[]);
}

#[test]
fn unspecified_fields_go_on_every_level() {
    let ac = json!({"a": {}, "c": {}});
    field(
        json!({"items": {"properties": ac}}),
        json!([{"a": 1}, {"b": 1}, {"a": 1, "b": 2, "c": 3}]),
        json!([{"a": 1}, {}, {"a": 1, "c": 3}]),
        &["[1].b", "[2].b"],
    );
    field(
        json!({"properties": {
            "array": {"items": {"properties": ac}}, "specified": {"properties": ac},
        }}),
        json!({
            "array": [{"a": 1}, {"b": 1}, {"a": 1, "b": 2, "c": 3}],
            "unspecified": {"a": 1},
            "specified": {"a": 1, "b": 2, "c": 3},
        }),
        json!({"array": [{"a": 1}, {}, {"a": 1, "c": 3}], "specified": {"a": 1, "c": 3}}),
        &["array[1].b", "array[2].b", "specified.b", "unspecified"],
    );
}

#[test]
fn preserving_stops_where_fields_are_specified_again() {
    let object = json!({"type": "object"});
    let preserving = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let specified = json!({"type": "object", "properties": {"specified": object}});
    field(
        json!({
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {
                "alpha": {"type": "string"},
                "pruning": {
                    "type": "object",
                    "properties": {"preserving": preserving, "pruning": object},
                },
                "preserving": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "preserving": preserving,
                        "untyped": {"x-kubernetes-preserve-unknown-fields": true},
                        "pruning": object,
                    },
                },
                "mapPreserving": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "additionalProperties": specified,
                },
                "map": {"type": "object", "additionalProperties": specified},
            },
        }),
        json!({
            "unspecified": "bar",
            "alpha": "abc",
            "unspecifiedObject": {"unspecified": "bar"},
            "pruning": {
                "unspecified": "bar",
                "unspecifiedObject": {"unspecified": "bar"},
                "pruning": {"unspecified": "bar"},
                "apiVersion": "unknown",
                "preserving": {"unspecified": "bar"},
            },
            "preserving": {
                "unspecified": "bar",
                "pruning": {"unspecified": "bar"},
                "preserving": {"unspecified": "bar"},
                "untyped": [{"foo": true}, {"bar": true}],
            },
            "mapPreserving": {"foo": {"specified": {"unspecified": "bar"}, "unspecified": "bar"}},
            "map": {"foo": {"specified": {"unspecified": "bar"}, "unspecified": "bar"}},
        }),
        json!({
            "unspecified": "bar",
            "alpha": "abc",
            "unspecifiedObject": {"unspecified": "bar"},
            "pruning": {"pruning": {}, "preserving": {"unspecified": "bar"}},
            "preserving": {
                "unspecified": "bar",
                "pruning": {},
                "preserving": {"unspecified": "bar"},
                "untyped": [{"foo": true}, {"bar": true}],
            },
            "mapPreserving": {"foo": {"specified": {}}},
            "map": {"foo": {"specified": {}}},
        }),
        &[
            "map.foo.specified.unspecified",
            "map.foo.unspecified",
            "mapPreserving.foo.specified.unspecified",
            "mapPreserving.foo.unspecified",
            "preserving.pruning.unspecified",
            "pruning.apiVersion",
            "pruning.pruning.unspecified",
            "pruning.unspecified",
            "pruning.unspecifiedObject",
        ],
    );
}

#[test]
fn maps_keep_their_keys() {
    field(
        json!({"properties": {"a": {}, "c": {"additionalProperties": {"type": "integer"}}}}),
        json!({"a": 1, "b": 1, "c": {"a": 1, "b": 2, "c": {"a": 1}}}),
        json!({"a": 1, "c": {"a": 1, "b": 2, "c": {}}}),
        &["b", "c.c.a"],
    );
    field(
        json!({"properties": {"c": {"additionalProperties": true}}}),
        json!({"c": {"a": 1, "c": {"a": 1, "apiVersion": "unknown"}}}),
        json!({"c": {"a": 1, "c": {}}}),
        &["c.c.a", "c.c.apiVersion"],
    );
}

fn embedding() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pruned": {
                "type": "object",
                "x-kubernetes-embedded-resource": true,
                "properties": {"spec": {"type": "object"}},
            },
            "preserving": {
                "type": "object",
                "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true,
            },
        },
    })
}

fn resource() -> Value {
    json!({
        "apiVersion": "foo/v1", "kind": "Foo", "unspecified": "bar",
        "metadata": {"name": "instance", "unspecified": "bar"},
        "spec": {"unspecified": "bar"},
    })
}

fn pruned_resource() -> Value {
    json!({
        "apiVersion": "foo/v1", "kind": "Foo",
        "metadata": {"name": "instance", "unspecified": "bar"},
        "spec": {},
    })
}

#[test]
fn embedded_resources_keep_their_type_and_metadata() {
    let mut value = resource();
    value["pruned"] = resource();
    value["preserving"] = resource();
    let dropped = ["pruned.spec.unspecified", "pruned.unspecified", "spec", "unspecified"];
    field(
        embedding(),
        value.clone(),
        json!({"pruned": pruned_resource(), "preserving": resource()}),
        &dropped,
    );
    check(
        embedding(),
        value,
        ObjectLevel::Root,
        json!({
            "apiVersion": "foo/v1", "kind": "Foo",
            "metadata": {"name": "instance", "unspecified": "bar"},
            "pruned": pruned_resource(), "preserving": resource(),
        }),
        &dropped,
    );
}

#[test]
fn lists_of_preserving_schemas_preserve_their_items() {
    field(
        json!({"x-kubernetes-preserve-unknown-fields": true, "items": {"properties": {"a": {"type": "object"}}}}),
        json!([{"a": {"b": 1}, "c": 1}]),
        json!([{"a": {}, "c": 1}]),
        &["[0].a.b"],
    );
}
